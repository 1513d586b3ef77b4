"""Test the initial states and updates of all factories: donation, pickles, errors."""

import inspect
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlaxlib

ONES = np.ones(3, np.float32)
LAYER = {"w": np.ones((3, 2), np.float32), "b": np.ones(2, np.float32)}
ZERO = np.zeros((), np.int32)


# For each factory, its functions, the arguments of `init`, and an update.
FACTORIES = {
    "create_ema": (rlaxlib.create_ema(), (ONES,), (ONES,)),
    "running_moments": (rlaxlib.running_moments(), (ONES,), (ONES,)),
    "reward_scale": (rlaxlib.reward_scale(), (ONES,), (ONES, ONES)),
    "return_based_scale": (rlaxlib.return_based_scale(), (ONES,), (ONES, ONES, ONES)),
    "percentile_scale": (rlaxlib.percentile_scale(), (ONES,), (ONES,)),
    "popart": (rlaxlib.popart(2, 0.5, 1e-4, 1e4), (), (LAYER,)),
    "pid_lagrangian": (rlaxlib.pid_lagrangian(1.0, 0.1, 0.1, 0.1), (), (1.0,)),
}


def run(name, state):
    """Return the state after one update."""
    (_, update), _, data = FACTORIES[name]
    if name == "popart":
        return update(LAYER, state, ONES, np.zeros(3, np.int32))[1]
    return update(*ordered(name, state, data))[1]


def ordered(name, state, data):
    """Return the arguments of an update; rlax has the state last."""
    return (*data, state) if name == "create_ema" else (state, *data)


STATES = {
    name: (init(*example), lambda state, name=name: run(name, state))
    for name, ((init, _), example, _) in FACTORIES.items()
} | {
    "bandit_init": (
        rlaxlib.bandit_init(3),
        lambda state: rlaxlib.bandit_update(state, ZERO, 1.0),
    ),
    "sliding_window_init": (
        rlaxlib.sliding_window_init(3, 2),
        lambda state: rlaxlib.sliding_window_update(state, ZERO, 1.0),
    ),
    "linear_bandit_init": (
        rlaxlib.linear_bandit_init(3),
        lambda state: rlaxlib.linucb_update(state, ONES, 1.0),
    ),
    "gradient_bandit_init": (
        rlaxlib.gradient_bandit_init(3),
        lambda state: rlaxlib.gradient_bandit_update(state, 0, 1.0, 0.1),
    ),
    "emphatic_trace_init": (
        rlaxlib.emphatic_trace_init(ONES),
        lambda state: rlaxlib.emphatic_trace(state, ONES, 1.0, 0.9, 0.5),
    ),
    "true_online_td_init": (
        rlaxlib.true_online_td_init(3),
        lambda state: rlaxlib.true_online_td_lambda(
            state, ONES, 1.0, 0.9, ONES, 0.5, 0.1
        ),
    ),
    "plan_init": (
        rlaxlib.plan_init(3, 2),
        lambda state: rlaxlib.shift_plan(state, 1.0),
    ),
    "episodic_memory_intrinsic_rewards": (
        rlaxlib.episodic_memory_intrinsic_rewards(ONES[None], 1, 1.0)[1],
        lambda state: rlaxlib.episodic_memory_intrinsic_rewards(
            ONES[None], 1, 1.0, state
        )[1],
    ),
}


def test_every_factory_is_tested():
    makers = {
        name
        for name in rlaxlib.__all__
        if hasattr(_result(getattr(rlaxlib, name)), "init")
    }
    inits = {name for name in rlaxlib.__all__ if name.endswith("_init")}
    assert makers | inits <= set(STATES)
    assert "popart" in makers


def _result(thing):
    is_function = inspect.isfunction(thing)
    return typing.get_type_hints(thing).get("return") if is_function else None


