"""Set mathematics when the pages are built, so that reading them takes no script.

KaTeX writes each equation as HTML and as MathML, the one for eyes and the other for
screen readers. It sets as TeX does, which none of what was tried beside it did on all
equations of this library: not MathML from latex2mathml, which browsers space each in
their way, nor SVG from ziamath. MathJax needs a script of 2 MB and seconds at each page
of a phone. Fonts and style are in `_static/katex`, so nothing comes over a network.

An equation that KaTeX cannot set is a warning, and with `-W` the build fails.
"""

import functools
import re
from pathlib import Path

import dukpy
import equations
from docutils import nodes
from sphinx.directives.patches import MathDirective
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxRole

VERSION = "0.19.1"  # As `npm pack katex@VERSION` gives it: script, style and fonts.
SCRIPT = Path(__file__).with_name("katex.min.js")
SET = "katex.renderToString(dukpy.tex, {displayMode: dukpy.display, strict: 'error'})"
WIDEST = 47  # Signs that a line on paper has room for.

logger = logging.getLogger(__name__)


@functools.cache
def interpreter():
    """Start JavaScript with KaTeX in it, which takes a moment."""
    started = dukpy.JSInterpreter()
    started.evaljs(f"{SCRIPT.read_text(encoding='utf-8')}; 0")
    return started


@functools.cache
def typeset(tex, display):
    """Return an equation in HTML; raise a JSRuntimeError if it is not one."""
    return interpreter().evaljs(SET, tex=tex, display=display)


def visit_math(writer, node):
    """Write an equation that stands in a line."""
    writer.body.append(f'<span class="math">{_html(node, node.astext())}</span>')
    raise nodes.SkipNode


def visit_displayed(writer, node):
    """Write equations that have lines of their own."""
    for row in rows(node.astext()):
        html = "".join(_html(node, tex, display=True) for tex in row)
        writer.body.append(f'<div class="math-display">{html}</div>')
    raise nodes.SkipNode


def rows(tex):
    r"""List the rows of a block, in which equations stand side by side if they fit.

    A blank line stands between rows, and `\qquad` between equations.
    """
    return [_pieces(part) for part in re.split(r"\n\s*\n", tex.strip())]


def _pieces(row):
    pieces = [""]
    for piece in row.split(r"\qquad"):
        if _is_open(pieces[-1]) or r"\\" in pieces[-1]:
            pieces[-1] += rf"\qquad{piece}"
        else:
            pieces.append(piece)
    return [_align(piece.strip()) for piece in pieces if piece.strip()]


class OneBelowAnother(SphinxPostTransform):
    """Put equations one below another on paper, if a line is too short for them."""

    default_priority = 400
    builders = ("latex",)

    def run(self):
        """Gather them in the middle; Sphinx would align blocks at their right."""
        for node in self.document.findall(nodes.math_block):
            lines = [line for row in rows(node.astext()) for line in _on_paper(row)]
            if len(lines) > 1:
                gathered = "\\\\[1ex]\n".join(lines)
                node[:] = [nodes.Text(rf"\begin{{gathered}}{gathered}\end{{gathered}}")]


def _on_paper(row):
    """Return a row as one line, or its equations as lines if they are too wide."""
    tex = r" \qquad ".join(row)
    signs = re.sub(r"\\(left|right|operatorname\*?|text|[, ])|[{}_^\s]", "", tex)
    wide = len(re.sub(r"\\[a-zA-Z]+", "x", signs)) > WIDEST
    return row if wide else [tex]


def _is_open(tex):
    """Tell whether a text ends within a group or an environment."""
    opened = re.findall(r"(?<!\\)\{|\\left\b|\\begin\b", tex)
    closed = re.findall(r"(?<!\\)\}|\\right\b|\\end\b", tex)
    return len(opened) > len(closed)


def _align(tex):
    r"""Align the lines of an equation, where it has some: they end in `\\`."""
    has_lines = r"\\" in tex and r"\begin" not in tex
    return rf"\begin{{aligned}}{tex}\end{{aligned}}" if has_lines else tex


def _html(node, tex, *, display=False):
    try:
        return typeset(tex, display)
    except dukpy.JSRuntimeError as error:
        logger.warning("Not an equation: %s: %s", tex, error, location=node)
        return ""


class Block(MathDirective):
    """The directive `math`, which holds plain text."""

    def run(self):
        """Return the equations."""
        try:
            self.content = [equations.to_tex("\n".join(self.content))]
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
    """Tell Sphinx: of plain text in docstrings, of LaTeX in Markdown, and of KaTeX."""
    app.add_directive("math", Block, override=True)
    app.add_role("math", Inline(), override=True)
    app.add_html_math_renderer("katex", (visit_math, None), (visit_displayed, None))
    app.add_css_file("katex/katex.min.css")
    app.add_post_transform(OneBelowAnother)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
