"""Test the memory of losses over many actions, and their values, against plain JAX."""

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import memory

pytestmark = pytest.mark.trust
CASES = pytest.mark.parametrize(
    "case", memory.SOFTMAX, ids=[each.name for each in memory.SOFTMAX]
)


@CASES
@pytest.mark.parametrize("gradient", [False, True], ids=["value", "gradient"])
def test_guards_take_at_most_one_array_more_than_the_plain_expression(case, gradient):
    ours, plain = case.arrays(gradient)
    assert ours <= plain + 1.01  # Sums of rows are a hundredth of an array.


@CASES
def test_a_plain_expression_has_the_same_value(case):
    arguments = case.values()
    expected = case.plain(*arguments)
    np.testing.assert_allclose(case.ours(*arguments), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", memory.HEADS)
def test_programs_of_the_output_head_compute_the_same_gradient(name):
    found, expected = (
        function(*arguments)
        for function, arguments in (
            memory.head(each, 32, 8, 100, jnp.float32) for each in (name, "logits")
        )
    )
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    for one, other in zip(found[1], expected[1], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
