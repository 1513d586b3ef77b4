"""Errors of arguments: the function, the argument, what was found, what is required.

`lambda_returns(x, x, y)` of an `x` of 5 steps and a `y` of 6 raises::

    lambda_returns: `v_t` is float32[6], must be float[T], where T = 5 by `r_t`.
      r_t is float32[5], must be float[T]
      discount_t is float32[5], must be float[T] in [0, 1]
      v_t is float32[6], must be float[T]
    `v_t[1:]` fits.

The first line is always there. It is alone for a wrong value. For a wrong shape, a
table has all arrays that were passed. A last line is there in three cases:

- all arrays fit if `jax.vmap` maps those that have one axis more (`_batch`); else
- a slice of an array of the wrong shape fits (`_sliced`);
- a conversion gives an array of the wrong dtype or type the right one (`_converted`).
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import re
import reprlib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from rlaxlib._core import binding, specs
from rlaxlib._core.binding import Bound, Type
from rlaxlib._core.specs import Shape, Sizes, Spec, Values

Specs = Mapping[str, Spec]
Shapes = Mapping[str, Shape]

# How to convert arrays that JAX does not read, by a method that they have.
_METHODS = {
    "filled": "{}.filled(...)",  # A masked array.
    "detach": "{}.detach().cpu().numpy()",
    "__jax_array__": "jnp.asarray({})",
    "__array__": "jnp.asarray({})",
}
_DISCOUNT = "γ * (1 - terminated)"


class ArgumentError(ValueError, AssertionError):
    """An argument has a shape, a dtype or a value that the function cannot use.

    It is a `ValueError`. It is an `AssertionError` too, so that code written around
    libraries that assert their shapes still catches it.
    """

    needs_name = False  # Whether the text lacks the name of the function.


def problem(text: str) -> ArgumentError:
    """Return an error to which `named` adds the function, and a full stop."""
    error = ArgumentError(text)
    error.needs_name = True
    return error


def named(error: ArgumentError, function: str) -> ArgumentError:
    """Add the name of the public function that was called, if `problem` made it."""
    if error.needs_name:
        first, *further = str(error).split("\n")
        error.args = ("\n".join([f"{function}: {first}.", *further]),)
        error.needs_name = False
    return error


def unbound(call: Callable[..., Any], name: str, args: Any, kwargs: Any) -> TypeError:
    """Return the error of a call with missing, unknown or repeated arguments."""
    signature, text = inspect.signature(call), ""
    try:
        signature.bind_partial(*args, **kwargs)  # An unknown argument comes first.
        signature.bind(*args, **kwargs)
    except TypeError as error:
        text = f"{error}"
    every = signature.parameters.values()
    names = [x.replace(annotation=x.empty) for x in every if x.name != "self"]
    return TypeError(f"{name}() {text}: its arguments are {inspect.Signature(names)}")


def misfit(
    found: Values, wanted: Specs, bound: Bound, plan: Any = None, given: Any = None
) -> ArgumentError:
    """Return the error of the array that does not fit, among all that were found.

    Arrays in states and pytrees are under their paths. All arguments are `given`.
    """
    name, spec = bound.misfit, wanted[bound.misfit]
    defaults = plan.defaults if plan else {}
    passed = {n: x for n, x in wanted.items() if found[n] is not defaults.get(n)}
    types = {n: binding.type_of(found[n]) for n in passed}
    shapes = {n: binding.own_shape(types[n], x.kind) for n, x in passed.items()}
    shape = shapes.get(name, ())
    first = f"`{name}` is {describe(found[name])}, must be {spec.text}"
    if spec.kind == "Flag":
        is_mask = shape and types[name][1] == np.bool_
        masks = [f"`{n}`" for n, x in wanted.items() if x.kind == "Bool" and is_mask]
        return problem(first + f": pass {' or '.join(masks)} by keyword" * bool(masks))
    if not binding.has_kind(binding.type_of(found[name]), spec):
        way = _converted(name, found, wanted, bound.sizes)
        return problem(first + f"\nTry `{way}`." * bool(way))
    first += " and not empty" * (0 in shape) + _where(spec, bound)
    rows = [n for n, x in passed.items() if x.is_tree == spec.is_tree]
    lines = [f"  {n} is {describe(found[n])}, must be {wanted[n].text}" for n in rows]
    way = _sliced(name, shape, spec, bound.sizes)
    last = plan and _batch(plan, given, passed, shapes)
    last = last or f"`{way}` fits." * bool(way)
    return problem("\n".join(filter(None, [first, *lines, last])))


def describe(value: Any) -> str:
    """Write an array as `float32[4, 5]`, and anything else as Python does."""
    shape, dtype, _ = binding.type_of(value)
    if dtype is int and hasattr(value, "weak_type"):
        dtype = value.dtype
    if not isinstance(dtype, type):
        return f"{dtype}[{', '.join(map(str, shape))}]"
    if hasattr(value, "_fields") or hasattr(value, "shape"):
        return f"a `{type(value).__module__.partition('.')[0]}.{type(value).__name__}`"
    return " ".join(reprlib.repr(value).split())  # In one line.


def wrong_type(path: str, wanted: Spec, given: Values) -> ArgumentError:
    """Return the error of an argument that is not a state, record or tuple."""
    value = given[specs.argument_of(path)]
    for field, place in re.findall(r"\.(\w+)|\[(\d+)\]", path):
        value = getattr(value, field) if field else value[int(place)]
    kind = getattr(wanted.type, "__name__", "tuple")
    # As a checkpoint restores a state.
    is_like = isinstance(value, Mapping) and value.keys() == wanted.parts.keys()
    way = f"\n`{kind}(**{path})` fits." * is_like
    return problem(f"`{path}` is {describe(value)}, must be a `{kind}`{way}")


def _where(spec: Spec, bound: Bound) -> str:
    """Write the sizes that a spec names, each with the first array that has it."""
    names = {_name(x): n for n, axes in reversed(bound.axes.items()) for x in axes}
    used = dict.fromkeys(map(_name, itertools.chain(*spec.shapes)))
    known = [x for x in used if x in names and x in bound.sizes]
    sizes = [f"{specs.shown(x)} = {bound.sizes[x]} by `{names[x]}`" for x in known]
    return f", where {', '.join(sizes)}" * bool(sizes)


# --- What fits in the place of an argument. ---


def _converted(name: str, found: Values, wanted: Specs, sizes: Sizes) -> str:
    """Write a conversion to the required dtype that keeps the numbers, or nothing.

    The whole call has to fit after a conversion of numbers that JAX reads.
    """
    value, spec = found[name], wanted[name]
    types = {n: _type_of(found[n]) for n in wanted}
    shape, dtype, _ = types[name]
    kind = {"Bool": "bool", "Int": "int"}.get(spec.kind, "float")
    is_whole = getattr(dtype, "kind", "") in ("b", "i", "u")
    if spec.kind == "Key":
        return "jax.random.key(0)"
    if "discount" in name and (is_whole or dtype is bool):
        return _DISCOUNT
    if isinstance(dtype, type):  # Not a number, nor an array that JAX reads.
        ways = [x for n, x in _METHODS.items() if hasattr(value, n)]
        return ways[0].format(name) if ways and dtype is not type else ""
    keeps = isinstance(dtype, np.dtype) and np.can_cast(dtype, kind, "same_kind")
    types[name] = shape, np.dtype(kind), True
    is_right = keeps or (is_whole and kind == "bool")
    fits = is_right and not binding.bind(wanted, types, sizes).misfit
    way = "jnp.asarray({}, {})" if isinstance(value, list | tuple) else "{}.astype({})"
    return way.format(name, kind) if fits else ""


def _type_of(value: Any) -> Type:
    """Return the type of a value, a list being the array that it makes."""
    if type(value) in (list, tuple):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            array = jax.eval_shape(jax.numpy.asarray, value)
            return array.shape, array.dtype, True
    return binding.type_of(value)


def _sliced(name: str, shape: Shape, spec: Spec, sizes: Sizes) -> str:
    """Write a part of an array that has the required shape, or nothing."""

    def fits(new: Shape) -> bool:
        return not binding.fit({name: spec}, {name: new}, sizes).misfit

    if "discount" in name and shape == ():
        return _DISCOUNT
    is_any = spec.is_open and spec.shapes != (("...",),)
    if shape[-1:] == (1,) and not is_any and fits(shape[:-1]):
        return f"{name}[..., 0]"
    part = {"t": "[1:]", "tm1": "[:-1]"}.get(name.rpartition("_")[2])
    is_long = part and shape and spec.shapes[0][:1] == ("T",)
    return f"{name}{part}" if is_long and fits((shape[0] - 1, *shape[1:])) else ""


def _batch(plan: Any, given: Values, wanted: Specs, shapes: Shapes) -> str:
    """Write a `jax.vmap` that takes the arguments of a call, or nothing.

    It maps arrays that do not fit as they are, over one axis more: the first, or after
    time the second. Keys are mapped, too. A state that is updated is not shared. Arrays
    of any shape are not taken for a batch, nor is one scalar, nor are some columns.
    """
    forms = {n: wanted[n].shapes for n in shapes}
    firsts = {_name(axes[0]) for x in forms.values() for axes in x if axes}
    before = firsts & {"T"} or (firsts & {"N", "C", "G"} if len(firsts) == 1 else set())
    sizes: Sizes = {n: x for n, x in given.items() if type(x) is int}
    keys = {n: 0 for n in shapes if wanted[n].kind == "Key"}
    ways: list[dict[str, int | None]] = []
    for axis in (0, 1):
        mapped = {n: _batched(x, axis, before) for n, x in wanted.items()}
        bound = binding.fit(mapped, shapes, sizes)
        at = {n: x.index("batch") for n, x in bound.axes.items() if "batch" in x}
        rest = {forms[n] for n in shapes if n not in at}
        is_column = bound.sizes.get("batch") == 1 and any(forms[n] in rest for n in at)
        is_scalar = len(at) == 1 and not any(forms[n][0] or n in keys for n in at)
        if axis in at.values() and not (bound.misfit or is_column or is_scalar):
            axes = {(specs.argument_of(n), (at | keys).get(n)) for n in shapes}
            ways += [dict(axes)] * (len(axes) == len(dict(axes)))  # Of a whole state.
    is_shared = any(x.get(n, 0) is None for x in ways for n in plan.states.values())
    is_open = any(x and wanted[n].is_open for n, x in shapes.items())
    name = "" if plan.is_factory or is_shared or is_open else plan.name(given)
    if not ways or not name.isidentifier():
        return ""
    order, function = dict.fromkeys([*plan.positional, *given]), f"rlaxlib.{name}"
    passed = [n for n in order if given[n] is not plan.defaults.get(n, given)]
    if passed != plan.positional[: len(passed)]:
        inner = ", ".join(f"{n}={n}" for n in passed)
        function = f"lambda {', '.join(passed)}: {function}({inner})"
    first, *other = (f"in_axes={tuple(map(x.get, passed))}" for x in ways)
    every = [f"jax.vmap({function}, {first})", *other]
    return f"A batch fits {', or '.join(f'`{x}`' for x in every)}."


def _batched(spec: Spec, axis: int, before: set[str]) -> Spec:
    """Return a spec that allows arrays with the axis of a batch, too."""
    shapes = list(spec.shapes)
    for axes in spec.shapes:
        first = axis if axes and _name(axes[0]) in before else 0
        shapes.append((*axes[:first], "batch", *axes[first:]))
    return spec._replace(shapes=tuple(shapes))


def _name(axis: str) -> str:
    """Return the name of an axis such as `T+1`."""
    return specs.split(axis)[0]
