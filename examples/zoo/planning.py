"""The zoo's planners and learners of models, on logged steps of the point mass.

The logged actions are random. A planner carries its plan over the episode and sees
rewards and discounts only as its model predicts them.
"""

from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from recipes import planning as recipes
from recipes.continuous import ActorCritic, ddpg_critic
from recipes.value_based import dqn

import rlaxlib
from zoo import bbf, continuous, mrq
from zoo.networks import ensemble, forward, mlp
from zoo.tasks import catch, plane, point
from zoo.training import Agent, Entry, begin, descend, offline, online, play

TASK, CATCH, PLANE = point(), catch(), plane()
D = TASK.actions
HIDDEN = 32
UPDATES = 2000
EPISODES = 256  # Of the logged data.
TRIALS = 16  # Episodes of an evaluation.
OPTIMIZER = optax.adam(optax.cosine_decay_schedule(5e-3, UPDATES))
RATE = 0.05  # Of the target networks.
SCALE = 20.0  # Factor of the returns, whose temperature is 2.


# --- Logged data, and the return of a planner. ---


def windows(steps):
    """Return a function from a key to logged windows of some steps, [N, steps]."""

    def data(key):
        def random(key, s):
            return jax.random.uniform(key, (D,), minval=-1, maxval=1)

        length = TASK.limit // steps * steps
        batch = play(TASK, random, key, EPISODES, length)
        return jax.tree.map(lambda x: x.reshape(-1, steps, *x.shape[2:]), batch)

    return data


def planned(horizon):
    """Return a function to the mean return of a planner, as `evaluate` has it.

    The policy is one of an observation and a plan, to an action and the next plan.
    """
    first = rlaxlib.plan_init(horizon, D)

    def score(task, act, key):
        def one(carry, key):
            state, plan = carry
            a, plan = act(key, (task.observe(state), plan))
            state, reward, _ = task.step(key, state, a)
            return (state, plan), reward

        def episode(key):
            reset_key, key = jax.random.split(key)
            keys = jax.random.split(key, task.limit)
            return jnp.sum(jax.lax.scan(one, (task.reset(reset_key), first), keys)[1])

        return jnp.mean(jax.vmap(episode)(jax.random.split(key, TRIALS)))

    return score


def mppi(key, evaluate, plan, proposals=None):
    """Return the action of MPPI, and the plan of the next step."""
    options = {"num_samples": 128, "iterations": 3}
    proposals = plan.mean[None, :][:0] if proposals is None else proposals
    inputs = key, lambda a: SCALE * evaluate(a), plan, proposals
    a, plan = recipes.mppi_plan(*inputs, **options)
    return a, rlaxlib.shift_plan(plan, stddev=0.5)


def cem(key, evaluate, plan):
    """Return the action of PETS, and the plan of the next step."""
    return recipes.pets_action(key, evaluate, plan, num_samples=100, iterations=4)


def blind(plan_with):
    """Return a planner for which all plans have a return of 0."""

    def plan(key, evaluate, *inputs):
        return plan_with(key, lambda a: 0.0 * evaluate(a), *inputs)

    return plan


def entry(functions, agent, horizon, steps=1, size=128, states=-1.0):
    """Return an entry on the logged point mass.

    A plan of one step, without the bootstrap, has -0.8, which is not far below.
    """
    return Entry(
        recipe=f"planning.{functions}",
        run=offline(
            *(TASK, agent, windows(steps), UPDATES),
            **{"size": size, "score": planned(horizon)},
        ),
        about=f"{TASK.about}, by plans in a model of random steps",
        random=TASK.random,
        best=TASK.best,
        states=states,
        fails=("reward",),
    )


# --- Models of states: MPPI and PETS. ---


def predict(params, s, a):
    """Return the next state, the reward and the discount."""
    x = forward(params, jnp.concatenate([s, a], axis=-1))
    return s + x[..., :-2], x[..., -2], x[..., -1]


