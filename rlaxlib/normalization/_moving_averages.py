"""Follow the mean and the variance of numbers that change as an agent learns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from rlaxlib import arrays
from rlaxlib._core import checks, devices, dtypes
from rlaxlib._core.devices import AxisName
from rlaxlib.normalization import _moments

__all__ = [
    "EmaMoments",
    "EmaState",
    "create_ema",
]


class EmaMoments(NamedTuple):
    """What moving averages say.

    Attributes:
        mean: Mean of each leaf, a tree of numbers, each of shape `[]`.
        variance: Variance of each leaf, a tree of numbers, each of shape `[]`.
    """

    mean: Any
    variance: Any


class EmaState(NamedTuple):
    """What moving averages carry from one update to the next.

    It is single precision at least, whatever it is fed. The mean and the weight come in
    two parts: what is left of a number after rounding is kept, and added up. Else steps
    of a thousandth would not move a mean of a million at all.

    Attributes:
        mean: Mean of each leaf, a tree of numbers, each of shape `[]`.
        variance: Variance of each leaf, a tree of numbers, each of shape `[]`.
        weight: Sum of the weights of all updates, shape `[]`; after n of them it is
            :math:`1 - d^n`.
        mean_rest: What rounding took off the means, a tree of numbers, each of
            shape `[]`.
        weight_rest: What rounding took off the weight, shape `[]`.
    """

    mean: Any
    variance: Any
    weight: Array
    mean_rest: Any
    weight_rest: Array

    @property
    def decay_product(self) -> Array:
        """Product of the decays of all updates, shape `[]`."""
        return (1 - self.weight) - self.weight_rest

    @property
    def mu(self) -> Any:
        """Moving averages that start at 0, a tree of numbers, each of shape `[]`."""
        return jax.tree.map(self._undo, self.mean)

    @property
    def nu(self) -> Any:
        """The same of the squares, of which rounding leaves no variance to be got."""
        return jax.tree.map(self._undo_squares, self.mean, self.variance)

    def _undo(self, mean: Array) -> Array:
        return mean * self.weight.astype(mean.dtype)

    def _undo_squares(self, mean: Array, variance: Array) -> Array:
        return self._undo(variance + jnp.square(mean))

    def debiased_moments(self) -> EmaMoments:
        """Return mean and variance; before the first update, 0 and 0."""
        return EmaMoments(self.mean, self.variance)


def create_ema(
    decay: ArrayLike = 0.999, pmean_axis_name: AxisName | None = None
) -> tuple[
    Callable[[Any], EmaState],
    Callable[..., tuple[EmaMoments, EmaState]],
]:
    """Make moving averages of mean and variance, for each leaf of a tree.

    .. math::

        μ_n = (1/w_n) ∑_{i=1}^n (1 - d) d^{n-i} x̄_i,
        σ_n² = (1/w_n) ∑_{i=1}^n (1 - d) d^{n-i} mean((x_i - μ_n)²),
        w_n = 1 - d^n,

    where the bar and the means are over the entries of a leaf. That is what is
    computed, and not how: from one update to the next,

    .. math::

        a = (1 - d) / w_n,   δ = x̄_n - μ_{n-1},   μ_n = μ_{n-1} + a δ,
        σ_n² = (1 - a) (σ_{n-1}² + a δ²) + a mean((x_n - x̄_n)²),

    which keeps its digits however far the mean is from 0. Dividing by :math:`w_n` takes
    off the bias towards a start at 0, so that the moments are right from the first
    update on.

    A decay of :math:`d` remembers about :math:`1/(1 - d)` updates, whatever number of
    entries each of them has.

    Args:
        decay: Decay :math:`d` of the weights, in [0, 1), shape `[]`. As a Python float
            it may be as close to 1 as double precision allows.
        pmean_axis_name: Name of the axis, or axes, that devices form, to take mean and
            variance over the entries on all of them; or None to stay on one device.

    Returns:
        Two functions. `init_state(template_tree)` returns an `EmaState` that knows
        nothing, for trees like the one given. `update_moments(tree, state)` returns the
        `EmaMoments` that take in the leaves of a tree, floats or whole numbers of any
        shape, and the next state. It also takes, by name, a `mask`: true where an entry
        counts, its axes being the first ones of each leaf. What the mask leaves out may
        be anything, NaN included; if it leaves out all, nothing changes.

    Raises:
        ArgumentError: If `decay` lies outside [0, 1), if a leaf holds something other
            than numbers, if the mask does not fit, or if a tree is not like that of the
            state.

    Example:
        >>> init_state, update_moments = rlaxlib.create_ema(decay=0.5)
        >>> state = init_state(jnp.zeros(2))
        >>> moments, state = update_moments(jnp.array([1.0, 3.0]), state)
        >>> print(moments.mean, moments.variance)
        2.0 1.0
        >>> moments, state = update_moments(jnp.array([5.0, 5.0]), state)
        >>> print(moments.mean)
        4.0

    References:
        D. H. D. West, *Updating Mean and Variance Estimates: An Improved Method*, 1979.
        https://doi.org/10.1145/359146.359153

        Tony Finch, *Incremental Calculation of Weighted Mean and Variance*, 2009.
        https://fanf2.user.srcf.net/hermes/doc/antiforgery/stats.pdf

        Diederik P. Kingma and Jimmy Ba, *Adam: A Method for Stochastic Optimization*,
        section 3, 2014. https://arxiv.org/abs/1412.6980
    """
    checks.arrays(decay=(decay, "float[]"))
    checks.within("[0, 1)", decay=decay)
    rate = _complement(decay)

    def init_state(template_tree: Any) -> EmaState:
        """Return the state of moving averages that have seen nothing.

        Args:
            template_tree: A tree like those to come.

        Returns:
            The state.
        """
        zeros = jax.tree.map(_zero, template_tree)
        weight = _moments.widest(zeros)
        return EmaState(zeros, zeros, weight, zeros, weight)

    def update_moments(
        tree: Any, state: EmaState, *, mask: ArrayLike | None = None
    ) -> tuple[EmaMoments, EmaState]:
        """Take in the numbers of one tree.

        Args:
            tree: Numbers, the leaves being of any shape.
            state: What has been carried so far.
            mask: True where an entry counts. Its axes are the first ones of each leaf;
                or None to count all.

        Returns:
            Mean and variance of each leaf, and what to carry to the next update.
        """
        checks.same_structure(state=state.mean, tree=tree)
        (mask,) = checks.arrays(mask=(mask, "bool[...] or None"))
        weight, weight_rest, fraction = _weigh(state, rate, mask, pmean_axis_name)
        columns = (tree, state.mean, state.mean_rest, state.variance)
        rows = zip(*(cast(Any, jax.tree.leaves(each)) for each in columns), strict=True)
        moved = [
            _move(leaf, mean, rest, variance, fraction, mask, pmean_axis_name)
            for leaf, mean, rest, variance in rows
        ]
        structure = cast(Any, jax.tree.structure(tree))
        mean, mean_rest, variance = (
            jax.tree.unflatten(structure, [each[i] for each in moved]) for i in range(3)
        )
        state = EmaState(mean, variance, weight, mean_rest, weight_rest)
        return state.debiased_moments(), state

    return init_state, update_moments


def _complement(decay: ArrayLike) -> ArrayLike:
    """Return 1 less the decay, to all the digits that the decay has."""
    if isinstance(decay, Array):
        (decay,), _ = dtypes.widen(decay)
        return 1 - decay
    return 1 - np.asarray(decay, np.float64)  # In single precision, 1 - 1e-8 is 1.


def _zero(leaf: ArrayLike) -> Array:
    """Return 0, in the precision to average a leaf in."""
    (x,) = checks.arrays(template_tree=(_moments.numbers(leaf), "float[...]"))
    return jnp.sum(_moments.zeros(x))


def _weigh(
    state: EmaState,
    rate: ArrayLike,
    mask: Array | None,
    axis_name: AxisName | None,
) -> tuple[Array, Array, Array]:
    """Return the next weight, what it rounds off, and what fraction of it is new."""
    rate = jnp.asarray(rate, state.weight.dtype)
    if mask is not None:
        count = devices.total(jnp.sum(mask, dtype=jnp.int32), axis_name)
        rate = jnp.where(count > 0, rate, jnp.zeros_like(rate))
    new = rate * state.decay_product
    weight, rest = _moments.add(state.weight, state.weight_rest, new)
    return weight, rest, rate / jnp.where(weight > 0, weight, jnp.ones_like(weight))


def _move(
    leaf: ArrayLike,
    mean: Array,
    rest: Array,
    variance: Array,
    fraction: Array,
    mask: Array | None,
    axis_name: AxisName | None,
) -> tuple[Array, Array, Array]:
    """Move the average of one leaf, in its two parts, and the variance."""
    (x,) = checks.arrays(tree=(_moments.numbers(leaf), "float[...]"))
    checks.static_int(1, **{"tree.size": x.size})
    x, fraction = x.astype(mean.dtype), fraction.astype(mean.dtype)
    if mask is None:
        # A sum is taken once. A number alone, XLA looks up again for each of those
        # that it is taken off, one by one instead of in vectors.
        two = x.ravel()[:2]
        sample = jnp.sum(two / two.size)
    else:
        checks.leading_axes(mask=mask, tree=x)
        sample = jnp.max(arrays.replace_masked(x, jnp.full_like(x, -jnp.inf), ~mask))
        x = arrays.replace_masked(x, None, ~mask)

    def average(y: Array) -> Array:
        return arrays.masked_mean(y, mask, axis_name=axis_name)

    # Less the mean, or in a first update less something amid the numbers, squares
    # lose no digits.
    sample = devices.maximum(jax.lax.stop_gradient(sample), axis_name)
    amid = jnp.where(fraction < 1, jax.lax.stop_gradient(mean), sample)
    gap = (amid - mean) - rest
    error = x - amid
    moved = average(error)
    new = jnp.maximum(average(jnp.square(error)) - jnp.square(moved), 0)
    mean, rest = _moments.add(mean, rest + fraction * moved, fraction * gap)
    variance = _moments.mixed_variance(
        variance, new, gap + moved, fraction, 1 - fraction
    )
    return mean, rest, variance
