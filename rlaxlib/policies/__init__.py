"""Policies: which way to change what an agent does."""

from rlaxlib.policies import _gradients
from rlaxlib.policies._gradients import *

__all__: list[str] = []
__all__ += _gradients.__all__
