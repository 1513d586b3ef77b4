"""Test EMA and running moments: far from zero, with masks, on devices, bad input."""

import functools

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close
from jax.sharding import Mesh, PartitionSpec

import rlaxlib

INIT, EAGER = rlaxlib.running_moments()
UPDATE = jax.jit(EAGER)
ONES = np.ones(2, np.float32)


def draw(mean, size, deviation=1.0):
    drawn = mean + deviation * np.random.default_rng(0).normal(size=size)
    return drawn.astype(np.float32)


SHARED, SPREAD = PartitionSpec(), PartitionSpec("devices")


def on_mesh(in_specs, out_specs):
    """Return a decorator that spreads a function over four devices."""
    mesh = Mesh(np.array(jax.devices()[:4]), "devices")
    return functools.partial(
        jax.shard_map, mesh=mesh, in_specs=in_specs, out_specs=out_specs
    )


def make_ema(*settings):
    """Return both functions of an EMA, its update compiled."""
    init_state, update_moments = rlaxlib.create_ema(*settings)
    return init_state, jax.jit(update_moments)


def assert_equal_trees(one, other):
    np.testing.assert_array_equal(jax.tree.leaves(one), jax.tree.leaves(other))


# --- Exponential moving averages: values. ---


def ema_definition(batches, decay):
    """Return the mean and variance of the definition, in double precision."""
    batches = [np.asarray(x, np.float64) for x in batches]
    weights = np.float64(decay) ** np.arange(len(batches))[::-1]
    weights /= weights.sum()
    mean = weights @ [x.mean() for x in batches]
    return mean, weights @ [np.mean((x - mean) ** 2) for x in batches]


@functools.partial(jax.jit, static_argnums=1)
def run_ema(batches, decay):
    """Return the last state, and the first and the last moments, of all updates."""
    init_state, update_moments = rlaxlib.create_ema(decay)

    def step(state, batch):
        return update_moments(batch, state)[::-1]

    state, moments = jax.lax.scan(step, init_state(batches[0]), batches)
    return state, *(jax.tree.map(lambda x, i=i: x[i], moments) for i in (0, -1))


@pytest.mark.parametrize("decay", [0.0, 0.9, 0.999])
@pytest.mark.parametrize("mean", [0.0, 1e2, 1e4])
def test_ema_variance_is_precise_far_from_zero(mean, decay):
    batches = draw(mean, (500, 8))
    *_, moments = run_ema(batches, decay)
    expected = ema_definition(batches, decay)
    np.testing.assert_allclose(moments.mean, expected[0], rtol=4e-7, atol=1e-6)
    np.testing.assert_allclose(moments.variance, expected[1], rtol=1e-4)


def test_ema_of_large_batches_is_precise_under_vmap():
    init_state, update_moments = rlaxlib.create_ema()
    x = draw(0.0, (8, 100_000))
    moments = jax.jit(jax.vmap(lambda x: update_moments(x, init_state(x))[0]))(x)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(moments.mean, exact.mean(axis=1), rtol=0, atol=1e-6)
    np.testing.assert_allclose(moments.variance, exact.var(axis=1), rtol=1e-5)


@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_ema_variance_after_a_jump_is_precise(decay):
    batches = np.float32([[0.0, 1.0], [1e5, 1e5 + 2]])
    *_, moments = run_ema(batches, decay)
    expected = ema_definition(batches, decay)[1]
    np.testing.assert_allclose(moments.variance, expected, rtol=1e-6)


@pytest.mark.parametrize("rate", [1e-3, 1e-8])
def test_ema_is_unbiased_from_the_first_update_on_for_decays_close_to_one(rate):
    state, first, moments = run_ema(np.full((20_000, 1), 3, np.float32), 1 - rate)
    assert first == (3.0, 0.0)
    np.testing.assert_allclose(moments.mean, 3.0, rtol=1e-6)
    weight = -np.expm1(20_000 * np.log1p(-rate))
    np.testing.assert_allclose(state.weight, weight, rtol=1e-4)


