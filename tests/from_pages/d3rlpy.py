"""d3rlpy, takuseno/d3rlpy@38c34b6, `d3rlpy/algos/qlearning/torch/*_impl.py`."""

import jax
import jax.numpy as jnp

from from_pages import integers, normal

B, A, D, N = 6, 4, 3, 5
stop = jax.lax.stop_gradient
INPUTS = {
    "log_prob": normal(B),
    "adv": normal(B),
    "action": normal(B, D),
    "data_action": normal(B, D),
    "q": normal(B),
    "q_samples": normal(B, N),
    "logits": normal(B, A, scale=2.0),
    "a": integers(A, B),
    "v": normal(B),
}
TRAINED = {"log_prob", "logits", "v", "action"}


def mmd(action, data_action, kernel):
    def mean(x, y):
        difference = x[:, None] - y[None]
        size = difference**2 if kernel == "gaussian" else jnp.abs(difference)
        return jnp.mean(jnp.exp(-jnp.sum(size, axis=-1) / (2 * 0.7)))

    squared = mean(action, action) + mean(data_action, data_action)
    return jnp.sqrt(squared - 2 * mean(action, data_action) + 1e-6)


def allowed(logits):
    log_probs = jax.nn.log_softmax(logits)
    return log_probs - jnp.max(log_probs, axis=1, keepdims=True) > jnp.log(0.3)


def discrete_cql(logits, a):
    chosen = jnp.take_along_axis(logits, a[:, None], axis=1)[:, 0]
    return jax.nn.logsumexp(logits, axis=1) - chosen


def iql_value(v, q):
    difference = q - v
    return jnp.abs(0.7 - (difference < 0)) * difference**2


def rebrac(q, action, data_action):
    scale = 1 / stop(jnp.mean(jnp.abs(q)))
    return -scale * q + 0.1 * jnp.sum((data_action - action) ** 2, axis=1)


def td3_bc(q, action, data_action):
    scale = 2.5 / stop(jnp.mean(jnp.abs(q)))
    return -scale * jnp.mean(q) + jnp.mean((data_action - action) ** 2)


ROWS = {
    "BC, DiscreteBC": lambda log_prob: -log_prob,
    "AWAC": lambda log_prob, adv: -log_prob * B * jax.nn.softmax(adv / 0.5),
    "BEAR: gaussian": lambda action, data_action: mmd(action, data_action, "gaussian"),
    "BEAR: laplacian": lambda action, data_action: mmd(
        action, data_action, "laplacian"
    ),
    "CRR: binary": lambda q, q_samples: q > jnp.mean(q_samples, axis=1),
    "CRR: exp": lambda q, q_samples: jnp.clip(
        jnp.exp((q - jnp.max(q_samples, axis=1)) / 0.5), 0, 20
    ),
    "DiscreteBCQ": allowed,
    "DiscreteCQL": discrete_cql,
    "IQL: value": iql_value,
    "IQL: actor": lambda log_prob, adv: (
        -jnp.minimum(jnp.exp(3.0 * adv), 100.0) * log_prob
    ),
    "ReBRAC: actor": rebrac,
    "TD3PlusBC: actor": td3_bc,
}
