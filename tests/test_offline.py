"""Test offline RL: minimisers, stopped gradients, limits and extreme values."""

import functools

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close
from jax.sharding import NamedSharding, PartitionSpec

import rlaxlib

inf = np.inf
RNG = np.random.default_rng(0)
Q = np.float32(RNG.normal(size=6))


def minimizer(loss, low=-10.0, high=10.0):
    """Return the minimiser of a convex function of one variable, by bisection."""
    gradient = jax.grad(loss)

    def halve(bounds, _):
        low, high = bounds
        middle = (low + high) / 2
        rising = gradient(middle) > 0
        return (jnp.where(rising, low, middle), jnp.where(rising, middle, high)), None

    bounds = jnp.float32(low), jnp.float32(high)
    return jax.lax.scan(halve, bounds, length=40)[0][0]


# --- Advantage-weighted policies. ---


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16, jnp.bfloat16])
def test_weights_of_extreme_advantages_are_zero_and_the_maximum(dtype):
    adv = np.array([-inf, -6e4, 0.0, 6e4, inf], dtype)
    found = rlaxlib.advantage_weights(adv, 0.01, 20.0)
    np.testing.assert_array_equal(np.float32(found), [0, 0, 1, 20, 20])


@jax.jit
def gradients_of_weights(adv, q_samples):
    """Return gradients that are stopped."""
    weights = jax.grad(rlaxlib.advantage_weights, argnums=(0, 1, 2))
    crr = jax.grad(rlaxlib.crr_weights, argnums=(0, 1))
    kinds = [crr(adv, q_samples, kind) for kind in ("exp", "binary")]
    return weights(adv, 0.5, 20.0), kinds


@pytest.mark.parametrize("adv", [-200.0, 0.5, 200.0])
def test_gradient_of_the_weights_is_stopped(adv):
    for each in jax.tree.leaves(gradients_of_weights(adv, np.float32([0, 1]))):
        np.testing.assert_array_equal(each, 0)


def test_impossible_actions_of_weight_zero_have_no_loss():
    @jax.jit
    @jax.value_and_grad
    def loss(log_prob, adv):
        weights = rlaxlib.advantage_weights(adv, 1.0, 20.0)
        return rlaxlib.reinforce_loss(log_prob, weights)

    assert loss(-inf, -1e4) == (0, 0)
    assert loss(-inf, 0.0)[0] > 1e10


def test_weighted_likelihood_is_maximal_for_the_kl_regularised_policy():
    log_mu = 2 * Q - np.log(np.sum(np.exp(2 * Q)))
    temperature = np.float32(0.7)

    def loss(logits):
        log_pi = jax.nn.log_softmax(logits)
        weights = rlaxlib.advantage_weights(Q, temperature, inf)
        losses = rlaxlib.reinforce_loss(log_pi, weights)
        return jnp.sum(jnp.exp(log_mu) * losses)

    gradient = jax.jit(jax.grad(loss))
    close(gradient(log_mu + Q / temperature), np.zeros(6))
    assert np.max(np.abs(gradient(log_mu))) > 0.1


def test_crr_weights_by_hand():
    q_samples = np.float32([1, 2, 6])
    weights = jax.jit(rlaxlib.crr_weights, static_argnums=(2, 3))
    close(weights(5.0, q_samples, temperature=2.0), np.exp(1.0))
    close(weights(5.0, q_samples, "exp", "max", temperature=2.0), np.exp(-0.5))
    assert weights(100.0, q_samples, "exp", "mean", max_weight=7.0) == 7
    assert weights(3.0, q_samples, "binary", "mean") == 0  # Equal is not better.
    assert weights(3.5, q_samples, "binary", "mean") == 1
    assert weights(5.0, q_samples, "binary", "max") == 0


# --- In-sample values. ---


@functools.partial(jax.jit, static_argnums=0)
def minimal_value(loss, setting):
    return minimizer(lambda v: jnp.sum(loss(jnp.full_like(Q, v), Q, setting)))


