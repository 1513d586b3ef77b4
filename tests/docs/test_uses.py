"""Test that the manual shows a use of each function, and leads to each recipe."""

import ast
import functools
import inspect
import re
from pathlib import Path

import catalog
import pytest

import rlaxlib
from rlaxlib._core import suggestions

ROOT = Path(__file__).parents[2]
RLAX = set((ROOT / "docs/_ext/rlax_names.txt").read_text(encoding="utf-8").split())
OURS = {
    name
    for name in set(catalog.NAMES) - RLAX
    if inspect.isfunction(getattr(rlaxlib, name))
}
FENCE = re.compile(
    r"^ *`{3,}(?:python|\{code-block\} *python)\n(.*?)^ *`{3,} *$", re.M | re.S
)
SHOWN = re.compile(r"recipes/(\w+)\.py\n:pyobject: (\w+)\n")
RECIPES = (ROOT / "docs/recipes.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### (.+)\n((?:(?!^#).*\n?)*)", RECIPES, re.M))


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
    assert sorted(OURS - used()) == []


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
    """Return the functions that each keyword leads to."""
    found = {}
    for name, keywords in catalog.known_as().items():
        for keyword in keywords:
            found.setdefault(keyword.lower(), set()).add(name)
    return found


def test_each_recipe_is_on_the_page_once():
    assert sorted(re.findall(SHOWN, RECIPES)) == sorted(recipes())


@pytest.mark.parametrize("title", SECTIONS)
def test_a_search_for_a_recipe_leads_to_functions_that_it_uses(title):
    used_by_it = uses(re.findall(SHOWN, SECTIONS[title]))
    for keyword in suggestions.keywords(title):
        assert known_as().get(keyword.lower(), set()) & used_by_it, keyword
