"""Handle trees of arrays: select, map, split, mask and transpose them.

The parameters of a network, the state of an agent and a batch of experience are trees:
nested tuples, lists and dictionaries whose leaves are arrays. An array alone is a tree
too. Trees that go together must have the same structure, and their leaves the same
shapes: where they have not, the error says which leaf it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from rlaxlib import arrays
from rlaxlib._core import checks

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

Tree = TypeVar("Tree")


def tree_select(pred: ArrayLike, on_true: Tree, on_false: Tree) -> Tree:
    """Select one of two trees by a condition.

    .. math::

        y_i = { a_i   if p
              { b_i   otherwise,   for each leaf i

    What is not selected may be NaN, and gets a gradient of 0. A condition for each row
    of the leaves selects row by row, as it is needed where some of many environments
    start anew.

    Args:
        pred: Condition :math:`p`, true or 1 to select `on_true`. Its axes are the first
            ones of every leaf, shape `[...]`: none for one condition on all.
        on_true: Tree :math:`a` of arrays.
        on_false: Tree :math:`b` of arrays, of the same structure and shapes.

    Returns:
        The tree selected. Each leaf has the dtype that the two promote to.

    Raises:
        ArgumentError: If structures or shapes differ, if a leaf is no array, or if
            `pred` does not fit all leaves or holds something other than 0 and 1.

    Example:
        >>> state, start = {"x": jnp.array([1.0, 2.0])}, {"x": jnp.array([0.0, 0.0])}
        >>> print(rlaxlib.tree_select(jnp.array(False), start, state)["x"])
        [1. 2.]
        >>> print(rlaxlib.tree_select(jnp.array([True, False]), start, state)["x"])
        [0. 2.]

    References:
        The JAX authors, *Pytrees*. https://docs.jax.dev/en/latest/pytrees.html
    """
    (pred,) = checks.arrays(pred=(pred, "any[...]"))
    return _select(pred=pred, on_true=on_true, on_false=on_false)


def tree_map_zipped(fn: Callable[..., Any], nests: Sequence[Any]) -> Any:
    """Map a function over the leaves of many trees, which are given as a list.

    .. math::

        y_i = f(x¹_i, …, x^n_i)   for each leaf i

    So the observations of many steps, for example, become one: with `fn` stacking its
    arguments.

    Args:
        fn: Function of as many leaves as there are trees.
        nests: Trees of the same structure, in a list or tuple.

    Returns:
        The tree of what `fn` returns; where `nests` is empty, an empty list or tuple
        too.

    Raises:
        ArgumentError: If the trees differ in structure.

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


def tree_split_key(rng_key: ArrayLike, tree_like: Tree) -> tuple[Array, Tree]:
    """Make a random key for each leaf of a tree, and one to go on with.

    .. math::

        k', k_1, …, k_n = split(k, n + 1)

    Args:
        rng_key: Random key :math:`k`, shape `[]`. Do not use it again.
        tree_like: Any tree, of :math:`n` leaves of any kind.

    Returns:
        A new key, and a tree like the one given, of keys.

    Raises:
        ArgumentError: If `rng_key` is no single key.

    Example:
        >>> key, keys = rlaxlib.tree_split_key(jax.random.key(0), {"w": 0, "b": 0})
        >>> noise = jax.tree.map(jax.random.normal, keys)
        >>> print(sorted(noise), noise["w"] == noise["b"])
        ['b', 'w'] False

    References:
        The JAX authors, *Pseudorandom Numbers*.
        https://docs.jax.dev/en/latest/random-numbers.html
    """
    (rng_key,) = checks.arrays(rng_key=(rng_key, "key[]"))
    count = len(jax.tree.leaves(tree_like))
    new_key, *keys = jax.random.split(rng_key, count + 1)
    return new_key, _like(tree_like, keys)


def tree_split_leaves(
    tree_like: Tree, axis: int = 0, keepdim: bool = False
) -> tuple[Tree, ...]:
    """Split a tree of arrays into a tree for each position along an axis.

    .. math::

        y^k_i = x_i[…, k, …]   for each leaf i and position k

    A batch becomes one tree for each of its examples. Leaves that are NumPy arrays are
    not copied, and stay NumPy arrays: what comes back are views of them.

    Args:
        tree_like: Tree of arrays, all of the same size along `axis`.
        axis: Axis along which to split; negative to count from the last.
        keepdim: Whether to keep the axis, with a size of 1.

    Returns:
        As many trees as the axis is long; none where `tree_like` is an empty tuple,
        list or dictionary.

    Raises:
        ArgumentError: If a leaf is no array, has no such axis or another size along it,
            or if a tree that is not empty has no leaves.

    Example:
        >>> batch = {"reward": jnp.array([1.0, 2.0]), "done": jnp.array([False, True])}
        >>> for step in rlaxlib.tree_split_leaves(batch):
        ...     print(step["reward"], step["done"])
        1.0 False
        2.0 True

    References:
        The JAX authors, *Pytrees*. https://docs.jax.dev/en/latest/pytrees.html
    """
    leaves = jax.tree.leaves(tree_like)
    if not leaves and tree_like in ((), [], {}):
        return ()
    size = _size(tree_like, axis)
    return tuple(
        _like(tree_like, [_piece(x, k, axis, keepdim) for x in leaves])
        for k in range(size)
    )


def tree_replace_masked(
    tree_data: Tree, tree_replacement: Tree | None, mask: ArrayLike
) -> Tree:
    """Replace entries of the leaves of a tree where a mask is true.

    .. math::

        y_i = { z_i   if m
              { x_i   otherwise,   for each leaf i

    It is `replace_masked` for each leaf, as to put the first state of an episode where
    one begins.

    Args:
        tree_data: Tree :math:`x` of arrays, some of whose entries are to be replaced.
        tree_replacement: Tree :math:`z` of what to put there, of the same structure and
            shapes; or None to put zeros.
        mask: True, or 1, where to replace. Its axes are the first ones of every leaf,
            shape `[...]`.

    Returns:
        The tree, of the structure and shapes of `tree_data`.

    Raises:
        ArgumentError: If structures or shapes differ, if a leaf is no array, or if
            `mask` does not fit all leaves or holds something other than 0 and 1.

    Example:
        >>> data = {"a": jnp.array([1.0, 2.0]), "b": jnp.array([[3.0], [4.0]])}
        >>> data = rlaxlib.tree_replace_masked(data, None, jnp.array([True, False]))
        >>> print(data["a"])
        [0. 2.]
        >>> print(data["b"])
        [[0.]
         [4.]]

    References:
        The NumPy developers, *numpy.where*.
        https://numpy.org/doc/stable/reference/generated/numpy.where.html
    """
    (mask,) = checks.arrays(mask=(mask, "any[...]"))
    if tree_replacement is None:
        tree_replacement = _map("tree_data", cast(Any, jnp.zeros_like), tree_data)
    return _select(mask=mask, tree_replacement=tree_replacement, tree_data=tree_data)


def tree_fn(fn: Callable[..., Any], **unmapped_kwargs: Any) -> Callable[..., Any]:
    """Turn a function of arrays into one of trees.

    .. math::

        F(x, y)_i = f(x_i, y_i)   for each leaf i

    It is `jax.tree.map` with the function fixed, and with those arguments fixed too
    that are the same for all leaves.

    Args:
        fn: Function of leaves.
        **unmapped_kwargs: Arguments of `fn` that are passed on as they are.

    Returns:
        Function of trees of one structure, that of the first; it returns the tree of
        what `fn` does.

    Raises:
        ValueError: From the function that is returned, if a tree does not have the
            structure of the first.

    Example:
        >>> clip = rlaxlib.tree_fn(jnp.clip, max=1.0)
        >>> print(clip({"reward": jnp.array([0.5, 4.0])})["reward"])
        [0.5 1. ]

    References:
        The JAX authors, *Pytrees*. https://docs.jax.dev/en/latest/pytrees.html
    """
    return functools.partial(jax.tree.map, functools.partial(fn, **unmapped_kwargs))


def transpose_last_axis_to_first(tree: Tree) -> Tree:
    """Move the last axis of each leaf to the front.

    .. math::

        y_{k i_1 … i_m} = x_{i_1 … i_m k}   for each leaf x

    Args:
        tree: Tree of arrays that have an axis.

    Returns:
        The tree, whose leaves have shape `[N, ...]` where they had `[..., N]`.

    Raises:
        ArgumentError: If a leaf is no array, or has no axis.

    Example:
        >>> tree = {"a": jnp.ones((2, 3, 4)), "b": jnp.ones(4)}
        >>> moved = rlaxlib.transpose_last_axis_to_first(tree)
        >>> print(moved["a"].shape, moved["b"].shape)
        (4, 2, 3) (4,)

    References:
        The NumPy developers, *numpy.moveaxis*.
        https://numpy.org/doc/stable/reference/generated/numpy.moveaxis.html
    """
    return _map("tree", lambda x: jnp.moveaxis(x, -1, 0), tree, axes=1)


def transpose_first_axis_to_last(tree: Tree) -> Tree:
    """Move the first axis of each leaf to the back.

    .. math::

        y_{i_1 … i_m k} = x_{k i_1 … i_m}   for each leaf x

    Args:
        tree: Tree of arrays that have an axis.

    Returns:
        The tree, whose leaves have shape `[..., N]` where they had `[N, ...]`.

    Raises:
        ArgumentError: If a leaf is no array, or has no axis.

    Example:
        >>> tree = {"a": jnp.ones((2, 3, 4)), "b": jnp.ones(2)}
        >>> moved = rlaxlib.transpose_first_axis_to_last(tree)
        >>> print(moved["a"].shape, moved["b"].shape)
        (3, 4, 2) (2,)

    References:
        The NumPy developers, *numpy.moveaxis*.
        https://numpy.org/doc/stable/reference/generated/numpy.moveaxis.html
    """
    return _map("tree", lambda x: jnp.moveaxis(x, 0, -1), tree, axes=1)


def conditional_update(
    new_tensors: Tree, old_tensors: Tree, is_time: ArrayLike
) -> Tree:
    """Return the new parameters where it is time for them, else the old.

    .. math::

        θ̄ ← { θ    if it is time
             { θ̄   otherwise

    It is `tree_select` in another order, as it is written where a target network is
    kept.

    Args:
        new_tensors: Tree :math:`θ` of arrays, such as the parameters learned.
        old_tensors: Tree :math:`θ̄` of arrays, of the same structure and shapes, such
            as those of the target network.
        is_time: True, or 1, to take the new. Its axes are the first ones of every leaf,
            shape `[...]`: none for one condition on all.

    Returns:
        The tree selected. Each leaf has the dtype that the two promote to.

    Raises:
        ArgumentError: If structures or shapes differ, if a leaf is no array, or if
            `is_time` does not fit all leaves or holds something other than 0 and 1.

    Example:
        >>> new, old = {"w": jnp.array([1.0])}, {"w": jnp.array([0.0])}
        >>> print(rlaxlib.conditional_update(new, old, is_time=True)["w"])
        [1.]

    References:
        Volodymyr Mnih and others, *Human-Level Control through Deep Reinforcement
        Learning*, 2015. https://doi.org/10.1038/nature14236
    """
    (is_time,) = checks.arrays(is_time=(is_time, "any[...]"))
    return _select(is_time=is_time, new_tensors=new_tensors, old_tensors=old_tensors)


def periodic_update(
    new_tensors: Tree, old_tensors: Tree, steps: ArrayLike, update_period: ArrayLike
) -> Tree:
    """Return the new parameters once in a number of steps, else the old.

    .. math::

        θ̄ ← { θ    if t mod n = 0
             { θ̄   otherwise

    So a target network stands still for a while, and the values that are learned have
    something firm to rest on. DQN renews it every 10,000 steps. Step 0 is a time to.

    Args:
        new_tensors: Tree :math:`θ` of arrays, such as the parameters learned.
        old_tensors: Tree :math:`θ̄` of arrays, of the same structure and shapes, such
            as those of the target network.
        steps: Number :math:`t` of steps taken, shape `[]`.
        update_period: Number :math:`n` of steps from one update to the next, at least
            1, shape `[]`.

    Returns:
        The tree selected. Each leaf has the dtype that the two promote to.

    Raises:
        ArgumentError: If structures or shapes differ, if a leaf is no array, or if
            `steps` or `update_period` is no whole number, or the latter less than 1.

    Example:
        >>> target = {"w": jnp.array([0.0])}
        >>> for steps in range(4):
        ...     online = {"w": jnp.array([10.0 + steps])}
        ...     target = rlaxlib.periodic_update(online, target, steps, 2)
        ...     print(target["w"])
        [10.]
        [10.]
        [12.]
        [12.]

    References:
        Volodymyr Mnih and others, *Human-Level Control through Deep Reinforcement
        Learning*, 2015. https://doi.org/10.1038/nature14236
    """
    steps, update_period = checks.arrays(
        steps=(steps, "int[]"), update_period=(update_period, "int[]")
    )
    checks.within("[1, inf)", update_period=update_period)
    is_time = steps % update_period == 0
    return _select(is_time=is_time, new_tensors=new_tensors, old_tensors=old_tensors)


def _leaves(name: str, tree: Any) -> list[tuple[str, Any]]:
    """Return the leaves of a tree, each under the name by which an error shows it."""
    leaves = cast(Any, jax.tree_util).tree_leaves_with_path(tree)
    return [(name + jax.tree_util.keystr(path), leaf) for path, leaf in leaves]


def _like(tree: Any, leaves: Sequence[Any]) -> Any:
    """Return a tree of other leaves."""
    return jax.tree.unflatten(cast(Any, jax.tree.structure(tree)), leaves)


def _map(name: str, fn: Callable[[Array], Array], tree: Any, axes: int = 0) -> Any:
    """Map a function over the leaves, after a look at them.

    Args:
        name: Name of the argument that the tree is.
        fn: Function of a leaf.
        tree: Tree of arrays.
        axes: How many axes a leaf must have at least.

    Returns:
        The tree of what `fn` returns.
    """
    mapped: list[Array] = []
    for where, leaf in _leaves(name, tree):
        (x,) = checks.arrays(**{where: (leaf, "any[...]")})
        checks.static_int(axes, **{f"{where}.ndim": x.ndim})
        mapped.append(fn(x))
    return _like(tree, mapped)


def _select(**arguments: Any) -> Any:
    """Choose between the leaves of two trees.

    Args:
        **arguments: The condition, the tree for where it holds, and the tree for where
            it does not, each under its argument's name.

    Returns:
        The tree of the leaves chosen.
    """
    (condition, chosen), (true, on_true), (false, on_false) = arguments.items()
    checks.binary(**{condition: chosen})
    checks.same_structure(**{true: on_true, false: on_false})
    selected: list[Array] = []
    pairs = zip(_leaves(true, on_true), _leaves(false, on_false), strict=True)
    for (one, leaf), (other, instead) in pairs:
        x, y = checks.arrays(**{one: (leaf, "any[...]"), other: (instead, "any[...]")})
        checks.leading_axes(**{condition: chosen, one: x})
        where = arrays.lhs_broadcast(chosen.astype(bool), x)
        selected.append(jnp.where(where, x, y))
    return _like(on_true, selected)


def _size(tree: Any, axis: int) -> int:
    """Return the size along an axis that all leaves share."""
    leaves = _leaves("tree_like", tree)
    if not leaves:
        checks.fail("`tree_like` has no leaves")
    for name, leaf in leaves:
        checks.static_int(1, **{f"{name}.ndim": np.ndim(leaf)})
        checks.static_int(-np.ndim(leaf), np.ndim(leaf) - 1, axis=axis)
    sizes = [(name, np.shape(leaf)[axis]) for name, leaf in leaves]
    first, size = sizes[0]
    for name, other in sizes:
        if other != size:
            checks.fail(
                f"all leaves must have the same size along axis {axis}, but `{first}` "
                f"has {size} and `{name}` {other}"
            )
    return size


def _piece(x: Any, k: int, axis: int, keepdim: bool) -> Any:
    """Return what an array holds at position `k` of an axis."""
    if isinstance(x, np.ndarray):
        before = (slice(None),) * (axis % x.ndim)
        return cast(Any, x)[(*before, slice(k, k + 1) if keepdim else k, ...)]
    return _compiled(x, k, axis, keepdim)


# The position being an argument, all positions are one program to compile.
_compiled: Callable[..., Array] = jax.jit(
    jax.lax.dynamic_index_in_dim, static_argnums=(2, 3), inline=True
)
