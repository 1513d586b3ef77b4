"""Test preference losses, reward models and distillation: limits and extremes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import x64
from experience import close

import rlaxlib

DELTAS = np.float32([-3, -0.5, 0, 0.5, 3])
KINDS = ["sigmoid", "ipo", "hinge", "robust"]
STUDENT, TEACHER = np.float32(np.random.default_rng(0).normal(size=(2, 7)))


@functools.partial(jax.jit, static_argnames="kind")
def dpo(delta, **settings):
    """Return the DPO loss as a function of the difference of log-ratios."""
    zeros = jnp.zeros_like(delta)
    return rlaxlib.dpo_loss(delta, zeros, zeros, zeros, **settings)


def kl(p, q):
    p, q = jax.nn.log_softmax(p), jax.nn.log_softmax(q)
    return jnp.sum(jnp.exp(p) * (p - q))


def gradient(function, *arguments):
    return jax.jit(jax.grad(lambda *x: jnp.sum(function(*x))))(*arguments)


# --- Preferences. ---


@pytest.mark.parametrize("kind", KINDS)
def test_dpo_depends_on_differences_to_the_reference_only(kind):
    shifted = (DELTAS + np.float32(x) for x in (-2, -7, 0, -1))
    dpo_loss = jax.jit(rlaxlib.dpo_loss, static_argnums=5)
    found = dpo_loss(*shifted, 0.3, kind)
    close(found, dpo(np.full(5, 4, np.float32), beta=0.3, kind=kind))


@pytest.mark.parametrize("kind", KINDS)
def test_dpo_prefers_the_chosen_answer(kind):
    found = gradient(functools.partial(dpo, beta=0.1, kind=kind), DELTAS)
    assert np.max(found) < 0


@pytest.mark.parametrize("kind", KINDS)
def test_references_have_no_gradient(kind):
    def loss(ref_chosen, ref_rejected):
        return jnp.sum(
            rlaxlib.dpo_loss(DELTAS, -DELTAS, ref_chosen, ref_rejected, kind=kind)
        )

    for each in jax.jit(jax.grad(loss, (0, 1)))(DELTAS, DELTAS):
        np.testing.assert_array_equal(each, 0.0)


@pytest.mark.parametrize("delta", [-1e4, 1e4])
@pytest.mark.parametrize("kind", ["sigmoid", "hinge", "robust"])
def test_dpo_is_linear_far_from_the_reference(kind, delta):
    loss = functools.partial(dpo, beta=0.5, kind=kind)
    value, found = jax.jit(jax.value_and_grad(loss))(delta)
    close(value, 0.0 if delta > 0 else 5000.0, rtol=1e-3)
    close(found, 0.0 if delta > 0 else -0.5)


def test_ipo_is_zero_at_its_target():
    loss = functools.partial(dpo, beta=0.25, kind="ipo")
    close(jax.jit(jax.value_and_grad(loss))(1 / (2 * 0.25)), (0.0, 0.0))


def test_smoothed_dpo_has_its_minimum_at_the_probability_of_the_label():
    # cDPO: the optimum has σ(β Δ) = 1 - ε.
    optimum = np.log(0.8 / 0.2) / 0.5
    loss = functools.partial(dpo, beta=0.5, label_smoothing=0.2)
    close(jax.jit(jax.grad(loss))(optimum), 0.0)


def test_robust_dpo_is_unbiased_under_flipped_labels():
    robust = functools.partial(dpo, kind="robust", beta=0.5, label_smoothing=0.2)
    mean = 0.8 * np.asarray(robust(DELTAS)) + 0.2 * np.asarray(robust(-DELTAS))
    close(mean, dpo(DELTAS, beta=0.5))


def test_without_smoothing_robust_dpo_is_plain():
    close(dpo(DELTAS, kind="robust"), dpo(DELTAS))


def test_simpo_is_dpo_of_means_with_a_margin():
    means = -np.exp(DELTAS)
    simpo_loss = jax.jit(rlaxlib.simpo_loss)
    found = simpo_loss(means, means - np.float32(1), beta=2.0, margin=0.5)
    close(found, dpo(np.full(5, 1 - 0.25, np.float32), beta=2.0))


def test_orpo_is_finite_with_its_gradient_for_certain_answers():
    loss = jax.jit(jax.value_and_grad(rlaxlib.orpo_loss))
    for chosen in (0.0, -1e-8, -80.0):
        assert np.isfinite(loss(chosen, -1.0)).all()
    # At a probability of 1 the derivative of the second term is minus the other's odds.
    _, found = loss(0.0, np.log(0.75), coefficient=1.0)
    close(found, -1.0 - 3.0)


def test_orpo_of_answers_whose_log_probability_rounds_to_zero():
    loss = jax.jit(jax.value_and_grad(rlaxlib.orpo_loss, (0, 1)))
    both, gradients = loss(0.0, 0.0)
    close(both, 0.1 * np.log(2), rtol=1e-6)
    assert np.isfinite(gradients).all()
    rejected, gradients = loss(-0.1, 0.0)
    odds = [np.exp(x) / -np.expm1(x) for x in (-0.1, -float(np.finfo("f4").epsneg))]
    close(rejected, 0.1 - 0.1 * np.log(odds[0] / odds[1] / (1 + odds[0] / odds[1])))
    assert np.isfinite(gradients).all()
    chosen, gradients = loss(0.0, -1.0)
    close(chosen, 0.0, atol=1e-6)
    close(gradients[0], -1 - 0.1 * np.exp(-1) / -np.expm1(-1), rtol=1e-4)


@pytest.mark.parametrize("kind", ["sigmoid", "ipo", "hinge", "robust"])
def test_dpo_of_an_impossible_answer_is_not_nan(kind):
    loss = functools.partial(rlaxlib.dpo_loss, kind=kind)
    loss = jax.jit(jax.value_and_grad(loss, (0, 1)))
    for answers in ((-1.0, -np.inf), (-np.inf, -1.0)):
        value, gradients = loss(*answers, -1.0, -1.0)
        assert not np.isnan(value)
        assert not np.isnan(gradients).any()


def test_orpo_is_finite_with_its_gradient_for_impossible_answers():
    loss = jax.jit(jax.value_and_grad(rlaxlib.orpo_loss, (0, 1)))
    value, found = loss(-500.0, -1.0, coefficient=0.5)
    # The log-odds of the rejected answer are -log(e - 1).
    close(value, 500 + 0.5 * (500 - np.log(np.e - 1)))
    close(found, (-1.5, 0.5 + 0.5 / (np.e - 1)))


def test_orpo_without_a_coefficient_is_the_supervised_loss():
    means = -np.exp(DELTAS)
    orpo_loss = jax.jit(rlaxlib.orpo_loss)
    close(orpo_loss(means, means - np.float32(1), coefficient=0.0), -means)


# --- Answers that are desirable or not. ---


def test_kto_raises_desirable_and_lowers_undesirable_answers():
    desirable = np.array([True, False, True, False, True])

    def loss(log_prob):
        return rlaxlib.kto_loss(log_prob, jnp.zeros(5), desirable, 0.5)

    np.testing.assert_array_equal(np.signbit(gradient(loss, DELTAS)), desirable)


def test_kto_reference_point_is_not_negative_and_has_no_gradient():
    desirable = np.ones(5, bool)

    @jax.jit
    def loss(kl):
        return rlaxlib.kto_loss(DELTAS, np.zeros_like(DELTAS), desirable, kl)

    close(loss(-3.0), loss(0.0))
    np.testing.assert_array_equal(gradient(loss, 0.7), 0.0)


def test_kto_is_bounded_for_extreme_answers():
    extreme, desirable = np.float32([-1e5, 1e5]), np.array([True, False])

    def loss(log_prob):
        losses = rlaxlib.kto_loss(log_prob, jnp.zeros(2), desirable, 0.0)
        return jnp.sum(losses), losses

    found, losses = jax.jit(jax.grad(loss, has_aux=True))(extreme)
    close(losses, 1.0)
    close(found, 0.0)


# --- Reward models. ---


def test_bradley_terry_gradients_are_opposite_and_centred_rewards_sum_to_zero():
    gradient = jax.jit(jax.grad(rlaxlib.bradley_terry_loss, (0, 1)))
    by_chosen, by_rejected = map(float, gradient(1.0, 0.5))
    close(by_chosen, -by_rejected)
    close(by_chosen, -1 / (1 + np.exp(0.5)))
    by_chosen, by_rejected = map(float, gradient(2.0, -2.0, centering=0.1))
    close(by_chosen, -by_rejected)


def test_bradley_terry_is_finite_for_extreme_rewards():
    loss = jax.jit(jax.value_and_grad(rlaxlib.bradley_terry_loss))
    value, found = loss(-1e4, 1e4)
    close(value, 2e4)
    close(found, -1.0)


# --- Distillation. ---


@functools.partial(jax.jit, static_argnames="top_k")
def divergence(student, teacher, beta, top_k=None):
    """Return the divergence and its gradient."""
    function = functools.partial(rlaxlib.generalized_jsd, top_k=top_k)
    return jax.value_and_grad(function)(student, teacher, beta)


@pytest.mark.parametrize("top_k", [None, 3])
@pytest.mark.parametrize("beta", [0.0, 0.2, 1.0])
def test_divergence_is_zero_only_for_equal_distributions(beta, top_k):
    assert divergence(STUDENT, TEACHER, beta, top_k)[0] > 0.01
    value, gradient = divergence(TEACHER + np.float32(5), TEACHER, beta, top_k)
    close(value, 0.0, atol=1e-6)
    close(gradient, 0.0, atol=1e-6)


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_divergence_of_close_distributions_is_precise(beta):
    student = TEACHER + np.float32(1e-3) * STUDENT
    found, _ = divergence(student, TEACHER, beta)
    with x64(True):
        exact, _ = divergence(np.float64(student), np.float64(TEACHER), beta)
    close(found, exact, rtol=1e-3, atol=0)


def test_gradient_of_divergence_holds_few_arrays_of_logits():
    logits = jax.ShapeDtypeStruct((8, 4096), np.float32)
    gradient = jax.jit(jax.vmap(jax.grad(rlaxlib.generalized_jsd)))
    memory = gradient.lower(logits, logits).compile().memory_analysis()
    # Plain expressions hold 2.
    assert memory.temp_size_in_bytes < 4 * 4 * 8 * 4096


def test_limits_are_forward_and_reverse_kl():
    small = 1e-3
    (forward, reverse), (by_forward, by_reverse) = both_kls(STUDENT, TEACHER)
    value, gradient = divergence(STUDENT, TEACHER, 0.0)
    close(value, forward)
    close(gradient, by_forward)
    found, _ = divergence(STUDENT, TEACHER, small)
    close(found / small, forward, rtol=1e-2)
    value, gradient = divergence(STUDENT, TEACHER, 1.0)
    close(value, reverse)
    close(gradient, by_reverse)
    found, _ = divergence(STUDENT, TEACHER, 1 - small)
    close(found / small, reverse, rtol=1e-2)


@jax.jit
def both_kls(student, teacher):
    """Return KL(teacher ‖ student), KL(student ‖ teacher), and their gradients."""

    def both(student):
        return jnp.stack([kl(teacher, student), kl(student, teacher)])

    return both(student), jax.jacrev(both)(student)


def test_jensen_shannon_divergence_is_symmetric_and_at_most_log_two():
    one, _ = divergence(STUDENT, TEACHER, 0.5)
    close(one, divergence(TEACHER, STUDENT, 0.5)[0])
    far = 1e3 * np.eye(7, dtype=np.float32)
    close(divergence(far[0], far[1], 0.5)[0], np.log(2.0))


@pytest.mark.parametrize("top_k", [None, 3])
@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_tokens_impossible_for_both_change_nothing(beta, top_k):
    bad = np.full(3, -np.inf, np.float32)
    student, teacher = (np.append(x[:4], bad) for x in (STUDENT, TEACHER))
    value, gradient = divergence(student, teacher, beta, top_k)
    close(value, divergence(STUDENT[:4], TEACHER[:4], beta, top_k)[0])
    assert np.isfinite(gradient).all()
    top_two = np.append(np.float32([0, 0]), np.full(5, -np.inf, np.float32))
    assert np.isfinite(divergence(top_two, top_two, beta, top_k)[1]).all()


@pytest.mark.parametrize("beta", [0.3, 1.0])
def test_gradients_are_finite_for_tokens_impossible_for_the_student(beta):
    student = np.where(np.arange(7) == 2, np.float32(-np.inf), STUDENT)
    for each in divergence(student, TEACHER, beta):
        assert np.isfinite(each).all()


@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_gradients_are_finite_for_tokens_impossible_for_the_teacher(beta):
    teacher = np.where(np.arange(7) == 2, np.float32(-np.inf), TEACHER)
    for each in divergence(STUDENT, teacher, beta):
        assert np.isfinite(each).all()


def test_top_k_is_a_lower_bound_that_grows_to_the_whole():
    for beta in (0.0, 0.3, 1.0):
        ks = (1, 3, 6)
        bounds = [divergence(STUDENT, TEACHER, beta, k)[0] for k in ks]
        whole, _ = divergence(STUDENT, TEACHER, beta)
        assert np.all(np.diff(bounds) > -1e-6)
        close(bounds[-1], whole)


def test_tokens_outside_the_top_k_have_a_gradient():
    _, gradient = divergence(STUDENT, TEACHER, 0.5, 3)
    assert np.all(np.asarray(gradient) != 0)


def test_teacher_has_no_gradient():
    found = jax.jit(jax.grad(rlaxlib.generalized_jsd, 1))(STUDENT, TEACHER)
    np.testing.assert_array_equal(found, 0.0)


def test_kto_of_an_impossible_answer_has_no_gradient():
    @jax.jit
    @jax.grad
    def gradient(log_prob):
        answers = np.array([True, True])
        return jnp.sum(rlaxlib.kto_loss(log_prob, np.zeros(2), answers, 0.0))

    close(gradient(np.float32([0.0, -np.inf])), [-0.025, 0.0], atol=1e-6)
