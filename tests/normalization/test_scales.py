"""Test scales of rewards, TD errors and returns: ends, streams, devices, bad input."""

import functools

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close
from jax.sharding import Mesh, PartitionSpec

import rlaxlib

REWARD_INIT = rlaxlib.reward_scale().init
BASED_INIT = rlaxlib.return_based_scale().init
RANGE_INIT = rlaxlib.percentile_scale().init
REWARD_UPDATE, BASED_UPDATE, RANGE_UPDATE = (
    jax.jit(make().update)
    for make in (
        rlaxlib.reward_scale,
        rlaxlib.return_based_scale,
        rlaxlib.percentile_scale,
    )
)


def draw(size, seed=0, mean=1.0, deviation=1.0):
    drawn = mean + deviation * np.random.default_rng(seed).normal(size=size)
    return np.float32(drawn)


def past_returns(r_t, discount):
    """Return the discounted sum of past rewards at each step of one episode."""
    steps = np.arange(len(r_t))
    weights = np.tril(np.float64(discount) ** (steps[:, None] - steps))
    return weights @ np.asarray(r_t, np.float64)


def scale_of(*episodes, discount=0.9):
    """Return the reward scale of the definition, in double precision."""
    sums = np.concatenate([past_returns(each, discount) for each in episodes])
    return np.sqrt(np.var(sums) + 1e-8)


def spread(returns):
    """Return the percentile range of the definition, in double precision."""
    return np.subtract(*np.percentile(np.asarray(returns, np.float64), [95, 5]))


FIRST, SECOND = draw(3, seed=1), draw(4, seed=2)
JOINED = np.append(FIRST, SECOND)
DISCOUNTS = np.full(7, 0.9, np.float32)
THIRD = np.arange(7) == 2
EXPECTED = scale_of(FIRST, SECOND)


# --- Reward scale. ---


@pytest.mark.parametrize(
    ("discount_t", "truncated_t"),
    [
        (np.where(THIRD, np.float32(0), DISCOUNTS), None),
        (DISCOUNTS, THIRD),
        (np.where(THIRD, np.float32(0), DISCOUNTS), THIRD),
    ],
    ids=["terminated", "truncated", "both"],
)
def test_episode_ends_after_its_last_reward(discount_t, truncated_t):
    scale, state = REWARD_UPDATE(
        REWARD_INIT(0.0), JOINED, discount_t, truncated_t=truncated_t
    )
    np.testing.assert_allclose(scale, EXPECTED, rtol=1e-6)
    np.testing.assert_allclose(state.carried, 0.9 * past_returns(SECOND, 0.9)[-1], 1e-6)


@pytest.mark.parametrize("cut", [2, 3])
def test_reward_of_a_reset_step_is_ignored(cut):
    rewards = np.concatenate([FIRST, np.float32([np.nan]), SECOND])
    mask = np.arange(8) != 3
    scale, _ = REWARD_UPDATE(
        REWARD_INIT(0.0),
        rewards,
        np.where(mask, np.float32(0.9), np.float32(np.nan)),
        truncated_t=np.arange(8) == cut,
        sample_mask=mask,
    )
    np.testing.assert_allclose(scale, EXPECTED, rtol=1e-6)


@pytest.mark.parametrize("mean", [0.0, 1e4])
def test_reward_scale_is_precise_far_from_zero(mean):
    rewards = draw(400, mean=mean)
    scale, _ = REWARD_UPDATE(REWARD_INIT(0.0), rewards, 0 * rewards)
    np.testing.assert_allclose(scale, np.std(rewards, dtype=float), rtol=1e-5)


def test_reward_scale_is_one_while_all_sums_are_equal():
    state = REWARD_INIT(0.0)
    for steps in (2, 1):
        zeros = np.zeros(steps, np.float32)
        scale, state = REWARD_UPDATE(state, zeros, DISCOUNTS[:steps])
        assert scale == 1.0
    scale, _ = REWARD_UPDATE(state, np.float32([0, 1e-3]), DISCOUNTS[:2])
    np.testing.assert_allclose(scale, np.sqrt(1e-6 * 4 / 25 + 1e-8), rtol=1e-5)


