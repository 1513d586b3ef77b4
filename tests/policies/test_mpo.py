"""Test MPO: weights, temperature, gradients of each term, and discrete actions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib
from rlaxlib import LagrangePenalty
from rlaxlib.policies._constraints import softplus

RNG = np.random.default_rng(0)
LOG_PROBS, Q = jnp.asarray(RNG.normal(size=(2, 4, 5)), jnp.float32)
KL = jnp.asarray(RNG.uniform(0.1, 1.0, (5, 3)), jnp.float32)
TEMPERATURE = LagrangePenalty(jnp.float32(0.5), 0.1)

LOGITS, TARGET_LOGITS, VALUES = jnp.asarray(RNG.normal(size=(3, 4)), jnp.float32)
DUALS = {
    "temperature_constraint": LagrangePenalty(jnp.float32(0.3), 0.1),
    "policy_constraint": LagrangePenalty(jnp.float32(0.5), 0.01),
}


def identity(x):
    return x


def e_step(q, temperature=1.0, bound=0.1, **settings):
    penalty = LagrangePenalty(temperature, bound)
    loss, weights, _ = rlaxlib.mpo_compute_weights_and_temperature_loss(
        q, penalty, identity, **settings
    )
    return loss, weights


def categorical(logits=LOGITS, target_logits=TARGET_LOGITS, q_values=VALUES, **changes):
    return rlaxlib.categorical_mpo_loss(
        logits, target_logits, q_values, **{**DUALS, **changes}
    )


def finite(tree):
    return all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(tree))


# --- E-step and M-step. ---


def test_temperature_loss_is_minimal_where_weights_are_at_the_kl_bound():
    gradient = jax.jit(jax.grad(lambda temperature: e_step(Q[:, 0], temperature)[0]))
    low, high = 1e-3, 1e3
    for _ in range(60):
        middle = np.sqrt(low * high)
        low, high = (middle, high) if gradient(middle) < 0 else (low, middle)
    _, weights = e_step(Q[:, 0], middle)
    np.testing.assert_allclose(jnp.sum(weights * jnp.log(4 * weights)), 0.1, rtol=1e-4)


def test_gradient_of_the_temperature_is_accurate_beside_large_values():
    q = np.asarray(1000 + Q[:, 0], np.float32)
    x = (q.astype(np.float64) - q.max()) / 0.5
    weights = np.exp(x) / np.sum(np.exp(x))
    expected = 0.1 - np.sum(weights * np.log(4 * weights))
    found = jax.grad(lambda temperature: e_step(jnp.asarray(q), temperature)[0])(0.5)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    found = jax.grad(
        lambda x: rlaxlib.vmpo_compute_weights_and_temperature_loss(
            jnp.asarray(q), *jnp.ones((2, 4)), LagrangePenalty(x, 0.1), identity, 1.0
        )[0]
    )(0.5)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("axis", [1, 2, -1, -3])
def test_samples_may_be_on_any_axis(axis):
    q = jnp.stack([Q, -Q, 2 * Q], axis=2)
    moved = jnp.moveaxis(q, 0, axis)
    loss, weights = e_step(q)
    other_loss, other_weights = e_step(moved, sample_axis=axis)
    close(other_loss, loss)
    close(jnp.moveaxis(other_weights, axis, 0), weights)


def test_without_constraints_the_penalty_is_zero():
    for learn, shape in ((rlaxlib.mpo_loss, (5,)), (rlaxlib.vmpo_loss, (4, 5))):
        loss, outputs = learn(LOG_PROBS, Q, TEMPERATURE, [])
        close(loss, outputs.policy_loss + outputs.temperature_loss)
        np.testing.assert_array_equal(outputs.kl_loss, np.zeros(shape))
        np.testing.assert_array_equal(outputs.alpha_loss, np.zeros(shape))


@pytest.mark.parametrize("stop", [True, False])
def test_penalty_and_dual_loss_never_cancel(stop):
    def loss(kl, alpha):
        constraints = [(kl, LagrangePenalty(alpha, 0.5))]
        settings = {"use_stop_gradient": stop}
        mpo = rlaxlib.mpo_loss(LOG_PROBS, Q, TEMPERATURE, constraints, **settings)
        vmpo = rlaxlib.vmpo_loss(kl, kl, TEMPERATURE, constraints, **settings)
        terms = [each.kl_loss + each.alpha_loss for each in (mpo[1], vmpo[1])]
        return jnp.sum(terms[0]) + jnp.sum(terms[1])

    by_kl, by_alpha = jax.grad(loss, argnums=(0, 1))(KL[:, 0], jnp.float32(3.0))
    close(by_kl, np.full(5, 6.0))
    close(by_alpha, 2 * jnp.sum(0.5 - KL[:, 0]))


@pytest.mark.parametrize(
    ("q", "expected"),
    [
        ([np.inf, 1.0, 2.0], [1.0, 0.0, 0.0]),
        ([np.inf, -np.inf, np.inf], [0.5, 0.0, 0.5]),
        ([-np.inf, 1.0, 1.0], [0.0, 0.5, 0.5]),
        ([-np.inf, -np.inf, -np.inf], [1 / 3, 1 / 3, 1 / 3]),
        ([1e38, -3e38, 3e38], [0.0, 0.0, 1.0]),
    ],
)
def test_huge_and_infinite_values_have_weights_and_finite_gradients(q, expected):
    def total(q, temperature):
        loss, weights = e_step(q, temperature)
        return jnp.sum(weights * jnp.array([1.0, 2.0, 4.0])) + 1e-38 * loss, weights

    gradient = jax.jit(jax.grad(total, argnums=(0, 1), has_aux=True))
    for temperature in (0.01, 1e-10):
        gradients, weights = gradient(jnp.array(q, jnp.float32), temperature)
        close(weights, expected)
        assert finite(gradients)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_default_projection_is_positive_in_half_precision(dtype):
    penalty = LagrangePenalty(jnp.zeros((), dtype), 0.1)
    loss, outputs = rlaxlib.mpo_loss(
        LOG_PROBS.astype(dtype), Q.astype(dtype), penalty, []
    )
    assert finite(loss)
    best = jnp.argmax(Q, axis=0)
    np.testing.assert_array_equal(outputs.normalized_weights, jnp.eye(4)[:, best])


def test_an_impossible_action_without_weight_contributes_zero():
    q, log_probs = jnp.array([0.0, -jnp.inf]), jnp.array([-1.0, -jnp.inf])
    (loss, _), gradient = jax.value_and_grad(rlaxlib.mpo_loss, has_aux=True)(
        log_probs, q, LagrangePenalty(1.0, jnp.log(2.0)), []
    )
    close(loss, 1.0)
    close(gradient, [-1.0, 0.0])


# --- Discrete actions. ---


def test_categorical_loss_is_the_mpo_loss_of_samples_in_expected_proportions():
    samples = jnp.array([0, 1, 1, 2, 2, 2, 2, 2])
    target = jnp.log(jnp.array([1.0, 2.0, 5.0]))
    logits, q = LOGITS[:3], VALUES[:3]

    def whole(logits, temperature, penalty):
        duals = {"temperature_constraint": temperature, "policy_constraint": penalty}
        return categorical(logits, target, q, **duals)[0]

    def sampled(logits, temperature, penalty):
        log_probs = jax.nn.log_softmax(logits)[samples]
        pairs = [(rlaxlib.categorical_kl_divergence(target, logits), penalty)]
        return rlaxlib.mpo_loss(log_probs, q[samples], temperature, pairs, softplus)[0]

    found, expected = (
        jax.jit(jax.value_and_grad(loss, (0, 1, 2)))(logits, *DUALS.values())
        for loss in (whole, sampled)
    )
    jax.tree.map(close, found, expected)


def test_each_term_of_the_categorical_loss_trains_its_own_parameters():
    def terms(logits, target_logits, q_values, duals):
        _, outputs = categorical(logits, target_logits, q_values, **duals)
        temperature, policy = outputs.temperature, outputs.policy_constraint
        every = outputs.policy_loss, temperature.loss, policy.kl_loss, policy.alpha_loss
        return jnp.stack(every), outputs

    jacobian = jax.jit(jax.jacrev(terms, (0, 1, 2, 3), has_aux=True))
    found, outputs = jacobian(LOGITS, TARGET_LOGITS, VALUES, DUALS)
    by_logits, by_target, by_q, by_duals = found
    policy, target = jax.nn.softmax(LOGITS), jax.nn.softmax(TARGET_LOGITS)
    zero = jnp.zeros(4)
    policy_gradient = policy - outputs.temperature.weights
    penalty_gradient = outputs.policy_constraint.alpha * (policy - target)
    close(by_logits, jnp.stack([policy_gradient, zero, penalty_gradient, zero]))
    assert not np.any(by_target)
    assert not np.any(by_q)
    by_temperature = by_duals["temperature_constraint"].alpha
    np.testing.assert_array_equal(by_temperature != 0, [False, True, False, False])
    by_alpha = by_duals["policy_constraint"].alpha
    np.testing.assert_array_equal(by_alpha != 0, [False, False, False, True])


def test_gradient_of_the_categorical_temperature_is_bound_minus_kl():
    def loss(log_temperature):
        settings = {"temperature_constraint": LagrangePenalty(log_temperature, 0.1)}
        _, outputs = categorical(projection_operator=jnp.exp, **settings)
        return outputs.temperature.loss, outputs.temperature

    gradient, temperature = jax.vmap(jax.grad(loss, has_aux=True))(
        jnp.array([-1.0, 2.0])
    )
    close(gradient, temperature.eta * (0.1 - temperature.kl))
    close(temperature.relative_kl, temperature.kl / 0.1)


def test_large_values_keep_the_prior_and_unlikely_actions_can_dominate():
    q = 1e7 + jnp.array([0.0, 0.0, -1e7, 0.0])
    target = jax.nn.softmax(TARGET_LOGITS.at[2].set(-jnp.inf))
    close(categorical(q_values=q)[1].temperature.weights, target)

    temperature = categorical(
        jnp.zeros(2),
        jnp.array([0.0, -200.0]),
        jnp.array([0.0, 300.0]),
        projection_operator=jax.nn.relu,
        temperature_constraint=LagrangePenalty(jnp.float32(1.0), 0.1),
    )[1].temperature
    close(temperature.weights, [0.0, 1.0])
    close(temperature.loss, 100.1)
    close(temperature.kl, 200.0)


@pytest.mark.parametrize("q", [0.0, -1e6, 1e6])
def test_equal_values_leave_the_target_policy_unchanged(q):
    _, outputs = categorical(TARGET_LOGITS, q_values=jnp.full(4, q))
    close(outputs.temperature.weights, jax.nn.softmax(TARGET_LOGITS))
    np.testing.assert_allclose(outputs.temperature.kl, 0, atol=1e-12)
    assert outputs.policy_constraint.kl == 0


def test_relative_kl_of_a_zero_bound_is_zero_or_infinite():
    zero = {"policy_constraint": LagrangePenalty(jnp.float32(0.5), 0.0)}
    with jax.debug_nans(True):
        assert categorical(**zero)[1].policy_constraint.relative_kl == np.inf
        assert categorical(TARGET_LOGITS, **zero)[1].policy_constraint.relative_kl == 0


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_categorical_loss_is_finite_for_any_value_and_dual_variable(scale):
    def loss(logits, alpha):
        duals = {name: each._replace(alpha=alpha) for name, each in DUALS.items()}
        return categorical(logits, q_values=scale * VALUES, **duals)

    gradient = jax.vmap(jax.value_and_grad(loss, (0, 1), has_aux=True), (None, 0))
    assert finite(jax.jit(gradient)(LOGITS, jnp.array([-100.0, 0.0, 100.0])))


@pytest.mark.parametrize("never", [-1e9, -np.inf])
def test_an_illegal_action_is_ignored(never):
    mask = jnp.array([True, True, True, False])
    gradient = jax.value_and_grad(categorical, has_aux=True)
    (expected, outputs), slope = gradient(LOGITS[:3], TARGET_LOGITS[:3], VALUES[:3])
    by_mask = VALUES.at[3].set(jnp.nan), {"action_mask": mask}
    by_logit = VALUES.at[3].set(10.0), {}
    for q, settings in (by_mask, by_logit):
        logits = LOGITS.at[3].set(never)
        target = TARGET_LOGITS.at[3].set(never)
        (found, others), slopes = gradient(logits, target, q, **settings)
        close(found, expected)
        close(slopes, jnp.append(slope, 0.0))
        close(others.temperature.weights, jnp.append(outputs.temperature.weights, 0.0))
        close(others.policy_constraint, outputs.policy_constraint)
        close(others.temperature.kl, outputs.temperature.kl)


def test_without_a_legal_action_all_losses_and_gradients_are_zero():
    def loss(logits, duals, q):
        return categorical(logits, q_values=q, action_mask=jnp.zeros(4, bool), **duals)

    with jax.debug_nans(True):
        found = jax.value_and_grad(loss, (0, 1), has_aux=True)(LOGITS, DUALS, VALUES)
    (value, outputs), gradients = found
    assert value == 0
    assert finite(outputs)
    np.testing.assert_array_equal(outputs.temperature.weights, 0.0)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(gradients))


def test_an_action_impossible_under_both_policies_gives_no_nan():
    never = jnp.array([0.0, 1.0, -jnp.inf, 2.0])
    with jax.debug_nans(True):
        assert finite(jax.grad(lambda x: categorical(x, never)[0])(never))


# --- Errors. ---

PER_DIMENSION = LagrangePenalty(1.0, 0.1, per_dimension=True)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: rlaxlib.mpo_loss(LOG_PROBS, Q, TEMPERATURE, [], sample_axis=2),
            r"^mpo_loss: `sample_axis` is 2, must be at most 1",
        ),
        (
            lambda: rlaxlib.mpo_compute_weights_and_temperature_loss(
                Q[:, :0], TEMPERATURE, identity, sample_axis=-1
            ),
            r"`sample_q_values` has no samples on its axis 1",
        ),
        (
            lambda: rlaxlib.mpo_loss(
                LOG_PROBS, Q, LagrangePenalty(0.0, 0.1), [], identity
            ),
            r"^mpo_loss: `projection_operator\(temperature_constraint.alpha\)` is 0.0, "
            r"must be in \(0, inf\)",
        ),
        (
            lambda: jax.eval_shape(
                lambda q: e_step(q, 1.0, -0.1),
                Q,
            ),
            r"`temperature_constraint.epsilon` is -0.1, must be in \[0, inf\)",
        ),
        (
            lambda: rlaxlib.mpo_loss(LOG_PROBS, Q, (1.0, 0.1), []),
            r"`temperature_constraint.alpha` is None, must be a floating-point array",
        ),
        (
            lambda: rlaxlib.mpo_loss(LOG_PROBS, Q, TEMPERATURE, [(KL, TEMPERATURE)]),
            r"`kl_constraints\[0\]\[0\]` has shape \(5, 3\), must be \(5,\) to match "
            r"`sample_q_values, one sample`",
        ),
        (
            lambda: rlaxlib.mpo_loss(LOG_PROBS, Q, PER_DIMENSION, []),
            r"^mpo_loss: `temperature_constraint.per_dimension` is True, must be False",
        ),
        (
            lambda: rlaxlib.mpo_compute_weights_and_temperature_loss(
                Q, PER_DIMENSION, identity
            ),
            r"`temperature_constraint.per_dimension` is True, must be False",
        ),
        (
            lambda: categorical(temperature_constraint=PER_DIMENSION),
            r"`temperature_constraint.per_dimension` is True, must be False",
        ),
        (
            lambda: categorical(policy_constraint=PER_DIMENSION),
            r"^categorical_mpo_loss: `policy_constraint.per_dimension` is True",
        ),
        (
            lambda: categorical(
                policy_constraint=LagrangePenalty(-1.0, 0.1),
                projection_operator=identity,
            ),
            r"`projection_operator\(policy_constraint.alpha\)` is -1.0, must be in "
            r"\[0, inf\)",
        ),
    ],
)
def test_names_the_wrong_argument(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        call()
