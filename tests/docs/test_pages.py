"""Run the code of the README and of every page of the manual."""

import ast
import doctest
import inspect
import json
import re
import sys
import textwrap
import types
from pathlib import Path

import algorithms
import catalog
import jax
import pytest

import rlaxlib

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    # The code of algorithms is run by test_uses.py.
    if not {"_build", "_templates", "algorithms"} & set(path.parts)
}

CLOCK = "docs/guide/clock.md"

# Pages with Python code that is not run, in ```{code-block} python, and the reason.
NOT_RUN = {
    "docs/guide/devices.md": "It configures JAX globally, or needs several processes.",
    "docs/guide/environments.md": "It needs frameworks: see test_frameworks.py.",
}

FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<language>\S.*)\n"
    r"(?P<code>(?:.*\n)*?)(?P=indent)(?P=fence) *$",
    re.M,
)
RUN, SHOWN = "python", re.compile(r"\{code-block\} *i?python|pycon|ipython|py|python3")


def blocks(text):
    """Return line, language and code of each fenced block of a page."""
    return [
        (
            text.count("\n", 0, match.start("code")),
            match["language"].strip(),
            textwrap.dedent(match["code"]),
        )
        for match in FENCE.finditer(text)
    ]


def run(page, text):
    """Run the blocks of a page in one module; blocks with prompts are doctests."""
    module = sys.modules[page]
    for line, language, code in blocks(text):
        if language != RUN:
            continue
        if code.startswith(">>>"):
            parser = doctest.DocTestParser()
            test = parser.get_doctest(code, {}, page, str(ROOT / page), line)
            test.globs = vars(module)  # The parser made a copy.
            runner = doctest.DebugRunner(optionflags=doctest.ELLIPSIS)
            runner.run(test, clear_globs=False)
        else:
            # Leading blank lines make tracebacks show the line of the page.
            exec(compile("\n" * line + code, str(ROOT / page), "exec"), vars(module))


def has_code(text):
    return any(language == RUN for _, language, _ in blocks(text))


@pytest.mark.parametrize(
    "page", [page for page, text in PAGES.items() if has_code(text)]
)
def test_code_of_page_prints_the_output_shown(page, monkeypatch):
    monkeypatch.setitem(sys.modules, page, types.ModuleType(page))
    monkeypatch.chdir(ROOT)
    # The default settings of JAX, not the strict ones of the tests.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        run(page, PAGES[page])


def test_python_that_is_not_run_has_a_reason():
    for page, text in PAGES.items():
        shown = [line for line, name, _ in blocks(text) if SHOWN.fullmatch(name)]
        assert bool(shown) == (page in NOT_RUN), f"Lines {shown} of {page} are not run."


def test_each_page_of_the_guide_and_the_readme_have_code():
    for page, text in PAGES.items():
        if "/guide/" in page or page == "README.md":
            assert has_code(text), page


def test_the_table_of_orders_has_the_arguments_of_the_functions():
    orders = re.findall(r"^\| (`\w+`.*?) \| (`.*`) \|$", PAGES[CLOCK], re.M)
    orders = [row for row in orders if row[0].split("`")[1] in catalog.NAMES]
    assert len(orders) > 10
    for names, arguments in orders:
        for name in re.findall("`(.+?)`", names):
            signature = inspect.signature(getattr(rlaxlib, name))
            required = [
                each.name
                for each in signature.parameters.values()
                if each.kind != each.KEYWORD_ONLY
            ]
            listed = re.findall("`(.+?)`", arguments)
            assert required[: len(listed)] == listed, name


def code_of(cells):
    """Return the syntax tree of the code of several cells."""
    return ast.dump(ast.parse("\n".join(cells)))


@pytest.mark.parametrize("page", [page for page in PAGES if "/guide/" in page])
def test_a_notebook_has_the_code_of_its_page(page):
    pages = pytest.importorskip("pages", reason="The extra `docs` is not installed.")
    found = json.loads(pages.notebook(PAGES[page]))["cells"]
    sources = ["".join(x["source"]) for x in found if x["cell_type"] == "code"]
    parse = doctest.DocTestParser().get_examples
    run = [code for _, language, code in blocks(PAGES[page]) if language == RUN]
    cells = [
        "".join(x.source for x in parse(code)) if code.startswith(">>>") else code
        for code in run
    ]
    assert code_of(sources) == code_of(cells)


@pytest.mark.parametrize("name", algorithms.algorithms())
def test_a_notebook_of_an_algorithm_has_all_of_its_code(name):
    pages = pytest.importorskip("pages", reason="The extra `docs` is not installed.")
    page = algorithms.algorithms()[name]
    found = json.loads(
        pages.notebook(pages.render("algorithm.md", algorithm=page), "python")
    )["cells"]
    sources = ["".join(x["source"]) for x in found if x["cell_type"] == "code"]
    functions = [*map(algorithms.code, page.functions)]
    functions += [x.source for x in page.helpers]
    assert code_of(sources) == code_of([page.imports, *functions])


def test_the_ratios_of_the_benchmarks_are_those_of_the_last_run():
    cpu, gpu = (
        (ROOT / "benchmarks" / name).read_text(encoding="utf-8")
        for name in ("results.md", "gpu.md")
    )
    run, compilation = re.search(
        r"geometric mean \| \| (\S+) \| \| (\S+)", cpu
    ).groups()
    on_gpu = re.search(r"geometric mean \| \| (\S+)", gpu)[1]
    device = re.search("device: NVIDIA (.*)", gpu)[1]
    text = PAGES["docs/benchmarks.md"]
    assert f"On an {device}, the same steps take {on_gpu} of rlax's" in text
    assert f"{on_gpu} [on an {device}]" in PAGES["README.md"]
    assert f"takes {run} of the time" in text
    assert f"its compilation {compilation}:" in text
    assert f"takes {run} of the time" in PAGES["README.md"]


@pytest.mark.parametrize(
    "text",
    [
        "```python\n1 + None\n```\n",
        "```python\n>>> 1 + 1\n3\n```\n",
        "- In a list:\n\n  ```python\n  >>> 1 + 1\n  3\n  ```\n",
        "```python\none = 1\n```\n\n```python\n>>> one\n2\n```\n",
    ],
)
def test_wrong_code_or_output_raises_an_error(text, monkeypatch):
    monkeypatch.setitem(sys.modules, "page", types.ModuleType("page"))
    with pytest.raises((TypeError, doctest.DocTestFailure)):
        run("page", text)
