"""Test the baseline of tokens: that it minimises the variance, and limits."""

import itertools

import jax
import numpy as np
import pytest
from experience import close
from scipy.special import log_softmax

import rlaxlib

RANDOM = np.random.default_rng(0)


def make_group(logits, answers):
    """Return log-probabilities and sums of squared probabilities of answers."""
    log_pi = log_softmax(logits, axis=-1)
    log_prob = log_pi[np.arange(answers.shape[1]), answers]
    squares = np.sum(np.exp(2 * log_pi), axis=-1)
    return log_prob, np.broadcast_to(squares, log_prob.shape)


def test_the_baseline_minimises_the_variance_of_the_policy_gradient():
    # All answers of two tokens, each in proportion to its probability, in expectation:
    # weights of the answers replace copies.
    logits = np.float32([[1.0, 0.0, -0.5], [0.3, -1.0, 0.8]])
    answers = np.array(list(itertools.product(range(3), repeat=2)))
    rewards = RANDOM.normal(size=9).astype(np.float32)
    log_prob, _ = make_group(logits, answers)
    counts = np.round(np.exp(np.sum(log_prob, axis=1)) * 2000).astype(int)
    answers, rewards = np.repeat(answers, counts, 0), np.repeat(rewards, counts)
    log_prob, squares = make_group(logits, answers)
    returns = np.stack([rewards] * 2, axis=1)
    baseline = rlaxlib.optimal_token_baseline(returns, log_prob, squares)
    one_hot = np.eye(3)[answers] - np.exp(log_softmax(logits, axis=-1))

    def spread(baseline):
        # The last position: the gradient of all tokens up to it, times the advantage.
        gradient = one_hot * (rewards - baseline)[:, None, None]
        return np.mean(np.sum(gradient**2, axis=(1, 2)))

    least = spread(float(baseline[1]))
    assert least < spread(float(baseline[1]) + 0.05)
    assert least < spread(float(baseline[1]) - 0.05)


def test_equal_weights_give_the_mean():
    returns = RANDOM.normal(size=(4, 3)).astype(np.float32)
    flat = np.full((4, 3), np.log(0.25), np.float32), np.full((4, 3), 0.25, np.float32)
    close(rlaxlib.optimal_token_baseline(returns, *flat), np.mean(returns, axis=0))


def test_positions_without_weight_have_a_baseline_of_zero():
    returns, certain = np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)
    ones = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(
        rlaxlib.optimal_token_baseline(returns, certain, ones), 0
    )
    mask = np.zeros((2, 3), bool)
    nan = np.full((2, 3), np.nan, np.float32)
    found = rlaxlib.optimal_token_baseline(nan, nan, nan, sample_mask=mask)
    np.testing.assert_array_equal(found, 0)


def test_groups_over_devices_share_a_baseline():
    returns = RANDOM.normal(size=(4, 3)).astype(np.float32)
    log_prob = -RANDOM.uniform(0.1, 2.0, (4, 3)).astype(np.float32)
    squares = RANDOM.uniform(0.3, 0.6, (4, 3)).astype(np.float32)
    group = returns, log_prob, squares
    mapped = jax.vmap(
        lambda *x: rlaxlib.optimal_token_baseline(*x, axis_name="i"), axis_name="i"
    )(*(x.reshape(2, 2, 3) for x in group))
    close(mapped, np.stack([rlaxlib.optimal_token_baseline(*group)] * 2))


def test_a_group_of_one_answer_has_no_baseline():
    returns, log_prob = np.ones((1, 3), np.float32), np.full((1, 3), -1.0, np.float32)
    one = rlaxlib.optimal_token_baseline(returns, log_prob, np.full((1, 3), 0.5))
    np.testing.assert_array_equal(one, np.zeros(3))
    mask = np.array([[True, True, True], [False, False, False]])
    pair = (np.repeat(x, 2, axis=0) for x in (returns, log_prob, np.full((1, 3), 0.5)))
    masked = rlaxlib.optimal_token_baseline(*pair, sample_mask=mask)
    np.testing.assert_array_equal(masked, np.zeros(3))


@pytest.mark.parametrize("rest", [1e-5, 1e-4, 1e-3, 0.1])
def test_baselines_of_almost_certain_tokens_are_within_the_returns(rest):
    probs = np.array([[1 - rest], [1 - 2 * rest]])
    squares = probs**2 + (1 - probs) ** 2
    found = rlaxlib.optimal_token_baseline(
        np.array([[1.0], [0.0]], np.float32),
        np.log(probs).astype(np.float32),
        squares.astype(np.float32),
    )
    # The terms of the weights, x² + x² and 4 x² + 4 x², are exact up to a factor of 2.
    assert 1 / 9 - 1e-3 < found[0] < 1 / 3 + 1e-3
    if rest > 0.01:
        close(found, [0.2], rtol=1e-5)


def test_squares_that_contradict_the_probabilities_count_as_the_bound():
    """The sum over the other tokens is in [0, (1 - π)²]."""
    returns = np.array([[1.0], [0.0]], np.float32)
    log_prob = np.log(np.full((2, 1), 0.5, np.float32))

    def baseline(first):
        squares = np.array([[first], [0.5]], np.float32)
        return rlaxlib.optimal_token_baseline(returns, log_prob, squares)

    close(baseline(0.1), baseline(0.25))
    close(baseline(0.9), baseline(0.5))
    close(baseline(0.25), [1 / 3])  # Weights of 1/4 and of 1/2.
