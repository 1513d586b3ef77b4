"""Write the parts of the manual that come from the code.

Before a build, `api/` is filled with a page for each topic, which is a table of its
functions, a page for each function, and lists that other pages include; `gallery/` with
a page for each example. Names of the library between single backticks become links.
"""

import doctest
import functools
import inspect
import itertools
import json
import re
import string
import textwrap
from pathlib import Path

import catalog
import equations
import jinja2
import jupytext
import latex2mathml.converter
from algorithms import FACTS, algorithms, training
from docutils import nodes
from sphinx import addnodes
from sphinx.util.inspect import stringify_signature

import rlaxlib

DOCS = Path(__file__).parents[1]
TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(DOCS / "_templates"), trim_blocks=True
)
TEMPLATES.globals["agents"] = FACTS["agents"]
RLAX = dict.fromkeys((DOCS / "_ext" / "rlax_names.txt").read_text("utf-8").split(), "✓")


# --- Pages of topics, functions and examples. ---


def write_pages(app):
    """Write pages of topics and functions into `api/`, of examples into `gallery/`."""
    pages = {f"gallery/{each}.md": example_page(each) for each in catalog.examples()}
    pages |= {
        f"algorithms/{x.name}.md": algorithm_page(x) for x in algorithms().values()
    }
    lists = {"papers": papers, "names": names, "gallery": gallery}
    lists |= {"algorithms": algorithms_table, "topics": topics_table}
    pages |= {f"api/{name}.txt": write() for name, write in lists.items()}
    for topic in catalog.TOPICS:
        pages[f"api/{topic}.rst"] = topic_page(topic)
        pages |= {f"api/{topic}/{n}.rst": name_page(n) for n in catalog.names(topic)}
    for path in (DOCS / "guide").glob("*.md"):
        pages[f"notebooks/guide/{path.stem}.ipynb"] = notebook(path.read_text("utf-8"))
    for name in algorithms():
        text = pages[f"algorithms/{name}.md"]
        pages[f"notebooks/algorithms/{name}.ipynb"] = notebook(text, "python")
    error = f".. index:: ! ArgumentError\n\n{_heading('ArgumentError', '=')}"
    pages["api/ArgumentError.rst"] = (
        f"{error}\n\n.. autoexception:: rlaxlib.ArgumentError\n"
    )
    for folder in ("algorithms", "api", "gallery", "notebooks"):
        for path in (DOCS / folder).rglob("*.*"):
            if path.relative_to(DOCS).as_posix() not in pages:
                path.unlink()
    for page, text in pages.items():
        (DOCS / page).parent.mkdir(parents=True, exist_ok=True)
        # Sphinx reads what is new since the last build.
        if not (DOCS / page).exists() or (DOCS / page).read_text("utf-8") != text:
            (DOCS / page).write_text(text, encoding="utf-8")


def topic_page(topic):
    """Return the page of a topic: its docstring, and a table for each chapter."""
    parts = [_heading(topic, "="), f".. module:: rlaxlib.{topic}"]
    parts += [".. currentmodule:: rlaxlib", inspect.getdoc(catalog.TOPICS[topic])]
    for chapter in catalog.chapters(topic):
        if chapter is not catalog.TOPICS[topic]:
            parts.append(_heading(catalog.summary(chapter.__doc__).rstrip("."), "-"))
        rows = [["Name", "Computes", "Returns", "rlax"]]
        for each in catalog.names_of(chapter):
            cells = _summary(each), catalog.returns(each), RLAX.get(each, "")
            rows.append([_link(each), *cells])
        parts.append(_table(rows, "functions", "31 39 22 8"))
        pages = "\n".join(f"   {topic}/{each}" for each in catalog.names_of(chapter))
        parts.append(f".. toctree::\n   :hidden:\n\n{pages}")
    return "\n\n".join(parts) + "\n"


