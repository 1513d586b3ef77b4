"""Self-prediction: latent states that predict their own future (SPR)."""

from __future__ import annotations

from rlaxlib._core import safe
from rlaxlib._core.gradients import stop_if
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Bool, Float

__all__ = ["cosine_consistency_loss"]


@checked
def cosine_consistency_loss(
    predictions: Float[ArrayLike, "..., D"],
    targets: Float[ArrayLike, "..., D"],
    *,
    stop_target_gradients: bool = True,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "..."]:
    """Compute the cosine consistency loss of latent states (SPR).

    Takes predicted latent states of any batch, returns one loss for each.

    ::

        L = -ŷᵀ y / (‖ŷ‖ ‖y‖)

    A model predicts the latent states of the next steps, and a target encoder, a moving
    average of the encoder, has the targets. SPR sums the loss over 5 steps, with
    a weight of 2, and adds it to that of Rainbow. EfficientZero has the same loss. The
    mean squared error of normalised vectors (BYOL) is :math:`2 + 2 L`.

    Args:
        predictions: Predictions :math:`ŷ`, shape `[..., D]`.
        targets: Targets :math:`y`, shape `[..., D]`.
        stop_target_gradients: Whether to stop the gradient of `targets`.
        sample_mask: False for steps to ignore, such as those after the end of the
            episode, shape `[...]`; or None.

    Returns:
        Losses in [-1, 1], shape `[...]`, 0 where masked or a vector is 0.

    Raises:
        ArgumentError: If a shape or dtype is wrong.

    Example:
        >>> predictions, targets = jnp.array([[3.0, 4.0], [0.0, 5.0]])
        >>> print(rlaxlib.cosine_consistency_loss(predictions, targets))
        -0.8

    References:
        Max Schwarzer and others, *Data-Efficient Reinforcement Learning with
        Self-Predictive Representations*, equation 5, 2020.
        https://arxiv.org/abs/2007.05929
    """
    targets = stop_if(stop_target_gradients, targets)
    return -safe.dot(safe.direction(predictions), safe.direction(targets))
