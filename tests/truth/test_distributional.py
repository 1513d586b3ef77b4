"""Test that distributional updates contract in their metric, to the right values.

An expected update averages a loss over the transitions of each state. The update of a
categorical loss follows from its gradient, predictions minus targets. Quantiles and
expectiles are the minimisers of their losses.
"""

import functools
from typing import NamedTuple

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlaxlib
from truth import mdp
from truth.enumeration import MDPS, averagings, streams

DISCOUNT = 0.8  # The largest of all MDPs.
LAYERED = mdp.KINDS.index("layered")
ATOMS = np.linspace(-20.0, 20.0, 41)
TAU = np.asarray(rlaxlib.quantile_midpoints(5), np.float64)
V = np.stack([mdp.state_values(m, m.pi) for m in MDPS])
BEST = np.stack([mdp.optimal_values(m) for m in MDPS])
WORST = -np.stack([mdp.optimal_values(m._replace(reward=-m.reward)) for m in MDPS])


class Transitions(NamedTuple):
    """All transitions from all states, with the axes state and transition."""

    a_tm1: np.ndarray
    r_t: np.ndarray
    discount_t: np.ndarray
    s_t: np.ndarray
    pi_t: np.ndarray  # Of all actions.
    prob: np.ndarray  # Given the state and the action.
    weight: np.ndarray  # Given the state, under π.


def transitions():
    """Return the transitions of all MDPs."""
    each = []
    for m in MDPS:
        a = np.broadcast_to(np.arange(mdp.ACTIONS)[:, None], m.after.shape)
        weight = m.pi[..., None] * m.prob
        fields = a, m.reward, m.discount, m.after, m.pi[m.after], m.prob, weight
        shape = mdp.STATES, mdp.ACTIONS * mdp.BRANCHES
        each.append([x.reshape(*shape, *x.shape[3:]) for x in fields])
    return Transitions(*map(np.stack, zip(*each, strict=True)))


def return_distributions():
    """Return the returns of all episodes of the layered MDP, and weights `[N, S]`."""
    stream = mdp.Stream(*(x[LAYERED] for x in streams()))
    decay = np.cumprod(np.insert(stream.discount_t, 0, 1.0, axis=-1), axis=-1)
    returns = np.sum(decay[:, :-1] * stream.r_t, axis=-1)
    return returns, averagings("pi", of_actions=False)[LAYERED]


def on_all_mdps(function, *arguments):
    """Compute a function of the transitions of one MDP, and of arrays, for all MDPs."""
    with contract.x64(True):
        results = jax.jit(jax.vmap(function))(transitions(), *arguments)
    return jax.tree.map(np.asarray, results)


def of_state(function):
    """Map a function of the fields of one transition over all transitions."""
    return jax.vmap(jax.vmap(function, in_axes=(None, 0)), in_axes=(0, 0))


# --- Categorical distributions. ---


def cramer(p, q):
    """Return the Cramér distances of distributions over atoms that are 1 apart."""
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


def limits(update, start, times=115):  # 0.8^115 = 7e-12
    """Return the limits of repeated updates from a start, for all MDPs."""

    def limit(steps, start):
        return jax.lax.fori_loop(0, times, lambda _, x: update(steps, x), start)

    return on_all_mdps(limit, start)


def largest_ratio(update, pair, distance):
    """Return the distances of a pair after an update, divided by those before."""

    def of_pair(steps, *pair):
        return jax.vmap(lambda x: update(steps, x))(jnp.stack(pair))

    after = np.swapaxes(on_all_mdps(of_pair, *pair), 0, 1)
    before, after = (np.max(distance(*x), axis=-1) for x in (pair, after))
    return np.max(after / before)


def test_categorical_updates_contract_in_cramer_distance():
    pair = random_distributions((2, len(MDPS), mdp.STATES))
    ratio = largest_ratio(categorical_update, pair, cramer)
    assert 0.2 < ratio <= np.sqrt(DISCOUNT)


