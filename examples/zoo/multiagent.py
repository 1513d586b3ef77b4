"""The zoo's teams: two agents that share a network, and one reward."""

from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from recipes import multiagent as recipes
from recipes import policy_gradient as gradients
from recipes.continuous import ActorCritic

import rlaxlib
from zoo import continuous
from zoo import policy_gradient as zoo
from zoo.networks import ensemble, forward, forward_ensemble, mlp
from zoo.tasks import Task
from zoo.training import Agent, Entry, begin, descend, online

OPTIMIZER, EPOCHS = zoo.OPTIMIZER, zoo.EPOCHS
FAILS = "reward", "bootstrap"
AGENTS, ACTIONS, MIX = 2, 2, 8


# --- Games. ---


def two_step(sure=7.0, forces=False):
    """Return the two-step game of QMIX (Rashid et al., 2018, section 5).

    The first agent's action leads to a game that pays 7, or to one that pays 8, but
    only if both agents take its second action: 0, 1, 1 or 8. A sum of one value for
    each agent cannot equal these payoffs, so VDN prefers the first game. If `forces`,
    actions are in [-1, 1], and the second one is certain from a half on; at first, a
    force of minus a half leads to the second game.
    """
    second = jnp.array([[0.0, 1.0], [1.0, 8.0]])

    def step(key, x, a):
        p = jnp.clip(0.5 + a[:, 0], 0, 1) if forces else a.astype(float)
        one, other = jnp.stack([1 - p, p], axis=1)
        reward = jnp.where(x == 1, sure, jnp.where(x == 2, one @ second @ other, 0.0))
        choice = 1 - p[0] if forces else p[0]
        return 1 + jax.random.bernoulli(key, choice), reward, x > 0

    return Task(
        about=(
            f"Two-step game of {'forces' if forces else 'QMIX'}: {sure:g} for sure, "
            "or 8 if both agents agree"
        ),
        reset=lambda _: jnp.array(0),
        observe=lambda x: _with_names(jnp.tile(jax.nn.one_hot(x, 3), (AGENTS, 1))),
        step=step,
        limit=2,
        actions=1 if forces else ACTIONS,
        random=(sure + 2.5) / 2,
        best=8.0,
        discount=0.99,
    )


def corridors(both=False):
    """Return two corridors of 6 cells, one for each agent; the far end pays 1.

    The near end pays 0.3. The episode ends when both agents are at an end. If `both`,
    the far ends pay only where both agents reach them, and the near end pays 0.05:
    with 0.1, one team in twenty stays there.
    """

    def step(_, x, a):
        inside = (x > 0) & (x < 5)
        x = jnp.where(inside, x + 2 * a - 1, x)
        far, near = x == 5, x == 0
        over = jnp.all(far | near)
        near = jnp.where(both, 0.05, 0.3) * jnp.sum(near & inside)
        if both:
            return x, near + 2.0 * jnp.all(far), over
        return x, near + jnp.sum(far & inside), over

    return Task(
        about=(
            "Two corridors of 6 cells: the far ends pay 2 together, a near one 0.05"
            if both
            else "Two corridors of 6 cells: a far end pays 1, a near one 0.3"
        ),
        reset=lambda _: jnp.full(AGENTS, 2),
        observe=lambda x: _with_names(jnp.stack([_seen(x), _seen(x[::-1])])),
        step=step,
        limit=20,
        actions=ACTIONS,
        random=0.36 if both else 1.14,
        best=2.0,
    )


def _seen(x):
    return jax.nn.one_hot(x, 6).reshape(-1)


def _with_names(s):
    return jnp.concatenate([s, jnp.eye(AGENTS)], axis=-1)


# --- Action values. ---


class Mixer(NamedTuple):
    """Parameters of the agents, and of the hypernetworks of their mix."""

    agents: Any
    weights: Any


def qmix_network(params, s):
    """Return action values, [B, N, A], and the weights of the mix."""
    x = forward(params.weights, s.reshape(*s.shape[:-2], -1))
    sizes = AGENTS * MIX, (AGENTS + 1) * MIX, (AGENTS + 2) * MIX
    inputs, *others, bias = jnp.split(x, sizes, axis=-1)
    inputs = inputs.reshape(*inputs.shape[:-1], AGENTS, MIX)
    return forward(params.agents, s), inputs, *others, bias[..., 0]


def moves(batch):
    """Return transitions after which both actions are available."""
    return SimpleNamespace(**batch._asdict(), legal_t=None)


def vdn(params, target, batch):
    return recipes.vdn(params.agents, target.agents, forward, moves(batch))


def qmix(params, target, batch):
    return recipes.qmix(params, target, qmix_network, moves(batch))


