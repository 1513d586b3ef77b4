"""Test the Gaussians, squashed and not: densities, bounds, and digits that count."""

import pickle
from typing import NamedTuple

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close
from scipy import integrate, stats

import rlaxlib
from rlaxlib.distributions import _squashed

KEY = jax.random.key(0)
MU, SIGMA = jnp.array([0.3, -1.2]), jnp.array([0.5, 2.0])
GAUSSIAN, SQUASHED = rlaxlib.gaussian_diagonal(), rlaxlib.squashed_gaussian()
DTYPES = [jnp.float16, jnp.bfloat16, jnp.float32]


class Spec(NamedTuple):
    minimum: float | np.ndarray
    maximum: float | np.ndarray


SPECS = [None, Spec(-2.0, 3.0), Spec(np.array([0.0]), np.array([1.0]))]


# --- What the functions compute. ---


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize(("mu", "sigma"), [(0.0, 0.0), (1.0, 0.5), (-2.0, -0.3)])
def test_the_density_of_an_action_integrates_to_one(spec, mu, sigma):
    low, high = (-1.0, 1.0) if spec is None else (float(np.sum(end)) for end in spec)
    with contract.x64(True):
        density = jax.jit(
            lambda a: SQUASHED.prob(a[None], jnp.full(1, mu), jnp.full(1, sigma), spec)
        )
        total, error = integrate.quad(
            lambda a: float(density(jnp.float64(a))), low, high, limit=200
        )
    assert error < 1e-6
    np.testing.assert_allclose(total, 1.0, atol=1e-5)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_actions_have_the_density(spec):
    keys, parameters = jax.random.split(KEY, 5000), (jnp.ones(1), jnp.zeros(1), spec)
    actions = jax.vmap(lambda key: SQUASHED.sample(key, *parameters))(keys)[:, 0]
    low, high = (-1.0, 1.0) if spec is None else (float(np.sum(end)) for end in spec)
    inner = np.arctanh(2 * (np.asarray(actions, float) - low) / (high - low) - 1)
    law = stats.norm(np.tanh(1.0), np.exp(-2.0))
    assert stats.kstest(inner, law.cdf).pvalue > 1e-3
    a = 0.3 * low + 0.7 * high
    slope = 2 / (high - low) / (1 - 0.4**2)
    expected = law.pdf(np.arctanh(0.4)) * slope
    close(SQUASHED.prob(jnp.full(1, a), *parameters), expected, rtol=1e-4)


def test_the_logarithm_is_of_the_density():
    actions = jnp.linspace(-0.9, 0.9, 7)[:, None]
    parameters = jnp.ones((7, 1)), jnp.zeros((7, 1)), None
    log_density = SQUASHED.logprob(actions, *parameters)
    close(jnp.exp(log_density), SQUASHED.prob(actions, *parameters))


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_density_is_finite_up_to_the_bounds_and_beyond(spec, dtype):
    low, high = (-1.0, 1.0) if spec is None else (float(np.sum(end)) for end in spec)
    bounds = np.array([low, high, low - 1, high + 1])
    near = np.asarray(jnp.nextafter(jnp.asarray([low, high], dtype), dtype(0.5)))
    actions = jnp.asarray(np.append(bounds, near), dtype)[:, None]
    mu, sigma = jnp.full(1, 5.0, dtype), jnp.full(1, 5.0, dtype)
    one = jax.value_and_grad(lambda *x: SQUASHED.logprob(*x, spec), (0, 1, 2))
    ask = jax.jit(jax.vmap(one, (0, None, None)))
    for each in jax.tree.leaves(ask(actions, mu, sigma)):
        assert each.dtype == dtype
        assert np.all(np.isfinite(each))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sigma_max", [0.0, 2.0])
