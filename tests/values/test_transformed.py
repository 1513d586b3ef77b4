"""Test transformed returns and errors: precision, identities, and edges."""

import functools
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
HYPERBOLIC = rlaxlib.SIGNED_HYPERBOLIC_PAIR


transformed_q_lambda = jax.jit(
    functools.partial(rlaxlib.transformed_q_lambda, tx_pair=HYPERBOLIC)
)
transformed_lambda_returns = jax.jit(
    rlaxlib.transformed_lambda_returns, static_argnums=0
)


# --- Precision. ---


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_returns_are_accurate_at_all_scales(scale):
    v_t, r_t = np.float32(scale) * np.float32([[0.5, 2.0], [1.0, -3.0]])
    found = jax.jit(one_step_returns)(r_t, v_t)
    with contract.x64(True):
        expected = HYPERBOLIC.apply(np.float64(r_t) + np.float64(v_t))
    np.testing.assert_allclose(found, expected, rtol=2e-6)


def one_step_returns(r_t, v_t):
    values = HYPERBOLIC.apply(v_t)
    return rlaxlib.transformed_n_step_returns(HYPERBOLIC, r_t, jnp.ones(2), values, n=1)


def test_half_precision_computes_in_single_precision():
    single = pick(make_stream(), *Q)
    half = {
        name: x.astype(jnp.bfloat16) if x.dtype == np.float32 else x
        for name, x in single.items()
    }
    rounded = {
        name: x.astype(np.float32) if x.dtype == jnp.bfloat16 else x
        for name, x in half.items()
    }
    # Not compiled: a compiled CPU program computes half precision in float32.
    found = rlaxlib.transformed_q_lambda(**half, lambda_=0.75, tx_pair=HYPERBOLIC)
    assert found.dtype == jnp.bfloat16
    exact = transformed_q_lambda(**rounded, lambda_=0.75)
    np.testing.assert_allclose(np.float32(found), exact, rtol=4e-3)


# --- Identities. ---


def test_the_identity_pair_gives_the_untransformed_functions():
    stream = make_stream()

    def evaluate(stream):
        inputs = pick(stream, *Q) | {"lambda_": 0.7}
        yield rlaxlib.transformed_q_lambda(**inputs), rlaxlib.q_lambda(**inputs)
        inputs = pick(stream, *RETRACE) | {"lambda_": 0.7}
        yield rlaxlib.transformed_retrace(**inputs), rlaxlib.retrace(**inputs)
        inputs = pick(stream, *REWARDS, "v_t")
        identity = rlaxlib.IDENTITY_PAIR
        yield (
            rlaxlib.transformed_lambda_returns(identity, **inputs, lambda_=0.7),
            rlaxlib.lambda_returns(**inputs, lambda_=0.7),
        )
        yield (
            rlaxlib.transformed_n_step_returns(identity, **inputs, n=3),
            rlaxlib.n_step_bootstrapped_returns(**inputs, n=3),
        )

    for found, expected in jax.jit(lambda x: list(evaluate(x)))(stream):
        close(found, expected)


def test_one_step_q_learning_is_q_lambda_at_zero():
    stream = make_stream()
    inputs = pick(stream, "q_tm1", "a_tm1", *REWARDS)
    inputs |= {"target_q_t": stream["q_t"], "a_t": np.argmax(stream["q_t"], axis=-1)}
    learn = functools.partial(
        rlaxlib.transformed_n_step_q_learning, n=1, tx_pair=HYPERBOLIC
    )
    one_step = jax.jit(learn)(**inputs)
    close(one_step, transformed_q_lambda(**pick(stream, *Q), lambda_=0.0))


def test_the_last_error_is_that_of_the_transformed_one_step_target():
    stream = make_stream()
    errors = transformed_q_lambda(**pick(stream, *Q), lambda_=0.7)
    v_t = HYPERBOLIC.apply_inv(np.max(stream["q_t"][-1]))
    target = HYPERBOLIC.apply(stream["r_t"][-1] + stream["discount_t"][-1] * v_t)
    close(errors[-1], target - stream["q_tm1"][-1, stream["a_tm1"][-1]])


# --- Edges. ---


def test_values_may_be_given_by_name():
    inputs = pick(make_stream(), *REWARDS, "v_t")
    by_name = jax.jit(rlaxlib.transformed_lambda_returns, static_argnames="tx_pair")
    in_order = (HYPERBOLIC, inputs["r_t"], inputs["discount_t"], inputs["v_t"])
    found = by_name(tx_pair=HYPERBOLIC, **inputs)
    close(found, transformed_lambda_returns(*in_order))


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


