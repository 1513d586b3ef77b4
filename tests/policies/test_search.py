"""Test policy targets of CMPO and Gumbel MuZero: bounds, limits, unvisited actions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close
from scipy.special import softmax

import rlaxlib

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=5).astype(np.float32)
Q = 2 * RNG.normal(size=5).astype(np.float32)
V = np.float32(0.5)
VISITS = np.array([3, 0, 1, 0, 7])
PI = softmax(LOGITS)
MASK = np.array([True, True, False, True, True])
inf = np.inf
cmpo = jax.jit(rlaxlib.cmpo_policy_targets)
mixed = jax.jit(rlaxlib.mixed_value)
gumbel = jax.jit(rlaxlib.gumbel_policy_targets, static_argnames="rescale_values")


def complete(logits, q, visits, v):
    return np.where(visits > 0, q, mixed(logits, q, visits, v))


def where(condition, x, other):
    return np.where(condition, x, np.float32(other))


# --- Values and gradients. ---


@pytest.mark.parametrize("clip", [0.1, 1.0, 5.0])
def test_total_variation_to_the_prior_reaches_its_bound(clip):
    pi = 1 / (1 + np.exp(clip))  # Probability of the good action at the bound.
    prior = np.array([pi, 1 - pi])
    target = np.asarray(cmpo(np.log(prior), np.array([1e6, -1e6]), 0.0, clip))
    close(0.5 * np.sum(np.abs(target - prior)), np.tanh(clip / 2))
    target = np.asarray(cmpo(LOGITS, 1e3 * Q, V, clip))
    assert 0.5 * np.sum(np.abs(target - PI)) <= np.tanh(clip / 2)


def test_targets_are_the_prior_at_bound_zero_and_mpo_without_bound():
    close(cmpo(LOGITS, Q, V, 0.0), PI)
    close(cmpo(LOGITS, Q, V, inf), softmax(LOGITS + Q))


def test_visits_may_be_integers_of_any_size_and_floats():
    dtypes = np.float32, np.int8, np.uint8, np.int32

    def of(visits):
        inputs = LOGITS, Q, visits, 0.5
        return (
            rlaxlib.mixed_value(*inputs),
            rlaxlib.gumbel_policy_targets(*inputs, 2.0, 0.25),
        )

    visits = np.array([0, 100, 27, 120, 1])  # Their sum exceeds 127.
    each = jax.jit(lambda: [of(visits.astype(dtype)) for dtype in dtypes])()
    for found, dtype in zip(each, dtypes, strict=True):
        assert {x.dtype for x in found} == {np.dtype(np.float32)}, dtype
        for one, other in zip(found, each[0], strict=True):
            close(one, other, err_msg=str(dtype))


def test_values_of_unvisited_actions_are_ignored():
    def total(logits, q, v):
        mixed = rlaxlib.mixed_value(logits, q, VISITS, v)
        targets = rlaxlib.gumbel_policy_targets(
            logits, q, VISITS, v, stop_target_gradients=False, rescale_values=True
        )
        return mixed + jnp.sum(targets * Q)

    gradient = jax.jit(jax.value_and_grad(total, argnums=(0, 1, 2)))
    expected = gradient(LOGITS, where(VISITS > 0, Q, 0), V)
    for bad in (np.nan, inf, -inf):
        found = gradient(LOGITS, where(VISITS > 0, Q, bad), V)
        jax.tree.map(close, found, expected)
        by_q = np.asarray(found[1][1])
        np.testing.assert_array_equal(by_q[VISITS == 0], 0.0)


def test_without_visits_values_are_v_and_the_policy_is_unchanged():
    no_visits = np.zeros(5, int)
    assert mixed(LOGITS, Q, no_visits, V) == V
    for rescale in (False, True):
        targets = gumbel(LOGITS, Q, no_visits, V, rescale_values=rescale)
        close(targets, PI)


def test_with_all_actions_visited_values_are_unchanged():
    all_visited = np.arange(1, 6)
    targets = gumbel(LOGITS, Q, all_visited, V, 45.0, 0.01)
    close(targets, softmax(LOGITS + 0.5 * Q))


def test_visited_actions_of_tiny_probability_are_weighed_by_their_ratio():
    logits = np.array([0.0, -500.0, -501.0])
    q, visits = np.array([np.nan, 1.0, 3.0]), np.array([0, 1, 1])
    mean = (1 + 3 * np.exp(-1)) / (1 + np.exp(-1))
    close(mixed(logits, q, visits, 0.0), mean * 2 / 3)


def test_rescaled_values_do_not_depend_on_offset_and_scale():
    settings = {"c_visit": 1.0, "c_scale": 0.1, "rescale_values": True}
    targets = gumbel(LOGITS, Q, VISITS, V, **settings)
    close(targets, gumbel(LOGITS, 8 * Q - 2, VISITS, 8 * V - 2, **settings))
    completed = complete(LOGITS, Q, VISITS, V)
    close(targets, softmax(LOGITS + 0.8 * completed / np.ptp(completed)))


def test_large_values_do_not_round_the_logits():
    large = np.float32(1e5)
    close(gumbel(LOGITS, np.full_like(Q, large), VISITS, large), PI)


def test_targets_improve_on_the_policy_under_the_completed_values():
    for seed in range(3):
        rng = np.random.default_rng(seed)
        logits, q = rng.normal(size=(2, 5)).astype(np.float32)
        completed = complete(logits, q, VISITS, V)
        before = np.sum(softmax(logits) * completed)
        improved = (
            gumbel(logits, q, VISITS, V, c_scale=0.1),
            cmpo(logits, completed, before),
        )
        for targets in map(np.asarray, improved):
            close(np.sum(targets), 1.0)
            assert np.sum(targets * completed) > before


# --- Masks of legal actions. ---

IMPROVED = {
    "cmpo": lambda logits, q, **mask: rlaxlib.cmpo_policy_targets(
        logits, q, V, stop_target_gradients=False, **mask
    ),
    "mixed": lambda logits, q, **mask: rlaxlib.mixed_value(
        logits, q, VISITS, V, **mask
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
def test_an_illegal_action_is_ignored(function):
    @jax.jit
    @functools.partial(jax.value_and_grad, argnums=(0, 1))
    def gradient(logits, q, mask):
        return jnp.sum(function(logits, q, action_mask=mask) * Q)

    excluded = where(MASK, LOGITS, -inf)
    expected = gradient(LOGITS, Q, MASK)
    for bad in (np.nan, inf, 1e9):
        q = where(MASK, Q, bad)
        by_mask = gradient(where(MASK, LOGITS, bad), q, MASK)
        for found in (by_mask, gradient(excluded, q, MASK | True)):
            jax.tree.map(close, found, expected)
            for each in map(np.asarray, found[1]):
                assert each[2] == 0
                assert np.all(np.isfinite(each))


def test_mask_and_logits_can_both_exclude_an_action():
    others = np.arange(5) < 4
    logits, rest = where(others, LOGITS, -inf), MASK & others
    found = mixed(logits, Q, VISITS, V, action_mask=MASK)
    close(found, mixed(LOGITS, Q, VISITS, V, action_mask=rest))


@each_function
def test_without_a_legal_action_targets_and_gradients_are_zero(function):
    nothing = np.zeros(5, bool)

    def total(q):
        found = function(LOGITS, q, action_mask=nothing)
        return jnp.sum(found), found

    with jax.debug_nans(True):
        by_q, found = jax.jit(jax.grad(total, has_aux=True))(Q)
    is_value = function is IMPROVED["mixed"]
    np.testing.assert_array_equal(found, V if is_value else 0.0)
    np.testing.assert_array_equal(by_q, 0.0)
