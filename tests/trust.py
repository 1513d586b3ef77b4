"""Write the tables of `docs/trust.md`: which tests run on which functions.

    python tests/trust.py

The tables come from the rows in `rows/`, from the reasons that rows give for
exceptions, and from the measurements of `precision.py`.
"""

import types
from collections.abc import Callable, Iterable
from pathlib import Path

import contract
import precision
import test_contract
import test_contract_streams
import test_contract_under_jax
import test_matrix
import test_properties
from contract import Row

import rlaxlib

PAGE = Path(__file__).parents[1] / "docs" / "trust.md"

TOPICS = {
    name: topic
    for name, topic in vars(rlaxlib).items()
    if isinstance(topic, types.ModuleType) and not name.startswith("_")
}
TOPIC = {name: topic for topic, module in TOPICS.items() for name in module.__all__}

VARIANTS = "test_is_the_same_in_every_variant"

# Tests with a column of their own in the list of functions.
COLUMNS = {
    "value, gradient": "test_value_and_gradient_equal_the_definition",
    "rlax": "test_value_and_gradient_equal_those_of_rlax",
    "range": "test_rejects_values_out_of_range_in_traced_programs_too",
    "flag": "test_a_traced_flag_stops_the_gradient_of_targets_and_changes_no_value",
    "half": "test_half_precision_rounds_once",
    "variants": VARIANTS,
    "streams": "test_cuts_join_streams_and_masked_steps_are_as_if_deleted",
}

# Exceptions, and the reasons that rows give.
EXCEPTIONS: dict[str, Callable[[Row], Iterable[str]]] = {
    "No definition in NumPy": lambda row: () if row.defined else (row.definition,),
    "Functions of rlax that are not compared": lambda row: (row.peer.why_not,),
    "Gradients not compared with rlax's": lambda row: row.peer.no_gradients.values(),
    "Second derivatives not compared with differences": lambda row: (
        row.gradients.first_order_only,
    ),
}


def tests() -> dict[str, list[Row]]:
    """Return the tests of the contract, each with the rows that it runs on."""
    found: dict[str, list[Row]] = {}
    modules = [test_contract, test_contract_under_jax, test_contract_streams]
    for module in [*modules, test_matrix, test_properties]:
        for name, test in vars(module).items():
            if hasattr(test, "rows"):
                found[name] = test.rows
    found[VARIANTS] = [row for row in contract.collect() if row.has_arguments]
    return found


def in_order(rows: Iterable[Row]) -> list[str]:
    """Return the functions of rows in the order of their topics."""
    names = dict.fromkeys(row.name for row in rows)
    topics = list(TOPICS)
    return sorted(names, key=lambda name: topics.index(topic_of(name)))


def topic_of(name: str) -> str:
    return TOPIC[name.partition(".")[0]]


def tables() -> str:
    """Return all tables, in Markdown."""
    by_test = tests()
    parts = [
        "## Tests",
        "A function may have several rows, one for each of its cases.",
        _asked(by_test),
        "Variants are those of chex: with and without jit, with and without device, "
        "and with pmap on four devices.",
        "## Functions",
        "The number of functions of a topic that the main tests run on:",
        _counted(by_test),
        _legend(),
        *_listed(by_test),
        "## Exceptions",
        *_excepted(),
    ]
    return "\n\n".join(parts)


def page(text: str) -> str:
    """Return the text of the page, with its tables written anew."""
    return between(text, "tables", tables())


def between(text: str, name: str, content: str) -> str:
    """Replace the text between two comments of a page."""
    start, end = f"<!-- {name}: start -->\n", f"<!-- {name}: end -->\n"
    before, rest = text.split(start)
    _, after = rest.split(end)
    return f"{before}{start}\n{content}\n\n{end}{after}"


def measured() -> str:
    """Return the table of the accuracy of elementwise functions."""
    return _table(precision.HEADER, [case.line() for case in precision.cases()])


def _asked(by_test: dict[str, list[Row]]) -> str:
    lines = [
        [sentence(test), str(len(in_order(rows))), str(len(rows))]
        for test, rows in by_test.items()
    ]
    return _table(["test", "functions", "rows"], lines)


def sentence(test: str) -> str:
    """Return the name of a test in words."""
    return test.removeprefix("test_").replace("_", " ")


def _counted(by_test: dict[str, list[Row]]) -> str:
    lines: list[list[str]] = []
    everything = in_order(contract.collect())
    for topic in TOPICS:
        own = [name for name in everything if topic_of(name) == topic]
        counts = [
            sum(topic_of(name) == topic for name in in_order(by_test[test]))
            for test in COLUMNS.values()
        ]
        lines.append([topic, str(len(own)), *(str(count or "") for count in counts)])
    totals = [str(len(in_order(by_test[test]))) for test in COLUMNS.values()]
    lines.append(["all", str(len(everything)), *totals])
    return _table(["topic", "functions", *COLUMNS], lines)


def _legend() -> str:
    return "\n".join(f"- *{name}*: {sentence(test)}" for name, test in COLUMNS.items())


def _listed(by_test: dict[str, list[Row]]) -> list[str]:
    """Return a collapsed table of functions for each topic."""
    held = [set(in_order(by_test[test])) for test in COLUMNS.values()]
    everything = in_order(contract.collect())
    parts: list[str] = []
    for topic in TOPICS:
        own = sorted(name for name in everything if topic_of(name) == topic)
        lines = [
            [f"`{name}`", *("●" * (name in each) for each in held)] for name in own
        ]
        parts.append(_collapsed(topic, _table(["", *COLUMNS], lines)))
    return parts


def _excepted() -> list[str]:
    """Return the reasons for exceptions, collapsed, with their rows."""
    parts: list[str] = []
    for title, reasons in EXCEPTIONS.items():
        by_reason: dict[str, list[Row]] = {}
        for row in contract.collect():
            for reason in filter(None, reasons(row)):
                by_reason.setdefault(reason.rstrip("."), []).append(row)
        lines = [
            f"- {reason}: {', '.join(f'`{row.id}`' for row in rows)}"
            for reason, rows in by_reason.items()
        ]
        count = sum(map(len, by_reason.values()))
        parts.append(_collapsed(f"{title}: {count} rows", "\n".join(lines)))
    return parts


def _collapsed(title: str, content: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{content}\n\n</details>"


def _table(header: list[str], rows: Iterable[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    old = page(PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(between(old, "precision", measured()), encoding="utf-8")
