"""TD-MPC2, nicklashansen/tdmpc2@e9f5932.

`tdmpc2.py`, `common/{math,scale,layers}.py`.
"""

import formulas as f
import jax
import jax.numpy as jnp

import rlaxlib
from from_pages import normal, uniform

N, T, D, BINS = 20, 3, 2, 101
SUPPORT = jnp.linspace(-10, 10, BINS)
INPUTS = {
    "old_plan": rlaxlib.PlanState(normal(T, D), uniform(T, D, low=0.5)),
    "actions": normal(N, T, D),
    "returns": normal(N, scale=3.0),
    "r_t": normal(T),
    "discount_t": jnp.array([0.9, 0.9, 0.9]),
    "v_t": normal(T),
    "qs_t": normal(2, T),
    "q": normal(T, N, scale=2.0),
    "scale": jnp.float32(1.3),
    "tau": 0.01,
    "rho": 0.5 ** jnp.arange(T),
    "entropy_coef": 1e-4,
    "entropy": normal(T, N),
    "logits": normal(BINS),
    "value": jnp.float32(-37.3),
    "pre_tanh": normal(D, scale=0.5),
    "mean": normal(D, scale=0.5),
    "stddev": uniform(D, low=0.3),
    "latent": normal(24),
}
TRAINED = {"q", "entropy", "logits", "mean", "latent"}


def plan(old_plan, actions, returns):
    del old_plan  # Without momentum, the old plan has no weight.
    elites = jnp.argsort(-returns)[:8]
    value, chosen = returns[elites], actions[elites]
    score = jnp.exp(0.5 * (value - jnp.max(value)))
    score = (score / jnp.sum(score))[:, None, None]
    mean = jnp.sum(score * chosen, axis=0)
    stddev = jnp.sqrt(jnp.sum(score * (chosen - mean) ** 2, axis=0))
    return mean, jnp.clip(stddev, 0.05, 2.0)


def estimate_value(r_t, discount_t, v_t):
    total, discount = 0.0, 1.0
    for t in range(T):
        total += discount * r_t[t]
        discount *= discount_t[t]
    return total + discount * v_t[-1]


def running_scale(q, scale, tau):
    low, high = jnp.quantile(q[0], jnp.array([0.05, 0.95]))
    return scale + tau * (jnp.maximum(high - low, 1.0) - scale)


ROWS = {
    "TDMPC2._plan": plan,
    "TDMPC2._prev_mean": lambda old_plan: (
        jnp.concatenate([old_plan.mean[1:], jnp.zeros((1, D))]),
        jnp.full((T, D), 2.0),
    ),
    "TDMPC2._estimate_value": estimate_value,
    "TDMPC2._td_target": lambda r_t, discount_t, qs_t: (
        r_t + discount_t * jnp.minimum(qs_t[0], qs_t[1])
    ),
    "RunningScale": running_scale,
    "TDMPC2.update_pi": lambda rho, q, scale, entropy_coef, entropy: jnp.mean(
        -jnp.mean(entropy_coef * entropy + q / scale, axis=1) * rho
    ),
    "soft_ce": lambda logits, value: f.two_hot_loss(logits, f.symlog(value), SUPPORT),
    "two_hot": lambda value: f.two_hot(f.symlog(value), SUPPORT),
    "two_hot_inv": lambda logits: f.symexp(jnp.sum(jax.nn.softmax(logits) * SUPPORT)),
    "symlog, symexp": lambda value: (f.symlog(value), f.symexp(value)),
    "squash": lambda pre_tanh, mean, stddev: (
        f.log_normal(pre_tanh, mean, stddev)
        - jnp.sum(jnp.log(1 - jnp.tanh(pre_tanh) ** 2))
    ),
    "SimNorm": lambda latent: jax.nn.softmax(latent.reshape(3, 8), axis=-1).ravel(),
}
