"""Test scales of rewards and of errors: at ends of episodes, over streams, in parts."""

import functools
import operator

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close
from jax.sharding import Mesh, PartitionSpec

import rlaxlib

INIT, UPDATE = rlaxlib.reward_scale()
BASED_INIT, BASED_UPDATE = rlaxlib.return_based_scale()
UPDATE_COMPILED = jax.jit(UPDATE)


def past_returns(r_t, discount):
    """Return the discounted sum of past rewards at each step of one episode."""
    steps = np.arange(len(r_t))
    weights = np.tril(np.float64(discount) ** (steps[:, None] - steps))
    return weights @ np.asarray(r_t, np.float64)


def scale_of(*episodes, discount=0.9):
    """Return the scale from its definition, in double precision."""
    sums = np.concatenate([past_returns(each, discount) for each in episodes])
    return np.sqrt(np.var(sums) + 1e-8)


def draw(steps, seed=0, mean=1.0):
    return np.float32(mean + np.random.default_rng(seed).normal(size=steps))


FIRST, SECOND = draw(3, seed=1), draw(4, seed=2)
JOINED = np.append(FIRST, SECOND)
GOES_ON = np.full(7, 0.9, np.float32)
THIRD = np.arange(7) == 2
EXPECTED = scale_of(FIRST, SECOND)


# --- What they compute. ---


@pytest.mark.parametrize(
    ("discount_t", "truncated_t"),
    [
        (np.where(THIRD, np.float32(0), GOES_ON), None),
        (GOES_ON, THIRD),
        (np.where(THIRD, np.float32(0), GOES_ON), THIRD),
    ],
    ids=["terminated", "truncated", "both"],
)
def test_an_episode_ends_after_its_last_reward(discount_t, truncated_t):
    scale, state = UPDATE(JOINED, discount_t, INIT(0.0), truncated_t=truncated_t)
    np.testing.assert_allclose(scale, EXPECTED, rtol=1e-6)
    np.testing.assert_allclose(state.carried, 0.9 * past_returns(SECOND, 0.9)[-1], 1e-6)


def test_the_row_of_a_reset_is_no_step():
    rewards = np.concatenate([FIRST, np.float32([np.nan]), SECOND])
    mask = np.arange(8) != 3
    for cut in (2, 3):
        scale, _ = UPDATE(
            rewards,
            np.where(mask, np.float32(0.9), np.float32(np.nan)),
            INIT(0.0),
            truncated_t=np.arange(8) == cut,
            sample_mask=mask,
        )
        np.testing.assert_allclose(scale, EXPECTED, rtol=1e-6)


@pytest.mark.parametrize("mean", [0.0, 1e6])
def test_keeps_its_digits_far_from_zero(mean):
    rewards = draw(400, mean=mean)
    scale, _ = UPDATE(rewards, jnp.zeros(400), INIT(0.0))
    np.testing.assert_allclose(scale, np.std(rewards, dtype=float), rtol=1e-5)


def test_rewards_are_left_alone_as_long_as_there_is_no_scale():
    state = INIT(0.0)
    for steps in (2, 1):
        scale, state = UPDATE(jnp.zeros(steps), jnp.full(steps, 0.9), state)
        assert scale == 1.0
    scale, state = UPDATE(jnp.array([0.0, 1e-3]), jnp.full(2, 0.9), state)
    np.testing.assert_allclose(scale, np.sqrt(1e-6 * 4 / 25 + 1e-8), rtol=1e-5)


def test_return_based_scale_is_what_the_paper_says():
    rewards, returns = draw(50), draw(9, mean=30.0)
    discounts = np.where(np.arange(50) % 7 == 6, 0.0, 0.99).astype(np.float32)
    scale, _ = BASED_UPDATE(rewards, discounts, returns, BASED_INIT(0.0))
    square = np.mean(returns.astype(float) ** 2)
    expected = np.var(rewards, dtype=float) + np.var(discounts, dtype=float) * square
    np.testing.assert_allclose(scale, np.sqrt(expected), rtol=1e-6)


