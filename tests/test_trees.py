"""Test pytree utilities: leaves of every kind, and invalid arguments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlaxlib

TREE = {"a": jnp.array([1.0, 2.0]), "b": (jnp.array([[3.0], [4.0]]), None)}
OTHER = jax.tree.map(lambda x: -x, TREE)


def same(actual, expected):
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, actual, expected)


# --- Select, replace, update. ---


@pytest.mark.parametrize("true", [True, 1, jnp.array(True), np.bool_(True)])
def test_scalar_condition_selects_every_leaf(true):
    same(rlaxlib.tree_select(true, TREE, OTHER), TREE)
    same(rlaxlib.tree_select(1 - jnp.asarray(true, int), TREE, OTHER), OTHER)


def test_condition_for_each_row_selects_whole_rows():
    selected = rlaxlib.tree_select(jnp.array([True, False]), TREE, OTHER)
    same(
        selected, {"a": jnp.array([1.0, -2.0]), "b": (jnp.array([[3.0], [-4.0]]), None)}
    )


def test_keys_booleans_and_integers_can_be_selected():
    on_true = {"key": jax.random.key(0), "count": 1, "done": True, "x": np.ones(2)}
    on_false = {"key": jax.random.key(1), "count": 0, "done": False, "x": np.zeros(2)}
    selected = jax.jit(rlaxlib.tree_select)(False, on_true, on_false)
    assert selected["key"] == on_false["key"]
    same(selected["count"], 0)
    assert selected["done"].dtype == bool


def test_selected_leaves_have_the_promoted_dtype():
    new, old = {"w": jnp.ones(2, jnp.bfloat16)}, {"w": jnp.zeros(2)}
    with jax.numpy_dtype_promotion("standard"):
        for selected in (
            rlaxlib.tree_select(True, new, old),
            rlaxlib.conditional_update(new, old, True),
            rlaxlib.periodic_update(new, old, 0, 1),
        ):
            assert selected["w"].dtype == jnp.float32
            np.testing.assert_array_equal(selected["w"], 1.0)


def test_nan_that_is_not_selected_reaches_neither_value_nor_gradient():
    def loss(on_true, on_false):
        return jnp.sum(rlaxlib.tree_select(False, on_true, on_false)["x"])

    both = {"x": jnp.full(2, jnp.nan)}, {"x": jnp.ones(2)}
    value, gradients = jax.value_and_grad(loss, argnums=(0, 1))(*both)
    assert value == 2
    same(gradients, ({"x": jnp.zeros(2)}, {"x": jnp.ones(2)}))


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("axis", [0, -1])
def test_split_gives_one_example_for_each_index(axis, keepdim):
    batch = {"a": jnp.arange(3), "b": jnp.arange(9.0).reshape(3, 3)}
    for split in (
        rlaxlib.tree_split_leaves,
        jax.jit(rlaxlib.tree_split_leaves, static_argnums=(1, 2)),
    ):
        for k, example in enumerate(split(batch, axis, keepdim)):
            expected = jax.tree.map(
                lambda x, k=k: jnp.take(x, jnp.array([k]), axis), batch
            )
            if not keepdim:
                expected = jax.tree.map(lambda x: jnp.squeeze(x, axis), expected)
            same(example, expected)
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
    mask = jnp.array([1, 0])
    same(
        rlaxlib.tree_replace_masked(TREE, OTHER, mask),
        rlaxlib.tree_select(mask, OTHER, TREE),
    )
    zeros = jax.tree.map(jnp.zeros_like, TREE)
    same(
        rlaxlib.tree_replace_masked(TREE, None, mask),
        rlaxlib.tree_select(mask, zeros, TREE),
    )
    counts = {"n": jnp.array([5, 7])}
    replaced = rlaxlib.tree_replace_masked(counts, None, mask)["n"]
    np.testing.assert_array_equal(replaced, jnp.array([0, 7], counts["n"].dtype))


def test_keyword_arguments_of_a_tree_function_are_the_same_for_all_leaves():
    scaled = rlaxlib.tree_fn(lambda x, y, scale: scale * (x + y), scale=2.0)
    same(scaled(TREE, TREE), jax.tree.map(lambda x: 4.0 * x, TREE))


# --- Identities. ---


def test_stacking_inverts_splitting():
    parts = rlaxlib.tree_split_leaves(TREE)
    same(rlaxlib.tree_map_zipped(lambda *leaves: jnp.stack(leaves), parts), TREE)
    parts = rlaxlib.tree_split_leaves(TREE, keepdim=True)
    same(rlaxlib.tree_map_zipped(lambda *x: jnp.concatenate(x), list(parts)), TREE)


def test_transposes_are_inverse_to_each_other():
    moved = rlaxlib.transpose_last_axis_to_first(TREE)
    assert moved["b"][0].shape == (1, 2)
    same(rlaxlib.transpose_first_axis_to_last(moved), TREE)


def test_updates_equal_tree_select():
    for steps in range(5):
        is_time = steps in (0, 3)
        expected = rlaxlib.tree_select(is_time, TREE, OTHER)
        same(rlaxlib.conditional_update(TREE, OTHER, is_time), expected)
        same(rlaxlib.periodic_update(TREE, OTHER, steps, 3), expected)


# --- Behaviour under JAX. ---


def test_periodic_update_works_inside_a_scan():
    def step(carry, period):
        steps, online, target = carry
        online = jax.tree.map(lambda x: x + 1, online)
        target = rlaxlib.periodic_update(online, target, steps, period)
        return (steps + 1, online, target), target

    start = 1, {"w": jnp.zeros(2)}, {"w": jnp.zeros(2)}
    _, targets = jax.lax.scan(step, start, jnp.full(6, 2))
    np.testing.assert_array_equal(targets["w"][:, 0], [0, 2, 2, 4, 4, 6])


def test_gradient_flows_through_a_split():
    def loss(tree):
        parts = rlaxlib.tree_split_leaves(tree)
        return sum(k * jnp.sum(part["a"]) for k, part in enumerate(parts))

    gradient = jax.jit(jax.grad(loss))({"a": jnp.ones((3, 2))})["a"]
    np.testing.assert_array_equal(gradient, [[0, 0], [1, 1], [2, 2]])


# --- Invalid arguments. ---

LONGER = {"a": jnp.ones(3), "b": (jnp.ones((2, 1)), None)}


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
            r"^tree_select: `on_false\['a'\]` has shape \(3,\), must be \(2,\) to "
            r"match `on_true\['a'\]`",
        ),
        (
            lambda: rlaxlib.tree_select(jnp.ones((2, 1), bool), TREE, OTHER),
            r"^tree_select: `pred` has shape \(2, 1\), must have the first axes of "
            r"`on_true\['a'\]`, which has shape \(2,\)",
        ),
        (
            lambda: rlaxlib.tree_select(True, {"f": max}, {"f": min}),
            r"^tree_select: `on_true\['f'\]` is <built-in function max>, must be an",
        ),
        (
            lambda: rlaxlib.tree_map_zipped(max, [TREE, TREE, {}]),
            r"^tree_map_zipped: `nests\[0\]` and `nests\[2\]` must have the same tree",
        ),
        (
            lambda: rlaxlib.tree_split_key(jax.random.split(jax.random.key(0)), TREE),
            r"^tree_split_key: `rng_key` has shape \(2,\), must be \(\)",
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
            r"^tree_split_leaves: `tree_like\['a'\]\.ndim` is 0, must be at least 1",
        ),
        (
            lambda: rlaxlib.tree_split_leaves(TREE, axis=1),
            r"^tree_split_leaves: `axis` is 1, must be at most 0",
        ),
        (
            lambda: rlaxlib.tree_replace_masked(TREE, LONGER, jnp.array([1, 0])),
            r"^tree_replace_masked: `tree_data\['a'\]` has shape \(2,\), must be",
        ),
        (
            lambda: rlaxlib.tree_replace_masked({"a": "text"}, None, True),
            r"^tree_replace_masked: `tree_data\['a'\]` is 'text', must be an array",
        ),
        (
            lambda: rlaxlib.transpose_last_axis_to_first({"a": jnp.float32(1.0)}),
            r"^transpose_last_axis_to_first: `tree\['a'\]\.ndim` is 0, must be",
        ),
        (
            lambda: rlaxlib.conditional_update(TREE, LONGER, True),
            r"^conditional_update: `old_tensors\['a'\]` has shape \(3,\)",
        ),
        (
            lambda: rlaxlib.conditional_update(TREE, OTHER, jnp.ones(3, bool)),
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
