"""Test what the recipes return that is not a loss: steps, actions, plans, intervals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from experience import close
from plain_losses.common import Q_PARAMS, STREAM, Batch, Q, normal
from recipes import (
    constraints,
    curricula,
    evaluation,
    flows,
    goals,
    phases,
    plasticity,
)

import rlaxlib

OLD = STREAM._replace(logits_tm1=Q(Q_PARAMS[0], STREAM.s_tm1))
ADV, COST_ADV = normal(*STREAM.r_t.shape), normal(*STREAM.r_t.shape)


# --- Constraints. ---


@jax.jit
def step_of_cpo(excess, max_kl):
    """Return the divergence of a step, and the changes of the loss and of the cost."""
    cost_adv = ADV + COST_ADV  # What raises the reward raises the cost.
    inputs = Q_PARAMS[0], Q, OLD, ADV, cost_adv, excess
    params, outputs = constraints.cpo(*inputs, max_kl)
    loss = constraints.surrogate(params, Q, OLD, ADV) + jnp.mean(ADV)
    cost = constraints.surrogate(params, Q, OLD, -cost_adv) - jnp.mean(cost_adv)
    return outputs.kl, loss, cost


@pytest.mark.parametrize("max_kl", [1e-3, 0.1])
def test_the_line_search_of_cpo_holds_the_limit_of_the_cost(max_kl):
    def search(excess):
        kl, loss, cost = step_of_cpo(excess, max_kl)
        assert kl <= max_kl
        return loss, cost

    _, free = search(-10.0)
    assert free > 0
    for share in (0.0, 0.1, 0.5):
        loss, cost = search(-share * free)
        assert cost <= share * free + 1e-6
        assert loss < 0 or share == 0  # The cost is a limit only to first order.
    assert search(10.0)[1] < 0


# --- Goals. ---


THIRD = np.arange(6) == 2
TERMINATED = {"discount_t": 0.9 * ~THIRD, "truncated_t": None}
CUT = {"discount_t": np.full(6, 0.9), "truncated_t": THIRD}
two_episodes = pytest.mark.parametrize(
    "episodes",
    [
        Batch(**ends, sample_mask=None, goal=None, r_t=None)
        for ends in (TERMINATED, CUT)
    ],
    ids=["terminated", "cut"],
)


@two_episodes
def test_geometric_goals_are_later_achievements_of_the_episode(episodes):
    achieved = np.arange(6)
    goal = goals.geometric_goals(jax.random.key(0), episodes, achieved)
    assert np.all(goal >= achieved)
    assert np.all(goal <= np.repeat([2, 5], 3))


def test_values_by_mrn_are_minus_distances_to_the_goal():
    w = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    s, goal = np.random.default_rng(1).normal(size=(2, 5, 3)).astype(np.float32)
    change = (s - goal) @ w
    expected = -np.linalg.norm(change[:, :2], axis=1)
    expected -= np.maximum(0, np.max(change[:, 2:], axis=1))
    close(goals.mrn_value(w, lambda w, s: s @ w, s, goal), expected)


# --- Flows. ---


def test_flows_and_diffusions_of_exact_networks_generate_the_actions():
    s, goal = np.zeros((50, 1), np.float32), jnp.array([0.5, -0.25])
    noise = jax.random.normal(jax.random.key(0), (50, 2))

    def velocity(params, s, x, t):
        return (goal[None] - x) / (1 - t)[:, None]

    target = jnp.broadcast_to(goal, noise.shape)
    close(flows.flow_action(None, velocity, s, noise), target)
    shares = rlaxlib.cosine_noise_schedule(20)

    def predict(params, s, x, k):
        share = shares[k][:, None]
        return (x - jnp.sqrt(share) * goal[None]) / jnp.sqrt(1 - share)

    a = flows.diffusion_action(None, predict, s, jax.random.key(1), 2, num_steps=20)
    np.testing.assert_allclose(a, target, atol=1e-3)


def test_the_best_policy_is_chosen():
    psi = np.float32([[[1, 0], [0, 1]], [[0, 0], [0, 3]]])
    assert evaluation.gpi_action(psi, np.float32([2.0, 1.0])) == 1
    assert evaluation.gpi_action(psi, np.float32([4.0, 1.0])) == 0


# --- Plans and intervals. ---


def trajectories(count, wrong):
    """Return two rewards, the second random, and wrong or exact values."""
    rng = np.random.default_rng(0)
    a = rng.integers(2, size=(count, 2))
    r = a + rng.normal(size=a.shape) * np.array([0, 1])
    rho = np.where(a == 1, 1.6, 0.4)  # 0.8 and 0.2, behaviour 0.5.
    v = np.broadcast_to([1.6, 0.8], a.shape) + wrong
    q = a + np.array([0.8, 0]) + wrong
    discount = np.broadcast_to([1.0, 0.0], a.shape)
    data = {"rho_tm1": rho, "r_t": r, "discount_t": discount, "q_tm1": q, "v_tm1": v}
    return {name: jnp.asarray(x, jnp.float32) for name, x in data.items()}


def test_magic_takes_the_values_if_they_are_exact_and_the_rewards_otherwise():
    key, magic = jax.random.key(0), jax.jit(evaluation.magic)
    value, weights = magic(key, trajectories(500, wrong=0.0))
    np.testing.assert_allclose(value, 1.6, atol=0.02)
    assert weights[0] + weights[1] > 0.9
    value, weights = magic(key, trajectories(500, wrong=3.0))
    np.testing.assert_allclose(value, 1.6, atol=0.2)
    assert weights[-1] > 0.9


def test_the_weights_of_magic_are_those_of_a_solver():
    x = np.random.default_rng(1).normal(size=(6, 5))
    error = (x.T @ x).astype(np.float32)
    weights = evaluation.least_error_weights(error)
    solution = scipy.optimize.minimize(
        lambda w: w @ error @ w,
        np.full(5, 0.2),
        bounds=[(0, 1)] * 5,
        constraints={"type": "eq", "fun": lambda w: np.sum(w) - 1},
    )
    np.testing.assert_allclose(weights, solution.x, atol=2e-3)


def test_scores_have_intervals_that_contain_them():
    key, scores = jax.random.key(0), jax.random.uniform(jax.random.key(1), (10, 4))
    found = jax.jit(evaluation.score_intervals)(key, scores)
    assert set(found) == {"interquartile_mean", "optimality_gap"}
    better = jax.jit(evaluation.improvement_interval)(key, scores + 0.3, scores)
    for value, low, high in (*found.values(), better):
        assert low < value < high
    assert better[1] > 0.5


def test_recycling_and_partial_resets_of_weights():
    activations = np.float32([[0, 1], [0, 3]])
    w_in, w_out, fresh = np.ones((3, 2)), np.ones((2, 4)), np.full((3, 2), 7.0)
    weights = (x.astype(np.float32) for x in (w_in, w_out, fresh))
    w_in, w_out = plasticity.redo(activations, *weights)
    np.testing.assert_array_equal(w_in, [[7, 1]] * 3)
    np.testing.assert_array_equal(w_out, [[0] * 4, [1] * 4])
    close(plasticity.partial_reset(jnp.ones(2), jnp.full(2, 6.0)), 2.0)


def test_an_interval_contains_its_estimate():
    rng = np.random.default_rng(0)
    data = {
        "rho_tm1": rng.uniform(0.5, 1.5, (50, 3)).astype(np.float32),
        "r_t": rng.normal(size=(50, 3)).astype(np.float32),
        "discount_t": np.full((50, 3), 0.9, np.float32),
    }
    value, low, high = evaluation.value_interval(jax.random.key(0), data)
    assert low < value < high
    close(value, rlaxlib.off_policy_evaluation(**data))


def test_observations_and_rewards_have_a_scale_of_one():
    rng = np.random.default_rng(0)
    s = (3 + 2 * rng.normal(size=(500, 2))).astype(np.float32)
    r_t, discount_t = (7 * rng.normal(size=500)).astype(np.float32), np.zeros(500)
    moments = rlaxlib.running_moments().init(s[0])
    scale = rlaxlib.reward_scale().init(r_t)
    s, r_t, *_ = phases.normalize(s, r_t, discount_t.astype(np.float32), moments, scale)
    np.testing.assert_allclose(np.mean(s, axis=0), 0, atol=0.01)
    np.testing.assert_allclose(np.std(s, axis=0), 1, atol=0.01)
    np.testing.assert_allclose(np.std(r_t), 1, atol=0.01)


# --- Curricula. ---


def rollout_mean(dones, metric):
    """DramaCow/jaxued@0f8f128, src/jaxued/utils.py: accumulate_rollout_stats."""
    total = count = so_far = steps = 0
    for done, x in zip(dones, metric, strict=True):
        so_far, steps = so_far + x, steps + 1
        total, count = total + done * so_far / steps, count + done
        so_far, steps = (1 - done) * so_far, (1 - done) * steps
    return total / max(count, 1)


def test_scores_of_levels_are_those_of_jaxued():
    rng = np.random.default_rng(0)
    dones = np.array([[0, 1, 0, 0, 1, 0], [0, 0, 0, 1, 1, 0]], bool)
    v_tm1, v_t, r_t = rng.normal(size=(3, 2, 6)).astype(np.float32)
    batch = Batch(
        v_tm1=v_tm1,
        v_t=v_t,
        r_t=r_t,
        discount_t=(0.9 * ~dones).astype(np.float32),
        truncated_t=np.zeros((2, 6), bool),
        sample_mask=np.ones((2, 6), bool),
    )
    most = np.float32([2.0, 3.0])
    regrets = most[:, None] - v_tm1
    expected = [rollout_mean(*each) for each in zip(dones, regrets, strict=True)]
    close(curricula.plr_scores(batch, most), expected)
    adv = np.zeros((2, 7))
    for t in reversed(range(6)):
        delta = r_t[:, t] + batch.discount_t[:, t] * v_t[:, t] - v_tm1[:, t]
        adv[:, t] = delta + 0.98 * batch.discount_t[:, t] * adv[:, t + 1]
    expected = [
        rollout_mean(d, np.maximum(a[:6], 0)) for d, a in zip(dones, adv, strict=True)
    ]
    np.testing.assert_allclose(curricula.accel_scores(batch), expected, rtol=1e-5)


def level_weights(scores, ages, size, temperature, staleness):
    """DramaCow/jaxued@0f8f128, src/jaxued/level_sampler.py."""
    mask = np.arange(len(scores)) < size
    order = np.argsort(-np.where(mask, scores, -np.inf), kind="stable")
    ranks = np.empty(len(scores), int)
    ranks[order] = np.arange(len(scores)) + 1
    by_score = np.where(mask, 1 / ranks, 0) ** (1 / temperature)
    by_age = np.where(mask, ages, 0)
    return (1 - staleness) * by_score / by_score.sum() + staleness * (
        by_age / by_age.sum()
    )


@pytest.mark.parametrize("size", [3, 4])
@pytest.mark.parametrize("score", [0.05, 0.3])
def test_levels_are_inserted_as_jaxued_does(size, score):
    scores = np.float32([0.1, 0.4, 0.2, 0.3]) * (np.arange(4) < size)
    ages = np.float32([1, 1, 8, 2])
    buffer = curricula.Levels(np.arange(4), scores, ages, np.arange(4) < size)
    buffer = jax.tree.map(jnp.asarray, buffer)
    after = curricula.plr_insert(buffer, 9, score)
    weights = level_weights(scores, ages, size, 0.3, 0.3)
    place = 3 if size < 4 else np.argmin(weights)
    enters = size < 4 or score > scores[place]
    expected = np.where((np.arange(4) == place) & enters, 9, np.arange(4))
    np.testing.assert_array_equal(after.levels, expected)
    assert after.exists.all()


def test_levels_are_replayed_by_rank_and_age_and_are_young_thereafter():
    scores, ages = np.float32([0.1, 0.4, 0.2, 9.0]), np.float32([1, 0, 8, 5])
    buffer = curricula.Levels(np.arange(4), scores, ages, np.arange(4) < 3)
    buffer = jax.tree.map(jnp.asarray, buffer)
    indices, after = curricula.plr_replay(jax.random.key(0), buffer, 20_000)
    shares = np.bincount(indices, minlength=4) / 20_000
    expected = level_weights(scores, ages, 3, 0.3, 0.3)
    np.testing.assert_allclose(shares, expected, atol=0.01)
    np.testing.assert_array_equal(after.ages, [0, 0, 0, 6])


def test_levels_of_sfl_are_solved_half_of_the_time():
    is_success = np.array(
        [[1, 1, 1, 1], [1, 0, 1, 0], [0, 0, 0, 0], [1, 0, 0, 0]], bool
    )
    batch = Batch(
        is_success=is_success,
        discount_t=np.zeros((4, 4), np.float32),
        truncated_t=np.zeros((4, 4), bool),
        sample_mask=None,
    )
    levels, scores = curricula.sfl_levels(np.arange(10, 14), batch, 2)
    np.testing.assert_array_equal(levels, [11, 13])
    close(scores, [0.25, 3 / 16])
    first = batch._replace(sample_mask=np.arange(4) + np.zeros((4, 1)) < 1)
    close(curricula.sfl_levels(np.arange(10, 14), first, 4)[1], np.zeros(4))


# --- Chunks. ---


def test_a_chunk_ends_with_its_episode_and_before_padding():
    def mask(**changes):
        return flows.chunks(STREAM._replace(**changes)).sample_mask

    shape = STREAM.r_t.shape
    steps = np.zeros((len(STREAM.r_t), 1), int) + np.arange(shape[1])
    plain = {"discount_t": np.full(shape, 0.9), "truncated_t": None}
    plain |= {"sample_mask": None}
    assert mask(**plain).all()
    for end in ({"discount_t": 0.9 * (steps != 2)}, {"truncated_t": steps == 2}):
        np.testing.assert_array_equal(mask(**plain | end), steps <= 2)
    gap = steps != 2
    padded = plain | {"sample_mask": gap}
    np.testing.assert_array_equal(mask(**padded), steps < 2)
    a_tm1 = np.where(gap, STREAM.r_t, np.nan)[..., None]
    chunks = flows.chunks(STREAM._replace(a_tm1=a_tm1, **padded))
    close(chunks.a_tm1, np.where(gap, STREAM.r_t, 0.0))