def imagine(params, s, actions):
    """Return the discounted returns of sequences of actions, [N, T, D]."""

    def one(carry, a):
        s, weight, total = carry
        s, reward, discount = predict(params, s, a)
        return (s, weight * discount, total + weight * reward), None

    num = len(actions)
    first = jnp.broadcast_to(s, (num, *s.shape)), jnp.ones(num), jnp.zeros(num)
    return jax.lax.scan(one, first, jnp.swapaxes(actions, 0, 1))[0][2]


def state_model(plan_with, members):
    """Return an agent that plans with the mean of an ensemble of models."""

    def loss(params, batch):
        errors = jax.tree.map(
            lambda x, y: rlaxlib.l2_loss(x, y).mean(),
            predict(params, batch.s_tm1, batch.a_tm1),
            (batch.s_t, batch.r_t, batch.discount_t),
        )
        return sum(errors)

    def total(params, batch):
        return jnp.sum(jax.vmap(loss, (0, None))(params, batch))

    def best(state, key, inputs):
        s, plan = inputs
        returns = jax.vmap(imagine, (0, None, None))
        return plan_with(key, lambda a: returns(state.params, s, a).mean(axis=0), plan)

    def update(state, key, batch):
        batch = jax.tree.map(lambda x: x[:, 0], batch)
        return descend(state, lambda p: total(p, batch), OPTIMIZER)

    sizes = TASK.size + D, HIDDEN, HIDDEN, TASK.size + 2

    def init(key):
        return begin(ensemble(key, members, *sizes), OPTIMIZER)

    return Agent(init=init, act=None, best=best, update=update)


# --- Models of latent states: TD-MPC2. ---


class Model(NamedTuple):
    """Parameters, or functions, of a model of latent states."""

    encode: Any
    next: Any
    reward: Any
    value: Any
    policy: Any


class Window(NamedTuple):
    """Sequences, as the recipes have them, with targets of action values."""

    s: jax.Array
    a_tm1: jax.Array
    r_t: jax.Array
    discount_t: jax.Array
    target: Any = None


LATENT, BINS, CRITICS = 16, 41, 2
PROPOSALS = 8  # Plans of the policy.


def window(batch):
    """Return windows with T+1 observations; no episode is cut in them."""
    s = jnp.concatenate([batch.s_tm1[:, :1], batch.s_t], axis=1)
    return Window(s, batch.a_tm1, batch.r_t, batch.discount_t)


def simplices(x):
    """Return a softmax of each group of 4, as the latent states of TD-MPC2 have it."""
    return jax.nn.softmax(x.reshape(*x.shape[:-1], -1, 4)).reshape(x.shape)


def joint(params, z, a):
    return forward(params, jnp.concatenate([z, a], axis=-1))


def heads(x):
    return x.reshape(*x.shape[:-1], -1, BINS)


LATENTS = Model(
    encode=lambda params, s: simplices(forward(params.encode, s)),
    next=lambda params, z, a: simplices(joint(params.next, z, a)),
    reward=lambda params, z, a: heads(joint(params.reward, z, a)),
    value=lambda params, z, a: heads(joint(params.value, z, a)),
    policy=lambda params, z: gaussian(params.policy, z),
)


def decode(logits):
    """Return the mean of the heads."""
    pair = recipes.tdmpc2_pair(BINS)
    return jnp.mean(pair.apply_inv(jax.nn.softmax(logits)), axis=-1)


def proposed(params, key, s):
    """Return plans of the policy in the model, [N, T, D], of two steps."""
    z = LATENTS.encode(params, jnp.broadcast_to(s, (PROPOSALS, *s.shape)))
    keys = jax.random.split(key)
    first = jnp.tanh(_sampled(params, keys[0], z))
    second = jnp.tanh(_sampled(params, keys[1], LATENTS.next(params, z, first)))
    return jnp.stack([first, second], axis=1)


def _sampled(params, key, z):
    mean, stddev = LATENTS.policy(params, z)
    return mean + stddev * jax.random.normal(key, mean.shape)


def latent_returns(params, s, actions):
    """Return the predicted rewards, and the value of the last step, [N]."""
    a = jnp.swapaxes(actions, 0, 1)
    z = LATENTS.encode(params, s)
    z = jnp.broadcast_to(z, (len(actions), *z.shape))
    total, weight = 0.0, 1.0
    for step in a[:-1]:
        total += weight * decode(LATENTS.reward(params, z, step))
        z = LATENTS.next(params, z, step)
        weight *= TASK.discount
    return total + weight * decode(LATENTS.value(params, z, a[-1]))


