"""Test recipes that are not losses beside their authors' code, transcribed.

Each transcription names its file, and where it stands in the recipe's docstring.
"""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plain_losses import exploration as explored
from plain_losses import imitation as imitated
from plain_losses.common import KEY, Q_PARAMS, ROLLOUTS, B, D, Q, T, normal, pick
from plain_losses.planning import CRITICS, MODEL, PARAMS, SEQUENCES, two_hot_inv
from recipes import (
    constraints,
    exploration,
    imitation,
    planning,
    policy_gradient,
    streaming,
)

import rlaxlib

# --- TD-MPC2: nicklashansen/tdmpc2@e9f5932, tdmpc2/tdmpc2.py. ---


def td_target(params, target_params, key):
    """Return the targets of `_td_target`, with `Q` of common/world_model.py."""
    act_key, key = jax.random.split(key)
    next_z = MODEL.encode(params, SEQUENCES.s[:, 1:])
    mean, std = MODEL.policy(params, next_z)
    action = jnp.tanh(mean + std * jax.random.normal(act_key, mean.shape))
    out = MODEL.value(target_params, next_z, action)
    qidx = jax.random.choice(key, jnp.arange(CRITICS), (2,), replace=False)
    q = jnp.minimum(*(two_hot_inv(out[..., i, :]) for i in qidx))
    terminated = 1 - SEQUENCES.discount_t
    return SEQUENCES.r_t + 0.9 * (1 - terminated) * q


def test_targets_of_tdmpc2():
    batch = SEQUENCES._replace(discount_t=0.9 * SEQUENCES.discount_t)
    found = planning.tdmpc2_targets(*PARAMS, MODEL, batch, KEY)
    np.testing.assert_allclose(found, td_target(*PARAMS, KEY), rtol=1e-5, atol=1e-5)


def plan(key, value, pi_actions, prev_mean, t0):
    """Return the action, mean and deviations of `_plan`, in evaluation mode."""
    horizon, num_pi_trajs, action_dim = pi_actions.shape
    num_samples, num_elites, temperature, iterations = 96, 64, 0.5, 4
    keys = jax.random.split(key, iterations + 1)
    mean = np.zeros((horizon, action_dim), np.float32)
    std = np.full((horizon, action_dim), 2.0, np.float32)
    if not t0:
        mean[:-1] = prev_mean[1:]
    for each in keys[1:]:
        shape = num_samples - num_pi_trajs, horizon, action_dim
        r = np.swapaxes(jax.random.normal(each, shape), 0, 1)
        actions_sample = np.clip(mean[:, None] + std[:, None] * r, -1, 1)
        actions = np.concatenate([pi_actions, actions_sample], axis=1)
        values = np.asarray(value(np.swapaxes(actions, 0, 1)))
        elite_idxs = np.argsort(-values)[:num_elites]
        elite_value, elite_actions = values[elite_idxs], actions[:, elite_idxs]
        score = np.exp(temperature * (elite_value - np.max(elite_value)))
        score = (score / np.sum(score))[None, :, None]
        mean = np.sum(score * elite_actions, axis=1) / (np.sum(score) + 1e-9)
        square = (elite_actions - mean[:, None]) ** 2
        std = np.sqrt(np.sum(score * square, axis=1) / (np.sum(score) + 1e-9))
        std = np.clip(std, 0.05, 2.0)
    rand_idx = jax.random.categorical(keys[0], jnp.log(score[0, :, 0]))
    return elite_actions[0, rand_idx], mean, std


@pytest.mark.parametrize("t0", [True, False])
def test_plan_of_tdmpc2(t0):
    best = normal(T, D)

    def value(actions):
        return -jnp.sum((jnp.asarray(actions) - best) ** 2, axis=(1, 2))

    pi_actions, prev_mean = jnp.tanh(normal(T, 24, D)), jnp.tanh(normal(T, D))
    first = rlaxlib.PlanState(prev_mean, jnp.ones((T, D)))
    first = rlaxlib.shift_plan(first, stddev=2.0)
    if t0:
        first = rlaxlib.PlanState(jnp.zeros((T, D)), jnp.full((T, D), 2.0))
    proposals = jnp.swapaxes(pi_actions, 0, 1)
    settings = {"num_samples": 96, "iterations": 4}
    action, found = planning.mppi_plan(KEY, value, first, proposals, **settings)
    expected = plan(KEY, value, np.asarray(pi_actions), prev_mean, t0)
    for x, y in zip((action, found.mean, found.stddev), expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


# --- Trust regions. ---

NEAR = ROLLOUTS._replace(logits_tm1=Q(Q_PARAMS[0], ROLLOUTS.s_tm1))
STEPS = np.asarray(NEAR.sample_mask)
ADV, COST_ADV = normal(B, T), normal(B, T)


def mean_ratio(w, adv):
    """Return the surrogate of valid steps."""
    logits, old = Q(w, NEAR.s_tm1)[STEPS], NEAR.logits_tm1[STEPS]
    new, old = (pick(jax.nn.log_softmax(x), NEAR.a_tm1[STEPS]) for x in (logits, old))
    return jnp.mean(jnp.exp(new - old) * adv[STEPS])


def mean_kl(w):
    log_p, log_q = (
        jax.nn.log_softmax(x[STEPS]) for x in (NEAR.logits_tm1, Q(w, NEAR.s_tm1))
    )
    return jnp.mean(jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=-1))


