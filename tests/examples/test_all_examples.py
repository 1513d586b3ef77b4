"""Test that each example uses all its flags and lists the functions that it uses."""

import ast
import re
from pathlib import Path

import common

import rlaxlib

COMMON = Path(common.__file__).parent
EXAMPLES = sorted(COMMON.parent.glob("*.py"))


# --- Helpers. ---


def read(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def uses(tree, name):
    """Return the attributes accessed on variables or attributes called `name`."""
    found = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return {
        node.attr
        for node in found
        if name in (getattr(node.value, "id", None), getattr(node.value, "attr", None))
    }


def flags_of(tree):
    configs = (
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == "Config"
    )
    return {
        field.target.id
        for config in configs
        for field in config.body
        if isinstance(field, ast.AnnAssign)
    }


# --- Tests. ---


def test_examples_are_found():
    assert "online_q_learning.py" in [path.name for path in EXAMPLES]


def test_every_flag_is_used():
    shared = (uses(read(path), "config") for path in COMMON.glob("*.py"))
    shared = set().union(*shared)
    for path in EXAMPLES:
        tree = read(path)
        assert flags_of(tree) <= uses(tree, "config") | shared, path


def test_docstrings_list_all_functions_that_are_used():
    for path in EXAMPLES:
        tree = read(path)
        listed = set(re.findall(r"rlaxlib\.(\w+)", ast.get_docstring(tree)))
        functions = {name for name in uses(tree, "rlaxlib") if name[0].islower()}
        assert functions <= listed, path
        assert listed <= set(rlaxlib.__all__), path
