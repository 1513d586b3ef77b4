"""Losses of `recipes/dreamer.py` in plain `jax.numpy`."""

from types import SimpleNamespace

import formulas as f
import jax
import jax.numpy as jnp
import numpy as np
from recipes import dreamer as recipes

from plain_losses.common import (
    IMAGINED,
    KEY,
    Q_PARAMS,
    SEQUENCE,
    A,
    B,
    Batch,
    F,
    M,
    Q,
    T,
    cases,
    given,
    normal,
    seed,
    stop,
)

seed(__name__)


GROUPS, CLASSES = 2, 3
LATENT = GROUPS * CLASSES


def groups(x):
    return x.reshape(*x.shape[:-1], GROUPS, CLASSES)


def dynamics(w, state, z, a):
    action = jax.nn.one_hot(a, A) @ w["action"]
    state = jnp.tanh(state @ w["state"] + z.reshape(-1) @ w["z"] + action)
    return state, groups(state @ w["prior"])


def decoder(w, state, z):
    x = jnp.concatenate([state, z.reshape(*z.shape[:-2], LATENT)], axis=-1)
    x = x @ w["decoder"]
    return x[..., :F], x[..., F : F + M], x[..., F + M]


MODEL = SimpleNamespace(
    start=lambda w: (w["start"], jnp.zeros((GROUPS, CLASSES))),
    dynamics=dynamics,
    encoder=lambda w, state, s: groups(state @ w["prior"] + s @ w["encoder"]),
    decoder=decoder,
)
MODEL_PARAMS = {
    "state": 0.5 * normal(F, F),
    "z": 0.5 * normal(LATENT, F),
    "action": 0.5 * normal(A, F),
    "start": normal(F),
    "prior": normal(F, LATENT),
    "encoder": 2 * normal(F, LATENT),
    "decoder": 0.1 * normal(F + LATENT, F + M + 1),
}


def kl(x, y):
    return jnp.sum(x * (jnp.log(x) - jnp.log(y)), axis=(-2, -1))


SPACED = np.linspace(-20, 20, M)
BINS = f.symexp(SPACED)
SHORT = Batch(
    s=SEQUENCE.s[:2],
    truncated_t=None,
    sample_mask=np.array([[1, 1, 0, 1, 1], [1, 1, 1, 0, 0]], bool),
    **{name: getattr(SEQUENCE, name)[:2] for name in ("a_tm1", "r_t", "discount_t")},
)


def observe(p, i, key):
    """Yield features of the observations of a stream, as dreamerv3/rssm.py: observe."""
    b = SHORT
    for k, each in enumerate(jax.random.split(key, T + 1)):
        reset = k == 0 or not b.sample_mask[i, k - 1]
        if reset and (k == T or not b.sample_mask[i, k]):
            continue  # No step leads to it or from it.
        deter, stoch = MODEL.start(p) if reset else (deter, stoch)
        action = -1 if reset else b.a_tm1[i, k - 1]
        deter, prior = dynamics(p, deter, stoch, action)
        post = f.unimix(MODEL.encoder(p, deter, b.s[i, k]))
        sample = jax.nn.one_hot(jax.random.categorical(each, jnp.log(post)), CLASSES)
        stoch = sample + post - stop(post)
        yield k, reset, (deter, stoch), post, f.unimix(prior)


def plain_dreamer_model(p, t):
    """danijar/dreamerv3@e3f0224, dreamerv3/agent.py: loss, dreamerv3/rssm.py: loss.

    Without the heads of rewards and ends on first observations. An episode begins anew
    after an ignored step.
    """
    scales = {"rec": 1.0, "rew": 1.0, "con": 1.0, "dyn": 1.0, "rep": 0.1}
    losses, b = {name: [] for name in scales}, SHORT
    for i, key in enumerate(jax.random.split(KEY, 2)):
        for k, reset, feat, post, prior in observe(p, i, key):
            losses["dyn"].append(jnp.maximum(kl(stop(post), prior), 1.0))
            losses["rep"].append(jnp.maximum(kl(post, stop(prior)), 1.0))
            recon, rew, con = decoder(p, *feat)
            target = f.symlog(b.s[i, k])
            losses["rec"].append(jnp.sum((recon - target) ** 2))
            if not reset:
                reward, goes_on = b.r_t[i, k - 1], b.discount_t[i, k - 1]
                losses["rew"].append(f.two_hot_loss(rew, reward, BINS))
                log_prob = goes_on * jax.nn.log_sigmoid(con)
                log_prob += (1 - goes_on) * jax.nn.log_sigmoid(-con)
                losses["con"].append(-log_prob)
    return sum(scales[name] * jnp.mean(jnp.stack(x)) for name, x in losses.items())


