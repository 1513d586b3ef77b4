"""Test PopArt: many targets, far from zero, preserved outputs, devices, bad input."""

import functools

import contract
import jax
import jax.numpy as jnp
import numpy as np
import peers
import pytest
from experience import close
from jax.sharding import Mesh, PartitionSpec
from rows.normalization import popart as rows

import rlaxlib

BOUNDS = {"scale_lb": 1e-4, "scale_ub": 1e6}


def start(outputs):
    return rlaxlib.popart(outputs, None, **BOUNDS).init()


def draw(outputs, shape, seed=0, mean=0.0):
    rng = np.random.default_rng(seed)
    targets = np.float32(mean + rng.normal(size=shape))
    return targets, rng.integers(outputs, size=shape, dtype=np.int32)


art = jax.jit(functools.partial(rlaxlib.art, **BOUNDS))
normalize = jax.jit(rlaxlib.normalize)
unnormalize = jax.jit(rlaxlib.unnormalize)
unnormalize_linear = jax.jit(rlaxlib.unnormalize_linear)


@jax.jit
def run_art(state, targets, indices, step_size):
    """Update once for each row of targets."""

    def step(state, inputs):
        return art(state, *inputs, step_size), None

    return jax.lax.scan(step, state, (targets, indices))[0]


def make_params(outputs, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "w": np.float32(rng.normal(size=(3, outputs))),
        "b": np.float32(rng.normal(size=outputs)),
    }


def values(params, state, x):
    """Return the unnormalised outputs of a layer, in double precision."""
    w, b, shift, scale = (
        np.asarray(each, np.float64)
        for each in (params["w"], params["b"], state.shift, state.scale)
    )
    return scale * (x @ w + b) + shift


class Definition:
    """The statistics of `art` from the definition, in double precision."""

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


# --- Values. ---


@pytest.mark.parametrize("mean", [0.0, 1e5])
def test_scale_is_precise_far_from_zero(mean):
    targets, indices = draw(6, (500, 128), mean=mean)
    state = run_art(start(6), targets, indices, 0.01)
    definition = Definition(6)
    for each in zip(targets, indices, strict=True):
        definition.update(*each, 0.01)
    np.testing.assert_allclose(state.shift, definition.mean, rtol=2e-7, atol=1e-6)
    np.testing.assert_allclose(state.scale, np.sqrt(definition.variance), rtol=2e-3)


