"""Means and variances: exponential moving averages (EMA) and running moments.

- `create_ema`: moments of recent updates, for numbers that change during learning.
- `running_moments`: moments of all entries so far, such as observations.

A normaliser has two methods and unpacks into them: `init, update = create_ema()`.
Variances are centred. The mean square minus the squared mean would be 0 in single
precision where the mean is 10,000 standard deviations from zero.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rlaxlib import arrays
from rlaxlib._core import checks, devices, moments, safe, streams
from rlaxlib._core.functions import FunctionTuple
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, AxisName, Bool, Float, Tree
from rlaxlib.normalization._shared import scale, zeros

__all__ = [
    "Ema",
    "EmaMoments",
    "EmaState",
    "Moments",
    "RunningMoments",
    "RunningMomentsState",
    "create_ema",
    "running_moments",
]


class EmaMoments(NamedTuple):
    """Moments of exponential moving averages.

    Attributes:
        mean: Mean of each leaf, a tree of scalars, each of shape `[]`.
        variance: Variance of each leaf, a tree of scalars, each of shape `[]`.
    """

    mean: Any
    variance: Any


class EmaState(NamedTuple):
    """State of exponential moving averages, in single precision at least.

    Attributes:
        mean: Mean of each leaf, a tree of scalars, each of shape `[]`.
        variance: Variance of each leaf, a tree of scalars, each of shape `[]`.
        weight: Sum of the weights, :math:`1 - d^n` after n updates, shape `[]`.
    """

    mean: Tree[Any, "float"]
    variance: Tree[Any, "float like mean"]
    weight: Float[Array, ""]

    @property
    def decay_product(self) -> Array:
        """Product of the decays of all updates, :math:`d^n`, shape `[]`."""
        return 1 - self.weight

    @property
    def mu(self) -> Any:
        """Biased EMA of the entries, a tree of scalars, each of shape `[]`."""
        return jax.tree.map(self._biased, self.mean)

    @property
    def nu(self) -> Any:
        """Biased EMA of the squares. A variance computed from it cancels."""

        def square(mean: Array, variance: Array) -> Array:
            return self._biased(variance + jnp.square(mean))

        return jax.tree.map(square, self.mean, self.variance)

    def _biased(self, average: Array) -> Array:
        return average * self.weight.astype(average.dtype)

    def debiased_moments(self) -> EmaMoments:
        """Return mean and variance; before the first update, 0 and 0."""
        return EmaMoments(self.mean, self.variance)


@checked
def create_ema(
    decay: Float[ArrayLike, "in [0, 1)"] = 0.999,
    pmean_axis_name: AxisName | None = None,
) -> Ema:
    """Create exponential moving averages (EMA) of the mean and variance of leaves.

    Takes settings, returns a normaliser: `init` makes a state, `update` updates it.

    ::

        μ_n = (1/w_n) ∑_{i=1}^n (1 - d) d^{n-i} x̄_i,
        σ_n² = (1/w_n) ∑_{i=1}^n (1 - d) d^{n-i} mean((x_i - μ_n)²),
        w_n = 1 - d^n,

    where the bar and the means are over the entries of a leaf. Each update computes

    ::

        a = (1 - d) / w_n,   δ = x̄_n - μ_{n-1},   s² = mean((x_n - x̄_n)²),
        μ_n = μ_{n-1} + a δ,
        σ_n² = σ_{n-1}² + a [s² - σ_{n-1}² + (1 - a) δ²].

    Dividing by :math:`w_n` removes the bias towards the initial 0. The averages cover
    about :math:`1/(1 - d)` updates, with any numbers of entries.

    Args:
        decay: Decay :math:`d` in [0, 1), shape `[]`. Python floats keep their
            precision.
        pmean_axis_name: Mapped axis name, or names, to average over as well; or None.

    Returns:
        An `Ema`. `init(template_tree)` returns the initial `EmaState` for trees like
        the template, `update(tree, state)` the updated `EmaMoments` and `EmaState`.
        Leaves are floats or integers of any shape. The keyword
        `sample_mask` is false for entries to ignore, which may be NaN; its axes are the
        first of each leaf. If it excludes all entries, the state stays the same.

    Raises:
        ArgumentError: If `decay`, a leaf, a mask or a tree does not fit.

    Example:
        >>> init, update = rlaxlib.create_ema(decay=0.5)
        >>> moments, state = update(jnp.array([1.0, 3.0]), init(jnp.zeros(2)))
        >>> moments, state = update(jnp.array([5.0, 5.0]), state)
        >>> print(moments.mean, moments.variance.round(2))
        4.0 2.33

    References:
        Tony Finch, *Incremental Calculation of Weighted Mean and Variance*, 2009.
        https://fanf2.user.srcf.net/hermes/doc/antiforgery/stats.pdf

        Diederik P. Kingma and Jimmy Ba, *Adam: A Method for Stochastic Optimization*,
        section 3, 2014. https://arxiv.org/abs/1412.6980
    """
    # In single precision a decay close to 1 is not exact, but the rate is.
    return Ema(1 - decay, pmean_axis_name)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Ema(FunctionTuple):
    """Exponential moving averages, which `create_ema` makes.

    Attributes:
        rate: One minus the decay :math:`d`, in (0, 1], shape `[]`.
        axis_name: Mapped axis name, or names, to average over as well; or None.
    """

    rate: Float[ArrayLike, "in (0, 1]"]
    axis_name: AxisName | None = dataclasses.field(metadata={"static": True})
    _functions = ("init", "update")

    @checked(compiled=False)
    def init(self, template_tree: Tree[Any, "real"]) -> EmaState:
        """Return the initial state, which has seen no entries.

        Args:
            template_tree: A tree with the structure of the updates, leaves of any
                shape.

        Returns:
            The state.

        Raises:
            ArgumentError: If a leaf is neither a float nor an integer.
        """
        like = zeros(template_tree)
        mean, variance = (jax.tree.map(jnp.sum, like) for _ in range(2))
        return EmaState(mean, variance, _zero_like_leaves(like))

    @checked(wide=True)
    def update(
        self,
        tree: Tree[Any, "real *_ like state.mean"],
        state: EmaState,
        *,
        sample_mask: Bool[ArrayLike, "..."] | None = None,
    ) -> tuple[EmaMoments, EmaState]:
        """Include the entries of one tree.

        Args:
            tree: Numbers, leaves of any shape.
            state: State of the moving averages.
            sample_mask: False for the entries to ignore, shape `[...]`. Its axes are
                the first ones of each leaf; or None.

        Returns:
            An `EmaMoments`, mean and variance of each leaf, and the next state.

        Raises:
            ArgumentError: If a leaf, the mask or the tree does not fit the state.
        """

        def average(x: Array) -> Array:
            return arrays.masked_mean(x, mask=sample_mask, axis_name=self.axis_name)

        weight, fraction = _weigh(state.weight, self.rate, sample_mask, self.axis_name)

        def mix(x: Array, mean: Array, variance: Array) -> tuple[Array, Array]:
            x, a = _clean(x, mean, sample_mask), fraction.astype(mean.dtype)
            x_bar = average(x)
            s2, delta = average(jnp.square(x - x_bar)), x_bar - mean
            # `(1 - a) * variance` would round a small fraction away.
            variance += a * (s2 - variance + (1 - a) * jnp.square(delta))
            return mean + a * delta, variance

        mean, variance = _map_to_trees(2, mix, tree, state.mean, state.variance)
        state = EmaState(mean, variance, weight)
        return state.debiased_moments(), state


class Moments(NamedTuple):
    """Moments of all entries so far.

    Attributes:
        mean: Mean of each element, a tree like one entry.
        variance: Variance of each element, without Bessel's correction, likewise.
    """

    mean: Any
    variance: Any


class RunningMomentsState(NamedTuple):
    """State of running moments, in single precision at least.

    Attributes:
        mean: Mean of each element, a tree like one entry.
        variance: Variance of each element, a tree like one entry.
        num_entries: Number of entries, shape `[]`.
        num_entries_rest: Rounding error of `num_entries`, shape `[]`. Without it, the
            number would stop at 2 ** 24 in single precision.
        mean_rest: Rounding error of `mean`, likewise, a tree like one entry.
        variance_rest: Rounding error of `variance`, likewise.
    """

    mean: Tree[Any, "float"]
    variance: Tree[Any, "float like mean"]
    num_entries: Float[Array, ""]
    num_entries_rest: Float[Array, ""]
    mean_rest: Tree[Any, "float like mean"]
    variance_rest: Tree[Any, "float like mean"]

    def moments(self) -> Moments:
        """Return mean and variance; before the first entry, 0 and 0."""
        return Moments(self.mean, self.variance)

    @checked
    def merge(self, other: RunningMomentsState) -> RunningMomentsState:
        """Return the moments of the entries of two states together.

        Args:
            other: State of other entries, with the same shapes.

        Returns:
            The state for the entries of both.

        Raises:
            ArgumentError: If tree structures or shapes differ.
        """
        checks.same_structure(state=self.mean, other=other.mean)
        means = (jax.tree.leaves(each.mean) for each in (self, other))
        for mean, new in zip(*means, strict=True):
            if mean.shape != new.shape:
                checks.fail(f"`other` has shape {new.shape}, must be {mean.shape}")
        return _merge(self, other)

    @checked
    def normalize(
        self,
        tree: Tree[Any, "real"],
        *,
        clip: Float[ArrayLike, "in [0, inf]"] | None = None,
        min_scale: Float[ArrayLike, "in (0, inf)"] = 1e-6,
    ) -> Tree[Any, "float like tree"]:
        """Normalise entries to mean 0 and standard deviation 1.

        ::

            y = (x - μ) / max(σ, σ_min)

        An element with variance 0 is divided by 1.

        Args:
            tree: Entries, each leaf with any number of axes before those of one entry.
            clip: Largest magnitude of the result, in [0, inf], shape `[]`; or None for
                no bound.
            min_scale: Smallest divisor :math:`σ_min`, in (0, inf), shape `[]`.

        Returns:
            A tree of the same shapes and floating-point dtypes.

        Raises:
            ArgumentError: If the tree does not fit the state, `clip` is negative, or
                `min_scale` is not positive.
        """
        checks.same_structure(state=self.mean, tree=tree)

        def apply(x: Array, mean: Array, variance: Array) -> Array:
            axes = tuple(range(x.ndim - mean.ndim))
            mean, divisor = (
                jnp.expand_dims(each, axes).astype(x.dtype)
                for each in (mean, scale(variance, min_scale))
            )
            y = (x - mean) / divisor
            if clip is not None:
                y = jnp.clip(y, -clip.astype(y.dtype), clip.astype(y.dtype))
            return y

        _check_entries(tree, self.mean)
        return jax.tree.map(apply, tree, self.mean, self.variance)


@checked
def running_moments(
    *,
    axis_name: AxisName | None = None,
) -> RunningMoments:
    """Create running moments, the mean and variance of all entries so far.

    Takes settings, returns a normaliser: `init` makes a state, `update` updates it.

    ::

        μ = (1/n) ∑_{i=1}^n x_i,   σ² = (1/n) ∑_{i=1}^n (x_i - μ)²

    An update merges m entries with mean :math:`x̄` and variance :math:`s²`:

    ::

        a = m / (n + m),   δ = x̄ - μ,
        μ' = μ + a δ,   σ'² = σ² + a [s² - σ² + (1 - a) δ²].

    The result depends neither on the order of entries nor on their batches. For numbers
    that change during learning, such as returns, `create_ema` adapts faster.

    Args:
        axis_name: Mapped axis name, or names, whose entries count too; or None.

    Returns:
        A `RunningMoments`. `init(template_tree)` returns the initial
        `RunningMomentsState` for entries like the template, `update(state, tree)` the
        updated `Moments` and `RunningMomentsState`. Leaves are floats or integers, with
        any number of axes before those of one entry. The keyword `sample_mask` is false
        for entries to ignore, which may be NaN; its axes are the first of each leaf.
        Without an entry, the state stays the same. Of a state,
        `moments()` returns mean and variance without a gradient,
        `normalize(tree)` normalises entries, `merge(other)` joins two.

    Raises:
        ArgumentError: If a leaf, mask or tree does not fit the state.

    Example:
        >>> init, update = rlaxlib.running_moments()
        >>> x = jnp.array([[1.0, 0.0], [3.0, 0.0]])
        >>> moments, state = update(init(jnp.zeros(2)), x)
        >>> print(moments.mean, moments.variance)
        [2. 0.] [1. 0.]

    References:
        Tony F. Chan, Gene H. Golub and Randall J. LeVeque, *Algorithms for Computing
        the Sample Variance: Analysis and Recommendations*, 1983.
        https://doi.org/10.1080/00031305.1983.10483115
    """
    return RunningMoments(axis_name)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class RunningMoments(FunctionTuple):
    """Mean and variance of all entries so far, which `running_moments` makes.

    Attributes:
        axis_name: Mapped axis name, or names, whose entries count too; or None.
    """

    axis_name: AxisName | None = dataclasses.field(metadata={"static": True})
    _functions = ("init", "update")

    @checked(compiled=False)
    def init(self, template_tree: Tree[Any, "real"]) -> RunningMomentsState:
        """Return the initial state, which has seen no entries.

        Args:
            template_tree: A tree like one entry.

        Returns:
            The state.

        Raises:
            ArgumentError: If a leaf is neither a float nor an integer.
        """
        mean, variance, *rests = (zeros(template_tree) for _ in range(4))
        counts = (_zero_like_leaves(mean) for _ in range(2))
        return RunningMomentsState(mean, variance, *counts, *rests)

    @checked(wide=True)
    def update(
        self,
        state: RunningMomentsState,
        tree: Tree[Any, "real *_ like state.mean"],
        *,
        sample_mask: Bool[ArrayLike, "..."] | None = None,
    ) -> tuple[Moments, RunningMomentsState]:
        """Include the entries of one tree.

        Args:
            state: State of the running moments.
            tree: Entries, each leaf with any number of axes before those of one entry.
            sample_mask: False for the entries to ignore, shape `[...]`. Its axes are
                the first ones of each leaf; or None.

        Returns:
            A `Moments`, mean and variance of each element, and the next state.

        Raises:
            ArgumentError: If a leaf, the mask or the tree does not fit the state.
        """
        state = _merge(state, _describe(tree, state, sample_mask, self.axis_name))
        return state.moments(), state


def _map_to_trees(
    number: int, function: Callable[..., tuple[Array, ...]], *trees: Any
) -> list[Any]:
    """Map a function over the leaves of trees, and return a tree of each result."""
    structure = jax.tree.structure(trees[0])
    leaves = zip(*map(jax.tree.leaves, trees), strict=True)
    results = [function(*each) for each in leaves]
    return [
        jax.tree.unflatten(structure, [each[i] for each in results])
        for i in range(number)
    ]


# --- Parts of the moving averages. ---


def _zero_like_leaves(tree: Any) -> Array:
    """Return a zero that varies over the same mesh axes as the leaves of a tree."""
    leaves = jax.tree.leaves(tree)
    return sum((jnp.sum(x.astype(float)) for x in leaves), jnp.zeros((), float))


def _clean(x: Array, mean: Array, mask: Array | None) -> Array:
    """Return a leaf in the dtype of its mean, and 0 where it is masked."""
    if not x.size:
        checks.fail("`tree.size` is 0, must be at least 1")
    if mask is not None:
        checks.leading_axes(sample_mask=mask, tree=x)
    return streams.valid(x, mask).astype(mean.dtype)


def _weigh(
    weight: Array, rate: ArrayLike, mask: Array | None, axis_name: AxisName | None
) -> tuple[Array, Array]:
    """Return the next weight :math:`w_n`, and the fraction :math:`a` of the update."""
    rate = jnp.asarray(rate, weight.dtype)
    if mask is not None:
        count = devices.total(jnp.sum(mask, dtype=jnp.int32), axis_name)
        rate = jnp.where(count > 0, rate, 0)
    weight = weight + rate * (1 - weight)
    return weight, safe.divide(rate, weight)


# --- Parts of the running moments. ---


def _merge(
    state: RunningMomentsState, other: RunningMomentsState
) -> RunningMomentsState:
    """Return the moments of the entries of two states together."""
    count_rest = state.num_entries_rest + other.num_entries_rest
    count, count_rest = moments.add(state.num_entries, count_rest, other.num_entries)
    weight = other.num_entries / jnp.maximum(count, 1)

    def merge(*leaves: Array) -> tuple[Array, ...]:
        return moments.merge(leaves[:4], leaves[4:], weight)

    one, two = (
        (each.mean, each.variance, each.mean_rest, each.variance_rest)
        for each in (state, other)
    )
    mean, variance, *rests = _map_to_trees(4, merge, *one, *two)
    return RunningMomentsState(mean, variance, count, count_rest, *rests)


def _describe(
    tree: Any,
    state: RunningMomentsState,
    mask: Array | None,
    axis_name: AxisName | None,
) -> RunningMomentsState:
    """Return the moments of the entries of one tree, on all devices together."""
    _check_entries(tree, state.mean)
    means = jax.tree.leaves(state.mean)
    leaves = jax.tree.leaves(tree)
    shapes = [x.shape[: x.ndim - y.ndim] for x, y in zip(leaves, means, strict=True)]
    if len(set(shapes)) != 1:
        checks.fail(
            "the leaves of `tree` must have the same axes before those of one entry, "
            f"but these are {shapes}"
        )
    included = _included(mask, leaves[0], shapes[0])
    count = devices.total(jnp.sum(included, dtype=jnp.int32), axis_name)

    def describe(x: Array, mean: Array) -> tuple[Array, Array]:
        return _batch_moments(x, mean, included, axis_name)

    mean, variance = _map_to_trees(2, describe, tree, state.mean)
    count = count.astype(state.num_entries.dtype)
    rests = (zeros(mean) for _ in range(2))
    return RunningMomentsState(mean, variance, count, jnp.zeros_like(count), *rests)


def _check_entries(tree: Any, like: Any) -> None:
    """Check that the last axes of the leaves are those of one entry."""
    leaves = zip(jax.tree.leaves(tree), jax.tree.leaves(like), strict=True)
    for x, entry in leaves:
        axes = x.ndim - entry.ndim
        if axes < 0 or x.shape[axes:] != entry.shape:
            checks.fail(
                f"a leaf of `tree` has shape {x.shape}, must end with the shape of one "
                f"entry, {entry.shape}"
            )


def _included(mask: Array | None, x: Array, leading: tuple[int, ...]) -> Array:
    """Return whether to include each entry, `[N]`."""
    if mask is None:
        return jnp.ones(math.prod(leading), bool)
    checks.leading_axes(sample_mask=mask, tree=x)
    if mask.ndim > len(leading):
        checks.fail(
            f"`sample_mask` has shape {mask.shape}, must have no axes but those before "
            f"one entry, {leading}"
        )
    mask = mask.reshape(mask.shape + (1,) * (len(leading) - mask.ndim))
    return jnp.broadcast_to(mask, leading).ravel()


def _batch_moments(
    x: Array, like: Array, included: Array, axis_name: AxisName | None
) -> tuple[Array, Array]:
    """Return mean and variance of the entries of one leaf."""
    x = jax.lax.stop_gradient(x).reshape(included.size, *like.shape)
    where = included.reshape(-1, *[1] * like.ndim)
    found = moments.of(x.astype(like.dtype), where, axis_name, axis=0)
    return found.mean, found.variance