@pytest.mark.parametrize("spec", [None, Spec(jnp.zeros(1), jnp.ones(1))], ids=str)
def test_samples_have_finite_densities(dtype, sigma_max, spec):
    policy = rlaxlib.squashed_gaussian(sigma_max=sigma_max)
    mu, sigma = jnp.full(1, 5.0, dtype), jnp.full(1, 5.0, dtype)
    actions = jax.vmap(lambda key: policy.sample(key, mu, sigma, spec))(
        jax.random.split(KEY, 5000)
    )
    assert actions.dtype == dtype  # Whatever the dtype of the bounds.
    assert jnp.all(jnp.abs(actions) <= 1)
    log_density = jax.vmap(lambda a: policy.logprob(a, mu, sigma, spec))(actions)
    assert jnp.all(jnp.isfinite(log_density))


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (-1, 1),
        (0, 1),
        (100, 100.1),
        (-3e38, 3e38),
        # Half their width, or their middle, is rounded away from one of them.
        (-0.00024081676, 0.03492357),
        (-0.03492357, 0.00024081676),
        (0.0008418791, 0.026249401),
        (-0.026249401, -0.0008418791),
        (-0.56262445, -0.5599386),
        (0.5599386, 0.56262445),
    ],
)
def test_actions_reach_their_bounds_but_for_rounding_and_never_leave_them(low, high):
    low, high = np.float32(low), np.float32(high)
    u = np.append(np.linspace(-50, 50, 4001), np.linspace(6, 10, 4001))
    ask = jax.jit(lambda u: _squashed._squash(u, low, high))
    actions = np.asarray(ask(jnp.asarray(u, jnp.float32)), np.float64)
    assert np.all((low <= actions) & (actions <= high))
    low, high = float(low), float(high)
    right = low + (high - low) * (np.tanh(u) / 2 + 0.5)
    largest = max(abs(low), abs(high))
    np.testing.assert_allclose(actions, right, rtol=0, atol=3e-7 * largest)


def test_actions_within_bounds_around_0_keep_their_digits_near_0():
    u = np.array([-1e-2, -3e-10, 1e-20, 2e-5])
    actions = _squashed._squash(jnp.asarray(u, jnp.float32), -2.0, 2.0)
    np.testing.assert_allclose(actions, 2 * np.tanh(u), rtol=1e-6)


def test_the_slope_of_an_action_keeps_its_digits_near_the_bounds():
    u, low, high = np.array([-30.0, -9.0, -1.0, 0.0, 0.5, 10.0, 40.0]), -2.0, 3.0
    ask = jax.vmap(jax.grad(_squashed._squash, argnums=(0, 1, 2)), (0, None, None))
    slope, by_low, by_high = ask(jnp.asarray(u, jnp.float32), low, high)
    np.testing.assert_allclose(slope, (high - low) / 2 / np.cosh(u) ** 2, rtol=1e-6)
    np.testing.assert_allclose(by_low, 1 / (1 + np.exp(2 * u)), rtol=1e-6)
    np.testing.assert_allclose(by_high, 1 / (1 + np.exp(-2 * u)), rtol=1e-6)


def test_entropy_is_that_before_squashing_and_bounds_that_of_the_action():
    mu, sigma = jnp.ones(2), jnp.zeros(2)
    entropy = SQUASHED.entropy(mu, sigma)
    close(entropy, 2 * stats.norm(0, np.exp(-2.0)).entropy())
    actions = jax.vmap(lambda key: SQUASHED.sample(key, mu, sigma, None))(
        jax.random.split(KEY, 5000)
    )
    of_actions = -jnp.mean(
        jax.vmap(lambda a: SQUASHED.logprob(a, mu, sigma, None))(actions)
    )
    assert of_actions < entropy - 0.1


def test_divergence_is_the_same_before_and_after_squashing():
    first, second = (jnp.ones(1), jnp.zeros(1)), (jnp.zeros(1), jnp.full(1, 0.5))
    actions = jax.vmap(lambda key: SQUASHED.sample(key, *first, None))(
        jax.random.split(KEY, 20000)
    )
    logs = [
        jax.vmap(lambda a, at=at: SQUASHED.logprob(a, *at, None))(actions)
        for at in (first, second)
    ]
    divergence = SQUASHED.kl(*first, *second)
    np.testing.assert_allclose(jnp.mean(logs[0] - logs[1]), divergence, rtol=0.05)


def test_one_deviation_stands_for_all_dimensions_and_rows():
    mu = jnp.stack([MU, -MU])
    every = jnp.full((2, 2), 0.5)
    for sigma in (0.5, jnp.full(2, 0.5)):
        policy = rlaxlib.gaussian_diagonal(sigma)
        close(policy.logprob(mu + 1, mu), GAUSSIAN.logprob(mu + 1, mu, every))
        close(policy.entropy(mu), GAUSSIAN.entropy(mu, every))
        close(policy.sample(KEY, mu), GAUSSIAN.sample(KEY, mu, every))
        close(
            rlaxlib.multivariate_normal_kl_divergence(mu, sigma, mu + 1, 1.0),
            GAUSSIAN.kl(mu, every, mu + 1, jnp.ones((2, 2))),
        )