def test_gradient_of_the_prediction_is_finite_if_the_target_overflows():
    def loss(q_tm1, q_t):
        return rlaxlib.transformed_q_lambda(
            q_tm1,
            np.array([0]),
            np.ones(1),
            np.ones(1),
            q_t,
            0.9,
            tx_pair=rlaxlib.HYPERBOLIC_SIN_PAIR,
        )[0]

    gradient = jax.jit(jax.grad(loss, argnums=(0, 1)))
    prediction, target = gradient(np.ones((1, 2)), np.array([[89.0, 90.0]]))
    np.testing.assert_array_equal(prediction, [[-1.0, 0.0]])
    np.testing.assert_array_equal(target, [[0.0, 0.0]])


PAIRS = {
    "hyperbolic": HYPERBOLIC,
    "symlog": rlaxlib.SIGNED_LOGP1_PAIR,
    "square root": rlaxlib.TxPair(jnp.sqrt, jnp.square),
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_minus_infinity_after_the_end_of_an_episode_has_no_effect(pair):
    """No action is legal in the last state, as a mask of -1e9 says, too."""
    stream = {n: np.abs(x) for n, x in pick(make_stream(), *REWARDS, "q_t").items()}
    end = np.arange(8) == 4
    stream["discount_t"] = np.where(end, np.float32(0), stream["discount_t"])
    actions, one, half = np.zeros(8, np.int32), np.ones(8), np.full((8, 4), 0.25)
    assert stream["q_t"].shape == half.shape

    @jax.jit
    @functools.partial(jax.value_and_grad, argnums=(0, 1, 2), has_aux=True)
    def evaluate(r_t, discount_t, q_t):
        v_t, step = jnp.max(q_t, axis=-1), (r_t, discount_t)
        of_actions = q_t, actions, *step, np.float32(0.5 * one), np.float32(half)
        results = [
            rlaxlib.transformed_lambda_returns(pair, *step, v_t, 0.7),
            rlaxlib.transformed_n_step_returns(pair, *step, v_t, 3),
            rlaxlib.transformed_general_off_policy_returns_from_action_values(
                pair, *of_actions
            ),
        ]
        return sum(jnp.sum(jnp.sin(x)) for x in results), results

    def at_end(value):
        q_t = np.where(end[:, None], np.float32(value), stream["q_t"])
        (_, results), gradients = evaluate(stream["r_t"], stream["discount_t"], q_t)
        by_reward, by_discount, by_value = gradients
        assert not np.any(np.isnan(by_discount))
        by_discount = np.where(end, 0, by_discount)
        return results, by_reward, by_discount, by_value

    expected = at_end(1.0)
    marks = (0.5,) if pair is PAIRS["square root"] else (-np.inf, -1e9)
    for mark in marks:
        jax.tree.map(close, at_end(mark), expected)


@pytest.mark.parametrize("pair", [rlaxlib.TxPair(jnp.exp, jnp.log), HYPERBOLIC])
def test_returns_at_invalid_steps_are_zero_under_any_transform(pair):
    stream = pick(make_stream(), *REWARDS, "v_t")
    stream["v_t"] = np.abs(stream["v_t"]) + 1
    mask = np.arange(8) < 5
    found = np.asarray(transformed_lambda_returns(pair, **stream, sample_mask=mask))
    np.testing.assert_array_equal(found[5:], 0.0)
    first = {name: x[:5] for name, x in stream.items()}
    close(found[:5], transformed_lambda_returns(pair, **first))


@pytest.mark.parametrize("broken", ["apply", "apply_inv"])
@pytest.mark.parametrize("result", [jnp.sum, lambda x: x[..., None], jnp.ceil])
def test_a_pair_of_the_user_must_return_the_shape_that_it_gets(broken, result):
    if result is jnp.ceil:
        result = lambda x: jnp.ceil(x).astype(int)  # noqa: E731
    methods = {"apply": lambda x: x, "apply_inv": lambda x: x, broken: result}
    stream = pick(make_stream(), *REWARDS, "v_t")
    with pytest.raises(rlaxlib.ArgumentError, match=rf"`tx_pair\.{broken}\(x\)` is"):
        transformed_lambda_returns(rlaxlib.TxPair(**methods), **stream)
