"""Test `batched`: the same as `jax.vmap` written by hand."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlaxlib
from rlaxlib import batched

B, T = 3, 5
X = jax.random.uniform(jax.random.key(0), (B, T))
CUT = X > 0.7


def returns(*args, **kwargs):
    return rlaxlib.lambda_returns(*args, **kwargs)


def test_maps_what_has_one_axis_more_and_leaves_settings_whole():
    got = batched(rlaxlib.lambda_returns)(X, X, X, 0.9, truncated_t=CUT)
    by_hand = jax.vmap(lambda x, cut: returns(x, x, x, 0.9, truncated_t=cut))(X, CUT)
    np.testing.assert_array_equal(got, by_hand)
    atoms = jnp.linspace(-1.0, 1.0, 3)
    logits = jnp.arange(B * 2 * 3, dtype=float).reshape(B, 2, 3)
    c51 = rlaxlib.categorical_q_learning
    args = (atoms, logits, jnp.array([0, 1, 0]), X[:, 0], X[:, 1], atoms, logits)
    by_hand = jax.vmap(c51, in_axes=(None, 0, 0, 0, 0, None, 0))(*args)
    np.testing.assert_array_equal(batched(c51)(*args), by_hand)


def test_program_and_gradient_are_those_of_vmap():
    def ours(x):
        return batched(rlaxlib.lambda_returns)(x, x, x, 0.9)

    def by_hand(x):
        return jax.vmap(rlaxlib.lambda_returns, (0, 0, 0, None))(x, x, x, 0.9)

    assert str(jax.make_jaxpr(ours)(X)) == str(jax.make_jaxpr(by_hand)(X))
    got, expected = (jax.grad(lambda x, f=f: f(x).sum())(X) for f in (ours, by_hand))
    np.testing.assert_array_equal(got, expected)


def test_time_may_come_before_the_batch_in_arguments_and_results():
    time_major = batched(rlaxlib.vtrace_td_error_and_advantage, time_major=True)
    lambda_ = jnp.array([0.5, 0.7, 1.0])
    got = time_major(X.T, X.T, X.T, X.T, X.T, lambda_)
    expected = batched(rlaxlib.vtrace_td_error_and_advantage)(X, X, X, X, X, lambda_)
    chex.assert_trees_all_equal(got, jax.tree.map(jnp.transpose, expected))
    one_number = batched(rlaxlib.td_learning, time_major=True)
    assert one_number(X[:, 0], X[:, 1], X[:, 2], X[:, 3]).shape == (B,)


def test_nests_for_two_axes():
    x = jnp.stack([X, 2 * X])
    got = batched(batched(rlaxlib.lambda_returns))(x, X, x, 0.9)
    by_hand = jax.vmap(lambda x: batched(rlaxlib.lambda_returns)(x, X, x, 0.9))(x)
    np.testing.assert_array_equal(got, by_hand)
    twice = batched(batched(rlaxlib.lambda_returns, time_major=True), time_major=True)
    time_first = jnp.moveaxis(x, -1, 0)
    got = twice(time_first, time_first, time_first)
    expected = jax.vmap(jax.vmap(rlaxlib.lambda_returns))(x, x, x)
    np.testing.assert_array_equal(got, jnp.moveaxis(expected, -1, 0))


def test_passes_on_the_name_of_the_axis():
    def mean(x):
        return rlaxlib.masked_mean(x, axis_name="batch")

    got = jax.vmap(mean, axis_name="batch")(X)
    advantages = batched(rlaxlib.group_advantages, axis_name="batch")
    assert np.allclose(got, X.mean())
    assert advantages(X, axis_name="batch").shape == X.shape


def test_distributions_and_their_keys_are_mapped():
    pi, keys = rlaxlib.softmax(0.5), jax.random.split(jax.random.key(1), B)
    np.testing.assert_array_equal(
        batched(pi.sample)(keys, X), jax.vmap(pi.sample)(keys, X)
    )
    a = jnp.array([0, 3, 4])
    got = batched(batched(pi.logprob))(a[None], X[None])
    np.testing.assert_array_equal(got, jax.vmap(pi.logprob)(a, X)[None])


def test_an_argument_that_fits_both_ways_is_mapped_if_all_others_are():
    lambda_ = jnp.array([0.0, 0.5, 1.0])
    got = batched(rlaxlib.lambda_returns)(X, X, X, lambda_)
    by_hand = jax.vmap(rlaxlib.lambda_returns)(X, X, X, lambda_)
    np.testing.assert_array_equal(got, by_hand)
    with pytest.raises(rlaxlib.ArgumentError, match=r"ambiguous .* `lambda_`.*in_axes"):
        batched(rlaxlib.lambda_returns)(X, X[0], X, lambda_)


def test_without_a_batch_or_a_function_of_ours_it_is_an_error():
    with pytest.raises(rlaxlib.ArgumentError, match="no argument has one axis more"):
        batched(rlaxlib.lambda_returns)(X[0], X[0], X[0])
    with pytest.raises(rlaxlib.ArgumentError, match=r"use jax\.vmap"):
        batched(lambda x: x)
    with pytest.raises(TypeError, match=r"lambda_returns\(\) missing .*'v_t'"):
        batched(rlaxlib.lambda_returns)(X, X)
    with pytest.raises(
        rlaxlib.ArgumentError, match=r"^lambda_returns: `v_t` has shape"
    ):
        batched(rlaxlib.lambda_returns)(X, X, X[:, 1:])


def test_a_function_of_any_number_of_axes_needs_no_map():
    loss = rlaxlib.l2_loss
    if hasattr(loss, "signature"):
        np.testing.assert_array_equal(batched(loss)(X), loss(X))
