"""Set the manual on paper: what one page of LaTeX has to know, and a screen has not.

What must stay together does: a title and its table, a line that ends in a colon and the
code that it leads to. `paper.sty` has the commands.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

LINE = 88  # Signs that a line has room for, in a table.
WORD = r"[\s_./,:(]"  # Where a word of a cell may end.
LONGEST = 60  # Signs of a cell that count, when the width is shared.
LONG = 4  # Rows of a table that may go on over a page.
WHOLE = 12  # Lines of code, with those around it, that stay on a page.
CODE = nodes.literal_block, nodes.doctest_block
RAGGED = r"\begingroup\raggedright", r"\par\endgroup"
CURVE, FIGURE = "45%", 85  # Width of a learning curve, and percent of a figure's size.


class OnPaper(SphinxPostTransform):
    """A change that is made for LaTeX alone."""

    default_priority = 400
    builders = ("latex",)


class Unfolded(SphinxPostTransform):
    """Put the title of what is collapsed in HTML into what has no HTML."""

    default_priority = 400

    def run(self) -> None:
        """Replace `<details>` by the text of its summary."""
        if self.app.builder.format == "html":
            return
        for html in list(self.document.findall(nodes.raw)):
            if title := re.search(r"<summary>(.*?)</summary>", html.astext()):
                html.replace_self(nodes.rubric("", title[1]))


class Fitted(OnPaper):
    """Make the columns of a table as wide as what stands in them."""

    def run(self) -> None:
        """Share the width among columns, if their words leave no room on a line."""
        for table in self.document.findall(nodes.table):
            rows = list(table.findall(nodes.row))
            if len(rows) > LONG:
                table["classes"].append("longtable")
            by_row = [[_signs(cell) for cell in row.children] for row in rows]
            columns = list(zip(*by_row, strict=True))
            whole = [max(map(len, column)) + 2 for column in columns]
            words = [_longest_word(column) + 3 for column in columns]
            # Without widths, a cell has an equal part of the line at most.
            wide = max(whole) > LINE // len(whole)
            if wide or "colwidths-given" in table["classes"]:
                table["classes"].append("colwidths-given")
                widths = _shared([min(each, LONGEST) for each in whole], words)
                specs = table.findall(nodes.colspec)
                for spec, width in zip(specs, widths, strict=True):
                    spec["colwidth"] = width


def _signs(cell: nodes.Node) -> str:
    """Return the text of a cell, with a sign for each command of an equation."""
    return re.sub(r"\\[a-zA-Z]+", "x", cell.astext())


def _longest_word(column: tuple[str, ...]) -> int:
    return max(len(word) for cell in column for word in re.split(WORD, cell))


def _shared(whole: list[int], words: list[int]) -> list[int]:
    """Share a line: each has room for its longest word, and more if it wants more."""
    wanted = [max(0, most - least) for most, least in zip(whole, words, strict=True)]
    left = max(0, LINE - sum(words))
    share = min(1.0, left / max(1, sum(wanted)))
    pairs = zip(words, wanted, strict=True)
    return [round(least + share * more) for least, more in pairs]


class Placed(OnPaper):
    """Put figures, which stand alone in their lines, into the middle of the page."""

    def run(self) -> None:
        """Scale them to the text, and keep the line that leads to one with it."""
        for image in list(self.document.findall(nodes.image)):
            if "curves" in Path(image["uri"]).parts:
                image["width"] = CURVE
            else:
                image["scale"] = FIGURE
            line = image.parent
            if isinstance(line, nodes.paragraph) and len(line) == 1:
                image["align"] = "center"
                line.replace_self([_latex(r"\nobreak\medskip"), image])


class Together(OnPaper):
    """Keep on one page what belongs together."""

    default_priority = 450  # After all others.

    def run(self) -> None:
        """Ask for room before what leads to something, enough for the two."""
        for node, lines in list(self.leading()):
            first, above = _first(node)
            room = _latex(rf"\paperroom{{{lines + above}}}")
            first.parent.insert(first.parent.index(first), room)

    def leading(self) -> Iterator[tuple[nodes.Element, int]]:
        """Yield what needs room, and for how many lines."""
        for node in self.document.findall(lambda node: isinstance(node, CODE)):
            lines = node.astext().count("\n") + 3
            yield node, lines if lines <= WHOLE else 6
        for node in self.document.findall(nodes.paragraph):
            if len(node) == 1 and isinstance(node[0], nodes.strong):
                yield node, 6
        for node in self.document.findall(nodes.rubric):
            after = node.next_node(descend=False, siblings=True)
            if not isinstance(after, CODE):
                yield node, 10 if isinstance(after, nodes.table) else 5
        for node in self.document.findall(nodes.section):
            if any(isinstance(part, nodes.image) for part in node[:4]):
                yield node, 21


def _first(node: nodes.Element) -> tuple[nodes.Element, int]:
    """Return what leads to a node, or the node itself, and the lines that it takes."""
    above = 0
    while at := node.parent.index(node):
        before = node.parent[at - 1]
        if isinstance(before, nodes.rubric):
            node, above = before, above + 3
        elif isinstance(before, nodes.paragraph) and before.astext().endswith(":"):
            node, above = before, above + 1 + len(before.astext()) // LINE
        elif isinstance(before, nodes.title) and _is_section(node.parent):
            node, above = node.parent, above + 3
        else:
            break
    return node, above


def _is_section(node: nodes.Element) -> bool:
    """Tell whether a node is a section within a chapter."""
    return isinstance(node, nodes.section) and isinstance(node.parent, nodes.section)


class Ragged(OnPaper):
    """Leave lines as long as they are, where they are full of what breaks badly."""

    def run(self) -> None:
        """Set what is mostly code with a ragged edge, and references."""
        for title in list(self.document.findall(nodes.rubric)):
            if title.astext() == "References":
                title.replace_self([title, _latex(RAGGED[0])])
                title.parent.append(_latex(RAGGED[1]))
        for text in list(self.document.findall(nodes.paragraph)):
            code = sum(len(part.astext()) for part in text.findall(nodes.literal))
            if LINE < len(text.astext()) < 2 * code:
                text.replace_self([_latex(RAGGED[0]), text, _latex(RAGGED[1])])


class Unexplained(OnPaper):
    """Leave out what a screen tells of a sign of a signature, such as `*`."""

    def run(self) -> None:
        """Take the explanations away, which would stand in the signature."""
        for sign in self.document.findall(nodes.abbreviation):
            sign.attributes.pop("explanation", None)


def _latex(command: str) -> nodes.raw:
    return nodes.raw("", command, format="latex")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register all of it."""
    for transform in (Unfolded, Fitted, Placed, Ragged, Together, Unexplained):
        app.add_post_transform(transform)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
