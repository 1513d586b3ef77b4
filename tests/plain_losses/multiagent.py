"""Losses of `recipes/multiagent.py` as their authors' code has them.

Files at each loss. The episodes of PyMARL have the shapes that its buffer gives them.
"""

from types import SimpleNamespace

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
    T,
    integers,
    log_prob,
    normal,
    of,
    pick,
    seed,
    stop,
)

seed(__name__)


N, H = 3, 2  # Agents, and hidden units of the mix.
EPISODES, GAMMA = 2, 0.9

# --- QMIX and VDN: oxwhirl/pymarl. ---

# The first episode is cut by a time limit, the second ends, and is padded.
TERMINATED, FILLED = np.zeros((EPISODES, T)), np.ones((EPISODES, T))
TERMINATED[1, 2], FILLED[1, 3:] = 1.0, 0.0
OBS = np.asarray(normal(EPISODES, T + 1, N, F)).copy()
OBS[1, 4:] = 0.0
BATCH = SimpleNamespace(
    obs=jnp.asarray(OBS),
    actions=integers(A, EPISODES, T, N),
    reward=normal(EPISODES, T),
    terminated=TERMINATED,
    filled=FILLED,
    avail_actions=np.arange(EPISODES * (T + 1) * N * A).reshape(EPISODES, T + 1, N, A)
    % 4
    > 0,
)


def flat(x):
    return jnp.asarray(x).reshape(EPISODES * T, *np.shape(x)[2:])


TEAM = Batch(
    s_tm1=flat(np.where(FILLED[..., None, None] > 0, OBS[:, :-1], np.nan)),
    s_t=flat(np.where(FILLED[..., None, None] > 0, OBS[:, 1:], np.nan)),
    a_tm1=flat(BATCH.actions),
    r_t=flat(BATCH.reward),
    discount_t=flat(np.float32(GAMMA * (1 - TERMINATED))),
    legal_t=flat(BATCH.avail_actions[:, 1:]),
    sample_mask=flat(FILLED > 0),
)


def values_and_mix(w, s):
    team = jnp.mean(s, axis=-2) @ w["mix"]
    *shape, _ = team.shape
    return (
        Q(w["q"], s),
        team[..., : N * H].reshape(*shape, N, H),
        team[..., N * H : N * H + H],
        team[..., N * H + H : N * H + 2 * H],
        team[..., -1],
    )


MIX_PARAMS = tuple({"q": q, "mix": normal(F, N * H + 2 * H + 1)} for q in Q_PARAMS)


def vdn_mixer(w, agent_qs, obs):
    return jnp.sum(agent_qs, axis=2)


def qmixer(w, agent_qs, obs):
    """Return q_tot, [episodes, time], as src/modules/mixers/qmix.py: forward."""
    _, w1, b1, w_final, v = values_and_mix(w, obs)
    w1, w_final = jnp.abs(w1), jnp.abs(w_final)
    hidden = jax.nn.elu((agent_qs[..., None, :] @ w1)[..., 0, :] + b1)
    return (hidden[..., None, :] @ w_final[..., None])[..., 0, 0] + v


def train(p, t, agent, mixer):
    """Return the loss of the learner with double_q."""
    b = BATCH
    mask = b.filled.copy()
    mask[:, 1:] = mask[:, 1:] * (1 - b.terminated[:, :-1])
    mac_out, target_mac_out = agent(p, b.obs), agent(t, b.obs)[:, 1:]
    chosen_action_qvals = pick(mac_out[:, :-1], b.actions)
    target_mac_out = jnp.where(b.avail_actions[:, 1:], target_mac_out, -9999999)
    mac_out_detach = jnp.where(b.avail_actions, stop(mac_out), -9999999)
    cur_max_actions = jnp.argmax(mac_out_detach[:, 1:], axis=3)
    target_max_qvals = pick(target_mac_out, cur_max_actions)
    chosen_action_qvals = mixer(p, chosen_action_qvals, b.obs[:, :-1])
    target_max_qvals = mixer(t, target_max_qvals, b.obs[:, 1:])
    targets = b.reward + GAMMA * (1 - b.terminated) * target_max_qvals
    masked_td_error = (chosen_action_qvals - stop(targets)) * mask
    return jnp.sum(masked_td_error**2) / np.sum(mask)


def plain_vdn(p, t):
    """oxwhirl/pymarl@c971afd, src/learners/q_learner.py: train."""
    return train(p, t, Q, vdn_mixer)


