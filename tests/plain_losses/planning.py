"""Losses of `recipes/planning.py` in plain `jax.numpy`."""

from types import SimpleNamespace
from typing import NamedTuple

import formulas as f
import jax
import jax.numpy as jnp
import numpy as np
from formulas import huber
from recipes import planning as recipes

import rlaxlib
from plain_losses.common import (
    ACTION,
    GAMMA,
    IS_CUT,
    IS_END,
    IS_VALID,
    KEY,
    ROLLOUTS,
    A,
    B,
    Batch,
    D,
    F,
    M,
    T,
    cases,
    given,
    integers,
    mean_and_stddev,
    normal,
    seed,
    stop,
)
from plain_losses.value_based import weights, window

seed(__name__)


L, K = 3, 5
SUPPORT = jnp.asarray(np.linspace(-10, 10, M), jnp.float32)
CRITICS = 3


def heads(x):
    return x.reshape(*x.shape[:-1], -1, M)


MODEL = SimpleNamespace(
    encode=lambda w, s: jnp.tanh(s @ w["encode"]),
    next=lambda w, z, a: jnp.tanh(jnp.concatenate([z, a], axis=-1) @ w["next"]),
    reward=lambda w, z, a: heads(jnp.concatenate([z, a], axis=-1) @ w["reward"]),
    value=lambda w, z, a: heads(jnp.concatenate([z, a], axis=-1) @ w["value"]),
    policy=lambda w, z: mean_and_stddev(w["policy"], z),
    project=lambda w, z: z @ w["project"],
    predict=lambda w, x: x @ w["predict"],
)
PARAMS = tuple(
    {
        "encode": normal(F, L),
        "next": normal(L + D, L),
        "reward": normal(L + D, M),
        "value": normal(L + D, CRITICS * M),
        "policy": 0.3 * normal(L, 2 * D),
        "project": normal(L, 4),
        "predict": normal(4, 4),
    }
    for _ in range(2)
)
IS_LAST = np.zeros((B, T), bool)
IS_LAST[[1, 3], [2, 0]] = True
SEQUENCES = Batch(
    s=normal(B, T + 1, F),
    a_tm1=np.tanh(normal(B, T, D)),
    r_t=normal(B, T),
    target=3 * normal(B, T),
    discount_t=np.where(IS_LAST, 0.0, 1.0),
    a_samples=np.tanh(normal(K, B, D)),
    visits=1 + integers(6, K, B),
)


def latents(p):
    z = [MODEL.encode(p, SEQUENCES.s[:, 0])]
    for t in range(T):
        z.append(MODEL.next(p, z[-1], SEQUENCES.a_tm1[:, t]))
    return z


def two_hot_inv(logits):
    return f.symexp(jax.nn.softmax(logits) @ SUPPORT)


def plain_tdmpc2_model(p, t):
    """nicklashansen/tdmpc2@e9f5932, tdmpc2/tdmpc2.py: _update."""
    b, z = SEQUENCES, latents(p)
    consistency, reward, value = 0.0, 0.0, 0.0
    for k in range(T):
        target, a = stop(MODEL.encode(p, b.s[:, k + 1])), b.a_tm1[:, k]
        consistency += 0.5**k * jnp.mean((z[k + 1] - target) ** 2)
        r_logits, q_logits = (h(p, z[k], a) for h in (MODEL.reward, MODEL.value))
        x = f.symlog(b.r_t[:, k])
        reward += 0.5**k * jnp.mean(f.two_hot_loss(r_logits[:, 0], x, SUPPORT))
        x = f.symlog(b.target[:, k, None])
        losses = f.two_hot_loss(q_logits, x, SUPPORT)  # Of all critics.
        value += 0.5**k * jnp.sum(jnp.mean(losses, axis=0))
    return 20 * consistency / T + 0.1 * reward / T + 0.1 * value / (T * CRITICS)


