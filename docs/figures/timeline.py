"""Time indices of arrays: `_tm1`, `_t` and `values`."""

import style
from matplotlib.figure import Figure

T = 4
BEFORE, AFTER, BOTH = range(T), range(1, T + 1), range(T + 1)
ARRAYS = (
    ("v_tm1", "v", BEFORE, style.BLUE),
    ("a_tm1", "a", BEFORE, style.BLUE),
    ("r_t", "r", AFTER, style.ORANGE),
    ("discount_t", r"\gamma", AFTER, style.ORANGE),
    ("v_t", "v", AFTER, style.ORANGE),
    ("values", "v", BOTH, style.PURPLE),
)
STEP = 1  # The highlighted time step.


def draw() -> Figure:
    """Draw the states of a stream above the elements of its arrays."""
    axes = style.diagram(height=3.6, left=-1.55, right=4.6, bottom=3.95)
    for t in BOTH:
        style.box(axes, (t, 0.8), f"$s_{t}$")
    for t in BEFORE:
        style.arrow(axes, (t + 0.43, 0.8), (t + 0.57, 0.8))
        color = style.GREEN if t == STEP else style.INK
        axes.text(t + 0.5, 0.25, f"step {t}", ha="center", va="center", color=color)
    for place, (name, symbol, times, color) in enumerate(ARRAYS):
        y = 1.5 + 0.44 * place
        axes.text(-1.5, y, name, va="center", color=color, family=style.MONOSPACE)
        for step, t in enumerate(times):
            frame = {"edgecolor": style.GREEN, "lw": 2.2}
            options = frame if step == STEP and times != BOTH else {}
            style.box(axes, (t, y), f"${symbol}_{t}$", color, (0.86, 0.34), **options)
    return axes.figure
