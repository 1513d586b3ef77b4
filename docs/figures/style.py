"""Size, colours and shapes that the figures of the manual share.

Figures have a transparent background. Each colour has enough contrast on a white page
and on a dark page.
"""

from typing import Any

from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

WIDTH = 5.6  # Inches. Fits the column of a page, and is legible on a phone.

INK = "#787b83"  # Text, axes and background elements.
BLUE = "#2f7fd6"
ORANGE = "#d97b1f"
GREEN = "#2f9467"
RED = "#d6455d"
PURPLE = "#8f6bd6"
COLORS = (BLUE, ORANGE, GREEN, RED, PURPLE)  # In the order of use.

MONOSPACE = "DejaVu Sans Mono"  # Included in matplotlib.

SETTINGS: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": INK,
    "axes.facecolor": "none",
    "axes.labelcolor": INK,
    "axes.prop_cycle": cycler(color=COLORS),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlesize": "medium",
    "figure.facecolor": "none",
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "grid.alpha": 0.3,
    "grid.color": INK,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "lines.linewidth": 2,
    "patch.edgecolor": INK,
    "savefig.facecolor": "none",
    "svg.fonttype": "path",  # Independent of installed fonts.
    "svg.hashsalt": "rlaxlib",  # Reproducible element ids.
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def figure(height: float = 2.8, width: float = WIDTH) -> Figure:
    """Return an empty figure of the given size in inches."""
    return Figure(figsize=(width, height), layout="constrained")


def diagram(height: float, left: float, right: float, bottom: float) -> Axes:
    """Return axes without a frame, for a diagram of boxes and arrows.

    Args:
        height: Height of the figure, in inches.
        left: Start of the x-axis.
        right: End of the x-axis.
        bottom: End of the y-axis, which starts at 0 and points down.

    Returns:
        Axes that fill a new figure.
    """
    axes = Figure(figsize=(WIDTH, height)).add_axes((0, 0, 1, 1))
    axes.set(xlim=(left, right), ylim=(bottom, 0))
    axes.set_axis_off()
    return axes


def arrow(
    axes: Axes, start: tuple[float, float], end: tuple[float, float], **options: Any
) -> None:
    """Draw an arrow from one point to another."""
    shape = {"arrowstyle": "-|>", "mutation_scale": 10, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, start, arrowprops={"color": INK, **shape, **options})


def box(
    axes: Axes,
    center: tuple[float, float],
    text: str,
    color: str = INK,
    size: tuple[float, float] = (0.86, 0.6),
    **options: Any,
) -> None:
    """Draw a box with text, filled with a tint of the text's colour."""
    corner = center[0] - size[0] / 2, center[1] - size[1] / 2
    frame = {"edgecolor": color, "facecolor": (color, 0.12), "lw": 1.2, **options}
    axes.add_patch(Rectangle(corner, *size, **frame))
    axes.text(*center, text, ha="center", va="center", color=color)
