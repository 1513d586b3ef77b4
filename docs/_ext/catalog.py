"""What the manual tells of the library, read from its code: names, topics and papers.

It needs nothing but the library, so that the tests read it too.
"""

import dataclasses
import functools
import inspect
import re
import types
from pathlib import Path

import rlaxlib
from rlaxlib._core import suggestions

DOCS = Path(__file__).parents[1]
EXAMPLES = DOCS.parent / "examples"
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
M_S = re.MULTILINE | re.DOTALL
# Names that are easily taken for each other.
SIMILAR = [
    "importance_weights importance_sampling_weights "
    "categorical_importance_sampling_ratios importance_statistics",
    "normalize running_moments standardize reward_scale",
    "create_ema running_moments",
    "policy_gradient_loss reinforce_loss qpg_loss",
    "generalized_advantage_estimation truncated_generalized_advantage_estimation",
    "td_lambda lambda_returns generalized_advantage_estimation",
    "kl_loss approximate_kl categorical_kl_divergence kl_shaped_rewards",
    "vtrace vtrace_td_error_and_advantage",
    "periodic_update conditional_update",
    "categorical_sample softmax",
    "one_hot transform_to_2hot transform_to_hl_gauss",
    "masked_mean aggregate_losses",
    "q_learning expected_sarsa sarsa",
    "percentile_scale return_based_scale reward_scale popart",
]


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
        source = _read(Path(module.__file__))
        form = rf'^{name} = (?:.*\n)(?:[ )].*\n)*r?"""((?:.|\n)*?)"""'
        if match := re.search(form, source, re.M):
            return match[1]
    return ""


def summary(name):
    """Return the first paragraph of a public name's docstring."""
    return " ".join(docstring(name).partition("\n\n")[0].split())


def chapters(topic):
    """List the modules of a topic, the most used first; itself if it is one file."""
    module = TOPICS[topic]
    within = f"{module.__name__}._"
    private = [
        each
        for each in vars(module).values()
        if isinstance(each, types.ModuleType) and each.__name__.startswith(within)
    ]
    private = [each for each in private if getattr(each, "__all__", [])]
    return sorted(private, key=lambda each: -sum(map(_count, each.__all__))) or [module]


def names_of(module):
    """List the public names of a module: functions, the most used first, then types."""

    def rank(name):
        return inspect.isclass(getattr(rlaxlib, name)), -_count(name)

    return sorted(module.__all__, key=rank)


def names(topic):
    """List the public names of a topic, chapter by chapter."""
    return [name for chapter in chapters(topic) for name in names_of(chapter)]


def first_line(text):
    """Return the first paragraph of a docstring on one line, without a full stop."""
    return " ".join(text.partition("\n\n")[0].split()).rstrip(".")


def returns(name):
    """Return what a function returns, as its second paragraph says, without shapes."""
    found = re.search(r"^Takes .*?returns (.+?)\.\n\n", docstring(name), re.M | re.S)
    text = " ".join(found[1].split()) if found else ""
    text = re.sub("^(one|an?|the|its) (?!for )", "", text).replace(
        " for each ", " per "
    )
    return text[:1].upper() + text[1:]


# --- Uses. ---


@functools.cache
def uses():
    """Return the recipes, examples and pages that use each name, as links."""
    found = {}

    def add(kind, link, code):
        for name in dict.fromkeys(re.findall(r"\brlaxlib\.(?:[a-z]+\.)?(\w+)", code)):
            found.setdefault(name, {}).setdefault(kind, []).append(link)

    for title, recipe in recipes().items():
        add("Recipes", f":ref:`{title} <recipes:{title}>`", recipe)
    for path in sorted(EXAMPLES.glob("*.py")):
        add("Examples", f":doc:`{path.stem} </gallery/{path.stem}>`", _read(path))
    for path in [DOCS / "start.md", *sorted((DOCS / "guide").glob("*.md"))]:
        link = f":doc:`/{path.relative_to(DOCS).with_suffix('').as_posix()}`"
        add(
            "Guide", link, "".join(re.findall("^ *```.*?^ *```", path.read_text(), M_S))
        )
    return found


def recipes():
    """Return the code of each section of the page of recipes."""
    text, found = _read(DOCS / "recipes.md"), {}
    for title, section in re.findall(r"^### (.+)\n((?:(?!^#).*\n?)*)", text, re.M):
        for file, name in re.findall(r"recipes/(\w+)\.py\n:pyobject: (\w+)", section):
            source = _read(EXAMPLES / "recipes" / f"{file}.py")
            body = re.search(rf"^(?:def|class) {name}\b(?:.*\n(?!\S))*.*", source, re.M)
            found[title] = found.get(title, "") + body[0]
    return found


def _count(name):
    return sum(map(len, uses().get(name, {}).values()))


def similar(name):
    """List the names that a name is easily taken for, and others of its chapter."""
    others = [
        each for group in SIMILAR if name in group.split() for each in group.split()
    ]
    topic = NAMES[name].split(".")[1]
    (chapter,) = (each for each in chapters(topic) if name in each.__all__)
    near = [each for each in names_of(chapter) if each not in others][:5]
    return [[each for each in part if each != name] for part in (others, near)]


# --- Papers. ---


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


# --- Names of others. ---


def aliases():
    """List the names by which others know ours: library, their name, and ours.

    Common names stand in `rlaxlib/aliases.toml`, those of libraries in the tables of
    `docs/from/`, where the first cell has theirs and the second ours.
    """
    found = [("", alias, ours) for alias, ours in suggestions.aliases().items()]
    for page in sorted((DOCS / "from").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        library = re.match(r"# From (.+)", text)[1]
        for theirs, cell in re.findall(r"^\| ?(.+?) ?\| ?(.+?) ?\|", text, re.M):
            words = re.findall(r"`(?:rlaxlib\.)?(optax\.\w+|\w+)", cell)
            ours = [
                each for each in dict.fromkeys(words) if each in NAMES or "." in each
            ]
            if ours and re.fullmatch(r"(`[^`]+`(, )?)+", theirs):
                names = re.findall("`([^`]+)`", theirs)
                found += [(library, name, ours) for name in names]
    return found


@functools.cache
def known_as():
    """Return the keywords of each name, and whether each leads to it first."""
    found = {}
    for alias, names in suggestions.aliases().items():
        for name in names:
            for keyword in suggestions.keywords(alias):
                found.setdefault(name, {})[keyword] = name == names[0]
    return found


def _read(path):
    return path.read_text(encoding="utf-8")
