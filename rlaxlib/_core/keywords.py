"""The arguments that keywords of other libraries stand for."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

# The words of others, without endings such as `_t` and `s`, and ours.
_MEANT = {
    "lambda": "lam lmbda lambd lamda lamb gae_lambda td_lambda trace_decay",
    "discount": "gamma done terminated terminal termination continue cont not_done",
    "truncated": "truncation timeout time_out truncate",
    "sample_mask": "mask padding_mask attention_mask loss_mask response_mask valid",
    "mask": "sample_mask padding_mask attention_mask loss_mask response_mask valid",
    "action_mask": "mask legal_action legal avail_action invalid_action_mask",
    "r": "reward rew",
    "a": "action act",
    "action": "a act",
    "sample": "action a act",
    "v": "value baseline vf",
    "values": "v value",
    "q": "q_value qvalue action_value",
    "q_tm1": "q_value qvalue q",
    "q_t": "next_q_value next_q target_q q_next",
    "v_t": "next_value bootstrap_value next_v last_value",
    "rho": "ratio importance_weight importance_ratio is_weight",
    "log_prob": "logprob logp log_pi",
    "old_log_prob": "old_logprob old_logp behaviour_log_prob behavior_log_prob",
    "ref_log_prob": "ref_logprob ref_logp reference_log_prob",
    "adv": "advantage",
    "temperature": "temp tau alpha",
    "epsilon": "eps clip clip_eps clip_epsilon clip_range clip_ratio clip_coef",
    "key": "rng rng_key prng_key seed",
    "rng_key": "rng key prng_key seed",
    "n": "n_step num_step",
    "mu": "mean loc",
    "sigma": "std stddev scale log_std",
    "stddev": "std sigma scale",
    "predictions": "pred input y_pred",
    "targets": "target label y_true",
    "target": "targets label return",
    "labels": "target",
    "stop_target_gradients": "stop_gradient stop_grad use_stop_gradient",
    "delta": "huber_delta huber_param",
    "r_t": "",
}


def meant(word: str, arguments: Sequence[str]) -> list[str]:
    """Return the arguments that an unknown keyword stands for.

    Args:
        word: The keyword, such as `gamma`.
        arguments: The arguments of the function.

    Returns:
        Those that others call so, or that are spelt almost like it.
    """
    stem = _stem(word)
    alike = [name for name in arguments if _stem(name) == stem]
    meant = [
        name
        for name in arguments
        if stem in map(_stem, _MEANT.get(name, "").split())
        or stem in map(_stem, _MEANT.get(_stem(name), "").split())
    ]
    near = [name for name in arguments if name[:1] == word[:1]]
    return alike or meant or difflib.get_close_matches(word, near, 1, 0.8)


def _stem(name: str) -> str:
    """Return a name without what it says of time and number: `done` for `dones_t`."""
    return re.sub(r"(_?(tm1|t|tp1))?_?$", "", name.lower()).removesuffix("s")
