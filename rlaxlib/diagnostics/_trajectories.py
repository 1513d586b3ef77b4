"""Tell what is wrong with the data, before anything is learned from them."""

from __future__ import annotations

from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import Tracer
from jax.experimental import checkify
from jax.typing import ArrayLike

from rlaxlib._core import checks, streams

__all__ = [
    "check_trajectory",
]


def check_trajectory(
    r_t: ArrayLike,
    discount_t: ArrayLike,
    *,
    truncated_t: ArrayLike | None = None,
    sample_mask: ArrayLike | None = None,
) -> Array:
    """Say in words what is inconsistent in a stream of experience.

    .. math::

        r_t ∈ ℝ,   0 ≤ γ_t ≤ 1,   truncated_t ⇒ γ_t > 0,   γ_t = 0 ⇒ m_t

    The last two in words: an episode either ends or is cut, and the row in which it
    ends is a decision. If a mask hides that row, as one made of 1 less a flag of
    termination does, its end is lost, and the estimates of the episode run into the
    next one. Rows that are no decisions may hold anything else.

    Called as it is, it raises an error that lists all there is. Inside of what JAX
    compiles, the values are not known yet: there `jax.experimental.checkify` carries
    the first inconsistency out::

        error, loss = jax.jit(checkify.checkify(loss_function))(...)
        error.throw()

    Args:
        r_t: Rewards, shape `[T]`.
        discount_t: Discounts, shape `[T]`.
        truncated_t: True where the stream was cut after this step, shape `[T]`; or None
            if nowhere.
        sample_mask: False where a row is no decision, shape `[T]`; or None if all are.

    Returns:
        True for each row that is consistent, shape `[T]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if the stream is
            known and inconsistent.

    Example:
        >>> r_t, discount_t = jnp.array([0.0, 1.0]), jnp.array([1.0, 0.0])
        >>> print(rlaxlib.check_trajectory(r_t, discount_t))
        [ True  True]
        >>> try:
        ...     rlaxlib.check_trajectory(r_t, discount_t + 0.25)
        ... except rlaxlib.ArgumentError as error:
        ...     print(error)
        check_trajectory: `discount_t` must lie in [0, 1], but is 1.25 in row 0.

    References:
        Fabio Pardo, Arash Tavakoli, Vitaly Levdik and Petar Kormushev, *Time Limits in
        Reinforcement Learning*, 2017. https://arxiv.org/abs/1712.00378

        Roy Frostig and others, *The checkify transformation*, 2022.
        https://docs.jax.dev/en/latest/debugging/checkify_guide.html
    """
    r_t, discount_t, truncated_t, sample_mask = checks.arrays(
        r_t=(r_t, "float[T]"),
        discount_t=(discount_t, "float[T]"),
        truncated_t=(truncated_t, "bool[T] or None"),
        sample_mask=(sample_mask, "bool[T] or None"),
    )
    mask = jnp.ones_like(r_t, bool) if sample_mask is None else sample_mask
    cut = jnp.zeros_like(mask) if truncated_t is None else truncated_t
    ended = discount_t == 0
    problems = [
        (
            mask & ~jnp.isfinite(r_t),
            "`r_t` must be finite, but is {value} in row {row}",
            r_t,
        ),
        (
            mask & ~((discount_t >= 0) & (discount_t <= 1)),
            "`discount_t` must lie in [0, 1], but is {value} in row {row}",
            discount_t,
        ),
        (
            mask & cut & ended,
            "`truncated_t` is true in row {row}, which ends its episode, for "
            "`discount_t` is {value}: a stream is cut only where the episode goes on",
            discount_t,
        ),
        (
            _lost_ends(ended, cut, mask),
            "`discount_t` is {value} in row {row}, but `sample_mask` is false: the end "
            "of the episode is lost, and its estimates run into the next one",
            discount_t,
        ),
        (
            jnp.broadcast_to(~jnp.any(mask), mask.shape),
            "`sample_mask` is false in all rows, from row {row} on: there is no "
            "decision",
            r_t,
        ),
    ]
    _report(problems)
    wrong = [rows for rows, _, _ in problems]
    return ~jnp.any(jnp.stack(wrong), axis=0)


def _lost_ends(ended: Array, cut: Array, mask: Array) -> Array:
    """Tell which rows end an episode without being decisions, so that no one sees it.

    Nothing is lost if the decision before was the end already, if the stream is cut in
    between, or if no decision comes before or after.
    """
    rows = jnp.arange(mask.size)
    before = jax.lax.cummax(jnp.where(mask, rows, -1))
    known = jax.lax.cummax(jnp.where((mask & ended) | cut, rows, -1))
    follows = streams.next_valid(mask) < mask.size
    return ~mask & ended & (known < before) & follows


def _report(problems: list[tuple[Array, str, Array]]) -> None:
    """Raise an error, now or through checkify, for what is wrong in some row."""
    told: list[str] = []
    for wrong, message, values in problems:
        row = jnp.argmax(wrong)
        place: dict[str, Any] = {"row": row, "value": values[row]}
        if isinstance(cast(Any, wrong), Tracer):
            checkify.check(~jnp.any(wrong), f"check_trajectory: {message}.", **place)
        elif jnp.any(wrong):
            told.append(message.format(**place))
    if told:
        checks.fail(". ".join(told))
