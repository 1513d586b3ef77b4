"""The zoo's actor-critics of continuous actions, on a point in the plane, from replay.

Losses of actor, critics and duals are added, as no loss has a gradient for the others'
parameters.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from recipes import continuous as recipes
from recipes.value_based import n_step_batch

import rlaxlib
from zoo.networks import ensemble, forward, forward_ensemble, mlp
from zoo.tasks import plane
from zoo.training import Agent, Entry, begin, descend, online, play

TASK = plane()
SIZE, D = TASK.size, TASK.actions
UPDATES = 1600
RATE = 0.05  # Of the target networks.
WARM_UP = 100  # Updates with random actions.
NOISE = 0.3  # Of deterministic policies that explore.
LOW, HIGH, ATOMS = -10.0, 0.0, 51  # Of D4PG.

FAILS = ("reward", "bootstrap", "gradient")


def optimizer(updates, actor, critic=5e-3):
    """Return Adam at rates that fall to 0; the actor's begins at 0, too."""
    rise = optax.warmup_cosine_decay_schedule(0, actor, 300, updates)
    fall = optax.cosine_decay_schedule(critic, updates)
    rates = {"actor": optax.adam(rise), "critic": optax.adam(fall)}
    labels = recipes.ActorCritic("actor", *["critic"] * 3)
    return optax.partition(rates, labels)


def init(key, policy=D, critics=1, outputs=1, duals=None, value=False):
    """Return the parameters of an actor, some critics, and state values if `value`."""
    actor_key, critic_key, value_key = jax.random.split(key, 3)
    return recipes.ActorCritic(
        actor=mlp(actor_key, SIZE, 32, 32, policy, scale=0.1),
        critic=ensemble(critic_key, critics, SIZE + D, 32, 32, outputs),
        duals=duals,
        value=mlp(value_key, SIZE, 32, 32, 1) if value else None,
    )


def action(params, s):
    return jnp.tanh(forward(params, s))


def normal(params, s):
    """Return mean and standard deviation."""
    mean, stddev = jnp.split(forward(params, s), 2, axis=-1)
    return mean, jax.nn.softplus(stddev + 0.5)


def critics(params, s, a):
    """Return the outputs of all critics, [B, N, outputs]."""
    return forward_ensemble(params, jnp.concatenate([s, a], axis=-1))


def values(params, s, a):
    """Return the values of N critics, [B, N]."""
    return critics(params, s, a)[..., 0]


def value(params, s, a):
    """Return the value of the only critic, [B]."""
    return values(params, s, a)[..., 0]


OPTIMIZER = optimizer(UPDATES, 1e-3)


def agent(loss, act, best, rate=RATE, period=1, optimizer=OPTIMIZER, **sizes):
    """Return an agent.

    Args:
        loss: Function of parameters, target parameters, batch and key.
        act: Policy that explores, of the actor's parameters, key and observation.
        best: Policy to evaluate, of the actor's parameters and observation.
        rate: Rate of the target networks.
        period: Updates for each update of the target networks.
        optimizer: Optimizer.
        sizes: Arguments of `init`.
    """

    def explore(state, key, s):
        random = jax.random.uniform(key, (D,), minval=-1, maxval=1)
        return jnp.where(state.count < WARM_UP, random, act(state.params.actor, key, s))

    return Agent(
        init=lambda key: begin(init(key, **sizes), optimizer),
        act=explore,
        best=lambda state, key, s: best(state.params.actor, s),
        update=lambda state, key, batch: descend(
            *(state, lambda p: loss(p, state.target, batch, key)),
            *(optimizer, period, rate),
        ),
    )


def entry(
    functions, agent, task=TASK, states=-1.0, fails=FAILS, without=None, **options
):
    """Return an entry on the plane; `without` has agents that lack a part."""
    options = {"updates": UPDATES, "steps": 1, "replay": 64} | options
    return Entry(
        recipe=f"continuous.{functions}",
        run=online(task, agent, **options),
        about=task.about,
        random=task.random,
        best=task.best,
        states=states,
        fails=fails,
        without={x: online(task, y, **options) for x, y in (without or {}).items()},
    )


# --- Deterministic policies: DDPG, TD3, D4PG. ---


def noisy(actor, key, s):
    return jnp.clip(action(actor, s) + NOISE * jax.random.normal(key, (D,)), -1, 1)


def ddpg(params, target, batch, key):
    apply = recipes.ActorCritic(action, value)
    critic = recipes.ddpg_critic(params, target, apply, batch)
    return critic + recipes.ddpg_actor(params, apply, batch)