def learner_of_values(task, loss, epsilon):
    """Return a team whose agents are ε-greedy in their own values."""

    def init(key):
        agents_key, key = jax.random.split(key)
        agents = mlp(agents_key, task.size, 32, ACTIONS)
        weights = mlp(key, AGENTS * task.size, 32, (AGENTS + 2) * MIX + 1)
        return begin(Mixer(agents, weights), OPTIMIZER)

    def act(state, key, s):
        keys, q = jax.random.split(key, AGENTS), forward(state.params.agents, s)
        return jax.vmap(rlaxlib.epsilon_greedy(epsilon).sample)(keys, q)

    def update(state, key, batch):
        return descend(
            state, lambda p: loss(p, state.target, batch), OPTIMIZER, period=20
        )

    def best(state, key, s):
        return jnp.argmax(forward(state.params.agents, s), axis=-1)

    return Agent(init=init, act=act, best=best, update=update)


# --- Policies. ---


class Team(NamedTuple):
    """Parameters of the policies, and of the value of the team."""

    policies: Any
    value: Any


def value_of(params, s):
    """Return the value of the team's state, from all observations."""
    return forward(params.value, s.reshape(*s.shape[:-2], -1))[..., 0]


def shared(params, s):
    """Return logits, [..., N, A], of policies that share a network."""
    return forward(params.policies, s)


def separate(params, s):
    """Return logits, [..., N, A], of policies each with its network."""
    return jax.vmap(forward, (0, -2), -2)(params.policies, s)


def steps_of(params, logits_of, batch):
    """Return all time steps of streams, [B], with advantages and targets."""
    logits = logits_of(params, batch.s_tm1)
    values = (value_of(params, s) for s in (batch.s_tm1, batch.s_t))
    batch = zoo.Stream(*batch, logits, *values)
    adv_t, target = gradients.advantages(batch, 0.95)
    steps = SimpleNamespace(
        s_tm1=batch.s_tm1,
        a_tm1=batch.a_tm1,
        old_log_prob=gradients.log_probs(logits, batch.a_tm1),
        old_v=batch.v_tm1,
    )

    def flat(x):
        return x.reshape(-1, *x.shape[2:])

    fields = {name: flat(x) for name, x in vars(steps).items()}
    steps = SimpleNamespace(**fields, sample_mask=None)
    return steps, flat(adv_t), flat(target)


def mappo(state, key, batch):
    """Return the state after some epochs of MAPPO."""
    inputs = steps_of(state.params, shared, batch)

    def apply(params, s):
        return shared(params, s), value_of(params, s)

    return _epochs(state, lambda p: recipes.mappo(p, apply, *inputs))


def happo(state, key, batch):
    """Return the state after HAPPO of all agents, in a random order."""
    batch, adv_t, target = steps_of(state.params, separate, batch)

    def one(carry, agent):
        state, ratio = carry

        def apply(params, s):
            own = jax.tree.map(lambda x: x[agent], params.policies)
            return forward(own, s)

        state = _epochs(
            state, lambda p: recipes.happo(p, apply, batch, adv_t, ratio, agent)
        )
        logits = apply(state.params, batch.s_tm1[:, agent])
        log_prob = gradients.log_probs(logits, batch.a_tm1[:, agent])
        return (state, ratio * jnp.exp(log_prob - batch.old_log_prob[:, agent])), None

    agents = jax.random.permutation(key, AGENTS)
    (state, _), _ = jax.lax.scan(one, (state, jnp.ones_like(adv_t)), agents)

    def value_loss(p):
        return jnp.mean(rlaxlib.l2_loss(value_of(p, batch.s_tm1), target))

    return _epochs(state, value_loss)


def _epochs(state, loss):
    def one(_, state):
        return descend(state, loss, OPTIMIZER)

    return jax.lax.fori_loop(0, EPOCHS, one, state)


def learner_of_policies(task, logits_of, update):
    """Return a team whose policies are those of `logits_of`."""

    def init(key):
        key, value_key = jax.random.split(key)
        sizes = task.size, 32, ACTIONS

        def one(key):
            return mlp(key, *sizes, scale=0.1)

        separated = logits_of is separate
        policies = (
            jax.vmap(one)(jax.random.split(key, AGENTS)) if separated else one(key)
        )
        value = mlp(value_key, AGENTS * task.size, 32, 1)
        return begin(Team(policies, value), OPTIMIZER)

    def act(state, key, s):
        keys, logits = jax.random.split(key, AGENTS), logits_of(state.params, s)
        return jax.vmap(rlaxlib.softmax().sample)(keys, logits)

    return Agent(init=init, act=act, best=act, update=update)


