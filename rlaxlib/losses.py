"""Elementwise losses, and a function that clips a gradient.

Losses: squared error, Huber, expectile, likelihood and cross-entropy. Each takes arrays
of any shape and returns one loss for each element; `masked_mean` averages them.
"""

from __future__ import annotations

from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from rlaxlib._core import checks
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Float, Tree

__all__ = [
    "clip_gradient",
    "expectile_loss",
    "huber_loss",
    "l2_loss",
    "likelihood",
    "log_loss",
]

ArrayTree = TypeVar("ArrayTree")


@checked
def l2_loss(
    predictions: Float[ArrayLike, "..."], targets: Float[ArrayLike, "..."] | None = None
) -> Float[Array, "..."]:
    """Compute the L2 loss, half the squared error.

    Takes arrays of any shape, returns one loss for each element.

    ::

        L = ½ (x - y)²

    The gradient is the error itself.

    Args:
        predictions: Predictions :math:`x`, or errors, shape `[...]`.
        targets: Targets :math:`y`, shape `[...]`; or None for 0.

    Returns:
        Losses, shape `[...]`.

    Raises:
        ArgumentError: If a dtype is wrong, or the shapes differ.

    Example:
        >>> print(rlaxlib.l2_loss(jnp.array([1.0, 4.0]), jnp.array([1.0, 1.0])))
        [0.  4.5]

    References:
        Christopher M. Bishop, *Pattern Recognition and Machine Learning*, section 1.1,
        2006. https://www.microsoft.com/en-us/research/publication/pattern-recognition-machine-learning/
    """
    error = predictions if targets is None else predictions - targets
    return 0.5 * jnp.square(error)


@checked
def huber_loss(
    x: Float[ArrayLike, "..."], delta: Float[ArrayLike, "in (0, inf)"] = 1.0
) -> Float[Array, "..."]:
    """Compute the Huber loss: quadratic near 0, linear for large errors.

    Takes errors of any shape, returns one loss for each.

    ::

        L = { ½ x²            if |x| ≤ δ
            { δ (|x| - ½ δ)   otherwise

    The gradient is the error clipped to :math:`[-δ, δ]`.

    Args:
        x: Errors, shape `[...]`.
        delta: Error :math:`δ` where the loss becomes linear, in (0, inf), shape `[]`.

    Returns:
        Losses, shape `[...]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> print(rlaxlib.huber_loss(jnp.array([0.5, -3.0]), delta=1.0))
        [0.125 2.5  ]

    References:
        Peter J. Huber, *Robust Estimation of a Location Parameter*, 1964.
        https://doi.org/10.1214/aoms/1177703732
    """
    size = jnp.abs(x)
    linear = delta * (size - 0.5 * delta)
    return jnp.where(size <= delta, 0.5 * jnp.square(x), linear)


@checked
def likelihood(
    predictions: Float[ArrayLike, "... in [0, 1]"],
    targets: Float[ArrayLike, "... in [0, 1]"],
) -> Float[Array, "..."]:
    """Compute the Bernoulli likelihood of targets given probabilities.

    Takes arrays of any shape, returns one likelihood for each element.

    ::

        ℓ = p^t (1 - p)^{1-t}

    Args:
        predictions: Probabilities :math:`p`, in [0, 1], shape `[...]`.
        targets: Targets :math:`t`, in [0, 1], shape `[...]`.

    Returns:
        Likelihoods, shape `[...]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> print(rlaxlib.likelihood(jnp.array([0.75, 0.75]), jnp.array([1.0, 0.0])))
        [0.75 0.25]

    References:
        Christopher M. Bishop, *Pattern Recognition and Machine Learning*, section
        4.3.2, 2006. https://www.microsoft.com/en-us/research/publication/pattern-recognition-machine-learning/
    """
    p, t = predictions, targets
    # The gradient of 0⁰ would be NaN.
    hit = jnp.where((p == 0) & (t == 0), 1, p) ** t
    miss = jnp.where((p == 1) & (t == 1), 1, 1 - p) ** (1 - t)
    return hit * miss


@checked
def log_loss(
    predictions: Float[ArrayLike, "... in [0, 1]"],
    targets: Float[ArrayLike, "... in [0, 1]"],
) -> Float[Array, "..."]:
    """Compute the log loss (binary cross-entropy) of predicted probabilities.

    Takes arrays of any shape, returns one loss for each element.

    ::

        L = -t log p - (1 - t) log(1 - p)

    With the convention 0 log 0 = 0, a prediction that is certain and right has a loss
    of 0 and a finite gradient. One that is certain and wrong has an infinite loss. The
    sigmoid of a logit of 17 rounds to 1 in single precision: for the logits of a
    network, use `optax.sigmoid_binary_cross_entropy(logits, targets)`.

    Args:
        predictions: Probabilities :math:`p`, in [0, 1], shape `[...]`.
        targets: Targets :math:`t`, in [0, 1], shape `[...]`.

    Returns:
        Losses, shape `[...]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> print(rlaxlib.log_loss(jnp.array([1.0, 0.0]), jnp.array([1.0, 0.0])))
        [0. 0.]

    References:
        Christopher M. Bishop, *Pattern Recognition and Machine Learning*, section
        4.3.2, 2006. https://www.microsoft.com/en-us/research/publication/pattern-recognition-machine-learning/
    """
    p, t = predictions, targets
    # `0 * log(0)` would be NaN. `log(1 - p)` would be 0 for a small probability.
    hit = t * jnp.log(jnp.where((p == 0) & (t == 0), 1, p))
    miss = (1 - t) * jnp.log1p(-jnp.where((p == 1) & (t == 1), 0, p))
    return -hit - miss


