"""Exploration: noise, exploratory behaviour and intrinsic rewards.

- Noise: Gaussian and Ornstein-Uhlenbeck noise on continuous actions, Dirichlet noise on
  the prior of a search.
- Exploratory behaviour: exploration rates of Ape-X, εz-greedy, noise of noisy networks,
  and bootstrapped DQN.
- Intrinsic rewards: ICM, k-NN entropy (APT, RE3) and NGU. Those of RND are
  errors of a predictor over their `reward_scale`.
- Exact nearest-neighbour search: `knn_query`.
- Episodic novelty rewards of Never Give Up (NGU).
"""

from rlaxlib.exploration._behavior import *
from rlaxlib.exploration._bonuses import *
from rlaxlib.exploration._episodic import *
from rlaxlib.exploration._neighbors import *
from rlaxlib.exploration._noise import *