def plain_tdmpc2_actor(p, t):
    """nicklashansen/tdmpc2@e9f5932, tdmpc2/tdmpc2.py: update_pi.

    With pi and Q of tdmpc2/common/world_model.py.
    """
    act_key, key = jax.random.split(KEY)
    noise = jax.random.normal(act_key, (T + 1, B, D))
    two = jax.random.choice(key, jnp.arange(CRITICS), (2,), replace=False)
    fixed = {name: stop(x) if name != "policy" else x for name, x in p.items()}
    loss = 0.0
    for k, z in enumerate(latents(fixed)):
        mean, stddev = MODEL.policy(p, z)
        gaussian = -(noise[k] ** 2) / 2 - jnp.log(stddev) - 0.9189385175704956
        gaussian = jnp.sum(gaussian, axis=-1)
        a = jnp.tanh(mean + stddev * noise[k])
        log_prob = gaussian - jnp.sum(jnp.log(1 - a**2 + 1e-6), axis=-1)
        entropy = -log_prob * (gaussian * D / (log_prob + 1e-8))
        q = jnp.mean(two_hot_inv(MODEL.value(fixed, z, a))[:, two], axis=-1)
        loss -= 0.5**k * jnp.mean(1e-4 * entropy + q / 2.0)
    return loss / (T + 1)


def plain_spr(p, t):
    """mila-iqia/spr@0b9dd4e, src/algos.py and src/models.py, without IS weights.

    The last step has no end after it.
    """
    b, z, loss = SEQUENCES, latents(p), 0.0
    done = jnp.pad(b.discount_t == 0, ((0, 0), (0, 1)))
    nonterminals = 1.0 - jnp.sign(jnp.cumsum(done, axis=1))
    for k in range(T):
        alive = nonterminals[:, k + 1]
        x = MODEL.predict(p, MODEL.project(p, z[k + 1]))
        y = stop(MODEL.project(t, MODEL.encode(t, b.s[:, k + 1])))
        norms = jnp.linalg.norm(x, axis=-1) * jnp.linalg.norm(y, axis=-1)
        loss -= alive * jnp.sum(x * y, axis=-1) / norms
    return 2 * jnp.mean(loss)


def plain_sampled_muzero_policy(p, t):
    """opendilab/LightZero@9f717c8, lzero/policy/sampled_muzero.py: cross_entropy.

    `a_samples` are its actions before the tanh.
    """
    mu, sigma = mean_and_stddev(p, SEQUENCES.s[:, 0])
    target_policy = SEQUENCES.visits / jnp.sum(SEQUENCES.visits, axis=0)
    log_probs = []
    for target_sampled_actions in jnp.tanh(SEQUENCES.a_samples):
        y = 1 - target_sampled_actions**2
        before_tanh = jnp.arctanh(jnp.clip(target_sampled_actions, -1 + 1e-6, 1 - 1e-6))
        log_prob = -((before_tanh - mu) ** 2) / (2 * sigma**2) - jnp.log(sigma)
        log_prob = jnp.sum(log_prob - jnp.log(2 * jnp.pi) / 2, axis=-1)
        log_probs.append(log_prob - jnp.sum(jnp.log(y + 1e-6), axis=-1))
    weights = jnp.exp(jnp.log(target_policy + 1e-6))
    return jnp.mean(-jnp.sum(weights * jnp.stack(log_probs), axis=0))


# --- BBF, of discrete actions. ---


DISCRETE = SimpleNamespace(
    encode=lambda w, s: jnp.tanh(s @ w["encode"]),
    next=lambda w, z, a: jnp.tanh(
        jnp.concatenate([z, jax.nn.one_hot(a, A)], axis=-1) @ w["next"]
    ),
    project=lambda w, z: z @ w["project"],
    predict=lambda w, x: x @ w["predict"],
    q=lambda w, s: (jnp.tanh(s @ w["encode"]) @ w["q"]).reshape(*s.shape[:-1], A, M),
)
DISCRETE_PARAMS = tuple(
    {
        "encode": normal(F, L),
        "next": normal(L + A, L),
        "project": normal(L, 4),
        "predict": normal(4, 4),
        "q": normal(L, A * M),
    }
    for _ in range(2)
)


