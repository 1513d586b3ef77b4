"""Test the package as it is installed."""

import functools
import itertools
import subprocess
import sys
import sysconfig
import tomllib
from importlib import metadata
from pathlib import Path

import rlaxlib

ROOT = Path(__file__).parent.parent
HEAVY = ("distrax", "dm_env", "rlax", "scipy.stats", "tensorflow_probability")


@functools.cache
def imported():
    """Return the version, and the heavy modules, of a process in another folder."""
    heavy = f"[name for name in {HEAVY} if name in sys.modules]"
    program = f"import sys, rlaxlib; print(rlaxlib.__version__, {heavy})"
    command = [sys.executable, "-c", program]
    found = subprocess.run(command, cwd=ROOT.parent, check=True, capture_output=True)
    version, _, modules = found.stdout.decode().strip().partition(" ")
    return version, modules


def test_importing_it_loads_nothing_heavy():
    assert imported()[1] == "[]"


def test_an_editable_install_is_a_path_that_all_tools_read():
    site = Path(sysconfig.get_path("purelib"))
    paths = [x.read_text().strip() for x in site.glob("*rlaxlib*.pth")]
    assert paths == [str(ROOT)]  # A finder would hide the package from type checkers.
    assert imported()[0] == rlaxlib.__version__  # No namespace package.


def test_the_version_is_that_of_the_module():
    assert metadata.version("rlaxlib") == rlaxlib.__version__


def test_the_wheel_requires_jax_jaxlib_and_numpy_alone():
    requirements = [each for each in metadata.requires("rlaxlib") if ";" not in each]
    assert sorted(requirements) == ["jax>=0.7", "jaxlib>=0.7", "numpy>=1.26"]


def test_requirements_txt_lists_the_packages_of_all_extras_without_upper_bounds():
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    listed = {line for line in lines if line and not line.startswith("#")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    needed = {*project["dependencies"], *itertools.chain(*extras)}
    assert listed == {each for each in needed if not each.startswith("rlaxlib")}
    assert not any("<" in each or "==" in each for each in needed)


def test_the_package_is_marked_as_typed():
    assert (Path(rlaxlib.__file__).parent / "py.typed").is_file()
