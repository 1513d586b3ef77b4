"""Losses of `recipes/search.py` in plain `jax.numpy`."""

import jax
import jax.numpy as jnp
from recipes import search as recipes

from plain_losses.common import (
    SEARCH,
    A,
    B,
    Case,
    F,
    M,
    T,
    cross_entropy,
    normal,
    of,
    rescale,
    seed,
    two_hot,
)

seed(__name__)


def model(w, s, a):
    policy, value, reward = w
    s = s + jnp.mean(a, axis=1, keepdims=True)
    shapes = (T + 1, A), (T + 1, M), (T, M)
    return tuple(
        (s @ x).reshape(B, *n)
        for x, n in zip((policy, value, reward), shapes, strict=True)
    )


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

CASES = {
    "gumbel_muzero": Case(
        of(recipes.gumbel_muzero, model, SEARCH), plain_gumbel_muzero, (HEADS, None)
    ),
}
