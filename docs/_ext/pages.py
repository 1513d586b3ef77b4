"""Write pages that come from the code, by the templates of `docs/_templates/`.

`api/` has a page for each topic and function, and lists that other pages include;
`algorithms/` and `gallery/` one for each algorithm and example; `notebooks/` the pages
of the guide and of algorithms as notebooks.
"""

import ast
import doctest
import itertools
import re

import algorithms
import catalog
import jinja2
import jupytext
from algorithms import DOCS

import rlaxlib

TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(DOCS / "_templates"), trim_blocks=True
)


def write(app):
    """Write all pages, but those that stand there already."""
    pages = {}
    for name, source in catalog.examples().items():
        pages[f"gallery/{name}.md"] = render("example.md", name=name, source=source)
    for name, each in algorithms.algorithms().items():
        text = render("algorithm.md", algorithm=each)
        pages[f"algorithms/{name}.md"] = text
        pages[f"notebooks/algorithms/{name}.ipynb"] = notebook(text, "python")
    for kind in algorithms.FACTS["families"]:
        pages[f"algorithms/kind_{kind}.md"] = render("kind.md", kind=kind)
    for path in (DOCS / "guide").glob("*.md"):
        pages[f"notebooks/guide/{path.stem}.ipynb"] = notebook(path.read_text("utf-8"))
    for topic in catalog.TOPICS:
        pages[f"api/{topic}.rst"] = render("topic.rst", topic=topic)
        for name in catalog.names(topic):
            pages[f"api/{topic}/{name}.rst"] = render("name.rst", name=name)
    for name in ("algorithms", "gallery", "names", "papers", "zoo"):
        pages[f"api/{name}.txt"] = render(f"{name}.md")
    for folder in ("algorithms", "api", "gallery", "notebooks"):
        for path in (DOCS / folder).rglob("*.*"):
            if path.relative_to(DOCS).as_posix() not in pages:
                path.unlink()
    for path, text in ((DOCS / page, text) for page, text in pages.items()):
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")


def render(template, **values):
    """Return a page by its template."""
    return TEMPLATES.get_template(template).render(**values)


def notebook(text, language="py"):
    """Return a page as a notebook: without directives, with outputs as comments.

    Blocks of code that the manual only shows are cells if `language` is `python`.
    """
    shown = r"^(`{3,})\{code-block\} python\n(?::.*\n)*\n*"
    text = re.sub(shown, rf"\1{language}\n", text, flags=re.M)
    text = re.sub(r"^(`{3,})\{(?:.|\n)*?^\1$\n*", "", text, flags=re.M)
    for code in re.findall(r"^>>> (?:.|\n)*?(?=^```$)", text, re.M):
        text = text.replace(code, doctest.script_from_examples(code))
    return jupytext.writes(jupytext.reads(text, "md"), "ipynb")


def concepts():
    """Return letters, and rows of names of papers and those of ours, in order."""

    def letters(row):
        return re.sub("[^A-Z]", "", row[0].upper())

    rows = sorted(catalog.CONCEPTS.items(), key=letters)
    return itertools.groupby(rows, lambda row: letters(row)[0])


def with_math(text):
    """Make equations of literal blocks, which editors show as they are written."""
    return re.sub(r"^( *)::$", r"\1.. math::", text, flags=re.M)


def _links(text):
    """Link the papers and the code that a docstring names, in Markdown."""
    titles = {paper.url: f", *{paper.title}*" for paper in catalog.papers()}
    name = r"(?:de )?[A-Z][^.;,]*(?: et al\.)?"
    form = rf"({name}, \d{{4}}), (https?://\S+?)(?=[.,;](?:\s|$))"
    text = re.sub(form, lambda x: f"[{x[1]}{titles.get(x[2], '')}]({x[2]})", text)
    form = r"github\.com/([\w.-]+/[\w.-]+)@(\w+), ([\w./-]+\w)"
    return re.sub(form, r"[\1, \3](https://github.com/\1/blob/\2/\3)", text)


TEMPLATES.globals |= vars(algorithms) | {
    "catalog": catalog,
    "concepts": concepts,
    "docstring": lambda source: ast.get_docstring(ast.parse(source)),
    "rlaxlib": rlaxlib,
    "with_math": with_math,
}
TEMPLATES.filters |= {
    "code": "`{}`".format,
    "code_of": lambda name, module: module[name].source,
    "links": _links,
    "main": "! {}".format,
    "ref": ":py:obj:`{0} <rlaxlib.{0}>`".format,
    "summary": lambda name: catalog.summary(catalog.docstring(name)),
}
