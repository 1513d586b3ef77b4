"""Test tanh-squashed Gaussians: densities, bounds and gradients near the bounds."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close
from scipy import stats

import rlaxlib
from rlaxlib.distributions import _squashed

KEY = jax.random.key(0)
MU, SIGMA = np.float32([0.3, -0.7]), np.float32([0.5, 1.5])
SQUASHED = rlaxlib.squashed_gaussian()
all_dtypes = pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])


class Spec(NamedTuple):
    """Bounds of an action, as environments give them."""

    minimum: float | np.ndarray
    maximum: float | np.ndarray


class Box:
    """A space of actions, as Gymnasium has it."""

    def __init__(self, low, high):
        self.low, self.high = low, high
        self.shape, self.dtype = np.shape(low), np.dtype(np.float32)


SPECS = [None, Spec(-2.0, 3.0), Spec(np.array([0.0]), np.array([1.0]))]
all_specs = pytest.mark.parametrize("spec", SPECS, ids=str)


def ends(spec):
    """Return the bounds as floats."""
    return (-1.0, 1.0) if spec is None else (float(np.sum(end)) for end in spec)


# --- Densities. ---


@all_specs
def test_densities_integrate_to_one(spec):
    low, high = ends(spec)
    actions = low + (high - low) * (np.arange(20000) + 0.5) / 20000
    parameters = np.array([[0.0, 0.0], [1.0, 0.5], [-2.0, -0.3]])

    @jax.jit
    def integrate(mu, sigma):
        density = jax.vmap(
            lambda a: SQUASHED.prob(a[None], mu[None], sigma[None], spec)
        )
        return (high - low) * jnp.mean(density(np.float32(actions)))

    totals = [integrate(*each) for each in parameters]
    np.testing.assert_allclose(totals, 1.0, rtol=1e-4)


@all_specs
def test_samples_follow_the_density(spec):
    parameters = np.ones(1), np.zeros(1), spec

    @jax.jit
    def sample(key):
        keys = jax.random.split(key, 5000)
        return jax.vmap(lambda key: SQUASHED.sample(key, *parameters))(keys)[:, 0]

    actions = sample(KEY)
    low, high = ends(spec)
    before = np.arctanh(2 * (np.asarray(actions, float) - low) / (high - low) - 1)
    normal = stats.norm(np.tanh(1.0), np.exp(-2.0))
    assert stats.kstest(before, normal.cdf).pvalue > 1e-3


def test_bounds_are_those_of_a_spec_or_a_box_or_two_keywords():
    low, high = np.float32([-2.0, 0.0]), np.float32([2.0, 1.0])
    box, spec = Box(low, high), Spec(low, high)
    words = {"minimum": low, "maximum": high}
    action = SQUASHED.sample(KEY, MU, SIGMA, spec)
    for density in (SQUASHED.sample, SQUASHED.prob, SQUASHED.log_prob):
        x = KEY if density == SQUASHED.sample else action
        expected = density(x, MU, SIGMA, spec)
        np.testing.assert_array_equal(density(x, MU, SIGMA, box), expected)
        np.testing.assert_array_equal(density(x, MU, SIGMA, **words), expected)
        assert not np.array_equal(density(x, MU, SIGMA), expected)


def test_action_spec_is_optional():
    action = np.float32([0.2, -0.9])

    @jax.jit
    def evaluate(*spec):
        return (
            SQUASHED.sample(KEY, MU, SIGMA, *spec),
            SQUASHED.prob(action, MU, SIGMA, *spec),
            SQUASHED.logprob(action, MU, SIGMA, *spec),
        )

    jax.tree.map(close, evaluate(), evaluate(Spec(-1.0, 1.0)))


def test_each_mean_may_have_many_samples():
    mu = np.stack([MU, 0 * MU, 1 - MU])
    samples = np.linspace(-1, 1, 30, dtype=np.float32).reshape(5, 3, 2)

    @jax.jit
    def evaluate():
        each = [SQUASHED.logprob(x, mu, SIGMA, SPECS[1]) for x in samples]
        return SQUASHED.logprob(samples, mu, SIGMA, SPECS[1]), each

    close(*evaluate())


def test_entropy_is_that_before_squashing():
    mu, sigma = np.ones(2), np.zeros(2)

    @jax.jit
    def evaluate(key):
        def log_prob(key):
            return SQUASHED.logprob(SQUASHED.sample(key, mu, sigma), mu, sigma)

        log_density = jax.vmap(log_prob)(jax.random.split(key, 5000))
        return SQUASHED.entropy(mu, sigma), log_density

    entropy, log_density = evaluate(KEY)
    close(entropy, 2 * stats.norm(0, np.exp(-2.0)).entropy())
    assert -np.mean(log_density) < entropy - 0.1  # That of the action.


def test_kl_is_the_same_before_and_after_squashing():
    first, second = (np.ones(1), np.zeros(1)), (np.zeros(1), np.full(1, 0.5))

    @jax.jit
    def evaluate(key):
        def log_ratio(key):
            action = SQUASHED.sample(key, *first)
            return SQUASHED.logprob(action, *first) - SQUASHED.logprob(action, *second)

        log_ratios = jax.vmap(log_ratio)(jax.random.split(key, 20000))
        return jnp.mean(log_ratios), SQUASHED.kl(*first, *second)

    mean, divergence = evaluate(KEY)
    np.testing.assert_allclose(mean, divergence, rtol=0.05)


def test_kl_to_the_standard_normal_is_half_the_squared_mean_at_unit_deviation():
    distribution = rlaxlib.squashed_gaussian(sigma_min=-4.0, sigma_max=4.0)
    mu = np.float32([0.5, -1.0])
    found = distribution.kl_to_standard_normal(mu, np.zeros(2, np.float32))
    close(found, 0.5 * np.sum(np.tanh(mu) ** 2))


kl_gradient = jax.jit(jax.grad(SQUASHED.kl, argnums=(0, 1)))


@pytest.mark.parametrize("size", [0.0, 1e-3, 1e-1, 1.0])
def test_gradient_of_the_kl_of_close_policies(size):
    size = np.float32(size)
    at = MU, np.float32([0.2, -0.4]), MU + size, np.float32([0.2, -0.4]) - size
    found = kl_gradient(*at)
    tanh_mu_0, tanh_sigma_0, tanh_mu_1, tanh_sigma_1 = np.tanh(np.float64(at))
    log_0, log_1 = 2 * tanh_sigma_0 - 2, 2 * tanh_sigma_1 - 2  # From -4 to 0.
    by_mean = (tanh_mu_0 - tanh_mu_1) * np.exp(-2 * log_1)
    by_log = np.expm1(2 * (log_0 - log_1))
    # The activations round, which matters where the policies hardly differ.
    tolerance = {"rtol": 1e-5, "atol": 2e-5 if size else 0.0}
    np.testing.assert_allclose(found[0], by_mean * (1 - tanh_mu_0**2), **tolerance)
    by_sigma = 2 * by_log * (1 - tanh_sigma_0**2)
    np.testing.assert_allclose(found[1], by_sigma, **tolerance)


# --- Bounds. ---


@all_dtypes
@pytest.mark.parametrize("spec", [None, SPECS[2]], ids=str)
def test_densities_and_gradients_are_finite_at_the_bounds_and_beyond(spec, dtype):
    low, high = ends(spec)
    bounds = np.array([low, high, low - 1, high + 1])
    near = np.nextafter(np.array([low, high], dtype), np.array(0.5, dtype))
    actions = np.append(bounds, near).astype(dtype)[:, None]
    mu, sigma = np.full(1, 5.0, dtype), np.full(1, 5.0, dtype)
    one = jax.value_and_grad(lambda *x: SQUASHED.logprob(*x, spec), (0, 1, 2))
    results = jax.jit(jax.vmap(one, (0, None, None)))(actions, mu, sigma)
    for each in jax.tree.leaves(results):
        assert each.dtype == dtype
        assert np.all(np.isfinite(each))


@all_dtypes
def test_samples_have_finite_densities(dtype):
    policy = rlaxlib.squashed_gaussian(sigma_max=2.0)
    mu, sigma = np.full(1, 5.0, dtype), np.full(1, 5.0, dtype)

    def sample(key, spec):
        action = policy.sample(key, mu, sigma, spec)
        return action, policy.logprob(action, mu, sigma, spec)

    @jax.jit
    @jax.vmap
    def sample_many(key):
        return [sample(key, spec) for spec in (None, SPECS[2])]

    for actions, log_density in sample_many(jax.random.split(KEY, 5000)):
        assert actions.dtype == dtype  # Whatever the dtype of the bounds.
        assert np.all(np.abs(actions) <= 1)
        assert np.all(np.isfinite(log_density))


def test_actions_reach_their_bounds_but_for_rounding_and_never_exceed_them():
    bounds = np.float32(
        [
            (-1, 1),
            (0, 1),
            (100, 100.1),
            (-3e38, 3e38),
            # Half the width, or the middle, is rounded away from a bound.
            (-0.00024081676, 0.03492357),
            (-0.03492357, 0.00024081676),
            (0.0008418791, 0.026249401),
            (-0.026249401, -0.0008418791),
            (-0.56262445, -0.5599386),
            (0.5599386, 0.56262445),
        ]
    )
    u = np.append(np.linspace(-50, 50, 4001), np.linspace(6, 10, 4001))
    squash = jax.jit(jax.vmap(_squashed._squash, (None, 0, 0)))
    actions = np.float64(squash(np.float32(u), *bounds.T))
    low, high = np.float64(bounds.T)[..., None]
    assert np.all((low <= actions) & (actions <= high))
    largest = np.maximum(np.abs(low), np.abs(high))
    expected = low + (high - low) * (np.tanh(u) / 2 + 0.5)
    np.testing.assert_allclose(actions / largest, expected / largest, atol=3e-7, rtol=0)


def test_values_and_gradients_of_actions():
    u, low, high = np.array([-3.0, -1.0, -1e-2, 0.0, 1e-20, 0.5, 2.0]), -2.0, 2.0
    squash = jax.value_and_grad(_squashed._squash, argnums=(0, 1, 2))
    squash = jax.jit(jax.vmap(squash, (0, None, None)))
    actions, (by_u, by_low, by_high) = squash(np.float32(u), low, high)
    np.testing.assert_allclose(actions, 2 * np.tanh(u), rtol=1e-6)
    np.testing.assert_allclose(by_u, 2 / np.cosh(u) ** 2, rtol=1e-4)
    np.testing.assert_allclose(by_low, 1 / (1 + np.exp(2 * u)), rtol=1e-4)
    np.testing.assert_allclose(by_high, 1 / (1 + np.exp(-2 * u)), rtol=1e-4)


# --- The log-density from the pre-tanh sample, and from the action. ---


def test_value_and_gradients_far_into_saturation():
    u = np.array([-80.0, -20.0, -10.0, -1e-3, 0.0, 1e-3, 9.0, 20.0, 80.0])[:, None]
    log_prob, sigma = rlaxlib.tanh_normal_log_prob, np.ones(1)

    @jax.jit
    @jax.vmap
    def derivatives(x):
        second = jax.hessian(log_prob)(x, jax.lax.stop_gradient(x), sigma)[0]
        return *jax.value_and_grad(log_prob, (0, 1))(x, x, sigma), second

    value, (by_u, by_mu), second = derivatives(np.float32(u))
    log_cosh = np.logaddexp(u, -u) - np.log(2)
    expected = 2 * log_cosh - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(value, expected[:, 0], rtol=1e-6)
    np.testing.assert_allclose(by_u, 2 * np.tanh(u), rtol=1e-4)
    np.testing.assert_array_equal(by_mu, 0.0)
    np.testing.assert_allclose(second, 2 / np.cosh(u) ** 2 - 1, rtol=1e-5)


@all_dtypes
def test_action_at_a_bound_has_the_finite_density_of_one_inside(dtype):
    mu, sigma = MU.astype(dtype), SIGMA.astype(dtype)
    at_bounds = np.array([1, -1], dtype)
    beyond = np.array([3, -7], dtype)
    inside = np.nextafter(at_bounds, np.zeros(2, dtype))
    function = jax.value_and_grad(
        rlaxlib.tanh_normal_log_prob_of_action, argnums=(0, 1, 2)
    )
    function = jax.jit(jax.vmap(function, (0, None, None)))
    found = function(np.stack([at_bounds, beyond, inside]), mu, sigma)
    values, (by_action, *others) = jax.tree.map(np.asarray, found)
    assert np.all(np.isfinite(values))
    assert np.all(np.isfinite(by_action))
    np.testing.assert_array_equal(by_action[1], 0.0)
    for each in others:
        assert np.all(np.isfinite(each))
        assert np.all(each != 0)
    assert values[1] == values[0]
    assert np.all(np.abs(inside) < 1)
    np.testing.assert_allclose(values[2], values[0], rtol=0.3)


def test_both_log_densities_agree():
    u = np.float32([[0.5, -1.0], [2.0, 3.0], [-2.5, 0.0]])
    both = jax.vmap(
        lambda u: (
            rlaxlib.tanh_normal_log_prob(u, MU, SIGMA),
            rlaxlib.tanh_normal_log_prob_of_action(jnp.tanh(u), MU, SIGMA),
        )
    )
    np.testing.assert_allclose(*jax.jit(both)(u), rtol=1e-4, atol=1e-4)


def test_log_density_is_that_of_the_squashed_gaussian_with_the_same_mean_and_sigma():
    action = np.float32([0.2, -0.9])
    mean, stddev = np.tanh(MU), np.exp(-4 + 2 * (np.tanh(SIGMA) + 1))
    found = jax.jit(rlaxlib.tanh_normal_log_prob_of_action)(action, mean, stddev)
    close(found, jax.jit(SQUASHED.logprob)(action, MU, SIGMA))


# --- Behaviour and errors. ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: SQUASHED.sample(KEY, MU, SIGMA, Spec(0.0, np.inf)),
            r"^SquashedGaussian.sample: `maximum` is inf, must be in \(",
        ),
        (
            lambda: SQUASHED.logprob(MU, MU, SIGMA, object()),
            r"^SquashedGaussian.log_prob: `action_spec` is .* `maximum`, or `low` and",
        ),
        (
            lambda: SQUASHED.prob(MU, MU, SIGMA, Spec(-1.0, 1.0), maximum=2.0),
            r"`minimum` and `maximum` must be None beside an `action_spec`",
        ),
        (
            lambda: SQUASHED.logprob(MU, MU, SIGMA, Box(-1.0, np.inf)),
            r"^SquashedGaussian.log_prob: `maximum` is inf, must be in \(",
        ),
        (
            lambda: SQUASHED.prob(MU, MU, SIGMA, Spec(np.zeros(3), 1.0)),
            r"`minimum` is float64\[3\], must be array\[\] or \[1\] or \[D\] or "
            r"\[\.\.\., D\]",
        ),
    ],
)
def test_rejects_bad_arguments_in_traced_programs_too(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        jax.eval_shape(call)
