"""Normalisation: moments of observations and returns, PopArt, and scales of rewards.

- Moments: exponential moving averages and running moments of all entries so far.
- PopArt: adaptive normalisation of value targets that preserves a network's outputs.
- Scales: of rewards, of TD errors (return-based), and of returns (percentiles).
"""

from rlaxlib.normalization._moments import *
from rlaxlib.normalization._popart import *
from rlaxlib.normalization._scales import *