def of_agents(batch):
    """Return the streams of all agents, [B N, T]."""
    team = batch.r_t, batch.discount_t, batch.truncated_t
    r_t, discount_t, truncated_t = (
        jnp.broadcast_to(x[..., None], batch.a_tm1.shape) for x in team
    )
    fields = batch.s_tm1, batch.a_tm1, r_t, discount_t, batch.s_t, truncated_t
    fields = (jnp.swapaxes(x, 1, 2) for x in fields)
    return type(batch)(*(x.reshape(-1, *x.shape[2:]) for x in fields))


# --- IPPO. ---


def ippo(task):
    """Return a team whose agents share a policy and values of their observations."""
    network = zoo.with_value(task)

    def update(state, key, batch):
        batch = of_agents(batch)
        outputs = (network.apply(state.params, s) for s in (batch.s_tm1, batch.s_t))
        (logits, v_tm1), (_, v_t) = outputs
        batch = zoo.Stream(*batch, logits, v_tm1, v_t)
        return _epochs(state, lambda p: gradients.ppo(p, network.apply, batch))

    def act(state, key, s):
        logits, _ = network.apply(state.params, s)
        return jax.vmap(rlaxlib.softmax().sample)(jax.random.split(key, AGENTS), logits)

    return Agent(
        init=lambda key: begin(network.init(key), OPTIMIZER),
        act=act,
        best=act,
        update=update,
    )


# --- COMA. ---


def coma_network(params, s):
    """Return logits from an agent's observation, and q with the other's action too."""
    return forward(params.policies, s[..., :-ACTIONS]), forward(params.value, s)


def coma(task):
    """Return a team whose streams are those of its agents, [B N, T]."""

    def others(a):
        return jax.nn.one_hot(a[..., ::-1], ACTIONS)

    def streams(params, key, batch):
        logits_t = forward(params.policies, batch.s_t)
        a_t = jax.random.categorical(key, logits_t)
        s_tm1 = jnp.concatenate([batch.s_tm1, others(batch.a_tm1)], axis=-1)
        s_t = jnp.concatenate([batch.s_t, others(a_t)], axis=-1)
        return of_agents(batch._replace(s_tm1=s_tm1, s_t=s_t))

    def update(state, key, batch):
        batch = streams(state.params, key, batch)

        def loss(params):
            return gradients.coma(params, state.target, coma_network, batch)

        return descend(state, loss, OPTIMIZER, period=20)

    def init(key):
        key, value_key = jax.random.split(key)
        policies = mlp(key, task.size, 32, ACTIONS, scale=0.1)
        value = mlp(value_key, task.size + ACTIONS, 32, ACTIONS)
        return begin(Team(policies, value), OPTIMIZER)

    return learner_of_policies(task, shared, update)._replace(init=init)


# --- MADDPG and MASAC, from random actions. ---


def inputs_of(s, a, alone):
    """Return what the critic of an agent reads beside its observation, [B, N, ...].

    That is the actions of all agents, or its own one if it is `alone`. Observations
    hold the state of the game.
    """
    every = jnp.broadcast_to(a.reshape(len(a), 1, -1), (*a.shape[:2], a[0].size))
    return jnp.concatenate([s, a if alone else every], axis=-1)


def of_each_agent(batch):
    """Return a batch whose rewards and discounts are those of each agent, [B, N]."""
    both = (jnp.tile(x[:, None], (1, AGENTS)) for x in (batch.r_t, batch.discount_t))
    r_t, discount_t = both
    return batch._replace(r_t=r_t, discount_t=discount_t)


def maddpg(alone=False):
    """Return the loss of agents with networks of their own."""

    def critic(params, s, a):
        return jax.vmap(forward, (0, -2), -2)(params, inputs_of(s, a, alone))[..., 0]

    def actor(params, s):
        return jax.vmap(forward, (0, -2), -2)(params, s)

    apply = ActorCritic(actor, critic)

    def loss(params, target, batch, key):
        critic_key, actor_key = jax.random.split(key)
        batch = of_each_agent(batch)
        batch = batch._replace(a_tm1=jax.nn.one_hot(batch.a_tm1, ACTIONS))
        critic = recipes.maddpg_critic(params, target, apply, batch, critic_key)
        # Logits that are too large keep their first preference for long.
        actor = recipes.maddpg_actor(params, apply, batch, actor_key, logit_cost=0.01)
        return critic + actor

    return loss


