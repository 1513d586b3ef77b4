"""Test functions on an explicit mesh, which `jax.make_mesh` makes."""

import contextlib

import contract
import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

NAMES = [
    "backtracking_line_search",
    "categorical_mpo_loss",
    "get_top_k_weights",
    "mpo_loss",
    "ppo_clip_loss",
    "vmpo_compute_weights_and_temperature_loss",
    "vmpo_loss",
]
ROWS = [row for row in contract.collect() if row.name in NAMES and not row.case]


@pytest.mark.parametrize("in_context", [False, True])
@pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
def test_a_batch_on_an_explicit_mesh_equals_that_on_one_device(row, in_context):
    mesh = jax.make_mesh((4,), ("data",), devices=jax.devices()[:4])
    batch = contract.stack([row.inputs(seed) for seed in range(4)])

    @jax.jit
    @jax.vmap
    def program(inputs):
        if row.differentiable:
            return contract.gradient(row, row.call(), inputs)
        return row.call()(**inputs)

    expected = program(batch)
    placed = jax.device_put(batch, NamedSharding(mesh, PartitionSpec("data")))
    with jax.set_mesh(mesh) if in_context else contextlib.nullcontext():
        found = program(placed)
    for one, other in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_allclose(one, other, 1e-5, 1e-5)
