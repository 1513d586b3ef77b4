"""Losses of `recipes/goals.py` in plain `jax.numpy`."""

import jax
import jax.numpy as jnp
from recipes import goals as recipes

from plain_losses.common import ACTION, B, Case, D, F, normal, of, stop

K, SIZE = 2, 3
GOALS = ACTION._replace(goal=normal(B, F))


def embeddings(w, s, a, goal):
    return jnp.concatenate([s, a], axis=-1) @ w["sa"], goal @ w["g"]


EMBEDDINGS = {"sa": normal(F + D, 3), "g": normal(F, 3)}, None


def two_values(w, s, goal):
    return jnp.tanh(jnp.concatenate([s, goal], axis=-1) @ w)


TWO_VALUES = tuple(normal(2 * F, 2) for _ in range(2))


def embed(w, s):
    return (s @ w).reshape(len(s), K, SIZE)


def plain_contrastive_critic(p, t):
    x, y = embeddings(p, GOALS.s_tm1, GOALS.a_tm1, GOALS.goal)
    logits = jnp.sum(x[:, None] * y[None], axis=-1)
    sums = jnp.log(jnp.sum(jnp.exp(logits), axis=1))
    return jnp.mean(sums - jnp.diagonal(logits) + 0.1 * sums**2)


def plain_gcivl_value(p, t):
    b = GOALS
    v_t, v_tm1 = (two_values(t, s, b.goal) for s in (b.s_t, b.s_tm1))
    target = b.r_t[:, None] + b.discount_t[:, None] * v_t
    adv = b.r_t + b.discount_t * jnp.min(v_t, axis=1) - jnp.mean(v_tm1, axis=1)
    weight = jnp.where(adv >= 0, 0.9, 0.1)[:, None]
    error = stop(target) - two_values(p, b.s_tm1, b.goal)
    return jnp.mean(jnp.sum(weight * error**2, axis=1))


def lengths(x, y):
    """Return the distances of one pair: the union of intervals, by a loop."""
    components = []
    for xs, ys in zip(x, y, strict=True):
        order, covered, reach = jnp.argsort(xs), 0.0, -jnp.inf
        for i in range(SIZE):
            low, high = xs[order[i]], ys[order[i]]
            covered += jnp.maximum(0, high - jnp.maximum(low, reach))
            reach = jnp.maximum(reach, jnp.maximum(low, high))
        components.append(covered)
    components = jnp.stack(components)
    return (jnp.max(components) + jnp.mean(components)) / 2


def plain_qrl_value(p, t):
    x, y, goal = (embed(p, s) for s in (GOALS.s_tm1, GOALS.s_t, GOALS.goal))
    local = jnp.stack([lengths(*pair) for pair in zip(x, y, strict=True)])
    far = jnp.stack([lengths(*pair) for pair in zip(x, goal, strict=True)])
    violation = jnp.mean(jnp.maximum(0, local - 1) ** 2)
    push = jnp.mean(10 * jnp.log(1 + jnp.exp((15 - far) / 10)))
    return push + jax.nn.softplus(stop(t)) * violation


CASES = {
    "contrastive_critic": Case(
        of(recipes.contrastive_critic, embeddings, GOALS),
        plain_contrastive_critic,
        EMBEDDINGS,
    ),
    "gcivl_value": Case(
        of(recipes.gcivl_value, two_values, GOALS), plain_gcivl_value, TWO_VALUES
    ),
    "qrl_value": Case(
        of(recipes.qrl_value, embed, GOALS),
        plain_qrl_value,
        (normal(F, K * SIZE), jnp.float32(0.7)),
    ),
}