@pytest.mark.parametrize("of", [GAUSSIAN, SQUASHED], ids=["gaussian", "squashed"])
@pytest.mark.parametrize("size", [4, 5, 12, 15, 17, 31])
def test_a_divergence_is_the_sum_of_those_of_all_dimensions(of, size):
    rng = np.random.default_rng(0)
    mu_0, mu_1 = rng.normal(size=(2, 3, size)).astype(np.float32)
    sigma_0, sigma_1 = rng.uniform(0.5, 2, (2, 3, size)).astype(np.float32)

    def divergences(mu_0, sigma_0, mu_1, sigma_1):
        standard = of.kl_to_standard_normal(mu_0, sigma_0)
        return of.kl(mu_0, sigma_0, mu_1, sigma_1), standard

    def sums(*parameters):
        return [jnp.sum(each) for each in divergences(*parameters)]

    @jax.jit
    def everything(*parameters):
        return divergences(*parameters), jax.jacrev(sums, range(4))(*parameters)

    given = mu_0, sigma_0, mu_1, sigma_1
    found, slopes = everything(*given)
    apart, expected_slopes = everything(*(x[..., None] for x in given))
    for actual, expected in zip(found, apart, strict=True):
        assert actual.shape == (3,)
        close(actual, np.sum(np.float64(expected), axis=-1), rtol=1e-6)
    contract.assert_close(
        slopes, jax.tree.map(lambda x: x[..., 0], expected_slopes), 1e-6, 1e-6
    )


@pytest.mark.parametrize("size", [5, 17])
def test_a_divergence_depends_on_no_deviation_but_those_given(size):
    policy = rlaxlib.squashed_gaussian(-4.0, 400.0)  # Of which most overflow.
    given = jnp.zeros(size), jnp.full(size, -3.0)
    value, slope = jax.value_and_grad(policy.kl_to_standard_normal, 1)(*given)
    log_sigma = -4 + 202 * (np.tanh(-3.0) + 1)
    close(value, size * (0.5 * np.expm1(2 * log_sigma) - log_sigma))
    one = np.expm1(2 * log_sigma) * 202 * (1 - np.tanh(-3.0) ** 2)
    close(slope, np.full(size, one), rtol=1e-4)


# --- Digits that count. ---


@pytest.mark.parametrize("function", ["prob", "logprob"])
@pytest.mark.parametrize("of", [GAUSSIAN, SQUASHED], ids=["gaussian", "squashed"])
def test_each_mean_may_have_many_samples(of, function):
    spec = (SPECS[1],) if of is SQUASHED else ()
    mu, samples = jnp.stack([MU, 0 * MU, 1 - MU]), jnp.ones((5, 3, 2))
    samples *= jnp.linspace(-1, 1, 30).reshape(5, 3, 2)
    result = getattr(of, function)(samples, mu, SIGMA, *spec)
    one_by_one = [getattr(of, function)(each, mu, SIGMA, *spec) for each in samples]
    close(result, jnp.stack(one_by_one))


@pytest.mark.parametrize("size", [1e-6, 1e-4, 1e-2, 0.3])
def test_divergence_of_gaussians_however_close(size):
    mu_0, sigma_0 = np.float32(MU), np.float32(SIGMA)
    mu_1, sigma_1 = np.float32(mu_0 + size), np.float32(sigma_0 * (1 - size))
    actual = rlaxlib.multivariate_normal_kl_divergence(
        *map(jnp.asarray, (mu_0, sigma_0, mu_1, sigma_1))
    )
    mu_0, sigma_0, mu_1, sigma_1 = (
        x.astype(np.longdouble) for x in (mu_0, sigma_0, mu_1, sigma_1)
    )
    expected = np.sum(
        np.log(sigma_1 / sigma_0)
        + (sigma_0**2 + (mu_0 - mu_1) ** 2) / (2 * sigma_1**2)
        - 0.5
    )
    np.testing.assert_allclose(actual, float(expected), rtol=1e-5)


