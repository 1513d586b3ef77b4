"""Test the policy gradients: how the losses relate, and what they do at extremes."""

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


# --- How the functions relate. ---


def test_the_loss_for_logits_is_that_for_log_probabilities():
    def from_log_probs(logits):
        log_probs = rlaxlib.batched_index(jax.nn.log_softmax(logits), ACTIONS)
        return rlaxlib.score_function_loss(log_probs, ADVANTAGES, WEIGHTS)

    def from_logits(logits):
        return rlaxlib.policy_gradient_loss(logits, ACTIONS, ADVANTAGES, WEIGHTS)

    for one, other in zip(
        jax.value_and_grad(from_logits)(LOGITS),
        jax.value_and_grad(from_log_probs)(LOGITS),
        strict=True,
    ):
        close(one, other)


def test_all_actions_at_once_are_what_one_action_is_on_average():
    def expected(logits):
        each = jax.vmap(
            lambda a: rlaxlib.batched_index(jax.nn.log_softmax(logits), jnp.full(5, a))
        )(jnp.arange(4))
        advantages = Q - jnp.sum(PI * Q, axis=-1, keepdims=True)
        return -jnp.mean(jnp.sum(PI * advantages * each.T, axis=-1))

    close(jax.grad(rlaxlib.qpg_loss)(LOGITS, Q), jax.grad(expected)(LOGITS))


def test_the_entropy_loss_is_lowest_where_all_actions_are_as_likely():
    uniform = rlaxlib.entropy_loss(jnp.zeros((5, 4)), jnp.ones(5))
    close(uniform, -np.log(4))
    assert rlaxlib.entropy_loss(LOGITS, jnp.ones(5)) > uniform


def test_each_step_that_is_clipped_gains_from_wider_bounds_what_it_weighs():
    ratios = jnp.array([0.5, 0.5, 1.0, 1.0, 2.0, 2.0])
    advantages = jnp.array([3.0, -5.0, 7.0, -11.0, 13.0, -17.0])
    slope = jax.grad(rlaxlib.clipped_surrogate_pg_loss, argnums=2)
    close(slope(ratios, advantages, 0.25), -(5.0 + 13.0) / 6)


def test_without_room_to_move_the_surrogate_gains_nothing():
    ratios = jnp.array([0.5, 2.0, 0.5, 2.0])
    advantages = jnp.array([1.0, 1.0, -1.0, -1.0])
    gradient = jax.grad(rlaxlib.clipped_surrogate_pg_loss)(ratios, advantages, 0.1)
    np.testing.assert_array_equal(gradient, [-0.25, 0.0, 0.0, 0.25])


@pytest.mark.parametrize("ratio", [0.8, 1.2])
def test_at_the_edge_of_the_surrogate_the_gradient_is_whole(ratio):
    slope = jax.grad(rlaxlib.clipped_surrogate_pg_loss)
    for advantage in (1.0, -1.0):
        found = slope(jnp.array([ratio]), jnp.array([advantage]), 0.2)
        np.testing.assert_array_equal(found, [-advantage])


def test_baseline_held_constant_lets_action_values_learn():
    gradient = jax.grad(rlaxlib.qpg_loss, argnums=(0, 1))
    stopped, free = gradient(LOGITS, Q, True), gradient(LOGITS, Q, False)
    np.testing.assert_array_equal(free[0], stopped[0])
    np.testing.assert_array_equal(stopped[1], 0.0)
    close(free[1], -PI / 5)


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
def test_an_illegal_action_is_as_good_as_not_there(loss):
    mask = jnp.arange(4) < 3
    rows = jnp.broadcast_to(mask, (5, 4))
    q = jnp.where(rows, Q, jnp.nan)
    value, gradient = jax.value_and_grad(loss)(LOGITS, q, mask=rows)
    expected, expected_gradient = jax.value_and_grad(loss)(LOGITS[:, :3], Q[:, :3])
    close(value, expected)
    close(gradient[:, :3], expected_gradient)
    np.testing.assert_array_equal(gradient[:, 3], 0.0)


# --- Extremes. ---


def test_an_impossible_action_without_advantage_is_no_loss():
    logits = jnp.array([[0.0, -jnp.inf]])
    value, gradient = jax.value_and_grad(rlaxlib.policy_gradient_loss)(
        logits, jnp.array([1]), jnp.zeros(1), jnp.ones(1)
    )
    assert value == 0
    np.testing.assert_array_equal(gradient, 0.0)


