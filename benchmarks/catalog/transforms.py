"""Transforms: what is measured."""

import types
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp

from benchmarks.case import Case
from benchmarks.catalog.shared import elementwise, row
from benchmarks.inputs import Size, normal, probs, unit

_PRIVATE = "rlax._src.transforms"
_NUMBERS = (Size(batch=256),)
_SQUASH = types.SimpleNamespace(apply=jnp.arcsinh, apply_inv=jnp.sinh)


def _bins(count: int) -> Iterator[Case]:
    """Yield the cases of all that has bins, with so many of them."""
    label = f"{count} bins"
    bins: dict[str, Any] = {"min_value": -10.0, "max_value": 10.0, "num_bins": count}
    numbers, means = normal("20"), probs(f"20 {count}")
    even: dict[str, Any] = {"settings": bins, "label": label}
    for kind in ("2hot", "hl_gauss"):
        yield row(f"transform_to_{kind}", _NUMBERS, **even, scalar=numbers)
        yield row(f"transform_from_{kind}", _NUMBERS, **even, probs=means)
    for pair in ("muzero_pair", "unbiased_transform_pair"):
        of = {**bins, "tx": _SQUASH}
        yield row(f"{pair}.apply", _NUMBERS, of=of, label=label, x=numbers)
        yield row(f"{pair}.apply_inv", _NUMBERS, of=of, label=label, x=means)


CASES = (
    *elementwise("sigmoid", inputs={"x": normal}),
    *elementwise("logit", inputs={"x": unit}),
    *elementwise("signed_logp1", inputs={"x": normal}),
    *elementwise("signed_expm1", inputs={"x": normal}),
    *elementwise("signed_hyperbolic", inputs={"x": normal}),
    *elementwise("signed_parabolic", inputs={"x": normal}),
    *elementwise("hyperbolic_sin", peer=_PRIVATE, inputs={"x": normal}),
    *elementwise("hyperbolic_arcsin", peer=_PRIVATE, inputs={"x": normal}),
    *elementwise("power", settings={"p": 0.3}, label="p=0.3", inputs={"x": normal}),
    *elementwise("power", settings={"p": 0.5}, label="p=0.5", inputs={"x": normal}),
    *_bins(51),
    *_bins(601),
)
