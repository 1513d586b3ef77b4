"""Test functions over the devices of a mapped axis, under every kind of map.

Inside of `jax.vmap` and `jax.pmap` with an axis name, and of `jax.shard_map` with and
without `check_vma`, results and averaged gradients equal those of the whole batch.
"""

import functools
import inspect

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import each_row
from jax.sharding import NamedSharding, PartitionSpec

import rlaxlib

AXIS, DEVICES, BATCH = "devices", 2, 8
KINDS = ("vmap", "pmap", "shard_map", "shard_map without check_vma")


def mapped(kind, function):
    """Map a function over a leading axis of devices, by a kind of map."""
    if kind == "vmap":
        return jax.jit(jax.vmap(function, axis_name=AXIS))
    devices = jax.devices()[:DEVICES]
    if kind == "pmap":
        return jax.pmap(function, axis_name=AXIS, devices=devices)
    mesh, spec = (
        jax.make_mesh((DEVICES,), (AXIS,), devices=devices),
        PartitionSpec(AXIS),
    )

    def local(x):
        result = function(jax.tree.map(lambda x: x[0], x))
        return jax.tree.map(lambda x: x[None], result)

    sharded = jax.shard_map(
        local, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=kind == "shard_map"
    )
    place = NamedSharding(mesh, spec)
    return lambda x: jax.jit(sharded)(jax.device_put(x, place))


def on_each(x):
    return x.reshape(DEVICES, -1, *x.shape[1:])


def with_gradient(function, moving):
    """Return a function of inputs: its results, and the gradient by their scale.

    The gradient is that of the sum of all results that are scalars.
    """

    def run(inputs):
        def total(scale):
            moved = {name: scale * inputs[name] for name in moving}
            results = function(**inputs | moved)
            floats = filter(contract.is_float, jax.tree.leaves(results))
            return sum((x for x in floats if not x.ndim), jnp.zeros(())), results

        return jax.grad(total, has_aux=True)(jnp.ones(()))

    return run


def check(function, whole, inputs, moving):
    """Compare a function with an axis name with that of the whole batch."""
    size = len(next(iter(inputs.values())))
    slope, results = jax.jit(with_gradient(whole, moving))(inputs)
    expected = [
        on_each(x) if np.shape(x)[:1] == (size,) else np.stack([x] * DEVICES)
        for x in jax.tree.leaves(results)
    ]

    def averaged(inputs):
        slope, results = with_gradient(function, moving)(inputs)
        return jax.lax.pmean(slope, AXIS), results

    for kind in KINDS:
        found, results = mapped(kind, averaged)(jax.tree.map(on_each, inputs))
        contract.assert_close(results, expected, 2e-5, 2e-5)
        np.testing.assert_allclose(found, slope, 1e-4, 1e-5, err_msg=kind)


@each_row("over_devices", sample=True)
def test_results_and_gradients_over_devices_equal_those_of_one_device(row):
    function = functools.partial(row.over_devices(rlaxlib, AXIS), **row.settings)
    moving = row.variables
    check(function, row.call(), row.inputs(), moving)


# --- Functions whose rows have other batches. ---


def by_update(pair, x):
    init, update = pair
    return jax.tree.leaves(update(init(x[0]), x)[0])


PENALTY = rlaxlib.LagrangePenalty(1.0, 0.1)
CALLS = {
    "adaptive_kl_coefficient": lambda x, axis_name=None: (
        rlaxlib.adaptive_kl_coefficient(
            1.0, jnp.mean(jnp.square(x)), 0.01, axis_name=axis_name
        )
    ),
    "gmpo_loss": lambda x, axis_name=None: rlaxlib.gmpo_loss(
        0.1 * x[:, 0], 0.1 * x[:, 1], 1.0, axis_name=axis_name
    ),
    "importance_statistics": lambda x, axis_name=None: rlaxlib.importance_statistics(
        0.1 * x[:, 0], axis_name=axis_name
    ),
    "percentile_scale": lambda x, axis_name=None: by_update(
        rlaxlib.percentile_scale(axis_name=axis_name), x[:, 0]
    ),
    "pid_lagrangian": lambda x, axis_name=None: rlaxlib.pid_lagrangian(
        -1.0, 1.0, 1.0, axis_name=axis_name
    ).update(rlaxlib.pid_lagrangian(-1.0, 1.0, 1.0).init(), jnp.mean(x))[0],
    "redo_mask": lambda x, axis_name=None: rlaxlib.redo_mask(
        jnp.square(x), 0.7, axis_name=axis_name
    ),
    "running_moments": lambda x, axis_name=None: by_update(
        rlaxlib.running_moments(axis_name=axis_name), x[:, 0]
    ),
    "optimal_token_baseline": lambda x, axis_name=None: rlaxlib.optimal_token_baseline(
        x, -jnp.abs(x), jnp.exp(-2 * jnp.abs(x)), axis_name=axis_name
    ),
    "vespo_weight": lambda x, axis_name=None: rlaxlib.vespo_weight(
        0.1 * x[:, 0], 0.1 * x[:, 1], 1.0, axis_name=axis_name
    ),
    "vmpo_compute_weights_and_temperature_loss": lambda x, axis_name=None: (
        rlaxlib.vmpo_compute_weights_and_temperature_loss(
            *x[:, :1].T,
            jnp.ones(len(x)),
            jnp.ones(len(x)),
            PENALTY,
            jax.nn.softplus,
            0.5,
            axis_name=axis_name,
        )
    ),
    "vmpo_loss": lambda x, axis_name=None: (
        (rlaxlib.vmpo_loss(x[:, 0], x[:, 1], PENALTY, [], axis_name=axis_name))[
            1
        ].temperature_loss
    ),
}
# Functions that only their own tests run over devices.
ELSEWHERE = {
    "art",
    "clip_cov_mask",
    "create_ema",
    "popart",
    "return_based_scale",
    "reward_scale",
}


