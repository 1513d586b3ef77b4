"""Check that a search of the manual for an algorithm leads to its functions first.

    python docs/_ext/search.py docs/_build

Sphinx ranks an exact match of a main index entry at 100, and titles at 15, so the first
results of a search for a keyword of `aliases.toml` are the pages of its functions.
"""

import json
import sys
from pathlib import Path

import catalog


def check(folder):
    """Return what is wrong with the search index of a built manual."""
    text = (Path(folder) / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    problems, expected = [], {}
    for name, keywords in catalog.known_as().items():
        page = catalog.NAMES[name].removeprefix("rlaxlib.").replace(".", "/")
        for keyword in keywords:
            expected.setdefault(keyword.lower(), set()).add(f"api/{page}")
    for keyword, pages in expected.items():
        entries = index["indexentries"].get(keyword, [])
        found = {index["docnames"][page] for page, _, is_main in entries if is_main}
        if found != pages:
            problems.append(f"{keyword}: {sorted(found)} is not {sorted(pages)}")
    return problems


if __name__ == "__main__":
    sys.exit("\n".join(check(sys.argv[1])) or 0)
