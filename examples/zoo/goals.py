"""The zoo's goal-conditioned learners, on a grid with a wall and a random goal.

Data are episodes that go on at the goal, and rewards are computed from goals: a step
has the reward of the task, which is -1, or 0 if it reaches the goal. HER learns online.
The others learn from random actions. Some of them have a policy; QRL and MRN act
greedily in values or distances of the next cells, which the task's model returns.
Contrastive RL and GCIQL, whose actions are vectors, move a point in a square.
"""

from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from recipes import goals as recipes
from recipes.continuous import ActorCritic
from recipes.value_based import dqn

import rlaxlib
from zoo.networks import ensemble, forward, forward_ensemble, mlp
from zoo.tasks import Task
from zoo.training import Agent, Entry, begin, descend, evaluate, offline, online, play

WIDTH = 5
CELLS = WIDTH**2
WALL = [7, 12, 17]  # The middle column without its ends.
FREE = np.setdiff1d(np.arange(CELLS), WALL)
SCALE = 5.0  # Of observations, whose mean square is then 1.
A = 4
NEAR = 0.2  # Distance at which a goal of the square is reached.
UPDATES = 1000
OPTIMIZER = optax.adam(optax.linear_schedule(1e-2, 0.0, UPDATES))
RATE = 0.05  # Of the target networks.
HIDDEN = 64
STEPS = 40  # Of a stream of random actions.
EACH = 4  # Transitions of a stream in a batch.


def neighbors():
    """Return the next cell of each cell and action, [CELLS, A]."""
    y, x = np.divmod(np.arange(CELLS)[:, None], WIDTH)
    y = np.clip(np.add(y, [0, 0, 1, -1]), 0, WIDTH - 1)
    x = np.clip(np.add(x, [1, -1, 0, 0]), 0, WIDTH - 1)
    cell = WIDTH * y + x
    return np.where(np.isin(cell, WALL), np.arange(CELLS)[:, None], cell)


NEXT = jnp.asarray(neighbors())


def grid(ends=True):
    """Return the grid: -1 a step, until the goal is reached if `ends`."""

    def reset(key):
        start, other = jax.random.split(key)
        start = jax.random.randint(start, (), 0, len(FREE))
        goal = start + jax.random.randint(other, (), 1, len(FREE))
        return jnp.asarray(FREE)[jnp.stack([start, goal % len(FREE)])]

    def step(_, state, a):
        cell, goal = state
        cell = NEXT[cell, a]
        return jnp.stack([cell, goal]), -1.0, ends & (cell == goal)

    return Task(
        about="Grid of 5x5 with a wall: -1 a step on the way to a random goal",
        reset=reset,
        observe=lambda state: SCALE * jax.nn.one_hot(state, CELLS).reshape(-1),
        step=step,
        limit=20,
        actions=A,
        random=-16.56,
        best=-3.88,
        discount=0.95,
    )


def square(ends=True):
    """Return a point in a square: -1 a step, until it is near the goal if `ends`."""

    def step(_, state, a):
        x = jnp.clip(state[:2] + 0.3 * jnp.clip(a, -1, 1), -1, 1)
        reached = jnp.linalg.norm(x - state[2:]) < NEAR
        return jnp.concatenate([x, state[2:]]), -1.0, ends & reached

    return Task(
        about="Point in a square: -1 a step on the way to a random goal",
        reset=lambda key: jax.random.uniform(key, (4,), minval=-1, maxval=1),
        observe=lambda state: state,
        step=step,
        limit=20,
        actions=2,
        random=-17.66,
        best=-2.95,
        discount=0.9,
    )


TASK, ENDLESS = grid(), grid(ends=False)
SQUARE, ENDLESS_SQUARE = square(), square(ends=False)


class Batch(NamedTuple):
    """Transitions, [B], or streams, [B, T]: as the recipes have them."""

    s_tm1: jax.Array
    a_tm1: jax.Array
    r_t: jax.Array
    discount_t: jax.Array
    s_t: jax.Array
    goal: jax.Array
    truncated_t: Any = None
    sample_mask: Any = None
    subgoal: Any = None
    target: Any = None


