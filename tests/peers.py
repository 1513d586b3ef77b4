"""Import what the tests compare with, where it is installed."""

import warnings
from typing import Any

import pytest


def find(name: str) -> Any:
    """Return a module, without the warnings that it gives; skip the test if none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name, reason=f"{name} is not here to compare with")