@pytest.mark.parametrize("at", [2, 5])
def test_reward_scale_of_two_chunks_is_that_of_the_whole_stream(at):
    discounts = np.where(THIRD, np.float32(0), DISCOUNTS)
    state = REWARD_INIT(0.0)
    for part in (slice(None, at), slice(at, None)):
        scale, state = REWARD_UPDATE(state, JOINED[part], discounts[part])
    np.testing.assert_allclose(scale, EXPECTED, rtol=1e-6)


def test_streams_share_their_moments_and_carry_their_own_sums():
    _, update = rlaxlib.reward_scale(axis_name="streams")
    rewards = draw((2, 3, 4))
    states = jax.vmap(REWARD_INIT)(rewards[0, :, 0])
    over_streams = jax.jit(jax.vmap(update, axis_name="streams"))
    discounts = np.full((3, 4), 0.9, np.float32)
    for chunk in rewards:
        scale, states = over_streams(states, chunk, discounts)
    episodes = np.concatenate(rewards, axis=1)
    close(scale, [scale_of(*episodes)] * 3)
    close(states.carried, [0.9 * past_returns(each, 0.9)[-1] for each in episodes])


def test_reward_scale_of_half_precision_sums_in_single_precision():
    rewards = np.ones(1000, jnp.bfloat16)
    scale, state = REWARD_UPDATE(REWARD_INIT(rewards), rewards, rewards)
    assert scale.dtype == state.carried.dtype == jnp.float32
    assert state.carried == 1000
    np.testing.assert_allclose(scale, np.std(np.arange(1000.0)), rtol=1e-5)


def test_reward_scale_can_be_carried_through_a_loop_on_a_mesh():
    init_state, update_scale = rlaxlib.reward_scale(axis_name="devices")

    @jax.jit
    @functools.partial(
        jax.shard_map,
        mesh=Mesh(np.array(jax.devices()[:4]), "devices"),
        in_specs=PartitionSpec("devices"),
        out_specs=PartitionSpec("devices"),
    )
    def on_each(rewards):
        def step(state, r_t):
            return update_scale(state, r_t, jnp.full_like(r_t, 0.9))[::-1]

        start = init_state(rewards[0, 0])
        return jax.lax.scan(step, start, rewards.reshape(2, 3))[1][-1:]

    rewards = draw((4, 6))
    close(on_each(rewards), [scale_of(*rewards)] * 4)


# --- Return-based scale. ---


def test_return_based_scale_equals_the_formula_of_the_paper():
    rewards, returns = draw(50), draw(9, mean=30.0)
    discounts = np.where(np.arange(50) % 7 == 6, 0.0, 0.99).astype(np.float32)
    scale, _ = BASED_UPDATE(BASED_INIT(0.0), rewards, discounts, returns)
    square = np.mean(returns.astype(float) ** 2)
    expected = np.var(rewards, dtype=float) + np.var(discounts, dtype=float) * square
    np.testing.assert_allclose(scale, np.sqrt(expected), rtol=1e-6)


def test_return_based_scale_has_a_lower_bound_and_is_one_while_nothing_varies():
    same, first = np.zeros(5, np.float32), np.float32([1, 0, 0, 0, 0])
    scale, state = BASED_UPDATE(BASED_INIT(0.0), same, DISCOUNTS[:5], same)
    assert scale == 1.0
    scale, _ = BASED_UPDATE(state, np.float32(1e-6) * first, DISCOUNTS[:5], same)
    np.testing.assert_allclose(scale, 1e-2)
    _, update = rlaxlib.return_based_scale(min_scale=0.5)
    assert jax.jit(update)(state, np.float32(0.1) * first, same, same)[0] == 0.5


