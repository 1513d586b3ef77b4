"""Options that are strings."""

from __future__ import annotations

from typing import Any

from rlaxlib._core import checks

__all__: list[str] = []


def check(options: tuple[str, ...], /, **arguments: Any) -> None:
    """Check that each argument is one of some strings.

    Args:
        options: The strings, at least two.
        **arguments: The values, each under its argument's name.

    Raises:
        ArgumentError: If a value is not one of the strings.
    """
    *most, last = [f'"{each}"' for each in options]
    for name, value in arguments.items():
        if not isinstance(value, str) or value not in options:
            checks.fail(f"`{name}` is {value!r}, must be {', '.join(most)} or {last}")
