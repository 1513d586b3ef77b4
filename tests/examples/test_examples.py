"""Run each example alone in an empty folder, and test what all examples promise."""

import ast
import dataclasses
import re
import runpy
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import rlaxlib

FOLDER = Path(__file__).parents[2] / "examples"
FILES = {path.stem: path for path in sorted(FOLDER.glob("*.py"))}

# Least return after the small setting, where that is enough to learn. A random agent
# averages -0.6 on Catch, 22 on CartPole, 4.75 on the game of QMIX, 0 in R2D2.
BARS = {
    "bc_agent": 0.8,
    "ppo_pure_jax": 25,
    "qmix": 8.0,
    "r2d2": 0.5,
}


# --- Helpers. ---


def tree_of(name):
    return ast.parse(FILES[name].read_text("utf-8"))


def docstring(name):
    return ast.get_docstring(tree_of(name))


def promise(name):
    """Return the return that a docstring promises."""
    return float(
        re.search(r"Expect\s+at\s+least\s+([+-]?[\d.]*\d)", docstring(name))[1]
    )


def flags(config):
    """Return the flags of a config."""
    for field in dataclasses.fields(config):
        value, flag = getattr(config, field.name), field.name.replace("_", "-")
        if value == field.default:
            continue
        if isinstance(value, bool):
            yield f"--{flag}" if value else f"--no-{flag}"
        else:
            yield from (f"--{flag}", str(value))


def uses(tree, name):
    """Return the attributes accessed on variables or attributes called `name`."""
    found = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return {
        node.attr
        for node in found
        if name in (getattr(node.value, "id", None), getattr(node.value, "attr", None))
    }


def imports(tree):
    """Return the modules that a file imports, by the first part of their names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module.partition(".")[0]


@pytest.fixture(params=FILES)
def name(request):
    return request.param


@pytest.fixture
def copied(name, tmp_path, monkeypatch):
    """Return a copy of an example in an empty folder, where it finds no other."""
    path = tmp_path / f"{name}.py"
    shutil.copy(FILES[name], path)
    monkeypatch.chdir(tmp_path)
    others = [x for x in sys.path if not Path(x).is_relative_to(FOLDER)]
    monkeypatch.setattr(sys, "path", others)
    for other in FILES:
        monkeypatch.delitem(sys.modules, other, raising=False)
    return path


@pytest.fixture
def script(copied, monkeypatch):
    """Return a function that runs the copy as a script, and returns its variables."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", [str(copied), *arguments])
        # The devices of this process are fixed.
        monkeypatch.setattr(jax.config, "update", lambda *_: None)
        return SimpleNamespace(**runpy.run_path(str(copied), run_name="__main__"))

    return run


def load(path):
    return SimpleNamespace(**runpy.run_path(str(path), run_name=path.stem))


# --- Runs. ---


def test_copy_runs_alone(copied, script):
    name, small = copied.stem, load(copied).SMALL
    script(*flags(small))
    written = np.genfromtxt(f"{name}.csv", delimiter=",", skip_header=1)
    assert len(written) >= 2
    assert np.all(np.isfinite(written))
    assert written[-1, 1] >= BARS.get(name, -np.inf)


@pytest.mark.trust
def test_one_seed_repeats_and_others_differ(copied):
    example = load(copied)

    def rows(seed):
        config = dataclasses.replace(example.SMALL, seed=seed)
        return np.array(example.train(config))

    first = rows(0)
    np.testing.assert_allclose(first, rows(0), rtol=1e-5, atol=1e-8)
    # Few episodes of one step each may have the same returns.
    assert any(not np.array_equal(first, rows(seed)) for seed in (1, 2))


def test_help_names_every_setting(copied, script, capsys):
    with pytest.raises(SystemExit, match="0"):
        script("--help")
    text = capsys.readouterr().out
    for field in dataclasses.fields(load(copied).Config):
        assert re.search(rf"--{field.name.replace('_', '-')}\b", text), field.name


@pytest.mark.slow
def test_last_return_is_what_the_docstring_promises(copied):
    example, name = load(copied), copied.stem
    if name == "bandits":
        pytest.skip("It has regrets, which its own test compares with the theory.")
    *_, last = example.train(example.Config())
    assert last[1] >= promise(name)


# --- Contents. ---


def test_examples_are_found():
    assert "online_q_learning" in FILES
    assert set(BARS) <= set(FILES)


def test_file_has_at_most_250_lines(name):
    assert len(FILES[name].read_text("utf-8").splitlines()) <= 250


def test_docstring_lists_the_packages_that_are_imported(name):
    listed = re.search(r"^Packages: ([\w, ]+)\.$", docstring(name), re.M)[1]
    found = set(imports(tree_of(name))) - set(sys.stdlib_module_names)
    assert set(listed.split(", ")) == found - {"jax", "numpy", "rlaxlib"}


def test_docstring_lists_the_functions_that_are_used(name):
    listed = set(re.findall(r"rlaxlib\.(\w+)", docstring(name)))
    functions = {x for x in uses(tree_of(name), "rlaxlib") if x[0].islower()}
    assert functions <= listed
    assert listed <= set(rlaxlib.__all__)


def test_docstring_states_return_and_duration(name):
    assert re.search(r"about (a minute|\d+\s+seconds)|three\s+minutes", docstring(name))
    if name != "bandits":
        assert promise(name)


def test_every_setting_is_used(copied):
    fields = {field.name for field in dataclasses.fields(load(copied).Config)}
    assert fields <= uses(tree_of(copied.stem), "config")