def test_categorical_updates_converge_to_the_right_means_and_nearby_distributions():
    start = random_distributions((len(MDPS), mdp.STATES))
    found = limits(categorical_update, start)
    np.testing.assert_allclose(found @ ATOMS, V, rtol=0, atol=1e-9)
    returns, weights = return_distributions()
    points = np.concatenate([ATOMS, returns])
    order = np.argsort(points)
    difference = np.concatenate([found[LAYERED].T, -weights])[order]
    gaps = np.cumsum(difference, axis=0)[:-1]
    squared = np.sum(gaps**2 * np.diff(points[order])[:, None], axis=0)
    assert np.all(squared < 0.1)  # The bound of theory, for atoms 1 apart, is 5.


@pytest.mark.parametrize("double", [False, True])
def test_categorical_q_learning_means_converge_to_the_values_of_the_selection(double):
    # C51 selects the best next action; the selector given to Rainbow is the worst.
    start = random_distributions((len(MDPS), mdp.STATES, mdp.ACTIONS))
    found = limits(categorical_q_update(double), start)
    truth = WORST if double else BEST
    np.testing.assert_allclose(found @ ATOMS, truth, rtol=0, atol=1e-9)


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


# --- Quantiles. ---


def quantile_regression(x, tau, step, table):
    targets = step.r_t + step.discount_t * table[step.s_t]
    loss = functools.partial(rlaxlib.quantile_regression_loss, x[:, 0], tau)
    return step.pi_t @ jax.vmap(loss)(targets)


def quantile_expected_sarsa(x, tau, step, table):
    arguments = step.a_tm1, step.r_t, step.discount_t, table[step.s_t].T, step.pi_t
    return rlaxlib.quantile_expected_sarsa(x, tau, *arguments)


def quantile_q_learning(x, tau, step, table):
    dist_q_t = table[step.s_t].T
    arguments = step.a_tm1, step.r_t, step.discount_t, dist_q_t, dist_q_t
    return rlaxlib.quantile_q_learning(x, tau, *arguments)


def by_action(steps):
    """Return transitions with the axes state, action and branch."""
    shape = mdp.STATES, mdp.ACTIONS, mdp.BRANCHES
    return Transitions(*(x.reshape(*shape, *x.shape[2:]) for x in steps))


def targets_of(step, table):
    """Return all samples of the targets, `[..., B, A, N]`."""
    r_t, discount_t = step.r_t[..., None, None], step.discount_t[..., None, None]
    return r_t + discount_t * table[step.s_t]


def quantile_update(function):
    """Return the update to the minimisers of the expected quantile loss, `[S, A, N]`.

    The loss is convex and piecewise linear, with its corners at the targets.
    """

    def update(steps, table):
        def of_cell(step):
            def loss(x, tau):
                x = jnp.broadcast_to(x, (1, mdp.ACTIONS))
                losses = jax.vmap(lambda each: function(x, tau[None], each, table))
                return losses(step) @ step.prob

            corners = jnp.ravel(targets_of(step, table))
            losses = jax.vmap(jax.vmap(loss, in_axes=(0, None)), in_axes=(None, 0))
            return corners[jnp.argmin(losses(corners, TAU), axis=-1)]

        return jax.vmap(jax.vmap(of_cell))(by_action(steps))

    return update


def largest_difference(x, y):
    """Return the ∞-Wasserstein distances of distributions by their quantiles."""
    return np.max(np.abs(x - y), axis=(-2, -1))


def random_values(*shape):
    return np.sort(np.random.default_rng(0).normal(scale=3, size=shape), axis=-1)


def test_quantile_updates_contract_in_wasserstein_distance():
    pair = random_values(2, len(MDPS), mdp.STATES, mdp.ACTIONS, TAU.size)
    update = quantile_update(quantile_regression)
    assert 0.2 < largest_ratio(update, pair, largest_difference) <= DISCOUNT + 1e-12


