"""Test policy distillation, with distribution objects of several libraries."""

import contextlib

import contract
import jax
import jax.numpy as jnp
import numpy as np
import peers
import pytest
from experience import close
from rows.policy_targets import LOG_PROBS, Categorical

import rlaxlib

LOGITS = jnp.asarray(LOG_PROBS, jnp.float32)
KEY = jax.random.key(0)


def distrax_categorical():
    return peers.find("distrax").Categorical(logits=LOGITS)


def distrax_normal():
    distrax = peers.find("distrax")
    return distrax.MultivariateNormalDiag(LOGITS, jnp.full_like(LOGITS, 2.0))


def tensorflow_probability_normal():
    tfd = peers.find("tensorflow_probability.substrates.jax.distributions")
    return tfd.MultivariateNormalDiag(LOGITS, jnp.full_like(LOGITS, 2.0))


def our_own():
    return Categorical(LOGITS)


@contextlib.contextmanager
def as_jax_comes():
    """Let the distributions of other libraries promote and broadcast."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


POLICIES = [
    our_own,
    distrax_categorical,
    distrax_normal,
    tensorflow_probability_normal,
]
each_policy = pytest.mark.parametrize("make", POLICIES)


# --- Targets and losses. ---


@each_policy
def test_any_distribution_object_can_be_distilled(make):
    policy = make()
    with as_jax_comes():
        targets = rlaxlib.constant_policy_targets(policy, KEY, 3, 0.5)
        found = rlaxlib.sampled_policy_distillation_loss(policy, targets)
        rows = [policy.log_prob(actions) for actions in targets.actions]
    assert targets.actions.shape[:2] == targets.weights.shape == (3, 2)
    np.testing.assert_array_equal(targets.weights, 0.5)
    close(found, -0.5 * np.mean(rows))


@each_policy
def test_zero_targets_are_samples_of_the_policy_with_weight_zero(make):
    policy = make()
    with as_jax_comes():
        expected = policy.sample(seed=KEY, sample_shape=(3,))
        targets = rlaxlib.zero_policy_targets(policy, KEY, 3)
    np.testing.assert_array_equal(targets.actions, expected)
    np.testing.assert_array_equal(targets.weights, np.zeros((3, 2)))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_weights_have_the_dtype_of_log_probabilities(dtype):
    for x64 in (False, True):
        with contract.x64(x64):
            policy = Categorical(jnp.asarray(LOG_PROBS, dtype))
            targets = rlaxlib.constant_policy_targets(policy, KEY, 3)
        assert targets.weights.dtype == dtype


def test_samples_need_no_axis_of_their_own():
    targets = rlaxlib.PolicyTarget(jnp.array([0, 3]), jnp.array([0.5, 1.0]))
    loss = rlaxlib.sampled_policy_distillation_loss(our_own(), targets)
    close(loss, -(0.5 * LOGITS[0, 0] + LOGITS[1, 3]) / 2)


def test_loss_is_minimal_for_the_policy_that_constant_targets_are_sampled_from():
    uniform = Categorical(jnp.log(jnp.full((2, 4), 0.25)))
    targets = rlaxlib.constant_policy_targets(uniform, KEY, 20_000)

    def loss(logits):
        policy = Categorical(jax.nn.log_softmax(logits))
        return rlaxlib.sampled_policy_distillation_loss(policy, targets)

    at_uniform = jax.grad(loss)(jnp.zeros((2, 4)))
    np.testing.assert_allclose(at_uniform, 0.0, atol=5e-3)
    assert loss(jnp.zeros((2, 4))) < loss(LOGITS)


def test_gradient_of_actions_and_weights_stops_if_the_flag_is_set():
    policy = distrax_normal()

    def loss(targets, stop):
        return rlaxlib.sampled_policy_distillation_loss(policy, targets, stop)

    with as_jax_comes():
        targets = rlaxlib.constant_policy_targets(policy, KEY, 3)
        stopped, free = (jax.grad(loss)(targets, stop) for stop in (True, False))
    for name in ("actions", "weights"):
        assert not np.any(getattr(stopped, name))
        assert np.any(getattr(free, name))


def test_distribution_need_not_broadcast():
    policy = distrax_normal()
    with as_jax_comes():
        targets = rlaxlib.constant_policy_targets(policy, KEY, 3)
    with jax.numpy_dtype_promotion("standard"):
        rlaxlib.sampled_policy_distillation_loss(policy, targets)


# --- Extreme inputs, and the data class. ---


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.float32])
def test_impossible_action_has_zero_loss_without_weight_and_a_finite_one_with_it(dtype):
    policy = Categorical(jnp.array([0.0, -jnp.inf], dtype))
    targets = rlaxlib.PolicyTarget(jnp.array([0, 1]), jnp.array([1.0, 0.0], dtype))
    assert rlaxlib.sampled_policy_distillation_loss(policy, targets) == 0
    targets = targets.replace(weights=jnp.array([1.0, 0.5], dtype))
    loss = rlaxlib.sampled_policy_distillation_loss(policy, targets)
    np.testing.assert_allclose(loss, -0.25 * float(jnp.finfo(dtype).min), rtol=1e-3)


def test_policy_target_is_an_immutable_pytree():
    targets = rlaxlib.PolicyTarget(actions=jnp.zeros(2, int), weights=jnp.ones(2))
    assert len(jax.tree.leaves(targets)) == 2
    doubled = jax.jit(lambda x: x.replace(weights=2 * x.weights))(targets)
    np.testing.assert_array_equal(doubled.weights, 2.0)
    with pytest.raises(AttributeError):
        targets.weights = 0.0


# --- Invalid arguments. ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: rlaxlib.constant_policy_targets(our_own(), KEY, 0),
            r"^constant_policy_targets: `num_samples` is 0, must be at least 1",
        ),
        (
            lambda: rlaxlib.sampled_policy_distillation_loss(
                our_own(),
                rlaxlib.PolicyTarget(jnp.zeros((3, 2), int), jnp.ones((4, 2))),
            ),
            r"`policy_targets.weights` has shape \(4, 2\), must be \(3, 2\) to match",
        ),
        (
            lambda: rlaxlib.sampled_policy_distillation_loss(
                Categorical(LOGITS[0]),
                rlaxlib.PolicyTarget(jnp.zeros(3, int), jnp.ones((3, 2, 5))),
            ),
            r"`policy_targets.weights` has shape \(3, 2, 5\), must be \(3,\) to match",
        ),
    ],
)
def test_errors_name_the_argument_and_its_shape(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        call()