def test_return_based_scale_over_devices_is_that_of_all_numbers():
    _, update = rlaxlib.return_based_scale(axis_name="devices")
    rewards, returns = draw((4, 5)), draw((4, 3), seed=7)
    discounts = np.where(rewards > 1, rewards * 0, rewards * 0 + np.float32(0.9))
    mask, returns_mask = rewards > 0, returns > 0.5

    @jax.jit
    @functools.partial(jax.vmap, axis_name="devices")
    def on_each(rewards, discounts, returns, mask, returns_mask):
        masks = {"sample_mask": mask, "returns_mask": returns_mask}
        return update(BASED_INIT(0.0), rewards, discounts, returns, **masks)[0]

    masks = {"sample_mask": mask, "returns_mask": returns_mask}
    alone, _ = BASED_UPDATE(BASED_INIT(0.0), rewards, discounts, returns, **masks)
    close(on_each(rewards, discounts, returns, mask, returns_mask), [alone] * 4)


# --- Both scales of moments. ---


def test_without_discounts_both_scales_are_the_deviation_of_the_rewards():
    zeros = 0 * JOINED
    expected = np.std(JOINED, dtype=float)
    close(REWARD_UPDATE(REWARD_INIT(0.0), JOINED, zeros)[0], expected)
    close(BASED_UPDATE(BASED_INIT(0.0), JOINED, zeros, JOINED)[0], expected)


def test_scales_are_proportional_to_the_rewards():
    returns = draw(7)
    one, _ = REWARD_UPDATE(REWARD_INIT(0.0), JOINED, DISCOUNTS)
    ten, _ = REWARD_UPDATE(REWARD_INIT(0.0), 10 * JOINED, DISCOUNTS)
    np.testing.assert_allclose(ten, 10 * np.asarray(one), rtol=1e-5)
    discounts = DISCOUNTS * THIRD
    one, _ = BASED_UPDATE(BASED_INIT(0.0), JOINED, discounts, returns)
    ten, _ = BASED_UPDATE(BASED_INIT(0.0), 10 * JOINED, discounts, 10 * returns)
    np.testing.assert_allclose(ten, 10 * np.asarray(one), rtol=1e-5)


def test_update_of_masked_rewards_changes_nothing():
    nan, mask = np.full(7, np.nan, np.float32), np.zeros(7, bool)
    _, state = REWARD_UPDATE(REWARD_INIT(0.0), JOINED, DISCOUNTS)
    _, based = BASED_UPDATE(BASED_INIT(0.0), JOINED, DISCOUNTS, JOINED)
    with jax.debug_nans(True):
        _, same = REWARD_UPDATE(state, nan, nan, sample_mask=mask)
        masks = {"sample_mask": mask, "returns_mask": mask}
        _, same_based = BASED_UPDATE(based, nan, nan, nan, **masks)
    np.testing.assert_array_equal(*map(jax.tree.leaves, (same, state)))
    np.testing.assert_array_equal(*map(jax.tree.leaves, (same_based, based)))


def test_gradients_of_the_scales_are_stopped():
    def total(x, discounts):
        scale, state = REWARD_UPDATE(REWARD_INIT(0.0), x, discounts)
        based, _ = BASED_UPDATE(BASED_INIT(0.0), x, discounts, x)
        return scale + state.carried + based + RANGE_UPDATE(RANGE_INIT(0.0), x)[0]

    for gradient in jax.jit(jax.grad(total, (0, 1)))(JOINED, DISCOUNTS):
        assert not np.any(gradient)


def test_scales_keep_double_precision():
    def update(x):
        return (
            REWARD_UPDATE(REWARD_INIT(x), x, x / 10),
            BASED_UPDATE(BASED_INIT(x), x, x / 10, x),
            RANGE_UPDATE(RANGE_INIT(x), x),
        )

    with contract.x64(True):
        results = jax.eval_shape(update, np.array([1.0, 9.0]))
    assert {each.dtype for each in jax.tree.leaves(results)} == {np.dtype("float64")}


# --- Percentile scale. ---


@pytest.mark.parametrize("mean", [0.0, 1e3])
def test_percentile_scale_is_unbiased_from_the_first_update_on(mean):
    updates = draw((4, 40), mean=mean, deviation=10.0)
    state, spreads = RANGE_INIT(updates[0]), [spread(update) for update in updates]
    weights = 0.01 * 0.99 ** np.arange(4.0)[::-1]
    for n, update in enumerate(updates, start=1):
        scale, state = RANGE_UPDATE(state, update)
        used = weights[-n:] / weights[-n:].sum()
        np.testing.assert_allclose(scale, used @ spreads[:n], rtol=1e-5)