def test_in_sample_values_tend_from_the_mean_to_the_maximum():
    mean, best = np.mean(Q), np.max(Q)
    for loss, low, middle, high in (
        (rlaxlib.expectile_loss, 0.5, 0.8, 0.9999),
        (rlaxlib.xql_value_loss, 1e4, 1.0, 0.01),
        (rlaxlib.sql_value_loss, 1e4, 0.1, 1e-4),
    ):
        np.testing.assert_allclose(minimal_value(loss, low), mean, atol=0.02)
        assert mean + 0.05 < minimal_value(loss, middle) < best - 0.05
        np.testing.assert_allclose(minimal_value(loss, high), best, atol=0.03)


def test_gumbel_regression_finds_the_soft_value():
    for temperature in (0.3, 1.0, 3.0):
        soft = temperature * np.log(np.mean(np.exp(Q / temperature)))
        close(minimal_value(rlaxlib.xql_value_loss, temperature), soft)


def test_gumbel_loss_is_linear_above_the_clip_with_the_gradient_there():
    def loss(v, temperature=0.5):
        return rlaxlib.xql_value_loss(v, 0.0, temperature, max_exponent=3.0)

    def derivatives(v):
        return *jax.value_and_grad(loss)(v), jax.grad(jax.grad(loss))(v)

    # Errors at the clip and above, and one far below.
    v = np.float32([-1.5, -1.6, -50, -1e6, 1e6])
    values, gradient, curvature = map(np.asarray, jax.jit(jax.vmap(derivatives))(v))
    close(gradient[:4], np.full(4, -(np.exp(3.0) - 1) / 0.5))
    at_clip = np.exp(3.0) - 4
    np.testing.assert_allclose(
        values[:4], at_clip + (np.exp(3.0) - 1) * (-v[:4] / 0.5 - 3), rtol=1e-5
    )
    np.testing.assert_array_equal(curvature[1:4], 0)
    # Far below, the loss grows linearly and does not overflow either.
    close((values[4], gradient[4]), (2e6 - 1, 2.0))


xql_value_loss = jax.jit(rlaxlib.xql_value_loss)


def test_gumbel_loss_of_small_errors_is_accurate():
    z = np.float32([1e-1, 1e-2, -1e-2, -1e-1])
    loss = xql_value_loss(0 * z, z, 1.0)
    exact = np.expm1(np.float64(z)) - np.float64(z)
    np.testing.assert_allclose(loss, exact, rtol=1e-4)


def test_gumbel_loss_without_a_clip():
    loss = xql_value_loss(-10.0, 0.0, 1.0, max_exponent=inf)
    np.testing.assert_allclose(loss, np.exp(10.0) - 11, rtol=1e-6)


@pytest.mark.parametrize("bound", [100.0, inf])
def test_gumbel_loss_is_linear_from_an_exponent_of_40(bound):
    loss, gradient = jax.jit(jax.value_and_grad(xql_value_loss))(0.0, 95.0, 1.0, bound)
    np.testing.assert_allclose(loss, np.exp(40.0) * 56, rtol=1e-5)
    np.testing.assert_allclose(gradient, -np.exp(40.0), rtol=1e-5)


def test_sparse_value_makes_the_mean_weight_one():
    for alpha in (0.1, 1.0, 10.0):
        v = np.asarray(minimal_value(rlaxlib.sql_value_loss, alpha))
        weights = np.maximum(1 + (Q - v) / (2 * alpha), 0)
        np.testing.assert_allclose(np.mean(weights), 1, atol=1e-4)
    # An action whose value is far lower has no weight.
    by_v = jax.jit(jax.grad(rlaxlib.sql_value_loss))
    assert by_v(0.0, -5.0, 1.0) == 1  # The gradient of v / alpha alone.


# --- Conservative Q-learning. ---


cql_loss = jax.jit(rlaxlib.cql_loss)


def test_cql_loss_estimates_the_integral_over_actions():
    def q(a):
        return np.sin(3 * a) - a**2

    grid = np.linspace(-1, 1, 20001)
    rng, temperature = np.random.default_rng(0), 0.5
    exact = temperature * np.log(2 * np.mean(np.exp(q(grid) / temperature)))
    uniform = rng.uniform(-1.0, 1.0, 20000)
    triangular = rng.triangular(-1.0, 0.5, 1.0, 20000)
    height = np.where(triangular < 0.5, (triangular + 1) / 1.5, (1 - triangular) / 0.5)
    for samples, density in ((uniform, np.full(20000, 0.5)), (triangular, height)):
        inputs = np.float32(q(samples)), np.float32(np.log(density))
        loss = cql_loss(0.3, *inputs, temperature=temperature)
        estimate = loss + 0.3 - temperature * np.log(20000)
        np.testing.assert_allclose(estimate, exact, atol=0.02)


