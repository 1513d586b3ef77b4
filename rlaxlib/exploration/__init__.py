"""Exploration: action noise, nearest neighbours and episodic intrinsic rewards.

- Noise: Gaussian and Ornstein-Uhlenbeck noise on continuous actions, Dirichlet noise on
  the prior of a search.
- Exact nearest-neighbour search: `knn_query`.
- Episodic novelty rewards of Never Give Up (NGU).
"""

from rlaxlib.exploration import _episodic, _neighbors, _noise
from rlaxlib.exploration._episodic import *
from rlaxlib.exploration._neighbors import *
from rlaxlib.exploration._noise import *

__all__: list[str] = []
__all__ += _episodic.__all__
__all__ += _neighbors.__all__
__all__ += _noise.__all__
