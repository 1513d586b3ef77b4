"""mctx, google-deepmind/mctx@b53073f, `mctx/_src/{policies,qtransforms}.py`."""

import jax
import jax.numpy as jnp

from from_pages import normal, uniform

A = 6
INPUTS = {
    "logits": normal(A),
    "q": normal(A),
    "visits": jnp.array([3, 0, 5, 0, 1, 7]),
    "v": normal(),
    "available": jnp.array([1, 1, 1, 0, 1, 1], bool),
    "key": jax.random.key(0),
    "weights": jax.nn.softmax(uniform(A)),
}
TRAINED = set()


def completed(logits, q, visits, v):
    probs = jax.nn.softmax(logits)
    seen = visits > 0
    weighted_q = jnp.sum(jnp.where(seen, probs * q, 0.0))
    weighted_q /= jnp.sum(jnp.where(seen, probs, 0.0))
    mixed = (v + jnp.sum(visits) * weighted_q) / (jnp.sum(visits) + 1)
    return jnp.where(seen, q, mixed)


def action_weights(logits, q, visits, v):
    values = completed(logits, q, visits, v)
    values = (values - jnp.min(values)) / (jnp.max(values) - jnp.min(values))
    return jax.nn.softmax(logits + (50 + jnp.max(visits)) * 0.1 * values)


def masked_weights(logits, q, visits, v, available):
    logits = logits - jnp.max(logits)
    logits = jnp.where(available, logits, jnp.finfo(jnp.float32).min)
    return action_weights(logits, q, visits, v)


ROWS = {
    "PolicyOutput.action_weights of gumbel_muzero_policy": action_weights,
    "the same, with invalid_actions": masked_weights,
    "qtransform_completed_by_mix_value": lambda logits, q, visits, v: (
        (50 + jnp.max(visits)) * 0.1 * completed(logits, q, visits, v)
    ),
    "muzero_policy: root noise": lambda key, logits: (
        0.75 * jax.nn.softmax(logits)
        + 0.25 * jax.random.dirichlet(key, jnp.full(A, 0.3))
    ),
    "muzero_policy: action_weights": lambda visits: visits / jnp.sum(visits),
    "policy loss": lambda weights, logits: (
        -jnp.sum(weights * jax.nn.log_softmax(logits))
    ),
}
