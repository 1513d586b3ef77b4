"""Building blocks of reinforcement learning for language models.

- Log-probabilities of tokens: `token_log_probs`, `linear_token_log_probs`.
- Advantages of groups (GRPO, RLOO, MaxRL), pass@k and shaped rewards:
  `group_advantages`, `length_weighted_baseline`, `optimal_token_baseline`, `pass_at_k`,
  `pass_at_k_rewards`, `kl_shaped_rewards`.
- Losses of tokens (CISPO, SAPO, GSPO, GMPO, KL): `cispo_loss`, `sapo_loss`,
  `gspo_ratio`, `gmpo_loss`, `kl_loss`, `clip_cov_mask`, `high_entropy_mask`,
  `overlong_penalty`. GRPO and DAPO use `ppo_clip_loss`.
- Trust regions (DPPO, VESPO): `divergence_ppo_mask`, `vespo_weight`.
- Aggregation over a batch: `aggregate_losses`.
- Sampler and learner that disagree (TIS, MIS, IcePop): `importance_weights`,
  `off_policy_sequence_mask`.
- A check before the first update: `check_answers`.
- Preferences (DPO, IPO, SimPO, ORPO, KTO), reward models and distillation: `dpo_loss`,
  `simpo_loss`, `orpo_loss`, `kto_loss`, `bradley_terry_loss`, `generalized_jsd`.

Functions take tokens of any shape, where the result at a token depends on that token
alone; others take one sequence `[T]`, or one group of answers `[G]`: use `jax.vmap` for
a batch. `sample_mask` is true for the tokens that the policy chose: not for the prompt,
padding and the output of tools. Results are float32 for inputs of half precision.
"""

from rlaxlib.llm._advantages import *
from rlaxlib.llm._aggregation import *
from rlaxlib.llm._checks import *
from rlaxlib.llm._divergence import *
from rlaxlib.llm._log_probs import *
from rlaxlib.llm._losses import *
from rlaxlib.llm._off_policy import *
from rlaxlib.llm._preferences import *
from rlaxlib.llm._token_baseline import *
