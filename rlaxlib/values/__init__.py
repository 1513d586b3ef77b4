"""Values: how far a prediction of worth is from what experience says."""

from rlaxlib.values import _one_step, _traces
from rlaxlib.values._one_step import *
from rlaxlib.values._traces import *

__all__: list[str] = []
__all__ += _one_step.__all__
__all__ += _traces.__all__
