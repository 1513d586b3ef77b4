"""Compare learner steps and growth with rlax, and print a page of tables.

python -m benchmarks [--quick] [--output FILE]
"""

import argparse
import importlib
import math
import pathlib
import statistics
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from benchmarks import growth, machine, memory, steps, timing

OURS, THEIRS = "rlaxlib", "rlax"
# Tokens, features and vocabulary of output heads: one is compiled, one is run.
LARGE, SMALL = (4096, 1024, 256_000), (512, 256, 32_000)


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
    yield from ("", "## Memory", "")
    yield from _memory()
    yield from ("", "## Output head", "")
    yield from _heads(effort)


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


def _memory() -> Iterator[str]:
    yield from table("arrays of the size of the logits | value | value and gradient")
    for each in memory.SOFTMAX:
        pairs = (each.arrays(gradient) for gradient in (False, True))
        cells = (f"{ours:.1f} / {plain:.1f}" for ours, plain in pairs)
        yield f"| {each.name} | {' | '.join(cells)} |"


def _heads(effort: dict[str, int]) -> Iterator[str]:
    yield from table("log-probabilities by | memory, MiB | run, ms")
    calls = {
        name: timing.compiled(memory.head(name, *SMALL, jnp.float32))
        for name in memory.HEADS
    }
    samples = timing.run_in_turns(calls, min(effort.get("pairs", 12), 12))
    for name in memory.HEADS:
        function, arguments = memory.head(name, *LARGE, jnp.bfloat16)
        mib = memory.temporaries(function, *arguments) / 2**20
        yield f"| {name} | {mib:.0f} | {1e3 * statistics.median(samples[name]):.0f} |"


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