def plain_bbf(p, t):
    """google-research/google-research@1d4d2f1.

    bigger_better_faster/bbf/agents/spr_agent.py: train and target_output. Windows end
    where those of other recipes do, and `same_traj_mask` ends with them.
    """
    net, support, dqn_losses = DISCRETE, jnp.linspace(-2, 2, M), []
    for i in range(B):
        current_state, action, rewards, gamma_with_terminal, next_state = window(i)
        q_values = jax.nn.softmax(net.q(p, next_state)) @ support
        probabilities = jax.nn.softmax(net.q(t, next_state))
        next_probabilities = probabilities[jnp.argmax(q_values)]
        inputs = rewards, gamma_with_terminal, next_probabilities, support
        target = stop(f.project(*inputs))
        chosen_action_logits = net.q(p, current_state)[action]
        dqn_losses.append(-jnp.sum(target * jax.nn.log_softmax(chosen_action_logits)))

    latent, spr_losses = net.encode(p, ROLLOUTS.s_tm1[:, 0]), []
    same_traj_mask = np.cumprod(IS_VALID & ~IS_CUT & ~IS_END, axis=1)
    for k in range(T):
        latent = net.next(p, latent, ROLLOUTS.a_tm1[:, k])
        spr_predictions = net.predict(p, net.project(p, latent))
        spr_targets = stop(net.project(t, net.encode(t, ROLLOUTS.s_t[:, k])))
        spr_predictions /= jnp.linalg.norm(spr_predictions, axis=-1, keepdims=True)
        spr_targets /= jnp.linalg.norm(spr_targets, axis=-1, keepdims=True)
        difference = jnp.sum((spr_predictions - spr_targets) ** 2, axis=-1)
        spr_losses.append(difference * same_traj_mask[:, k])
    losses = jnp.stack(dqn_losses) + 5 * sum(spr_losses) / T
    return jnp.mean(weights(0.5, ROLLOUTS) * losses)


# --- MR.Q. ---


class Represented(NamedTuple):
    encoder: dict
    actor: jax.Array
    critic: jax.Array


def joint(w, z, a):
    return jnp.tanh(jnp.concatenate([z, a], axis=-1) @ w["joint"])


def model(w, z, a):
    dzr = joint(w, z, a) @ w["model"]
    return dzr[..., 1 : L + 1], dzr[..., L + 1 :], dzr[..., 0]


MRQ = SimpleNamespace(
    encode=lambda w, s: jnp.tanh(s @ w["encode"]),
    model=model,
    joint=joint,
    actor=lambda w, z: z @ w,
    critic=lambda w, zsa: zsa @ w,
)
MRQ_PARAMS = tuple(
    Represented(
        {
            "encode": normal(F, L),
            "joint": normal(L + D, K),
            "model": normal(K, 1 + L + M),
        },
        normal(L, D),
        normal(K, 2),
    )
    for _ in range(2)
)
SYMEXP = rlaxlib.unbiased_transform_pair(-2.0, 2.0, M, rlaxlib.SIGNED_LOGP1_PAIR)


def two_hot(x):
    """Return the encoding of one number, as TwoHot.transform."""
    bins = jnp.linspace(-2, 2, M)
    bins = jnp.sign(bins) * (jnp.exp(jnp.abs(bins)) - 1)
    diff = x - bins
    diff = diff - 1e8 * (jnp.sign(diff) - 1)
    ind = jnp.argmin(diff)
    lower, upper = bins[ind], bins[jnp.clip(ind + 1, 0, M - 1)]
    weight = (x - lower) / (upper - lower)
    return jnp.zeros(M).at[ind].set(1 - weight).at[ind + 1].set(weight)


