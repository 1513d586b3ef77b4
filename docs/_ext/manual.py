"""Write the parts of the manual that come from the code.

Before a build, `api/` is filled with a page for each topic, which is a table of its
functions, and a page for each function. Three directives stand for Markdown or
reStructuredText: `papers`, `names` and `gallery`. Names of the library between single
backticks become links.
"""

import ast
import inspect
import itertools
import re
import shutil
import textwrap
from pathlib import Path

import catalog
import equations
from docutils import nodes
from sphinx import addnodes
from sphinx.directives.patches import MathDirective
from sphinx.util.docutils import SphinxDirective, SphinxRole

import rlaxlib

DOCS = Path(__file__).parents[1]
EXAMPLES = DOCS.parent / "examples"
RLAX = set((DOCS / "_ext" / "rlax_names.txt").read_text(encoding="utf-8").split())


# --- Pages of topics and of functions. ---


def write_pages(app):
    """Write the pages of all topics and all functions into `api/`."""
    folder = DOCS / "api"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    error = ".. autoexception:: rlaxlib.ArgumentError"
    (folder / "errors.rst").write_text(f"Errors\n======\n\n{error}\n")
    for topic in catalog.TOPICS:
        (folder / f"{topic}.rst").write_text(topic_page(topic), encoding="utf-8")
        (folder / topic).mkdir()
        for name in catalog.names(topic):
            page = folder / topic / f"{name}.rst"
            page.write_text(name_page(name), encoding="utf-8")


def topic_page(topic):
    """Return the page of a topic: its docstring, and a table for each chapter."""
    parts = [_heading(topic, "="), f".. automodule:: rlaxlib.{topic}"]
    for chapter in catalog.chapters(topic):
        if chapter is not catalog.TOPICS[topic]:
            parts.append(_heading(catalog.first_line(inspect.getdoc(chapter)), "-"))
        rows = [["Name", "", "Takes", "Returns", "rlax"]]
        rows += [_row(name) for name in catalog.names_of(chapter)]
        parts.append(_table(rows, ":class: functions", ":header-rows: 1"))
    pages = "\n".join(f"   {topic}/{name}" for name in catalog.names(topic))
    parts.append(f".. toctree::\n   :hidden:\n\n{pages}")
    return "\n\n".join(parts) + "\n"


def name_page(name):
    """Return the page of one function, with index entries that search finds."""
    thing, address = getattr(rlaxlib, name), catalog.NAMES[name]
    known_as = catalog.known_as().get(name, [])
    entries = "".join(f"   ! single: {each}\n" for each in known_as)
    parts = [f".. index::\n{entries}"] if entries else []
    parts.append(_heading(name, "="))
    if inspect.isfunction(thing):
        parts.append(f".. autofunction:: {address}")
    elif inspect.isclass(thing):
        parts.append(f".. autoclass:: {address}\n   :members:")
    else:
        text = textwrap.indent(catalog.docstring(name), "   ")
        module = address.rpartition(".")[0]
        parts.append(f".. py:data:: {name}\n   :module: {module}\n\n{text}")
    if known_as:
        parts.append(f"Keywords: {', '.join(known_as)}.")
    return "\n\n".join(parts) + "\n"


def _row(name):
    """Return the row of a function in the table of its topic."""
    takes, returns = catalog.shapes(name)
    in_rlax = "✓" if name in RLAX else ""
    return [_link(name), catalog.summary(name), takes, returns, in_rlax]


# --- Directives. ---


class Papers(SphinxDirective):
    """All papers, year by year, with the functions that cite them."""

    def run(self):
        """Return a list for each year."""
        papers, parts = catalog.papers(), []
        dated = sorted(papers, key=lambda paper: (not paper.year, paper))
        for year, of_year in itertools.groupby(dated, key=lambda paper: paper.year):
            parts.append(_heading(year or "Documentation", "-"))
            for paper in of_year:
                links = ", ".join(map(_link, dict.fromkeys(papers[paper])))
                title = paper.title.replace(r"\*", "*")
                parts.append(f"- `{title} <{paper.url}>`__, {paper.authors}: {links}")
        text = "\n\n".join(parts)
        return self.parse_text_to_nodes(text, allow_section_headings=True)


class Names(SphinxDirective):
    """The names of others, and the functions that they lead to."""

    def run(self):
        """Return a table."""
        rows = [
            [alias, library, ", ".join(map(_link, names))]
            for library, alias, names in sorted(
                catalog.aliases(), key=lambda row: row[1].lower()
            )
        ]
        table = _table([["Name", "Of", "Here"], *rows], ":header-rows: 1")
        return self.parse_text_to_nodes(table)


