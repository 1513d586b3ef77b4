"""Test the auxiliary tasks: identities, streams, and invalid input."""

import functools

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close
from rows.values import auxiliary

import rlaxlib

STEPS = contract.STEPS


pixel_control_loss = jax.jit(rlaxlib.pixel_control_loss, static_argnames="cell_size")


def draw():
    drawn = auxiliary.make_loss(np.random.default_rng(0))
    drawn = {name: np.asarray(x) for name, x in drawn.items()}
    return {
        name: x.astype(np.float32 if x.dtype.kind == "f" else x.dtype)
        for name, x in drawn.items()
    }


def part(inputs, steps):
    """Return some time steps of a stream, with the states that follow them."""
    states = slice(steps.start, None if steps.stop is None else steps.stop + 1)
    both = {"observations": states, "action_values": states}
    return {name: x[both.get(name, steps)] for name, x in inputs.items()}


# --- Rewards. ---


def test_a_changed_pixel_counts_in_its_cell_only():
    observations = np.zeros((2, 4, 6, 3), np.float32)
    observations[1, 3, 5, 2] = 0.5
    rewards = rlaxlib.pixel_control_rewards(observations, cell_size=2)
    assert rewards.shape == (1, 2, 3)
    close(rewards[0, 1, 2], 0.5 / 12)
    assert np.count_nonzero(rewards) == 1


def test_discounted_potential_rewards_telescope():
    features = draw()["observations"][:, 0, 0]
    rewards = rlaxlib.feature_control_rewards(features, "potential", 0.9)
    discounts = np.float32(0.9) ** np.arange(STEPS, dtype=np.float32)
    total = np.sum(discounts[:, None] * np.asarray(rewards), axis=0)
    close(total, 0.9**STEPS * features[-1] - features[0])


def test_cumulants_are_features_or_their_changes():
    features = np.float32([[1.0, 5.0], [3.0, 4.0]])
    reward = rlaxlib.feature_control_rewards
    np.testing.assert_array_equal(reward(features, "feature"), [[3, 4]])
    np.testing.assert_array_equal(reward(features, "absolute_change"), [[2, 1]])
    np.testing.assert_array_equal(reward(features, "increase"), [[2, -1]])
    np.testing.assert_array_equal(reward(features, "decrease"), [[-2, 1]])


def test_rejects_an_unknown_cumulant_and_a_potential_without_discount():
    features = np.ones((2, 1), np.float32)
    with pytest.raises(rlaxlib.ArgumentError, match="`cumulant_type` is 'size'"):
        rlaxlib.feature_control_rewards(features, "size")
    with pytest.raises(rlaxlib.ArgumentError, match="`discount` is None"):
        rlaxlib.feature_control_rewards(features, "potential")


# --- The loss. ---


def test_loss_of_each_cell_is_that_of_q_lambda():
    inputs = draw()

    @jax.jit
    def both(inputs):
        losses = rlaxlib.pixel_control_loss(**inputs, cell_size=2)
        rewards = rlaxlib.pixel_control_rewards(inputs["observations"], cell_size=2)
        q = inputs["action_values"]

        def one(q_tm1, r_t, q_t):
            rest = r_t, inputs["discount_factor"], q_t
            return rlaxlib.q_lambda(q_tm1, inputs["actions"], *rest, lambda_=1.0)

        each = jax.vmap(jax.vmap(one, 1, 1), 1, 1)
        return losses, rlaxlib.l2_loss(each(q[:-1], rewards, q[1:]))

    close(*both(inputs))


def test_a_truncated_stream_equals_two_streams():
    inputs, steps = draw(), np.arange(STEPS)
    whole = pixel_control_loss(**inputs, cell_size=2, truncated_t=steps == 2)
    whole = np.asarray(whole)
    for steps in (slice(0, 3), slice(3, STEPS)):
        close(whole[steps], pixel_control_loss(**part(inputs, steps), cell_size=2))


def test_a_step_across_a_reset_can_be_masked():
    inputs, steps = draw(), np.arange(STEPS)
    masks = {"truncated_t": steps == 2, "sample_mask": steps != 3}
    losses = np.asarray(pixel_control_loss(**inputs, cell_size=2, **masks))
    np.testing.assert_array_equal(losses[3], 0.0)
    for steps in (slice(0, 3), slice(4, STEPS)):
        close(losses[steps], pixel_control_loss(**part(inputs, steps), cell_size=2))


def test_padding_may_hold_anything():
    inputs = draw()
    mask = np.arange(STEPS) < 4
    first = part(inputs, slice(0, 4))
    names = ("observations", "action_values")
    padded = inputs | {name: inputs[name].copy() for name in names}
    for name in names:
        padded[name][5:] = np.nan

    def total(moved, fixed, **masks):
        losses = rlaxlib.pixel_control_loss(**fixed | moved, cell_size=2, **masks)
        return jnp.sum(losses)

    gradient = jax.jit(jax.value_and_grad(total))
    moved, expected = (
        gradient({name: x[name] for name in names}, x, **masks)
        for x, masks in ((padded, {"sample_mask": mask}), (first, {}))
    )
    close(moved[0], expected[0])
    for name in names:
        found = np.asarray(moved[1][name])
        close(found[:5], expected[1][name])
        np.testing.assert_array_equal(found[5:], 0.0)


def test_half_precision_values_and_single_precision_rewards_give_single_precision():
    inputs, loss = draw(), rlaxlib.pixel_control_loss
    with jax.numpy_dtype_promotion("standard"):
        mixed = inputs | {"action_values": inputs["action_values"].astype(jnp.bfloat16)}
        losses = jax.eval_shape(functools.partial(loss, cell_size=2), **mixed)
    assert losses.dtype == jnp.float32


# --- Invalid input. ---


@pytest.mark.parametrize(
    ("height", "width", "cell_size"), [(6, 8, 4), (8, 6, 4), (4, 4, 8), (6, 6, 4)]
)
def test_cells_must_fill_the_image(height, width, cell_size):
    observations = np.zeros((3, height, width, 1))
    message = f"`cell_size` is {cell_size}, must divide images of {height} by {width}"
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        rlaxlib.pixel_control_rewards(observations, cell_size)
    with pytest.raises(
        rlaxlib.ArgumentError, match=r"^pixel_control_loss: `cell_size`"
    ):
        rlaxlib.pixel_control_loss(
            observations, np.zeros(2, int), np.zeros((3, 1, 1, 2)), 0.9, cell_size
        )


def test_action_values_must_have_the_shape_of_the_cells():
    message = r"`action_values` has shape \(7, 2, 2, 4\), must be \(7, 2, 3, 4\)"
    inputs = draw() | {"action_values": np.zeros((STEPS + 1, 2, 2, 4))}
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        rlaxlib.pixel_control_loss(**inputs, cell_size=2)
