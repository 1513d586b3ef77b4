"""Compare learner steps and growth with rlax, and print a page of tables.

python -m benchmarks [--quick] [--output FILE]
"""

import argparse
import importlib
import math
import pathlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import optax

from benchmarks import growth, machine, steps, timing

OURS, THEIRS = "rlaxlib", "rlax"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmarks.

    Args:
        arguments: Command line, without the name of the program.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("--quick", action="store_true", help="few repetitions")
    parser.add_argument("--output", type=pathlib.Path, help="file for the page")
    options = parser.parse_args(arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rlax warns at import.
        libraries = {name: importlib.import_module(name) for name in (OURS, THEIRS)}
    effort = {"pairs": 3, "compilations": 1} if options.quick else {}
    lines: list[str] = []
    for line in page(libraries, effort):
        print(line, flush=True)
        lines.append(line)
    if options.output:
        options.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


def page(libraries: dict[str, Any], effort: dict[str, int]) -> Iterator[str]:
    """Yield the lines of the page, as they are measured.

    Args:
        libraries: rlaxlib and rlax, under their names.
        effort: Repetitions, for `timing.compare`.
    """
    about = "; ".join(f"{key} {value}" for key, value in machine.describe().items())
    yield f"Measured on: {about}."
    yield from ("", "## Learner steps", "")
    yield from learner_steps(libraries, effort, steps.STEPS)
    yield from ("", "## Growth", "")
    yield from growing(libraries, {**effort, "compilations": 1}, growth.GROWTH)
    yield from ("", "## Layout", "")
    yield from _layouts(libraries[OURS], effort)


def learner_steps(
    libraries: dict[str, Any], effort: dict[str, int], rows: Sequence[steps.Step]
) -> Iterator[str]:
    """Yield a table of learner steps, and their geometric mean."""
    yield from table("step | run, ms | ratio | compile, s | ratio")
    comparisons: list[timing.Comparison] = []
    for step in rows:
        params, batch = step.inputs()
        state = optax.adam(1e-4).init(params)
        programs = {
            name: (step.program(library), (params, state, batch))
            for name, library in libraries.items()
        }
        comparisons.append(timing.compare(programs, **effort))
        yield _line(step.name, comparisons[-1])
    run, compilation = (
        math.exp(sum(math.log(ratio) for ratio in ratios) / len(ratios))
        for ratios in (
            [each.run for each in comparisons],
            [each.compile for each in comparisons],
        )
    )
    yield f"| geometric mean | | {run:.2f} | | {compilation:.2f} |"


def growing(
    libraries: dict[str, Any], effort: dict[str, int], rows: Sequence[growth.Growth]
) -> Iterator[str]:
    """Yield a table of programs whose size grows."""
    yield from table("program | run, ms | ratio | compile, s | ratio")
    for each in rows:
        for size in each.sizes:
            programs = {
                name: each.make(library, size) for name, library in libraries.items()
            }
            comparison = timing.compare(programs, **effort)
            yield _line(f"{each.name} = {size}", comparison)


def _layouts(library: Any, effort: dict[str, int]) -> Iterator[str]:
    yield from table("λ-returns, T = 128 | batch-major, ms | time-major, ms")
    for batch in (64, 1024, 8192):
        programs = dict(growth.layouts(library, batch))
        first, second = timing.compare(programs, **effort).costs.values()
        yield f"| B = {batch} | {1e3 * first.run:.2f} | {1e3 * second.run:.2f} |"


def table(columns: str) -> Iterator[str]:
    """Yield the head of a table whose first column is text."""
    yield f"| {columns} |"
    yield "| --- |" + " ---: |" * columns.count("|")


def _line(name: str, comparison: timing.Comparison) -> str:
    ours, theirs = comparison.costs[OURS], comparison.costs[THEIRS]
    cells = (
        name,
        f"{1e3 * ours.run:.2f} / {1e3 * theirs.run:.2f}",
        f"{comparison.run:.2f}",
        f"{ours.compile:.2f} / {theirs.compile:.2f}",
        f"{comparison.compile:.2f}",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    jax.config.update("jax_enable_compilation_cache", False)
    main()
