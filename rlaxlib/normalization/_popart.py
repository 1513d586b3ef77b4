"""PopArt: learn values of any scale with normalised targets.

- `popart`: both parts together, as functions for the initial state and the update.
- `art`: adaptively rescale targets (ART), by a shift and a scale that follow them.
- `pop`: preserve outputs precisely (POP), by rescaling the last layer.
- `normalize`, `unnormalize`, `unnormalize_linear`: convert targets and outputs.

Each output of the layer, one for each task or reward, has its own shift and scale. An
index states which output a number belongs to.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from rlaxlib._core import checks, dtypes, indexing, meshes, moments, safe
from rlaxlib._core.functions import FunctionTuple
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import (
    Array,
    ArrayLike,
    AxisName,
    Bool,
    Float,
    Int,
    Real,
    Static,
    Tree,
)

__all__ = [
    "PopArt",
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

    shift: Float[Array, "N"]
    scale: Float[Array, "N"]
    second_moment: Float[Array, "N"]


class PopArtOutput(NamedTuple):
    """Outputs of a layer, normalised and not.

    Attributes:
        normalized: Outputs, to compare with normalised targets, shape `[...]`.
        unnormalized: The values that they represent, shape `[...]`.
    """

    normalized: Float[Array, "..."]
    unnormalized: Float[Array, "..."]


@checked
def normalize(
    state: PopArtState,
    unnormalized: Real[ArrayLike, "..."],
    indices: Int[ArrayLike, "[] or [...] in [0, N)"],
) -> Float[Array, "..."]:
    """Normalise numbers, such as value targets, by the statistics of their outputs.

    Takes numbers of any shape, returns one for each.

    ::

        y_i = (x_i - μ_{k_i}) / σ_{k_i}

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
    shift, scale = meshes.take(state.shift, indices), meshes.take(state.scale, indices)
    return (unnormalized - shift) / scale


@checked
def unnormalize(
    state: PopArtState,
    normalized: Real[ArrayLike, "..."],
    indices: Int[ArrayLike, "[] or [...] in [0, N)"],
) -> Float[Array, "..."]:
    """Convert normalised outputs to the values that they represent.

    Takes numbers of any shape, returns one for each.

    ::

        x_i = σ_{k_i} y_i + μ_{k_i}

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
    shift, scale = meshes.take(state.shift, indices), meshes.take(state.scale, indices)
    return scale * normalized + shift


@checked
def unnormalize_linear(
    state: PopArtState,
    inputs: Float[ArrayLike, "..., N"],
    indices: Int[ArrayLike, "... in [0, N)"],
) -> PopArtOutput:
    """Select one output of a layer, and convert it to the value that it represents.

    Takes all outputs of a layer, returns the one selected, normalised and not.

    ::

        y_i = h_{i,k_i},   x_i = σ_{k_i} y_i + μ_{k_i}

    A multi-task agent selects the output of its task. Losses take the normalised output
    :math:`y`, bootstrapping the value :math:`x`.

    Args:
        state: Shift :math:`μ` and scale :math:`σ` of each of N outputs.
        inputs: All outputs :math:`h` of the layer, shape `[..., N]`.
        indices: Output :math:`k_i` to select, in [0, N), shape `[...]`. In a JAX array,
            an index out of range gives NaN.

    Returns:
        A `PopArtOutput`: the selected outputs, `normalized` and `unnormalized`, shape
        `[...]` each.

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
    y = indexing.pick(inputs, indices)
    shift, scale = meshes.take(state.shift, indices), meshes.take(state.scale, indices)
    return PopArtOutput(y, scale * y + shift)


