"""Plasticity: dormant neurons (ReDo), shrink-and-perturb, L2 toward initial weights.

Networks that learn from changing targets lose their ability to learn. These functions
reset or regularise parameters.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp

from rlaxlib import arrays
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, AxisName, Bool, Float, Tree

__all__ = ["l2_init_loss", "redo_mask", "shrink_and_perturb"]

Params = TypeVar("Params")


@checked
def redo_mask(
    activations: Float[ArrayLike, "..., H"],
    threshold: Float[ArrayLike, "in [0, inf)"] = 0.025,
    *,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
    axis_name: AxisName | None = None,
) -> Bool[Array, "H"]:
    """Find the dormant neurons of a layer, to recycle them (ReDo).

    Takes the activations of one layer for a batch of inputs, returns a mask of neurons.

    ::

        m_i = 1[s_i ≤ τ],   s_i = E_x[|h_i(x)|] / ((1/H) ∑_k E_x[|h_k(x)|])

    Then ReDo replaces the incoming weights of these neurons by new initial ones, and
    sets their biases and outgoing weights to 0: `jnp.where(mask, fresh, w_in)` and
    `jnp.where(mask[:, None], 0, w_out)`. The optimizer's moments of these weights
    become 0 as well. The paper does so every 1,000 updates. The fraction of dormant
    neurons, to log, is `jnp.mean(mask)`.

    Args:
        activations: Activations :math:`h_i(x)` of :math:`H` neurons, after the
            nonlinearity, shape `[..., H]`.
        threshold: Largest score :math:`τ` of a dormant neuron, in [0, inf), usually
            0.025 to 0.1, shape `[]`.
        sample_mask: False for inputs to ignore, shape `[...]`; or None.
        axis_name: Mapped axis name, or names, of the inputs; or None.

    Returns:
        True for dormant neurons, shape `[H]`; all of them if all activations are 0.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> activations = jnp.array([[0.0, 1.0, 5.0, 0.01], [0.0, 3.0, 7.0, 0.03]])
        >>> print(rlaxlib.redo_mask(activations))
        [ True False False  True]

    References:
        Ghada Sokar and others, *The Dormant Neuron Phenomenon in Deep Reinforcement
        Learning*, 2023. https://arxiv.org/abs/2302.12902
    """
    batch = tuple(range(activations.ndim - 1))
    sizes = arrays.masked_mean(
        jnp.abs(activations), mask=sample_mask, axis=batch, axis_name=axis_name
    )
    return sizes <= threshold * jnp.mean(sizes)  # As a product: the mean may be 0.


@checked
def shrink_and_perturb(
    params: Tree[Params, "float"],
    fresh_params: Tree[Params, "float like params"],
    shrink: Float[ArrayLike, "in [0, 1]"] = 0.8,
    perturb: Float[ArrayLike, "in [0, inf)"] = 0.2,
) -> Tree[Params, "float like params"]:
    """Mix parameters with new initial ones (shrink-and-perturb).

    Takes two pytrees of parameters, returns one.

    ::

        θ' = λ θ + σ φ

    It restores plasticity, and keeps part of what was learned. The paper adds Gaussian
    noise; a new initialisation :math:`φ` has the right scale in each layer. Parameters
    of that scale keep it with :math:`σ = √(1 - λ²)`; the smaller :math:`σ = 1 - λ` of
    D'Oro and others reduces it.

    Args:
        params: Pytree :math:`θ` of float arrays.
        fresh_params: Parameters :math:`φ` of a new initialisation, of the same
            structure and shapes.
        shrink: Factor :math:`λ` in [0, 1], 0.5 to 1, shape `[]`.
        perturb: Factor :math:`σ`, in [0, inf), shape `[]`.

    Returns:
        Parameters :math:`θ'`, of the structure of `params`.

    Raises:
        ArgumentError: If a structure, shape, leaf or concrete value is wrong.

    Example:
        >>> params, fresh = {"w": jnp.array([4.0])}, {"w": jnp.array([-2.0])}
        >>> print(rlaxlib.shrink_and_perturb(params, fresh, 0.5, 0.5)["w"])
        [1.]

    References:
        Jordan T. Ash and Ryan P. Adams, *On Warm-Starting Neural Network Training*,
        2019. https://arxiv.org/abs/1910.08475

        Pierluca D'Oro and others, *Sample-Efficient Reinforcement Learning by Breaking
        the Replay Ratio Barrier*, 2022. https://openreview.net/forum?id=OpC-9aBBVJe
    """

    def mix(x: Array, y: Array) -> Array:
        return shrink * x + perturb * y

    return jax.tree.map(mix, params, fresh_params)


@checked
def l2_init_loss(
    params: Tree[Any, "float"], initial_params: Tree[Any, "float like params"]
) -> Float[Array, ""]:
    """Compute the squared distance of parameters from their initial values (L2 Init).

    Takes two pytrees of parameters, returns one loss.

    ::

        L = ∑_j (θ_j - θ⁰_j)²

    Added to a loss with a weight of 1e-5 to 1e-2, it keeps the plasticity of the
    initial network; a decay toward 0 does not. The square of `optax.global_norm` would
    have a gradient of NaN at the initial parameters, where learning begins.

    Args:
        params: Pytree :math:`θ` of float arrays.
        initial_params: Parameters :math:`θ⁰` before learning, of the same structure and
            shapes. They have no gradient.

    Returns:
        Loss, shape `[]`.

    Raises:
        ArgumentError: If a structure, shape or leaf is wrong.

    Example:
        >>> params = {"w": jnp.array([1.0, 2.0])}
        >>> print(rlaxlib.l2_init_loss(params, {"w": jnp.array([1.0, -1.0])}))
        9.0

    References:
        Saurabh Kumar, Henrik Marklund and Benjamin Van Roy, *Maintaining Plasticity in
        Continual Learning via Regenerative Regularization*, 2023.
        https://arxiv.org/abs/2308.11958
    """

    def distance(x: Array, y: Array) -> Array:
        return jnp.sum(jnp.square(x - jax.lax.stop_gradient(y)))

    distances = jax.tree.map(distance, params, initial_params)
    return cast(Array, sum(jax.tree.leaves(distances)))
