"""Test the one-step TD errors: identities between them, edges and invalid input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

Q_TM1 = jnp.array([1.0, -2.0, 0.5])
Q_T = jnp.array([3.0, -1.0, 2.0])
GAPS = [rlaxlib.advantage_learning, rlaxlib.persistent_advantage_learning]
each_gap = pytest.mark.parametrize("function", GAPS)


# --- Identities. ---


def test_expected_sarsa_of_a_deterministic_policy_is_sarsa():
    probs_a_t = rlaxlib.one_hot(jnp.array(2), 3)
    actual = rlaxlib.expected_sarsa(Q_TM1, 1, 0.5, 0.9, Q_T, probs_a_t)
    close(actual, rlaxlib.sarsa(Q_TM1, 1, 0.5, 0.9, Q_T, 2))


def test_errors_with_the_greedy_next_action_are_q_learning():
    error = rlaxlib.q_learning(Q_TM1, 1, 0.5, 0.9, Q_T)
    close(rlaxlib.sarsa(Q_TM1, 1, 0.5, 0.9, Q_T, 0), error)
    close(rlaxlib.double_q_learning(Q_TM1, 1, 0.5, 0.9, Q_T, Q_T), error)
    close(rlaxlib.qv_learning(Q_TM1, 1, 0.5, 0.9, 3.0), error)
    close(rlaxlib.qv_max(Q_TM1[1], 0.5, 0.9, Q_T), error)


def test_full_persistence_is_sarsa_of_the_repeated_action():
    error = rlaxlib.persistent_q_learning(Q_TM1, 1, 0.5, 0.9, Q_T, 1.0)
    close(error, rlaxlib.sarsa(Q_TM1, 1, 0.5, 0.9, Q_T, 1))


def test_a_gap_scale_of_zero_is_q_learning():
    for action in range(3):
        error = rlaxlib.q_learning(Q_TM1, action, 0.5, 0.9, Q_T)
        for function in GAPS:
            close(function(Q_TM1, Q_TM1, action, 0.5, 0.9, Q_T, 0.0), error)
        close(rlaxlib.persistent_q_learning(Q_TM1, action, 0.5, 0.9, Q_T, 0.0), error)


@each_gap
def test_the_best_action_has_no_gap(function):
    actual = function(Q_TM1, Q_TM1, 0, 0.5, 0.9, Q_T, 0.7)
    close(actual, rlaxlib.q_learning(Q_TM1, 0, 0.5, 0.9, Q_T))


def test_persistent_advantage_learning_is_the_larger_of_two_errors():
    for action in range(3):
        inputs = Q_TM1, Q_TM1, action, 0.5, 1.0, Q_T, 0.7
        # Undiscounted, the other branch is that of persistent Q-learning.
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


def test_advantage_learning_widens_gaps_and_keeps_the_best_value():
    rewards, scale, discount = jnp.array([1.0, 0.5]), 0.75, 0.5

    @jax.jit
    @jax.vmap
    def step(q, action, reward):
        return rlaxlib.advantage_learning(q, q, action, reward, discount, q, scale)

    q = jnp.zeros(2)
    for _ in range(200):
        q = q + step(jnp.stack([q, q]), jnp.arange(2), rewards)
    close(q, [2.0, 2.0 - 0.5 / (1 - scale)])


def test_differential_td_error_is_the_undiscounted_td_error_of_centred_rewards():
    actual = rlaxlib.differential_td_learning(1.0, 0.5, 4.0, reward_rate=0.2)
    close(actual, rlaxlib.td_learning(1.0, 0.5 - 0.2, 1.0, 4.0))


def test_differential_errors_are_zero_at_the_values_of_a_cycle():
    rewards, values = [1.0, 3.0], [0.0, 1.0]
    for now, after in ((0, 1), (1, 0)):
        for constant in (0.0, 10.0):  # Values are defined up to a constant.
            error = rlaxlib.differential_td_learning(
                values[now] + constant, rewards[now], values[after] + constant, 2.0
            )
            close(error, 0.0)


# --- Edges. ---


def test_nothing_after_the_end_of_an_episode_counts():
    for scale in (1.0, 100.0):
        close(rlaxlib.q_learning(Q_TM1, 0, 0.5, 0.0, scale * Q_T), -0.5)
        for function in GAPS:
            for action, gap in ((0, 0.0), (1, 3.0 * (function is GAPS[0]))):
                error = function(Q_TM1, Q_TM1, action, 0.5, 0.0, scale * Q_T, 0.7)
                close(error, 0.5 - 0.7 * gap - Q_TM1[action])


def test_an_illegal_action_is_never_the_best():
    q_t = Q_T.at[0].set(-jnp.inf)
    close(rlaxlib.q_learning(Q_TM1, 0, 0.0, 1.0, q_t), 1.0)


@each_gap
def test_an_action_that_is_illegal_in_the_next_state_has_the_gap_of_this_state(
    function,
):
    target_q_t = Q_T.at[1].set(-jnp.inf)
    value, gradients = jax.value_and_grad(
        lambda q, scale: function(
            Q_TM1, Q_TM1, 1, 0.5, 0.9, q, scale, stop_target_gradients=False
        ),
        (0, 1),
    )(target_q_t, 0.7)
    close(value, rlaxlib.advantage_learning(Q_TM1, Q_TM1, 1, 0.5, 0.9, Q_T, 0.7))
    assert all(np.isfinite(each).all() for each in gradients)


@pytest.mark.parametrize(
    ("dtype", "reward"), [(jnp.bfloat16, 0.5), (jnp.float16, 1e-3), (jnp.float32, 1e-3)]
)
def test_large_values_do_not_round_a_small_reward_away(dtype, reward):
    r_t, discount_t = jnp.asarray(reward, dtype), jnp.ones((), dtype)
    large = jnp.asarray(1000.0, dtype)
    q = large[None]
    errors = [
        rlaxlib.td_learning(large, r_t, discount_t, large),
        rlaxlib.q_learning(q, 0, r_t, discount_t, q),
        *(function(q, q, 0, r_t, discount_t, q, 0.5) for function in GAPS),
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
    assert jnp.isnan(jax.jit(rlaxlib.q_learning)(Q_TM1, a_tm1, **others))


def test_the_numbers_of_actions_must_agree():
    message = r"^q_learning: `q_t` has shape \(5,\), must be \(3,\)"
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        rlaxlib.q_learning(Q_TM1, 0, 0.5, 0.9, jnp.ones(5))
