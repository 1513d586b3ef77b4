"""Test the recipes: their gradients, stopped paths, and that their losses fall."""

import ast
import inspect
from importlib import import_module

import jax
import numpy as np
import optax
import pytest
from recipes import policy_gradient

import rlaxlib

MODULES = ("continuous", "offline", "policy_gradient", "value_based")
CASES = {
    name: case
    for module in MODULES
    for name, case in import_module(f"plain_losses.{module}").CASES.items()
}
# The value of one is not minimised, and the targets of the other move with the policy.
MAY_RISE = "fqf_fractions", "impala"
HELPERS = {
    *("log_probs", "entropy", "advantages", "retrace_errors", "sample_tanh_normal"),
    *("log_density", "smallest_q", "critics_loss", "cql_actions", "cql_gap"),
    *("surrogate_inputs", "lagrange_multiplier", "dreamer_pair", "dreamer_returns"),
}


def part(tree, name):
    return tree[name] if isinstance(tree, dict) else getattr(tree, name)


@pytest.mark.parametrize("name", CASES)
def test_gradient_is_that_of_the_loss_in_plain_numpy_and_the_loss_falls(name):
    case = CASES[name]
    params, target_params = case.params
    adam = optax.adam(1e-3)
    loss_and_gradients = jax.value_and_grad(case.loss, argnums=(0, 1), allow_int=True)

    @jax.jit
    def run(params, target_params):
        def step(state, _):
            params, moments = state
            loss, (gradient, stopped) = loss_and_gradients(params, target_params)
            updates, moments = adam.update(gradient, moments)
            state = optax.apply_updates(params, updates), moments
            return state, (loss, gradient, stopped)

        start = params, adam.init(params)
        (learned, _), outputs = jax.lax.scan(step, start, length=10)
        first = jax.tree.map(lambda x: x[0], outputs)
        plain = jax.value_and_grad(case.plain)(params, target_params)
        return first, plain, case.plain(learned, target_params)

    (loss, gradient, stopped), (plain, expected), after = run(params, target_params)
    if not case.meaningless:
        np.testing.assert_allclose(loss, plain, rtol=1e-4)
    for x, y in zip(*map(jax.tree.leaves, (gradient, expected)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-5)
    assert any(np.any(x) for x in jax.tree.leaves(gradient))
    if name not in MAY_RISE:
        assert after < plain
    stopped = [stopped, *(part(gradient, each) for each in case.stopped.split())]
    assert not any(np.any(x) for x in jax.tree.leaves(stopped))


# --- What holds for all recipes. ---


def functions():
    for module in MODULES:
        source = inspect.getsource(import_module(f"recipes.{module}"))
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef):
                yield node, source.splitlines()


def test_every_recipe_is_tested():
    assert {node.name for node, _ in functions()} == {*CASES, *HELPERS}


def test_recipes_are_short_and_name_their_paper():
    for node, lines in functions():
        body = lines[node.body[0].end_lineno : node.end_lineno]
        assert len([line for line in body if line.strip()]) <= 15, node.name
        if node.name not in HELPERS:
            docstring = " ".join(ast.get_docstring(node).split())
            assert "https://" in docstring, node.name
            assert "Usual: " in docstring, node.name


# --- What the recipes return that is not a loss. ---


def test_lagrange_multiplier_rises_with_the_excess_cost():
    state = rlaxlib.pid_lagrangian(0.0, 0.1, 0.01).init()
    multiplier, state = policy_gradient.lagrange_multiplier(35.0, state)
    np.testing.assert_allclose(multiplier, 0.1 * 10 + 0.01 * 10 + 0.01 * 35, rtol=1e-6)
    assert policy_gradient.lagrange_multiplier(0.0, state)[0] == 0