def test_ema_with_a_decay_close_to_one_weights_all_updates_equally():
    batches = draw(0.0, (20_000, 1))
    *_, moments = run_ema(batches, 1 - 1e-8)
    np.testing.assert_allclose(moments.mean, np.mean(batches, dtype=float), rtol=1e-4)
    np.testing.assert_allclose(
        moments.variance, np.var(batches, dtype=float), rtol=1e-4
    )


def test_ema_of_half_precision_is_in_single_precision():
    batches = np.full((3000, 2), 300, np.float16)
    state, _, moments = run_ema(batches, 0.999)
    assert {x.dtype for x in jax.tree.leaves(state)} == {jnp.dtype(jnp.float32)}
    assert moments == (float(batches[0, 0]), 0.0)


def test_ema_is_zero_before_the_first_update():
    init_state, _ = rlaxlib.create_ema()
    assert init_state(ONES).debiased_moments() == (0.0, 0.0)


def test_ema_has_moments_for_each_leaf_of_floats_or_integers():
    init_state, update_moments = make_ema(0.5)
    tree = {
        "a": np.array([[1, 3]], np.int32),
        "b": (2.0, 4),
        "c": np.float32([1, 2, 6]),
    }
    moments, state = update_moments(tree, init_state(tree))
    assert moments.mean == {"a": 2.0, "b": (2.0, 4.0), "c": 3.0}
    close(moments.variance["a"], 1.0)
    close(moments.variance["c"], 14 / 3)
    assert state.debiased_moments() == moments


@pytest.mark.parametrize("tree", [{}, None, {"a": (), "b": None}])
def test_a_tree_may_have_no_leaves(tree):
    ema, normalizer = rlaxlib.create_ema(), rlaxlib.running_moments()
    found, state = ema.update(tree, ema.init(tree))
    assert found.mean == state.variance == tree
    assert normalizer.init(tree).merge(normalizer.init(tree)).mean == tree


def test_ema_state_has_the_fields_of_rlax_as_properties():
    batches = draw(1.0, (3, 8))
    state, *_ = run_ema(batches, 0.75)
    weights = 0.25 * 0.75 ** np.array([2, 1, 0])
    close(state.mu, weights @ batches.mean(axis=1))
    close(state.nu, weights @ np.mean(batches**2, axis=1))
    close(state.decay_product, 0.75**3)


# --- Exponential moving averages: identities. ---


def test_ema_of_masked_entries_is_that_without_them():
    init_state, update_moments = make_ema(0.9)
    x = np.float32([[1, 2], [np.nan, np.inf], [4, 9]])
    mask = np.array([True, False, True])
    masked = kept = init_state(x)
    for shift in np.float32([1e4, 0]):
        masked_moments, masked = update_moments(x + shift, masked, sample_mask=mask)
        kept_moments, kept = update_moments(x[mask] + shift, kept)
        np.testing.assert_allclose(masked_moments, kept_moments, rtol=1e-6)


def test_ema_update_without_entries_changes_nothing():
    init_state, update_moments = make_ema(0.9)
    x, mask = np.float32([1, np.nan]), np.array([False, False])
    _, later = update_moments(np.float32([3, 5]), init_state(x))
    for state in (init_state(x), later):
        with jax.debug_nans(True):
            _, same = update_moments(x, state, sample_mask=mask)
        assert_equal_trees(same, state)


def test_ema_weights_of_updates_with_different_decays_multiply():
    @jax.jit
    def two_updates():
        start = rlaxlib.create_ema().init(0.0)
        _, state = rlaxlib.create_ema(0.5).update(1.0, start)
        return rlaxlib.create_ema(0.25).update(3.0, state)

    moments, state = two_updates()
    close(state.decay_product, 0.125)
    close(moments.mean, (0.5 * 0.25 * 1.0 + 0.75 * 3.0) / 0.875)


# --- Exponential moving averages: behaviour under JAX. ---


def test_ema_gradient_is_finite_beside_a_masked_nan():
    init_state, update_moments = rlaxlib.create_ema(0.9)
    mask = np.array([True, False, True])

    def loss(x):
        _, state = update_moments(x, init_state(x), sample_mask=mask)
        return sum(update_moments(2 * x, state, sample_mask=mask)[0])

    gradient = np.asarray(jax.jit(jax.grad(loss))(np.float32([1, np.nan, 2])))
    assert np.isfinite(gradient).all()
    assert gradient[1] == 0
    assert gradient[0] != 0


