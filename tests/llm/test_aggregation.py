"""Test aggregation: micro-batches and devices add up to the whole batch."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close
from jax.sharding import NamedSharding, PartitionSpec

import rlaxlib

BATCH, STEPS = 8, 6
RNG = np.random.default_rng(0)
FEATURES = np.float32(RNG.normal(size=(BATCH, STEPS, 3)))
WEIGHTS = np.float32([0.5, -1, 2])
# Of uneven lengths, one sequence without valid tokens.
LENGTHS = np.array([6, 1, 0, 3, 2, 6, 5, 1])
MASK = np.arange(STEPS) < LENGTHS[:, None]
COUNTS = {
    "token_mean": LENGTHS.sum(),
    "sequence_mean_token_mean": np.sum(LENGTHS > 0),
    "sequence_mean_token_sum": np.sum(LENGTHS > 0),
    "constant": BATCH * STEPS,
}
each_mode = pytest.mark.parametrize("mode", COUNTS)


def batch_loss(weights, features, mask, mode, **settings):
    loss = jnp.square(jnp.dot(features, weights))
    return rlaxlib.aggregate_losses(loss, mode, sample_mask=mask, **settings)


value_and_grad = jax.jit(jax.value_and_grad(batch_loss), static_argnums=3)


def whole(mode):
    return value_and_grad(WEIGHTS, FEATURES, MASK, mode)


@functools.partial(jax.jit, static_argnums=2)
def of_losses(loss, mask, mode):
    """Return the mean of losses, and its gradient."""
    return jax.value_and_grad(rlaxlib.aggregate_losses)(loss, mode, sample_mask=mask)


@each_mode
def test_weights_of_tokens(mode):
    _, found = of_losses(np.zeros((BATCH, STEPS), np.float32), MASK, mode)
    by_length = mode == "sequence_mean_token_mean"
    lengths = np.maximum(LENGTHS, 1)[:, None] if by_length else 1
    close(found, np.asarray(MASK) / lengths / COUNTS[mode])


@each_mode
def test_ignored_tokens_change_nothing(mode):
    ones = np.ones((BATCH, STEPS), np.float32)
    spoiled = np.where(MASK, ones, np.float32(np.nan))
    value, gradient = of_losses(spoiled, MASK, mode)
    close(value, of_losses(ones, MASK, mode)[0])
    assert np.isfinite(gradient).all()
    assert of_losses(spoiled, MASK & False, mode)[0] == 0


@each_mode
@pytest.mark.parametrize("parts", [1, 4, 8])
def test_micro_batches_add_up_to_the_batch(mode, parts):
    denominator = np.float32(COUNTS[mode])
    function = functools.partial(batch_loss, mode=mode, denominator=denominator)

    def micro_batches(x):
        return x.reshape(parts, BATCH // parts, *x.shape[1:])

    each = jax.jit(jax.vmap(jax.value_and_grad(function), in_axes=(None, 0, 0)))
    found = each(WEIGHTS, micro_batches(FEATURES), micro_batches(MASK))
    for one, other in zip(found, whole(mode), strict=True):
        close(np.sum(one, axis=0), other, rtol=1e-6, atol=1e-6)


def test_the_mean_of_micro_batches_is_not_that_of_the_batch():
    halves = [slice(0, 4), slice(4, 8)]
    for mode in ("token_mean", "sequence_mean_token_mean"):
        means = [value_and_grad(WEIGHTS, FEATURES[x], MASK[x], mode)[0] for x in halves]
        assert abs(np.mean(means) - whole(mode)[0]) > 0.05


@each_mode
@pytest.mark.parametrize("count", [1, 4])
def test_devices_add_up_to_the_batch(mode, count):
    mesh = jax.make_mesh((count,), ("batch",), devices=jax.devices()[:count])
    batch, everywhere = PartitionSpec("batch"), PartitionSpec()
    function = functools.partial(batch_loss, mode=mode, axis_name="batch")
    mapped = jax.shard_map(
        jax.value_and_grad(function),
        mesh=mesh,
        in_specs=(everywhere, batch, batch),
        out_specs=everywhere,
    )
    shardings = [NamedSharding(mesh, x) for x in (everywhere, batch, batch)]
    inputs = jax.device_put((WEIGHTS, FEATURES, MASK), tuple(shardings))
    for one, other in zip(jax.jit(mapped)(*inputs), whole(mode), strict=True):
        close(one, other, rtol=1e-6, atol=1e-6)


@each_mode
def test_eight_shards_of_one_sequence_add_up_to_the_batch(mode):
    def loss(weights):
        def shard(features, mask):
            features, mask = features[None], mask[None]
            return batch_loss(weights, features, mask, mode, axis_name="batch")

        return jnp.mean(jax.vmap(shard, axis_name="batch")(FEATURES, MASK))

    found = jax.jit(jax.value_and_grad(loss))(WEIGHTS)
    for one, other in zip(found, whole(mode), strict=True):
        close(one, other, rtol=1e-6, atol=1e-6)


@each_mode
def test_devices_and_micro_batches_add_up_together(mode):
    # Each of two devices has two micro-batches of two sequences.
    denominator = np.float32(COUNTS[mode])

    def loss(features, mask):
        return batch_loss(
            WEIGHTS, features, mask, mode, denominator=denominator, axis_name="devices"
        )

    def split(x):
        return x.reshape(2, 2, 2, *x.shape[1:])

    on_devices = jax.vmap(loss, axis_name="devices")
    in_parts = jax.jit(jax.vmap(on_devices, in_axes=1))
    found = in_parts(split(FEATURES), split(MASK))
    close(np.sum(found, axis=0), whole(mode)[0])


def test_modes_agree_for_sequences_of_full_length():
    loss = np.sum(FEATURES, axis=2)
    token, sequence, total, constant = (
        float(of_losses(loss, MASK | True, mode)[0]) for mode in COUNTS
    )
    close(token, sequence)
    close(token, constant)
    close(total, STEPS * token)


def test_a_traced_denominator_of_zero_gives_no_loss():
    loss, mask = np.zeros((2, 3), np.float32), np.zeros((2, 3), bool)

    def total(loss, denominator):
        return rlaxlib.aggregate_losses(loss, sample_mask=mask, denominator=denominator)

    value, gradient = jax.jit(jax.value_and_grad(total))(loss, np.float32(0))
    assert value == 0
    np.testing.assert_array_equal(gradient, loss)
