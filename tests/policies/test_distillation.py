"""Test policy distillation, with distribution objects of several libraries."""

import contextlib
import functools

import contract
import jax
import jax.numpy as jnp
import numpy as np
import peers
import pytest
from experience import close
from rows.policies.distillation import LOG_PROBS, Categorical

import rlaxlib

LOGITS = np.asarray(LOG_PROBS, np.float32)
KEY = jax.random.key(0)


def distrax_categorical():
    return peers.find("distrax").Categorical(logits=LOGITS)


def distrax_normal():
    distrax = peers.find("distrax")
    return distrax.MultivariateNormalDiag(LOGITS, np.full_like(LOGITS, 2.0))


def tensorflow_probability_normal():
    tfd = peers.find("tensorflow_probability.substrates.jax.distributions")
    return tfd.MultivariateNormalDiag(LOGITS, np.full_like(LOGITS, 2.0))


def our_own():
    return Categorical(LOGITS)


@contextlib.contextmanager
def as_jax_comes():
    """Let the distributions of other libraries promote and broadcast."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


POLICIES = [our_own, distrax_categorical, tensorflow_probability_normal]
each_policy = pytest.mark.parametrize("make", POLICIES)


# --- Targets and losses. ---


@each_policy
def test_any_distribution_object_can_be_distilled(make):
    policy = make()

    @jax.jit
    def distil():
        targets = rlaxlib.constant_policy_targets(policy, KEY, 3, 0.5)
        found = rlaxlib.sampled_policy_distillation_loss(policy, targets)
        rows = [policy.log_prob(actions) for actions in targets.actions]
        zero = rlaxlib.zero_policy_targets(policy, KEY, 3)
        return targets, found, rows, zero, policy.sample(seed=KEY, sample_shape=(3,))

    with as_jax_comes():
        targets, found, rows, zero, samples = distil()
    assert targets.actions.shape[:2] == targets.weights.shape == (3, 2)
    np.testing.assert_array_equal(targets.weights, 0.5)
    close(found, -0.5 * np.mean(rows))
    np.testing.assert_array_equal(zero.actions, samples)
    np.testing.assert_array_equal(zero.weights, np.zeros((3, 2)))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_weights_have_the_dtype_of_log_probabilities(dtype):
    for x64 in (False, True):
        with contract.x64(x64):
            policy = Categorical(LOGITS.astype(dtype))
            targets = jax.eval_shape(
                lambda policy: rlaxlib.constant_policy_targets(policy, KEY, 3), policy
            )
        assert targets.weights.dtype == dtype


def test_samples_need_no_axis_of_their_own():
    targets = rlaxlib.PolicyTarget(np.array([0, 3]), np.array([0.5, 1.0]))
    loss = jax.jit(rlaxlib.sampled_policy_distillation_loss)(our_own(), targets)
    close(loss, -(0.5 * LOGITS[0, 0] + LOGITS[1, 3]) / 2)


def test_loss_is_minimal_for_the_policy_that_constant_targets_are_sampled_from():
    uniform = Categorical(jnp.full((2, 4), np.log(0.25)))

    @jax.jit
    @jax.value_and_grad
    def loss(logits):
        targets = rlaxlib.constant_policy_targets(uniform, KEY, 20_000)
        policy = Categorical(jax.nn.log_softmax(logits))
        return rlaxlib.sampled_policy_distillation_loss(policy, targets)

    lowest, gradient = loss(np.zeros((2, 4), np.float32))
    np.testing.assert_allclose(gradient, 0.0, atol=5e-3)
    assert lowest < loss(LOGITS)[0]


def test_gradient_of_actions_and_weights_stops_if_the_flag_is_set():
    policy = distrax_normal()

    def loss(targets, stop):
        return rlaxlib.sampled_policy_distillation_loss(policy, targets, stop)

    @jax.jit
    def gradients():
        targets = rlaxlib.constant_policy_targets(policy, KEY, 3)
        return [jax.grad(loss)(targets, stop) for stop in (True, False)]

    with as_jax_comes():
        stopped, free = gradients()
    for name in ("actions", "weights"):
        assert not np.any(getattr(stopped, name))
        assert np.any(getattr(free, name))


def test_distribution_need_not_broadcast():
    policy = distrax_normal()
    actions = np.zeros((3, *LOGITS.shape), np.float32)
    targets = rlaxlib.PolicyTarget(actions, np.ones((3, 2), np.float32))
    with jax.numpy_dtype_promotion("standard"):
        loss = functools.partial(rlaxlib.sampled_policy_distillation_loss, policy)
        jax.eval_shape(loss, targets)


# --- Extreme inputs, and the data class. ---


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.float32])
def test_an_impossible_action_adds_nothing_without_weight(dtype):
    policy = Categorical(jnp.asarray(np.array([0.0, -np.inf], dtype)))
    targets = rlaxlib.PolicyTarget(np.array([0, 1]), np.array([1.0, 0.0], dtype))
    learn = jax.jit(rlaxlib.sampled_policy_distillation_loss)
    assert learn(policy, targets) == 0
    targets = targets.replace(weights=np.array([1.0, 0.5], dtype))
    assert learn(policy, targets) > 60000  # More is infinite in float16.


def test_policy_target_is_an_immutable_pytree():
    targets = rlaxlib.PolicyTarget(actions=np.zeros(2, int), weights=np.ones(2))
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
            lambda: rlaxlib.sampled_policy_distillation_loss(
                our_own(),
                rlaxlib.PolicyTarget(np.zeros((3, 2), int), np.ones((4, 2))),
            ),
            r"`policy_targets.weights` has shape \(4, 2\), must be \(3, 2\) to match",
        ),
        (
            lambda: rlaxlib.sampled_policy_distillation_loss(
                Categorical(LOGITS[0]),
                rlaxlib.PolicyTarget(np.zeros(3, int), np.ones((3, 2, 5))),
            ),
            r"`policy_targets.weights` has shape \(3, 2, 5\), must be \(3,\) to match",
        ),
    ],
)
def test_errors_name_the_argument_and_its_shape(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        jax.eval_shape(call)
