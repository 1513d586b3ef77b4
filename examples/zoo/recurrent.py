"""The zoo's recurrent PPO: on R2D2's task of memory, from fresh streams."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from recipes import policy_gradient as recipes

import rlaxlib
from zoo.networks import forward, mlp
from zoo.r2d2 import DISCOUNT, ENTRY, HIDDEN, LENGTH, observe, reset, step
from zoo.training import Run, begin, descend

NUM, STEPS, EPOCHS = 32, 16, 4
# To leave with 0.6 is a local optimum: with less entropy, some runs stay there.
ENTROPY_COST = 0.3
UPDATES = 600
OPTIMIZER = optax.adam(optax.linear_schedule(5e-3, 0.0, UPDATES * EPOCHS))


class Stream(NamedTuple):
    """Streams, as the recipe has them, [NUM, STEPS]."""

    s_tm1: jax.Array
    first: jax.Array
    a_tm1: jax.Array
    r_t: jax.Array
    discount_t: jax.Array
    sample_mask: jax.Array
    logits_tm1: jax.Array
    v_tm1: jax.Array
    v_t: Any = None
    state: Any = None  # Before the stream, [NUM, HIDDEN].
    truncated_t: Any = None


def init(key):
    keys = jax.random.split(key, 2)
    size = HIDDEN + LENGTH + 2
    return {
        "gates": mlp(keys[0], size, 2 * HIDDEN),
        "head": mlp(keys[1], HIDDEN, 3, scale=0.1),
    }


def unit(params, state, s):
    """Return the next state of a minimal gated unit, logits and a value."""
    gate, x = jnp.split(forward(params["gates"], jnp.append(s, state)), 2)
    state = state + jax.nn.sigmoid(gate) * (jnp.tanh(x) - state)
    head = forward(params["head"], state)
    return state, (head[:2], head[2])


def apply(params, state, s, first):
    """Return logits and values of streams, with a fresh state at first observations."""

    def one(state, inputs):
        s, first = inputs
        return unit(params, jnp.where(first, 0.0, state), s)

    return jax.vmap(lambda state, *inputs: jax.lax.scan(one, state, inputs)[1])(
        state, s, first
    )


def play(params, key, carry, steps, best=False, has_memory=True):
    """Take steps in environments: the next carry, and streams.

    Without its memory, a network begins anew at each step.
    """

    def act(carry, key):
        act_key, step_key = jax.random.split(key)
        env, state = carry
        s, valid = observe(env), env[0] < LENGTH
        first = (env[0] == 0) | (not has_memory)
        after, (logits, v) = unit(params, jnp.where(first, 0.0, state), s)
        sampled = rlaxlib.softmax().sample(act_key, logits)
        a = jnp.where(best, jnp.argmax(logits), sampled)
        env, reward, over = step(step_key, env, a)
        row = Stream(s, first, a, reward, DISCOUNT * ~over, valid, logits, v)
        return (env, after), row

    def stream(carry, key):
        return jax.lax.scan(act, carry, jax.random.split(key, steps))

    return jax.vmap(stream)(carry, jax.random.split(key, len(carry[0])))


def begin_episodes(key, num):
    return jax.vmap(reset)(jax.random.split(key, num)), jnp.zeros((num, HIDDEN))


def evaluate(params, key, has_memory):
    """Return the mean return of 64 episodes."""
    carry = begin_episodes(key, 64)
    _, rows = play(params, key, carry, LENGTH, True, has_memory)
    first = jnp.cumsum(~rows.sample_mask, axis=1) == 0
    return jnp.mean(jnp.sum(rows.r_t * first, axis=1))


def run(key, fault, has_memory=True):
    """Return a run: an update is a stream of all environments, and its epochs."""
    init_key, run_key, eval_key = jax.random.split(key, 3)
    learner = begin(init(init_key), OPTIMIZER)

    def update(state, index):
        learner, carry = state
        state = carry[1]
        play_key = jax.random.fold_in(run_key, index)
        carry, rows = play(
            learner.params, play_key, carry, STEPS + 1, has_memory=has_memory
        )
        rows = rows._replace(
            r_t=fault.reward * rows.r_t, discount_t=fault.bootstrap * rows.discount_t
        )
        now = jax.tree.map(lambda x: x[:, :-1], rows)
        # The value of the next step is that of the true next observation: of an end,
        # whose discount is 0, it is any.
        batch = now._replace(v_t=rows.v_tm1[:, 1:], state=state)

        def epoch(learner, _):
            return descend(
                learner,
                lambda p: recipes.recurrent_ppo(
                    p, apply, batch, entropy_cost=ENTROPY_COST
                ),
                OPTIMIZER,
            ), None

        learner, _ = jax.lax.scan(epoch, learner, length=EPOCHS)
        return learner, carry

    return Run(
        *((learner, begin_episodes(key, NUM)), update, jnp.arange(UPDATES)),
        lambda state: evaluate(state[0].params, eval_key, has_memory),
    )


ENTRY = ENTRY._replace(
    recipe="policy_gradient.recurrent_ppo",
    run=run,
    without={"its memory": partial(run, has_memory=False)},
)
