"""Measure on a GPU, part by part, as far as the time goes: `make gpu`.

    python -m benchmarks.gpu [PARTS] [--minutes=9] [--rehearse] [--output=FILE]

Each part is a section of the page `benchmarks/gpu.md`, written when the part is done. A
part whose section exists is not measured again, so that the same command continues
where it stopped; delete a section to repeat its part, and the page for another device.
A part runs in a process of its own, which has the memory of the device to itself and
may fail alone. `--rehearse` runs every part at small sizes, on any device, and writes
another page anew.
"""

import argparse
import contextlib
import functools
import importlib
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks import __main__ as command
from benchmarks import growth, machine, memory, recurrences, steps, timing, training

ROOT = pathlib.Path(__file__).parents[1]
PAGE = ROOT / "benchmarks" / "gpu.md"
REHEARSAL = ROOT / "build" / "gpu.md"
OURS, THEIRS = command.OURS, command.THEIRS

# Files with tests of the recurrence, of long streams and of matrix products.
TESTS = (
    *("tests/core/test_recurrence.py", "tests/test_contract_long.py"),
    *("tests/bandits", "tests/test_planning.py", "tests/llm/test_log_probs.py"),
)
# Loops of 100,000 steps take minutes on a GPU, and some tests need several devices.
CHOSEN = "not regret and not updates and not mesh and not device and not shard"

Lines = Iterator[str]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the parts that the page lacks, or one part in this process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu")
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], metavar="PARTS")
    parser.add_argument("--minutes", type=float, default=9.0, help="for all parts")
    parser.add_argument("--rehearse", action="store_true", help="small sizes")
    parser.add_argument("--output", type=pathlib.Path, help="file for the page")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.alone:
        (part,) = options.parts
        print(*PARTS[part](options.rehearse), sep="\n")
        return
    page = options.output or (REHEARSAL if options.rehearse else PAGE)
    if options.rehearse:
        page.unlink(missing_ok=True)
    end = time.monotonic() + 60 * options.minutes
    failed = [
        part
        for part in options.parts or PARTS
        if not measure(part, page, options.rehearse, end)
    ]
    if failed:
        sys.exit(f"Not measured: {', '.join(failed)}.")


def measure(part: str, page: pathlib.Path, rehearse: bool, end: float) -> bool:
    """Add the section of a part to the page, and return whether the page has it.

    Args:
        part: Name of the part.
        page: The page, which begins with the device and the versions.
        rehearse: Whether sizes are small.
        end: When to stop, of `time.monotonic()`.
    """
    text = page.read_text() if page.exists() else "# On a GPU\n"
    if f"\n## {part}\n" in text:
        return True
    arguments = [part, "--alone", *["--rehearse"] * rehearse]
    begin = time.monotonic()
    try:
        process = subprocess.run(
            [sys.executable, "-m", "benchmarks.gpu", *arguments],
            cwd=ROOT,
            # The processes of two libraries share the memory of the device.
            env=os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
            stdout=subprocess.PIPE,
            text=True,
            timeout=max(end - begin, 1),
            check=True,
        )
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
        print(f"{part}: {error}", file=sys.stderr)
        return False
    seconds = time.monotonic() - begin
    section = f"\n## {part}\n\n{process.stdout.strip()}\n\nTook {seconds:.0f} s.\n"
    print(section, flush=True)
    page.parent.mkdir(exist_ok=True)
    page.write_text(text + section)
    return True


# --- Parts: functions of whether sizes are small, to lines of Markdown. ---


def about(rehearse: bool) -> Lines:
    """Yield the device, the versions and the date."""
    del rehearse
    yield from (f"- {name}: {value}" for name, value in machine.describe().items())


def learner_steps(rehearse: bool) -> Lines:
    """Yield the learner steps of whole agents beside rlax."""
    few = steps.STEPS[:1] if rehearse else steps.STEPS
    return command.learner_steps(_libraries(), _effort(rehearse), few)


def recurrence(name: str, rehearse: bool) -> Lines:
    """Yield the times of a recurrence, and its share of the bandwidth of a copy."""
    libraries = _libraries()
    lengths, batches = ((128, 1024, 8192, 32768), (32, 512, 4096))
    if rehearse:
        lengths, batches = (128,), (32,)
    peak = recurrences.bandwidth(recurrences.copy(1 << (18 if rehearse else 28)))
    yield f"A copy moves {peak / 1e9:,.0f} GB/s, read and written."
    yield ""
    yield from command.table("T | B | run, ms | ratio | share of a copy")
    for length in lengths:
        for batch in batches:
            programs = {
                each: recurrences.RECURRENCES[name](library, length, batch)
                for each, library in libraries.items()
            }
            # rlax's loop takes a second for the longest streams.
            effort = {"compilations": 1, "pairs": 3 if length > 1024 else 20}
            result = timing.compare(programs, **effort)
            ours, theirs = (1e3 * result.costs[each].run for each in (OURS, THEIRS))
            share = recurrences.moved(programs[OURS]) / (1e-3 * ours) / peak
            yield (
                f"| {length:,} | {batch:,} | {ours:.3f} / {theirs:.3f} "
                f"| {result.run:.2f} | {share:.0%} |"
            )