def td3(params, target, batch, key):
    apply = recipes.ActorCritic(action, values)
    critic = recipes.td3_critic(params, target, apply, batch, key)
    return critic + recipes.td3_actor(params, apply, batch)


def d4pg(params, target, batch, key):
    apply = recipes.ActorCritic(action, lambda *args: critics(*args)[..., 0, :])
    batch = n_step_batch(batch)
    critic = recipes.d4pg_critic(params, target, apply, batch, LOW, HIGH)
    return critic + recipes.d4pg_actor(params, apply, batch, LOW, HIGH)


# --- Stochastic policies: SAC, REDQ, TQC, MPO. ---


def tanh_normal(actor, key, s):
    return recipes.sample_tanh_normal(key, *(x[None] for x in normal(actor, s)))[0][0]


def mode(actor, s):
    return jnp.tanh(normal(actor, s)[0])


def soft(critic, actor, apply_critic):
    """Return a loss of critics, actor and temperature, which is a dual variable."""
    apply = recipes.ActorCritic(normal, apply_critic)

    def loss(params, target, batch, key):
        keys = jax.random.split(key, 3)
        temperature = jax.lax.stop_gradient(jnp.exp(params.duals))
        fixed = jax.lax.stop_gradient(params)
        return (
            critic(params, target, apply, batch, keys[0], temperature)
            + actor(params, apply, batch, keys[1], temperature)
            + recipes.sac_temperature(params.duals, fixed, apply, batch, keys[2], -D)
        )

    return loss


def soft_agent(critic, actor, apply=values, **sizes):
    loss = soft(critic, actor, apply)
    duals = jnp.log(0.1)
    return agent(loss, tanh_normal, mode, policy=2 * D, duals=duals, **sizes)


def gaussian(actor, key, s):
    """Sample from an unbounded Gaussian: the task clips actions."""
    mean, stddev = normal(actor, s)
    return mean + stddev * jax.random.normal(key, mean.shape)


def mpo(params, target, batch, key):
    actor_key, critic_key = jax.random.split(key)

    def clipped(w, s, a):
        return value(w, s, jnp.clip(a, -1, 1))

    sampled = recipes.ActorCritic(lambda w, s: gaussian(w, critic_key, s), clipped)
    apply = recipes.ActorCritic(normal, clipped)
    critic = recipes.ddpg_critic(params, target, sampled, batch)
    return critic + recipes.mpo(params, target, apply, batch, actor_key)


def mpo_agent():
    duals = tuple(jnp.array([1.0, 10.0, 100.0, 1.0]))  # Before the softplus.
    return agent(
        *(mpo, gaussian, lambda actor, s: normal(actor, s)[0]),
        **{"rate": 1.0, "period": 25, "policy": 2 * D, "duals": duals},
    )


# --- Discrete actions with parameters: P-DQN. ---


def axes():
    """Return the plane, where a step moves along the axis that the first entry is."""

    def step(key, x, a):
        return TASK.step(key, x, a[1:] * jax.nn.one_hot(a[0].astype(int), D))

    return TASK._replace(
        about="Point in the plane: a step moves it along one axis, chosen",
        step=step,
        random=-9.7,
        best=-0.77,
    )


class Hybrid(NamedTuple):
    """Transitions of discrete actions with parameters."""

    s_tm1: jax.Array
    a_tm1: jax.Array
    x_tm1: jax.Array
    r_t: jax.Array
    discount_t: jax.Array
    s_t: jax.Array


def q_axes(params, s, x):
    return forward(jax.tree.map(lambda w: w[0], params), jnp.concatenate([s, x], -1))


def p_dqn(params, target, batch, key, has_actor=True):
    apply = recipes.ActorCritic(forward, q_axes)
    a, x = batch.a_tm1[:, 0].astype(int), batch.a_tm1[:, 1:]
    batch = Hybrid(batch.s_tm1, a, x, batch.r_t, batch.discount_t, batch.s_t)
    critic = recipes.p_dqn_critic(params, target, apply, batch)
    return critic + has_actor * recipes.p_dqn_actor(params, apply, batch)


def hybrid(params, s, epsilon, key):
    """Return the best discrete action and the parameters, or random ones."""
    explore_key, key = jax.random.split(key)
    x = jnp.clip(forward(params.actor, s), -1, 1)
    q = q_axes(params.critic, s, x)
    random = jax.random.uniform(key, (D + 1,), minval=-1, maxval=1)
    random = random.at[0].set(random[0] > 0)
    best = jnp.concatenate([jnp.argmax(q)[None].astype(float), x])
    return jnp.where(jax.random.uniform(explore_key) < epsilon, random, best)


