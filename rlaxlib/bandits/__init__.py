"""Multi-armed and linear bandits: scores, probabilities and samples of arms.

UCB1, UCB-tuned, KL-UCB, Thompson sampling, Exp3, Tsallis-INF, gradient bandits,
Boltzmann exploration, LinUCB and linear Thompson sampling.

A function takes one bandit, and an update takes one pull of an arm. State is a named
tuple of arrays, taken and returned. Use `jax.lax.scan` over time, and `jax.vmap` for
many bandits.
"""

from typing import TYPE_CHECKING

from rlaxlib.bandits import _linear, _randomized, _statistics, _thompson, _ucb
from rlaxlib.bandits._linear import *
from rlaxlib.bandits._randomized import *
from rlaxlib.bandits._statistics import *
from rlaxlib.bandits._thompson import *
from rlaxlib.bandits._ucb import *

if not TYPE_CHECKING:  # Type checkers follow star imports, not sums of lists.
    __all__ = [
        *_linear.__all__,
        *_randomized.__all__,
        *_statistics.__all__,
        *_thompson.__all__,
        *_ucb.__all__,
    ]
