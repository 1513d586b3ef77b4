"""Test the switch of gradients, with a flag that is known and one that is traced."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlaxlib._core import gradients

TARGET, PREDICTION, REWARD = 5.0, 3.0, 0.25

each_flag = pytest.mark.parametrize("flag", [False, True])
each_way = pytest.mark.parametrize("known", [False, True], ids=["traced", "known"])


def slopes(function, flag, known, *at):
    """Return a function's value and its slope by each number, whatever the flag is."""

    def derive(flag):
        return jax.value_and_grad(function, range(1, 1 + len(at)))(flag, *at)

    return derive(flag) if known else jax.jit(derive)(flag)


@each_flag
@each_way
def test_what_is_stopped_stays_but_has_no_slope(known, flag):
    value, (slope,) = slopes(gradients.stop_if, flag, known, TARGET)
    assert value == TARGET
    assert slope == (0.0 if flag else 1.0)


@each_flag
@each_way
def test_an_error_pulls_on_the_target_unless_it_is_stopped(known, flag):
    def error(flag, target, prediction, reward):
        return gradients.error(target, prediction, flag, reward)

    value, found = slopes(error, flag, known, TARGET, PREDICTION, REWARD)
    assert value == TARGET - PREDICTION + REWARD
    pull = 0.0 if flag else 1.0
    np.testing.assert_array_equal(found, [pull, -1.0, pull])


@each_flag
@each_way
def test_a_correction_pulls_on_the_prediction_alone_if_its_target_is_constant(
    known, flag
):
    def correction(flag, difference, prediction):
        return gradients.correction(difference, prediction, flag)

    value, found = slopes(correction, flag, known, TARGET, PREDICTION)
    assert value == TARGET
    np.testing.assert_array_equal(found, [0.0, -1.0] if flag else [1.0, 0.0])


@each_flag
@each_way
def test_a_correction_keeps_digits_that_the_target_would_not(known, flag):
    difference, prediction = jnp.float32(1e-6), jnp.float32(1e6)

    def correction(flag, difference, prediction):
        return gradients.correction(difference, prediction, flag)

    value, _ = slopes(correction, flag, known, difference, prediction)
    assert value == difference
