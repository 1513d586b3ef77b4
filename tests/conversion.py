"""Arrays of tests, in NumPy and in JAX."""

import contextlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Arguments = dict[str, Any]


def is_float(x: Any) -> bool:
    return hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.floating)


def is_key(x: Any) -> bool:
    return hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def x64(enabled: bool) -> contextlib.AbstractContextManager[Any]:
    """Switch double precision on or off, for a while."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(enabled)
    from jax import experimental  # noqa: PLC0415 - Up to JAX 0.7 it is in here.

    return experimental.enable_x64(enabled)


def to_jax(arguments: Arguments, dtype: Any) -> Arguments:
    """Return arguments as JAX arrays: floats of a dtype, integers of 32 bits."""

    def convert(x: Any) -> jax.Array:
        x = np.asarray(x)
        if x.dtype != bool:
            # NumPy converts: JAX would compile a program for each shape.
            x = x.astype(dtype if x.dtype.kind == "f" else np.int32)
        return jax.device_put(x)

    return {name: convert(value) for name, value in arguments.items()}


def stack(each: Sequence[Arguments]) -> Arguments:
    """Return a batch of arguments as JAX arrays."""

    def join(*xs: Any) -> jax.Array:
        return jnp.stack(xs) if is_key(xs[0]) else jax.device_put(np.stack(xs))

    return jax.tree.map(join, *each)


def to_numpy(x: Any) -> Any:
    """Return an array in NumPy, a float in double precision, a key as it is."""
    if is_key(x):
        return x
    return np.asarray(x, np.float64 if is_float(x) else None)


def leaves(outputs: Any) -> list[np.ndarray]:
    """Return the arrays of an output in their order, floats in double precision."""
    if isinstance(outputs, tuple | list) and isinstance(outputs[0], float | int):
        outputs = np.asarray(outputs)
    return [to_numpy(leaf) for leaf in jax.tree.leaves(outputs)]


def assert_close(actual: Any, expected: Any, relative: float, absolute: float) -> None:
    """Compare two outputs, array by array."""
    actual, expected = leaves(actual), leaves(expected)
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=relative, atol=absolute)
