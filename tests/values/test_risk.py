"""Test risk measures and distortions: definitions, limits, gradients and bad input."""

import functools

import jax
import numpy as np
import pytest
from experience import close
from scipy import stats

import rlaxlib

FRACTIONS = np.linspace(0.0, 1.0, 21, dtype=np.float32)
SAMPLES = np.float32([3.0, -1.0, 2.0, 5.0])
wang_fractions, cpw_fractions, power_fractions = (
    jax.jit(functools.partial(rlaxlib.distorted_fractions, kind=kind))
    for kind in ("wang", "cpw", "power")
)
DISTORTIONS = {
    "wang": (wang_fractions, -0.75),
    "cpw": (cpw_fractions, 0.71),
    "power": (power_fractions, -2.0),
}
each_distortion = pytest.mark.parametrize(
    ("distort", "level"), DISTORTIONS.values(), ids=DISTORTIONS
)
cvar = jax.jit(rlaxlib.conditional_value_at_risk)


# --- Conditional value at risk. ---


def test_cvar_grows_from_the_minimum_to_the_mean():
    for level in (1e-30, 0.01, 0.25):
        close(cvar(SAMPLES, level), -1.0)
    close(cvar(SAMPLES, 0.5), 0.5)
    close(cvar(SAMPLES, 0.375), 0.0)
    close(cvar(SAMPLES, 1.0), np.mean(SAMPLES))


def test_cvar_solves_its_convex_programme():
    """Rockafellar and Uryasev 2000, theorem 1, for returns in place of losses."""
    for level in (0.1, 0.3, 0.6, 0.9):
        threshold = np.asarray(SAMPLES)[:, None]
        short = np.mean(np.maximum(threshold - np.asarray(SAMPLES), 0), axis=1)
        close(cvar(SAMPLES, level), np.max(threshold[:, 0] - short / level))


def test_cvar_of_atoms_is_that_of_as_many_samples_as_their_probabilities_say():
    atoms, counts = np.float32([3.0, -1.0, 2.0, 5.0, -9.0]), np.array([2, 1, 4, 1, 0])
    samples = np.repeat(atoms, counts)
    for level in (1e-30, 0.1, 0.2, 0.5, 1.0):
        close(cvar(atoms, level, probs=counts / np.float32(8)), cvar(samples, level))


def test_cvar_of_all_is_the_mean():
    probs = np.float32([0.1, 0.2, 0.3, 0.4])
    close(cvar(SAMPLES, 1.0, probs=probs), np.sum(probs * SAMPLES))


def test_the_gradient_of_cvar_is_the_weights_of_the_quantiles():
    gradient = jax.jit(jax.grad(rlaxlib.conditional_value_at_risk))
    close(gradient(SAMPLES, 0.375), [0.0, 2 / 3, 1 / 3, 0.0])


def test_quantiles_at_fractions_of_the_tail_average_to_cvar():
    n, level = 64, 0.25
    midpoints = np.float32((np.arange(4 * n) + 0.5) / (4 * n))
    fractions = np.float32((np.arange(n) + 0.5) / n)
    distorted = np.mean(stats.norm.ppf(level * fractions))
    close(cvar(np.float32(stats.norm.ppf(midpoints)), level), distorted)
    exact = -stats.norm.pdf(stats.norm.ppf(level)) / level
    close(distorted, exact, rtol=1e-2)


# --- Distortions. ---


@pytest.mark.parametrize(
    ("distort", "neutral"),
    [
        (wang_fractions, 0.0),
        (cpw_fractions, 1.0),
        (power_fractions, 0.0),
    ],
)
def test_the_neutral_level_leaves_fractions_unchanged(distort, neutral):
    close(distort(FRACTIONS, neutral), FRACTIONS)


@pytest.mark.parametrize("eta", [-1.0, -10.0])
def test_powers_keep_the_precision_of_small_fractions(eta):
    tau = np.float32([1e-8, 1.2e-7, 1e-6, 1e-4, 0.5])
    expected = -np.expm1(np.log1p(-np.float64(tau)) / (1 - eta))
    np.testing.assert_allclose(power_fractions(tau, eta), expected, rtol=1e-6)


@pytest.mark.parametrize("distort", [wang_fractions, power_fractions])
def test_risk_aversion_and_risk_seeking_mirror_each_other(distort):
    for level in (0.3, 1.0, 2.0):
        averse = np.asarray(distort(FRACTIONS, -level))
        close(1 - np.asarray(distort(1 - FRACTIONS, level)), averse)
        assert np.all(averse[1:-1] < FRACTIONS[1:-1])


@each_distortion
def test_a_distortion_ascends_from_0_with_finite_gradients(distort, level):
    def value_and_gradients(tau):
        return jax.value_and_grad(lambda *x: distort(x[0][None], x[1])[0], (0, 1))(
            tau, level
        )

    distorted, gradients = jax.jit(jax.vmap(value_and_gradients))(FRACTIONS)
    distorted = np.asarray(distorted)
    assert distorted[0] == 0
    assert distorted[-1] == 1
    assert np.all(distorted[1:] > distorted[:-1])
    assert all(np.isfinite(each).all() for each in gradients)


def test_cpw_overweights_both_tails():
    # Tversky and Kahneman 1992: the curve crosses the diagonal between 0.3 and 0.45.
    distorted = np.asarray(cpw_fractions(FRACTIONS, 0.71))
    assert np.all(distorted[1:7] > FRACTIONS[1:7])
    assert np.all(distorted[9:20] < FRACTIONS[9:20])


@pytest.mark.parametrize("level", [0.03, 0.1, 1.5, 30.0])
def test_cpw_is_accurate_for_small_and_large_exponents(level):
    tau = np.asarray(FRACTIONS[1:-1], np.float64)
    total = tau**level + (1 - tau) ** level
    expected = tau**level / total ** (1 / level)
    found = cpw_fractions(FRACTIONS[1:-1], level)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-37)
    gradient = jax.grad(lambda tau, level: cpw_fractions(tau, level).sum(), (0, 1))
    assert all(np.isfinite(x).all() for x in gradient(FRACTIONS, level))


def test_wang_shifts_a_gaussian_distribution():
    inner = FRACTIONS[1:-1]
    shifted = stats.norm.ppf(wang_fractions(inner, -0.75))
    close(shifted, stats.norm.ppf(inner) - 0.75, rtol=1e-4, atol=1e-4)


# --- Bad input. ---


@each_distortion
def test_rejects_fractions_out_of_range(distort, level):
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(rlaxlib.ArgumentError, match=f"`fractions` is {wrong}"):
            distort.__wrapped__(np.array([0.5, wrong]), level)


@pytest.mark.parametrize("eta", [0.0, -0.5])
def test_cumulative_probability_weighting_needs_a_positive_strength(eta):
    with pytest.raises(rlaxlib.ArgumentError, match=r"`eta` .* must be in \(0, inf\)"):
        rlaxlib.distorted_fractions(FRACTIONS, eta, "cpw")
