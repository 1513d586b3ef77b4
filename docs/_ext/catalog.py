"""What the manual tells of the library, read from its code: names, topics and papers.

It needs nothing but the library, so that the tests read it too.
"""

import dataclasses
import functools
import inspect
import re
import tomllib
import types
from pathlib import Path

import rlaxlib

DOCS = Path(__file__).parents[1]
TOPICS = {
    name: topic
    for name in rlaxlib.__all__
    if isinstance(topic := getattr(rlaxlib, name), types.ModuleType)
}
# Every public name that belongs to a topic, and its full address.
NAMES = {
    name: f"rlaxlib.{topic}.{name}"
    for topic, module in TOPICS.items()
    for name in module.__all__
}


@dataclasses.dataclass(frozen=True, order=True)
class Paper:
    """A paper, or another source that a function is made from."""

    year: str  # Empty if it is kept up to date, as documentation is.
    authors: str
    title: str
    url: str


def docstring(name):
    """Return the docstring of a public name, or what stands below it if it is data."""
    thing = getattr(rlaxlib, name)
    if inspect.isfunction(thing) or inspect.isclass(thing):
        return inspect.getdoc(thing) or ""
    for module in chapters(NAMES[name].split(".")[1]):
        source = Path(module.__file__).read_text(encoding="utf-8")
        form = rf'^{name} = (?:.*\n)(?:[ )].*\n)*r?"""((?:.|\n)*?)"""'
        if match := re.search(form, source, re.M):
            return match[1]
    return ""


def summary(name):
    """Return the first paragraph of a public name's docstring."""
    return " ".join(docstring(name).partition("\n\n")[0].split())


def chapters(topic):
    """List the modules that a topic is made of, which is itself if it is one file."""
    module = TOPICS[topic]
    within = f"{module.__name__}._"
    private = [
        each
        for each in vars(module).values()
        if isinstance(each, types.ModuleType) and each.__name__.startswith(within)
    ]
    return [each for each in private if getattr(each, "__all__", [])] or [module]


def names_of(module):
    """List the public names of a module in the order of its file."""
    source = Path(module.__file__).read_text(encoding="utf-8")
    found = re.finditer(r"^(?:def |class |)(\w+)(?= =|[(:])", source, re.M)
    places = {match[1]: match.start() for match in found}
    return sorted(module.__all__, key=lambda name: places.get(name, 0))


def names(topic):
    """List the public names of a topic, chapter by chapter."""
    return [name for chapter in chapters(topic) for name in names_of(chapter)]


def first_line(text):
    """Return the first paragraph of a docstring on one line, without a full stop."""
    return " ".join(text.partition("\n\n")[0].split()).rstrip(".")


def section(name, title):
    """Return a section of a docstring, such as `Returns`, on one line."""
    part = re.search(rf"^{title}:\n((?:    .*\n|\n)*)", docstring(name) + "\n", re.M)
    return " ".join(part[1].split()) if part else ""


def shapes(name):
    """Return the shapes that a function takes, and what it returns."""
    phrases = re.findall(r"shape ((?:`\[.*?\]`(?: or )?)+)", section(name, "Args"))
    takes = dict.fromkeys(re.findall(r"`\[.*?\]`", " ".join(phrases)))
    returns = section(name, "Returns")
    sentence = re.split(r"(?<=[\w`])[.:;](?= |$)", returns)[0]
    return ", ".join(f"`{each}`" for each in takes), sentence


def references(name):
    """List the entries of a docstring's references, each on one line."""
    part = re.search(r"^References:\n((?:    .*\n|\n)*)", docstring(name) + "\n", re.M)
    entries = re.split(r"\n\s*\n", part[1].strip()) if part else []
    return [" ".join(entry.split()) for entry in entries]


def parse(reference):
    """Return the paper of an entry, and where in it to look, if the entry says so.

    Raises:
        ValueError: If it is not an entry: authors, title in asterisks, year, URL.
    """
    form = r"(?P<authors>.+?), \*(?P<title>.+?)(?<!\\)\*(?P<rest>.*)\. (?P<url>http\S+)"
    match = re.fullmatch(form, reference)
    if not match:
        raise ValueError(f"Not authors, *title*, year. URL: {reference}")
    rest = [each for each in match["rest"].split(", ") if each]
    years = [each for each in rest if re.fullmatch(r"\d{4}", each)]
    where = ", ".join(each for each in rest if each not in years)
    year = years[0] if years else ""
    return Paper(year, match["authors"], match["title"], match["url"]), where


def papers():
    """Return every paper, in order of its year, with the names that cite it."""
    found = {}
    for name in NAMES:
        for reference in references(name):
            found.setdefault(parse(reference)[0], []).append(name)
    return dict(sorted(found.items()))


def aliases():
    """List the names by which others know ours: library, their name, and ours.

    Common names stand in `aliases.toml`, those of libraries in the tables of
    `docs/from/`, where the first cell has theirs and the second ours.
    """
    found = [("", alias, ours) for alias, ours in _common_names().items()]
    for page in sorted((DOCS / "from").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        library = re.match(r"# From (.+)", text)[1]
        for theirs, cell in re.findall(r"^\| ?(.+?) ?\| ?(.+?) ?\|", text, re.M):
            words = re.findall(r"`(?:rlaxlib\.)?(\w+)", cell)
            ours = [name for name in dict.fromkeys(words) if name in NAMES]
            if ours and re.fullmatch(r"(`[^`]+`(, )?)+", theirs):
                names = re.findall("`([^`]+)`", theirs)
                found += [(library, name, ours) for name in names]
    return found


@functools.cache
def known_as():
    """Return the keywords of each name: algorithms, acronyms, and common names."""
    found = {}
    for alias, names in _common_names().items():
        for name in names:
            found.setdefault(name, []).extend(keywords(alias))
    return found


def keywords(alias):
    """Split `"advantage actor-critic (A2C, A3C)"` into three keywords."""
    return [each.strip() for each in re.split(r"[(),]", alias) if each.strip()]


def _common_names():
    return tomllib.loads((DOCS / "_ext" / "aliases.toml").read_text(encoding="utf-8"))