def name_page(name):
    """Return the page of a function: docstring, uses, similar names, and keywords."""
    thing, topic = getattr(rlaxlib, name), catalog.NAMES[name]
    keywords = catalog.known_as().get(name, {})
    # Search shows what a main entry, with a "!", leads to before what the others do.
    entries = {name: True} | keywords
    index = "".join(f"   {'! ' * entries[each]}single: {each}\n" for each in entries)
    parts = [f".. index::\n{index}", _heading(name, "=")]
    parts.append(f"Topic: :doc:`{topic} </api/{topic}>`\n\n.. currentmodule:: rlaxlib")
    if inspect.isfunction(thing):
        parts.append(f".. autofunction:: rlaxlib.{name}\n   :no-index-entry:")
    elif inspect.isclass(thing):
        parts.append(
            f".. autoclass:: rlaxlib.{name}\n   :members:\n   :no-index-entry:"
        )
    else:
        text = textwrap.indent(_with_math(catalog.docstring(name)), "   ")
        parts.append(f".. py:data:: {name}\n\n{text}")
    uses = catalog.uses().get(name, {}).items()
    confused, near = catalog.similar(name)
    sections = {
        "Used in": [f"- {kind}: {', '.join(links)}" for kind, links in uses],
        "Not to be confused with": list(map(_item, confused)),
        "See also": list(map(_item, near)),
        "Known as": [", ".join(keywords)] if keywords else [],
    }
    for title, lines in sections.items():
        parts += [f".. rubric:: {title}", "\n".join(lines)] if lines else []
    return "\n\n".join(parts) + "\n"


def example_page(name):
    """Return the page of an example, in Markdown: docstring, curve and source."""
    # A list of functions, with what each computes.
    form = r"^    (rlaxlib\.\w+(?:, rlaxlib\.\w+)*)  +(.+)"
    text = catalog.docstring_of_example(name)
    text = re.sub(
        form, lambda x: f"- `{x[1].replace(', ', '`, `')}`: {x[2]}", text, flags=re.M
    )
    return TEMPLATES.get_template("example.md").render(
        name=name, title=FACTS["agents"].get(name, name), text=text
    )


def algorithm_page(algorithm):
    """Return the page of an algorithm, in Markdown."""
    names = re.findall(r"\brlaxlib\.(\w+)", algorithm.code)
    return TEMPLATES.get_template("algorithm.md").render(
        algorithm=algorithm,
        algorithms=algorithms(),
        names={name: _summary(name) for name in dict.fromkeys(names)},
        training=training(algorithm.name),
    )


def topics_table():
    """Return a table of the topics, in Markdown."""
    link = functools.partial(re.sub, r"(\w+)", r"[\1](api/\1.rst)")
    rows = [f"| {link(names)} | {contents} |" for names, contents in catalog.topics()]
    return "\n".join(["| Topic | Contents |", "|---|---|", *rows])


def _with_links(text):
    """Link the papers and the code that a docstring names, in Markdown."""

    def paper(match):
        authors, url, end = match.groups()
        title = titles.get(url)
        link = f"{authors}, [*{title}*]({url})" if title else f"[{authors}]({url})"
        return link + end

    titles = {paper.url: paper.title for paper in catalog.papers()}
    form = r"([A-Z][^.;,]*(?: et al\.)?, \d{4}), (https?://\S+?)([.,;](?:\s|$))"
    text = re.sub(form, paper, text)
    form = r"github\.com/([\w.-]+/[\w.-]+)@(\w+), ([\w./-]+\w)"
    return re.sub(form, r"[\1, \3](https://github.com/\1/blob/\2/\3)", text)


TEMPLATES.filters |= {"links": _with_links, "code": "`{}`".format}


def algorithms_table():
    """Return a table of all algorithms, in Markdown."""
    template = TEMPLATES.get_template("algorithms.md")
    return template.render(algorithms=algorithms().values())


def notebook(text, language="py"):
    """Return a page as a notebook: without directives, with outputs as comments.

    Blocks of code that the manual only shows are cells if `language` is `python`.
    """
    block = r"^(`{3,})\{code-block\} python\n(?::.*\n)*\n*"
    text = re.sub(block, rf"\1{language}\n", text, flags=re.M)
    text = re.sub(r"^(`{3,})\{(?:.|\n)*?^\1$\n*", "", text, flags=re.M)
    prompts = r"(?<=^```python\n)>>> (?:.|\n)*?(?=^```$)"
    text = re.sub(
        prompts, lambda x: doctest.script_from_examples(x[0]), text, flags=re.M
    )
    found = jupytext.reads(text, "md")
    found.nbformat_minor = 4  # The last without an id, which is random, for each cell.
    for cell in found.cells:
        cell.pop("id", None)
    return jupytext.writes(found, "ipynb")


