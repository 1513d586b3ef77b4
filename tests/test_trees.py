"""Test pytree utilities: leaves of every kind, and invalid arguments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlaxlib

TREE = {"a": np.float32([1, 2]), "b": (np.float32([[3], [4]]), None)}
OTHER = jax.tree.map(lambda x: -x, TREE)


def same(actual, expected):
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, actual, expected)


# --- Select, replace, update. ---


tree_select = jax.jit(rlaxlib.tree_select)
tree_replace_masked = jax.jit(rlaxlib.tree_replace_masked)


@pytest.mark.parametrize("kind", [bool, int, np.bool_, jnp.array])
def test_scalar_condition_selects_every_leaf(kind):
    same(rlaxlib.tree_select(kind(True), TREE, OTHER), TREE)
    same(rlaxlib.tree_select(kind(False), TREE, OTHER), OTHER)


def test_condition_for_each_row_selects_whole_rows():
    selected = tree_select(np.array([True, False]), TREE, OTHER)
    same(selected, {"a": np.float32([1, -2]), "b": (np.float32([[3], [-4]]), None)})


def test_keys_booleans_and_integers_can_be_selected():
    on_true = {"key": jax.random.key(0), "count": 1, "done": True, "x": np.ones(2)}
    on_false = {"key": jax.random.key(1), "count": 0, "done": False, "x": np.zeros(2)}
    selected = tree_select(False, on_true, on_false)
    assert selected["key"] == on_false["key"]
    same(selected["count"], 0)
    assert selected["done"].dtype == bool


def test_selected_leaves_have_the_promoted_dtype():
    new, old = {"w": np.ones(2, jnp.bfloat16)}, {"w": np.zeros(2, np.float32)}
    with jax.numpy_dtype_promotion("standard"):
        for selected in (
            tree_select(True, new, old),
            jax.jit(rlaxlib.conditional_update)(new, old, True),
            jax.jit(rlaxlib.periodic_update)(new, old, 0, 1),
        ):
            assert selected["w"].dtype == jnp.float32
            np.testing.assert_array_equal(selected["w"], 1.0)


def test_nan_that_is_not_selected_reaches_neither_value_nor_gradient():
    def loss(on_true, on_false):
        return jnp.sum(rlaxlib.tree_select(False, on_true, on_false)["x"])

    both = {"x": np.float32([np.nan, np.nan])}, {"x": np.float32([1, 1])}
    value, gradients = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))(*both)
    assert value == 2
    same(gradients, ({"x": np.zeros(2)}, {"x": np.ones(2)}))


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("axis", [0, -1])
def test_split_gives_one_example_for_each_index(axis, keepdim):
    numbers = np.arange(9, dtype=np.float32).reshape(3, 3)
    batch = {"a": np.arange(3, dtype=np.int32), "b": numbers}
    arrays = jax.tree.map(jnp.asarray, batch)
    compiled = jax.jit(rlaxlib.tree_split_leaves, static_argnums=(1, 2))
    for split in (rlaxlib.tree_split_leaves, compiled):
        for k, example in enumerate(split(arrays, axis, keepdim)):
            index = [k] if keepdim else k
            same(example, {x: np.take(y, index, axis) for x, y in batch.items()})
            assert example["a"].dtype == jnp.int32


def test_numpy_arrays_split_into_views():
    batch = {"a": np.arange(3), "b": np.arange(12.0).reshape(2, 3, 2)[0]}
    for k, example in enumerate(rlaxlib.tree_split_leaves(batch)):
        for name, part in example.items():
            assert isinstance(part, np.ndarray)
            assert np.shares_memory(part, batch[name])
            np.testing.assert_array_equal(part, batch[name][k])


@pytest.mark.parametrize("empty", [(), [], {}])
def test_empty_input_gives_empty_output(empty):
    assert rlaxlib.tree_split_leaves(empty) == ()
    assert rlaxlib.tree_map_zipped(max, empty) == empty


def test_every_leaf_gets_its_own_key():
    key, keys = rlaxlib.tree_split_key(jax.random.key(7), TREE)
    expected = jax.random.split(jax.random.key(7), 3)
    assert jax.tree.structure(keys) == jax.tree.structure(TREE)
    assert jnp.all(jnp.stack([key, *jax.tree.leaves(keys)]) == expected)
    key, nothing = rlaxlib.tree_split_key(jax.random.key(7), {"a": None})
    assert nothing == {"a": None}
    assert key != jax.random.key(7)


def test_mask_replaces_entries_of_every_leaf():
    mask = np.array([1, 0])
    negated = {"a": np.float32([-1, 2]), "b": (np.float32([[-3], [4]]), None)}
    same(tree_replace_masked(TREE, OTHER, mask), negated)
    without = {"a": np.float32([0, 2]), "b": (np.float32([[0], [4]]), None)}
    same(tree_replace_masked(TREE, None, mask), without)
    counts = {"n": np.array([5, 7], np.int32)}
    replaced = tree_replace_masked(counts, None, mask)["n"]
    assert replaced.dtype == np.int32
    np.testing.assert_array_equal(replaced, [0, 7])


def test_keyword_arguments_of_a_tree_function_are_the_same_for_all_leaves():
    scaled = rlaxlib.tree_fn(lambda x, y, scale: scale * (x + y), scale=2.0)
    same(scaled(TREE, TREE), jax.tree.map(lambda x: np.float32(4) * x, TREE))


def test_steps_may_be_narrow_integers():
    new, old = jnp.ones(()), jnp.zeros(())
    update = jax.jit(rlaxlib.periodic_update)
    for dtype in (jnp.int8, jnp.uint8, jnp.int16):
        assert update(new, old, dtype(16), 10_000) == 0
        assert update(new, old, dtype(0), 10_000) == 1


# --- Identities. ---


def test_stacking_inverts_splitting():
    parts = rlaxlib.tree_split_leaves(TREE)
    same(rlaxlib.tree_map_zipped(lambda *leaves: np.stack(leaves), parts), TREE)
    parts = rlaxlib.tree_split_leaves(TREE, keepdim=True)
    same(rlaxlib.tree_map_zipped(lambda *x: np.concatenate(x), list(parts)), TREE)


def test_transposes_are_inverse_to_each_other():
    moved = rlaxlib.transpose_last_axis_to_first(TREE)
    assert moved["b"][0].shape == (1, 2)
    same(rlaxlib.transpose_first_axis_to_last(moved), TREE)


def test_updates_equal_tree_select():
    conditional_update = jax.jit(rlaxlib.conditional_update)
    periodic_update = jax.jit(rlaxlib.periodic_update)
    for steps in range(5):
        is_time = steps in (0, 3)
        expected = TREE if is_time else OTHER
        same(conditional_update(TREE, OTHER, is_time), expected)
        same(periodic_update(TREE, OTHER, steps, 3), expected)


# --- Behaviour under JAX. ---


def test_periodic_update_of_more_than_two_billion_steps():
    """`uint32` and `int32` promote to `int32`, where such a number wraps."""
    update = jax.jit(rlaxlib.periodic_update)
    for steps in np.uint32([2**31 + 2, 2**31 + 8]):  # 2 ** 31 is 8 modulo 10.
        expected = TREE if (int(steps) % 10) == 0 else OTHER
        same(update(TREE, OTHER, jnp.asarray(steps), jnp.int32(10)), expected)


def test_periodic_update_works_inside_a_scan():
    def step(carry, period):
        steps, online, target = carry
        online = jax.tree.map(lambda x: x + 1, online)
        target = rlaxlib.periodic_update(online, target, steps, period)
        return (steps + 1, online, target), target

    zeros = {"w": np.zeros(2, np.float32)}
    run = jax.jit(lambda x: jax.lax.scan(step, (1, zeros, zeros), x)[1])
    targets = np.asarray(run(np.full(6, 2))["w"])
    np.testing.assert_array_equal(targets[:, 0], [0, 2, 2, 4, 4, 6])


def test_gradient_flows_through_a_split():
    def loss(tree):
        parts = rlaxlib.tree_split_leaves(tree)
        return sum(k * jnp.sum(part["a"]) for k, part in enumerate(parts))

    gradient = jax.jit(jax.grad(loss))({"a": np.ones((3, 2), np.float32)})["a"]
    np.testing.assert_array_equal(gradient, [[0, 0], [1, 1], [2, 2]])


# --- Invalid arguments. ---

LONGER = {"a": np.float32([1, 1, 1]), "b": (np.float32([[1], [1]]), None)}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: rlaxlib.tree_select(True, TREE, {"a": TREE["a"]}),
            r"^tree_select: `on_true` and `on_false` must have the same tree "
            r"structure, but have PyTreeDef\(.*'b'.*\) and PyTreeDef",
        ),
        (
            lambda: rlaxlib.tree_select(True, TREE, LONGER),
            r"^tree_select: `on_false\['a'\]` is float32\[3\], must be "
            r"array\[\.\.\.\]",
        ),
        (
            lambda: rlaxlib.tree_select(np.ones((2, 1), bool), TREE, OTHER),
            r"^tree_select: `pred` has shape \(2, 1\), must have the first axes of "
            r"`on_true\['a'\]`, which has shape \(2,\)",
        ),
        (
            lambda: rlaxlib.tree_map_zipped(max, [TREE, TREE, {}]),
            r"^tree_map_zipped: `nests\[0\]` and `nests\[2\]` must have the same tree",
        ),
        (
            lambda: rlaxlib.tree_split_leaves(LONGER),
            r"^tree_split_leaves: all leaves must have the same size along axis 0, but "
            r"`tree_like\['a'\]` has 3 and `tree_like\['b'\]\[0\]` 2",
        ),
        (
            lambda: rlaxlib.tree_split_leaves({"a": {}}),
            r"^tree_split_leaves: `tree_like` has no leaves",
        ),
        (
            lambda: rlaxlib.tree_split_leaves(None),
            r"^tree_split_leaves: `tree_like` has no leaves",
        ),
        (
            lambda: rlaxlib.tree_split_leaves({"a": 1.0}),
            r"^tree_split_leaves: `axis` is 0, must be in .* of `tree_like\['a'\]`",
        ),
        (
            lambda: rlaxlib.tree_split_leaves(TREE, axis=1),
            r"^tree_split_leaves: `axis` is 1, must be in \[-1, 1\), the axes of ",
        ),
        (
            lambda: rlaxlib.tree_replace_masked(TREE, LONGER, jnp.array([1, 0])),
            r"^tree_replace_masked: `tree_replacement\['a'\]` is float32\[3\], "
            r"must be array\[\.\.\.\]",
        ),
        (
            lambda: rlaxlib.conditional_update(TREE, LONGER, True),
            r"^conditional_update: `old_tensors\['a'\]` is float32\[3\], must be "
            r"array\[\.\.\.\]",
        ),
        (
            lambda: rlaxlib.conditional_update(TREE, OTHER, np.ones(3, bool)),
            r"^conditional_update: `is_time` has shape \(3,\), must have the first "
            r"axes of `new_tensors\['a'\]`",
        ),
    ],
)
def test_error_names_the_leaf_and_what_it_must_be(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        call()


def test_tree_function_rejects_pytrees_of_different_structures():
    with pytest.raises(ValueError, match=r"structure|mismatch"):
        rlaxlib.tree_fn(jnp.add)(TREE, {"a": TREE["a"]})
