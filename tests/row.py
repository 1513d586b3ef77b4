"""Rows: a public function, its definition in NumPy, and its exceptions."""

import dataclasses
import functools
import inspect
import operator
import tomllib
import typing
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import annotations
import jax
import numpy as np
import peers
from conversion import Arguments, is_float, leaves, to_jax, to_numpy

import rlaxlib
from rlaxlib._core.functions import FunctionTuple
from rlaxlib._core.specs import Spec, is_many, split

INDICES = (
    "a",
    "a_t",
    "a_tm1",
    "action",
    "actions",
    "indices",
    "sample",
    "start_indices",
)
BROADCAST = ("alpha", "mask", "pred", "source")  # One entry may stand for all.
_FILE = Path(__file__).with_name("exceptions.toml")
EXCEPTIONS = tomllib.loads(_FILE.read_text("utf-8"))
FLAGS = ("stop_target_gradients", "use_stop_gradient")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gradients:
    """The derivatives of a function.

    Attributes:
        targets: Arguments whose gradient the flag stops.
        stopped_definition: The function to differentiate if the flag is set, of the
            arguments and of the same arguments with their gradient stopped. By default
            the gradient of `targets` is stopped.
        free_definition: The same if the flag is not set, or if there is none. By
            default no gradient is stopped.
        constants: Float arguments without a derivative.
        first_order_only: The reason why second derivatives are not compared with finite
            differences.
        exist: Whether the function maps floats to floats.
    """

    targets: tuple[str, ...] = ()
    stopped_definition: Callable[[Arguments, Arguments], Any] | None = None
    free_definition: Callable[[Arguments, Arguments], Any] | None = None
    constants: tuple[str, ...] = ()
    first_order_only: str = ""
    exist: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Peer:
    """The function of rlax to compare with.

    Attributes:
        why_not: The reason why the function of that name is not compared with rlax's.
        find: Finds the function in rlax, by default as that of the row.
        make: Samples arguments for which rlax is right, by default that of the row.
        no_gradients: The reason why gradients are not compared with rlax, for a flag
            that is true, false, or None if there is no flag.
    """

    why_not: str = ""
    find: Callable[[Any], Callable[..., Any]] | None = None
    make: Callable[[np.random.Generator], Arguments] | None = None
    no_gradients: Mapping[bool | None, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stream:
    """The arguments of a function that takes `truncated_t` and `sample_mask`.

    Attributes:
        make: Samples arguments that all have `T` time steps, by default as the row.
        assemble: Converts these into the function's arguments, in NumPy or JAX.
    """

    make: Callable[[np.random.Generator], Arguments] | None = None
    assemble: Callable[[Arguments, Any], Arguments] = lambda steps, xp: steps


@dataclasses.dataclass(frozen=True, kw_only=True)
class Precision:
    """How precise results are, and their dtypes.

    Attributes:
        condition: Magnitude of intermediate values divided by that of the arguments.
        decisive: Float arguments that determine the dtype, by default all.
        single_outputs: Positions of outputs that are at least float32.
        carried: Arguments that a loop carries on, each with the position of the output
            that is its next value, in its dtype.
    """

    condition: float = 1.0
    decisive: tuple[str, ...] = ()
    single_outputs: tuple[int, ...] = ()
    carried: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Loose:
    """What arguments may be, beyond what their annotations say.

    Attributes:
        batches: Whether arguments may have leading axes.
        lengths: Arguments that may have any length, although another one has an axis
            of the same name, or any number of axes.
        spare: Arguments that may have one more entry.
        dtypes: Arguments that may have another dtype.
        none: Arguments that may be None.
        trees: Arguments that may be any pytree.
    """

    batches: bool | None = None
    lengths: tuple[str, ...] = ()
    spare: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    none: tuple[str, ...] = ()
    trees: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Row:
    """A public function, its definition, and its exceptions.

    Whatever the annotations of the function say is read from them.

    Attributes:
        definition: The function in NumPy, with arguments of the same names; or the
            reason why there is none.
        make: Samples arguments from a NumPy generator: floats in double precision and
            away from kinks, integers, booleans; not the key.
        case: The case that this row tests, if the function has several rows.
        name: The function's name, by default that of the definition;
            `softmax.entropy` for one inside a distribution.
        settings: Further arguments, Python values.
        invalid: Values that the function must reject and no annotation excludes, each
            a mapping from an argument to a Python value.
        find: Finds the function in a library, by default under its name.
        gradients: Its derivatives.
        peer: The function of rlax.
        stream: Its streams, or None if those of results are not those of arguments.
        precision: Its precision.
        loose: What its annotations do not say.
        over_devices: Returns the function with the name of a mapped axis.
    """

    definition: Callable[..., Any] | str
    make: Callable[[np.random.Generator], Arguments]
    case: str = ""
    _: dataclasses.KW_ONLY
    name: str = ""
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    invalid: tuple[Arguments, ...] = ()
    find: Callable[[Any], Callable[..., Any]] | None = None
    gradients: Gradients = Gradients()
    peer: Peer = Peer()
    stream: Stream | None = Stream()
    precision: Precision = Precision()
    loose: Loose = Loose()
    over_devices: Callable[[Any, str], Callable[..., Any]] | None = None

    def __post_init__(self) -> None:
        if not self.name:
            assert callable(self.definition), "a row without a definition needs a name"
            object.__setattr__(self, "name", self.definition.__name__)

    @property
    def id(self) -> str:
        return f"{self.name}:{self.case}" if self.case else self.name

    @property
    def excused(self) -> Mapping[str, str]:
        """The sections of `exceptions.toml` that name the row, and the reasons."""
        keys = self.name, self.id
        tables = EXCEPTIONS.items()
        return {sweep: of[key] for sweep, of in tables for key in keys if key in of}

    @property
    def shown(self) -> tuple[str, ...]:
        """The names that errors show: of the function, or of the object it makes."""
        owner = type(getattr(self.function(rlaxlib), "__self__", None))
        kinds = [kind for kind in (self.made, owner) if inspect.isclass(kind)]
        names = [x.__name__ for x in kinds if issubclass(x, FunctionTuple)]
        return (self.name, *names)

    @functools.cached_property
    def made(self) -> Any:
        """The type of the result, such as that of the object that a factory makes."""
        factory = getattr(rlaxlib, self.name.partition(".")[0])
        return typing.get_type_hints(factory).get("return")

    # --- What follows from the annotations. ---

    @functools.cached_property
    def drawn(self) -> Arguments:
        """The arguments of one sample."""
        return self.make(np.random.default_rng(0))

    @functools.cached_property
    def annotated(self) -> Callable[..., Any]:
        """The function that has the annotations."""
        found = self.function(rlaxlib)
        if inspect.isroutine(found) and annotations.hints_of(found):
            return found
        factory, _, method = self.name.partition(".")
        function = getattr(rlaxlib, factory)
        if inspect.isclass(function):
            return function.__call__
        return getattr(function(), method) if method else function

    @functools.cached_property
    def specs(self) -> Mapping[str, Spec]:
        """The specs of the arguments that have one."""
        return annotations.specs_of(self.annotated, self.drawn)

    @functools.cached_property
    def key(self) -> str | None:
        """The name of the argument that is a random key."""
        hints = annotations.hints_of(self.annotated)
        found = annotations.specs_of(self.annotated, hints)
        keys = (name for name, spec in found.items() if spec.kind == "Key")
        return next(keys, None)

    @functools.cached_property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The parameters of the function that this row may set."""
        found = inspect.signature(self.function(rlaxlib)).parameters
        is_open = any(each.kind is each.VAR_KEYWORD for each in found.values())
        is_class = inspect.isclass(self.made)
        if is_open and not (is_class and issubclass(self.made, FunctionTuple)):
            return inspect.signature(self.annotated).parameters
        return found

    @functools.cached_property
    def out_of_range(self) -> tuple[Arguments, ...]:
        """Values that the function must reject, in traced programs too."""
        drawn = {name: np.asarray(x) for name, x in self.drawn.items()}
        sizes = annotations.sizes_of(self.specs, drawn)
        # An argument that is the size of an axis gives an error about the array.
        names = self.parameters.keys() - sizes
        found = annotations.specs_of(self.annotated, names) | dict(self.specs)
        defaults = {name: each.default for name, each in self.parameters.items()}
        bounds = sizes | {
            name: float(x)
            for name, x in {**defaults, **self.settings}.items()
            if isinstance(x, int | float) and name not in drawn
        }
        stated = [
            {name: bad}
            for name, spec in found.items()
            for bad in annotations.excluded(
                spec, drawn.get(name, annotations.least(spec, sizes)), bounds
            )
        ]
        return (*stated, *self.invalid)

    def names(self, has: Callable[[Spec], bool]) -> set[str]:
        return {name for name, spec in self.specs.items() if has(spec)}

    @property
    def may_be_none(self) -> set[str]:
        """Names of the arguments that may be None."""
        return self.names(lambda spec: spec.optional) | set(self.loose.none)

    @property
    def trees(self) -> set[str]:
        """Names of the arguments that may be any pytree."""
        return self.names(lambda spec: spec.is_tree) | set(self.loose.trees)

    @property
    def any_length(self) -> set[str]:
        """Names of the arrays whose first axis is that of no other argument."""
        axes = {
            name: {split(axis)[0] for each in spec.shapes for axis in each}
            for name, spec in self.specs.items()
        }

        def is_alone(name: str) -> bool:
            first = {split(each[0])[0] for each in self.specs[name].shapes if each}
            others = (axes[other] for other in axes if other != name)
            # Those named like arguments are sizes.
            taken = set(self.parameters).union(*others) - {"_", "*_"}
            is_open = any(map(is_many, first - {"*_"}))
            return bool(first) and not is_open and first.isdisjoint(taken)

        return {*filter(is_alone, axes), *self.loose.lengths}

    @property
    def any_dtype(self) -> set[str]:
        """Names of the arguments that may have another dtype."""
        wide = self.names(lambda spec: spec.kind in ("Real", "Shaped"))
        return wide | set(self.loose.dtypes)

    @property
    def may_be_scalars(self) -> set[str]:
        """Names of the arguments that may be a scalar for all steps."""
        shapes = {(), ("T",)}
        return self.names(lambda x: set(x.shapes) == shapes) & set(self.float_names)

    @property
    def has_single_shapes(self) -> bool:
        """Whether a batch of all arguments is an error."""
        if self.loose.batches is not None:
            return not self.loose.batches
        return not any(map(annotations.has_leading_axes, self.specs.values()))

    @property
    def multistep(self) -> bool:
        """Whether the function takes `truncated_t` and `sample_mask`."""
        takes = "truncated_t" in annotations.hints_of(self.annotated)
        is_given = {"truncated_t", "sample_mask"} & self.drawn.keys()
        return self.stream is not None and takes and not is_given

    # --- What follows from a sample. ---

    @property
    def defined(self) -> bool:
        return callable(self.definition)

    @property
    def undefined(self) -> bool:
        return not self.defined

    @property
    def deterministic(self) -> bool:
        """Whether there is a definition and no key: samples depend on the dtype."""
        return self.defined and self.key is None

    @property
    def compared(self) -> bool:
        """Whether rlax has the function, and there is no reason not to compare."""
        in_rlax = self.name.partition(".")[0] in peers.names("rlax")
        return in_rlax and not self.peer.why_not

    @property
    def has_arguments(self) -> bool:
        """Whether the function takes an array."""
        return self.key is not None or bool(self.drawn)

    @property
    def sized_names(self) -> tuple[str, ...]:
        """Names of arrays whose lengths must agree."""
        names = tuple(name for name, value in self.drawn.items() if np.ndim(value))
        return names if len(names) > 1 or self.multistep else ()

    @property
    def broadcast_names(self) -> tuple[str, ...]:
        """Names of the arguments that may have size 1."""
        masks = () if self.multistep else ("sample_mask",)
        names = BROADCAST + masks
        sized = self.sized_names
        return tuple(name for name in sized if name.rpartition(".")[2] in names)

    @property
    def index_names(self) -> tuple[str, ...]:
        """Names of the arguments that index another array."""
        drawn = self.drawn.items()
        return tuple(
            n for n, x in drawn if n in INDICES and np.asarray(x).dtype.kind == "i"
        )

    @property
    def has_flag(self) -> bool:
        return bool(self.gradients.targets)

    @property
    def float_names(self) -> tuple[str, ...]:
        """Names of the float arguments."""
        return tuple(name for name, value in self.drawn.items() if is_float(value))

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the arguments with a derivative."""
        names = self.float_names if self.gradients.exist else ()
        return tuple(name for name in names if name not in self.gradients.constants)

    @property
    def twice_differentiable(self) -> bool:
        return self.gradients.exist and not self.gradients.first_order_only

    @property
    def has_several_floats(self) -> bool:
        return len(self.precision.decisive or self.float_names) > 1

    @property
    def flags(self) -> tuple[bool | None, ...]:
        """Values of the stop-gradient flag, or None if there is none."""
        return (True, False) if self.has_flag else (None,)

    def setting(self, flag: bool | None) -> Arguments:
        """Return the setting of the flag."""
        if flag is None:
            return {}
        return {name: flag for name in FLAGS if name in self.parameters}

    def function(self, library: Any) -> Callable[..., Any]:
        find = self.find or operator.attrgetter(self.name)
        return find(library)

    def call(self, library: Any = rlaxlib, **settings: Any) -> Callable[..., Any]:
        """Return the function with its settings."""
        return functools.partial(
            self.function(library), **{**self.settings, **settings}
        )

    def peer_call(self, rlax: Any, **settings: Any) -> Callable[..., Any]:
        """Return the function of rlax, which may promote, broadcast and warn."""

        def call(**arguments: Any) -> Any:
            with (
                warnings.catch_warnings(),
                jax.numpy_dtype_promotion("standard"),
                jax.numpy_rank_promotion("allow"),
            ):
                warnings.simplefilter("ignore")
                function = (self.peer.find or self.function)(rlax)
                return function(**arguments, **{**self.settings, **settings})

        return call

    def define(self, arguments: Arguments) -> list[np.ndarray]:
        """Evaluate the definition in double precision."""
        assert callable(self.definition)
        inputs = {name: to_numpy(value) for name, value in arguments.items()}
        with np.errstate(divide="ignore"):
            return leaves(self.definition(**inputs, **self.settings))

    def to_differentiate(
        self, flag: bool | None
    ) -> Callable[[Arguments, Arguments], Any]:
        """Return the function to differentiate, of `(x, constants)`."""
        of = self.gradients
        special = of.stopped_definition if flag else of.free_definition
        if special is not None:
            return lambda x, constants: leaves(special(x, constants))
        kept = self.gradients.targets if flag else ()
        return lambda x, constants: self.define(
            x | {name: constants[name] for name in kept}
        )

    def inputs(self, seed: int = 0, dtype: Any = np.float32) -> Arguments:
        """Sample arguments as JAX arrays, and a key if there is one."""
        arguments = to_jax(self.make(np.random.default_rng(seed)), dtype)
        if self.key is not None:
            arguments = {self.key: jax.random.key(seed), **arguments}
        return arguments

    def scale(self, arguments: Arguments) -> float:
        """Return the magnitude of intermediate values."""
        sizes = [np.abs(to_numpy(x)).max() for x in arguments.values() if is_float(x)]
        return self.precision.condition * max([1.0, *sizes])