def p_dqn_agent(**settings):
    both = agent(partial(p_dqn, **settings), None, None, outputs=D)
    return both._replace(
        act=lambda state, key, s: hybrid(state.params, s, 0.3, key),
        best=lambda state, key, s: hybrid(state.params, s, 0.0, key),
    )


# --- Successors of SAC and TD3. ---


def batch_normed(params, s, a, others=None):
    """Return the outputs of N critics, whose hidden units a batch normalises.

    Args:
        params: Parameters of the critics.
        s: Observations.
        a: Actions.
        others: Observations and actions whose statistics to use; by default these.
    """
    x = jnp.concatenate([s, a], axis=-1)
    y = x if others is None else jnp.concatenate(others, axis=-1)

    def one(layers, x, y):
        *hidden, (weight, bias) = layers
        for w, b in hidden:
            x, y = jnp.tanh(x @ w + b), jnp.tanh(y @ w + b)
            mean, stddev = jnp.mean(y, axis=0), jnp.sqrt(jnp.var(y, axis=0) + 1e-3)
            x, y = ((z - mean) / stddev for z in (x, y))
        return x @ weight + bias

    return jax.vmap(one, (0, None, None), -2)(params, x, y)


def of_both(params, batch, key):
    """Return critics that normalise by current and next observations.

    In CrossQ's actor, these statistics stand for running ones.
    """
    actor = jax.lax.stop_gradient(params.actor)
    a_t, _ = recipes.sample_tanh_normal(key, *normal(actor, batch.s_t))
    pairs = (batch.s_tm1, batch.s_t), (batch.a_tm1, a_t)
    both = [jnp.concatenate(x) for x in pairs]
    return lambda *args: batch_normed(*args, both)


def crossq(params, target, batch, key):
    """Return CrossQ's losses, without target networks."""
    keys = jax.random.split(key, 3)
    temperature = jax.lax.stop_gradient(jnp.exp(params.duals))
    fixed = jax.lax.stop_gradient(params)
    apply = recipes.ActorCritic(normal, lambda *args: batch_normed(*args)[..., 0])
    statistics = of_both(params, batch, keys[0])
    still = apply._replace(critic=lambda *args: statistics(*args)[..., 0])
    return (
        recipes.crossq_critic(params, apply, batch, keys[0], temperature)
        + recipes.sac_actor(params, still, batch, keys[1], temperature)
        + recipes.sac_temperature(params.duals, fixed, apply, batch, keys[2], -D)
    )


def dropped(key, rate=0.01, standardize=jax.nn.standardize):
    """Return critics with dropout and layer normalisation, for a random key."""

    def one(layers, key, x):
        *hidden, (weight, bias) = layers
        for w, b in hidden:
            key, drop_key = jax.random.split(key)
            x = x @ w + b
            x = x * jax.random.bernoulli(drop_key, 1 - rate, x.shape) / (1 - rate)
            x = jnp.tanh(standardize(x))
        return x @ weight + bias

    def apply(params, s, a):
        x = jnp.concatenate([s, a], axis=-1)
        keys = jax.random.split(key, len(params[0][0]))
        return jax.vmap(one, (0, 0, None), -2)(params, keys, x)[..., 0]

    return apply


def droq(params, target, batch, key):
    key, drop_key = jax.random.split(key)
    loss = soft(recipes.redq_critic, recipes.redq_actor, dropped(drop_key))
    return loss(params, target, batch, key)


def corner():
    """Return the plane, where a small goal in a corner pays 1, and ends the episode."""

    def step(_, x, a):
        x = jnp.clip(x + 0.3 * jnp.clip(a, -1, 1), -2, 2)
        there = jnp.all(jnp.abs(x - GOAL) < 0.2)
        return x, there.astype(float), there

    return TASK._replace(
        about="Point in the plane: a small goal in a corner, far away, pays 1",
        step=step,
        random=0.0,
        best=1.0,
    )


GOAL = 1.7
CORNER = corner()


def logged(key):
    """Return transitions of actions towards the goal, and of random ones."""

    def act(key, s):
        which_key, key = jax.random.split(key)
        random = jax.random.uniform(key, (D,), minval=-1, maxval=1)
        towards = jnp.clip((GOAL - s) / 0.3, -1, 1)
        return jnp.where(jax.random.bernoulli(which_key, 0.3), towards, random)

    batch = play(CORNER, act, key, 64, CORNER.limit)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch)


