"""Test what widens the gaps between actions: how the functions relate."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

Q_TM1 = jnp.array([1.0, -2.0, 0.5])
Q_T = jnp.array([3.0, -1.0, 2.0])
BOTH = [rlaxlib.advantage_learning, rlaxlib.persistent_advantage_learning]
each_function = pytest.mark.parametrize("function", BOTH)


@each_function
def test_without_a_weight_it_is_q_learning(function):
    for action in range(3):
        actual = function(Q_TM1, Q_TM1, action, 0.5, 0.9, Q_T, 0.0)
        close(actual, rlaxlib.q_learning(Q_TM1, action, 0.5, 0.9, Q_T))


@each_function
def test_large_values_do_not_round_a_small_reward_away(function):
    large = jnp.array([1000.0])
    assert function(large, large, 0, 1e-3, 1.0, large, 0.5) == np.float32(1e-3)


@each_function
def test_the_best_action_is_not_devalued(function):
    actual = function(Q_TM1, Q_TM1, 0, 0.5, 0.9, Q_T, 0.7)
    close(actual, rlaxlib.q_learning(Q_TM1, 0, 0.5, 0.9, Q_T))


def test_the_persistent_error_is_the_larger_of_two():
    for action in range(3):
        inputs = Q_TM1, Q_TM1, action, 0.5, 1.0, Q_T, 0.7
        # With no discount the other branch is that of persistent Q-learning.
        here = rlaxlib.advantage_learning(*inputs)
        there = rlaxlib.persistent_q_learning(Q_TM1, action, 0.5, 1.0, Q_T, 0.7)
        actual = rlaxlib.persistent_advantage_learning(*inputs)
        close(actual, jnp.maximum(here, there))


def test_the_gap_of_the_next_state_is_not_discounted():
    q = jnp.array([10.0, 0.0])
    actual = rlaxlib.persistent_advantage_learning(
        jnp.zeros(2), q, 1, 0.0, 0.5, jnp.array([4.0, 2.0]), 0.5
    )
    close(actual, 0.5 * 4.0 - 0.5 * 2.0)


@each_function
def test_nothing_that_follows_the_end_of_an_episode_counts(function):
    for action in range(3):
        ended = [
            function(Q_TM1, Q_TM1, action, 0.5, 0.0, scale * Q_T, 0.7)
            for scale in (0.0, 1.0, 0.01)
        ]
        np.testing.assert_array_equal(ended, [ended[0]] * 3)


def test_value_iteration_widens_gaps_and_keeps_the_best_value():
    rewards, scale, discount = jnp.array([1.0, 0.5]), 0.75, 0.5
    step = jax.vmap(
        lambda q, action, reward: rlaxlib.advantage_learning(
            q, q, action, reward, discount, q, scale
        ),
        in_axes=(None, 0, 0),
    )
    q = jnp.zeros(2)
    for _ in range(200):
        q = q + step(q, jnp.arange(2), rewards)
    close(q, [2.0, 2.0 - 0.5 / (1 - scale)])


@each_function
def test_an_action_that_is_not_legal_next_is_none_to_repeat(function):
    target_q_t = Q_T.at[1].set(-jnp.inf)
    value, gradients = jax.value_and_grad(
        lambda q, scale: function(
            Q_TM1, Q_TM1, 1, 0.5, 0.9, q, scale, stop_target_gradients=False
        ),
        (0, 1),
    )(target_q_t, 0.7)
    close(value, rlaxlib.advantage_learning(Q_TM1, Q_TM1, 1, 0.5, 0.9, Q_T, 0.7))
    assert all(np.isfinite(each).all() for each in gradients)


@each_function
def test_refuses_a_weight_that_is_none(function):
    for scale in (-0.1, 1.1):
        with pytest.raises(rlaxlib.ArgumentError, match="`action_gap_scale` must lie"):
            function(Q_TM1, Q_TM1, 0, 0.5, 0.9, Q_T, scale)
