"""Aggregation of the losses of tokens over a batch."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp

from rlaxlib._core import devices, indexing, safe, streams
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, AxisName, Bool, Float, Int
from rlaxlib.llm._shared import at, totals

__all__ = ["aggregate_losses"]


@checked(wide=True)
def aggregate_losses(
    loss: Float[ArrayLike, "B, T"],
    kind: Literal[
        "token_mean",
        "sequence_mean_token_mean",
        "sequence_mean_token_sum",
        "constant",
    ] = "token_mean",
    denominator: Float[ArrayLike, "in (0, inf)"] | None = None,
    *,
    sample_mask: Bool[ArrayLike, "B, T"] | None = None,
    segment_ids: Int[ArrayLike, "B, T in [0, T)"] | None = None,
    axis_name: AxisName | None = None,
) -> Float[Array, ""]:
    """Aggregate the losses of the tokens of a batch (GRPO, DAPO, Dr. GRPO).

    Takes the losses of a batch of sequences, returns one loss.

    ::

        L = (1/N) ∑_i ∑_t m_{i,t} l_{i,t}   or, by `"sequence_mean_token_mean"`,
        L = (1/N) ∑_i (∑_t m_{i,t} l_{i,t}) / ∑_t m_{i,t}

    The denominator :math:`N` depends on the kind:

    - `"token_mean"`: the number of valid tokens, of equal weight (DAPO).
    - `"sequence_mean_token_mean"`: the number of sequences with valid tokens, of equal
      weight, so that tokens of long answers have less (GRPO).
    - `"sequence_mean_token_sum"`: the same number. The loss has the gradient of the
      log-probability of whole answers (REINFORCE, RLOO).
    - `"constant"`: the number of all tokens, padding included, which is constant if
      sequences are padded to the maximum length (Dr. GRPO).

    For micro-batches, pass the number of the whole batch as `denominator`, and add up
    the losses or gradients. With `axis_name`, sums and numbers are over all devices.

    Args:
        loss: Losses :math:`l_{i,t}` of the tokens, shape `[B, T]`.
        kind: One of the four kinds above.
        denominator: Number :math:`N` to divide by instead, in (0, inf), shape `[]`; or
            None.
        sample_mask: True for tokens that the policy chose: not for prompt, padding and
            the output of tools, shape `[B, T]`; or None.
        segment_ids: Answer of each token of packed rows, in [0, T), shape `[B, T]`; or
            None if each row is one answer.
        axis_name: Mapped axis name, or names, of the batch; or None.

    Returns:
        Loss, shape `[]`; 0 if there are no valid tokens, or if a traced `denominator`
        is 0; NaN if a traced segment of a valid token is out of range.

    Raises:
        ArgumentError: If a shape, dtype, `kind` or concrete value is wrong.

    Example:
        >>> loss = jnp.array([[1.0, 1.0, 4.0], [8.0, 0.0, 0.0]])
        >>> mask = jnp.array([[True, True, True], [True, False, False]])
        >>> print(rlaxlib.aggregate_losses(loss, sample_mask=mask))
        3.5
        >>> kind = "sequence_mean_token_mean"
        >>> print(rlaxlib.aggregate_losses(loss, kind, sample_mask=mask))
        5.0

    References:
        Qiying Yu and others, *DAPO: An Open-Source LLM Reinforcement Learning System at
        Scale*, section 3.3, 2025. https://arxiv.org/abs/2503.14476

        Zichen Liu and others, *Understanding R1-Zero-Like Training: A Critical
        Perspective*, section 3.1, 2025. https://arxiv.org/abs/2503.20783
    """
    mask = streams.filled(sample_mask, loss)
    if segment_ids is None:
        lengths = jnp.sum(mask, axis=1, keepdims=True, dtype=loss.dtype)
        length = lengths
    else:
        lengths = jax.vmap(totals)(mask.astype(loss.dtype), segment_ids)
        length = jax.vmap(at)(lengths, segment_ids)
        is_answer = indexing.is_inside(segment_ids, loss.shape[1])
        loss = jnp.where(is_answer, loss, jnp.nan)
    if kind == "sequence_mean_token_mean":
        loss = loss / jnp.maximum(length, 1)
    answers = jnp.sum(lengths > 0, dtype=loss.dtype)
    counts = {
        "token_mean": jnp.sum(lengths),
        "constant": jnp.full_like(answers, loss.size),
    }
    total = devices.total(jnp.sum(loss), axis_name)
    if denominator is None:
        denominator = devices.total(counts.get(kind, answers), axis_name)
    return safe.divide(total, denominator)  # Without valid tokens, it may be 0.
