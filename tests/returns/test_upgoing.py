"""Test the returns that go on as long as things go well."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close, make_stream, pick

import rlaxlib

INPUTS = ("v_tm1", "v_t", "r_t", "discount_t")


@pytest.mark.parametrize("steps", [1, 2, 8])
def test_it_is_the_lambda_return_that_goes_on_where_the_next_error_is_not_negative(
    steps,
):
    inputs = pick(make_stream(steps), *INPUTS)
    errors = jax.vmap(rlaxlib.td_learning)(
        inputs["v_tm1"], inputs["r_t"], inputs["discount_t"], inputs["v_t"]
    )
    lambda_ = jnp.append(errors[1:] >= 0, False).astype(jnp.float32)
    rewards = pick(inputs, "r_t", "discount_t", "v_t")
    expected = rlaxlib.lambda_returns(**rewards, lambda_=lambda_)
    close(rlaxlib.upgo_returns(**inputs), expected)


def test_where_all_goes_well_it_is_the_discounted_return():
    inputs = pick(make_stream(), *INPUTS) | {"r_t": jnp.full(8, 10.0)}
    expected = rlaxlib.discounted_returns(**pick(inputs, "r_t", "discount_t", "v_t"))
    close(rlaxlib.upgo_returns(**inputs), expected)


def test_where_all_goes_wrong_it_is_the_one_step_target():
    inputs = pick(make_stream(), *INPUTS) | {"r_t": jnp.full(8, -10.0)}
    close(
        rlaxlib.upgo_returns(**inputs),
        inputs["r_t"] + inputs["discount_t"] * inputs["v_t"],
    )


def test_as_good_as_expected_is_good_enough():
    inputs = {
        "v_tm1": jnp.array([0.0, 4.0, 2.0]),
        "v_t": jnp.array([1.0, 2.0, 6.0]),
        "r_t": jnp.array([0.0, 3.0, 0.0]),
        "discount_t": jnp.full(3, 0.5),
    }
    close(rlaxlib.upgo_returns(**inputs), [2.25, 4.5, 3.0])


def test_it_is_never_less_than_the_one_step_target():
    for seed in range(5):
        inputs = pick(make_stream(seed=seed), *INPUTS)
        target = inputs["r_t"] + inputs["discount_t"] * inputs["v_t"]
        assert jnp.all(rlaxlib.upgo_returns(**inputs) >= target - 1e-6)


def test_the_choice_has_no_derivative():
    inputs = pick(make_stream(), *INPUTS)
    gradient = jax.grad(lambda v: jnp.sum(rlaxlib.upgo_returns(v, **rest)))
    rest = pick(inputs, "v_t", "r_t", "discount_t")
    np.testing.assert_array_equal(gradient(inputs["v_tm1"]), jnp.zeros(8))