@checked
def art(
    state: PopArtState,
    targets: Real[ArrayLike, "..."],
    indices: Int[ArrayLike, "... in [0, N)"],
    step_size: Float[ArrayLike, "in [0, 1]"],
    scale_lb: Float[ArrayLike, "in (0, inf)"],
    scale_ub: Float[ArrayLike, "in [scale_lb, inf]"],
    axis_name: AxisName | None = None,
    *,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
) -> PopArtState:
    """Update the shift and scale of each output by its targets (ART).

    Takes a state and targets, returns the next state.

    ::

        μ' = (1 - β_n) μ + β_n x̄,   ν' = (1 - β_n) ν + β_n mean(x²),
        σ' = √(ν' - μ'²),   β_n = 1 - (1 - β)^n,

    where the bar and the mean are over the n targets of the output, and :math:`σ'` is
    clipped to bounds. It makes n steps of the paper, of size :math:`β`, towards the
    mean. The variance is computed without the difference of two large squares, as

    ::

        μ' = μ + β_n δ,   σ'² = σ² + β_n [s² - σ² + (1 - β_n) δ²],
        δ = x̄ - μ,   s² = mean((x - x̄)²),

    where :math:`σ` is the scale, or :math:`σ² = ν - μ²` if the scale was clipped.

    In single precision, subtract a constant from targets of 100,000 times the scale.

    Args:
        state: Statistics of the targets of N outputs, in single precision at least.
        targets: Targets :math:`x`, not normalised, shape `[...]`.
        indices: Output of each target, in [0, N), shape `[...]`. In a JAX array, an
            index out of range excludes its target.
        step_size: Step size :math:`β` of one target, in [0, 1], shape `[]`.
        scale_lb: Lower bound of the scale, in (0, inf), shape `[]`.
        scale_ub: Upper bound of the scale, in [`scale_lb`, inf], shape `[]`.
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
    if not targets.size:
        checks.fail("`targets.size` is 0, must be at least 1")
    mu, variance = state.shift, _variance(state)
    x, beta, scale_lb, scale_ub = (
        each.astype(mu.dtype) for each in (targets, step_size, scale_lb, scale_ub)
    )
    is_own = jax.nn.one_hot(indices, mu.size, dtype=bool)
    if sample_mask is not None:
        is_own &= sample_mask[..., None]
    axes = tuple(range(x.ndim))
    # Relative to the old mean: the difference of two large means would cancel.
    errors = x[..., None] - jnp.expand_dims(mu, axes)
    n, delta, s2, _ = moments.of(errors, is_own, axis_name, axes)
    # 1 - (1 - β)^n, in which a small β would be rounded.
    beta_n = -jnp.expm1(n * safe.floored(jnp.log1p(-beta)))
    mu += beta_n * delta
    variance += beta_n * (s2 - variance + (1 - beta_n) * jnp.square(delta))
    sigma = jnp.clip(jnp.sqrt(variance), scale_lb, scale_ub)
    nu = jnp.where(n > 0, variance + jnp.square(mu), state.second_moment)
    return jax.lax.stop_gradient(PopArtState(mu, sigma, nu))


@checked(compiled=False)
def pop(params: Tree[Params, "shaped"], old: PopArtState, new: PopArtState) -> Params:
    """Rescale a layer so that its unnormalised outputs are preserved (POP).

    Takes the parameters of a layer and two states, returns parameters.

    ::

        W' = W diag(σ/σ'),   b' = (σ b + μ - μ') / σ'

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


