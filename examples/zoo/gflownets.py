"""The zoo's GFlowNets: four slots are filled, in any order, with one of three values.

The reward of a complete object is exp(1.5 n), of n equal neighbours: three of the 81
objects have 90 times the reward of the least. What is measured is the overlap of the
policy's objects with the distribution proportional to the reward, ∑ min(p, R/Z), exact.
"""

from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from recipes import gflownets as recipes

from zoo.networks import forward, mlp
from zoo.training import Entry, Run

T, K = 4, 3  # Slots, which are steps, too, and values.
UPDATES, SIZE, EPSILON = 1000, 32, 0.1
# Log Z has a higher rate than the networks.
OPTIMIZER = optax.multi_transform(
    {"slow": optax.adam(3e-3), "fast": optax.adam(0.1)},
    {"policy": "slow", "backward": "slow", "flow": "slow", "log_partition": "fast"},
)


class Batch(NamedTuple):
    """Trajectories from the empty object to complete ones, as the recipes have them."""

    s_tm1: Any
    s_t: Any
    a_tm1: Any
    b_t: Any
    log_reward: Any
    sample_mask: Any = None


# --- Objects: integers, [T], where K is an empty slot. ---


def features(s):
    """Return an indicator of the value of each slot."""
    return jax.nn.one_hot(s, K + 1).reshape(*s.shape[:-1], -1)


def policy(params, s):
    """Return logits of slots and values, minus infinity for slots that are filled."""
    x = forward(params["policy"], features(s))
    return jnp.where(jnp.repeat(s == K, K, axis=-1), x, -jnp.inf)


def backward(params, s):
    """Return logits of slots to empty, minus infinity for those that are empty."""
    return jnp.where(s < K, forward(params["backward"], features(s)), -jnp.inf)


def flow(params, s):
    """Return logarithms of flows."""
    return forward(params["flow"], features(s))[..., 0]


APPLY = SimpleNamespace(policy=policy, backward=backward, flow=flow)


def step(s, a):
    """Return an object with one more slot filled."""
    return jnp.where(jnp.arange(T) == a // K, a % K, s)


def log_reward(s):
    """Return the logarithm of the reward of a complete object."""
    return 1.5 * jnp.sum(s[..., 1:] == s[..., :-1], axis=-1)


def sample(key, params):
    """Return a trajectory, [T, ...], with some steps at random."""

    def one(s, key):
        keys = jax.random.split(key, 3)
        x = policy(params, s)
        legal = jnp.where(jnp.isinf(x), -jnp.inf, 0.0)
        explores = jax.random.bernoulli(keys[0], EPSILON)
        a = jax.random.categorical(keys[1], jnp.where(explores, legal, x))
        return step(s, a), (s, step(s, a), a, a // K)

    empty = jnp.full(T, K)
    s, (s_tm1, s_t, a_tm1, b_t) = jax.lax.scan(one, empty, jax.random.split(key, T))
    return Batch(s_tm1, s_t, a_tm1, b_t, log_reward(s))


# --- The exact distribution of complete objects. ---

ALL = jnp.array(list(product(range(K + 1), repeat=T)))
POWERS = (K + 1) ** np.arange(T)[::-1]  # The index of an object in ALL is its product.
NEXT = jax.vmap(jax.vmap(step, (None, 0)), (0, None))(ALL, jnp.arange(T * K)) @ POWERS
COMPLETE = jnp.all(ALL < K, axis=1)
TARGET = jax.nn.softmax(jnp.where(COMPLETE, log_reward(ALL), -jnp.inf))


def overlap(params):
    """Return the overlap of the policy's distribution of objects with the target."""
    probs = jax.nn.softmax(jnp.where(COMPLETE[:, None], 0.0, policy(params, ALL)))

    def one(_, p):
        return jnp.zeros_like(p).at[NEXT].add(p[:, None] * probs)

    p = jax.lax.fori_loop(0, T, one, jnp.zeros(len(ALL)).at[-1].set(1.0))
    return jnp.sum(jnp.minimum(p, TARGET))


# --- Training. ---


def entry(recipe, loss, **without):
    """Return the entry of a loss of parameters and a batch, and of others."""

    def run(loss, key, fault):
        *keys, run_key = jax.random.split(key, 4)
        sizes = {"policy": T * K, "backward": T, "flow": 1}
        inputs = T * (K + 1)
        params = {
            name: mlp(k, inputs, 64, sizes[name], scale=0.1)
            for k, name in zip(keys, sizes, strict=True)
        }
        params = params | {"log_partition": jnp.zeros(())}

        def update(state, key):
            params, optimizer = state
            batch = jax.vmap(sample, (0, None))(jax.random.split(key, SIZE), params)
            batch = batch._replace(log_reward=fault.reward * batch.log_reward)
            gradients = jax.grad(loss)(params, batch)
            updates, optimizer = OPTIMIZER.update(gradients, optimizer)
            return optax.apply_updates(params, updates), optimizer

        return Run(
            (params, OPTIMIZER.init(params)),
            *(update, jax.random.split(run_key, UPDATES)),
            lambda state: overlap(state[0]),
        )

    return Entry(
        recipe=f"gflownets.{recipe}",
        run=partial(run, loss),
        about="Objects of 4 slots with 3 values: the overlap with their rewards / Z",
        random=0.49,
        best=1.0,
        states=0.9,
        fails=("reward",),
        without={part: partial(run, other) for part, other in without.items()},
    )


def trajectory_balance(params, batch, scale=1.0):
    log_partition = scale * params["log_partition"]
    return recipes.trajectory_balance(params, log_partition, APPLY, batch)


def sub_trajectory_balance(params, batch, scale=1.0):
    flows = SimpleNamespace(
        **vars(APPLY) | {"flow": lambda *inputs: scale * flow(*inputs)}
    )
    return recipes.sub_trajectory_balance(params, flows, batch)


ENTRIES = {
    "trajectory_balance": entry(
        *("trajectory_balance", trajectory_balance),
        **{"log Z": partial(trajectory_balance, scale=0.0)},
    ),
    "sub_trajectory_balance": entry(
        *("sub_trajectory_balance", sub_trajectory_balance),
        **{"the flows": partial(sub_trajectory_balance, scale=0.0)},
    ),
}
