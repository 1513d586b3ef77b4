"""Dopamine, google/dopamine@5873f54, `dopamine/jax/agents/*/*_agent.py`."""

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


def huber(q, a, r_t, discount_t, next_q):
    x = jnp.abs(bellman_error(q, a, r_t, discount_t, next_q))
    return jnp.where(x <= 1, 0.5 * x**2, 0.5 + (x - 1))


def project(supports, weights, target_support):
    width = target_support[1] - target_support[0]
    clipped = jnp.clip(supports, target_support[0], target_support[-1])
    quotient = 1 - jnp.abs(clipped - target_support[:, None]) / width
    return jnp.sum(jnp.clip(quotient, 0, 1) * weights, axis=-1)


def rainbow(support, logits, a, r_t, discount_t, next_logits, best=None):
    probs = jax.nn.softmax(next_logits)
    best = jnp.argmax(probs @ support) if best is None else best
    target = project(r_t + discount_t * support, probs[best], support)
    return -jnp.sum(target * jax.nn.log_softmax(logits[a]))


def double(support, logits, a, r_t, discount_t, next_logits, selector):
    best = jnp.argmax(selector)
    return rainbow(support, logits, a, r_t, discount_t, next_logits, best)


def quantile_loss(quantiles, target, tau, kappa):
    error = target[None, :] - quantiles[:, None]
    size = jnp.abs(error)
    loss = jnp.where(size <= kappa, 0.5 * error**2, kappa * (size - 0.5 * kappa))
    loss *= jnp.abs(tau[:, None] - (error < 0))
    return jnp.sum(jnp.mean(loss, axis=1))


def target_quantiles(r_t, discount_t, next_quantiles):
    best = jnp.argmax(jnp.mean(next_quantiles, axis=0))
    return r_t + discount_t * next_quantiles[:, best]


def qr_dqn(logits, a, r_t, discount_t, next_logits):
    target = target_quantiles(r_t, discount_t, next_logits.T)
    return quantile_loss(logits[a], target, (jnp.arange(M) + 0.5) / M, 1.0)


def iqn(quantiles, tau, a, r_t, discount_t, next_quantiles):
    target = target_quantiles(r_t, discount_t, next_quantiles)
    return quantile_loss(quantiles[:, a], target, tau, 0.5) / 0.5


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


def gae(values, rewards, discounts, next_values):
    total, found = 0.0, []
    for t in reversed(range(T)):
        delta = rewards[t] + discounts[t] * next_values[t] - values[t]
        total = delta + 0.95 * discounts[t] * total
        found = [total, *found]
    return jnp.stack(found)


ROWS = {
    "TransitionAccumulator": accumulator,
    "dqn: mse": lambda q, a, r_t, cumulative_gamma, terminal, next_q: (
        bellman_error(q, a, r_t, cumulative_gamma * (1.0 - terminal), next_q) ** 2
    ),
    "dqn: huber": huber,
    "rainbow": rainbow,
    "full_rainbow: double_dqn": double,
    "project_distribution": lambda support, probs: project(
        support * 0.9 + 0.3, probs, support
    ),
    "quantile": qr_dqn,
    "implicit_quantile": iqn,
    "sac: target": lambda r_t, discount_t, next_qs, next_log_prob: (
        r_t + discount_t * (jnp.minimum(*next_qs) - 0.2 * next_log_prob)
    ),
    "sac: critic": lambda qs, target: (
        0.5 * ((qs[0] - target) ** 2 + (qs[1] - target) ** 2)
    ),
    "sac: policy": lambda log_prob, qs: 0.2 * log_prob - jnp.minimum(*qs),
    "sac: alpha_loss": lambda log_alpha, log_prob: log_alpha * stop(-log_prob - (-3.0)),
    "calculate_advantages_and_returns": gae,
    "rainbow: loss_weights": lambda loss, loss_weights: (
        jnp.sum(loss_weights * loss) / 3
    ),
    "priorities of rainbow": lambda loss: jnp.sqrt(loss + 1e-10),
}
