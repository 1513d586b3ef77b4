"""Test PopArt: many targets, far from zero, on devices, and what it preserves."""

import functools

import contract
import jax
import jax.numpy as jnp
import numpy as np
import peers
import pytest
from experience import close
from jax.sharding import Mesh, PartitionSpec
from rows import normalization as rows

import rlaxlib

BOUNDS = {"scale_lb": 1e-4, "scale_ub": 1e6}


def start(outputs):
    return rlaxlib.popart(outputs, None, **BOUNDS)[0]()


def draw(outputs, shape, seed=0, mean=0.0):
    rng = np.random.default_rng(seed)
    targets = np.float32(mean + rng.normal(size=shape))
    return targets, rng.integers(outputs, size=shape, dtype=np.int32)


art = jax.jit(functools.partial(rlaxlib.art, **BOUNDS))


def make_params(outputs, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "w": jnp.asarray(rng.normal(size=(3, outputs)), jnp.float32),
        "b": jnp.asarray(rng.normal(size=outputs), jnp.float32),
    }


def values(params, state, x):
    """Return what a layer says of an input, in double precision."""
    w, b, shift, scale = (
        np.asarray(each, np.float64)
        for each in (params["w"], params["b"], state.shift, state.scale)
    )
    return scale * (x @ w + b) + shift


class Follower:
    """Follow the targets as `art` does, in double precision."""

    def __init__(self, outputs):
        self.mean, self.variance = np.zeros(outputs), np.ones(outputs)

    def update(self, targets, indices, step_size):
        for k in range(len(self.mean)):
            own = np.asarray(targets, np.float64)[indices == k]
            if own.size:
                step = 1 - (1 - step_size) ** own.size
                error = own.mean() - self.mean[k]
                self.mean[k] += step * error
                between = (1 - step) * error**2
                self.variance[k] *= 1 - step
                self.variance[k] += step * (own.var() + between)


# --- What they compute. ---


@pytest.mark.parametrize(("outputs", "size"), [(1, 4), (3, 64), (6, 128)])
@pytest.mark.parametrize("mean", [0.0, 1e3, 1e5])
def test_the_scale_keeps_its_digits_far_from_zero(mean, outputs, size):
    move = jax.jit(functools.partial(rlaxlib.art, step_size=0.01, **BOUNDS))
    state, follower = start(outputs), Follower(outputs)
    for seed in range(1500):
        targets, indices = draw(outputs, size, seed, mean)
        state = move(state, targets, indices)
        follower.update(targets, indices, 0.01)
    np.testing.assert_allclose(state.shift, follower.mean, rtol=2e-7, atol=1e-6)
    np.testing.assert_allclose(state.scale, np.sqrt(follower.variance), rtol=2e-3)


@pytest.mark.parametrize("mean", [0.0, 1e5])
@pytest.mark.parametrize("outputs", [1, 2, 6])
def test_many_targets_are_as_many_steps_and_no_more(outputs, mean):
    state, follower = start(outputs), Follower(outputs)
    for step_size in (0.01, 0.001):
        targets, indices = draw(outputs, 3000 * outputs, mean=mean)
        state = art(state, targets, indices, step_size)
        follower.update(targets, indices, step_size)
        # Which is what a sum of 3000 numbers in single precision is good for.
        np.testing.assert_allclose(state.shift, follower.mean, rtol=1e-6, atol=1e-5)
        np.testing.assert_allclose(state.scale, np.sqrt(follower.variance), rtol=4e-5)


@pytest.mark.parametrize("outputs", [1, 2, 4])
def test_a_million_targets_leave_the_scale_its_digits(outputs):
    targets, indices = draw(outputs, 1_000_000, mean=1e4)
    state, follower = art(start(outputs), targets, indices, 1.0), Follower(outputs)
    follower.update(targets, indices, 1.0)
    np.testing.assert_allclose(state.shift, follower.mean, rtol=1.2e-7)
    np.testing.assert_allclose(state.scale, np.sqrt(follower.variance), rtol=1e-6)


@pytest.mark.parametrize("first", [0, 1])  # Row 0 is one of those looked at first.
def test_an_output_of_which_little_is_seen_keeps_its_digits(first):
    targets, indices = draw(6, 9000, mean=1e5)
    rare = np.arange(first, 9000, 11 * 9)
    indices = np.where(indices == 5, 0, indices)
    indices[rare] = 5
    targets[rare] -= np.float32(9e4)
    state, follower = start(6), Follower(6)
    state = rlaxlib.art(state, targets, indices, 1.0, **BOUNDS)
    follower.update(targets, indices, 1.0)
    np.testing.assert_allclose(state.shift, follower.mean, rtol=1e-6)
    np.testing.assert_allclose(state.scale, np.sqrt(follower.variance), rtol=4e-5)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("outputs", [1, 2, 4, 5, 57])
