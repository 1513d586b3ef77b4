"""Losses and targets for policies.

- Policy gradients (REINFORCE, QPG, RMPG, RPG) and entropy regularisation:
  `policy_gradient_loss`, `reinforce_loss`, `entropy_loss`, `qpg_loss`, `rm_loss`,
  `rpg_loss`.
- COMA and ACER: `counterfactual_advantage`, `acer_policy_loss`.
- Deterministic policies (DPG, DDPG): `dpg_loss`, `invert_gradients`.
- PPO: `ppo_clip_loss`, `decoupled_ppo_loss`, `clipped_surrogate_pg_loss`,
  `ppo_value_loss`.
- PPO-penalty, SPO and DPO: `ppo_penalty_loss`, `adaptive_kl_coefficient`,
  `simple_policy_loss`,
  `discovered_policy_loss`.
- SAC: `sac_critic_target`, `sac_policy_loss`, `sac_temperature_loss`.
- Discrete SAC: `discrete_sac_value`, `discrete_sac_policy_loss`.
- TD3: `td3_target_action`, `dpg_loss`.
- MPO: `mpo_loss`, `gaussian_mpo_loss`, `categorical_mpo_loss`,
  `mpo_compute_weights_and_temperature_loss`.
- V-MPO: `vmpo_loss`, `vmpo_compute_weights_and_temperature_loss`.
- KL constraints with Lagrange multipliers: `kl_constraint_loss`,
  `compute_parametric_kl_penalty_and_dual_loss`.
- Cost constraints (PID Lagrangian): `pid_lagrangian`.
- Policy improvement by planning (CMPO of Muesli, Gumbel MuZero): `cmpo_policy_targets`,
  `mixed_value`, `gumbel_policy_targets`.
- Trust regions (TRPO, natural gradients, CPO, ACER): `fisher_vector_product`,
  `trust_region_step_size`, `backtracking_line_search`, `cpo_step`, `acer_trust_region`.
- GFlowNets: `trajectory_balance_loss`, `sub_trajectory_balance_loss`.
- Policy distillation: `sampled_policy_distillation_loss`, `constant_policy_targets`,
  `zero_policy_targets`.
"""

from rlaxlib.policies._balance import *
from rlaxlib.policies._constraints import *
from rlaxlib.policies._distillation import *
from rlaxlib.policies._gaussian_mpo import *
from rlaxlib.policies._gradients import *
from rlaxlib.policies._mpo import *
from rlaxlib.policies._ppo import *
from rlaxlib.policies._ppo_penalty import *
from rlaxlib.policies._sac import *
from rlaxlib.policies._search import *
from rlaxlib.policies._shared import *
from rlaxlib.policies._trust_region import *
from rlaxlib.policies._vmpo import *
