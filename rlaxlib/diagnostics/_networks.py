"""Tell how much of a network is in use."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib import arrays
from rlaxlib._core import checks, devices, dtypes
from rlaxlib._core.devices import AxisName

__all__ = [
    "dormant_fraction",
    "effective_rank",
]


def dormant_fraction(
    activations: ArrayLike,
    threshold: ArrayLike = 0.025,
    mask: ArrayLike | None = None,
    axis_name: AxisName | None = None,
) -> Array:
    """Tell what fraction of the neurons of a layer has all but fallen silent.

    .. math::

        (1/H) ∑_i 1[s_i ≤ τ],   s_i = E_x[|h_i(x)|] / ((1/H) ∑_k E_x[|h_k(x)|])

    A network whose neurons fall dormant in the course of learning loses its ability to
    learn more. With a threshold of 0 a neuron must be silent on all inputs; 0.025 and
    0.1 are the paper's. Give the activations after the nonlinearity. The neurons of a
    convolution are its channels: leading axes are all averaged over, space as well as
    batch.

    Args:
        activations: Activations :math:`h_i(x)` of the H neurons of a layer, for a batch
            of inputs, shape `[..., H]`.
        threshold: Score :math:`τ`, relative to the mean over the layer, up to which a
            neuron is dormant, not negative, shape `[]`.
        mask: True where an input counts, shape `[...]`; or None to count all.
        axis_name: Name of the axis, or axes, that devices form, where the inputs are
            spread over them; or None to stay on one device.

    Returns:
        The fraction, shape `[]`; 1 in a layer that is silent altogether.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if the threshold
            is known and negative.

    Example:
        >>> activations = jnp.array([[0.0, 1.0, 5.0, 0.01], [0.0, 3.0, 7.0, 0.03]])
        >>> print(rlaxlib.dormant_fraction(activations))
        0.5

    References:
        Ghada Sokar, Rishabh Agarwal, Pablo Samuel Castro and Utku Evci, *The Dormant
        Neuron Phenomenon in Deep Reinforcement Learning*, section 3, 2023.
        https://arxiv.org/abs/2302.12902
    """
    activations, threshold, mask = checks.arrays(
        activations=(activations, "float[..., H]"),
        threshold=(threshold, "float[]"),
        mask=(mask, "bool[...] or None"),
    )
    checks.within("[0, inf)", threshold=threshold)
    (h, threshold), narrow = dtypes.widen(activations, threshold)
    mask = None if mask is None else mask[..., None]
    leading = tuple(range(h.ndim - 1))
    scores = arrays.masked_mean(jnp.abs(h), mask, leading, axis_name)
    # Compared as products, a layer of zeros is no division by zero.
    mean = jnp.mean(scores)
    fraction = jnp.mean(scores <= threshold * mean, dtype=scores.dtype)
    return narrow(jnp.where(jnp.isnan(mean), mean, fraction))


def effective_rank(
    features: ArrayLike,
    delta: ArrayLike = 0.01,
    mask: ArrayLike | None = None,
    axis_name: AxisName | None = None,
) -> Array:
    """Tell how many directions features make use of.

    .. math::

        srank_δ(Φ) = min {k : (∑_{i ≤ k} σ_i(Φ)) / ∑_i σ_i(Φ) ≥ 1 - δ}

    The singular values :math:`σ_i` stand in descending order: the rank is how many it
    takes to leave out no more than :math:`δ` of their sum. It falls where values that
    bootstrap from themselves confuse states. Others call by the same name the
    exponential of the entropy of the singular values, a number that is not whole (Roy
    and Vetterli, 2007), or take the squares of these, the explained variance: the
    numbers do not compare.

    A decomposition takes a time in proportion to :math:`B D min(B, D)`: some thousand
    inputs do.

    Args:
        features: Features :math:`Φ`, such as the activations of the last layer but one,
            for B inputs, shape `[B, D]`.
        delta: What may be left out, :math:`δ`, from 0 to below 1, shape `[]`.
        mask: True where an input counts, shape `[B]`; or None to count all.
        axis_name: Name of the axis, or axes, that devices form, where the inputs are
            spread over them; or None to stay on one device.

    Returns:
        The rank, a whole number up to the smaller of B and D, shape `[]`; 0 where all
        features are 0, or one is no number.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if `delta` is
            known and out of range.

    Example:
        >>> features = jnp.diag(jnp.array([10.0, 10.0, 0.1]))
        >>> print(rlaxlib.effective_rank(features))
        2

    References:
        Aviral Kumar, Rishabh Agarwal, Dibya Ghosh and Sergey Levine, *Implicit
        Under-Parameterization Inhibits Data-Efficient Deep Reinforcement Learning*,
        section 3, 2020. https://arxiv.org/abs/2010.14498
    """
    features, delta, mask = checks.arrays(
        features=(features, "float[B, D]"),
        delta=(delta, "float[]"),
        mask=(mask, "bool[B] or None"),
    )
    checks.within("[0, 1)", delta=delta)
    if mask is not None:  # Rows of zeros change no singular value.
        features = arrays.replace_masked(features, None, ~mask)
    (features, delta), _ = dtypes.widen(features, delta)
    whole = devices.gather(features, axis_name)
    sizes = jnp.linalg.svd(whole, compute_uv=False)
    # What is left out is added up from its smallest part, or it would be lost in a sum
    # that is near 1.
    left = jnp.cumsum(sizes[::-1])[::-1]
    return jnp.sum(left > delta * left[0])
