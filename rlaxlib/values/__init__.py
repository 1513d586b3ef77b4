"""Losses and TD errors for value functions.

- One step: TD(0), differential TD, Sarsa, expected Sarsa, Q-learning, double
  Q-learning, QV-learning, QVMAX.
- Action gaps: persistent Q-learning, advantage learning, persistent advantage learning.
- Soft values: soft value, mellowmax, soft Q-learning, Munchausen Q-learning.
- Many steps: TD(λ), Sarsa(λ), Q(λ), n-step Q-learning, Retrace.
- Transformed values: λ-returns, n-step returns, Q(λ), Retrace, R2D2.
- Categorical values: C51, and the loss of two-hot and HL-Gauss targets.
- Quantiles: quantile regression, QR-DQN, IQN, FQF, TQC, CVaR and other risk measures.
- Expectiles: expectile regression, ER-DQN.
- Duelling networks: action values from a state value and advantages.
- Ensembles of critics: minimum, mean, BCQ, REDQ.
- Auxiliary tasks: pixel control, feature control, self-prediction (SPR).
"""

from rlaxlib.values._action_gap import *
from rlaxlib.values._auxiliary import *
from rlaxlib.values._categorical import *
from rlaxlib.values._consistency import *
from rlaxlib.values._dueling import *
from rlaxlib.values._ensembles import *
from rlaxlib.values._expectile import *
from rlaxlib.values._multistep import *
from rlaxlib.values._n_step import *
from rlaxlib.values._quantile import *
from rlaxlib.values._risk import *
from rlaxlib.values._soft import *
from rlaxlib.values._td import *
from rlaxlib.values._transformed import *
