"""Write what the manual has from the code: pages of topics, papers, and names.

    .. topic-page:: values one_step
                               All that a topic has, by chapters, with tables on top;
                               chapters that are named come first.
    .. papers::                Every paper, and what is made from it.
    .. names::                 Our names, and those by which others know them.

What is written `rlaxlib.vtrace`, or `vtrace`, in the manual becomes a link, and both
addresses of a name lead to it. At the end, it looks for what a page would have to fetch
from the network.
"""

import inspect
import itertools
import re
import textwrap
from pathlib import Path

import catalog
from docutils import nodes
from sphinx import addnodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

import rlaxlib

logger = logging.getLogger(__name__)


# --- Pages. ---


class Written(SphinxDirective):
    """A directive that writes reStructuredText, and has it read in its place."""

    def run(self):
        """Return the nodes of what is written."""
        text = "\n\n".join(self.write())
        return self.parse_text_to_nodes(text, allow_section_headings=True)


class TopicPage(Written):
    """Write all of a topic."""

    required_arguments = 1
    optional_arguments = 100

    def write(self):
        """Yield the parts: what it is, the tables, and then name by name."""
        topic, *first = self.arguments
        module, chapters = catalog.TOPICS[topic], catalog.chapters(topic)
        for name in reversed(first):
            chapter = getattr(module, f"_{name}")
            chapters.remove(chapter)
            chapters.insert(0, chapter)
        yield f".. automodule:: {module.__name__}"
        for chapter in chapters:
            rows = [
                [_link(name), catalog.summary(name)] for name in catalog.names(chapter)
            ]
            caption = "" if chapter is module else _title(chapter)
            yield _table(rows, caption, ":class: summary", ":widths: 50 50")
        for chapter in chapters:
            if chapter is not module:
                yield _heading(_title(chapter))
                yield inspect.getdoc(chapter).partition("\n\n")[2]
            for name in catalog.names(chapter):
                yield _entry(name)


class Papers(Written):
    """Write what the library is made from, year by year."""

    def write(self):
        """Yield a list for each year, and at the end one for what has none."""
        papers = catalog.papers()
        yield _latex(r"\setcounter{secnumdepth}{-1}", 0)
        dated = sorted(papers, key=lambda paper: (not paper.year, paper))
        for year, of_year in itertools.groupby(dated, key=lambda paper: paper.year):
            yield _heading(year or "Documentation")
            for paper in of_year:
                links = ", ".join(map(_link, dict.fromkeys(papers[paper])))
                title = re.sub(r"\\\*", "*", paper.title)
                yield f"- `{title} <{paper.url}>`__, {paper.authors}: {links}"
        yield _latex(r"\setcounter{secnumdepth}{2}", 1)


class Names(Written):
    """Write a table of names that lead to ours, and a box to search it."""

    def write(self):
        """Yield the box, which a script makes work, and the table."""
        yield (
            ".. raw:: html\n\n"
            '   <input id="names-search" type="search" autocomplete="off"\n'
            '    placeholder="GAE, C51, qlearning …" aria-label="Search for a name">'
        )
        theirs = [
            [alias if where == "common" else f"``{alias}``", where, names]
            for where, alias, names in catalog.aliases()
        ]
        rows = [
            [alias, "" if where == "common" else where, ", ".join(map(_link, names))]
            for alias, where, names in theirs
        ]
        rows += [
            [_link(name), "rlaxlib", catalog.summary(name)] for name in catalog.NAMES
        ]
        rows.sort(key=lambda row: re.sub(r":py:obj:|`", "", row[0]).lower())
        options = ":class: names", ":header-rows: 1", ":widths: 45 10 45"
        yield _table([["Name", "Of", "Here"], *rows], "", *options)


def _link(name):
    """Return a link to a public name."""
    return f":py:obj:`{name} <{catalog.NAMES[name]}>`"


def _latex(command, depth):
    """Return a command for paper, and how deep the contents go from here on."""
    contents = rf"\addtocontents{{toc}}{{\protect\setcounter{{tocdepth}}{{{depth}}}}}"
    return f".. raw:: latex\n\n   {contents}{command}"


def _heading(text):
    return f"{text}\n{'-' * len(text)}"


def _table(rows, caption, *options):
    """Return a table whose cells are lines."""
    lines = ["   * - " + "\n     - ".join(cells) for cells in rows]
    indented = [f"   {option}" for option in options]
    return "\n".join([f".. list-table:: {caption}", *indented, "", *lines])


def _title(chapter):
    """Return the first sentence of a chapter's docstring."""
    return " ".join(inspect.getdoc(chapter).partition("\n\n")[0].split()).rstrip(".")


