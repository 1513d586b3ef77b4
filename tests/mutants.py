"""Mutation testing: change the library in random places, and run its tests.

    python tests/mutants.py --count 40 --seed 1

A mutant is the library with one change: an operator, a constant, two swapped arguments,
a dropped `stop_gradient` or `where`. It is killed if a test of its topic fails. The
script lists the mutants that live, and fails if fewer than 90 % are killed: one in
twenty computes the same result, and lives. `--output` writes the list to a file.
"""

import argparse
import ast
import copy
import dataclasses
import functools
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.pool import ThreadPool

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIBRARY = ROOT / "rlaxlib"
ENOUGH = 0.9
LIMIT = 900  # In seconds of processor time: a mutant may loop for ever.
PASSED = (0, 5)  # Exit codes of pytest; 5 if no test was selected.

SWAPPED = {ast.Add: ast.Sub, ast.Mult: ast.Div, ast.Lt: ast.Gt, ast.LtE: ast.GtE}
SWAPPED |= {ast.Eq: ast.NotEq, ast.And: ast.Or, ast.BitAnd: ast.BitOr}
SWAPPED |= {"minimum": "maximum", "min": "max", "argmin": "argmax"}
SWAPPED |= {other: one for one, other in SWAPPED.items()}
# Calls whose first two arguments commute, or which compute no result.
ALIKE = {"minimum", "maximum", "min", "max", "clip", "add", "multiply", "hypot"}
ALIKE |= {"at_least", "at_most", "dot", "result_type", "logaddexp"}
ALIKE |= {"logical_and", "logical_or", "isclose"}
ALIKE |= {"isinstance", "getattr", "partial"}
ALIKE |= {"zip", "cast"}


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A changed expression of a function."""

    file: pathlib.Path
    function: str
    node: ast.expr
    changed: ast.expr

    def __str__(self) -> str:
        place = f"{self.file.relative_to(ROOT).as_posix()}:{self.node.lineno}"
        change = f"{ast.unparse(self.node)} -> {ast.unparse(self.changed)}"
        return f"{place}, {self.function}: {change}"

    def text(self) -> str:
        """Return the text of the changed file."""
        lines = self.file.read_bytes().splitlines(keepends=True)
        first, last = self.node.lineno - 1, (self.node.end_lineno or 0) - 1
        begin, end = self.node.col_offset, self.node.end_col_offset
        new = f"({ast.unparse(self.changed)})".encode()
        new = lines[first][:begin] + new + lines[last][end:]
        return b"".join([*lines[:first], new, *lines[last + 1 :]]).decode()


# --- Changes. ---


def mutants(file: pathlib.Path) -> Iterator[Mutant]:
    """Yield all mutants of a file."""
    for function in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(function, ast.FunctionDef):
            for statement in function.body:
                for node in computed(statement):
                    for other in changes(node):
                        yield Mutant(file, function.name, node, other)


def computed(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what computes a result: not the text of errors, and no annotations."""
    if isinstance(node, ast.Raise | ast.JoinedStr | ast.arguments):
        return
    yield node
    for name, field in ast.iter_fields(node):
        for child in field if isinstance(field, list) else [field]:
            if isinstance(child, ast.AST) and name not in ("annotation", "returns"):
                yield from computed(child)


def changes(node: ast.AST) -> Iterator[ast.expr]:
    """Yield all changes of an expression."""
    match node:
        case ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in SWAPPED:
            yield changed(node, op=SWAPPED[type(op)]())
        case ast.Compare(ops=[op]) if type(op) in SWAPPED:
            yield changed(node, ops=[SWAPPED[type(op)]()])
        case ast.Constant(value=int() | float()) if not isinstance(node.value, bool):
            yield changed(node, value=node.value + 1)
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
            yield from changed_calls(node, name)


def changed_calls(node: ast.Call, name: str) -> Iterator[ast.expr]:
    arguments = node.args
    if name in SWAPPED:
        field = "id" if isinstance(node.func, ast.Name) else "attr"
        yield changed(node, func=changed(node.func, **{field: SWAPPED[name]}))
    if name == "stop_gradient":
        yield arguments[0]
    if name == "where" and len(arguments) == 3:
        yield arguments[1]
    starred = any(isinstance(each, ast.Starred) for each in arguments)
    different = len({ast.unparse(each) for each in arguments[:2]}) == 2
    if name not in ALIKE and different and not starred:
        yield changed(node, args=[arguments[1], arguments[0], *arguments[2:]])


def changed(node: ast.expr, **fields: object) -> ast.expr:
    """Return a copy of an expression with other fields."""
    other = copy.copy(node)
    other.__dict__.update(fields)
    return other


