"""Losses: what is measured."""

from benchmarks.catalog.shared import elementwise
from benchmarks.inputs import binary, normal, unit

CASES = (
    *elementwise("l2_loss", inputs={"predictions": normal, "targets": normal}),
    *elementwise("huber_loss", settings={"delta": 1.0}, inputs={"x": normal}),
    *elementwise("likelihood", inputs={"predictions": unit, "targets": binary}),
    *elementwise("log_loss", inputs={"predictions": unit, "targets": binary}),
    *elementwise(
        "expectile_loss",
        settings={"expectile": 0.8},
        inputs={"predictions": normal, "targets": normal},
    ),
    *elementwise(
        "clip_gradient",
        settings={"gradient_min": -0.5, "gradient_max": 0.5},
        positional=True,
        inputs={"x": normal},
    ),
    *elementwise("scale_gradient", settings={"scale": 0.5}, inputs={"x": normal}),
)
