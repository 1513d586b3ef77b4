"""Run the examples of docstrings."""

import doctest
import inspect
import os

import jax
import jax.numpy as jnp
import pytest

import rlaxlib

# With `make test TOPIC=returns`, the functions of the topic alone.
TOPIC = getattr(rlaxlib, os.environ.get("RLAXLIB_TOPIC", "rlaxlib"), rlaxlib)
FUNCTIONS = {
    name: function
    for name in TOPIC.__all__
    if inspect.isfunction(function := getattr(rlaxlib, name))
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_example_comes_out_as_printed(name):
    runner = doctest.DocTestRunner()
    names = {"jax": jax, "jnp": jnp, "rlaxlib": rlaxlib}
    for example in doctest.DocTestFinder().find(FUNCTIONS[name], name, globs=names):
        runner.run(example)
    assert runner.tries > 0
    assert runner.failures == 0
