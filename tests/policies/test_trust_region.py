"""Test trust regions: natural gradients, optimal steps, and what must not break."""

import functools

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from experience import close

import rlaxlib

RANDOM = np.random.default_rng(0)
STATES = RANDOM.normal(size=(16, 3)).astype(np.float32)
PARAMS = {
    "w": RANDOM.normal(size=(3, 4)).astype(np.float32),
    "b": np.zeros(4, np.float32),
}


def log_policy(params):
    return jax.nn.log_softmax(STATES @ params["w"] + params["b"][None])


def make_kl(params):
    old = log_policy(params)

    def kl(new):
        gap = jnp.sum(jnp.exp(old) * (old - log_policy(new)), axis=-1)
        return jnp.mean(gap)

    return kl


# --- TRPO. ---


def test_the_product_is_that_of_the_covariance_of_score_functions():
    vector = jax.tree.map(lambda x: np.asarray(x) + 1, PARAMS)

    @jax.jit
    def all_three():
        product = rlaxlib.fisher_vector_product(make_kl(PARAMS), PARAMS, vector)
        return log_policy(PARAMS), jax.jacobian(log_policy)(PARAMS), product

    old, scores, product = jax.tree.map(np.asarray, all_three())
    flat = np.concatenate(
        [scores["b"].reshape(16, 4, -1), scores["w"].reshape(16, 4, -1)], axis=-1
    )
    fisher = np.einsum("sa,sai,saj->ij", np.exp(old), flat, flat) / 16
    expected = fisher @ np.append(vector["b"], vector["w"])
    close(np.append(product["b"], product["w"]), expected)


@jax.jit
def natural_step(max_kl):
    gradient = jax.grad(surrogate)(PARAMS)

    def fisher(v):
        return rlaxlib.fisher_vector_product(make_kl(PARAMS), PARAMS, v, 1e-3)

    x, _ = jax.scipy.sparse.linalg.cg(fisher, gradient, maxiter=20)
    size = rlaxlib.trust_region_step_size(x, fisher(x), max_kl)
    return jax.tree.map(lambda x: -size * x, x)


def surrogate(params):
    a, adv = np.arange(16) % 4, np.linspace(-1, 1, 16, dtype=np.float32)
    ratio = jnp.exp(log_policy(params) - log_policy(PARAMS))[np.arange(16), a]
    return -jnp.mean(ratio * adv)


def test_a_small_step_has_the_divergence_that_is_allowed():
    for max_kl in (1e-4, 1e-5):
        moved = jax.tree.map(np.add, PARAMS, natural_step(max_kl))
        kl = jax.jit(make_kl(PARAMS))(moved)
        np.testing.assert_allclose(kl, max_kl, rtol=0.1)


def test_the_search_lowers_the_loss_within_the_trust_region():
    step = natural_step(0.1)

    def evaluate(params):
        return surrogate(params), make_kl(PARAMS)(params)

    @jax.jit
    def search(step):
        params, outputs = rlaxlib.backtracking_line_search(evaluate, PARAMS, step)
        return params, outputs, surrogate(PARAMS), surrogate(params)

    params, outputs, before, after = search(step)
    assert 0 < outputs.fraction < 1
    assert outputs.kl <= 0.01
    assert outputs.loss < before
    close(outputs.loss, after)
    fraction = float(outputs.fraction)
    moved = jax.tree.map(lambda x, s: np.asarray(x) + fraction * s, PARAMS, step)
    jax.tree.map(close, params, moved)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_search_without_success_returns_the_parameters(bad):
    step = jax.tree.map(lambda x: np.full_like(x, bad), PARAMS)

    def evaluate(params):
        return surrogate(params), make_kl(PARAMS)(params)

    search = functools.partial(rlaxlib.backtracking_line_search, evaluate)
    params, outputs = jax.jit(search)(PARAMS, step)
    assert outputs.fraction == 0
    close(outputs.loss, surrogate(PARAMS))
    jax.tree.map(np.testing.assert_array_equal, params, PARAMS)


def test_a_search_evaluates_parameters_of_the_dtype_that_is_given():
    params, seen = np.array([1.0, 2.0], jnp.bfloat16), set()

    def evaluate(x):
        seen.add(x.dtype)
        return jnp.sum(jnp.square(x)), jnp.sum(jnp.square(x - params))

    @jax.jit
    def search(step):
        found, outputs = rlaxlib.backtracking_line_search(evaluate, params, step, 0.1)
        return found, outputs, evaluate(found)[0]

    found, outputs, loss = search(np.float32([-0.1, -0.1]))
    assert {found.dtype, *seen} == {jnp.dtype(jnp.bfloat16)}
    assert outputs.fraction.dtype == jnp.float32
    close(outputs.loss, loss)


def test_a_direction_of_zero_has_a_step_of_zero():
    zero = jnp.zeros(3)
    size = jax.value_and_grad(lambda x: rlaxlib.trust_region_step_size(x, x))
    value, gradient = size(zero)
    assert value == 0
    assert np.all(np.isfinite(gradient))


def test_structures_must_match():
    other = {"w": PARAMS["w"]}
    for call in (
        lambda: rlaxlib.fisher_vector_product(make_kl(PARAMS), PARAMS, other),
        lambda: rlaxlib.trust_region_step_size(PARAMS, other),
        lambda: rlaxlib.backtracking_line_search(surrogate, PARAMS, other),
    ):
        with pytest.raises(rlaxlib.ArgumentError, match="same tree structure"):
            call()


