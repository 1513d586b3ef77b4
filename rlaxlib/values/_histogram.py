"""Learn a value as a class: which bins a return falls into, by cross-entropy.

A network that predicts a number by its squared error learns from the size of what it
predicts; one that predicts a distribution over bins does not, and its mean makes as
good a value. A pair of `rlaxlib.transforms` says what the bins are, and how a number
becomes a distribution over them: both of the target and of what is read back, so that
the two cannot differ.
"""

from __future__ import annotations

from jax import Array
from jax.typing import ArrayLike

from rlaxlib import distributions, transforms
from rlaxlib._core import checks, dtypes, gradients

__all__ = ["categorical_regression_loss"]


def categorical_regression_loss(
    logits: ArrayLike,
    target: ArrayLike,
    tx_pair: transforms.TxPair,
    *,
    stop_target_gradients: bool = True,
) -> Array:
    """Pull logits over bins towards a number, by cross-entropy (two-hot, HL-Gauss).

    .. math::

        L = -∑_k f(y)_k log softmax(x)_k

    The value that the logits stand for is the inverse of their probabilities,
    :math:`f⁻¹(softmax(x))`, by `apply_inv` of the same pair. It is the mean of what was
    learnt if the pair is of `twohot_pair`, `hl_gauss_pair` or
    `unbiased_transform_pair`, and a squashed mean, stretched, if it is of
    `muzero_pair`.

    A target beyond the bins is learnt as their end: the loss is finite, and says
    nothing of it. `out_of_range(target, tx_pair)` does; log its mean over the batch.

    Args:
        logits: Logits :math:`x`, one for each bin, shape `[M]`.
        target: Number :math:`y` to learn, in the space of returns, shape `[]`.
        tx_pair: Pair :math:`f` from numbers to distributions over M bins, such as
            `hl_gauss_pair`, or a chain of `compose_tx` that squashes before.
        stop_target_gradients: Whether to hold the target constant under
            differentiation.

    Returns:
        Loss, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if `tx_pair`
            gives another number of bins than there are logits.

    Example:
        >>> pair = rlaxlib.twohot_pair(-1.0, 1.0, num_bins=5)
        >>> logits = jnp.log(jnp.array([0.1, 0.1, 0.1, 0.5, 0.2]))
        >>> print(rlaxlib.categorical_regression_loss(logits, 0.5, pair).round(4))
        0.6931
        >>> print(rlaxlib.out_of_range(0.5, pair), rlaxlib.out_of_range(1.5, pair))
        False True

    References:
        Ehsan Imani and Martha White, *Improving Regression Performance with
        Distributional Losses*, 2018. https://arxiv.org/abs/1806.04613

        Jesse Farebrother and others, *Stop Regressing: Training Value Functions via
        Classification for Scalable Deep RL*, 2024. https://arxiv.org/abs/2403.03950

        Danijar Hafner, Jurgis Pasukonis, Jimmy Ba and Timothy Lillicrap, *Mastering
        Diverse Domains through World Models*, 2023. https://arxiv.org/abs/2301.04104
    """
    logits, target = checks.arrays(
        logits=(logits, "float[M]"), target=(target, "float[]")
    )
    (logits, target), narrow = dtypes.widen(logits, target)
    target = gradients.stop_if(stop_target_gradients, target)
    probs = tx_pair.apply(target)
    if probs.shape != logits.shape:
        checks.fail(
            f"`tx_pair` must give one probability for each of {logits.size} logits, "
            f"but gives shape {list(probs.shape)}"
        )
    return narrow(distributions.categorical_cross_entropy(probs, logits))