@pytest.mark.parametrize(
    ("function", "is_greedy"),
    [
        (quantile_regression, False),
        (quantile_expected_sarsa, False),
        (quantile_q_learning, True),
    ],
)
def test_quantile_updates_converge_to_quantiles_of_their_targets(function, is_greedy):
    start = random_values(len(MDPS), mdp.STATES, mdp.ACTIONS, TAU.size)
    found = limits(quantile_update(function), start)
    for table, steps in zip(found, zip(*transitions(), strict=True), strict=True):
        step = by_action(Transitions(*steps))
        policy = (
            mdp.greedy(np.mean(table, axis=-1))[step.s_t] if is_greedy else step.pi_t
        )
        weights = (step.prob[..., None] * policy)[..., None] / TAU.size
        targets = targets_of(step, table)[:, :, None]
        x = table[..., None, None, None]
        below, up_to = (
            np.sum(weights[:, :, None] * (targets < x + gap), axis=(-3, -2, -1))
            for gap in (-1e-9, 1e-9)
        )
        assert np.all((below <= TAU) & (up_to >= TAU))


# --- Expectiles, of one action. ---


def expectile_regression(x, step, table):
    targets = step.r_t + step.discount_t * table[step.s_t]
    return rlaxlib.expectile_regression_loss(x, TAU, targets)


def expectile_q_learning(x, step, table):
    x, x_t = x[:, None], table[step.s_t][:, None]
    return rlaxlib.expectile_q_learning(x, TAU, 0, step.r_t, step.discount_t, x_t, x_t)


def imputed_expectile_q_learning(x, step, table):
    x, x_t = x[:, None], table[step.s_t][:, None]
    arguments = 0, step.r_t, step.discount_t, x_t, x_t
    return rlaxlib.imputed_expectile_q_learning(x, TAU, *arguments)


def descend(function, steps, x, table):
    """Return a step of gradient descent on the expected loss, `[S, N]`."""

    def loss(x):
        losses = of_state(lambda x, step: function(x, step, table))(x, steps)
        return jnp.sum(steps.weight * losses)

    return x - 0.5 * jax.grad(loss)(x)


def expectiles(samples, weights):
    """Return the expectiles of weighted samples, `[N]`."""
    e = np.zeros(TAU.size)
    for _ in range(300):
        w = weights * np.where(samples < e[:, None], 1 - TAU[:, None], TAU[:, None])
        e = np.sum(w * samples, axis=-1) / np.sum(w, axis=-1)
    return e


def test_expectile_updates_from_samples_contract():
    def update(steps, table):
        def step(_, x):
            return descend(expectile_regression, steps, x, table)

        return jax.lax.fori_loop(0, 250, step, table)

    pair = random_values(2, len(MDPS), 1, mdp.STATES, TAU.size)[:, :, 0]
    ratio = largest_ratio(update, pair, largest_difference)
    assert 0.2 < ratio <= DISCOUNT + 1e-12


def test_imputed_expectiles_converge_to_the_state_values_and_true_expectiles():
    def limit(function):
        start = random_values(len(MDPS), mdp.STATES, TAU.size)
        return limits(lambda steps, x: descend(function, steps, x, x), start, 1000)

    naive, imputed = map(limit, (expectile_q_learning, imputed_expectile_q_learning))
    np.testing.assert_allclose(imputed[..., 2], V, rtol=0, atol=1e-7)
    assert np.max(np.abs(naive[..., 2] - V)) > 0.01
    returns, weights = return_distributions()
    truth = np.stack([expectiles(returns, each) for each in weights.T])
    assert np.max(np.abs(imputed[LAYERED] - truth)) < 0.1
    # Expectiles used as samples lie closer together, but for those of the last step.
    ranges = (np.ptp(x[:4], axis=-1) for x in (naive[LAYERED], truth))
    assert np.all(np.divide(*ranges) < 0.95)


# --- Samples. ---


def test_sample_distributions_contract_in_energy_distance():
    # With equal probabilities, all samples of the targets have equal weights.
    def update(steps, samples):
        targets = (
            steps.r_t[..., None] + steps.discount_t[..., None] * samples[steps.s_t]
        )
        return targets.reshape(mdp.STATES, -1)

    def distances(x, y):
        with contract.x64(True):
            loss = jax.vmap(jax.vmap(rlaxlib.energy_distance_loss))
            squares = loss(jnp.asarray(x), jnp.asarray(y))
            return np.sqrt(np.maximum(squares, 0))  # Of equal samples it may be -1e-17.

    pair = random_values(2, len(MDPS), mdp.STATES, TAU.size)
    assert 0.2 < largest_ratio(update, pair, distances) <= np.sqrt(DISCOUNT) + 1e-12
