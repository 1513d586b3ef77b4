"""What missing names and unknown keywords mean; names of topics; words of `help()`."""

from __future__ import annotations

import functools
import inspect
import itertools
import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, NoReturn

import jax


@functools.cache
def tables() -> dict[str, dict[str, Any]]:
    """Return what papers and other libraries call our functions and arguments."""
    import tomllib  # noqa: PLC0415 - `import rlaxlib` does not need it.

    path = Path(__file__).parents[1] / "aliases.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


@functools.cache
def _affixes(place: str) -> set[str]:
    """Return words that people put around the names of functions and arguments."""
    return {*tables()["affixes"][place].split()}


def keywords(alias: str) -> list[str]:
    """Split `"advantage actor-critic (A2C, A3C)"` into three keywords."""
    main, _, others = alias.partition(" (")
    return [*main.split(", "), *filter(None, others.removesuffix(")").split(", "))]


def suggest(name: str, public: Iterable[str]) -> list[str]:
    """List the public names that a missing one may stand for, the likeliest first.

    Names of other libraries stand with their module.
    """
    concepts, functions = _known("concepts"), _known("functions")
    ours = [(each, [each]) for each in sorted(public, key=lambda x: not x.islower())]
    modules = [jax, jax.nn, jax.numpy, jax.lax]
    modules = [x.__name__ for x in modules if callable(vars(x).get(name))]
    theirs = [(name, [f"{module}.{name}"]) for module in modules[:1]]
    known = [*concepts, *functions, *ours, *theirs]
    short = [*concepts, *(x for x in ours if x[0].islower())]
    whole = [(_words(key), names) for key, names in known]
    trimmed = [(_trims(key)[-1], names) for key, names in short]
    for words, forms in itertools.product(_trims(name), (whole, trimmed)):
        same = (y for x, y in forms if "".join(x) == "".join(words) or {*x} == {*words})
        if found := list(dict.fromkeys(itertools.chain(*same))):
            return found
    near = [names for each, names in known if _is_misspelt(name, each)]
    return near[0] if near else []


def meant(word: str, arguments: Sequence[str], function: str = "") -> list[str]:
    """Return the arguments that others call by an unknown keyword, or spell like it.

    The tables have words for arguments of any function, and of one alone.
    """
    key, others = _key(word), tables()["arguments"]
    called = {n: f"{others.get(n, '')} {others.get(_stem(n), '')}" for n in arguments}
    called = {n: others.get(f"{function}.{n}", x) for n, x in called.items()}
    alike = [n for n in arguments if _key(n) == key != ""]
    meant = [n for n in arguments if key in map(_key, called[n].split())]
    return alike or meant or [n for n in arguments if _is_misspelt(key, _key(n))]


def _known(table: str) -> list[tuple[str, list[str]]]:
    """Return each name in a table, and those that it stands for."""
    every = tables()[table].items()
    return [(word, names) for alias, names in every for word in keywords(alias)]


def _trims(name: str) -> list[list[str]]:
    """Return the words of a name, first all of them, then with fewer affixes."""
    words = _words(name)
    count = range(len(words))
    starts = [i for i in count if _affixes("before") >= {*words[:i]}]
    ends = [i + 1 for i in count if _affixes("after") >= {*words[i + 1 :]}]
    found = [words[i:j] for i in starts for j in ends if i < j]
    return sorted(found, key=len, reverse=True)


def _is_misspelt(name: str, other: str) -> bool:
    """Return whether words of more than four letters are alike, and all others equal.

    Short words are acronyms, in which one letter distinguishes CQL from IQL.
    """

    def is_near(x: str, y: str) -> bool:
        is_word = min(len(x), len(y)) > 4 and y.isalpha() and x[0] == y[0]
        return x == y or (is_word and SequenceMatcher(None, x, y).ratio() > 0.85)

    ours, theirs = _words(name), _words(other)
    return len(ours) == len(theirs) and all(map(is_near, ours, theirs))


def _key(argument: str) -> str:
    """Return the words of an argument, without affixes of time."""
    return " ".join(sorted({*_words(argument)} - _affixes("argument")))


def _stem(argument: str) -> str:
    """Return an argument's name without affixes of time."""
    return re.sub(r"(_(tm1|t))?_?$", "", argument)


@functools.lru_cache(maxsize=4096)
def _words(name: str) -> list[str]:
    """Split `DQNLoss` and `dqn_losses` into words, without the `s` of a plural."""
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    words = [re.sub(r"(?<=\w[^s])s$", "", x) for x in re.split(r"[\W_]+", text.lower())]
    spellings = tables()["spellings"]
    spelt = "_".join(spellings.get(x, x) for x in words)
    return [x for x in spelt.split("_") if x]


def publish(package: dict[str, Any]) -> list[str]:
    """Return the topics of a package and all their names, and list those of each topic.

    A topic with chapters gets the `__all__` of all of them. Type checkers follow the
    star imports, but no sum of lists. A name that the package or a topic lacks raises
    an error that suggests others.
    """
    public = {name: x for name, x in package.items() if not name.startswith("_")}
    topics = {name: x for name, x in sorted(public.items()) if inspect.ismodule(x)}
    for topic in topics.values():
        chapters = [x for x in vars(topic).values() if inspect.ismodule(x)]
        if not hasattr(topic, "__all__"):
            vars(topic)["__all__"] = [
                name for each in chapters for name in getattr(each, "__all__", ())
            ]
    names = [name for each in topics.values() for name in each.__all__]
    for module in (package, *map(vars, topics.values())):
        module["__getattr__"] = functools.partial(_miss, module["__name__"], names)
    return [*topics, *names]


def _miss(module: str, public: Sequence[str], name: str) -> NoReturn:
    """Raise an error that suggests names in place of one that a module lacks."""
    found = [] if name.startswith("_") else suggest(name, public)
    split = [x.partition(" for ") for x in found]  # What for stands beside some.
    prefix = "rlaxlib." * ("." in module)
    quoted = [f"`{prefix * (x in public)}{x}`{gap}{why}" for x, gap, why in split]
    hint = f". See {', '.join(quoted)}" * bool(found)  # Python may add a sentence.
    raise AttributeError(f"module {module!r} has no attribute {name!r}{hint}")


def describe_fields(things: Iterable[Any]) -> None:
    """Let `help()` describe the fields of named tuples as their docstrings do."""
    for thing in things:
        for field in getattr(thing, "_fields", ()) if inspect.isclass(thing) else ():
            form = rf"^( *){field}: (.+(?:\n\1 +.+)*)"
            found = re.search(form, thing.__doc__ or "", re.M)
            getattr(thing, field).__doc__ = (
                " ".join(found[2].split()) if found else None
            )
