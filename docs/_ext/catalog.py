"""What the manual tells of the library, read from its code: names, uses and papers.

It needs nothing but the library, so that the tests read it too.
"""

import ast
import functools
import inspect
import itertools
import re
from typing import NamedTuple

from algorithms import DOCS, EXAMPLES, FACTS, algorithms

import rlaxlib
from rlaxlib._core import suggestions

TOPICS = {
    name: topic
    for name in rlaxlib.__all__
    if inspect.ismodule(topic := getattr(rlaxlib, name))
}
# Every public name that belongs to a topic, and the topic.
NAMES = {name: topic for topic, module in TOPICS.items() for name in module.__all__}
# Names by which papers know them.
CONCEPTS = suggestions.tables()["concepts"]
RLAX = (DOCS / "_ext" / "rlax_names.txt").read_text("utf-8").split()


class Paper(NamedTuple):
    """A paper, or another source that a function is made from."""

    year: str  # Empty if it is kept up to date, as documentation is.
    authors: str
    title: str
    url: str


def docstring(name):
    """Return the docstring of a public name, or what stands below it if it is data."""
    thing = getattr(rlaxlib, name)
    if callable(thing):
        return inspect.getdoc(thing) or ""
    form = rf'^{name} = (?:.*\n)(?:[ )].*\n)*r?"""((?:.|\n)*?)"""'
    sources = map(inspect.getsource, chapters(NAMES[name]))
    return re.search(form, "".join(sources), re.M)[1]


def complete(thing):
    """Return a docstring with the entries of all arguments.

    Those of a variant end with a line such as "Other arguments: as `vtrace`.": entries
    that the docstring lacks are those of that function.
    """
    text = inspect.getdoc(thing) or ""
    base = re.search(r"^    Other arguments: as `(\w+)`\.\n", text, re.M)
    if not base:
        return text
    known = entries(complete(getattr(rlaxlib, base[1]))) | entries(text)
    arguments = "".join(known[each] for each in inspect.signature(thing).parameters)
    head, rest = text.partition("Args:\n")[0], text.partition(base[0])[2]
    return f"{head}Args:\n{arguments}{rest}"


def entries(text):
    """Return the entries of the arguments of a docstring, by their names."""
    section = re.search(r"^Args:\n((?:    .*\n)*)", text, re.M)
    entry = r"^(    \**(\w+): .*\n(?:        .*\n)*)"
    return {name: each for each, name in re.findall(entry, section[1], re.M)}


def chapters(topic):
    """List the modules of a topic, the most used first; itself if it is one file."""
    modules = filter(inspect.ismodule, vars(TOPICS[topic]).values())
    within = [x for x in modules if x.__name__.startswith(f"rlaxlib.{topic}._")]
    private = [x for x in within if getattr(x, "__all__", [])] or [TOPICS[topic]]
    return sorted(private, key=lambda each: -sum(map(_count, each.__all__)))


def _count(name):
    return sum(map(len, uses().get(name, {}).values()))


def names_of(module):
    """List the public names of a module: functions, the most used first, then types."""
    ranked = sorted(module.__all__, key=_count, reverse=True)
    return sorted(ranked, key=lambda name: inspect.isclass(getattr(rlaxlib, name)))


def names(topic):
    """List the public names of a topic, chapter by chapter."""
    return [name for chapter in chapters(topic) for name in names_of(chapter)]


def summary(text):
    """Return the first paragraph of a docstring, on one line."""
    return " ".join(text.partition("\n\n")[0].split())


def returns(name):
    """Return what a function returns, as its second paragraph says, without shapes."""
    found = re.search(r"^Takes .*?returns (.+?)\.\n\n", docstring(name), re.M | re.S)
    text = " ".join(found[1].split()) if found else ""
    text = re.sub("^(one|an?|the|its) (?!for )", "", text)
    return (text[:1].upper() + text[1:]).replace(" for each ", " per ")


class Example(NamedTuple):
    """A whole agent in one file."""

    group: str  # Of the gallery.
    environment: str
    source: str

    @property
    def lines(self):
        """Return the number of lines."""
        return self.source.count("\n")

    @property
    def seconds(self):
        """Return the duration of a run on two cores, as its docstring says."""
        found = re.search(r"(?:about|than) ([\w-]+ (?:seconds|minutes?))\b", self.text)
        return {"a minute": "60 seconds", "three minutes": "180 seconds"}.get(
            found[1], found[1]
        )

    @property
    def text(self):
        """Return the docstring, its words apart by single spaces."""
        return " ".join(ast.get_docstring(ast.parse(self.source)).split())


def gallery():
    """Return the examples by group and name, in the order of the gallery."""
    return {
        group: {
            name: Example(group, each, (EXAMPLES / f"{name}.py").read_text("utf-8"))
            for name, each in members.items()
        }
        for group, members in FACTS["gallery"].items()
    }


def examples():
    """Return the source of each example, by its name, in the order of the gallery."""
    return {
        name: each.source
        for members in gallery().values()
        for name, each in members.items()
    }


# --- Uses, and names of others. ---


@functools.cache
def uses():
    """Return the algorithms, examples and pages that use each name, as links."""
    code, found = {}, {}
    for name, each in algorithms().items():
        title = each.facts["title"].partition(":")[0]
        code["Algorithms", f"{title} </algorithms/{name}>"] = each.code
    for name, source in examples().items():
        code["Examples", f"{name} </gallery/{name}>"] = source
    for path in [DOCS / "start.md", *sorted((DOCS / "guide").glob("*.md"))]:
        blocks = re.findall("^ *```.*?^ *```", path.read_text("utf-8"), re.M | re.S)
        page = path.relative_to(DOCS).with_suffix("").as_posix()
        code["Guide", f"/{page}"] = "".join(blocks)
    for (kind, page), text in code.items():
        for name in dict.fromkeys(re.findall(r"\brlaxlib\.(?:[a-z]+\.)?(\w+)", text)):
            links = found.setdefault(name, {}).setdefault(kind, [])
            links.append(f":doc:`{page}`")
    return found


def similar(name):
    """List the names that a name is easily taken for."""
    groups = map(str.split, (DOCS / "_ext/similar.txt").read_text("utf-8").splitlines())
    listed = [each for group in groups if name in group for each in group]
    return [each for each in listed if each != name]


@functools.cache
def known_as(table="concepts"):
    """Return the keywords of each name, and whether each leads to it first."""
    found = {}
    for alias, names in suggestions.tables()[table].items():
        for name, keyword in itertools.product(names, suggestions.keywords(alias)):
            found.setdefault(name, {})[keyword] = name == names[0]
    return found


# --- Papers. ---


def parse(reference):
    """Return the paper of an entry.

    Raises:
        ValueError: If it is not an entry: authors, title in asterisks, year, URL.
    """
    title = r"(?P<authors>.+?), \*(?P<title>.+?)(?<!\\)\*"
    form = title + r"(?:.*?, (?P<year>\d{4})\b)?.*\. (?P<url>http\S+)"
    match = re.fullmatch(form, reference)
    if not match:
        raise ValueError(f"Not authors, *title*, year. URL: {reference}")
    return Paper(**match.groupdict(""))


@functools.cache
def papers():
    """Return every paper, in order of its year, with the names that cite it."""
    found = {}
    for name in NAMES:
        text = docstring(name).partition("\nReferences:\n")[2]
        for entry in filter(None, text.strip().split("\n\n")):
            found.setdefault(parse(" ".join(entry.split())), []).append(name)
    return dict(sorted(found.items()))
