"""Objects of several functions, as rlax has named tuples of functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import jax


class FunctionTuple:
    """Functions by name, in an order: `init, update = create_ema()` unpacks two.

    Classes of this library are frozen dataclasses of settings, registered as pytrees,
    with a method for each function. Distributions and pairs can be made of functions of
    the user as well. These objects are not pytrees, since functions are not arrays.
    """

    _functions: ClassVar[tuple[str, ...]] = ()

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self, name) for name in self._functions)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        named = zip(self._functions, self, strict=True)
        shown = [f"{name}={getattr(x, '__name__', repr(x))}" for name, x in named]
        return f"{type(self).__name__}({', '.join(shown)})"


def is_ours(value: Any) -> bool:
    """Return whether an object holds neither a function of the user nor an array."""
    if not isinstance(value, FunctionTuple):
        return False
    try:
        hash(value)
    except TypeError:  # A setting is traced.
        return False
    return not jax.tree.leaves(value)
