"""Losses of agents that search: AlphaZero, MuZero and Gumbel MuZero.

There is no tree search here: `mctx` has those of all three. A batch of B sequences of K
steps, or of B positions for AlphaZero, has the fields

    s                 observations: positions, or the first of a sequence, [B, ...],
    a_tm1, r_t        actions and rewards, [B, K],
    action_weights    shares of visits in the searches, [B, K+1, A], or [B, A],
    returns           n-step returns by the searches, [B, K+1], or outcomes, [B],
    sample_mask       False after an end, [B, K+1].

To learn a model, `apply(params, s, a)` unrolls it over the actions, and scales the
gradients into its state by ½ at each step. It returns logits of the policy, [B, K+1,
A], of values, [B, K+1, M], and of rewards, [B, K, M]. Needs `value_based.py` in the
same package.
"""

import jax
import jax.numpy as jnp

import rlaxlib

from .value_based import valid  # noqa: TID252 - Any package.


def alphazero(params, apply, batch):
    """AlphaZero: the policy of a search is learned, and the outcome of the game.

    `apply` returns logits, [B, A], masked by legal actions, and values, [B]. A batch of
    positions `s`, [B, ...], has the shares of visits in their searches,
    `action_weights`, [B, A], and `returns`, [B]: the outcome for the player to move.
    Returns of two players have a discount of -1. Silver et al., 2018,
    https://doi.org/10.1126/science.aar6404. Source:
    github.com/google-deepmind/open_spiel@15e351c,
    open_spiel/python/algorithms/alpha_zero/model.py, by others, the same loss but for
    the decay of weights, which is the optimizer's here. Usual (paper): 800 simulations,
    Dirichlet noise 0.3, 0.15 and 0.03 for chess, shogi and Go, with a fraction of 0.25,
    SGD 0.2 with momentum 0.9, lowered by factors of 10, batch 4,096, weight decay 1e-4.
    """
    logits, v = apply(params, batch.s)
    policy_loss = rlaxlib.categorical_cross_entropy(batch.action_weights, logits)
    return jnp.mean(policy_loss + jnp.square(v - batch.returns))


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


def muzero(params, apply, batch, value_cost=1.0, max_value=300.0):
    """MuZero: policy, value and reward of a model, unrolled over K steps.

    Schrittwieser et al., 2019, https://arxiv.org/abs/1911.08265. Source:
    github.com/google-research/google-research@30adf0e, muzero/learner.py, by others:
    rewards after an end have no loss there, and the steps before it weigh more (a
    cosine of 0.99 at random inputs). Here the weights are those of the paper. Usual
    (paper): K = 5, n = 10, 50 simulations, M = 601 bins in [-300, 300], discount 0.997,
    Dirichlet noise 0.25 with a fraction of 0.25, SGD 0.05 with momentum 0.9, annealed,
    batch 1,024, weight decay 1e-4, value cost 0.25 with Reanalyse; on board games
    outcomes as returns, 800 simulations.
    """
    logits, *heads = apply(params, batch.s, batch.a_tm1)
    target = valid(batch, batch.action_weights)
    policy_loss = rlaxlib.categorical_cross_entropy(target, logits)
    loss = model_losses(policy_loss, *heads, batch, value_cost, max_value)
    return unrolled_mean(loss)


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
    """Gumbel MuZero: MuZero, whose policy learns the completed values of a search.

    In place of `action_weights` the batch has the prior logits of the searches,
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
