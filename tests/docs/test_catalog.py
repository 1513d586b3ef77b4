"""Test the data that the manual reads from the library: names, summaries, papers."""

import dataclasses
import inspect
import re

import catalog
import pytest

import rlaxlib

DATA = [name for name in catalog.NAMES if not callable(getattr(rlaxlib, name))]
TYPES = [name for name in catalog.NAMES if inspect.isclass(getattr(rlaxlib, name))]
# Types that only hold results or settings need no equation, example or paper. The
# functions that take or return them have these.
RECORDS = [
    name
    for name in TYPES
    if issubclass(getattr(rlaxlib, name), tuple)
    or dataclasses.is_dataclass(getattr(rlaxlib, name))
]


# --- Names. ---


def test_each_public_name_is_in_one_chapter():
    listed = [name for topic in catalog.TOPICS for name in catalog.names(topic)]
    assert sorted(listed) == sorted(catalog.NAMES)
    others = set(rlaxlib.__all__) - set(listed) - set(catalog.TOPICS)
    assert others == {"ArgumentError"}


def test_each_public_name_has_a_summary():
    for name in catalog.NAMES:
        assert re.fullmatch(r"[A-Z`].*[.]", catalog.summary(name)), name


def test_tables_of_topics_have_shapes_and_results():
    assert catalog.shapes("q_learning")[0] == "``[A]``, ``[]``"
    for name, thing in vars(rlaxlib).items():
        if inspect.isfunction(thing):
            assert catalog.shapes(name)[1], name


def test_types_that_compute_have_equation_example_and_references():
    for name in set(TYPES) - set(RECORDS):
        docstring = catalog.docstring(name)
        assert all(part in docstring for part in ("math::", "Example:", "References:"))


def test_data_are_transform_pairs():
    assert all(isinstance(getattr(rlaxlib, name), rlaxlib.TxPair) for name in DATA)


def test_aliases_refer_to_public_names():
    for _, alias, names in catalog.aliases():
        assert names, alias
        assert set(names) <= set(catalog.NAMES), alias


def test_alias_is_split_into_keywords():
    assert catalog.keywords("advantage actor-critic (A2C, A3C)") == [
        "advantage actor-critic",
        "A2C",
        "A3C",
    ]


# --- Papers. ---


def test_each_reference_has_authors_title_year_and_url():
    papers = catalog.papers()
    assert {name for names in papers.values() for name in names} >= {
        name for name in catalog.NAMES if inspect.isfunction(getattr(rlaxlib, name))
    }
    # Only references to documentation may lack a year.
    assert all(
        paper.year or "docs" in paper.url or "/doc/" in paper.url for paper in papers
    )


def test_all_references_to_a_paper_are_identical():
    cited = {}
    for paper in catalog.papers():
        cited.setdefault(paper.url, []).append(paper)
    assert [papers for papers in cited.values() if len(papers) > 1] == []


def test_reference_in_another_form_raises_an_error():
    with pytest.raises(ValueError, match="Not authors"):
        catalog.parse("Sutton, Learning to Predict, 1988. https://example.org")
    paper, where = catalog.parse("A and B, *C: D*, section 2, 1988. https://e.org")
    assert (paper, where) == (
        catalog.Paper("1988", "A and B", "C: D", "https://e.org"),
        "section 2",
    )