def masac(alone=False):
    """Return the loss of agents that share networks, each with a temperature."""

    def critic(params, s, a):
        return forward_ensemble(params, inputs_of(s, a, alone))[..., 0]

    apply = ActorCritic(continuous.normal, critic)

    def loss(params, target, batch, key):
        keys, batch = jax.random.split(key, 3), of_each_agent(batch)
        fixed = jax.lax.stop_gradient(params)
        temperature = jnp.exp(fixed.duals)
        return (
            recipes.masac_critic(params, target, apply, batch, keys[0], temperature)
            + recipes.masac_actor(params, apply, batch, keys[1], temperature)
            + recipes.masac_temperature(params.duals, fixed, apply, batch, keys[2], -1)
        )

    return loss


def maddpg_agent(task, alone=False):
    size = task.size + (1 if alone else AGENTS) * ACTIONS

    def init(key):
        actor_key, key = jax.random.split(key)
        actor = ensemble(actor_key, AGENTS, task.size, 32, ACTIONS)
        return ActorCritic(actor, ensemble(key, AGENTS, size, 32, 1))

    def act(state, key, s):
        return jax.random.randint(key, (AGENTS,), 0, ACTIONS)

    def best(state, key, s):
        return jnp.argmax(jax.vmap(forward)(state.params.actor, s), axis=-1)

    return random_explorer(init, maddpg(alone), act, best)


def masac_agent(task, alone=False):
    size = task.size + (1 if alone else AGENTS)

    def init(key):
        actor_key, key = jax.random.split(key)
        actor = mlp(actor_key, task.size, 32, 2, scale=0.1)
        duals = jnp.full(AGENTS, jnp.log(0.1))
        return ActorCritic(actor, ensemble(key, 2, size, 32, 1), duals)

    def act(state, key, s):
        return jax.random.uniform(key, (AGENTS, 1), minval=-1, maxval=1)

    def best(state, key, s):
        return continuous.mode(state.params.actor, s)

    return random_explorer(init, masac(alone), act, best)


def random_explorer(init, loss, act, best):
    """Return an agent that learns from replayed random actions."""

    def update(state, key, batch):
        def total(params):
            return loss(params, state.target, batch, key)

        return descend(state, total, OPTIMIZER, rate=0.05)

    return Agent(
        init=lambda key: begin(init(key), OPTIMIZER), act=act, best=best, update=update
    )


# --- Entries. ---


def entry(recipe, task, agent, states, fails=FAILS, without=None, **options):
    """Return an entry of a game, with agents that lack a part."""
    options = {"updates": 300, "steps": 10} | options
    others = {part: online(task, x, **options) for part, x in (without or {}).items()}
    return Entry(
        recipe=recipe,
        run=online(task, agent, **options),
        about=task.about,
        random=task.random,
        best=task.best,
        states=states,
        fails=fails,
        without=others,
    )


REPLAY = {"updates": 800, "steps": 2, "replay": 64}
ENTRIES = {
    "vdn": entry(
        "multiagent.vdn",
        corridors(),
        learner_of_values(corridors(), vdn, 0.5),
        states=1.9,
        **REPLAY,
    ),
    "qmix": entry(
        "multiagent.qmix",
        two_step(),
        learner_of_values(two_step(), qmix, 1.0),
        states=7.9,
        # Without the bootstrap, the first action is a coin: half of the runs have 8.
        fails=("reward",),
        without={"the mix": learner_of_values(two_step(), vdn, 1.0)},
        **REPLAY,
    ),
    "mappo": entry(
        "multiagent.mappo",
        corridors(both=True),
        learner_of_policies(corridors(both=True), shared, mappo),
        states=1.8,
    ),
    "happo": entry(
        "multiagent.happo",
        corridors(both=True),
        learner_of_policies(corridors(both=True), separate, happo),
        states=1.8,
    ),
    # Without a bootstrap, one run in five of IPPO and of COMA reaches the bar, too.
    "ippo": entry(
        "policy_gradient.ppo",
        corridors(both=True),
        ippo(corridors(both=True)),
        states=1.8,
        fails=("reward",),
    ),
    # A critic that does not see the other's action has the mean over random ones, and
    # prefers what is sure.
    "maddpg": entry(
        "multiagent.maddpg_critic, maddpg_actor",
        two_step(6.0),
        maddpg_agent(two_step(6.0)),
        states=7.9,
        without={"the others' actions": maddpg_agent(two_step(6.0), alone=True)},
        **REPLAY | {"updates": 2000},
    ),
    "masac": entry(
        "multiagent.masac_critic, masac_actor, masac_temperature",
        two_step(6.0, forces=True),
        masac_agent(two_step(6.0, forces=True)),
        states=7.9,
        without={
            "the others' actions": masac_agent(two_step(6.0, forces=True), alone=True)
        },
        **REPLAY | {"updates": 1600},
    ),
    "coma": entry(
        "policy_gradient.coma",
        corridors(both=True),
        coma(corridors(both=True)),
        states=1.8,
        fails=("reward",),
        num=48,
    ),
}
