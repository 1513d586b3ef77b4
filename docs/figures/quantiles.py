"""Quantiles and expectiles of a distribution, and repeated backups of expectiles.

The distribution is a mixture of two Gaussians. At each backup, the expectiles at the
midpoints are used as samples, or samples with these expectiles are imputed.
"""

import jax
import jax.numpy as jnp
import numpy as np
import style
from jax import Array
from jax.scipy.stats import norm
from matplotlib.figure import Figure

import rlaxlib

PARTS = ((0.7, -1.0, 0.5), (0.3, 2.0, 0.6))  # Weight, mean and standard deviation.
NUMBER, STEPS = 11, 10
GRID = np.linspace(-3.0, 4.5, 4001)


def draw() -> Figure:
    """Draw both statistics, and the range of the expectiles over repeated backups."""
    figure = style.figure(3.0)
    left, right = figure.subplots(1, 2)
    density = np.asarray(sum(w * norm.pdf(GRID, m, s) for w, m, s in PARTS))
    weights = density / density.sum()
    mean = float(weights @ GRID)
    tau = np.asarray(rlaxlib.quantile_midpoints(NUMBER), np.float64)
    quantiles = np.interp(tau, np.cumsum(weights), GRID)
    expectiles = expectiles_of(GRID, weights, tau)
    left.fill_between(GRID[::40], density[::40], color=(style.INK, 0.2), lw=0)
    left.plot(quantiles, np.full(NUMBER, -0.05), "|", color=style.BLUE, ms=11)
    left.plot(expectiles, np.full(NUMBER, -0.13), "|", color=style.ORANGE, ms=11)
    left.axvline(mean, color=style.INK, lw=1, ls="--")
    left.text(6.1, -0.05, "quantiles", color=style.BLUE, ha="right", va="center")
    left.text(6.1, -0.13, "expectiles", color=style.ORANGE, ha="right", va="center")
    left.set(
        title="statistics at 11 fractions", xlabel="return", yticks=[], xlim=(-3, 6.2)
    )
    left.spines["left"].set_visible(False)

    naive, imputed = [expectiles], [expectiles]
    for _ in range(STEPS):
        naive.append(expectiles_of(naive[-1], np.full(NUMBER, 1 / NUMBER), tau))
        samples = impute(imputed[-1], tau)
        imputed.append(
            expectiles_of(samples, np.full(samples.size, 1 / samples.size), tau)
        )
    curves = {
        "imputed": (imputed, style.GREEN),
        "used as samples": (naive, style.RED),
    }
    for name, (each, color) in curves.items():
        right.plot([np.ptp(x) for x in each], ".-", color=color, label=name)
    right.set(
        title="range of the expectiles", xlabel="backup", ylim=(0, 4), yticks=range(5)
    )
    right.legend(fontsize="small", loc=(0.25, 0.45))
    return figure


def expectiles_of(
    points: np.ndarray, weights: np.ndarray, tau: np.ndarray
) -> np.ndarray:
    """Return expectiles of a weighted sample, by bisection of their definition."""
    low, high = np.full(tau.size, points.min()), np.full(tau.size, points.max())
    for _ in range(60):
        middle = (low + high) / 2
        excess = points[None, :] - middle[:, None]
        above = np.sum(weights * np.maximum(excess, 0), axis=1)
        below = np.sum(weights * np.maximum(-excess, 0), axis=1)
        larger = tau * above > (1 - tau) * below
        low, high = np.where(larger, middle, low), np.where(larger, high, middle)
    return low


def impute(expectiles: np.ndarray, tau: np.ndarray) -> np.ndarray:
    """Return samples with the given expectiles."""
    each: tuple[Array, Array] = jnp.float32(expectiles), jnp.float32(tau)
    samples = jax.jit(rlaxlib.impute_expectile_samples, static_argnums=2)(*each, 33)
    return np.asarray(samples, np.float64)
