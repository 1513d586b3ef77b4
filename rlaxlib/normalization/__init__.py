"""Keep numbers at a size at which networks learn: moving averages, and PopArt."""

from rlaxlib.normalization import _moving_averages, _popart
from rlaxlib.normalization._moving_averages import *
from rlaxlib.normalization._popart import *

__all__: list[str] = []
__all__ += _moving_averages.__all__
__all__ += _popart.__all__