def split(batch):
    """Return the batch with the goals of its observations apart."""
    s_tm1, goal = jnp.split(batch.s_tm1, 2, axis=-1)
    s_t, _ = jnp.split(batch.s_t, 2, axis=-1)
    inputs = batch.a_tm1, batch.r_t, batch.discount_t
    return Batch(s_tm1, *inputs, s_t, goal, batch.truncated_t)


def missed(achieved, goal):
    """Return 0 where the goal is achieved, else 1."""
    return jnp.any(achieved != goal, axis=-1).astype(float)


def entry(functions, run, fails=("reward",), task=TASK, states=-5.1):
    return Entry(
        recipe=f"goals.{functions}",
        run=run,
        about=task.about,
        random=task.random,
        best=task.best,
        states=states,  # By default 0.9 of the way from random actions to the best.
        fails=fails,
    )


def greedy(loss, init, q, epsilon=0.5, optimizer=OPTIMIZER):
    """Return an ε-greedy agent.

    Args:
        loss: Function of parameters, target parameters, batch and key.
        init: Function from a key to the first parameters.
        q: Function of parameters, a cell and a goal to values of actions, [A].
        epsilon: Exploration.
        optimizer: Optimizer.
    """

    def values(state, s):
        return q(state.params, *jnp.split(s, 2))

    def update(state, key, batch):
        return descend(
            state, lambda p: loss(p, state.target, batch, key), optimizer, rate=RATE
        )

    return Agent(
        init=lambda key: begin(init(key), optimizer),
        act=lambda state, key, s: rlaxlib.epsilon_greedy(epsilon).sample(
            key, values(state, s)
        ),
        best=lambda state, key, s: jnp.argmax(values(state, s)),
        update=update,
    )


def costs(batch, cell):
    """Return the batch with rewards and discounts of 0 where `cell` is the goal."""
    far = missed(cell, batch.goal)
    return batch._replace(r_t=far * batch.r_t, discount_t=far * batch.discount_t)


# --- Online. ---


def pair(x, y):
    """Return the products of all elements of two observations, a table's input."""
    products = x[..., :, None] * y[..., None, :] / SCALE
    return products.reshape(*products.shape[:-2], -1)


def her(params, target, batch, key):
    """Return DQN's loss, where 4 of 5 transitions have a goal achieved later."""
    streams = split(batch)

    def relabel(key, stream):
        return recipes.her(
            key, stream, stream.s_t, lambda x, goal: stream.r_t * missed(x, goal)
        )

    streams = jax.vmap(relabel)(jax.random.split(key, len(streams.r_t)), streams)
    streams = costs(streams, streams.s_t)
    x = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), streams)
    x = x._replace(s_tm1=pair(x.s_tm1, x.goal), s_t=pair(x.s_t, x.goal))
    return dqn(params, target, forward, x)


HER = greedy(
    her,
    init=lambda key: mlp(key, CELLS**2, HIDDEN, A),
    q=lambda params, s, goal: forward(params, pair(s, goal)),
)


# --- From streams of random actions. ---


def data(key):
    def behavior(key, s):
        return jax.random.randint(key, (), 0, A)

    return play(ENDLESS._replace(limit=STEPS), behavior, key, 256, STEPS)