@pytest.mark.parametrize("mean", [0.0, 1e2])
def test_many_targets_are_as_many_steps(mean):
    state, definition = start(6), Definition(6)
    for step_size in (0.01, 0.001):
        targets, indices = draw(6, 18_000, mean=mean)
        state = art(state, targets, indices, step_size)
        definition.update(targets, indices, step_size)
        np.testing.assert_allclose(state.shift, definition.mean, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(state.scale, np.sqrt(definition.variance), rtol=4e-5)


def test_a_large_batch_is_precise_far_from_zero_once_the_shift_is_close():
    state = start(4)
    for seed in range(2):
        targets, indices = draw(4, 100_000, seed, mean=1e4)
        state = art(state, targets, indices, 1.0)
    definition = Definition(4)
    definition.update(targets, indices, 1.0)
    np.testing.assert_allclose(state.shift, definition.mean, rtol=2e-7)
    np.testing.assert_allclose(state.scale, np.sqrt(definition.variance), rtol=1e-4)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("outputs", [1, 57])
def test_art_equals_its_definition_for_any_number_of_outputs(outputs, masked):
    targets, indices = draw(outputs, (8, 5))
    mask = np.random.default_rng(1).uniform(size=(8, 5)) < 0.7 if masked else None
    state = start(outputs)
    actual = art(state, targets, indices, 0.1, sample_mask=mask)
    expected = rows.art(
        *map(np.float64, state), targets, indices, 0.1, **BOUNDS, sample_mask=mask
    )
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_step_size_one_takes_the_moments_of_the_targets():
    targets, indices = np.float32([1, 3]), np.array([0, 0], np.int32)
    state = art(start(2), targets, indices, 1.0)
    close(state, [[2.0, 0.0], [1.0, 1.0], [5.0, 1.0]])


def test_scale_at_a_bound_continues_from_the_second_moment():
    state = expected = start(1)
    for seed in range(20):
        targets, indices = draw(1, 1, seed)
        bounds = {"scale_lb": 0.9, "scale_ub": 0.95}
        state = art(state, targets, indices, 0.3, **bounds)
        expected = rows.art(*map(np.float64, expected), targets, indices, 0.3, **bounds)
        assert 0.9 <= state.scale[0] <= 0.95
        close(state, expected)


@pytest.mark.parametrize("smallest", [1e-4, 1e-30])
def test_scale_of_constant_targets_is_the_lower_bound(smallest):
    targets, indices = np.full(8, 5, np.float32), np.zeros(8, np.int32)
    state, bounds = start(1), {"scale_lb": smallest, "scale_ub": 1.0}
    for _ in range(20):
        state = art(state, targets, indices, 0.9, **bounds)
    assert state.scale[0] >= smallest
    np.testing.assert_array_equal(normalize(state, targets, indices), 0.0)


def test_output_without_targets_is_unchanged():
    targets, indices = draw(2, 9, mean=1e3)
    state = art(start(2), targets, indices, 0.1)
    targets, indices = draw(2, (20, 9))
    moved = run_art(state, targets, 0 * indices, 0.1)
    for before, after in zip(np.array(state), np.array(moved), strict=True):
        np.testing.assert_array_equal(before[1:], after[1:])
        assert before[0] != after[0]


def test_nan_target_affects_its_own_output_only():
    targets, indices = np.float32([np.nan, 2]), np.array([1, 0], np.int32)
    for each in art(start(2), targets, indices, 0.5):
        np.testing.assert_array_equal(np.isnan(each), [False, True])


@pytest.mark.parametrize("mean", [0.0, 1e5])
def test_outputs_are_preserved_over_thousands_of_updates(mean):
    initial_state, update = rlaxlib.popart(3, 0.01, **BOUNDS)
    params, state, x = make_params(3), initial_state(), np.array([[1.0, -2.0, 3.0]])
    expected = values(params, state, x)
    targets, indices = draw(3, (3000, 16), mean=mean)
    sizes = np.float32(1 + 10 * np.sin(np.arange(3000) / 100) ** 2)

    @jax.jit
    def run(params, state, targets, indices):
        def step(carry, inputs):
            return update(*carry, *inputs), None

        return jax.lax.scan(step, (params, state), (targets, indices))[0]

    params, state = run(params, state, sizes[:, None] * targets, indices)
    largest = np.max(np.abs(state.shift)) + np.max(state.scale)
    tolerance = 100 * float(np.finfo(np.float32).eps) * largest
    np.testing.assert_allclose(values(params, state, x), expected, 0, tolerance)


def test_pop_without_a_bias_rescales_the_weights():
    params = {"w": make_params(2)["w"]}
    old, new = start(2), rlaxlib.PopArtState(*np.float32([[1, 2], [3, 4], [9, 9]]))
    moved = rlaxlib.pop(params, old, new)
    assert list(moved) == ["w"]
    close(np.asarray(moved["w"]) * new.scale, params["w"])


def test_pop_keeps_a_small_bias_beside_a_large_shift():
    shift, params = np.float32([1e6, 1e6]), make_params(2)
    old, new = (start(2)._replace(shift=x) for x in (shift, shift + np.float32(0.5)))
    moved = rlaxlib.pop(params, old, new)
    np.testing.assert_array_equal(moved["b"], params["b"] - np.float32(0.5))


def test_step_size_none_changes_nothing():
    initial_state, update = rlaxlib.popart(2, None, **BOUNDS)
    params, state = make_params(2), initial_state()
    moved, after = update(params, state, *draw(2, 4))
    assert moved is params
    assert after is state


# --- Identities. ---


def test_unnormalize_inverts_normalize():
    state = rlaxlib.PopArtState(*np.float32([[1, -5], [2, 0.1], [5, 25.01]]))
    numbers, indices = draw(2, (4, 3))
    normal = normalize(state, numbers, indices)
    close(unnormalize(state, normal, indices), numbers)
    each = [normalize(state, numbers, k) for k in range(2)]
    close(np.where(indices == 0, *each), normal)


def test_masked_targets_are_ignored():
    targets, indices = draw(6, 20)
    mask = np.arange(20) % 3 > 0
    spoiled = np.where(mask, targets, np.float32(np.nan))
    beyond = np.where(mask, indices, -1)
    with jax.debug_nans(True):
        actual = art(start(6), spoiled, beyond, 0.1, sample_mask=mask)
    expected = art(start(6), targets[mask], indices[mask], 0.1)
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


# --- Names of parameters. ---


def make_layer(**names):
    return {names[key]: value for key, value in make_params(2).items() if key in names}


@pytest.mark.parametrize(
    "params",
    [
        make_layer(w="w", b="b"),
        make_layer(w="kernel", b="bias"),
        {"params": {"Dense_0": make_layer(w="kernel", b="bias")}},
        {"head": make_layer(w="w", b="b"), "norm": {"scale": 3.0, "bias": 2.0}},
        {**make_layer(w="w", b="b"), "steps": np.arange(3), "none": None},
        [make_layer(w="w", b="b"), {"b": 1.0}],
    ],
)
def test_pop_finds_the_layer_by_the_names_of_haiku_and_flax(params):
    old, new = start(2), rlaxlib.PopArtState(*np.float32([[1, 2], [3, 4], [9, 9]]))
    expected = rlaxlib.pop(make_params(2), old, new)
    moved = rlaxlib.pop(params, old, new)
    assert jax.tree.structure(moved) == jax.tree.structure(params)
    pairs = zip(jax.tree.leaves(params), jax.tree.leaves(moved), strict=True)
    changed = [after for before, after in pairs if after is not before]
    assert [x.shape for x in changed] == [(2,), (3, 2)]
    np.testing.assert_array_equal(changed[0], expected["b"])
    np.testing.assert_array_equal(changed[1], expected["w"])


def test_pop_keeps_the_containers_of_flax():
    flax, nnx = peers.find("flax"), peers.find("flax.nnx")
    old, new = start(2), rlaxlib.PopArtState(*np.float32([[1, 2], [3, 4], [9, 9]]))
    frozen = flax.core.freeze({"params": make_layer(w="kernel", b="bias")})
    assert isinstance(rlaxlib.pop(frozen, old, new), flax.core.FrozenDict)
    layer = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    x = np.float32([1, 2, 3])
    expected = layer(x)
    nnx.update(layer, rlaxlib.pop(nnx.state(layer), old, new))
    close(new.scale * layer(x) + new.shift, expected)


def test_pop_keeps_leading_axes_and_dtypes():
    old, new = start(2), rlaxlib.PopArtState(*np.float32([[1, 2], [3, 4], [9, 9]]))
    kernel = jnp.bfloat16(np.ones((5, 5, 3, 2)))
    params = {"kernel": kernel, "bias": np.zeros(2, np.float32)}
    moved = rlaxlib.pop(params, old, new)
    assert moved["kernel"].dtype == jnp.bfloat16
    assert moved["bias"].dtype == jnp.float32
    close(np.float32(moved["kernel"])[2, 3, 1], [1 / 3, 1 / 4], rtol=0.01)


# --- Behaviour under JAX. ---


def test_gradient_of_the_state_is_stopped():
    initial_state, update = rlaxlib.popart(2, 0.1, **BOUNDS)
    targets, indices = draw(2, 6)

    def loss(params, targets):
        params, state = update(params, initial_state(), targets, indices)
        return sum(map(jnp.sum, [*params.values(), *state])), state

    gradient = jax.jit(jax.grad(loss, (0, 1), has_aux=True))
    (by_params, by_targets), state = gradient(make_params(2), targets)
    np.testing.assert_array_equal(by_targets, 0.0)
    close(by_params["b"], 1 / np.asarray(state.scale))


def test_traced_index_out_of_range_gives_nan_and_is_ignored_by_art():
    state, indices = start(3), np.array([-1, 0, 3, 99], np.int32)
    targets = np.float32([7, 1, 8, 9])
    for function in (normalize, unnormalize):
        numbers = function(state, targets, indices)
        np.testing.assert_array_equal(numbers, [np.nan, 1.0, np.nan, np.nan])
    inputs = np.repeat(targets[:, None], 3, axis=1)
    for numbers in unnormalize_linear(state, inputs, indices):
        np.testing.assert_array_equal(numbers, [np.nan, 1.0, np.nan, np.nan])
    expected = art(state, targets[1:2], indices[1:2], 0.5)
    np.testing.assert_array_equal(art(state, targets, indices, 0.5), expected)


@pytest.mark.parametrize("dtype", [jnp.int8, jnp.uint8, jnp.int64])
def test_indices_may_have_any_integer_dtype(dtype):
    state = start(200)._replace(shift=np.arange(200, dtype=np.float32))
    numbers, inputs = np.zeros(2, np.float32), np.stack([state.shift] * 2)

    @jax.jit
    def all_three(indices):
        output = rlaxlib.unnormalize_linear(state, inputs, indices)
        updated = rlaxlib.art(state, numbers, indices, 0.5, **BOUNDS)
        normal = rlaxlib.unnormalize(state, numbers, indices)
        return normal, output.normalized, updated.shift

    with contract.x64(True):
        *selected, shift = map(np.asarray, all_three(np.array([100, 3], dtype)))
    np.testing.assert_array_equal(selected, [[100.0, 3.0]] * 2)
    np.testing.assert_array_equal(np.flatnonzero(shift != state.shift), [3, 100])


@pytest.mark.parametrize(("outputs", "masked"), [(1, False), (7, True)])
def test_update_over_devices_includes_the_targets_of_all(outputs, masked):
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
        return update(params, state, targets, indices, sample_mask=mask)

    _, update_alone = rlaxlib.popart(outputs, 0.5, **BOUNDS)
    params, state = make_params(outputs), start(outputs)
    expected = jax.jit(update_alone)(params, state, targets, indices, sample_mask=mask)
    actual = together(params, state, targets, indices, mask)
    contract.assert_close(actual, expected, 1e-6, 1e-4)


def test_axis_name_may_be_several_names_or_none():
    targets, indices = draw(2, (2, 3, 4))
    state = start(2)
    expected = art(state, targets, indices, 0.1)

    def move(targets, indices, names=("i", "j")):
        return rlaxlib.art(state, targets, indices, 0.1, **BOUNDS, axis_name=names)

    mapped = jax.jit(jax.vmap(jax.vmap(move, axis_name="j"), axis_name="i"))
    for one, other in zip(mapped(targets, indices), expected, strict=True):
        close(one, np.broadcast_to(other, (2, 3, 2)))
    alone = jax.jit(functools.partial(move, names=[]))
    np.testing.assert_array_equal(alone(targets, indices), expected)


def test_dtype_of_the_state_is_kept():
    targets, indices = draw(2, 6)
    half = art(start(2), jnp.bfloat16(targets), indices, 0.1)
    assert {x.dtype for x in half} == {jnp.dtype(jnp.float32)}
    with contract.x64(True), jax.numpy_dtype_promotion("standard"):
        for dtype in (jnp.float32, jnp.float64):
            initial_state, update = rlaxlib.popart(2, 0.1, **BOUNDS, dtype=dtype)
            params = make_params(2)
            wide = targets.astype(np.float64)
            moved, state = jax.eval_shape(
                update, params, initial_state(), wide, indices
            )
            assert {x.dtype for x in state} == {jnp.dtype(dtype)}
            assert {x.dtype for x in moved.values()} == {jnp.dtype(jnp.float32)}


# --- Bad input. ---


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, r"holds 0 weights .*; its leaves are: none"),
        ({"W": 1.0}, r"holds 0 weights .*; its leaves are: W"),
        (np.ones((3, 2)), r"holds 0 weights"),
        (
            {"a": {"w": 1.0}, "c": {"kernel": 1.0}},
            r"holds 2 weights .*: a\.w, c\.kernel",
        ),
    ],
)
def test_params_must_hold_one_layer(params, message):
    with pytest.raises(rlaxlib.ArgumentError, match=rf"^pop: `params` {message}"):
        rlaxlib.pop(params, start(2), start(2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: rlaxlib.pop(make_params(3), start(2), start(2)),
            r"^pop: `old\.shift` is float32\[2\], must be float\[N\]",
        ),
        (
            lambda: rlaxlib.unnormalize_linear(
                start(2), np.ones((4, 3), np.float32), np.ones(4, int)
            ),
            r"^unnormalize_linear: `state\.shift` is float32\[2\], must be "
            r"float\[N\]",
        ),
        (
            lambda: rlaxlib.normalize(start(2), np.float32([1] * 4), np.array([0])),
            r"^normalize: `indices` is int64\[1\], must be int\[\] or \[\.\.\.\]",
        ),
        (
            lambda: art(start(2), np.float32([]), np.zeros(0, int), 0.1),
            r"^art: `targets.size` is 0, must be at least 1",
        ),
    ],
)
def test_names_the_wrong_argument(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        call()
