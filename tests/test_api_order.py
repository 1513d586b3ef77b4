"""Hold our own functions to one order, one name a quantity, one form of result.

rlax fixes the order and the names of its own functions, in its private modules too.
"""

import importlib
import inspect
import pkgutil
import re
import tokenize
import typing
from pathlib import Path

import jax
import pytest
from row import EXCEPTIONS

import rlaxlib

# Always given by keyword, in this order.
KEYWORDS = (
    "stop_target_gradients",
    "truncated_t",
    "mask",
    "sample_mask",
    "action_mask",
    "axis_name",
    "dtype",
)
# As in the functions of rlax that they stand beside.
GENERIC = {"masked_mean", "standardize"}
# A divergence.
REACHED = {"adaptive_kl_coefficient"}
BRITISH = re.compile(
    r"behaviour|duell|colour|centre|neighbour|\w\w[lmnrt]is(e|ed|er|ing|ation)(_|$)"
)
EXAMPLES = Path(__file__).parents[1] / "examples"


def names_of_rlax():
    """Return the names that rlax defines, and those of its private modules."""
    rlax = pytest.importorskip("rlax")
    private = importlib.import_module("rlax._src")
    modules = [
        importlib.import_module(f"rlax._src.{each.name}")
        for each in pkgutil.iter_modules(private.__path__)
        if not each.name.endswith("_test")
    ]
    return {name for module in (rlax, *modules) for name in vars(module)}


@pytest.fixture(scope="module")
def ours():
    """Return our own functions, by name."""
    theirs = names_of_rlax()
    functions = {name: getattr(rlaxlib, name) for name in rlaxlib.__all__}
    found = {
        name: inspect.signature(function).parameters
        for name, function in functions.items()
        if inspect.isroutine(function) and name not in theirs
    }
    assert len(found) > 180
    return found


@pytest.fixture(scope="module")
def methods():
    """Return the parameters of all public methods, by name."""
    found = {
        name: inspect.signature(method).parameters
        for each in rlaxlib.__all__
        for name, method in public_methods(getattr(rlaxlib, each))
    }
    assert len(found) > 40
    return found


@pytest.fixture(scope="module")
def results(ours):
    """Return the types that our own functions and methods return, by name."""
    functions = {name: getattr(rlaxlib, name) for name in ours}
    for name in set(rlaxlib.__all__) - names_of_rlax():
        functions |= dict(public_methods(getattr(rlaxlib, name)))
    hints = {n: typing.get_type_hints(x)["return"] for n, x in functions.items()}
    assert {"Ema.update", "ppo_clip_loss"} <= set(hints)
    return {n: (functions[n], parts(hint)) for n, hint in hints.items()}


def public_methods(thing):
    """Yield the names and the checked methods of a class."""
    for name, method in vars(thing).items() if inspect.isclass(thing) else ():
        if name[0] != "_" and hasattr(method, "signature"):
            yield f"{thing.__name__}.{name}", method


def parts(hint):
    """Return the types in a tuple, or the one type."""
    return typing.get_args(hint) if typing.get_origin(hint) is tuple else (hint,)


def place(argument):
    """Return the place of an argument that has a time, a key or a state."""
    places = {"key": 0, "state": 1, "r_t": 3, "discount_t": 4}
    return places.get(argument, 2 if argument.endswith("_tm1") else 5)


def test_options_that_many_functions_have_are_given_by_keyword(ours):
    wrong = {
        (name, argument)
        for name, parameters in ours.items()
        for argument, each in parameters.items()
        if (argument in KEYWORDS) and each.kind is not each.KEYWORD_ONLY
    }
    assert wrong == set()


def test_options_by_keyword_have_one_order():
    wrong = {}
    for name in rlaxlib.__all__:
        function = getattr(rlaxlib, name)
        if inspect.isroutine(function):
            options = keywords(inspect.signature(function).parameters)
            options = [each for each in options if each in KEYWORDS]
            if options != sorted(options, key=KEYWORDS.index):
                wrong[name] = options
    assert wrong == {}


def test_numbers_and_variants_are_given_by_place_too(ours):
    found = set()
    for name in ours:
        hints = typing.get_type_hints(getattr(rlaxlib, name), include_extras=True)
        timed = re.compile(r"_(t|tm1)$")
        found |= {
            f"{name} {argument}"
            for argument in keywords(ours[name])
            if is_number(hints[argument]) and not timed.search(argument)
        }
    assert found == set(EXCEPTIONS["keywords"])


def keywords(parameters):
    """Return the names of the parameters that are given by keyword only."""
    return [x.name for x in parameters.values() if x.kind is x.KEYWORD_ONLY]


def is_number(hint):
    """Return whether an argument can be one number, or one of several words."""
    if typing.get_origin(hint) is typing.Literal:
        return True
    if not hasattr(hint, "__metadata__"):
        return any(map(is_number, typing.get_args(hint)))
    is_scalar = re.match(r"$|in |\[\]", hint.__metadata__[0].text)
    return bool(is_scalar) and hint.__origin__ is not bool


# Methods of the objects that factories of rlax return.
ORDER_OF_RLAX = {"Ema.update", "PopArt.update"}


def test_the_key_is_first_and_the_state_follows(ours, methods):
    wrong = set()
    for name, parameters in (ours | methods).items():
        order = [x for x in parameters if x in ("key", "state")]
        data = [x for x in parameters if x != "self"]
        if data[: len(order)] != sorted(order):
            wrong.add(name)
    assert wrong == ORDER_OF_RLAX


