"""Test that the manual shows a use of each function, and a page of each recipe."""

import ast
import builtins
import functools
import inspect
import re
from importlib import import_module
from pathlib import Path

import algorithms
import catalog
import pytest

import rlaxlib
from rlaxlib._core import suggestions

ROOT = Path(__file__).parents[2]
RLAX = set(catalog.RLAX)
OURS = {
    name
    for name in set(catalog.NAMES) - RLAX
    if inspect.isfunction(getattr(rlaxlib, name))
}
FENCE = re.compile(
    r"^ *`{3,}(?:python|\{code-block\} *python)\n(.*?)^ *`{3,} *$", re.M | re.S
)
ALGORITHMS = algorithms.algorithms()


CASES = {
    name: case
    for module in {x.module.name for y in ALGORITHMS.values() for x in y.functions}
    if module not in ("curricula", "streaming")  # They have no losses.
    for name, case in import_module(f"plain_losses.{module}").CASES.items()
}


def shapes(text):
    """Yield the numbers of axes of the shapes in a text, and whether there are more."""
    for axes in re.findall(r"\[([BKGPN][^\]]*)\]", text):
        named = [x for x in axes.split(", ") if x not in ("...", "…")]
        yield len(named), len(named) < len(axes.split(", "))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_tables_of_batches_have_the_shapes_that_losses_run_with(name):
    algorithm = ALGORITHMS[name]
    for function in algorithm.functions:
        case = CASES.get(function.name)
        batch = getattr(getattr(case, "loss", None), "arguments", {}).get("batch")
        code = "\n".join(x.source for x in algorithms.needs([function]))
        for field in set(re.findall(algorithms.FIELD, code)) & algorithm.fields.keys():
            found, text = getattr(batch, field, None), algorithm.fields[field]
            known = list(shapes(text)) if hasattr(found, "ndim") else []
            assert not known or any(
                found.ndim >= n if more else found.ndim == n for n, more in known
            ), (function.name, field, text, found.shape)


def names_in(code):
    """Return the names in Python code, those of the library as `rlaxlib.name`."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            root, *_ = ast.unparse(node).split(".")
            found |= {f"rlaxlib.{node.attr}"} if root == "rlaxlib" else set()
    return found


def used():
    """Return the names used by recipes, examples and the guide."""
    found = set()
    for path in (ROOT / "examples").rglob("*.py"):
        found |= names_in(path.read_text(encoding="utf-8"))
    for path in [*(ROOT / "docs/guide").glob("*.md"), ROOT / "docs/start.md"]:
        for code in FENCE.findall(path.read_text(encoding="utf-8")):
            names = re.findall(r"\brlaxlib\.(?:[a-z]+\.)?(\w+)", code)
            found |= {f"rlaxlib.{name}" for name in names}
    return {name.removeprefix("rlaxlib.") for name in found if "." in name}


def test_a_recipe_an_example_or_the_guide_uses_each_function():
    unused = sorted(OURS - used())
    assert unused == [], "Use these in a recipe, an example or a page of the guide."


# --- Recipes. ---


@functools.cache
def recipes():
    """Return the names in each function and class of the recipes."""
    return {
        (path.stem, node.name): names_in(ast.unparse(node))
        for path in (ROOT / "examples/recipes").glob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }


def uses(shown):
    """Return the functions that recipes use, themselves or by calling each other."""
    found = set()
    while shown:
        names = set().union(*(recipes()[each] for each in shown)) - found
        shown = [each for each in recipes() if each[1] in names]
        found |= names
    return {name.removeprefix("rlaxlib.") for name in found if "." in name}


@functools.cache
def known_as():
    """Return the functions, or plain expressions, that each keyword leads to."""
    found = {}
    for name, keywords in catalog.known_as().items():
        for keyword in keywords:
            found.setdefault(keyword.lower(), set()).add(name.partition(" for ")[0])
    return found


def shown():
    """Return file and name of each function on a page."""
    pages = [algorithms.needs(each.functions) for each in ALGORITHMS.values()]
    return {(x.module.name, x.name) for page in pages for x in page}


def test_each_recipe_is_on_a_page():
    assert set(recipes()) - shown() == set()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_code_of_a_page_needs_no_other_code(name):
    page, module = ALGORITHMS[name], {"__name__": name}
    exec(f"{page.imports}\n\n{page.code}", module)
    functions = [each.name for each in algorithms.needs(page.functions)]
    assert len(functions) == len(set(functions))
    tree = ast.parse(page.code)
    names = [each for each in ast.walk(tree) if isinstance(each, ast.Name)]
    own = {each.id for each in names if isinstance(each.ctx, ast.Store)}
    own |= {each.arg for each in ast.walk(tree) if isinstance(each, ast.arg)}
    own |= {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}
    assert {each.id for each in names} - own - set(dir(builtins)) <= set(module)


def test_facts_are_of_algorithms_and_examples_that_exist():
    facts = algorithms.FACTS
    files = set(algorithms.RECIPES.modules)
    assert {*facts["defaults"], *facts["algorithms"]} <= files
    assert set(facts["agents"]) <= set(catalog.examples())
    for file in facts["algorithms"].values():
        assert set(file) <= set(ALGORITHMS)
        for each in file.values():
            assert {*each.get("with", ()), *each.get("see", ())} <= set(ALGORITHMS)
            assert set(each.get("agents", ())) <= set(catalog.examples())


def test_each_page_has_the_code_that_trains_its_algorithm():
    for name in ALGORITHMS:
        file, code = algorithms.training(name)
        assert file.package is algorithms.ZOO
        assert f'"{name}": ' in code or "ENTRY" in code, name


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_search_for_an_algorithm_leads_to_functions_that_it_uses(name):
    pages = [ALGORITHMS[x] for x in (name, *ALGORITHMS[name].facts.get("with", ()))]
    functions = [x for page in pages for x in page.functions]
    shown = [(x.module.name, x.name) for x in functions]
    title = ALGORITHMS[name].facts["title"].partition(": ")[0]
    for keyword in suggestions.keywords(title):
        known = known_as().get(keyword.lower(), set())
        assert known & uses(shown) or "-log_prob" in known, keyword
