"""Losses of `recipes/multiagent.py` in plain `jax.numpy`."""

import jax
import jax.numpy as jnp
import numpy as np
from recipes import multiagent as recipes

from plain_losses.common import (
    Q_PARAMS,
    A,
    B,
    Batch,
    Case,
    F,
    Q,
    huber,
    integers,
    log_prob,
    normal,
    of,
    one_step,
    pick,
    seed,
    stop,
)

seed(__name__)


N, H = 3, 2
MASK = np.array([True, False, True, True])
TEAM = Batch(
    s_tm1=normal(B, N, F),
    s_t=normal(B, N, F).at[1].set(jnp.nan),
    a_tm1=integers(A, B, N),
    r_t=normal(B),
    discount_t=jnp.array([0.9, 0.9, 0.0, 0.9]),
    legal_t=jnp.arange(B * N * A).reshape(B, N, A) % 4 > 0,
    sample_mask=jnp.asarray(MASK),
)
VALID = jax.tree.map(lambda x: jax.device_put(np.asarray(x)[MASK]), TEAM)
ALIVE = jnp.arange(B * N).reshape(B, N) % 5 > 0
STEPS = TEAM._replace(
    old_log_prob=-1 + 0.3 * normal(B, N),
    old_v=jnp.mean(TEAM.s_tm1[..., 0], axis=1) + 0.3 * normal(B),
    sample_mask=ALIVE,
)
ADV, TARGET, RATIO = normal(B), 20 * normal(B), jnp.exp(0.1 * normal(B))


def values_and_mix(w, s):
    team = jnp.mean(s, axis=1) @ w["mix"]
    return (
        Q(w["q"], s),
        team[:, : N * H].reshape(-1, N, H),
        team[:, N * H : N * H + H],
        team[:, N * H + H : N * H + 2 * H],
        team[:, -1],
    )


MIX_PARAMS = tuple({"q": q, "mix": normal(F, N * H + 2 * H + 1)} for q in Q_PARAMS)


def logits_and_value(w, s):
    return Q(w["q"], s), jnp.mean(s, axis=1) @ w["mix"][:, 0]


def available(q):
    return jnp.where(VALID.legal_t, q, -9999999)


def plain_vdn(p, t):
    """oxwhirl/pymarl@c971afd, src/learners/q_learner.py: of valid transitions."""
    team = jnp.sum(pick(Q(p, VALID.s_tm1), VALID.a_tm1), axis=1)
    a_t = jnp.argmax(available(Q(p, VALID.s_t)), axis=-1)
    team_t = jnp.sum(pick(available(Q(t, VALID.s_t)), a_t), axis=1)
    return jnp.mean((team - stop(one_step(team_t, VALID))) ** 2)


def mixed(q, weights, bias, output, offset):
    hidden = jnp.einsum("bn,bnh->bh", q, jnp.abs(weights)) + bias
    hidden = jnp.where(hidden > 0, hidden, jnp.exp(hidden) - 1)
    return jnp.sum(jnp.abs(output) * hidden, axis=-1) + offset


def plain_qmix(p, t):
    """oxwhirl/pymarl@c971afd, src/learners/q_learner.py: of valid transitions.

    The mix is that of src/modules/mixers/qmix.py.
    """
    (q, *weights), (q_t, *weights_t) = (
        values_and_mix(p, VALID.s_tm1),
        values_and_mix(t, VALID.s_t),
    )
    a_t = jnp.argmax(available(values_and_mix(p, VALID.s_t)[0]), axis=-1)
    target = one_step(mixed(pick(available(q_t), a_t), *weights_t), VALID)
    return jnp.mean((mixed(pick(q, VALID.a_tm1), *weights) - stop(target)) ** 2)


def clip_loss(log_ratio, adv):
    ratio = jnp.exp(log_ratio)
    return -jnp.mean(jnp.minimum(ratio * adv, jnp.clip(ratio, 0.8, 1.2) * adv))


STANDARD = (ADV - jnp.mean(ADV)) / jnp.std(ADV)


def active_mean(x):
    return jnp.sum(x * ALIVE) / jnp.sum(ALIVE)


def plain_mappo(p, t):
    """marlbenchmark/on-policy@de66d7a: ppo_update, cal_value_loss and train.

    onpolicy/algorithms/r_mappo/r_mappo.py, with use_clipped_value_loss,
    use_huber_loss, use_value_active_masks and use_policy_active_masks.
    """
    logits, v = logits_and_value(p, STEPS.s_tm1)
    ratio = jnp.exp(log_prob(logits, STEPS.a_tm1) - STEPS.old_log_prob)
    adv = jnp.where(ALIVE, ADV[:, None], jnp.nan)
    adv = (ADV[:, None] - jnp.nanmean(adv)) / (jnp.nanstd(adv) + 1e-5)
    policy = jnp.minimum(ratio * adv, jnp.clip(ratio, 0.8, 1.2) * adv)
    near = STEPS.old_v + jnp.clip(v - STEPS.old_v, -0.2, 0.2)
    # A Huber loss of 10 is 100 times one of a tenth of the error.
    value = 100 * jnp.maximum(*(huber((TARGET - x) / 10) for x in (v, near)))
    log_pi = jax.nn.log_softmax(logits)
    entropy = -jnp.sum(jnp.exp(log_pi) * log_pi, axis=-1)
    policy = -active_mean(policy) - 0.01 * active_mean(entropy)
    return policy + active_mean(value[:, None])


def plain_happo(p, t):
    """PKU-MARL/HARL@d539bad, harl/algorithms/actors/happo.py: update."""
    log_pi = log_prob(Q(p, STEPS.s_tm1[:, 0]), STEPS.a_tm1[:, 0])
    return clip_loss(log_pi - STEPS.old_log_prob[:, 0], RATIO * STANDARD)


CASES = {
    "vdn": Case(of(recipes.vdn, Q, TEAM), plain_vdn, Q_PARAMS),
    "qmix": Case(of(recipes.qmix, values_and_mix, TEAM), plain_qmix, MIX_PARAMS),
    "mappo": Case(
        of(recipes.mappo, logits_and_value, STEPS, ADV, TARGET), plain_mappo, MIX_PARAMS
    ),
    "happo": Case(of(recipes.happo, Q, STEPS, ADV, RATIO, 0), plain_happo, Q_PARAMS),
}
