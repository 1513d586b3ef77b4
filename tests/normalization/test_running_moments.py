"""Test moments of all entries so far: in any order, in any batches, far from zero."""

import functools

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close
from jax.sharding import Mesh, PartitionSpec

import rlaxlib

INIT, UPDATE = rlaxlib.running_moments()
UPDATE_COMPILED = jax.jit(UPDATE)


def moments(entries):
    """Return mean and variance from their definition, in double precision."""
    entries = np.asarray(entries, np.float64)
    mean = entries.mean(axis=0)
    return mean, np.mean((entries - mean) ** 2, axis=0)


def take_in(batches):
    """Return the state after one update for each batch."""
    state = INIT(jnp.zeros(batches[0].shape[1:]))
    for batch in batches:
        _, state = UPDATE_COMPILED(jnp.asarray(batch), state)
    return state


def draw(mean, size=(600, 3), deviation=1.0):
    drawn = mean + deviation * np.random.default_rng(0).normal(size=size)
    return drawn.astype(np.float32)


def known(count):
    """Return a state that has seen so many entries, of mean 0 and variance 1."""
    _, state = UPDATE(jnp.array([-1.0, 1.0]), INIT(0.0))
    rest = count - int(np.float32(count))
    return state._replace(
        num_entries=jnp.float32(count), num_entries_rest=jnp.float32(rest)
    )


def the_same(one, other):
    """Compare two states, number by number."""
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(x, y)


# --- What they compute. ---