def test_the_product_is_the_average_of_those_of_mapped_streams():
    targets = np.float32([[1, 2], [3, 5]])
    vector = jnp.array([1.0, 2.0])

    def product(scale):
        def kl(x):
            return jnp.sum(scale * jnp.square(x))

        return rlaxlib.fisher_vector_product(kl, jnp.zeros(2), vector, axis_name="i")

    found = jax.jit(jax.vmap(product, axis_name="i"))(targets)
    close(found, np.tile(2 * targets.mean(0) * vector, (2, 1)))


def test_the_product_has_the_dtype_of_its_vector():
    with contract.x64(True), jax.numpy_dtype_promotion("standard"):
        params, vector = np.zeros(2, np.float32), np.ones(2)
        product = functools.partial(
            rlaxlib.fisher_vector_product, lambda x: jnp.sum(jnp.square(x))
        )
        found = jax.jit(product)(params, vector)
        assert found.dtype == vector.dtype
        close(found, 2 * vector)


@pytest.mark.parametrize("result", [jnp.float32(1), (1.0, 2.0, 3.0), {"loss": 1.0}])
def test_the_search_needs_a_loss_and_a_divergence(result):
    with pytest.raises(rlaxlib.ArgumentError, match="must be a tuple of two"):
        rlaxlib.backtracking_line_search(lambda x: result, jnp.zeros(2), jnp.ones(2))


# --- CPO. ---


def random_problem(rng):
    g, b = rng.normal(size=(2, 3))
    root = rng.normal(size=(3, 3)) + np.eye(3)
    h, max_kl = root @ root.T + 0.3 * np.eye(3), rng.uniform(0.1, 1.0)
    reach = np.sqrt(2 * max_kl * b @ np.linalg.solve(h, b))
    return g, b, h, rng.uniform(-1.5, 0.95) * reach, max_kl


@pytest.mark.parametrize("seed", range(12))
def test_steps_solve_the_constrained_problem(seed):
    g, b, h, cost, max_kl = random_problem(np.random.default_rng(seed))
    u, w = np.linalg.solve(h, g), np.linalg.solve(h, b)
    step = rlaxlib.cpo_step(g @ u, g @ w, b @ w, cost, max_kl)
    x = step.gradient_coefficient * u + step.cost_coefficient * w
    assert step.feasible
    assert cost + b @ x <= 1e-4
    assert x @ h @ x / 2 <= max_kl * 1.0001
    solved = scipy.optimize.minimize(
        lambda x: g @ x,
        -cost * w / (b @ w) * 0.9,
        jac=lambda _: g,
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
        constraints=[
            {"type": "ineq", "fun": lambda x: -cost - b @ x},
            {"type": "ineq", "fun": lambda x: max_kl - x @ h @ x / 2},
        ],
    )
    assert solved.success
    np.testing.assert_allclose(g @ x, solved.fun, rtol=1e-4, atol=1e-4)


def test_an_infeasible_problem_lowers_the_cost_as_fast_as_it_can():
    step = rlaxlib.cpo_step(1.0, 0.5, 4.0, cost=10.0, max_kl=0.5)
    assert not step.feasible
    close(step[:2], (0.0, -0.5))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((1.0, 0.0, 0.0, -1.0), (-1.0, 0.0, True)),  # No gradient of the cost,
        ((1.0, 0.0, 0.0, 0.5), (0.0, 0.0, False)),
        ((0.0, 0.0, 1.0, -1.0), (0.0, 0.0, True)),  # none of the loss,
        ((0.0, 0.0, 1.0, 0.5), (0.0, -0.5, True)),
        ((1.0, 1.0, 1.0, 0.5), (-1.0, 0.0, True)),  # and parallel ones.
        ((1.0, -1.0, 1.0, 0.0), (0.0, 0.0, True)),
    ],
)
def test_degenerate_gradients_give_finite_steps(arguments, expected):
    close(rlaxlib.cpo_step(*arguments, max_kl=0.5), expected)


# --- ACER. ---


def test_projections_are_the_closest_gradients_that_obey_the_bound():
    g, k = RANDOM.normal(size=(2, 50, 4)).astype(np.float32)
    z = np.asarray(rlaxlib.acer_trust_region(g, k, 0.2))
    change = np.sum(k * z, axis=-1)
    assert np.all(change <= 0.2 + 1e-5)
    allowed = np.sum(k * g, axis=-1) <= 0.2
    np.testing.assert_array_equal(z[allowed], g[allowed])
    close(change[~allowed], 0.2)
    distance = np.linalg.norm(z - g, axis=-1)
    for _ in range(20):
        other = z + 0.1 * RANDOM.normal(size=z.shape).astype(np.float32)
        obeys = np.sum(k * other, axis=-1) <= 0.2
        assert np.any(obeys)
        assert np.all((distance <= np.linalg.norm(other - g, axis=-1) + 1e-6) | ~obeys)


def test_an_infinite_bound_leaves_the_gradient():
    gradient, kl_gradient = np.random.default_rng(0).normal(size=(2, 4))
    found = rlaxlib.acer_trust_region(gradient, kl_gradient, np.inf)
    np.testing.assert_array_equal(found, np.float32(gradient))


def test_without_room_for_change_only_the_direction_of_the_divergence_counts():
    g, k = RANDOM.normal(size=(2, 50, 4)).astype(np.float32)
    z = rlaxlib.acer_trust_region(g, k, 0.0)
    close(rlaxlib.acer_trust_region(g, 1e-6 * k, 0.0), z)
    close(jnp.sum(jnp.maximum(jnp.sum(k * z, -1), 0)), 0)


def test_a_divergence_without_a_gradient_leaves_the_gradient():
    g = RANDOM.normal(size=4).astype(np.float32)

    @jax.jit
    @jax.value_and_grad
    def total(k):
        return jnp.sum(rlaxlib.acer_trust_region(g, k))

    z, slope = total(np.zeros(4))
    close(z, np.sum(g))
    assert np.all(np.isfinite(slope))
