"""Values: how far a prediction of worth is from what experience says."""

from rlaxlib.values import (
    _auxiliary,
    _categorical,
    _expectile,
    _nonlinear,
    _nonlinear_returns,
    _one_step,
    _quantile,
    _traces,
)
from rlaxlib.values._auxiliary import *
from rlaxlib.values._categorical import *
from rlaxlib.values._expectile import *
from rlaxlib.values._nonlinear import *
from rlaxlib.values._nonlinear_returns import *
from rlaxlib.values._one_step import *
from rlaxlib.values._quantile import *
from rlaxlib.values._traces import *

__all__: list[str] = []
__all__ += _auxiliary.__all__
__all__ += _categorical.__all__
__all__ += _expectile.__all__
__all__ += _nonlinear.__all__
__all__ += _nonlinear_returns.__all__
__all__ += _one_step.__all__
__all__ += _quantile.__all__
__all__ += _traces.__all__
