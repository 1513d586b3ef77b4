"""Losses, weights and targets for offline RL, which learns from logged data.

- Advantage-weighted policies (AWR, AWAC, IQL, CRR): `advantage_weights`, `crr_weights`.
- In-sample values (XQL, SQL): `xql_value_loss`, `sql_value_loss`; that of IQL is
  `expectile_loss`.
- Conservative Q-learning (CQL, Cal-QL): `cql_loss`, `discrete_cql_loss`.
- Policies close to the data (TD3+BC, ReBRAC): `td3_bc_loss`, `td3_bc_weight`.
- Support of the data (EDAC, BCQ, BEAR, MMD-DQN): `edac_diversity_loss`,
  `bcq_action_mask`, `maximum_mean_discrepancy`.

A critic overestimates actions that the data does not have, and no interaction corrects
it. In-sample values evaluate actions of the data only. CQL and EDAC keep the values of
unseen actions low. The other methods keep the policy close to the data.
"""

from rlaxlib.offline._awr import *
from rlaxlib.offline._cql import *
from rlaxlib.offline._in_sample import *
from rlaxlib.offline._support import *
from rlaxlib.offline._td3_bc import *