class Planner(NamedTuple):
    """State of a learner, and of the scale of its values."""

    state: Any
    scale: Any


def tdmpc2(plan_with):
    """Return an agent that plans two steps, of which the second has the value."""
    first_scale, next_scale = rlaxlib.percentile_scale()

    def init(key):
        keys = jax.random.split(key, 5)
        pair = LATENT + D, HIDDEN
        params = Model(
            encode=mlp(keys[0], TASK.size, HIDDEN, LATENT),
            next=mlp(keys[1], *pair, LATENT),
            reward=mlp(keys[2], *pair, BINS, scale=0.0),
            value=mlp(keys[3], *pair, CRITICS * BINS, scale=0.0),
            policy=mlp(keys[4], LATENT, HIDDEN, 2 * D, scale=0.1),
        )
        return Planner(begin(params, OPTIMIZER), first_scale(jnp.zeros(1)))

    def update(planner, key, batch):
        (state, scale), batch = planner, window(batch)
        target_key, key = jax.random.split(key)
        inputs = state.params, state.target, LATENTS, batch, target_key
        batch = batch._replace(target=recipes.tdmpc2_targets(*inputs))
        _, q = recipes.tdmpc2_actor(state.params, LATENTS, batch, key, 1.0)
        size, scale = next_scale(scale, q)

        def loss(p):
            actor, _ = recipes.tdmpc2_actor(p, LATENTS, batch, key, size)
            return recipes.tdmpc2_model(p, LATENTS, batch) + actor

        return Planner(descend(state, loss, OPTIMIZER, rate=RATE), scale)

    def best(planner, key, inputs):
        (s, plan), params = inputs, planner.state.params
        policy_key, key = jax.random.split(key)
        proposals = proposed(params, policy_key, s)
        return plan_with(key, lambda a: latent_returns(params, s, a), plan, proposals)

    return Agent(init=init, act=None, best=best, update=update)


# --- Self-predictive representations: SPR. ---


class Predictor(NamedTuple):
    """Parameters of SPR."""

    encode: Any
    next: Any
    project: jax.Array
    predict: jax.Array
    q: Any


SPR_OPTIMIZER = optax.adam(optax.linear_schedule(5e-3, 0.0, UPDATES))
SPR_APPLY = SimpleNamespace(
    encode=lambda params, s: jnp.tanh(forward(params.encode, s)),
    next=lambda params, z, a: jnp.tanh(
        joint(params.next, z, jax.nn.one_hot(a, CATCH.actions))
    ),
    project=lambda params, z: z @ params.project,
    predict=lambda params, x: x @ params.predict,
)


def spr_agent(weight=2.0):
    """Return a learner of DQN and SPR, which share the encoder."""

    def init(key):
        keys = jax.random.split(key, 4)
        matrix = jax.random.normal(keys[0], (HIDDEN, LATENT)) / HIDDEN**0.5
        return begin(
            Predictor(
                encode=mlp(keys[1], CATCH.size, HIDDEN),
                next=mlp(keys[2], HIDDEN + CATCH.actions, HIDDEN, HIDDEN),
                project=matrix,
                predict=jnp.eye(LATENT),
                q=mlp(keys[3], HIDDEN, HIDDEN, CATCH.actions),
            ),
            SPR_OPTIMIZER,
        )

    def q(params, s):
        return forward(params.q, SPR_APPLY.encode(params, s))

    def update(state, key, batch):
        steps = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch)

        def loss(p):
            error = recipes.spr(p, state.target, SPR_APPLY, window(batch), weight)
            return error + dqn(p, state.target, q, steps)

        return descend(state, loss, SPR_OPTIMIZER, rate=RATE)

    def act(state, key, s):
        return rlaxlib.epsilon_greedy(0.5).sample(key, q(state.params, s))

    def best(state, key, s):
        return jnp.argmax(q(state.params, s))

    return Agent(init=init, act=act, best=best, update=update)


