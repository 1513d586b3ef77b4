"""Test the initial states and updates of all factories: donation, pickles, errors."""

import inspect
import typing

import catalogue
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
    "ez_greedy_init": (
        rlaxlib.ez_greedy_init(),
        lambda state: rlaxlib.ez_greedy(jax.random.key(0), state, ONES, 0.5)[1],
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
    leaves = jax.tree.leaves(state)
    assert len({id(leaf) for leaf in leaves}) == len(leaves)
    donated = jax.jit(step, donate_argnums=0)(jax.tree.map(jnp.array, state))
    assert jax.tree.structure(donated) == jax.tree.structure(state)


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


# --- States that add up for ever, after very many entries. ---

NEW, ENTRY = 50_000, np.float32(40)  # One entry moves a mean by 4e-8 of 1e9.


def far_along(state, seen):
    """Return running moments after many entries of mean 1 and variance 2."""
    like = jax.tree.map(jnp.ones_like, state.mean)
    twice = jax.tree.map(lambda x: 2 * x, like)
    return state._replace(mean=like, variance=twice, num_entries=jnp.float32(seen))


def running(seen):
    init, update = rlaxlib.running_moments()
    return (
        far_along(init(0.0), seen),
        lambda s: update(s, ENTRY)[1],
        lambda s: (s.mean, s.variance),
    )


def reward(seen):
    init, update = rlaxlib.reward_scale()
    state, (r_t, zero) = init(0.0), np.float32([[40.0], [0.0]])
    state = state._replace(moments=far_along(state.moments, seen))
    return (
        state,
        lambda s: update(s, r_t, zero)[1],
        lambda s: (s.moments.mean, s.moments.variance),
    )


def returns(seen):
    init, update = rlaxlib.return_based_scale()
    steps, moments = (far_along(each, seen) for each in init(0.0))
    return (
        rlaxlib.ReturnScaleState(steps, moments),
        lambda s: update(s, ENTRY, jnp.asarray(ENTRY), ENTRY)[1],
        lambda s: (s.steps.mean[1], s.steps.variance[0]),
    )


def arm(seen):
    values = [np.full(1, x, np.float32) for x in (seen, 1, 2, 0, 0, 0)]
    return (
        rlaxlib.BanditState(*values),
        lambda s: rlaxlib.bandit_update(s, 0, ENTRY),
        lambda s: (s.means[0], s.variances[0]),
    )


def baseline(seen):
    return (
        rlaxlib.gradient_bandit_init(2)._replace(
            baseline=jnp.float32(1), num_pulls=jnp.int32(seen)
        ),
        lambda s: rlaxlib.gradient_bandit_update(s, 0, ENTRY, 0.0),
        lambda s: (s.baseline, None),
    )


def regression(seen):
    """Return a regression on one feature of 1, and its number of rewards as well."""
    one, x = np.ones((1, 1), np.float32), np.ones(1, np.float32)
    state = rlaxlib.LinearBanditState(x, one / np.float32(seen) ** 0.5, 0 * x, 0 * one)

    def read(state):
        number = 1 / np.float64(state.root + state.root_rest).item() ** 2
        np.testing.assert_allclose(number, seen + NEW, 2e-7)
        return state.weights[0], None

    return state, lambda s: rlaxlib.linucb_update(s, x, ENTRY), read


def distances(seen):
    zero = jnp.zeros((1, 1), jnp.float32)
    x, rewards = np.sqrt(ENTRY)[None, None], rlaxlib.episodic_memory_intrinsic_rewards
    return (
        rlaxlib.IntrinsicRewardState(zero, 0, jnp.float32(seen), jnp.int32(seen)),
        lambda s: rewards(x, 1, 1.0, s, max_memory_size=1)[1]._replace(memory=zero),
        lambda s: (s.distance_sum / s.distance_count.astype(float), None),
    )


def excess(seen):
    """Return a sum of excess costs; its mean is that of all that was added."""
    state = rlaxlib.PidLagrangianState(jnp.float32(seen), jnp.float32(0))
    update = rlaxlib.pid_lagrangian(0.0, 1.0, 1.0).update
    return (
        state,
        lambda s: update(s, ENTRY)[1],
        lambda s: (s.integral / jnp.float32(seen + NEW), None),
    )


ADD_UP = {
    "BanditState": arm,
    "GradientBanditState": baseline,
    "IntrinsicRewardState": distances,
    "LinearBanditState": regression,
    "PidLagrangianState": excess,
    "ReturnScaleState": returns,
    "RewardScaleState": reward,
    "RunningMomentsState": running,
}
BOUNDED = {
    "EmaState": "An average has a rate.",
    "EmphaticTraceState": "A trace decays, and ends with the episode.",
    "EzGreedyState": "It counts the steps of one action down.",
    "PlanState": "It is fitted anew.",
    "PopArtState": "An average has a step size.",
    "SlidingWindowState": "It is computed anew.",
    "TrueOnlineTdState": "Weights have a step size.",
}


def test_every_state_adds_up_for_ever_or_is_bounded():
    found = {x.__name__ for each in catalogue.ALL.values() for x in each.states}
    assert found == ADD_UP.keys() | BOUNDED.keys()


@pytest.mark.parametrize("name", ADD_UP)
def test_states_are_exact_after_very_many_entries_and_one_entry_a_step(name):
    many = (10**7, 10**9, 2**31 - 3)
    states, (step, *_), reads = zip(*map(ADD_UP[name], many), strict=True)
    end = jax.jit(
        jax.vmap(lambda s: jax.lax.fori_loop(0, NEW, lambda _, s: step(s), s))
    )
    ends = end(jax.tree.map(lambda *x: np.stack(x), *states))
    for i, (seen, read) in enumerate(zip(many, reads, strict=True)):
        mean, variance = read(jax.tree.map(lambda x, i=i: x[i], ends))
        expected, square = ((seen * x + NEW * 40.0**k) for k, x in ((1, 1.0), (2, 3.0)))
        expected, square = expected / (seen + NEW), square / (seen + NEW)
        np.testing.assert_allclose(mean, expected, rtol=1e-6)
        if variance is not None:
            np.testing.assert_allclose(variance, square - expected**2, rtol=1e-5)


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


# --- States from checkpoints. ---


@pytest.mark.parametrize("name", STATES)
def test_a_state_restored_as_a_dict_is_an_error_that_says_how_to_make_it(name):
    state, step = STATES[name]
    kind = type(state).__name__
    with pytest.raises(rlaxlib.ArgumentError) as error:
        step(state._asdict())
    first, *rest = str(error.value).split("\n")
    assert f"must be a `{kind}`" in first
    assert len(rest) == 1
    assert rest[0].startswith(f"`{kind}(**")
    assert rest[0].endswith(")` fits.")


@pytest.mark.parametrize("name", STATES)
def test_a_state_is_restored_into_a_fresh_one_without_names_of_modules(name):
    serialization = pytest.importorskip("flax.serialization")
    fresh, step = STATES[name]
    state = step(fresh)
    saved = serialization.to_bytes(state)
    assert b"rlaxlib" not in saved
    restored = serialization.from_bytes(fresh, saved)
    for one, other in zip(*map(jax.tree.leaves, (restored, state)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert jax.tree.structure(step(restored)) == jax.tree.structure(state)
