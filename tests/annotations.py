"""What the annotations of a function say about its arguments."""

import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any

from rlaxlib._core import specs
from rlaxlib._core.specs import Spec


@functools.cache
def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a function, or of the function that it wraps."""
    try:
        return typing.get_type_hints(inspect.unwrap(function), include_extras=True)
    except TypeError:  # A `functools.partial`.
        return {}


def specs_of(function: Callable[..., Any], paths: Iterable[str]) -> dict[str, Spec]:
    """Return the specs of arguments, or of their parts such as `penalties[0].alpha`."""
    found = {path: specs.read(_hint(function, path)) for path in paths}
    return {path: spec for path, spec in found.items() if spec}


def _hint(function: Callable[..., Any], path: str) -> Any:
    name, *steps = re.findall(r"\w+", path)
    return functools.reduce(_part, steps, hints_of(function).get(name))


def _part(hint: Any, step: str) -> Any:
    """Return the annotation of a field or an entry."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        hint = next(x for x in typing.get_args(hint) if x is not types.NoneType)
    if specs.is_record(hint):
        kind = typing.get_origin(hint) or hint  # Of a generic named tuple.
        return typing.get_type_hints(kind, include_extras=True).get(step)
    entries = [x for x in typing.get_args(hint) if x is not ...]
    return entries[int(step) % len(entries)] if entries and step.isdecimal() else None


def has_leading_axes(spec: Spec) -> bool:
    """Return whether an argument may have any number of axes."""
    return spec.is_tree or any(
        axis.startswith(("...", "*")) for axes in spec.shapes for axis in axes
    )