def test_cql_gradient_lowers_samples_by_their_softmax_and_raises_the_data():
    log_prob = np.float32(RNG.normal(size=6))
    gradient = jax.jit(jax.grad(rlaxlib.cql_loss, argnums=(0, 1, 2)))
    by_q, by_samples, by_log_prob = gradient(0.5, Q, log_prob, temperature=2.0)
    close(by_q, -1.0, rtol=1e-6)
    weights = np.exp(Q / 2 - log_prob)
    close(by_samples, weights / np.sum(weights))
    np.testing.assert_array_equal(by_log_prob, 0)


def test_cal_ql_does_not_lower_values_below_the_bound():
    log_prob = np.zeros(3, np.float32)
    q_samples = np.float32([-1, 2, -1])
    bound = np.float32([0, 0, -inf])

    def loss(q_samples, bound):
        return rlaxlib.cql_loss(0.0, q_samples, log_prob, min_q=bound)

    loss = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))
    _, (by_samples, by_bound) = loss(q_samples, bound)
    total = 1 + np.exp(2.0) + np.exp(-1.0)
    close(by_samples, np.array([0.0, np.exp(2.0), np.exp(-1.0)]) / total)
    np.testing.assert_array_equal(by_bound, 0)
    plain = cql_loss(0.0, q_samples, log_prob)
    assert loss(q_samples, np.full(3, -inf, np.float32))[0] == plain
    assert loss(q_samples, np.float32(-inf))[0] == plain


def test_cql_loss_of_large_values_does_not_overflow():
    q_samples, log_prob = np.float32([1e5, -1e5, 0]), np.zeros(3, np.float32)
    loss = jax.jit(jax.value_and_grad(rlaxlib.cql_loss, argnums=1))
    for temperature in (1e-3, 1.0):
        value, by_samples = loss(9e4, q_samples, log_prob, temperature=temperature)
        assert value == 1e4
        np.testing.assert_array_equal(by_samples, [1, 0, 0])


def test_cql_losses_of_large_values_keep_their_gaps():
    q_samples = np.linspace(9_999, 10_001, 7, dtype=np.float32) + np.float32(1e-3)
    log_prob = np.linspace(-1, 1, 7, dtype=np.float32)
    gaps = q_samples.astype(float) - float(q_samples[2])
    loss = jax.value_and_grad(rlaxlib.cql_loss, argnums=1)
    value, gradient = loss(q_samples[2], q_samples, log_prob)
    weights = np.exp(gaps - log_prob)
    close(value, np.log(weights.sum()), rtol=1e-6)
    close(gradient, weights / weights.sum(), rtol=1e-6)
    value = rlaxlib.discrete_cql_loss(q_samples, 2)
    close(value, np.log(np.exp(gaps).sum()), rtol=1e-6)


discrete_cql_loss = jax.jit(jax.value_and_grad(rlaxlib.discrete_cql_loss))


def test_discrete_cql_loss_is_the_cross_entropy_of_the_softmax_policy():
    probs = np.exp(Q) / np.sum(np.exp(Q))
    for a in range(6):
        loss, gradient = discrete_cql_loss(Q, a)
        close(loss, -np.log(probs[a]))
        close(gradient, probs - (np.arange(6) == a))


def test_discrete_cql_loss_ignores_illegal_actions():
    mask = np.array([True, False, True, False])
    for illegal in (99.0, inf, np.nan, -inf):
        q = np.float32([1, illegal, 2, illegal])
        value, gradient = map(np.asarray, discrete_cql_loss(q, 0, action_mask=mask))
        legal_value, legal_gradient = discrete_cql_loss(q[::2], 0)
        close(value, legal_value)
        close(gradient[::2], legal_gradient)
        np.testing.assert_array_equal(gradient[1::2], 0)
    # The data's action is legal whatever the mask, as in padding.
    value, gradient = discrete_cql_loss(Q[:4], 2, action_mask=mask & False)
    assert value == 0
    np.testing.assert_array_equal(gradient, 0)


