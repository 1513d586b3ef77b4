"""What missing names mean; names of topics; words of `help()`."""

from __future__ import annotations

import difflib
import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn


@functools.cache
def tables() -> dict[str, dict[str, Any]]:
    """Return what papers and other libraries call our functions."""
    import tomllib  # noqa: PLC0415 - `import rlaxlib` does not need it.

    path = Path(__file__).parents[1] / "aliases.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def keywords(alias: str) -> list[str]:
    """Split `"advantage actor-critic (A2C, A3C)"` into three keywords."""
    main, _, others = alias.partition(" (")
    return [*main.split(", "), *filter(None, others.removesuffix(")").split(", "))]


def suggest(name: str, public: Iterable[str]) -> list[str]:
    """Return the names that a missing one may stand for.

    These are what others call so, in all meanings; or what begins so; or what is spelt
    almost so. Case, gaps, and words such as `compute` and `loss` do not count.
    """
    plain, stems = (_known(form, tuple(public)) for form in (_plain, _stem))
    found = plain.get(_plain(name)) or stems.get(_stem(name))
    found = found or [x for x in public if x.startswith(f"{name.lower()}_")]
    if not found and len(name) > 4:  # Acronyms differ in one letter.
        near = difflib.get_close_matches(_plain(name), plain, n=1, cutoff=0.8)
        found = [x for each in near for x in plain[each]]
    return list(dict.fromkeys(found))


@functools.cache
def _known(form: Callable[[str], str], public: tuple[str, ...]) -> dict[str, list[str]]:
    """Return what names mean, under a form of them: ours, concepts, and of others."""
    known: dict[str, list[str]] = {}
    for name in sorted(public, key=lambda x: not x.islower()):
        known.setdefault(form(name), []).append(name)
    for alias, names in [*tables()["concepts"].items(), *tables()["functions"].items()]:
        for word in keywords(alias):
            known.setdefault(form(word), []).extend(names)
    return known


def _plain(name: str) -> str:
    """Return a name without case and gaps."""
    return re.sub(r"[\W_]", "", name.lower())


def _stem(name: str) -> str:
    """Return a plain name without words that people put around names."""
    before = "^(batch|calculate|compute|create|get|make)"
    after = "(loss|losses|fn|function|module|trainer|estimator|estimate|update|s)*$"
    return re.sub(f"{before}|{after}", "", _plain(name)) or _plain(name)


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
        names = [name for each in chapters for name in getattr(each, "__all__", ())]
        vars(topic).setdefault("__all__", names)
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
    # `from rlaxlib import gae` asks whether there is such a name, and drops the answer.
    if found and sys._getframe(1).f_code.co_name == "_handle_fromlist":
        raise ImportError(f"cannot import name {name!r} from {module!r}{hint}")
    raise AttributeError(f"module {module!r} has no attribute {name!r}{hint}")


def describe_fields(things: Iterable[Any]) -> None:
    """Let `help()` describe the fields of named tuples as their docstrings do."""
    for thing in things:
        for field in getattr(thing, "_fields", ()) if inspect.isclass(thing) else ():
            form = rf"^( *){field}: (.+(?:\n\1 +.+)*)"
            found = re.search(form, thing.__doc__ or "", re.M)
            text = " ".join(found[2].split()) if found else None
            getattr(thing, field).__doc__ = text
