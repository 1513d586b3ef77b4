"""Elementwise value transforms and their inverses: symlog, hyperbolic, sinh, power.

Returns span orders of magnitude, while networks learn best around 1. A transform leaves
small values nearly unchanged and compresses large ones; its inverse maps predictions of
the network back. All functions here are odd, except `sigmoid` and `logit`, and
accurate for small values.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Float

__all__ = [
    "hyperbolic_arcsin",
    "hyperbolic_sin",
    "identity",
    "logit",
    "power",
    "sigmoid",
    "signed_expm1",
    "signed_hyperbolic",
    "signed_logp1",
    "signed_parabolic",
]


@checked
def identity(x: Float[ArrayLike, "..."]) -> Float[Array, "..."]:
    """Return the values unchanged (identity transform).

    Takes values of any shape, returns one value for each.

    ::

        f(x) = x

    Args:
        x: Values, shape `[...]`.

    Returns:
        The same values, shape `[...]`.

    Raises:
        ArgumentError: If `x` has the wrong dtype.

    Example:
        >>> print(rlaxlib.identity(jnp.array([-2.0, 3.0])))
        [-2.  3.]

    References:
        Hado van Hasselt and others, *General Non-Linear Bellman Equations*, 2019.
        https://arxiv.org/abs/1907.03687
    """
    return x


@checked
def sigmoid(x: Float[ArrayLike, "..."]) -> Float[Array, "..."]:
    """Compute the logistic sigmoid.

    Takes values of any shape, returns one value for each.

    ::

        f(x) = 1 / (1 + e^{-x})

    Args:
        x: Values, shape `[...]`.

    Returns:
        Values in (0, 1), shape `[...]`.

    Raises:
        ArgumentError: If `x` has the wrong dtype.

    Example:
        >>> print(rlaxlib.sigmoid(jnp.array([-100.0, 0.0])))
        [0.  0.5]

    References:
        Christopher M. Bishop, *Pattern Recognition and Machine Learning*, section
        4.3.2, 2006. https://www.microsoft.com/en-us/research/publication/pattern-recognition-machine-learning/
    """
    return jax.nn.sigmoid(x)


@checked
def logit(x: Float[ArrayLike, "... in [0, 1]"]) -> Float[Array, "..."]:
    """Compute the logit, inverse of `sigmoid`.

    Takes values of any shape, returns one value for each.

    ::

        f(x) = log (x / (1 - x))

    Args:
        x: Values in [0, 1], shape `[...]`.

    Returns:
        Log-odds, shape `[...]`: -∞ for 0, ∞ for 1, and NaN outside [0, 1].

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> print(rlaxlib.logit(jnp.array([0.0, 0.5])))
        [-inf   0.]

    References:
        Christopher M. Bishop, *Pattern Recognition and Machine Learning*, section
        4.3.2, 2006. https://www.microsoft.com/en-us/research/publication/pattern-recognition-machine-learning/
    """
    return jnp.log(x) - jnp.log1p(-x)


@checked
def signed_logp1(x: Float[ArrayLike, "..."]) -> Float[Array, "..."]:
    """Compute the signed logarithm (symlog of DreamerV3).

    Takes values of any shape, returns one value for each.

    ::

        f(x) = sign(x) log(|x| + 1)

    For large values it grows more slowly than any power. Its derivative at 0 is 1.

    Args:
        x: Values, shape `[...]`.

    Returns:
        Transformed values, shape `[...]`.

    Raises:
        ArgumentError: If `x` has the wrong dtype.

    Example:
        >>> print(rlaxlib.signed_logp1(jnp.exp(3.0) - 1.0).round(4))
        3.0

    References:
        Danijar Hafner and others, *Mastering Diverse Domains through World Models*,
        2023. https://arxiv.org/abs/2301.04104
    """
    return _with_sign(jnp.log1p(jnp.abs(x)), x)


@checked
def signed_expm1(x: Float[ArrayLike, "..."]) -> Float[Array, "..."]:
    """Compute the signed exponential (symexp), inverse of `signed_logp1`.

    Takes values of any shape, returns one value for each.

    ::

        f(x) = sign(x) (e^{|x|} - 1)

    Args:
        x: Values, shape `[...]`. Beyond ±88, the result overflows in single precision.

    Returns:
        Values on the original scale, shape `[...]`.

    Raises:
        ArgumentError: If `x` has the wrong dtype.

    Example:
        >>> print(rlaxlib.signed_expm1(-jnp.log(3.0)).round(4))
        -2.0

    References:
        Danijar Hafner and others, *Mastering Diverse Domains through World Models*,
        2023. https://arxiv.org/abs/2301.04104
    """
    return _with_sign(jnp.expm1(jnp.abs(x)), x)


@checked
def signed_hyperbolic(
    x: Float[ArrayLike, "..."], eps: Float[ArrayLike, "in [0, inf)"] = 1e-3
) -> Float[Array, "..."]:
    """Compute the signed hyperbolic (square-root) transform of R2D2 and MuZero.

    Takes values of any shape, returns one value for each.

    ::

        f(x) = sign(x) (√(|x| + 1) - 1) + ε x

    The linear term bounds the derivative of the inverse by :math:`1/ε`.

    Args:
        x: Values, shape `[...]`.
        eps: Coefficient :math:`ε` of the linear term, in [0, inf), shape `[]`.

    Returns:
        Transformed values, shape `[...]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> print(rlaxlib.signed_hyperbolic(jnp.array([-3.0, 8.0]), eps=0.5))
        [-2.5  6. ]

    References:
        Tobias Pohlen and others, *Observe and Look Further: Achieving Consistent
        Performance on Atari*, 2018. https://arxiv.org/abs/1805.11593
    """
    size = jnp.abs(x)
    # √(|x| + 1) - 1 = |x| / (√(|x| + 1) + 1), which does not cancel near 0.
    return _with_sign(size / (jnp.sqrt(size + 1) + 1) + eps * size, x)


@checked
def signed_parabolic(
    x: Float[ArrayLike, "..."], eps: Float[ArrayLike, "in [0, inf)"] = 1e-3
) -> Float[Array, "..."]:
    """Compute the signed parabolic transform, inverse of `signed_hyperbolic`.

    Takes values of any shape, returns one value for each.

    ::

        f(x) = sign(x) w (w + 2),   w = |x| / (h + √(h² + ε |x|)),   h = ½ + ε

    The form of Pohlen and others has no precision left for small :math:`x`.

    Args:
        x: Values, shape `[...]`.
        eps: Coefficient :math:`ε` of `signed_hyperbolic`, in [0, inf), shape `[]`.

    Returns:
        Values on the original scale, shape `[...]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> print(rlaxlib.signed_parabolic(jnp.array([-2.5, 6.0]), eps=0.5))
        [-3.  8.]

    References:
        Tobias Pohlen and others, *Observe and Look Further: Achieving Consistent
        Performance on Atari*, 2018. https://arxiv.org/abs/1805.11593
    """
    half, size = 0.5 + eps, jnp.abs(x)
    w = size / (half + jnp.sqrt(jnp.square(half) + eps * size))
    return _with_sign(w * (w + 2), x)


@checked
def hyperbolic_sin(x: Float[ArrayLike, "..."]) -> Float[Array, "..."]:
    """Compute the hyperbolic sine, inverse of `hyperbolic_arcsin`.

    Takes values of any shape, returns one value for each.

    ::

        f(x) = sinh x = (e^x - e^{-x}) / 2

    Args:
        x: Values, shape `[...]`. Beyond ±89, the result overflows in single precision.

    Returns:
        Values on the original scale, shape `[...]`.

    Raises:
        ArgumentError: If `x` has the wrong dtype.

    Example:
        >>> print(rlaxlib.hyperbolic_sin(jnp.log(2.0)).round(4))
        0.75

    References:
        John B. Burbidge, Lonnie Magee and A. Leslie Robb, *Alternative Transformations
        to Handle Extreme Values of the Dependent Variable*, 1988.
        https://doi.org/10.1080/01621459.1988.10478575
    """
    return jnp.sinh(x)


@checked
def hyperbolic_arcsin(x: Float[ArrayLike, "..."]) -> Float[Array, "..."]:
    """Compute the inverse hyperbolic sine (arsinh).

    Takes values of any shape, returns one value for each.

    ::

        f(x) = arsinh x = log (x + √(x² + 1))

    It grows like `signed_logp1`, and is smooth at 0, where its derivative is 1.

    Args:
        x: Values, shape `[...]`.

    Returns:
        Transformed values, shape `[...]`.

    Raises:
        ArgumentError: If `x` has the wrong dtype.

    Example:
        >>> print(rlaxlib.hyperbolic_arcsin(0.75) == jnp.log(2.0))
        True

    References:
        John B. Burbidge, Lonnie Magee and A. Leslie Robb, *Alternative Transformations
        to Handle Extreme Values of the Dependent Variable*, 1988.
        https://doi.org/10.1080/01621459.1988.10478575
    """
    return jnp.arcsinh(x)


@checked
def power(
    x: Float[ArrayLike, "..."], p: Float[ArrayLike, "in (0, inf)"]
) -> Float[Array, "..."]:
    """Compute the signed power transform.

    Takes values of any shape, returns one value for each.

    ::

        f(x) = sign(x) ((|x|/q + 1)^p - 1) / q,   q = √p

    Powers below 1 compress, powers above 1 expand. The inverse has power :math:`1/p`.

    Args:
        x: Values, shape `[...]`.
        p: Power :math:`p`, in (0, inf), shape `[]`.

    Returns:
        Transformed values, shape `[...]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> print(rlaxlib.power(jnp.array([-2.0, 6.0]), p=4.0).round(4))
        [ -7.5 127.5]

    References:
        In-Kwon Yeo and Richard A. Johnson, *A New Family of Power Transformations to
        Improve Normality or Symmetry*, 2000. https://doi.org/10.1093/biomet/87.4.954
    """
    q = jnp.sqrt(p)
    # (|x|/q + 1)^p - 1 would cancel near 0.
    size = jnp.expm1(p * jnp.log1p(jnp.abs(x) / q)) / q
    return _with_sign(size, x)


def _with_sign(size: Array, x: Array) -> Array:
    """Return `size` with the sign of `x`."""
    # `jnp.sign` is 0 at 0, and would make the derivative 0.
    return jnp.where(x < 0, -size, size)
