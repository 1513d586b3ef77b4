"""Losses of `recipes/multiagent.py` as their authors' code has them.

Files at each loss. The episodes of PyMARL have the shapes that its buffer gives them.
"""

from types import SimpleNamespace

import formulas as f
import jax
import jax.numpy as jnp
import numpy as np
from formulas import pick
from recipes import multiagent as recipes
from recipes import policy_gradient
from recipes.continuous import ActorCritic

from plain_losses.common import (
    KEY,
    Q_PARAMS,
    A,
    B,
    Batch,
    D,
    F,
    Q,
    T,
    cases,
    given,
    integers,
    log_prob,
    mean_and_stddev,
    normal,
    policy_and_value,
    seed,
    stop,
)
from plain_losses.continuous import actions_and_log_probs

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
    obs=OBS,
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
    old_v=np.mean(STATES[..., 0], axis=1) + 0.3 * normal(B),
    sample_mask=ALIVE,
)
ADV, TARGET, RATIO = normal(B), 20 * normal(B), np.exp(0.1 * normal(B))


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


# --- IPPO: PPO of the streams of all agents. ---

DONES = np.float32(np.arange(T * B * N).reshape(T, B, N) % 7 == 3)
PLAYED = SimpleNamespace(  # Agents follow environments: one axis of all actors.
    obs=normal(T + 1, B * N, F),
    action=integers(A, T, B * N),
    reward=normal(T, B * N),
    done=DONES.reshape(T, B * N),
    logits=normal(T, B * N, A),
    value=normal(T + 1, B * N),
)


def of_actors():
    """Return the streams of all actors, [B N, T]."""
    b = PLAYED
    fields = {"s_tm1": b.obs[:-1], "s_t": b.obs[1:], "a_tm1": b.action, "r_t": b.reward}
    fields |= {"discount_t": GAMMA * (1 - b.done), "logits_tm1": b.logits}
    fields |= {"v_tm1": b.value[:-1], "v_t": b.value[1:]}
    fields = {name: jnp.swapaxes(x, 0, 1) for name, x in fields.items()}
    return Batch(**fields, truncated_t=None, sample_mask=None)


def ippo(p):
    return policy_gradient.ppo(p, policy_and_value, of_actors())


def plain_ippo(p):
    """FLAIROx/JaxMARL@c793d09, baselines/IPPO/ippo_ff_mpe.py: _loss_fn.

    With one minibatch, and the settings of config/ippo_ff_mpe.yaml but the discount.
    """
    b, (logits, value) = PLAYED, policy_and_value(p, PLAYED.obs[:-1])
    advantages = f.gae(b.value[:-1], b.reward, GAMMA * (1 - b.done), b.value[1:])
    targets, gae = advantages + b.value[:-1], f.standardized(advantages)
    log_probs = (log_prob(x, b.action) for x in (logits, b.logits))
    loss_actor = f.clipped(*log_probs, gae)
    value_loss = f.clipped_values(value, b.value[:-1], targets)
    return jnp.mean(loss_actor + 0.5 * value_loss - 0.01 * f.entropy(logits))


# --- MADDPG and MASAC. ---

OWN = STEPS._replace(
    a_tm1=jax.nn.softmax(normal(B, N, D)),
    s_t=normal(B, N, F),
    r_t=normal(B, N),
    discount_t=GAMMA * (1 - DONES[0]),
)


def side_by_side(s, a):
    """Return what a critic reads of all agents, [B, N (F + D)]."""
    return jnp.concatenate([s.reshape(len(s), -1), a.reshape(len(a), -1)], axis=1)


def networks(actor, actor_size, *critic_shape):
    """Return policies that share a network, critics of all agents, and parameters."""

    def critic(w, s, a):
        return jnp.tanh(side_by_side(s, a) @ w).reshape(len(s), *critic_shape)

    size = N * (F + D), int(np.prod(critic_shape))
    params = (ActorCritic(normal(F, actor_size), normal(*size)) for _ in range(2))
    return ActorCritic(actor, critic), tuple(params)


MADDPG, MADDPG_PARAMS = networks(lambda w, s: s @ w, D, N)
MASAC, MASAC_PARAMS = networks(mean_and_stddev, 2 * D, N, 2)
ALPHA = np.array([0.2, 0.5, 1.0])


def soft_actions(logits):
    """Return samples of maddpg/common/distributions.py: SoftCategoricalPd.sample."""
    u = jax.random.gumbel(KEY, logits.shape)  # -log(-log(u)) there.
    return jax.nn.softmax(logits + u, axis=-1)


