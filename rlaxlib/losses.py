"""Penalise a prediction for being off, one element at a time.

These functions take arrays of any shape and return one loss for each element. To get a
number to differentiate, average them, with a mask if some elements do not count: see
`masked_mean`.
"""

from __future__ import annotations

from typing import TypeVar, cast

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import checks, derivatives, dtypes, gradients

__all__ = [
    "clip_gradient",
    "expectile_loss",
    "huber_loss",
    "l2_loss",
    "likelihood",
    "log_loss",
    "scale_gradient",
]

ArrayTree = TypeVar("ArrayTree")


def l2_loss(predictions: ArrayLike, targets: ArrayLike | None = None) -> Array:
    """Penalise by half the squared error.

    .. math::

        L = ½ (x - y)²

    The half makes the gradient the error itself. Without targets, it is the error that
    is given; or the parameters are, to be kept small.

    Args:
        predictions: Predictions :math:`x`, shape `[...]`.
        targets: Targets :math:`y`, of the same shape, shape `[...]`; or None for 0.

    Returns:
        Losses, shape `[...]`.

    Raises:
        ArgumentError: If an argument has the wrong dtype, or the shapes differ.

    Example:
        >>> print(rlaxlib.l2_loss(jnp.array([1.0, 4.0]), jnp.array([1.0, 1.0])))
        [0.  4.5]

    References:
        Christopher M. Bishop, *Pattern Recognition and Machine Learning*, section 1.1,
        2006. https://www.microsoft.com/en-us/research/publication/pattern-recognition-machine-learning/
    """
    predictions, targets = checks.arrays(
        predictions=(predictions, "float[...]"),
        targets=(targets, "float[...] or None"),
    )
    (predictions, targets), narrow = dtypes.widen(predictions, targets)
    error = predictions if targets is None else predictions - targets
    return narrow(0.5 * jnp.square(error))


def huber_loss(x: ArrayLike, delta: ArrayLike = 1.0) -> Array:
    """Penalise small errors by their square, and large ones by their size.

    .. math::

        L = { ½ x²            if |x| ≤ δ
            { δ (|x| - ½ δ)   otherwise

    The gradient is the error, clipped to :math:`[-δ, δ]`: a single large error cannot
    upset the rest. `l2_loss` of `clip_gradient` has the same gradient.

    Args:
        x: Errors, shape `[...]`.
        delta: Size :math:`δ` of the error where the square ends, more than 0,
            shape `[]`.

    Returns:
        Losses, shape `[...]`.

    Raises:
        ArgumentError: If an argument has the wrong dtype or shape, or if `delta` is not
            positive.

    Example:
        >>> print(rlaxlib.huber_loss(jnp.array([0.5, -3.0]), delta=1.0))
        [0.125 2.5  ]

    References:
        Peter J. Huber, *Robust Estimation of a Location Parameter*, 1964.
        https://doi.org/10.1214/aoms/1177703732
    """
    x, delta = checks.arrays(x=(x, "float[...]"), delta=(delta, "float[]"))
    checks.within("(0, inf)", delta=delta)
    (x, delta), narrow = dtypes.widen(x, delta)
    return narrow(_huber(x, delta))


def likelihood(predictions: ArrayLike, targets: ArrayLike) -> Array:
    """Return the likelihood of targets under predicted probabilities.

    .. math::

        ℓ = p^t (1 - p)^{1-t}

    Args:
        predictions: Probabilities :math:`p`, each in [0, 1], shape `[...]`.
        targets: Targets :math:`t`, 0 or 1 or in between, of the same shape,
            shape `[...]`.

    Returns:
        Likelihoods, shape `[...]`.

    Raises:
        ArgumentError: If an argument has the wrong dtype, or the shapes differ.

    Example:
        >>> print(rlaxlib.likelihood(jnp.array([0.75, 0.75]), jnp.array([1.0, 0.0])))
        [0.75 0.25]

    References:
        Christopher M. Bishop, *Pattern Recognition and Machine Learning*, section
        4.3.2, 2006. https://www.microsoft.com/en-us/research/publication/pattern-recognition-machine-learning/
    """
    predictions, targets = checks.arrays(
        predictions=(predictions, "float[...]"), targets=(targets, "float[...]")
    )
    (p, t), narrow = dtypes.widen(predictions, targets)
    return narrow(_power(p, t) * _power(1 - p, 1 - t))