def test_few_outputs_and_many_follow_the_same_definition(outputs, masked):
    targets, indices = draw(outputs, (8, 5))
    mask = np.random.default_rng(1).uniform(size=(8, 5)) < 0.7 if masked else None
    state = start(outputs)._replace(second_moment=jnp.full(outputs, 4.0))
    actual = art(state, targets, indices, 0.1, mask=mask)
    expected = rows.art(
        *map(np.float64, state), targets, indices, 0.1, **BOUNDS, mask=mask
    )
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_a_step_of_one_takes_the_targets_for_all_there_is():
    targets, indices = jnp.array([1.0, 3.0]), jnp.array([0, 0])
    state = rlaxlib.art(start(2), targets, indices, 1.0, **BOUNDS)
    close(state, [[2.0, 0.0], [1.0, 1.0], [5.0, 1.0]])


def test_the_scale_stays_in_bounds_and_the_second_moment_goes_on():
    state = expected = start(1)
    for seed in range(20):
        targets, indices = draw(1, 1, seed)
        bounds = {"scale_lb": 0.9, "scale_ub": 0.95}
        state = rlaxlib.art(state, targets, indices, 0.3, **bounds)
        expected = rows.art(*map(np.float64, expected), targets, indices, 0.3, **bounds)
        assert 0.9 <= state.scale[0] <= 0.95
        close(state, expected)


@pytest.mark.parametrize("smallest", [1e-4, 1e-30])
def test_constant_targets_have_a_scale_to_divide_by(smallest):
    state, targets, indices = start(1), jnp.full(8, 5.0), jnp.zeros(8, int)
    for _ in range(20):
        state = rlaxlib.art(state, targets, indices, 0.9, smallest, 1.0)
    assert state.scale[0] >= smallest
    np.testing.assert_array_equal(rlaxlib.normalize(state, targets, indices), 0.0)


@pytest.mark.parametrize("outputs", [2, 6])
def test_an_output_without_targets_stays_as_it_is_to_the_last_digit(outputs):
    targets, indices = draw(outputs, 9, mean=1e3)
    state = rlaxlib.art(start(outputs), targets, indices, 0.1, **BOUNDS)
    moved = state
    for seed in range(20):
        targets, _ = draw(outputs, 9, seed)
        moved = rlaxlib.art(moved, targets, 0 * indices, 0.1, **BOUNDS)
    for before, after in zip(state, moved, strict=True):
        np.testing.assert_array_equal(before[1:], after[1:])
        assert before[0] != after[0]


@pytest.mark.parametrize("outputs", [2, 6])
def test_a_nan_spoils_the_output_that_it_belongs_to_and_no_other(outputs):
    targets, indices = jnp.array([jnp.nan, 2.0]), jnp.array([1, 0])
    state = rlaxlib.art(start(outputs), targets, indices, 0.5, **BOUNDS)
    for each in state:
        np.testing.assert_array_equal(jnp.isnan(each), jnp.arange(outputs) == 1)


@pytest.mark.parametrize("mean", [0.0, 1e5])
def test_what_a_layer_says_is_preserved_over_thousands_of_updates(mean):
    initial_state, update = rlaxlib.popart(3, 0.01, **BOUNDS)
    params, state, x = make_params(3), initial_state(), np.array([[1.0, -2.0, 3.0]])
    expected = values(params, state, x)
    update = jax.jit(update)
    for seed in range(3000):
        size = 1 + 10 * np.sin(seed / 100) ** 2
        targets, indices = draw(3, 16, seed, mean)
        params, state = update(params, state, size * targets, indices)
    largest = np.max(np.abs(state.shift)) + np.max(state.scale)
    tolerance = 100 * float(np.finfo(np.float32).eps) * largest
    np.testing.assert_allclose(values(params, state, x), expected, 0, tolerance)


def test_without_a_bias_only_the_shift_is_not_made_up_for():
    params = {"w": make_params(2)["w"]}
    old, new = start(2), rlaxlib.PopArtState(*jnp.array([[1.0, 2], [3, 4], [9, 9]]))
    moved = rlaxlib.pop(params, old, new)
    assert list(moved) == ["w"]
    close(np.asarray(moved["w"]) * new.scale[None], params["w"])


