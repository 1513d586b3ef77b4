"""Test off-policy returns: special cases, identities, bad input."""

import jax
import numpy as np
import pytest
from experience import close, make_stream, pick

import rlaxlib

from_q_and_v = jax.jit(rlaxlib.general_off_policy_returns_from_q_and_v)
from_action_values = jax.jit(rlaxlib.general_off_policy_returns_from_action_values)
tree_backup = jax.jit(rlaxlib.tree_backup)
corrected = jax.jit(
    rlaxlib.importance_corrected_td_errors, static_argnames="stop_target_gradients"
)


def taken(q, a):
    return q[np.arange(len(a)), a]


def test_zero_trace_gives_the_one_step_target():
    stream = make_stream()
    inputs = pick(stream, "q_t", "a_t", "r_t", "discount_t", "pi_t")
    actual = from_action_values(**inputs, c_t=np.zeros(8))
    expected_q = np.sum(stream["pi_t"] * stream["q_t"], axis=-1)
    close(actual, stream["r_t"] + stream["discount_t"] * expected_q)


def test_trace_of_lambda_with_q_equal_to_v_is_the_lambda_return():
    stream = make_stream()
    inputs = pick(stream, "v_t", "r_t", "discount_t")
    lambda_returns = jax.jit(rlaxlib.lambda_returns)
    for lambda_ in (0.0, 0.6, 1.0):
        actual = from_q_and_v(**inputs, q_t=stream["v_t"], c_t=np.full(8, lambda_))
        close(actual, lambda_returns(**inputs, lambda_=lambda_))


def test_returns_from_action_values_and_from_q_and_v_agree():
    stream = make_stream()
    c_t = np.linspace(0.1, 1.0, 8, dtype=np.float32)
    rewards = pick(stream, "r_t", "discount_t")
    from_actions = from_action_values(
        **pick(stream, "q_t", "a_t", "pi_t"), **rewards, c_t=c_t
    )
    from_values = from_q_and_v(
        q_t=taken(stream["q_t"], stream["a_t"])[:-1],
        v_t=np.sum(stream["pi_t"] * stream["q_t"], axis=-1),
        c_t=c_t[:-1],
        **rewards,
    )
    close(from_actions, from_values)


TREE = ("q_tm1", "q_t", "a_tm1", "a_t", "r_t", "discount_t", "pi_t")


def test_tree_backup_at_lambda_zero_is_expected_sarsa():
    stream = make_stream()
    actual = tree_backup(**pick(stream, *TREE), lambda_=0.0)
    names = ("q_tm1", "a_tm1", "r_t", "discount_t", "q_t", "pi_t")
    expected_sarsa = jax.jit(jax.vmap(rlaxlib.expected_sarsa))
    close(actual, expected_sarsa(*pick(stream, *names).values()))


def test_tree_backup_is_retrace_of_a_deterministic_behaviour_policy():
    stream = make_stream() | {"mu_t": np.ones(8, np.float32)}
    actual = tree_backup(**pick(stream, *TREE), lambda_=0.7)
    retrace = jax.jit(rlaxlib.retrace)
    close(actual, retrace(**pick(stream, *TREE, "mu_t"), lambda_=0.7, eps=0.0))


def test_tree_backup_of_a_deterministic_policy_on_policy_is_sarsa_lambda():
    stream = make_stream()
    stream["pi_t"] = np.eye(4, dtype=np.float32)[stream["a_t"]]
    actual = tree_backup(**pick(stream, *TREE), lambda_=0.7)
    names = ("q_tm1", "a_tm1", "r_t", "discount_t", "q_t", "a_t")
    sarsa_lambda = jax.jit(rlaxlib.sarsa_lambda)
    close(actual, sarsa_lambda(**pick(stream, *names), lambda_=0.7))


def test_tree_backup_weights_the_leaves_by_the_policy():
    stream = make_stream(2)
    q, pi = stream["q_t"], stream["pi_t"]
    later = stream["r_t"][1] + stream["discount_t"][1] * np.sum(pi[1] * q[1])
    leaves = np.where(np.arange(4) == stream["a_t"][0], later, q[0])
    target = stream["r_t"][0] + stream["discount_t"][0] * np.sum(pi[0] * leaves)
    errors = tree_backup(**pick(stream, *TREE), lambda_=1.0)
    close(errors[0], target - stream["q_tm1"][0, stream["a_tm1"][0]])


def test_a_policy_may_be_shared_by_a_batch():
    rng, (b, t, a) = np.random.default_rng(0), (5000, 20, 5)
    q_t = rng.normal(size=(b, t, a)).astype(np.float32)
    pi_t = rng.dirichlet(np.ones(a), size=t).astype(np.float32)
    discount_t = rng.uniform(size=(b, t)).astype(np.float32)
    a_t, expected = np.zeros((b, t), int), discount_t * np.sum(pi_t * q_t, axis=-1)

    zero = np.zeros((b, t), np.float32)
    shared = jax.jit(jax.vmap(from_action_values, (0,) * 5 + (None,)))
    close(shared(q_t, a_t, zero, discount_t, zero, pi_t), expected)
    each = jax.vmap(jax.vmap(rlaxlib.expected_sarsa), (0, 0, 0, 0, 0, None))
    close(jax.jit(each)(0 * q_t, a_t, zero, discount_t, q_t, pi_t), expected)


@pytest.mark.parametrize("steps", [1, 2])
def test_last_action_value_and_trace_are_not_used(steps):
    stream = make_stream(steps)
    inputs = pick(stream, "v_t", "r_t", "discount_t")
    q_t, c_t = stream["v_t"][:-1], stream["rho_tm1"][: steps - 1]
    short = from_q_and_v(**inputs, q_t=q_t, c_t=c_t)
    q_t, c_t = (np.append(x, np.float32(np.nan)) for x in (q_t, c_t))
    np.testing.assert_array_equal(short, from_q_and_v(**inputs, q_t=q_t, c_t=c_t))


def test_importance_corrected_errors_on_policy_are_advantages():
    inputs = pick(make_stream(), "r_t", "discount_t", "values") | {"lambda_": 0.7}
    actual = corrected(**inputs, rho_tm1=np.ones(8))
    advantages = jax.jit(rlaxlib.truncated_generalized_advantage_estimation)
    close(actual, advantages(**inputs))


def test_importance_corrected_errors_keep_a_small_reward_beside_large_values():
    inputs = {
        "r_t": np.float32([1e-3]),
        "discount_t": np.ones(1),
        "rho_tm1": np.ones(1),
        "lambda_": 1.0,
        "values": np.full(2, 1000.0),
    }
    for stop in (False, True):
        error = corrected(**inputs, stop_target_gradients=stop)
        np.testing.assert_array_equal(error, inputs["r_t"])


def test_shape_error_states_what_the_rewards_determine():
    inputs = pick(make_stream(), "v_t", "r_t", "discount_t") | {"c_t": np.ones(7)}
    with pytest.raises(
        rlaxlib.ArgumentError,
        match=r"`q_t` is float64\[5\], must be float\[T-1\] or \[T\]",
    ):
        rlaxlib.general_off_policy_returns_from_q_and_v(**inputs, q_t=np.ones(5))
