"""Pair transforms with their inverses, and chain the pairs.

A value function may be learnt in another space than that of returns: `apply` leads
there, `apply_inv` back. Two kinds of pairs are made here: those that squash, and those
that turn a number into a distribution over bins.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from rlaxlib._core import checks, dtypes
from rlaxlib.transforms import _formulas, _hl_gauss, _squashing, _two_hot

__all__ = [
    "DISCOUNT_TRANSFORM_PAIR",
    "HYPERBOLIC_SIN_PAIR",
    "IDENTITY_PAIR",
    "SIGNED_HYPERBOLIC_PAIR",
    "SIGNED_LOGP1_PAIR",
    "SYMLOG_PAIR",
    "TxPair",
    "compose_tx",
    "hl_gauss_pair",
    "muzero_pair",
    "out_of_range",
    "twohot_pair",
    "unbiased_transform_pair",
]


class TxPair(NamedTuple):
    """A transform and its inverse.

    A pair can be pickled, and be a static argument of a compiled function.

    Attributes:
        apply: The transform, often a function that squashes.
        apply_inv: Its inverse.
    """

    apply: Callable[[ArrayLike], Array]
    apply_inv: Callable[[ArrayLike], Array]


def compose_tx(*tx_list: TxPair) -> TxPair:
    """Chain pairs into one.

    .. math::

        f(x) = f_n(… f_1(x)),   f⁻¹(y) = f_1⁻¹(… f_n⁻¹(y))

    In half precision, the result alone is rounded, and nothing on the way.

    Args:
        *tx_list: Pairs, in the order in which `apply` applies them; none give the
            identity.

    Returns:
        A pair.

    Raises:
        ArgumentError: From its functions, if an argument has the wrong shape or dtype.

    Example:
        >>> squash = rlaxlib.SIGNED_HYPERBOLIC_PAIR
        >>> twice = rlaxlib.compose_tx(squash, squash)
        >>> print(twice.apply_inv(twice.apply(jnp.array([-9.0, 16.0]))).round(4))
        [-9. 16.]

    References:
        Hado van Hasselt, John Quan, Matteo Hessel, Zhongwen Xu, Diana Borsa and André
        Barreto, *General Non-Linear Bellman Equations*, 2019.
        https://arxiv.org/abs/1907.03687
    """
    each = _ComposeTx(tx_list)
    return TxPair(each.apply, each.apply_inv)


def twohot_pair(min_value: float, max_value: float, num_bins: int) -> TxPair:
    """Make a pair of numbers and distributions over bins, which lie evenly.

    .. math::

        f(x)_k = max(0, 1 - |x - b_k| / w),   f⁻¹(p) = ∑_k p_k b_k,
        b_k = b_0 + k w

    Its functions are `transform_to_2hot` and `transform_from_2hot` with these bins. A
    number beyond them becomes the outermost; `out_of_range` tells which do.

    Args:
        min_value: The first bin :math:`b_0`.
        max_value: The last bin, more than `min_value`.
        num_bins: Number of bins, at least 2.

    Returns:
        A pair, whose functions turn `[...]` into `[..., num_bins]`, and back.

    Raises:
        ArgumentError: If `num_bins` is not a Python integer of at least 2, or if
            `max_value` is not more than `min_value`; from its functions, if an argument
            has the wrong shape or dtype.

    Example:
        >>> pair = rlaxlib.twohot_pair(-1.0, 1.0, num_bins=5)
        >>> print(pair.apply(0.25), pair.apply_inv(pair.apply(0.25)))
        [0.  0.  0.5 0.5 0. ] 0.25

    References:
        Julian Schrittwieser and others, *Mastering Atari, Go, Chess and Shogi by
        Planning with a Learned Model*, appendix F, 2019.
        https://arxiv.org/abs/1911.08265
    """
    _two_hot.check_range(min_value, max_value, num_bins)
    each = _TwohotPair(min_value, max_value, num_bins)
    return TxPair(each.apply, each.apply_inv)


def hl_gauss_pair(
    min_value: float, max_value: float, num_bins: int, sigma: float | None = None
) -> TxPair:
    """Make a pair of numbers and Gaussians over bins (HL-Gauss).

    .. math::

        f(x)_k ∝ Φ((e_{k+1} - x) / σ) - Φ((e_k - x) / σ),
        f⁻¹(p) = ∑_k p_k (e_k + e_{k+1}) / 2,   e_k = e_0 + k w

    Its functions are `transform_to_hl_gauss` and `transform_from_hl_gauss` with these
    bins. To squash numbers before, chain it: `compose_tx(SYMLOG_PAIR,
    hl_gauss_pair(...))` has a range and a :math:`σ` in the space of squashed numbers.

    As in the paper, the range ends where the outermost bins end, while those of
    `twohot_pair` have their middles there.

    Args:
        min_value: The first edge :math:`e_0`.
        max_value: The last edge, more than `min_value`.
        num_bins: Number of bins, at least 2.
        sigma: Standard deviation :math:`σ`, more than 0, in the unit of the numbers; or
            None for the 0.75 widths of a bin that the paper recommends.

    Returns:
        A pair, whose functions turn `[...]` into `[..., num_bins]`, and back.

    Raises:
        ArgumentError: If `num_bins` is not a Python integer of at least 2, if
            `max_value` is not more than `min_value`, or if `sigma` is not positive;
            from its functions, if an argument has the wrong shape or dtype.

    Example:
        >>> pair = rlaxlib.hl_gauss_pair(-10.0, 10.0, num_bins=40)
        >>> print(pair.apply(3.2).shape, pair.apply_inv(pair.apply(3.2)).round(3))
        (40,) 3.2

    References:
        Ehsan Imani and Martha White, *Improving Regression Performance with
        Distributional Losses*, 2018. https://arxiv.org/abs/1806.04613

        Jesse Farebrother and others, *Stop Regressing: Training Value Functions via
        Classification for Scalable Deep RL*, 2024. https://arxiv.org/abs/2403.03950
    """
    _two_hot.check_range(min_value, max_value, num_bins)
    checks.within("(0, inf)", sigma=sigma)
    each = _HlGaussPair(min_value, max_value, num_bins, sigma)
    return TxPair(each.apply, each.apply_inv)


def muzero_pair(
    min_value: float, max_value: float, num_bins: int, tx: TxPair
) -> TxPair:
    """Make a pair that squashes numbers, and then spreads them over bins (MuZero).

    .. math::

        f(x)_k = max(0, 1 - |h(x) - b_k| / w),   f⁻¹(p) = h⁻¹(∑_k p_k b_k)

    What is read back from a distribution is the mean of squashed numbers, stretched:
    where returns vary, that is not their mean. `unbiased_transform_pair` gives it.

    A number that squashed lies beyond the bins becomes the outermost; `out_of_range`
    tells which do.

    Args:
        min_value: The first bin :math:`b_0`, in the space of squashed numbers.
        max_value: The last bin, more than `min_value`.
        num_bins: Number of bins, at least 2.
        tx: Pair :math:`h` that squashes.

    Returns:
        A pair, whose functions turn `[...]` into `[..., num_bins]`, and back.

    Raises:
        ArgumentError: If `num_bins` is not a Python integer of at least 2, or if
            `max_value` is not more than `min_value`; from its functions, if an argument
            has the wrong shape or dtype.

    Example:
        >>> squash = rlaxlib.SIGNED_HYPERBOLIC_PAIR
        >>> pair = rlaxlib.muzero_pair(-300.0, 300.0, num_bins=601, tx=squash)
        >>> print(pair.apply(42.0).shape, pair.apply_inv(pair.apply(42.0)).round())
        (601,) 42.0

    References:
        Julian Schrittwieser and others, *Mastering Atari, Go, Chess and Shogi by
        Planning with a Learned Model*, appendix F, 2019.
        https://arxiv.org/abs/1911.08265
    """
    each = _MuzeroPair((tx, twohot_pair(min_value, max_value, num_bins)))
    return TxPair(each.apply, each.apply_inv)


def unbiased_transform_pair(
    min_value: float, max_value: float, num_bins: int, tx: TxPair
) -> TxPair:
    """Make a pair of numbers and distributions over bins that are stretched.

    .. math::

        f⁻¹(p) = ∑_k p_k b_k,
        b_k = h⁻¹(b'_0 + k (b'_{K-1} - b'_0) / (K - 1))

    The bins are as dense as those of `muzero_pair`. But it is the bins that are
    stretched, not the mean, so that what is read back from a distribution of returns is
    their mean. Its functions are `transform_to_2hot_nonlinear` and
    `transform_from_2hot_nonlinear` with these bins. A number beyond them becomes the
    outermost; `out_of_range` tells which do.

    Args:
        min_value: The first bin :math:`b'_0`, in the space of squashed numbers.
        max_value: The last bin :math:`b'_{K-1}` there, more than `min_value`.
        num_bins: Number of bins :math:`K`, at least 2.
        tx: Pair :math:`h` that squashes, of which the inverse is used.

    Returns:
        A pair, whose functions turn `[...]` into `[..., num_bins]`, and back.

    Raises:
        ArgumentError: If `num_bins` is not a Python integer of at least 2, if
            `max_value` is not more than `min_value`, or if the stretched bins do not
            increase or are not finite; from its functions, if an argument has the wrong
            shape or dtype.

    Example:
        >>> squash = rlaxlib.SIGNED_HYPERBOLIC_PAIR
        >>> make_pair = rlaxlib.unbiased_transform_pair
        >>> pair = make_pair(-300.0, 300.0, num_bins=601, tx=squash)
        >>> print(pair.apply(42.0).shape, pair.apply_inv(pair.apply(42.0)).round())
        (601,) 42.0

    References:
        Danijar Hafner, Jurgis Pasukonis, Jimmy Ba and Timothy Lillicrap, *Mastering
        Diverse Domains through World Models*, 2023. https://arxiv.org/abs/2301.04104
    """
    _two_hot.check_range(min_value, max_value, num_bins)
    each = _UnbiasedTransformPair(min_value, max_value, num_bins, tx)
    _two_hot.check_bins(each.bins(jnp.result_type(float)))
    return TxPair(each.apply, each.apply_inv)


def out_of_range(x: ArrayLike, tx_pair: TxPair) -> Array:
    """Tell which numbers lie beyond the bins of a pair.

    .. math::

        ¬(b_0 ≤ h(x) ≤ b_{K-1}),

    where :math:`h` is what squashes before there are bins, if anything does, and
    :math:`b_0` and :math:`b_{K-1}` are the ends of their range. To such a number its
    pair gives the distribution of the nearest end, and what is learnt from it is that:
    watch the mean of this over a batch, and widen the range if it is not nearly 0.

    Args:
        x: Numbers, shape `[...]`.
        tx_pair: Pair with bins, made by `twohot_pair`, `muzero_pair`,
            `unbiased_transform_pair` or `hl_gauss_pair`, or chained by `compose_tx`.

    Returns:
        True where a number lies beyond the bins, or is none, shape `[...]`.

    Raises:
        ArgumentError: If `x` has the wrong dtype, or if `tx_pair` has no bins that are
            known.

    Example:
        >>> pair = rlaxlib.hl_gauss_pair(-10.0, 10.0, num_bins=40)
        >>> print(rlaxlib.out_of_range(jnp.array([-10.0, 3.0, 10.5]), pair))
        [False False  True]

    References:
        Jesse Farebrother and others, *Stop Regressing: Training Value Functions via
        Classification for Scalable Deep RL*, 2024. https://arxiv.org/abs/2403.03950
    """
    (x,) = checks.arrays(x=(x, "float[...]"))
    beyond = _beyond(x, tx_pair)
    if beyond is None:
        checks.fail("`tx_pair` must be a pair with bins, made by a function of rlaxlib")
    return beyond


# --- The functions of the pairs. ---


def _beyond(x: Array, tx_pair: TxPair) -> Array | None:
    """Return where numbers lie beyond the bins of a pair, or None if it has none."""
    functions = getattr(tx_pair.apply, "__self__", None)
    return functions.beyond(x) if isinstance(functions, _HAVE_BINS) else None


def _outside(x: Array, low: ArrayLike, high: ArrayLike) -> Array:
    """Return where numbers lie outside, compared as they are rounded: NaN does."""
    low, high = (jnp.asarray(each, x.dtype) for each in (low, high))
    return ~((x >= low) & (x <= high))


@dataclasses.dataclass(frozen=True)
class _ComposeTx:
    """The functions of a chain of pairs."""

    tx_list: tuple[TxPair, ...]

    def apply(self, x: ArrayLike) -> Array:
        (x,) = checks.arrays(x=(x, "float[...]"))
        (x,), narrow = dtypes.widen(x)
        for tx in self.tx_list:
            x = tx.apply(x)
        return narrow(x)

    def apply_inv(self, x: ArrayLike) -> Array:
        (x,) = checks.arrays(x=(x, "float[...]"))
        (x,), narrow = dtypes.widen(x)
        for tx in reversed(self.tx_list):
            x = tx.apply_inv(x)
        return narrow(x)

    def beyond(self, x: Array) -> Array | None:
        for tx in self.tx_list:
            beyond = _beyond(x, tx)
            if beyond is not None:
                return beyond
            x = tx.apply(x)
        return None


class _MuzeroPair(_ComposeTx):
    """The functions of a pair that squashes, and of one that has bins."""


@dataclasses.dataclass(frozen=True)
class _TwohotPair:
    """The functions of a pair with bins that lie evenly."""

    min_value: float
    max_value: float
    num_bins: int

    def apply(self, scalar: ArrayLike) -> Array:
        (scalar,) = checks.arrays(scalar=(scalar, "float[...]"))
        return _two_hot.transform_to_2hot(scalar, *dataclasses.astuple(self))

    def apply_inv(self, probs: ArrayLike) -> Array:
        (probs,) = checks.arrays(probs=(probs, f"float[..., {self.num_bins}]"))
        return _two_hot.transform_from_2hot(probs, *dataclasses.astuple(self))

    def beyond(self, x: Array) -> Array:
        return _outside(x, self.min_value, self.max_value)


@dataclasses.dataclass(frozen=True)
class _HlGaussPair:
    """The functions of a pair with bins that a Gaussian is cut up by."""

    min_value: float
    max_value: float
    num_bins: int
    sigma: float | None

    def apply(self, scalar: ArrayLike) -> Array:
        (scalar,) = checks.arrays(scalar=(scalar, "float[...]"))
        return _hl_gauss.transform_to_hl_gauss(scalar, *dataclasses.astuple(self))

    def apply_inv(self, probs: ArrayLike) -> Array:
        (probs,) = checks.arrays(probs=(probs, f"float[..., {self.num_bins}]"))
        *bins, _ = dataclasses.astuple(self)
        return _hl_gauss.transform_from_hl_gauss(probs, *bins)

    def beyond(self, x: Array) -> Array:
        return _outside(x, self.min_value, self.max_value)


@dataclasses.dataclass(frozen=True)
class _UnbiasedTransformPair:
    """The functions of a pair with bins that are stretched."""

    min_value: float
    max_value: float
    num_bins: int
    tx: TxPair

    def apply(self, x: ArrayLike) -> Array:
        (x,) = checks.arrays(x=(x, "float[...]"))
        (x,), narrow = dtypes.widen(x)
        return narrow(_two_hot.transform_to_2hot_nonlinear(x, self.bins(x.dtype)))

    def apply_inv(self, x: ArrayLike) -> Array:
        (x,) = checks.arrays(x=(x, f"float[..., {self.num_bins}]"))
        (x,), narrow = dtypes.widen(x)
        return narrow(_two_hot.transform_from_2hot_nonlinear(x, self.bins(x.dtype)))

    def beyond(self, x: Array) -> Array:
        (wide,), _ = dtypes.widen(x)
        bins = self.bins(wide.dtype)
        return _outside(x, bins[0], bins[-1])

    def bins(self, dtype: DTypeLike) -> Array:
        """Return the bins, as exact as the dtype allows."""
        equal = self.min_value, self.max_value, self.num_bins
        # Stretched once, and not anew wherever one of them is used.
        with jax.ensure_compile_time_eval():
            return self.tx.apply_inv(_two_hot.equal_bins(*equal, dtype))


@dataclasses.dataclass(frozen=True)
class _DiscountTransformPair:
    """The functions of a pair that stretches discounts."""

    def apply(self, x: ArrayLike) -> Array:
        (x,) = checks.arrays(x=(x, "float[...]"))
        (x,), narrow = dtypes.widen(x)
        return narrow(_formulas.log_horizon(x))

    def apply_inv(self, x: ArrayLike) -> Array:
        (x,) = checks.arrays(x=(x, "float[...]"))
        (x,), narrow = dtypes.widen(x)
        return narrow(_formulas.discount_of_log_horizon(x))


_discount = _DiscountTransformPair()
_HAVE_BINS = _ComposeTx, _TwohotPair, _HlGaussPair, _UnbiasedTransformPair


# --- Pairs that are at hand. ---


IDENTITY_PAIR = TxPair(_squashing.identity, _squashing.identity)
"""No transform at all."""

SIGNED_LOGP1_PAIR = TxPair(_squashing.signed_logp1, _squashing.signed_expm1)
"""`signed_logp1`, and `signed_expm1` back."""

SYMLOG_PAIR = TxPair(_squashing.symlog, _squashing.symexp)
"""`symlog`, and `symexp` back: `SIGNED_LOGP1_PAIR` by the names of DreamerV3."""

SIGNED_HYPERBOLIC_PAIR = TxPair(
    _squashing.signed_hyperbolic, _squashing.signed_parabolic
)
"""`signed_hyperbolic`, and `signed_parabolic` back, as in R2D2 and MuZero."""

HYPERBOLIC_SIN_PAIR = TxPair(_squashing.hyperbolic_arcsin, _squashing.hyperbolic_sin)
"""`hyperbolic_arcsin`, and `hyperbolic_sin` back."""

DISCOUNT_TRANSFORM_PAIR = TxPair(_discount.apply, _discount.apply_inv)
"""The logarithm of the horizon that a discount :math:`γ` gives,
:math:`-log(1 - γ)`, and back."""