class Gallery(SphinxDirective):
    """All examples: docstring, learning curve and source."""

    def run(self):
        """Return a section for each example."""
        text = "\n\n".join(example(path) for path in sorted(EXAMPLES.glob("[a-z]*.py")))
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def example(path):
    """Return the section of an example, in Markdown."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    parts = [f"## {path.stem}", docstring]
    if (path.parent / "curves" / f"{path.stem}.png").exists():
        parts.append(f"![Learning curves](../examples/curves/{path.stem}.png)")
    parts.append(
        f"````{{dropdown}} examples/{path.name}\n"
        f"```{{literalinclude}} ../examples/{path.name}\n```\n````"
    )
    return "\n\n".join(parts)


def _link(name):
    return f":py:obj:`{name} <{catalog.NAMES[name]}>`"


def _heading(text, line):
    return f"{text}\n{line * len(text)}"


def _table(rows, *options):
    lines = ["   * - " + "\n     - ".join(cells) for cells in rows]
    indented = [f"   {option}" for option in options]
    return "\n".join([".. list-table::", *indented, "", *lines])


# --- Links. ---


def add_short_address(app, doctree):
    """Let `rlaxlib.vtrace` lead to where `rlaxlib.returns.vtrace` does."""
    objects = app.env.domains["py"].objects
    for signature in doctree.findall(addnodes.desc_signature):
        for full in signature["ids"]:
            name = full.rpartition(".")[2]
            if catalog.NAMES.get(name) == full and full in objects:
                objects[f"rlaxlib.{name}"] = objects[full]._replace(aliased=True)


def find(app, env, node, content):
    """Resolve a public name from the pages of other topics."""
    name = node.get("reftarget", "").removeprefix("rlaxlib.").partition(".")[0]
    targets = catalog.NAMES | {"ArgumentError": "rlaxlib.ArgumentError"}
    if node.get("refdomain") != "py" or name not in targets:
        return None
    domain, target = env.domains["py"], targets[name]
    return domain.resolve_xref(
        env, node["refdoc"], app.builder, "obj", target, node, content
    )


def link_names(app, doctree):
    """Make links of public names between backticks in Markdown pages."""
    if Path(app.env.doc2path(app.env.docname)).suffix != ".md":
        return
    for literal in list(doctree.findall(nodes.literal)):
        text = literal.astext().removeprefix("rlaxlib.")
        name = re.split(r"[.(]", text)[0] if text.partition(".")[0] else ""
        name = text.partition(".")[2] if name in catalog.TOPICS else name
        inside = isinstance(literal.parent, nodes.reference | addnodes.pending_xref)
        if name in catalog.NAMES and not inside:
            link = addnodes.pending_xref(
                refdomain="py",
                reftype="obj",
                reftarget=catalog.NAMES[name],
                refdoc=app.env.docname,
            )
            literal.replace_self(link)
            link += literal


def keep_returns_whole(app, what, name, thing, options, lines):
    """Keep `A tuple of two: ...` in one piece, which napoleon reads as a type."""
    if "Returns:" in lines:
        start = lines.index("Returns:")
        ends = (i for i in range(start + 1, len(lines)) if lines[i][:1].strip())
        end = next(ends, len(lines))
        first, *rest = lines[start + 1 : end]
        lines[start:end] = [f":returns: {first.strip()}", *rest, ""]


# --- Equations. ---


class Block(MathDirective):
    """The directive `math`, which holds plain text."""

    def run(self):
        """Return the equations, one below another."""
        text = "\n".join([*self.arguments, *self.content])
        self.arguments = []
        try:
            self.content = [equations.to_tex(text)]
        except ValueError as error:
            raise self.error(str(error)) from error
        return super().run()


class Inline(SphinxRole):
    """The role `math`, which holds plain text."""

    def run(self):
        """Return the equation."""
        try:
            return [nodes.math(self.rawtext, equations.to_inline_tex(self.text))], []
        except ValueError as error:
            return [], [self.inliner.reporter.error(str(error), line=self.lineno)]


def setup(app):
    """Register all of it."""
    app.add_directive("math", Block, override=True)
    app.add_role("math", Inline(), override=True)
    app.add_directive("papers", Papers)
    app.add_directive("names", Names)
    app.add_directive("gallery", Gallery)
    app.connect("builder-inited", write_pages)
    # Before napoleon, which reads the rest of the sections.
    app.connect("autodoc-process-docstring", keep_returns_whole, priority=400)
    app.connect("doctree-read", add_short_address)
    app.connect("doctree-read", link_names)
    app.connect("missing-reference", find)
    app.add_css_file("manual.css")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