def plain_qmix(p, t):
    """oxwhirl/pymarl@c971afd, src/learners/q_learner.py: train."""
    return train(p, t, lambda w, s: values_and_mix(w, s)[0], qmixer)


# --- MAPPO and HAPPO. ---

ALIVE = np.arange(B * N).reshape(B, N) % 5 > 0
STATES = normal(B, N, F)
STEPS = Batch(
    s_tm1=STATES,
    a_tm1=integers(A, B, N),
    r_t=normal(B),
    old_log_prob=-1 + 0.3 * normal(B, N),
    old_v=jnp.mean(STATES[..., 0], axis=1) + 0.3 * normal(B),
    sample_mask=jnp.asarray(ALIVE),
)
ADV, TARGET, RATIO = normal(B), 20 * normal(B), jnp.exp(0.1 * normal(B))


def logits_and_value(w, s):
    return Q(w["q"], s), jnp.mean(s, axis=1) @ w["mix"][:, 0]


def normalized(adv, active_masks):
    """Return advantages with the moments of active agents."""
    advantages_copy = np.where(active_masks, adv, np.nan)
    mean, std = np.nanmean(advantages_copy), np.nanstd(advantages_copy)
    return (adv - mean) / (std + 1e-5)


def active_mean(x, active_masks):
    return jnp.sum(x * active_masks) / jnp.sum(active_masks)


def policy_loss(logits, a, old, adv_targ, active_masks, factor=1.0):
    """Return the loss of policies with the entropy, whose cost is 0.01."""
    imp_weights = jnp.exp(log_prob(logits, a) - old)
    surr1 = imp_weights * adv_targ
    surr2 = jnp.clip(imp_weights, 1.0 - 0.2, 1.0 + 0.2) * adv_targ
    policy_action_loss = active_mean(-factor * jnp.minimum(surr1, surr2), active_masks)
    log_pi = jax.nn.log_softmax(logits)
    entropy = -jnp.sum(jnp.exp(log_pi) * log_pi, axis=-1)
    return policy_action_loss - active_mean(entropy, active_masks) * 0.01


def huber_loss(e, d):
    a, b = jnp.abs(e) <= d, jnp.abs(e) > d
    return a * e**2 / 2 + b * d * (jnp.abs(e) - d / 2)


def cal_value_loss(values, value_preds, returns, active_masks):
    value_pred_clipped = value_preds + jnp.clip(values - value_preds, -0.2, 0.2)
    value_loss_clipped = huber_loss(returns - value_pred_clipped, 10.0)
    value_loss_original = huber_loss(returns - values, 10.0)
    value_loss = jnp.maximum(value_loss_original, value_loss_clipped)
    return active_mean(value_loss, active_masks)


def plain_mappo(p, t):
    """marlbenchmark/on-policy@de66d7a: ppo_update, cal_value_loss and train.

    onpolicy/algorithms/r_mappo/r_mappo.py, with its default options, but values that
    are not normalised. Each agent has the value of the team.
    """
    b, (logits, v) = STEPS, logits_and_value(p, STEPS.s_tm1)
    each = (jnp.tile(x[:, None], (1, N)) for x in (v, b.old_v, TARGET))
    adv_targ = normalized(np.tile(np.asarray(ADV)[:, None], (1, N)), ALIVE)
    loss = policy_loss(logits, b.a_tm1, b.old_log_prob, adv_targ, ALIVE)
    return loss + cal_value_loss(*each, ALIVE)


def plain_happo(p, t):
    """PKU-MARL/HARL@d539bad, harl/algorithms/actors/happo.py: train and update.

    Of the first agent, with the entropy of harl/models/base/act.py.
    """
    b, active = STEPS, ALIVE[:, 0]
    logits, adv_targ = Q(p, b.s_tm1[:, 0]), normalized(np.asarray(ADV), active)
    inputs = logits, b.a_tm1[:, 0], b.old_log_prob[:, 0], adv_targ, active
    return policy_loss(*inputs, factor=RATIO)


CASES = {
    "vdn": Case(of(recipes.vdn, Q, TEAM), plain_vdn, Q_PARAMS),
    "qmix": Case(of(recipes.qmix, values_and_mix, TEAM), plain_qmix, MIX_PARAMS),
    "mappo": Case(
        of(recipes.mappo, logits_and_value, STEPS, ADV, TARGET), plain_mappo, MIX_PARAMS
    ),
    "happo": Case(of(recipes.happo, Q, STEPS, ADV, RATIO, 0), plain_happo, Q_PARAMS),
}
