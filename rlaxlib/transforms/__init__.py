"""Transforms: numbers in a form in which they are easier to learn.

A `TxPair` is a transform and its inverse, `apply` and `apply_inv`. Some stand ready,
`SYMLOG_PAIR` for one; `compose_tx` chains them.
"""

from rlaxlib.transforms import _hl_gauss, _pairs, _squashing, _two_hot
from rlaxlib.transforms._hl_gauss import *
from rlaxlib.transforms._pairs import *
from rlaxlib.transforms._squashing import *
from rlaxlib.transforms._two_hot import *

__all__: list[str] = []
__all__ += _hl_gauss.__all__
__all__ += _pairs.__all__
__all__ += _squashing.__all__
__all__ += _two_hot.__all__
