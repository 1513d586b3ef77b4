"""Losses of `recipes/search.py` in plain `jax.numpy`."""

import jax
import jax.numpy as jnp
import numpy as np
from formulas import two_hot
from recipes import search as recipes

from plain_losses.common import (
    PAIR_PARAMS,
    SEARCH,
    A,
    B,
    Batch,
    F,
    M,
    T,
    cases,
    cross_entropy,
    given,
    normal,
    policy_and_value,
    rescale,
    seed,
)

seed(__name__)

POSITIONS = Batch(
    s=normal(B, F),
    action_weights=jax.nn.softmax(normal(B, A)),
    returns=np.array([1.0, -1.0, 0.0, 1.0]),
)
VISITED = SEARCH._replace(action_weights=jax.nn.softmax(normal(B, T + 1, A)))


def model(w, s, a):
    policy, value, reward = w
    s = s + jnp.mean(a, axis=1, keepdims=True)
    shapes = (T + 1, A), (T + 1, M), (T, M)
    return tuple(
        (s @ x).reshape(B, *n)
        for x, n in zip((policy, value, reward), shapes, strict=True)
    )


def plain_alphazero(p, t):
    """google-deepmind/open_spiel@15e351c.

    open_spiel/python/algorithms/alpha_zero/model.py, without the decay of weights.
    """
    policy_logits, values = policy_and_value(p, POSITIONS.s)
    loss_value = jnp.mean((values - POSITIONS.returns) ** 2)
    loss_policy = jnp.mean(cross_entropy(POSITIONS.action_weights, policy_logits))
    return loss_policy + loss_value


def encoded(x):
    """Return the two-hot encodings of rescaled values."""
    return two_hot(rescale(x), jnp.linspace(-300, 300, M))


def plain_muzero(p, t):
    """google-research/google-research@30adf0e, muzero/learner.py: compute_loss.

    With the masks of muzero/core.py: make_target. Its gradients are scaled, not its
    losses.
    """
    b, (logits, v_logits, r_logits) = VISITED, model(p, VISITED.s, VISITED.a_tm1)
    policy_mask = b.sample_mask.astype(float)
    reward_mask = jnp.pad(policy_mask[:, :-1], ((0, 0), (1, 0)))
    masks = jnp.ones((B, T + 1)), reward_mask, policy_mask
    r_t = jnp.pad(b.r_t, ((0, 0), (1, 0)))
    r_logits = jnp.pad(r_logits, ((0, 0), (1, 0), (0, 0)))
    losses = (
        cross_entropy(encoded(b.returns * policy_mask), v_logits),
        cross_entropy(encoded(r_t), r_logits),
        cross_entropy(b.action_weights, logits),
    )
    total = 0.0
    for loss, mask in zip(losses, masks, strict=True):
        scale = 1 / jnp.maximum(jnp.sum(mask[:, 1:], axis=-1), 1)
        weights = jnp.concatenate([jnp.ones((B, 1)), *T * [scale[:, None]]], axis=1)
        total += jnp.sum(weights * mask * loss, axis=1)
    return jnp.mean(total)


def plain_gumbel_muzero(p, t):
    """google-deepmind/mctx@b53073f, mctx/_src/qtransforms.py."""
    b, (logits, v_logits, r_logits) = SEARCH, model(p, SEARCH.s, SEARCH.a_tm1)
    prior, visited = jax.nn.softmax(b.logits), b.visits > 0
    mass = jnp.sum(prior * visited, axis=-1)
    mean_q = jnp.sum(prior * visited * b.q, -1) / jnp.where(mass > 0, mass, 1)
    total = jnp.sum(b.visits, axis=-1)
    mixed = (b.v + total * jnp.where(mass > 0, mean_q, 0)) / (1 + total)
    q = jnp.where(visited, b.q, mixed[..., None])
    low, high = jnp.min(q, -1, keepdims=True), jnp.max(q, -1, keepdims=True)
    q = (q - low) / jnp.where(high > low, high - low, 1)
    most = jnp.max(b.visits, -1, keepdims=True)
    target = jax.nn.softmax(b.logits + 0.1 * (50 + most) * q)
    bins, mask = jnp.linspace(-300, 300, M), b.sample_mask
    policy_loss = mask * cross_entropy(target, logits)
    returns, r_t = b.returns * mask, b.r_t * mask[:, :-1]
    value_loss = cross_entropy(two_hot(rescale(returns), bins), v_logits)
    reward_loss = cross_entropy(two_hot(rescale(r_t), bins), r_logits)
    loss = policy_loss + 0.25 * value_loss
    loss = loss.at[:, 1:].add(reward_loss)
    # The gradients of unrolled steps are scaled by 1/K in MuZero's pseudocode.
    return jnp.mean(loss @ jnp.array([1] + T * [1 / T]))


HEADS = normal(F, (T + 1) * A), normal(F, (T + 1) * M), normal(F, T * M)

CASES = cases(
    recipes,
    globals(),
    {
        "alphazero": given(PAIR_PARAMS, policy_and_value, POSITIONS),
        "muzero": given((HEADS, None), model, VISITED),
        "gumbel_muzero": given((HEADS, None), model, SEARCH),
    },
)
