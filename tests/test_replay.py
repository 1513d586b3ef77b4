"""Test replay: what is drawn and how often, limits, and what is refused."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

NAN = jnp.nan


def keys(count, seed=0):
    return jax.random.split(jax.random.key(seed), count)


def drawn(function, count, *arguments, **settings):
    """Draw many times, and return each draw as a row."""
    call = functools.partial(function, **settings)
    draws = jax.jit(jax.vmap(lambda key: call(key, *arguments)))
    return np.asarray(draws(keys(count)))


def frequencies(indices, size):
    return np.bincount(indices.ravel(), minlength=size) / indices.size


# --- What the functions compute. ---


def test_an_exponent_of_zero_makes_all_entries_as_likely():
    priorities = jnp.array([0.0, 1.0, 9.0, 5.0])
    for function in (rlaxlib.prioritized_probabilities, rlaxlib.rank_probabilities):
        np.testing.assert_array_equal(function(priorities, 0.0), 0.25)
        mask = jnp.array([True, True, False, False])
        np.testing.assert_array_equal(
            function(priorities, 0.0, mask=mask), [0.5, 0.5, 0.0, 0.0]
        )


@pytest.mark.parametrize("scale", [1e-37, 1e-20, 1.0, 1e20, 1e37])
def test_priorities_of_any_size_give_the_same_probabilities(scale):
    priorities = jnp.array([1.0, 2.0, 0.5])
    expected = rlaxlib.prioritized_probabilities(priorities, 3.0)
    close(rlaxlib.prioritized_probabilities(scale * priorities, 3.0), expected)


def test_priorities_that_are_all_zero_are_equal():
    mask = jnp.array([True, False, True])
    probabilities = rlaxlib.prioritized_probabilities(jnp.zeros(3), mask=mask)
    np.testing.assert_array_equal(probabilities, [0.5, 0.0, 0.5])


@pytest.mark.parametrize(
    "function",
    [
        rlaxlib.prioritized_probabilities,
        rlaxlib.rank_probabilities,
        functools.partial(rlaxlib.importance_sampling_weights, exponent=0.5),
        rlaxlib.sequence_priority,
    ],
)
def test_where_there_is_no_entry_anything_may_stand_and_nothing_may_be_left(function):
    x, mask = jnp.array([1.0, NAN, 3.0, -5.0]), jnp.array([True, False, True, False])
    result = function(x, mask=mask)
    if result.ndim:
        assert np.all(np.asarray(result)[~mask] == 0)
        result = result[mask]
    np.testing.assert_array_equal(result, function(x[mask]))
    np.testing.assert_array_equal(function(x, mask=jnp.zeros_like(mask)), 0.0)


def test_only_the_order_of_priorities_matters_to_ranks():
    priorities = jnp.array([-1.0, 7.0, 0.0, 2.0])
    expected = np.array([1 / 4, 1, 1 / 3, 1 / 2]) / (25 / 12)
    close(rlaxlib.rank_probabilities(priorities, 1.0), expected)
    close(rlaxlib.rank_probabilities(jnp.exp(priorities), 1.0), expected)


def test_of_equal_priorities_the_earlier_ranks_higher():
    probabilities = rlaxlib.rank_probabilities(jnp.array([1.0, 2.0, 1.0, 2.0]), 1.0)
    assert np.argsort(-probabilities).tolist() == [1, 3, 0, 2]


def test_a_full_exponent_takes_all_of_the_bias_out():
    probabilities = rlaxlib.prioritized_probabilities(jnp.array([1.0, 3.0, 4.0]), 0.7)
    weights = rlaxlib.importance_sampling_weights(probabilities, 1.0)
    x = jnp.array([5.0, -1.0, 2.0])
    biased = jnp.sum(probabilities * weights * x) / jnp.sum(probabilities * weights)
    close(biased, jnp.mean(x))


def test_the_largest_weight_is_one_in_the_batch_or_in_the_buffer():
    buffer = rlaxlib.prioritized_probabilities(jnp.array([0.1, 1.0, 2.0, 4.0]), 1.0)
    batch = buffer[1:]
    weigh = rlaxlib.importance_sampling_weights
    assert jnp.max(weigh(batch, 0.5)) == 1
    whole = weigh(buffer, 0.5, "max")
    assert jnp.argmax(whole) == 0
    close(weigh(batch, 0.5, "max", min_probability=jnp.min(buffer)), whole[1:])
    close(weigh(batch, 0.5) * whole[1], whole[1:])


def test_an_entry_that_is_never_drawn_has_no_weight_and_gives_none_to_others():
    weights = rlaxlib.importance_sampling_weights(jnp.array([0.0, 0.2, 0.8]), 0.5)
    close(weights, [0.0, 1.0, 0.5])
    weights = rlaxlib.importance_sampling_weights(jnp.array([0.0, 0.2, 0.8]), 0.0)
    np.testing.assert_array_equal(weights, [0.0, 1.0, 1.0])


def test_the_smallest_probability_that_single_precision_holds_has_a_finite_weight():
    tiny = float(jnp.finfo(jnp.float32).tiny)
    weights = rlaxlib.importance_sampling_weights(jnp.array([tiny, 1.0]), 1.0)
    np.testing.assert_allclose(weights, [1.0, tiny], rtol=1e-6)


def test_the_priority_of_a_sequence_is_between_its_mean_and_its_largest_error():
    td_errors = jnp.array([1.0, -4.0, 1.0])
    close(rlaxlib.sequence_priority(td_errors, eta=0.0), 2.0)
    close(rlaxlib.sequence_priority(td_errors, eta=1.0), 4.0)
    close(rlaxlib.sequence_priority(td_errors), 0.9 * 4 + 0.1 * 2)


@pytest.mark.parametrize("burn_in", [0, 1, 3, 4, 9])
def test_a_burn_in_leaves_the_steps_after_it(burn_in):
    mask = rlaxlib.burn_in_mask(4, burn_in)
    assert mask.tolist() == [t >= burn_in for t in range(4)]


def test_the_last_steps_estimates_are_the_same_after_a_burn_in():
    r_t, v_t = jnp.array([5.0, 1.0, 2.0, 3.0]), jnp.array([NAN, 1.0, 1.0, 2.0])
    discount_t, mask = jnp.full(4, 0.5), rlaxlib.burn_in_mask(4, 1)
    returns = rlaxlib.lambda_returns(r_t, discount_t, v_t, 0.9, sample_mask=mask)
    expected = rlaxlib.lambda_returns(r_t[1:], discount_t[1:], v_t[1:], 0.9)
    close(returns[1:], expected)


@pytest.mark.parametrize(
    "function", [rlaxlib.stratified_sample, rlaxlib.systematic_resample]
)
def test_entries_are_drawn_as_often_as_they_should_be_and_evenly(function):
    weights = jnp.array([0.0, 3.0, 1.0, 0.0, 0.5, 2.5, 0.0])
    shares = np.asarray(weights / jnp.sum(weights))
    samples = drawn(function, 4000, weights, num_samples=10)
    np.testing.assert_allclose(frequencies(samples, 7), shares, atol=0.005)
    assert np.all(np.diff(samples, axis=1) >= 0)
    counts = np.stack([np.bincount(row, minlength=7) for row in samples])
    assert np.all(counts[:, shares == 0] == 0)
    # A stretch of K P parts has that many draws, and at most those of two more.
    slack = 1 if function is rlaxlib.systematic_resample else 2
    assert np.all(np.abs(counts - 10 * shares) < slack)


def test_one_draw_falls_into_each_equal_part_of_the_distribution():
    samples = drawn(rlaxlib.stratified_sample, 200, jnp.ones(12), num_samples=4)
    np.testing.assert_array_equal(samples // 3, np.tile(np.arange(4), (200, 1)))


def test_equal_weights_give_each_particle_one_copy():
    samples = drawn(rlaxlib.systematic_resample, 200, jnp.full(64, 0.3))
    np.testing.assert_array_equal(samples, np.tile(np.arange(64), (200, 1)))


@pytest.mark.parametrize("size", [1000, 100_000])
def test_an_entry_without_weight_is_never_drawn_from_however_many(size):
    rng = np.random.default_rng(size)
    weights = rng.uniform(size=size) * (rng.uniform(size=size) < 0.3)
    weights[-size // 10 :] = 0  # So that no tooth may fall behind the last.
    weights = jnp.asarray(weights, jnp.float32)
    for key in keys(5):
        samples = rlaxlib.systematic_resample(key, weights)
        assert jnp.all(weights[samples] > 0)


def test_teeth_at_the_very_end_hit_the_last_entry_with_a_weight():
    weights = jnp.array([1.0, 1.0, 0.0])
    samples = rlaxlib.replay._invert(weights, jnp.float32(1.0), num_samples=2)
    assert samples.tolist() == [1, 1]


@pytest.mark.parametrize(
    "function",
    [
        functools.partial(rlaxlib.stratified_sample, num_samples=2),
        rlaxlib.systematic_resample,
    ],
)
def test_where_nothing_has_a_weight_no_entry_is_drawn(function):
    samples = function(jax.random.key(0), jnp.zeros(2))
    np.testing.assert_array_equal(samples, 2)


@pytest.mark.parametrize("row", range(3))
def test_what_is_no_number_is_told_and_not_taken_for_a_small_one(row):
    x = jnp.array([1.0, 2.0, 3.0]).at[row].set(NAN)
    weigh = functools.partial(rlaxlib.importance_sampling_weights, exponent=0.5)
    for function in (
        rlaxlib.prioritized_probabilities,
        rlaxlib.rank_probabilities,
        weigh,
        rlaxlib.sequence_priority,
    ):
        assert np.isnan(jax.jit(function)(x)).any()
    samples = jax.jit(rlaxlib.systematic_resample)(jax.random.key(0), x)
    np.testing.assert_array_equal(samples, 3)


# Rows after which the episode ends (0) or is cut (x), and rows that are decisions (1).
EPISODES = [
    (".....", "11111"),
    ("..0.0", "11111"),
    ("0x0x0", "11111"),
    (".x...", "11111"),
    (".....", "10101"),
    (".0.0.", "10101"),  # An end that is no decision is none.
    (".x.x.", "10101"),
    ("..x..", "00100"),
    ("..x..", "11011"),
    (".....", "00000"),
]


def episodes(ends, decisions):
    """Return for each row those that are decisions of its episode, none for others."""
    mask = np.array([decision == "1" for decision in decisions])
    over = [end == "x" or (end == "0" and m) for end, m in zip(ends, mask, strict=True)]
    number = np.cumsum([False, *over[:-1]])
    return [
        np.flatnonzero(mask & (number == own)) if m else []
        for own, m in zip(number, mask, strict=True)
    ]


@pytest.mark.parametrize("strategy", ["future", "episode", "final"])
def test_a_goal_is_any_of_its_own_episode_and_none_of_another(strategy):
    ends, decisions = (
        np.array([list(part) for part in each]) for each in zip(*EPISODES, strict=True)
    )

    @jax.jit
    def choose(keys):
        return jax.vmap(
            lambda key, discount_t, truncated_t, sample_mask: rlaxlib.hindsight_indices(
                key,
                discount_t,
                strategy,
                truncated_t=truncated_t,
                sample_mask=sample_mask,
            )
        )(
            keys,
            jnp.where(ends == "0", 0.0, 0.9),
            jnp.asarray(ends == "x"),
            jnp.asarray(decisions == "1"),
        )

    goals = np.stack([choose(keys(len(EPISODES), seed)) for seed in range(400)])
    for i, stream in enumerate(EPISODES):
        for t, own in enumerate(episodes(*stream)):
            expected = {
                "future": [row for row in own if row >= t],
                "episode": list(own),
                "final": list(own[-1:]),
            }[strategy]
            found, counts = np.unique(goals[:, i, t], return_counts=True)
            assert found.tolist() == (expected or [t])
            assert np.all(np.abs(counts / 400 - 1 / len(found)) < 0.15)


def test_without_masks_only_discounts_and_the_end_of_the_stream_bound_an_episode():
    discount_t = jnp.array([0.9, 0.0, 0.9, 0.9])
    goals = drawn(rlaxlib.hindsight_indices, 200, discount_t, strategy="episode")
    assert [set(goals[:, t]) for t in range(4)] == [{0, 1}, {0, 1}, {2, 3}, {2, 3}]


def test_the_future_of_a_long_stream_is_drawn_evenly():
    goals = drawn(rlaxlib.hindsight_indices, 4000, jnp.ones(6))
    for t in range(6):
        shares = frequencies(goals[:, t], 6)
        np.testing.assert_allclose(shares[t:], 1 / (6 - t), atol=0.03)


# --- How the functions behave under JAX. ---


def test_what_is_replayed_has_no_gradient():
    x = jnp.array([0.1, 0.4, 0.5])
    for function in (
        rlaxlib.prioritized_probabilities,
        rlaxlib.rank_probabilities,
        functools.partial(rlaxlib.importance_sampling_weights, exponent=0.5),
        rlaxlib.sequence_priority,
    ):
        jacobian = jax.jacrev(lambda x, function=function: function(x))(x)
        np.testing.assert_array_equal(jacobian, 0.0)


def test_a_buffer_over_devices_is_one_buffer():
    x = jnp.array([[0.0, 2.0], [3.0, 5.0]])
    mask = jnp.array([[True, True], [True, False]])

    def over(function):
        function = functools.partial(function, axis_name="devices")
        return jax.vmap(
            lambda x, mask: function(x, exponent=0.5, mask=mask), axis_name="devices"
        )(x, mask)

    for function in (
        rlaxlib.prioritized_probabilities,
        rlaxlib.importance_sampling_weights,
    ):
        whole = function(x.ravel(), exponent=0.5, mask=mask.ravel())
        close(over(function).ravel(), whole)


# --- What the functions refuse. ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: rlaxlib.prioritized_probabilities(jnp.array([1.0, -2.0])),
            r"^prioritized_probabilities: `priorities` must lie in \[0, inf\), but is "
            r"-2\.0",
        ),
        (
            lambda: rlaxlib.prioritized_probabilities(jnp.ones(2), -1.0),
            r"`exponent` must lie in \[0, inf\)",
        ),
        (
            lambda: rlaxlib.rank_probabilities(jnp.ones(2), -1.0),
            r"^rank_probabilities: `exponent` must lie in \[0, inf\)",
        ),
        (
            lambda: rlaxlib.importance_sampling_weights(jnp.ones(2), 1.5),
            r"`exponent` must lie in \[0, 1\]",
        ),
        (
            lambda: rlaxlib.importance_sampling_weights(-jnp.ones(2), 0.5),
            r"`probabilities` must lie in \[0, inf\)",
        ),
        (
            lambda: rlaxlib.importance_sampling_weights(jnp.ones(2), 0.5, "mean"),
            r'`normalize_by` must be "batch" or "max", not \'mean\'',
        ),
        (
            lambda: rlaxlib.importance_sampling_weights(
                jnp.ones(2), 0.5, min_probability=0.1
            ),
            r'`min_probability` is for `normalize_by="max"` only',
        ),
        (
            lambda: rlaxlib.importance_sampling_weights(
                jnp.ones(2), 0.5, "max", min_probability=0.0
            ),
            r"`min_probability` must lie in \(0, inf\)",
        ),
        (
            lambda: rlaxlib.sequence_priority(jnp.ones(2), eta=2.0),
            r"^sequence_priority: `eta` must lie in \[0, 1\]",
        ),
        (
            lambda: rlaxlib.burn_in_mask(0, 1),
            r"^burn_in_mask: `num_steps` must be at least 1, but is 0",
        ),
        (
            lambda: rlaxlib.burn_in_mask(3, -1),
            r"`burn_in` must lie in \[0, inf\), but is -1",
        ),
        (
            lambda: rlaxlib.stratified_sample(jax.random.key(0), jnp.ones(2), 0),
            r"^stratified_sample: `num_samples` must be at least 1",
        ),
        (
            lambda: rlaxlib.stratified_sample(jax.random.key(0), -jnp.ones(2), 1),
            r"`probabilities` must lie in \[0, inf\)",
        ),
        (
            lambda: rlaxlib.systematic_resample(jax.random.key(0), -jnp.ones(2)),
            r"^systematic_resample: `weights` must lie in \[0, inf\)",
        ),
        (
            lambda: rlaxlib.systematic_resample(jax.random.key(0), jnp.ones(2), 0),
            r"`num_samples` must be at least 1",
        ),
        (
            lambda: rlaxlib.hindsight_indices(jax.random.key(0), jnp.ones(2), "next"),
            r"^hindsight_indices: `strategy` must be \"future\", \"episode\" or "
            r"\"final\", not 'next'",
        ),
    ],
)
def test_says_what_is_wrong(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        call()
