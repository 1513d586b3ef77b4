"""Losses of `recipes/flows.py` in plain `jax.numpy`."""

import jax
import jax.numpy as jnp
import numpy as np
from recipes import flows as recipes

from plain_losses.common import ACTION, KEY, B, Case, D, F, normal, of, stop

S, X_0 = ACTION.s_tm1, ACTION.a_tm1
K = 3
ADV = normal(B)
CHAIN = ACTION._replace(x=normal(K + 1, B, D), old_log_prob=0.1 * normal(K, B))
PARAMS = tuple(0.5 * normal(F + D + 1, D) for _ in range(2))
W_CRITIC = normal(F + D)


def field(w, s, x, t):
    time = jnp.broadcast_to(jnp.asarray(t, jnp.float32) / 10, s.shape[:1])
    return jnp.tanh(jnp.concatenate([s, x, time[:, None]], axis=-1) @ w)


def actor(w, s, noise):
    return field(w, s, noise, 0)


def critic(s, a):
    return jnp.tanh(jnp.concatenate([s, a], axis=-1) @ W_CRITIC)


def paths(key=KEY):
    """Sample a point, its time and the velocity, for each action."""
    drawn = []
    for each, a in zip(jax.random.split(key, B), X_0, strict=True):
        noise_key, time_key = jax.random.split(each)
        noise, t = jax.random.normal(noise_key, (D,)), jax.random.uniform(time_key)
        drawn.append(((1 - t) * noise + t * a, t, a - noise))
    return (jnp.stack(x) for x in zip(*drawn, strict=True))


def flow_losses(p):
    x, t, velocity = paths()
    return jnp.sum((field(p, S, x, t) - velocity) ** 2, axis=-1)


def plain_flow_bc(p, t):
    return jnp.mean(flow_losses(p))


def plain_fql_actor(p, t):
    noise = jax.random.normal(KEY, (B, D))
    x = noise
    for k in range(10):
        x = x + field(t, S, x, k / 10) / 10
    a = actor(p, S, noise)
    distance = jnp.mean((a - stop(jnp.clip(x, -1, 1))) ** 2, axis=-1)
    return jnp.mean(10 * distance - critic(S, jnp.clip(a, -1, 1)))


def fpo_losses(p):
    losses = []
    for key in jax.random.split(KEY, 8):
        x, t, velocity = paths(key)
        noise = x - t[:, None] * velocity
        prediction = x - t[:, None] * field(p, S, x, t)
        losses.append(jnp.mean((prediction - noise) ** 2, axis=-1))
    return sum(losses) / 8


OLD_LOSSES = fpo_losses(PARAMS[0]) + 0.05 * normal(B)


def plain_fpo(p, t):
    ratio = jnp.exp(OLD_LOSSES - fpo_losses(p))
    clipped = jnp.clip(ratio, 0.95, 1.05)
    return -jnp.mean(jnp.minimum(ratio * ADV, clipped * ADV))


def shares(num_steps):
    f = np.cos((np.arange(num_steps + 1) / num_steps + 0.008) / 1.008 * np.pi / 2) ** 2
    beta = np.minimum(1 - f[1:] / f[:-1], 0.999)
    return jnp.asarray(np.cumprod(1 - beta), jnp.float32)


def noised(num_steps):
    """Sample a step and its noise for each action."""
    step_key, key = jax.random.split(KEY)
    k = jax.random.randint(step_key, (B,), 0, num_steps)
    keys = jax.random.split(key, B)
    noise = jnp.stack([jax.random.normal(each, (D,)) for each in keys])
    share = shares(num_steps)[k][:, None]
    return k, share, jnp.sqrt(share) * X_0 + jnp.sqrt(1 - share) * noise, noise


def plain_diffusion_bc(p, t):
    k, _, x, noise = noised(100)
    return jnp.mean((field(p, S, x, k) - noise) ** 2)


def plain_qsm(p, t):
    k, share, x, _ = noised(10)
    slope = jax.grad(lambda x: jnp.sum(critic(S, x)))(x)
    error = field(p, S, x, k) + 50 * jnp.sqrt(1 - share) * slope
    return jnp.mean(jnp.sum(error**2, axis=-1)) / 2


def plain_diffusion_ppo(p, t):
    losses = []
    for k in range(K):
        z = (CHAIN.x[k + 1] - field(p, S, CHAIN.x[k], k)) / 0.1
        density = -jnp.sum(z**2 / 2 + jnp.log(0.1) + jnp.log(2 * jnp.pi) / 2, axis=-1)
        log_ratio = jnp.clip(density - CHAIN.old_log_prob[k], -20, 20)
        ratio = jnp.exp(log_ratio)
        clipped = jnp.clip(ratio, 0.99, 1.01)
        losses.append(-jnp.minimum(ratio * ADV, clipped * ADV))
    return jnp.mean(jnp.stack(losses))


# Samples near the means, so that ratios are near 1 as those of PPO.
for step in range(K):
    mean = field(PARAMS[0], S, CHAIN.x[step], step)
    CHAIN.x = CHAIN.x.at[step + 1].set(mean + 0.1 * normal(B, D))
    z = (CHAIN.x[step + 1] - mean) / 0.1
    density = -jnp.sum(z**2 / 2 + jnp.log(0.1) + jnp.log(2 * jnp.pi) / 2, axis=-1)
    CHAIN.old_log_prob = CHAIN.old_log_prob.at[step].set(density + 0.01 * normal(B))

CASES = {
    "flow_bc": Case(of(recipes.flow_bc, field, ACTION, KEY), plain_flow_bc, PARAMS),
    "fql_actor": Case(
        of(recipes.fql_actor, field, ACTION, KEY, actor, critic),
        plain_fql_actor,
        PARAMS,
    ),
    "fpo": Case(
        of(recipes.fpo, field, ACTION, KEY, ADV, OLD_LOSSES),
        plain_fpo,
        PARAMS,
    ),
    "diffusion_bc": Case(
        of(recipes.diffusion_bc, field, ACTION, KEY), plain_diffusion_bc, PARAMS
    ),
    "qsm": Case(of(recipes.qsm, field, ACTION, KEY, critic), plain_qsm, PARAMS),
    "diffusion_ppo": Case(
        of(recipes.diffusion_ppo, field, CHAIN, ADV), plain_diffusion_ppo, PARAMS
    ),
}
