"""Test what JAX cannot run on a mesh of explicit axes, and that it still cannot.

With `jax.set_mesh` it can, but not all users set it.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from rlaxlib._core import meshes

X = np.float32([[3, 1, 2, 5], [0, 7, 6, 4]])
ORDER = np.array([[3, 1, 2, 0], [1, 2, 0, 3]])
SHARED = np.float32([2, 3, 5])
INDICES = np.array([[0, 2, 2, 1], [1, 0, 2, 0]])
START = np.array([2, 3])
MEMORY = np.zeros_like(X)

# Arguments, those that are mapped, our function, and the plain form.
KINDS = {
    "search": (
        (np.sort(X), X),
        (0, 0),
        meshes.search,
        lambda bounds, points: jnp.searchsorted(bounds, points, "right"),
    ),
    "segment_sums": (
        (X, INDICES),
        (0, 0),
        lambda x, indices: meshes.segment_sums(x, indices, 3),
        lambda x, indices: jax.ops.segment_sum(x, indices, 3),
    ),
    "take": (
        (SHARED, INDICES),
        (None, 0),
        meshes.take,
        lambda x, indices: x.at[indices].get(mode="fill", fill_value=jnp.nan),
    ),
    "unsort": (
        (X, ORDER),
        (0, 0),
        lambda x, order: meshes.unsort(order, x),
        lambda x, order: jnp.zeros_like(x).at[order].set(x),
    ),
    "write": (
        (X[:, :3], MEMORY, START),
        (0, 0, 0),
        lambda rows, memory, start: meshes.write(memory, rows, start),
        lambda rows, memory, start: memory.at[(start + jnp.arange(3)) % 4].set(rows),
    ),
}
kinds = pytest.mark.parametrize("kind", KINDS)


def run(function, arguments, axes):
    """Return the values and the gradients of a function, mapped over a batch."""
    shapes = jax.eval_shape(jax.vmap(function, axes), *arguments)
    if not jnp.issubdtype(shapes.dtype, jnp.floating):
        return jax.jit(jax.vmap(function, axes))(*arguments)
    both = jax.value_and_grad(lambda *args: jnp.sum(function(*args)))
    return jax.jit(jax.vmap(both, axes))(*arguments)


def on_mesh(arguments, axes):
    """Share the mapped arguments over the devices of a mesh of explicit axes."""
    mesh = jax.make_mesh((2,), ("batch",), (AxisType.Explicit,))
    specs = [PartitionSpec(*["batch"] * (axis is not None)) for axis in axes]
    pairs = zip(arguments, specs, strict=True)
    return [jax.device_put(x, NamedSharding(mesh, spec)) for x, spec in pairs]


@kinds
def test_equals_the_plain_form(kind):
    arguments, axes, ours, plain = KINDS[kind]
    ours, plain = (run(function, arguments, axes) for function in (ours, plain))
    jax.tree.map(np.testing.assert_array_equal, ours, plain)


@pytest.mark.skipif(jax.__version_info__ < (0, 10, 2), reason="tried with 0.10.2")
@kinds
def test_runs_on_an_explicit_mesh(kind):
    arguments, axes, ours, _ = KINDS[kind]
    found = run(ours, on_mesh(arguments, axes), axes)
    jax.tree.map(np.testing.assert_array_equal, found, run(ours, arguments, axes))


@pytest.mark.skipif(jax.__version_info__ < (0, 10, 2), reason="tried with 0.10.2")
@kinds
def test_jax_does_not_run_the_plain_form_there(kind):
    arguments, axes, _, plain = KINDS[kind]
    # Once JAX raises no error, use the plain form in place of ours.
    with pytest.raises(Exception, match=r"(?i)shard|mesh"):
        run(plain, on_mesh(arguments, axes), axes)
