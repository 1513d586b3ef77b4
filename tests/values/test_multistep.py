"""Test the multistep errors: how the functions relate."""

import jax.numpy as jnp
import numpy as np
import pytest
from experience import close, make_stream, pick

import rlaxlib

REWARDS = ("r_t", "discount_t")


def best(q):
    return jnp.max(q, axis=-1)


def taken(q, a):
    return rlaxlib.batched_index(q, a)


def test_td_lambda_is_the_lambda_return_less_the_value():
    stream = make_stream()
    actual = rlaxlib.td_lambda(**pick(stream, "v_tm1", *REWARDS, "v_t"), lambda_=0.7)
    targets = rlaxlib.lambda_returns(**pick(stream, *REWARDS, "v_t"), lambda_=0.7)
    close(actual, targets - stream["v_tm1"])


def test_the_three_lambdas_differ_in_the_value_of_a_state_only():
    stream = make_stream()
    q_a_tm1 = taken(stream["q_tm1"], stream["a_tm1"])
    inputs = pick(stream, "q_tm1", "a_tm1", *REWARDS, "q_t") | {"lambda_": 0.7}
    rewards = pick(stream, *REWARDS) | {"lambda_": 0.7}
    close(
        rlaxlib.q_lambda(**inputs),
        rlaxlib.td_lambda(v_tm1=q_a_tm1, v_t=best(stream["q_t"]), **rewards),
    )
    close(
        rlaxlib.sarsa_lambda(**inputs, a_t=stream["a_t"]),
        rlaxlib.td_lambda(
            v_tm1=q_a_tm1, v_t=taken(stream["q_t"], stream["a_t"]), **rewards
        ),
    )


def test_at_lambda_zero_every_step_is_a_one_step_error():
    stream = make_stream()
    inputs = pick(stream, "q_tm1", "a_tm1", *REWARDS, "q_t")
    actual = rlaxlib.q_lambda(**inputs, lambda_=0.0)
    for t in range(8):
        close(actual[t], rlaxlib.q_learning(*(each[t] for each in inputs.values())))


def test_retrace_on_policy_follows_the_actions_with_full_traces():
    stream = make_stream()
    stream["mu_t"] = taken(stream["pi_t"], stream["a_t"])
    inputs = pick(stream, "q_t", "a_t", *REWARDS, "pi_t")
    actual = rlaxlib.retrace(
        **inputs, **pick(stream, "q_tm1", "a_tm1", "mu_t"), lambda_=0.7
    )
    targets = rlaxlib.general_off_policy_returns_from_action_values(
        **inputs, c_t=jnp.full(8, 0.7)
    )
    close(actual, targets - taken(stream["q_tm1"], stream["a_tm1"]))


def test_retrace_is_retrace_continuous_with_the_values_of_all_actions():
    stream = make_stream()
    names = ("q_tm1", "q_t", "a_tm1", "a_t", *REWARDS, "pi_t", "mu_t")
    discrete = rlaxlib.retrace(**pick(stream, *names), lambda_=0.7)
    ratios = taken(stream["pi_t"], stream["a_t"]) / stream["mu_t"]
    continuous = rlaxlib.retrace_continuous(
        q_tm1=taken(stream["q_tm1"], stream["a_tm1"]),
        q_t=taken(stream["q_t"], stream["a_t"])[:-1],
        v_t=jnp.sum(stream["pi_t"] * stream["q_t"], axis=-1),
        log_rhos=jnp.log(ratios)[:-1],
        **pick(stream, *REWARDS),
        lambda_=0.7,
    )
    close(discrete, continuous)


@pytest.mark.parametrize("lambda_", [jnp.full(7, 0.7), jnp.full(8, 0.7)])
def test_retrace_continuous_takes_a_weight_for_each_ratio(lambda_):
    stream = make_stream()
    inputs = {
        "q_tm1": stream["v_tm1"],
        "q_t": stream["v_t"],
        "log_rhos": jnp.log(stream["rho_tm1"]),
        **pick(stream, "v_t", *REWARDS),
    }
    actual = rlaxlib.retrace_continuous(**inputs, lambda_=lambda_)
    np.testing.assert_array_equal(
        actual, rlaxlib.retrace_continuous(**inputs, lambda_=0.7)
    )


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
@pytest.mark.parametrize("eps", [0.0, 1e-8])
def test_an_action_that_neither_policy_takes_has_no_trace(dtype, eps):
    stream = make_stream()
    stream["pi_t"] = stream["pi_t"].at[3, stream["a_t"][3]].set(0.0)
    stream["mu_t"] = stream["mu_t"].at[3].set(0.0)
    names = ("q_tm1", "q_t", *REWARDS, "pi_t", "mu_t")
    errors = rlaxlib.retrace(
        **{name: stream[name].astype(dtype) for name in names},
        **pick(stream, "a_tm1", "a_t"),
        lambda_=1.0,
        eps=eps,
    )
    assert errors.dtype == dtype
    assert jnp.all(jnp.isfinite(errors))
