"""Mutation testing: change the library in random places, and run its tests.

    python tests/mutants.py --count 40 --seed 1

A mutant is the library with one change: an operator, a constant, two swapped arguments,
a dropped `stop_gradient` or `where`. Its tests are the contract of the function that
changed, and the file that mirrors the changed one; it is killed if one of them fails.
The script fails if fewer than 95 % of the mutants are killed. Mutants that live are
listed, those that change no result too. With `--write` the list goes to
`docs/trust.md`.
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
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "trust.md"
START, END = "<!-- mutants: start -->\n", "<!-- mutants: end -->\n"
COPIED = ("rlaxlib", "tests", "pyproject.toml")
ENOUGH = 0.95
TIMEOUT = 900  # In seconds; a mutant may loop for ever.

OPERATORS = {ast.Add: ast.Sub, ast.Mult: ast.Div, ast.Lt: ast.Gt, ast.LtE: ast.GtE}
OPERATORS |= {ast.Eq: ast.NotEq, ast.And: ast.Or, ast.BitAnd: ast.BitOr}
OPERATORS |= {other: one for one, other in OPERATORS.items()}
NAMES = {"minimum": "maximum", "min": "max", "argmin": "argmax"}
NAMES |= {other: one for one, other in NAMES.items()}
# Calls whose arguments commute, or which do not compute.
ALIKE = {"minimum", "maximum", "min", "max", "logaddexp", "isinstance", "arrays"}
ALIKE |= {"widened", "zip", "cast", "logical_and", "logical_or", "hypot", "multiply"}
ALIKE |= {"add", "isclose", "partial", "getattr"}


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One change of one function: the text in some lines of a file."""

    file: pathlib.Path
    function: str
    node: ast.expr
    changed: ast.expr

    def __str__(self) -> str:
        name = self.file.relative_to(ROOT).as_posix()
        change = f"{ast.unparse(self.node)} -> {ast.unparse(self.changed)}"
        return f"{name}:{self.node.lineno}, {self.function}: {change}"

    def text(self) -> str:
        """Return the text of the changed file."""
        lines = self.file.read_bytes().splitlines(keepends=True)
        starts = [0]
        for line in lines:
            starts.append(starts[-1] + len(line))
        whole, node = b"".join(lines), self.node
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        new = ast.unparse(self.changed)
        new = new if isinstance(self.changed, ast.Constant) else f"({new})"
        return (whole[:begin] + new.encode() + whole[end:]).decode()


# --- Changes. ---


def changes(node: ast.AST) -> Iterator[ast.expr]:
    """Yield all changes of an expression."""
    match node:
        case ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in OPERATORS:
            yield changed(node, op=OPERATORS[type(op)]())
        case ast.Compare(ops=[op]) if type(op) in OPERATORS:
            yield changed(node, ops=[OPERATORS[type(op)]()])
        case ast.Constant(value=int() | float()) if not isinstance(node.value, bool):
            yield changed(node, value=node.value + 1)
        case ast.Call(func=function, args=arguments):
            yield from changed_calls(node, called(function), arguments)


def changed_calls(node: ast.Call, name: str, arguments: list) -> Iterator[ast.expr]:
    if name in NAMES:
        other = copy.deepcopy(node.func)
        other.__dict__["id" if isinstance(other, ast.Name) else "attr"] = NAMES[name]
        yield changed(node, func=other)
    if name == "stop_gradient" or (name == "where" and len(arguments) == 3):
        yield arguments[-2 if name == "where" else 0]
    plain = not any(isinstance(each, ast.Starred) for each in arguments)
    if name not in ALIKE and len(arguments) > 1 and plain:
        yield changed(node, args=[arguments[1], arguments[0], *arguments[2:]])


def changed(node: ast.AST, **fields: object) -> ast.expr:
    """Return a copy of an expression with other fields."""
    other = copy.copy(node)
    other.__dict__.update(fields)
    assert isinstance(other, ast.expr)
    return other


def called(function: ast.expr) -> str:
    return getattr(function, "attr", getattr(function, "id", ""))


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
        if name not in ("annotation", "returns"):
            for child in field if isinstance(field, list) else [field]:
                if isinstance(child, ast.AST):
                    yield from computed(child)


# --- Tests. ---


def commands(mutant: Mutant) -> list[list[str]]:
    """Return the arguments of pytest: the files that mirror it, and its contract."""
    parts = mutant.file.relative_to(ROOT / "rlaxlib").with_suffix("").parts
    folder = pathlib.Path("tests", *(part.lstrip("_") for part in parts[:-1]))
    mirrors = [folder / f"test_{parts[-1].lstrip('_')}.py", folder]
    mirrors += [pathlib.Path("tests", f"test_{parts[0]}.py")]
    mirror = next(path for path in mirrors if len(path.parts) > 1 and path.exists())
    contract = sorted(map(str, pathlib.Path("tests").glob("test_contract*.py")))
    names = [mutant.function]
    if mutant.function.startswith("_"):  # It is tested through those that call it.
        names = public(mutant.file)
    only = ["-k", " or ".join(names)] if names and parts[0] != "_core" else []
    return [[str(mirror)], contract + only]


def public(file: pathlib.Path) -> list[str]:
    """Return the `__all__` of a file."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets) == "__all__":
            return ast.literal_eval(node.value)
    return []


def killed(mutant: Mutant | None, of: Mutant) -> bool:
    """Return whether a test of a mutant fails; with None, of the library as it is."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        there = pathlib.Path(folder)
        copy_to(there)
        if mutant is not None:
            target = there / mutant.file.relative_to(ROOT)
            target.write_text(mutant.text(), encoding="utf-8")
        return any(fails(arguments, there, of) for arguments in commands(of))


def copy_to(folder: pathlib.Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, folder)


@functools.cache
def compiler_flags() -> str:
    script = [sys.executable, "tests/compiler.py"]
    return subprocess.run(
        script, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def fails(arguments: list[str], folder: pathlib.Path, mutant: Mutant) -> bool:
    topic = mutant.file.relative_to(ROOT / "rlaxlib").parts[0].removesuffix(".py")
    topic = "returns" if topic == "_core" else topic
    environment = os.environ | {"RLAXLIB_TOPIC": topic, "XLA_FLAGS": compiler_flags()}
    command = [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider"]
    command += ["-n", "0", "-m", "not slow", *arguments]
    try:
        run = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            timeout=TIMEOUT,
            check=False,
            capture_output=True,
        )
    except subprocess.TimeoutExpired:
        return True
    return run.returncode not in (0, 5)  # 5: no test was selected.


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=random.randrange(1000))
    parser.add_argument("--only", default="", help="part of a file's name")
    parser.add_argument("--write", action="store_true", help="the list to the manual")
    options = parser.parse_args()
    os.chdir(ROOT)
    print(f"--count {options.count} --seed {options.seed}", flush=True)
    files = [
        file
        for file in sorted((ROOT / "rlaxlib").rglob("*.py"))
        if options.only in str(file)
    ]
    every = [mutant for file in files for mutant in mutants(file)]
    sample = random.Random(options.seed).sample(every, min(options.count, len(every)))
    assert not killed(None, sample[0]), "A test fails without a mutation."
    lived = []
    for mutant in sample:
        died = killed(mutant, mutant)
        lived += [] if died else [str(mutant)]
        print("killed" if died else "LIVED ", mutant, flush=True)
    share = 1 - len(lived) / len(sample)
    print(f"{len(sample) - len(lived)} of {len(sample)} killed")
    sys.exit(share < ENOUGH)


if __name__ == "__main__":
    main()
