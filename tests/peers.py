"""Find the libraries that tests compare with."""

import functools
import importlib.util
import pathlib
import re
import warnings
from typing import Any

import pytest


def find(name: str) -> Any:
    """Return a module, without its warnings; skip the test if it is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name, reason=f"{name} is not installed")


@functools.cache
def names(library: str) -> set[str]:
    """Return the names in the files of a library, which is not imported."""
    spec = importlib.util.find_spec(library)
    if spec is None or spec.origin is None:
        return set()
    files = pathlib.Path(spec.origin).parent.rglob("*.py")
    texts = (x.read_text(encoding="utf-8") for x in files if "test" not in x.name)
    defined = re.compile(r"^(?:def |class )?(\w+)(?:\(|:| = )", re.MULTILINE)
    return {name for text in texts for name in defined.findall(text)}