@pytest.mark.parametrize("masked", [False, True])
def test_ema_over_devices_equals_that_of_all_entries(masked):
    batches = draw(1e3, (4, 8))
    mask = np.arange(8) % 4 > np.arange(8) // 4 if masked else None
    split = mask.reshape(4, 2) if masked else None
    init_state, update_alone = make_ema(0.9)
    _, update_together = rlaxlib.create_ema(0.9, "devices")
    state = alone = init_state(batches[0])

    @jax.jit
    @functools.partial(jax.vmap, axis_name="devices", in_axes=(0, None, 0))
    def update(x, state, mask):
        return update_together(x, state, sample_mask=mask)

    for x in batches:
        expected, alone = update_alone(x, alone, sample_mask=mask)
        moments, states = update(x.reshape(4, 2), state, split)
        state = jax.tree.map(lambda x: np.asarray(x)[2], states)
        for one, other in zip(moments, expected, strict=True):
            np.testing.assert_allclose(one, np.repeat(other, 4), rtol=1e-4)


@pytest.mark.parametrize("axis_name", [None, "devices"])
def test_ema_can_be_carried_through_a_loop_on_a_mesh(axis_name):
    init_state, update_moments = rlaxlib.create_ema(0.9, axis_name)

    @jax.jit
    @on_mesh(SPREAD, SPREAD)
    def on_each(batches):
        def step(state, batch):
            return update_moments(batch, state, sample_mask=batch > 0)[::-1]

        _, moments = jax.lax.scan(step, init_state(batches[:, 0]), batches.T)
        return moments.variance[-1:]

    batches = np.abs(draw(1.0, (8, 5)))
    parts = batches.reshape(1, 8, 5) if axis_name else batches.reshape(4, 2, 5)
    expected = [ema_definition(part.T, 0.9)[1] for part in np.asarray(parts)]
    close(on_each(batches), np.broadcast_to(expected, 4))


def test_ema_takes_a_traced_decay():
    @jax.jit
    def two_updates(decay):
        init_state, update_moments = rlaxlib.create_ema(decay)
        _, state = update_moments(1.0, init_state(0.0))
        return update_moments(2.0, state)[0].mean

    close(two_updates(0.5), 5 / 3)
    close(two_updates(jnp.bfloat16(0.5)), 5 / 3)


def test_ema_keeps_double_precision():
    with jax.numpy_dtype_promotion("standard"), contract.x64(True):
        tree = (ONES, np.float64(ONES))
        init_state, update_moments = make_ema(0.9)
        _, state = jax.eval_shape(update_moments, tree, init_state(tree))
    assert state.weight.dtype == jnp.float64
    assert [x.dtype for x in state.mean] == [jnp.float32, jnp.float64]


# --- Running moments: values. ---


def moments_definition(entries):
    """Return the mean and variance of the definition, in double precision."""
    entries = np.asarray(entries, np.float64)
    mean = entries.mean(axis=0)
    return mean, np.mean((entries - mean) ** 2, axis=0)


def run_moments(batches):
    """Return the state after one update for each batch."""
    state = INIT(np.zeros(batches[0].shape[1:], np.float32))
    for batch in batches:
        _, state = UPDATE(state, batch)
    return state


@pytest.mark.parametrize("mean", [0.0, 1e3])
def test_running_moments_depend_on_neither_batches_nor_order(mean):
    entries = draw(mean, (600, 3))
    expected = moments_definition(entries)
    for splits in ([], [1, 2, 599], [100, 200, 300, 400, 500]):
        for each in (entries, entries[::-1], np.sort(entries, axis=0)):
            state = run_moments(np.split(each, splits))
            np.testing.assert_allclose(state.mean, expected[0], rtol=2e-7, atol=1e-6)
            np.testing.assert_allclose(state.variance, expected[1], rtol=1e-4)


