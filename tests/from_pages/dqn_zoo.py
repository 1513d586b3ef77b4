"""DQN Zoo, google-deepmind/dqn_zoo@45061f4.

`dqn_zoo/*/agent.py`, `dqn_zoo/replay.py`.
"""

import jax
import jax.numpy as jnp

from from_pages import flags, normal, uniform
from from_pages.dopamine import double, quantile_loss, rainbow, target_quantiles

A, M, N, T = 4, 11, 5, 7
stop = jax.lax.stop_gradient
INPUTS = {
    "q": normal(A),
    "a": jnp.int32(2),
    "r_t": jnp.float32(0.3),
    "discount_t": jnp.float32(0.9),
    "next_q": normal(A),
    "selector": normal(A),
    "support": jnp.linspace(-2.0, 2.0, M),
    "logits": normal(A, M),
    "next_logits": normal(A, M),
    "quantiles": normal(N, A),
    "policy_quantiles": normal(N, A),
    "next_quantiles": normal(N, A),
    "tau": uniform(N),
    "rewards": normal(T),
    "discounts": 0.9 * (1 - flags(3, length=T)),
    "probabilities": uniform(5, low=0.01),
    "priorities": uniform(5),
}
TRAINED = {"q", "logits", "quantiles"}


def clipped(error):
    """Return half the square, with a gradient within [-0.5, 0.5]."""
    gradient = stop(jnp.clip(error, -0.5, 0.5)) * (error - stop(error))
    return stop(0.5 * error**2) + gradient


def double_q(q, a, r_t, discount_t, next_q, selector):
    return clipped(r_t + discount_t * next_q[jnp.argmax(selector)] - q[a])


def qr_dqn(quantiles, a, r_t, discount_t, next_quantiles):
    target = target_quantiles(r_t, discount_t, next_quantiles)
    return quantile_loss(quantiles[:, a], target, (jnp.arange(N) + 0.5) / N, 1.0)


def iqn(quantiles, tau, a, r_t, discount_t, policy_quantiles, next_quantiles):
    best = jnp.argmax(jnp.mean(policy_quantiles, axis=0))
    target = r_t + discount_t * next_quantiles[:, best]
    return quantile_loss(quantiles[:, a], target, tau, 1.0)


def n_step(rewards, discounts):
    sums, products = [], []
    for t in range(T):
        total, product = 0.0, 1.0
        for k in range(t, min(t + 3, T)):
            total, product = total + product * rewards[k], product * discounts[k]
        sums, products = [*sums, total], [*products, product]
    return jnp.stack(sums), jnp.stack(products)


def weights(probabilities):
    found = ((1 / 5) / probabilities) ** 0.4
    return found / jnp.max(found)


ROWS = {
    "dqn": lambda q, a, r_t, discount_t, next_q: clipped(
        r_t + discount_t * jnp.max(next_q) - q[a]
    ),
    "double_q, prioritized": double_q,
    "c51": rainbow,
    "rainbow": double,
    "qrdqn": qr_dqn,
    "iqn": iqn,
    "EpsilonGreedyActor": lambda q: 0.9 * jax.nn.one_hot(jnp.argmax(q), A) + 0.1 / A,
    "NStepTransitionAccumulator": n_step,
    "importance_sampling_weights": weights,
    "PrioritizedTransitionReplay": lambda priorities: (
        0.9 * priorities**0.6 / jnp.sum(priorities**0.6) + 0.1 / 5
    ),
}