def plain_maddpg_critic(p, t):
    """openai/maddpg@3ceefa0, maddpg/trainer/maddpg.py: q_train, of all agents."""
    b, q_loss = OWN, 0.0
    target_act_next_n = soft_actions(MADDPG.actor(t.actor, b.s_t))
    for i in range(N):
        target_q_next = MADDPG.critic(t.critic, b.s_t, target_act_next_n)[:, i]
        target_q = b.r_t[:, i] + GAMMA * (1.0 - DONES[0][:, i]) * target_q_next
        q = MADDPG.critic(p.critic, b.s_tm1, b.a_tm1)[:, i]
        q_loss += jnp.mean(jnp.square(q - stop(target_q)))
    return q_loss


def plain_maddpg_actor(p, t):
    """openai/maddpg@3ceefa0, maddpg/trainer/maddpg.py: p_train, of all agents."""
    b, loss, flatparam = OWN, 0.0, MADDPG.actor(p.actor, OWN.s_tm1)
    act_sample = soft_actions(flatparam)
    for i in range(N):
        act_input_n = b.a_tm1.at[:, i].set(act_sample[:, i])
        q = MADDPG.critic(stop(p.critic), b.s_tm1, act_input_n)[:, i]
        p_reg = jnp.mean(jnp.square(flatparam[:, i]))
        loss += -jnp.mean(q) + p_reg * 1e-3
    return loss


def plain_masac_critic(p, t):
    """instadeepai/Mava@57c8e64, mava/systems/sac/anakin/ff_masac.py: update_q."""
    next_action, next_log_prob = actions_and_log_probs(stop(p.actor), OWN.s_t)
    next_q_val = jnp.min(MASAC.critic(t.critic, OWN.s_t, next_action), axis=-1)
    next_q_val = next_q_val - ALPHA * next_log_prob
    target = stop(OWN.r_t + (1.0 - DONES[0]) * GAMMA * next_q_val)
    q1_a_values, q2_a_values = jnp.moveaxis(
        MASAC.critic(p.critic, OWN.s_tm1, OWN.a_tm1), -1, 0
    )
    q1_loss = jnp.mean(jnp.square(q1_a_values - target))
    return q1_loss + jnp.mean(jnp.square(q2_a_values - target))


def plain_masac_actor(p, t):
    """instadeepai/Mava@57c8e64, mava/systems/sac/anakin/ff_masac.py: actor_loss_fn."""
    new_actions, log_prob = actions_and_log_probs(p.actor, OWN.s_tm1)
    min_q_val = []
    for i in range(N):
        joint_actions = OWN.a_tm1.at[:, i].set(new_actions[:, i])
        qvals = MASAC.critic(stop(p.critic), OWN.s_tm1, joint_actions)[:, i]
        min_q_val.append(jnp.minimum(qvals[:, 0], qvals[:, 1]))
    return jnp.mean(ALPHA * log_prob - jnp.stack(min_q_val, axis=1))


def plain_masac_temperature(p, t):
    """instadeepai/Mava@57c8e64, mava/systems/sac/anakin/ff_masac.py: alpha_loss_fn."""
    _, log_pi = actions_and_log_probs(t.actor, OWN.s_tm1)
    return jnp.mean(-jnp.exp(p) * stop(log_pi + -2.0))


CASES = cases(
    recipes,
    globals(),
    {
        "maddpg_critic": given(MADDPG_PARAMS, MADDPG, OWN, KEY, stopped="actor"),
        "maddpg_actor": given(MADDPG_PARAMS, MADDPG, OWN, KEY, stopped="critic"),
        "masac_critic": given(MASAC_PARAMS, MASAC, OWN, KEY, ALPHA, stopped="actor"),
        "masac_actor": given(MASAC_PARAMS, MASAC, OWN, KEY, ALPHA, stopped="critic"),
        "masac_temperature": given(
            (np.log(ALPHA), MASAC_PARAMS[0]), MASAC, OWN, KEY, -2.0
        ),
        "vdn": given(Q_PARAMS, Q, TEAM),
        "qmix": given(MIX_PARAMS, values_and_mix, TEAM),
        "mappo": given(MIX_PARAMS, logits_and_value, STEPS, ADV, TARGET),
        "happo": given(Q_PARAMS, Q, STEPS, ADV, RATIO, 0),
    },
)
