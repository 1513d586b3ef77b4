"""Test what fractions are chosen, and where distortions of risk move them."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

FRACTIONS = jnp.linspace(0.0, 1.0, 21)
RISKS = {
    "cvar": (rlaxlib.cvar_fractions, 0.4),
    "wang": (rlaxlib.wang_fractions, -0.75),
    "cpw": (rlaxlib.cpw_fractions, 0.71),
    "power": (rlaxlib.power_fractions, -2.0),
}
each_risk = pytest.mark.parametrize(("move", "level"), RISKS.values(), ids=RISKS)


# --- What the functions compute. ---


def test_midpoints_are_the_fractions_that_come_closest_to_a_distribution():
    # Of a uniform distribution the fractions are the quantiles themselves.
    fine = np.linspace(0.0, 1.0, 20001)
    middle = np.asarray(rlaxlib.quantile_midpoints(4))

    def distance(steps):
        return np.mean(np.abs(fine - steps[np.minimum((4 * fine).astype(int), 3)]))

    best = distance(middle)
    for i in range(4):
        for change in (-0.05, 0.05):
            assert distance(middle + change * (np.arange(4) == i)) > best


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
def test_fractions_are_of_the_dtype_asked_for(dtype):
    assert rlaxlib.quantile_midpoints(3, dtype).dtype == dtype
    drawn = rlaxlib.sample_quantile_fractions(jax.random.key(0), 3, dtype)
    assert drawn.dtype == dtype


def test_random_fractions_are_uniform_and_each_by_itself():
    drawn = np.asarray(rlaxlib.sample_quantile_fractions(jax.random.key(0), 10000))
    assert drawn.min() >= 0
    assert drawn.max() < 1
    # Five standard deviations of a share of a tenth.
    shares = np.histogram(drawn, 10, (0, 1))[0] / 10000
    assert np.all(np.abs(shares - 0.1) < 5 * np.sqrt(0.09 / 10000))
    assert abs(np.corrcoef(drawn[1:], drawn[:-1])[0, 1]) < 0.05


@pytest.mark.parametrize("dim", [1, 64, 4096])
def test_cosines_keep_their_digits_however_many_there_are(dim):
    fractions = np.random.default_rng(0).uniform(size=50).astype(np.float32)
    exact = np.cos(np.pi * np.arange(dim) * fractions[:, None].astype(np.float64))
    actual = rlaxlib.cosine_embedding(jnp.asarray(fractions), dim)
    np.testing.assert_allclose(actual, exact, rtol=0, atol=6e-7)


def test_the_slope_of_a_cosine_is_that_of_all_its_turns():
    slope = jax.jacfwd(rlaxlib.cosine_embedding)(jnp.array([0.3]), 64)[0, :, 0]
    turns = np.pi * np.arange(64)
    close(slope, -turns * np.sin(turns * np.float64(np.float32(0.3))), atol=2e-4)


def test_the_weighting_of_people_is_that_of_the_paper():
    # Where people value a small chance and a sure thing alike, as published: the curve
    # crosses the line between 0.3 and 0.45.
    moved = rlaxlib.cpw_fractions(FRACTIONS, 0.71)
    assert jnp.all(moved[1:7] > FRACTIONS[1:7])
    assert jnp.all(moved[9:20] < FRACTIONS[9:20])


def test_the_slope_of_the_fraction_loss_is_that_of_the_distance_to_the_distribution():
    def quantile(tau):
        return tau**3

    def distance(tau):
        """Integrate the difference of the quantile function and its steps."""
        total = 0.0
        for low, high in itertools.pairwise(tau):
            fine = low + (high - low) * (np.arange(4000) + 0.5) / 4000
            total += (high - low) * np.mean(
                np.abs(quantile(fine) - quantile((low + high) / 2))
            )
        return total

    tau = np.array([0.0, 0.15, 0.4, 0.8, 1.0])
    midpoints = (tau[:-1] + tau[1:]) / 2
    slopes = jax.grad(rlaxlib.quantile_fraction_loss)(
        jnp.asarray(tau, jnp.float32),
        jnp.asarray(quantile(tau[1:-1]), jnp.float32),
        jnp.asarray(quantile(midpoints), jnp.float32),
    )
    np.testing.assert_array_equal(slopes[jnp.array([0, -1])], [0.0, 0.0])
    for i in (1, 2, 3):
        step = 1e-4 * (np.arange(5) == i)
        slope = (distance(tau + step) - distance(tau - step)) / 2e-4
        close(slopes[i], slope, atol=1e-4)


def test_one_interval_has_no_fraction_to_move():
    loss = rlaxlib.quantile_fraction_loss(
        jnp.array([0.0, 1.0]), jnp.zeros(0), jnp.ones(1)
    )
    assert loss == 0


# --- How the functions relate. ---


@pytest.mark.parametrize(
    ("move", "neutral"),
    [
        (rlaxlib.cvar_fractions, 1.0),
        (rlaxlib.wang_fractions, 0.0),
        (rlaxlib.cpw_fractions, 1.0),
        (rlaxlib.power_fractions, 0.0),
    ],
)
def test_at_its_neutral_level_a_distortion_moves_nothing(move, neutral):
    close(move(FRACTIONS, neutral), FRACTIONS)


@pytest.mark.parametrize("move", [rlaxlib.wang_fractions, rlaxlib.power_fractions])
def test_fearing_and_seeking_risk_mirror_each_other(move):
    for level in (0.3, 1.0, 2.0):
        fears = move(FRACTIONS, -level)
        close(1 - move(1 - FRACTIONS, level), fears)
        assert jnp.all(fears[1:-1] < FRACTIONS[1:-1])


@each_risk
def test_a_distortion_ascends_from_0_and_has_finite_slopes(move, level):
    each = jax.vmap(jax.value_and_grad(lambda tau: move(tau[None], level)[0]))
    moved, slope = jax.jit(each)(FRACTIONS)
    assert moved[0] == 0
    assert moved[-1] == (level if move is rlaxlib.cvar_fractions else 1)
    assert jnp.all(moved[1:] > moved[:-1])
    assert jnp.all(jnp.isfinite(slope))
    by_level = jax.jit(jax.jacfwd(move, 1))(FRACTIONS, level)
    assert jnp.all(jnp.isfinite(by_level))


def test_a_shift_of_fractions_shifts_a_gaussian():
    quantile = jax.scipy.stats.norm.ppf
    moved = rlaxlib.wang_fractions(FRACTIONS[1:-1], -0.75)
    close(quantile(moved), quantile(FRACTIONS[1:-1]) - 0.75, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("level", [0.01, 0.03, 0.1])
def test_a_small_exponent_overflows_nowhere(level):
    exact = np.asarray(FRACTIONS[1:-1], np.float64)
    log = (
        level * np.log(exact)
        - np.logaddexp(level * np.log(exact), level * np.log1p(-exact)) / level
    )
    close(rlaxlib.cpw_fractions(FRACTIONS[1:-1], level), np.exp(log), atol=1e-12)


def test_a_tiny_fraction_keeps_its_digits_when_it_is_pushed_down():
    tiny = jnp.array([1e-12])
    np.testing.assert_allclose(rlaxlib.power_fractions(tiny, -1.0), 5e-13, rtol=1e-5)


# --- What the functions refuse. ---


@each_risk
def test_refuses_what_is_no_fraction(move, level):
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(rlaxlib.ArgumentError, match="`fractions` must lie"):
            move(FRACTIONS.at[3].set(wrong), level)


@pytest.mark.parametrize(
    ("move", "wrong"),
    [
        (rlaxlib.cvar_fractions, 1.5),
        (rlaxlib.wang_fractions, jnp.inf),
        (rlaxlib.cpw_fractions, 0.0),
        (rlaxlib.power_fractions, -jnp.inf),
    ],
)
def test_refuses_a_level_that_is_none(move, wrong):
    with pytest.raises(rlaxlib.ArgumentError, match="`level` must lie"):
        move(FRACTIONS, wrong)


def test_a_number_of_fractions_is_at_least_one():
    for function in (
        rlaxlib.quantile_midpoints,
        lambda n: rlaxlib.sample_quantile_fractions(jax.random.key(0), n),
    ):
        with pytest.raises(rlaxlib.ArgumentError, match="`n` must be at least 1"):
            function(0)
    with pytest.raises(rlaxlib.ArgumentError, match="`dim` must be at most 4096"):
        rlaxlib.cosine_embedding(FRACTIONS, 4097)


def test_fractions_to_be_moved_must_ascend():
    fractions = jnp.array([0.0, 0.6, 0.5, 1.0])
    with pytest.raises(rlaxlib.ArgumentError, match="`fractions` must never decrease"):
        rlaxlib.quantile_fraction_loss(fractions, jnp.ones(2), jnp.ones(3))
