"""A check of a batch of answers, for the time before the first update."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.experimental import checkify

from rlaxlib import diagnostics
from rlaxlib._core import checks, dtypes, indexing, streams
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Bool, Float, Int
from rlaxlib.llm import _shared

__all__ = ["AnswerStatistics", "check_answers"]

_ROUNDING = 1e-3  # A log-probability of half precision may be that far above 0.
_Problem = tuple[Array, str, Array]


class AnswerStatistics(NamedTuple):
    """Statistics of a batch of answers, to log at each update.

    Attributes:
        mean_log_ratio: Mean log-ratio of policy and sampler over valid tokens; or None.
        effective_fraction: Effective sample size of these ratios, divided by the number
            of valid tokens; or None.
        ended: Fraction of answers whose last valid token is `end_token`; or None.
        single: Fraction of groups of one answer; or None.
        equal: Fraction of groups whose rewards are all equal; or None.
    """

    mean_log_ratio: Float[Array, ""] | None
    effective_fraction: Float[Array, ""] | None
    ended: Float[Array, ""] | None
    single: Float[Array, ""] | None
    equal: Float[Array, ""] | None


@checked(compiled=False)
def check_answers(
    tokens: Int[ArrayLike, "B, T"],
    log_prob: Float[ArrayLike, "B, T"],
    old_log_prob: Float[ArrayLike, "B, T"] | None = None,
    rewards: Float[ArrayLike, "N"] | None = None,
    end_token: Int[ArrayLike, ""] | None = None,
    max_log_ratio: Float[ArrayLike, "in [0, inf]"] = 0.1,
    min_effective_fraction: Float[ArrayLike, "in [0, 1]"] = 0.8,
    *,
    sample_mask: Bool[ArrayLike, "B, T"] | None = None,
    segment_ids: Int[ArrayLike, "B, T"] | None = None,
    group_ids: Int[ArrayLike, "N"] | None = None,
) -> AnswerStatistics:
    """Check a batch of answers before the first update of a language model.

    Takes the tokens of a batch and arrays of their shape, returns statistics.

    ::

        log π(a_t) ≤ 0,   |mean l_t| ≤ l_max,   (∑_t ρ_t)² / (N ∑_t ρ_t²) ≥ f_min,
        l_t = log (π(a_t)/μ(a_t)),   ρ_t = e^{l_t}

    Before the first update, policy and sampler are the same but for their numerics. The
    check raises an error for mistakes that keep all shapes: a mask that is shifted or
    inverted, or misses the token that ends an answer; log-probabilities above 0,
    infinite or NaN; those of other tokens, or at another temperature, than the
    sampler's; ids out of range, and positions in place of ids; rewards from which
    nothing can be learned. An answer may end without `end_token`, at the maximum
    length, but not all may.

    Call it outside of `jax.jit`, where the error lists all problems. Inside,
    `jax.experimental.checkify` reports the first one, as for `check_trajectory`.

    Args:
        tokens: Tokens :math:`a_t`, at the positions of their log-probabilities: for
            those of `logits[:-1]`, they are `tokens[1:]`, shape `[B, T]`.
        log_prob: Log-probabilities :math:`log π(a_t)` of the policy, shape `[B, T]`.
        old_log_prob: Log-probabilities :math:`log μ(a_t)` of the sampler,
            shape `[B, T]`; or None.
        rewards: Rewards of the N answers, shape `[N]`; or None.
        end_token: Token that ends an answer, shape `[]`; or None.
        max_log_ratio: Bound :math:`l_max` of the mean log-ratio, in [0, inf],
            shape `[]`.
        min_effective_fraction: Bound :math:`f_min` of the effective fraction, in
            [0, 1], shape `[]`.
        sample_mask: True for tokens that the policy chose: not for prompt, padding and
            the output of tools, shape `[B, T]`; or None.
        segment_ids: Answer of each token of packed rows, shape `[B, T]`; or None if
            each row is one answer. An id below 0 or from T on is reported.
        group_ids: Prompt of each answer, shape `[N]`; or None for one group. An id
            below 0 or from N on is reported.

    Returns:
        An `AnswerStatistics`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or the batch has a problem.

    Example:
        >>> tokens, log_prob = jnp.array([[5, 7, 2, 0]]), jnp.array([[-9.0, -1, -2, 0]])
        >>> mask = jnp.array([[False, True, True, False]])
        >>> found = rlaxlib.check_answers(
        ...     tokens, log_prob, log_prob, end_token=2, sample_mask=mask
        ... )
        >>> print(found.mean_log_ratio, found.effective_fraction, found.ended)
        0.0 1.0 1.0

    References:
        Feng Yao and others, *Your Efficient RL Framework Secretly Brings You Off-Policy
        RL Training*, 2025. https://fengyao.notion.site/off-policy-rl
    """
    tokens, log_prob = jnp.asarray(tokens), dtypes.raised(jnp.asarray(log_prob))
    mask = streams.filled(sample_mask, log_prob)
    ids = jnp.zeros_like(tokens) if segment_ids is None else jnp.asarray(segment_ids)
    negative = jnp.sum(mask & (tokens < 0))
    problems = [
        (~jnp.any(mask), "`sample_mask` is False everywhere", log_prob[0, 0]),
        (negative > 0, "`tokens` is negative at {value} valid tokens", negative),
    ]
    problems += _of_log_probs("log_prob", log_prob, mask)
    mean = fraction = ended = single = equal = None
    if old_log_prob is not None:
        old = dtypes.raised(jnp.asarray(old_log_prob))
        problems += _of_log_probs("old_log_prob", old, mask)
        found = diagnostics.importance_statistics(log_prob - old, sample_mask=mask)
        mean, fraction = found.mean_log_ratio, found.effective_fraction
        problems += _of_ratios(mean, fraction, max_log_ratio, min_effective_fraction)
    if segment_ids is not None:
        problems += _of_segments(ids, mask)
    if end_token is not None:
        ended, found_problems = _of_ends(tokens == end_token, ids, mask)
        problems += found_problems
    if rewards is None and group_ids is not None:
        checks.fail("`rewards` is None, must be given with `group_ids`")
    if rewards is not None:
        if segment_ids is None and len(rewards) != len(tokens):
            checks.fail(
                f"`rewards` has {len(rewards)} entries, must have {len(tokens)}"
            )
        single, equal, found_problems = _of_groups(jnp.asarray(rewards), group_ids)
        problems += found_problems
    _report(problems)
    found = mean, fraction, ended, single, equal
    return AnswerStatistics(*[dtypes.cast(x, log_prob.dtype) for x in found])


def _of_log_probs(name: str, log_prob: Array, mask: Array) -> list[_Problem]:
    """Return problems of log-probabilities."""
    above = jnp.max(jnp.where(mask, log_prob, -jnp.inf))
    lost = jnp.sum(mask & ~jnp.isfinite(log_prob))
    zero = jnp.all(jnp.where(mask, log_prob == 0, True))
    return [
        (above > _ROUNDING, f"`{name}` is {{value}} at a valid token, above 0", above),
        (lost > 0, f"`{name}` is infinite or NaN at {{value}} valid tokens", lost),
        (zero & jnp.any(mask), f"`{name}` is 0 at all valid tokens", lost),
    ]


def _of_ratios(
    mean: Array, fraction: Array, largest: ArrayLike, smallest: ArrayLike
) -> list[_Problem]:
    """Return problems of the ratios of policy and sampler."""
    text = "is {value}, but both are the same policy before the first update: "
    text += "compare positions, temperature and kept tokens"
    return [
        (~(jnp.abs(mean) <= largest), f"the mean log-ratio {text}", mean),
        (~(fraction >= smallest), f"the effective fraction {text}", fraction),
    ]


def _of_segments(ids: Array, mask: Array) -> list[_Problem]:
    """Return problems of the answers of tokens."""
    outside = jnp.sum(mask & ~indexing.is_inside(ids, ids.shape[1]))

    def begins(ids: Array, mask: Array) -> Array:
        """Return the valid tokens whose previous valid token has another answer."""
        steps = jnp.arange(ids.size)
        last = jax.lax.cummax(jnp.where(mask, steps, -1))
        before = jnp.pad(last[:-1], (1, 0), constant_values=-1)
        return mask & ((before < 0) | (ids[before] != ids))

    first = jax.vmap(begins)(ids, mask)
    counts = jax.vmap(_shared.totals)(first.astype(float), ids)
    back, valid = jnp.sum(jnp.any(counts > 1, axis=1)), jnp.sum(mask)
    both = mask[:, 1:] & mask[:, :-1]  # Other tokens may have any answer.
    shifted = jnp.sum(both & (ids[:, 1:] != ids[:, :-1]))
    return [
        (outside > 0, "`segment_ids` is out of range at {value} valid tokens", outside),
        (
            back > 0,
            "`segment_ids` has an answer that goes on after another in {value} rows, "
            "as positions do",
            back,
        ),
        (
            (jnp.sum(first) == valid) & (valid > len(ids)),
            "`segment_ids` has another answer at each of {value} valid tokens, as "
            "positions do",
            valid,
        ),
        (
            shifted > 0,
            "`sample_mask` goes on from one answer to the next at {value} tokens, "
            "without a prompt between them",
            shifted,
        ),
    ]


def _of_ends(is_end: Array, ids: Array, mask: Array) -> tuple[Array, list[_Problem]]:
    """Return the fraction of answers with an end, and problems of the mask."""

    def later(x: Array) -> Array:
        return jnp.pad(x[:, 1:], ((0, 0), (0, 1)))

    steps = jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)
    same = (later(ids) == ids) & (steps < ids.shape[1] - 1)
    last = jax.vmap(_shared.latest)(jnp.where(mask, steps, -1), ids) == steps
    answers, ended = jnp.sum(last), jnp.sum(last & is_end)
    follows = same & later(is_end)
    # Of several, the first may be padding after an answer that was cut.
    lost = jnp.sum(last & ~is_end & follows & ~later(follows & same))
    beyond = jnp.sum(mask & is_end & same & later(mask))
    of_answers = "of {value} answers"
    return ended / jnp.maximum(answers, 1), [
        (lost > ended, f"`sample_mask` ends before the `end_token` {of_answers}", lost),
        (
            (ended == 0) & (lost == 0),
            f"`sample_mask` ends with `end_token` in none {of_answers}",
            answers,
        ),
        (beyond > 0, "`sample_mask` is True after {value} `end_token`", beyond),
    ]


def _of_groups(
    rewards: Array, group_ids: ArrayLike | None
) -> tuple[Array, Array, list[_Problem]]:
    """Return fractions of groups that cannot be learned from, and problems."""
    zeros = jnp.zeros(rewards.shape, int)
    ids = zeros if group_ids is None else jnp.asarray(group_ids)
    inside = indexing.is_inside(ids, rewards.size)
    places = jnp.where(inside, ids, rewards.size)
    count = zeros.at[places].add(1, mode="drop")
    least, most = jnp.full_like(rewards, jnp.inf), jnp.full_like(rewards, -jnp.inf)
    least = least.at[places].min(rewards, mode="drop")
    most = most.at[places].max(rewards, mode="drop")
    outside, number = jnp.sum(~inside), jnp.maximum(jnp.sum(count > 0), 1)
    single = jnp.sum(count == 1) / number
    equal = jnp.sum((count > 0) & (least == most)) / number
    lost = jnp.sum(~jnp.isfinite(rewards))
    return (
        single,
        equal,
        [
            (lost > 0, "`rewards` has {value} that are infinite or NaN", lost),
            (outside > 0, "`group_ids` has {value} out of range", outside),
            (single == 1, "all {value} groups have one answer", number),
            (
                (equal == 1) & (single < 1),
                "all {value} groups have equal rewards, so that all advantages are 0",
                number,
            ),
        ],
    )


def _report(problems: list[_Problem]) -> None:
    """Raise an error, directly or through checkify, for each problem found."""
    found: list[str] = []
    for wrong, message, value in problems:
        if isinstance(wrong, Tracer):
            checkify.check(~wrong, f"check_answers: {message}.", value=value)
        elif wrong:
            found.append(message.format(value=value))
    if found:
        checks.fail(". ".join(found))
