"""Know the mean and the variance of all numbers so far, each of which counts alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import checks, devices, dtypes, streams
from rlaxlib._core.devices import AxisName
from rlaxlib.normalization import _moments

__all__ = [
    "RunningMoments",
    "RunningMomentsState",
    "running_moments",
]

_WHOLE = 4096  # Multiples of it are exact in single precision, up to 2^36 at least.


class RunningMoments(NamedTuple):
    """What all numbers so far say.

    Attributes:
        mean: Mean of each element, a tree like that of one entry.
        variance: Variance of each element, divided by the number of entries and not
            by one less, a tree like that of one entry.
    """

    mean: Any
    variance: Any


class RunningMomentsState(NamedTuple):
    """What is known of all entries so far.

    It is single precision at least, whatever it is fed. Every number comes in two
    parts: what is left of it after rounding is kept, and added up. Else the number of
    entries would stand still at 2 ** 24, and long before that the moments would.

    Attributes:
        mean: Mean of each element, a tree like that of one entry.
        variance: Variance of each element, a tree like that of one entry.
        num_entries: Number of entries, shape `[]`.
        mean_rest: What rounding took off the means, a tree like that of one entry.
        variance_rest: What rounding took off the variances, a tree like that of one
            entry.
        num_entries_rest: What rounding took off the number of entries, shape `[]`.
    """

    mean: Any
    variance: Any
    num_entries: Array
    mean_rest: Any
    variance_rest: Any
    num_entries_rest: Array

    def moments(self) -> RunningMoments:
        """Return mean and variance; before the first entry, 0 and 0."""
        return RunningMoments(self.mean, self.variance)

    def merge(self, other: RunningMomentsState) -> RunningMomentsState:
        """Return what is known of the entries of two states together.

        Args:
            other: What is known of other entries, of the same kind.

        Returns:
            The state that one would have that had seen them all, in whatever order.

        Raises:
            ArgumentError: If the trees are not alike.
        """
        checks.same_structure(state=self.mean, other=other.mean)
        for mean, new in _rows(self.mean, other.mean):
            checks.arrays(state=(mean, "float[...]"), other=(new, "float[...]"))
        rest = self.num_entries_rest + other.num_entries_rest
        count, rest = _moments.add(self.num_entries, rest, other.num_entries)
        known = jnp.maximum(count, 1)
        share = other.num_entries / known, self.num_entries / known
        columns = (self.mean, self.mean_rest, self.variance, self.variance_rest)
        others = other.mean, other.mean_rest, other.variance, other.variance_rest
        pairs = zip(_rows(*columns), _rows(*others), strict=True)
        mean, mean_rest, variance, variance_rest = _trees(
            self.mean, [_merge(one, another, *share) for one, another in pairs]
        )
        return RunningMomentsState(
            mean, variance, count, mean_rest, variance_rest, rest
        )

    def normalize(
        self,
        tree: Any,
        *,
        clip: ArrayLike | None = None,
        min_scale: ArrayLike = 1e-6,
    ) -> Any:
        """Shift and scale entries to a mean of 0 and a standard deviation of 1.

        .. math::

            y = (x - μ) / max(σ, σ_min)

        An element that has been the same in all entries has no scale: nothing is
        divided there.

        Args:
            tree: Entries, each leaf having any number of axes before those of one
                entry.
            clip: Largest absolute value of what is returned, more than 0, shape `[]`;
                or None for no bound.
            min_scale: Smallest number to divide by, more than 0, shape `[]`.

        Returns:
            A tree of the same shapes and floating-point dtypes.

        Raises:
            ArgumentError: If the tree is not like that of the state, or if a setting
                is out of its range.
        """
        clip, min_scale = checks.arrays(
            clip=(clip, "float[] or None"), min_scale=(min_scale, "float[]")
        )
        checks.within("(0, inf)", clip=clip, min_scale=min_scale)
        checks.same_structure(state=self.mean, tree=tree)

        def apply(leaf: Any, mean: Array, rest: Array, variance: Array) -> Array:
            x = _entries(leaf, mean)
            (wide,), narrow = dtypes.widen(x)
            dtype = wide.dtype
            axes = tuple(range(x.ndim - mean.ndim))
            mean, rest, scale = (
                jnp.expand_dims(each, axes).astype(dtype)
                for each in (mean, rest, _moments.scale(variance, min_scale))
            )
            y = ((wide - mean) - rest) / scale
            if clip is not None:
                y = jnp.clip(y, -clip.astype(dtype), clip.astype(dtype))
            return narrow(y)

        return jax.tree.map(apply, tree, self.mean, self.mean_rest, self.variance)


def running_moments(
    axis_name: AxisName | None = None,
) -> tuple[
    Callable[[Any], RunningMomentsState],
    Callable[..., tuple[RunningMoments, RunningMomentsState]],
]:
    """Make the mean and the variance of all entries so far, such as observations.

    .. math::

        μ = (1/n) ∑_{i=1}^n x_i,   σ² = (1/n) ∑_{i=1}^n (x_i - μ)²

    That is what is computed, and not how: a batch of m entries with mean :math:`x̄` and
    variance :math:`s²` is merged with the n before it,

    .. math::

        δ = x̄ - μ,   μ' = μ + (m / (n + m)) δ,
        σ'² = (n σ² + m s²) / (n + m) + ((n m) / (n + m)²) δ²,

    so that neither the order of the entries matters, nor how they come in batches, nor
    how far their mean is from 0. Entries of long ago count as much as those of now:
    where numbers change as an agent learns, `create_ema` follows them faster.

    Implementations in the wild start from one imagined ten-thousandth of an entry of
    variance 1, which the first batches are mixed with (Gym, Stable-Baselines3,
    PureJaxRL), or count in single precision, and so no further than to :math:`2²⁴`.
    This does neither.

    Args:
        axis_name: Name of the axis, or axes, that devices form, to take in the entries
            on all of them; or None to stay on one device.

    Returns:
        Two functions. `init_state(template_tree)` returns a `RunningMomentsState` that
        knows nothing, for entries like the one given: a tree whose leaves have the
        shape of one entry. `update_moments(tree, state)` returns the `RunningMoments`
        that take in the entries of a tree, floats or whole numbers, and the next
        state; before the axes of one entry, its leaves may have any others, which are
        averaged over, and none of these need be there. It also takes, by name, a
        `mask`: true where an entry counts, its axes being the first ones of each leaf.
        What the mask leaves out may be anything, NaN included; if it leaves out all,
        or there is nothing, nothing changes.

        The state has three functions: `state.moments()` says what is known;
        `state.normalize(tree, clip=10.0)` shifts and scales entries by it;
        `state.merge(other)` puts together what two have seen. What is known is
        constant under differentiation.

    Raises:
        ArgumentError: If a leaf holds something other than numbers, if its last axes
            are not those of one entry, if the mask does not fit, or if a tree is not
            like that of the state.

    Example:
        >>> init_state, update_moments = rlaxlib.running_moments()
        >>> state = init_state(jnp.zeros(2))
        >>> observations = jnp.array([[1.0, 0.0], [3.0, 0.0]])
        >>> moments, state = update_moments(observations, state)
        >>> print(moments.mean, moments.variance)
        [2. 0.] [1. 0.]
        >>> moments, state = update_moments(jnp.array([8.0, 3.0]), state)
        >>> print(moments.mean)
        [4. 1.]

    References:
        Tony F. Chan, Gene H. Golub and Randall J. LeVeque, *Algorithms for Computing
        the Sample Variance: Analysis and Recommendations*, 1983.
        https://doi.org/10.1080/00031305.1983.10483115

        Marcin Andrychowicz and others, *What Matters in On-Policy Reinforcement
        Learning? A Large-Scale Empirical Study*, section 3.3, 2020.
        https://arxiv.org/abs/2006.05990
    """

    def init_state(template_tree: Any) -> RunningMomentsState:
        """Return the state of moments that have seen nothing.

        Args:
            template_tree: A tree like that of one entry.

        Returns:
            The state.
        """
        zeros = jax.tree.map(_zeros, template_tree)
        count = _moments.widest(zeros)
        return RunningMomentsState(zeros, zeros, count, zeros, zeros, count)

    def update_moments(
        tree: Any, state: RunningMomentsState, *, mask: ArrayLike | None = None
    ) -> tuple[RunningMoments, RunningMomentsState]:
        """Take in the entries of one tree.

        Args:
            tree: Entries, each leaf having any number of axes before those of one
                entry.
            state: What is known so far.
            mask: True where an entry counts. Its axes are the first ones of each leaf;
                or None to count all.

        Returns:
            Mean and variance of each element, and what to carry to the next update.
        """
        checks.same_structure(state=state.mean, tree=tree)
        state = state.merge(_describe(tree, state, mask, axis_name))
        return state.moments(), state

    return init_state, update_moments


def _zeros(leaf: ArrayLike) -> Array:
    """Return zeros, in the precision to average the entries of a leaf in."""
    (x,) = checks.arrays(template_tree=(_moments.numbers(leaf), "float[...]"))
    return _moments.zeros(x)


def _rows(*trees: Any) -> list[tuple[Array, ...]]:
    """Return the leaves of trees of the same structure, side by side."""
    return list(zip(*(cast(Any, jax.tree.leaves(each)) for each in trees), strict=True))


def _trees(like: Any, rows: list[tuple[Array, ...]]) -> tuple[Any, ...]:
    """Return trees again, of the structure of another."""
    structure = cast(Any, jax.tree.structure(like))
    return tuple(
        jax.tree.unflatten(structure, each) for each in zip(*rows, strict=True)
    )


def _merge(
    one: tuple[Array, ...], other: tuple[Array, ...], weight: Array, kept: Array
) -> tuple[Array, ...]:
    """Merge the moments of one leaf: mean and variance, each in two parts."""
    mean, mean_rest, variance, variance_rest = one
    new, new_rest, new_variance, new_variance_rest = other
    weight, kept = weight.astype(mean.dtype), kept.astype(mean.dtype)
    gap = (new - mean) + (new_rest - mean_rest)
    change = (new_variance - variance) + (new_variance_rest - variance_rest)
    square = jnp.square(gap)
    # From where there is more on, in a small step: so each form where it rounds least.
    small = weight < 0.5
    means = _moments.add(
        jnp.where(small, mean, new),
        jnp.where(small, mean_rest, new_rest),
        jnp.where(small, weight * gap, -kept * gap),
    )
    variances = _moments.add(
        jnp.where(small, variance, new_variance),
        jnp.where(small, variance_rest, new_variance_rest),
        jnp.where(
            small, weight * (change + kept * square), kept * (weight * square - change)
        ),
    )
    return *means, *variances


def _describe(
    tree: Any, state: RunningMomentsState, mask: Any, axis_name: AxisName | None
) -> RunningMomentsState:
    """Return what the entries of one tree say, on all devices together."""
    (mask,) = checks.arrays(mask=(mask, "bool[...] or None"))
    rows = [(_entries(leaf, mean), mean) for leaf, mean in _rows(tree, state.mean)]
    leading = [x.shape[: x.ndim - mean.ndim] for x, mean in rows]
    if len(set(leading)) != 1:
        checks.fail(
            "the leaves of `tree` must share the axes before those of one entry, but "
            f"these are {leading}"
        )
    for x, _ in rows:
        _check_mask(mask, x, len(leading[0]))
    mask = _flat(mask, leading[0])
    count, count_rest = _count(mask, leading[0], state.num_entries.dtype, axis_name)
    flat = [(x.reshape(math.prod(leading[0]), *mean.shape), mean) for x, mean in rows]
    found = [_moments_of(x, mean, mask, count, axis_name) for x, mean in flat]
    mean, mean_rest, variance, variance_rest = _trees(state.mean, found)
    return RunningMomentsState(
        mean, variance, count, mean_rest, variance_rest, count_rest
    )


def _entries(leaf: Any, mean: Array) -> Array:
    """Return a leaf as floats, its last axes being those of one entry."""
    (x,) = checks.arrays(tree=(_moments.numbers(leaf), "float[...]"))
    axes = x.ndim - mean.ndim
    if axes < 0 or x.shape[axes:] != mean.shape:
        checks.fail(
            f"the last axes of `tree` must be those of one entry, {list(mean.shape)}, "
            f"but a leaf is {x.dtype}{list(x.shape)}"
        )
    return x


def _check_mask(mask: Array | None, x: Array, axes: int) -> None:
    if mask is None:
        return
    checks.leading_axes(mask=mask, tree=x)
    if mask.ndim > axes:
        checks.fail(
            "`mask` must tell of whole entries, and so have at most as many axes as "
            f"there are before those of one entry, {axes}, but has {mask.ndim}"
        )


def _flat(mask: Array | None, leading: tuple[int, ...]) -> Array | None:
    """Return whether each entry counts, `[N]`."""
    if mask is None:
        return None
    mask = mask.reshape(mask.shape + (1,) * (len(leading) - mask.ndim))
    return jnp.broadcast_to(mask, leading).ravel()


def _count(
    mask: Array | None, leading: tuple[int, ...], dtype: Any, axis_name: AxisName | None
) -> tuple[Array, Array]:
    """Return how many entries count on all devices, in two parts."""
    if mask is None:
        count: Any = math.prod(leading) * devices.number(axis_name)
    else:
        count = jnp.sum(mask, dtype=jnp.int32)
    # Each part is exact: so is their sum over devices, and then their sum.
    parts = count // _WHOLE * _WHOLE, count % _WHOLE
    whole, part = (jnp.asarray(each, dtype) for each in parts)
    if mask is not None:
        whole, part = (devices.total(each, axis_name) for each in (whole, part))
    return _moments.add(whole, jnp.zeros_like(part), part)


def _moments_of(
    x: Array, like: Array, mask: Array | None, count: Array, axis_name: AxisName | None
) -> tuple[Array, ...]:
    """Return mean and variance, each in two parts, of the entries of one leaf."""
    x = jax.lax.stop_gradient(streams.valid(x, mask).astype(like.dtype))
    count = jnp.maximum(count, 1).astype(like.dtype)

    def average(y: Array) -> Array:
        return devices.total(jnp.sum(y, axis=0), axis_name) / count

    # Less one of the entries, and less the mean then, squares lose no digits; and what
    # rounding left of the mean comes off again.
    if mask is None and x.size:  # The first is as good as the largest, and at hand.
        shift = devices.maximum(x[0], axis_name)
    else:
        counts = jnp.zeros(x.shape[:1], bool) if mask is None else mask
        counts = jnp.expand_dims(counts, tuple(range(1, x.ndim)))
        shift = devices.largest(x, counts, axis_name, axis=0)
    error = streams.valid(x - shift[None], mask)
    moved = average(error)
    error = streams.valid(error - moved[None], mask)
    rest, square = average(error), average(jnp.square(error))
    variance = jnp.maximum(square - jnp.square(rest), 0)
    return *_moments.add(shift, rest, moved), variance, jnp.zeros_like(variance)
