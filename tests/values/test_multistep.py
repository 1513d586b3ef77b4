"""Test the multistep TD errors: identities between them, and edges."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close, make_stream, pick

import rlaxlib

REWARDS = ("r_t", "discount_t")


td_lambda = jax.jit(rlaxlib.td_lambda)
q_lambda = jax.jit(rlaxlib.q_lambda)
retrace = jax.jit(rlaxlib.retrace)
retrace_continuous = jax.jit(
    rlaxlib.retrace_continuous, static_argnames="stop_target_gradients"
)


def taken(q, a):
    return q[np.arange(len(a)), a]


def test_td_lambda_error_is_the_lambda_return_minus_the_value():
    stream = make_stream()
    actual = td_lambda(**pick(stream, "v_tm1", *REWARDS, "v_t"), lambda_=0.7)
    returns = jax.jit(rlaxlib.lambda_returns)
    targets = returns(**pick(stream, *REWARDS, "v_t"), lambda_=0.7)
    close(actual, np.asarray(targets) - stream["v_tm1"])


def test_q_lambda_and_sarsa_lambda_are_td_lambda_with_other_state_values():
    stream = make_stream()
    q_a_tm1 = taken(stream["q_tm1"], stream["a_tm1"])
    inputs = pick(stream, "q_tm1", "a_tm1", *REWARDS, "q_t") | {"lambda_": 0.7}
    rewards = pick(stream, *REWARDS) | {"v_tm1": q_a_tm1, "lambda_": 0.7}
    expected = td_lambda(v_t=np.max(stream["q_t"], axis=-1), **rewards)
    close(q_lambda(**inputs), expected)
    expected = td_lambda(v_t=taken(stream["q_t"], stream["a_t"]), **rewards)
    close(jax.jit(rlaxlib.sarsa_lambda)(**inputs, a_t=stream["a_t"]), expected)


def test_errors_at_lambda_zero_are_one_step_errors():
    inputs = pick(make_stream(), "q_tm1", "a_tm1", *REWARDS, "q_t")
    one_step = jax.jit(jax.vmap(rlaxlib.q_learning))
    close(q_lambda(**inputs, lambda_=0.0), one_step(*inputs.values()))


def test_q_lambda_with_the_watkins_trace_stops_at_actions_that_are_not_greedy():
    stream = make_stream()
    others = np.arange(8) == 3
    stream["a_t"] = (np.argmax(stream["q_t"], axis=-1) + others) % 4
    trace = np.asarray(rlaxlib.watkins_trace(**pick(stream, "q_t", "a_t")))
    np.testing.assert_array_equal(trace, ~others)
    inputs = pick(stream, "q_tm1", "a_tm1", *REWARDS, "q_t")
    errors = np.asarray(q_lambda(**inputs, lambda_=np.float32(0.7) * trace))
    first = {name: x[:4] for name, x in inputs.items()}
    last = {name: x[4:] for name, x in inputs.items()}
    close(errors[:4], q_lambda(**first, lambda_=0.7))
    close(errors[4:], q_lambda(**last, lambda_=0.7))


def test_all_actions_of_equal_value_are_greedy():
    trace, q = jax.jit(rlaxlib.watkins_trace), np.ones((2, 3))
    np.testing.assert_array_equal(trace(q, np.array([0, 2])), np.ones(2))


def test_greedy_actions_keep_their_trace_where_action_values_are_computed_twice():
    @jax.jit
    def trace(v, adv):
        q = jax.vmap(rlaxlib.dueling_q_values)(v, adv)
        return rlaxlib.watkins_trace(q, jnp.argmax(q, axis=-1))

    rng = np.random.default_rng(0)
    v, adv = (rng.normal(size=shape) for shape in (200, (200, 3)))
    np.testing.assert_array_equal(trace(np.float32(v), np.float32(adv)), 1)


def test_coefficients_of_retrace_are_lambda_on_policy():
    stream = make_stream()
    stream["mu_t"] = taken(stream["pi_t"], stream["a_t"])
    inputs = pick(stream, "q_t", "a_t", *REWARDS, "pi_t")
    actual = retrace(**inputs, **pick(stream, "q_tm1", "a_tm1", "mu_t"), lambda_=0.7)
    general = jax.jit(rlaxlib.general_off_policy_returns_from_action_values)
    targets = general(**inputs, c_t=np.full(8, 0.7))
    close(actual, np.asarray(targets) - taken(stream["q_tm1"], stream["a_tm1"]))


def test_retrace_is_retrace_continuous_with_expected_state_values():
    stream = make_stream()
    names = ("q_tm1", "q_t", "a_tm1", "a_t", *REWARDS, "pi_t", "mu_t")
    discrete = retrace(**pick(stream, *names), lambda_=0.7)
    ratios = taken(stream["pi_t"], stream["a_t"]) / stream["mu_t"]
    continuous = retrace_continuous(
        q_tm1=taken(stream["q_tm1"], stream["a_tm1"]),
        q_t=taken(stream["q_t"], stream["a_t"])[:-1],
        v_t=np.sum(stream["pi_t"] * stream["q_t"], axis=-1),
        log_rhos=np.log(ratios)[:-1],
        **pick(stream, *REWARDS),
        lambda_=0.7,
    )
    close(discrete, continuous)


def test_retrace_continuous_takes_one_lambda_for_each_ratio():
    stream = make_stream()
    inputs = {
        "q_tm1": stream["v_tm1"],
        "q_t": stream["v_t"],
        "log_rhos": np.log(stream["rho_tm1"]),
        **pick(stream, "v_t", *REWARDS),
    }
    expected = retrace_continuous(**inputs, lambda_=0.7)
    for number in (7, 8):
        actual = retrace_continuous(**inputs, lambda_=np.full(number, 0.7))
        close(actual, expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
@pytest.mark.parametrize("eps", [0.0, 1e-8])
def test_retrace_is_finite_if_both_policies_have_probability_zero(dtype, eps):
    stream = make_stream()
    stream["pi_t"][3, stream["a_t"][3]] = 0.0
    stream["mu_t"][3] = 0.0
    names = ("q_tm1", "q_t", *REWARDS, "pi_t", "mu_t")
    errors = rlaxlib.retrace(
        **{name: stream[name].astype(dtype) for name in names},
        **pick(stream, "a_tm1", "a_t"),
        lambda_=1.0,
        eps=eps,
    )
    assert errors.dtype == dtype
    assert np.all(np.isfinite(errors))


def test_retrace_continuous_has_finite_gradients_where_a_ratio_overflows():
    stream = make_stream()
    values = (
        stream["v_tm1"],
        stream["v_t"],
        stream["v_t"],
        *pick(stream, *REWARDS).values(),
    )

    def total(log_rhos):
        errors = rlaxlib.retrace_continuous(
            *values, log_rhos, 0.9, stop_target_gradients=False
        )
        return jnp.sum(errors)

    gradient = jax.jit(jax.grad(total))(np.full(8, 100.0))
    np.testing.assert_array_equal(gradient, 0.0)


def test_retrace_continuous_ignores_lambda_at_invalid_steps():
    stream = make_stream()
    mask = np.arange(8) < 5

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

    lambda_ = np.where(mask, 0.9, np.nan)
    gradient = jax.jit(jax.value_and_grad(total, (0, 1)))
    value, gradients = gradient(np.full(8, -0.5), lambda_)
    assert np.isfinite(value)
    for each in map(np.asarray, gradients):
        np.testing.assert_array_equal(each[5:], 0.0)
        assert np.all(np.isfinite(each))


def test_actions_out_of_range_give_nan_or_an_error_and_padding_may_hold_any():
    stream = make_stream()
    inputs = pick(stream, "q_tm1", "a_tm1", *REWARDS, "q_t") | {"lambda_": 0.7}
    actions = np.where(np.arange(8) < 5, inputs["a_tm1"], -1)  # In padding.
    errors = rlaxlib.q_lambda(**inputs | {"a_tm1": jnp.asarray(actions)})
    np.testing.assert_array_equal(np.isnan(errors), actions == -1)
    with pytest.raises(rlaxlib.ArgumentError, match=r"`a_tm1` is -1, must be in \[0, "):
        rlaxlib.q_lambda(**inputs | {"a_tm1": actions})
    mask = actions != -1
    errors = q_lambda(**inputs | {"a_tm1": actions}, sample_mask=mask)
    assert np.all(np.isfinite(errors))
