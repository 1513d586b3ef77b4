"""Switch gradients off where an algorithm treats a quantity as a constant."""

from __future__ import annotations

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.typing import ArrayLike

from rlaxlib._core import derivatives


def stop_if(condition: ArrayLike, x: Array) -> Array:
    """Return `x`, held constant under differentiation if `condition` is true.

    Args:
        condition: A Python bool, or a traced bool of shape `[]`.
        x: Any array.

    Returns:
        An array equal to `x`.
    """
    if isinstance(condition, bool | np.bool_):
        return jax.lax.stop_gradient(x) if condition else x
    return jnp.where(condition, jax.lax.stop_gradient(x), x)


def error(
    target: Array, prediction: Array, stop: ArrayLike, reward: Array | None = None
) -> Array:
    """Return how far a prediction is from its target, constant or not.

    Args:
        target: The target, of any shape.
        prediction: The prediction, of the same shape.
        stop: Whether to hold the target constant under differentiation.
        reward: A part of the target that was left out of it, of the same shape. Added
            last, it is not rounded away where values are large.

    Returns:
        The target less the prediction.
    """
    difference = stop_if(stop, target) - prediction
    return difference if reward is None else stop_if(stop, reward) + difference


def correction(difference: Array, prediction: Array, stop: ArrayLike) -> Array:
    """Return a difference whose target is constant, where only it is known.

    The target is the difference plus the prediction. To add them up and take them
    apart again would round the difference to the precision of the prediction; here the
    value stays as it is, to the last digit, and the prediction is not even read.

    Args:
        difference: A target less its prediction, of any shape.
        prediction: The prediction, of the same shape.
        stop: Whether to hold the target constant under differentiation.

    Returns:
        The difference. If the target is constant, its derivative is that of the
        negated prediction.
    """
    if isinstance(stop, bool | np.bool_):
        return _to_constant(difference, prediction) if stop else difference
    return jnp.where(stop, _to_constant(difference, prediction), difference)


def _minus(change: Array, y: Array, difference: Array, prediction: Array) -> Array:
    del y, difference, prediction
    return -change


@derivatives.derived_by(None, _minus)
def _to_constant(difference: Array, prediction: Array) -> Array:
    """Return a difference to a target that is constant."""
    del prediction
    return difference


def clip_cotangent(x: Array, low: Array, high: Array) -> Array:
    """Return `x`, whose gradient is clipped on its way back.

    Forward-mode derivatives have no way back, and pass as they are.

    Args:
        x: Any array.
        low: Smallest value that an element of the gradient may have, of `x`'s shape.
        high: Largest value, of `x`'s shape.

    Returns:
        An array equal to `x`.
    """
    return _clipped(x, low, high)


def _first(x: Array, low: Array, high: Array) -> Array:
    del low, high
    return x


def _first_jvp(
    primals: tuple[Array, ...], tangents: tuple[Array, ...]
) -> tuple[Array, Array]:
    x, low, high = primals
    return x, cast(Array, _identity_p.bind(tangents[0], low, high))


_clipped = derivatives.derived(_first_jvp)(_first)


# JAX has a function whose gradient is what one likes (`custom_vjp`), and one whose
# gradient is the transpose of its linear derivative (`custom_jvp`); clipping is neither
# linear nor without a derivative. Hence a primitive: the identity, linear in its first
# argument, whose transpose clips.
_identity_p = Primitive("clip_cotangent")


def _differentiate(primals: Any, tangents: Any) -> Any:
    _, low, high = primals
    change = cast(Any, ad.instantiate_zeros)(tangents[0])
    return _identity_p.bind(*primals), _identity_p.bind(change, low, high)


def _transpose(cotangent: Any, tangent: Any, low: Array, high: Array) -> Any:
    del tangent
    return jnp.clip(cotangent, low, high), None, None


_identity_p.def_impl(_first)
_identity_p.def_abstract_eval(_first)
ad.deflinear2(_identity_p, _transpose)
ad.primitive_jvps[_identity_p] = _differentiate  # Linear in the first argument only.
batching.defbroadcasting(_identity_p)
mlir.register_lowering(_identity_p, mlir.lower_fun(_first, False))
