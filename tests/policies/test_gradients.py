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


# --- COMA and ACER. ---

MU = jax.nn.log_softmax(-LOGITS)


def acer(logits, *arguments, **settings):
    return jnp.mean(rlaxlib.acer_policy_loss(logits, MU, *arguments, **settings))


def test_counterfactual_advantages_have_a_mean_of_zero():
    every = [jnp.full(5, a) for a in range(4)]
    adv = [rlaxlib.counterfactual_advantage(Q, PI, a_t) for a_t in every]
    close(jnp.sum(PI * jnp.stack(adv, axis=1), axis=1), jnp.zeros(5))
    close(adv[1] - adv[0], Q[:, 1] - Q[:, 0])


@pytest.mark.parametrize("max_weight", [0.0, 0.5, 1.0, 10.0, np.inf])
def test_expected_acer_gradient_is_that_of_all_actions_for_any_truncation(max_weight):
    def expected(logits):
        losses = [
            rlaxlib.acer_policy_loss(logits, MU, jnp.full(5, a), Q, Q[:, a], max_weight)
            for a in range(4)
        ]
        return jnp.mean(jnp.sum(jnp.exp(MU) * jnp.stack(losses, axis=1), axis=1))

    close(jax.grad(expected)(LOGITS), jax.grad(rlaxlib.qpg_loss)(LOGITS, Q))


def test_acer_truncates_the_weight_of_the_action_taken():
    def gradient(max_weight):
        return jax.grad(acer)(LOGITS, ACTIONS, 0 * Q, ADVANTAGES, max_weight)

    weights = rlaxlib.categorical_importance_sampling_ratios(LOGITS, MU, ACTIONS)
    assert 0 < jnp.sum(weights > 0.75) < 5
    for max_weight in (0.75, jnp.inf):
        expected = jax.grad(rlaxlib.policy_gradient_loss)(
            LOGITS, ACTIONS, ADVANTAGES, jnp.minimum(max_weight, weights)
        )
        close(gradient(max_weight), expected)


def test_acer_on_policy_is_the_policy_gradient():
    advantages = rlaxlib.counterfactual_advantage(Q, PI, ACTIONS)
    found = rlaxlib.acer_policy_loss(
        LOGITS, LOGITS, ACTIONS, Q, rlaxlib.batched_index(Q, ACTIONS)
    )
    log_prob_t = rlaxlib.batched_index(jax.nn.log_softmax(LOGITS), ACTIONS)
    close(found, rlaxlib.reinforce_loss(log_prob_t, advantages))


def test_acer_corrects_for_actions_that_the_behaviour_never_takes():
    mu_logits = jnp.full((5, 4), -jnp.inf).at[:, 1].set(0.0)
    taken = jnp.ones(5, int), Q, Q[:, 1]

    def loss(logits, max_weight):
        losses = rlaxlib.acer_policy_loss(logits, mu_logits, *taken, max_weight)
        return jnp.mean(losses)

    for max_weight in (1.0, jnp.inf):
        found = jax.grad(loss)(LOGITS, max_weight)
        close(found, jax.grad(rlaxlib.qpg_loss)(LOGITS, Q))


@pytest.mark.parametrize("padding", [[False] * 4, [False, True, True, True]])
def test_acer_ignores_the_legal_actions_of_invalid_steps(padding):
    valid = jnp.array([True, False, True, True, True])
    legal = jnp.ones((5, 4), bool).at[1].set(jnp.array(padding))
    arguments = LOGITS, MU, jnp.zeros(5, int), Q, ADVANTAGES
    found = rlaxlib.acer_policy_loss(*arguments, action_mask=legal, sample_mask=valid)
    close(found, rlaxlib.acer_policy_loss(*arguments, sample_mask=valid))


def test_acer_ignores_invalid_steps_and_illegal_actions():
    valid = jnp.array([True, False, True, True, True])
    legal = jnp.broadcast_to(jnp.arange(4) < 3, (5, 4))
    actions = jnp.minimum(ACTIONS, 2)

    def total(logits, mu_logits, q, returns, **masks):
        arguments = logits, mu_logits, actions[: len(q)], q, returns, 0.5
        losses = rlaxlib.acer_policy_loss(
            *arguments, stop_target_gradients=False, **masks
        )
        return jnp.sum(losses)

    found = jax.grad(total, argnums=(0, 2, 3))(
        jnp.where(valid[:, None], LOGITS, jnp.nan),
        MU,
        jnp.where(valid[:, None] & legal, Q, jnp.inf),
        jnp.where(valid, ADVANTAGES, jnp.nan),
        action_mask=legal,
        sample_mask=valid,
    )
    parts = LOGITS[:, :3], MU[:, :3], Q[:, :3], ADVANTAGES
    expected = jax.grad(total, argnums=(0, 2, 3))(*parts, sample_mask=valid)
    for one, other in zip(found, expected, strict=True):
        close(one[:, :3] if one.ndim == 2 else one, other)
        assert not np.any(one[1])
    nowhere = jnp.zeros((5, 4), bool)
    assert total(LOGITS, MU, Q, ADVANTAGES, action_mask=nowhere) == 0


# --- Masks of legal actions. ---


@pytest.mark.parametrize(
    "loss",
    [
        lambda logits, q, **mask: rlaxlib.policy_gradient_loss(
            logits, jnp.zeros(5, int), ADVANTAGES, WEIGHTS, **mask
        ),
        lambda logits, q, **mask: rlaxlib.entropy_loss(logits, WEIGHTS, **mask),
        lambda logits, q, **mask: jnp.sum(
            rlaxlib.counterfactual_advantage(
                q,
                rlaxlib.softmax().probs(logits, action_mask=mask.get("action_mask")),
                jnp.zeros(5, int),
                **mask,
            )
        ),
        rlaxlib.qpg_loss,
        rlaxlib.rm_loss,
        rlaxlib.rpg_loss,
    ],
    ids=["policy_gradient", "entropy", "counterfactual", "qpg", "rm", "rpg"],
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


# --- Bounded actions. ---


def test_inverted_gradients_keep_an_ascending_action_within_its_bounds():
    def ascend(a_t, _):
        def loss(a_t):
            dqda_t = rlaxlib.invert_gradients(a_t, jnp.array([3.0, -3.0]), -2.0, 2.0)
            return jnp.sum(rlaxlib.dpg_loss(a_t, dqda_t))

        a_t = a_t - 0.1 * jax.grad(loss)(a_t)
        return a_t, a_t

    for start in (0.0, 5.0):
        end, path = jax.lax.scan(ascend, jnp.array([start, start]), length=200)
        close(end, [2.0, -2.0], atol=1e-3)
        assert jnp.all(jnp.abs(path) <= max(2.0, start))


def test_inverted_gradient_is_zero_at_the_bound_and_whole_at_the_other():
    a_t, dqda_t = jnp.array([1.0, -1.0, 1.0, -1.0]), jnp.array([5.0, -5.0, -5.0, 5.0])
    found = rlaxlib.invert_gradients(a_t, dqda_t, -1.0, 1.0)
    np.testing.assert_array_equal(found, [0.0, 0.0, -5.0, 5.0])
