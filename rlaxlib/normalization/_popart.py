"""Learn values of any size at a size of about 1, and do not unlearn them (PopArt).

Targets are normalised by a shift and a scale that follow them: adaptively rescaling
targets, ART. Whenever these move, the layer that predicts is changed such that what it
says, not normalised, stays what it was: preserving outputs precisely, POP.

Every output of the layer, one for each task or reward, has a shift and a scale of its
own. An index says which output a number belongs to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from rlaxlib._core import checks, dtypes, indexing
from rlaxlib._core.devices import AxisName
from rlaxlib.normalization import _moments, _targets

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

_BIAS_OF = {"w": "b", "kernel": "bias"}  # The names in haiku, and in flax.


class PopArtState(NamedTuple):
    """What is known of the targets of each output.

    Attributes:
        shift: Mean of the targets, shape `[N]`.
        scale: Their standard deviation, kept within bounds, shape `[N]`.
        second_moment: Mean of their squares, shape `[N]`.
    """

    shift: Array
    scale: Array
    second_moment: Array


class PopArtOutput(NamedTuple):
    """What a layer says.

    Attributes:
        normalized: Its outputs, which compare with normalised targets, shape `[...]`.
        unnormalized: The values that they stand for, shape `[...]`.
    """

    normalized: Array
    unnormalized: Array


def normalize(state: PopArtState, unnormalized: ArrayLike, indices: ArrayLike) -> Array:
    """Shift and scale numbers to the size at which a layer learns.

    .. math::

        y_i = (x_i - μ_{k_i}) / σ_{k_i}

    Args:
        state: Shift :math:`μ` and scale :math:`σ` of each of N outputs.
        unnormalized: Numbers :math:`x`, such as the targets of a loss, shape `[...]`.
        indices: Output :math:`k_i` that each belongs to, in [0, N), shape `[]`, one for
            all; or of the shape of `unnormalized`, shape `[...]`. A traced index beyond
            that gives NaN.

    Returns:
        Normalised numbers, shape `[...]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if an index whose
            value is known is none of the N.

    Example:
        >>> state = rlaxlib.PopArtState(
        ...     jnp.array([0.0, 8.0]), jnp.array([1.0, 4.0]), jnp.array([1.0, 80.0])
        ... )
        >>> print(rlaxlib.normalize(state, jnp.array([2.0, 16.0]), jnp.array([0, 1])))
        [2. 2.]

    References:
        Hado van Hasselt and others, *Learning Values across Many Orders of Magnitude*,
        2016. https://arxiv.org/abs/1602.07714
    """
    unnormalized, indices = checks.arrays(
        unnormalized=(_moments.numbers(unnormalized), "float[...]"),
        indices=(indices, "int[] or [...]"),
    )
    shift, scale = _statistics(state)
    checks.indices(indices=(indices, shift.size))
    (x, shift, scale), narrow = dtypes.widen(unnormalized, shift, scale)
    shift, scale, known = _own(shift, scale, indices)
    return narrow(jnp.where(known, (x - shift) / scale, jnp.nan))


def unnormalize(state: PopArtState, normalized: ArrayLike, indices: ArrayLike) -> Array:
    """Turn what a layer says into the values that it stands for.

    .. math::

        x_i = σ_{k_i} y_i + μ_{k_i}

    Args:
        state: Shift :math:`μ` and scale :math:`σ` of each of N outputs.
        normalized: Normalised numbers :math:`y`, shape `[...]`.
        indices: Output :math:`k_i` that each belongs to, in [0, N), shape `[]`, one for
            all; or of the shape of `normalized`, shape `[...]`. A traced index beyond
            that gives NaN.

    Returns:
        Values, shape `[...]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if an index whose
            value is known is none of the N.

    Example:
        >>> state = rlaxlib.PopArtState(
        ...     jnp.array([0.0, 8.0]), jnp.array([1.0, 4.0]), jnp.array([1.0, 80.0])
        ... )
        >>> print(rlaxlib.unnormalize(state, jnp.array([2.0, 2.0]), jnp.array([0, 1])))
        [ 2. 16.]

    References:
        Hado van Hasselt and others, *Learning Values across Many Orders of Magnitude*,
        2016. https://arxiv.org/abs/1602.07714
    """
    normalized, indices = checks.arrays(
        normalized=(_moments.numbers(normalized), "float[...]"),
        indices=(indices, "int[] or [...]"),
    )
    shift, scale = _statistics(state)
    checks.indices(indices=(indices, shift.size))
    (y, shift, scale), narrow = dtypes.widen(normalized, shift, scale)
    shift, scale, known = _own(shift, scale, indices)
    return narrow(jnp.where(known, scale * y + shift, jnp.nan))


def unnormalize_linear(
    state: PopArtState, inputs: ArrayLike, indices: ArrayLike
) -> PopArtOutput:
    """Pick one output of a layer, and turn it into the value that it stands for.

    .. math::

        y_i = h_{i,k_i},   x_i = σ_{k_i} y_i + μ_{k_i}

    A multi-task agent predicts a value for every task, and uses that of the task it is
    at. Losses take the normalised one; whatever bootstraps takes the other.

    Args:
        state: Shift :math:`μ` and scale :math:`σ` of each of N outputs.
        inputs: All outputs of the layer, :math:`h`, shape `[..., N]`.
        indices: Output :math:`k_i` to pick, in [0, N), shape `[...]`. A traced index
            beyond that gives NaN.

    Returns:
        A `PopArtOutput`: the outputs picked, and the values, each of shape `[...]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if an index whose
            value is known is none of the N.

    Example:
        >>> state = rlaxlib.PopArtState(
        ...     jnp.array([0.0, 8.0]), jnp.array([1.0, 4.0]), jnp.array([1.0, 80.0])
        ... )
        >>> output = rlaxlib.unnormalize_linear(state, jnp.array([1.0, 2.0]), 1)
        >>> print(output.normalized, output.unnormalized)
        2.0 16.0

    References:
        Matteo Hessel and others, *Multi-Task Deep Reinforcement Learning with PopArt*,
        2018. https://arxiv.org/abs/1809.04474
    """
    inputs, indices = checks.arrays(
        inputs=(inputs, "float[..., N]"), indices=(indices, "int[...]")
    )
    shift, scale = _statistics(state, inputs.shape[-1])
    checks.indices(indices=(indices, shift.size))
    (h, shift, scale), narrow = dtypes.widen(inputs, shift, scale)
    shift, scale, known = _own(shift, scale, indices)
    picked = indexing.pick(h, indices.astype(jnp.int32), known=True)
    y = jnp.where(known, picked, jnp.nan)
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
    mask: ArrayLike | None = None,
) -> PopArtState:
    """Move the shift and the scale of each output towards those of its targets.

    .. math::

        μ' = (1 - β_n) μ + β_n x̄,   ν' = (1 - β_n) ν + β_n mean(x²),
        σ' = √(ν' - μ'²),   β_n = 1 - (1 - β)^n,

    where the bar and the means are over the n targets of the output, and :math:`σ'` is
    kept within bounds. That is where n successive steps of size :math:`β` towards
    their mean lead: the step size is that of one target, and no number of targets makes
    it too large. With :math:`β_n` as a step size, it is the update of the paper.

    The difference of two large squares has no digits left. It is, for a variance
    :math:`σ² = ν - μ²`, the same as

    .. math::

        σ'² = (1 - β_n) σ² + β_n mean((x - x̄)²) + β_n (1 - β_n) (x̄ - μ)²,

    and so it is computed. The variance to start from is the square of the scale, which
    has all its digits; unless it is another than :math:`ν - μ²` by more than rounding
    explains, because the scale was kept within bounds: then it is the latter.

    A shift that is 100,000 times the scale, in single precision, no longer follows
    steps of less than a hundredth of the scale. Where targets are like that, take a
    constant off them.

    Args:
        state: What is known of the targets of each of N outputs so far. Its dtype,
            which is kept, should be single precision at least.
        targets: Targets :math:`x`, not normalised, shape `[...]`.
        indices: Output that each belongs to, in [0, N), shape `[...]`. A traced index
            beyond that belongs to none, and its target does not count.
        step_size: Step size :math:`β` of one target, in [0, 1], shape `[]`.
        scale_lb: Smallest scale, more than 0, shape `[]`.
        scale_ub: Largest scale, at least `scale_lb`, shape `[]`.
        axis_name: Name of the axis, or axes, that devices form, to take in the targets
            on all of them; or None to stay on one device.
        mask: True where a target counts, shape `[...]`; or None if all do. What does
            not count may be anything, NaN included.

    Returns:
        What is known then, constant under differentiation.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if `step_size` or a
            bound of the scale is out of its range, or if an index whose value is known
            is none of the N.

    Example:
        >>> state = rlaxlib.PopArtState(jnp.zeros(1), jnp.ones(1), jnp.ones(1))
        >>> targets, indices = jnp.array([4.0]), jnp.array([0])
        >>> state = rlaxlib.art(state, targets, indices, 0.5, 1e-4, 1e4)
        >>> print(state.shift, state.second_moment)
        [2.] [8.5]

    References:
        Hado van Hasselt and others, *Learning Values across Many Orders of Magnitude*,
        2016. https://arxiv.org/abs/1602.07714

        Tony Finch, *Incremental Calculation of Weighted Mean and Variance*, 2009.
        https://fanf2.user.srcf.net/hermes/doc/antiforgery/stats.pdf
    """
    targets, indices, step_size, scale_lb, scale_ub, mask = checks.arrays(
        targets=(_moments.numbers(targets), "float[...]"),
        indices=(indices, "int[...]"),
        step_size=(step_size, "float[]"),
        scale_lb=(scale_lb, "float[]"),
        scale_ub=(scale_ub, "float[]"),
        mask=(mask, "bool[...] or None"),
    )
    _check_settings(step_size, scale_lb, scale_ub)
    return _move(
        state, targets, indices, step_size, scale_lb, scale_ub, axis_name, mask
    )


def pop(params: Params, old: PopArtState, new: PopArtState) -> Params:
    """Change a layer such that what its outputs stand for stays what it was.

    .. math::

        W' = W diag(σ/σ'),   b' = (σ b + μ - μ') / σ'

    Then :math:`σ' (W'ᵀ h + b') + μ' = σ (Wᵀ h + b) + μ`, for any input :math:`h`. A
    layer without a bias cannot make up for a change of the shift: its values are those
    of before, plus that change.

    The parameters that are returned take the place of those given, everywhere: in what
    the next step of training starts from, and in the networks that act. If the
    parameters of a target network are copies of older ones, keep the older state with
    them.

    Args:
        params: Parameters of the layer, any tree that holds weights called `w` or
            `kernel`, their last axis being the N outputs, and beside them perhaps a
            bias called `b` or `bias`. Whatever else it holds is returned as it is.
        old: Shift :math:`μ` and scale :math:`σ` that the parameters are for.
        new: Shift :math:`μ'` and scale :math:`σ'` to make them for.

    Returns:
        The new parameters, a tree of the same structure and dtypes. Keep them in single
        precision: half has no digits for the many small changes.

    Raises:
        ArgumentError: If there are no weights, or those of more than one layer, or if
            the shapes do not fit.

    Example:
        >>> old = rlaxlib.PopArtState(jnp.zeros(1), jnp.ones(1), jnp.ones(1))
        >>> new = rlaxlib.PopArtState(jnp.ones(1), jnp.full(1, 2.0), jnp.full(1, 5.0))
        >>> params = {"w": jnp.full((3, 1), 4.0), "b": jnp.zeros(1)}
        >>> params = rlaxlib.pop(params, old, new)
        >>> print(params["w"].ravel(), params["b"])
        [2. 2. 2.] [-0.5]

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
) -> tuple[Callable[[], PopArtState], Callable[..., tuple[Any, PopArtState]]]:
    """Make the two functions that PopArt takes: a start, and a step.

    .. math::

        (μ', σ') = ART(μ, σ, x, k),   (W', b') = POP(W, b, μ, σ, μ', σ')

    In a step of training: update first, with new targets; then compute the loss with
    the parameters and the state that this returns, on targets that are normalised by
    that state; and let the optimizer change those parameters. An agent that goes on
    from the parameters of before unlearns with every change of the scale.

    Args:
        num_outputs: Number N of outputs of the layer, at least 1.
        step_size: Step size of one target, in [0, 1], shape `[]`; or None, to change
            nothing at all.
        scale_lb: Smallest scale, more than 0, shape `[]`.
        scale_ub: Largest scale, at least `scale_lb`, shape `[]`.
        axis_name: Name of the axis, or axes, that devices form, to take in the targets
            on all of them; or None to stay on one device.
        dtype: Dtype of the state, single precision at least.

    Returns:
        Two functions. `initial_state()` returns the `PopArtState` to start from, of
        shifts 0 and scales 1. `popart_update(params, state, targets, indices)` returns
        the parameters of the layer and the state after `art` and `pop`; it takes the
        `mask` of `art` too, by name.

    Raises:
        ArgumentError: If `num_outputs` is not a Python integer of at least 1, or if
            `step_size` or a bound of the scale is out of its range.

    Example:
        >>> initial_state, popart_update = rlaxlib.popart(1, 0.5, 1e-4, 1e4)
        >>> params, state = {"w": jnp.ones((3, 1)), "b": jnp.zeros(1)}, initial_state()
        >>> targets, indices = jnp.array([4.0]), jnp.array([0])
        >>> params, state = popart_update(params, state, targets, indices)
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
    _check_settings(step_size, scale_lb, scale_ub)
    rate, low, high = checks.arrays(
        step_size=(step_size, "float[] or None"),
        scale_lb=(scale_lb, "float[]"),
        scale_ub=(scale_ub, "float[]"),
    )

    def initial_state() -> PopArtState:
        """Return shifts of 0, and scales of 1.

        Returns:
            The state to start from.
        """
        zeros, ones = jnp.zeros(num_outputs, dtype), jnp.ones(num_outputs, dtype)
        return PopArtState(zeros, ones, ones)

    def popart_update(
        params: Params,
        state: PopArtState,
        targets: ArrayLike,
        indices: ArrayLike,
        *,
        mask: ArrayLike | None = None,
    ) -> tuple[Params, PopArtState]:
        """Take in targets, and leave what the layer says as it is.

        Args:
            params: Parameters of the layer, as `pop` takes them.
            state: What is known of the targets so far.
            targets: Targets, not normalised.
            indices: Output that each belongs to, of the same shape.
            mask: True where a target counts, of the same shape; or None if all do.

        Returns:
            The new parameters, and the new state.
        """
        targets, indices, mask = checks.arrays(
            targets=(_moments.numbers(targets), "float[...]"),
            indices=(indices, "int[...]"),
            mask=(mask, "bool[...] or None"),
        )
        if rate is None:
            return params, state
        new = _move(state, targets, indices, rate, low, high, axis_name, mask)
        return _preserve(params, state, new), new

    return initial_state, popart_update


def _statistics(state: PopArtState, size: int | str = "N") -> tuple[Array, ...]:
    """Return shift and scale, of so many outputs."""
    return checks.arrays(
        shift=(state.shift, f"float[{size}]"), scale=(state.scale, f"float[{size}]")
    )


def _own(shift: Array, scale: Array, indices: Array) -> tuple[Array, Array, Array]:
    """Return shift and scale for each index, any if there is none, and if there is."""
    indices = indices.astype(jnp.int32)  # Which can count all outputs.
    known = (indices >= 0) & (indices < shift.size)
    if shift.size == 1:  # To look is slower than to know.
        return shift[0], scale[0], known
    shift, scale = (indexing.pick(x, indices, known=True) for x in (shift, scale))
    return shift, scale, known


def _check_settings(
    step_size: ArrayLike | None, scale_lb: ArrayLike, scale_ub: ArrayLike
) -> None:
    """Check the range of the step size, and of the bounds of the scale."""
    checks.within("[0, 1]", step_size=step_size)
    checks.within("(0, inf]", scale_lb=scale_lb, scale_ub=scale_ub)
    checks.ordered(scale_lb=scale_lb, scale_ub=scale_ub)


def _move(
    state: PopArtState,
    targets: Array,
    indices: Array,
    step_size: Array,
    scale_lb: Array,
    scale_ub: Array,
    axis_name: AxisName | None,
    mask: Array | None,
) -> PopArtState:
    """Move shift and scale, as `art` does."""
    shift, scale = _statistics(state)
    (second_moment,) = checks.arrays(
        second_moment=(state.second_moment, f"float[{shift.size}]")
    )
    checks.static_int(1, **{"targets.size": targets.size})
    counted = indices if mask is None else jnp.where(mask, indices, 0)
    checks.indices(indices=(counted, shift.size))
    if mask is not None:
        targets = jnp.where(mask, targets, jnp.zeros_like(targets))
        indices = jnp.where(mask, indices.astype(jnp.int32), -1)
    dtype = jnp.result_type(shift, scale, second_moment)
    (shift, scale, second_moment), _ = dtypes.widen(shift, scale, second_moment)
    given = (shift, scale, second_moment, targets, step_size, scale_lb, scale_ub)
    shift, scale, second_moment, targets, step_size, scale_lb, scale_ub = (
        jax.lax.stop_gradient(each.astype(shift.dtype)) for each in given
    )
    count, difference, variance = _targets.describe(
        shift, targets, indices, axis_name, whole=mask is None
    )
    log_kept = jnp.maximum(count, 1) * jnp.log1p(-step_size)
    step, kept = -jnp.expm1(log_kept), jnp.exp(log_kept)
    before = _variance(shift, scale, second_moment)
    after = _moments.mixed_variance(before, variance, difference, step, kept)
    some = count > 0
    shift = shift + step * difference
    tiny = cast(float, jnp.finfo(scale.dtype).tiny)  # The square might be 0.
    low, high = jnp.maximum(jnp.square(scale_lb), tiny), jnp.square(scale_ub)
    scale = jnp.sqrt(jnp.clip(jnp.where(some, after, before), low, high))
    second_moment = jnp.where(some, after + jnp.square(shift), second_moment)
    return PopArtState(
        shift.astype(dtype), scale.astype(dtype), second_moment.astype(dtype)
    )


def _variance(shift: Array, scale: Array, second_moment: Array) -> Array:
    """Return the variance, the bounds of the scale left aside."""
    variance, square = second_moment - jnp.square(shift), jnp.square(scale)
    rounding = 4 * float(cast(Any, jnp.finfo(variance.dtype).eps)) * second_moment
    same = jnp.abs(variance - square) <= rounding
    return jnp.where(same, square, jnp.maximum(variance, 0))


def _preserve(params: Params, old: PopArtState, new: PopArtState) -> Params:
    """Change a layer, as `pop` does."""
    leaves = cast(Any, jax.tree_util).tree_leaves_with_path(params)
    named = {_name(path): leaf for path, leaf in leaves}
    weights = [name for name in named if name[-1] in _BIAS_OF]
    if len(weights) != 1:
        listed = ", ".join(".".join(name) for name in named)
        checks.fail(
            "`params` must hold the weights of one layer, called `w` or `kernel`, but "
            f"holds {len(weights)} of these; its leaves are: {listed or 'none'}"
        )
    (weight,) = weights
    bias = (*weight[:-1], _BIAS_OF[weight[-1]])
    w, b = _rescale(weight[-1], named[weight], bias[-1], named.get(bias), old, new)
    named[weight] = w
    if b is not None:
        named[bias] = b
    return jax.tree.unflatten(cast(Any, jax.tree.structure(params)), named.values())


def _name(path: tuple[Any, ...]) -> tuple[str, ...]:
    """Return the names that lead to a leaf."""
    names = [str(getattr(key, "key", getattr(key, "name", key))) for key in path]
    if names[1:] and names[-1] == "value":  # Of a variable of flax.nnx.
        names.pop()
    return tuple(names) or ("",)


def _rescale(
    weight: str, w: Any, bias: str, b: Any, old: PopArtState, new: PopArtState
) -> tuple[Array, Array | None]:
    """Return weights and bias, if there is one, for other shifts and scales."""
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
    # The shifts first: next to a large one, a bias would lose its digits.
    b = (scale * b + (shift - new_shift)) / new_scale
    return w, b.astype(given[1].dtype)