def with_logged(agent, fault):
    """Return an agent that adds as many logged transitions to each batch (RLPD)."""

    def init(key):
        data = logged(key)
        r_t, discount_t = fault.reward * data.r_t, fault.bootstrap * data.discount_t
        return agent.init(key), data._replace(r_t=r_t, discount_t=discount_t)

    def update(state, key, batch):
        learner, data = state
        draw_key, key = jax.random.split(key)
        rows = jax.random.randint(draw_key, batch.r_t.shape, 0, len(data.r_t))
        both = jax.tree.map(lambda x, y: jnp.append(x, y[rows], axis=0), batch, data)
        return agent.update(learner, key, both), data

    return Agent(
        init=init,
        act=lambda state, key, s: agent.act(state[0], key, s),
        best=lambda state, key, s: agent.best(state[0], key, s),
        update=update,
    )


def rlpd(has_data=True, standardize=jax.nn.standardize):
    """Return runs of ten critics, half of whose batches are logged."""
    critics = dropped(jax.random.key(0), 0.0, standardize)
    inputs = recipes.redq_critic, recipes.redq_actor, critics
    agent = soft_agent(*inputs, critics=10)

    def run(key, fault):
        options = {"updates": UPDATES // 2, "steps": 1}
        if not has_data:
            return online(CORNER, agent, replay=64, **options)(key, fault)
        learner = with_logged(agent, fault)
        return online(CORNER, learner, replay=32, **options)(key, fault)

    return run


def bounded_critic(*inputs):
    return recipes.categorical_sac_critic(*inputs, LOW, HIGH)


def xqc_critic(*inputs):
    return recipes.xqc_critic(*inputs, LOW, HIGH)


def fast_sac_critic(*inputs):
    return recipes.fast_sac_critic(*inputs, LOW, HIGH)


def of_means(actor):
    """Return the loss of an actor, of the means of categorical critics."""

    def loss(params, apply, *inputs):
        return actor(params, recipes.categorical_mean(apply, LOW, HIGH), *inputs)

    return loss


def categorical_agent(critic, actor):
    return soft_agent(critic, of_means(actor), critics, critics=2, outputs=ATOMS)


def xqc(params, target, batch, key):
    """Return the losses of critics that normalise weights and batches (XQC)."""
    statistics = of_both(params, batch, jax.random.split(key, 3)[0])

    def unit(params):
        norms = (jnp.linalg.norm(w, axis=-2, keepdims=True) for w, _ in params)
        return [(w / n, b) for (w, b), n in zip(params, norms, strict=True)]

    def still(params, s, a):
        return statistics(unit(params), s, a)

    def actor(params, apply, *inputs):
        apply = apply._replace(critic=still)
        return of_means(recipes.sac_actor)(params, apply, *inputs)

    loss = soft(xqc_critic, actor, lambda w, *args: batch_normed(unit(w), *args))
    return loss(params, target, batch, key)


def fast_td3(params, target, batch, key):
    apply = recipes.ActorCritic(action, critics)
    bounds = LOW, HIGH
    critic = recipes.fast_td3_critic
    loss = critic(params, target, apply, batch, key, 0.1, bounds=bounds)
    return loss + recipes.fast_td3_actor(params, apply, batch, bounds)


def drqv2(params, target, batch, key):
    critic_key, actor_key = jax.random.split(key)
    apply, batch = recipes.ActorCritic(action, values), n_step_batch(batch)
    critic = recipes.drqv2_critic(params, target, apply, batch, critic_key, NOISE)
    return critic + recipes.drqv2_actor(params, apply, batch, actor_key, NOISE)


PAIR = rlaxlib.hl_gauss_pair(2 * LOW, 1.0, ATOMS)


class Collected(NamedTuple):
    """Streams, [B, T], with what REPPO's targets need."""

    s_tm1: jax.Array
    a_tm1: jax.Array
    r_t: jax.Array
    discount_t: jax.Array
    s_t: jax.Array
    truncated_t: jax.Array
    sample_mask: Any
    v_t: jax.Array
    log_prob_t: jax.Array


def reppo_update(state, key, batch):
    """Return the state after REPPO's epochs on fresh streams."""
    key, draw_key = jax.random.split(key)
    logits = recipes.ActorCritic(normal, lambda *args: critics(*args)[..., 0, :])
    old = state.params
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch)
    a_t, log_prob_t = recipes.sample_tanh_normal(draw_key, *normal(old.actor, flat.s_t))
    v_t = PAIR.apply_inv(jax.nn.softmax(logits.critic(old.critic, flat.s_t, a_t)))
    v_t, log_prob_t = (x.reshape(batch.r_t.shape) for x in (v_t, log_prob_t))
    collected = Collected(*batch, v_t, log_prob_t)
    target = recipes.reppo_targets(collected, jnp.exp(old.duals[0])).reshape(-1)

    def q(params, s, a):
        return PAIR.apply_inv(jax.nn.softmax(logits.critic(params, s, a)))

    def epoch(state, key):
        def loss(params):
            means = recipes.ActorCritic(normal, q)
            critic = recipes.reppo_critic(params, logits, flat, target, PAIR)
            actor = recipes.reppo_actor(params, old, means, flat, key, -D / 2)
            return critic + actor

        return descend(state, loss, REPPO), None

    return jax.lax.scan(epoch, state, jax.random.split(key, 8))[0]


