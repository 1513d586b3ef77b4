"""Pairs of a transform and its inverse: predefined, with bins, and composed.

`apply` maps returns to the space in which a network learns, `apply_inv` maps back. That
space holds transformed values (`SIGNED_HYPERBOLIC_PAIR`, `SIGNED_LOGP1_PAIR`) or
distributions over bins (`twohot_pair`, `muzero_pair`, `unbiased_transform_pair`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from rlaxlib._core import checks, dtypes
from rlaxlib._core.functions import FunctionTuple
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Bool, Float, Static
from rlaxlib.transforms import _shared, _squashing

__all__ = [
    "DISCOUNT_TRANSFORM_PAIR",
    "HYPERBOLIC_SIN_PAIR",
    "IDENTITY_PAIR",
    "SIGNED_HYPERBOLIC_PAIR",
    "SIGNED_LOGP1_PAIR",
    "TxPair",
    "compose_tx",
    "muzero_pair",
    "outside_support",
    "twohot_pair",
    "unbiased_transform_pair",
]


Transform = Callable[..., Array]


class TxPair(FunctionTuple):
    """A transform and its inverse.

    Any two functions make a pair. Pairs that this library makes are equal if their
    settings are. They can be pickled, and be arguments of compiled functions, static or
    not: then bounds are traced, and other ones run the same program.

    Attributes:
        apply: The transform.
        apply_inv: Its inverse.
    """

    _functions = ("apply", "apply_inv")

    def __init__(self, apply: Transform, apply_inv: Transform) -> None:
        self.apply, self.apply_inv = apply, apply_inv

    def _outside(self, x: Array) -> Array | None:
        """Return which values are outside the bins, or None if there are no bins."""
        del x
        return None


def compose_tx(*tx_list: TxPair) -> TxPair:
    """Compose transform pairs.

    Takes several transforms with their inverses, returns one.

    ::

        f(x) = f_n(… f_1(x)),   f⁻¹(y) = f_1⁻¹(… f_n⁻¹(y))

    Half precision is raised to single for the whole composition.

    Args:
        *tx_list: Pairs, in the order of `apply`; the identity if there are none.

    Returns:
        The composed pair.

    Raises:
        ArgumentError: If a shape or dtype is wrong when called.

    Example:
        >>> twice = rlaxlib.compose_tx(*2 * [rlaxlib.SIGNED_HYPERBOLIC_PAIR])
        >>> print(twice.apply_inv(twice.apply(jnp.array([-9.0, 16.0]))).round(4))
        [-9. 16.]

    References:
        Hado van Hasselt and others, *General Non-Linear Bellman Equations*, 2019.
        https://arxiv.org/abs/1907.03687
    """
    return ComposedPair(tx_list)


@checked
def twohot_pair(
    min_value: Float[ArrayLike, "in (-inf, inf)"],
    max_value: Float[ArrayLike, "in (-inf, inf) in (min_value, inf)"],
    num_bins: Static[int, "in [2, inf)"],
) -> TwohotPair:
    """Make a pair that encodes values as two-hot distributions over bins.

    Takes the range of the bins, returns a transform and its inverse.

    ::

        f(x)_k = max(0, 1 - |x - b_k| / w),   f⁻¹(p) = ∑_k p_k b_k,
        b_k = b_0 + k w

    It combines `transform_to_2hot` and `transform_from_2hot`. Values outside the range
    are clipped; `outside_support` reports them.

    Args:
        min_value: First bin :math:`b_0`, finite, shape `[]`.
        max_value: Last bin :math:`b_{K-1}`, finite, in (`min_value`, inf), shape `[]`.
        num_bins: Number of bins :math:`K`, in [2, inf).

    Returns:
        A pair that maps `[...]` to `[..., num_bins]`, and back.

    Raises:
        ArgumentError: If a setting is wrong, or a shape or dtype when called.

    Example:
        >>> pair = rlaxlib.twohot_pair(-1.0, 1.0, num_bins=5)
        >>> print(pair.apply(0.25), pair.apply_inv(pair.apply(0.25)))
        [0.  0.  0.5 0.5 0. ] 0.25

    References:
        Julian Schrittwieser and others, *Mastering Atari, Go, Chess and Shogi by
        Planning with a Learned Model*, appendix F, 2019.
        https://arxiv.org/abs/1911.08265
    """
    return TwohotPair(_shared.number(min_value), _shared.number(max_value), num_bins)


@checked
def muzero_pair(
    min_value: Float[ArrayLike, "in (-inf, inf)"],
    max_value: Float[ArrayLike, "in (-inf, inf) in (min_value, inf)"],
    num_bins: Static[int, "in [2, inf)"],
    tx: TxPair,
) -> TxPair:
    """Make the MuZero pair: a transform, then a two-hot encoding.

    Takes the range of the bins, returns a transform and its inverse.

    ::

        f(x)_k = max(0, 1 - |h(x) - b_k| / w),   f⁻¹(p) = h⁻¹(∑_k p_k b_k)

    The inverse transforms the mean of transformed values. If returns vary, that is not
    the mean of the returns, which `unbiased_transform_pair` gives. Values whose
    transform is outside the bins are clipped; `outside_support` reports them.

    Args:
        min_value: First bin :math:`b_0`, finite, on the transformed scale, shape `[]`.
        max_value: Last bin :math:`b_{K-1}`, finite, in (`min_value`, inf), shape `[]`.
        num_bins: Number of bins :math:`K`, in [2, inf).
        tx: The transform :math:`h` with its inverse.

    Returns:
        A pair that maps `[...]` to `[..., num_bins]`, and back.

    Raises:
        ArgumentError: If a setting is wrong, or a shape or dtype when called.

    Example:
        >>> tx = rlaxlib.SIGNED_HYPERBOLIC_PAIR
        >>> pair = rlaxlib.muzero_pair(-300.0, 300.0, num_bins=601, tx=tx)
        >>> print(pair.apply(42.0).shape, pair.apply_inv(pair.apply(42.0)).round())
        (601,) 42.0

    References:
        Julian Schrittwieser and others, *Mastering Atari, Go, Chess and Shogi by
        Planning with a Learned Model*, appendix F, 2019.
        https://arxiv.org/abs/1911.08265
    """
    bins = twohot_pair(min_value=min_value, max_value=max_value, num_bins=num_bins)
    return compose_tx(tx, bins)


@checked
def unbiased_transform_pair(
    min_value: Float[ArrayLike, "in (-inf, inf)"],
    max_value: Float[ArrayLike, "in (-inf, inf) in (min_value, inf)"],
    num_bins: Static[int, "in [2, inf)"],
    tx: TxPair,
) -> TxPair:
    """Make a pair with two-hot bins spaced by an inverse transform (DreamerV3).

    Takes the range of the bins, returns a transform and its inverse.

    ::

        f⁻¹(p) = ∑_k p_k b_k,
        b_k = h⁻¹(b'_0 + k (b'_{K-1} - b'_0) / (K - 1))

    It combines `transform_to_2hot_nonlinear` and `transform_from_2hot_nonlinear`. The
    inverse transform is applied to the bins, not to the mean as in `muzero_pair`, so
    decoding a distribution of returns gives their mean. Values outside the bins are
    clipped; `outside_support` reports them.

    Args:
        min_value: First bin :math:`b'_0`, finite, on the transformed scale, shape `[]`.
        max_value: Last bin :math:`b'_{K-1}`, finite, in (`min_value`, inf), shape `[]`.
        num_bins: Number of bins :math:`K`, in [2, inf).
        tx: The transform :math:`h` with its inverse; only the inverse is used.

    Returns:
        A pair that maps `[...]` to `[..., num_bins]`, and back.

    Raises:
        ArgumentError: If a setting is wrong, or a shape or dtype when called.

    Example:
        >>> tx = rlaxlib.SIGNED_HYPERBOLIC_PAIR
        >>> pair = rlaxlib.unbiased_transform_pair(-300.0, 300.0, num_bins=601, tx=tx)
        >>> print(pair.apply(42.0).shape, pair.apply_inv(pair.apply(42.0)).round())
        (601,) 42.0

    References:
        Danijar Hafner and others, *Mastering Diverse Domains through World Models*,
        2023. https://arxiv.org/abs/2301.04104
    """
    twohot = twohot_pair(min_value=min_value, max_value=max_value, num_bins=num_bins)
    pair = UnbiasedTransformPair(twohot, tx)
    bins = pair.bins()
    if not isinstance(bins, Tracer):
        increasing = Float[ArrayLike, "K in (-inf, inf) increasing"]
        checks.fit(bins=(np.asarray(bins), increasing))
    return pair


@checked(compiled=False)
def outside_support(x: Float[ArrayLike, "..."], tx_pair: TxPair) -> Bool[Array, "..."]:
    """Return which values are outside the bins of a pair.

    Takes values of any shape, returns True or False for each.

    ::

        ¬(b_0 ≤ h(x) ≤ b_{K-1}),

    where :math:`h` is the transform before the bins, if there is one. The pair clips
    such values, which biases the estimate: widen the range if they are frequent.

    Args:
        x: Values, shape `[...]`.
        tx_pair: Pair with bins, such as `twohot_pair` or `hl_gauss_pair`, alone or
            composed with others by `compose_tx`.

    Returns:
        True where a value is outside the bins or NaN, shape `[...]`.

    Raises:
        ArgumentError: If `x` has the wrong dtype, or `tx_pair` has no bins.

    Example:
        >>> pair = rlaxlib.hl_gauss_pair(-10.0, 10.0, num_bins=40)
        >>> print(rlaxlib.outside_support(jnp.array([-10.0, 3.0, 10.5]), pair))
        [False False  True]

    References:
        Jesse Farebrother and others, *Stop Regressing: Training Value Functions via
        Classification for Scalable Deep RL*, 2024. https://arxiv.org/abs/2403.03950
    """
    outside = tx_pair._outside(jnp.asarray(x))
    if outside is None:
        checks.fail("`tx_pair` has no bins, must be a pair such as `twohot_pair` makes")
    return outside


# --- Kinds of pairs. ---


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True, repr=False)
class ElementwisePair(TxPair):
    """Two functions of this library."""

    apply: Transform
    apply_inv: Transform


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ComposedPair(TxPair):
    """Several pairs, in the order of `apply`."""

    tx_list: tuple[TxPair, ...]

    @checked(compiled=False)
    def apply(self, x: Float[ArrayLike, "..."]) -> Array:
        return _through([tx.apply for tx in self.tx_list], x)

    @checked(compiled=False)
    def apply_inv(self, x: Float[ArrayLike, "..."]) -> Array:
        return _through([tx.apply_inv for tx in reversed(self.tx_list)], x)

    def _outside(self, x: Array) -> Array | None:
        for tx in self.tx_list:
            if (outside := tx._outside(x)) is not None:
                return outside
            x = tx.apply(x)
        return None


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TwohotPair(TxPair):
    """A two-hot encoding over evenly spaced bins."""

    min_value: Float[ArrayLike, "in (-inf, inf)"]
    max_value: Float[ArrayLike, "in (-inf, inf) in (min_value, inf)"]
    num_bins: int = dataclasses.field(metadata={"static": True})

    @checked(compiled=False)
    def apply(self, scalar: Float[ArrayLike, "..."]) -> Array:
        return _shared.encode(scalar, self.bins())

    @checked(compiled=False)
    def apply_inv(self, probs: Float[ArrayLike, "..., K in [0, 1]"]) -> Array:
        checks.fit(probs=(probs, Float[ArrayLike, f"..., {self.num_bins}"]))
        return _shared.decode(probs, self.bins())

    def _outside(self, x: Array) -> Array:
        return _shared.beyond(x, self.min_value, self.max_value)

    @checked(compiled=False)
    def bins(self) -> Array:
        """Return the bins, concrete if the bounds are."""
        return _shared.equal_bins(self.min_value, self.max_value, self.num_bins)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class UnbiasedTransformPair(TxPair):
    """A two-hot encoding over inversely transformed bins."""

    twohot: TwohotPair
    tx: TxPair

    @checked(compiled=False)
    def apply(self, x: Float[ArrayLike, "..."]) -> Array:
        return _shared.encode(x, self.bins())

    @checked(compiled=False)
    def apply_inv(self, x: Float[ArrayLike, "..., K in [0, 1]"]) -> Array:
        checks.fit(x=(x, Float[ArrayLike, f"..., {self.twohot.num_bins}"]))
        return _shared.decode(x, self.bins())

    def _outside(self, x: Array) -> Array:
        bins = self.bins()
        return _shared.beyond(x, bins[0], bins[-1])

    def bins(self) -> Array:
        """Return the bins, concrete if the bounds are."""
        # They are constants of the program, with or without guards of its data.
        with jax.ensure_compile_time_eval(), jax.transfer_guard("allow"):
            return self.tx.apply_inv(self.twohot.bins())


def _through(functions: Sequence[Transform], x: ArrayLike) -> Array:
    """Apply functions in turn, with half precision raised to single in between."""
    given = jnp.asarray(x)
    x = dtypes.raised(given)
    for function in functions:
        x = function(x)
    return dtypes.like(x, given)


@checked
def _log_horizon(x: Float[ArrayLike, "..."]) -> Float[Array, "..."]:
    return -jnp.log1p(-x)


@checked
def _discount_of_log_horizon(x: Float[ArrayLike, "..."]) -> Float[Array, "..."]:
    return -jnp.expm1(-x)


# --- Predefined pairs. ---


IDENTITY_PAIR = ElementwisePair(_squashing.identity, _squashing.identity)
"""The identity transform."""

SIGNED_LOGP1_PAIR = ElementwisePair(_squashing.signed_logp1, _squashing.signed_expm1)
"""`signed_logp1` and its inverse `signed_expm1`: symlog and symexp of DreamerV3."""

SIGNED_HYPERBOLIC_PAIR = ElementwisePair(
    _squashing.signed_hyperbolic, _squashing.signed_parabolic
)
"""`signed_hyperbolic` and its inverse `signed_parabolic`, as in R2D2 and MuZero."""

HYPERBOLIC_SIN_PAIR = ElementwisePair(
    _squashing.hyperbolic_arcsin, _squashing.hyperbolic_sin
)
"""`hyperbolic_arcsin` and its inverse `hyperbolic_sin`."""

DISCOUNT_TRANSFORM_PAIR = ElementwisePair(_log_horizon, _discount_of_log_horizon)
"""Log-horizon of a discount :math:`γ`, :math:`-log(1 - γ)`, and its inverse."""
