"""Test policy improvement: bounds, limits, and values that are not there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

RNG = np.random.default_rng(0)
LOGITS = jnp.asarray(RNG.normal(size=5), jnp.float32)
Q = jnp.asarray(2 * RNG.normal(size=5), jnp.float32)
V = jnp.float32(0.5)
VISITS = jnp.array([3, 0, 1, 0, 7])
PI = jax.nn.softmax(LOGITS)
MASK = jnp.array([True, True, False, True, True])
inf = jnp.inf


# --- What the functions compute. ---


@pytest.mark.parametrize("clip", [0.1, 1.0, 5.0])
def test_a_target_is_as_far_from_the_prior_as_the_bound_lets_it_be(clip):
    share = 1 / (1 + np.exp(clip))  # Of the good action, where the bound is reached.
    logits = jnp.log(jnp.array([share, 1 - share]))
    target = rlaxlib.cmpo_policy_targets(logits, jnp.array([1e6, -1e6]), 0.0, clip)
    distance = 0.5 * jnp.sum(jnp.abs(target - jnp.exp(logits)))
    close(distance, np.tanh(clip / 2))
    target = rlaxlib.cmpo_policy_targets(LOGITS, 1e3 * Q, V, clip)
    assert 0.5 * jnp.sum(jnp.abs(target - PI)) <= np.tanh(clip / 2)


def test_the_bound_leads_from_the_prior_to_mpo():
    close(rlaxlib.cmpo_policy_targets(LOGITS, Q, V, 0.0), PI)
    free = rlaxlib.cmpo_policy_targets(LOGITS, Q, V, inf)
    close(free, jax.nn.softmax(LOGITS + Q))


def test_the_weight_of_one_sample_is_measured_by_the_first_guess():
    close(
        rlaxlib.cmpo_sample_weights(jnp.array([0.5]), 0.0, z_init=2.0),
        [np.exp(0.5) / 2],
    )


def test_weights_are_right_however_large_advantages_are():
    high = rlaxlib.cmpo_sample_weights(jnp.full(3, 100.0), 0.0, inf)
    close(high, [1.5, 1.5, 1.5])
    low = rlaxlib.cmpo_sample_weights(jnp.full(3, -50.0), 0.0, inf)
    np.testing.assert_allclose(low, 3 * np.exp(-50) / (1 + 2 * np.exp(-50)), rtol=1e-5)
    # One is nearly all of the sum, and what is left without it is not nothing.
    q = jnp.array([20.0, 1.0])
    found = rlaxlib.cmpo_sample_weights(q, 0.0, inf)[0]
    np.testing.assert_allclose(found, 2 * np.exp(20) / (1 + np.exp(1)), rtol=1e-5)


@pytest.mark.parametrize("bad", [jnp.nan, inf, -inf])
def test_what_has_not_been_visited_has_no_say(bad):
    def total(logits, q, v):
        completed = rlaxlib.completed_q_values(logits, q, VISITS, v)
        targets = rlaxlib.gumbel_policy_targets(
            logits, q, VISITS, v, stop_target_gradients=False, rescale_values=True
        )
        return jnp.sum(completed * Q + targets * Q)

    gradient = jax.value_and_grad(total, argnums=(0, 1, 2))
    expected = gradient(LOGITS, jnp.where(VISITS > 0, Q, 0.0), V)
    found = gradient(LOGITS, jnp.where(VISITS > 0, Q, bad), V)
    jax.tree.map(close, found, expected)
    np.testing.assert_array_equal(found[1][1][VISITS == 0], 0.0)


def test_without_visits_the_value_stands_for_all_and_the_policy_stays():
    none = jnp.zeros(5, jnp.int32)
    np.testing.assert_array_equal(rlaxlib.completed_q_values(LOGITS, Q, none, V), V)
    for rescale in (False, True):
        targets = rlaxlib.gumbel_policy_targets(
            LOGITS, Q, none, V, rescale_values=rescale
        )
        close(targets, PI)


def test_where_all_is_visited_no_value_is_missing():
    all_visited = jnp.arange(1, 6)
    completed = rlaxlib.completed_q_values(LOGITS, Q, all_visited, V)
    np.testing.assert_array_equal(completed, Q)
    targets = rlaxlib.gumbel_policy_targets(LOGITS, Q, all_visited, V, 45.0, 0.01)
    close(targets, jax.nn.softmax(LOGITS + 0.5 * Q))


def test_a_visited_action_of_hardly_any_probability_counts_in_proportion():
    logits = jnp.array([0.0, -500.0, -501.0])
    q, visits = jnp.array([jnp.nan, 1.0, 3.0]), jnp.array([0, 1, 1])
    mean = (1 + 3 * np.exp(-1)) / (1 + np.exp(-1))
    completed = rlaxlib.completed_q_values(logits, q, visits, 0.0)
    close(completed, [mean * 2 / 3, 1.0, 3.0])


def test_values_are_stretched_between_the_lowest_and_the_highest():
    settings = {"c_visit": 1.0, "c_scale": 0.1, "rescale_values": True}
    targets = rlaxlib.gumbel_policy_targets(LOGITS, Q, VISITS, V, **settings)
    moved = rlaxlib.gumbel_policy_targets(
        LOGITS, 8 * Q - 2, VISITS, 8 * V - 2, **settings
    )
    close(targets, moved)
    completed = rlaxlib.completed_q_values(LOGITS, Q, VISITS, V)
    size = jnp.max(completed) - jnp.min(completed)
    close(targets, jax.nn.softmax(LOGITS + 0.8 * completed / size))


@pytest.mark.parametrize("seed", range(3))
def test_a_better_policy_is_better_by_the_values_it_came_from(seed):
    rng = np.random.default_rng(seed)
    logits, q = jnp.asarray(rng.normal(size=(2, 5)), jnp.float32)
    completed = rlaxlib.completed_q_values(logits, q, VISITS, V)
    before = jnp.sum(jax.nn.softmax(logits) * completed)
    for targets in (
        rlaxlib.gumbel_policy_targets(logits, q, VISITS, V, c_scale=0.1),
        rlaxlib.cmpo_policy_targets(logits, completed, before),
    ):
        close(jnp.sum(targets), 1.0)
        assert jnp.sum(targets * completed) > before


# --- How the functions relate. ---


def test_with_many_samples_weights_are_ratios_of_the_target_to_the_prior():
    prior = jnp.array([0.5, 0.25, 0.25])
    q = jnp.array([-0.5, 3.0, 0.25])
    samples = jnp.repeat(jnp.arange(3), jnp.array([1000, 500, 500]))
    weights = rlaxlib.cmpo_sample_weights(q[samples], 0.0)[jnp.array([0, 1000, 1500])]
    exact = rlaxlib.cmpo_policy_targets(jnp.log(prior), q, 0.0)
    np.testing.assert_allclose(weights * prior, exact, rtol=2e-3)


# --- Masks of legal actions. ---

IMPROVED = {
    "cmpo": lambda logits, q, **mask: rlaxlib.cmpo_policy_targets(
        logits, q, V, stop_target_gradients=False, **mask
    ),
    "completed": lambda logits, q, **mask: jnp.where(
        MASK, rlaxlib.completed_q_values(logits, q, VISITS, V, **mask), 0.0
    ),
    "gumbel": lambda logits, q, **mask: rlaxlib.gumbel_policy_targets(
        logits, q, VISITS, V, 1.0, 0.1, stop_target_gradients=False, **mask
    ),
    "rescaled": lambda logits, q, **mask: rlaxlib.gumbel_policy_targets(
        logits,
        q,
        VISITS,
        V,
        1.0,
        0.1,
        rescale_values=True,
        stop_target_gradients=False,
        **mask,
    ),
}
each_function = pytest.mark.parametrize("function", IMPROVED.values(), ids=IMPROVED)


@each_function
@pytest.mark.parametrize("by_mask", [True, False])
def test_an_illegal_action_has_no_say(function, by_mask):
    def total(logits, q):
        mask = {"mask": MASK} if by_mask else {}
        return jnp.sum(function(logits, q, **mask) * Q)

    gradient = jax.value_and_grad(total, argnums=(0, 1))
    rest = LOGITS if by_mask else jnp.where(MASK, LOGITS, -inf)
    expected = gradient(rest, Q)
    for bad in (jnp.nan, inf, 1e9):
        logits = jnp.where(MASK, LOGITS, bad) if by_mask else rest
        found = gradient(logits, jnp.where(MASK, Q, bad))
        jax.tree.map(close, found, expected)
    for each in found[1]:
        assert each[2] == 0
        assert jnp.all(jnp.isfinite(each))


def test_mask_and_logits_may_each_rule_out_an_action():
    logits, rest = LOGITS.at[4].set(-inf), MASK.at[4].set(False)
    found = rlaxlib.completed_q_values(logits, Q, VISITS, V, mask=MASK)
    close(found, rlaxlib.completed_q_values(LOGITS, Q, VISITS, V, mask=rest))


@each_function
def test_where_no_action_is_legal_there_is_no_target(function):
    nothing = jnp.zeros(5, bool)
    found = function(LOGITS, Q, mask=nothing)
    is_value = function is IMPROVED["completed"]
    np.testing.assert_array_equal(found, jnp.where(MASK, V, 0.0) if is_value else 0.0)
    with jax.debug_nans(True):
        by_q = jax.grad(lambda q: jnp.sum(function(LOGITS, q, mask=nothing)))(Q)
    np.testing.assert_array_equal(by_q, 0.0)


# --- What the functions refuse. ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: rlaxlib.cmpo_policy_targets(LOGITS, Q, V, -1.0),
            r"^cmpo_policy_targets: `clip` must lie in \[0, inf\], but is -1.0",
        ),
        (
            lambda: rlaxlib.cmpo_sample_weights(Q, V, z_init=0.0),
            r"^cmpo_sample_weights: `z_init` must lie in \(0, inf\), but is 0.0",
        ),
        (
            lambda: rlaxlib.completed_q_values(LOGITS, Q, -VISITS, V),
            r"^completed_q_values: `visits` must lie in \[0, inf\), but is -3",
        ),
        (
            lambda: rlaxlib.gumbel_policy_targets(LOGITS, Q, VISITS, V, -50.0),
            r"^gumbel_policy_targets: `c_visit` must lie in \[0, inf\), but is -50.0",
        ),
    ],
)
def test_says_what_is_wrong(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        call()
