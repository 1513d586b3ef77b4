"""Test Gaussian distributions: KL divergences of close and distant ones, and shapes."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

KEY = jax.random.key(0)
MU, SIGMA = jnp.array([0.3, -1.2]), jnp.array([0.5, 2.0])
GAUSSIAN = rlaxlib.gaussian_diagonal()


# --- Shapes. ---


def test_one_standard_deviation_applies_to_all_dimensions_and_rows():
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


@pytest.mark.parametrize("function", ["prob", "logprob"])
def test_each_mean_may_have_many_samples(function):
    mu = jnp.stack([MU, 0 * MU, 1 - MU])
    samples = jnp.linspace(-1, 1, 30).reshape(5, 3, 2)
    result = getattr(GAUSSIAN, function)(samples, mu, SIGMA)
    one_by_one = [getattr(GAUSSIAN, function)(each, mu, SIGMA) for each in samples]
    close(result, jnp.stack(one_by_one))


# --- Precision and gradients. ---


@pytest.mark.parametrize("size", [1e-5, 1e-3, 1e-2, 0.3])
def test_kl_of_close_gaussians(size):
    mu_0, sigma_0 = np.float32(MU), np.float32(SIGMA)
    mu_1, sigma_1 = np.float32(mu_0 + size), np.float32(sigma_0 * (1 - size))
    function = jax.value_and_grad(rlaxlib.multivariate_normal_kl_divergence, (0, 1))
    parameters = mu_0, sigma_0, mu_1, sigma_1
    actual, (by_mu, by_sigma) = function(*map(jnp.asarray, parameters))
    mu_0, sigma_0, mu_1, sigma_1 = (x.astype(np.longdouble) for x in parameters)
    expected = np.sum(
        np.log(sigma_1 / sigma_0)
        + (sigma_0**2 + (mu_0 - mu_1) ** 2) / (2 * sigma_1**2)
        - 0.5
    )
    # Single precision determines the ratio of the sigmas to 1e-7.
    tolerance = 1e-6 + 1e-7 / size
    np.testing.assert_allclose(actual, float(expected), rtol=tolerance)
    expected = (mu_0 - mu_1) / sigma_1**2
    np.testing.assert_allclose(by_mu, expected.astype(float), rtol=tolerance)
    expected = sigma_0 / sigma_1**2 - 1 / sigma_0
    np.testing.assert_allclose(by_sigma, expected.astype(float), rtol=tolerance)


def test_kl_is_never_negative():
    sigma = jnp.linspace(0.5, 2.0, 1000)[:, None]
    for factor in (1 + 1e-7, 1 + 2e-7, 1 - 1e-7, 1 - 3e-7):
        assert jnp.all(GAUSSIAN.kl(sigma, sigma, sigma, factor * sigma) >= 0)


def test_kl_of_distant_gaussians():
    ratio = np.array([1e-9, 1e-6, 1e6])[:, None]
    function = jax.vmap(jax.value_and_grad(GAUSSIAN.kl_to_standard_normal, 1))
    actual, gradient = function(jnp.zeros((3, 1)), jnp.float32(ratio))
    expected = 0.5 * ratio**2 - 0.5 - np.log(ratio)
    np.testing.assert_allclose(actual, expected[:, 0], rtol=1e-6)
    np.testing.assert_allclose(gradient, ratio - 1 / ratio, rtol=1e-6)


def test_gradient_of_the_entropy_is_one_over_sigma():
    sigma = jnp.array([-0.5, 0.0, 1e-30, 0.5, 1e30])
    gradient = jax.grad(lambda sigma: GAUSSIAN.entropy(jnp.zeros(5), sigma))
    close(gradient(sigma), [-2, np.inf, 1e30, 2, 1e-30])


# --- Behaviour and errors. ---


def test_distributions_can_be_pickled():
    for policy in (GAUSSIAN, rlaxlib.gaussian_diagonal(0.5)):
        copy = pickle.loads(pickle.dumps(policy))
        np.testing.assert_array_equal(
            copy.entropy(MU, SIGMA), policy.entropy(MU, SIGMA)
        )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: rlaxlib.gaussian_diagonal(-1.0),
            r"^gaussian_diagonal: `sigma` is -1\.0, must be in \(0, inf\)",
        ),
        (
            lambda: GAUSSIAN.entropy(MU),
            r"^gaussian_diagonal.entropy: `sigma` is None, must be a floating-point",
        ),
        (
            lambda: GAUSSIAN.sample(KEY, MU, jnp.ones(3)),
            r"^gaussian_diagonal.sample: `sigma` has shape \(3,\), must be .*\(2,\)",
        ),
    ],
)
def test_rejects_bad_arguments_in_traced_programs_too(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        jax.eval_shape(call)
