"""Try what is not yet known to be good: noise on actions, rewards for new states."""

from rlaxlib.exploration import _episodic, _neighbors, _noise
from rlaxlib.exploration._episodic import *
from rlaxlib.exploration._neighbors import *
from rlaxlib.exploration._noise import *

__all__: list[str] = []
__all__ += _episodic.__all__
__all__ += _neighbors.__all__
__all__ += _noise.__all__
