"""Test objects of settings: distributions, transform pairs and normalisers."""

import dataclasses
import inspect
import pickle
from typing import NamedTuple

import annotations
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlaxlib
from rlaxlib._core import specs

KEY = jax.random.key(0)
X = np.float32([[1.0, -0.5, 0.3], [0.0, 0.8, -0.9]])

# For each object, a function that makes it, its print, and a use of it.
OBJECTS = {
    "softmax": (
        lambda: rlaxlib.softmax(0.5),
        "Softmax(temperature=0.5)",
        lambda pi, x: pi.log_prob(np.array([1, 2]), x),
    ),
    "clipped_entropy_softmax": (
        lambda: rlaxlib.clipped_entropy_softmax(2.0, entropy_clip=0.5),
        "ClippedEntropySoftmax(temperature=2.0, entropy_clip=0.5)",
        lambda pi, x: pi.entropy(x),
    ),
    "greedy": (rlaxlib.greedy, "Greedy()", lambda pi, x: pi.probs(x)),
    "epsilon_greedy": (
        lambda: rlaxlib.epsilon_greedy(0.25),
        "EpsilonGreedy(epsilon=0.25)",
        lambda pi, x: pi.entropy(x),
    ),
    "gaussian_diagonal": (
        lambda: rlaxlib.gaussian_diagonal(0.5),
        "GaussianDiagonal(sigma=0.5)",
        lambda pi, x: pi.sample(KEY, x),
    ),
    "squashed_gaussian": (
        lambda: rlaxlib.squashed_gaussian(sigma_max=1.0),
        "SquashedGaussian(sigma_min=-4.0, sigma_max=1.0)",
        lambda pi, x: pi.log_prob(x / 2, x, x, minimum=-2.0),
    ),
    "SIGNED_LOGP1_PAIR": (
        lambda: rlaxlib.SIGNED_LOGP1_PAIR,
        "ElementwisePair(apply=signed_logp1, apply_inv=signed_expm1)",
        lambda pair, x: [pair.apply(x), pair.apply_inv(x)],
    ),
    "twohot_pair": (
        lambda: rlaxlib.twohot_pair(-1, 1, 5),
        "TwohotPair(min_value=-1.0, max_value=1.0, num_bins=5)",
        lambda pair, x: pair.apply_inv(pair.apply(x)),
    ),
    "hl_gauss_pair": (
        lambda: rlaxlib.hl_gauss_pair(-1.0, jnp.float32(1.0), 5),
        "HlGaussPair(min_value=-1.0, max_value=1.0, num_bins=5, stddev_ratio=0.75)",
        lambda pair, x: rlaxlib.categorical_regression_loss(
            jnp.zeros(5), x[0, 0], pair
        ),
    ),
    "unbiased_transform_pair": (
        lambda: rlaxlib.unbiased_transform_pair(
            -1.0, 1.0, 3, rlaxlib.SIGNED_LOGP1_PAIR
        ),
        "UnbiasedTransformPair(twohot=TwohotPair(min_value=-1.0, max_value=1.0, "
        "num_bins=3), tx=ElementwisePair(apply=signed_logp1, apply_inv=signed_expm1))",
        lambda pair, x: pair.apply_inv(pair.apply(x)),
    ),
    "compose_tx": (
        lambda: rlaxlib.compose_tx(
            rlaxlib.SIGNED_LOGP1_PAIR, rlaxlib.twohot_pair(-2, 2, 3)
        ),
        "ComposedPair(tx_list=(ElementwisePair(apply=signed_logp1, "
        "apply_inv=signed_expm1), "
        "TwohotPair(min_value=-2.0, max_value=2.0, num_bins=3)))",
        lambda pair, x: rlaxlib.outside_support(pair.apply_inv(pair.apply(x)), pair),
    ),
}
OBJECTS |= {
    "create_ema": (
        lambda: rlaxlib.create_ema(0.5),
        "Ema(rate=0.5, axis_name=None)",
        lambda made, x: made.update(x, made.init(x)),
    ),
    "running_moments": (
        rlaxlib.running_moments,
        "RunningMoments(axis_name=None)",
        lambda made, x: made.update(made.init(x[0]), x),
    ),
    "reward_scale": (
        lambda: rlaxlib.reward_scale(0.5),
        "RewardScale(epsilon=0.5, max_return=inf, axis_name=None)",
        lambda made, x: made.update(made.init(x[0]), x[0], abs(x[0])),
    ),
    "return_based_scale": (
        lambda: rlaxlib.return_based_scale(0.5),
        "ReturnBasedScale(min_scale=0.5, axis_name=None)",
        lambda made, x: made.update(made.init(x[0]), x[0], abs(x[0]), x),
    ),
    "percentile_scale": (
        lambda: rlaxlib.percentile_scale(0.5),
        "PercentileScale(ema=Ema(rate=0.5, axis_name=None), "
        "low_percentile=5.0, high_percentile=95.0, "
        "min_scale=1.0, axis_name=None)",
        lambda made, x: made.update(made.init(x), x),
    ),
    "popart": (
        lambda: rlaxlib.popart(3, 0.5, 0.1, 10.0),
        "PopArt(num_outputs=3, step_size=0.5, scale_lb=0.1, scale_ub=10.0, "
        "axis_name=None, dtype=dtype('float32'))",
        lambda made, x: made.update({"w": x}, made.init(), x[0], np.arange(3)),
    ),
    "pid_lagrangian": (
        lambda: rlaxlib.pid_lagrangian(0.5, 1.0, 0.1),
        "PidLagrangian(limit=0.5, k_p=1.0, k_i=0.1, k_d=0.0, axis_name=None)",
        lambda made, x: made.update(made.init(), x[0, 0]),
    ),
}
each_object = pytest.mark.parametrize("name", OBJECTS)


