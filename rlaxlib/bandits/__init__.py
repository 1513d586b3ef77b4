"""Multi-armed and linear bandits: scores, probabilities and samples of arms.

UCB1, UCB-tuned, KL-UCB, Thompson sampling, Exp3, Tsallis-INF, gradient bandits,
Boltzmann exploration, LinUCB and linear Thompson sampling.

A function takes one bandit, and an update takes one pull of an arm. State is a named
tuple of arrays, taken and returned. Use `jax.lax.scan` over time, and `jax.vmap` for
many bandits.
"""

from rlaxlib.bandits._linear import *
from rlaxlib.bandits._randomized import *
from rlaxlib.bandits._statistics import *
from rlaxlib.bandits._thompson import *
from rlaxlib.bandits._ucb import *
