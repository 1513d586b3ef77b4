"""Test preference losses, reward models and distillation: limits and extremes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import x64
from experience import close

import rlaxlib

DELTAS = jnp.array([-3.0, -0.5, 0.0, 0.5, 3.0])
KINDS = ["sigmoid", "ipo", "hinge", "robust"]
STUDENT, TEACHER = jnp.asarray(np.random.default_rng(0).normal(size=(2, 7)), "float32")


def dpo(delta, **settings):
    """Return the DPO loss as a function of the difference of log-ratios."""
    zeros = jnp.zeros_like(delta)
    return rlaxlib.dpo_loss(delta, zeros, zeros, zeros, **settings)


def kl(p, q):
    p, q = jax.nn.log_softmax(p), jax.nn.log_softmax(q)
    return jnp.sum(jnp.exp(p) * (p - q))


def gradient(function, *arguments):
    return jax.grad(lambda *x: jnp.sum(function(*x)))(*arguments)


# --- Preferences. ---


@pytest.mark.parametrize("kind", KINDS)
def test_dpo_depends_on_differences_to_the_reference_only(kind):
    found = rlaxlib.dpo_loss(
        DELTAS - 2.0, DELTAS - 7.0, DELTAS, DELTAS - 1.0, 0.3, kind
    )
    close(found, dpo(jnp.full(5, 4.0), beta=0.3, kind=kind))


@pytest.mark.parametrize("kind", KINDS)
def test_dpo_prefers_the_chosen_answer(kind):
    found = gradient(functools.partial(dpo, beta=0.1, kind=kind), DELTAS)
    assert np.all(found < 0)


@pytest.mark.parametrize("kind", KINDS)
def test_references_have_no_gradient(kind):
    def loss(ref_chosen, ref_rejected):
        return jnp.sum(
            rlaxlib.dpo_loss(DELTAS, -DELTAS, ref_chosen, ref_rejected, kind=kind)
        )

    for each in jax.grad(loss, (0, 1))(DELTAS, DELTAS):
        np.testing.assert_array_equal(each, 0.0)


@pytest.mark.parametrize("delta", [-1e4, 1e4])
@pytest.mark.parametrize("kind", ["sigmoid", "hinge", "robust"])
def test_dpo_is_linear_far_from_the_reference(kind, delta):
    value, found = jax.value_and_grad(functools.partial(dpo, beta=0.5, kind=kind))(
        delta
    )
    close(value, 0.0 if delta > 0 else 5000.0, rtol=1e-3)
    close(found, 0.0 if delta > 0 else -0.5)


def test_ipo_is_zero_at_its_target():
    target = jnp.array(1 / (2 * 0.25))
    loss = functools.partial(dpo, beta=0.25, kind="ipo")
    close(loss(target), 0.0)
    close(jax.grad(loss)(target), 0.0)


def test_smoothed_dpo_has_its_minimum_at_the_probability_of_the_label():
    # cDPO: the optimum has σ(β Δ) = 1 - ε.
    optimum = jnp.log(0.8 / 0.2) / 0.5
    loss = functools.partial(dpo, beta=0.5, label_smoothing=0.2)
    close(jax.grad(loss)(optimum), 0.0)


def test_robust_dpo_is_unbiased_under_flipped_labels():
    robust = functools.partial(dpo, kind="robust", beta=0.5, label_smoothing=0.2)
    mean = 0.8 * robust(DELTAS) + 0.2 * robust(-DELTAS)
    close(mean, dpo(DELTAS, beta=0.5))


def test_without_smoothing_robust_dpo_is_plain():
    close(dpo(DELTAS, kind="robust"), dpo(DELTAS))


def test_simpo_is_dpo_of_means_with_a_margin():
    means = -jnp.exp(DELTAS)
    found = rlaxlib.simpo_loss(means, means - 1.0, beta=2.0, margin=0.5)
    close(found, dpo(jnp.full(5, 1.0 - 0.25), beta=2.0))


def test_orpo_is_finite_with_its_gradient_for_certain_answers():
    loss = rlaxlib.orpo_loss
    for chosen in (0.0, -1e-8, -80.0):
        value, found = jax.value_and_grad(loss)(jnp.float32(chosen), jnp.float32(-1.0))
        assert np.isfinite([value, found]).all()
    # At a probability of 1 the derivative of the second term is minus the other's odds.
    found = jax.grad(functools.partial(loss, coefficient=1.0))(0.0, jnp.log(0.75))
    close(found, -1.0 - 3.0)


def test_orpo_without_a_coefficient_is_the_supervised_loss():
    means = -jnp.exp(DELTAS)
    close(rlaxlib.orpo_loss(means, means - 1, coefficient=0.0), -means)


# --- Answers that are desirable or not. ---


def test_kto_raises_desirable_and_lowers_undesirable_answers():
    desirable = jnp.array([True, False, True, False, True])

    def loss(log_prob):
        return rlaxlib.kto_loss(log_prob, jnp.zeros(5), desirable, 0.5)

    np.testing.assert_array_equal(gradient(loss, DELTAS) < 0, desirable)


def test_kto_reference_point_is_not_negative_and_has_no_gradient():
    desirable = jnp.ones(5, bool)

    def loss(kl):
        return rlaxlib.kto_loss(DELTAS, jnp.zeros(5), desirable, kl)

    close(loss(-3.0), loss(0.0))
    np.testing.assert_array_equal(gradient(loss, jnp.array(0.7)), 0.0)


def test_kto_is_bounded_for_extreme_answers():
    extreme, desirable = jnp.array([-1e5, 1e5]), jnp.array([True, False])

    def loss(log_prob):
        return rlaxlib.kto_loss(log_prob, jnp.zeros(2), desirable, 0.0)

    close(loss(extreme), 1.0)
    close(gradient(loss, extreme), 0.0)


# --- Reward models. ---


def test_bradley_terry_gradients_are_opposite_and_centred_rewards_sum_to_zero():
    by_chosen, by_rejected = jax.grad(rlaxlib.bradley_terry_loss, (0, 1))(1.0, 0.5)
    close(by_chosen, -by_rejected)
    close(by_chosen, -jax.nn.sigmoid(-0.5))
    centred = functools.partial(rlaxlib.bradley_terry_loss, centering=0.1)
    by_chosen, by_rejected = jax.grad(centred, (0, 1))(2.0, -2.0)
    close(by_chosen, -by_rejected)


def test_bradley_terry_is_finite_for_extreme_rewards():
    value, found = jax.value_and_grad(rlaxlib.bradley_terry_loss)(-1e4, 1e4)
    close(value, 2e4)
    close(found, -1.0)


# --- Distillation. ---


@pytest.mark.parametrize("top_k", [None, 3])
@pytest.mark.parametrize("beta", [0.0, 0.2, 1.0])
def test_divergence_is_zero_only_for_equal_distributions(beta, top_k):
    function = functools.partial(rlaxlib.generalized_jsd, beta=beta, top_k=top_k)
    assert function(STUDENT, TEACHER) > 0.01
    close(function(TEACHER + 5.0, TEACHER), 0.0, atol=1e-6)
    close(gradient(function, TEACHER + 5.0, TEACHER), 0.0, atol=1e-6)


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_divergence_of_close_distributions_is_precise(beta):
    student = TEACHER + 1e-3 * STUDENT
    found = rlaxlib.generalized_jsd(student, TEACHER, beta)
    with x64(True):
        inputs = (jnp.asarray(x, jnp.float64) for x in (student, TEACHER))
        close(found, rlaxlib.generalized_jsd(*inputs, beta), rtol=1e-3, atol=0)


def test_limits_are_forward_and_reverse_kl():
    small = 1e-3
    forward = kl(TEACHER, STUDENT)
    close(rlaxlib.generalized_jsd(STUDENT, TEACHER, 0.0), forward)
    found = rlaxlib.generalized_jsd(STUDENT, TEACHER, small) / small
    close(found, forward, rtol=1e-2)
    reverse = kl(STUDENT, TEACHER)
    close(rlaxlib.generalized_jsd(STUDENT, TEACHER, 1.0), reverse)
    found = rlaxlib.generalized_jsd(STUDENT, TEACHER, 1 - small) / small
    close(found, reverse, rtol=1e-2)


def test_gradients_at_the_limits_are_those_of_the_kl():
    forward = functools.partial(rlaxlib.generalized_jsd, beta=0.0)
    close(gradient(forward, STUDENT, TEACHER), jax.grad(kl, 1)(TEACHER, STUDENT))
    reverse = functools.partial(rlaxlib.generalized_jsd, beta=1.0)
    close(gradient(reverse, STUDENT, TEACHER), jax.grad(kl)(STUDENT, TEACHER))


def test_jensen_shannon_divergence_is_symmetric_and_at_most_log_two():
    one = rlaxlib.generalized_jsd(STUDENT, TEACHER, 0.5)
    close(one, rlaxlib.generalized_jsd(TEACHER, STUDENT, 0.5))
    far = 1e3 * jnp.eye(7)
    close(rlaxlib.generalized_jsd(far[0], far[1], 0.5), jnp.log(2.0))


def test_a_traced_weight_gives_the_same():
    for beta in (0.0, 0.3, 1.0):
        traced = jax.jit(rlaxlib.generalized_jsd)(STUDENT, TEACHER, beta)
        close(traced, rlaxlib.generalized_jsd(STUDENT, TEACHER, beta))


@pytest.mark.parametrize("top_k", [None, 2])
@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_tokens_impossible_for_both_change_nothing(beta, top_k):
    bad = jnp.full(3, -jnp.inf)
    function = functools.partial(rlaxlib.generalized_jsd, beta=beta, top_k=top_k)
    student, teacher = (jnp.append(x[:3], bad) for x in (STUDENT, TEACHER))
    close(function(student, teacher), function(STUDENT[:3], TEACHER[:3]))
    assert np.isfinite(gradient(function, student, teacher)).all()
    top_two = jnp.where(jnp.arange(7) < 2, 0.0, -jnp.inf)
    assert np.isfinite(gradient(function, top_two, top_two)).all()


@pytest.mark.parametrize("beta", [0.3, 1.0])
def test_gradients_are_finite_for_tokens_impossible_for_the_student(beta):
    student = STUDENT.at[2].set(-jnp.inf)
    function = functools.partial(rlaxlib.generalized_jsd, beta=beta)
    assert np.isfinite(function(student, TEACHER))
    assert np.isfinite(gradient(function, student, TEACHER)).all()


@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_gradients_are_finite_for_tokens_impossible_for_the_teacher(beta):
    teacher = TEACHER.at[2].set(-jnp.inf)
    function = functools.partial(rlaxlib.generalized_jsd, beta=beta)
    assert np.isfinite(function(STUDENT, teacher))
    assert np.isfinite(gradient(function, STUDENT, teacher)).all()


def test_top_k_is_a_lower_bound_that_grows_to_the_whole():
    for beta in (0.0, 0.3, 1.0):
        bounds = [
            rlaxlib.generalized_jsd(STUDENT, TEACHER, beta, top_k=k)
            for k in range(1, 7)
        ]
        whole = rlaxlib.generalized_jsd(STUDENT, TEACHER, beta)
        assert np.all(np.diff(bounds) > -1e-6)
        close(bounds[-1], whole)


def test_tokens_outside_the_top_k_have_a_gradient():
    function = functools.partial(rlaxlib.generalized_jsd, top_k=2)
    assert np.all(gradient(function, STUDENT, TEACHER) != 0)


def test_teacher_has_no_gradient():
    found = jax.grad(rlaxlib.generalized_jsd, 1)(STUDENT, TEACHER)
    np.testing.assert_array_equal(found, 0.0)
