"""DreamerV3, danijar/dreamerv3@e3f0224.

`dreamerv3/{agent,rssm}.py`, `embodied/jax/{outs,heads,nets,utils}.py`.
"""

import jax
import jax.numpy as jnp

from from_pages import flags, normal, uniform

T, BINS = 6, 41
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
    "logits": normal(T + 1, BINS),
    "old_logits": normal(T + 1, BINS),
    "key": jax.random.key(0),
    "posterior": normal(4, 5),
    "prior": normal(4, 5),
    "x": normal(T),
    "target": normal(T, scale=5.0),
}
TRAINED = {"log_prob", "entropy", "logits", "posterior", "prior", "x"}


def lambda_return(rew, term, boot, last):
    total, found = boot[-1], []
    for t in reversed(range(1, T + 1)):
        live, cont = (1 - term[t]) * 0.99, (1 - last[t]) * 0.95
        total = rew[t] + (1 - cont) * live * boot[t] + live * cont * total
        found = [total, *found]
    return jnp.stack(found)


def retnorm(returns, spread):
    low, high = jnp.percentile(returns, 5.0), jnp.percentile(returns, 95.0)
    return jnp.maximum(1.0, 0.99 * spread + 0.01 * (high - low))


def symlog(x):
    return jnp.sign(x) * jnp.log1p(jnp.abs(x))


def symexp(x):
    return jnp.sign(x) * jnp.expm1(jnp.abs(x))


def bins():
    half = symexp(jnp.linspace(-20, 0, (BINS - 1) // 2 + 1))
    return jnp.concatenate([half, -half[:-1][::-1]])


def two_hot_loss(logits, target):
    below = jnp.sum(bins() <= target[:, None], axis=-1) - 1
    low, high = bins()[below], bins()[below + 1]
    weight = ((target - low) / (high - low))[:, None]
    hot = jax.nn.one_hot(below, BINS) * (1 - weight)
    hot += jax.nn.one_hot(below + 1, BINS) * weight
    return -jnp.sum(hot * jax.nn.log_softmax(logits), axis=-1)


def unimix(logits):
    return jnp.log(0.99 * jax.nn.softmax(logits) + 0.01 / BINS)


def straight_through(key, logits):
    index = jax.random.categorical(key, logits)
    probs = jax.nn.softmax(logits)
    return jax.nn.one_hot(index, BINS) + probs - stop(probs)


def balance(posterior, prior):
    def kl(x, y):
        x, y = jax.nn.log_softmax(x), jax.nn.log_softmax(y)
        return jnp.maximum(jnp.sum(jnp.exp(x) * (x - y)), 1.0)

    return kl(stop(posterior), prior), kl(posterior, stop(prior))


ROWS = {
    "lambda_return": lambda_return,
    "imag_loss: weight": lambda con: jnp.cumprod(0.99 * con) / 0.99,
    "retnorm": retnorm,
    "imag_loss: policy": lambda log_prob, returns, v, scale, entropy: (
        -(log_prob * (returns - v) / scale + 3e-4 * entropy)
    ),
    "imag_loss: value": lambda logits, returns, slow_v: (
        two_hot_loss(logits, returns) + two_hot_loss(logits, slow_v)
    ),
    "repl_loss": lambda logits, returns, last: ~last * two_hot_loss(logits, returns),
    "TwoHot.pred": lambda logits: jnp.sum(jax.nn.softmax(logits) * bins(), axis=-1),
    "Categorical(logits, unimix)": unimix,
    "OneHot.sample": straight_through,
    "dyn, rep": balance,
    "symlog, symexp": lambda x: (symlog(x), symexp(x)),
    "MSE(symlog)": lambda x, target: (x - symlog(target)) ** 2,
    "con head": lambda x, con: (
        -con * jax.nn.log_sigmoid(x) - (1 - con) * jax.nn.log_sigmoid(-x)
    ),
    "SlowModel": lambda logits, old_logits: 0.02 * logits + 0.98 * old_logits,
}
