"""Import the libraries that tests compare with."""

import warnings
from typing import Any

import pytest


def find(name: str) -> Any:
    """Return a module, without its warnings; skip the test if it is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name, reason=f"{name} is not installed")
