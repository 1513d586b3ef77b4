"""Test that packed rows give each answer what a row of its own gives it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import rlaxlib

RNG = np.random.default_rng(0)
LENGTHS = (3, 1, 5, 4)
IDS = np.array([*[0] * 3, 2, *[1] * 5, *[5] * 4, 6])  # In any order; 6 is padding.
ANSWERS = [np.flatnonzero(each == IDS) for each in (0, 2, 1, 5)]
SIZE = len(IDS)
LOG_PROB, OLD = RNG.normal(-2.0, 0.5, size=(2, SIZE)).astype(np.float32)
MASK = ~np.isin(IDS, 6)
MASK[[1, 6]] = False  # The output of tools.
KINDS = ("token_mean", "sequence_mean_token_mean", "sequence_mean_token_sum")
ADV = np.array([1.0, -1.0, 0.5, -2.0, 0.0, 0.3, 0.0], np.float32)[IDS]


def gmpo(log_prob, old, adv, **options):
    return rlaxlib.gmpo_loss(log_prob, old, adv, epsilon=0.3, **options)[0]


def shaped(log_prob, old, adv, **options):
    return rlaxlib.kl_shaped_rewards(adv, log_prob, old, 0.5, **options)


def weights(level):
    return lambda log_prob, old, adv, **options: rlaxlib.importance_weights(
        log_prob - old, level, "mask", 0.9, 1.5, **options
    )


FUNCTIONS = {
    "gspo": lambda x, old, adv, **options: rlaxlib.gspo_ratio(x, old, **options),
    "gspo by token": lambda x, old, adv, **options: rlaxlib.gspo_ratio(
        x, old, "gspo_token", **options
    ),
    "gmpo": gmpo,
    "rewards": shaped,
    "vespo": rlaxlib.vespo_weight,
    "sequence weights": weights("sequence"),
    "geometric weights": weights("geometric"),
    "sequence mask": lambda x, old, adv, **options: rlaxlib.off_policy_sequence_mask(
        x, old, adv, 0.1, **options
    ),
}


@functools.partial(jax.jit, static_argnums=0)
def packed_and_alone(name, places, is_token, ids, mask, advs, value):
    """Return tokens of a packed row and of its answers, and gradients of their sums."""
    function = FUNCTIONS[name]

    def packed(log_prob):
        options = {"sample_mask": mask, "segment_ids": ids}
        return function(log_prob, OLD, advs, **options).astype(float)

    def alone(log_prob):
        @jax.vmap
        def each(at, is_token):
            new, old, valid = log_prob[at], jnp.asarray(OLD)[at], mask[at] & is_token
            found = function(new, old, advs[at[0]], sample_mask=valid)
            return jnp.where(is_token, found.astype(float), 0)

        return jnp.zeros(SIZE).at[places].add(each(places, is_token))

    def with_gradient(tokens):
        def total(log_prob):
            found = tokens(log_prob)
            return jnp.sum(value * found), found

        return jax.grad(total, has_aux=True)(LOG_PROB)

    return with_gradient(packed), with_gradient(alone)


@pytest.mark.parametrize("is_mixed", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_tokens_of_a_packed_row_are_those_of_their_answers(name, is_mixed):
    """Answers may be interleaved, such as the turns of several agents."""
    order = RNG.permutation(SIZE) if is_mixed else np.arange(SIZE)
    ids, mask, advs = IDS[order], MASK[order], ADV[order]
    used = ids != 6
    value = np.float32(RNG.normal(size=SIZE) * used)
    is_of = np.array([each == ids for each in (0, 2, 1, 5)])
    places = np.argsort(~is_of, axis=1, kind="stable")  # Tokens of the answer first.
    is_token = np.take_along_axis(is_of, places, axis=1)
    results = packed_and_alone(name, places, is_token, ids, mask, advs, value)
    (by, found), (expected_by, expected) = jax.tree.map(np.asarray, results)
    close(found[used], expected[used], rtol=1e-5, atol=1e-6)
    close(by, expected_by, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_of_packed_rows_is_that_of_their_answers(kind):
    loss = np.stack([LOG_PROB, OLD])
    packed = rlaxlib.aggregate_losses(
        loss,
        kind,
        sample_mask=np.stack([MASK, MASK]),
        segment_ids=np.stack([IDS, IDS]),
    )
    rows, masks = np.zeros((2, 8, SIZE), np.float32)
    for i, x in enumerate(loss):
        for j, at in enumerate(ANSWERS):
            rows[4 * i + j, : at.size] = x[at]
            masks[4 * i + j, : at.size] = MASK[at]
    alone = rlaxlib.aggregate_losses(rows, kind, sample_mask=masks.astype(bool))
    close(packed, alone, rtol=1e-6)


@pytest.mark.skipif(
    jax.__version_info__ < (0, 10, 2), reason="explicit meshes need jax 0.10.2"
)
def test_rows_on_an_explicit_mesh_need_no_mask():
    mesh = jax.make_mesh((2,), ("data",), axis_types=(AxisType.Explicit,))
    loss, ids = np.stack([LOG_PROB, OLD]), np.stack([IDS, IDS])
    rows = NamedSharding(mesh, PartitionSpec("data", None))
    with jax.set_mesh(mesh):
        found = rlaxlib.aggregate_losses(
            jax.device_put(loss, rows), segment_ids=jax.device_put(ids, rows)
        )
    close(found, rlaxlib.aggregate_losses(loss, segment_ids=ids), rtol=1e-6)


OF_SEGMENTS = {
    "gspo_ratio": (LOG_PROB, OLD),
    "gmpo_loss": (LOG_PROB, OLD, 1.0),
    "importance_weights": (LOG_PROB - OLD, "sequence"),
    "kl_shaped_rewards": (1.0, LOG_PROB, OLD, 0.1),
    "vespo_weight": (LOG_PROB, OLD, 1.0),
}


@pytest.mark.parametrize("name", OF_SEGMENTS)
def test_a_traced_segment_out_of_range_gives_nan(name):
    function = functools.partial(getattr(rlaxlib, name), *OF_SEGMENTS[name])
    of_segments = jax.jit(lambda ids: function(segment_ids=ids))
    for bad in (-1, SIZE):
        ids = IDS.copy()
        ids[0] = bad
        found = of_segments(ids)
        assert np.flatnonzero(np.isnan(jax.tree.leaves(found)[0])).tolist() == [0]


keep = jax.jit(rlaxlib.off_policy_sequence_mask)
mean = jax.jit(rlaxlib.aggregate_losses, static_argnames="kind")


@pytest.mark.parametrize("bad", [-1, SIZE])
def test_a_traced_segment_out_of_range_stays_in_masks_and_shows_in_losses(bad):
    ids = IDS.copy()
    ids[0] = bad
    found = keep(LOG_PROB, LOG_PROB, ADV, 0.5, segment_ids=ids)
    np.testing.assert_array_equal(found, True)
    for kind in KINDS:
        assert np.isnan(mean(OLD[None], kind, segment_ids=ids[None]))
        options = {"segment_ids": ids[None], "sample_mask": np.arange(SIZE)[None] > 0}
        assert np.isfinite(mean(OLD[None], kind, **options))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_segments_of_few_bits_are_the_same_segments(dtype):
    zeros = np.zeros(300, np.float32)  # More tokens than the dtype can count.
    ids = np.repeat([3, 100, 7], 100)
    found = [
        rlaxlib.kl_shaped_rewards(1.0, zeros, zeros, 0.1, segment_ids=each)
        for each in (ids, ids.astype(dtype))
    ]
    assert np.flatnonzero(found[0]).tolist() == [99, 199, 299]
    np.testing.assert_array_equal(*found)
    loss, ids = np.ones((1, 300), "f4"), ids[None].astype(dtype)
    mean = rlaxlib.aggregate_losses(loss, "sequence_mean_token_mean", segment_ids=ids)
    total = rlaxlib.aggregate_losses(loss, "sequence_mean_token_sum", segment_ids=ids)
    close([mean, total], [1, 100], rtol=1e-6)
