"""Test properties that hold for all arguments, with examples by Hypothesis.

`make test` tries 25 examples of each, `make trust` 200.
"""

import functools

import contract
import hypothesis
import jax
import numpy as np
import pytest
import test_contract_streams
from contract import STEPS, each_row
from hypothesis import strategies as st

import rlaxlib

ACTIONS = 5
POLICIES = {
    "softmax": rlaxlib.softmax(temperature=0.5),
    "clipped_entropy_softmax": rlaxlib.clipped_entropy_softmax(),
    "epsilon_greedy": rlaxlib.epsilon_greedy(epsilon=0.1),
    "greedy": rlaxlib.greedy(),
}
KL = jax.jit(rlaxlib.categorical_kl_divergence)
ODD = [rlaxlib.signed_logp1, rlaxlib.signed_expm1, rlaxlib.signed_hyperbolic]
ODD += [rlaxlib.signed_parabolic, rlaxlib.hyperbolic_arcsin, rlaxlib.hyperbolic_sin]


def floats(size, limit):
    """Return a strategy for float32 arrays."""
    each = st.floats(-limit, limit, width=32, allow_subnormal=False)
    drawn = st.lists(each, min_size=size, max_size=size)
    return drawn.map(lambda x: np.array(x, np.float32))


def flags(size):
    return st.lists(st.booleans(), min_size=size, max_size=size).map(np.array)


@functools.cache
def stream(identifier):
    """Return a row's stream, and its program of truncation and mask."""
    row = next(row for row in contract.collect() if row.id == identifier)
    return test_contract_streams.stream_rows(row), jax.jit(
        test_contract_streams.with_masks(row)
    )


@each_row("multistep", sample=True)
@hypothesis.given(truncated=flags(STEPS), mask=flags(STEPS))
def test_any_cuts_join_streams_and_any_masked_steps_are_as_if_deleted(
    row, truncated, mask
):
    hypothesis.assume(mask.any())
    with contract.x64(True):
        rows, function = stream(row.id)
        actual = function(test_contract_streams.poison(rows, ~mask), truncated, mask)
    expected = contract.define_stream(row, rows, truncated, mask)
    contract.assert_close(actual, expected, 1e-11, 1e-11)


@functools.cache
def describe(policy):
    made = POLICIES[policy]
    return jax.jit(
        lambda x, mask: (
            made.probs(x, action_mask=mask),
            made.entropy(x, action_mask=mask),
        )
    )


@pytest.mark.parametrize("policy", POLICIES)
@hypothesis.given(preferences=floats(ACTIONS, 1e4), mask=flags(ACTIONS))
def test_a_policy_distributes_probability_among_legal_actions(
    policy, preferences, mask
):
    hypothesis.assume(mask.any())
    probs, entropy = map(np.asarray, describe(policy)(preferences, mask))
    assert np.all(probs >= 0)
    assert not np.any(probs[~mask])
    np.testing.assert_allclose(np.sum(probs), 1.0, rtol=1e-6)
    assert -1e-6 <= entropy <= np.log(mask.sum()) + 1e-6


@hypothesis.given(p=floats(ACTIONS, 30.0), q=floats(ACTIONS, 30.0))
def test_kl_divergence_is_positive_and_zero_for_equal_policies(p, q):
    assert KL(p, q) >= -1e-5
    assert KL(p, p) == 0


@pytest.mark.parametrize("transform", ODD, ids=lambda each: each.__name__)
@hypothesis.given(x=floats(8, 80.0))
def test_transforms_are_odd_and_increase(transform, x):
    x = np.sort(x)
    y = np.asarray(transform(x))
    np.testing.assert_allclose(transform(-x), -y, rtol=1e-5)
    assert np.all(np.diff(y) >= -1e-5 * np.abs(y[1:]))


@hypothesis.given(x=floats(8, 1e6), delta=st.floats(0.125, 8.0, width=32))
def test_huber_loss_is_below_the_squared_and_the_absolute_error(x, delta):
    loss = np.asarray(rlaxlib.huber_loss(x, delta))
    assert np.all(loss >= 0)
    assert np.all(loss <= np.asarray(rlaxlib.l2_loss(x)) * (1 + 1e-6))
    assert np.all(loss <= delta * np.abs(x) * (1 + 1e-6))
