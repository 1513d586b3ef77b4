"""Time every function of rlaxlib beside its peer in rlax, in one process."""

import argparse
import contextlib
import importlib
import pathlib
import re
import sys
import types
from collections.abc import Iterator, Sequence

from benchmarks import catalog, imports, machine, measure, programs, report
from benchmarks.case import Case, MissingFunctionError
from benchmarks.inputs import Size
from benchmarks.measure import OURS, THEIRS
from benchmarks.report import Report
from benchmarks.timing import Effort

TABLES = pathlib.Path(__file__).parent / "tables"
QUICK = Effort(pairs=5, sample=2e-4, compilations=1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks.

    Args:
        arguments: Command line, without the name of the program.

    Returns:
        0 if all was well, 1 if a case failed or none was chosen.
    """
    options = _parser().parse_args(arguments)
    effort = QUICK if options.quick else Effort()
    if options.repetitions:
        effort = effort._replace(pairs=options.repetitions)
    libraries = _libraries()
    result = Report(machine.describe(), effort, peer=THEIRS in libraries)
    if not result.peer:
        print(report.NO_PEER, file=sys.stderr)
    with programs.plain_jax():
        failed = _measure(result, libraries, options)
    if re.search(options.select, "import"):
        result.imports = imports.measure(libraries, 1 if options.quick else 5)
    resized = options.batch or options.steps or options.actions
    partly = options.select or options.quick or resized
    folder = options.output or (None if partly else TABLES)
    if folder is None:
        print("\nNothing is written: give --output to write the tables.")
    else:
        result.write(folder, machine.slug())
    print(result.summary())
    return int(failed or not (result.rows or result.imports))


def _measure(
    result: Report,
    libraries: dict[str, types.ModuleType],
    options: argparse.Namespace,
) -> bool:
    """Measure the chosen cases, and tell whether one failed."""
    failed = False
    for topic, case, size in _chosen(options):
        try:
            for row in measure.rows(topic, case, size, libraries, result.effort):
                result.rows.append(row)
                print(report.line(row), flush=True)
        except MissingFunctionError:
            result.skipped[case.title] = f"{OURS} does not have it"
        except Exception as error:  # One function in trouble does not end the run.
            failed = True
            result.skipped[case.title] = f"failed: {type(error).__name__}: {error}"
            print(f"{case.title}: {result.skipped[case.title]}", file=sys.stderr)
    return failed


def _chosen(options: argparse.Namespace) -> Iterator[tuple[str, Case, Size]]:
    """Return the cases whose title fits, each with every size it is measured at."""
    for topic, cases in catalog.TOPICS.items():
        for case in cases:
            if not re.search(options.select, case.title):
                continue
            sizes = [_resized(size, options) for size in case.sizes]
            if options.quick:
                sizes = sizes[:1]
            if "A" in case.axes and options.actions:
                sizes = [s._replace(actions=a) for s in sizes for a in options.actions]
            for size in dict.fromkeys(sizes):
                yield topic, case, size


def _resized(size: Size, options: argparse.Namespace) -> Size:
    """Return the size that the options ask for."""
    batch = options.batch or (8 if options.quick else size.batch)
    steps = size.steps and (options.steps or (8 if options.quick else size.steps))
    return size._replace(batch=batch, steps=steps)


def _libraries() -> dict[str, types.ModuleType]:
    """Return the libraries that are installed; rlaxlib must be."""
    libraries = {OURS: importlib.import_module(OURS)}
    with programs.plain_jax(), contextlib.suppress(ImportError):
        libraries[THEIRS] = importlib.import_module(THEIRS)
    return libraries


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--select",
        default="",
        metavar="REGEX",
        help="only functions whose name fits, or `import`",
    )
    parser.add_argument("--batch", type=int, help="number of streams, in place of all")
    parser.add_argument("--steps", type=int, help="length of a stream, in place of all")
    parser.add_argument(
        "--actions",
        type=int,
        nargs="+",
        help="numbers of actions, or dimensions of one, in place of all",
    )
    parser.add_argument("--repetitions", type=int, help="pairs of samples (30)")
    parser.add_argument(
        "--output",
        type=pathlib.Path,
        metavar="FOLDER",
        help="where the tables go (benchmarks/tables, if everything is measured)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="small and few: does it run at all?"
    )
    return parser