def lambda_return(last, term, rew, boot, disc):
    """Return the returns of observations, [B, T]."""
    return jax.vmap(f.dreamer_return, (0, 0, 0, 0, None))(rew, term, boot, last, disc)


def of_imagined(values):
    """Return returns and weights, as dreamerv3/agent.py: imag_loss, contdisc=True."""
    b = IMAGINED
    con = jnp.concatenate([b.first_discount[:, None], b.discount_t], axis=1)
    rew = jnp.pad(b.r_t, ((0, 0), (1, 0)))
    zeros = jnp.zeros_like(con)
    returns = lambda_return(zeros, 1 - con, rew, values, 1)
    return returns, jnp.cumprod(con, axis=1)[:, :-1]


def plain_dreamer_actor(p, t):
    """danijar/dreamerv3@e3f0224, dreamerv3/agent.py: imag_loss."""
    b, logits = IMAGINED, Q(p, IMAGINED.s)[:, :-1]
    returns, weights = of_imagined(b.values)
    adv = (returns - b.values[:, :-1]) / 2.0
    log_pi, entropy = f.log_prob_and_entropy(logits, b.a_tm1)
    return jnp.mean(weights * -(log_pi * adv + 3e-4 * entropy))


def critic_logits(w, s):
    return (s @ w).reshape(*s.shape[:-1], M)


def value_losses(p, t, s, returns):
    logits, slow = critic_logits(p, s)[:, :-1], critic_logits(t, s)[:, :-1]
    slow = jax.nn.softmax(slow) @ BINS
    return sum(f.two_hot_loss(logits, x, BINS) for x in (returns, slow))


def plain_dreamer_critic(p, t):
    """danijar/dreamerv3@e3f0224, dreamerv3/agent.py: imag_loss."""
    values = stop(jax.nn.softmax(critic_logits(p, IMAGINED.s)) @ BINS)
    returns, weights = of_imagined(values)
    return jnp.mean(weights * value_losses(p, t, IMAGINED.s, returns))


# The second stream ends after three steps, the first is cut after two.
TERM = np.zeros((B, T + 1), bool)
LAST = np.zeros((B, T + 1), bool)
TERM[1, 3] = LAST[1, 3] = LAST[0, 2] = True
REPLAYED = SEQUENCE._replace(
    returns=normal(B, T + 1),
    discount_t=np.asarray(0.9 * ~TERM[:, 1:], np.float32),
    truncated_t=(LAST & ~TERM)[:, 1:],
    sample_mask=~LAST[:, :-1],
)


def plain_dreamer_replay_critic(p, t):
    """danijar/dreamerv3@e3f0224, dreamerv3/agent.py: repl_loss."""
    b = REPLAYED
    rew = jnp.pad(b.r_t, ((0, 0), (1, 0)))
    returns = lambda_return(LAST, TERM, rew, b.returns, 0.9)
    return jnp.mean(~LAST[:, :-1] * value_losses(p, t, b.s, returns))


CRITIC_PARAMS = 0.1 * normal(F, M), 0.1 * normal(F, M)
CASES = cases(
    recipes,
    globals(),
    {
        "dreamer_model": given((MODEL_PARAMS, None), MODEL, SHORT, KEY),
        "dreamer_actor": given(Q_PARAMS, Q, IMAGINED, 2.0),
        "dreamer_critic": given(CRITIC_PARAMS, critic_logits, IMAGINED),
        "dreamer_replay_critic": given(CRITIC_PARAMS, critic_logits, REPLAYED),
    },
)