@pytest.mark.parametrize("mean", [0.0, 1e4, 1e6])
@pytest.mark.parametrize("splits", [[], [1, 2, 599], [100, 200, 300, 400, 500]])
def test_neither_batches_nor_order_nor_distance_from_zero_matter(mean, splits):
    entries = draw(mean)
    expected = moments(entries)
    for each in (entries, entries[::-1], np.sort(entries, axis=0)):
        state = take_in(np.split(each, splits))
        np.testing.assert_allclose(state.mean, expected[0], rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(state.variance, expected[1], rtol=1e-6)
        # With what rounding took off the mean, it is right where one digit is 1/16.
        exact = contract.to_numpy(state.mean) + contract.to_numpy(state.mean_rest)
        np.testing.assert_allclose(exact, expected[0], rtol=0, atol=1e-6 + 1e-9 * mean)


@pytest.mark.parametrize("sizes", [(2, 5000), (5000, 2)])
@pytest.mark.parametrize("jump", [1e2, 1e5])
def test_a_jump_leaves_the_variance_its_digits(sizes, jump):
    batches = [draw(0.0, (sizes[0], 1)), draw(jump, (sizes[1], 1))]
    state = take_in(batches)
    expected = moments(np.concatenate(batches))
    np.testing.assert_allclose(state.mean, expected[0], rtol=1e-6)
    np.testing.assert_allclose(state.variance, expected[1], rtol=1e-5)


def test_equal_numbers_have_no_variance():
    state = take_in([np.full((7, 1), 1e6 + 0.3, np.float32)] * 5)
    assert state.variance == 0
    assert state.mean == np.float32(1e6 + 0.3)


@pytest.mark.parametrize("count", [2**24 - 1, 2**24, 2**31 + 5, 2**40 + 1])
def test_counts_on_beyond_what_single_precision_holds(count):
    state = known(count)
    for _ in range(3):
        _, state = UPDATE(jnp.array(0.0), state)
    total = contract.to_numpy(state.num_entries) + contract.to_numpy(
        state.num_entries_rest
    )
    assert total == count + 3


def test_moments_still_move_after_very_many_entries():
    @jax.jit
    def run(state):
        def step(state, _):
            return UPDATE(jnp.full(64, 3.0), state)[::-1]

        return jax.lax.scan(step, state, length=20_000)[0]

    state = run(known(2**33))
    n, m = 2.0**33, 64 * 20_000
    gap = 3.0
    # Each update alone is less than half a digit of the variance.
    mean, variance = m / (n + m) * gap, n / (n + m) + n * m / (n + m) ** 2 * gap**2
    np.testing.assert_allclose(state.mean, mean, rtol=1e-5)
    exact = contract.to_numpy(state.variance) + contract.to_numpy(state.variance_rest)
    np.testing.assert_allclose(exact - 1, variance - 1, rtol=1e-3)


def test_a_large_batch_is_counted_to_the_last_entry():
    x = jnp.ones((2**24 + 3,), jnp.bfloat16)
    for mask in (None, jnp.ones(x.shape, bool)):
        _, state = UPDATE_COMPILED(x, INIT(x[0]), mask=mask)
        assert int(state.num_entries) + int(state.num_entries_rest) == 2**24 + 3


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_half_precision_is_averaged_in_single(dtype):
    x = jnp.asarray(draw(100.0), dtype)
    said, state = UPDATE(x, INIT(x[0]))
    assert {each.dtype for each in jax.tree.leaves(state)} == {jnp.dtype(jnp.float32)}
    expected = moments(contract.to_numpy(x))
    np.testing.assert_allclose(said.mean, expected[0], rtol=1e-6)
    np.testing.assert_allclose(said.variance, expected[1], rtol=1e-5)


def test_each_leaf_has_its_own_moments_and_may_hold_whole_numbers():
    tree = {"a": jnp.array([1, 3]), "b": (np.float32([[1, 2], [3, 6]]),)}
    said, _ = UPDATE(tree, INIT({"a": 0, "b": (jnp.zeros(2),)}))
    assert said.mean["a"] == 2.0
    close(said.mean["b"][0], [2.0, 4.0])
    close(said.variance["b"][0], [1.0, 4.0])


def test_normalizing_gives_mean_0_and_deviation_1_even_far_from_zero():
    x = draw(1e6)
    state = take_in([x])
    y = state.normalize(jnp.asarray(x))
    mean, variance = moments(x)
    expected = (x.astype(np.float64) - mean) / np.sqrt(variance)
    np.testing.assert_allclose(y, expected, atol=1e-5)
    close(state.normalize(jnp.asarray(x), clip=0.5), np.clip(expected, -0.5, 0.5))


def test_normalizing_keeps_dtypes_and_divides_by_nothing_that_never_varied():
    x = jnp.array([[1.0, 5.0], [3.0, 5.0]])
    _, state = UPDATE(x, INIT(x[0]))
    y = state.normalize(jnp.array([4.0, 7.0], jnp.bfloat16))
    assert y.dtype == jnp.bfloat16
    close(y.astype(jnp.float32), [2.0, 2.0])
    assert state.normalize(jnp.array([4, 7])).dtype == jnp.float32
    close(INIT(x[0]).normalize(x), x)
    tiny = 1e-9 * x
    _, state = UPDATE(tiny, INIT(x[0]))
    close(state.normalize(tiny), [[-1e-3, 0.0], [1e-3, 0.0]])
    close(state.normalize(tiny, min_scale=1e-12), [[-1.0, 0.0], [1.0, 0.0]])


# --- How they relate. ---


def test_states_that_are_merged_know_what_both_do():
    x = draw(1e4)
    parts = [take_in([part]) for part in np.split(x, [7, 400])]
    for order in ([0, 1, 2], [2, 0, 1]):
        merged = functools.reduce(lambda a, b: a.merge(b), [parts[i] for i in order])
        whole = take_in([x])
        close(merged.mean, whole.mean)
        np.testing.assert_allclose(merged.variance, whole.variance, rtol=1e-6)
        assert merged.num_entries == 600
    nothing = INIT(jnp.zeros(3))
    for same in (nothing.merge(parts[0]), parts[0].merge(nothing)):
        the_same(same, parts[0])


def test_what_is_masked_is_as_if_it_were_not_there():
    x = jnp.array([[1.0, 2.0], [jnp.nan, jnp.inf], [4.0, 9.0]])
    mask = jnp.array([True, False, True])
    masked, _ = UPDATE(x, INIT(x[0]), mask=mask)
    kept, _ = UPDATE(x[mask], INIT(x[0]))
    close(masked, kept)
    each_step = jnp.stack([x, x], axis=1)
    by_row, _ = UPDATE(each_step, INIT(x[0]), mask=mask)
    close(by_row, kept)


def test_an_update_of_nothing_changes_nothing():
    x = jnp.array([[1.0, jnp.nan]])
    start = INIT(x[0])
    _, known = UPDATE(jnp.array([[3.0, 5.0], [4.0, 9.0]]), start)
    with jax.debug_nans(True):
        for state in (start, known):
            for tree, mask in ((x, jnp.array([False])), (jnp.zeros((0, 2)), None)):
                _, same = UPDATE(tree, state, mask=mask)
                the_same(same, state)


# --- How they behave under JAX. ---


def test_what_is_known_is_constant_and_what_is_normalized_is_not():
    def loss(x):
        said, state = UPDATE(x, INIT(x[0]))
        return jnp.sum(said.mean + said.variance) + jnp.sum(state.normalize(x))

    gradient = jax.grad(loss)(jnp.array([1.0, 3.0, 8.0]))
    close(gradient, 1 / np.std([1.0, 3.0, 8.0]))


@pytest.mark.parametrize("mean", [0.0, 1e6])
def test_devices_take_in_the_entries_of_all(mean):
    batches = jnp.asarray(draw(mean, (2, 8, 3)))
    mask = jnp.arange(8) % 4 > jnp.arange(8) // 4
    _, update_together = rlaxlib.running_moments("devices")
    for masks in (mask, None):
        split = None if masks is None else masks.reshape(4, 2)
        state = alone = INIT(batches[0, 0])

        @functools.partial(jax.pmap, axis_name="devices", in_axes=(0, None, 0))
        def update(x, state, mask):
            return update_together(x, state, mask=mask)

        for x in batches:
            _, alone = UPDATE(x, alone, mask=masks)
            _, states = update(x.reshape(4, 2, 3), state, split)
            state = jax.tree.map(lambda x: x[2], states)
        for i in range(4):
            each = jax.tree.map(lambda x, i=i: x[i], states)
            close(each.mean, alone.mean)
            np.testing.assert_allclose(each.variance, alone.variance, rtol=1e-5)
            assert each.num_entries == alone.num_entries


@pytest.mark.parametrize("axis_name", [None, "devices"])
def test_can_be_carried_through_a_loop_on_a_mesh(axis_name):
    init_state, update_moments = rlaxlib.running_moments(axis_name)
    mesh = Mesh(np.array(jax.devices()[:4]), "devices")
    spec = PartitionSpec("devices")

    @jax.jit
    @functools.partial(jax.shard_map, mesh=mesh, in_specs=(spec,), out_specs=spec)
    def on_each(batches):
        def step(state, batch):
            mask = None if axis_name is None else batch > 0
            return update_moments(batch, state, mask=mask)[::-1]

        _, said = jax.lax.scan(step, init_state(batches[0, 0]), batches.T)
        return said.variance[-1:]

    batches = jnp.abs(jnp.asarray(draw(1.0, (8, 5))))
    parts = [np.asarray(batches)] * 4 if axis_name else np.split(batches, 4)
    close(on_each(batches), [moments(np.ravel(part))[1] for part in parts])


def test_a_state_of_a_mesh_needs_no_mask_to_be_the_same_on_all_devices():
    _, update_moments = rlaxlib.running_moments("devices")
    mesh = Mesh(np.array(jax.devices()[:4]), "devices")
    shard = functools.partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=(PartitionSpec("devices"), PartitionSpec()),
        out_specs=PartitionSpec(),
    )
    x = jnp.asarray(draw(1e4, (8, 2)))
    said, state = jax.jit(shard(update_moments))(x, INIT(x[0]))
    close(said.mean, moments(x)[0])
    np.testing.assert_allclose(said.variance, moments(x)[1], rtol=1e-5)
    assert state.num_entries == 8


