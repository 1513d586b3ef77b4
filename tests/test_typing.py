"""Test what type checkers say of calls of users."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import rlaxlib

ROOT = pathlib.Path(__file__).parents[1]
CALLS = ROOT / "tests" / "typing" / "user_calls.py"
LINES = CALLS.read_text().splitlines()
MARKED = [n for n, line in enumerate(LINES, 1) if line.endswith("# error")]


def run(*command, folder):
    """Run a type checker in an empty folder, so that it sees no settings of ours."""
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env=os.environ | {"MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    ).stdout


def test_pyright_reports_the_marked_lines_and_no_others(tmp_path):
    # Without our stubs, which show arguments as they are in bodies.
    shutil.copy(CALLS, tmp_path)
    settings = {"extraPaths": [str(ROOT)]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    options = ("--outputjson", "--pythonpath", sys.executable)
    output = json.loads(run("pyright", *options, folder=tmp_path))
    found = {
        each["range"]["start"]["line"] + 1: each["message"]
        for each in output["generalDiagnostics"]
        if each["severity"] == "error"
    }
    assert output["summary"]["filesAnalyzed"] == 1
    assert_marked(found)


@pytest.mark.trust
def test_mypy_reports_the_marked_lines_and_no_others(tmp_path):
    cache = ("--cache-dir", str(ROOT / ".mypy_cache"))  # Without one it takes minutes.
    output = run("mypy", "--strict", *cache, str(CALLS), folder=tmp_path)
    lines = re.findall(r"user_calls\.py:(\d+): error: (.*)", output)
    assert lines, output
    assert_marked({int(line): message for line, message in lines})


def assert_marked(found):
    assert {line: LINES[line - 1] for line in MARKED if line not in found} == {}
    assert {line: found[line] for line in found if line not in MARKED} == {}


def test_marked_calls_fail_and_no_others():
    names = {}
    expected = (rlaxlib.ArgumentError, TypeError, AttributeError)
    for number, line in enumerate(LINES, 1):
        fails = (
            pytest.raises(expected) if number in MARKED else contextlib.nullcontext()
        )
        with fails:
            exec(line, names)
