"""Losses of `recipes/gflownets.py`, transcribed from GFNOrg/torchgfn@f39bfc9.

In the order and form of its files, with src/gfn/gflownet/base.py and
src/gfn/utils/prob_calculations.py, for trajectories of different lengths; time is the
first axis. The last action is the exit, whose backward probability is 1.
"""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
from formulas import pick
from recipes import gflownets as recipes

from plain_losses.common import (
    A,
    B,
    Batch,
    Case,
    F,
    T,
    cases,
    given,
    integers,
    normal,
    seed,
)

seed(__name__)


# Trajectories of 5, 4, 3 and 1 steps: the other ones are padding, after the exit.
LENGTHS = np.array([T, 4, 3, 1])
VALID = np.arange(T) < LENGTHS[:, None]
EXIT = np.arange(T) == LENGTHS[:, None] - 1
STATES, ACTIONS = normal(B, T, F), integers(A, B, T)
OBJECTS = Batch(
    s_tm1=np.where(VALID[..., None], STATES, np.nan),
    # The state after the exit has a mark of 9 and one parent.
    s_t=np.where(EXIT[..., None], 9.0, normal(B, T, F)),
    a_tm1=ACTIONS,
    b_t=np.where(EXIT, 0, integers(A, B, T)),
    log_reward=normal(B),
    sample_mask=VALID,
)


def backward(w, s):
    logits = s @ w[:, A : 2 * A]
    only = jnp.where(jnp.arange(A) > 0, -1e9, 0.0)
    return jnp.where(s[..., :1] == 9.0, only, logits)


NET = SimpleNamespace(
    policy=lambda w, s: s @ w[:, :A], backward=backward, flow=lambda w, s: s @ w[:, -1]
)
W = 0.5 * normal(F, 2 * A + 1)


def get_pfs_and_pbs(p):
    """Return log-probabilities of steps and of steps back, 0 at padding, [T, N]."""
    forward = pick(jax.nn.log_softmax(NET.policy(p, STATES)), ACTIONS)
    back = pick(jax.nn.log_softmax(NET.backward(p, OBJECTS.s_t)), OBJECTS.b_t)
    return jnp.where(VALID, forward, 0.0).T, jnp.where(VALID & ~EXIT, back, 0.0).T


def plain_trajectory_balance(p, t):
    """GFNOrg/torchgfn@f39bfc9, src/gfn/gflownet/trajectory_balance.py: loss."""
    log_pf_trajectories, log_pb_trajectories = get_pfs_and_pbs(p["w"])
    total_log_pf = jnp.sum(log_pf_trajectories, axis=0)
    total_log_pb = jnp.sum(log_pb_trajectories, axis=0)
    scores = total_log_pf - total_log_pb - OBJECTS.log_reward
    return jnp.mean((scores + p["z"]) ** 2)


def get_scores(p):
    """Return scores of sub-trajectories of each length i, and which do not exist."""
    log_pf, log_pb = get_pfs_and_pbs(p)
    log_pf_cum, log_pb_cum = (
        jnp.concatenate([jnp.zeros((1, B)), jnp.cumsum(x, axis=0)])
        for x in (log_pf, log_pb)
    )
    log_state_flows, is_terminal = NET.flow(p, STATES).T, EXIT.T
    scores, flattening_masks = [], []
    for i in range(1, T + 1):
        preds = log_pf_cum[i:] - log_pf_cum[:-i] + log_state_flows[: T + 1 - i]
        delta_pb = log_pb_cum[i - 1 : -1] - log_pb_cum[: T + 1 - i]
        ending = OBJECTS.log_reward + delta_pb
        delta_pb2 = log_pb_cum[i:] - log_pb_cum[:-i]
        later = jnp.concatenate([log_state_flows[i:], jnp.zeros((1, B))])
        targets = jnp.where(is_terminal[i - 1 :], ending, delta_pb2 + later)
        scores.append(preds - targets)
        flattening_masks.append(np.arange(i, T + 1)[:, None] > LENGTHS)
    return jnp.concatenate(scores), np.concatenate(flattening_masks)


def get_geometric_within_contributions(lamda=0.9):
    """Return the weight of each sub-trajectory of each length."""
    lengths = np.concatenate([np.full(T - i, i) for i in range(T)])
    contributions = np.repeat(lamda ** lengths[:, None].astype(float), B, axis=1)
    denom = [sum((n - i) * lamda**i for i in range(n)) for n in LENGTHS]
    return contributions / np.array(denom) / B


def plain_sub_trajectory_balance(p, t):
    """GFNOrg/torchgfn@f39bfc9, src/gfn/gflownet/sub_trajectory_balance.py: loss.

    By "geometric_within".
    """
    all_scores, flattening_mask = get_scores(p)
    contributions = get_geometric_within_contributions()
    return jnp.sum((contributions * all_scores**2)[~flattening_mask])


CASES = cases(
    recipes, globals(), {"sub_trajectory_balance": given((W, None), NET, OBJECTS)}
)
CASES |= {
    "trajectory_balance": Case(
        lambda p, t: recipes.trajectory_balance(p["w"], p["z"], NET, OBJECTS),
        plain_trajectory_balance,
        ({"w": W, "z": np.float32(0.3)}, None),
    )
}
