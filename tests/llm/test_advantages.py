"""Test advantages: identities, equal rewards, unbiased gradients and rewards of tokens.

Gradients are compared with those of expectations over all groups of answers.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

REWARDS = jnp.array([3.0, -1.0, 0.5, 0.25, 7.0])
MASK = jnp.array([True, True, False, True, False])
OPTIONS = [
    {"baseline": baseline, "scale": scale}
    for baseline in ("mean", "leave_one_out", "none", 2.0)
    for scale in ("std", "none")
]
# Log-probabilities of three answers, their rewards, and all groups of four answers.
LOGITS, VALUES = jnp.array([0.3, -0.5, 0.1]), jnp.array([0.0, 1.0, 0.25])
GROUPS = jnp.array(list(itertools.product(range(3), repeat=4)))


def expected_gradient(estimate):
    """Average the estimated policy gradient over all groups of four answers."""

    def of_group(answers):
        weights = estimate(VALUES[answers])

        def surrogate(logits):
            return jnp.sum(weights * jax.nn.log_softmax(logits)[answers])

        log_probs = jax.nn.log_softmax(LOGITS)[answers]
        return jnp.exp(jnp.sum(log_probs)) * jax.grad(surrogate)(LOGITS)

    return jnp.sum(jax.vmap(of_group)(GROUPS), axis=0)


def gradient_of_best_of(k, values):
    """Differentiate the expected maximum of the rewards of k answers."""
    groups = np.array(list(itertools.product(range(3), repeat=k)))

    def expectation(logits):
        probs = jnp.prod(jax.nn.softmax(logits)[groups], axis=1)
        return jnp.sum(probs * jnp.max(values[groups], axis=1))

    return jax.grad(expectation)(LOGITS)


# --- Groups. ---


def test_advantages_with_a_mean_baseline_are_standardised():
    found = rlaxlib.group_advantages(REWARDS, ddof=0, epsilon=0.0)
    close(found, rlaxlib.standardize(REWARDS))


def test_leave_one_out_is_the_mean_baseline_times_a_constant():
    group = rlaxlib.group_advantages(REWARDS, scale="none")
    others = rlaxlib.group_advantages(REWARDS, baseline="leave_one_out", scale="none")
    close(others, 5 / 4 * group)


def test_a_given_baseline_is_subtracted():
    greedy = jnp.array(0.5)
    found = rlaxlib.group_advantages(REWARDS, baseline=greedy, scale="none")
    close(found, REWARDS - greedy)
    found = rlaxlib.group_advantages(REWARDS, baseline=0.5 * REWARDS, scale="none")
    close(found, 0.5 * REWARDS)


@pytest.mark.parametrize("value", [0.0, 0.1, 1.0, 1e6])
@pytest.mark.parametrize("size", [1, 3, 7])
def test_equal_rewards_give_advantages_of_zero(value, size):
    rewards = jnp.full(size, value)
    for options in OPTIONS[:4] + OPTIONS[4::2]:

        def advantages(rewards, options=options):
            return rlaxlib.group_advantages(rewards, epsilon=0.0, **options)

        np.testing.assert_array_equal(advantages(rewards), 0.0)
        assert np.isfinite(jax.jacobian(advantages)(rewards)).all()


def test_without_baseline_or_scale_equal_rewards_are_kept():
    rewards = jnp.ones(1)
    none = rlaxlib.group_advantages(rewards, baseline="none", scale="none")
    close(none, 1.0)
    given = rlaxlib.group_advantages(rewards, baseline=0.25, scale="none")
    close(given, 0.75)


@pytest.mark.parametrize("options", OPTIONS)
def test_masked_answers_do_not_count(options):
    for spoiled in (jnp.nan, jnp.inf, 1e9):
        rewards = jnp.where(MASK, REWARDS, spoiled)
        found = rlaxlib.group_advantages(rewards, sample_mask=MASK, **options)
        close(found[MASK], rlaxlib.group_advantages(REWARDS[MASK], **options))
        np.testing.assert_array_equal(found[~MASK], 0.0)
    nobody = rlaxlib.group_advantages(
        REWARDS, sample_mask=jnp.zeros(5, bool), **options
    )
    np.testing.assert_array_equal(nobody, 0.0)


def test_advantages_are_precise_far_from_zero():
    rewards = 1e5 + jnp.array([0.0, 0.5, 1.0])
    close(rlaxlib.group_advantages(rewards, scale="none"), [-0.5, 0.0, 0.5])
    close(rlaxlib.group_advantages(rewards, epsilon=0.0), [-1.0, 0.0, 1.0])


@pytest.mark.parametrize("baseline", ["leave_one_out", "none", 0.7])
def test_policy_gradient_with_an_independent_baseline_is_unbiased(baseline):
    found = expected_gradient(
        lambda rewards: rlaxlib.group_advantages(
            rewards, baseline=baseline, scale="none"
        )
    )
    close(found / 4, gradient_of_best_of(1, VALUES))


def test_policy_gradient_with_the_mean_baseline_is_too_small_by_a_factor():
    found = expected_gradient(lambda x: rlaxlib.group_advantages(x, scale="none"))
    close(found / 4, 3 / 4 * gradient_of_best_of(1, VALUES))


def test_length_weighted_baseline_of_equal_lengths_is_the_mean():
    lengths = jnp.full(5, 7)
    close(rlaxlib.length_weighted_baseline(REWARDS, lengths), jnp.mean(REWARDS))
    zero = rlaxlib.length_weighted_baseline(REWARDS, 0 * lengths)
    np.testing.assert_array_equal(zero, 0.0)


def test_length_weighted_baseline_ignores_masked_answers():
    lengths = jnp.array([1, 2, 1000, 3, 1000])
    rewards = jnp.where(MASK, REWARDS, jnp.nan)
    found = rlaxlib.length_weighted_baseline(rewards, lengths, sample_mask=MASK)
    expected = rlaxlib.length_weighted_baseline(REWARDS[MASK], lengths[MASK])
    close(found, expected)


# --- Pass@k. ---


@pytest.mark.parametrize("k", [1, 2, 5])
def test_pass_at_k_is_unbiased(k):
    solved, samples = 0.3, 6
    correct = np.arange(samples + 1)
    binomial = [
        np.prod([(samples - i) / (i + 1) for i in range(c)])
        * solved**c
        * (1 - solved) ** (samples - c)
        for c in correct
    ]
    mean = np.dot(binomial, rlaxlib.pass_at_k(correct, samples, k))
    close(mean, 1 - (1 - solved) ** k)


def test_pass_at_k_at_its_limits():
    np.testing.assert_array_equal(rlaxlib.pass_at_k(0, 10, 3), 0.0)
    np.testing.assert_array_equal(rlaxlib.pass_at_k(np.arange(8, 11), 10, 3), 1.0)
    close(rlaxlib.pass_at_k(np.arange(11), 10, 1), np.arange(11) / 10)


def test_pass_at_k_is_precise_for_many_samples():
    found = rlaxlib.pass_at_k(1, 100_000, 2)
    close(found, 2e-5, rtol=1e-5, atol=0)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", ["binary", "real"])
def test_pass_at_k_rewards_give_an_unbiased_gradient(k, kind, monkeypatch):
    values = VALUES if kind == "real" else (VALUES == 1).astype(jnp.float32)
    monkeypatch.setattr(f"{__name__}.VALUES", values)
    found = expected_gradient(lambda x: rlaxlib.pass_at_k_rewards(x, k))
    close(found, gradient_of_best_of(k, values))


def test_pass_at_k_rewards_of_binary_rewards_follow_from_pass_at_k():
    rewards = jnp.array([0.0, 1.0, 0.0, 0.0, 1.0, 0.0])
    others = rlaxlib.pass_at_k(2, 5, 2)
    expected = jnp.where(rewards == 1, 3 / 6, 3 / 6 * others)
    close(rlaxlib.pass_at_k_rewards(rewards, 3), expected)


def test_equal_rewards_get_equal_pass_at_k_rewards():
    rewards = jnp.array([2.0, 1.0, 2.0, 1.0, 1.0])
    found = rlaxlib.pass_at_k_rewards(rewards, 3)
    close(found[rewards == 2], found[0])
    close(found[rewards == 1], found[1])


def test_pass_at_k_rewards_of_large_groups_are_finite():
    rewards = jnp.linspace(0.0, 1.0, 2000)
    found = rlaxlib.pass_at_k_rewards(rewards, 1000)
    close(jnp.sum(found), 1000.0, rtol=1e-2)  # k times the maximum, about 1.
    assert np.isfinite(found).all()


# --- Rewards of tokens. ---


def test_kl_shaped_rewards_sum_to_the_reward_minus_the_penalty():
    rng = np.random.default_rng(0)
    log_prob, ref_log_prob = jnp.asarray(rng.normal(size=(2, 8)), jnp.float32)
    mask = jnp.array([0, 1, 1, 0, 0, 1, 0, 0], bool)
    bad = jnp.where(mask, log_prob, jnp.nan)
    r_t = rlaxlib.kl_shaped_rewards(2.0, bad, ref_log_prob, mask, 0.1)
    np.testing.assert_array_equal(r_t[~mask], 0.0)
    close(jnp.sum(r_t), 2.0 - 0.1 * jnp.sum((log_prob - ref_log_prob)[mask]))
    without = rlaxlib.kl_shaped_rewards(2.0, log_prob, log_prob, mask, 0.1)
    np.testing.assert_array_equal(without, 2.0 * (np.arange(8) == 5))


def test_kl_shaped_rewards_without_valid_tokens_are_zero():
    nowhere = jnp.zeros(3, bool)
    r_t = rlaxlib.kl_shaped_rewards(1.0, jnp.ones(3), jnp.zeros(3), nowhere, 1.0)
    np.testing.assert_array_equal(r_t, 0.0)


def test_kl_shaped_rewards_have_no_gradient():
    def total(log_prob):
        ones = jnp.ones(2, bool)
        return jnp.sum(rlaxlib.kl_shaped_rewards(1.0, log_prob, log_prob, ones, 1.0))

    np.testing.assert_array_equal(jax.grad(total)(jnp.ones(2)), 0.0)


def test_expected_return_of_shaped_rewards_has_the_gradient_of_the_whole_kl():
    # Two tokens, the second conditioned on the first; REINFORCE with rewards-to-go.
    rng = np.random.default_rng(0)
    logits, ref_logits = (
        [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((3,), (3, 3))]
        for _ in range(2)
    )
    pairs = jnp.array(list(itertools.product(range(3), repeat=2)))
    both = jnp.ones(2, bool)

    def log_probs(logits, pair):
        first = jax.nn.log_softmax(logits[0])[pair[0]]
        return jnp.stack([first, jax.nn.log_softmax(logits[1][pair[0]])[pair[1]]])

    def estimate(pair):
        now, ref = log_probs(logits, pair), log_probs(ref_logits, pair)
        r_t = rlaxlib.kl_shaped_rewards(0.0, now, ref, both, 1.0)
        returns = rlaxlib.discounted_returns(r_t, jnp.array([1.0, 0.0]), 0.0)
        gradient = jax.grad(lambda x: jnp.sum(returns * log_probs(x, pair)))(logits)
        return jax.tree.map(lambda x: jnp.exp(jnp.sum(now)) * x, gradient)

    def kl(logits):
        now = jax.vmap(lambda pair: jnp.sum(log_probs(logits, pair)))(pairs)
        ref = jax.vmap(lambda pair: jnp.sum(log_probs(ref_logits, pair)))(pairs)
        return jnp.sum(jnp.exp(now) * (now - ref))

    found = jax.tree.map(lambda x: jnp.sum(x, axis=0), jax.vmap(estimate)(pairs))
    jax.tree.map(lambda x, y: close(x, -y), found, jax.grad(kl)(logits))


def test_token_advantages_skip_the_output_of_tools():
    mask = jnp.array([1, 1, 0, 0, 1, 0], bool)
    log_prob = jnp.zeros(6)
    r_t = rlaxlib.kl_shaped_rewards(1.0, log_prob, log_prob, mask, 0.0)
    values = jnp.array([0.5, 0.25, jnp.nan, jnp.nan, 0.75, jnp.nan])
    v_t = jnp.array([0.25, 0.75, jnp.nan, jnp.nan, 0.0, jnp.nan])
    discount_t = jnp.array([1.0, 1.0, 1.0, 1.0, 0.0, 1.0])
    adv_t = rlaxlib.generalized_advantage_estimation(
        values, v_t, r_t, discount_t, 0.5, sample_mask=mask
    )
    close(adv_t, [-0.25 + 0.5 * 0.625, 0.5 + 0.125, 0.0, 0.0, 0.25, 0.0])