def test_an_infinite_ratio_without_advantage_is_no_loss():
    ratios, advantages = jnp.array([jnp.inf]), jnp.zeros(1)
    loss, gradient = jax.value_and_grad(rlaxlib.clipped_surrogate_pg_loss)(
        ratios, advantages, 0.2
    )
    assert loss == 0
    np.testing.assert_array_equal(gradient, 0.0)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
@pytest.mark.parametrize("slope", [1e-4, 1e-2, 1.0])
def test_the_gradient_of_an_action_is_exactly_the_slope(dtype, slope):
    a_t, dqda_t = jnp.full(3, 100.0, dtype), jnp.full(3, slope, dtype)
    gradient = jax.grad(lambda a: jnp.sum(rlaxlib.dpg_loss(a, dqda_t)))(a_t)
    np.testing.assert_array_equal(gradient, -dqda_t)


@pytest.mark.parametrize(
    ("dtype", "size"), [(jnp.float16, 3e4), (jnp.float32, 1e30), (jnp.float32, 1e-30)]
)
def test_a_slope_of_any_size_is_shortened_to_length(dtype, size):
    dqda_t = jnp.array([3 * size, -4 * size] if size < 1e4 else [size, 0.0], dtype)
    clipping = float(jnp.max(jnp.abs(dqda_t))) / 2
    gradient = jax.grad(lambda a: jnp.sum(rlaxlib.dpg_loss(a, dqda_t, clipping)))(
        jnp.zeros(2, dtype)
    )
    length = np.linalg.norm(np.asarray(gradient, np.float64))
    np.testing.assert_allclose(length, clipping, rtol=2e-3)


@pytest.mark.parametrize("clipping", [0.0, 1e-30, 1e-12, 1.0, 1e10, 1e37, np.inf])
@pytest.mark.parametrize("size", [5e37, 1e25, 1.0, 1e-15, 1e-29])
@pytest.mark.parametrize("jit", [jax.jit, lambda function: function])
def test_a_slope_keeps_its_direction(jit, size, clipping):
    dqda_t = size * np.array([3.0, -1.0, 0.5])
    loss = jit(lambda a: rlaxlib.dpg_loss(a, jnp.float32(dqda_t), clipping))
    shortened = -jax.jacobian(loss)(jnp.zeros(3)).sum(0)
    definition = dqda_t * min(1.0, clipping / np.linalg.norm(dqda_t))
    np.testing.assert_allclose(shortened, definition, rtol=1e-6)


def test_no_slope_is_clipped_to_none():
    for clipping in (0.0, 1.0, jnp.inf):
        loss = rlaxlib.dpg_loss(jnp.ones(2), jnp.zeros(2), clipping)
        np.testing.assert_array_equal(loss, 0.0)


def test_a_sampled_action_must_not_carry_a_gradient():
    noise = jax.random.normal(jax.random.key(0), (1000,))

    def loss(mu, stop):
        action = mu + noise
        action = jax.lax.stop_gradient(action) if stop else action
        log_prob = -0.5 * (action - mu) ** 2
        return rlaxlib.score_function_loss(log_prob, action, jnp.ones(1000))

    # The return is the action itself: its gradient is 1, and the loss is its negative.
    np.testing.assert_allclose(jax.grad(loss)(0.0, True), -1.0, atol=0.1)
    assert jax.grad(loss)(0.0, False) == 0.0


# --- What the functions refuse. ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: rlaxlib.clipped_surrogate_pg_loss(jnp.ones(2), jnp.ones(2), -0.1),
            r"`epsilon` must lie in \[0, inf\), but is -0.1",
        ),
        (
            lambda: rlaxlib.dpg_loss(jnp.ones(2), jnp.ones(2), -1.0),
            r"`dqda_clipping` must lie in \[0, inf\], but is -1.0",
        ),
        (
            lambda: rlaxlib.policy_gradient_loss(
                jnp.ones((1, 2)), jnp.array([5]), jnp.ones(1), jnp.ones(1)
            ),
            r"`a_t` must be one of 2, from 0 to 1, but is 5",
        ),
        (
            lambda: rlaxlib.qpg_loss(jnp.ones((2, 3)), jnp.ones((1, 3))),
            r"`q_t` is float32\[1, 3\], .* T = 2, A = 3",
        ),
    ],
)
def test_says_what_is_wrong(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        call()
