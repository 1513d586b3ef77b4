"""Squash numbers monotonically, and stretch them back, one element at a time.

Returns may be of any size, and networks learn best what is near 1. A squashing function
keeps small numbers as they are, more or less, and makes large ones small; its inverse
brings back what the network then predicts.

All functions here are odd, but for `sigmoid` and its inverse. They keep their digits
however close to 0 their argument is, and so do their slopes, at 0 included.
"""

from __future__ import annotations

from typing import Any, cast

from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike

from rlaxlib._core import checks, dtypes
from rlaxlib.transforms import _formulas

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
    "symexp",
    "symlog",
]


def identity(x: ArrayLike) -> Array:
    """Return numbers as they are.

    .. math::

        f(x) = x

    For where a transform is asked for, and none is wanted.

    Args:
        x: Numbers, shape `[...]`.

    Returns:
        The numbers, shape `[...]`.

    Raises:
        ArgumentError: If `x` has the wrong dtype.

    Example:
        >>> print(rlaxlib.identity(jnp.array([-2.0, 3.0])))
        [-2.  3.]

    References:
        Hado van Hasselt, John Quan, Matteo Hessel, Zhongwen Xu, Diana Borsa and André
        Barreto, *General Non-Linear Bellman Equations*, 2019.
        https://arxiv.org/abs/1907.03687
    """
    (x,) = checks.arrays(x=(x, "float[...]"))
    return x


def sigmoid(x: ArrayLike) -> Array:
    """Squash any number into (0, 1).

    .. math::

        f(x) = 1 / (1 + e^{-x})

    Args:
        x: Numbers, shape `[...]`.

    Returns:
        Numbers in (0, 1), shape `[...]`.

    Raises:
        ArgumentError: If `x` has the wrong dtype.

    Example:
        >>> print(rlaxlib.sigmoid(jnp.array([-100.0, 0.0])))
        [0.  0.5]

    References:
        Christopher M. Bishop, *Pattern Recognition and Machine Learning*, section
        4.3.2, 2006. https://www.microsoft.com/en-us/research/publication/pattern-recognition-machine-learning/
    """
    (x,) = checks.arrays(x=(x, "float[...]"))
    (x,), narrow = dtypes.widen(x)
    return narrow(_formulas.sigmoid(x))


def logit(x: ArrayLike) -> Array:
    """Stretch (0, 1) to all numbers: the inverse of `sigmoid`.

    .. math::

        f(x) = log (x / (1 - x))

    Args:
        x: Numbers in [0, 1], shape `[...]`.

    Returns:
        Numbers, shape `[...]`: minus infinity for 0, infinity for 1, and NaN for what
        lies outside.

    Raises:
        ArgumentError: If `x` has the wrong dtype.

    Example:
        >>> print(rlaxlib.logit(jnp.array([0.0, 0.5])))
        [-inf   0.]

    References:
        Christopher M. Bishop, *Pattern Recognition and Machine Learning*, section
        4.3.2, 2006. https://www.microsoft.com/en-us/research/publication/pattern-recognition-machine-learning/
    """
    (x,) = checks.arrays(x=(x, "float[...]"))
    (x,), narrow = dtypes.widen(x)
    return narrow(_formulas.logit(x))


def signed_logp1(x: ArrayLike) -> Array:
    """Squash numbers by a logarithm, on either side of 0 (symlog).

    .. math::

        f(x) = sign(x) log(|x| + 1)

    Of the functions that squash, this squashes the most. Its slope at 0 is 1.

    Args:
        x: Numbers, shape `[...]`.

    Returns:
        Numbers, shape `[...]`.

    Raises:
        ArgumentError: If `x` has the wrong dtype.

    Example:
        >>> print(rlaxlib.signed_logp1(jnp.exp(3.0) - 1.0).round(4))
        3.0

    References:
        Danijar Hafner, Jurgis Pasukonis, Jimmy Ba and Timothy Lillicrap, *Mastering
        Diverse Domains through World Models*, 2023. https://arxiv.org/abs/2301.04104
    """
    (x,) = checks.arrays(x=(x, "float[...]"))
    (x,), narrow = dtypes.widen(x)
    return narrow(_formulas.signed_logp1(x))


