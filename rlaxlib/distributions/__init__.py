"""Distributions over actions, each a handful of functions, and what to ask of two."""

from rlaxlib.distributions import (
    _categorical,
    _gaussian,
    _greedy,
    _latents,
    _softmax,
    _squashed,
    _types,
)
from rlaxlib.distributions._categorical import *
from rlaxlib.distributions._gaussian import *
from rlaxlib.distributions._greedy import *
from rlaxlib.distributions._latents import *
from rlaxlib.distributions._softmax import *
from rlaxlib.distributions._squashed import *
from rlaxlib.distributions._types import *

__all__: list[str] = []
__all__ += _categorical.__all__
__all__ += _gaussian.__all__
__all__ += _greedy.__all__
__all__ += _latents.__all__
__all__ += _softmax.__all__
__all__ += _squashed.__all__
__all__ += _types.__all__
