"""Projection of C51, and encoding of a scalar by two-hot and HL-Gauss."""

import jax.numpy as jnp
import numpy as np
import style
from matplotlib.figure import Figure

import rlaxlib

ATOMS = jnp.linspace(-2.0, 2.0, 9)
PROBS = jnp.array([0.0, 0.05, 0.1, 0.2, 0.3, 0.2, 0.1, 0.05, 0.0])
REWARD, DISCOUNT, SCALAR = 0.6, 0.7, 0.65
WIDTH = 0.5  # Distance between atoms.


def draw() -> Figure:
    """Draw a distribution and its projection, and two encodings of a scalar."""
    figure = style.figure(2.9)
    left, right = figure.subplots(1, 2)
    moved = REWARD + DISCOUNT * ATOMS
    projected = rlaxlib.categorical_l2_project(moved, PROBS, ATOMS)
    left.bar(ATOMS, projected, 0.4, color=(style.BLUE, 0.5), label="projected")
    markers, stems, _ = left.stem(moved, PROBS, basefmt=" ", label="$r + \\gamma z$")
    markers.set(color=style.ORANGE, markersize=4)
    stems.set(color=style.ORANGE, lw=1.4)
    left.set(title="C51: projection", ylabel="probability")

    two_hot = rlaxlib.transform_to_2hot(SCALAR, -2.0, 2.0, num_bins=9)
    gauss = rlaxlib.hl_gauss_pair(-2.25, 2.25, num_bins=9).apply(SCALAR)
    right.bar(ATOMS - 0.1, two_hot, 0.2, color=(style.BLUE, 0.5), label="two-hot")
    right.bar(ATOMS + 0.1, gauss, 0.2, color=(style.GREEN, 0.5), label="HL-Gauss")
    right.axvline(SCALAR, color=style.ORANGE, lw=1.4)
    right.set(title=f"encoding of {SCALAR}", xlim=(-1.9, 2.3))
    for axes in (left, right):
        axes.set_xlabel("return")
        axes.legend(fontsize="small", loc="upper left")
        axes.set_xticks(np.arange(-2 if axes is left else -1, 3))
    return figure
