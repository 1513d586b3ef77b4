"""Baselines for each token of a group of answers: the optimal token baseline (OTB)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rlaxlib._core import devices, safe, streams
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, AxisName, Bool, Float

__all__ = ["optimal_token_baseline"]


@checked(wide=True)
def optimal_token_baseline(
    returns: Float[ArrayLike, "G, T"],
    log_prob: Float[ArrayLike, "G, T"],
    sum_squared_probs: Float[ArrayLike, "G, T in [0, 1]"],
    *,
    sample_mask: Bool[ArrayLike, "G, T"] | None = None,
    axis_name: AxisName | None = None,
) -> Float[Array, "T"]:
    """Compute the optimal baseline of each token of a group of answers (OTB).

    Takes one group of answers, returns one baseline for each position.

    ::

        B_t = (∑_i W_{i,t} G_{i,t}) / ∑_i W_{i,t}
        W_{i,t} = ∑_{j ≤ t} (1 - 2 π_{i,j} + ∑_a π_{i,j}(a)²)

    The weight is the squared norm of the gradient of
    :math:`∑_{j ≤ t} log π(a_j)` with respect to the logits, which stands for that
    with respect to the parameters. The baseline minimises the variance of the policy
    gradient at each position. The advantage is the return minus it.

    Args:
        returns: Returns :math:`G_{i,t}`, such as the reward of the answer at all of its
            tokens, shape `[G, T]`.
        log_prob: Log-probabilities :math:`log π_{i,t}` of the tokens, shape `[G, T]`.
        sum_squared_probs: Sum :math:`∑_a π_{i,t}(a)²` of the squared probabilities of
            all tokens, in [0, 1], shape `[G, T]`. The sum over the other tokens is at
            most :math:`(1 - π_{i,t})²`: larger sums count as the bound.
        sample_mask: False for tokens to ignore, shape `[G, T]`; or None. Such tokens
            have no share in the baseline, and add nothing to later weights.
        axis_name: Mapped axis name, or names, of the group; or None.

    Returns:
        Baselines :math:`B_t`, without a gradient, shape `[T]`; 0 without a
            weight, and for a group of one answer, whose baseline would be its own
            return.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a NumPy value out of range.

    Example:
        >>> returns = jnp.array([[1.0, 1.0], [0.0, 0.0]])
        >>> log_prob = jnp.log(jnp.array([[0.5, 1.0], [0.5, 0.5]]))
        >>> squares = jnp.array([[0.5, 1.0], [0.5, 0.5]])
        >>> print(rlaxlib.optimal_token_baseline(returns, log_prob, squares).round(3))
        [0.5   0.333]

    References:
        Yingru Li and others, *The Optimal Token Baseline: Variance Reduction for
        Long-Horizon LLM-RL*, 2026. https://arxiv.org/abs/2602.07078
    """
    exists = streams.filled(sample_mask, returns)
    # As (1 - π)² + ∑_{a ≠ a_t} π(a)²: 1 - 2 π + ∑_a π(a)² would lose its precision
    # if the token is almost certain. The sum is at most (1 - π)².
    own = jnp.square(jnp.expm1(log_prob))
    others = jnp.clip(sum_squared_probs - jnp.exp(2 * log_prob), 0, own)
    energy = own + others
    weights = jnp.cumsum(jnp.where(exists, energy, 0), axis=1)
    weights = jnp.where(exists, weights, 0)
    weighted = devices.total(jnp.sum(weights * returns, axis=0), axis_name)
    total = devices.total(jnp.sum(weights, axis=0), axis_name)
    # The baseline of a single answer would be its own return.
    answers = jnp.sum(jnp.any(exists, axis=1), dtype=jnp.int32)
    single = devices.total(answers, axis_name) < 2
    baseline = jnp.where(single, 0, safe.divide(weighted, total))
    return jax.lax.stop_gradient(baseline)
