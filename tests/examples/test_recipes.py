"""Test the recipes: their gradients, stopped paths, and that their losses fall."""

import ast
import inspect
import re
from collections import Counter
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plain_losses import MODULES, all_cases
from plain_losses import common as plain
from plain_losses import language as language_losses
from plain_losses import language_updates as updates
from plain_losses import multiagent as team_losses
from plain_losses.agreement import AGREEMENT, Agreement
from recipes import exploration, language, streaming

import rlaxlib

CASES = all_cases()
SOURCES = [inspect.getsource(import_module(f"recipes.{x}")) for x in MODULES]
FUNCTIONS = [
    (node, source.splitlines())
    for source in SOURCES
    for node in ast.parse(source).body
    if isinstance(node, ast.FunctionDef)
]


def is_recipe(node):
    """Return whether a function is no helper: a recipe states its usual numbers."""
    return "Usual" in (ast.get_docstring(node) or "")


def part(tree, name):
    return tree[name] if isinstance(tree, dict) else getattr(tree, name)


def cosine(x, y):
    x, y = (np.concatenate([*map(np.ravel, jax.tree.leaves(z))]) for z in (x, y))
    return np.vdot(x, y) / np.linalg.norm(x) / np.linalg.norm(y)


@pytest.mark.parametrize("name", CASES)
def test_gradient_is_that_of_the_source(name):
    case = CASES[name]
    params, target_params = case.params
    loss_and_gradients = jax.value_and_grad(case.loss, argnums=(0, 1), allow_int=True)

    @jax.jit
    def run(params, target_params):
        loss, (gradient, stopped) = loss_and_gradients(params, target_params)
        plain = jax.value_and_grad(case.plain)(params, target_params)
        return (loss, gradient, stopped), plain

    # In NumPy, since JAX would compile the comparison of each shape.
    found = jax.tree.map(np.asarray, run(params, target_params))
    (loss, gradient, stopped), (plain, expected) = found
    expectation = AGREEMENT.get(name, Agreement())
    if expectation.cosine is not None:
        found = cosine(gradient, expected)
        np.testing.assert_allclose(found, expectation.cosine, atol=5e-3)
    else:
        factor = expectation.factor
        if expectation.compares_value:
            np.testing.assert_allclose(loss, factor * plain, rtol=1e-4)
        for x, y in zip(*map(jax.tree.leaves, (gradient, expected)), strict=True):
            atol = 1e-5 * max(factor, 1.0)
            np.testing.assert_allclose(x, factor * y, rtol=1e-3, atol=atol)
    assert any(np.any(x) for x in jax.tree.leaves(gradient))
    stopped = [stopped, *(part(gradient, each) for each in case.stopped.split())]
    assert not any(np.any(x) for x in jax.tree.leaves(stopped))


def test_ippo_is_ppo_of_the_streams_of_all_agents():
    params, _ = plain.PAIR_PARAMS
    losses = team_losses.ippo, team_losses.plain_ippo
    found, expected = (jax.jit(jax.value_and_grad(x))(params) for x in losses)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [2, 4])
def test_expected_gradient_of_pass_at_k_is_that_of_the_best_of_two(size):
    w = jnp.asarray(updates.BANDIT)
    found = jax.jit(jax.grad(updates.expected_pass_at_k), static_argnums=(1, 2))
    best = jax.grad(updates.best_of)(w, 2)
    np.testing.assert_allclose(found(w, size, 2), -best, rtol=1e-4, atol=1e-6)


# --- What holds for all recipes. ---


def test_every_recipe_is_tested():
    """A loss is a case, other recipes are named by a test, helpers by a recipe."""
    texts = (x.read_text(encoding="utf-8") for x in Path(__file__).parent.glob("*.py"))
    named = Counter(re.findall(r"\w+", " ".join(texts)))
    used = Counter(re.findall(r"\w+", " ".join(SOURCES)))
    for node, _ in FUNCTIONS:
        is_helper = not is_recipe(node) and used[node.name] > 1
        assert node.name in CASES or named[node.name] or is_helper, node.name


def test_recipes_are_short_and_name_their_paper_and_the_source_of_numbers():
    for node, lines in FUNCTIONS:
        body = lines[node.body[0].end_lineno : node.end_lineno]
        assert len([line for line in body if line.strip()]) <= 15, node.name
        if is_recipe(node):
            docstring = " ".join(ast.get_docstring(node).split())
            assert "https://" in docstring, node.name
            # The usual numbers, and the code that they are from, if there is one.
            source = r"Source: github\.com/\S+/\S+@[0-9a-f]{7}, "
            without = r"Usual \((none in the )?paper\): "
            assert re.search(f"{source}|{without}", docstring), node.name
            assert re.search(r"Usual( \(.+?\))?: ", docstring), node.name


def test_recipes_name_the_source_that_they_are_compared_with():
    docstrings = {node.name: ast.get_docstring(node) for node, _ in FUNCTIONS}
    for name, case in CASES.items():
        docstring = " ".join(docstrings[name].split())
        source = re.search(r"\S+@\w{7}", case.plain.__doc__ or "")
        if source:
            assert f"github.com/{source[0]}" in docstring, name
        assert bool(source) == ("Source: " in docstring), name
    assert AGREEMENT.keys() <= CASES.keys()


def with_head(w, inputs):
    """Return hidden states and a head, whose product are the logits of `bigrams`."""
    return 2 * w[inputs], jnp.eye(plain.M) / 2


