"""Transforms: what is measured."""

import types
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp

from benchmarks.case import Case
from benchmarks.catalog.shared import row
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
    row("sigmoid", x=normal("A")),
    row("logit", x=unit("A")),
    row("signed_logp1", x=normal("A")),
    row("signed_expm1", x=normal("A")),
    row("signed_hyperbolic", x=normal("A")),
    row("signed_parabolic", x=normal("A")),
    row("hyperbolic_sin", peer=_PRIVATE, x=normal("A")),
    row("hyperbolic_arcsin", peer=_PRIVATE, x=normal("A")),
    row("power", settings={"p": 0.3}, label="p=0.3", x=normal("A")),
    row("power", settings={"p": 0.5}, label="p=0.5", x=normal("A")),
    *_bins(51),
    *_bins(601),
)