@checked
def expectile_loss(
    predictions: Float[ArrayLike, "..."],
    targets: Float[ArrayLike, "..."],
    expectile: Float[ArrayLike, "in [0, 1]"],
) -> Float[Array, "..."]:
    """Compute the expectile (asymmetric squared) loss.

    Takes arrays of any shape, returns one loss for each element.

    ::

        L = |τ - 1[y < x]| (y - x)²

    The minimiser is the :math:`τ`-expectile of the targets: the mean at 0.5, close to
    the maximum near 1. The state values of implicit Q-learning (IQL) have the loss
    `expectile_loss(v, stop_gradient(q), 0.7)`, or 0.9 for mazes, with the values
    :math:`q(s, a)` of the data's actions by the target critic.

    Args:
        predictions: Predictions :math:`x`, shape `[...]`.
        targets: Targets :math:`y`, shape `[...]`.
        expectile: Expectile :math:`τ`, in [0, 1], shape `[]`. A prediction below the
            target has weight :math:`τ`, one above it :math:`1 - τ`.

    Returns:
        Losses, shape `[...]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> print(rlaxlib.expectile_loss(jnp.array([2.0, 0.0]), jnp.ones(2), 0.75))
        [0.25 0.75]

    References:
        Whitney K. Newey and James L. Powell, *Asymmetric Least Squares Estimation and
        Testing*, 1987. https://doi.org/10.2307/1911031

        Ilya Kostrikov, Ashvin Nair and Sergey Levine, *Offline Reinforcement Learning
        with Implicit Q-Learning*, 2021. https://arxiv.org/abs/2110.06169
    """
    error = targets - predictions
    return jnp.where(error < 0, 1 - expectile, expectile) * jnp.square(error)


@checked
def clip_gradient(
    x: Tree[ArrayTree, "float"],
    gradient_min: Float[ArrayLike, "[] or [...]"],
    gradient_max: Float[ArrayLike, "[] or [...] in [gradient_min, inf]"],
) -> Tree[ArrayTree, "float like x"]:
    """Clip the gradient of an array or a pytree, and return it unchanged.

    Takes an array or a pytree, returns it unchanged.

    ::

        y = x,   ∂L / ∂x_i = min(max(∂L / ∂y_i, g_min), g_max)

    DQN clips the gradient of its errors to [-1, 1]. Forward-mode differentiation, by
    `jax.jvp` or `jax.jacfwd`, raises a `TypeError`.

    Args:
        x: Floating-point array of any shape `[...]`, or a pytree of them.
        gradient_min: Lower bound :math:`g_min`, shape `[]` or shape `[...]`.
        gradient_max: Upper bound :math:`g_max`, in [`gradient_min`, inf], shape `[]` or
            shape `[...]`.

    Returns:
        `x`, unchanged.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> print(jax.grad(lambda x: 5.0 * rlaxlib.clip_gradient(x, -1.0, 1.0))(2.0))
        1.0

    References:
        Volodymyr Mnih and others, *Human-Level Control through Deep Reinforcement
        Learning*, 2015. https://doi.org/10.1038/nature14236
    """

    def clip(path: Any, leaf: Array) -> Array:
        bound = Float[ArrayLike, "[] or [...]"]
        checks.fit(
            **{f"x{jax.tree_util.keystr(path)}": (leaf, Float[ArrayLike, "..."])},
            gradient_min=(gradient_min, bound),
            gradient_max=(gradient_max, bound),
        )
        bounds = gradient_min.astype(leaf.dtype), gradient_max.astype(leaf.dtype)
        return _clip_gradient(leaf, *bounds)

    return jax.tree_util.tree_map_with_path(clip, x)


@jax.custom_vjp
def _clip_gradient(x: Array, low: Array, high: Array) -> Array:
    """Return `x`, with its gradient clipped."""
    del low, high
    return x


def _clip_gradient_fwd(x: Array, low: Array, high: Array) -> Any:
    return x, (low, high)


def _clip_gradient_bwd(bounds: tuple[Array, Array], cotangent: Array) -> Any:
    return jnp.clip(cotangent, *bounds), None, None


_clip_gradient.defvjp(_clip_gradient_fwd, _clip_gradient_bwd)
