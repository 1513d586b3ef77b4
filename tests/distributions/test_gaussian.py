"""Test Gaussian distributions: KL divergences of close and distant ones, and shapes."""

import jax
import numpy as np
import pytest
from experience import close

import rlaxlib

KEY = jax.random.key(0)
MU, SIGMA = np.float32([0.3, -1.2]), np.float32([0.5, 2.0])
GAUSSIAN = rlaxlib.gaussian_diagonal()


# --- Shapes. ---


def test_one_standard_deviation_applies_to_all_dimensions_and_rows():
    mu, every = np.stack([MU, -MU]), np.full((2, 2), 0.5, np.float32)

    def evaluate(policy, sigma, *stddev):
        return (
            policy.logprob(mu + 1, mu, *stddev),
            policy.entropy(mu, *stddev),
            policy.sample(KEY, mu, *stddev),
            rlaxlib.multivariate_normal_kl_divergence(mu, sigma, mu + 1, 1.0),
        )

    @jax.jit
    def each():
        sigmas = 0.5, np.full(2, 0.5, np.float32)
        found = [evaluate(rlaxlib.gaussian_diagonal(x), x) for x in sigmas]
        kl = GAUSSIAN.kl(mu, every, mu + 1, np.ones((2, 2)))
        return found, (*evaluate(GAUSSIAN, 0.5, every)[:3], kl)

    found, expected = each()
    for one in found:
        jax.tree.map(close, one, expected)


@pytest.mark.parametrize("function", ["prob", "logprob"])
def test_each_mean_may_have_many_samples(function):
    mu = np.stack([MU, 0 * MU, 1 - MU])
    samples = np.linspace(-1, 1, 30, dtype=np.float32).reshape(5, 3, 2)

    @jax.jit
    def evaluate():
        call = getattr(GAUSSIAN, function)
        return call(samples, mu, SIGMA), [call(each, mu, SIGMA) for each in samples]

    close(*evaluate())


# --- Precision and gradients. ---


kl_and_gradients = jax.jit(
    jax.value_and_grad(rlaxlib.multivariate_normal_kl_divergence, (0, 1))
)


@pytest.mark.parametrize("size", [1e-5, 1e-3, 1e-2, 0.3])
def test_kl_of_close_gaussians(size):
    mu_0, sigma_0 = np.float32(MU), np.float32(SIGMA)
    mu_1, sigma_1 = np.float32(mu_0 + size), np.float32(sigma_0 * (1 - size))
    parameters = mu_0, sigma_0, mu_1, sigma_1
    actual, (by_mu, by_sigma) = kl_and_gradients(*parameters)
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
    sigma = np.linspace(0.5, 2.0, 1000, dtype=np.float32)[:, None]
    kl = jax.jit(GAUSSIAN.kl)
    for factor in (1 + 1e-7, 1 + 2e-7, 1 - 1e-7, 1 - 3e-7):
        near = np.float32(factor) * sigma
        assert np.all(np.asarray(kl(sigma, sigma, sigma, near)) >= 0)


def test_kl_of_distant_gaussians():
    ratio = np.array([1e-9, 1e-6, 1e6])[:, None]
    function = jax.value_and_grad(GAUSSIAN.kl_to_standard_normal, 1)
    function = jax.jit(jax.vmap(function))
    actual, gradient = function(np.zeros((3, 1), np.float32), np.float32(ratio))
    expected = 0.5 * ratio**2 - 0.5 - np.log(ratio)
    np.testing.assert_allclose(actual, expected[:, 0], rtol=1e-6)
    np.testing.assert_allclose(gradient, ratio - 1 / ratio, rtol=1e-6)


def test_gradient_of_the_entropy_is_one_over_sigma():
    sigma = np.float32([-0.5, 0.0, 1e-30, 0.5, 1e30])
    gradient = jax.grad(lambda sigma: GAUSSIAN.entropy(np.zeros(5), sigma))
    close(jax.jit(gradient)(sigma), [-2, np.inf, 1e30, 2, 1e-30])


# --- Behaviour and errors. ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: GAUSSIAN.entropy(MU),
            r"^GaussianDiagonal\.entropy: `sigma` is None, must be float\[\] or "
            r"\[D\] or \[\.\.\., D\]",
        ),
        (
            lambda: GAUSSIAN.sample(KEY, MU, np.ones(3)),
            r"^GaussianDiagonal\.sample: `sigma` is float64\[3\], must be "
            r"float\[\] or \[D\] or \[\.\.\., D\]",
        ),
    ],
)
def test_rejects_bad_arguments_in_traced_programs_too(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        jax.eval_shape(call)
