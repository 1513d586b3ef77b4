"""Public names, suggestions for those that do not exist, and the words of `help()`."""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

# What people put after the name of an algorithm: `dqn_loss`, `per_weights`.
ENDINGS = re.compile("_(loss|losses|update|target|targets|returns|weights|error)$")


@functools.cache
def aliases() -> dict[str, list[str]]:
    """Return the names that papers and people use, and the functions they lead to."""
    import tomllib  # noqa: PLC0415 - `import rlaxlib` does not need it.

    path = Path(__file__).parents[1] / "aliases.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def keywords(alias: str) -> list[str]:
    """Split `"advantage actor-critic (A2C, A3C)"` into three keywords."""
    main, _, others = alias.partition(" (")
    return [*main.split(", "), *filter(None, others.removesuffix(")").split(", "))]


def suggest(name: str, public: Iterable[str]) -> list[str]:
    """List what a missing name may stand for, the likeliest first.

    Args:
        name: The missing name.
        public: The names that exist.

    Returns:
        Names, of other libraries with their module; empty if nothing is alike.
    """
    known: dict[str, list[str]] = {}
    for alias, names in aliases().items():
        for keyword in keywords(alias):
            known.setdefault(_letters(keyword), []).extend(names)
    for form in (name, ENDINGS.sub("", name)):
        if found := known.get(_letters(form)):
            return list(dict.fromkeys(found))
    return difflib.get_close_matches(name, public)


def publish(package: Mapping[str, Any]) -> list[str]:
    """Return the topics of a package and all their names, and list those of each topic.

    A topic with chapters gets the `__all__` of all of them. Type checkers follow the
    star imports, but no sum of lists.
    """
    public = {name: x for name, x in package.items() if not name.startswith("_")}
    topics = {name: x for name, x in sorted(public.items()) if inspect.ismodule(x)}
    for topic in topics.values():
        chapters = [x for x in vars(topic).values() if inspect.ismodule(x)]
        if not hasattr(topic, "__all__"):
            vars(topic)["__all__"] = [
                name for each in chapters for name in getattr(each, "__all__", ())
            ]
    return [*topics, *(name for each in topics.values() for name in each.__all__)]


def describe_fields(things: Iterable[Any]) -> None:
    """Let `help()` describe the fields of named tuples as their docstrings do.

    Args:
        things: Classes and others, of which only named tuples change.
    """
    for thing in things:
        for field in getattr(thing, "_fields", ()) if inspect.isclass(thing) else ():
            form = rf"^ *{field}: (.+(?:\n {{8,}}.+)*)"
            found = re.search(form, thing.__doc__ or "", re.M)
            getattr(thing, field).__doc__ = (
                " ".join(found[1].split()) if found else None
            )


def _letters(text: str) -> str:
    return re.sub(r"[\W_]", "", text).lower()