def fisher():
    """Return the Hessian of the divergence with damping, [F * A, F * A]."""
    size = Q_PARAMS[0].size
    hessian = jax.hessian(mean_kl)(Q_PARAMS[0]).reshape(size, size)
    return np.asarray(hessian, np.float64) + 0.1 * np.eye(size)


def gradient(adv, sign):
    slope = jax.grad(lambda w: sign * mean_ratio(w, adv))(Q_PARAMS[0])
    return np.asarray(slope, np.float64).ravel()


def cg(h, b, cg_iters=10):
    """Return the solution of conjugate gradients, as baselines/common/cg.py."""
    p, r, x = b.copy(), b.copy(), np.zeros_like(b)
    rdotr = r @ r
    for _ in range(cg_iters):
        z = h @ p
        v = rdotr / (p @ z)
        x, r = x + v * p, r - v * z
        newrdotr = r @ r
        p, rdotr = r + newrdotr / rdotr * p, newrdotr
        if rdotr < 1e-10:
            break
    return x


def test_step_of_trpo():
    """openai/baselines@ea25b9e, baselines/trpo_mpi/trpo_mpi.py, a step of full size."""
    h, g, max_kl = fisher(), gradient(ADV, 1), 0.001
    stepdir = cg(h, g)
    lm = np.sqrt(0.5 * stepdir @ (h @ stepdir) / max_kl)
    expected = Q_PARAMS[0] + (stepdir / lm).reshape(Q_PARAMS[0].shape)
    assert mean_kl(expected) <= 1.5 * max_kl
    assert mean_ratio(expected, ADV) > mean_ratio(Q_PARAMS[0], ADV)
    found, _ = constraints.trpo(Q_PARAMS[0], Q, NEAR, ADV, max_kl)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("c", [-1.0, -0.01, 0.005, 1.0])
