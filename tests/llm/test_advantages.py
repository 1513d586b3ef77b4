"""Test advantages: identities, equal rewards, unbiased gradients and rewards of tokens.

Gradients are compared with those of expectations over all groups of answers.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

REWARDS = np.float32([3, -1, 0.5, 0.25, 7])
MASK = np.array([True, True, False, True, False])
OPTIONS = [
    {"baseline": baseline, "scale": scale}
    for baseline in ("mean", "leave_one_out", "none")
    for scale in ("stddev", "none")
]
# Log-probabilities of three answers, their rewards, and all groups of four answers.
LOGITS, VALUES = np.float32([0.3, -0.5, 0.1]), np.float32([0, 1, 0.25])
GROUPS = np.array(list(itertools.product(range(3), repeat=4)), np.int32)
group_advantages = jax.jit(
    rlaxlib.group_advantages, static_argnames=("baseline", "scale", "ddof")
)


def expected_gradients(estimate, *rewards):
    """Average the estimated policy gradient over all groups of four answers."""

    def of_group(answers, values):
        weights = estimate(values[answers])

        def surrogate(logits):
            return jnp.sum(weights * jax.nn.log_softmax(logits)[answers])

        log_probs = jax.nn.log_softmax(LOGITS)[answers]
        return jnp.exp(jnp.sum(log_probs)) * jax.grad(surrogate)(LOGITS)

    of_groups = jax.jit(jax.vmap(of_group, (0, None)))
    return [np.sum(of_groups(GROUPS, values), axis=0) for values in rewards]


def gradient_of_best_of(k, values):
    """Differentiate the expected maximum of the rewards of k answers."""
    groups = np.array(list(itertools.product(range(3), repeat=k)))
    p = np.exp(LOGITS) / np.sum(np.exp(LOGITS))
    scores = np.sum(np.eye(3)[groups] - p, axis=1)
    return np.prod(p[groups], axis=1) * np.max(values[groups], axis=1) @ scores


# --- Groups. ---


def test_advantages_with_a_mean_baseline_are_standardised():
    found = group_advantages(REWARDS, ddof=0, epsilon=0.0)
    close(found, (REWARDS - REWARDS.mean()) / REWARDS.std())


def test_leave_one_out_is_the_mean_baseline_times_a_constant():
    group = group_advantages(REWARDS, scale="none")
    others = group_advantages(REWARDS, baseline="leave_one_out", scale="none")
    close(others, 5 / 4 * np.asarray(group))


@jax.jit
def of_all_options(rewards):
    """Return advantages and their Jacobians, for options that give 0 here."""

    def advantages(rewards):
        return jnp.stack(
            [
                rlaxlib.group_advantages(rewards, epsilon=0.0, **options)
                for options in OPTIONS[:4] + OPTIONS[4::2]
            ]
        )

    return advantages(rewards), jax.jacobian(advantages)(rewards)


@pytest.mark.parametrize("value", [0.0, 0.1, 1.0, 1e6])
@pytest.mark.parametrize("size", [1, 3, 7])
def test_equal_rewards_give_advantages_of_zero(value, size):
    found, jacobians = of_all_options(np.full(size, value, np.float32))
    np.testing.assert_array_equal(found, 0.0)
    assert np.isfinite(jacobians).all()


def test_without_baseline_or_scale_equal_rewards_are_kept():
    rewards = np.ones(1, np.float32)
    none = group_advantages(rewards, baseline="none", scale="none")
    close(none, 1.0)


@pytest.mark.parametrize("options", OPTIONS)
def test_masked_answers_do_not_count(options):
    for spoiled in (np.nan, np.inf, 1e9):
        rewards = np.where(MASK, REWARDS, np.float32(spoiled))
        found = np.asarray(group_advantages(rewards, sample_mask=MASK, **options))
        close(found[MASK], group_advantages(REWARDS[MASK], **options))
        np.testing.assert_array_equal(found[~MASK], 0.0)
    nobody = group_advantages(REWARDS, sample_mask=MASK & False, **options)
    np.testing.assert_array_equal(nobody, 0.0)


def test_advantages_are_precise_far_from_zero():
    rewards = np.float32([1e5, 1e5 + 0.5, 1e5 + 1])
    close(group_advantages(rewards, scale="none"), [-0.5, 0.0, 0.5])
    close(group_advantages(rewards, epsilon=0.0), [-1.0, 0.0, 1.0])


@pytest.mark.parametrize("baseline", ["leave_one_out", "none"])
def test_policy_gradient_with_an_independent_baseline_is_unbiased(baseline):
    advantages = functools.partial(rlaxlib.group_advantages, baseline=baseline)
    (found,) = expected_gradients(lambda x: advantages(x, scale="none"), VALUES)
    close(found / 4, gradient_of_best_of(1, VALUES))


def test_policy_gradient_with_the_mean_baseline_is_too_small_by_a_factor():
    advantages = functools.partial(rlaxlib.group_advantages, scale="none")
    (found,) = expected_gradients(advantages, VALUES)
    close(found / 4, 3 / 4 * gradient_of_best_of(1, VALUES))


def test_length_weighted_baseline_of_equal_lengths_is_the_mean():
    lengths, baseline = np.full(5, 7), jax.jit(rlaxlib.length_weighted_baseline)
    close(baseline(REWARDS, lengths), np.mean(REWARDS))
    zero = baseline(REWARDS, 0 * lengths)
    np.testing.assert_array_equal(zero, 0.0)


def test_length_weighted_baseline_ignores_masked_answers():
    lengths = np.array([1, 2, 1000, 3, 1000])
    rewards = np.where(MASK, REWARDS, np.float32(np.nan))
    baseline = jax.jit(rlaxlib.length_weighted_baseline)
    found = baseline(rewards, lengths, sample_mask=MASK)
    close(found, np.average(REWARDS[MASK], weights=lengths[MASK]))


# --- Pass@k. ---


pass_at_k = jax.jit(rlaxlib.pass_at_k, static_argnums=2)
pass_at_k_rewards = jax.jit(rlaxlib.pass_at_k_rewards, static_argnums=1)


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
    mean = np.dot(binomial, pass_at_k(correct, samples, k))
    close(mean, 1 - (1 - solved) ** k)


def test_pass_at_k_at_its_limits():
    correct = np.arange(11)
    at_three = np.asarray(pass_at_k(correct, 10, 3))
    np.testing.assert_array_equal(at_three[[0, 8, 9, 10]], [0, 1, 1, 1])
    close(pass_at_k(correct, 10, 1), correct / 10)


def test_pass_at_k_is_precise_for_many_samples():
    found = pass_at_k(1, 100_000, 2)
    close(found, 2e-5, rtol=1e-5, atol=0)


def test_program_of_pass_at_k_does_not_grow_with_k():
    def size(k):
        program = jax.make_jaxpr(lambda c: rlaxlib.pass_at_k(c, 5000, k))(3)
        return len(str(program))

    assert size(1000) < size(10) + 200
    close(pass_at_k(3, 20_000, 5000), 1 - 0.75**3, rtol=1e-3)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_pass_at_k_rewards_give_an_unbiased_gradient(k):
    rewards = VALUES, np.float32(VALUES == 1)
    found = expected_gradients(lambda x: rlaxlib.pass_at_k_rewards(x, k), *rewards)
    close(found, [gradient_of_best_of(k, values) for values in rewards])


def test_pass_at_k_rewards_of_binary_rewards_follow_from_pass_at_k():
    rewards = np.float32([0, 1, 0, 0, 1, 0])
    others = float(pass_at_k(2, 5, 2))
    expected = np.where(rewards == 1, 3 / 6, 3 / 6 * others)
    close(pass_at_k_rewards(rewards, 3), expected)


def test_equal_rewards_get_equal_pass_at_k_rewards():
    rewards = np.float32([2, 1, 2, 1, 1])
    found = np.asarray(pass_at_k_rewards(rewards, 3))
    close(found[rewards == 2], found[0])
    close(found[rewards == 1], found[1])


def test_pass_at_k_rewards_of_large_groups_are_finite():
    rewards = np.linspace(0, 1, 2000, dtype=np.float32)
    found = np.asarray(pass_at_k_rewards(rewards, 1000))
    close(np.sum(found), 1000.0, rtol=1e-2)  # k times the maximum, about 1.
    assert np.isfinite(found).all()


# --- Rewards of tokens. ---


kl_shaped_rewards = jax.jit(rlaxlib.kl_shaped_rewards)


def test_tokens_that_the_reference_rules_out_have_no_penalty_without_a_coefficient():
    log_prob, mask = np.float32([-1, -np.inf, -2]), np.ones(3, bool)
    reference = np.float32([-np.inf, -np.inf, -1])
    rewards = kl_shaped_rewards(1.0, log_prob, reference, 0.0, sample_mask=mask)
    np.testing.assert_array_equal(rewards, [0, 0, 1])
    rewards = kl_shaped_rewards(1.0, log_prob, reference, 0.5, sample_mask=mask)
    assert -np.inf < rewards[0] < -1e14
    close(rewards[1:], [0, 1.5])


def test_kl_shaped_rewards_sum_to_the_reward_minus_the_penalty():
    rng = np.random.default_rng(0)
    log_prob, ref_log_prob = np.float32(rng.normal(size=(2, 8)))
    mask = np.array([0, 1, 1, 0, 0, 1, 0, 0], bool)
    bad = np.where(mask, log_prob, np.float32(np.nan))
    r_t = np.asarray(kl_shaped_rewards(2.0, bad, ref_log_prob, 0.1, sample_mask=mask))
    np.testing.assert_array_equal(r_t[~mask], 0.0)
    close(np.sum(r_t), 2.0 - 0.1 * np.sum((log_prob - ref_log_prob)[mask]))
    without = kl_shaped_rewards(2.0, log_prob, log_prob, 0.1, sample_mask=mask)
    np.testing.assert_array_equal(without, 2.0 * (np.arange(8) == 5))


def test_kl_shaped_rewards_without_valid_tokens_are_zero():
    log_prob, nowhere = np.ones(8, np.float32), np.zeros(8, bool)
    r_t = kl_shaped_rewards(1.0, log_prob, 0 * log_prob, 1.0, sample_mask=nowhere)
    np.testing.assert_array_equal(r_t, 0.0)


def test_kl_shaped_rewards_have_no_gradient():
    def total(log_prob):
        mask, reference = np.ones(2, bool), np.zeros(2, np.float32)
        return jnp.sum(
            rlaxlib.kl_shaped_rewards(1.0, log_prob, reference, 1.0, sample_mask=mask)
        )

    np.testing.assert_array_equal(jax.jit(jax.grad(total))(np.float32([1, 1])), 0.0)


def test_expected_return_of_shaped_rewards_has_the_gradient_of_the_whole_kl():
    # Two tokens, the second conditioned on the first; REINFORCE with rewards-to-go.
    rng = np.random.default_rng(0)
    logits, ref_logits = (
        [np.float32(rng.normal(size=shape)) for shape in ((3,), (3, 3))]
        for _ in range(2)
    )
    pairs = np.array(list(itertools.product(range(3), repeat=2)), np.int32)
    both = np.ones(2, bool)

    def log_probs(logits, pair):
        first, second = map(jax.nn.log_softmax, logits)
        return jnp.stack([first[pair[0]], second[pair[0], pair[1]]])

    def estimate(pair):
        now, ref = log_probs(logits, pair), log_probs(ref_logits, pair)
        r_t = rlaxlib.kl_shaped_rewards(0.0, now, ref, 1.0, sample_mask=both)
        returns = rlaxlib.discounted_returns(r_t, jnp.array([1.0, 0.0]), 0.0)
        gradient = jax.grad(lambda x: jnp.sum(returns * log_probs(x, pair)))(logits)
        return jax.tree.map(lambda x: jnp.exp(jnp.sum(now)) * x, gradient)

    def kl(logits):
        now = jax.vmap(lambda pair: jnp.sum(log_probs(logits, pair)))(pairs)
        ref = jax.vmap(lambda pair: jnp.sum(log_probs(ref_logits, pair)))(pairs)
        return jnp.sum(jnp.exp(now) * (now - ref))

    found, expected = jax.jit(
        lambda: (jax.vmap(estimate)(pairs), jax.grad(kl)(logits))
    )()
    for one, other in zip(found, expected, strict=True):
        close(np.sum(one, axis=0), -np.asarray(other))


def test_token_advantages_skip_the_output_of_tools():
    mask, log_prob = np.array([1, 1, 0, 0, 1, 0], bool), np.zeros(6, np.float32)
    r_t = kl_shaped_rewards(1.0, log_prob, log_prob, 0.0, sample_mask=mask)
    nan = np.nan
    values = np.float32([0.5, 0.25, nan, nan, 0.75, nan])
    v_t = np.float32([0.25, 0.75, nan, nan, 0, nan])
    discount_t = np.float32([1, 1, 1, 1, 0, 1])
    gae = jax.jit(rlaxlib.generalized_advantage_estimation)
    adv_t = gae(values, r_t, discount_t, v_t, 0.5, sample_mask=mask)
    close(adv_t, [-0.25 + 0.5 * 0.625, 0.5 + 0.125, 0.0, 0.0, 0.25, 0.0])


def test_the_scale_of_maxrl_is_the_mean_reward():
    rewards = np.float32([1, 0, 0, 0])
    scaled = functools.partial(rlaxlib.group_advantages, scale="mean", epsilon=0.0)
    np.testing.assert_allclose(scaled(rewards), [3, -1, -1, -1], rtol=1e-6)
    for equal in (np.zeros(4, np.float32), np.ones(4, np.float32)):
        np.testing.assert_array_equal(scaled(equal), 0)
    # The mean of `r ∇log π / r̄` over successes alone, without the baseline.
    unbiased = scaled(rewards, baseline="none")
    np.testing.assert_allclose(unbiased, [4, 0, 0, 0], rtol=1e-6)


def test_a_mean_reward_that_is_not_positive_gives_no_advantages():
    """A negative divisor would reinforce the worst answer."""
    for rewards in ([-1.0, 0.0, 0.0, 0.0], [1.0, -1.0, 0.0, 0.0]):
        adv = rlaxlib.group_advantages(np.float32(rewards), scale="mean")
        np.testing.assert_array_equal(adv, np.zeros(4))


# --- Groups by ids. ---

GROUP_OPTIONS = [
    {"baseline": baseline, "scale": scale}
    for baseline in ("mean", "leave_one_out", "none")
    for scale in ("stddev", "mean", "none")
]


@jax.jit
def of_groups(rewards, **groups):
    return [
        rlaxlib.group_advantages(rewards, **each, **groups) for each in GROUP_OPTIONS
    ]


def test_groups_by_ids_are_groups_of_any_size_in_any_order():
    ids = np.array([3, 0, 3, 7, 0, 3, 5, 0])
    rewards = np.random.default_rng(0).uniform(size=8).astype(np.float32)
    mask = np.array([1, 1, 1, 1, 1, 1, 0, 1], bool)
    found = of_groups(rewards, sample_mask=mask, group_ids=ids)
    expected = np.zeros((len(GROUP_OPTIONS), 8))
    for each in np.unique(ids[mask]):
        expected[:, ids == each] = of_groups(rewards[ids == each])
    for options, one, other in zip(GROUP_OPTIONS, found, expected, strict=True):
        close(one, other, rtol=1e-5, atol=1e-6, err_msg=str(options))


def test_devices_may_share_groups_by_ids_and_an_id_out_of_range_gives_nan():
    ids = np.array([6, 0, 6, 7, 0, 6, 5, 8])  # Four answers on each of two devices.
    rewards = np.random.default_rng(0).uniform(size=8).astype(np.float32)

    @functools.partial(jax.vmap, axis_name="i")
    def shared(rewards, ids):
        return rlaxlib.group_advantages(rewards, group_ids=ids, axis_name="i")

    found = shared(rewards.reshape(2, 4), jnp.asarray(ids).reshape(2, 4)).ravel()
    expected = jax.jit(rlaxlib.group_advantages)(rewards, group_ids=ids)
    close(found, expected, rtol=1e-5, atol=1e-6)
    assert np.flatnonzero(np.isnan(expected)).tolist() == [7]


def test_groups_by_ids_take_memory_in_proportion_to_the_answers():
    def loss(rewards, ids):
        return jnp.sum(jnp.square(rlaxlib.group_advantages(rewards, group_ids=ids)))

    shapes = (jax.ShapeDtypeStruct((8192,), x) for x in (jnp.float32, jnp.int32))
    memory = jax.jit(jax.grad(loss)).lower(*shapes).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 2**20
