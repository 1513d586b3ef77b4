"""Test the errors that increase the action gap: identities and edges."""

import jax
import numpy as np
import pytest
from experience import close

import rlaxlib

Q_TM1 = np.float32([1.0, -2.0, 0.5])
Q_T = np.float32([3.0, -1.0, 2.0])
q_learning = jax.jit(rlaxlib.q_learning)
advantage_learning = jax.jit(rlaxlib.advantage_learning)
persistent_advantage_learning = jax.jit(rlaxlib.persistent_advantage_learning)
persistent_q_learning = jax.jit(rlaxlib.persistent_q_learning)
GAPS = [advantage_learning, persistent_advantage_learning]
each_gap = pytest.mark.parametrize("function", GAPS)


# --- Identities. ---


def test_full_persistence_is_sarsa_of_the_repeated_action():
    error = persistent_q_learning(Q_TM1, 1, 0.5, 0.9, Q_T, 1.0)
    close(error, rlaxlib.sarsa(Q_TM1, 1, 0.5, 0.9, Q_T, 1))


def test_a_gap_scale_of_zero_is_q_learning():
    for action in range(3):
        error = q_learning(Q_TM1, action, 0.5, 0.9, Q_T)
        for function in GAPS:
            close(function(Q_TM1, Q_TM1, action, 0.5, 0.9, Q_T, 0.0), error)
        close(persistent_q_learning(Q_TM1, action, 0.5, 0.9, Q_T, 0.0), error)


@each_gap
def test_the_best_action_has_no_gap(function):
    actual = function(Q_TM1, Q_TM1, 0, 0.5, 0.9, Q_T, 0.7)
    close(actual, q_learning(Q_TM1, 0, 0.5, 0.9, Q_T))


def test_persistent_advantage_learning_is_the_larger_of_two_errors():
    for action in range(3):
        inputs = Q_TM1, Q_TM1, action, 0.5, 1.0, Q_T, 0.7
        # Undiscounted, the other branch is that of persistent Q-learning.
        here = advantage_learning(*inputs)
        there = persistent_q_learning(Q_TM1, action, 0.5, 1.0, Q_T, 0.7)
        actual = persistent_advantage_learning(*inputs)
        close(actual, np.maximum(here, there))


def test_the_gap_of_the_next_state_is_not_discounted():
    q = np.float32([10.0, 0.0])
    actual = persistent_advantage_learning(
        np.zeros(2), q, 1, 0.0, 0.5, np.array([4.0, 2.0]), 0.5
    )
    close(actual, 0.5 * 4.0 - 0.5 * 2.0)


def test_advantage_learning_widens_gaps_and_keeps_the_best_value():
    rewards, scale, discount = np.float32([1.0, 0.5]), 0.75, 0.5

    @jax.jit
    def step(q):
        def error(action, reward):
            return rlaxlib.advantage_learning(q, q, action, reward, discount, q, scale)

        return q + jax.vmap(error)(np.arange(2), rewards)

    q = np.zeros(2, np.float32)
    for _ in range(200):
        q = step(q)
    close(q, [2.0, 2.0 - 0.5 / (1 - scale)])


# --- Edges. ---


def test_nothing_after_the_end_of_an_episode_counts():
    for scale in (1.0, 100.0):
        for function in GAPS:
            for action, gap in ((0, 0.0), (1, 3.0 * (function is GAPS[0]))):
                q_t = np.float32(scale) * Q_T
                error = function(Q_TM1, Q_TM1, action, 0.5, 0.0, q_t, 0.7)
                close(error, 0.5 - 0.7 * gap - Q_TM1[action])


@each_gap
def test_an_action_that_is_illegal_in_the_next_state_has_the_gap_of_this_state(
    function,
):
    target_q_t = np.float32([3.0, -np.inf, 2.0])

    @jax.jit
    def evaluate(q, scale):
        def error(q, scale):
            inputs = Q_TM1, Q_TM1, 1, 0.5, 0.9, q, scale
            return function(*inputs, stop_target_gradients=False)

        return jax.value_and_grad(error, (0, 1))(q, scale)

    value, gradients = evaluate(target_q_t, 0.7)
    close(value, advantage_learning(Q_TM1, Q_TM1, 1, 0.5, 0.9, Q_T, 0.7))
    assert all(np.isfinite(each).all() for each in gradients)


@pytest.mark.parametrize("scale", [0.0, 0.5, 1.0])
def test_an_end_without_a_legal_action_leaves_the_reward(scale):
    nothing = np.full(3, -np.inf, np.float32)
    error = rlaxlib.persistent_q_learning(Q_TM1, 1, 0.5, 0.0, nothing, scale)
    close(error, 0.5 - Q_TM1[1])
    for function in GAPS:
        found = function(Q_TM1, Q_TM1, 1, 0.5, 0.0, nothing, scale)
        close(found, function(Q_TM1, Q_TM1, 1, 0.5, 0.0, Q_T, scale))


def test_persistent_q_learning_of_scale_0_is_q_learning_beside_an_illegal_action():
    q_t = np.float32([3.0, -np.inf, 2.0])
    error = rlaxlib.persistent_q_learning(Q_TM1, 1, 0.5, 0.9, q_t, 0.0)
    close(error, rlaxlib.q_learning(Q_TM1, 1, 0.5, 0.9, q_t))
