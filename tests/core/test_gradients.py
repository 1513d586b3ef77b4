"""Test stop-gradient flags that are Python bools and flags that are traced."""

import jax
import numpy as np
import pytest

from rlaxlib._core import gradients

TARGET, PREDICTION, REWARD = 5.0, 3.0, 0.25

each_flag = pytest.mark.parametrize("flag", [False, True])
each_way = pytest.mark.parametrize("known", [False, True], ids=["traced", "static"])


def value_and_gradient(function, flag, known, *at):
    """Return the value of a function and its gradient by each argument."""

    def derive(flag):
        return jax.value_and_grad(function, range(1, 1 + len(at)))(flag, *at)

    return jax.jit(derive, static_argnums=0 if known else ())(flag)


@each_flag
@each_way
def test_stop_if_keeps_the_value_and_stops_the_gradient(known, flag):
    value, (gradient,) = value_and_gradient(gradients.stop_if, flag, known, TARGET)
    assert value == TARGET
    assert gradient == (0.0 if flag else 1.0)


@each_flag
@each_way
def test_error_has_the_gradient_of_the_target_unless_it_is_stopped(known, flag):
    def error(flag, target, prediction):
        return gradients.error(target, prediction, flag)

    value, found = value_and_gradient(error, flag, known, TARGET, PREDICTION)
    assert value == TARGET - PREDICTION
    np.testing.assert_array_equal(found, [0.0 if flag else 1.0, -1.0])


@each_flag
@each_way
def test_td_error_has_the_gradient_of_the_target_unless_it_is_stopped(known, flag):
    def error(flag, prediction, reward, target):
        return gradients.td_error(prediction, reward, 0.5, target, flag)

    value, found = value_and_gradient(error, flag, known, PREDICTION, REWARD, TARGET)
    assert value == REWARD + (0.5 * TARGET - PREDICTION)
    np.testing.assert_array_equal(found, [-1.0, *([0.0, 0.0] if flag else [1.0, 0.5])])


@each_flag
@each_way
@pytest.mark.parametrize("value", [1e6, -1e6, -np.inf])
def test_td_error_at_an_end_does_not_depend_on_the_next_value(known, flag, value):
    def error(flag, prediction, target):
        return gradients.td_error(prediction, REWARD, 0.0, target, flag)

    found, slope = value_and_gradient(error, flag, known, PREDICTION, np.float32(value))
    assert found == REWARD - PREDICTION
    np.testing.assert_array_equal(slope, [-1.0, 0.0])


@each_flag
@each_way
def test_correction_has_the_gradient_of_the_prediction_alone_if_stopped(known, flag):
    def correction(flag, difference, prediction):
        return gradients.correction(difference, prediction, flag)

    value, found = value_and_gradient(correction, flag, known, TARGET, PREDICTION)
    assert value == TARGET
    np.testing.assert_array_equal(found, [0.0, -1.0] if flag else [1.0, 0.0])


@each_flag
@each_way
def test_correction_is_exact_beside_a_large_prediction(known, flag):
    difference, prediction = np.float32(1e-6), np.float32(1e6)

    def correction(flag, difference, prediction):
        return gradients.correction(difference, prediction, flag)

    value, _ = value_and_gradient(correction, flag, known, difference, prediction)
    assert value == difference
