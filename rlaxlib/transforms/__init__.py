r"""Transforms: numbers in a form in which they are easier to learn.

A `TxPair` is a transform and its inverse, `apply` and `apply_inv`. These are at hand:

- `IDENTITY_PAIR`: no transform at all.
- `SIGNED_HYPERBOLIC_PAIR`: `signed_hyperbolic`, and `signed_parabolic` back, as in R2D2
  and MuZero.
- `SIGNED_LOGP1_PAIR`: `signed_logp1`, and `signed_expm1` back.
- `SYMLOG_PAIR`: the same by the names of DreamerV3, `symlog` and `symexp`.
- `HYPERBOLIC_SIN_PAIR`: `hyperbolic_arcsin`, and `hyperbolic_sin` back.
- `DISCOUNT_TRANSFORM_PAIR`: from a discount :math:`\gamma` to
  :math:`-\log(1 - \gamma)`, the logarithm of the horizon that it gives, and back.
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
