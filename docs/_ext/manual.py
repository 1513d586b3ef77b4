"""What the manual adds to Sphinx: pages from the code, links, equations, summaries."""

import inspect
import json
import re
from pathlib import Path

import catalog
import equations
import pages
from docutils import nodes
from math_core import LatexToMathML
from sphinx import addnodes
from sphinx.util.inspect import stringify_signature

# --- Links. ---


def add_notebook(app, page, source):
    """Link to the notebook of a page."""
    if re.match(r"guide/|algorithms/(?!kind_)", page):
        file = f"/notebooks/{page}.ipynb"
        source[0] += f"\n\n{{download}}`This page as a notebook <{file}>`"


def link_names(app, doctree):
    """Link public names between backticks in Markdown, and topics on the front page."""
    page = app.env.docname
    if Path(app.env.doc2path(page)).suffix != ".md":
        return
    form = rf"(?:rlaxlib\.)?(?:(?:{'|'.join(catalog.TOPICS)})\.)?(\w+)"
    known = catalog.NAMES | (catalog.TOPICS if page == "index" else {})
    for literal in list(doctree.findall(nodes.literal)):
        match = re.match(form, literal.astext())
        inside = isinstance(literal.parent, nodes.reference | addnodes.pending_xref)
        if match and match[1] in known and not inside:
            target = {"reftype": "obj", "reftarget": f"rlaxlib.{match[1]}"}
            link = addnodes.pending_xref(refdomain="py", refdoc=page, **target)
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
    text = catalog.complete(thing) if inspect.isfunction(thing) else "\n".join(lines)
    text = re.sub(r"^Returns:\n +", ":returns: ", text, flags=re.M)
    lines[:] = pages.with_math(text).split("\n")


def widen_columns(app, doctree):
    """Give the columns of a table equal widths on paper, where they hold names.

    Longer tables go on at the next page.
    """
    for table in doctree.findall(nodes.table) if app.builder.format == "latex" else ():
        if len(list(table.findall(nodes.colspec))) <= 4:
            table["classes"].append("colwidths-given")
        if len(list(table.findall(nodes.row))) > 12:
            table["classes"].append("longtable")


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
    block = isinstance(node, nodes.math_block)
    convert = LatexToMathML(fancy_error=False).convert_with_local_state
    for line in node.astext().split("\n\n"):
        parts = re.split(r"\\qquad(?!.*\\end)", line, flags=re.S)
        body = "".join(convert(part, displaystyle=block) for part in parts)
        writer.body.append(f'<div class="equations">{body}</div>' if block else body)
    raise nodes.SkipNode


# --- Pages as a browser shows them. ---


def keep_summary(app, doctree):
    """Keep the first sentence of a page, for the search and `llms.txt`."""
    texts = (each.astext() for each in doctree.findall(nodes.paragraph))
    text = next((text for text in texts if not text.startswith("Topic: ")), "")
    sentence = re.match(r".*?(?<!\bDr)\.(?= |$)|.*", " ".join(text.split()))[0]
    app.env.metadata[app.env.docname]["summary"] = summary = sentence.rstrip(":")
    doctree.insert(0, nodes.meta(name="description", content=summary))


def prepare(app, page, template, context, doctree):
    """Show the chapters of the current part only in the sidebar, and add summaries."""
    if tree := context.get("toctree"):
        context["toctree"] = lambda **options: tree(**options | {"collapse": True})
    if page == "search":
        summaries = {x: each.get("summary") for x, each in app.env.metadata.items()}
        app.add_js_file(None, body=f"const SUMMARIES = {json.dumps(summaries)};")


def break_names(app, page, template, context, doctree):
    """Let long names break at underscores."""
    for part in {"body", "toc", "furo_navigation_tree"} & set(context):
        context[part] = re.sub(
            r"\w{12,}(?=[^<>]*<)", lambda x: x[0].replace("_", "_<wbr>"), context[part]
        )


def setup(app):
    """Register all of it."""
    renderer = (write_mathml, None)
    app.add_html_math_renderer("mathml", renderer, renderer)
    app.connect("builder-inited", pages.write)
    # Before napoleon, which reads the rest of the sections.
    app.connect("autodoc-process-signature", write_signature)
    app.connect("autodoc-process-docstring", prepare_docstring, priority=300)
    app.connect("source-read", add_notebook)
    app.connect("doctree-read", link_names)
    app.connect("doctree-read", widen_columns)
    app.connect("doctree-read", read_equations)
    app.connect("doctree-read", keep_summary)
    app.connect("html-page-context", prepare, priority=100)
    app.connect("html-page-context", break_names, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
