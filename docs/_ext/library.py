"""What pages tell of the library itself: links to its names, and tables of them."""

import inspect
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import catalog
import equations

import rlaxlib

DIFFERENCES = Path(__file__).parents[1] / "differences.md"
RLAX_NAMES = Path(__file__).with_name("rlax_names.txt")


def address(name: str) -> str:
    """Return the address of what tells of a name.

    It stands under its topic: `softmax` has that of its parts, such as
    `softmax.entropy`, too.

    Raises:
        KeyError: If the library has no such name.
    """
    first = re.split(r"[.(]", name.removeprefix("rlaxlib."))[0]
    return f"rlaxlib.{first}" if first in catalog.TOPICS else catalog.NAMES[first]


def linked(text: str) -> str:
    """Make links of the names of ours between backticks."""

    def replace(found: re.Match[str]) -> str:
        try:
            address(found[1])
        except KeyError:
            return found[0]
        return "{ours}" + found[0]

    return re.sub(r"`([^`]+)`", replace, text)


def collapsed(title: str, content: str) -> str:
    """Return Markdown that shows its title, and the rest on a click."""
    return f"<details><summary>{title}</summary>\n\n{content}\n\n</details>\n"


def table(header: str, rows: Iterable[str]) -> str:
    """Return a table in Markdown, of lines that hold `|` between their cells."""
    rule = "|".join(["---"] * (header.count("|") + 1))
    return "\n".join(f"|{row}|" for row in (header, rule, *rows))


# --- What rlax has not. ---


def rlax_names() -> tuple[set[str], set[str]]:
    """Return the names that rlax publishes, and those that it keeps to itself."""
    public, private = RLAX_NAMES.read_text(encoding="utf-8").split("\n\n")
    return set(public.split()), set(private.split())


def new_names() -> str:
    """Return the names that rlax has not in any form, with what they are for."""
    known = set.union(*rlax_names())
    parts: list[str] = []
    for topic, module in catalog.TOPICS.items():
        new = [name for name in module.__all__ if name not in known]
        if new:
            rows = (f"{{ours}}`{name}`|{_first_line(name)}" for name in new)
            parts.append(collapsed(f"{topic}: {len(new)}", table("name| ", rows)))
    return "\n".join(parts)


def new_options() -> str:
    """Return the keyword-only arguments of the functions that rlax has too."""
    public, private = rlax_names()
    by_option: dict[str, list[str]] = {}
    for name in catalog.NAMES:
        thing = getattr(rlaxlib, name)
        if name in public | private and inspect.isfunction(thing):
            for each in inspect.signature(thing).parameters.values():
                if each.kind is each.KEYWORD_ONLY:
                    by_option.setdefault(each.name, []).append(name)
    rows = (
        f"`{option}`|" + ", ".join(f"{{ours}}`{name}`" for name in names)
        for option, names in sorted(by_option.items())
    )
    return table("argument|of", rows)


def _first_line(name: str) -> str:
    # RST of a docstring in Markdown: mathematics is the only role there.
    def latex(role: re.Match[str]) -> str:
        return f"${equations.to_inline_tex(role[1])}$"

    summary = re.sub(r":math:`([^`]*)`", latex, catalog.summary(name))
    return summary.replace("|", r"\|")


# --- What it does otherwise. ---


def differences() -> Iterator[tuple[str, list[str]]]:
    """Yield the rows of `docs/differences.md`, each with its topic.

    The topic is that of the first name in the row, or of the row above if there is
    none; it is empty for what holds of all functions. Where a row is about the same
    names as the one above it, they stand in both.
    """
    _, of_all, of_one = DIFFERENCES.read_text(encoding="utf-8").split("\n## ")
    for row in _rows(of_all):
        yield "", ["", *row]
    names = topic = ""
    for row in _rows(of_one):
        names = row[0].replace("the same", names)
        found = re.search(r"`(\w+)", names)
        if found and found[1] in catalog.NAMES:
            topic = catalog.NAMES[found[1]].split(".")[1]
        yield topic, [names, *row[1:]]


def differences_of_all() -> str:
    """Return what is different of all functions."""
    return _as_lists([row for topic, row in differences() if not topic])


def differences_by_topic() -> str:
    """Return what is different of single functions, topic by topic."""
    by_topic: dict[str, list[list[str]]] = {topic: [] for topic in catalog.TOPICS}
    for topic, row in differences():
        if topic:
            by_topic[topic].append(row)
    return "\n".join(
        collapsed(f"{topic}: {len(rows)}", _as_lists(rows))
        for topic, rows in by_topic.items()
        if rows
    )


def _rows(markdown: str) -> list[list[str]]:
    """Return the rows of a table of Markdown, without its header and its rule."""
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    split = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines[2:]]
    return [[cell.strip() for cell in cells] for cells in split]


def _as_lists(rows: list[list[str]]) -> str:
    """Return rows as lists, which a telephone shows whole: names, theirs, ours, why."""
    parts: list[str] = []
    above = ""
    for names, theirs, ours, why in rows:
        if names != above:
            parts.append(f"**{linked(names)}**\n")
        parts.append(f"- {theirs}\n  - *rlaxlib:* {ours}\n  - *Why:* {why}\n")
        above = names
    return "\n".join(parts)