@pytest.mark.parametrize("name", STATES)
def test_an_initial_state_can_be_donated(name):
    state, step = STATES[name]
    expected = step(state)
    leaves = jax.tree.leaves(state)
    assert len({id(leaf) for leaf in leaves}) == len(leaves)
    donated = jax.jit(step, donate_argnums=0)(jax.tree.map(jnp.asarray, state))
    for one, other in zip(
        jax.tree.leaves(donated), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("name", FACTORIES)
def test_state_and_data_swapped_is_an_error(name):
    (init, update), example, data = FACTORIES[name]
    state = init(*example)
    wrong = (state, LAYER, ONES, ZERO) if name == "popart" else (*data, state)
    wrong = wrong[::-1] if name == "create_ema" else wrong
    kind = type(FACTORIES[name][0]).__name__
    message = rf"^{kind}\.update: `state` is .*, must be a `\w+State`\.$"
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        update(*wrong)


@pytest.mark.parametrize("name", sorted(FACTORIES.keys() - {"popart"}))
def test_a_batch_of_states_is_updated_by_vmap(name):
    (init, update), example, data = FACTORIES[name]
    batch = [np.stack([x, 2 * x]) for x in map(np.asarray, data)]
    states = jax.tree.map(lambda x: np.stack([x, x]), init(*example))
    found = jax.jit(jax.vmap(update))(*ordered(name, states, batch))
    for i in range(2):
        one = jax.tree.map(lambda x, i=i: jax.device_put(x[i]), (batch, states))
        expected = update(*ordered(name, one[1], one[0]))
        for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(np.asarray(x)[i], y, rtol=1e-6)


# --- States after very many entries. ---

SEEN, NEW, ENTRY = 10**9, 50_000, np.float32(40)  # One entry moves a mean by 4e-8.


def far_along(state):
    """Return running moments after a billion entries of mean 1 and variance 2."""
    like = jax.tree.map(jnp.ones_like, state.mean)
    twice = jax.tree.map(lambda x: 2 * x, like)
    count = jnp.float32(SEEN)
    return state._replace(mean=like, variance=twice, num_entries=count)


def running():
    init, update = rlaxlib.running_moments()
    return far_along(init(0.0)), lambda s: update(s, ENTRY)[1], lambda s: s


def reward():
    init, update = rlaxlib.reward_scale()
    state, (r_t, zero) = init(0.0), np.float32([[40.0], [0.0]])
    state = state._replace(moments=far_along(state.moments))
    return state, lambda s: update(s, r_t, zero)[1], lambda s: s.moments


def returns():
    init, update = rlaxlib.return_based_scale()
    steps, moments = map(far_along, init(0.0))
    state = rlaxlib.ReturnScaleState(steps, moments)
    return (
        state,
        lambda s: update(s, ENTRY, jnp.asarray(ENTRY), ENTRY)[1],
        lambda s: s.steps._replace(mean=s.steps.mean[1], variance=s.steps.variance[0]),
    )


def errors():
    state = rlaxlib.RndState(*map(jnp.float32, (SEEN, 1.0, 2.0)))
    prediction, zero = np.sqrt(np.full((2, 1, 1), ENTRY)) * [[[1]], [[0]]]
    prediction, zero = np.float32(prediction), np.float32(zero)
    return (
        state,
        lambda s: rlaxlib.rnd_reward(s, prediction, zero, 0.0)[1],
        lambda s: s,
    )


@pytest.mark.parametrize("make", [running, reward, returns, errors])
def test_moments_are_exact_after_a_billion_entries_and_one_entry_a_step(make):
    state, step, read = make()

    @jax.jit
    def run(state):
        return jax.lax.scan(lambda s, _: (step(s), None), state, None, NEW)[0]

    moments = read(run(state))
    mean, square = ((SEEN * x + NEW * 40.0**k) for k, x in ((1, 1.0), (2, 3.0)))
    mean, square = mean / (SEEN + NEW), square / (SEEN + NEW)
    np.testing.assert_allclose(moments.mean, mean, rtol=1e-6)
    np.testing.assert_allclose(moments.variance, square - mean**2, rtol=1e-5)


# --- Templates. ---


@pytest.mark.parametrize(
    "name", sorted(FACTORIES.keys() - {"pid_lagrangian", "popart"})
)
def test_an_initial_state_may_be_made_from_shapes_and_dtypes(name):
    (init, _), example, _ = FACTORIES[name]
    spec = jax.ShapeDtypeStruct(ONES.shape, jnp.bfloat16)
    for one, other in zip(
        jax.tree.leaves(init(spec)), jax.tree.leaves(init(*example)), strict=True
    ):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