def test_return_based_scale_has_a_bound_and_is_1_while_nothing_varies():
    same = jnp.zeros(5)
    scale, state = BASED_UPDATE(same, same + 0.9, same, BASED_INIT(0.0))
    assert scale == 1.0
    scale, _ = BASED_UPDATE(same.at[0].set(1e-6), same + 0.9, same, state)
    np.testing.assert_allclose(scale, 1e-2)
    _, update = rlaxlib.return_based_scale(min_scale=0.5)
    assert update(same.at[0].set(0.1), same, same, state)[0] == 0.5


# --- How they relate. ---


@pytest.mark.parametrize("at", [1, 3, 5])
def test_a_stream_may_come_in_stretches(at):
    discounts = np.where(THIRD, np.float32(0), GOES_ON)
    state = INIT(0.0)
    for part in (slice(None, at), slice(at, None)):
        scale, state = UPDATE(JOINED[part], discounts[part], state)
    np.testing.assert_allclose(scale, EXPECTED, rtol=1e-6)


def test_rewards_ten_times_as_large_have_ten_times_the_scale():
    returns = draw(7)
    one, _ = UPDATE(JOINED, GOES_ON, INIT(0.0))
    ten, _ = UPDATE(10 * JOINED, GOES_ON, INIT(0.0))
    np.testing.assert_allclose(ten, 10 * one, rtol=1e-5)
    one, _ = BASED_UPDATE(JOINED, GOES_ON * THIRD, returns, BASED_INIT(0.0))
    ten, _ = BASED_UPDATE(10 * JOINED, GOES_ON * THIRD, 10 * returns, BASED_INIT(0.0))
    np.testing.assert_allclose(ten, 10 * one, rtol=1e-5)


def test_without_a_future_both_are_the_deviation_of_rewards():
    never = jnp.zeros(7)
    expected = np.std(JOINED, dtype=float)
    close(UPDATE(JOINED, never, INIT(0.0))[0], expected)
    close(BASED_UPDATE(JOINED, never, JOINED, BASED_INIT(0.0))[0], expected)


def test_an_update_of_nothing_changes_nothing():
    nan, nothing = jnp.full(7, jnp.nan), jnp.zeros(7, bool)
    _, state = UPDATE(JOINED, GOES_ON, INIT(0.0))
    _, based = BASED_UPDATE(JOINED, GOES_ON, JOINED, BASED_INIT(0.0))
    with jax.debug_nans(True):
        _, same = UPDATE(nan, nan, state, sample_mask=nothing)
        masks = {"mask": nothing, "returns_mask": nothing}
        _, as_was = BASED_UPDATE(nan, nan, nan, based, **masks)
    np.testing.assert_array_equal(*map(jax.tree.leaves, (same, state)))
    np.testing.assert_array_equal(*map(jax.tree.leaves, (as_was, based)))


# --- How they behave under JAX. ---


def test_the_scales_are_constant():
    def total(x, discounts):
        scale, state = UPDATE(x, discounts, INIT(0.0))
        based, _ = BASED_UPDATE(x, discounts, x, BASED_INIT(0.0))
        return scale + state.carried + based

    for gradient in jax.grad(total, (0, 1))(jnp.asarray(JOINED), jnp.asarray(GOES_ON)):
        assert not np.any(gradient)


def test_streams_share_their_moments_and_nothing_else():
    _, update = rlaxlib.reward_scale(axis_name="streams")
    rewards = draw((2, 3, 4))
    states = jax.vmap(INIT)(rewards[0, :, 0])
    for stretch in rewards:
        scale, states = jax.vmap(update, axis_name="streams")(
            stretch, jnp.full((3, 4), 0.9), states
        )
    episodes = np.concatenate(rewards, axis=1)
    close(scale, [scale_of(*episodes)] * 3)
    close(states.carried, [0.9 * past_returns(each, 0.9)[-1] for each in episodes])


