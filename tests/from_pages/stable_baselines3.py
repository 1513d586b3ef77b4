"""Stable-Baselines3, SBX and the contrib package.

DLR-RM/stable-baselines3@e05d2db: `ppo/ppo.py`, `a2c/a2c.py`, `sac/sac.py`,
`td3/td3.py`, `dqn/dqn.py`, `common/{buffers,noise,running_mean_std,utils}.py`;
araffin/sbx@9bdc9c1: `sbx/tqc/tqc.py`;
Stable-Baselines-Team/stable-baselines3-contrib@0ca7fdd: `common/utils.py`.
"""

import formulas as f
import jax
import jax.numpy as jnp

from from_pages import flags, integers, normal, uniform

B, A, D, N = 8, 4, 3, 1000
stop = jax.lax.stop_gradient
INPUTS = {
    "values": normal(B),
    "v_t": normal(B),
    "last_values": normal(),
    "terminal_value": normal(B),
    "episode_starts": 1.0 * flags(0, 4, length=B),
    "dones": jnp.float32(1.0),
    "dones_t": 1.0 * flags(2, 5, length=B),
    "truncated": flags(3, length=B),
    "r_t": normal(B),
    "discount_t": 0.9 * (1 - flags(3, length=B)),
    "adv": normal(B),
    "log_prob": (log_prob := normal(B)),
    "old_log_prob": log_prob + normal(B, scale=0.3),
    "next_log_prob": normal(B),
    "v": (v := normal(B)),
    "old_v": v + normal(B, scale=0.3),
    "target": normal(B),
    "mean": normal(B, D),
    "stddev": uniform(B, D, low=0.5),
    "qs": normal(2, B),
    "next_qs": normal(2, B),
    "log_ent_coef": jnp.float32(-0.7),
    "key": jax.random.key(0),
    "next_action": uniform(D, low=-1.0),
    "q": normal(B, A),
    "a": integers(A, B),
    "next_q": normal(B, A),
    "next_quantiles": normal(2, 5),
    "quantiles": normal(2, 5),
    "observation": 3 + normal(N, D),
    "noise": normal(D),
}
TRAINED = {"log_prob", "v", "mean", "stddev", "qs", "log_ent_coef", "q", "quantiles"}


def gae(values, r_t, last_values, episode_starts, dones):
    live = 1 - jnp.append(episode_starts[1:], dones)
    return f.gae(values, r_t, 0.9 * live, jnp.append(values[1:], last_values))


def time_limit(values, r_t, v_t, terminal_value, truncated):
    rewards = r_t + truncated * 0.9 * terminal_value
    return f.gae(values, rewards, 0.9 * (1.0 - truncated), v_t)


def n_step(r_t, dones_t, truncated):
    """Return sums of up to 3 rewards, and the factors of the values after them."""
    sums, factors = [], []
    for t in range(B):
        total, factor, live, ended = 0.0, 1.0, 1.0, 0.0
        for k in range(t, min(t + 3, B)):
            total += 0.9 ** (k - t) * live * r_t[k]
            factor *= jnp.where(live > 0, 0.9, 1.0)
            ended = jnp.maximum(ended, live * dones_t[k])
            live *= (1 - dones_t[k]) * (1.0 - truncated[k])
        sums.append(total)
        factors.append(factor * (1 - ended))
    return jnp.stack(sums), jnp.stack(factors)


def entropy_loss(mean, stddev):
    entropy = 0.5 + 0.5 * jnp.log(2 * jnp.pi) + jnp.log(stddev)
    return -jnp.sum(entropy, axis=-1) + 0 * jnp.sum(mean, axis=-1)


def tqc_target(r_t, discount_t, next_quantiles, next_log_prob):
    kept = jnp.sort(next_quantiles.ravel())[: 2 * 5 - 2 * 2]
    return r_t[0] + discount_t[0] * (kept - 0.2 * next_log_prob[0])


def tqc_loss(quantiles, target):
    return f.quantile_huber(quantiles[0], f.middles(5), target) / 5


def ornstein_uhlenbeck(key, noise):
    drift = 0.15 * (0.0 - noise) * 0.01
    return noise + drift + 0.2 * jnp.sqrt(0.01) * jax.random.normal(key, (D,))


ROWS = {
    "compute_returns_and_advantage": gae,
    "TimeLimit.truncated": time_limit,
    "normalize_advantage": lambda adv: f.standardized(adv, ddof=1),
    "clip_range": (f.clipped, "log_prob old_log_prob adv"),
    "clip_range_vf": lambda v, old_v, target: (
        (target - (old_v + jnp.clip(v - old_v, -0.2, 0.2))) ** 2
    ),
    "value_loss": lambda v, target: (target - v) ** 2,
    "ent_coef": entropy_loss,
    "approx_kl, clip_fraction": (f.statistics, "log_prob old_log_prob"),
    "explained_variance": lambda v, target: 1 - jnp.var(target - v) / jnp.var(target),
    "A2C: policy loss": lambda log_prob, adv: -adv * log_prob,
    "SAC: target": lambda r_t, discount_t, next_qs, next_log_prob: (
        r_t + discount_t * (jnp.min(next_qs, axis=0) - 0.2 * next_log_prob)
    ),
    "SAC: critic loss": lambda qs, target: jnp.sum(0.5 * (qs - target) ** 2, axis=0),
    "SAC: actor loss": lambda log_prob, qs: 0.2 * log_prob - jnp.min(qs, axis=0),
    "SAC: ent_coef_loss": lambda log_ent_coef, log_prob: (
        -(log_ent_coef * stop(log_prob - 3.0))
    ),
    "TD3: target action": (f.td3_action, "key next_action"),
    "TD3: target": lambda r_t, discount_t, next_qs: (
        r_t + discount_t * jnp.min(next_qs, axis=0)
    ),
    "NStepReplayBuffer": n_step,
    "DQN": lambda q, a, r_t, discount_t, next_q: f.huber(
        r_t + discount_t * jnp.max(next_q, axis=1) - f.pick(q, a)
    ),
    "polyak_update": lambda q, next_q: (1 - 0.005) * next_q + 0.005 * q,
    "TQC: target": tqc_target,
    "TQC: critic loss": tqc_loss,
    "TQC: actor loss": lambda log_prob, quantiles: (
        0.2 * log_prob[0] - jnp.mean(jnp.mean(quantiles, axis=1))
    ),
    "VecNormalize.normalize_obs": lambda observation: jnp.clip(
        f.normalized(observation), -10, 10
    ),
    "OrnsteinUhlenbeckActionNoise": ornstein_uhlenbeck,
}