def test_step_of_cpo(c):
    """jachiam/cpo@5c83925, optimizers/conjugate_constraint_optimizer.py: optimize.

    The step is subtracted there, of the loss and the cost.
    """
    h, max_kl, eps = fisher(), 0.01, 1e-8
    flat_g, flat_b = gradient(ADV, -1), gradient(COST_ADV, 1)
    v, w, delta = cg(h, flat_g), cg(h, flat_b), 2 * max_kl
    q, r, s = v @ h @ v, w @ h @ v, w @ h @ w
    a, b = q - r**2 / s, delta - c**2 / s
    lam, nu = np.sqrt(q / delta), 0
    if b > 0:
        lam_mid = r / c
        l_mid = -0.5 * (q / lam_mid + lam_mid * delta)
        lam_a, l_a = np.sqrt(a / (b + eps)), -np.sqrt(a * b) - r * c / (s + eps)
        lam_b, l_b = np.sqrt(q / delta), -np.sqrt(q * delta)
        if lam_mid > 0:
            if (lam_a > lam_mid) == (c < 0):
                lam_a, l_a = lam_mid, l_mid
            if (lam_b < lam_mid) == (c < 0):
                lam_b, l_b = lam_mid, l_mid
            lam = lam_a if l_a >= l_b else lam_b
        else:
            lam = lam_b if c < 0 else lam_a
        nu = max(0, lam * c - r) / (s + eps)
    expected = -(v + nu * w) / (lam + eps)
    if c > 0 and b < 0:
        expected = -np.sqrt(delta / (s + eps)) * w
    inputs = Q_PARAMS[0], Q, NEAR, ADV, COST_ADV, c
    found = constraints.cpo_direction(*inputs, max_kl, damping=0.1)
    np.testing.assert_allclose(np.ravel(found), expected, rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("kl", [0.0, 0.004, 0.006, 0.015, 0.03])
@pytest.mark.parametrize("rate", [1.2e-5, 1e-3, 9e-3])
def test_learning_rate_of_rsl_rl(kl, rate):
    """leggedrobotics/rsl_rl@c281c32, rsl_rl/algorithms/ppo.py.

    It rises at a divergence of 0 here, where it stays there.
    """
    expected, desired_kl = rate, 0.01
    if kl > desired_kl * 2.0:
        expected = max(1e-5, rate / 1.5)
    elif kl < desired_kl / 2.0:
        expected = min(1e-2, rate * 1.5)
    found = constraints.adaptive_learning_rate(jnp.float32(rate), kl)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_multiplier_of_omnisafe():
    """PKU-Alignment/omnisafe@15603dd, omnisafe/common/pid_lagrange.py: pid_update.

    Without moving averages, and with a delay of one update.
    """
    state, pid_i, cost_d = (
        rlaxlib.pid_lagrangian(25.0, 0.1, 0.01, 0.01).init(),
        0.0,
        0.0,
    )
    for cost in (30.0, 50.0, 20.0, 10.0, 40.0):
        delta = cost - 25.0
        pid_i = max(0.0, pid_i + delta * 0.01)
        pid_d = max(0.0, cost - cost_d)
        expected = max(0.0, 0.1 * delta + pid_i + 0.01 * pid_d)
        cost_d = cost
        found, state = policy_gradient.lagrange_multiplier(cost, state)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


# --- Rewards. ---


def test_rewards_of_rnd():
    """openai/random-network-distillation@f75c0f1, ppo_agent.py and mpi_util.py."""
    params, target_params = explored.params("features")
    batches = (
        ROLLOUTS._replace(sample_mask=None),
        ROLLOUTS._replace(sample_mask=None, s_t=ROLLOUTS.s_tm1),
    )
    state = rlaxlib.RndState(carried=jnp.zeros(B))
    rewems, mean, var, count = None, 0.0, 1.0, 1e-4
    for batch in batches:
        x, y = (explored.features(p, batch.s_t) for p in (params, target_params))
        buf_rews_int, rffs_int = np.sum(np.square(x - y), axis=-1), []
        for rew in buf_rews_int.T:
            rewems = rew if rewems is None else rewems * 0.99 + rew
            rffs_int.append(rewems)
        batch_mean, batch_var = np.mean(rffs_int), np.var(rffs_int)
        delta, tot = batch_mean - mean, count + np.size(rffs_int)
        m2 = var * count + batch_var * np.size(rffs_int)
        var = (m2 + delta**2 * count * np.size(rffs_int) / tot) / tot
        mean, count = mean + delta * np.size(rffs_int) / tot, tot
        found, state = exploration.rnd_rewards(
            params, target_params, explored.features, batch, state
        )
        np.testing.assert_allclose(found, buf_rews_int / np.sqrt(var), rtol=1e-4)


def test_rewards_of_adversarial_imitation():
    """dac/gail.py and airl_state.py: get_reward, and eval with score_discrim."""
    params, b = imitated.CASES["gail"].params[0], imitated.ACTION
    d = jax.nn.sigmoid(imitated.judge(params, b.s_tm1, b.a_tm1))
    found = imitation.gail_reward(params, imitated.judge, b)
    np.testing.assert_allclose(found, -jnp.log(1 - d + 1e-8), rtol=1e-4)
    params, b = imitated.AIRL_PARAMS, imitated.JUDGED
    log_p_tau, lprobs = (
        np.float64(imitated.advantage(params, b)),
        np.float64(b.log_prob),
    )
    scores = np.exp(log_p_tau - np.logaddexp(log_p_tau, lprobs))
    found = imitation.airl_reward(params, imitated.AIRL, b)
    np.testing.assert_allclose(found, np.log(scores) - np.log(1 - scores), rtol=1e-4)


# --- Streaming. ---


def test_updates_of_stream_q():
    """mohmdelsayed/streaming-drl@407dca7, stream_q.py and optim.py: ObGD."""
    w, e, gamma = Q_PARAMS[0], np.zeros_like(Q_PARAMS[0]), 0.9
    learner = streaming.Learner(w, jnp.zeros_like(w))
    for i, done in enumerate([False, False, True, False]):
        s, s_prime, r = ROLLOUTS.s_tm1[i, 0], ROLLOUTS.s_t[i, 0], ROLLOUTS.r_t[i, 0]
        a = jnp.argmax(s @ learner.params)
        q_sa = (s @ w)[a]
        delta = r + gamma * np.max(s_prime @ w) * (1 - done) - q_sa
        grad = np.outer(s, np.eye(w.shape[1])[a])
        e = e * gamma * 0.8 + grad
        delta_bar = max(abs(delta), 1.0)
        dot_product = delta_bar * np.sum(np.abs(e)) * 1.0 * 2.0
        step_size = 1.0 / dot_product if dot_product > 1 else 1.0
        w = w + step_size * delta * e
        e = e * (1 - done)
        step = SimpleNamespace(s_tm1=s, a_tm1=a, r_t=r, s_t=s_prime)
        step.discount_t = gamma * (1.0 - done)
        learner = streaming.stream_q(learner, lambda w, s: s @ w, step)
        np.testing.assert_allclose(learner.params, w, rtol=1e-4, atol=1e-6)


def test_updates_of_differential_td():
    """abhisheknaik96/average-reward-methods@ecfef0a, agents/prediction_agents.py."""
    weights, avg_reward, alpha_w, eta = normal(4), 0.5, 0.025, 0.125
    params, rate = weights, avg_reward
    for i in range(B):
        past_state, state, reward = (
            x[i, 0] for x in (ROLLOUTS.s_tm1, ROLLOUTS.s_t, ROLLOUTS.r_t)
        )
        delta = reward - avg_reward + weights @ state - weights @ past_state
        weights = weights + alpha_w * delta * past_state
        avg_reward = avg_reward + eta * alpha_w * delta
        step = SimpleNamespace(s_tm1=past_state, s_t=state, r_t=reward)
        settings = {"step_size": alpha_w, "eta": eta}
        params, rate = streaming.differential_td(
            params, rate, lambda w, s: w @ s, step, **settings
        )
        np.testing.assert_allclose(params, weights, rtol=1e-5)
        np.testing.assert_allclose(rate, avg_reward, rtol=1e-5)


# --- Searches. ---


@pytest.mark.parametrize("period", [2, 3, 5])
@pytest.mark.parametrize("limit", [0.4, 9.0])  # Particles end beyond it.
def test_search_of_spo(period, limit):
    """EdanToledo/Stoix@8fff19c, stoix/systems/spo/ff_spo.py: rollout.

    Particles are sampled systematically here. Advantages are compared where none ends.
    """
    n, depth, temperature = 6, 4, 0.7

    def policy(key, s):
        logits = jnp.stack([jnp.sin(s), jnp.cos(s), s], axis=-1)
        return jax.random.categorical(key, logits), jnp.sin(3 * s)

    def step(s, a):
        s = 0.9 * s + 0.4 * (a - 1)
        return s, jnp.cos(5 * s), jnp.where(jnp.abs(s) > limit, 0.0, 1.0)

    def search(key):
        return policy_gradient.smc_search(
            key, policy, step, jnp.float32(0.2), temperature, n, depth, period
        )

    found = jax.jit(search)(KEY)
    act_key, key = jax.random.split(KEY)
    embedding = jnp.full(n, 0.2)
    sampled_action, value = policy(act_key, embedding)
    root_actions, terminal = sampled_action, jnp.zeros(n, bool)
    resample_td_weights, gae, ended = jnp.zeros(n), jnp.zeros(n), False
    for current_depth, step_key in enumerate(jax.random.split(key, depth)):
        act_key, resample_key = jax.random.split(step_key)
        embedding, reward, discount = step(embedding, sampled_action)
        sampled_action, next_value = policy(act_key, embedding)
        next_value = discount * next_value
        td_error = reward + next_value - value
        resample_td_weights += td_error * (1 - terminal)
        gae += td_error * discount**current_depth
        terminal, value = terminal | (discount == 0), next_value
        ended = ended or jnp.any(terminal)
        if (current_depth + 1) % period == 0:
            weights = jax.nn.softmax(resample_td_weights / temperature)
            i = rlaxlib.systematic_resample(resample_key, weights)
            particles = embedding, sampled_action, root_actions, terminal, value
            particles = jax.tree.map(lambda x, i=i: x[i], particles)
            embedding, sampled_action, root_actions, terminal, value = particles
            resample_td_weights = jnp.zeros(n)
    weights = jax.nn.softmax(resample_td_weights / temperature)
    assert ended == (limit == 0.4)
    np.testing.assert_array_equal(found[0], root_actions)
    np.testing.assert_allclose(found[1], weights, rtol=1e-4)
    if limit == 9.0:
        np.testing.assert_allclose(found[2], gae, rtol=1e-4, atol=1e-6)
