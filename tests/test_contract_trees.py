"""Test the checks of pytrees, and of results of functions that users give."""

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlaxlib

TREE = {"w": jnp.ones(3)}
FISHER = rlaxlib.fisher_vector_product
SEARCH = rlaxlib.backtracking_line_search


def quadratic(params):
    return 0.5 * jnp.sum(jnp.square(params["w"]))


def loss_and_kl(params):
    return quadratic(params), quadratic(params)


# Functions of two pytrees whose leaves must be floats of the same shapes.
ALIKE = {
    "backtracking_line_search": lambda x, y: SEARCH(loss_and_kl, x, y),
    "eligibility_trace": lambda x, y: rlaxlib.eligibility_trace(x, y, 0.5),
    "fisher_vector_product": lambda x, y: FISHER(quadratic, x, y),
    "l2_init_loss": rlaxlib.l2_init_loss,
    "shrink_and_perturb": rlaxlib.shrink_and_perturb,
    "trust_region_step_size": rlaxlib.trust_region_step_size,
}
WRONG = {
    "a size": {"w": np.ones(4, np.float32)},
    "one entry": {"w": np.ones(1, np.float32)},
    "another axis": {"w": np.ones((3, 1), np.float32)},
    "integers": {"w": np.ones(3, np.int32)},
    "bools": {"w": np.ones(3, bool)},
    "complex numbers": {"w": np.ones(3, np.complex64)},
    "big-endian floats": {"w": np.ones(3, ">f4")},
    "objects": {"w": np.array([None] * 3)},
    "a number": {"w": 1.0},
    "an integer": {"w": 1},
    "a string": {"w": "text"},
    "None": {"w": None},
    "another name": {"v": np.ones(3, np.float32)},
    "nothing": {},
}


@pytest.mark.parametrize("name", ALIKE)
@pytest.mark.parametrize("wrong", WRONG)
def test_trees_must_be_alike(name, wrong):
    for trees in ((TREE, WRONG[wrong]), (WRONG[wrong], TREE)):
        with pytest.raises(rlaxlib.ArgumentError, match=f"^{name}: `") as error:
            ALIKE[name](*trees)
        where = "['w']" if "w" in WRONG[wrong] and wrong != "None" else "structure"
        assert where in str(error.value)


@pytest.mark.parametrize("name", ["shrink_and_perturb", "fisher_vector_product"])
def test_trees_are_checked_in_traced_programs(name):
    with pytest.raises(rlaxlib.ArgumentError, match=f"^{name}: `"):
        jax.eval_shape(ALIKE[name], TREE, {"w": jnp.ones(4)})


@pytest.mark.parametrize("name", ["trust_region_step_size", "backtracking_line_search"])
def test_numbers_have_the_dtype_of_the_trees_in_single_precision_at_least(name):
    with contract.x64(True), jax.numpy_dtype_promotion("standard"):
        for dtype in (jnp.bfloat16, jnp.float32, jnp.float64):
            tree = {"w": jnp.ones(3, dtype)}
            results = jax.eval_shape(ALIKE[name], tree, tree)
            results = results if name == "trust_region_step_size" else results[1]
            fraction = jax.tree.leaves(results)[0]
            wide = jnp.float32 if dtype == jnp.bfloat16 else dtype
            assert fraction.dtype == wide


@pytest.mark.parametrize(
    "wrong", [np.array([None, 1.0]), np.ones(2, ">f4"), np.array(["a", "b"])]
)
def test_leaves_that_jax_cannot_hold_are_not_split(wrong):
    with pytest.raises(
        rlaxlib.ArgumentError, match=r"^tree_split_leaves: .*\['x'\]` is"
    ):
        rlaxlib.tree_split_leaves({"x": wrong})


# --- Results of functions that users give. ---


def penalized(operator):
    penalty = rlaxlib.LagrangePenalty(jnp.array(1.0), 0.1)
    return rlaxlib.kl_constraint_loss(jnp.ones(3), penalty, operator)


CALLS = {
    "kl(params)": (lambda f: FISHER(lambda x: f(x["w"]), TREE, TREE)),
    "evaluate(params)[0]": lambda f: SEARCH(
        lambda x: (f(x["w"]), quadratic(x)), TREE, TREE
    ),
    "evaluate(params)[1]": lambda f: SEARCH(
        lambda x: (quadratic(x), f(x["w"])), TREE, TREE
    ),
    "statistic(data)": lambda f: rlaxlib.bootstrap_interval(
        jax.random.key(0), jnp.ones(3), f, num_samples=2
    ),
    "metric(x, y)": lambda f: rlaxlib.knn_query(
        jnp.ones((4, 3)), jnp.ones((2, 3)), 2, lambda x, y: f(x - y)
    ),
    "projection_operator(alpha)": penalized,
}
RESULTS = {
    "an array": lambda x: jnp.stack([jnp.sum(x)] * 2),
    "an axis": lambda x: jnp.sum(x)[None],
    "a tuple": lambda x: (jnp.sum(x),),
    "bools": lambda x: jnp.sum(x) > 0,
    "a string": lambda _: "text",
    "None": lambda _: None,
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("result", RESULTS)
def test_a_result_must_be_one_number(call, result):
    with pytest.raises(rlaxlib.ArgumentError) as error:
        CALLS[call](RESULTS[result])
    text = str(error.value)
    assert f": `{call}` is " in text
    assert "must be " in text
    assert "vmap" not in text


@pytest.mark.parametrize("call", CALLS)
def test_a_result_may_be_a_python_number(call):
    results = jax.tree.leaves(CALLS[call](lambda _: 0.5))
    assert all(np.isfinite(x).all() for x in results)


@pytest.mark.parametrize("result", [None, 1.0, (1.0,), (1.0, 2.0, 3.0), "12"])
def test_a_search_needs_loss_and_divergence(result):
    with pytest.raises(rlaxlib.ArgumentError, match=r"`evaluate\(params\)` is .*tuple"):
        SEARCH(lambda _: result, TREE, TREE)
