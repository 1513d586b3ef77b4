"""Test policy targets of CMPO and Gumbel MuZero: bounds, limits, unvisited actions."""

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


# --- Values and gradients. ---


@pytest.mark.parametrize("clip", [0.1, 1.0, 5.0])
def test_total_variation_to_the_prior_reaches_its_bound(clip):
    pi = 1 / (1 + np.exp(clip))  # Probability of the good action at the bound.
    logits = jnp.log(jnp.array([pi, 1 - pi]))
    target = rlaxlib.cmpo_policy_targets(logits, jnp.array([1e6, -1e6]), 0.0, clip)
    distance = 0.5 * jnp.sum(jnp.abs(target - jnp.exp(logits)))
    close(distance, np.tanh(clip / 2))
    target = rlaxlib.cmpo_policy_targets(LOGITS, 1e3 * Q, V, clip)
    assert 0.5 * jnp.sum(jnp.abs(target - PI)) <= np.tanh(clip / 2)


def test_targets_are_the_prior_at_bound_zero_and_mpo_without_bound():
    close(rlaxlib.cmpo_policy_targets(LOGITS, Q, V, 0.0), PI)
    free = rlaxlib.cmpo_policy_targets(LOGITS, Q, V, inf)
    close(free, jax.nn.softmax(LOGITS + Q))


def test_weight_of_a_single_sample_is_relative_to_the_initial_estimate():
    close(
        rlaxlib.cmpo_sample_weights(jnp.array([0.5]), 0.0, z_init=2.0),
        [np.exp(0.5) / 2],
    )


def test_sample_weights_are_accurate_where_one_sample_dominates():
    q = np.array([5.0, 1.0, -5.0])
    e = np.exp(q)
    others = np.array([e[1] + e[2], e[0] + e[2], e[0] + e[1]])
    found = rlaxlib.cmpo_sample_weights(jnp.asarray(q, jnp.float32), 0.0, clip=5.0)
    np.testing.assert_allclose(found, 3 * e / (1 + others), rtol=1e-5)


@pytest.mark.parametrize("bad", [jnp.nan, inf, -inf])
def test_values_of_unvisited_actions_are_ignored(bad):
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


def test_without_visits_values_are_v_and_the_policy_is_unchanged():
    no_visits = jnp.zeros(5, jnp.int32)
    np.testing.assert_array_equal(
        rlaxlib.completed_q_values(LOGITS, Q, no_visits, V), V
    )
    for rescale in (False, True):
        targets = rlaxlib.gumbel_policy_targets(
            LOGITS, Q, no_visits, V, rescale_values=rescale
        )
        close(targets, PI)


def test_with_all_actions_visited_values_are_unchanged():
    all_visited = jnp.arange(1, 6)
    completed = rlaxlib.completed_q_values(LOGITS, Q, all_visited, V)
    np.testing.assert_array_equal(completed, Q)
    targets = rlaxlib.gumbel_policy_targets(LOGITS, Q, all_visited, V, 45.0, 0.01)
    close(targets, jax.nn.softmax(LOGITS + 0.5 * Q))


def test_visited_actions_of_tiny_probability_are_weighed_by_their_ratio():
    logits = jnp.array([0.0, -500.0, -501.0])
    q, visits = jnp.array([jnp.nan, 1.0, 3.0]), jnp.array([0, 1, 1])
    mean = (1 + 3 * np.exp(-1)) / (1 + np.exp(-1))
    completed = rlaxlib.completed_q_values(logits, q, visits, 0.0)
    close(completed, [mean * 2 / 3, 1.0, 3.0])


def test_rescaled_values_do_not_depend_on_offset_and_scale():
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
def test_targets_improve_on_the_policy_under_the_completed_values(seed):
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


def test_sample_weights_converge_to_the_ratio_of_target_and_prior():
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
def test_an_illegal_action_is_ignored(function, by_mask):
    def total(logits, q):
        mask = {"action_mask": MASK} if by_mask else {}
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


def test_mask_and_logits_can_both_exclude_an_action():
    logits, rest = LOGITS.at[4].set(-inf), MASK.at[4].set(False)
    found = rlaxlib.completed_q_values(logits, Q, VISITS, V, action_mask=MASK)
    close(found, rlaxlib.completed_q_values(LOGITS, Q, VISITS, V, action_mask=rest))


@each_function
def test_without_a_legal_action_targets_and_gradients_are_zero(function):
    nothing = jnp.zeros(5, bool)
    found = function(LOGITS, Q, action_mask=nothing)
    is_value = function is IMPROVED["completed"]
    np.testing.assert_array_equal(found, jnp.where(MASK, V, 0.0) if is_value else 0.0)
    with jax.debug_nans(True):
        by_q = jax.grad(lambda q: jnp.sum(function(LOGITS, q, action_mask=nothing)))(Q)
    np.testing.assert_array_equal(by_q, 0.0)
