"""The gallery of examples: each with its curve, what it shows, and its source.

It is made from the docstrings of `examples/`. What they return is what
`examples/README.md` has from `examples/measure.py`, which drew the curves too. A curve
of which that table tells must be there.
"""

import ast
import re
from pathlib import Path

from library import collapsed, linked, table

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = ("measure",)  # Not agents.


def names() -> list[str]:
    """Return the names of the examples."""
    found = sorted(path.stem for path in EXAMPLES.glob("*.py"))
    return [name for name in found if name not in SCRIPTS]


def measured() -> dict[str, list[list[str]]]:
    """Return the rows of the README's table, under the names of the examples.

    Each is what sets the curve apart, the median, the worst, the seeds and the seconds.
    """
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    rows: dict[str, list[list[str]]] = {}
    for line in re.findall(r"^\| \[`.*\|$", readme, re.M):
        title, _, _, *numbers = [cell.strip() for cell in line.split("|")[1:-1]]
        name, label = re.fullmatch(r"\[`(\w+)`\]\([\w.]+\)(?:, )?(.*)", title).groups()
        rows.setdefault(name, []).append([label, *numbers])
    return rows


def example(name: str, rows: list[list[str]]) -> str:
    """Return what the gallery has of an example.

    Args:
        name: Its name.
        rows: What was measured of it, if anything.

    Raises:
        FileNotFoundError: If it was measured, and its curve is not there.
    """
    source = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    title, *paragraphs = (ast.get_docstring(ast.parse(source)) or "").split("\n\n")
    parts = [f"## {name}", f"**{' '.join(title.split())}**"]
    if rows:
        parts += [_curve(name), _returns(rows)]
    parts += [_paragraph(text) for text in paragraphs]
    shown = collapsed(f"examples/{name}.py", _source(name))
    parts.append(f"````{{only}} html\n{shown}````")
    parts.append(_raw(rf"Its source is on page~\pageref{{source:{name}}}."))
    return "\n\n".join(parts)


def gallery() -> str:
    """Return all examples, one after the other; on paper, their sources at the end."""
    rows = measured()
    examples = "\n\n".join(example(name, rows.get(name, [])) for name in names())
    sources = (f"{_on_paper(name)}\n\n{_source(name)}" for name in names())
    at_the_end = "\n\n".join([_raw(r"\section{Sources}"), *sources])
    return f"{examples}\n\n````{{only}} latex\n{at_the_end}\n````"


def _on_paper(name: str) -> str:
    """Return the heading of a source: a section of its own would be one of HTML too."""
    title = f"examples/{name}.py".replace("_", r"\_")
    heading = rf"\subsection{{\sphinxcode{{{title}}}}}\label{{source:{name}}}"
    return _raw(rf"\paperroom{{14}}{heading}")


def _raw(latex: str) -> str:
    return f"```{{raw}} latex\n{latex}\n```"


def _source(name: str) -> str:
    return f"```{{literalinclude}} ../examples/{name}.py\n:language: python\n```"


def _curve(name: str) -> str:
    path = EXAMPLES / "curves" / f"{name}.png"
    if not path.exists():
        message = f"{path} is not there, and examples/README.md tells of it."
        raise FileNotFoundError(message)
    return (
        f"![Returns of {name} in evaluation, over seeds](../examples/curves/{name}.png)"
    )


def _returns(rows: list[list[str]]) -> str:
    """Return the table of what an example returns, without a column that is empty."""
    header = ["", "median", "worst", "seeds", "seconds"]
    if not any(row[0] for row in rows):
        header, rows = header[1:], [row[1:] for row in rows]
    return table("|".join(header), ("|".join(row) for row in rows))


def _paragraph(text: str) -> str:
    """Return a paragraph in Markdown: prose, code, or a list of functions."""
    lines = text.split("\n")
    if not all(line.startswith("    ") for line in lines):
        return _mended(text)
    if not lines[0].startswith("    rlaxlib."):
        language = "sh" if lines[0].startswith("    python ") else "python"
        return "\n".join([f"```{language}", *(line[4:] for line in lines), "```"])
    # Two columns: names, which may take several lines, and what they do.
    entries: list[list[str]] = []
    for line in lines:
        left, _, right = line[4:].partition("  ")
        new = bool(left) and (not entries or bool(entries[-1][1]))
        if new:
            entries.append(["", ""])
        entries[-1][0] = f"{entries[-1][0]} {left}".strip()
        entries[-1][1] = f"{entries[-1][1]} {right.strip()}".strip()
    return "\n".join(f"- {_functions(names)}: {does}" for names, does in entries)


def _functions(text: str) -> str:
    """Link the names of functions in a list of them, such as `a, b and c`."""
    words = re.findall(r"\w+", text.replace("rlaxlib.", ""))
    return linked(", ".join(f"`{word}`" for word in words if word != "and"))


def _mended(text: str) -> str:
    """Return prose in which a line that begins with a number begins no list."""
    return re.sub(r"^(\d+)\.", r"\1\\.", text, flags=re.M)