def add_notebook(app, page, source):
    """Link to the notebook of a page."""
    if (DOCS / "notebooks" / f"{page}.ipynb").exists():
        source[0] += (
            f"\n\n{{download}}`This page as a notebook </notebooks/{page}.ipynb>`"
        )


def _item(name):
    return f"- {_link(name)}: {_summary(name)}"


def _summary(name):
    return catalog.summary(catalog.docstring(name))


# --- Lists: papers, names and examples. ---


def papers():
    """Return all papers, the newest first, with the functions that cite them."""
    found, parts = catalog.papers(), []
    dated = sorted(found, key=lambda paper: paper.year, reverse=True)
    for year, of_year in itertools.groupby(dated, key=lambda paper: paper.year):
        parts.append(f"## {year or 'Documentation'}\n")
        for paper in of_year:
            links = ", ".join(f"`{name}`" for name in dict.fromkeys(found[paper]))
            parts.append(f"- [{paper.title}]({paper.url}), {paper.authors}: {links}")
    return "\n".join(parts) + "\n"


def names():
    """Return tables of others' names by letter, a row for each set of ours."""
    groups = {}
    for library, alias, ours in catalog.aliases():
        text = f"`{alias}` ({library})" if library else alias
        groups.setdefault(tuple(ours), {})[text.replace("|", r"\|")] = None
    parts = []
    rows = sorted(
        groups.items(), key=lambda x: (_part(x) == "Others", _first_letters(x))
    )
    for letter, group in itertools.groupby(
        rows, key=lambda row: _first_letters(row)[0]
    ):
        parts += [f"## {letter.upper()}", "````{table}\n:class: names filter\n"]
        parts[-1] += "\n| Name | rlaxlib |\n|---|---|"
        for ours, texts in group:
            links = ", ".join(f"`{name}`" for name in ours)
            parts[-1] += f"\n| {', '.join(texts)} | {links} |"
        parts[-1] += "\n````"
    return "\n\n".join(parts)


def gallery():
    """Return a grid of cards: the first line and the learning curve of each example."""
    return TEMPLATES.get_template("gallery.md").render(
        examples={
            name: catalog.summary(catalog.docstring_of_example(name))
            for name in catalog.examples()
        },
    )


def _part(group):
    letter = _first_letters(group)[0].upper()
    return letter if letter in string.ascii_uppercase else "Others"


def _first_letters(group):
    return re.sub(r"[\W_]", "", next(iter(group[1]))).lower()


def _link(name):
    known = name in catalog.NAMES
    return f":py:obj:`{name} <rlaxlib.{name}>`" if known else f"``{name}``"


def _heading(text, line):
    return f"{text}\n{line * len(text)}"


def _table(rows, name, widths):
    lines = ["   * - " + "\n     - ".join(cells) for cells in rows]
    options = f"   :class: {name}\n   :header-rows: 1\n   :widths: {widths}\n"
    return "\n".join([".. list-table::", options, *lines])


# --- Links. ---


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
                reftarget=f"rlaxlib.{name}",
                refdoc=app.env.docname,
            )
            literal.replace_self(link)
            link += literal


def write_signature(app, what, name, thing, options, arguments, result):
    """Show annotations as they are written, `Float["T"]` for an array of floats."""
    if not inspect.isfunction(thing):
        return None
    signature = inspect.signature(thing)
    shown = [each for each in signature.parameters.values() if each.name != "self"]
    text = stringify_signature(signature.replace(parameters=shown))
    text = re.sub(r"\[Array(?:Like)?, ", "[", text)
    arguments, _, result = text.partition(") -> ")
    return f"{arguments.removesuffix(')')})", result


