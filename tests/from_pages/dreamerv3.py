"""DreamerV3, danijar/dreamerv3@e3f0224.

`dreamerv3/{agent,rssm}.py`, `embodied/jax/{outs,heads,nets,utils}.py`.
"""

import formulas as f
import jax
import jax.numpy as jnp

from from_pages import flags, normal, uniform

T, M = 6, 41
BINS = f.symexp(jnp.linspace(-20, 20, M))
stop = jax.lax.stop_gradient
INPUTS = {
    "rew": normal(T + 1),
    "term": flags(4, length=T + 1).astype(jnp.float32),
    "last": flags(2, 4, length=T + 1),
    "boot": normal(T + 1),
    "con": uniform(T),
    "returns": normal(T + 1, scale=3.0),
    "spread": jnp.float32(1.7),
    "log_prob": normal(T + 1),
    "entropy": uniform(T + 1),
    "v": normal(T + 1),
    "slow_v": normal(T + 1),
    "scale": jnp.float32(1.3),
    "logits": normal(T + 1, M),
    "old_logits": normal(T + 1, M),
    "key": jax.random.key(0),
    "posterior": normal(4, 5),
    "prior": normal(4, 5),
    "x": normal(T),
    "target": normal(T, scale=5.0),
}
TRAINED = {"log_prob", "entropy", "logits", "posterior", "prior", "x"}


def retnorm(returns, spread):
    low, high = jnp.percentile(returns, 5.0), jnp.percentile(returns, 95.0)
    return jnp.maximum(1.0, 0.99 * spread + 0.01 * (high - low))


def straight_through(key, logits):
    index = jax.random.categorical(key, logits)
    probs = jax.nn.softmax(logits)
    return jax.nn.one_hot(index, M) + probs - stop(probs)


def balance(posterior, prior):
    def kl(x, y):
        x, y = jax.nn.log_softmax(x), jax.nn.log_softmax(y)
        return jnp.maximum(jnp.sum(jnp.exp(x) * (x - y)), 1.0)

    return kl(stop(posterior), prior), kl(posterior, stop(prior))


ROWS = {
    "lambda_return": lambda rew, term, boot, last: f.dreamer_return(
        rew, term, boot, last, 0.99
    ),
    "imag_loss: weight": lambda con: jnp.cumprod(0.99 * con) / 0.99,
    "retnorm": retnorm,
    "imag_loss: policy": lambda log_prob, returns, v, scale, entropy: (
        -(log_prob * (returns - v) / scale + 3e-4 * entropy)
    ),
    "imag_loss: value": lambda logits, returns, slow_v: (
        f.two_hot_loss(logits, returns, BINS) + f.two_hot_loss(logits, slow_v, BINS)
    ),
    "repl_loss": lambda logits, returns, last: (
        ~last * f.two_hot_loss(logits, returns, BINS)
    ),
    "TwoHot.pred": lambda logits: jnp.sum(jax.nn.softmax(logits) * BINS, axis=-1),
    "Categorical(logits, unimix)": lambda logits: jnp.log(f.unimix(logits)),
    "OneHot.sample": straight_through,
    "dyn, rep": balance,
    "symlog, symexp": lambda x: (f.symlog(x), f.symexp(x)),
    "MSE(symlog)": lambda x, target: (x - f.symlog(target)) ** 2,
    "con head": lambda x, con: (
        -con * jax.nn.log_sigmoid(x) - (1 - con) * jax.nn.log_sigmoid(-x)
    ),
    "SlowModel": lambda logits, old_logits: 0.02 * logits + 0.98 * old_logits,
}
