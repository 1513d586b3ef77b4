from collections.abc import Sequence
from typing import Annotated as Bool
from typing import Annotated as Float
from typing import Annotated as Int
from typing import Annotated as Key
from typing import Annotated as Real
from typing import Annotated as Shaped
from typing import Annotated as Static
from typing import Annotated as Tree
from typing import Any, NamedTuple

from jax import Array

__all__ = [
    "Array",
    "ArrayLike",
    "Axes",
    "AxisName",
    "Bool",
    "Float",
    "Int",
    "Key",
    "Note",
    "Real",
    "Shaped",
    "Static",
    "Tree",
]

ArrayLike = Array | Any
Axes = int | tuple[int, ...] | None
AxisName = str | Sequence[str]

class Note(NamedTuple):
    kind: str
    text: str