def signed_expm1(x: ArrayLike) -> Array:
    """Stretch numbers by an exponential: the inverse of `signed_logp1` (symexp).

    .. math::

        f(x) = sign(x) (e^{|x|} - 1)

    Args:
        x: Numbers, shape `[...]`. In single precision, those beyond 88 become infinite.

    Returns:
        Numbers, shape `[...]`.

    Raises:
        ArgumentError: If `x` has the wrong dtype.

    Example:
        >>> print(rlaxlib.signed_expm1(-jnp.log(3.0)).round(4))
        -2.0

    References:
        Danijar Hafner, Jurgis Pasukonis, Jimmy Ba and Timothy Lillicrap, *Mastering
        Diverse Domains through World Models*, 2023. https://arxiv.org/abs/2301.04104
    """
    (x,) = checks.arrays(x=(x, "float[...]"))
    (x,), narrow = dtypes.widen(x)
    return narrow(_formulas.signed_expm1(x))


def symlog(x: ArrayLike) -> Array:
    """Squash numbers by a logarithm, under the name that DreamerV3 gives it.

    .. math::

        f(x) = sign(x) log(|x| + 1)

    The same as `signed_logp1`. Some libraries learn the mean of a distribution of
    squashed numbers, others that of a distribution over stretched bins, and DreamerV3
    has been both: see `muzero_pair` and `unbiased_transform_pair`.

    Args:
        x: Numbers, shape `[...]`.

    Returns:
        Numbers, shape `[...]`.

    Raises:
        ArgumentError: If `x` has the wrong dtype.

    Example:
        >>> print(rlaxlib.symlog(jnp.array([1.0 - jnp.e, 0.0])).round(4))
        [-1.  0.]

    References:
        Danijar Hafner, Jurgis Pasukonis, Jimmy Ba and Timothy Lillicrap, *Mastering
        Diverse Domains through World Models*, 2023. https://arxiv.org/abs/2301.04104
    """
    (x,) = checks.arrays(x=(x, "float[...]"))
    (x,), narrow = dtypes.widen(x)
    return narrow(_formulas.signed_logp1(x))


def symexp(x: ArrayLike) -> Array:
    """Stretch numbers by an exponential: the inverse of `symlog`.

    .. math::

        f(x) = sign(x) (e^{|x|} - 1)

    The same as `signed_expm1`.

    Args:
        x: Numbers, shape `[...]`. In single precision, those beyond 88 become infinite.

    Returns:
        Numbers, shape `[...]`.

    Raises:
        ArgumentError: If `x` has the wrong dtype.

    Example:
        >>> print(rlaxlib.symexp(jnp.array([-1.0, 0.0])).round(4))
        [-1.7183  0.    ]

    References:
        Danijar Hafner, Jurgis Pasukonis, Jimmy Ba and Timothy Lillicrap, *Mastering
        Diverse Domains through World Models*, 2023. https://arxiv.org/abs/2301.04104
    """
    (x,) = checks.arrays(x=(x, "float[...]"))
    (x,), narrow = dtypes.widen(x)
    return narrow(_formulas.signed_expm1(x))


def signed_hyperbolic(x: ArrayLike, eps: ArrayLike = 1e-3) -> Array:
    """Squash numbers by a square root, on either side of 0.

    .. math::

        f(x) = sign(x) (√(|x| + 1) - 1) + ε x

    This is what R2D2 and MuZero learn values by. The linear part keeps the inverse from
    growing too steep: its slope is never more than :math:`1/ε`.

    Args:
        x: Numbers, shape `[...]`.
        eps: Slope :math:`ε` of the linear part, at least 0, shape `[]`.

    Returns:
        Numbers, shape `[...]`.

    Raises:
        ArgumentError: If an argument has the wrong dtype or shape, or if `eps` is
            negative.

    Example:
        >>> print(rlaxlib.signed_hyperbolic(jnp.array([-3.0, 8.0]), eps=0.5))
        [-2.5  6. ]

    References:
        Tobias Pohlen and others, *Observe and Look Further: Achieving Consistent
        Performance on Atari*, 2018. https://arxiv.org/abs/1805.11593
    """
    x, slope = checks.arrays(x=(x, "float[...]"), eps=(eps, "float[]"))
    checks.within("[0, inf)", eps=eps)
    (x, slope), narrow = dtypes.widen(x, slope)
    return narrow(_formulas.signed_hyperbolic(x, slope))


