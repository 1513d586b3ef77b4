"""Test that arrays which JAX would refuse or misread raise an error that says how."""

import re

import contract
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


def arguments():
    """Yield function, argument, annotation, path and spec of each array."""
    for signature in ALL.values():
        hints = signatures.typing.get_type_hints(
            signature.function, include_extras=True
        )
        for argument in signature.arrays | signature.nested:
            for path, spec in paths(argument, hints[argument]):
                yield signature, argument, hints[argument], path, spec


def error_of(signature, argument, hint, path, bad):
    """Return the error of a call with one bad array, which names it."""
    with pytest.raises(ArgumentError) as error:
        signature.check({argument: build(argument, hint, path, bad)})
    text = str(error.value)
    assert text.startswith(f"`{path}` is "), (signature.function, path, text)
    return text


@pytest.mark.parametrize("kind", MISREAD)
def test_every_array_argument_refuses_what_jax_would_misread(kind):
    count = 0
    for signature, argument, hint, path, spec in arguments():
        is_whole = spec and spec.kind in ("Key", "Bool", "Int")
        if is_whole and kind == "long double":
            continue
        if kind == "big-endian" and dtype_of(spec) is bool:
            continue
        shape = (1,) * (len(spec.shapes[0]) if spec else 1)
        bad = MISREAD[kind](np.ones(shape, dtype_of(spec)))
        text = error_of(signature, argument, hint, path, bad)
        assert re.search("Convert it|Use `|Fill its|is a key", text), text
        count += 1
    assert count > 500


def test_every_array_of_integers_refuses_those_that_jax_would_cut():
    count = 0
    for signature, argument, hint, path, spec in arguments():
        if spec and spec.kind in ("Int", "Real", "Shaped") and not spec.rules:
            axes = [axis for axis in spec.shapes[0] if not specs.is_many(axis)]
            bad = np.full([1 + ("+" in axis) for axis in axes], 2**32 + 1)
            text = error_of(signature, argument, hint, path, bad)
            assert "4294967297, must fit into 32 bits" in text, text
            count += 1
    assert count > 10


def test_integers_beyond_32_bits_do_not_wrap():
    new, old = np.ones(1, np.float32), np.zeros(1, np.float32)
    for steps in (np.int64(2**32), 2**32):  # A wrapped step would be 0.
        with pytest.raises(ArgumentError, match="jax_enable_x64"):
            r.periodic_update(new, old, steps, 10)
        with contract.x64(True):
            assert r.periodic_update(new, old, steps, 10) == 0  # 2**32 is 6 mod 10.
    with pytest.raises(ArgumentError, match=r"`counts` is 4294967300"):
        r.count_bonus(np.array([2**32 + 4]))
    mask = np.array([True, False])  # Nobody uses the step.
    r.length_weighted_baseline(np.ones(2, "f4"), np.array([1, 2**40]), sample_mask=mask)
    assert r.huber_loss(2**40) == 2.0**40 - 0.5


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