# --- Tests. ---


def commands(mutant: Mutant) -> list[list[str]]:
    """Return the arguments of pytest, for one run after the other until a test fails.

    These are values and gradients of the function, the file that mirrors its own, the
    rest of its contract, and the tests beside that file; first whatever is fast.
    """
    *folders, name = mutant.file.relative_to(LIBRARY).with_suffix("").parts
    folder = ROOT.joinpath("tests", *(each.lstrip("_") for each in folders))
    own = f"test_{name.lstrip('_')}.py"
    mirrors = [folder / own, folder.with_name(own)]
    if folders:  # A chapter without a file of its own is tested in that of its topic.
        mirrors += [folder, folder.with_name(f"test_{folder.name}.py")]
    mirror = next(path for path in mirrors if path.exists()).relative_to(ROOT)
    files = sorted((ROOT / "tests").glob("test_contract*.py"))
    values, *others = [str(file.relative_to(ROOT)) for file in files]
    names = public(mutant.file)
    if mutant.function in names:  # Others are tested through those that call them.
        names = [mutant.function]
    if not names or "_core" in folders:  # The contract of a whole topic takes minutes.
        return [[str(mirror)], [values], others]
    only = ["-k", " or ".join(names)]
    beside = [[str(mirror.parent)]] if mirror.parent.name != "tests" else []
    return [[values, *only], [str(mirror)], [*others, *only], *beside]


def public(file: pathlib.Path) -> list[str]:
    """Return the `__all__` of a file."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets) == "__all__":
            return ast.literal_eval(node.value)
    return []


def killed(tests_of: Mutant, mutated: bool = True) -> bool:
    """Return whether a test fails in a copy of the library, mutated or as it is."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        there = pathlib.Path(folder)
        for name in ("rlaxlib", "tests"):
            shutil.copytree(ROOT / name, there / name)
        shutil.copy(ROOT / "pyproject.toml", there)
        if mutated:
            target = there / tests_of.file.relative_to(ROOT)
            target.write_text(tests_of.text(), encoding="utf-8")
        topic = tests_of.file.relative_to(LIBRARY).parts[0].removesuffix(".py")
        topic = topic.replace("_core", "rlaxlib")  # All topics.
        variables = {"RLAXLIB_TOPIC": topic, "XLA_FLAGS": compiler_flags()}
        return any(fails(each, there, variables) for each in commands(tests_of))


def fails(arguments: list[str], folder: pathlib.Path, variables: dict) -> bool:
    pytest = [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider"]
    pytest += ["--numprocesses=0", "-m", "not slow", *arguments]
    # The contract of one function, all of it; that of a topic would take an hour.
    whole = {"RLAXLIB_TRUST": "1"} if "-k" in arguments else {}
    kept = {key: x for key, x in os.environ.items() if key != "RLAXLIB_TRUST"}
    variables = kept | variables | whole
    limited = ["sh", "-c", f'ulimit -t {LIMIT}; exec "$@"', "sh", *pytest]
    run = subprocess.run(
        limited, cwd=folder, env=variables, capture_output=True, check=False
    )
    return run.returncode not in PASSED


@functools.cache
def compiler_flags() -> str:
    script = [sys.executable, str(ROOT / "tests" / "compiler.py")]
    return subprocess.check_output(script, text=True).strip()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=random.randrange(1000))
    parser.add_argument("--only", default="", help="part of the name of files")
    parser.add_argument("--output", type=pathlib.Path, help="file for the list")
    options = parser.parse_args()
    print(f"--count {options.count} --seed {options.seed}", flush=True)
    files = sorted(file for file in LIBRARY.rglob("*.py") if options.only in str(file))
    every = [mutant for file in files for mutant in mutants(file)]
    sample = random.Random(options.seed).sample(every, options.count)
    assert not killed(sample[0], mutated=False), "A test fails without a mutation."
    lived, start = [], time.perf_counter()
    with ThreadPool() as pool:  # Each run is a process of its own.
        for mutant, died in zip(sample, pool.imap(killed, sample), strict=True):
            lived += [] if died else [mutant]
            print("killed" if died else "lived ", mutant, flush=True)
    share = 1 - len(lived) / len(sample)
    result = f"{len(sample) - len(lived)} of {len(sample)} mutants are killed"
    seconds = time.perf_counter() - start
    lines = [f"With seed {options.seed}, {result}, in {seconds:.0f} seconds."]
    if lived:
        lines = [f"{lines[0]} These live:", "", *(f"- `{each}`" for each in lived)]
    print(lines[0])
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text("\n".join(lines) + "\n", encoding="utf-8")
    sys.exit(share < ENOUGH)


if __name__ == "__main__":
    main()
