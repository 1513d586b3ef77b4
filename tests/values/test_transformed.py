"""Test the transformed values: how the functions relate, and their edges."""

import inspect

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close, make_stream, pick

import rlaxlib

REWARDS = ("r_t", "discount_t")
Q = ("q_tm1", "a_tm1", *REWARDS, "q_t")
RETRACE = ("q_tm1", "q_t", "a_tm1", "a_t", *REWARDS, "pi_t", "mu_t")
SQUASH = rlaxlib.SIGNED_HYPERBOLIC_PAIR


def best(q):
    return jnp.max(q, axis=-1)


# --- What the functions compute. ---


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_an_error_keeps_its_digits_whatever_the_scale_of_the_values(scale):
    v_t, r_t = scale * jnp.array([0.5, 2.0]), scale * jnp.array([1.0, -3.0])
    found = rlaxlib.transformed_n_step_returns(
        SQUASH, r_t, jnp.ones(2), SQUASH.apply(v_t), n=1
    )
    with contract.x64(True):
        expected = SQUASH.apply(np.float64(r_t) + np.float64(v_t))
    np.testing.assert_allclose(found, expected, rtol=2e-6)


def test_half_precision_learns_as_single_does():
    stream = make_stream()
    single = pick(stream, *Q)
    half = {
        name: x.astype(jnp.bfloat16) if x.dtype == jnp.float32 else x
        for name, x in single.items()
    }
    rounded = {
        name: x.astype(jnp.float32) if x.dtype == jnp.bfloat16 else x
        for name, x in half.items()
    }
    found = rlaxlib.transformed_q_lambda(**half, lambda_=0.75, tx_pair=SQUASH)
    assert found.dtype == jnp.bfloat16
    exact = rlaxlib.transformed_q_lambda(**rounded, lambda_=0.75, tx_pair=SQUASH)
    np.testing.assert_allclose(np.float32(found), exact, rtol=4e-3)


# --- How they relate. ---


def test_without_a_transform_they_are_the_functions_of_the_same_names():
    stream = make_stream()
    inputs = pick(stream, *Q) | {"lambda_": 0.7}
    close(rlaxlib.transformed_q_lambda(**inputs), rlaxlib.q_lambda(**inputs))
    inputs = pick(stream, *RETRACE) | {"lambda_": 0.7}
    close(rlaxlib.transformed_retrace(**inputs), rlaxlib.retrace(**inputs))
    inputs = pick(stream, *REWARDS, "v_t")
    nothing = rlaxlib.IDENTITY_PAIR
    close(
        rlaxlib.transformed_lambda_returns(nothing, **inputs, lambda_=0.7),
        rlaxlib.lambda_returns(**inputs, lambda_=0.7),
    )
    close(
        rlaxlib.transformed_n_step_returns(nothing, **inputs, n=3),
        rlaxlib.n_step_bootstrapped_returns(**inputs, n=3),
    )


def test_one_step_of_q_learning_is_q_lambda_at_zero():
    stream = make_stream()
    inputs = pick(stream, *Q)
    a_t = jnp.argmax(stream["q_t"], axis=-1)
    one_step = rlaxlib.transformed_n_step_q_learning(
        target_q_t=inputs["q_t"],
        a_t=a_t,
        **pick(stream, "q_tm1", "a_tm1", *REWARDS),
        n=1,
        tx_pair=SQUASH,
    )
    close(one_step, rlaxlib.transformed_q_lambda(**inputs, lambda_=0.0, tx_pair=SQUASH))


def test_squashing_before_or_after_is_all_the_same_in_the_last_step():
    stream = make_stream()
    errors = rlaxlib.transformed_q_lambda(
        **pick(stream, *Q), lambda_=0.7, tx_pair=SQUASH
    )
    v_t = SQUASH.apply_inv(best(stream["q_t"])[-1])
    target = SQUASH.apply(stream["r_t"][-1] + stream["discount_t"][-1] * v_t)
    close(errors[-1], target - stream["q_tm1"][-1, stream["a_tm1"][-1]])


# --- How they behave under JAX. ---


def test_values_may_be_given_by_name():
    inputs = pick(make_stream(), *REWARDS, "v_t")
    by_name = rlaxlib.transformed_lambda_returns(tx_pair=SQUASH, **inputs)
    in_order = (SQUASH, inputs["r_t"], inputs["discount_t"], inputs["v_t"])
    close(by_name, rlaxlib.transformed_lambda_returns(*in_order))


@pytest.mark.parametrize(
    "function",
    [
        rlaxlib.transformed_lambda_returns,
        rlaxlib.transformed_n_step_returns,
        rlaxlib.transformed_general_off_policy_returns_from_action_values,
    ],
)
def test_signatures_begin_with_the_pair(function):
    assert next(iter(inspect.signature(function).parameters)) == "tx_pair"


def test_a_target_that_overflows_stops_no_prediction_from_learning():
    def loss(q_tm1, q_t):
        return rlaxlib.transformed_q_lambda(
            q_tm1,
            jnp.array([0]),
            jnp.ones(1),
            jnp.ones(1),
            q_t,
            0.9,
            tx_pair=rlaxlib.HYPERBOLIC_SIN_PAIR,
        )[0]

    gradient = jax.grad(loss, argnums=(0, 1))
    prediction, target = gradient(jnp.ones((1, 2)), jnp.array([[89.0, 90.0]]))
    np.testing.assert_array_equal(prediction, [[-1.0, 0.0]])
    np.testing.assert_array_equal(target, [[0.0, 0.0]])


@pytest.mark.parametrize("pair", [rlaxlib.TxPair(jnp.exp, jnp.log), SQUASH])
def test_rows_that_are_no_decisions_stay_zero_under_any_transform(pair):
    stream = pick(make_stream(), *REWARDS, "v_t")
    stream["v_t"] = jnp.abs(stream["v_t"]) + 1.0
    mask = jnp.arange(8) < 5
    found = rlaxlib.transformed_lambda_returns(pair, **stream, sample_mask=mask)
    np.testing.assert_array_equal(found[5:], 0.0)
    first = {name: x[:5] for name, x in stream.items()}
    close(found[:5], rlaxlib.transformed_lambda_returns(pair, **first))


# --- What they refuse. ---


@pytest.mark.parametrize("n", [0, -1, 2.0])
def test_refuses_windows_without_a_step(n):
    stream = make_stream()
    with pytest.raises(
        rlaxlib.ArgumentError, match=r"^transformed_n_step_returns: `n` must be"
    ):
        rlaxlib.transformed_n_step_returns(SQUASH, **pick(stream, *REWARDS, "v_t"), n=n)
    with pytest.raises(
        rlaxlib.ArgumentError, match=r"^transformed_n_step_q_learning: `n` must be"
    ):
        rlaxlib.transformed_n_step_q_learning(
            target_q_t=stream["q_t"],
            **pick(stream, "q_tm1", "a_tm1", "a_t", *REWARDS),
            n=n,
        )


def test_refuses_a_negative_eps():
    with pytest.raises(
        rlaxlib.ArgumentError, match=r"^transformed_retrace: `eps` must lie"
    ):
        rlaxlib.transformed_retrace(
            **pick(make_stream(), *RETRACE), lambda_=0.9, eps=-1.0
        )
