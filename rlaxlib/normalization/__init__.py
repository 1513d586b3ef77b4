"""Keep numbers at a size at which networks learn: moments, scales, and PopArt."""

from rlaxlib.normalization import (
    _moving_averages,
    _percentiles,
    _popart,
    _returns,
    _running_moments,
)
from rlaxlib.normalization._moving_averages import *
from rlaxlib.normalization._percentiles import *
from rlaxlib.normalization._popart import *
from rlaxlib.normalization._returns import *
from rlaxlib.normalization._running_moments import *

__all__: list[str] = []
__all__ += _moving_averages.__all__
__all__ += _percentiles.__all__
__all__ += _popart.__all__
__all__ += _returns.__all__
__all__ += _running_moments.__all__
