"""Rows of `trees.py`, and their definitions in NumPy.

The arguments of a row are arrays, which are pytrees too. `test_trees.py` tests pytrees
of several leaves.
"""

import jax
import jax.numpy as jnp
import numpy as np
from row import Gradients, Loose, Peer, Precision, Row


def tree_select(pred, on_true, on_false):
    return np.stack(
        [a if p else b for p, a, b in zip(pred, on_true, on_false, strict=True)]
    )


def tree_replace_masked(tree_data, tree_replacement, mask):
    data = np.array(tree_data)
    data[mask] = 0.0 if tree_replacement is None else tree_replacement[mask]
    return data


def conditional_update(new_tensors, old_tensors, is_time):
    return new_tensors if is_time else old_tensors


def periodic_update(new_tensors, old_tensors, steps, update_period):
    return new_tensors if steps in range(0, 1000, update_period) else old_tensors


def tree_split_leaves(tree_like, axis=0, keepdim=False):
    size = tree_like.shape[axis]
    parts = [np.take(tree_like, [k], axis) for k in range(size)]
    return parts if keepdim else [np.squeeze(part, axis) for part in parts]


def transpose_last_axis_to_first(tree):
    return np.stack([tree[..., k] for k in range(tree.shape[-1])], axis=0)


def transpose_first_axis_to_last(tree):
    return np.stack(list(tree), axis=-1)


def product(library):
    """Multiply two trees by a function of two arrays."""

    def call(x, y):
        return library.tree_fn(jnp.multiply)(x, y)

    return call


def zipped_product(library):
    """Multiply a list of two trees."""
    return lambda x, y: library.tree_map_zipped(jnp.multiply, [x, y])


def split_key(library):
    """Return the keys as words, which one can compare."""
    return lambda rng_key, tree_like: jax.tree.map(
        jax.random.key_data, library.tree_split_key(rng_key, tree_like)
    )


def make_choice(rng):
    return {
        "pred": rng.permutation([True, True, False, False]),
        "on_true": rng.normal(size=(4, 3)),
        "on_false": rng.normal(size=(4, 3)),
    }


def make_one_choice(rng):
    return {**make_choice(rng), "pred": np.bool_(rng.integers(2))}


def make_replaced(rng):
    return {
        "tree_data": rng.normal(size=(4, 3)),
        "tree_replacement": rng.normal(size=(4, 3)),
        "mask": rng.permutation([True, True, False, False]),
    }


def make_update(rng):
    return {
        "new_tensors": rng.normal(size=(4, 3)),
        "old_tensors": rng.normal(size=(4, 3)),
    }


def make_pair(rng):
    return {"x": rng.normal(size=(4, 3)), "y": rng.normal(size=(4, 3))}


def make_tree(rng):
    return {"tree": rng.normal(size=(2, 4, 3))}


ROWS = [
    Row(
        lambda pred, on_true, on_false: on_true if pred else on_false,
        make_one_choice,
        name="tree_select",
    ),
    Row(
        tree_select,
        make_choice,
        "row by row",
        peer=Peer(why_not="rlax takes one condition only"),
    ),
    Row(
        lambda x, y: x * y,
        make_pair,
        name="tree_map_zipped",
        find=zipped_product,
        loose=Loose(
            lengths=("x", "y"), batches=True, dtypes=("x", "y"), trees=("x", "y")
        ),
    ),
    Row(
        lambda x, y: x * y,
        make_pair,
        name="tree_fn",
        find=product,
        loose=Loose(
            lengths=("x", "y"), batches=True, dtypes=("x", "y"), trees=("x", "y")
        ),
    ),
    Row(
        "its keys are random",
        lambda rng: {"tree_like": rng.normal(size=3)},
        name="tree_split_key",
        find=split_key,
        gradients=Gradients(exist=False),
    ),
    Row(tree_split_leaves, lambda rng: {"tree_like": rng.normal(size=(4, 3))}),
    Row(
        tree_split_leaves,
        lambda rng: {"tree_like": rng.normal(size=(4, 3))},
        "keepdim, last axis",
        settings={"axis": -1, "keepdim": True},
        invalid=(
            {"axis": 2},
            {"axis": -3},
        ),
    ),
    Row(tree_replace_masked, make_replaced),
    Row(
        tree_replace_masked,
        lambda rng: {
            "tree_data": rng.normal(size=(4, 3)),
            "mask": rng.permutation([True, True, False, False]),
        },
        "no replacement",
        settings={"tree_replacement": None},
    ),
    Row(transpose_last_axis_to_first, make_tree),
    Row(transpose_first_axis_to_last, make_tree),
    Row(
        conditional_update,
        lambda rng: {**make_update(rng), "is_time": np.bool_(rng.integers(2))},
        precision=Precision(carried={"old_tensors": 0}),
    ),
    Row(
        periodic_update,
        lambda rng: {**make_update(rng), "steps": rng.integers(6)},
        settings={"update_period": 3},
        precision=Precision(carried={"old_tensors": 0}),
    ),
]