@pytest.mark.parametrize("sizes", [(2, 5000), (5000, 2)])
@pytest.mark.parametrize("jump", [1e2, 1e5])
def test_running_variance_after_a_jump_is_precise(sizes, jump):
    batches = [draw(0.0, (sizes[0], 1)), draw(jump, (sizes[1], 1))]
    state = run_moments(batches)
    expected = moments_definition(np.concatenate(batches))
    np.testing.assert_allclose(state.mean, expected[0], rtol=1e-5)
    np.testing.assert_allclose(state.variance, expected[1], rtol=1e-4)


def test_equal_entries_have_a_variance_of_exactly_zero():
    state = run_moments([np.full((7, 1), 1e6 + 0.3, np.float32)] * 5)
    assert state.variance == 0
    assert state.mean == np.float32(1e6 + 0.3)


@pytest.mark.parametrize("count", [2**24 - 1, 2**24, 2**31 + 5, 2**40 + 1])
def test_counts_beyond_the_integers_of_single_precision(count):
    _, state = UPDATE(INIT(0.0), np.float32([-1, 1]))
    rest = count - int(np.float32(count))
    state = state._replace(
        num_entries=np.float32(count), num_entries_rest=np.float32(rest)
    )
    for _ in range(3):
        _, state = UPDATE(state, np.float32(0))
    assert int(state.num_entries) + int(state.num_entries_rest) == count + 3


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_running_moments_of_half_precision_are_in_single_precision(dtype):
    x = draw(100.0, (600, 3)).astype(dtype)
    moments, state = UPDATE(INIT(x[0]), x)
    assert {each.dtype for each in jax.tree.leaves(state)} == {jnp.dtype(jnp.float32)}
    expected = moments_definition(contract.to_numpy(x))
    np.testing.assert_allclose(moments.mean, expected[0], rtol=1e-6)
    np.testing.assert_allclose(moments.variance, expected[1], rtol=1e-5)


def test_running_moments_are_those_of_each_leaf_of_floats_or_integers():
    tree = {"a": np.array([1, 3]), "b": (np.float32([[1, 2], [3, 6]]),)}
    moments, _ = UPDATE(INIT({"a": 0, "b": (ONES,)}), tree)
    assert moments.mean["a"] == 2.0
    close(moments.mean["b"][0], [2.0, 4.0])
    close(moments.variance["b"][0], [1.0, 4.0])


@jax.jit
def normalize(state, x, **bounds):
    return state.normalize(x, **bounds)


def test_normalized_entries_have_mean_0_and_standard_deviation_1():
    x = draw(1e3, (600, 3))
    state = run_moments([x])
    mean, variance = moments_definition(x)
    expected = (x.astype(np.float64) - mean) / np.sqrt(variance)
    np.testing.assert_allclose(normalize(state, x), expected, atol=1e-4)
    clipped = normalize(state, x, clip=0.5)
    np.testing.assert_allclose(clipped, np.clip(expected, -0.5, 0.5), atol=1e-4)
    np.testing.assert_array_equal(normalize(state, x, clip=np.inf), normalize(state, x))


def test_normalize_keeps_dtypes_and_divides_a_constant_by_one():
    x = np.float32([[1, 5], [3, 5]])
    _, state = UPDATE(INIT(x[0]), x)
    y = normalize(state, np.array([4, 7], jnp.bfloat16))
    assert y.dtype == jnp.bfloat16
    close(np.float32(y), [2.0, 2.0])
    assert normalize(state, np.array([4, 7])).dtype == jnp.float32
    close(normalize(INIT(x[0]), x), x)
    tiny = np.float32(1e-9) * x
    _, state = UPDATE(INIT(x[0]), tiny)
    close(normalize(state, tiny), [[-1e-3, 0.0], [1e-3, 0.0]])
    close(normalize(state, tiny, min_scale=1e-12), [[-1.0, 0.0], [1.0, 0.0]])


# --- Running moments: identities. ---


