"""Tell Sphinx of what pages take from the code: links to names, and whole sections.

The role `ours` makes a link of a name of the library. Each directive below stands for
Markdown, which is read as if it stood in the page. What a page of the site shows on a
click, on paper is shown at once, below its title.
"""

import re
from collections.abc import Callable

import benchmark_tables
import gallery
import library
from docutils import nodes
from docutils.parsers.rst.states import Inliner
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective

DIRECTIVES: dict[str, Callable[[], str]] = {
    "benchmark-tables": benchmark_tables.devices,
    "differences-by-topic": library.differences_by_topic,
    "differences-of-all": library.differences_of_all,
    "gallery": gallery.gallery,
    "new-names": library.new_names,
    "new-options": library.new_options,
}

LINE, LONGEST = 50, 60  # Signs: for which there is room on paper, that count of a cell.


class Generated(SphinxDirective):
    """A directive that stands for Markdown."""

    def run(self) -> list[nodes.Node]:
        """Return the nodes of the Markdown, its headings among them."""
        text = DIRECTIVES[self.name]()
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def ours(
    role: str, rawtext: str, text: str, lineno: int, inliner: Inliner, *_: object
) -> tuple[list[nodes.Node], list[nodes.system_message]]:
    """Make a link of a name of the library."""
    try:
        target = library.address(text)
    except KeyError:
        message = f"The library has no name {text!r}."
        return [], [inliner.reporter.error(message, line=lineno)]
    where = {"refdomain": "py", "reftype": "obj", "refwarn": True}
    link = addnodes.pending_xref("", reftarget=target, **where)
    link += nodes.literal("", text, classes=["xref", "py", "py-obj"])
    return [link], []


class Unfolded(SphinxPostTransform):
    """Put the title of what is collapsed in HTML into what has no HTML."""

    default_priority = 400

    def run(self) -> None:
        """Replace `<details>` by the text of its summary."""
        if self.app.builder.format == "html":
            return
        for html in list(self.document.findall(nodes.raw)):
            if title := re.search(r"<summary>(.*?)</summary>", html.astext()):
                strong = nodes.strong("", title[1])
                html.replace_self(nodes.paragraph("", "", strong))


class Fitted(SphinxPostTransform):
    """Make the columns of a table on paper as wide as what stands in them."""

    default_priority = 400
    builders = ("latex",)

    def run(self) -> None:
        """Share the width among columns, if their words leave no room on a line."""
        for table in self.document.findall(nodes.table):
            if "colwidths-given" in table["classes"]:
                continue
            rows = [
                [min(len(cell.astext()), LONGEST) for cell in row.children]
                for row in table.findall(nodes.row)
            ]
            widths = [max(column) + 2 for column in zip(*rows, strict=True)]
            if sum(widths) > LINE:
                table["classes"].append("colwidths-given")
                for column, width in zip(
                    table.findall(nodes.colspec), widths, strict=True
                ):
                    column["colwidth"] = width


def setup(app: Sphinx) -> dict[str, bool]:
    """Register all of it."""
    app.add_role("ours", ours)
    for name in DIRECTIVES:
        app.add_directive(name, Generated)
    app.add_post_transform(Unfolded)
    app.add_post_transform(Fitted)
    return {"parallel_read_safe": True}
