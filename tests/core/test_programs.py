"""Test the compilation of private functions."""

import jax
import jax.numpy as jnp
import numpy as np

from rlaxlib._core.programs import compiled


@compiled("power")
def polynomial(x, power):
    return x**power + 2 * x


def test_value_and_gradient_are_those_of_the_function():
    assert polynomial(3.0, 2) == 15.0
    assert jax.grad(polynomial)(3.0, 2) == 8.0


def test_an_eager_call_traces_once_for_each_static_value_and_shape():
    traced = []

    @compiled("power")
    def function(x, power):
        traced.append(power)
        return x**power

    for power in (2, 3, 2, 3):
        function(np.ones(2), power)
    assert traced == [2, 3]


def test_it_is_inlined_in_another_program():
    program = jax.make_jaxpr(lambda x: polynomial(x, 2))(jnp.ones(2))
    assert "jit" not in str(program)
