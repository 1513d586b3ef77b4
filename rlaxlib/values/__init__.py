"""Values: how far a prediction of worth is from what experience says."""

from rlaxlib.values import (
    _advantages,
    _auxiliary,
    _categorical,
    _ensembles,
    _expectile,
    _fractions,
    _histogram,
    _multistep,
    _nonlinear_returns,
    _quantile,
    _samples,
    _soft,
    _td,
    _transformed,
)
from rlaxlib.values._advantages import *
from rlaxlib.values._auxiliary import *
from rlaxlib.values._categorical import *
from rlaxlib.values._ensembles import *
from rlaxlib.values._expectile import *
from rlaxlib.values._fractions import *
from rlaxlib.values._histogram import *
from rlaxlib.values._multistep import *
from rlaxlib.values._nonlinear_returns import *
from rlaxlib.values._quantile import *
from rlaxlib.values._samples import *
from rlaxlib.values._soft import *
from rlaxlib.values._td import *
from rlaxlib.values._transformed import *

__all__: list[str] = []
__all__ += _advantages.__all__
__all__ += _auxiliary.__all__
__all__ += _categorical.__all__
__all__ += _ensembles.__all__
__all__ += _expectile.__all__
__all__ += _fractions.__all__
__all__ += _histogram.__all__
__all__ += _transformed.__all__
__all__ += _nonlinear_returns.__all__
__all__ += _td.__all__
__all__ += _quantile.__all__
__all__ += _samples.__all__
__all__ += _soft.__all__
__all__ += _multistep.__all__
