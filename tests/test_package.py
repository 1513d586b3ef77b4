"""Hold the package, as it is installed, to what its files say."""

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import rlaxlib

ROOT = Path(__file__).parent.parent
HEAVY = ("distrax", "dm_env", "rlax", "scipy.stats", "tensorflow_probability")


def test_importing_it_loads_nothing_heavy():
    program = f"import sys, rlaxlib; print([m for m in {HEAVY} if m in sys.modules])"
    command = [sys.executable, "-c", program]
    loaded = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    assert loaded.decode().strip() == "[]"


def test_version_is_that_of_the_module():
    assert metadata.version("rlaxlib") == rlaxlib.__version__


def test_it_needs_what_requirements_txt_lists_and_sets_no_upper_bound():
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    listed = [line for line in lines if line and not line.startswith("#")]
    installed = [
        requirement
        for requirement in metadata.requires("rlaxlib")
        if "extra ==" not in requirement
    ]
    assert sorted(installed) == sorted(listed)
    for requirement in listed:
        assert re.fullmatch(r"[a-z]+>=[\d.]+", requirement)


def test_it_tells_type_checkers_that_it_is_typed():
    assert (Path(rlaxlib.__file__).parent / "py.typed").is_file()
