"""HL-Gauss encoding of values as Gaussians over bins, and decoding by the mean.

Two-hot encoding gives probability to two bins only. HL-Gauss integrates a Gaussian
around the value over each bin, so nearby bins share probability, which makes large
value networks easier to train.

Bins are intervals between edges. Over the same range, two-hot has one bin more, because
its bins are points with the outermost at the ends of the range.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
from jax.scipy import special

from rlaxlib._core import checks
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Float, Shaped, Static
from rlaxlib.transforms import _shared
from rlaxlib.transforms._pairs import TxPair

__all__ = ["hl_gauss_pair"]


@checked
def hl_gauss_pair(
    min_value: Float[ArrayLike, "in (-inf, inf)"],
    max_value: Float[ArrayLike, "in (-inf, inf) in (min_value, inf)"],
    num_bins: Static[int, "in [2, inf)"],
    stddev_ratio: Float[ArrayLike, "in (0, inf)"] = 0.75,
) -> TxPair:
    """Make a pair that encodes values as truncated Gaussians over bins (HL-Gauss).

    Takes the range of the bins, returns a transform and its inverse.

    ::

        f(x)_k = (Φ(z_{k+1}) - Φ(z_k)) / (Φ(z_K) - Φ(z_0)),   z_k = (e_k - x) / σ,
        f⁻¹(p) = ∑_k p_k (e_k + e_{k+1}) / 2,
        e_k = e_0 + k w,   w = (e_K - e_0) / K,   σ = s w,

    with :math:`Φ` the standard normal cumulative distribution function. The default
    :math:`s = ¾` puts most of the probability on six bins; a small one approaches a
    one-hot encoding. With `compose_tx(SIGNED_LOGP1_PAIR, hl_gauss_pair(...))`, the
    range is on the scale of symlog. The outermost bins end at the ends of the range;
    the outermost bins of `twohot_pair` are centred there.

    Values outside the range are clipped, with gradient 0; `outside_support` reports
    them. Truncation moves the mean inside: at :math:`s = ¾` by up to 0.7 :math:`w` for
    a value at an end of the range, and by less than 0.0002 :math:`w` from a distance of
    :math:`4 σ` on.

    Args:
        min_value: First edge :math:`e_0`, finite, shape `[]`.
        max_value: Last edge :math:`e_K`, finite, in (`min_value`, inf), shape `[]`.
        num_bins: Number of bins :math:`K`, in [2, inf).
        stddev_ratio: Standard deviation :math:`s`, in (0, inf), in widths of a bin,
            shape `[]`.

    Returns:
        A pair that maps `[...]` to `[..., num_bins]`, and back.

    Raises:
        ArgumentError: If a setting is wrong, or a shape or dtype when called.

    Example:
        >>> pair = rlaxlib.hl_gauss_pair(-2.0, 2.0, num_bins=4)
        >>> print([f"{p:.3f}" for p in pair.apply(0.0)])
        ['0.088', '0.412', '0.412', '0.088']
        >>> print(pair.apply_inv(jnp.array([0.0, 0.5, 0.5, 0.0])))
        0.0

    References:
        Ehsan Imani and Martha White, *Improving Regression Performance with
        Distributional Losses*, 2018. https://arxiv.org/abs/1806.04613

        Jesse Farebrother and others, *Stop Regressing: Training Value Functions via
        Classification for Scalable Deep RL*, 2024. https://arxiv.org/abs/2403.03950
    """
    low, high, ratio = map(_shared.number, (min_value, max_value, stddev_ratio))
    return HlGaussPair(low, high, num_bins, ratio)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class HlGaussPair(TxPair):
    """A Gaussian encoding over bins."""

    min_value: Float[ArrayLike, "in (-inf, inf)"]
    max_value: Float[ArrayLike, "in (-inf, inf) in (min_value, inf)"]
    num_bins: int = dataclasses.field(metadata={"static": True})
    stddev_ratio: Float[ArrayLike, "in (0, inf)"]

    @checked(compiled=False)
    def apply(self, scalar: Float[ArrayLike, "..."]) -> Array:
        return _encode(scalar, self.edges(), self.stddev_ratio)

    @checked(compiled=False)
    def apply_inv(self, probs: Float[ArrayLike, "..., K in [0, 1]"]) -> Array:
        checks.fit(probs=(probs, Float[ArrayLike, f"..., {self.num_bins}"]))
        edges = self.edges()
        return _shared.decode(probs, (edges[:-1] + edges[1:]) / 2)

    def _outside(self, x: Array) -> Array:
        return _shared.beyond(x, self.min_value, self.max_value)

    def edges(self) -> Array:
        """Return the edges of the bins, concrete if the bounds are."""
        return _shared.equal_bins(self.min_value, self.max_value, self.num_bins + 1)


@checked
def _encode(
    x: Float[ArrayLike, "..."],
    edges: Shaped[ArrayLike, "K+1"],
    ratio: Shaped[ArrayLike, ""],
) -> Float[Array, "..., K"]:
    """Return truncated Gaussians over bins, in the dtype of the values."""
    e, s = edges.astype(x.dtype), ratio.astype(x.dtype)
    x = jnp.clip(x, e[0], e[-1])
    sigma = s * (e[-1] - e[0]) / (e.size - 1)
    z = (jnp.broadcast_to(e, (*x.shape, e.size)) - x[..., None]) / sigma
    cdf = special.erf(z / math.sqrt(2))  # 2 Φ(z) - 1
    # Rounding can make erf decrease in its tails, and probabilities negative.
    mass = jnp.maximum(jnp.diff(cdf), 0)
    return mass / (cdf[..., -1:] - cdf[..., :1])
