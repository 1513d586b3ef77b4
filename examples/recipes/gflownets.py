"""Losses of GFlowNets: trajectory balance and sub-trajectory balance.

A batch of B trajectories of T steps, each from the empty object to a complete one, has
the fields

    s_tm1, s_t    objects before and after each step, [B, T, ...],
    a_tm1         steps of the policy, integers in [0, A), [B, T],
    b_t           steps of the backward policy that undo them, [B, T],
    log_reward    logarithms of the rewards of complete objects, [B],
    sample_mask   False for padding, after the object is complete, [B, T], or None.

`apply.policy(params, s)` and `apply.backward(params, s)` return logits. Where a last
step ends the object, without a change, `apply.backward` has one step back from there.
Needs `value_based.py` in the same package.
"""

import jax
import jax.numpy as jnp

import rlaxlib

from .value_based import valid  # noqa: TID252 - Any package.


def both_log_probs(params, apply, batch):
    """Return log-probabilities of the steps, and of the steps back, each [B, T]."""
    s_tm1, s_t = valid(batch, (batch.s_tm1, batch.s_t))
    pairs = (
        (apply.policy(params, s_tm1), batch.a_tm1),
        (apply.backward(params, s_t), batch.b_t),
    )
    return (rlaxlib.batched_index(jax.nn.log_softmax(x), a) for x, a in pairs)


def trajectory_balance(params, log_partition, apply, batch):
    """TB, trajectory balance: learns `log_partition` too, by its own gradient.

    Malkin et al., 2022, https://arxiv.org/abs/2201.13259. Source:
    github.com/GFNOrg/torchgfn@f39bfc9, src/gfn/gflownet/trajectory_balance.py, the same
    loss. Usual: Adam 1e-3, and 0.1 for `log_partition`, batch 16.
    """
    loss = jax.vmap(rlaxlib.trajectory_balance_loss, (None, 0, 0, 0))
    inputs = *both_log_probs(params, apply, batch), batch.log_reward
    return jnp.mean(loss(log_partition, *inputs, sample_mask=batch.sample_mask))


def sub_trajectory_balance(params, apply, batch, lambda_=0.9):
    """SubTB, sub-trajectory balance: `apply.flow` returns logarithms of flows, [B, T].

    Madan et al., 2022, https://arxiv.org/abs/2209.12782. Source:
    github.com/GFNOrg/torchgfn@f39bfc9, src/gfn/gflownet/sub_trajectory_balance.py, the
    same loss, by the default weights. Usual: λ 0.9, Adam 1e-3.
    """
    flow, mask = apply.flow(params, valid(batch, batch.s_tm1)), batch.sample_mask
    reward = batch.log_reward[:, None]
    flow = flow if mask is None else jnp.where(mask, flow, reward)
    flow = jnp.concatenate([flow, reward], axis=1)
    loss = jax.vmap(rlaxlib.sub_trajectory_balance_loss, (0, 0, 0, None))
    inputs = flow, *both_log_probs(params, apply, batch), lambda_
    return jnp.mean(loss(*inputs, sample_mask=mask))
