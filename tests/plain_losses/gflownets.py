"""Losses of `recipes/gflownets.py` in plain `jax.numpy`."""

from types import SimpleNamespace

import jax.numpy as jnp
from recipes import gflownets as recipes

from plain_losses.common import (
    A,
    B,
    Batch,
    Case,
    F,
    T,
    integers,
    log_prob,
    normal,
    of,
    seed,
)

seed(__name__)


OBJECTS = Batch(
    s_tm1=normal(B, T, F),
    s_t=normal(B, T, F),
    a_tm1=integers(A, B, T),
    b_t=integers(A, B, T),
    log_reward=normal(B),
)
NET = SimpleNamespace(
    policy=lambda w, s: s @ w[:, :A],
    backward=lambda w, s: s @ w[:, A : 2 * A],
    flow=lambda w, s: s @ w[:, -1],
)
W = 0.5 * normal(F, 2 * A + 1)


def steps(p):
    b = OBJECTS
    forward = log_prob(NET.policy(p, b.s_tm1), b.a_tm1)
    return forward - log_prob(NET.backward(p, b.s_t), b.b_t)


def plain_trajectory_balance(p, t):
    """GFNOrg/torchgfn@f39bfc9, src/gfn/gflownet/trajectory_balance.py."""
    scores = jnp.sum(steps(p["w"]), axis=1) - OBJECTS.log_reward
    return jnp.mean((scores + p["z"]) ** 2)


def plain_sub_trajectory_balance(p, t):
    """GFNOrg/torchgfn@f39bfc9, src/gfn/gflownet/sub_trajectory_balance.py."""
    flows = jnp.split(NET.flow(p, OBJECTS.s_tm1), T, axis=1)
    flows = [*(x[:, 0] for x in flows), OBJECTS.log_reward]
    above, below, ratio = 0.0, 0.0, steps(p)
    for i in range(T + 1):
        for j in range(i + 1, T + 1):
            error = flows[i] + jnp.sum(ratio[:, i:j], axis=1) - flows[j]
            above, below = above + 0.9 ** (j - i) * error**2, below + 0.9 ** (j - i)
    return jnp.mean(above) / below


CASES = {
    "trajectory_balance": Case(
        lambda p, t: recipes.trajectory_balance(p["w"], p["z"], NET, OBJECTS),
        plain_trajectory_balance,
        ({"w": W, "z": jnp.float32(0.3)}, None),
    ),
    "sub_trajectory_balance": Case(
        of(recipes.sub_trajectory_balance, NET, OBJECTS),
        plain_sub_trajectory_balance,
        (W, None),
    ),
}
