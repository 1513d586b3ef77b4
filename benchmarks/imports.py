"""Time the import of a library, over that of JAX, in processes of their own."""

import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.timing import Quartiles

_PROGRAM = """
import sys, time, jax
modules, start = len(sys.modules), time.perf_counter()
import {library}
print(time.perf_counter() - start, len(sys.modules) - modules)
"""


@dataclass(frozen=True)
class Import:
    """What `import library` costs a program that has imported JAX.

    Attributes:
        library: Name of the library.
        time: Seconds.
        modules: How many modules it loads.
    """

    library: str
    time: Quartiles
    modules: int


def measure(libraries: Iterable[str], repetitions: int) -> list[Import]:
    """Import each library in turns, each time in a new process.

    Args:
        libraries: Names of the libraries.
        repetitions: How often to import each, after once to warm the disk.

    Returns:
        A line for each library.
    """
    runs = {library: [_run(library)] for library in libraries}
    for _ in range(repetitions):
        for library, times in runs.items():
            times.append(_run(library))
    return [
        Import(library, Quartiles.of([time for time, _ in times[1:]]), times[-1][1])
        for library, times in runs.items()
    ]


def _run(library: str) -> tuple[float, int]:
    """Return the seconds that an import takes, and how many modules it loads."""
    path = os.pathsep.join(filter(None, sys.path))
    finished = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(library=library)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, modules = finished.stdout.split()[-2:]
    return float(seconds), int(modules)