@pytest.mark.parametrize("name", contract.share(sorted(CALLS), "devices"))
def test_results_of_further_functions_equal_those_of_one_device(name):
    x = np.random.default_rng(0).normal(size=(BATCH, 3)).astype(np.float32)
    function = CALLS[name]
    check(functools.partial(function, axis_name=AXIS), function, {"x": x}, ("x",))


OF_SEGMENTS = {
    "gmpo_loss": lambda x, **options: rlaxlib.gmpo_loss(
        x[:, 0], x[:, 1], 1.0, **options
    ),
    "gspo_ratio": lambda x, **options: rlaxlib.gspo_ratio(x[:, 0], x[:, 1], **options),
    "importance_weights": lambda x, **options: rlaxlib.importance_weights(
        x[:, 0], "sequence", **options
    ),
    "off_policy_sequence_mask": lambda x, **options: rlaxlib.off_policy_sequence_mask(
        x[:, 0], x[:, 1], -1.0, 0.5, **options
    ),
    "vespo_weight": lambda x, **options: rlaxlib.vespo_weight(
        x[:, 0], x[:, 1], 1.0, **options
    ),
}


@pytest.mark.parametrize("name", OF_SEGMENTS)
def test_devices_may_share_the_segments_of_a_packed_row(name):
    """Each has a segment of its own, and there are as many as tokens in all."""

    def function(x, ids, axis_name=None):
        options = {"segment_ids": ids, "axis_name": axis_name}
        result = jax.tree.leaves(OF_SEGMENTS[name](x, **options))[0]
        mean = rlaxlib.masked_mean(result.astype(x.dtype), axis_name=axis_name)
        return result, mean

    x = 0.1 * np.random.default_rng(0).normal(size=(BATCH, 2)).astype(np.float32)
    inputs = {"x": x, "ids": np.array([0, 1, 1, 3, 3, 1, 7, 6])}
    over = functools.partial(function, axis_name=AXIS)
    check(over, function, inputs, ("x",))


def test_every_function_with_an_axis_name_runs_over_devices():
    rows = {row.name for row in contract.collect() if row.over_devices}
    named = {
        name
        for name in contract.public_functions()
        if "." not in name
        and "axis_name" in inspect.signature(getattr(rlaxlib, name)).parameters
    }
    assert named - rows - CALLS.keys() - ELSEWHERE == {"fisher_vector_product"}


def test_what_all_devices_have_is_known_to_be_the_same():
    mesh = jax.make_mesh((DEVICES,), (AXIS,), devices=jax.devices()[:DEVICES])
    specs = {"in_specs": PartitionSpec(AXIS), "out_specs": PartitionSpec()}
    local = functools.partial(rlaxlib.masked_mean, axis_name=AXIS)
    x = np.random.default_rng(0).normal(size=(BATCH, 3)).astype(np.float32)
    shared = jax.device_put(x, NamedSharding(mesh, PartitionSpec(AXIS)))
    found = jax.jit(jax.shard_map(local, mesh=mesh, **specs))(shared)
    contract.assert_close(found, rlaxlib.masked_mean(x), 1e-5, 1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_products_with_the_fisher_matrix_are_averaged(kind):
    # Hessians of a quadratic divergence, 1 and 3 on two devices, are 2 on average.
    x = np.array([1.0, 3.0], np.float32)
    theta, vector = {"w": jnp.zeros(2)}, {"w": jnp.array([1.0, -2.0])}

    def product(x):
        def kl(params):
            return 0.5 * x * jnp.sum(jnp.square(params["w"]))

        return rlaxlib.fisher_vector_product(kl, theta, vector, 0.5, axis_name=AXIS)

    found = mapped(kind, product)(x)["w"]
    np.testing.assert_allclose(found, [[2.5, -5.0]] * 2, rtol=1e-6)
