"""Losses of `recipes/planning.py` in plain `jax.numpy`."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
from recipes import planning as recipes

from plain_losses.common import (
    KEY,
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
    seed,
    stop,
)

seed(__name__)


L, K = 3, 5
CRITICS = 3


def heads(x):
    return x.reshape(*x.shape[:-1], -1, M)


MODEL = SimpleNamespace(
    encode=lambda w, s: jnp.tanh(s @ w["encode"]),
    next=lambda w, z, a: jnp.tanh(jnp.concatenate([z, a], axis=-1) @ w["next"]),
    reward=lambda w, z, a: heads(jnp.concatenate([z, a], axis=-1) @ w["reward"]),
    value=lambda w, z, a: heads(jnp.concatenate([z, a], axis=-1) @ w["value"]),
    policy=lambda w, z: mean_and_stddev(w["policy"], z),
    project=lambda w, z: z @ w["project"],
    predict=lambda w, x: x @ w["predict"],
)
PARAMS = tuple(
    {
        "encode": normal(F, L),
        "next": normal(L + D, L),
        "reward": normal(L + D, M),
        "value": normal(L + D, CRITICS * M),
        "policy": 0.3 * normal(L, 2 * D),
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


def soft_ce(logits, x):
    """Return the cross-entropies with two_hot, as tdmpc2/common/math.py."""
    size = 20 / (M - 1)
    x = (jnp.clip(jnp.sign(x) * jnp.log(1 + jnp.abs(x)), -10, 10) + 10) / size
    low = jnp.floor(x).astype(int)
    share = (x - low)[..., None]
    one = jax.nn.one_hot
    target = (1 - share) * one(low, M) + share * one((low + 1) % M, M)
    return -jnp.sum(target * jax.nn.log_softmax(logits), axis=-1)


def two_hot_inv(logits):
    x = jax.nn.softmax(logits) @ jnp.linspace(-10, 10, M)
    return jnp.sign(x) * (jnp.exp(jnp.abs(x)) - 1)


def plain_tdmpc2_model(p, t):
    """nicklashansen/tdmpc2@e9f5932, tdmpc2/tdmpc2.py: _update."""
    b, z = SEQUENCES, latents(p)
    consistency, reward, value = 0.0, 0.0, 0.0
    for k in range(T):
        target, a = stop(MODEL.encode(p, b.s[:, k + 1])), b.a_tm1[:, k]
        consistency += 0.5**k * jnp.mean((z[k + 1] - target) ** 2)
        r_logits, q_logits = (h(p, z[k], a) for h in (MODEL.reward, MODEL.value))
        reward += 0.5**k * jnp.mean(soft_ce(r_logits[:, 0], b.r_t[:, k]))
        for i in range(CRITICS):
            value += 0.5**k * jnp.mean(soft_ce(q_logits[:, i], b.target[:, k]))
    return 20 * consistency / T + 0.1 * reward / T + 0.1 * value / (T * CRITICS)


def plain_tdmpc2_actor(p, t):
    """nicklashansen/tdmpc2@e9f5932, tdmpc2/tdmpc2.py: update_pi.

    With pi and Q of tdmpc2/common/world_model.py.
    """
    act_key, key = jax.random.split(KEY)
    noise = jax.random.normal(act_key, (T + 1, B, D))
    two = jax.random.choice(key, jnp.arange(CRITICS), (2,), replace=False)
    fixed = {name: stop(x) if name != "policy" else x for name, x in p.items()}
    loss = 0.0
    for k, z in enumerate(latents(fixed)):
        mean, stddev = MODEL.policy(p, z)
        gaussian = -(noise[k] ** 2) / 2 - jnp.log(stddev) - 0.9189385175704956
        gaussian = jnp.sum(gaussian, axis=-1)
        a = jnp.tanh(mean + stddev * noise[k])
        log_prob = gaussian - jnp.sum(jnp.log(1 - a**2 + 1e-6), axis=-1)
        entropy = -log_prob * (gaussian * D / (log_prob + 1e-8))
        q = jnp.mean(two_hot_inv(MODEL.value(fixed, z, a))[:, two], axis=-1)
        loss -= 0.5**k * jnp.mean(1e-4 * entropy + q / 2.0)
    return loss / (T + 1)


def plain_spr(p, t):
    """mila-iqia/spr@0b9dd4e, src/algos.py and src/models.py, without IS weights.

    The last step has no end after it.
    """
    b, z, loss = SEQUENCES, latents(p), 0.0
    done = jnp.pad(b.discount_t == 0, ((0, 0), (0, 1)))
    nonterminals = 1.0 - jnp.sign(jnp.cumsum(done, axis=1))
    for k in range(T):
        alive = nonterminals[:, k + 1]
        x = MODEL.predict(p, MODEL.project(p, z[k + 1]))
        y = stop(MODEL.project(t, MODEL.encode(t, b.s[:, k + 1])))
        norms = jnp.linalg.norm(x, axis=-1) * jnp.linalg.norm(y, axis=-1)
        loss -= alive * jnp.sum(x * y, axis=-1) / norms
    return 2 * jnp.mean(loss)


def plain_sampled_muzero_policy(p, t):
    """opendilab/LightZero@9f717c8, lzero/policy/sampled_muzero.py: cross_entropy.

    `a_samples` are its actions before the tanh.
    """
    mu, sigma = mean_and_stddev(p, SEQUENCES.s[:, 0])
    target_policy = SEQUENCES.visits / jnp.sum(SEQUENCES.visits, axis=0)
    log_probs = []
    for target_sampled_actions in jnp.tanh(SEQUENCES.a_samples):
        y = 1 - target_sampled_actions**2
        before_tanh = jnp.arctanh(jnp.clip(target_sampled_actions, -1 + 1e-6, 1 - 1e-6))
        log_prob = -((before_tanh - mu) ** 2) / (2 * sigma**2) - jnp.log(sigma)
        log_prob = jnp.sum(log_prob - jnp.log(2 * jnp.pi) / 2, axis=-1)
        log_probs.append(log_prob - jnp.sum(jnp.log(y + 1e-6), axis=-1))
    weights = jnp.exp(jnp.log(target_policy + 1e-6))
    return jnp.mean(-jnp.sum(weights * jnp.stack(log_probs), axis=0))


CASES = {
    "tdmpc2_model": Case(
        of(recipes.tdmpc2_model, MODEL, SEQUENCES), plain_tdmpc2_model, PARAMS
    ),
    "tdmpc2_actor": Case(
        of(recipes.tdmpc2_actor, MODEL, SEQUENCES, KEY, 2.0),
        plain_tdmpc2_actor,
        PARAMS,
        "encode next reward value",
    ),
    "spr": Case(of(recipes.spr, MODEL, SEQUENCES), plain_spr, PARAMS),
    "sampled_muzero_policy": Case(
        of(recipes.sampled_muzero_policy, mean_and_stddev, SEQUENCES),
        plain_sampled_muzero_policy,
        (normal(F, 2 * D), None),
    ),
}
