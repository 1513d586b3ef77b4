"""DQN Zoo, google-deepmind/dqn_zoo@45061f4.

`dqn_zoo/*/agent.py`, `dqn_zoo/replay.py`.
"""

import formulas as f
import jax
import jax.numpy as jnp

from from_pages import flags, normal, uniform

A, M, N, T = 4, 11, 5, 7
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


def learning(*arguments):
    """Return half the square of the error, with a gradient within [-0.5, 0.5]."""
    return f.clipped_q(*arguments, bound=0.5)


def weights(probabilities):
    found = ((1 / 5) / probabilities) ** 0.4
    return found / jnp.max(found)


ROWS = {
    "dqn": (learning, "q a r_t discount_t next_q next_q"),
    "double_q, prioritized": (learning, "q a r_t discount_t next_q selector"),
    "c51": (f.c51, "support logits a r_t discount_t next_logits"),
    "rainbow": (f.c51, "support logits a r_t discount_t next_logits selector"),
    "qrdqn": lambda quantiles, a, r_t, discount_t, next_quantiles: f.quantile_q(
        quantiles, f.middles(N), a, r_t, discount_t, next_quantiles, next_quantiles
    ),
    "iqn": (
        f.quantile_q,
        "quantiles tau a r_t discount_t policy_quantiles next_quantiles",
    ),
    "EpsilonGreedyActor": lambda q: 0.9 * jax.nn.one_hot(jnp.argmax(q), A) + 0.1 / A,
    "NStepTransitionAccumulator": (f.n_step, "rewards discounts"),
    "importance_sampling_weights": weights,
    "PrioritizedTransitionReplay": lambda priorities: (
        0.9 * priorities**0.6 / jnp.sum(priorities**0.6) + 0.1 / 5
    ),
}