def test_a_large_shift_does_not_round_a_small_bias():
    old, params = start(2)._replace(shift=jnp.full(2, 1e6)), make_params(2)
    new = old._replace(shift=old.shift + 0.5)
    moved = rlaxlib.pop(params, old, new)
    np.testing.assert_array_equal(moved["b"], params["b"] - 0.5)


def test_no_step_size_changes_nothing():
    initial_state, update = rlaxlib.popart(2, None, **BOUNDS)
    params, state = make_params(2), initial_state()
    moved, after = update(params, state, *draw(2, 4))
    assert moved is params
    assert after is state


# --- How they relate. ---


def test_what_is_normalised_comes_back():
    state = rlaxlib.PopArtState(*jnp.array([[1.0, -5.0], [2.0, 0.1], [5.0, 25.01]]))
    numbers, indices = draw(2, (4, 3))
    normal = rlaxlib.normalize(state, numbers, indices)
    close(rlaxlib.unnormalize(state, normal, indices), numbers)
    each = [rlaxlib.normalize(state, numbers, k) for k in range(2)]
    close(np.where(indices == 0, *each), normal)


def test_what_is_masked_is_as_if_it_were_not_there():
    targets, indices = draw(6, 20)
    mask = np.arange(20) % 3 > 0
    spoiled = jnp.where(mask, targets, jnp.nan)
    beyond = np.where(mask, indices, -1)
    for outputs in (1, 3, 6):
        state, own = start(outputs), np.minimum(beyond, outputs - 1)
        with jax.debug_nans(True):
            actual = rlaxlib.art(state, spoiled, own, 0.1, **BOUNDS, mask=mask)
        expected = rlaxlib.art(state, targets[mask], own[mask], 0.1, **BOUNDS)
        np.testing.assert_allclose(actual, expected, rtol=1e-6)


# --- The names of parameters. ---


def make_layer(**names):
    return {names[key]: value for key, value in make_params(2).items() if key in names}


@pytest.mark.parametrize(
    "params",
    [
        make_layer(w="w", b="b"),
        make_layer(w="kernel", b="bias"),
        {"params": {"Dense_0": make_layer(w="kernel", b="bias")}},
        {"head": make_layer(w="w", b="b"), "norm": {"scale": 3.0, "bias": 2.0}},
        {**make_layer(w="w", b="b"), "steps": jnp.arange(3), "none": None},
        [make_layer(w="w", b="b"), {"b": 1.0}],
    ],
)
def test_a_layer_is_found_by_the_names_of_haiku_and_flax(params):
    old, new = start(2), rlaxlib.PopArtState(*jnp.array([[1.0, 2], [3, 4], [9, 9]]))
    expected = rlaxlib.pop(make_params(2), old, new)
    moved = rlaxlib.pop(params, old, new)
    assert jax.tree.structure(moved) == jax.tree.structure(params)
    pairs = zip(jax.tree.leaves(params), jax.tree.leaves(moved), strict=True)
    changed = [after for before, after in pairs if after is not before]
    assert [x.shape for x in changed] == [(2,), (3, 2)]
    np.testing.assert_array_equal(changed[0], expected["b"])
    np.testing.assert_array_equal(changed[1], expected["w"])


def test_the_containers_of_flax_are_kept():
    flax, nnx = peers.find("flax"), peers.find("flax.nnx")
    old, new = start(2), rlaxlib.PopArtState(*jnp.array([[1.0, 2], [3, 4], [9, 9]]))
    frozen = flax.core.freeze({"params": make_layer(w="kernel", b="bias")})
    assert isinstance(rlaxlib.pop(frozen, old, new), flax.core.FrozenDict)
    layer = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    x = jnp.array([1.0, 2.0, 3.0])
    expected = layer(x)
    nnx.update(layer, rlaxlib.pop(nnx.state(layer), old, new))
    close(new.scale * layer(x) + new.shift, expected)


def test_weights_may_have_any_leading_axes_and_keep_their_dtype():
    old, new = start(2), rlaxlib.PopArtState(*jnp.array([[1.0, 2], [3, 4], [9, 9]]))
    params = {"kernel": jnp.ones((5, 5, 3, 2), jnp.bfloat16), "bias": jnp.zeros(2)}
    moved = rlaxlib.pop(params, old, new)
    assert moved["kernel"].dtype == jnp.bfloat16
    assert moved["bias"].dtype == jnp.float32
    close(moved["kernel"][2, 3, 1], [1 / 3, 1 / 4], rtol=0.01)