def spr_entry(agent):
    return Entry(
        recipe="planning.spr",
        run=online(CATCH, agent, UPDATES, steps=1, replay=32, window=5),
        about=CATCH.about,
        random=CATCH.random,
        best=CATCH.best,
        states=0.85,
        fails=("reward", "bootstrap"),
    )


# --- Policies of sampled actions: Sampled MuZero. ---


SAMPLES, SIMULATIONS = 20, 50


def search(q):
    """Return the visits of K actions, [K, B], by PUCT over their values, [K, B].

    The samples are the prior, which is uniform; values are scaled to [0, 1].
    """
    low, high = jnp.min(q, axis=0), jnp.max(q, axis=0)
    q = (q - low) / jnp.maximum(high - low, 1e-6)

    def simulate(visits, _):
        bonus = 1.25 / SAMPLES * jnp.sqrt(jnp.sum(visits, axis=0)) / (1 + visits)
        chosen = jnp.argmax(q + bonus, axis=0)
        return visits + jax.nn.one_hot(chosen, SAMPLES, axis=0), None

    return jax.lax.scan(simulate, jnp.zeros_like(q), None, SIMULATIONS)[0]


class Searched(NamedTuple):
    """States, [B, 1, S], with sampled actions, [K, B, D], and their visits, [K, B]."""

    s: jax.Array
    a_samples: jax.Array
    visits: jax.Array


def gaussian(actor, s):
    """Return mean and standard deviation, which is at least 0.1."""
    mean, stddev = jnp.split(forward(actor, s), 2, axis=-1)
    return mean, 0.1 + jax.nn.softplus(stddev)


def sample(actor, key, s):
    mean, stddev = gaussian(actor, s)
    a = mean + stddev * jax.random.normal(key, mean.shape)
    return jnp.clip(a, -1, 1)


def sampled_muzero(params, target, batch, key, search):
    """Return the losses of a critic and of a policy, whose search has depth one."""
    critic_key, key = jax.random.split(key)
    apply = ActorCritic(lambda w, s: sample(w, critic_key, s), continuous.value)
    keys = jax.random.split(key, SAMPLES)
    a = jax.vmap(lambda key: sample(target.actor, key, batch.s_tm1))(keys)
    q = jax.vmap(lambda a: continuous.value(target.critic, batch.s_tm1, a))(a)
    searched = Searched(batch.s_tm1[:, None], a, search(q))
    policy = recipes.sampled_muzero_policy(params.actor, gaussian, searched)
    return ddpg_critic(params, target, apply, batch) + policy


def sampled_muzero_agent(search):
    loss = partial(sampled_muzero, search=search)

    def best(actor, s):
        return gaussian(actor, s)[0]

    return continuous.agent(loss, sample, best, policy=2 * PLANE.actions)


# --- Entries. ---


def planner(functions, agent, plan_with, **options):
    """Return the entry of an agent that is made with a function that plans."""
    other = entry(functions, agent(blind(plan_with)), **options)
    return entry(functions, agent(plan_with), **options)._replace(
        without={"the predicted returns": other.run}
    )


def sampled_muzero_entry(search):
    agent = sampled_muzero_agent(search)
    return continuous.entry("sampled_muzero_policy", agent)._replace(
        recipe="planning.sampled_muzero_policy", fails=("reward", "bootstrap")
    )


ENTRIES = {
    "mppi_plan": planner("mppi_plan", partial(state_model, members=1), mppi, horizon=6),
    "pets_action": planner(
        "pets_action", partial(state_model, members=2), cem, horizon=6
    ),
    # For speed it has small batches and a coarse grid.
    "tdmpc2_model": planner(
        *("tdmpc2_model, tdmpc2_actor", tdmpc2, mppi),
        **{"horizon": 2, "steps": 2, "size": 64, "states": -1.5},
    ),
    "spr": spr_entry(spr_agent()),
    **bbf.ENTRIES,
    "mrq": mrq.ENTRY,
    "sampled_muzero_policy": sampled_muzero_entry(search)._replace(
        without={"the search": sampled_muzero_entry(jnp.ones_like).run}
    ),
}