def close(actual, expected):
    for one, other in zip(
        jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@each_object
def test_objects_of_equal_settings_are_equal_and_print_them(name):
    make, shown, _ = OBJECTS[name]
    assert make() == make()
    assert hash(make()) == hash(make())
    assert repr(make()) == shown
    others = {other() for other, *_ in OBJECTS.values()}
    assert len(others) == len(OBJECTS)


@each_object
def test_a_pickled_object_is_equal_and_computes_the_same(name):
    make, _, use = OBJECTS[name]
    copy = pickle.loads(pickle.dumps(make()))
    assert copy == make()
    close(use(copy, X), use(make(), X))


@each_object
def test_three_equal_objects_trace_a_program_once(name):
    make, traces = OBJECTS[name][0], []
    for options in ({}, {"static_argnums": 0}):
        program = jax.jit(traces.append, **options)
        for _ in range(3):
            program(make())
    assert len(traces) == 2


@each_object
def test_an_object_is_an_argument_of_vmap_and_a_field_of_a_state(name):
    make, _, use = OBJECTS[name]

    class State(NamedTuple):
        made: object
        x: jax.Array

    def step(state, _):
        return state, use(state.made, state.x)

    @jax.jit
    @jax.vmap
    def carried_and_mapped(state):
        return jax.lax.scan(step, state, length=2)[1]

    state = State(jax.tree.map(np.asarray, make()), X)
    outputs = carried_and_mapped(jax.tree.map(lambda x: np.stack([x, x]), state))
    close(jax.tree.map(lambda x: np.asarray(x)[1, 1], outputs), use(make(), X))


@each_object
def test_settings_cannot_be_changed(name):
    made = OBJECTS[name][0]()
    for field in dataclasses.fields(made):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(made, field.name, 1.0)


FACTORIES = [name for name in OBJECTS if inspect.isfunction(getattr(rlaxlib, name))]


@pytest.mark.parametrize("name", FACTORIES)
def test_an_array_that_changes_later_changes_no_setting(name):
    made, factory = OBJECTS[name][0](), getattr(rlaxlib, name)
    settings = {
        each: getattr(made, each)
        for each in inspect.signature(factory).parameters
        if hasattr(made, each)
    }
    for each, spec in annotations.specs_of(factory, settings).items():
        if spec.kind == "Float":
            value = np.array(settings[each], np.float32)
            kept = getattr(factory(**settings | {each: value}), each)
            expected = np.array(kept)
            value -= 0.25
            np.testing.assert_array_equal(kept, expected)


@each_object
def test_settings_of_another_shape_are_refused(name):
    make, _, use = OBJECTS[name]
    many = jax.tree.map(lambda x: jnp.stack([x] * 2), make())
    message = r"`(self\.(ema\.)?)?\w+` is float32\[2\]"
    if jax.tree.leaves(many):
        with pytest.raises(rlaxlib.ArgumentError, match=message):
            use(many, X)


def kept(name):
    """Return the names of the settings that are arrays."""
    return specs.settings(type(OBJECTS[name][0]())).parts


def outside(rule, made):
    """Return the nearest integers outside of an interval, or its infinite ends.

    An end may be another setting.
    """
    ends = ((rule.low, rule.has_low, -1), (rule.high, rule.has_high, 1))
    for end, is_inside, step in ends:
        bound = getattr(made, end) if isinstance(end, str) else end
        if not (is_inside and np.isinf(bound)):
            yield bound + step * is_inside


@pytest.mark.parametrize("name", [name for name in OBJECTS if kept(name)])
def test_settings_of_a_changed_copy_are_checked_as_those_of_the_function(name):
    make, _, use = OBJECTS[name]
    stated = annotations.specs_of(getattr(rlaxlib, name), kept(name))
    for each, spec in stated.items():
        for rule in spec.rules:
            for wrong in outside(rule, make()):
                changed = dataclasses.replace(make(), **{each: float(wrong)})
                with pytest.raises(rlaxlib.ArgumentError, match=f"{each}` is"):
                    use(changed, X)


@each_object
def test_an_object_unpacks_into_its_functions(name):
    made = OBJECTS[name][0]()
    functions = [*made]
    assert functions == [getattr(made, each) for each in type(made)._functions]


PAIR = rlaxlib.muzero_pair(-0.5, 0.5, 5, rlaxlib.SIGNED_LOGP1_PAIR)
INTEGERS = {
    "softmax": lambda n: rlaxlib.softmax(n).kl(X, 2 * X),
    "epsilon_greedy": lambda n: rlaxlib.epsilon_greedy(n).probs(X),
    "gaussian_diagonal": lambda n: rlaxlib.gaussian_diagonal(n).log_prob(X, X),
    "muzero_pair": PAIR.apply,
    "outside_support": lambda x: rlaxlib.outside_support(x, PAIR),
    "lambda_returns": lambda n: rlaxlib.lambda_returns(X[0], abs(X[0]), X[0], n),
    "huber_loss": lambda n: rlaxlib.huber_loss(X, n),
    "kl_shaped_rewards": lambda n: rlaxlib.kl_shaped_rewards(n, X[0], X[1], n),
    "pid_lagrangian": lambda n: rlaxlib.pid_lagrangian(n, n, n).init(n).cost,
    "percentile_scale": lambda n: rlaxlib.percentile_scale(0.5, n, 95, n).init(X).mean,
}


@pytest.mark.parametrize("name", INTEGERS)
def test_an_integer_of_python_is_a_float(name):
    np.testing.assert_array_equal(INTEGERS[name](1), INTEGERS[name](1.0))
    # A compiled function gets it as an integer without a dtype of its own.
    compiled = jax.jit(INTEGERS[name])
    np.testing.assert_allclose(compiled(1), INTEGERS[name](1.0), 1e-6)


def test_a_distribution_of_many_temperatures_is_mapped():
    policies = jax.vmap(rlaxlib.softmax)(jnp.array([0.5, 2.0]))
    assert isinstance(policies, rlaxlib.Softmax)
    probs = jax.vmap(lambda pi: pi.probs(X))(policies)
    close(probs, jnp.stack([rlaxlib.softmax(each).probs(X) for each in (0.5, 2.0)]))


# --- Objects of functions of the user. ---


@pytest.mark.parametrize("name", ["softmax", "epsilon_greedy", "greedy"])
def test_a_discrete_distribution_can_be_made_of_functions(name):
    ours = OBJECTS[name][0]()
    made = rlaxlib.DiscreteDistribution(*ours)
    assert isinstance(ours, rlaxlib.DiscreteDistribution)
    assert made == rlaxlib.DiscreteDistribution(*made)
    assert made != ours
    assert made.log_prob is made.logprob
    close(made.log_prob(np.array([1, 1]), X), ours.log_prob(np.array([1, 1]), X))


def test_a_continuous_distribution_can_be_made_of_functions():
    ours = rlaxlib.gaussian_diagonal(0.5)
    made = rlaxlib.ContinuousDistribution(*ours)
    assert isinstance(ours, rlaxlib.ContinuousDistribution)
    assert pickle.loads(pickle.dumps(made)).kl(X, 1.0, X, 1.0).shape == (2,)
    close(made.log_prob(X, X), ours.logprob(X, X))
    assert repr(made).startswith("ContinuousDistribution(sample=sample, prob=prob, ")