# --- How they behave under JAX. ---


def test_the_state_is_constant_under_differentiation():
    initial_state, update = rlaxlib.popart(2, 0.1, **BOUNDS)
    targets, indices = draw(2, 6)

    def loss(params, targets):
        params, state = update(params, initial_state(), targets, indices)
        return sum(map(jnp.sum, [*params.values(), *state]))

    _, state = update(make_params(2), initial_state(), targets, indices)
    by_params, by_targets = jax.grad(loss, (0, 1))(make_params(2), targets)
    np.testing.assert_array_equal(by_targets, 0.0)
    close(by_params["b"], 1 / state.scale)


@pytest.mark.parametrize("outputs", [1, 3])
def test_a_traced_index_beyond_gives_nan_and_teaches_nothing(outputs):
    state, indices = start(outputs), jnp.array([-1, 0, outputs, 99])
    targets = jnp.array([7.0, 1.0, 8.0, 9.0])
    for function in (rlaxlib.normalize, rlaxlib.unnormalize):
        numbers = jax.jit(function)(state, targets, indices)
        np.testing.assert_array_equal(numbers, [np.nan, 1.0, np.nan, np.nan])
    inputs = jnp.broadcast_to(targets[:, None], (4, outputs))
    for numbers in jax.jit(rlaxlib.unnormalize_linear)(state, inputs, indices):
        np.testing.assert_array_equal(numbers, [np.nan, 1.0, np.nan, np.nan])
    move = jax.jit(functools.partial(rlaxlib.art, step_size=0.5, **BOUNDS))
    expected = rlaxlib.art(state, jnp.array([1.0]), jnp.array([0]), 0.5, **BOUNDS)
    np.testing.assert_array_equal(move(state, targets, indices), expected)


@pytest.mark.parametrize("dtype", [jnp.int8, jnp.uint8, jnp.int32, jnp.int64])
def test_indices_may_be_of_any_dtype(dtype):
    with contract.x64(True):
        outputs, indices = 200, jnp.array([100, 3], dtype)
        state = rlaxlib.popart(outputs, 0.5, **BOUNDS)[0]()
        state = state._replace(shift=jnp.arange(outputs, dtype=jnp.float32))
        numbers = jnp.zeros(2, jnp.float32)
        np.testing.assert_array_equal(
            rlaxlib.unnormalize(state, numbers, indices), [100.0, 3.0]
        )
        inputs = jnp.broadcast_to(state.shift, (2, outputs))
        output = rlaxlib.unnormalize_linear(state, inputs, indices)
        np.testing.assert_array_equal(output.normalized, [100.0, 3.0])
        moved = rlaxlib.art(state, numbers, indices, 0.5, **BOUNDS)
        np.testing.assert_array_equal(
            np.flatnonzero(moved.shift != state.shift), [3, 100]
        )


@pytest.mark.parametrize("outputs", [1, 3, 7])
@pytest.mark.parametrize("masked", [False, True])
def test_devices_take_in_the_targets_of_all(outputs, masked):
    targets, indices = draw(outputs, (4, 5), mean=1e4)
    mask = np.arange(20).reshape(4, 5) > 7 if masked else np.ones((4, 5), bool)
    targets = np.where(mask, targets, np.nan)
    mesh = Mesh(np.array(jax.devices()[:4]), "devices")
    here, everywhere = PartitionSpec("devices"), PartitionSpec()
    _, update = rlaxlib.popart(outputs, 0.5, **BOUNDS, axis_name="devices")

    @jax.jit
    @functools.partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=(everywhere, everywhere, here, here, here),
        out_specs=everywhere,
    )
    def together(params, state, targets, indices, mask):
        mask = mask if masked else None
        return update(params, state, targets, indices, mask=mask)

    _, update_alone = rlaxlib.popart(outputs, 0.5, **BOUNDS)
    params, state = make_params(outputs), start(outputs)
    expected = jax.jit(update_alone)(params, state, targets, indices, mask=mask)
    actual = together(params, state, targets, indices, mask)
    contract.assert_close(actual, expected, 1e-6, 1e-4)


