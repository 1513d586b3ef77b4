"""Test that arrays which JAX would refuse or misread raise an error that says how."""

import re

import numpy as np
import pytest
from catalogue import ALL
from foreign import Tensor

import rlaxlib as r
from rlaxlib import ArgumentError
from rlaxlib._core import signatures, specs

DTYPES = {"Bool": bool, "Int": np.int32}
MISREAD = {
    "big-endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
    "masked": np.ma.masked_array,
    "long double": lambda x: x.astype(np.longdouble),
    "tensor": Tensor,
}


def paths(path, hint):
    """Yield path and spec, or None, of each array that an annotation contains."""
    spec = specs.read(hint)
    if spec and spec.is_tree:
        yield f"{path}['w']", spec
    elif spec:
        yield from [(path, spec)] * spec.is_array
    elif specs.is_record(hint):
        for name, part in specs.fields(hint).items():
            yield from paths(f"{path}.{name}", part)
    elif parts := specs.contents(hint):
        is_union = "Union" in str(type(hint)) or type(None) in hint.__args__
        for i, part in enumerate(parts):
            yield from paths(path if is_union else f"{path}[{i}]", part)


def build(path, hint, at, bad):
    """Return an argument with one bad array, at a path; ones elsewhere."""
    if path == at:
        return bad
    spec = specs.read(hint)
    if spec and spec.is_tree:
        return {"w": bad if at.startswith(f"{path}[") else np.ones(1, np.float32)}
    if spec and spec.is_array:
        shape = (1,) * sum(not specs.is_many(axis) for axis in spec.shapes[0])
        return KEY if spec.kind == "Key" else np.ones(shape, dtype_of(spec))
    if spec:
        return spec.options[0] if spec.options else False
    if specs.is_record(hint):
        fields = specs.fields(hint).items()
        return hint(*[build(f"{path}.{n}", part, at, bad) for n, part in fields])
    if parts := specs.contents(hint):
        if "Union" in str(type(hint)) or type(None) in hint.__args__:
            return build(path, parts[0], at, bad)
        return tuple(
            build(f"{path}[{i}]", part, at, bad) for i, part in enumerate(parts)
        )
    return np.ones(1, np.float32)


def dtype_of(spec):
    return DTYPES.get(spec.kind, np.float32) if spec else np.float32


@pytest.mark.parametrize("kind", MISREAD)
def test_every_array_argument_refuses_what_jax_would_misread(kind):
    count = 0
    for name, signature in ALL.items():
        given = signature.arrays | signature.nested
        hints_of = signatures.typing.get_type_hints(
            signature.function, include_extras=True
        )
        for argument in given:
            for path, spec in paths(argument, hints_of[argument]):
                if (
                    spec
                    and spec.kind in ("Key", "Bool", "Int")
                    and kind == "long double"
                ):
                    continue
                shape = (1,) * (len(spec.shapes[0]) if spec else 1)
                bad = MISREAD[kind](np.ones(shape, dtype_of(spec)))
                if kind == "big-endian" and dtype_of(spec) is bool:
                    continue
                value = build(argument, hints_of[argument], path, bad)
                with pytest.raises(ArgumentError) as error:
                    signature.check({argument: value})
                text = str(error.value)
                assert text.startswith(f"`{path}` is "), (name, path, text)
                assert re.search("Convert it|Use `|Fill its|is a key", text), text
                count += 1
    assert count > 500


def test_a_compiled_program_does_not_read_big_endian_memory():
    data = np.array([1, 2, 3], np.float32)
    for _ in range(2):
        r.lambda_returns(data, np.ones(3, "f4"), np.ones(3, "f4"))
        with pytest.raises(ArgumentError, match="newbyteorder"):
            r.lambda_returns(data.astype(">f4"), np.ones(3, "f4"), np.ones(3, "f4"))
        r.masked_mean(data)
        with pytest.raises(ArgumentError, match="getmaskarray"):
            r.masked_mean(np.ma.masked_array(data, [0, 0, 1]))
        r.l2_init_loss({"w": data}, {"w": data})
        with pytest.raises(
            ArgumentError, match=r"^l2_init_loss: `params\['w'\]` is >f4"
        ):
            r.l2_init_loss({"w": data.astype(">f4")}, {"w": data})


def test_arrays_of_numpy_that_jax_reads_are_taken():
    data = np.arange(3, dtype=np.float32)
    views = [data[::-1], data.view(np.recarray), np.asfortranarray(data), data[:1]]
    for view in views:
        view.flags.writeable = False
        found = r.l2_loss(view)
        np.testing.assert_array_equal(found, 0.5 * np.asarray(view) ** 2)