def test_merged_states_equal_the_state_of_all_entries():
    merge = jax.jit(lambda a, b: a.merge(b))
    x = draw(1e4, (600, 3))
    parts = [run_moments([part]) for part in np.split(x, [100, 200])]
    whole = run_moments([x])
    for order in ([0, 1, 2], [2, 0, 1]):
        merged = functools.reduce(merge, [parts[i] for i in order])
        close(merged.mean, whole.mean)
        np.testing.assert_allclose(merged.variance, whole.variance, rtol=1e-4)
        assert merged.num_entries == 600
    empty = INIT(np.zeros(3, np.float32))
    for same in (merge(empty, parts[0]), merge(parts[0], empty)):
        for one, other in zip(same, parts[0], strict=True):
            np.testing.assert_array_equal(one, other)


def test_running_moments_of_masked_entries_are_those_without_them():
    x = np.float32([[1, 2], [np.nan, np.inf], [4, 9]])
    mask = np.array([True, False, True])
    masked, _ = UPDATE(INIT(x[0]), x, sample_mask=mask)
    kept, _ = UPDATE(INIT(x[0]), x[mask])
    close(masked, kept)
    by_first_axis, _ = UPDATE(INIT(x[0]), np.stack([x, x], axis=1), sample_mask=mask)
    close(by_first_axis, kept)


def test_running_update_without_entries_changes_nothing():
    x, start = np.float32([[1, np.nan]]), INIT(np.zeros(2, np.float32))
    _, later = UPDATE(start, np.float32([[3, 5], [4, 9]]))
    with jax.debug_nans(True):
        for state in (start, later):
            for tree, mask in ((x, np.array([False])), (x[:0], None)):
                _, same = UPDATE(state, tree, sample_mask=mask)
                for one, other in zip(same, state, strict=True):
                    np.testing.assert_array_equal(one, other)


# --- Running moments: behaviour under JAX. ---


def test_gradient_of_the_moments_is_stopped_but_not_that_of_normalized_entries():
    def loss(x):
        moments, state = UPDATE(INIT(x[0]), x)
        return jnp.sum(moments.mean + moments.variance) + jnp.sum(state.normalize(x))

    gradient = jax.jit(jax.grad(loss))(np.float32([1, 3, 8]))
    close(gradient, 1 / np.std([1.0, 3.0, 8.0]))


@pytest.mark.parametrize("masked", [False, True])
def test_running_moments_over_devices_equal_those_of_all_entries(masked):
    batches = draw(1e3, (2, 8, 3))
    mask = np.arange(8) % 4 > np.arange(8) // 4 if masked else None
    split = mask.reshape(4, 2) if masked else None
    _, update_together = rlaxlib.running_moments(axis_name="devices")
    state = alone = INIT(batches[0, 0])

    @jax.jit
    @functools.partial(jax.vmap, axis_name="devices", in_axes=(None, 0, 0))
    def update(state, x, mask):
        return update_together(state, x, sample_mask=mask)

    for x in batches:
        _, alone = UPDATE(alone, x, sample_mask=mask)
        _, states = update(state, x.reshape(4, 2, 3), split)
        state = jax.tree.map(lambda x: np.asarray(x)[2], states)
    close(states.mean, [alone.mean] * 4)
    np.testing.assert_allclose(states.variance, [alone.variance] * 4, rtol=1e-5)
    np.testing.assert_array_equal(states.num_entries, [alone.num_entries] * 4)


@pytest.mark.parametrize("axis_name", [None, "devices"])
def test_running_moments_can_be_carried_through_a_loop_on_a_mesh(axis_name):
    init_state, update_moments = rlaxlib.running_moments(axis_name=axis_name)

    @jax.jit
    @on_mesh(SPREAD, SPREAD)
    def on_each(batches):
        def step(state, batch):
            mask = None if axis_name is None else batch > 0
            return update_moments(state, batch, sample_mask=mask)[::-1]

        _, moments = jax.lax.scan(step, init_state(batches[0, 0]), batches.T)
        return moments.variance[-1:]

    batches = np.abs(draw(1.0, (8, 5)))
    parts = [batches] * 4 if axis_name else np.split(batches, 4)
    close(on_each(batches), [moments_definition(np.ravel(part))[1] for part in parts])