def log_loss(predictions: ArrayLike, targets: ArrayLike) -> Array:
    """Penalise predicted probabilities by the negative log of the likelihood.

    .. math::

        L = -t log p - (1 - t) log(1 - p)

    A prediction that is certain and right has no loss, and a finite gradient. One that
    is certain and wrong has an infinite loss: from a network take logits, and
    `categorical_cross_entropy`.

    Args:
        predictions: Probabilities :math:`p`, each in [0, 1], shape `[...]`.
        targets: Targets :math:`t`, 0 or 1 or in between, of the same shape,
            shape `[...]`.

    Returns:
        Losses, shape `[...]`.

    Raises:
        ArgumentError: If an argument has the wrong dtype, or the shapes differ.

    Example:
        >>> print(rlaxlib.log_loss(jnp.array([1.0, 0.0]), jnp.array([1.0, 0.0])))
        [0. 0.]

    References:
        Christopher M. Bishop, *Pattern Recognition and Machine Learning*, section
        4.3.2, 2006. https://www.microsoft.com/en-us/research/publication/pattern-recognition-machine-learning/
    """
    predictions, targets = checks.arrays(
        predictions=(predictions, "float[...]"), targets=(targets, "float[...]")
    )
    (p, t), narrow = dtypes.widen(predictions, targets)
    # What is expected never, and never predicted, is no surprise: 0 log 0 is 0.
    hit = jnp.log(jnp.where((t == 0) & (p == 0), jnp.ones_like(p), p))
    miss = jnp.log1p(-jnp.where((t == 1) & (p == 1), jnp.zeros_like(p), p))
    return narrow(0 - (t * hit + (1 - t) * miss))


def expectile_loss(
    predictions: ArrayLike, targets: ArrayLike, expectile: ArrayLike
) -> Array:
    """Penalise by the squared error, too low and too high not alike.

    .. math::

        L = |τ - 1[y < x]| (y - x)²

    A prediction below the target weighs :math:`τ`, one above it :math:`1 - τ`. So the
    prediction that does best is the :math:`τ`-expectile of the targets: their mean at
    0.5, and towards 1 something like their maximum, as implicit Q-learning wants it.

    Args:
        predictions: Predictions :math:`x`, shape `[...]`.
        targets: Targets :math:`y`, of the same shape, shape `[...]`.
        expectile: Which expectile :math:`τ` to predict, in [0, 1], shape `[]`.

    Returns:
        Losses, shape `[...]`.

    Raises:
        ArgumentError: If an argument has the wrong dtype or shape, or if `expectile`
            lies outside [0, 1].

    Example:
        >>> predictions, targets = jnp.array([2.0, 0.0]), jnp.array([1.0, 1.0])
        >>> print(rlaxlib.expectile_loss(predictions, targets, expectile=0.75))
        [0.25 0.75]

    References:
        Whitney K. Newey and James L. Powell, *Asymmetric Least Squares Estimation and
        Testing*, 1987. https://doi.org/10.2307/1911031

        Ilya Kostrikov, Ashvin Nair and Sergey Levine, *Offline Reinforcement Learning
        with Implicit Q-Learning*, 2021. https://arxiv.org/abs/2110.06169
    """
    predictions, targets, expectile = checks.arrays(
        predictions=(predictions, "float[...]"),
        targets=(targets, "float[...]"),
        expectile=(expectile, "float[]"),
    )
    checks.within("[0, 1]", expectile=expectile)
    (predictions, targets, expectile), narrow = dtypes.widen(
        predictions, targets, expectile
    )
    error = targets - predictions
    above = (error < 0).astype(error.dtype)
    return narrow(_weight(expectile, above) * jnp.square(error))


def clip_gradient(
    x: ArrayTree, gradient_min: ArrayLike, gradient_max: ArrayLike
) -> ArrayTree:
    """Return `x` as it is, and clip its gradient on the way back.

    .. math::

        y = x,   ∂L / ∂x_i = min(max(∂L / ∂y_i, g_min), g_max)

    Clipping the gradient of an error to [-1, 1] is how DQN kept its steps small. It is
    a rule for gradients, so in forward mode, where there is none, derivatives pass
    unchanged.

    Args:
        x: Floating-point array of any shape `[...]`, or any pytree of them.
        gradient_min: Smallest value of an element of the gradient, shape `[]`; or one
            for each element of `x`, shape `[...]`.
        gradient_max: Largest value of an element of the gradient, at least
            `gradient_min`, shape `[]`; or one for each element of `x`, shape `[...]`.

    Returns:
        What was given.

    Raises:
        ArgumentError: If an argument has the wrong dtype or shape, or if the bounds are
            the wrong way round.

    Example:
        >>> loss = lambda x: 5.0 * rlaxlib.clip_gradient(x, -1.0, 1.0)
        >>> print(jax.grad(loss)(2.0))
        1.0

    References:
        Volodymyr Mnih and others, *Human-Level Control through Deep Reinforcement
        Learning*, 2015. https://doi.org/10.1038/nature14236
    """

    def clip(leaf: ArrayLike) -> Array:
        array, low, high = checks.arrays(
            x=(leaf, "float[...]"),
            gradient_min=(gradient_min, "float[] or [...]"),
            gradient_max=(gradient_max, "float[] or [...]"),
        )
        checks.ordered(gradient_min=low, gradient_max=high)
        bounds = (jnp.full_like(array, bound) for bound in (low, high))
        return gradients.clip_cotangent(array, *bounds)

    return cast(ArrayTree, jax.tree.map(clip, x))


