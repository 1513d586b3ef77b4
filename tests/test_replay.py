"""Test replay: sampling frequencies, limits and invalid arguments."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

NAN = np.nan
prioritized_probabilities = jax.jit(
    rlaxlib.prioritized_probabilities, static_argnames="axis_name"
)
rank_probabilities = jax.jit(rlaxlib.rank_probabilities)
sequence_priority = jax.jit(rlaxlib.sequence_priority)
importance_sampling_weights = jax.jit(
    rlaxlib.importance_sampling_weights, static_argnames="axis_name"
)
systematic_resample = jax.jit(
    rlaxlib.systematic_resample, static_argnames="num_samples"
)


def keys(count, seed=0):
    return jax.random.split(jax.random.key(seed), count)


def draw(function, count, *arguments, **settings):
    """Call a function with many keys, and return one result in each row."""
    call = functools.partial(function, **settings)
    draws = jax.jit(jax.vmap(lambda key: call(key, *arguments)))
    return np.asarray(draws(keys(count)))


def frequencies(indices, size):
    return np.bincount(indices.ravel(), minlength=size) / indices.size


# --- Probabilities and weights. ---


def test_exponent_of_zero_gives_equal_probabilities():
    priorities = np.float32([0, 1, 9, 5])
    for function in (prioritized_probabilities, rank_probabilities):
        np.testing.assert_array_equal(function(priorities, 0.0), 0.25)
        mask = np.array([True, True, False, False])
        np.testing.assert_array_equal(
            function(priorities, 0.0, sample_mask=mask), [0.5, 0.5, 0.0, 0.0]
        )


@pytest.mark.parametrize("scale", [1e-37, 1e-20, 1.0, 1e20, 1e37])
def test_scale_of_priorities_does_not_matter(scale):
    priorities = np.float32([1, 2, 0.5])
    expected = prioritized_probabilities(priorities, 3.0)
    scaled = np.float32(scale) * priorities
    close(prioritized_probabilities(scaled, 3.0), expected)


def test_priorities_of_zero_give_equal_probabilities():
    mask, zeros = np.array([True, False, True]), np.zeros(3, np.float32)
    probabilities = prioritized_probabilities(zeros, sample_mask=mask)
    np.testing.assert_array_equal(probabilities, [0.5, 0.0, 0.5])


@pytest.mark.parametrize(
    "function",
    [
        prioritized_probabilities,
        rank_probabilities,
        functools.partial(importance_sampling_weights, exponent=0.5),
        sequence_priority,
    ],
)
def test_masked_entries_may_hold_anything_and_all_may_be_masked(function):
    x, mask = np.float32([1, NAN, 3, -5]), np.array([True, False, True, False])
    result = np.asarray(function(x, sample_mask=mask))
    if result.ndim:
        assert np.all(result[~mask] == 0)
        result = result[mask]
    np.testing.assert_array_max_ulp(result, np.asarray(function(x[mask])))
    np.testing.assert_array_equal(function(x, sample_mask=mask & False), 0.0)


def test_rank_probabilities_depend_on_the_order_only():
    priorities = np.float32([-1, 7, 0, 2])
    expected = np.array([1 / 4, 1, 1 / 3, 1 / 2]) / (25 / 12)
    close(rank_probabilities(priorities, 1.0), expected)
    close(rank_probabilities(np.exp(priorities), 1.0), expected)


def test_a_masked_entry_has_no_rank_whatever_the_priorities():
    priorities = np.float32([3.0, 0.0, -7.0, 1.0])
    mask = np.array([True, False, True, True])
    found = rlaxlib.rank_probabilities(priorities, 1.0, sample_mask=mask)
    np.testing.assert_allclose(11 * found, [6, 0, 2, 3], rtol=1e-6)


def test_first_of_equal_priorities_ranks_highest():
    probabilities = rank_probabilities(np.float32([1, 2, 1, 2]), 1.0)
    assert np.argsort(-np.asarray(probabilities)).tolist() == [1, 3, 0, 2]


def test_exponent_of_one_removes_the_bias():
    probabilities = prioritized_probabilities(np.float32([1, 3, 4]), 0.7)
    weights = importance_sampling_weights(probabilities, 1.0)
    x = np.array([5.0, -1.0, 2.0])
    found = np.average(x, weights=np.asarray(probabilities) * np.asarray(weights))
    close(found, np.mean(x))


def test_weights_of_a_batch_are_those_of_the_buffer_but_for_the_largest():
    buffer = np.float32([0.1, 1, 2, 4]) / np.float32(7.1)
    weigh = importance_sampling_weights
    of_batch, whole = (np.asarray(weigh(x, 0.5)) for x in (buffer[1:], buffer))
    assert np.max(of_batch) == np.max(whole) == whole[0] == 1
    close(of_batch * whole[1], whole[1:])


def test_entry_of_probability_zero_has_weight_zero_and_does_not_scale_others():
    weights = importance_sampling_weights(np.float32([0, 0.2, 0.8]), 0.5)
    close(weights, [0.0, 1.0, 0.5])
    weights = importance_sampling_weights(np.float32([0, 0.2, 0.8]), 0.0)
    np.testing.assert_array_equal(weights, [0.0, 1.0, 1.0])


def test_smallest_normal_probability_has_a_finite_weight():
    tiny = float(jnp.finfo(jnp.float32).tiny)
    weights = importance_sampling_weights(np.float32([tiny, 1]), 1.0)
    np.testing.assert_allclose(weights, [1.0, tiny], rtol=1e-6)


def test_sequence_priority_interpolates_mean_and_maximum():
    td_errors = np.float32([1, -4, 1])
    close(sequence_priority(td_errors, mix=0.0), 2.0)
    close(sequence_priority(td_errors, mix=1.0), 4.0)
    close(sequence_priority(td_errors), 0.9 * 4 + 0.1 * 2)


def test_burn_in_does_not_change_the_estimates_after_it():
    r_t, v_t = np.float32([5, 1, 2, 3]), np.float32([NAN, 1, 1, 2])
    discount_t, mask = np.full(4, 0.5, np.float32), np.arange(4) >= 1
    lambda_returns = jax.jit(rlaxlib.lambda_returns)
    returns = lambda_returns(r_t, discount_t, v_t, 0.9, sample_mask=mask)
    expected = lambda_returns(r_t[1:], discount_t[1:], v_t[1:], 0.9)
    close(np.asarray(returns)[1:], expected)


# --- Sampling. ---


@pytest.mark.parametrize(
    "function", [rlaxlib.stratified_sample, rlaxlib.systematic_resample]
)
def test_samples_have_the_right_frequencies_and_low_variance(function):
    weights = np.float32([0, 3, 1, 0, 0.5, 2.5, 0])
    shares = weights / np.sum(weights)
    samples = draw(function, 4000, weights, num_samples=10)
    np.testing.assert_allclose(frequencies(samples, 7), shares, atol=0.005)
    assert np.all(np.diff(samples, axis=1) >= 0)
    counts = np.stack([np.bincount(row, minlength=7) for row in samples])
    assert np.all(counts[:, shares == 0] == 0)
    # An entry covers K P ranges, and may share the first and last with others.
    slack = 1 if function is rlaxlib.systematic_resample else 2
    assert np.all(np.abs(counts - 10 * shares) < slack)


def test_stratified_sampling_samples_once_from_each_range():
    samples = draw(
        rlaxlib.stratified_sample, 200, np.ones(12, np.float32), num_samples=4
    )
    np.testing.assert_array_equal(samples // 3, np.tile(np.arange(4), (200, 1)))


def test_equal_weights_give_each_particle_one_copy():
    weights = np.full(64, 0.3, np.float32)
    samples = draw(rlaxlib.systematic_resample, 200, weights)
    np.testing.assert_array_equal(samples, np.tile(np.arange(64), (200, 1)))


def test_entry_of_weight_zero_is_never_sampled():
    rng, size = np.random.default_rng(0), 100_000
    weights = rng.uniform(size=size) * (rng.uniform(size=size) < 0.3)
    weights[-size // 10 :] = 0  # The last point must not select one of these.
    weights = np.float32(weights)
    for key in keys(5):
        samples = np.asarray(systematic_resample(key, weights))
        assert np.all(weights[samples] > 0)


def test_points_at_the_end_select_the_last_entry_with_a_weight():
    invert = jax.jit(rlaxlib.replay._invert, static_argnames="num_samples")
    samples = invert(np.float32([1.0, 1.0, 0.0]), np.float32(1.0), num_samples=2)
    assert samples.tolist() == [1, 1]


@pytest.mark.parametrize(
    "function",
    [
        functools.partial(rlaxlib.stratified_sample, num_samples=2),
        rlaxlib.systematic_resample,
    ],
)
def test_weights_of_zero_give_the_out_of_range_index(function):
    samples = jax.jit(function)(jax.random.key(0), np.zeros(2, np.float32))
    np.testing.assert_array_equal(samples, 2)


# --- Hindsight experience replay. ---

# Steps that terminate (0) or truncate (x) the episode, and valid steps (1).
EPISODES = [
    (".....", "11111"),
    ("..0.0", "11111"),
    ("0x0x0", "11111"),
    (".x...", "11111"),
    (".....", "10101"),
    (".0.0.", "10101"),  # A masked step does not terminate.
    (".x.x.", "10101"),
    ("..x..", "00100"),
    ("..x..", "11011"),
    (".....", "00000"),
]


def episodes(ends, valid):
    """Return the valid steps of the episode of each valid step, [] for others."""
    mask = np.array([each == "1" for each in valid])
    over = [end == "x" or (end == "0" and m) for end, m in zip(ends, mask, strict=True)]
    number = np.cumsum([False, *over[:-1]])
    return [
        np.flatnonzero(mask & (number == own)) if m else []
        for own, m in zip(number, mask, strict=True)
    ]


@pytest.mark.parametrize("kind", ["future", "episode", "final"])
def test_goals_are_uniform_over_the_right_steps_of_the_same_episode(kind):
    ends, valid = (
        np.array([list(part) for part in each]) for each in zip(*EPISODES, strict=True)
    )

    @jax.jit
    def choose(keys):
        return jax.vmap(
            lambda key, discount_t, truncated_t, sample_mask: rlaxlib.hindsight_indices(
                key,
                discount_t,
                kind,
                truncated_t=truncated_t,
                sample_mask=sample_mask,
            )
        )(
            keys,
            np.where(ends == "0", np.float32(0), np.float32(0.9)),
            ends == "x",
            valid == "1",
        )

    every_key = keys(400 * len(EPISODES)).reshape(400, len(EPISODES))
    goals = np.asarray(jax.jit(jax.vmap(choose))(every_key))
    for i, stream in enumerate(EPISODES):
        for t, own in enumerate(episodes(*stream)):
            expected = {
                "future": [step for step in own if step >= t],
                "episode": list(own),
                "final": list(own[-1:]),
            }[kind]
            found, counts = np.unique(goals[:, i, t], return_counts=True)
            assert found.tolist() == (expected or [t])
            assert np.all(np.abs(counts / 400 - 1 / len(found)) < 0.15)


def test_without_masks_discounts_and_the_end_of_the_stream_bound_an_episode():
    discount_t = np.float32([0.9, 0, 0.9, 0.9])
    goals = draw(rlaxlib.hindsight_indices, 200, discount_t, kind="episode")
    assert [set(goals[:, t]) for t in range(4)] == [{0, 1}, {0, 1}, {2, 3}, {2, 3}]


def test_future_goals_of_a_stream_without_ends_are_uniform():
    goals = draw(rlaxlib.hindsight_indices, 4000, np.ones(6, np.float32))
    for t in range(6):
        shares = frequencies(goals[:, t], 6)
        np.testing.assert_allclose(shares[t:], 1 / (6 - t), atol=0.03)


@functools.partial(jax.jit, static_argnums=2)  # A traced factor may be 1.
def sample_goals(keys, discount_t, kind, gamma, **masks):
    sample = functools.partial(rlaxlib.hindsight_indices, **masks)
    return jax.vmap(sample, (0, None, None, None))(keys, discount_t, kind, gamma)


@pytest.mark.parametrize("kind", ["geometric", "truncated_geometric"])
def test_distances_have_the_frequencies_of_a_geometric_distribution(kind):
    gamma, steps, count = 0.6, 4, 20_000
    discount_t = np.float32([0.9] * (steps - 1) + [0.0])
    keys = jax.random.split(jax.random.key(0), count)
    goals = np.asarray(sample_goals(keys, discount_t, kind, gamma))
    for t in range(steps):
        shares = (1 - gamma) * gamma ** np.arange(steps - t)
        if kind == "geometric":
            shares[-1] = 1 - np.sum(shares[:-1])
        found = np.bincount(goals[:, t], minlength=steps)[t:] / count
        np.testing.assert_allclose(found, shares / np.sum(shares), atol=0.015)
        assert np.all(goals[:, t] >= t)


@pytest.mark.parametrize("gamma", [0.9999, 1 - 1e-6, 1 - 1e-7, 1.0])
def test_truncated_distances_with_a_factor_near_one_are_uniform(gamma):
    keys = jax.random.split(jax.random.key(0), 20_000)
    discount_t = np.full(5, 0.9, np.float32)
    goals = np.asarray(sample_goals(keys, discount_t, "truncated_geometric", gamma))
    found = np.bincount(goals[:, 0], minlength=5) / 20_000
    np.testing.assert_allclose(found, 0.2, atol=0.015)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_a_traced_factor_of_one_gives_the_end_of_the_episode(dtype):
    keys = jax.random.split(jax.random.key(0), 500)
    discount_t = jnp.asarray([0.9, 0.9, 0.0, 0.9], dtype)
    goals = sample_goals(keys, discount_t, "geometric", jnp.ones((), dtype))
    np.testing.assert_array_equal(goals, np.broadcast_to([2, 2, 2, 3], goals.shape))


def test_goals_stay_in_the_episode_and_are_valid_steps():
    discount_t = np.float32([0.9, 0.9, 0.0, 0.9, 0.9, 0.9, 0.9, 0.9])
    truncated_t = np.array([0, 0, 0, 0, 1, 0, 0, 0], bool)
    sample_mask = np.array([1, 0, 1, 1, 1, 1, 0, 0], bool)
    keys = jax.random.split(jax.random.key(0), 500)
    masks = {"truncated_t": truncated_t, "sample_mask": sample_mask}
    for kind in ("geometric", "truncated_geometric"):
        goals = np.asarray(sample_goals(keys, discount_t, kind, 0.7, **masks))
        reached = [set(np.unique(each).tolist()) for each in goals.T]
        assert reached == [{0, 2}, {1}, {2}, {3, 4}, {4}, {5}, {6}, {7}]


# --- Behaviour under JAX. ---


def test_replay_has_no_gradient():
    x = np.float32([0.1, 0.4, 0.5])
    for function in (
        rlaxlib.prioritized_probabilities,
        rlaxlib.rank_probabilities,
        rlaxlib.importance_sampling_weights,
        rlaxlib.sequence_priority,
    ):
        jacobians = jax.jit(jax.jacrev(function, argnums=(0, 1)))(x, 0.5)
        for jacobian in jacobians:
            np.testing.assert_array_equal(jacobian, 0.0)


def test_buffer_spread_over_devices_equals_one_buffer():
    x = np.float32([[0, 2], [3, 5]])
    mask = np.array([[True, True], [True, False]])

    def over(function):
        function = functools.partial(function, axis_name="devices")
        parts = jax.vmap(
            lambda x, mask: function(x, exponent=0.5, sample_mask=mask),
            axis_name="devices",
        )
        return jax.jit(parts)(x, mask)

    for function in (
        prioritized_probabilities,
        importance_sampling_weights,
    ):
        whole = function(x.ravel(), exponent=0.5, sample_mask=mask.ravel())
        close(over(function).ravel(), whole)