def plain_mrq_encoder(p, t):
    """facebookresearch/MRQ@8a44a7d, MRQ/MRQ.py: train_encoder.

    Its replay has no windows with a cut: here their steps before it count.
    """
    b, not_done = REWARDED, (REWARDED.discount_t > 0).astype(jnp.float32)
    pred_zs = MRQ.encode(p.encoder, b.s_tm1[:, 0])
    prev_not_done, encoder_loss = jnp.ones((B, 1)), 0.0
    for i in range(T):
        prev_not_done = prev_not_done * b.sample_mask[:, i, None]
        pred_zs, pred_r, pred_d = MRQ.model(p.encoder, pred_zs, b.a_tm1[:, i])
        target = stop(MRQ.encode(t.encoder, b.s_t[:, i]))
        dyn_loss = jnp.mean((pred_zs - target) ** 2 * prev_not_done)
        hot = jax.vmap(two_hot)(b.r_t[:, i])
        ce = -jnp.sum(hot * jax.nn.log_softmax(pred_r), axis=-1, keepdims=True)
        reward_loss = jnp.mean(ce * prev_not_done)
        error = pred_d[:, None] - (1.0 - not_done[:, i, None])
        done_loss = jnp.mean(error**2 * prev_not_done)
        encoder_loss += 1 * dyn_loss + 0.1 * reward_loss + 0.1 * done_loss
        prev_not_done = not_done[:, i, None] * prev_not_done
        prev_not_done = prev_not_done * ~b.truncated_t[:, i, None]
    return encoder_loss


def plain_mrq_critic(p, t):
    """facebookresearch/MRQ@8a44a7d, MRQ/MRQ.py: train_rl, up to value_loss."""
    b, reward_scale, target_reward_scale = ACTION, 0.5, 0.7
    keys = jax.random.split(KEY, B)
    noise = jnp.stack([jax.random.normal(key, (D,)) for key in keys])
    next_zs = MRQ.encode(t.encoder, b.s_t)
    noise = jnp.clip(0.2 * noise, -0.3, 0.3)
    next_action = jnp.clip(jnp.tanh(MRQ.actor(t.actor, next_zs)) + noise, -1, 1)
    next_zsa = MRQ.joint(t.encoder, next_zs, next_action)
    q_target = jnp.min(MRQ.critic(t.critic, next_zsa), axis=1, keepdims=True)
    q_target = b.discount_t[:, None] * q_target * target_reward_scale
    q_target = (b.r_t[:, None] + q_target) / reward_scale
    zs = MRQ.encode(p.encoder, b.s_tm1)
    zsa = stop(MRQ.joint(p.encoder, zs, b.a_tm1))
    return jnp.mean(huber(MRQ.critic(p.critic, zsa) - stop(q_target)))


def plain_mrq_actor(p, t):
    """facebookresearch/MRQ@8a44a7d, MRQ/MRQ.py: train_rl, from policy_action."""
    zs = stop(MRQ.encode(p.encoder, ACTION.s_tm1))
    pre_activ = MRQ.actor(p.actor, zs)
    zsa = MRQ.joint(stop(p.encoder), zs, jnp.tanh(pre_activ))
    q_policy = MRQ.critic(stop(p.critic), zsa)
    return -jnp.mean(q_policy) + 0.1 * jnp.mean(pre_activ**2)


REWARDED = ROLLOUTS._replace(a_tm1=np.tanh(normal(B, T, D)))


CASES = cases(
    recipes,
    globals(),
    {
        "bbf": given(DISCRETE_PARAMS, DISCRETE, ROLLOUTS, 3, GAMMA, (-2.0, 2.0)),
        "mrq_encoder": given(MRQ_PARAMS, MRQ, REWARDED, SYMEXP, stopped="actor critic"),
        "mrq_critic": given(
            MRQ_PARAMS, MRQ, ACTION, KEY, 0.5, 0.7, stopped="encoder actor"
        ),
        "mrq_actor": given(MRQ_PARAMS, MRQ, ACTION, 0.1, stopped="encoder critic"),
        "tdmpc2_model": given(PARAMS, MODEL, SEQUENCES),
        "tdmpc2_actor": given(
            PARAMS, MODEL, SEQUENCES, KEY, 2.0, stopped="encode next reward value"
        ),
        "spr": given(PARAMS, MODEL, SEQUENCES),
        "sampled_muzero_policy": given(
            (normal(F, 2 * D), None), mean_and_stddev, SEQUENCES
        ),
    },
)