@checked
def popart(
    num_outputs: Static[int, "in [1, inf)"],
    step_size: Float[ArrayLike, "in [0, 1]"] | None,
    scale_lb: Float[ArrayLike, "in (0, inf)"],
    scale_ub: Float[ArrayLike, "in [scale_lb, inf]"],
    axis_name: AxisName | None = None,
    *,
    dtype: DTypeLike = jnp.float32,
) -> PopArt:
    """Create the initial state and the update of PopArt.

    Takes settings, returns a normaliser: `init` makes a state, `update` updates it.

    ::

        (μ', σ') = ART(μ, σ, x, k),   (W', b') = POP(W, b, μ, σ, μ', σ')

    First update with the new targets. Then compute the loss with the returned
    parameters and state, and let the optimizer change the returned parameters. An agent
    that continues from the old ones unlearns with every change of the scale.

    Args:
        num_outputs: Number N of outputs of the layer, in [1, inf).
        step_size: Step size of one target, in [0, 1], shape `[]`; or None for no
            change.
        scale_lb: Lower bound of the scale, in (0, inf), shape `[]`.
        scale_ub: Upper bound of the scale, in [`scale_lb`, inf], shape `[]`.
        axis_name: Mapped axis name, or names, whose targets count too; or None.
        dtype: Dtype of the state, single precision at least.

    Returns:
        A `PopArt`. `init()` returns the initial `PopArtState`, with shifts of 0 and
        scales of 1. `update(params, state, targets, indices)` returns the parameters
        and the state after `art` and `pop`. `params` are those of the last layer, `w`
        of shape `[..., N]` and `b` of shape `[N]`; `targets` have any shape, `indices`
        the same, 0 if N is 1. It takes `art`'s `sample_mask`.

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
    dtype = jnp.dtype(dtype)
    return PopArt(num_outputs, step_size, scale_lb, scale_ub, axis_name, dtype)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PopArt(FunctionTuple):
    """Adaptive normalisation of value targets, which `popart` makes.

    Attributes:
        num_outputs: Number of outputs of the layer, in [1, inf).
        step_size: Step size of one target, in [0, 1], shape `[]`; or None for no
            change.
        scale_lb: Lower bound of the scale, in (0, inf), shape `[]`.
        scale_ub: Upper bound of the scale, in [`scale_lb`, inf], shape `[]`.
        axis_name: Mapped axis name, or names, whose targets count too; or None.
        dtype: Dtype of the state.
    """

    num_outputs: int = dataclasses.field(metadata={"static": True})
    step_size: Float[ArrayLike, "in [0, 1]"] | None
    scale_lb: Float[ArrayLike, "in (0, inf)"]
    scale_ub: Float[ArrayLike, "in (0, inf]"]
    axis_name: AxisName | None = dataclasses.field(metadata={"static": True})
    dtype: DTypeLike = dataclasses.field(metadata={"static": True})
    _functions = ("init", "update")

    def init(self) -> PopArtState:
        """Return shifts of 0 and scales of 1.

        Returns:
            The initial state.
        """
        values = (jnp.full(self.num_outputs, x, self.dtype) for x in (0, 1, 1))
        return PopArtState(*values)

    @checked(compiled=False)
    def update(
        self,
        params: Tree[Params, "shaped"],
        state: PopArtState,
        targets: Real[ArrayLike, "..."],
        indices: Int[ArrayLike, "... in [0, N)"],
        *,
        sample_mask: Bool[ArrayLike, "..."] | None = None,
    ) -> tuple[Params, PopArtState]:
        """Update the statistics, and preserve the outputs of the layer.

        Args:
            params: Parameters of the layer, as for `pop`.
            state: Statistics of the targets.
            targets: Targets, not normalised, shape `[...]`.
            indices: Output of each target, in [0, N), shape `[...]`.
            sample_mask: False for the targets to ignore, shape `[...]`; or None.

        Returns:
            The new parameters and the new state.

        Raises:
            ArgumentError: If a shape or dtype is wrong, or a NumPy index out of range.
        """
        if self.step_size is None:
            return params, state
        new = art(
            state=state,
            targets=targets,
            indices=indices,
            step_size=self.step_size,
            scale_lb=self.scale_lb,
            scale_ub=self.scale_ub,
            axis_name=self.axis_name,
            sample_mask=sample_mask,
        )
        return _preserve(params, state, new), new


def _variance(state: PopArtState) -> Array:
    """Return ν - μ², or σ² if they are equal but for rounding errors.

    Far from zero ν - μ² cancels. The scale does not, but it may be clipped.
    """
    mu, sigma, nu = state
    variance, square = nu - jnp.square(mu), jnp.square(sigma)
    rounding = 4 * float(jnp.finfo(nu.dtype).eps) * nu
    is_equal = jnp.abs(variance - square) <= rounding
    return jnp.where(is_equal, square, jnp.maximum(variance, 0))


def _preserve(params: Params, old: PopArtState, new: PopArtState) -> Params:
    """Rescale a layer, as `pop` does."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
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
    return jax.tree.unflatten(jax.tree.structure(params), named.values())


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
    axes: Any = Float[ArrayLike, "N"]
    biases = {} if b is None else {bias: (b, axes)}
    checks.fit(
        **{weight: (w, Float[ArrayLike, "..., N"])},
        **biases,
        **{"old.shift": (old.shift, axes)},
    )
    return _rescaled(w, b, old, new)


@functools.partial(jax.jit, inline=True)
def _rescaled(
    w: Any, b: Any, old: PopArtState, new: PopArtState
) -> tuple[Array, Array | None]:
    """Return weights and bias, each in its own dtype."""
    w = jnp.asarray(w)
    wide, shift, scale, _, new_shift, new_scale, _ = (
        dtypes.raised(jnp.asarray(x)) for x in (w, *old, *new)
    )
    w = (wide * jnp.broadcast_to(scale / new_scale, w.shape)).astype(w.dtype)
    if b is None:
        return w, None
    b = jnp.asarray(b)
    # Beside a large shift, a small bias would lose precision.
    bias = (scale * dtypes.raised(b) + (shift - new_shift)) / new_scale
    return w, bias.astype(b.dtype)