def learned(functions, loss, init, q, fails=("reward",), rate=1e-2, updates=UPDATES):
    """Return an entry that learns from the data; `loss` as for `greedy`."""
    optimizer = optax.adam(optax.linear_schedule(rate, 0.0, updates))

    def relabeled(params, target, batch, key):
        return loss(params, target, sample(key, batch))

    agent = greedy(relabeled, init, q, optimizer=optimizer)
    return entry(functions, offline(TASK, agent, data, updates, 128 // EACH), fails)


def sample(key, streams):
    """Return transitions of all streams, with goals at geometric distances."""
    goal_key, step_key = jax.random.split(key)
    streams = split(streams)
    num, steps = streams.r_t.shape
    keys = jax.random.split(goal_key, num)
    sampled = partial(recipes.geometric_goals, gamma=GAMMA)
    # Without the bootstrap each step is an end, and its goal the next cell.
    index = jnp.broadcast_to(jnp.arange(steps), (num, steps))
    reached = jax.vmap(sampled)(keys, streams, index)
    later = jnp.minimum(index + AHEAD - 1, steps - 1)

    def at(index):
        return jax.vmap(lambda s, i: s[i])(streams.s_t, index)

    streams = streams._replace(
        goal=at(reached), subgoal=at(later), target=at(jnp.minimum(later, reached))
    )
    rows = jnp.tile(jnp.arange(num), EACH)
    rows = rows, jax.random.randint(step_key, rows.shape, 0, steps)
    return jax.tree.map(lambda x: x[rows], streams)


def ahead(value):
    """Return action values: the state values of the next cells."""

    def q(params, s, goal):
        cells = SCALE * jax.nn.one_hot(NEXT[jnp.argmax(s)], CELLS)
        return value(params, cells, jnp.broadcast_to(goal, cells.shape))

    return q


def others(batch):
    """Return the batch where half of the goals are those of other transitions."""
    num = len(batch.goal) // 2
    goal = batch.goal.at[:num].set(jnp.roll(batch.goal[:num], 1, axis=0))
    # The value of a goal at itself is 0.
    return costs(batch._replace(goal=goal), batch.s_tm1)


# --- Contrastive RL. ---


def embeddings(params, s, a, goal):
    x = jnp.concatenate([s, a], axis=-1)
    return forward(params["x"], x), forward(params["y"], goal)


def gaussian(params, s, goal):
    """Return mean and standard deviation of an actor, before the tanh."""
    x = forward(params, jnp.concatenate([s, goal], axis=-1))
    mean, stddev = jnp.split(x, 2, axis=-1)
    return mean, 0.1 + jax.nn.softplus(stddev)


def contrastive(params, target, batch, key, weight=1.0):
    sample_key, key = jax.random.split(key)
    batch = sample(sample_key, batch)
    # There is no reward: with its sign turned, the goals are those of others.
    turned = batch.r_t[:, None] > 0
    goal = jnp.where(turned, jnp.roll(batch.goal, 1, axis=0), batch.goal)
    critic = jax.lax.stop_gradient(params["critic"])
    inputs = params["actor"], gaussian, batch, key, partial(embeddings, critic)
    batch = batch._replace(goal=goal)
    loss = recipes.contrastive_critic(params["critic"], embeddings, batch)
    return weight * loss + recipes.contrastive_actor(*inputs, ENTROPY_COST)


def contrastive_init(key):
    x, y, key = jax.random.split(key, 3)
    return {
        "actor": mlp(key, 4, HIDDEN, 2 * SQUARE.actions, scale=0.1),
        "critic": {
            "x": mlp(x, 2 + SQUARE.actions, HIDDEN, HIDDEN, scale=0.3),
            "y": mlp(y, 2, HIDDEN, HIDDEN, scale=0.3),
        },
    }


def random_actions(key):
    def behavior(key, s):
        return jax.random.uniform(key, (SQUARE.actions,), minval=-1, maxval=1)

    return play(ENDLESS_SQUARE._replace(limit=STEPS), behavior, key, 256, STEPS)


def in_square(functions, loss, init, act, rate, fails=("reward",), updates=UPDATES):
    """Return an entry in the square.

    Args:
        functions: Functions of the recipe.
        loss: Function of parameters, target parameters, batch and key.
        init: Function from a key to the first parameters.
        act: Policy to evaluate, of parameters, an observation and a goal.
        rate: Adam's, which falls to 0.
        fails: Faults.
        updates: Number of updates.
    """
    optimizer = optax.adam(optax.linear_schedule(rate, 0.0, updates))
    agent = Agent(
        init=lambda key: begin(init(key), optimizer),
        act=None,
        best=lambda state, key, s: act(state.params, *jnp.split(s, 2)),
        update=lambda state, key, batch: descend(
            *(state, lambda p: loss(p, state.target, batch, key), optimizer),
            rate=RATE,
        ),
    )
    run = offline(SQUARE, agent, random_actions, updates, 128 // EACH)
    return entry(functions, run, fails, SQUARE, states=-4.4)


def contrastive_action(params, s, goal):
    return jnp.tanh(gaussian(params["actor"], s, goal)[0])


# --- GCIQL. ---


def beside(*inputs):
    return jnp.concatenate(jax.tree.leaves(inputs), axis=-1)


GCIQL = ActorCritic(
    actor=lambda params, s: jnp.tanh(forward(params, beside(s))),
    critic=lambda params, s, a: forward_ensemble(params, beside(s, a))[..., 0],
    value=lambda params, s: forward(params, beside(s))[..., 0],
)


def gciql_init(key):
    actor, critic, value = jax.random.split(key, 3)
    return ActorCritic(
        actor=mlp(actor, 4, HIDDEN, HIDDEN, 2, scale=0.1),
        critic=ensemble(critic, 2, 6, HIDDEN, HIDDEN, 1),
        value=mlp(value, 4, HIDDEN, HIDDEN, 1),
    )


def gciql(params, target, batch, key, alpha):
    """Return all losses: 0.2 of the goals are the state, 0.3 those of others."""
    sample_key, key = jax.random.split(key)
    batch = sample(sample_key, batch)
    share = jax.random.uniform(key, (len(batch.goal), 1))
    goal = jnp.where(share < 0.3, jnp.roll(batch.goal, 1, axis=0), batch.goal)
    goal = jnp.where(share > 0.8, batch.s_tm1, goal)
    far = jnp.linalg.norm(batch.s_tm1 - goal, axis=-1) > NEAR
    mixed = batch._replace(
        goal=goal, r_t=far * batch.r_t, discount_t=far * batch.discount_t
    )
    values = recipes.gciql_values(params, target, GCIQL, mixed)
    return values + recipes.gciql_actor(params, GCIQL, batch, alpha)


def gciql_action(params, s, goal):
    return GCIQL.actor(params.actor, (s, goal))


# --- Values and distances. ---


def values(params, s, goal):
    """Return two values, [..., 2]."""
    return forward(params, pair(s, goal))


def mrn(params, s, goal):
    """Return two values that are distances of metric residual networks, [B, 2]."""
    value = partial(recipes.mrn_value, apply=forward, s=s, goal=goal)
    return jnp.stack([value(each) for each in params], axis=-1)


def gcivl(apply):
    def loss(params, target, batch):
        return recipes.gcivl_value(params, target, apply, others(batch))

    return loss


def chosen(params, s, goal, a):
    """Return the log-probabilities of actions; of a subgoal, of its cell."""
    log_pi = jax.nn.log_softmax(forward(params, pair(s, goal)))
    a = jnp.argmax(a, axis=-1) if a.ndim == s.ndim else a
    return rlaxlib.batched_index(log_pi, a)


HIQL = SimpleNamespace(
    low=lambda params, *args: chosen(params["low"], *args),
    high=lambda params, *args: chosen(params["high"], *args),
)


def with_actor(actor, expectile):
    """Return the loss of values and of an actor, which learns from their advantages."""

    def loss(params, target, batch):
        fixed = jax.lax.stop_gradient(params["value"])
        inputs = params["value"], target["value"], values, others(batch), expectile
        return recipes.gcivl_value(*inputs) + actor(
            params, batch, lambda s, goal: values(fixed, s, goal)
        )

    return loss


def gcivl_actor(params, batch, value, temperature=0.1):
    inputs = params["actor"], chosen, batch, value, temperature
    return recipes.gcivl_actor(*inputs)


def gcbc(params, target, batch):
    # There is no reward: with its sign turned, the goals are those of others.
    turned = batch.r_t[:, None] > 0
    goal = jnp.where(turned, jnp.roll(batch.goal, 1, axis=0), batch.goal)
    return recipes.gcbc(params["actor"], chosen, batch._replace(goal=goal))


def hiql_actor(params, batch, value):
    return recipes.hiql_actor(params, HIQL, batch, value)


def gcivl_policy(params, s, goal):
    return forward(params["actor"], pair(s, goal))


def low_policy(params, s, goal):
    return forward(params["low"], pair(s, goal))


def hiql_policy(params, s, goal):
    subgoal = jnp.argmax(forward(params["high"], pair(s, goal)))
    return low_policy(params, s, SCALE * jax.nn.one_hot(subgoal, CELLS))


def tables(**outputs):
    """Return a function from a key to networks with some numbers of outputs."""

    def init(key):
        keys = jax.random.split(key, len(outputs))
        return {
            name: mlp(k, CELLS**2, HIDDEN, size)
            for k, (name, size) in zip(keys, outputs.items(), strict=True)
        }

    return init


def mean(apply):
    return ahead(lambda *args: apply(*args).mean(axis=-1))


def mrn_init(key):
    return [mlp(k, CELLS, HIDDEN, 2 * HIDDEN) for k in jax.random.split(key)]


def quasimetric(params, s):
    x = forward(params, s)
    return x.reshape(*x.shape[:-1], COMPONENTS, -1)


def qrl(params, target, batch):
    loss, alpha_loss = recipes.qrl_value(
        params["net"], params["alpha"], quasimetric, others(batch)
    )
    return loss + alpha_loss


def qrl_init(key, alpha=0.0):
    return {"net": mlp(key, CELLS, HIDDEN, 8 * COMPONENTS), "alpha": jnp.array(alpha)}


def qrl_value(params, s, goal):
    x, y = (quasimetric(params["net"], each) for each in (s, goal))
    return -jax.vmap(rlaxlib.quasimetric_distance)(x, y)


COMPONENTS = 4
GAMMA = 0.95  # Of the goals' distances.
AHEAD = 3  # Steps to the subgoals of HIQL.
ENTROPY_COST = 0.01  # Of contrastive RL's actor.
ALPHA = 0.03  # Of GCIQL, whose data are random actions.


def contrastive_entry(**settings):
    return in_square(
        "contrastive_critic, energy, contrastive_actor, geometric_goals",
        partial(contrastive, **settings),
        *(contrastive_init, contrastive_action, 4e-3),
    )


def gciql_entry(alpha):
    loss = partial(gciql, alpha=alpha)
    inputs = loss, gciql_init, gciql_action, 3e-3
    return in_square("gciql_values, gciql_actor", *inputs, updates=2 * UPDATES)


def gcivl_entry(**settings):
    loss = with_actor(partial(gcivl_actor, **settings), 0.9)
    inputs = loss, tables(value=2, actor=A), gcivl_policy
    return learned("gcivl_value, gcivl_actor", *inputs, updates=2 * UPDATES)


def hiql_entry(policy):
    inputs = with_actor(hiql_actor, 0.7), tables(value=2, low=A, high=CELLS), policy
    functions = "hiql_actor, gcivl_value, gcivl_actor"
    return learned(functions, *inputs, updates=2 * UPDATES)


def qrl_entry(**settings):
    inputs = qrl, partial(qrl_init, **settings), ahead(qrl_value)
    return learned("qrl_value", *inputs, fails=("gradient",))


ENTRIES = {
    "her": entry(
        "her",
        online(
            ENDLESS,
            HER,
            UPDATES,
            steps=4,
            replay=16,
            window=ENDLESS.limit,
            score=lambda _, act, key: evaluate(TASK, act, key),
        ),
    ),
    # Values are those of random actions, of which the policy is one improvement.
    "contrastive_rl": contrastive_entry()._replace(
        without={"the critic": contrastive_entry(weight=0.0).run}
    ),
    # A clone of random actions that led to the goal: not the shortest path.
    "gcbc": learned(
        "gcbc", gcbc, tables(actor=A), gcivl_policy, updates=2 * UPDATES
    )._replace(states=-8.0),
    "gciql": gciql_entry(ALPHA)._replace(
        without={"the values": gciql_entry(100.0).run}
    ),
    # Without the advantages, the median of five runs is at -5.1 for some seeds.
    "gcivl": gcivl_entry()._replace(
        states=-4.7,  # The worst of 25 seeds ended at -4.55.
        without={"the advantages": gcivl_entry(temperature=1e6).run},
    ),
    "hiql": hiql_entry(hiql_policy)._replace(
        without={"the subgoals": hiql_entry(low_policy).run}
    ),
    # The worst of 15 seeds ended at -5.9: 0.8 of the way.
    "qrl": qrl_entry()._replace(
        states=-6.4, without={"the bound on a step": qrl_entry(alpha=-30.0).run}
    ),
    "mrn": learned("mrn_value", gcivl(mrn), mrn_init, mean(mrn)),
}
