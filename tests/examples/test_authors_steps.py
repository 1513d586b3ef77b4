"""Test recipes that are not losses beside their authors' code, transcribed.

Each transcription names its file, and where it stands in the recipe's docstring.
"""

from functools import cache, partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from plain_losses import exploration as explored
from plain_losses import imitation as imitated
from plain_losses.common import KEY, Q_PARAMS, ROLLOUTS, B, D, Q, T, normal, pick
from plain_losses.flows import CRITICS as CRITICS_OF_FLOWS
from plain_losses.flows import PARAMS as FIELDS
from plain_losses.flows import field, two_critics, vp_beta_schedule
from plain_losses.planning import CRITICS, MODEL, PARAMS, SEQUENCES, two_hot_inv
from recipes import (
    constraints,
    continuous,
    evaluation,
    exploration,
    flows,
    goals,
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


def obtain_solution(key, cost_function, init_mean, init_var):
    """Return the mean of the CEM of PETS: popsize 100, num_elites 10, alpha 0.1."""
    mean, var, lb, ub = init_mean, init_var, -1.0, 1.0
    for each in jax.random.split(key, 5):
        if np.max(var) <= 0.001:
            break
        lb_dist, ub_dist = mean - lb, ub - mean
        constrained_var = np.minimum(np.square(lb_dist / 2), np.square(ub_dist / 2))
        constrained_var = np.minimum(constrained_var, var)
        noise = jax.random.truncated_normal(each, -2, 2, (100, *mean.shape))
        samples = np.asarray(noise) * np.sqrt(constrained_var) + mean
        elites = samples[np.argsort(cost_function(samples))][:10]
        mean = 0.1 * mean + (1 - 0.1) * np.mean(elites, axis=0)
        var = 0.1 * var + (1 - 0.1) * np.var(elites, axis=0)
    return mean


# The second one is certain before the last iteration.
@pytest.mark.parametrize("init_var", [0.25, 0.01])
def test_plan_of_pets(init_var):
    """kchua/handful-of-trials@77fd880, dmbrl/misc/optimizers/cem.py, MPC.py: act."""
    best, mean = 2 * normal(T, D), jnp.tanh(normal(T, D))

    def cost_function(actions):
        return np.sum((np.asarray(actions) - np.asarray(best)) ** 2, axis=(1, 2))

    soln = obtain_solution(KEY, cost_function, np.asarray(mean), np.full(2, init_var))
    plan = rlaxlib.PlanState(mean, jnp.full((T, D), init_var**0.5))
    action, after = planning.pets_action(
        KEY, lambda a: -jnp.sum((a - best) ** 2, axis=(1, 2)), plan, num_samples=100
    )
    np.testing.assert_allclose(action, soln[0], rtol=1e-4, atol=1e-5)
    prev_sol = np.concatenate([soln[1:], np.zeros((1, D))])
    np.testing.assert_allclose(after.mean, prev_sol, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(after.stddev, np.sqrt((1 + 1) ** 2 / 16), rtol=1e-6)


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


@cache
def fisher():
    """Return the Hessian of the divergence with damping, [F * A, F * A]."""
    size = Q_PARAMS[0].size
    hessian = jax.jit(jax.hessian(mean_kl))(Q_PARAMS[0]).reshape(size, size)
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
    step = jax.jit(lambda w: constraints.trpo(w, Q, NEAR, ADV, max_kl))
    found, outputs = step(Q_PARAMS[0])
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(outputs.kl, mean_kl(found), rtol=1e-3)


@jax.jit
def direction_of_cpo(c, max_kl):
    inputs = Q_PARAMS[0], Q, NEAR, ADV, COST_ADV, c
    return constraints.cpo_direction(*inputs, max_kl, damping=0.1)


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
    found = direction_of_cpo(c, max_kl)
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


@pytest.mark.parametrize("ratio", [0.3, 0.68, 0.75, 1.0, 1.4, 1.6, 4.0])
def test_coefficient_of_the_kl_penalty(ratio):
    """The paper's section 4, and joschu/modular_rl@6970cde, modular_rl/ppo.py."""
    new, old = (np.asarray(Q(w, NEAR.s_tm1))[STEPS] for w in Q_PARAMS[::-1])
    prob, oldprob = (np.exp(x) / np.sum(np.exp(x), axis=1)[:, None] for x in (new, old))
    klafter = np.mean(np.sum(oldprob * (np.log(oldprob) - np.log(prob)), axis=1))
    target, beta, kl_coeff = klafter / ratio, 3.0, 3.0
    if klafter < target / 1.5:
        beta = beta / 2
    elif klafter > target * 1.5:
        beta = beta * 2
    if klafter > 1.3 * target:
        kl_coeff *= 1.5
    elif klafter < 0.7 * target:
        kl_coeff /= 1.5
    inputs = 3.0, Q_PARAMS[1], lambda w, s: (Q(w, s), None), NEAR, target
    found = policy_gradient.kl_coefficient(*inputs)
    np.testing.assert_allclose(found, beta, rtol=1e-6)
    differs = ratio in (0.68, 1.4)  # Between the bounds of the paper and the code.
    assert differs == (np.sign(beta - 3) != np.sign(kl_coeff - 3))


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
    state = jax.vmap(rlaxlib.reward_scale().init)(jnp.zeros(B))
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


def compute_bonus(embeddings, k=10):
    """Return the bonuses of EpisodicBonusModule, with d_m² of all steps so far."""
    memory, total, count, bonuses = [], 0.0, 0, []
    for embedding in np.asarray(embeddings, np.float64):
        memory.append(embedding)
        if len(memory) <= k:
            bonuses.append(0.0)
            continue
        nn_distances_sq = np.sum((np.array(memory[:-1]) - embedding) ** 2, axis=1)
        nn_distances_sq = np.sort(nn_distances_sq)[:k]
        total, count = total + np.sum(nn_distances_sq), count + k
        distance_rate = nn_distances_sq / (total / count + 1e-8)
        distance_rate = np.maximum(distance_rate - 0.008, 0.0)
        kernel_output = 0.0001 / (distance_rate + 0.0001)
        similarity = np.sqrt(np.sum(kernel_output)) + 0.001
        bonuses.append(0.0 if similarity > 8.0 else 1 / similarity)
    return np.array(bonuses)


def test_rewards_of_ngu():
    """michaelnny/deep_rl_zoo@19e3844: EpisodicBonusModule, and intrinsic_reward.

    deep_rl_zoo/curiosity.py and deep_rl_zoo/ngu/agent.py. Steps to ignore are not of
    the episode. The mean of distances begins with the eleventh step there, with the
    first one here: the memory is given 11 embeddings before.
    """
    x, errors = normal(40, 3), np.abs(normal(40))
    x[20:30] = 1.0
    mask, std = np.arange(40) % 7 != 3, 0.4
    lifelong_bonus_t = np.asarray(errors) / std
    episodic_bonus_t = np.zeros(40)
    episodic_bonus_t[mask] = compute_bonus(x[mask])
    expected = episodic_bonus_t * np.minimum(np.maximum(lifelong_bonus_t, 1.0), 5.0)
    memory = rlaxlib.IntrinsicRewardState(jnp.full((50, 3), jnp.inf))
    started = np.cumsum(mask) > 10
    first = exploration.ngu_rewards(x, errors, memory, (std, std), mask & ~started)[1]
    first = first._replace(distance_sum=0.0, distance_count=0)
    found, _ = exploration.ngu_rewards(x, errors, first, (std, std), mask & started)
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=1e-5)
    assert np.sum(expected > 0) > 20


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

S, S_PRIME = ROLLOUTS.s_tm1, ROLLOUTS.s_t


def test_updates_of_stream_q():
    """mohmdelsayed/streaming-drl@407dca7, stream_q.py and optim.py: ObGD."""
    w, e, gamma = Q_PARAMS[0], np.zeros_like(Q_PARAMS[0]), 0.9
    learner = streaming.Learner(w, jnp.zeros_like(w))
    steps = [(False, 0), (False, 1), (False, 0), (True, 0), (False, 0), (False, 1)]
    for i, (done, is_nongreedy) in enumerate(steps):
        s, s_prime, r = (x[i % B, i // B] for x in (S, S_PRIME, ROLLOUTS.r_t))
        a = (jnp.argmax(s @ learner.params) + is_nongreedy) % w.shape[1]
        q_sa = (s @ w)[a]
        delta = r + gamma * np.max(s_prime @ w) * (1 - done) - q_sa
        grad = np.outer(s, np.eye(w.shape[1])[a])
        e = e * gamma * 0.8 + grad
        delta_bar = max(abs(delta), 1.0)
        dot_product = delta_bar * np.sum(np.abs(e)) * 1.0 * 2.0
        step_size = 1.0 / dot_product if dot_product > 1 else 1.0
        w = w + step_size * delta * e
        e = e * (1 - (done or is_nongreedy))
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


# --- Goals: HER, openai/baselines@ea25b9e, baselines/her/her_sampler.py. ---


def sample_her_transitions(rng, ag, g, batch_size, replay_k=4):
    """Return steps and goals of transitions of one episode; `ag` has T + 1 goals."""
    steps = len(ag) - 1
    future_p = 1 - (1.0 / (1 + replay_k))
    t_samples = rng.integers(steps, size=batch_size)
    desired = np.repeat(g, batch_size)
    her_indexes = np.where(rng.uniform(size=batch_size) < future_p)
    future_offset = rng.uniform(size=batch_size) * (steps - t_samples)
    future_t = (t_samples + 1 + future_offset.astype(int))[her_indexes]
    desired[her_indexes] = ag[future_t]
    return t_samples, desired


@pytest.mark.parametrize("terminates", [True, False])
def test_goals_of_her(terminates):
    """Of two episodes in one stream, with a step to ignore between."""
    end = np.arange(6) == 1
    batch = ROLLOUTS._replace(
        discount_t=jnp.asarray(0.9 * (1 - end * terminates), jnp.float32),
        truncated_t=None if terminates else jnp.asarray(end),
        sample_mask=np.arange(6) != 2,
        goal=jnp.full(6, 9),
    )
    achieved_t = jnp.arange(10, 16)

    def reward_fun(achieved, goal):
        return jnp.where(achieved == goal, 0.0, -1.0)

    keys = jax.random.split(KEY, 20_000)
    found = jax.vmap(lambda key: goals.her(key, batch, achieved_t, reward_fun))(keys)
    rng = np.random.default_rng(0)
    for first, last in ((0, 2), (3, 6)):
        ag = np.arange(9 + first, 10 + last)  # One before the first step too.
        t, expected = sample_her_transitions(rng, ag, 9, 60_000)
        for k in range(last - first):
            bins = np.arange(9, 17)
            shares = (
                np.histogram(x, bins, density=True)[0]
                for x in (found.goal[:, first + k], expected[t == k])
            )
            np.testing.assert_allclose(*shares, atol=0.02)
    np.testing.assert_array_equal(found.r_t, reward_fun(achieved_t, found.goal))


# --- Flows: IDQL, philippe-eecs/IDQL@7582571. ---


def ddpm_sampler(rng, actor, observations, timesteps):
    """Return actions, as jaxrl5/networks/diffusion.py."""
    betas = vp_beta_schedule(timesteps)
    alphas, alpha_hats = 1 - betas, np.cumprod(1 - betas)
    noise = jax.random.normal(rng, (timesteps + 1, len(observations), D))
    current_x = noise[0]
    for z, time in zip(noise[1:], range(timesteps - 1, -1, -1), strict=True):
        eps_pred = actor(observations, current_x, jnp.full(len(current_x), time))
        alpha_1 = 1 / np.sqrt(alphas[time])
        alpha_2 = (1 - alphas[time]) / np.sqrt(1 - alpha_hats[time])
        current_x = alpha_1 * (current_x - alpha_2 * eps_pred)
        current_x = current_x + (time > 0) * (np.sqrt(betas[time]) * z)
        current_x = jnp.clip(current_x, -1, 1)
    return current_x


def test_actions_of_idql():
    """eval_actions of jaxrl5/agents/ddpm_iql/ddpm_iql_learner.py, 64 samples."""
    observations = jnp.repeat(S[:1, 0], 64, axis=0)
    actions = ddpm_sampler(KEY, partial(field, FIELDS[0]), observations, 5)
    qs = jnp.min(two_critics(CRITICS_OF_FLOWS[0], observations, actions), axis=1)
    action = actions[jnp.argmax(qs)]
    samples = flows.score_action(FIELDS[0], field, observations, KEY, D)
    np.testing.assert_allclose(samples, actions, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(flows.idql_action(qs, samples), action, atol=1e-5)
    assert np.any(np.abs(samples) == 1)
    assert np.any(np.abs(samples) < 1)


# --- Evaluation: MAGIC, clvoloshin/COBS@bc76441, ope/algos/magic.py. ---


def calculate_step_return(rewards, discounts, weights, earlier, v, q, j_step):
    """Return the estimates of trajectories, [N], whose sum is that of j_step."""
    length = rewards.shape[1]
    j_step = int(min(j_step, length - 1))
    weighted, weighted_earlier = discounts * weights, discounts * earlier
    reward = np.sum(weighted[:, : j_step + 1] * rewards[:, : j_step + 1], axis=1)
    direct = np.zeros(len(rewards))
    if j_step < length - 1:
        direct = weighted_earlier[:, j_step + 1] * v[:, j_step + 1]
    control = np.sum(
        weighted[:, : j_step + 1] * q[:, : j_step + 1]
        - weighted_earlier[:, : j_step + 1] * v[:, : j_step + 1],
        axis=1,
    )
    return reward + direct - control


def step_returns(data):
    """Return the estimates of trajectories, [J, N], for each number of rewards."""
    rho, r, _, q, v = (np.asarray(x, np.float64) for x in data.values())
    weights = np.cumprod(rho, axis=1)
    weights = weights / np.sum(weights, axis=0)
    earlier = np.hstack([np.full((len(r), 1), 1 / len(r)), weights[:, :-1]])
    discounts = 0.9 ** np.arange(r.shape[1])
    inputs = r, discounts, weights, earlier, v, q
    steps = range(-1, r.shape[1])
    return np.array([calculate_step_return(*inputs, j) for j in steps])


def test_estimates_of_magic():
    """`evaluate` and `compute_weighted_doubly_robust_point_estimate`.

    With the paper's covariance, that of the sums, and its products of biases.
    """
    rng = np.random.default_rng(0)
    shape, kinds = (400, 3), ("rho_tm1", "r_t", "discount_t", "q_tm1", "v_tm1")
    r_t = 1 + rng.normal(size=shape)
    values = np.broadcast_to([2.4, 1.7, 0.9], shape) + 0.3 * rng.normal(size=shape)
    arrays = (
        rng.uniform(0.3, 1.7, shape),
        r_t,
        np.full(shape, 0.9),
        values,
        values + 0.1,
    )
    data = dict(zip(kinds, map(np.float32, arrays), strict=True))
    trajectories = step_returns(data)
    x = np.sum(trajectories, axis=1)
    np.testing.assert_allclose(evaluation.partial_estimates(data), x, rtol=1e-4)
    rows = rng.integers(400, size=(1000, 400))
    ends = [np.sum(step_returns({k: y[i] for k, y in data.items()})[-1]) for i in rows]
    low, high = np.quantile(ends, [0.25, 0.75])
    bias = x - np.clip(x, min(low, x[-1]), max(high, x[-1]))
    error = 400 * np.cov(trajectories) + np.outer(bias, bias)
    result = scipy.optimize.minimize(
        lambda w: 1e3 * w @ error @ w,
        np.full(len(x), 1 / len(x)),
        bounds=[(0, 1)] * len(x),
        constraints={"type": "eq", "fun": lambda w: np.sum(w) - 1.0},
    )
    value, weights = jax.jit(partial(evaluation.magic, num_samples=1000))(KEY, data)
    np.testing.assert_allclose(value, result.x @ x, atol=0.02)
    np.testing.assert_allclose(weights, result.x, atol=0.15)
    assert np.max(result.x) < 0.95


# --- REPPO: cvoelcker/reppo@a7ab85b, src/jaxrl/reppo.py. ---


def test_targets_of_reppo():
    rng = np.random.default_rng(0)
    reward, value, log_prob = rng.normal(size=(3, B, T)).astype(np.float32)
    done, truncated = np.zeros((2, B, T), bool)
    done[0, 2] = truncated[1, 2] = True
    log_prob = np.where(done, 0, log_prob)  # In the code an entropy follows the end.
    soft_reward = reward - 0.9 * log_prob * 0.2
    lambda_return, cut, target_values = value[:, -1], np.ones(B, bool), []
    for t in reversed(range(T)):
        lambda_sum = 0.95 * lambda_return + (1 - 0.95) * value[:, t]
        delta = 0.9 * np.where(cut, value[:, t], (1.0 - done[:, t]) * lambda_sum)
        lambda_return = soft_reward[:, t] + delta
        cut = truncated[:, t - 1]  # In the code, that of step t.
        target_values.append(lambda_return)
    batch = SimpleNamespace(r_t=reward, v_t=value, log_prob_t=log_prob)
    batch.discount_t, batch.truncated_t = np.float32(0.9) * ~done, truncated
    fields = {
        name: np.pad(x, ((0, 0), (0, 2)), constant_values=np.nan if i < 4 else 0)
        for i, (name, x) in enumerate(vars(batch).items())
    }
    batch.sample_mask = None
    found = continuous.reppo_targets(batch, 0.2)
    np.testing.assert_allclose(found, np.stack(target_values[::-1], 1), rtol=1e-5)
    valid = np.zeros((B, 1), bool) | (np.arange(T + 2) < T)
    padded = SimpleNamespace(**fields, sample_mask=valid)
    again = continuous.reppo_targets(padded, 0.2)[:, :T]
    np.testing.assert_allclose(again, found, rtol=1e-5)


# --- BBF: google-research/google-research@1d4d2f1,
# bigger_better_faster/bbf/agents/spr_agent.py. ---


def exponential_decay(step, initial_value, final_value, decay_period=10_000):
    """Return the value of `exponential_decay_scheduler`, without a warm-up."""
    start, end = np.log(initial_value), np.log(final_value)
    bonus = np.clip((decay_period - step) / decay_period, 0.0, 1.0)
    return np.exp(bonus * (start - end) + end)


@pytest.mark.parametrize("step", [0, 1_000, 4_321, 9_999, 10_000, 30_000])
def test_schedules_of_bbf(step):
    n, discount = planning.bbf_schedule(step)
    assert n == int(np.round(exponential_decay(step, 1, 3 / 10) * 10))
    gamma = 1 - exponential_decay(step, 1 - 0.97, 1 - 0.997)
    np.testing.assert_allclose(discount, gamma, rtol=1e-6)


def test_reset_of_bbf():
    params, random_params = (
        {name: normal(2, 3) for name in ("encode", "next", "q")} for _ in range(2)
    )
    found = planning.bbf_reset(params, random_params, keep=0.8)
    for name in ("encode", "next"):
        combined = params[name] * 0.8 + random_params[name] * 0.2
        np.testing.assert_allclose(found[name], combined, rtol=1e-6)
    np.testing.assert_array_equal(found["q"], random_params["q"])


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
