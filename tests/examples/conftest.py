"""Settings of the tests of examples: those of a reader, who has what examples need."""

import importlib.util

import jax
import pytest

NEEDED = ("bsuite", "flax", "gymnax", "matplotlib", "optax", "orbax", "tqdm")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]

# What cannot be imported is not collected; `pytest` says so at its end.
collect_ignore_glob = ["test_*.py"] if MISSING else []


@pytest.fixture(autouse=True, scope="session")
def _memory_of_programs(tmp_path_factory):
    """Let a run whose program was compiled before, for another agent, have it again."""
    jax.config.update("jax_compilation_cache_dir", str(tmp_path_factory.mktemp("jax")))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    yield
    jax.config.update("jax_compilation_cache_dir", None)


@pytest.fixture(autouse=True)
def _settings_of_a_reader():
    """Undo the strictness of the library's tests, which other libraries fail."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def pytest_terminal_summary(terminalreporter):
    """Tell, so that no one misses it, if the examples were not tested."""
    if MISSING:
        message = f"{', '.join(MISSING)} not installed: no example was tested."
        terminalreporter.write_line(message, red=True, bold=True)