def with_head_and_values(w, inputs):
    logits, values = language_losses.bigrams_and_values(w, inputs)
    return (2 * logits, jnp.eye(plain.M) / 2), values


HEADS = {"bigrams": with_head, "bigrams_and_values": with_head_and_values}
NEED_LOGITS = ("on_policy_distillation", "otb")


def model(name):
    """Return the name of the network that a case applies."""
    arguments = getattr(CASES[name].loss, "arguments", {})
    return getattr(arguments.get("apply"), "__name__", "")


WITH_HEADS = [
    name for name in CASES if name not in NEED_LOGITS and model(name) in HEADS
]


@pytest.mark.parametrize("name", contract.share(WITH_HEADS, "heads"))
def test_a_head_in_place_of_logits_gives_the_same_loss(name):
    case = CASES[name]
    head = HEADS[model(name)]

    @jax.jit
    def program(x):
        return [
            jax.value_and_grad(lambda x, f=f: case.loss(x, case.params[1], **f))(x)
            for f in ({"apply": head}, {})
        ]

    found, expected = program(case.params[0])
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-4, atol=1e-6)


# --- What the recipes return that is not a loss. ---


def test_ngu_rewards_of_a_state_seen_again_and_again_fall():
    empty = rlaxlib.IntrinsicRewardState(jnp.full((30, 2), jnp.inf))
    x, errors = jnp.ones((20, 2)), jnp.zeros(20)
    rewards, _ = exploration.ngu_rewards(x, errors, empty, (0.0, 1.0))
    visits = np.minimum(np.arange(1, 20), 10)  # That many neighbours of 10.
    np.testing.assert_allclose(rewards[0], 1000)
    np.testing.assert_allclose(rewards[1:], 1 / (np.sqrt(visits) + 1e-3), rtol=1e-4)


def test_emphatic_td_weighs_errors_by_the_followon_trace():
    state = rlaxlib.emphatic_trace_init(0.0)
    w, emphasis, discount_tm1, rho_tm1, expected = 1.0, 0.0, 0.0, 1.0, 1.0
    for x, y, rho in [(1.0, 2.0, 2.0), (2.0, 2.0, 0.5)]:
        step = SimpleNamespace(s_tm1=x, s_t=y, r_t=1.0, discount_t=0.9)
        w, state = streaming.emphatic_td(w, state, lambda w, s: w * s, step, rho)
        emphasis = 1 + rho_tm1 * discount_tm1 * emphasis
        error = 1 + 0.9 * expected * y - expected * x
        expected += 0.01 * error * rho * emphasis * x
        discount_tm1, rho_tm1 = 0.9, rho
        np.testing.assert_allclose(w, expected, rtol=1e-5)


@pytest.mark.parametrize("differentiate_k3", [True, False])
def test_expected_gradient_of_the_kl_term_of_grpo(differentiate_k3):
    """All answers of one token, equally likely under the policy, with equal rewards."""
    ref_logits = plain.normal(plain.M)
    ref = jax.nn.log_softmax(ref_logits)
    tokens = jnp.arange(plain.M)[:, None]
    log_prob = jnp.full((plain.M, 1), -jnp.log(plain.M))
    batch = plain.Batch(
        inputs=jnp.zeros_like(tokens),
        tokens=tokens,
        sample_mask=jnp.ones((plain.M, 1), bool),
        old_log_prob=log_prob,
        ref_log_prob=ref[:, None],
        rewards=jnp.ones((1, plain.M)),
    )

    def loss(logits):
        def apply(params, inputs):
            return jnp.broadcast_to(params, (*inputs.shape, plain.M))

        settings = {"kl_cost": 1.0, "differentiate_k3": differentiate_k3}
        return language.grpo(logits, apply, batch, **settings)

    def kl(logits):
        pi = jax.nn.log_softmax(logits)
        p, q = (ref, pi) if differentiate_k3 else (pi, ref)
        return jnp.sum(jnp.exp(p) * (p - q))

    programs = (jax.jit(jax.value_and_grad(each)) for each in (loss, kl))
    found, expected = (program(jnp.zeros(plain.M)) for program in programs)
    np.testing.assert_allclose(found[0], kl_of_uniform(ref), rtol=1e-5)
    np.testing.assert_allclose(found[1], expected[1], 1e-4, 1e-6)


@pytest.mark.parametrize(
    ("recipe", "settings"),
    [
        (language.grpo, {}),
        (language.grpo, {"differentiate_k3": False}),
        (language.rloo, {}),
        (language.remax, {}),
        (language.reinforce_plus_plus, {}),
    ],
)
def test_a_kl_cost_of_zero_needs_no_reference_policy(recipe, settings):
    table, _ = language_losses.TABLE

    @jax.jit
    @jax.value_and_grad
    def program(table, batch):
        apply = language_losses.bigrams
        return recipe(table, apply, batch, kl_cost=0.0, **settings)

    batch = language_losses.ANSWERS
    right = program(table, batch)
    for ref_log_prob in (-jnp.inf, -1e3, 0.0):
        spoiled = batch.ref_log_prob.copy()
        spoiled[0] = ref_log_prob
        found = program(table, batch._replace(ref_log_prob=spoiled))
        jax.tree.map(np.testing.assert_array_equal, found, right)


def kl_of_uniform(ref):
    return jnp.mean(-jnp.log(plain.M) - ref)
