"""Dopamine, google/dopamine@5873f54, `dopamine/jax/agents/*/*_agent.py`."""

import formulas as f
import jax
import jax.numpy as jnp

from from_pages import flags, normal, uniform

A, M, N, T = 4, 11, 5, 6
stop = jax.lax.stop_gradient
INPUTS = {
    "q": normal(A),
    "a": jnp.int32(2),
    "r_t": jnp.float32(0.3),
    "discount_t": jnp.float32(0.9),
    "next_q": normal(A),
    "support": jnp.linspace(-2.0, 2.0, M),
    "logits": normal(A, M),
    "next_logits": normal(A, M),
    "selector": normal(A),
    "probs": jax.nn.softmax(normal(M)),
    "quantiles": normal(N, A),
    "next_quantiles": normal(N, A),
    "tau": uniform(N),
    "qs": normal(2),
    "next_qs": normal(2),
    "target": normal(),
    "log_prob": normal(),
    "next_log_prob": normal(),
    "log_alpha": jnp.float32(-0.4),
    "values": (values := normal(T + 1))[:-1],
    "next_values": values[1:],
    "rewards": normal(T),
    "discounts": 0.9 * (1 - flags(2, length=T)),
    "loss": uniform(3),
    "loss_weights": uniform(3),
    "cumulative_gamma": 0.99**3,
    "terminal": jnp.float32(0.0),
    "terminals": 1.0 * flags(1, 5, length=T),
}
TRAINED = {"q", "logits", "quantiles", "qs", "log_prob", "log_alpha", "loss"}


def bellman_error(q, a, r_t, discount_t, next_q):
    return r_t + discount_t * jnp.max(next_q) - q[a]


def accumulator(rewards, terminals):
    """Return the sums of 3 rewards, and the factors of the values after them."""
    sums, factors = [], []
    for t in range(T):
        total, ended = 0.0, 0.0
        for k in range(t, min(t + 3, T)):
            total += 0.99 ** (k - t) * (1 - ended) * rewards[k]
            ended = jnp.maximum(ended, terminals[k])
        sums.append(total)
        factors.append(0.99**3 * (1 - ended))
    return jnp.stack(sums), jnp.stack(factors)


ROWS = {
    "TransitionAccumulator": accumulator,
    "dqn: mse": lambda q, a, r_t, cumulative_gamma, terminal, next_q: (
        bellman_error(q, a, r_t, cumulative_gamma * (1.0 - terminal), next_q) ** 2
    ),
    "dqn: huber": lambda q, a, r_t, discount_t, next_q: f.huber(
        bellman_error(q, a, r_t, discount_t, next_q)
    ),
    "rainbow": (f.c51, "support logits a r_t discount_t next_logits"),
    "full_rainbow: double_dqn": (
        f.c51,
        "support logits a r_t discount_t next_logits selector",
    ),
    "project_distribution": lambda support, probs: f.project(0.3, 0.9, probs, support),
    "quantile": lambda logits, a, r_t, discount_t, next_logits: f.quantile_q(
        logits.T, f.middles(M), a, r_t, discount_t, next_logits.T, next_logits.T
    ),
    "implicit_quantile": lambda quantiles, tau, a, r_t, discount_t, next_quantiles: (
        f.quantile_q(
            quantiles, tau, a, r_t, discount_t, next_quantiles, next_quantiles, 0.5
        )
        / 0.5
    ),
    "sac: target": lambda r_t, discount_t, next_qs, next_log_prob: (
        r_t + discount_t * (jnp.minimum(*next_qs) - 0.2 * next_log_prob)
    ),
    "sac: critic": lambda qs, target: (
        0.5 * ((qs[0] - target) ** 2 + (qs[1] - target) ** 2)
    ),
    "sac: policy": lambda log_prob, qs: 0.2 * log_prob - jnp.minimum(*qs),
    "sac: alpha_loss": lambda log_alpha, log_prob: log_alpha * stop(-log_prob - (-3.0)),
    "calculate_advantages_and_returns": (f.gae, "values rewards discounts next_values"),
    "rainbow: loss_weights": lambda loss, loss_weights: (
        jnp.sum(loss_weights * loss) / 3
    ),
    "priorities of rainbow": lambda loss: jnp.sqrt(loss + 1e-10),
}
