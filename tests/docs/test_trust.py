"""Test that the tables of `docs/trust.md` are up to date."""

import contract
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
        for reason in (row.peer, row.differences, *row.peer_gradient.values()):
            assert reason.rstrip(".") in listed