def scale_gradient(x: ArrayTree, scale: ArrayLike) -> ArrayTree:
    """Return `x` as it is, and scale its derivative.

    .. math::

        y = x,   ∂y / ∂x = c

    A half at the start of each step that a model unrolls keeps MuZero's gradients as
    large as those of a single step; the inverse of the number of heads keeps a trunk
    that many share from learning faster than they do. With 0 it is a stop-gradient.
    With -1 it turns the gradient round, so that what comes before unlearns what serves
    the loss.

    The value is that of `x`, to the last digit. The common way to write it, `c * x + (1
    - c) * stop_gradient(x)`, rounds it, and has no value where `x` is infinite and
    :math:`c` is 0.

    Args:
        x: Floating-point array of any shape `[...]`, or any pytree of them.
        scale: Factor :math:`c` of the derivative, finite, a constant, shape `[]`.

    Returns:
        What was given.

    Raises:
        ArgumentError: If an argument has the wrong dtype or shape, or if `scale` is not
            finite.

    Example:
        >>> loss = lambda x: rlaxlib.scale_gradient(x, 0.5) ** 2
        >>> print(loss(3.0), jax.grad(loss)(3.0))
        9.0 3.0

    References:
        Julian Schrittwieser and others, *Mastering Atari, Go, Chess and Shogi by
        Planning with a Learned Model*, appendix G, 2019.
        https://arxiv.org/abs/1911.08265

        Yaroslav Ganin and Victor Lempitsky, *Unsupervised Domain Adaptation by
        Backpropagation*, 2014. https://arxiv.org/abs/1409.7495
    """
    (scale,) = checks.arrays(scale=(scale, "float[]"))
    checks.within("(-inf, inf)", scale=scale)

    def scaled(leaf: ArrayLike) -> Array:
        (array,) = checks.arrays(x=(leaf, "float[...]"))
        return _scaled(array, scale)

    return cast(ArrayTree, jax.tree.map(scaled, x))


def _huber_change(change: Array, y: Array, x: Array, delta: Array) -> Array:
    del y
    # In two parts, which are `x` and `sign(x) * delta`. A shorter loop, over 13 to 18
    # numbers, LLVM unrolls into single numbers, which takes twice the time.
    size = jnp.abs(x)
    near = jnp.where(size <= delta, x, 0.0)
    far = jnp.where(size <= delta, 0.0, jnp.minimum(size, delta))
    return change * near + change * jnp.sign(x) * far


def _huber_change_by_delta(change: Array, y: Array, x: Array, delta: Array) -> Array:
    del y
    return change * jax.nn.relu(jnp.abs(x) - delta)


@derivatives.derived_by(_huber_change, _huber_change_by_delta)
def _huber(x: Array, delta: Array) -> Array:
    """Return a square near 0, and a straight line beyond."""
    size = jnp.abs(x)
    near = jnp.minimum(size, delta)
    return 0.5 * jnp.square(near) + delta * (size - near)


def _weight_change(change: Array, y: Array, expectile: Array, above: Array) -> Array:
    del y, expectile
    return jnp.where(above == 1, -change, change)


@derivatives.derived_by(_weight_change, None)
def _weight(expectile: Array, above: Array) -> Array:
    """Return how much an error weighs, with `above` 1 if the prediction is, else 0.

    Were it one of two numbers, LLVM would unroll a loop over 20 to 27.
    """
    return jnp.abs(expectile - above)


def _power_change(change: Array, y: Array, base: Array, exponent: Array) -> Array:
    del y
    # With an exponent of 0 the slope is 0, also at a base of 0: its power of -1 is not.
    before = jnp.where(exponent == 0, jnp.ones_like(base), exponent - 1)
    return change * exponent * base**before


def _power_change_by_exponent(
    change: Array, y: Array, base: Array, exponent: Array
) -> Array:
    del exponent
    safe = jnp.where(base == 0, jnp.ones_like(base), base)
    return change * y * jnp.log(safe)


@derivatives.derived_by(_power_change, _power_change_by_exponent)
def _power(base: Array, exponent: Array) -> Array:
    """Raise to a power, with the right gradient where base and exponent may be 0."""
    return base**exponent


def _scaled_change(change: Array, y: Array, x: Array, scale: Array) -> Array:
    del y, x
    (change,), narrow = dtypes.widen(change)
    return narrow(scale.astype(change.dtype) * change)


@derivatives.derived_by(_scaled_change, None)
def _scaled(x: Array, scale: Array) -> Array:
    """Return the first, whose derivative is the second."""
    del scale
    return x
