"""Test that arrays which JAX would refuse or misread raise an error that says how."""

import contract
import numpy as np
import pytest
from catalogue import ALL, check
from foreign import Tensor

import rlaxlib as r
from rlaxlib import ArgumentError
from rlaxlib._core import specs

DTYPES = {"Bool": bool, "Int": np.int32}
MISREAD = {
    "big-endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
    "masked": np.ma.masked_array,
    "long double": lambda x: x.astype(np.longdouble),
    "tensor": Tensor,
}


def paths(path, spec):
    """Yield path and spec of each array that an argument contains."""
    if spec.is_tree:
        yield f"{path}['w']", spec
    elif spec.is_array:
        yield path, spec
    for name, part in spec.parts.items():
        yield from paths(within(path, spec, name), part)


def within(path, spec, name):
    return f"{path}.{name}" if spec.kind == "Record" else f"{path}[{name}]"


def build(path, spec, at, bad):
    """Return an argument with one bad array, at a path; ones elsewhere."""
    if path == at:
        return bad
    if spec.is_tree:
        return {"w": bad if at.startswith(f"{path}[") else np.ones(1, np.float32)}
    if spec.is_array:
        shape = (1,) * sum(not specs.is_many(axis) for axis in spec.shapes[0])
        return KEY if spec.kind == "Key" else np.ones(shape, dtype_of(spec))
    if spec.is_static or spec.kind == "Flag":
        return spec.options[0] if spec.options else False
    parts = [build(within(path, spec, n), x, at, bad) for n, x in spec.parts.items()]
    return spec.type(*parts) if spec.kind == "Record" else tuple(parts)


def dtype_of(spec):
    return DTYPES.get(spec.kind, np.float32)


def arguments():
    """Yield function, argument and its spec, and path and spec of each array."""
    for signature in ALL.values():
        found = signature.specs.items()
        for argument, whole in [
            (n, x) for n, x in found if not (x.is_bare or x.is_static)
        ]:
            for path, spec in paths(argument, whole):
                yield signature, argument, whole, path, spec


def error_of(signature, argument, whole, path, bad):
    """Return the error of a call with one bad array, which names it."""
    with pytest.raises(ArgumentError) as error:
        check(signature, **{argument: build(argument, whole, path, bad)})
    text = str(error.value)
    assert text.startswith(f"`{path}` is "), (signature.function, path, text)
    return text


@pytest.mark.parametrize("kind", MISREAD)
def test_every_array_argument_refuses_what_jax_would_misread(kind):
    count = 0
    for signature, argument, whole, path, spec in arguments():
        is_whole = spec.kind in ("Key", "Bool", "Int")
        if is_whole and kind == "long double":
            continue
        if kind == "big-endian" and dtype_of(spec) is bool:
            continue
        shape = [1 + ("+" in axis) for axis in spec.shapes[0]]
        bad = MISREAD[kind](np.ones(shape, dtype_of(spec)))
        text = error_of(signature, argument, whole, path, bad)
        assert "\nTry `" in text, text
        count += 1
    assert count > 500


def test_every_array_of_integers_refuses_those_that_jax_would_cut():
    count = 0
    for signature, argument, whole, path, spec in arguments():
        if spec.kind in ("Int", "Real", "Shaped") and not spec.rules:
            axes = [axis for axis in spec.shapes[0] if not specs.is_many(axis)]
            bad = np.full([1 + ("+" in axis) for axis in axes], 2**32 + 1)
            text = error_of(signature, argument, whole, path, bad)
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
        r.ucb_scores(np.array([2**32 + 4]), np.ones(1, "f4"))
    mask = np.array([True, False])  # Nobody uses the step.
    r.length_weighted_baseline(np.ones(2, "f4"), np.array([1, 2**40]), sample_mask=mask)
    assert r.huber_loss(2**40) == 2.0**40 - 0.5


def test_a_compiled_program_does_not_read_big_endian_memory():
    data = np.array([1, 2, 3], np.float32)
    for _ in range(2):
        r.lambda_returns(data, np.ones(3, "f4"), np.ones(3, "f4"))
        with pytest.raises(ArgumentError, match=r"Try `r_t.astype\(float\)`"):
            r.lambda_returns(data.astype(">f4"), np.ones(3, "f4"), np.ones(3, "f4"))
        r.masked_mean(data)
        with pytest.raises(ArgumentError, match=r"Try `x.filled\(...\)`"):
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
