"""Losses of `recipes/planning.py` in plain `jax.numpy`."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
from recipes import planning as recipes

from plain_losses.common import (
    B,
    Batch,
    Case,
    D,
    F,
    M,
    T,
    integers,
    mean_and_stddev,
    normal,
    of,
    stop,
)

L, K = 3, 5
MODEL = SimpleNamespace(
    encode=lambda w, s: jnp.tanh(s @ w["encode"]),
    next=lambda w, z, a: jnp.tanh(jnp.concatenate([z, a], axis=-1) @ w["next"]),
    reward=lambda w, z, a: jnp.concatenate([z, a], axis=-1) @ w["reward"],
    value=lambda w, z, a: jnp.concatenate([z, a], axis=-1) @ w["value"],
    project=lambda w, z: z @ w["project"],
    predict=lambda w, x: x @ w["predict"],
)
PARAMS = tuple(
    {
        "encode": normal(F, L),
        "next": normal(L + D, L),
        "reward": normal(L + D, M),
        "value": normal(L + D, M),
        "project": normal(L, 4),
        "predict": normal(4, 4),
    }
    for _ in range(2)
)
SEQUENCES = Batch(
    s=normal(B, T + 1, F),
    a_tm1=jnp.tanh(normal(B, T, D)),
    r_t=normal(B, T),
    target=3 * normal(B, T),
    discount_t=jnp.ones((B, T)).at[1, 2].set(0.0).at[3, 0].set(0.0),
    a_samples=jnp.tanh(normal(K, B, D)),
    visits=1 + integers(6, K, B),
)


def latents(p):
    z = [MODEL.encode(p, SEQUENCES.s[:, 0])]
    for t in range(T):
        z.append(MODEL.next(p, z[-1], SEQUENCES.a_tm1[:, t]))
    return z


def encode_two_hot(x):
    """Encode values on symmetric bins, the symexp of equal steps."""
    steps = jnp.linspace(-20, 20, M)
    bins = jnp.sign(steps) * jnp.expm1(jnp.abs(steps))
    above = jnp.clip(jnp.sum(bins[:, None] <= x[None], axis=0), 1, M - 1)
    low, high = bins[above - 1], bins[above]
    share = (x - low) / (high - low)
    one = jax.nn.one_hot
    return (1 - share)[:, None] * one(above - 1, M) + share[:, None] * one(above, M)


def entropy(logits, x):
    return -jnp.sum(encode_two_hot(x) * jax.nn.log_softmax(logits), axis=-1)


def plain_tdmpc2_model(p, t):
    b, z, loss = SEQUENCES, latents(p), 0.0
    for k in range(T):
        target = stop(MODEL.encode(t, b.s[:, k + 1]))
        consistency = jnp.mean((z[k + 1] - target) ** 2, axis=-1)
        heads = (h(p, z[k], b.a_tm1[:, k]) for h in (MODEL.reward, MODEL.value))
        losses = map(entropy, heads, (b.r_t[:, k], b.target[:, k]))
        loss += 0.5**k * jnp.mean(20 * consistency + 0.1 * sum(losses))
    return loss / T


def plain_spr(p, t):
    b, z, loss, alive = SEQUENCES, latents(p), 0.0, jnp.ones(B)
    for k in range(T):
        alive = alive * (b.discount_t[:, k] > 0)
        x = MODEL.predict(p, MODEL.project(p, z[k + 1]))
        y = stop(MODEL.project(t, MODEL.encode(t, b.s[:, k + 1])))
        norms = jnp.linalg.norm(x, axis=-1) * jnp.linalg.norm(y, axis=-1)
        loss -= alive * jnp.sum(x * y, axis=-1) / norms
    return 2 * jnp.mean(loss)


def plain_sampled_muzero_policy(p, t):
    mu, sigma = mean_and_stddev(p, SEQUENCES.s[:, 0])
    z = (SEQUENCES.a_samples - mu[None]) / sigma[None]
    density = -(z**2) / 2 - jnp.log(sigma)[None] - jnp.log(2 * jnp.pi) / 2
    weights = SEQUENCES.visits / jnp.sum(SEQUENCES.visits, axis=0)[None]
    return -jnp.mean(jnp.sum(weights * jnp.sum(density, axis=-1), axis=0))


CASES = {
    "tdmpc2_model": Case(
        of(recipes.tdmpc2_model, MODEL, SEQUENCES), plain_tdmpc2_model, PARAMS
    ),
    "spr": Case(of(recipes.spr, MODEL, SEQUENCES), plain_spr, PARAMS),
    "sampled_muzero_policy": Case(
        of(recipes.sampled_muzero_policy, mean_and_stddev, SEQUENCES),
        plain_sampled_muzero_policy,
        (normal(F, 2 * D), None),
    ),
}