# --- Policies close to the data. ---


def test_td3_bc_weight_normalises_the_values():
    weigh = jax.jit(rlaxlib.td3_bc_weight)
    for scale in (1e-6, 1.0, 1e6):
        q = np.float32(scale) * Q
        close(np.mean(np.abs(weigh(q, 2.5) * q)), 2.5)
    assert weigh(0 * Q, 2.5) == 2.5


def test_gradient_of_the_td3_bc_weight_is_stopped():
    by_q, by_alpha = jax.jit(jax.grad(rlaxlib.td3_bc_weight, argnums=(0, 1)))(Q, 2.5)
    np.testing.assert_array_equal(by_q, 0)
    assert by_alpha == 0
    action, data_action = np.float32([0.5, 1]), np.float32([0, 0.5])
    gradient = jax.jit(jax.grad(rlaxlib.td3_bc_loss, argnums=(0, 1, 3)))
    by_q, by_action, by_weight = gradient(4.0, action, data_action, 0.5)
    assert (by_q, by_weight) == (-0.5, 0)
    np.testing.assert_array_equal(by_action, 2 * (action - data_action))


def test_td3_bc_weight_over_a_mesh_is_that_of_the_whole_batch():
    devices = jax.device_count()
    q = np.float32(RNG.normal(size=2 * devices))
    mesh, spec = jax.make_mesh((devices,), ("batch",)), PartitionSpec("batch")
    weight = jax.shard_map(
        lambda q: rlaxlib.td3_bc_weight(q, 2.5, axis_name="batch"),
        mesh=mesh,
        in_specs=spec,
        out_specs=PartitionSpec(),
    )
    sharded = jax.device_put(q, NamedSharding(mesh, spec))
    close(jax.jit(weight)(sharded), 2.5 / np.mean(np.abs(q)))


# --- Support of the data. ---


def test_diversity_is_the_sum_of_cosines():
    loss = jax.jit(rlaxlib.edac_diversity_loss)
    close(loss(np.float32([[1, 2]] * 3)), 3.0)
    close(loss(np.float32([[1, 0], [0, 1]])), 0.0)
    close(loss(np.float32([[1, 0], [-7, 0]])), -2.0)
    angles = 2 * np.pi * np.arange(3) / 3  # The directions are spread evenly.
    directions = np.stack([np.cos(angles), np.sin(angles)], 1)
    close(loss(np.float32(directions)), -1.5)
    g, scales = RNG.normal(size=(3, 2)), np.array([[1e-6], [1.0], [1e6]])
    close(loss(np.float32(g)), loss(np.float32(scales * g)))


def test_diversity_of_a_flat_critic_is_finite():
    loss = jax.jit(jax.value_and_grad(rlaxlib.edac_diversity_loss))
    g = np.float32([[0, 0], [3, 4], [4, 3]])
    value, gradient = map(np.asarray, loss(g))
    close(value, 24 / 25)  # Two ordered pairs, divided by N - 1 = 2.
    np.testing.assert_array_equal(gradient[0], 0)
    assert np.isfinite(gradient).all()
    value, gradient = loss(g[1:2])
    assert value == 0
    np.testing.assert_array_equal(gradient, 0)


def test_bcq_mask_compares_with_the_most_likely_action():
    log_prob = np.float32([*np.log([0.5, 0.4, 0.1]), -inf])
    mask = jax.jit(rlaxlib.bcq_action_mask)
    for threshold, expected in (
        (0.0, [True, True, True, False]),
        (0.3, [True, True, False, False]),
        (0.99, [True, False, False, False]),
    ):
        np.testing.assert_array_equal(mask(log_prob, threshold), expected)
    # Only differences count, also where all probabilities underflow.
    np.testing.assert_array_equal(
        mask(log_prob - np.float32(500), 0.3), mask(log_prob, 0.3)
    )


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, np.float32])
def test_bcq_mask_keeps_no_action_whose_logit_is_the_lowest_float(dtype):
    for lowest in (-inf, float(jnp.finfo(dtype).min)):
        logits = jnp.array([0.0, lowest, -1.0], dtype)
        mask = rlaxlib.bcq_action_mask(logits, threshold=0.0)
        np.testing.assert_array_equal(mask, [True, False, True])


