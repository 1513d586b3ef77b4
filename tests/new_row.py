"""Print a first row of a function, from the annotations of its arguments.

python tests/new_row.py lambda_returns
"""

import inspect
import sys
from collections.abc import Callable, Iterator

import annotations
import numpy as np
from row import FLAGS

import rlaxlib
from rlaxlib._core.specs import Interval, Spec

SIZES = {"T": "STEPS", "T+1": "STEPS + 1", "A": "ACTIONS"}


def shape_of(spec: Spec) -> list[str]:
    """Return the sizes of the axes of an argument, those of `...` left out."""
    axes = max(spec.shapes, key=len, default=())
    named = [axis for axis in axes if not axis.startswith(("...", "*"))]
    return [axis if axis.isdecimal() else SIZES.get(axis, "3") for axis in named]


def ranges(spec: Spec) -> Iterator[tuple[float, float]]:
    """Yield the bounds of an argument that are numbers."""
    for rule in spec.rules:
        if isinstance(rule, Interval):
            low = rule.low if isinstance(rule.low, float) else -np.inf
            yield low, rule.high if isinstance(rule.high, float) else np.inf


def sample(spec: Spec) -> str:
    """Return an expression that samples an argument within its range."""
    size = f"({', '.join(shape_of(spec))}{',' * (len(shape_of(spec)) == 1)})"
    if spec.kind == "Bool":
        return f"rng.random({size}) < 0.5"
    if spec.kind == "Int":
        return f"rng.integers(ACTIONS, size={size})"
    for low, high in ranges(spec):
        start = max(low, min(high, 1.0) - 1.0)
        width = min(high - start, 1.0)
        ends = f"{start + 0.1 * width:g}, {start + 0.9 * width:g}"
        return f"rng.uniform({ends}, {size})"
    return f"rng.normal(size={size})"


def file_of(function: Callable[..., object]) -> str:
    """Return the file of the rows of a function."""
    parts = inspect.unwrap(function).__module__.split(".")[1:]
    return f"tests/rows/{'/'.join(part.lstrip('_') for part in parts)}.py"


def lines(name: str) -> Iterator[str]:
    """Yield the lines of a row, with a definition to write."""
    function = getattr(rlaxlib, name)
    parameters = inspect.signature(function).parameters
    found = annotations.specs_of(function, parameters)
    arrays = {n: x for n, x in found.items() if x.is_array and x.kind != "Key"}
    # Optional numbers too, whose gradients are then compared; no masks.
    needed = [n for n in arrays if parameters[n].default is not None]
    yield f"# Into {file_of(function)}, the row at the end of its ROWS."
    yield "from contract import ACTIONS, STEPS"
    yield "from row import Gradients, Row"
    yield "\n"
    yield f"def {name}({', '.join(needed)}):"
    yield '    """Authors year, equation. Write it in NumPy, as loops."""'
    yield "\n"
    yield f"def make_{name}(rng):"
    yield "    return {"
    yield from (f'        "{n}": {sample(arrays[n])},' for n in needed)
    yield "    }\n\n"
    yield "Row("
    yield f"    {name},\n    make_{name},"
    if not parameters.keys().isdisjoint(FLAGS):
        yield "    # Those arguments alone whose gradient the flag stops:"
        floats = (f'"{n}",' for n in needed if arrays[n].kind == "Float")
        yield f"    gradients=Gradients(targets=({' '.join(floats)})),"
    yield ")"


if __name__ == "__main__":
    print(*lines(sys.argv[1]), sep="\n")
