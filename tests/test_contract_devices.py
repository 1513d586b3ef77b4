"""Test every public function on batches over an explicit mesh of devices."""

import contextlib

import contract
import jax
import numpy as np
import pytest
from contract import SINGLE, each_row
from jax.sharding import AxisType, NamedSharding, PartitionSpec

DEVICES = 4


@each_row("given", sample=True)
@pytest.mark.parametrize("is_set", [False, True], ids=["", "set"])
def test_a_batch_over_an_explicit_mesh_equals_one_on_a_single_device(row, is_set):
    each = [row.inputs(seed) for seed in range(DEVICES)]
    batch = contract.stack(each)
    mesh = jax.make_mesh((DEVICES,), ("data",), axis_types=(AxisType.Explicit,))

    @jax.jit
    def program(batch):
        return jax.vmap(lambda x: contract.gradient(row, row.call(), x))(batch)

    expected = program(batch)
    with jax.set_mesh(mesh) if is_set else contextlib.nullcontext():
        sharding = NamedSharding(mesh, PartitionSpec("data"))
        found = program(jax.device_put(batch, sharding))
    for one, other in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        size = SINGLE * max(1, *np.abs(contract.to_numpy(other)).ravel())
        np.testing.assert_allclose(one, other, rtol=SINGLE, atol=size)
