"""A function of one stream, and the same function mapped over a batch by vmap."""

import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

CELL = 0.42


def draw() -> Figure:
    """Draw a function of one stream above the same function mapped over a batch."""
    axes = style.diagram(height=2.55, left=0, right=6.2, bottom=2.82)
    _row(axes, 0.3, 0.55, style.BLUE)
    axes.text(1.14, 0.18, "one stream  [T]", ha="center", color=style.BLUE)
    _function(axes, 0.55, 0.5, "f")
    _row(axes, 4.2, 0.55, style.ORANGE)
    axes.text(1.14, 1.18, "a batch  [B, T]", ha="center", color=style.BLUE)
    for row in range(3):
        y = 1.55 + 0.48 * row
        _row(axes, 0.3, y, style.BLUE)
        _row(axes, 4.2, y, style.ORANGE)
    _function(axes, 2.03, 1.36, "jax.vmap(f)")
    return axes.figure


def _row(axes: Axes, x: float, y: float, color: str) -> None:
    for column in range(4):
        style.box(axes, (x + CELL * (column + 0.5), y), "", color, (CELL, 0.36))


def _function(axes: Axes, y: float, height: float, name: str) -> None:
    style.arrow(axes, (2.03, y), (2.38, y))
    style.arrow(axes, (3.78, y), (4.13, y))
    style.box(axes, (3.08, y), "", style.INK, (1.4, height))
    axes.text(3.08, y, name, ha="center", va="center", family=style.MONOSPACE)