def test_state_over_devices_is_replicated_without_a_mask():
    _, update_moments = rlaxlib.running_moments(axis_name="devices")
    update = on_mesh((SHARED, SPREAD), SHARED)(update_moments)
    x = draw(1e3, (8, 2))
    moments, state = jax.jit(update)(INIT(x[0]), x)
    close(moments.mean, moments_definition(x)[0])
    np.testing.assert_allclose(moments.variance, moments_definition(x)[1], rtol=1e-5)
    assert state.num_entries == 8


def test_running_moments_keep_double_precision():
    with contract.x64(True):
        tree = (ONES, np.array([1.0, 2.0]))
        start = INIT((np.float32(0), np.float64(0)))
        moments, state = jax.eval_shape(UPDATE, start, tree)
        y = jax.eval_shape(normalize, state, tree)
    assert state.num_entries.dtype == jnp.float64
    assert [x.dtype for x in moments.mean] == [jnp.float32, jnp.float64]
    assert [x.dtype for x in y] == [jnp.float32, jnp.float64]


# --- Bad input. ---


@pytest.mark.parametrize(
    ("tree", "mask", "message"),
    [
        ("text", None, r"`tree` is 'text', must be real\[\*_\]"),
        (np.ones(2, bool), None, r"`tree` is bool\[2\], must be real\[\*_\]"),
        (np.ones(0, np.float32), None, r"`tree.size` is 0, must be at least 1"),
        ((1.0, 2.0), None, r"`state.mean` and `tree` must have the same tree struct"),
        (
            ONES,
            np.ones(3, bool),
            r"`sample_mask` has shape \(3,\), must have the",
        ),
        (
            ONES,
            ONES,
            r"`sample_mask` is float32\[2\], must be bool\[",
        ),
    ],
)
def test_ema_names_the_wrong_argument(tree, mask, message):
    init_state, update_moments = rlaxlib.create_ema()
    with pytest.raises(rlaxlib.ArgumentError, match=f"^Ema.update: {message}"):
        update_moments(tree, init_state(1.0), sample_mask=mask)


@pytest.mark.parametrize(
    ("tree", "mask", "message"),
    [
        ("text", None, r"`tree` is 'text', must be real\[\*_\]"),
        (np.ones((2, 3), bool), None, r"`tree` is bool\[2, 3\], must be real\[\*_\]"),
        (
            np.ones((2, 2), np.float32),
            None,
            r"a leaf of `tree` has shape \(2, 2\), must end .*3",
        ),
        (np.float32(1), None, r"a leaf of `tree` has shape \(\), must end .*\(3,\)"),
        (
            (np.ones(3, np.float32),),
            None,
            r"`state.mean` and `tree` must have the same tree struct",
        ),
        (
            np.ones((2, 3), np.float32),
            np.ones(3, bool),
            r"`sample_mask` has shape \(3,\), must have th",
        ),
        (
            np.ones((2, 3), np.float32),
            np.ones((2, 3), bool),
            r"`sample_mask` has shape \(2, 3\), must",
        ),
        (
            np.ones((2, 3), np.float32),
            ONES,
            r"`sample_mask` is float32\[2\], must be bool\[",
        ),
    ],
)
def test_running_moments_name_the_wrong_argument(tree, mask, message):
    with pytest.raises(
        rlaxlib.ArgumentError, match=f"^RunningMoments.update: {message}"
    ):
        EAGER(INIT(np.zeros(3, np.float32)), tree, sample_mask=mask)


def test_leaves_must_have_the_same_number_of_entries():
    with pytest.raises(rlaxlib.ArgumentError, match="must have the same axes before"):
        EAGER(INIT((0.0, 0.0)), (ONES, np.ones(3, np.float32)))


def test_states_of_different_entries_cannot_be_merged():
    with pytest.raises(rlaxlib.ArgumentError, match="must have the same tree struct"):
        INIT(0.0).merge(INIT((0.0,)))
    message = r"merge: `other` has shape \(1,\), must be \(3,\)"
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        INIT(np.zeros(3, np.float32)).merge(INIT(np.zeros(1, np.float32)))
