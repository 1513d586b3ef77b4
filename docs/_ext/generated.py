"""Tell Sphinx of what pages take from the code: links to names, and whole sections.

The role `ours` makes a link of a name of the library. Each directive below stands for
Markdown, which is read as if it stood in the page.
"""

from collections.abc import Callable

import gallery
import library
from docutils import nodes
from docutils.parsers.rst.states import Inliner
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

DIRECTIVES: dict[str, Callable[[], str]] = {
    "differences-by-topic": library.differences_by_topic,
    "differences-of-all": library.differences_of_all,
    "gallery": gallery.gallery,
    "new-names": library.new_names,
    "new-options": library.new_options,
}


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


def setup(app: Sphinx) -> dict[str, bool]:
    """Register all of it."""
    app.add_role("ours", ours)
    for name in DIRECTIVES:
        app.add_directive(name, Generated)
    return {"parallel_read_safe": True}
