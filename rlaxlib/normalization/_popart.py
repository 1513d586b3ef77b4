"""PopArt: learn values of any scale with normalised targets.

- `popart`: both parts together, as functions for the initial state and the update.
- `art`: adaptively rescale targets (ART), by a shift and a scale that follow them.
- `pop`: preserve outputs precisely (POP), by rescaling the last layer.
- `normalize`, `unnormalize`, `unnormalize_linear`: convert targets and outputs.

Each output of the layer, one for each task or reward, has its own shift and scale. An
index states which output a number belongs to.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from rlaxlib._core import checks, devices, dtypes, indexing
from rlaxlib._core.devices import AxisName
from rlaxlib.normalization import _moments
from rlaxlib.normalization._moments import StateFunctions

__all__ = [
    "PopArtOutput",
    "PopArtState",
    "art",
    "normalize",
    "pop",
    "popart",
    "unnormalize",
    "unnormalize_linear",
]

Params = TypeVar("Params")

_BIAS_OF = {"w": "b", "kernel": "bias"}  # Names in Haiku and in Flax.


class PopArtState(NamedTuple):
    """Statistics of the targets of each output.

    Attributes:
        shift: Mean of the targets, shape `[N]`.
        scale: Standard deviation of the targets, clipped to bounds, shape `[N]`.
        second_moment: Mean of the squared targets, shape `[N]`.
    """

    shift: Array
    scale: Array
    second_moment: Array


class PopArtOutput(NamedTuple):
    """Outputs of a layer, normalised and not.

    Attributes:
        normalized: Outputs, to compare with normalised targets, shape `[...]`.
        unnormalized: The values that they represent, shape `[...]`.
    """

    normalized: Array
    unnormalized: Array


def normalize(state: PopArtState, unnormalized: ArrayLike, indices: ArrayLike) -> Array:
    """Normalise numbers, such as value targets, by the statistics of their outputs.

    Takes numbers of any shape, returns one for each.

    .. math:: y_i = (x_i - μ_{k_i}) / σ_{k_i}

    Args:
        state: Shift :math:`μ` and scale :math:`σ` of each of N outputs.
        unnormalized: Numbers :math:`x`, such as value targets, shape `[...]`.
        indices: Output :math:`k_i` of each number, in [0, N), shape `[]` or `[...]`. In
            a JAX array, an index out of range gives NaN.

    Returns:
        Normalised numbers, shape `[...]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a NumPy index out of range.

    Example:
        >>> shift, scale = jnp.array([0.0, 8.0]), jnp.array([1.0, 4.0])
        >>> state = rlaxlib.PopArtState(shift, scale, shift**2 + scale**2)
        >>> print(rlaxlib.normalize(state, jnp.array([2.0, 16.0]), jnp.array([0, 1])))
        [2. 2.]

    References:
        Hado van Hasselt and others, *Learning Values across Many Orders of Magnitude*,
        2016. https://arxiv.org/abs/1602.07714
    """
    unnormalized, indices, shift, scale, narrow = checks.widened(
        unnormalized=(_moments.floats(unnormalized), "float[...]"),
        indices=(indices, "int[] or [...] in [0, N)"),
        shift=(state.shift, "float[N]"),
        scale=(state.scale, "float[N]"),
    )
    shift, scale = _pick(indices, shift, scale)
    return narrow((unnormalized - shift) / scale)


def unnormalize(state: PopArtState, normalized: ArrayLike, indices: ArrayLike) -> Array:
    """Convert normalised outputs to the values that they represent.

    Takes numbers of any shape, returns one for each.

    .. math:: x_i = σ_{k_i} y_i + μ_{k_i}

    Args:
        state: Shift :math:`μ` and scale :math:`σ` of each of N outputs.
        normalized: Normalised numbers :math:`y`, shape `[...]`.
        indices: Output :math:`k_i` of each number, in [0, N), shape `[]` or `[...]`. In
            a JAX array, an index out of range gives NaN.

    Returns:
        Values, shape `[...]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a NumPy index out of range.

    Example:
        >>> shift, scale = jnp.array([0.0, 8.0]), jnp.array([1.0, 4.0])
        >>> state = rlaxlib.PopArtState(shift, scale, shift**2 + scale**2)
        >>> print(rlaxlib.unnormalize(state, jnp.array([2.0, 2.0]), jnp.array([0, 1])))
        [ 2. 16.]

    References:
        Hado van Hasselt and others, *Learning Values across Many Orders of Magnitude*,
        2016. https://arxiv.org/abs/1602.07714
    """
    normalized, indices, shift, scale, narrow = checks.widened(
        normalized=(_moments.floats(normalized), "float[...]"),
        indices=(indices, "int[] or [...] in [0, N)"),
        shift=(state.shift, "float[N]"),
        scale=(state.scale, "float[N]"),
    )
    shift, scale = _pick(indices, shift, scale)
    return narrow(scale * normalized + shift)


def unnormalize_linear(
    state: PopArtState, inputs: ArrayLike, indices: ArrayLike
) -> PopArtOutput:
    """Select one output of a layer, and convert it to the value that it represents.

    Takes all outputs of a layer, returns the one selected, normalised and not.

    .. math:: y_i = h_{i,k_i},   x_i = σ_{k_i} y_i + μ_{k_i}

    A multi-task agent selects the output of its task. Losses take the normalised output
    :math:`y`, bootstrapping the value :math:`x`.

    Args:
        state: Shift :math:`μ` and scale :math:`σ` of each of N outputs.
        inputs: All outputs :math:`h` of the layer, shape `[..., N]`.
        indices: Output :math:`k_i` to select, in [0, N), shape `[...]`. In a JAX array,
            an index out of range gives NaN.

    Returns:
        A `PopArtOutput` of the outputs selected, each of shape `[...]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a NumPy index out of range.

    Example:
        >>> shift, scale = jnp.array([0.0, 8.0]), jnp.array([1.0, 4.0])
        >>> state = rlaxlib.PopArtState(shift, scale, shift**2 + scale**2)
        >>> output = rlaxlib.unnormalize_linear(state, jnp.array([1.0, 2.0]), 1)
        >>> print(output.normalized, output.unnormalized)
        2.0 16.0

    References:
        Matteo Hessel and others, *Multi-Task Deep Reinforcement Learning with PopArt*,
        2018. https://arxiv.org/abs/1809.04474
    """
    inputs, indices, shift, scale, narrow = checks.widened(
        inputs=(inputs, "float[..., N]"),
        indices=(indices, "int[...] in [0, N)"),
        shift=(state.shift, "float[N]"),
        scale=(state.scale, "float[N]"),
    )
    (y,) = _pick(indices, inputs)
    shift, scale = _pick(indices, shift, scale)
    return narrow(PopArtOutput(y, scale * y + shift))


def art(
    state: PopArtState,
    targets: ArrayLike,
    indices: ArrayLike,
    step_size: ArrayLike,
    scale_lb: ArrayLike,
    scale_ub: ArrayLike,
    axis_name: AxisName | None = None,
    *,
    sample_mask: ArrayLike | None = None,
) -> PopArtState:
    """Update the shift and scale of each output by its targets (ART).

    Takes a state and targets, returns the next state.

    .. math::

        μ' = (1 - β_n) μ + β_n x̄,   ν' = (1 - β_n) ν + β_n mean(x²),
        σ' = √(ν' - μ'²),   β_n = 1 - (1 - β)^n,

    where the bar and the mean are over the n targets of the output, and :math:`σ'` is
    clipped to bounds. It makes n steps of the paper, of size :math:`β`, towards the
    mean. The variance is computed without the difference of two large squares, as

    .. math:: σ'² = σ² + β_n [mean((x - x̄)²) - σ² + (1 - β_n) (x̄ - μ)²],

    where :math:`σ` is the scale, or :math:`σ² = ν - μ²` if the scale was clipped.

    In single precision, subtract a constant from targets of 100,000 times the scale.

    Args:
        state: Statistics of the targets of N outputs, in single precision at least.
        targets: Targets :math:`x`, not normalised, shape `[...]`.
        indices: Output of each target, in [0, N), shape `[...]`. In a JAX array, an
            index out of range excludes its target.
        step_size: Step size :math:`β` of one target, in [0, 1], shape `[]`.
        scale_lb: Lower bound of the scale, more than 0, shape `[]`.
        scale_ub: Upper bound of the scale, at least `scale_lb`, shape `[]`.
        axis_name: Mapped axis name, or names, whose targets count too; or None.
        sample_mask: False for targets to ignore, even NaN, shape `[...]`; or None.

    Returns:
        The updated statistics, with their gradient stopped.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> state = rlaxlib.PopArtState(jnp.zeros(1), jnp.ones(1), jnp.ones(1))
        >>> state = rlaxlib.art(state, jnp.array([4.0]), jnp.array([0]), 0.5, 1e-4, 1e4)
        >>> print(state.shift, state.second_moment)
        [2.] [8.5]

    References:
        Hado van Hasselt and others, *Learning Values across Many Orders of Magnitude*,
        2016. https://arxiv.org/abs/1602.07714

        Tony Finch, *Incremental Calculation of Weighted Mean and Variance*, 2009.
        https://fanf2.user.srcf.net/hermes/doc/antiforgery/stats.pdf
    """
    step_size, scale_lb, scale_ub = checks.arrays(
        step_size=(step_size, "float[] in [0, 1]"),
        scale_lb=(scale_lb, "float[] in (0, inf]"),
        scale_ub=(scale_ub, "float[] in (0, inf]"),
    )
    checks.ordered(scale_lb=scale_lb, scale_ub=scale_ub)
    return _move(
        state, targets, indices, step_size, scale_lb, scale_ub, axis_name, sample_mask
    )


def pop(params: Params, old: PopArtState, new: PopArtState) -> Params:
    """Rescale a layer so that its unnormalised outputs are preserved (POP).

    Takes the parameters of a layer and two states, returns parameters.

    .. math:: W' = W diag(σ/σ'),   b' = (σ b + μ - μ') / σ'

    Then :math:`σ' (W'ᵀ h + b') + μ' = σ (Wᵀ h + b) + μ` for any input :math:`h`.
    Without a bias, the unnormalised outputs move by the change of the shift. Continue
    training from the returned parameters. If a target network has older parameters,
    keep the state of the same age with them.

    Args:
        params: Parameters of the layer, any tree that holds weights called `w` or
            `kernel`, with the N outputs as their last axis, and possibly a bias called
            `b` or `bias`. Other leaves are returned unchanged.
        old: Shift :math:`μ` and scale :math:`σ` that the parameters belong to.
        new: Shift :math:`μ'` and scale :math:`σ'` to convert them to.

    Returns:
        The new parameters, a tree of the same structure and dtypes. Use single
        precision: half precision rounds away small updates.

    Raises:
        ArgumentError: If the weights of not exactly one layer are found, or a shape
            does not fit.

    Example:
        >>> old = rlaxlib.PopArtState(jnp.zeros(1), jnp.ones(1), jnp.ones(1))
        >>> new = rlaxlib.PopArtState(jnp.ones(1), jnp.full(1, 2.0), jnp.full(1, 5.0))
        >>> params = rlaxlib.pop({"w": jnp.ones((3, 1)), "b": jnp.zeros(1)}, old, new)
        >>> print(params["w"].ravel(), params["b"])
        [0.5 0.5 0.5] [-0.5]

    References:
        Hado van Hasselt and others, *Learning Values across Many Orders of Magnitude*,
        proposition 1, 2016. https://arxiv.org/abs/1602.07714
    """
    return _preserve(params, old, new)


def popart(
    num_outputs: int,
    step_size: ArrayLike | None,
    scale_lb: ArrayLike,
    scale_ub: ArrayLike,
    axis_name: AxisName | None = None,
    *,
    dtype: DTypeLike = jnp.float32,
) -> StateFunctions[Any, PopArtState]:
    """Create the initial state and the update of PopArt.

    Takes settings, returns a pair of functions: one makes a state, one updates it.

    .. math:: (μ', σ') = ART(μ, σ, x, k),   (W', b') = POP(W, b, μ, σ, μ', σ')

    First update with the new targets. Then compute the loss with the returned
    parameters and state, and let the optimizer change the returned parameters. An agent
    that continues from the old ones unlearns with every change of the scale.

    Args:
        num_outputs: Number N of outputs of the layer, at least 1.
        step_size: Step size of one target, in [0, 1], shape `[]`; or None for no
            change.
        scale_lb: Lower bound of the scale, more than 0, shape `[]`.
        scale_ub: Upper bound of the scale, at least `scale_lb`, shape `[]`.
        axis_name: Mapped axis name, or names, whose targets count too; or None.
        dtype: Dtype of the state, single precision at least.

    Returns:
        A `StateFunctions` pair. `init()` returns the initial `PopArtState`, with shifts
        of 0 and scales of 1. `update(params, state, targets, indices)` returns the
        parameters and the state after `art` and `pop`. It takes `art`'s `sample_mask`.

    Raises:
        ArgumentError: If a shape, dtype or setting is wrong.

    Example:
        >>> init, update = rlaxlib.popart(1, 0.5, 1e-4, 1e4)
        >>> params = {"w": jnp.ones((3, 1)), "b": jnp.zeros(1)}
        >>> params, state = update(params, init(), jnp.array([4.0]), jnp.array([0]))
        >>> values = jnp.ones(3) @ params["w"] + params["b"]
        >>> print(rlaxlib.unnormalize(state, values, jnp.array([0])))
        [3.]

    References:
        Hado van Hasselt and others, *Learning Values across Many Orders of Magnitude*,
        2016. https://arxiv.org/abs/1602.07714

        Matteo Hessel and others, *Multi-Task Deep Reinforcement Learning with PopArt*,
        2018. https://arxiv.org/abs/1809.04474
    """
    checks.static_int(1, num_outputs=num_outputs)
    rate, low, high = checks.arrays(
        step_size=(step_size, "float[] in [0, 1] or None"),
        scale_lb=(scale_lb, "float[] in (0, inf]"),
        scale_ub=(scale_ub, "float[] in (0, inf]"),
    )
    checks.ordered(scale_lb=scale_lb, scale_ub=scale_ub)

    def init() -> PopArtState:
        """Return shifts of 0 and scales of 1.

        Returns:
            The initial state.
        """
        zeros, ones = jnp.zeros(num_outputs, dtype), jnp.ones(num_outputs, dtype)
        return PopArtState(zeros, ones, ones)

    def update(
        params: Params,
        state: PopArtState,
        targets: ArrayLike,
        indices: ArrayLike,
        *,
        sample_mask: ArrayLike | None = None,
    ) -> tuple[Params, PopArtState]:
        """Update the statistics, and preserve the outputs of the layer.

        Args:
            params: Parameters of the layer, as for `pop`.
            state: Statistics of the targets.
            targets: Targets, not normalised.
            indices: Output of each target, of the same shape.
            sample_mask: False for the targets to ignore, of the same shape; or None.

        Returns:
            The new parameters and the new state.
        """
        if rate is None:
            return params, state
        new = _move(state, targets, indices, rate, low, high, axis_name, sample_mask)
        return _preserve(params, state, new), new

    return StateFunctions(init, update)


def _pick(indices: Array, *values: Array) -> tuple[Array, ...]:
    """Return the entry of the last axis at each index, NaN for one out of range."""
    indices = indices.astype(jnp.int32)  # An int8 index cannot count all outputs.
    return tuple(indexing.pick(x, indices) for x in values)


def _move(
    state: PopArtState,
    targets: ArrayLike,
    indices: ArrayLike,
    step_size: Array,
    scale_lb: Array,
    scale_ub: Array,
    axis_name: AxisName | None,
    sample_mask: ArrayLike | None,
) -> PopArtState:
    """Update shift, scale and second moment, as `art` does."""
    shift, scale, second_moment, targets, indices, sample_mask = checks.arrays(
        shift=(state.shift, "float[N]"),
        scale=(state.scale, "float[N]"),
        second_moment=(state.second_moment, "float[N]"),
        targets=(_moments.floats(targets), "float[...]"),
        indices=(indices, "int[...] in [0, N)" if sample_mask is None else "int[...]"),
        sample_mask=(sample_mask, "bool[...] or None"),
    )
    checks.static_int(1, **{"targets.size": targets.size})
    (shift, scale, second_moment), narrow = dtypes.widen(shift, scale, second_moment)
    x, step_size, scale_lb, scale_ub = (
        each.astype(shift.dtype) for each in (targets, step_size, scale_lb, scale_ub)
    )
    count, difference, variance = _describe(shift, x, indices, sample_mask, axis_name)
    is_seen = count > 0
    # 1 - (1 - β)^n, which would round a small β to single precision.
    log_kept = jnp.maximum(count, 1) * jnp.log1p(-step_size)
    step = jnp.where(is_seen, -jnp.expm1(log_kept), 0)
    variance = _moments.mixture_variance(
        _variance(shift, scale, second_moment), variance, difference, step
    )
    shift = shift + step * difference
    scale = jnp.clip(jnp.sqrt(variance), scale_lb, scale_ub)
    moment = jnp.where(is_seen, variance + jnp.square(shift), second_moment)
    return jax.lax.stop_gradient(narrow(PopArtState(shift, scale, moment)))


def _variance(shift: Array, scale: Array, second_moment: Array) -> Array:
    """Return the variance of a state."""
    variance, square = second_moment - jnp.square(shift), jnp.square(scale)
    # Far from zero ν - μ² cancels. The scale does not, but it may be clipped.
    rounding = 4 * float(cast(Any, jnp.finfo(variance.dtype).eps)) * second_moment
    is_clipped = jnp.abs(variance - square) > rounding
    return jnp.where(is_clipped, jnp.maximum(variance, 0), square)


def _describe(
    shift: Array,
    x: Array,
    indices: Array,
    mask: Array | None,
    axis_name: AxisName | None,
) -> tuple[Array, Array, Array]:
    """Return number, mean minus `shift`, and variance of the targets of each output."""
    mask = jnp.ones_like(x, bool) if mask is None else mask
    x, included = jnp.where(mask, x, 0).ravel(), mask.ravel().astype(x.dtype)
    indices = indices.ravel().astype(jnp.int32)

    def total(*columns: Array) -> Array:
        y = included[:, None] * jnp.stack(columns, axis=-1)
        sums = jax.ops.segment_sum(y, indices, shift.size)  # Drops other indices.
        return devices.total(sums, axis_name).T

    error = x - jnp.take(shift, indices, mode="clip")
    count, sums = total(jnp.ones_like(x), error)
    difference = sums / jnp.maximum(count, 1)
    deviation = error - jnp.take(difference, indices, mode="clip")
    (squares,) = total(jnp.square(deviation))
    return count, difference, squares / jnp.maximum(count, 1)


def _preserve(params: Params, old: PopArtState, new: PopArtState) -> Params:
    """Rescale a layer, as `pop` does."""
    leaves = cast(Any, jax.tree_util).tree_leaves_with_path(params)
    named = {_name(path): leaf for path, leaf in leaves}
    weights = [name for name in named if name[-1] in _BIAS_OF]
    if len(weights) != 1:
        listed = ", ".join(".".join(name) for name in named)
        checks.fail(
            f"`params` holds {len(weights)} weights called `w` or `kernel`, must hold "
            f"those of one layer; its leaves are: {listed or 'none'}"
        )
    (weight,) = weights
    bias = (*weight[:-1], _BIAS_OF[weight[-1]])
    w, b = _rescale(weight[-1], named[weight], bias[-1], named.get(bias), old, new)
    named[weight] = w
    if b is not None:
        named[bias] = b
    return jax.tree.unflatten(cast(Any, jax.tree.structure(params)), named.values())


def _name(path: tuple[Any, ...]) -> tuple[str, ...]:
    """Return the names on the path to a leaf."""
    names = [str(getattr(key, "key", getattr(key, "name", key))) for key in path]
    if names[1:] and names[-1] == "value":  # Of a flax.nnx variable.
        names.pop()
    return tuple(names) or ("",)


def _rescale(
    weight: str, w: Any, bias: str, b: Any, old: PopArtState, new: PopArtState
) -> tuple[Array, Array | None]:
    """Return weights and bias, if any, for the new shift and scale."""
    given = checks.arrays(
        **{
            weight: (w, "float[..., N]"),
            bias: (b, "float[N] or None"),
            "old.shift": (old.shift, "float[N]"),
            "old.scale": (old.scale, "float[N]"),
            "new.shift": (new.shift, "float[N]"),
            "new.scale": (new.scale, "float[N]"),
        }
    )
    w, b, shift, scale, new_shift, new_scale = (
        dtypes.widen(each)[0][0] for each in given
    )
    w = w * jnp.broadcast_to(scale / new_scale, w.shape)
    w = w.astype(given[0].dtype)
    if b is None:
        return w, None
    # Beside a large shift, a small bias would lose precision.
    b = (scale * b + (shift - new_shift)) / new_scale
    return w, b.astype(given[1].dtype)