def prepare_docstring(app, what, name, thing, options, lines):
    """Print what a docstring leaves out or says in a plain way.

    These are the arguments that a variant takes from another function, equations, and
    `A tuple of two: ...`, which napoleon reads as a type.
    """
    if any(line.startswith("    Other arguments: as ") for line in lines):
        lines[:] = catalog.complete(thing).split("\n")
    text = re.sub(r"^Returns:\n +", ":returns: ", "\n".join(lines), flags=re.M)
    lines[:] = _with_math(text).split("\n")


def _with_math(text):
    """Make equations of literal blocks, which editors show as they are written."""
    return re.sub(r"^( *)::$", r"\1.. math::", text, flags=re.M)


# --- Equations. ---


def read_equations(app, doctree):
    """Convert the equations of docstrings, which are plain text, to LaTeX."""
    if app.env.docname.startswith("api/"):
        for node in doctree.findall(nodes.math):
            node.children = [nodes.Text(equations.to_inline_tex(node.astext()))]
        for node in doctree.findall(nodes.math_block):
            tex = equations.to_tex(node.astext())
            if app.builder.format == "latex":  # One equation a line.
                lines = re.sub(r"\n\n|\\qquad", r"\\\\ ", tex)
                tex = rf"\begin{{gather*}}{lines}\end{{gather*}}"
                node["no-wrap"] = node["nowrap"] = True  # Sphinx 8.2, and before.
            node.children = [nodes.Text(tex)]


def write_mathml(writer, node):
    """Write an equation as MathML, which browsers show without a script."""
    if isinstance(node, nodes.math):
        writer.body.append(_mathml(node.astext(), "inline"))
        raise nodes.SkipNode
    for line in node.astext().split("\n\n"):
        parts = re.split(r"\\qquad(?!.*\\end)", line, flags=re.S)
        body = "".join(_mathml(part, "block") for part in parts)
        writer.body.append(f'<div class="equations">{body}</div>')
    raise nodes.SkipNode


def _mathml(tex, display):
    text = latex2mathml.converter.convert(tex, display=display)
    # Room after `log`, if no parenthesis follows, and none after the sign of a number.
    text = re.sub(r"(<mi>\w{2,}</mi>)(?=<m[^o])", r'\1<mspace width="0.17em" />', text)
    signs = "&#x0(?:003D|0028|002C);</mo>"
    return re.sub(f"({signs}<mo)(>&#x02212;)", r'\1 form="prefix"\2', text)


# --- Pages as a browser shows them. ---


def keep_summary(app, doctree):
    """Keep the first sentence of a page, which the search shows below its title."""
    texts = (each.astext() for each in doctree.findall(nodes.paragraph))
    text = next((text for text in texts if not text.startswith("Topic: ")), "")
    sentence = re.match(r"(.*?[.:])(?: |$)|.*", " ".join(text.split()))[0]
    app.env.metadata[app.env.docname]["summary"] = sentence


def prepare(app, page, template, context, doctree):
    """Show the chapters of the current part only in the sidebar, and add summaries."""
    if tree := context.get("toctree"):
        context["toctree"] = lambda **options: tree(**options | {"collapse": True})
    if page == "search":
        summaries = {x: each.get("summary") for x, each in app.env.metadata.items()}
        app.add_js_file(None, body=f"const SUMMARIES = {json.dumps(summaries)};")


def finish(app, page, template, context, doctree):
    """Let names break at underscores, and load images when they are seen."""
    for part in {"body", "toc", "furo_navigation_tree"} & set(context):
        text = re.sub("_(?=[^<>]*<)", "_<wbr>", context[part])
        context[part] = text.replace("<img ", '<img loading="lazy" ')


def setup(app):
    """Register all of it."""
    renderer = (write_mathml, None)
    app.add_html_math_renderer("mathml", renderer, renderer)
    app.connect("builder-inited", write_pages)
    # Before napoleon, which reads the rest of the sections.
    app.connect("autodoc-process-signature", write_signature)
    app.connect("autodoc-process-docstring", prepare_docstring, priority=300)
    app.connect("source-read", add_notebook)
    app.connect("doctree-read", link_names)
    app.connect("doctree-read", read_equations)
    app.connect("doctree-read", keep_summary)
    app.connect("html-page-context", prepare, priority=100)
    app.connect("html-page-context", finish, priority=900)
    app.add_css_file("manual.css")
    app.add_js_file("manual.js", defer="defer")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