@pytest.mark.parametrize("first", [0.0, 1.0])
def test_percentile_scale_from_a_first_value_does_not_correct_the_bias(first):
    updates = draw((4, 40), deviation=1e4)
    state = RANGE_INIT(updates[0], first)
    expected = first
    for update in updates:
        scale, state = RANGE_UPDATE(state, update)
        expected += 0.01 * (spread(update) - expected)
        np.testing.assert_allclose(scale, expected, rtol=1e-5)


def test_percentile_scale_does_not_amplify_small_returns():
    scale, state = RANGE_UPDATE(RANGE_INIT(0.0), np.float32(0.1) * draw(40))
    assert scale == 1.0
    assert state.mean.spread < 0.5
    same = np.full(40, 1e6 + 0.3, np.float32)
    scale, _ = RANGE_UPDATE(RANGE_INIT(0.0), same)
    assert scale == 1.0


def test_lower_bound_applies_to_the_average_not_to_each_update():
    update = jax.jit(rlaxlib.percentile_scale(0.5, 0.0, 100.0).update)
    _, state = update(RANGE_INIT(0.0), np.float32([0, 0.25]))
    scale, _ = update(state, np.float32([0, 2]))
    close(scale, (0.25 * 0.25 + 0.5 * 2.0) / 0.75)


def test_percentile_scale_ignores_an_outlier():
    returns = draw(1000, deviation=10.0)
    expected, _ = RANGE_UPDATE(RANGE_INIT(0.0), returns)
    returns[7] = 1e9
    scale, _ = RANGE_UPDATE(RANGE_INIT(0.0), returns)
    np.testing.assert_allclose(scale, expected, rtol=0.02)


@pytest.mark.parametrize("rate", [1e-4, 1e-8])
def test_percentile_scale_with_a_decay_close_to_one_weights_updates_equally(rate):
    init_state, update_scale = rlaxlib.percentile_scale(1 - rate)
    updates = draw((3000, 3), deviation=10.0)

    @jax.jit
    def run(state):
        def step(state, update):
            return update_scale(state, update)[::-1]

        return jax.lax.scan(step, state, updates)[1][-1]

    weights = (1 - rate) ** np.arange(3000.0)[::-1]
    percentiles = np.percentile(np.float64(updates), [95, 5], axis=1)
    expected = weights @ np.subtract(*percentiles) / weights.sum()
    np.testing.assert_allclose(run(init_state(updates[0])), expected, rtol=1e-4)


