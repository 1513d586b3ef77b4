"""Test the policy-gradient losses: identities, masks of actions and extreme inputs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close, make_stream

import rlaxlib

STREAM = make_stream(steps=5)
LOGITS, Q = STREAM["q_tm1"], STREAM["q_t"]
ACTIONS, ADVANTAGES, WEIGHTS = STREAM["a_t"], STREAM["r_t"], STREAM["discount_t"]
PI = jax.nn.softmax(LOGITS)


# --- Identities. ---


def test_loss_of_logits_equals_loss_of_log_probabilities():
    def from_log_probs(logits):
        log_probs = rlaxlib.batched_index(jax.nn.log_softmax(logits), ACTIONS)
        return jnp.mean(WEIGHTS * rlaxlib.reinforce_loss(log_probs, ADVANTAGES))

    def from_logits(logits):
        return rlaxlib.policy_gradient_loss(logits, ACTIONS, ADVANTAGES, WEIGHTS)

    jax.tree.map(
        close,
        jax.value_and_grad(from_logits)(LOGITS),
        jax.value_and_grad(from_log_probs)(LOGITS),
    )


def test_qpg_gradient_is_the_expected_policy_gradient():
    def expected(logits):
        advantages = Q - jnp.sum(PI * Q, axis=-1, keepdims=True)
        log_pi = jax.nn.log_softmax(logits)
        return -jnp.mean(jnp.sum(PI * advantages * log_pi, axis=-1))

    close(jax.grad(rlaxlib.qpg_loss)(LOGITS, Q), jax.grad(expected)(LOGITS))


def test_qpg_baseline_is_always_stopped():
    gradient = jax.grad(rlaxlib.qpg_loss, argnums=(0, 1))
    stopped, free = gradient(LOGITS, Q, True), gradient(LOGITS, Q, False)
    np.testing.assert_array_equal(free[0], stopped[0])
    np.testing.assert_array_equal(stopped[1], 0.0)
    close(free[1], -PI / 5)


def test_entropy_loss_is_minimal_for_the_uniform_policy():
    uniform = rlaxlib.entropy_loss(jnp.zeros((5, 4)), jnp.ones(5))
    close(uniform, -np.log(4))
    assert rlaxlib.entropy_loss(LOGITS, jnp.ones(5)) > uniform


def test_reinforce_needs_actions_without_gradient():
    noise = jax.random.normal(jax.random.key(0), (1000,))

    def loss(mu, stop):
        action = mu + noise
        action = jax.lax.stop_gradient(action) if stop else action
        log_prob = -0.5 * (action - mu) ** 2
        return jnp.mean(rlaxlib.reinforce_loss(log_prob, action))

    # The return is the action: the gradient of its mean is 1, that of the loss -1.
    np.testing.assert_allclose(jax.grad(loss)(0.0, True), -1.0, atol=0.1)
    assert jax.grad(loss)(0.0, False) == 0.0


# --- Masks of legal actions. ---


@pytest.mark.parametrize(
    "loss",
    [
        lambda logits, q, **mask: rlaxlib.policy_gradient_loss(
            logits, jnp.zeros(5, int), ADVANTAGES, WEIGHTS, **mask
        ),
        lambda logits, q, **mask: rlaxlib.entropy_loss(logits, WEIGHTS, **mask),
        rlaxlib.qpg_loss,
        rlaxlib.rm_loss,
        rlaxlib.rpg_loss,
    ],
    ids=["policy_gradient", "entropy", "qpg", "rm", "rpg"],
)
def test_masking_an_action_equals_removing_it(loss):
    mask = jnp.broadcast_to(jnp.arange(4) < 3, (5, 4))
    q = jnp.where(mask, Q, jnp.nan)
    value, gradient = jax.value_and_grad(loss)(LOGITS, q, action_mask=mask)
    expected, expected_gradient = jax.value_and_grad(loss)(LOGITS[:, :3], Q[:, :3])
    close(value, expected)
    close(gradient[:, :3], expected_gradient)
    np.testing.assert_array_equal(gradient[:, 3], 0.0)


# --- Extreme inputs. ---


@pytest.mark.parametrize(("adv", "weight"), [(0.0, 1.0), (1.0, 0.0)])
def test_impossible_action_of_weight_zero_has_zero_loss_and_gradient(adv, weight):
    def loss(logits):
        actions, adv_t, w_t = jnp.array([1]), jnp.full(1, adv), jnp.full(1, weight)
        log_prob_t = jax.nn.log_softmax(logits)[:, 1]
        masked = rlaxlib.reinforce_loss(log_prob_t, adv_t, sample_mask=w_t != 0)
        mean = rlaxlib.policy_gradient_loss(logits, actions, adv_t, w_t)
        return mean + jnp.sum(masked)

    value, gradient = jax.value_and_grad(loss)(jnp.array([[0.0, -jnp.inf]]))
    assert value == 0
    np.testing.assert_array_equal(gradient, 0.0)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
@pytest.mark.parametrize("dqda", [1e-4, 1e-2, 1.0])
def test_gradient_by_the_action_is_exactly_minus_dqda(dtype, dqda):
    a_t, dqda_t = jnp.full(3, 100.0, dtype), jnp.full(3, dqda, dtype)
    gradient = jax.grad(lambda a: jnp.sum(rlaxlib.dpg_loss(a, dqda_t)))(a_t)
    np.testing.assert_array_equal(gradient, -dqda_t)


@pytest.mark.parametrize("clipping", [0.0, 1e-30, 1e-12, 1.0, 1e10, 1e30, np.inf])
def test_dqda_of_any_magnitude_is_clipped_by_its_norm(clipping):
    magnitudes = np.array([1e30, 1e25, 1.0, 1e-15, 1e-25, 1e-30])
    dqda_t = magnitudes[:, None] * np.array([3.0, -1.0, 0.5])

    @jax.jit
    @jax.vmap
    def clip(dqda_t):
        def loss(a_t):
            return jnp.sum(rlaxlib.dpg_loss(a_t, dqda_t, clipping))

        return -jax.grad(loss)(jnp.zeros(3))

    found = clip(jnp.asarray(dqda_t, jnp.float32))
    norms = np.linalg.norm(dqda_t, axis=-1, keepdims=True)
    definition = dqda_t * np.minimum(1.0, clipping / norms)
    np.testing.assert_allclose(found, definition, rtol=1e-6)


def test_half_precision_dqda_does_not_overflow_its_norm():
    dqda_t = jnp.array([3e4, -4e4], jnp.float16)
    loss = rlaxlib.dpg_loss(jnp.zeros(2, jnp.float16), dqda_t, 5.0)
    np.testing.assert_array_equal(loss, jnp.array([4.5, 8.0], jnp.float16))


@pytest.mark.parametrize("clipping", [0.0, 1.0, np.inf])
def test_clipping_a_zero_dqda_gives_zero_loss_and_gradient(clipping):
    def loss(a_t, dqda_t):
        return jnp.sum(rlaxlib.dpg_loss(a_t, dqda_t, clipping, False))

    value, gradient = jax.value_and_grad(loss, argnums=(0, 1))(
        jnp.ones(2), jnp.zeros(2)
    )
    assert value == 0
    np.testing.assert_array_equal(gradient, jnp.zeros((2, 2)))
