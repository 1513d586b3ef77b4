"""Losses of agents that search: Gumbel MuZero.

There is no tree search here: `mctx` has one. A batch of B sequences of K steps has the
fields

    s                 first observations, [B, ...],
    a_tm1, r_t        actions and rewards, [B, K],
    returns           n-step returns, from the values of the searches, [B, K+1],
    sample_mask       False after an end, [B, K+1].

`apply(params, s, a)` unrolls the model over the actions, and scales the gradients into
its state by ½ at each step. It returns logits of the policy, [B, K+1, A], of values,
[B, K+1, M], and of rewards, [B, K, M]. Needs `value_based.py` in the same package.
"""

import jax
import jax.numpy as jnp

import rlaxlib

from .value_based import valid  # noqa: TID252 - Any package.


def model_losses(policy_loss, v_logits, r_logits, batch, value_cost, max_value):
    """Return the losses of a model, from those of its policies, [B, K+1].

    After an end the value and the reward learn 0, and the policy nothing.
    """
    tx, num_bins = rlaxlib.SIGNED_HYPERBOLIC_PAIR, v_logits.shape[-1]
    pair = rlaxlib.muzero_pair(-max_value, max_value, num_bins, tx)
    r_t = jnp.pad(batch.r_t, ((0, 0), (0, 1)))
    policy_loss, returns, r_t = valid(batch, (policy_loss, batch.returns, r_t))
    cross_entropy = rlaxlib.categorical_cross_entropy
    loss = policy_loss + value_cost * cross_entropy(pair.apply(returns), v_logits)
    return loss.at[:, 1:].add(cross_entropy(pair.apply(r_t[:, :-1]), r_logits))


def unrolled_mean(loss):
    """Return the mean loss, where K unrolled steps weigh 1/K each, and the root 1."""
    return jnp.mean(loss[:, 0] + jnp.mean(loss[:, 1:], axis=1))


def gumbel_muzero(
    params,
    apply,
    batch,
    value_cost=0.25,
    max_value=300.0,
    c_visit=50.0,
    c_scale=0.1,
    rescale_values=True,
):
    """Gumbel MuZero: policy, value and reward of a model, unrolled over K steps.

    The batch has the prior logits of the searches,
    `logits`, `q` and `visits`, [B, K+1, A], and the values of the network at the roots,
    `v`, [B, K+1]. Danihelka et al., 2022,
    https://openreview.net/forum?id=bERaNdoegnO. Source:
    github.com/google-deepmind/mctx@b53073f, mctx/_src/qtransforms.py, the same targets
    of the policy. Usual (paper; the code): K = 5, M = 601 bins in [-300, 300], c_visit
    50, c_scale 1 on board games and 0.1 on Atari, values rescaled to [0, 1] as in mctx.
    """
    logits, *heads = apply(params, batch.s, batch.a_tm1)

    def policy_target(*search):
        rescale = {"rescale_values": rescale_values}
        return rlaxlib.gumbel_policy_targets(*search, c_visit, c_scale, **rescale)

    search = valid(batch, (batch.logits, batch.q, batch.visits, batch.v))
    target = jax.vmap(jax.vmap(policy_target))(*search)
    policy_loss = rlaxlib.categorical_cross_entropy(target, logits)
    loss = model_losses(policy_loss, *heads, batch, value_cost, max_value)
    return unrolled_mean(loss)
