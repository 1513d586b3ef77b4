"""Test the one-step errors: how the functions relate, and what they refuse."""

import jax
import jax.numpy as jnp
import pytest
from experience import close

import rlaxlib

Q_TM1 = jnp.array([1.0, -2.0, 0.5])
Q_T = jnp.array([3.0, -1.0, 2.0])


def test_a_sure_choice_makes_expected_sarsa_sarsa():
    expected = rlaxlib.expected_sarsa(
        Q_TM1, 1, 0.5, 0.9, Q_T, rlaxlib.one_hot(jnp.array(2), 3)
    )
    close(expected, rlaxlib.sarsa(Q_TM1, 1, 0.5, 0.9, Q_T, 2))


def test_a_greedy_choice_makes_them_q_learning():
    error = rlaxlib.q_learning(Q_TM1, 1, 0.5, 0.9, Q_T)
    close(rlaxlib.sarsa(Q_TM1, 1, 0.5, 0.9, Q_T, 0), error)
    close(rlaxlib.double_q_learning(Q_TM1, 1, 0.5, 0.9, Q_T, Q_T), error)
    close(rlaxlib.persistent_q_learning(Q_TM1, 1, 0.5, 0.9, Q_T, 0.0), error)
    close(rlaxlib.qv_learning(Q_TM1, 1, 0.5, 0.9, 3.0), error)
    close(rlaxlib.qv_max(Q_TM1[1], 0.5, 0.9, Q_T), error)


def test_full_persistence_repeats_the_action():
    error = rlaxlib.persistent_q_learning(Q_TM1, 1, 0.5, 0.9, Q_T, 1.0)
    close(error, rlaxlib.sarsa(Q_TM1, 1, 0.5, 0.9, Q_T, 1))


def test_a_reward_rate_of_zero_and_no_discount_make_td_learning_of_differences():
    actual = rlaxlib.differential_td_learning(1.0, 0.5, 4.0, reward_rate=0.0)
    close(actual, rlaxlib.td_learning(1.0, 0.5, 1.0, 4.0))


def test_differential_errors_are_nothing_at_the_values_of_a_cycle():
    rewards, values = [1.0, 3.0], [0.0, 1.0]  # One more than the average, then less.
    for now, after in ((0, 1), (1, 0)):
        for constant in (0.0, 10.0):  # Values are known up to a constant.
            error = rlaxlib.differential_td_learning(
                values[now] + constant, rewards[now], values[after] + constant, 2.0
            )
            close(error, 0.0)


def test_a_discount_of_zero_lets_nothing_through():
    for q_t in (Q_T, 100 * Q_T):
        close(rlaxlib.q_learning(Q_TM1, 0, 0.5, 0.0, q_t), -0.5)


def test_an_action_that_is_not_legal_is_never_best():
    q_t = Q_T.at[0].set(-jnp.inf)
    close(rlaxlib.q_learning(Q_TM1, 0, 0.0, 1.0, q_t), 1.0)


@pytest.mark.parametrize(
    ("dtype", "reward"), [(jnp.bfloat16, 0.5), (jnp.float16, 1e-3), (jnp.float32, 1e-3)]
)
def test_large_values_do_not_round_a_small_reward_away(dtype, reward):
    r_t, discount_t = jnp.asarray(reward, dtype), jnp.ones((), dtype)
    large = jnp.asarray(1000.0, dtype)
    error = rlaxlib.td_learning(large, r_t, discount_t, large)
    assert error.dtype == dtype
    assert error == r_t
    assert rlaxlib.q_learning(large[None], 0, r_t, discount_t, large[None]) == r_t


@pytest.mark.parametrize("a_tm1", [-1, 3, 10])
def test_an_action_that_does_not_exist_is_refused_or_gives_nan(a_tm1):
    with pytest.raises(rlaxlib.ArgumentError, match=r"`a_tm1` must be one of 3"):
        rlaxlib.q_learning(Q_TM1, a_tm1, 0.5, 0.9, Q_T)
    assert jnp.isnan(jax.jit(rlaxlib.q_learning)(Q_TM1, a_tm1, 0.5, 0.9, Q_T))


def test_the_numbers_of_actions_must_agree():
    with pytest.raises(rlaxlib.ArgumentError, match=r"^q_learning: `q_t`.* A = 3"):
        rlaxlib.q_learning(Q_TM1, 0, 0.5, 0.9, jnp.ones(5))
