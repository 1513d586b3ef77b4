"""Types of arguments, with the shapes and ranges that `signatures.checked` checks.

`Float[ArrayLike, "T in [0, 1]"]` is an `ArrayLike` with a `Note`, which holds the kind
and the text. `specs` describes the text.

Users of the library see an `ArrayLike`, which floats and NumPy arrays are. In the body
of a checked function an argument is a JAX array, as `typings/` declares to the type
checker of this repository.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from jax import Array
from jax.typing import ArrayLike

__all__ = ["Array", "ArrayLike", "Axes", "AxisName", "Bool", "Float", "Int", "Key"]
__all__ += ["Note", "Real", "Shaped", "Static", "Tree"]

Axes = int | tuple[int, ...] | None
AxisName = str | Sequence[str]


class Note(NamedTuple):
    """What an annotation adds to a type: a kind, and the text of a spec."""

    kind: str
    text: str


if TYPE_CHECKING:
    from typing import Annotated as Bool
    from typing import Annotated as Float
    from typing import Annotated as Int
    from typing import Annotated as Key
    from typing import Annotated as Real
    from typing import Annotated as Shaped
    from typing import Annotated as Static
    from typing import Annotated as Tree
else:

    class _Kind(str):
        def __getitem__(self, item: tuple[Any, str]) -> Any:
            annotated, text = item
            return Annotated[annotated, Note(str(self), text)]

    Bool, Float, Int, Key, Real, Shaped, Static, Tree = map(
        _Kind, ("Bool", "Float", "Int", "Key", "Real", "Shaped", "Static", "Tree")
    )
