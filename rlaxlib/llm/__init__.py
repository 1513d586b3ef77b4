"""Building blocks of reinforcement learning for language models.

- Log-probabilities of tokens: `token_log_probs`, `linear_token_log_probs`.
- Advantages of groups (GRPO, RLOO), pass@k and shaped rewards: `group_advantages`,
  `length_weighted_baseline`, `pass_at_k`, `pass_at_k_rewards`, `kl_shaped_rewards`.

Functions take one sequence `[T]`, or one group of answers `[G]`; use `jax.vmap` for a
batch. `sample_mask` is true for the tokens that the policy chose: not for the prompt,
padding and the output of tools. Results are float32 for inputs of half precision.
"""

from rlaxlib.llm import _advantages, _log_probs
from rlaxlib.llm._advantages import *
from rlaxlib.llm._log_probs import *

__all__: list[str] = []
__all__ += _advantages.__all__
__all__ += _log_probs.__all__
