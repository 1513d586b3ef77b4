"""Test the data that the manual reads from the library: names, summaries, papers."""

import dataclasses
import inspect
import re

import catalog
import pytest
from algorithms import DOCS

import rlaxlib
from rlaxlib._core.functions import FunctionTuple

DATA = [name for name in catalog.NAMES if not callable(getattr(rlaxlib, name))]
TYPES = [name for name in catalog.NAMES if inspect.isclass(getattr(rlaxlib, name))]
# Types that only hold results or settings need no equation, example or paper. The
# functions that take or return them have these.
RECORDS = [
    name
    for name in TYPES
    if issubclass(getattr(rlaxlib, name), tuple | FunctionTuple)
    or dataclasses.is_dataclass(getattr(rlaxlib, name))
]


# --- Names. ---


def test_each_public_name_is_in_one_chapter():
    listed = [name for topic in catalog.TOPICS for name in catalog.names(topic)]
    assert sorted(listed) == sorted(catalog.NAMES)
    others = set(rlaxlib.__all__) - set(listed) - set(catalog.TOPICS)
    assert others == {"ArgumentError"}


def test_the_readme_and_the_front_page_have_the_topics_of_help():
    rows = []
    for line in rlaxlib.__doc__.split("Topics:\n\n")[1].split("\n\n")[0].splitlines():
        names, contents = line[4:26].strip(), line[26:]
        if names and not (rows and rows[-1][0].endswith(",")):
            rows.append([names, contents])
        else:
            rows[-1] = [f"{rows[-1][0]} {names}".strip(), f"{rows[-1][1]} {contents}"]
    listed = ", ".join(names for names, _ in rows).split(", ")
    assert sorted(listed) == sorted(catalog.TOPICS)
    readme = (DOCS.parent / "README.md").read_text("utf-8")
    table = readme.partition("| topic | contents |\n|---|---|\n")[2]
    assert table.partition("\n\n")[0].splitlines() == [
        f"| {'`, `'.join(f'`{names}`'.split(', '))} | {contents} |"
        for names, contents in rows
    ]
    # The front page includes what stands between these lines.
    assert "\n## Topics\n\n| topic |" in readme
    assert table.partition("\n\n")[2].startswith("Every name has")


def test_each_public_name_has_a_summary():
    for name in catalog.NAMES:
        assert re.fullmatch(r"[A-Z`].*[.]", catalog.summary(catalog.docstring(name))), (
            name
        )


def test_tables_of_topics_say_what_each_function_returns():
    assert catalog.returns("q_learning") == "TD error"
    assert catalog.returns("policy_gradient_loss") == "Mean loss"
    for name in catalog.NAMES:
        if inspect.isfunction(getattr(rlaxlib, name)):
            assert catalog.returns(name), name


def test_functions_come_before_types_and_the_most_used_first():
    (ppo,) = (
        each for each in catalog.chapters("policies") if each.__name__[-4:] == "_ppo"
    )
    names = catalog.names_of(ppo)
    kinds = [inspect.isclass(getattr(rlaxlib, name)) for name in names]
    assert kinds == sorted(kinds)
    assert names[0] == "ppo_clip_loss"


def test_uses_are_the_algorithms_examples_and_pages_that_call_a_function():
    uses = catalog.uses()["double_q_learning"]
    assert ":doc:`Double DQN </algorithms/double_dqn>`" in uses["Algorithms"]
    assert ":doc:`dqn </gallery/dqn>`" in uses["Examples"]
    assert ":doc:`/guide/gradients`" not in uses.get("Guide", [])


def test_similar_names_exist():
    names = (DOCS / "_ext" / "similar.txt").read_text("utf-8").split()
    assert set(names) <= set(catalog.NAMES)


def test_types_that_compute_have_equation_example_and_references():
    for name in set(TYPES) - set(RECORDS):
        docstring = catalog.docstring(name)
        assert all(part in docstring for part in ("\n::\n", "Example:", "References:"))


@pytest.mark.parametrize("name", catalog.NAMES)
def test_a_function_names_the_fields_of_the_tuple_that_it_returns(name):
    thing = getattr(rlaxlib, name)
    result = getattr(thing, "__annotations__", {}).get("return")
    fields = getattr(result, "_fields", ())
    if not inspect.isfunction(thing) or len(fields) > 4 or "State" in str(result):
        return
    text = catalog.docstring(name).partition("Returns:\n")[2].partition("\n\n")[0]
    assert [each for each in fields if f"`{each}`" not in text] == []


def test_data_are_transform_pairs():
    assert all(isinstance(getattr(rlaxlib, name), rlaxlib.TxPair) for name in DATA)


def test_concepts_refer_to_public_names():
    for alias, names in catalog.CONCEPTS.items():
        assert names, alias
        # Other libraries have what ours has not, or an expression says it.
        ours = [name for name in names if name.isidentifier()]
        assert set(ours) <= set(catalog.NAMES), alias


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
    paper = catalog.parse("A and B, *C: D*, section 2, 1988. https://e.org")
    assert paper == catalog.Paper("1988", "A and B", "C: D", "https://e.org")