def sizes(rehearse: bool) -> Lines:
    """Yield quantile losses, entropies and KL at sizes that fill the device."""
    grown = (
        ("quantiles, N = K", growth.quantiles, (8,) if rehearse else (32, 200)),
        ("entropy and KL, A", growth.actions, (8,) if rehearse else (1024, 32768)),
    )
    rows = [growth.Growth(name, sizes, make) for name, make, sizes in grown]
    return command.growing(_libraries(), _effort(rehearse), rows)


def head(rehearse: bool) -> Lines:
    """Yield time and memory of an output head, beside logits and chunks of tokens."""
    sizes = (64, 32, 1000) if rehearse else command.LARGE
    programs = {name: memory.head(name, *sizes, jnp.bfloat16) for name in memory.HEADS}
    calls = {name: timing.compiled(program) for name, program in programs.items()}
    samples = timing.run_in_turns(calls, pairs=2 if rehearse else 12)
    yield f"T, D, V = {sizes}, in bfloat16; values and gradients."
    yield ""
    yield from command.table("log-probabilities by | memory, MiB | run, ms")
    for name, (function, arguments) in programs.items():
        mib = memory.temporaries(function, *arguments) / 2**20
        yield f"| {name} | {mib:,.0f} | {1e3 * statistics.median(samples[name]):.2f} |"


def tests(rehearse: bool) -> Lines:
    """Yield the results of tests, with and without TensorFloat-32."""
    files, chosen = (TESTS[:1], "window_equals") if rehearse else (TESTS, CHOSEN)
    yield "Recurrences, long streams, bandits, planning, and heads of language models."
    yield ""
    yield from _test(files, chosen, ("tensorfloat32", "float32"))


def functions(rehearse: bool) -> Lines:
    """Yield whether values and gradients of all functions equal their definitions."""
    chosen = "equal_the_definition" + " and huber" * rehearse
    yield "Value and gradient of every function beside its definition in NumPy."
    yield ""
    yield from _test(("tests/test_contract.py",), chosen, ("float32",))


def _test(files: Sequence[str], chosen: str, precisions: Sequence[str]) -> Lines:
    yield from command.table("products | tests")
    for precision in precisions:
        process = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
                *("-p", "no:benchmark"),  # A plugin of the system, which warns.
                *("-m", "not slow and not trust", "--tb=short"),
                *("--numprocesses=logical", "--maxprocesses=8"),
                *(*files, "-k", chosen),
            ],
            cwd=ROOT,
            env=os.environ | {"JAX_DEFAULT_MATMUL_PRECISION": precision},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        print(process.stdout, file=sys.stderr)
        if process.returncode not in (0, 1):  # Tests passed, or some failed.
            process.check_returncode()
        summary = process.stdout.strip().splitlines()[-1].strip("= ")
        yield f"| {precision} | {summary} |"
        for failure in re.findall(r"^FAILED (\S+)", process.stdout, re.MULTILINE):
            yield f"| | failed: `{failure}` |"


def run(name: str, rehearse: bool) -> Lines:
    """Yield a whole training run beside rejax; a rehearsal traces it only."""
    pythons = training.interpreters()
    if rehearse:
        for library, python in pythons.items():
            trace = f"benchmarks.training.trace({library!r}, {name!r})"
            code = f"import benchmarks.training; {trace}"
            subprocess.run([python, "-c", code], cwd=ROOT, check=True)
        yield "Traced."
    else:
        result = training.measure(name, pythons, jax.default_backend(), [-1, 0, 1])
        yield from training.table({name: result})


def minatar(rehearse: bool) -> Lines:
    """Train on MinAtar for 10 million steps; `docs/minatar.md` has the returns."""
    sys.path.insert(0, str(ROOT / "examples"))
    command = importlib.import_module("minatar.__main__")
    if rehearse:
        yield f"{command.run('ppo', 'Breakout', steps=16_384, seeds=2)}"
        return
    with contextlib.redirect_stdout(sys.stderr):
        command.main(["--steps=10000000"])
    yield "`docs/minatar.md` has the returns."


PARTS: dict[str, Callable[[bool], Lines]] = {
    "Device": about,
    "Learner steps": learner_steps,
    **{name: functools.partial(recurrence, name) for name in recurrences.RECURRENCES},
    "Sizes": sizes,
    "Head": head,
    **{name: functools.partial(run, name) for name in training.SETTINGS},
    "Tests": tests,
    "Functions": functions,
    "MinAtar": minatar,
}


def _libraries() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rlax warns at import.
        return {name: importlib.import_module(name) for name in (OURS, THEIRS)}


def _effort(rehearse: bool) -> dict[str, int]:
    # XLA keeps what it tried for the first compilation, for all others.
    return (
        {"pairs": 2, "compilations": 1}
        if rehearse
        else {"pairs": 20, "compilations": 3}
    )


if __name__ == "__main__":
    jax.config.update("jax_enable_compilation_cache", False)
    main()