@pytest.mark.parametrize("ratio", [1e-6, 1e6])
def test_divergence_of_gaussians_however_far(ratio):
    actual = rlaxlib.multivariate_normal_kl_divergence(
        jnp.zeros(1), ratio, jnp.zeros(1), 1.0
    )
    close(actual, 0.5 * ratio**2 - 0.5 - np.log(ratio))


@pytest.mark.parametrize("size", [0.0, 1e-3, 1e-1, 1.0])
def test_slope_of_a_squashed_divergence_however_close(size):
    at = MU, jnp.array([0.2, -0.4]), MU + size, jnp.array([0.2, -0.4]) - size
    found = jax.grad(SQUASHED.kl, argnums=(0, 1))(*at)
    tanh_mu_0, tanh_sigma_0, tanh_mu_1, tanh_sigma_1 = np.tanh(np.float64(at))
    log_0, log_1 = 2 * tanh_sigma_0 - 2, 2 * tanh_sigma_1 - 2  # From -4 to 0.
    by_mean = (tanh_mu_0 - tanh_mu_1) * np.exp(-2 * log_1)
    by_log = np.expm1(2 * (log_0 - log_1))
    # What the activations round off counts, where the distributions hardly differ.
    tolerance = {"rtol": 1e-5, "atol": 2e-5 if size else 0.0}
    np.testing.assert_allclose(found[0], by_mean * (1 - tanh_mu_0**2), **tolerance)
    by_sigma = 2 * by_log * (1 - tanh_sigma_0**2)
    np.testing.assert_allclose(found[1], by_sigma, **tolerance)


@pytest.mark.parametrize("times", [1, 4])  # Short rows are summed in another way.
def test_slope_of_an_entropy_is_one_over_the_deviation_down_to_none_and_beyond(times):
    sigma = np.array([-0.5, 0.0, 1e-30, 0.5, 1e30] * times, np.float32)
    mu = jnp.zeros(sigma.size)
    slope = jax.jit(jax.grad(lambda sigma: GAUSSIAN.entropy(mu, sigma)))
    close(slope(sigma), [-2, np.inf, 1e30, 2, 1e-30] * times)


@pytest.mark.parametrize("size", [1, 8, 9, 20])
def test_entropy_of_a_gaussian_over_few_dimensions_and_many(size):
    sigma = np.float32(np.exp(np.random.default_rng(size).normal(size=size)))
    entropy = jax.jit(GAUSSIAN.entropy)
    definition = np.sum(stats.norm(0, np.float64(sigma)).entropy())
    np.testing.assert_allclose(entropy(jnp.zeros(size), sigma), definition, rtol=1e-5)
    none = entropy(jnp.zeros(size), -sigma / 4)  # No deviation is negative.
    assert np.isnan(none)


# --- How the functions behave. ---


def test_distributions_can_be_pickled():
    for policy in (rlaxlib.gaussian_diagonal(0.5), SQUASHED):
        copy = pickle.loads(pickle.dumps(policy))
        np.testing.assert_array_equal(
            copy.entropy(MU, SIGMA), policy.entropy(MU, SIGMA)
        )


# --- What the functions refuse. ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: rlaxlib.gaussian_diagonal(-1.0),
            r"^gaussian_diagonal: `sigma` must lie in \(0, inf\), but is -1\.0",
        ),
        (
            lambda: GAUSSIAN.entropy(MU),
            r"^gaussian_diagonal.entropy: `sigma` is None, .* D = 2",
        ),
        (
            lambda: GAUSSIAN.sample(KEY, MU, jnp.ones(3)),
            r"^gaussian_diagonal.sample: `sigma` is float32\[3\]",
        ),
        (
            lambda: rlaxlib.squashed_gaussian(1.0, 0.0),
            r"`sigma_max` must be at least `sigma_min`",
        ),
        (
            lambda: SQUASHED.sample(KEY, MU, SIGMA, Spec(0.0, np.inf)),
            r"`action_spec.maximum - minimum` must lie in \(0, inf\)",
        ),
        (
            lambda: SQUASHED.logprob(MU, MU, SIGMA, object()),
            r"^squashed_gaussian.logprob: `action_spec.minimum` is None",
        ),
        (
            lambda: SQUASHED.prob(MU, MU, SIGMA, Spec(np.zeros(3), 1.0)),
            r"`action_spec.minimum` is float32\[3\], .* D = 2",
        ),
    ],
)
def test_says_what_is_wrong(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        call()
