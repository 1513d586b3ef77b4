"""Test that docstrings state the ranges that are checked, and that siblings agree.

An entry states a range as the annotation does, before the shape: `Discounts :math:`γ_t`
in [0, 1], shape `[T]`.` A range of all finite numbers is stated as "finite".
"""

import inspect
import re

import catalog
import pytest
from row import EXCEPTIONS

import rlaxlib
from rlaxlib._core import specs

# Ranges that a function checks, since no annotation can state them.
CHECKED_BY_FUNCTIONS = {
    ("extract_subsequences", "start_indices"): "in [0, T - L]",
}

# Names that are words or letters of a paper, and not of one quantity.
WORDS = """
action actions alpha damping decay margin max_return means minimum predictions
priorities sample scale shrink target targets threshold weight weights x
"""


def documented():
    """Yield name, docstring and specs of all functions, methods and states."""
    things = {name: getattr(rlaxlib, name) for name in rlaxlib.__all__}
    for name, thing in dict(things).items():
        if inspect.isclass(thing):
            methods = [x for n, x in vars(thing).items() if n[0] != "_"]
            methods = filter(is_checked, methods)
            things |= {f"{name}.{method.__name__}": method for method in methods}
    checked = {n: x.signature() for n, x in things.items() if is_checked(x)}
    for name, signature in checked.items():
        own = {n: x for n, x in signature.specs.items() if not (x.parts or x.is_tree)}
        yield name, catalog.complete(things[name]), own
    nested = [x for each in checked.values() for x in each.specs.values()]
    states = {x.type: x for each in nested for x in specs.within(each) if x.parts}
    for state, spec in states.items():
        if inspect.isclass(state):
            found = {n: x for n, x in spec.parts.items() if not (x.parts or x.is_bare)}
            yield state.__name__, inspect.getdoc(state), found


def is_checked(thing):
    return inspect.isroutine(thing) and hasattr(thing, "signature")


def arguments():
    """Yield function, argument, spec and docstring entry of what may have a range."""
    for name, docstring, found in documented():
        for argument, spec in found.items():
            if spec.kind == "Static" or spec.kind in ("Float", "Int", "Real", "Shaped"):
                entry = rf"^    {argument}: (.*?)(?=^    \w|^\w|\Z)"
                text = re.search(entry, docstring, re.M | re.S)[1]
                yield name, argument, spec, " ".join(text.split())


ARGUMENTS = list(arguments())


def what_it_is(entry, spec):
    """Return the part of an entry that describes the values, without its marks."""
    part = entry.partition(" shape `")[0] if spec.is_array else entry
    return re.sub(r":math:|`", "", part)


def stated(entry, spec):
    """Return the rules that an entry states."""
    text = re.sub(r"\bfinite\b", "in (-inf, inf)", what_it_is(entry, spec))
    rules = r"\bin [\[({][^\])}]*[\])}]|\bascending\b|\bincreasing\b"
    return set(re.findall(rules, text))


def test_docstrings_state_the_ranges_that_are_checked():
    assert len(ARGUMENTS) > 1000
    wrong = {}
    for name, argument, spec, entry in ARGUMENTS:
        checked = {CHECKED_BY_FUNCTIONS.get((name, argument))} - {None}
        checked |= set(map(str, spec.rules))
        if stated(entry, spec) != checked:
            wrong[name, argument] = checked, entry
    assert wrong == {}


def test_docstrings_state_ranges_in_one_form():
    words = r"at least|at most|more than|above|below|positive|non-negative"
    wrong = {
        (name, argument): entry
        for name, argument, spec, entry in ARGUMENTS
        if re.search(
            rf"(, (of )?|^|of )({words})\b|(?<!if) [^\s`]+ [<>≤≥]( |$)",
            what_it_is(entry, spec),
            re.IGNORECASE,
        )
    }
    assert wrong == {}


@pytest.mark.parametrize(
    ("entry", "rules"),
    [
        ("Discount :math:`γ` in [0, 1], shape `[]`.", {"in [0, 1]"}),
        ("Bound, in [`low`, inf], shape `[]`; or 2.", {"in [low, inf]"}),
        ("Bins, finite and increasing, shape `[K]`.", {"in (-inf, inf)", "increasing"}),
        ("Loss, shape `[]`, such as a reward in [0, 1].", set()),
    ],
)
def test_ranges_are_found_in_an_entry(entry, rules):
    assert stated(entry, specs.Spec("Float", ((),))) == rules


def test_a_quantity_has_one_range():
    ranges = {}
    for name, argument, spec, _ in ARGUMENTS:
        if not (argument in ("a", "a_t") and spec.kind == "Float"):  # Continuous.
            ranges.setdefault(argument, {})[name] = " ".join(map(str, spec.rules))
    exceptions = {
        f"{name} {argument}"
        for argument, expected in EXCEPTIONS["quantities"].items()
        for name, rules in ranges[argument].items()
        if rules != expected
    }
    assert exceptions == set(EXCEPTIONS["ranges"])
    differing = {argument for argument, of in ranges.items() if len({*of.values()}) > 1}
    assert differing - set(EXCEPTIONS["quantities"]) == set(WORDS.split())