def test_returns_may_be_integers_of_any_shape():
    scale, _ = RANGE_UPDATE(RANGE_INIT(0), np.arange(202).reshape(2, 101) // 2)
    close(scale, spread(np.arange(202) // 2))


def test_percentile_scale_is_proportional_to_the_returns_beyond_the_bound():
    returns = draw(40, deviation=10.0)
    one, _ = RANGE_UPDATE(RANGE_INIT(0.0), returns)
    ten, _ = RANGE_UPDATE(RANGE_INIT(0.0), 10 * returns + 3)
    np.testing.assert_allclose(ten, 10 * np.asarray(one), rtol=1e-6)


def test_percentile_scale_of_masked_returns_is_that_without_them():
    returns = draw((6, 3), deviation=10.0)
    mask = np.arange(6) % 3 > 0
    expected, _ = RANGE_UPDATE(RANGE_INIT(0.0), returns[mask])
    returns[~mask] = np.nan
    close(
        RANGE_UPDATE(RANGE_INIT(0.0), returns, sample_mask=mask)[0],
        expected,
    )


def test_the_percentiles_of_one_return_are_that_return():
    one, three = (
        RANGE_UPDATE(RANGE_INIT(0.0), np.full(number, 3.0, np.float32))
        for number in (1, 3)
    )
    jax.tree.map(np.testing.assert_array_equal, one, three)


def test_percentile_update_without_returns_changes_nothing():
    _, later = RANGE_UPDATE(RANGE_INIT(0.0), draw(40))
    masked = np.float32([np.nan]), np.array([False])
    with jax.debug_nans(True):
        for state in (RANGE_INIT(0.0), later):
            for returns, mask in (masked, (np.float32([]), None)):
                scale, same = RANGE_UPDATE(state, returns, sample_mask=mask)
                np.testing.assert_array_equal(
                    jax.tree.leaves(same), jax.tree.leaves(state)
                )
                assert scale >= 1


@pytest.mark.parametrize("masked", [False, True])
def test_percentiles_over_devices_are_those_of_all_returns(masked):
    returns = draw((4, 6), deviation=10.0) * np.arange(4, dtype=np.float32)[:, None]
    mask = returns < 8 if masked else np.ones((4, 6), bool)
    _, update_together = rlaxlib.percentile_scale(axis_name="devices")

    def on_each(x, mask):
        mask = mask if masked else None
        return update_together(RANGE_INIT(0.0), x, sample_mask=mask)[0]

    found = jax.jit(jax.vmap(on_each, axis_name="devices"))(returns, mask)
    close(found, [spread(returns[mask])] * 4)


@pytest.mark.parametrize("axis_name", [None, "devices"])
def test_percentile_scale_can_be_carried_through_a_loop_on_a_mesh(axis_name):
    init_state, update_scale = rlaxlib.percentile_scale(axis_name=axis_name)
    shared = PartitionSpec() if axis_name else PartitionSpec("devices")

    @jax.jit
    @functools.partial(
        jax.shard_map,
        mesh=Mesh(np.array(jax.devices()[:4]), "devices"),
        in_specs=PartitionSpec("devices"),
        out_specs=shared,
    )
    def on_each(updates):
        def step(state, update):
            return update_scale(state, update)[::-1]

        start = init_state(0.0 if axis_name else updates[0, 0])
        return jax.lax.scan(step, start, updates.T)[1][:1]

    updates = draw((8, 2), deviation=10.0)
    expected = [spread(each[:, 0]) for each in np.split(updates, 4)]
    expected = [spread(updates[:, 0])] if axis_name else expected
    close(on_each(updates), np.maximum(1, expected))


# --- Bad input. ---


def test_names_the_wrong_argument():
    x = np.ones(3, np.float32)
    masks = {"truncated_t": np.ones(2, bool)}
    with pytest.raises(
        rlaxlib.ArgumentError, match=r"^RewardScale.init: `r_t` is bool"
    ):
        REWARD_INIT(np.ones(3, bool))
    with pytest.raises(
        rlaxlib.ArgumentError,
        match=r"^RewardScale\.update: `truncated_t` is bool\[2\], must be bool\[T\]",
    ):
        rlaxlib.reward_scale().update(REWARD_INIT(x), x, x, **masks)
    for name in ("sample_mask", "returns_mask"):
        masks = {name: np.ones(2, bool)}
        with pytest.raises(
            rlaxlib.ArgumentError,
            match=rf"^ReturnBasedScale.update: `{name}` is .*\[2\], must",
        ):
            rlaxlib.return_based_scale().update(BASED_INIT(x), x, x, x, **masks)


@pytest.mark.parametrize(
    ("returns", "mask", "message"),
    [
        (np.ones(2, bool), None, r"`returns` is bool\[2\], must be real\[\.\.\.\]"),
        (
            np.ones(2, np.float32),
            np.ones(3, bool),
            r"`sample_mask` has shape \(3,\), must have the fir",
        ),
        (
            np.ones(2, np.float32),
            np.ones(2, np.float32),
            r"`sample_mask` is float32\[2\], must be bool\[\*M\]",
        ),
    ],
)
def test_percentile_scale_names_the_wrong_argument(returns, mask, message):
    with pytest.raises(
        rlaxlib.ArgumentError, match=f"^PercentileScale.update: {message}"
    ):
        rlaxlib.percentile_scale().update(RANGE_INIT(0.0), returns, sample_mask=mask)