def test_arguments_have_the_order_of_time(ours):
    wrong = {}
    for name, parameters in ours.items():
        timed = [
            argument
            for argument, each in parameters.items()
            if each.kind is not each.KEYWORD_ONLY
            and re.search(r"_(t|tm1)$|^key$|^state$", argument)
        ]
        if timed != sorted(timed, key=place):
            wrong[name] = timed
    assert wrong == {}


def test_arguments_have_times_only_where_the_equation_relates_times(ours):
    found = set()
    for name, parameters in ours.items():
        timed = {each for each in parameters if re.search(r"_(t|tm1)$", each)}
        others = timed - set(KEYWORDS)
        if others and not any(
            re.fullmatch(r"r_t|discount_t|.*_tm1", x) for x in others
        ):
            found.add(name)
    assert found == set(EXCEPTIONS["times"])


def test_a_state_is_not_made_from_none(ours):
    for name, parameters in ours.items():
        for argument, each in parameters.items():
            assert "state" not in argument or each.default is each.empty, name


def test_a_quantity_has_one_name(ours):
    wrong = {
        (name, argument): EXCEPTIONS["names"][argument]
        for name, parameters in ours.items()
        for argument in parameters
        if argument in EXCEPTIONS["names"]
        and not (argument == "mask" and name in GENERIC)
        and not (argument == "target" and name in REACHED)
        and not (argument.endswith("_value") and name == "hl_gauss_pair")
    }
    assert wrong == {}


def test_fields_have_the_names_of_quantities():
    theirs = names_of_rlax()
    classes = {name: getattr(rlaxlib, name) for name in rlaxlib.__all__}
    fields = {
        (name, field)
        for name, each in classes.items()
        if inspect.isclass(each) and name not in theirs
        for field in getattr(each, "_fields", getattr(each, "__dataclass_fields__", ()))
    }
    assert len(fields) > 100
    wrong = {(name, field) for name, field in fields if field in EXCEPTIONS["names"]}
    pairs = {"HlGaussPair", "TwohotPair", "MuzeroPair", "UnbiasedTransformPair"}
    wrong = {x for x in wrong if x[0] not in pairs}
    # As the distribution of rlax.
    assert wrong == {("GaussianDiagonal", "sigma")}


def test_counts_begin_with_num(ours):
    wrong = {
        (name, argument)
        for name, parameters in ours.items()
        for argument in parameters
        if re.fullmatch(r"n|size|count|dim|num|n_.*|.*_size|.*_count", argument)
        and argument not in ("step_size", "chunk_size")
    }
    # The n of n-step returns, as in rlax.
    steps = {(name, "n") for name in ours if name.startswith("n_step_")}
    assert wrong == steps


def test_identifiers_are_american(ours):
    for name, parameters in ours.items():
        for word in (name, *parameters):
            assert not BRITISH.search(word), (name, word)


def test_identifiers_of_examples_are_american():
    found = set()
    for file in EXAMPLES.rglob("*.py"):
        with tokenize.open(file) as lines:
            tokens = tokenize.generate_tokens(lines.readline)
            found |= {x.string for x in tokens if x.type == tokenize.NAME}
    assert "dueling_dqn" in found
    assert {x for x in found if BRITISH.search(x)} == set()


def test_a_pair_is_a_result_and_a_state_or_outputs(results):
    pairs = {name: types for name, (_, types) in results.items() if len(types) > 1}
    assert len(pairs) > 20
    for name, (_, *further) in pairs.items():
        assert len(further) == 1, name
        assert further[0].__name__.endswith(("State", "Outputs")), name


def test_a_loss_is_an_array_alone_or_before_outputs(results):
    losses = {n: types for n, (_, types) in results.items() if n.endswith("_loss")}
    assert len(losses) > 40
    for name, (loss, *further) in losses.items():
        assert loss is jax.Array, name
        assert all(each.__name__.endswith("Outputs") for each in further), name


def test_a_loss_of_two_policies_returns_the_statistics_of_ratios(ours, results):
    of_ratios = {n for n, x in ours.items() if "old_log_prob" in x and "_loss" in n}
    assert len(of_ratios) > 7
    for name in of_ratios:
        assert results[name][1][1] is rlaxlib.RatioOutputs, name
        assert "stop_target_gradients" in ours[name], name


def test_an_elementwise_loss_takes_a_mask(ours):
    masked = {}
    for name in filter(re.compile("_loss$").search, ours):
        hints = typing.get_type_hints(getattr(rlaxlib, name), include_extras=True)
        loss, *_ = parts(hints["return"])
        if loss.__metadata__[0].text == "...":
            masked[name] = "sample_mask" in ours[name]
    assert len(masked) > 20
    assert [name for name in masked if not masked[name]] == []


def test_docstrings_name_the_results_that_have_fields(results):
    named = set()
    for name, (function, types) in results.items():
        docstring = f"{inspect.getdoc(function)}\nEnd"
        returned = re.search(r"^Returns:\n(.*?)^\w", docstring, re.M | re.S)[1]
        for each in types:
            if hasattr(each, "_fields") and not each.__name__.endswith("State"):
                assert f"`{each.__name__}`" in returned, name
                named.add(each)
    assert {rlaxlib.RatioOutputs, rlaxlib.BootstrapInterval} <= named
    for each in named:
        _, _, entries = inspect.getdoc(each).partition("Attributes:\n")
        assert re.findall(r"^    (\w+): ", entries, re.M) == [*each._fields], each
        assert each.__name__ in rlaxlib.__all__