def signed_parabolic(x: ArrayLike, eps: ArrayLike = 1e-3) -> Array:
    """Stretch numbers by a square: the inverse of `signed_hyperbolic`.

    .. math::

        f(x) = sign(x) w (w + 2),
        w = (2 |x|) / (1 + 2 ε + √((1 + 2 ε)² + 4 ε |x|))

    The root :math:`w` is written so that nothing cancels. As Pohlen and others give it,
    it is the difference of two numbers of about :math:`1/(2 ε)`, which has no digits
    left where :math:`x` is small.

    Args:
        x: Numbers, shape `[...]`.
        eps: Slope :math:`ε` of the linear part of `signed_hyperbolic`, at least 0,
            shape `[]`.

    Returns:
        Numbers, shape `[...]`.

    Raises:
        ArgumentError: If an argument has the wrong dtype or shape, or if `eps` is
            negative.

    Example:
        >>> print(rlaxlib.signed_parabolic(jnp.array([-2.5, 6.0]), eps=0.5))
        [-3.  8.]

    References:
        Tobias Pohlen and others, *Observe and Look Further: Achieving Consistent
        Performance on Atari*, 2018. https://arxiv.org/abs/1805.11593
    """
    x, slope = checks.arrays(x=(x, "float[...]"), eps=(eps, "float[]"))
    checks.within("[0, inf)", eps=eps)
    (x, slope), narrow = dtypes.widen(x, slope)
    return narrow(_formulas.signed_parabolic(x, slope))


def hyperbolic_sin(x: ArrayLike) -> Array:
    """Stretch numbers by the hyperbolic sine: the inverse of `hyperbolic_arcsin`.

    .. math::

        f(x) = sinh x = (e^x - e^{-x}) / 2

    Args:
        x: Numbers, shape `[...]`. In single precision, those beyond 89 become infinite.

    Returns:
        Numbers, shape `[...]`.

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
    (x,) = checks.arrays(x=(x, "float[...]"))
    (x,), narrow = dtypes.widen(x)
    return narrow(_formulas.sinh(x))


def hyperbolic_arcsin(x: ArrayLike) -> Array:
    """Squash numbers by the inverse of the hyperbolic sine.

    .. math::

        f(x) = arsinh x = log (x + √(x² + 1))

    Like `signed_logp1` for large numbers, and smooth at 0, where its slope is 1.

    Args:
        x: Numbers, shape `[...]`.

    Returns:
        Numbers, shape `[...]`.

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
    (x,) = checks.arrays(x=(x, "float[...]"))
    (x,), narrow = dtypes.widen(x)
    return narrow(_formulas.arcsinh(x))


def power(x: ArrayLike, p: ArrayLike) -> Array:
    """Squash or stretch numbers by a power, on either side of 0.

    .. math::

        f(x) = sign(x) ((|x|/q + 1)^p - 1) / q,   q = √p

    Powers below 1 squash, powers above 1 stretch: that of :math:`1/p` is the inverse of
    that of :math:`p`. The slope at 0 is 1.

    Args:
        x: Numbers, shape `[...]`.
        p: Power :math:`p`, more than 0, shape `[]`.

    Returns:
        Numbers, shape `[...]`.

    Raises:
        ArgumentError: If an argument has the wrong dtype or shape, or if `p` is not
            positive.

    Example:
        >>> print(rlaxlib.power(jnp.array([-2.0, 6.0]), p=4.0))
        [ -7.5 127.5]

    References:
        In-Kwon Yeo and Richard A. Johnson, *A New Family of Power Transformations to
        Improve Normality or Symmetry*, 2000. https://doi.org/10.1093/biomet/87.4.954
    """
    x, exponent = checks.arrays(x=(x, "float[...]"), p=(p, "float[]"))
    checks.within("(0, inf)", p=p)
    (x, exponent), narrow = dtypes.widen(x, exponent)
    known = None if isinstance(p, Tracer) else float(cast(Any, p))
    if known == 2:
        return narrow(_formulas.square(x))
    if known == 0.5:
        return narrow(_formulas.square_root(x))
    if known is not None and known < 1:
        return narrow(_formulas.power_below_one(x, exponent))
    return narrow(_formulas.power(x, exponent))
