"""Distributions: what is measured."""

import functools
import types
from collections.abc import Mapping

from benchmarks.catalog.shared import ONE_STEP, row
from benchmarks.inputs import Input, Size, action, key, normal, positive, probs, unit

# Of rows of 18 numbers a compiler makes something else than of 6, or of 12.
_SIX, _TWELVE = (Size(batch=4096, actions=n) for n in (6, 12))
_FEW, _SOME = (_SIX, *ONE_STEP), (_SIX, _TWELVE, *ONE_STEP)

_softmax = functools.partial(row, of={"temperature": 0.7})
_clipped = functools.partial(row, of={"temperature": 0.7, "entropy_clip": 0.9})
_greedy = functools.partial(row, smooth=False)
_epsilon = functools.partial(row, of={"epsilon": 0.1}, smooth=False)
_box = types.SimpleNamespace(minimum=-2.0, maximum=2.0)
_boxed = functools.partial(row, settings={"action_spec": _box})
_gaussian = {"mu": normal("A"), "sigma": positive("A")}
_squashed = {"mu": normal("A"), "sigma": normal("A")}  # Before their activations.


def _two(parameters: Mapping[str, Input]) -> dict[str, Input]:
    """Return the parameters of two distributions, which a divergence takes."""
    return {f"{name}_{i}": each for i in (0, 1) for name, each in parameters.items()}


CASES = (
    _softmax("softmax.sample", _FEW, key=key(), logits=normal("A"), smooth=False),
    _softmax("softmax.probs", _FEW, logits=normal("A")),
    _softmax("softmax.logprob", _FEW, sample=action(), logits=normal("A")),
    _softmax("softmax.entropy", _FEW, logits=normal("A")),
    _softmax("softmax.kl", _FEW, p_logits=normal("A"), q_logits=normal("A")),
    _clipped("clipped_entropy_softmax.entropy", logits=normal("A")),
    _greedy("greedy.sample", key=key(), preferences=normal("A")),
    _greedy("greedy.probs", preferences=normal("A")),
    _greedy("greedy.logprob", sample=action(), preferences=normal("A")),
    _epsilon("epsilon_greedy.sample", key=key(), preferences=normal("A")),
    _epsilon("epsilon_greedy.probs", preferences=normal("A")),
    _epsilon("epsilon_greedy.logprob", sample=action(), preferences=normal("A")),
    _epsilon("epsilon_greedy.entropy", preferences=normal("A")),
    row("gaussian_diagonal.sample", _SOME, key=key(), **_gaussian),
    row("gaussian_diagonal.logprob", _SOME, sample=normal("A"), **_gaussian),
    row("gaussian_diagonal.entropy", _SOME, **_gaussian),
    row("gaussian_diagonal.kl_to_standard_normal", _SOME, **_gaussian),
    row("gaussian_diagonal.kl", _SOME, **_two(_gaussian)),
    _boxed("squashed_gaussian.sample", _SOME, key=key(), **_squashed),
    _boxed("squashed_gaussian.logprob", _SOME, sample=unit("A"), **_squashed),
    row("squashed_gaussian.entropy", _SOME, **_squashed),
    row("squashed_gaussian.kl_to_standard_normal", _SOME, **_squashed),
    row("squashed_gaussian.kl", _SOME, **_two(_squashed)),
    row("categorical_sample", key=key(), probs=probs("A"), smooth=False),
    row("categorical_cross_entropy", labels=probs("A"), logits=normal("A")),
    row("categorical_kl_divergence", p_logits=normal("A"), q_logits=normal("A")),
    row(
        "categorical_importance_sampling_ratios",
        pi_logits_t=normal("A"),
        mu_logits_t=normal("A"),
        a_t=action(),
    ),
    row("multivariate_normal_kl_divergence", _SOME, **_two(_gaussian)),
    row("unimix_logits", logits=normal("A")),
    row("straight_through_sample", key=key(), logits=normal("A")),
    row(
        "balanced_kl",
        posterior_logits=normal("32 A"),
        prior_logits=normal("32 A"),
    ),
)
