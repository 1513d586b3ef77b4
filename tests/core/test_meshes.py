"""Test what JAX cannot run on a mesh of explicit axes, and that it still cannot.

With `jax.set_mesh` it can, but not all users set it. Tried with JAX 0.7.0, 0.8.2,
0.9.2, 0.10.2, 0.11.0 and 0.12.0.1: 0.7.0 runs the plain forms of `take`, `unsort` and
`write`, and not our `write`; of the later versions, none runs a plain form but that of
`search`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from rlaxlib._core import indexing, meshes, programs

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
# The version of JAX that runs the plain form, to use once no older one is supported.
RUNS_FROM = {"search": (0, 12)}

kinds = pytest.mark.parametrize("kind", KINDS)


def run(function, arguments, axes):
    """Return the values and the gradients of a function, mapped over a batch."""

    def inside(*args):
        with programs.mesh_of(args):  # As every checked function does.
            return function(*args)

    shapes = jax.eval_shape(jax.vmap(inside, axes), *arguments)
    if not jnp.issubdtype(shapes.dtype, jnp.floating):
        return jax.jit(jax.vmap(inside, axes))(*arguments)
    both = jax.value_and_grad(lambda *args: jnp.sum(inside(*args)))
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


@pytest.mark.skipif(jax.__version_info__ < (0, 8), reason="0.7.0 does not `write`")
@kinds
def test_runs_on_an_explicit_mesh(kind):
    arguments, axes, ours, _ = KINDS[kind]
    found = run(ours, on_mesh(arguments, axes), axes)
    jax.tree.map(np.testing.assert_array_equal, found, run(ours, arguments, axes))


@pytest.mark.skipif(jax.__version_info__ < (0, 8), reason="0.7.0 has no such rules")
@kinds
def test_jax_does_not_run_the_plain_form_there(kind):
    arguments, axes, _, plain = KINDS[kind]
    if jax.__version_info__ >= RUNS_FROM.get(kind, (1,)):
        run(plain, on_mesh(arguments, axes), axes)
        return
    # Once JAX raises no error, use the plain form in place of ours.
    with pytest.raises(Exception, match=r"(?i)shard|mesh"):
        run(plain, on_mesh(arguments, axes), axes)


def test_an_entry_is_picked_from_an_axis_that_devices_share():
    mesh = jax.make_mesh((2,), ("columns",), (AxisType.Explicit,))
    place = NamedSharding(mesh, PartitionSpec(None, "columns"))
    indices = jnp.array([3, 4])
    found = jax.jit(indexing.pick)(jax.device_put(X, place), indices)
    np.testing.assert_array_equal(found, [5, np.nan])