def test_devices_may_form_no_axis_or_several():
    targets, indices = draw(2, (2, 3, 4))
    expected = rlaxlib.art(start(2), targets, indices, 0.1, **BOUNDS)

    def move(targets, indices):
        return rlaxlib.art(start(2), targets, indices, 0.1, **BOUNDS, axis_name=names)

    names = ["i", "j"]
    mapped = jax.vmap(jax.vmap(move, axis_name="j"), axis_name="i")(targets, indices)
    for one, other in zip(mapped, expected, strict=True):
        close(one, np.broadcast_to(other, (2, 3, 2)))
    names = []
    np.testing.assert_array_equal(move(targets, indices), expected)


def test_the_dtype_of_the_state_is_kept():
    targets, indices = draw(2, 6)
    half = rlaxlib.art(start(2), jnp.bfloat16(targets), indices, 0.1, **BOUNDS)
    assert {x.dtype for x in half} == {jnp.dtype(jnp.float32)}
    with contract.x64(True), jax.numpy_dtype_promotion("standard"):
        for dtype in (jnp.float32, jnp.float64):
            initial_state, update = rlaxlib.popart(2, 0.1, **BOUNDS, dtype=dtype)
            params = make_params(2)
            moved, state = update(
                params, initial_state(), targets.astype(np.float64), indices
            )
            assert {x.dtype for x in state} == {jnp.dtype(dtype)}
            assert {x.dtype for x in moved.values()} == {jnp.dtype(jnp.float32)}


# --- What they refuse. ---


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step_size": 1.5}, r"`step_size` must lie in \[0, 1\], but is 1\.5"),
        ({"step_size": -0.1}, r"`step_size` must lie in \[0, 1\]"),
        ({"scale_lb": 0.0}, r"`scale_lb` must lie in \(0, inf\]"),
        ({"scale_ub": jnp.nan}, r"`scale_ub` must lie in \(0, inf\]"),
        ({"scale_lb": 2.0, "scale_ub": 1.0}, r"`scale_ub` must be at least `scale_lb`"),
    ],
)
def test_settings_must_make_sense(change, message):
    settings = {"step_size": 0.1, **BOUNDS, **change}
    with pytest.raises(rlaxlib.ArgumentError, match=rf"^popart: {message}"):
        rlaxlib.popart(2, **settings)
    with pytest.raises(rlaxlib.ArgumentError, match=rf"^art: {message}"):
        rlaxlib.art(start(2), *draw(2, 4), **settings)


@pytest.mark.parametrize("outputs", [0, -1, 2.0])
def test_there_must_be_an_output(outputs):
    with pytest.raises(rlaxlib.ArgumentError, match=r"^popart: `num_outputs` must be"):
        rlaxlib.popart(outputs, 0.1, **BOUNDS)


@pytest.mark.parametrize("index", [-1, 2, 99])
@pytest.mark.parametrize(
    "function",
    [
        rlaxlib.normalize,
        rlaxlib.unnormalize,
        functools.partial(rlaxlib.art, step_size=0.1, **BOUNDS),
    ],
)
def test_an_index_must_be_that_of_an_output(function, index):
    with pytest.raises(rlaxlib.ArgumentError, match=r"`indices` must be one of 2"):
        function(start(2), jnp.ones(2), jnp.array([0, index]))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, r"holds 0 of these; its leaves are: none"),
        ({"W": 1.0}, r"holds 0 of these; its leaves are: W"),
        (jnp.ones((3, 2)), r"holds 0 of these"),
        (
            {"a": {"w": 1.0}, "c": {"kernel": 1.0}},
            r"holds 2 of these.*: a\.w, c\.kernel",
        ),
    ],
)
def test_params_must_hold_one_layer(params, message):
    message = r"^pop: `params` must hold the weights of one layer.*" + message
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        rlaxlib.pop(params, start(2), start(2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: rlaxlib.pop(make_params(3), start(2), start(2)),
            r"^pop: `old.shift` is float32\[2\], but must be float\[N\], where .*N = 3",
        ),
        (
            lambda: rlaxlib.unnormalize_linear(
                start(2), jnp.ones((4, 3)), jnp.ones(4, int)
            ),
            r"^unnormalize_linear: `shift` is float32\[2\], but must be float\[3\]",
        ),
        (
            lambda: rlaxlib.normalize(start(2), jnp.ones(4), jnp.array([0])),
            r"^normalize: `indices` is int32\[1\], but must be int\[\] or \[\.\.\.\]",
        ),
        (
            lambda: rlaxlib.art(start(2), jnp.ones(0), jnp.ones(0, int), 0.1, 0.1, 1.0),
            r"^art: `targets.size` must be at least 1",
        ),
    ],
)
def test_says_what_is_wrong(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        call()
