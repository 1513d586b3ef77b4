"""Losses of `recipes/flows.py` in plain `jax.numpy`."""

import jax
import jax.numpy as jnp
import numpy as np
from recipes import flows as recipes

from plain_losses.common import ACTION, KEY, B, Case, D, F, normal, of, seed, stop

seed(__name__)


S, X_0 = ACTION.s_tm1, ACTION.a_tm1
K = 3
ADV = normal(B)
CHAIN = ACTION._replace(x=normal(K + 1, B, D), old_log_prob=normal(K, B, D))
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
    """seohongpark/fql@719d044, agents/fql.py: bc_flow_loss."""
    return jnp.mean(flow_losses(p) / D)


def two_critics(w, s, a):
    return jnp.tanh(jnp.concatenate([s, a], axis=-1) @ w)


def plain_fql_critic(p, t):
    """seohongpark/fql@719d044, agents/fql.py: critic_loss."""
    a = jnp.clip(actor(PARAMS[0], ACTION.s_t, jax.random.normal(KEY, (B, D))), -1, 1)
    q = jnp.mean(two_critics(t, ACTION.s_t, a), axis=-1)
    target = stop(ACTION.r_t + ACTION.discount_t * q)
    return jnp.mean((two_critics(p, S, X_0) - target[:, None]) ** 2)


def plain_fql_actor(p, t):
    """seohongpark/fql@719d044, agents/fql.py: distill_loss and q_loss."""
    noise = jax.random.normal(KEY, (B, D))
    x = noise
    for k in range(10):
        x = x + field(t, S, x, k / 10) / 10
    a = actor(p, S, noise)
    distance = jnp.mean((a - stop(jnp.clip(x, -1, 1))) ** 2, axis=-1)
    return jnp.mean(10 * distance - critic(S, jnp.clip(a, -1, 1)))


def fpo_losses(p):
    """akanazawa/fpo@418c255, playground/src/flow_policy/fpo.py: _compute_cfm_loss.

    The share of the noise is one of the times of the sampler's steps, 1, 0.9, ..., 0.1;
    the velocity is that to the noise.
    """
    losses = []
    for key in jax.random.split(KEY, 8):
        noise_key, time_key = jax.random.split(key)
        noise = jax.random.normal(noise_key, (B, D))
        t = 1 - jax.random.randint(time_key, (B, 1), 0, 10) / 10
        x = t * noise + (1 - t) * X_0
        velocity = -field(p, S, x, 1 - t[:, 0])
        data = x - t * velocity
        losses.append(jnp.mean((noise - (data + velocity)) ** 2, axis=-1))
    return sum(losses) / 8


OLD_LOSSES = fpo_losses(PARAMS[0]) + 0.05 * normal(B)


def plain_fpo(p, t):
    """akanazawa/fpo@418c255, playground/src/flow_policy/fpo.py: the policy loss."""
    ratio = jnp.exp(OLD_LOSSES - fpo_losses(p))
    clipped = jnp.clip(ratio, 0.95, 1.05)
    return -jnp.mean(jnp.minimum(ratio * ADV, clipped * ADV))


def shares(num_steps):
    f = np.cos((np.arange(num_steps + 1) / num_steps + 0.008) / 1.008 * np.pi / 2) ** 2
    beta = np.minimum(1 - f[1:] / f[:-1], 0.999)
    return jnp.asarray(np.cumprod(1 - beta), jnp.float32)


def vp_shares(num_steps):
    """Alescontrela/score_matching_rl@2e77893, jaxrl5/networks/diffusion.py."""
    t = np.arange(1, num_steps + 1)
    rate = 0.1 / num_steps + (10 - 0.1) * (2 * t - 1) / num_steps**2 / 2
    return jnp.asarray(np.cumprod(np.exp(-rate)), jnp.float32)


def noised(num_steps, shares=shares):
    """Sample a step and its noise for each action."""
    step_key, key = jax.random.split(KEY)
    k = jax.random.randint(step_key, (B,), 0, num_steps)
    keys = jax.random.split(key, B)
    noise = jnp.stack([jax.random.normal(each, (D,)) for each in keys])
    share = shares(num_steps)[k][:, None]
    return k, share, jnp.sqrt(share) * X_0 + jnp.sqrt(1 - share) * noise, noise


def plain_diffusion_bc(p, t):
    """real-stanford/diffusion_policy@5ba07ac, compute_loss.

    diffusion_policy/policy/diffusion_unet_lowdim_policy.py
    """
    k, _, x, noise = noised(100)
    return jnp.mean((field(p, S, x, k) - noise) ** 2)


def plain_qsm(p, t):
    """Alescontrela/score_matching_rl@2e77893: update_actor, with M_q = 50.

    jaxrl5/agents/score_matching/score_matching_learner.py
    """
    k, _, x, _ = noised(5, vp_shares)
    slope = jax.grad(lambda x: jnp.sum(critic(S, x)))(x)
    return jnp.mean(jnp.mean((-50 * slope - field(p, S, x, k)) ** 2, axis=-1))


def log_density(p, k):
    z = (CHAIN.x[k + 1] - field(p, S, CHAIN.x[k], k)) / 0.1
    return -(z**2) / 2 - jnp.log(0.1) - jnp.log(2 * jnp.pi) / 2


def plain_diffusion_ppo(p, t):
    """irom-princeton/dppo@cc7234a, model/diffusion/diffusion_ppo.py: pg_loss.

    With clip_ploss_coef_base 0.001 and gamma_denoising 0.99, for all steps at once.
    """
    losses = []
    for k in range(K):
        new, old = log_density(p, k), CHAIN.old_log_prob[k]
        new, old = (jnp.mean(jnp.clip(x, -5, 2), axis=-1) for x in (new, old))
        ratio = jnp.exp(new - old)
        adv = (ADV - jnp.mean(ADV)) / (jnp.std(ADV) + 1e-8)
        adv = adv * 0.99 ** (K - k - 1)
        growth = (jnp.exp(3 * k / (K - 1)) - 1) / (jnp.exp(3) - 1)
        epsilon = 0.001 + (0.01 - 0.001) * growth
        clipped = jnp.clip(ratio, 1 - epsilon, 1 + epsilon)
        losses.append(jnp.maximum(-adv * ratio, -adv * clipped))
    return jnp.mean(jnp.stack(losses))


# Samples near the means, so that ratios are near 1 as those of PPO; one is far.
for step in range(K):
    mean = field(PARAMS[0], S, CHAIN.x[step], step)
    noise = normal(B, D).at[0, 0].set(5.0)
    CHAIN.x = CHAIN.x.at[step + 1].set(mean + 0.1 * noise)
    density = log_density(PARAMS[0], step) + 0.05 * normal(B, D)
    CHAIN.old_log_prob = CHAIN.old_log_prob.at[step].set(density)

CRITICS = tuple(normal(F + D, 2) for _ in range(2))

CASES = {
    "flow_bc": Case(of(recipes.flow_bc, field, ACTION, KEY), plain_flow_bc, PARAMS),
    "fql_critic": Case(
        of(
            *(recipes.fql_critic, two_critics, ACTION, KEY),
            lambda s, noise: actor(PARAMS[0], s, noise),
        ),
        plain_fql_critic,
        CRITICS,
    ),
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
