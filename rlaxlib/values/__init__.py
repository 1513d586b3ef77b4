"""Values: how far a prediction of worth is from what experience says."""

from rlaxlib.values import (
    _advantages,
    _auxiliary,
    _categorical,
    _ensembles,
    _expectile,
    _nonlinear,
    _nonlinear_returns,
    _one_step,
    _quantile,
    _risk,
    _soft,
    _traces,
)
from rlaxlib.values._advantages import *
from rlaxlib.values._auxiliary import *
from rlaxlib.values._categorical import *
from rlaxlib.values._ensembles import *
from rlaxlib.values._expectile import *
from rlaxlib.values._nonlinear import *
from rlaxlib.values._nonlinear_returns import *
from rlaxlib.values._one_step import *
from rlaxlib.values._quantile import *
from rlaxlib.values._risk import *
from rlaxlib.values._soft import *
from rlaxlib.values._traces import *

__all__: list[str] = []
__all__ += _advantages.__all__
__all__ += _auxiliary.__all__
__all__ += _categorical.__all__
__all__ += _ensembles.__all__
__all__ += _expectile.__all__
__all__ += _nonlinear.__all__
__all__ += _nonlinear_returns.__all__
__all__ += _one_step.__all__
__all__ += _quantile.__all__
__all__ += _risk.__all__
__all__ += _soft.__all__
__all__ += _traces.__all__
