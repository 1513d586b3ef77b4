"""Test that distributional updates contract in their metric, to the right values.

An expected update averages a loss over the transitions of each state. The update of a
categorical loss follows from its gradient, predictions minus targets. Quantiles and
expectiles are the minimisers of their losses.
"""

from typing import NamedTuple

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlaxlib
from truth import mdp
from truth.enumeration import MDPS, WORLDS, averagings, streams

DISCOUNT = 0.8  # The largest of all MDPs.
ATOMS = np.linspace(-20.0, 20.0, 41)
V = np.stack([mdp.state_values(m, m.pi) for m in MDPS])
BEST = np.stack([mdp.optimal_values(m) for m in MDPS])
WORST = -np.stack([mdp.optimal_values(m._replace(reward=-m.reward)) for m in MDPS])


class Transitions(NamedTuple):
    """All transitions from all states, with the axes state and transition."""

    a_tm1: np.ndarray
    r_t: np.ndarray
    discount_t: np.ndarray
    s_t: np.ndarray
    prob: np.ndarray  # Given the state and the action.
    weight: np.ndarray  # Given the state, under π.


def transitions(world="random"):
    """Return the transitions of all MDPs."""
    each = []
    for m in WORLDS[world]:
        a = np.broadcast_to(np.arange(mdp.ACTIONS)[:, None], m.after.shape)
        weight = m.pi[..., None] * m.prob
        fields = a, m.reward, m.discount, m.after, m.prob, weight
        each.append([x.reshape(mdp.STATES, -1) for x in fields])
    return Transitions(*map(np.stack, zip(*each, strict=True)))


def return_distributions():
    """Return the returns of all episodes of layered MDPs, and weights `[N, S]`."""
    stream = streams(world="layered")
    ones = np.ones_like(stream.r_t[..., :1])
    decay = np.cumprod(np.concatenate([ones, stream.discount_t], axis=-1), axis=-1)
    returns = np.sum(decay[..., :-1] * stream.r_t, axis=-1)
    weights = averagings("pi", of_actions=False, world="layered")
    return zip(returns, weights, strict=True)


def on_all_mdps(function, *arguments, world="random"):
    """Compute a function of the transitions of one MDP, and of arrays, for all MDPs."""
    with contract.x64(True):
        results = jax.jit(jax.vmap(function))(transitions(world), *arguments)
    return jax.tree.map(np.asarray, results)


def of_state(function):
    """Map a function of the fields of one transition over all transitions."""
    return jax.vmap(jax.vmap(function, in_axes=(None, 0)), in_axes=(0, 0))


# --- Categorical distributions. ---


def cramer(p, q):
    """Return the Cramér distances of distributions over the atoms, which are 1 apart."""
    return np.sqrt(np.sum(np.cumsum(p - q, axis=-1)[..., :-1] ** 2, axis=-1))


def expected_targets(loss, probs):
    """Return p - ∇L by the logits, the mean target of a cross-entropy loss."""
    targets = probs - jax.grad(loss)(jnp.log(probs))
    return jnp.maximum(targets, 1e-300)  # Rounding makes some zeros negative.


def categorical_update(steps, probs):
    """Return the expected targets of categorical TD learning, `[S, K]`."""

    def loss(logits):
        def one(logits_tm1, step):
            target = step.r_t, step.discount_t, ATOMS, jnp.log(probs)[step.s_t]
            return rlaxlib.categorical_td_learning(ATOMS, logits_tm1, *target)

        return jnp.sum(steps.weight * of_state(one)(logits, steps))

    return expected_targets(loss, probs)


def categorical_q_update(double):
    def update(steps, probs):
        """Return the expected targets of C51 or Rainbow, `[S, A, K]`."""

        def loss(logits):
            def one(logits_tm1, step):
                target = step.r_t, step.discount_t, ATOMS, jnp.log(probs)[step.s_t]
                arguments = ATOMS, logits_tm1, step.a_tm1, *target
                if double:
                    worst = -probs[step.s_t] @ ATOMS
                    return rlaxlib.categorical_double_q_learning(*arguments, worst)
                return rlaxlib.categorical_q_learning(*arguments)

            losses = of_state(one)(logits, steps)
            return jnp.sum(steps.prob * losses)

        return expected_targets(loss, probs)

    return update