KERNELS = ("gaussian", "laplacian", "energy")


@pytest.mark.parametrize("kind", KERNELS)
def test_discrepancy_is_a_squared_metric_of_samples(kind):
    x = np.float32(RNG.normal(size=(4, 3)))
    y = np.float32(RNG.normal(size=(8, 3)))
    mmd = jax.jit(rlaxlib.maximum_mean_discrepancy, static_argnums=2)
    assert mmd(x, y, kind) > 1e-2
    close(mmd(x, y, kind), mmd(y, x, kind))
    close(mmd(x, x[::-1], kind), 0.0)
    close(mmd(x, np.concatenate([x, x]), kind), 0.0)
    if kind != "energy":
        # Far from each other: the mean of 1 on the diagonals.
        far = mmd(x, y + np.float32(1e3), kind, 1e-2)
        close(far, 1 / 4 + 1 / 8)
        close(mmd(7 * x, 7 * y, kind, 7.0), mmd(x, y, kind))
        with contract.x64(True):
            exact = mmd(np.float64(x), np.float64(y), kind, 1e3)
        np.testing.assert_allclose(mmd(x, y, kind, 1e3), exact, rtol=1e-4)


@pytest.mark.parametrize(("kind", "slope"), [("gaussian", 6.0), ("laplacian", 1.0)])
def test_discrepancy_of_distant_samples_has_a_gradient(kind, slope):
    def mmd(x):
        return rlaxlib.maximum_mean_discrepancy(x, np.full((1, 1), 6.0, "f"), kind)

    expected = -2 * slope * np.exp(-18.0 if kind == "gaussian" else -6.0)
    found = jax.jit(jax.grad(mmd))(jnp.zeros((1, 1)))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("kind", KERNELS)
def test_gradient_of_the_discrepancy_is_finite_and_stopped_at_the_target(kind):
    x, y = np.float32([[0, 0], [1, 1]]), np.float32([[1, 1], [1, 1]])

    def mmd(x, y):
        return rlaxlib.maximum_mean_discrepancy(x, y, kind)

    gradient = jax.jit(jax.grad(mmd, argnums=(0, 1)))
    by_x, by_y = map(np.asarray, gradient(x, y))
    assert np.all(by_x[0] < 0)  # The first sample moves towards the target.
    assert np.isfinite(by_x).all()
    np.testing.assert_array_equal(by_y, 0)
    np.testing.assert_allclose(gradient(x, x)[0], 0, atol=1e-6)  # The least value.


def test_energy_discrepancy_of_returns_is_the_energy_distance():
    @jax.jit
    def both(x, y):
        mmd = rlaxlib.maximum_mean_discrepancy(x[:, None], y[:, None], "energy")
        return mmd, rlaxlib.energy_distance_loss(x, y)

    close(*both(Q[:4], Q[2:] + np.float32(0.5)))


def test_discrepancy_needs_samples_of_one_dimensionality():
    with pytest.raises(
        rlaxlib.ArgumentError, match=r"`y` is float32\[1, 1\], must be float\[M, D\]"
    ):
        rlaxlib.maximum_mean_discrepancy(np.float32([[0, 0]]), np.float32([[0]]))


# --- Narrow indices. ---


@pytest.mark.parametrize(("dtype", "size"), [(np.int8, 128), (np.uint8, 300)])
def test_discrete_cql_action_may_have_a_dtype_that_does_not_hold_the_size(dtype, size):
    q, mask = np.linspace(-1, 1, size, dtype=np.float32), np.arange(size) < 50
    loss = jax.value_and_grad(rlaxlib.discrete_cql_loss)
    actions = np.array(100, dtype), 100
    both = jax.jit(lambda q: [loss(q, each, action_mask=mask) for each in actions])
    found, expected = both(q)
    assert np.isfinite(found[0])
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])
