"""Test MPO: weights, temperature, gradients of each term, and discrete actions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close
from scipy.special import softmax

import rlaxlib
from rlaxlib import LagrangePenalty
from rlaxlib.policies._shared import softplus

RNG = np.random.default_rng(0)
LOG_PROBS, Q = RNG.normal(size=(2, 4, 5)).astype(np.float32)
KL = RNG.uniform(0.1, 1.0, (5, 3)).astype(np.float32)
TEMPERATURE = LagrangePenalty(np.float32(0.5), 0.1)

LOGITS, TARGET_LOGITS, VALUES = RNG.normal(size=(3, 4)).astype(np.float32)
DUALS = {
    "temperature_constraint": LagrangePenalty(np.float32(0.3), 0.1),
    "policy_constraint": LagrangePenalty(np.float32(0.5), 0.01),
}


def identity(x):
    return x


@functools.partial(jax.jit, static_argnames="sample_axis")
def e_step(q, temperature=1.0, sample_axis=0):
    loss, weights, _ = rlaxlib.mpo_compute_weights_and_temperature_loss(
        q, LagrangePenalty(temperature, 0.1), identity, sample_axis=sample_axis
    )
    return loss, weights


def arguments(**changes):
    """Return the arguments of the categorical loss, some of them changed."""
    names = "logits", "target_logits", "q"
    inputs = dict(zip(names, (LOGITS, TARGET_LOGITS, VALUES), strict=True))
    return inputs | DUALS | changes


def eager(**changes):
    return rlaxlib.categorical_mpo_loss(**arguments(**changes))


compiled = jax.jit(rlaxlib.categorical_mpo_loss, static_argnames="projection_operator")


def categorical(**changes):
    return compiled(**arguments(**changes))


def changed(x, index, value):
    """Return an array of which one entry has another value."""
    return np.where(np.arange(x.size) == index, np.float32(value), x)


def finite(tree):
    return all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(tree))


# --- E-step and M-step. ---


def test_temperature_loss_is_minimal_where_weights_are_at_the_kl_bound():
    gradient = jax.jit(jax.grad(lambda t: e_step(Q[:, 0], t), has_aux=True))
    low, high = 1e-3, 1e3
    for _ in range(60):
        middle = np.sqrt(low * high)
        slope, weights = gradient(middle)
        low, high = (middle, high) if slope < 0 else (low, middle)
    kl = np.sum(weights * np.log(4 * np.asarray(weights)))
    np.testing.assert_allclose(kl, 0.1, rtol=1e-4)


def test_gradient_of_the_temperature_is_accurate_beside_large_values():
    q = 1000 + Q[:, 0]
    x = (q.astype(np.float64) - q.max()) / 0.5
    weights = softmax(x)
    expected = 0.1 - np.sum(weights * np.log(4 * weights))

    def vmpo(temperature):
        return rlaxlib.vmpo_compute_weights_and_temperature_loss(
            q, *np.ones((2, 4)), LagrangePenalty(temperature, 0.1), identity, 1.0
        )[0]

    @jax.jit
    def gradients(temperature):
        mpo = jax.grad(lambda temperature: e_step(q, temperature)[0])
        return mpo(temperature), jax.grad(vmpo)(temperature)

    np.testing.assert_allclose(gradients(0.5), expected, rtol=1e-5)


def test_samples_may_be_on_any_axis():
    q, axes = np.stack([Q, -Q, 2 * Q], axis=2), (1, 2, -1, -3)

    @jax.jit
    def each(q):
        moved = [(jnp.moveaxis(q, 0, axis), axis) for axis in (0, *axes)]
        return [e_step(q, sample_axis=axis) for q, axis in moved]

    (loss, weights), *others = each(q)
    for axis, (other_loss, other_weights) in zip(axes, others, strict=True):
        close(other_loss, loss)
        close(np.moveaxis(np.asarray(other_weights), axis, 0), weights)


def test_without_constraints_the_penalty_is_zero():
    for learn, shape in ((rlaxlib.mpo_loss, (5,)), (rlaxlib.vmpo_loss, (4, 5))):
        loss, outputs = jax.jit(learn)(LOG_PROBS, Q, TEMPERATURE, [])
        close(loss, np.asarray(outputs.policy_loss) + outputs.temperature_loss)
        np.testing.assert_array_equal(outputs.kl_loss, np.zeros(shape))
        np.testing.assert_array_equal(outputs.alpha_loss, np.zeros(shape))


def test_penalty_and_dual_loss_never_cancel():
    def loss(kl, alpha, stop):
        constraints = [(kl, LagrangePenalty(alpha, 0.5))]
        settings = {"use_stop_gradient": stop}
        mpo = rlaxlib.mpo_loss(LOG_PROBS, Q, TEMPERATURE, constraints, **settings)
        vmpo = rlaxlib.vmpo_loss(kl, kl, TEMPERATURE, constraints, **settings)
        terms = [each.kl_loss + each.alpha_loss for each in (mpo[1], vmpo[1])]
        return jnp.sum(terms[0]) + jnp.sum(terms[1])

    gradient = jax.jit(jax.grad(loss, argnums=(0, 1)))
    for stop in (True, False):
        by_kl, by_alpha = gradient(KL[:, 0], np.float32(3.0), stop)
        close(by_kl, np.full(5, 6.0))
        close(by_alpha, 2 * np.sum(0.5 - KL[:, 0]))


def test_huge_values_and_minus_infinity_have_weights_and_finite_gradients():
    inf = np.inf
    q = [[-inf, 1.0, 1.0], [-inf, -1e9, -inf], [1e38, -3e38, 3e38]]
    expected = [[0, 0.5, 0.5], [0, 1.0, 0], [0, 0, 1.0]]

    def total(q, temperature):
        loss, weights = e_step(q, temperature)
        return jnp.sum(weights * jnp.array([1.0, 2.0, 4.0])) + 1e-38 * loss, weights

    gradient = jax.grad(total, argnums=(0, 1), has_aux=True)
    gradient = jax.jit(jax.vmap(gradient, (0, None)))
    for temperature in (0.01, 1e-10):
        gradients, weights = gradient(np.float32(q), temperature)
        close(weights, expected)
        assert finite(gradients)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_default_projection_is_positive_in_half_precision(dtype):
    # Compiled programs may compute half precision in float32 otherwise.
    exact = {"xla_allow_excess_precision": False}
    learn = jax.jit(rlaxlib.mpo_loss, compiler_options=exact)
    penalty = LagrangePenalty(np.zeros((), dtype), 0.1)
    loss, outputs = learn(LOG_PROBS.astype(dtype), Q.astype(dtype), penalty, [])
    assert finite(loss)
    best = np.eye(4)[:, np.argmax(Q, axis=0)]
    np.testing.assert_array_equal(outputs.normalized_weights, best)


def test_an_impossible_action_without_weight_contributes_zero():
    q, log_probs = np.array([0.0, -np.inf]), np.array([-1.0, -np.inf])
    gradient = jax.jit(jax.value_and_grad(rlaxlib.mpo_loss, has_aux=True))
    penalty = LagrangePenalty(1.0, np.log(2.0))
    (loss, _), found = gradient(log_probs, q, penalty, [])
    close(loss, 1.0)
    close(found, [-1.0, 0.0])


# --- Discrete actions. ---


def test_categorical_loss_is_the_mpo_loss_of_samples_in_expected_proportions():
    samples = np.array([0, 1, 1, 2, 2, 2, 2, 2])
    target = np.log(np.float32([1.0, 2.0, 5.0]))
    logits, q = LOGITS[:3], VALUES[:3]

    def whole(logits, temperature, penalty):
        return rlaxlib.categorical_mpo_loss(logits, target, q, temperature, penalty)[0]

    def sampled(logits, temperature, penalty):
        log_probs = jax.nn.log_softmax(logits)[samples]
        pairs = [(rlaxlib.categorical_kl_divergence(target, logits), penalty)]
        return rlaxlib.mpo_loss(log_probs, q[samples], temperature, pairs, softplus)[0]

    @jax.jit
    def both(*inputs):
        return [jax.value_and_grad(f, (0, 1, 2))(*inputs) for f in (whole, sampled)]

    jax.tree.map(close, *both(logits, *DUALS.values()))


def test_each_term_of_the_categorical_loss_trains_its_own_parameters():
    def terms(logits, target_logits, q, duals):
        _, outputs = rlaxlib.categorical_mpo_loss(logits, target_logits, q, **duals)
        temperature, policy = outputs.temperature, outputs.policy_constraint
        every = outputs.policy_loss, temperature.loss, policy.kl_loss, policy.alpha_loss
        return jnp.stack(every), outputs

    jacobian = jax.jit(jax.jacrev(terms, (0, 1, 2, 3), has_aux=True))
    found, outputs = jacobian(LOGITS, TARGET_LOGITS, VALUES, DUALS)
    by_logits, by_target, by_q, by_duals = found
    policy, target, zero = softmax(LOGITS), softmax(TARGET_LOGITS), np.zeros(4)
    policy_gradient = policy - np.asarray(outputs.temperature.weights)
    penalty_gradient = float(outputs.policy_constraint.alpha) * (policy - target)
    close(by_logits, np.stack([policy_gradient, zero, penalty_gradient, zero]))
    assert not np.any(by_target)
    assert not np.any(by_q)
    by_temperature = np.asarray(by_duals["temperature_constraint"].alpha)
    np.testing.assert_array_equal(by_temperature != 0, [False, True, False, False])
    by_alpha = np.asarray(by_duals["policy_constraint"].alpha)
    np.testing.assert_array_equal(by_alpha != 0, [False, False, False, True])


def test_gradient_of_the_categorical_temperature_is_bound_minus_kl():
    def loss(log_temperature):
        settings = {"temperature_constraint": LagrangePenalty(log_temperature, 0.1)}
        _, outputs = eager(projection_operator=jnp.exp, **settings)
        return outputs.temperature.loss, outputs.temperature

    gradient = jax.jit(jax.vmap(jax.grad(loss, has_aux=True)))
    found, temperature = gradient(np.float32([-1.0, 2.0]))
    kl = np.asarray(temperature.kl)
    close(found, np.asarray(temperature.temperature) * (0.1 - kl))
    close(temperature.relative_kl, kl / 0.1)


def test_large_values_keep_the_prior_and_unlikely_actions_can_dominate():
    q = np.float32(1e7 + np.array([0.0, 0.0, -1e7, 0.0]))
    target = softmax(changed(TARGET_LOGITS, 2, -np.inf))
    close(categorical(q=q)[1].temperature.weights, target)

    temperature = categorical(
        logits=np.zeros(2, np.float32),
        target_logits=np.float32([0.0, -200.0]),
        q=np.float32([0.0, 300.0]),
        projection_operator=jax.nn.relu,
        temperature_constraint=LagrangePenalty(np.float32(1.0), 0.1),
    )[1].temperature
    close(temperature.weights, [0.0, 1.0])
    close(temperature.loss, 100.1)
    close(temperature.kl, 200.0)


@pytest.mark.parametrize("q", [0.0, -1e6, 1e6])
def test_equal_values_leave_the_target_policy_unchanged(q):
    values = np.full(4, q, np.float32)
    _, outputs = categorical(logits=TARGET_LOGITS, q=values)
    close(outputs.temperature.weights, softmax(TARGET_LOGITS))
    np.testing.assert_allclose(outputs.temperature.kl, 0, atol=1e-12)
    assert outputs.policy_constraint.kl == 0


def test_relative_kl_of_a_zero_bound_is_zero_or_infinite():
    zero = {"policy_constraint": LagrangePenalty(np.float32(0.5), 0.0)}
    with jax.debug_nans(True):
        assert eager(**zero)[1].policy_constraint.relative_kl == np.inf
        _, outputs = eager(logits=TARGET_LOGITS, **zero)
        assert outputs.policy_constraint.relative_kl == 0


def test_categorical_loss_is_finite_for_any_value_and_dual_variable():
    def loss(logits, alpha, q):
        duals = {name: each._replace(alpha=alpha) for name, each in DUALS.items()}
        return eager(logits=logits, q=q, **duals)

    gradient = jax.value_and_grad(loss, (0, 1), has_aux=True)
    gradient = jax.jit(jax.vmap(gradient, (None, 0, None)))
    for scale in (1e-6, 1e6):
        q = np.float32(scale * VALUES)
        assert finite(gradient(LOGITS, np.float32([-100.0, 0.0, 100.0]), q))


def test_an_illegal_action_is_ignored():
    mask = np.array([True, True, True, False])

    @jax.jit
    @functools.partial(jax.value_and_grad, has_aux=True)
    def gradient(logits, others):
        return eager(logits=logits, **others)

    legal = {"target_logits": TARGET_LOGITS[:3], "q": VALUES[:3]}
    (expected, outputs), slope = gradient(LOGITS[:3], legal)
    weights = np.append(outputs.temperature.weights, 0.0)
    by_mask = {"q": changed(VALUES, 3, np.nan), "action_mask": mask}
    by_logit = {"q": changed(VALUES, 3, 10.0), "action_mask": mask | True}
    for never in (-1e9, -np.inf):
        logits = changed(LOGITS, 3, never)
        target = {"target_logits": changed(TARGET_LOGITS, 3, never)}
        for settings in (by_mask, by_logit):
            (found, others), slopes = gradient(logits, target | settings)
            close(found, expected)
            close(slopes, np.append(slope, 0.0))
            close(others.temperature.weights, weights)
            close(others.policy_constraint, outputs.policy_constraint)
            close(others.temperature.kl, outputs.temperature.kl)


def test_without_a_legal_action_all_losses_and_gradients_are_zero():
    def loss(logits, duals):
        return eager(logits=logits, action_mask=np.zeros(4, bool), **duals)

    gradient = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))
    with jax.debug_nans(True):
        (value, outputs), gradients = gradient(LOGITS, DUALS)
    assert value == 0
    assert finite(outputs)
    np.testing.assert_array_equal(outputs.temperature.weights, 0.0)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(gradients))


def test_an_action_impossible_under_both_policies_gives_no_nan():
    never = np.float32([0.0, 1.0, -np.inf, 2.0])

    def loss(logits):
        return eager(logits=logits, target_logits=never)[0]

    with jax.debug_nans(True):
        assert finite(jax.jit(jax.grad(loss))(never))


# --- Errors. ---

PER_DIMENSION = LagrangePenalty(1.0, 0.1, per_dimension=True)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: rlaxlib.mpo_loss(LOG_PROBS, Q, TEMPERATURE, [], sample_axis=2),
            r"^mpo_loss: `sample_axis` is 2, must be in \[-2, 2\)",
        ),
        (
            lambda: rlaxlib.mpo_compute_weights_and_temperature_loss(
                Q[:, :0], TEMPERATURE, identity, sample_axis=-1
            ),
            r"`sample_q_values` has no samples on its axis 1",
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
            lambda: eager(temperature_constraint=PER_DIMENSION),
            r"`temperature_constraint.per_dimension` is True, must be False",
        ),
        (
            lambda: eager(policy_constraint=PER_DIMENSION),
            r"^categorical_mpo_loss: `policy_constraint.per_dimension` is True",
        ),
    ],
)
def test_names_the_wrong_argument(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        call()