def _entry(name):
    """Return the directive that documents a name."""
    thing, address = getattr(rlaxlib, name), catalog.NAMES[name]
    if inspect.isfunction(thing):
        return f".. autofunction:: {address}"
    if inspect.isclass(thing):
        return f".. autoclass:: {address}\n   :members:"
    text = textwrap.indent(catalog.docstring(name), "   ")
    module = address.rpartition(".")[0]
    return f".. py:data:: {name}\n   :module: {module}\n\n{text}"


def keep_returns_whole(app, what, name, thing, options, lines):
    """Keep what is returned in one piece: in `A tuple of two: ...` stands no type."""
    if "Returns:" in lines:
        start = lines.index("Returns:")
        ends = (i for i in range(start + 1, len(lines)) if lines[i][:1].strip())
        end = next(ends, len(lines))
        first, *rest = lines[start + 1 : end]
        lines[start:end] = [f":returns: {first.strip()}", *rest, ""]


# --- Links. ---


def give_both_addresses(app, doctree):
    """Let `rlaxlib.vtrace` lead to where `rlaxlib.returns.vtrace` does."""
    objects = app.env.domains["py"].objects
    for signature in doctree.findall(addnodes.desc_signature):
        for name in [each.rpartition(".")[2] for each in signature["ids"]]:
            full, short = catalog.NAMES.get(name), f"rlaxlib.{name}"
            if full in signature["ids"]:
                signature["ids"].append(short)
                objects[short] = objects[full]._replace(node_id=short)


def find(app, env, node, content):
    """Find a public name that is not of the topic in which it is named."""
    name = node.get("reftarget", "").removeprefix("rlaxlib.")
    if node.get("refdomain") != "py" or name not in catalog.NAMES:
        return None
    domain, target = env.domains["py"], catalog.NAMES[name]
    return domain.resolve_xref(
        env, node["refdoc"], app.builder, "obj", target, node, content
    )


def link_names(app, doctree):
    """Make links of public names that stand in a Markdown page as code."""
    if Path(app.env.doc2path(app.env.docname)).suffix != ".md":
        return
    for literal in list(doctree.findall(nodes.literal)):
        name = literal.astext().removeprefix("rlaxlib.").rpartition(".")[2]
        full = catalog.NAMES.get(name, "")
        known = {name, f"rlaxlib.{name}", full}
        inside = isinstance(literal.parent, (nodes.reference, addnodes.pending_xref))
        if full and literal.astext() in known and not inside:
            link = addnodes.pending_xref(
                refdomain="py", reftype="obj", reftarget=full, refdoc=app.env.docname
            )
            literal.replace_self(link)
            link += literal


def let_names_break(app, page, template, context, doctree):
    """Let a name go on, after a `_` say, on a new line: on a phone, or in a table.

    The style sheet knows a place where only a phone may do so by its class.
    """

    def mark(text, places):
        ends = r"(?<=[_.(,])(?=\w)|(?<=[a-z])(?=[A-Z])"
        names = r'(?<=<span class="pre">)[^<]+'
        return re.sub(names, lambda name: re.sub(ends, places(name[0]), name[0]), text)

    def in_table(name):
        return "<wbr>" if len(name) > 20 else '<wbr class="phone">'

    def in_text(name):
        return '<wbr class="phone">' if len(name) > 20 else ""

    if "body" in context:
        parts = re.split(r"(<td\b.*?</td>)", context["body"], flags=re.DOTALL)
        parts[::2] = [mark(part, in_text) for part in parts[::2]]
        parts[1::2] = [mark(part, in_table) for part in parts[1::2]]
        context["body"] = "".join(parts)


# --- What must not be. ---


def look_for_the_network(app, exception):
    """Warn of scripts, styles and pictures that are not among the files."""
    fetched = r"<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=\"(?:https?:)?//[^>]*>"
    if exception is None and app.builder.format == "html":
        for page in Path(app.outdir).rglob("*.html"):
            for found in re.findall(fetched, page.read_text(encoding="utf-8")):
                logger.warning("%s needs the network: %s", page.name, found)


def setup(app):
    """Tell Sphinx."""
    app.add_directive("topic-page", TopicPage)
    app.add_directive("papers", Papers)
    app.add_directive("names", Names)
    # Before napoleon, which reads the rest of the sections.
    app.connect("autodoc-process-docstring", keep_returns_whole, priority=400)
    app.connect("doctree-read", give_both_addresses)
    app.connect("doctree-read", link_names)
    app.connect("missing-reference", find)
    app.connect("html-page-context", let_names_break)
    app.connect("build-finished", look_for_the_network)
    app.add_css_file("manual.css")
    app.add_js_file("names.js", loading_method="defer")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
