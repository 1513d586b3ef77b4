"""Write into the documentation what the public functions are tested for.

    python tests/trust.py    # Writes the tables of docs/trust.md.

A row in `rows/` says which tests of the contract fit a function. The tables are made of
that, and of the reasons that rows give where a function is excepted.
"""

import re
import types
from collections.abc import Callable, Iterable
from pathlib import Path

import contract
import test_contract
import test_contract_streams
import test_contract_under_jax
from contract import Row

import rlaxlib

PAGE = Path(__file__).parents[1] / "docs" / "trust.md"
START, END = "<!-- tables: start -->\n", "<!-- tables: end -->\n"

TOPICS = {
    name: topic
    for name, topic in vars(rlaxlib).items()
    if isinstance(topic, types.ModuleType) and not name.startswith("_")
}
TOPIC = {name: topic for topic, module in TOPICS.items() for name in module.__all__}

OF_THE_TABLE = ("test_no_row_lacks_a_function",)  # Says nothing of a function.
VARIANTS = "test_is_the_same_in_every_variant"

# The tests that have a column of their own, where functions are listed.
COLUMNS = {
    "value": "test_equals_its_definition",
    "rlax": "test_equals_rlax_in_value",
    "slope": "test_gradient_is_the_slope_of_the_definition",
    "flag": "test_gradient_of_targets_stops_if_and_only_if_the_flag_says_so",
    "half": "test_half_precision_rounds_once",
    "vmap": "test_vmap_equals_a_loop_over_the_batch",
    "cuts": "test_a_cut_joins_streams_and_a_masked_row_is_as_good_as_deleted",
}

# What a function may be excepted from, and the reasons that its row gives.
EXCEPTIONS: dict[str, Callable[[Row], Iterable[str]]] = {
    "No definition in NumPy": lambda row: () if row.defined else (row.definition,),
    "Not compared with rlax": lambda row: (row.peer,),
    "Gradients not compared with rlax's": lambda row: row.peer_gradient.values(),
    "Second derivatives not compared with differences": lambda row: (row.differences,),
}


def tests() -> dict[str, list[Row]]:
    """Return the tests of the contract, each with the rows that it runs on."""
    found: dict[str, list[Row]] = {}
    for module in (test_contract, test_contract_under_jax, test_contract_streams):
        for name, test in vars(module).items():
            for mark in getattr(test, "pytestmark", ()):
                if mark.args[:1] == ("row",) and name not in OF_THE_TABLE:
                    found[name] = list(mark.args[1])
    methods = {name.rpartition("__")[0] for name in _in_variants()}
    found[VARIANTS] = [
        row
        for row in contract.collect()
        if "_".join([VARIANTS, re.sub(r"\W", "_", row.id)]) in methods
    ]
    return found


def variants() -> list[str]:
    """Return the ways in which each function is called: compiled, mapped and so on."""
    found = {name.rpartition("__")[2].replace("_", " ") for name in _in_variants()}
    return sorted(found)


def _in_variants() -> list[str]:
    """Return the names of the methods, one for each row and variant."""
    module = test_contract_under_jax
    classes = module.TestVariants, module.TestCompiled
    return [name for each in classes for name in dir(each) if VARIANTS in name]


def in_order(rows: Iterable[Row]) -> list[str]:
    """Return the functions of rows, each once, in the order of their topics."""
    names = dict.fromkeys(row.name for row in rows)
    topics = list(TOPICS)
    return sorted(names, key=lambda name: topics.index(topic_of(name)))


def topic_of(name: str) -> str:
    return TOPIC[name.partition(".")[0]]


def tables() -> str:
    """Return all tables, in Markdown."""
    by_test = tests()
    parts = [
        "## What is asked",
        "A function may have several rows: one for each of its forms.",
        _asked(by_test),
        f"A variant is one of: {', '.join(variants())}.",
        "## Of which functions",
        "How many functions of a topic are held to what is asked most often:",
        _counted(by_test),
        _legend(),
        *_listed(by_test),
        "## What is not asked, and why",
        *_excepted(),
    ]
    return "\n\n".join(parts)


def page(text: str) -> str:
    """Return the text of the page, with its tables written anew."""
    before, rest = text.split(START)
    _, after = rest.split(END)
    return f"{before}{START}\n{tables()}\n\n{END}{after}"


def _asked(by_test: dict[str, list[Row]]) -> str:
    lines = [
        [sentence(test), str(len(in_order(rows))), str(len(rows))]
        for test, rows in by_test.items()
    ]
    return _table(["a function ...", "functions", "rows"], lines)


def sentence(test: str) -> str:
    """Return what a test asks, in words: its name."""
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
    """Return a table for each topic, collapsed, of its functions."""
    held = [set(in_order(by_test[test])) for test in COLUMNS.values()]
    everything = in_order(contract.collect())
    parts: list[str] = []
    for topic in TOPICS:
        own = sorted(name for name in everything if topic_of(name) == topic)
        lines = [
            [f"{{ours}}`{name}`", *("●" * (name in each) for each in held)]
            for name in own
        ]
        parts.append(_collapsed(topic, _table(["", *COLUMNS], lines)))
    return parts


def _excepted() -> list[str]:
    """Return the reasons for exceptions, collapsed, each with its functions."""
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
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
