"""Test that the tables of `docs/trust.md` are up to date."""

import os
import re

import contract
import precision
import trust


def test_the_page_is_up_to_date():
    text = trust.PAGE.read_text(encoding="utf-8")
    assert trust.page(text) == text, "Run `python tests/trust.py`."


def test_every_function_is_counted():
    names = trust.in_order(contract.collect())
    assert set(names) == set(contract.public_functions())
    assert f"| all | {len(names)} |" in trust.tables()


def test_every_column_is_a_test_with_rows():
    found = trust.tests()
    assert all(found[test] for test in trust.COLUMNS.values())


def test_every_reason_for_an_exception_is_listed():
    listed = trust.tables()
    for row in contract.collect():
        for reason in (
            row.peer.why_not,
            row.gradients.first_order_only,
            *row.peer.no_gradients.values(),
        ):
            assert reason.rstrip(".") in listed


def test_errors_are_at_most_those_of_the_page():
    text = trust.PAGE.read_text(encoding="utf-8")
    points = precision.POINTS if os.environ.get("RLAXLIB_TRUST") else 1 << 12
    for case in precision.cases():
        line = re.search(rf"\| `{re.escape(case.text)}` \|.*", text)
        assert line, f"Run `python tests/trust.py`: `{case.text}` has no line."
        stated = re.search(r"at most (\d+)", line[0])
        assert stated, line[0]
        assert precision.measure(case, points) <= int(stated[1]), line[0]