def random_distributions(shape, seed=0):
    """Sample distributions over atoms whose targets stay within their range."""
    weights = np.random.default_rng(seed).gamma(0.3, size=(*shape, ATOMS.size))
    weights = np.where(np.abs(ATOMS) < 12, weights, 0) + 1e-6
    return weights / np.sum(weights, axis=-1, keepdims=True)


def limits(update, start, times=150, **of_world):
    """Return the limits of repeated updates from a start, for all MDPs."""

    def limit(steps, start):
        return jax.lax.fori_loop(0, times, lambda _, x: update(steps, x), start)

    return on_all_mdps(limit, start, **of_world)


def largest_ratio(update, pair, distance):
    """Return the distances of a pair after an update, divided by those before."""
    after = np.stack([on_all_mdps(update, each) for each in pair])
    before, after = (np.max(distance(*x), axis=-1) for x in (pair, after))
    return np.max(after / before)


def test_categorical_updates_contract_in_cramer_distance():
    pair = random_distributions((2, len(MDPS), mdp.STATES))
    ratio = largest_ratio(categorical_update, pair, cramer)
    assert 0.2 < ratio <= np.sqrt(DISCOUNT)


def test_categorical_means_converge_to_the_state_values():
    start = random_distributions((len(MDPS), mdp.STATES))
    found = limits(categorical_update, start)
    np.testing.assert_allclose(found @ ATOMS, V, rtol=0, atol=1e-9)


@pytest.mark.parametrize("double", [False, True])
def test_categorical_q_learning_means_converge_to_the_values_of_the_selection(double):
    # C51 selects the best next action; the selector given to Rainbow is the worst.
    start = random_distributions((len(MDPS), mdp.STATES, mdp.ACTIONS))
    found = limits(categorical_q_update(double), start)
    truth = WORST if double else BEST
    np.testing.assert_allclose(found @ ATOMS, truth, rtol=0, atol=1e-9)


def test_categorical_limits_are_close_to_the_return_distributions():
    start = random_distributions((len(MDPS), mdp.STATES))
    found = limits(categorical_update, start, world="layered")
    for probs, (returns, weights) in zip(found, return_distributions(), strict=True):
        points = np.concatenate([ATOMS, returns])
        order = np.argsort(points)
        change = np.concatenate([probs.T, -weights])[order]
        gaps = np.cumsum(change, axis=0)[:-1]
        squared = np.sum(gaps**2 * np.diff(points[order])[:, None], axis=0)
        assert np.all(squared <= 1 / (1 - DISCOUNT))  # The atoms are 1 apart.
        assert np.all(squared < 0.2)


PAIRS = {  # With the error of decoding an encoded value.
    "two-hot": (rlaxlib.twohot_pair(-20.0, 20.0, 41), 0.0),
    "HL-Gauss": (rlaxlib.hl_gauss_pair(-20.0, 20.0, 41), 2e-4),
    "unbiased": (
        rlaxlib.unbiased_transform_pair(-5.0, 5.0, 41, rlaxlib.SIGNED_HYPERBOLIC_PAIR),
        0.0,
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_decoded_values_of_categorical_regression_converge_to_the_state_values(name):
    pair, error = PAIRS[name]

    def update(steps, probs):
        v = pair.apply_inv(probs)

        def loss(logits):
            def one(logits_tm1, step):
                target = step.r_t + step.discount_t * v[step.s_t]
                return rlaxlib.categorical_regression_loss(logits_tm1, target, pair)

            return jnp.sum(steps.weight * of_state(one)(logits, steps))

        return expected_targets(loss, probs)

    start = random_distributions((len(MDPS), mdp.STATES))
    found = limits(update, start)
    with contract.x64(True):
        v = np.asarray(pair.apply_inv(jnp.asarray(found)))
    np.testing.assert_allclose(v, V, rtol=0, atol=error / (1 - DISCOUNT) + 1e-9)