def test_double_precision_is_kept_where_any_leaf_has_it():
    with contract.x64(True):
        tree = (jnp.ones(2, jnp.float32), jnp.array([1.0, 2.0], jnp.float64))
        said, state = UPDATE(tree, INIT((jnp.float32(0), jnp.float64(0))))
        y = state.normalize(tree)
    assert state.num_entries.dtype == jnp.float64
    assert [x.dtype for x in said.mean] == [jnp.float32, jnp.float64]
    assert [x.dtype for x in y] == [jnp.float32, jnp.float64]


# --- What they refuse. ---


@pytest.mark.parametrize(
    ("tree", "mask", "message"),
    [
        ("text", None, r"`tree` is 'text', but must be float"),
        (jnp.ones((2, 3), bool), None, r"`tree` is bool\[2, 3\], but must be float"),
        (jnp.ones((2, 2)), None, r"the last axes of `tree` must be .* \[3\], but"),
        (
            jnp.array(1.0),
            None,
            r"the last axes of `tree` must be .*, but .*float32\[\]",
        ),
        ((jnp.ones(3),), None, r"`state` and `tree` must share the same tree struct"),
        (jnp.ones((2, 3)), jnp.ones(3, bool), r"the mask shape must be that of the fi"),
        (jnp.ones((2, 3)), jnp.ones((2, 3), bool), r"`mask` must tell of whole entrie"),
        (jnp.ones((2, 3)), jnp.ones(2), r"`mask` is float32\[2\], but must be bool"),
    ],
)
def test_says_what_is_wrong(tree, mask, message):
    with pytest.raises(rlaxlib.ArgumentError, match=f"^running_moments: {message}"):
        UPDATE(tree, INIT(jnp.zeros(3)), mask=mask)


def test_leaves_must_hold_as_many_entries_as_each_other():
    with pytest.raises(rlaxlib.ArgumentError, match="must share the axes before those"):
        UPDATE((jnp.ones(2), jnp.ones(3)), INIT((0.0, 0.0)))


@pytest.mark.parametrize("setting", [{"clip": 0.0}, {"min_scale": -1.0}])
def test_normalizing_refuses_bounds_that_are_not_positive(setting):
    (name,) = setting
    with pytest.raises(rlaxlib.ArgumentError, match=f"normalize: `{name}` must lie"):
        INIT(0.0).normalize(1.0, **setting)


def test_states_of_different_entries_are_not_merged():
    with pytest.raises(rlaxlib.ArgumentError, match="must share the same tree struct"):
        INIT(0.0).merge(INIT((0.0,)))
    with pytest.raises(rlaxlib.ArgumentError, match=r"merge: `other` is float32\[1\]"):
        INIT(jnp.zeros(3)).merge(INIT(jnp.zeros(1)))
