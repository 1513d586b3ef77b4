"""Fixtures for the tests of the examples: default JAX settings."""

import importlib.util

import jax
import pytest

NEEDED = [
    *(
        "bsuite",
        "flax",
        "gymnax",
        "matplotlib",
        "mctx",
        "optax",
        "orbax",
        "tqdm",
        "tyro",
    )
]
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]

# Without the packages, nothing is collected, and the summary reports it.
collect_ignore_glob = ["test_*.py"] if MISSING else []


@pytest.fixture(autouse=True)
def _default_jax_settings():
    """Undo strict promotion of the library's tests, which other packages violate."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def pytest_terminal_summary(terminalreporter):
    """Report missing packages in the summary."""
    if MISSING:
        message = f"{', '.join(MISSING)} not installed: no example was tested."
        terminalreporter.write_line(message, red=True, bold=True)
