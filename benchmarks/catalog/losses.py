"""Losses: what is measured."""

from benchmarks.catalog.shared import row
from benchmarks.inputs import binary, normal, unit

CASES = (
    row("l2_loss", predictions=normal("A"), targets=normal("A")),
    row("huber_loss", settings={"delta": 1.0}, x=normal("A")),
    row("likelihood", predictions=unit("A"), targets=binary("A")),
    row("log_loss", predictions=unit("A"), targets=binary("A")),
    row(
        "expectile_loss",
        settings={"expectile": 0.8},
        predictions=normal("A"),
        targets=normal("A"),
    ),
    row(
        "clip_gradient",
        settings={"gradient_min": -0.5, "gradient_max": 0.5},
        positional=True,
        x=normal("A"),
    ),
    row("scale_gradient", settings={"scale": 0.5}, x=normal("A")),
)
