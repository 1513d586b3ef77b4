"""The zoo's R2D2: a recurrent network, on a task of memory."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from recipes import value_based as recipes

import rlaxlib
from zoo.networks import forward, mlp
from zoo.training import Entry, Run, begin, descend

LENGTH = 3  # Cells.
HIDDEN = 16
UPDATES = 1600
OPTIMIZER = optax.adam(optax.linear_schedule(1e-2, 0.0, UPDATES))
NUM, BATCH, WINDOW, BURN_IN = 16, 32, 12, 2
EPSILON = 0.5
PERIOD = 20
DISCOUNT = 0.95


class Sequences(NamedTuple):
    """Streams, as the recipe has them."""

    s: jax.Array
    a_tm1: jax.Array
    r_t: jax.Array
    discount_t: jax.Array
    state: jax.Array
    sample_mask: jax.Array
    probability: Any = None
    truncated_t: Any = None


# --- The task: a cue in the first cell, a choice in the last one. ---


def reset(key):
    """Return the first cell and a cue."""
    return jnp.stack([jnp.array(0), jax.random.randint(key, (), 0, 2)])


def observe(state):
    """Return the cell, and the cue in the first one."""
    cell, cue = state
    return jnp.append(jax.nn.one_hot(cell, LENGTH + 1), (cell == 0) * (2.0 * cue - 1))


def step(key, state, a):
    """Take a step: state, reward, and whether the episode has ended.

    In the last cell the action of the cue pays 1. Before, action 0 goes on, and action
    1 leaves with 0.6, which is more than a guess is worth. After the end, cell
    `LENGTH`, comes a step to the next episode, whose action does nothing.
    """
    cell, cue = state
    last, over = cell == LENGTH - 1, cell == LENGTH
    leaves = (a == 1) & ~last & ~over
    reward = jnp.where(last, 1.0 * (a == cue), 0.6 * leaves)
    after = jnp.stack([jnp.where(leaves, LENGTH, cell + 1), cue])
    return jnp.where(over, reset(key), after), reward, leaves | last


# --- The network. ---


def init(key):
    keys = jax.random.split(key, 2)
    size = HIDDEN + LENGTH + 2
    return {"gates": mlp(keys[0], size, 2 * HIDDEN), "q": mlp(keys[1], HIDDEN, 2)}


def unit(params, state, s):
    """Return the next state of a minimal gated unit, and action values."""
    gate, x = jnp.split(forward(params["gates"], jnp.append(s, state)), 2)
    state = state + jax.nn.sigmoid(gate) * (jnp.tanh(x) - state)
    return state, forward(params["q"], state)


def apply(params, state, s, first):
    """Return q of sequences, with a fresh state at first observations."""

    def one(state, inputs):
        s, first = inputs
        return unit(params, jnp.where(first, 0.0, state), s)

    return jax.vmap(lambda state, *inputs: jax.lax.scan(one, state, inputs)[1])(
        state, s, first
    )


# --- The loop. ---


def act(params, key, carry, epsilon, has_memory):
    """Take a step in one environment: the next carry, and what to remember."""
    act_key, step_key = jax.random.split(key)
    env, state = carry
    s, valid = observe(env), env[0] < LENGTH
    after, q = unit(params, state, s)
    a = rlaxlib.epsilon_greedy(epsilon).sample(act_key, q)
    env, reward, over = step(step_key, env, a)
    row = Sequences(s, a, reward, DISCOUNT * ~over, state, valid)
    return (env, jnp.where(valid & has_memory, after, 0.0)), row


def play(params, key, carry, epsilon, steps, has_memory):
    """Take steps in environments: the next carry, and streams, [N, T]."""

    def stream(carry, key):
        return jax.lax.scan(
            lambda carry, key: act(params, key, carry, epsilon, has_memory),
            carry,
            jax.random.split(key, steps),
        )

    return jax.vmap(stream)(carry, jax.random.split(key, len(carry[0])))


def begin_episodes(key, num):
    return jax.vmap(reset)(jax.random.split(key, num)), jnp.zeros((num, HIDDEN))


def evaluate(params, key, has_memory):
    """Return the mean return of 64 episodes."""
    carry = begin_episodes(key, 64)
    _, rows = play(params, key, carry, 0.0, LENGTH, has_memory)
    first = jnp.cumsum(~rows.sample_mask, axis=1) == 0
    return jnp.mean(jnp.sum(rows.r_t * first, axis=1))


def draw(key, memory, end):
    """Return sequences of T steps, and the observation after them."""
    row_key, start_key = jax.random.split(key)
    rows = jax.random.randint(row_key, (BATCH,), 0, NUM)
    starts = jax.random.randint(start_key, (BATCH,), 0, end - WINDOW)
    steps = starts[:, None] + jnp.arange(WINDOW + 1)
    drawn = jax.tree.map(lambda x: x[rows[:, None], steps], memory)
    cut = jax.tree.map(lambda x: x[:, :-1], drawn)
    probability = jnp.full(BATCH, 1 / BATCH)
    return cut._replace(s=drawn.s, state=drawn.state[:, 0], probability=probability)


def run(key, fault, has_memory=True):
    """Return a run: an update is a step in all environments, an update.

    Without its memory, a network begins anew at each step.
    """

    def reading(params, state, s, first):
        return apply(params, state, s, first | (not has_memory))

    init_key, run_key, eval_key = jax.random.split(key, 3)
    learner = begin(init(init_key), OPTIMIZER)
    carry = begin_episodes(key, NUM)
    carry, memory = play(learner.params, key, carry, 1.0, WINDOW + 1, has_memory)
    memory = jax.tree.map(
        lambda x: jnp.pad(x, [(0, 0), (0, UPDATES)] + [(0, 0)] * (x.ndim - 2)), memory
    )

    def update(state, index):
        learner, carry, memory = state
        act_key, draw_key = jax.random.split(jax.random.fold_in(run_key, index))
        carry, rows = play(learner.params, act_key, carry, EPSILON, 1, has_memory)
        memory = jax.tree.map(
            lambda old, new: jax.lax.dynamic_update_slice_in_dim(
                old, new, WINDOW + 1 + index, axis=1
            ),
            memory,
            rows,
        )
        batch = draw(draw_key, memory, WINDOW + 2 + index)
        batch = batch._replace(
            r_t=fault.reward * batch.r_t, discount_t=fault.bootstrap * batch.discount_t
        )

        def loss(params):
            return recipes.r2d2(params, learner.target, reading, batch, 3, BURN_IN)[0]

        return descend(learner, loss, OPTIMIZER, PERIOD), carry, memory

    return Run(
        *((learner, carry, memory), update, jnp.arange(UPDATES)),
        lambda state: evaluate(state[0].params, eval_key, has_memory),
    )


ENTRY = Entry(
    recipe="value_based.r2d2",
    run=run,
    about="Memory: a cue in the first of 3 cells names what pays 1 in the last one",
    random=(0.5 + 0.25) * 0.6 + 0.25 * 0.5,
    best=1.0,
    states=0.95,
    fails=("reward", "bootstrap"),
    without={"its memory": partial(run, has_memory=False)},
)
