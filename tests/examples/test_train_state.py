"""Test the train state of a flax module with its parameters and optimizer."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from common.train_state import TrainState, target_update
from flax import linen as nn
from jax.sharding import Mesh, PartitionSpec

# --- Helpers. ---


class Network(nn.Module):
    """A linear layer after a linear encoder."""

    def setup(self):
        self.layer = nn.Dense(1, use_bias=False)

    def __call__(self, x):
        return self.layer(self.encode(x))

    def encode(self, x):
        return 2 * x


X = np.arange(12, dtype=np.float32).reshape(4, 3)
Y = np.array([[1.0], [0.0], [-1.0], [5.0]], np.float32)
PARAMS = {"layer": {"kernel": np.array([[1.0], [-1.0], [0.5]], np.float32)}}
OTHER = {"layer": {"kernel": np.array([[0.0], [1.0], [0.0]], np.float32)}}


def make_state(tx=None):
    return TrainState.create(Network(), PARAMS, tx)


def loss_of(state, x=X, y=Y):
    def loss(params):
        error = state(x, params=params) - y
        return jnp.mean(error**2), {"error": jnp.mean(error)}

    return loss


def assert_same(one, other):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5), one, other)


# --- Updates and learning. ---


def test_call_applies_the_module_with_own_or_given_parameters():
    np.testing.assert_allclose(make_state()(X[:1]), [[0.0]])
    np.testing.assert_allclose(make_state()(X[:1], params=OTHER), [[2.0]])


@pytest.mark.parametrize("method", ["encode", Network.encode])
def test_method_is_given_by_name_or_as_a_function(method):
    np.testing.assert_allclose(make_state()(X, method=method), 2 * X)


def test_apply_gradients_takes_one_optimizer_step():
    state = make_state(optax.sgd(0.1, momentum=0.9))
    grads = jax.tree.map(np.ones_like, PARAMS)
    for step, moved in enumerate((0.1, 0.1 + 0.19)):  # The second has momentum.
        state = state.apply_gradients(grads=grads)
        expected = PARAMS["layer"]["kernel"] - moved
        np.testing.assert_allclose(state.params["layer"]["kernel"], expected, rtol=1e-6)
        assert state.step == step + 1


def test_apply_loss_fn_takes_a_gradient_step_with_or_without_metrics():
    state = make_state(optax.sgd(0.01))
    kernel = np.asarray(PARAMS["layer"]["kernel"])
    error = 2 * np.asarray(X) @ kernel - np.asarray(Y)
    expected = kernel - 0.01 * 2 / 4 * (2 * np.asarray(X)).T @ error

    loss = loss_of(state)
    without_aux = state.apply_loss_fn(loss_fn=lambda params: loss(params)[0])
    moved, info = state.apply_loss_fn(loss_fn=loss, has_aux=True)
    np.testing.assert_allclose(
        without_aux.params["layer"]["kernel"], expected, rtol=1e-5
    )
    assert_same(moved, without_aux)
    np.testing.assert_allclose(info["error"], error.mean(), rtol=1e-6)


def test_target_update_interpolates_parameters_only():
    model = TrainState.create(Network(), OTHER, optax.adam(0.1))
    target = target_update(model, make_state(), tau=0.25)
    expected = jax.tree.map(lambda new, old: 0.25 * new + 0.75 * old, OTHER, PARAMS)
    assert_same(target.params, expected)
    assert target.opt_state is None
    assert target.step == 0


# --- Behaviour under JAX. ---


def test_state_works_under_jit_and_scan():
    state = make_state(optax.adam(0.1))
    step = jax.jit(lambda s: s.apply_loss_fn(loss_fn=loss_of(s), has_aux=True)[0])
    carried, _ = jax.lax.scan(lambda s, _: (step(s), None), state, length=3)
    assert_same(carried, step(step(step(state))))


def over_pmap(update, state):
    states = jax.pmap(update, "data", in_axes=(None, 0, 0))(
        state, X[:, None], Y[:, None]
    )
    return jax.tree.map(lambda x: np.asarray(x)[-1], states)


def over_replicated_pmap(update, state):
    states = jax.tree.map(lambda x: np.stack(4 * [x]), state)
    states = jax.pmap(update, "data")(states, X[:, None], Y[:, None])
    return jax.tree.map(lambda x: np.asarray(x)[-1], states)


def over_vmap(update, state):
    mapped = jax.jit(jax.vmap(update, (None, 0, 0), axis_name="data"))
    return jax.tree.map(
        lambda x: np.asarray(x)[-1], mapped(state, X[:, None], Y[:, None])
    )


def over_shard_map(update, state, **kwargs):
    mesh = Mesh(np.asarray(jax.devices()[:4]), ("data",))
    same, spread = PartitionSpec(), PartitionSpec("data")
    specs = {"in_specs": (same, spread, spread), "out_specs": same}
    mapped = jax.jit(jax.shard_map(update, mesh=mesh, **specs, **kwargs))
    return mapped(state, X, Y)


@pytest.mark.parametrize(
    "over",
    [
        over_pmap,
        over_replicated_pmap,
        over_vmap,
        over_shard_map,
        functools.partial(over_shard_map, check_vma=False),
    ],
)
def test_data_parallel_step_equals_the_step_on_the_whole_batch(over):
    def update(state, x, y, axis="data"):
        loss = loss_of(state, x, y)
        return state.apply_loss_fn(loss_fn=loss, has_aux=True, pmap_axis=axis)

    state = make_state(optax.sgd(0.01))
    assert_same(over(update, state), update(state, X, Y, axis=None))


# --- Invalid input. ---


def test_rejects_gradients_without_an_optimizer():
    with pytest.raises(ValueError, match="`tx` is None"):
        make_state().apply_gradients(grads=PARAMS)
