"""Test the one-step TD errors: identities between them, edges and invalid input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

Q_TM1 = np.float32([1.0, -2.0, 0.5])
Q_T = np.float32([3.0, -1.0, 2.0])


# --- Identities. ---


def test_expected_sarsa_of_a_deterministic_policy_is_sarsa():
    probs_a_t = np.float32([0, 0, 1])
    actual = rlaxlib.expected_sarsa(Q_TM1, 1, 0.5, 0.9, Q_T, probs_a_t)
    close(actual, rlaxlib.sarsa(Q_TM1, 1, 0.5, 0.9, Q_T, 2))


def test_errors_with_the_greedy_next_action_are_q_learning():
    error = rlaxlib.q_learning(Q_TM1, 1, 0.5, 0.9, Q_T)
    close(rlaxlib.sarsa(Q_TM1, 1, 0.5, 0.9, Q_T, 0), error)
    close(rlaxlib.double_q_learning(Q_TM1, 1, 0.5, 0.9, Q_T, Q_T), error)
    close(rlaxlib.qv_learning(Q_TM1, 1, 0.5, 0.9, 3.0), error)
    close(rlaxlib.qv_max(Q_TM1[1], 0.5, 0.9, Q_T), error)


# --- Edges. ---


def test_nothing_after_the_end_of_an_episode_counts():
    for scale in (1.0, 100.0):
        q_t = np.float32(scale) * Q_T
        close(rlaxlib.q_learning(Q_TM1, 0, 0.5, 0.0, q_t), -0.5)


def test_an_illegal_action_is_never_the_best():
    q_t = np.float32([-np.inf, -1.0, 2.0])
    close(rlaxlib.q_learning(Q_TM1, 0, 0.0, 1.0, q_t), 1.0)


@pytest.mark.parametrize(
    ("dtype", "reward"), [(jnp.bfloat16, 0.5), (jnp.float16, 1e-3), (jnp.float32, 1e-3)]
)
def test_large_values_do_not_round_a_small_reward_away(dtype, reward):
    # Not compiled: a compiled CPU program computes half precision in float32.
    r_t, discount_t = np.asarray(reward, dtype), np.ones((), dtype)
    large = np.asarray(1000.0, dtype)
    q = large[None]
    errors = [
        rlaxlib.td_learning(large, r_t, discount_t, large),
        rlaxlib.q_learning(q, 0, r_t, discount_t, q),
        rlaxlib.advantage_learning(q, q, 0, r_t, discount_t, q, 0.5),
        rlaxlib.persistent_advantage_learning(q, q, 0, r_t, discount_t, q, 0.5),
    ]
    for error in errors:
        assert error.dtype == dtype
        assert error == r_t


# --- Invalid input. ---


@pytest.mark.parametrize("a_tm1", [-1, 3, 10])
def test_an_action_out_of_range_is_rejected_or_gives_nan(a_tm1):
    others = {"r_t": 0.5, "discount_t": 0.9, "q_t": Q_T}
    message = rf"^q_learning: `a_tm1` is {a_tm1}, must be in \[0, 3\)"
    for call in (rlaxlib.q_learning, jax.jit(rlaxlib.q_learning, static_argnums=1)):
        with pytest.raises(rlaxlib.ArgumentError, match=message):
            call(Q_TM1, a_tm1, **others)
    assert np.isnan(jax.jit(rlaxlib.q_learning)(Q_TM1, a_tm1, **others))


def test_the_numbers_of_actions_must_agree():
    message = r"^q_learning: `q_t` is float64\[5\], must be float\[A\]"
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        rlaxlib.q_learning(Q_TM1, 0, 0.5, 0.9, np.ones(5))