def test_devices_take_in_the_numbers_of_all():
    _, update = rlaxlib.return_based_scale(axis_name="devices")
    rewards, returns = draw((4, 5)), draw((4, 3), seed=7)
    discounts = np.where(rewards > 1, rewards * 0, rewards * 0 + np.float32(0.9))
    mask, returns_mask = rewards > 0, returns > 0.5

    @functools.partial(jax.pmap, axis_name="devices")
    def on_each(rewards, discounts, returns, mask, returns_mask):
        masks = {"mask": mask, "returns_mask": returns_mask}
        return update(rewards, discounts, returns, BASED_INIT(0.0), **masks)[0]

    masks = {"mask": mask, "returns_mask": returns_mask}
    alone, _ = BASED_UPDATE(rewards, discounts, returns, BASED_INIT(0.0), **masks)
    close(on_each(rewards, discounts, returns, mask, returns_mask), [alone] * 4)


def test_can_be_carried_through_a_loop_on_a_mesh():
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
            return update_scale(r_t, jnp.full_like(r_t, 0.9), state)[::-1]

        start = init_state(rewards[0, 0])
        return jax.lax.scan(step, start, rewards.reshape(2, 3))[1][-1:]

    rewards = draw((4, 6))
    close(on_each(rewards), [scale_of(*rewards)] * 4)


def test_half_precision_is_added_up_in_single():
    rewards = jnp.full(1000, 1.0, jnp.bfloat16)
    scale, state = UPDATE_COMPILED(rewards, jnp.ones(1000, jnp.bfloat16), INIT(rewards))
    assert scale.dtype == state.carried.dtype == jnp.float32
    assert state.carried == 1000
    np.testing.assert_allclose(scale, np.std(np.arange(1000.0)), rtol=1e-5)


def test_double_precision_is_kept():
    with contract.x64(True):
        x = jnp.float64([1.0, 9.0])
        said = UPDATE(x, x / 10, INIT(x)), BASED_UPDATE(x, x / 10, x, BASED_INIT(x))
    assert {each.dtype for each in jax.tree.leaves(said)} == {np.dtype("float64")}


# --- What they refuse. ---


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("reward_scale", {"epsilon": -1.0}, r"`epsilon` must lie in \[0, inf\)"),
        ("reward_scale", {"epsilon": jnp.ones(2)}, r"`epsilon` is float32\[2\]"),
        ("return_based_scale", {"min_scale": 0.0}, r"`min_scale` must lie in \(0, inf"),
        ("return_based_scale", {"min_scale": "1"}, "`min_scale` is '1'"),
    ],
)
def test_refuses_settings_out_of_range(name, settings, message):
    with pytest.raises(rlaxlib.ArgumentError, match=f"^{name}: {message}"):
        operator.attrgetter(name)(rlaxlib)(**settings)


def test_says_which_argument_is_wrong():
    x = jnp.ones(3)
    with pytest.raises(rlaxlib.ArgumentError, match=r"^reward_scale: `r_t` is bool"):
        INIT(jnp.ones(3, bool))
    with pytest.raises(rlaxlib.ArgumentError, match=r"^reward_scale: `truncated_t` is"):
        UPDATE(x, x, INIT(x), truncated_t=jnp.ones(2, bool))
    with pytest.raises(rlaxlib.ArgumentError, match=r"^return_based_scale: `mask` is"):
        BASED_UPDATE(x, x, x, BASED_INIT(x), mask=jnp.ones(2, bool))
    with pytest.raises(
        rlaxlib.ArgumentError, match=r"^return_based_scale: `returns_ma"
    ):
        BASED_UPDATE(x, x, x, BASED_INIT(x), returns_mask=jnp.ones(2, bool))
