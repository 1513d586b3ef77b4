"""Scale returns by their range, as far as it is not one of outliers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib import arrays
from rlaxlib._core import checks, devices
from rlaxlib._core.devices import AxisName
from rlaxlib.normalization import _moments
from rlaxlib.normalization._moving_averages import EmaState, create_ema

__all__ = [
    "ReturnRange",
    "percentile_scale",
]


class ReturnRange(NamedTuple):
    """Between which numbers most returns lie.

    Attributes:
        low: The lower percentile, shape `[]`.
        spread: The higher percentile less the lower one, shape `[]`.
    """

    low: Array
    spread: Array


def percentile_scale(
    decay: ArrayLike = 0.99,
    low: ArrayLike = 5.0,
    high: ArrayLike = 95.0,
    min_scale: ArrayLike = 1.0,
    axis_name: AxisName | None = None,
) -> tuple[Callable[[Any], EmaState], Callable[..., tuple[Array, EmaState]]]:
    """Make a scale that follows the range of returns, and makes no small ones large.

    .. math::

        S_n = max(S_min, (1 / (1 - d^n)) ∑_{i=1}^n (1 - d) d^{n-i} Δ_i),
        Δ_i = P_{95}(G_i) - P_5(G_i)

    where the percentiles are those of the returns of one update, interpolated linearly
    as NumPy does. DreamerV3 divides advantages by it: so the bonus for entropy weighs
    the same whatever the rewards are. Outliers leave it as it is; and where returns are
    all small, because rewards are sparse, they are not blown up, for the scale is at
    least :math:`S_min = 1`.

    Implementations differ at the start: the averages begin at 0 here as in DreamerV3,
    and dividing by :math:`1 - d^n` takes off the bias towards it, an option of that
    code; without it, the scale is a hundredth of the range at first. TD-MPC2 begins at
    1, and applies the bound to each update and not to their average. Percentiles of
    parts do not average to that of the whole: over devices, these are of all returns.

    Args:
        decay: Decay :math:`d` of the weights, in [0, 1), shape `[]`.
        low: The lower percentile, in [0, 100], shape `[]`.
        high: The higher percentile, in [0, 100], at least `low`, shape `[]`.
        min_scale: Smallest scale :math:`S_min`, more than 0, shape `[]`.
        axis_name: Name of the axis, or axes, that devices form, to take in the returns
            on all of them; or None to stay on one device.

    Returns:
        Two functions. `init_state(returns)` returns the `EmaState` of a `ReturnRange`
        that knows nothing, for returns like those given. `update_scale(returns, state)`
        returns the scale that takes in returns, floats or whole numbers of any shape,
        shape `[]`, and the next state. It also takes, by name, a `mask`: true where a
        return counts, its axes being the first ones of the returns. What the mask
        leaves out may be anything, NaN included; if it leaves out all, nothing changes.
        The scale is constant under differentiation; `state.mean.low` is what DreamerV3
        takes off besides.

    Raises:
        ArgumentError: If a setting is out of its range, if the returns are something
            other than numbers, or if the mask does not fit.

    Example:
        >>> init_state, update_scale = rlaxlib.percentile_scale(decay=0.5)
        >>> returns = jnp.arange(101.0)
        >>> scale, state = update_scale(returns, init_state(returns))
        >>> print(scale, state.mean.low)
        90.0 5.0
        >>> scale, state = update_scale(4 * returns, state)
        >>> print(scale)
        270.0

    References:
        Danijar Hafner, Jurgis Pasukonis, Jimmy Ba and Timothy Lillicrap, *Mastering
        Diverse Domains through World Models*, 2023. https://arxiv.org/abs/2301.04104

        Nicklas Hansen, Hao Su and Xiaolong Wang, *TD-MPC2: Scalable, Robust World
        Models for Continuous Control*, 2023. https://arxiv.org/abs/2310.16828
    """
    checks.arrays(
        decay=(decay, "float[]"),
        low=(low, "float[]"),
        high=(high, "float[]"),
        min_scale=(min_scale, "float[]"),
    )
    checks.within("[0, 1)", decay=decay)
    checks.within("[0, 100]", low=low, high=high)
    checks.ordered(low=low, high=high)
    checks.within("(0, inf)", min_scale=min_scale)
    start, move = create_ema(decay)

    def init_state(returns: ArrayLike) -> EmaState:
        """Return the state of a scale that has seen no returns.

        Args:
            returns: Returns like those to come.

        Returns:
            The state.
        """
        (x,) = checks.arrays(returns=(_moments.numbers(returns), "float[...]"))
        zeros = _moments.zeros(x)
        return start(ReturnRange(zeros, zeros))

    def update_scale(
        returns: ArrayLike, state: EmaState, *, mask: ArrayLike | None = None
    ) -> tuple[Array, EmaState]:
        """Take in returns.

        Args:
            returns: Returns, of any shape.
            state: What has been carried so far.
            mask: True where a return counts. Its axes are the first ones of the
                returns; or None to count all.

        Returns:
            The scale, and what to carry to the next update.
        """
        dtype = state.mean.low.dtype
        ranked, count = _rank(returns, mask, dtype, axis_name)
        found = _range(ranked, count, low, high)
        # Each device has found the same, but a compiler knows only once it is told.
        found = ReturnRange(*(devices.maximum(each, axis_name) for each in found))
        _, state = move(found, state, mask=count > 0)
        spread = state.mean.spread
        return jnp.maximum(spread, jnp.asarray(min_scale, dtype)), state

    return init_state, update_scale


def _rank(
    returns: ArrayLike, mask: ArrayLike | None, dtype: Any, axis_name: AxisName | None
) -> tuple[Array, Array]:
    """Return the returns on all devices in order, and how many of them count."""
    (x,) = checks.arrays(returns=(_moments.numbers(returns), "float[...]"))
    (mask,) = checks.arrays(mask=(mask, "bool[...] or None"))
    if mask is None:
        counts = jnp.ones_like(x, bool)
    else:
        checks.leading_axes(mask=mask, returns=x)
        counts = jnp.broadcast_to(arrays.lhs_broadcast(mask, x), x.shape)
    x = jnp.where(counts, jax.lax.stop_gradient(x), jnp.inf).astype(dtype).ravel()
    if x.size == 0:  # There must be something to rank, though it does not count.
        x = jnp.zeros_like(x, shape=1)
    count = devices.total(jnp.sum(counts, dtype=jnp.int32), axis_name)
    return jnp.sort(devices.gather(x, axis_name)), count


def _range(
    ranked: Array, count: Array, low: ArrayLike, high: ArrayLike
) -> tuple[Array, Array]:
    """Return the lower percentile of the first so many numbers, and the range."""
    (below, step), (above, stride) = (_pick(ranked, count, q) for q in (low, high))
    # Far from zero a percentile is rounded, and a difference of such would show it.
    found = below + step, (above - below) + (stride - step)
    # What is not a number ranks last, and must not go unseen.
    lost = jnp.isnan(ranked[-1])
    lower, spread = (jnp.where(lost, ranked[-1], each) for each in found)
    return lower, spread


def _pick(ranked: Array, count: Array, percentile: ArrayLike) -> tuple[Array, Array]:
    """Return the number below a percentile, and how far this is from it; or zeros."""
    last = jnp.maximum(count - 1, 0)
    position = jnp.asarray(percentile, ranked.dtype) * last.astype(ranked.dtype) / 100
    index = jnp.minimum(jnp.floor(position).astype(jnp.int32), last)
    below, above = ranked[index], ranked[jnp.minimum(index + 1, last)]
    below, above = (jnp.where(count > 0, x, jnp.zeros_like(x)) for x in (below, above))
    return below, (position - index.astype(position.dtype)) * (above - below)
