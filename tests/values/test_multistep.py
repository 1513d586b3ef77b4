"""Test the multistep TD errors: identities between them, and edges."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close, make_stream, pick

import rlaxlib

REWARDS = ("r_t", "discount_t")


def maximum(q):
    return jnp.max(q, axis=-1)


def taken(q, a):
    return rlaxlib.batched_index(q, a)


def test_td_lambda_error_is_the_lambda_return_minus_the_value():
    stream = make_stream()
    actual = rlaxlib.td_lambda(**pick(stream, "v_tm1", *REWARDS, "v_t"), lambda_=0.7)
    targets = rlaxlib.lambda_returns(**pick(stream, *REWARDS, "v_t"), lambda_=0.7)
    close(actual, targets - stream["v_tm1"])


def test_q_lambda_and_sarsa_lambda_are_td_lambda_with_other_state_values():
    stream = make_stream()
    q_a_tm1 = taken(stream["q_tm1"], stream["a_tm1"])
    inputs = pick(stream, "q_tm1", "a_tm1", *REWARDS, "q_t") | {"lambda_": 0.7}
    rewards = pick(stream, *REWARDS) | {"lambda_": 0.7}
    close(
        rlaxlib.q_lambda(**inputs),
        rlaxlib.td_lambda(v_tm1=q_a_tm1, v_t=maximum(stream["q_t"]), **rewards),
    )
    close(
        rlaxlib.sarsa_lambda(**inputs, a_t=stream["a_t"]),
        rlaxlib.td_lambda(
            v_tm1=q_a_tm1, v_t=taken(stream["q_t"], stream["a_t"]), **rewards
        ),
    )


def test_errors_at_lambda_zero_are_one_step_errors():
    stream = make_stream()
    inputs = pick(stream, "q_tm1", "a_tm1", *REWARDS, "q_t")
    actual = rlaxlib.q_lambda(**inputs, lambda_=0.0)
    for t in range(8):
        close(actual[t], rlaxlib.q_learning(*(each[t] for each in inputs.values())))


def test_q_lambda_with_the_watkins_trace_stops_at_actions_that_are_not_greedy():
    stream = make_stream()
    stream["a_t"] = jnp.argmax(stream["q_t"], axis=-1).at[3].add(1) % 4
    trace = rlaxlib.watkins_trace(**pick(stream, "q_t", "a_t"))
    np.testing.assert_array_equal(trace, jnp.arange(8) != 3)
    inputs = pick(stream, "q_tm1", "a_tm1", *REWARDS, "q_t")
    errors = rlaxlib.q_lambda(**inputs, lambda_=0.7 * trace)
    first = {name: x[:4] for name, x in inputs.items()}
    last = {name: x[4:] for name, x in inputs.items()}
    close(errors[:4], rlaxlib.q_lambda(**first, lambda_=0.7))
    close(errors[4:], rlaxlib.q_lambda(**last, lambda_=0.7))


def test_all_actions_of_equal_value_are_greedy():
    trace = rlaxlib.watkins_trace(jnp.ones((2, 3)), jnp.array([0, 2]))
    np.testing.assert_array_equal(trace, jnp.ones(2))
    trace = rlaxlib.watkins_trace(jnp.ones((2, 3)), jnp.array([0, 3]))
    np.testing.assert_array_equal(trace, [1.0, jnp.nan])


def test_coefficients_of_retrace_are_lambda_on_policy():
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


def test_retrace_is_retrace_continuous_with_expected_state_values():
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
def test_retrace_continuous_takes_one_lambda_for_each_ratio(lambda_):
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
def test_retrace_is_finite_if_both_policies_have_probability_zero(dtype, eps):
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


def test_retrace_continuous_has_finite_gradients_where_a_ratio_overflows():
    stream = make_stream()
    gradient = jax.grad(
        lambda log_rhos: jnp.sum(
            rlaxlib.retrace_continuous(
                stream["v_tm1"],
                stream["v_t"],
                stream["v_t"],
                *pick(stream, *REWARDS).values(),
                log_rhos,
                0.9,
                stop_target_gradients=False,
            )
        )
    )(jnp.full(8, 100.0))
    np.testing.assert_array_equal(gradient, 0.0)


def test_retrace_continuous_ignores_lambda_at_invalid_steps():
    stream = make_stream()
    mask = jnp.arange(8) < 5

    def total(log_rhos, lambda_):
        errors = rlaxlib.retrace_continuous(
            stream["v_tm1"],
            stream["v_t"],
            stream["v_t"],
            *pick(stream, *REWARDS).values(),
            log_rhos,
            lambda_,
            stop_target_gradients=False,
            sample_mask=mask,
        )
        return jnp.sum(errors)

    lambda_ = jnp.where(mask, 0.9, jnp.nan)
    value, gradients = jax.value_and_grad(total, (0, 1))(jnp.full(8, -0.5), lambda_)
    assert jnp.isfinite(value)
    for each in gradients:
        np.testing.assert_array_equal(each[5:], 0.0)
        assert jnp.all(jnp.isfinite(each))


def test_actions_of_a_stream_are_not_checked_but_give_nan():
    stream = make_stream()
    inputs = pick(stream, "q_tm1", "a_tm1", *REWARDS, "q_t") | {"lambda_": 0.7}
    actions = np.where(np.arange(8) < 5, inputs["a_tm1"], -1)  # In padding.
    errors = rlaxlib.q_lambda(**inputs | {"a_tm1": actions})
    np.testing.assert_array_equal(jnp.isnan(errors), actions == -1)
    mask = actions != -1
    errors = rlaxlib.q_lambda(**inputs | {"a_tm1": actions}, sample_mask=mask)
    assert jnp.all(jnp.isfinite(errors))
