"""Write what the tests found at one commit into `docs/trust.md`.

    python tests/evidence.py versions                      # those of this interpreter
    python tests/evidence.py write .venv/evidence/COMMIT   # a line for each report

The folder is named by the commit. It has the JUnit reports of the parts, in which the
name of the suite is that of the versions, and what `mutants.py --output` wrote.
"""

import pathlib
import platform
import re
import sys
from importlib import metadata
from xml.etree import ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/trust.md"
PARTS = {
    "cover": "tests of the topics, all lines covered",
    "rows": "the contract on all rows; docstrings, benchmarks, exact values",
    "matrix": "all rows under all transformations",
    "trainings": "recipes, examples and the zoo, with faults",
    "seeds": "the zoo with faults, at five further seeds",
    "compat-oldest": "the contract, oldest versions",
    "compat-newest": "the contract, newest versions",
    "examples": "examples, trained in full",
}
HEAD = """\
| Part | Python, JAX, NumPy | Passed | Skipped | Failed | Seconds |
|---|---|---:|---:|---:|---:|"""


def versions() -> str:
    """Return the versions that a report names."""
    found = [platform.python_version(), *map(metadata.version, ("jax", "numpy"))]
    return ", ".join(found)


def line(part: str, suite: ElementTree.Element) -> str:
    """Return the line of the table for a part."""
    tests, skipped = int(suite.attrib["tests"]), int(suite.attrib["skipped"])
    failed = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
    numbers = tests - skipped - failed, skipped, failed, suite.attrib["time"]
    cells = (f"{float(x):,.0f}" for x in numbers)
    return f"| {PARTS[part]} | {suite.attrib['name']} | {' | '.join(cells)} |"


def block(folder: pathlib.Path, known: str = "") -> str:
    """Return what the reports in a folder say, and what is known of other parts."""
    reports = {part: folder / f"{part}.xml" for part in PARTS}
    suites = {
        part: ElementTree.parse(path).getroot()[0]
        for part, path in reports.items()
        if path.exists()
    }
    days = {suite.attrib["timestamp"][:10] for suite in suites.values()}
    days = sorted(days | set(re.findall(r"\d{4}-\d\d-\d\d", known)))
    days = " to ".join(dict.fromkeys([*days[:1], *days[-1:]]))
    lines = [f"Commit `{folder.name}`, {days}:", "", HEAD]
    for part, text in PARTS.items():
        old = re.findall(f"^\\| {re.escape(text)} .*", known, re.MULTILINE)
        lines += [line(part, suites[part])] if part in suites else old
    mutants = folder / "mutants.md"
    _, _, found = known.partition("\n\nWith seed")
    if mutants.exists():
        lines += ["", mutants.read_text(encoding="utf-8").strip()]
    elif found:
        lines += ["", f"With seed{found}"]
    return "\n".join(lines)


def write(folder: pathlib.Path, page: pathlib.Path = PAGE) -> None:
    """Replace what stands between the marks of a page.

    Parts of the same commit stay, so that they can run on several days or machines.
    """
    start, end = "<!-- evidence: start -->\n", "\n<!-- evidence: end -->"
    before, _, rest = page.read_text(encoding="utf-8").partition(start)
    old, mark, after = rest.partition(end)
    assert mark, "The page has no marks."
    found = block(folder, old if f"Commit `{folder.name}`" in old else "")
    page.write_text(before + start + found + end + after, encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(pathlib.Path(sys.argv[2]))
    else:
        print(versions())
