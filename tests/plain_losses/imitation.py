"""Losses of `recipes/imitation.py` in plain `jax.numpy`."""

from types import SimpleNamespace

import formulas as f
import jax
import jax.numpy as jnp
import numpy as np
from formulas import huber, pick
from recipes import imitation as recipes

from plain_losses.common import (
    ACTION,
    GAMMA,
    KEY,
    ONE,
    Q_PARAMS,
    ROLLOUTS,
    A,
    B,
    D,
    F,
    Q,
    T,
    cases,
    given,
    normal,
    pool,
    seed,
    stop,
)

seed(__name__)


EXPERT = ACTION._replace(s_tm1=normal(B, F), a_tm1=np.tanh(normal(B, D)))
IS_EXPERT = np.array([True, False, True, False])
MIXED, MIXED_STREAM = (x._replace(is_expert=IS_EXPERT) for x in (ONE, ROLLOUTS))
MIXED_STREAM.expert = np.broadcast_to(IS_EXPERT[:, None], (B, T))
JUDGED, JUDGED_EXPERT = (
    ONE._replace(s_tm1=normal(B, F), log_prob=-np.exp(normal(B))) for _ in range(2)
)


def plain_bc(p, t):
    """HumanCompatibleAI/imitation@e5ef188, src/imitation/algorithms/bc.py.

    BehaviorCloningLossCalculator, with ent_weight and l2_weight 0.
    """
    neglogp = -jnp.mean(pick(jax.nn.log_softmax(Q(p, ONE.s_tm1)), ONE.a_tm1))
    return neglogp


def plain_dqfd(p, t):
    """opendilab/DI-engine@d0b21d0.

    ding/policy/dqfd.py, and ding/rl_utils/td.py: dqfd_nstep_td_error.
    """

    def losses(b):
        q, next_q, target_q = Q(p, b.s_tm1), Q(p, b.obs), Q(t, b.obs)
        q_s_a, terms = pick(q, b.a_tm1), []
        for nstep in (1, 3):
            rewards, factors = f.n_step(b.r_t, GAMMA * (1 - b.dones), nstep)
            ends = np.minimum(np.arange(len(b.r_t)) + nstep, len(b.r_t))
            target = (
                rewards + factors * pick(target_q, jnp.argmax(next_q, axis=1))[ends]
            )
            terms.append((q_s_a - stop(target)) ** 2)
        l = 0.8 * (1 - jax.nn.one_hot(b.a_tm1, A))
        je = b.expert * (jnp.max(q + l, axis=1) - q_s_a)
        return (sum(terms) + je,)

    return jnp.mean(*pool(losses, MIXED_STREAM))


def judge(w, s, a):
    return jnp.sum(jnp.tanh(jnp.concatenate([s, a], axis=-1) @ w), axis=-1)


def plain_gail(p, t):
    """google-research/google-research@0c1bbe5, dac/gail.py.

    With expert_weight 1.
    """
    alpha = jax.random.uniform(KEY, (B, 1))

    def discriminator(x):
        return judge(p, x[..., :F], x[..., F:])

    def sigmoid_cross_entropy(labels, logits):
        losses = -labels * jax.nn.log_sigmoid(logits)
        return jnp.mean(losses - (1 - labels) * jax.nn.log_sigmoid(-logits))

    inputs, expert_inputs = (
        jnp.concatenate([x.s_tm1, x.a_tm1], axis=-1) for x in (ACTION, EXPERT)
    )
    inter = alpha * expert_inputs + (1 - alpha) * inputs
    gan_loss = sigmoid_cross_entropy(1.0, discriminator(expert_inputs))
    gan_loss += sigmoid_cross_entropy(0.0, discriminator(inputs))
    grad = jax.vmap(jax.grad(discriminator))(inter)
    norm = jnp.sqrt(jnp.sum(grad**2, axis=-1))
    return gan_loss + 10.0 * jnp.mean((norm - 1) ** 2)


def inverse(w, s):
    return jnp.tanh(s @ w["reward"])[:, 0], jnp.tanh(s @ w["potential"])[:, 0]


AIRL = SimpleNamespace(
    reward=lambda w, s: inverse(w, s)[0], potential=lambda w, s: inverse(w, s)[1]
)


def advantage(p, b):
    (reward, v_tm1), (_, v_t) = inverse(p, b.s_tm1), inverse(p, b.s_t)
    return reward + b.discount_t * v_t - v_tm1


def plain_airl(p, t):
    """justinjfu/inverse_rl@9609933, inverse_rl/models/airl_state.py.

    Observations after an end are zeros, of which the network's value is 0.
    """
    obs, nobs, lprobs, ends = (
        jnp.concatenate([x, y])
        for x, y in zip(
            *(
                (b.s_tm1, b.s_t, b.log_prob, b.discount_t == 0)
                for b in (JUDGED, JUDGED_EXPERT)
            ),
            strict=True,
        )
    )
    labels = jnp.repeat(jnp.array([0.0, 1.0]), B)
    nobs = jnp.where(ends[:, None], 0.0, nobs)
    (reward, fitted_value_fn), (_, fitted_value_fn_n) = (
        inverse(p, obs),
        inverse(p, nobs),
    )
    log_p_tau = reward + GAMMA * fitted_value_fn_n - fitted_value_fn
    log_q_tau = lprobs
    log_pq = jax.nn.logsumexp(jnp.stack([log_p_tau, log_q_tau]), axis=0)
    cent = labels * (log_p_tau - log_pq) + (1 - labels) * (log_q_tau - log_pq)
    return -jnp.mean(cent)


def plain_sqil(p, t):
    """HumanCompatibleAI/imitation@e5ef188, src/imitation/algorithms/sqil.py.

    With DQN of Stable-Baselines3.
    """
    rewards = jnp.where(IS_EXPERT, 1.0, 0.0)
    next_q_values = jnp.max(Q(t, ONE.s_t), axis=1)
    target_q_values = stop(rewards + ONE.discount_t * next_q_values)
    current_q_values = pick(Q(p, ONE.s_tm1), ONE.a_tm1)
    return jnp.mean(huber(current_q_values - target_q_values))


AIRL_PARAMS = {"reward": normal(F, 1), "potential": normal(F, 1)}
CASES = cases(
    recipes,
    globals(),
    {
        "bc": given(Q_PARAMS, Q, ONE),
        "dqfd": given(Q_PARAMS, Q, MIXED_STREAM, 3),
        "gail": given((0.5 * normal(F + D, 3), None), judge, ACTION, EXPERT, KEY),
        "airl": given((AIRL_PARAMS, None), AIRL, JUDGED, JUDGED_EXPERT),
        "sqil": given(Q_PARAMS, Q, MIXED),
    },
)
