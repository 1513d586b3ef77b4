"""Hold what the manual tells of the library, and the docstrings it is told by."""

import dataclasses
import inspect
import re
from pathlib import Path

import catalog
import pytest

import rlaxlib

API = Path(__file__).parents[2] / "docs" / "api"
DATA = [name for name in catalog.NAMES if not callable(getattr(rlaxlib, name))]
TYPES = [name for name in catalog.NAMES if inspect.isclass(getattr(rlaxlib, name))]
# What only holds results or settings needs no equation, no example and no paper: the
# functions have them that take it and return it.
RECORDS = [
    name
    for name in TYPES
    if issubclass(getattr(rlaxlib, name), tuple)
    or dataclasses.is_dataclass(getattr(rlaxlib, name))
]


# --- Names. ---


def test_each_topic_has_a_page_and_no_page_is_without_a_topic():
    pages = {path.stem: path.read_text(encoding="utf-8") for path in API.iterdir()}
    assert set(pages) == {*catalog.TOPICS, "errors"}
    pattern = r"\.\. topic-page:: (\w+)"
    told = {name: re.findall(pattern, page) for name, page in pages.items()}
    assert told == {topic: [topic] for topic in catalog.TOPICS} | {"errors": []}


def test_each_public_name_is_told_of_once():
    told = [
        name
        for topic in catalog.TOPICS
        for chapter in catalog.chapters(topic)
        for name in catalog.names(chapter)
    ]
    assert sorted(told) == sorted(catalog.NAMES)
    others = set(rlaxlib.__all__) - set(told) - set(catalog.TOPICS)
    assert others == {"ArgumentError"}


@pytest.mark.parametrize("name", catalog.NAMES)
def test_each_public_name_has_a_line_that_tells_of_it(name):
    assert re.fullmatch(r"[A-Z`].*[.]", catalog.summary(name))


@pytest.mark.parametrize("name", [name for name in TYPES if name not in RECORDS])
def test_type_that_computes_has_the_parts_of_a_function(name):
    docstring = catalog.docstring(name)
    assert all(part in docstring for part in ("math::", "Example:", "References:"))


def test_what_is_no_function_is_a_type_or_a_pair():
    assert all(isinstance(getattr(rlaxlib, name), rlaxlib.TxPair) for name in DATA)


@pytest.mark.parametrize(("where", "alias", "names"), catalog.aliases())
def test_name_of_others_leads_to_names_of_ours(where, alias, names):
    assert names
    assert set(names) <= {*catalog.NAMES, *catalog.TOPICS}


# --- Papers. ---


def test_each_reference_names_authors_title_year_and_address():
    papers = catalog.papers()
    assert {name for names in papers.values() for name in names} >= {
        name for name in catalog.NAMES if inspect.isfunction(getattr(rlaxlib, name))
    }
    # Documentation alone has no year: it is kept up to date.
    assert all(
        paper.year or "docs" in paper.url or "/doc/" in paper.url for paper in papers
    )


def test_same_paper_is_always_cited_alike():
    cited = {}
    for paper in catalog.papers():
        cited.setdefault(paper.url, []).append(paper)
    assert [papers for papers in cited.values() if len(papers) > 1] == []


def test_reference_in_another_form_is_found():
    with pytest.raises(ValueError, match="Not authors"):
        catalog.parse("Sutton, Learning to Predict, 1988. https://example.org")
    paper, where = catalog.parse("A and B, *C: D*, section 2, 1988. https://e.org")
    assert (paper, where) == (
        catalog.Paper("1988", "A and B", "C: D", "https://e.org"),
        "section 2",
    )
