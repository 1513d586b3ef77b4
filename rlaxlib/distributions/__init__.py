"""Action distributions, KL divergences, importance ratios and discrete latents.

- Categorical: `softmax`, `clipped_entropy_softmax`, `greedy`, `epsilon_greedy`.
- Continuous: `gaussian_diagonal`, `squashed_gaussian`, log-densities of tanh-Gaussians.
- Functions of logits: samples, cross-entropy, KL divergence, importance ratios.
- Discrete latent variables: straight-through samples, uniform mix, balanced KL.
"""

from rlaxlib.distributions._categorical import *
from rlaxlib.distributions._gaussian import *
from rlaxlib.distributions._greedy import *
from rlaxlib.distributions._latents import *
from rlaxlib.distributions._squashed import *
