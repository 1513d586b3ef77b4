"""Pytree utilities: select, map, split, mask, transpose and update pytrees.

Parameters, agent states and batches are pytrees: nested tuples, lists and dictionaries
whose leaves are arrays. An array is a pytree too. Trees that are combined must have the
same structure, and their leaves the same shapes. An error names the leaf that differs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from rlaxlib import arrays
from rlaxlib._core import checks
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Int, Key, Shaped, Static, Tree

__all__ = [
    "conditional_update",
    "periodic_update",
    "transpose_first_axis_to_last",
    "transpose_last_axis_to_first",
    "tree_fn",
    "tree_map_zipped",
    "tree_replace_masked",
    "tree_select",
    "tree_split_key",
    "tree_split_leaves",
]

ArrayTree = TypeVar("ArrayTree")


@checked
def tree_select(
    pred: Shaped[ArrayLike, "... in {0, 1}"],
    on_true: Tree[ArrayTree, "shaped"],
    on_false: Tree[ArrayTree, "shaped like on_true"],
) -> ArrayTree:
    """Select one of two pytrees by a condition.

    Takes a condition and two pytrees, returns one pytree.

    ::

        y_i = { a_i   if p
              { b_i   otherwise,   for each leaf i

    Use it to reset some of many environments. Leaves that are not selected may be NaN,
    and have a gradient of 0.

    Args:
        pred: Condition :math:`p`, in {0, 1}, true or 1 to select `on_true`; its axes
            are the first of every leaf, shape `[...]`.
        on_true: Pytree :math:`a` of arrays.
        on_false: Pytree :math:`b` of arrays, of the same structure and shapes.

    Returns:
        The selected pytree. Each leaf has the dtype that the two leaves promote to.

    Raises:
        ArgumentError: If a structure, shape, leaf or NumPy `pred` is wrong.

    Example:
        >>> state, start = {"x": jnp.array([1.0, 2.0])}, {"x": jnp.array([0.0, 0.0])}
        >>> print(rlaxlib.tree_select(jnp.array([True, False]), start, state)["x"])
        [0. 2.]

    References:
        The JAX authors, *Pytrees*. https://docs.jax.dev/en/latest/pytrees.html
    """
    return _select(pred=pred, on_true=on_true, on_false=on_false)


@checked(compiled=False)
def tree_map_zipped(fn: Callable[..., Any], nests: Sequence[Any]) -> Any:
    """Map a function over the leaves of a list of pytrees.

    Takes a list of pytrees, returns one pytree.

    ::

        y_i = f(x¹_i, …, x^n_i)   for each leaf i

    Args:
        fn: Function :math:`f` of one leaf of each pytree, such as a stack over time.
        nests: List or tuple of pytrees :math:`x` of the same structure.

    Returns:
        The pytree of the results; `nests` itself if it is empty.

    Raises:
        ArgumentError: If the structures differ.

    Example:
        >>> steps = [{"reward": 1.0}, {"reward": 2.0}, {"reward": 4.0}]
        >>> print(rlaxlib.tree_map_zipped(lambda *rewards: sum(rewards), steps))
        {'reward': 7.0}

    References:
        The JAX authors, *Pytrees*. https://docs.jax.dev/en/latest/pytrees.html
    """
    if not nests:
        return nests
    named = {f"nests[{i}]": nest for i, nest in enumerate(nests)}
    checks.same_structure(**named)
    return jax.tree.map(fn, *nests)


@checked(compiled=False)
def tree_split_key(
    rng_key: Key[ArrayLike, ""], tree_like: Tree[ArrayTree, "shaped"]
) -> tuple[Key[Array, ""], ArrayTree]:
    """Split a random key into a key for each leaf of a pytree, and a new key.

    Takes one key and a pytree, returns a new key and a pytree of keys.

    ::

        k', k_1, …, k_n = split(k, n + 1)

    Args:
        rng_key: Random key :math:`k`, shape `[]`. Do not reuse it.
        tree_like: Pytree with :math:`n` leaves.

    Returns:
        The new key, and a pytree of keys of the structure of `tree_like`.

    Raises:
        ArgumentError: If `rng_key` is not a single key.

    Example:
        >>> key, keys = rlaxlib.tree_split_key(jax.random.key(0), {"w": 0, "b": 0})
        >>> print(sorted(keys), keys["w"] == keys["b"])
        ['b', 'w'] False

    References:
        The JAX authors, *Pseudorandom Numbers*.
        https://docs.jax.dev/en/latest/random-numbers.html
    """
    count = len(jax.tree.leaves(tree_like))
    new_key, *keys = jax.random.split(rng_key, count + 1)
    return new_key, _like(tree_like, keys)


@checked(compiled=False)
def tree_split_leaves(
    tree_like: Tree[ArrayTree, "shaped"],
    axis: Static[int, ""] = 0,
    keepdim: Static[bool, ""] = False,
) -> tuple[ArrayTree, ...]:
    """Split a pytree of arrays into one pytree for each index of an axis.

    Takes one pytree, returns a tuple of pytrees.

    ::

        y^k_i = x_i[…, k, …]   for each leaf i and index k

    NumPy arrays are split into views, without a copy.

    Args:
        tree_like: Pytree of arrays, all of the same size along `axis`.
        axis: Axis to split; negative to count from the last.
        keepdim: Whether to keep the axis, with size 1.

    Returns:
        One pytree for each index; none for an empty tuple, list or dictionary.

    Raises:
        ArgumentError: If leaves lack the axis or differ in its size, or there are none,
            or one has a dtype or byte order that JAX lacks.

    Example:
        >>> first, second = rlaxlib.tree_split_leaves({"reward": jnp.array([1.0, 2.0])})
        >>> print(second["reward"])
        2.0

    References:
        The JAX authors, *Pytrees*. https://docs.jax.dev/en/latest/pytrees.html
    """
    leaves = jax.tree.leaves(tree_like)
    if not leaves and tree_like in ((), [], {}):
        return ()
    size = _size(tree_like, axis)

    def pick(x: Any, k: int) -> Any:
        before = (slice(None),) * (axis % x.ndim)
        return x[(*before, slice(k, k + 1) if keepdim else k, ...)]

    return tuple(_like(tree_like, [pick(x, k) for x in leaves]) for k in range(size))


@checked
def tree_replace_masked(
    tree_data: Tree[ArrayTree, "shaped"],
    tree_replacement: Tree[ArrayTree, "shaped like tree_data"] | None,
    mask: Shaped[ArrayLike, "... in {0, 1}"],
) -> ArrayTree:
    """Replace the entries of the leaves of a pytree where a mask is true.

    Takes two pytrees and a mask, returns one pytree.

    ::

        y_i = { z_i   if m
              { x_i   otherwise,   for each leaf i

    It applies `replace_masked` to each leaf, for example to reset states.

    Args:
        tree_data: Pytree :math:`x` of arrays.
        tree_replacement: Pytree :math:`z` of the same structure; or None for zeros.
        mask: True, or 1, to replace, in {0, 1}; its axes are the first of all leaves,
            shape `[...]`.

    Returns:
        The pytree, of the structure and shapes of `tree_data`.

    Raises:
        ArgumentError: If a structure, shape, leaf or NumPy mask is wrong.

    Example:
        >>> data = {"a": jnp.array([1.0, 2.0]), "b": jnp.array([3.0, 4.0])}
        >>> data = rlaxlib.tree_replace_masked(data, None, jnp.array([True, False]))
        >>> print(data["a"], data["b"])
        [0. 2.] [0. 4.]

    References:
        The NumPy developers, *numpy.where*.
        https://numpy.org/doc/stable/reference/generated/numpy.where.html
    """
    if tree_replacement is None:
        tree_replacement = jax.tree.map(jnp.zeros_like, tree_data)
    return _select(mask=mask, tree_replacement=tree_replacement, tree_data=tree_data)


def tree_fn(fn: Callable[..., Any], **unmapped_kwargs: Any) -> Callable[..., Any]:
    """Turn a function of arrays into a function of pytrees.

    Takes a function of leaves, returns a function of pytrees.

    ::

        F(x, y)_i = f(x_i, y_i)   for each leaf i

    Args:
        fn: Function of leaves.
        **unmapped_kwargs: Keyword arguments of `fn`, the same for all leaves.

    Returns:
        A function of pytrees of the same structure, which returns a pytree.

    Raises:
        ValueError: From the returned function, if the structures differ.

    Example:
        >>> clip = rlaxlib.tree_fn(jnp.clip, max=1.0)
        >>> print(clip({"reward": jnp.array([0.5, 4.0])})["reward"])
        [0.5 1. ]

    References:
        The JAX authors, *Pytrees*. https://docs.jax.dev/en/latest/pytrees.html
    """
    return functools.partial(jax.tree.map, functools.partial(fn, **unmapped_kwargs))


@checked
def transpose_last_axis_to_first(
    tree: Tree[ArrayTree, "shaped ..., _"],
) -> ArrayTree:
    """Move the last axis of each leaf of a pytree to the front.

    Takes one pytree, returns a pytree.

    ::

        y_{k i_1 … i_m} = x_{i_1 … i_m k}   for each leaf x

    Args:
        tree: Pytree of arrays with at least one axis.

    Returns:
        The pytree, with leaves of shape `[N, ...]` instead of `[..., N]`.

    Raises:
        ArgumentError: If a leaf is not an array, or has no axis.

    Example:
        >>> tree = {"a": jnp.ones((2, 3, 4)), "b": jnp.ones(4)}
        >>> print(rlaxlib.transpose_last_axis_to_first(tree)["a"].shape)
        (4, 2, 3)

    References:
        The NumPy developers, *numpy.moveaxis*.
        https://numpy.org/doc/stable/reference/generated/numpy.moveaxis.html
    """
    move = functools.partial(jnp.moveaxis, source=-1, destination=0)
    return jax.tree.map(move, tree)


@checked
def transpose_first_axis_to_last(
    tree: Tree[ArrayTree, "shaped _, ..."],
) -> ArrayTree:
    """Move the first axis of each leaf of a pytree to the end.

    Takes one pytree, returns a pytree.

    ::

        y_{i_1 … i_m k} = x_{k i_1 … i_m}   for each leaf x

    Args:
        tree: Pytree of arrays with at least one axis.

    Returns:
        The pytree, with leaves of shape `[..., N]` instead of `[N, ...]`.

    Raises:
        ArgumentError: If a leaf is not an array, or has no axis.

    Example:
        >>> tree = {"a": jnp.ones((2, 3, 4)), "b": jnp.ones(2)}
        >>> print(rlaxlib.transpose_first_axis_to_last(tree)["a"].shape)
        (3, 4, 2)

    References:
        The NumPy developers, *numpy.moveaxis*.
        https://numpy.org/doc/stable/reference/generated/numpy.moveaxis.html
    """
    move = functools.partial(jnp.moveaxis, source=0, destination=-1)
    return jax.tree.map(move, tree)


@checked
def conditional_update(
    new_tensors: Tree[ArrayTree, "shaped"],
    old_tensors: Tree[ArrayTree, "shaped like new_tensors"],
    is_time: Shaped[ArrayLike, "... in {0, 1}"],
) -> Tree[ArrayTree, "shaped like old_tensors"]:
    """Update a target network if a condition holds.

    Takes two pytrees and a condition, returns one pytree.

    ::

        θ̄ ← { θ    if it is time
             { θ̄   otherwise

    It is `tree_select` with the arguments in another order.

    Args:
        new_tensors: Pytree :math:`θ` of arrays, the online parameters.
        old_tensors: Pytree :math:`θ̄` of the same shapes, the target parameters.
        is_time: True, or 1, to update, in {0, 1}; its axes are the first of each leaf,
            shape `[...]`.

    Returns:
        The selected pytree, its floats in the dtypes of `old_tensors`.

    Raises:
        ArgumentError: If a structure, shape, leaf or NumPy condition is wrong.

    Example:
        >>> new, old = {"w": jnp.array([1.0])}, {"w": jnp.array([0.0])}
        >>> print(rlaxlib.conditional_update(new, old, is_time=True)["w"])
        [1.]

    References:
        Volodymyr Mnih and others, *Human-Level Control through Deep Reinforcement
        Learning*, 2015. https://doi.org/10.1038/nature14236
    """
    return _select(is_time=is_time, new_tensors=new_tensors, old_tensors=old_tensors)


@checked
def periodic_update(
    new_tensors: Tree[ArrayTree, "shaped"],
    old_tensors: Tree[ArrayTree, "shaped like new_tensors"],
    steps: Int[ArrayLike, ""],
    update_period: Int[ArrayLike, "in [1, inf)"],
) -> Tree[ArrayTree, "shaped like old_tensors"]:
    """Update a target network once every `update_period` steps.

    Takes two pytrees and a number of steps, returns one pytree.

    ::

        θ̄ ← { θ    if t mod n = 0
             { θ̄   otherwise

    DQN updates its target network every 10,000 steps. Step 0 is an update step.

    Args:
        new_tensors: Pytree :math:`θ` of arrays, the online parameters.
        old_tensors: Pytree :math:`θ̄` of the same shapes, the target parameters.
        steps: Number :math:`t` of steps taken, shape `[]`.
        update_period: Steps :math:`n` between updates, in [1, inf), shape `[]`.

    Returns:
        The selected pytree, its floats in the dtypes of `old_tensors`.

    Raises:
        ArgumentError: If a structure, shape, dtype or concrete period is wrong.

    Example:
        >>> new, old = {"w": jnp.array([1.0])}, {"w": jnp.array([0.0])}
        >>> print(rlaxlib.periodic_update(new, old, steps=4, update_period=2)["w"])
        [1.]

    References:
        Volodymyr Mnih and others, *Human-Level Control through Deep Reinforcement
        Learning*, 2015. https://doi.org/10.1038/nature14236
    """
    # An int8 cannot hold a period of 10,000, an int32 no unsigned 2**31.
    size = max(x.dtype.itemsize for x in (steps, update_period))
    dtype = jnp.uint64 if size > 4 else jnp.uint32
    is_time = steps.astype(dtype) % update_period.astype(dtype) == 0
    return _select(is_time=is_time, new_tensors=new_tensors, old_tensors=old_tensors)


def _like(tree: Any, leaves: Sequence[Any]) -> Any:
    """Return a pytree of the structure of `tree`, with other leaves."""
    return jax.tree.unflatten(jax.tree.structure(tree), leaves)


def _select(**arguments: Any) -> Any:
    """Select each leaf from one of two pytrees.

    Args:
        **arguments: The condition, the pytree to select where it is true, and the
            pytree to select where it is false, each under its argument's name.

    Returns:
        The pytree of the selected leaves.
    """
    (name, condition), (true, on_true), (_, on_false) = arguments.items()

    def select(path: Any, x: Array, y: Array) -> Array:
        checks.leading_axes(
            **{name: condition, f"{true}{jax.tree_util.keystr(path)}": x}
        )
        mask = arrays.lhs_broadcast(source=condition.astype(bool), target=x)
        return jnp.where(mask, x, y)

    return jax.tree_util.tree_map_with_path(select, on_true, on_false)


def _size(tree: Any, axis: int) -> int:
    """Return the size along an axis, which all leaves must share."""
    paths = jax.tree_util.tree_leaves_with_path(tree)
    leaves = [(f"tree_like{jax.tree_util.keystr(path)}", x) for path, x in paths]
    if not leaves:
        checks.fail("`tree_like` has no leaves")
    for name, leaf in leaves:
        ndim = np.ndim(leaf)
        if not -ndim <= axis < ndim:
            must = f"must be in [{-ndim}, {ndim}), the axes of `{name}`"
            checks.fail(f"`axis` is {axis}, {must}")
    sizes = [(name, np.shape(leaf)[axis]) for name, leaf in leaves]
    first, size = sizes[0]
    for name, other in sizes:
        if other != size:
            checks.fail(
                f"all leaves must have the same size along axis {axis}, but `{first}` "
                f"has {size} and `{name}` {other}"
            )
    return size