REPPO = optimizer(8 * 400, 1e-3)  # At 3e-3, one run in fifteen diverges.


def reppo_agent():
    duals = jnp.log(jnp.array([0.1, 0.1]))
    sizes = {"policy": 2 * D, "outputs": ATOMS, "duals": duals}
    both = agent(None, tanh_normal, mode, optimizer=REPPO, **sizes)
    return both._replace(
        act=lambda state, key, s: tanh_normal(state.params.actor, key, s),
        update=reppo_update,
    )


def successor(loss, **sizes):
    """Return an agent with a stochastic policy and a temperature."""
    sizes = {"policy": 2 * D, "duals": jnp.log(0.1), "critics": 2} | sizes
    return agent(loss, tanh_normal, mode, **sizes)


two_faults = partial(entry, fails=FAILS[:2])
DROQ = two_faults("redq_critic, redq_actor", successor(droq))

ENTRIES = {
    "ddpg": entry("ddpg_critic, ddpg_actor", agent(ddpg, noisy, action)),
    "p_dqn": entry(
        *("p_dqn_critic, p_dqn_actor", p_dqn_agent(), axes(), -1.3),
        without={"the learned parameters": p_dqn_agent(has_actor=False)},
    ),
    "td3": entry("td3_critic, td3_actor", agent(td3, noisy, action, critics=2)),
    "d4pg": entry(
        "d4pg_critic, d4pg_actor",
        agent(
            *(d4pg, noisy, action),
            **{"outputs": ATOMS, "optimizer": optimizer(2000, 1e-3)},
        ),
        **{"window": 3, "updates": 2000},
    ),
    "sac": entry(
        "sac_critic, sac_actor, sac_temperature",
        soft_agent(recipes.sac_critic, recipes.sac_actor, critics=2),
    ),
    "redq": entry(
        "redq_critic, redq_actor",
        soft_agent(recipes.redq_critic, recipes.redq_actor, critics=5),
    ),
    "tqc": entry(
        "tqc_critic, tqc_actor",
        soft_agent(
            *(recipes.tqc_critic, recipes.tqc_actor, critics),
            **{"critics": 2, "outputs": 10},
        ),
    ),
    "mpo": two_faults("mpo", mpo_agent()),
    # Without normalisation, 5 of 25 runs reach the bar, too, and after 2,400 updates 19
    # of 20.
    "crossq": entry(
        "crossq_critic", successor(crossq, optimizer=optimizer(UPDATES, 1e-3, 1e-3))
    ),
    # Without dropout and layer normalisation it is SAC, which learns this task, too.
    "droq": DROQ,
    "bro": two_faults(
        "bro_critic, bro_actor",
        successor(soft(recipes.bro_critic, recipes.bro_actor, critics), outputs=10),
    ),
    "categorical_sac": two_faults(
        "categorical_sac_critic, categorical_mean",
        categorical_agent(bounded_critic, recipes.sac_actor),
    ),
    "xqc": two_faults("xqc_critic, categorical_mean", successor(xqc, outputs=ATOMS)),
    "fast_sac": two_faults(
        "fast_sac_critic, redq_actor, categorical_mean",
        categorical_agent(fast_sac_critic, recipes.redq_actor),
    ),
    "fast_td3": two_faults(
        "fast_td3_critic, fast_td3_actor",
        agent(fast_td3, noisy, action, critics=2, outputs=ATOMS),
    ),
    "drqv2": two_faults(
        "drqv2_critic, drqv2_actor",
        agent(drqv2, noisy, action, critics=2),
        window=3,
    ),
    "reppo": two_faults(
        "reppo_targets, reppo_critic, reppo_actor",
        reppo_agent(),
        **{"updates": 400, "steps": 8, "replay": 0},
    ),
    # Without layer normalisation it learns, too, if less steadily: the worst of three
    # seeds has 0.91.
    "rlpd": DROQ._replace(
        run=rlpd(),
        about=CORNER.about,
        random=CORNER.random,
        best=CORNER.best,
        states=0.9,
        without={"the logged data": rlpd(has_data=False)},
    ),
}
