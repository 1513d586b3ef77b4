"""Test the policy-gradient losses: identities, masks of actions and extreme inputs."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close, make_stream
from scipy.special import log_softmax, softmax

import rlaxlib

STREAM = {name: np.asarray(x) for name, x in make_stream(steps=5).items()}
LOGITS, Q = STREAM["q_tm1"], STREAM["q_t"]
ACTIONS, ADVANTAGES, WEIGHTS = STREAM["a_t"], STREAM["r_t"], STREAM["discount_t"]
PI = softmax(LOGITS, axis=-1)


@functools.partial(jax.jit, static_argnums=0)
def gradients(function, *arguments):
    """Return the value and the gradient by the first argument."""
    return jax.value_and_grad(function)(*arguments)


# --- Identities. ---


def test_loss_of_logits_equals_loss_of_log_probabilities():
    def from_log_probs(logits):
        log_probs = rlaxlib.batched_index(jax.nn.log_softmax(logits), ACTIONS)
        return jnp.mean(WEIGHTS * rlaxlib.reinforce_loss(log_probs, ADVANTAGES))

    def from_logits(logits):
        return rlaxlib.policy_gradient_loss(logits, ACTIONS, ADVANTAGES, WEIGHTS)

    jax.tree.map(
        close, gradients(from_logits, LOGITS), gradients(from_log_probs, LOGITS)
    )


def test_qpg_gradient_is_the_expected_policy_gradient():
    def expected(logits):
        advantages = Q - np.sum(PI * Q, axis=-1, keepdims=True)
        log_pi = jax.nn.log_softmax(logits)
        return -jnp.mean(jnp.sum(PI * advantages * log_pi, axis=-1))

    _, found = gradients(rlaxlib.qpg_loss, LOGITS, Q)
    close(found, gradients(expected, LOGITS)[1])


def test_qpg_baseline_is_always_stopped():
    gradient = jax.grad(rlaxlib.qpg_loss, argnums=(0, 1))
    both = jax.jit(lambda *x: [gradient(*x, stop) for stop in (True, False)])
    stopped, free = both(LOGITS, Q)
    np.testing.assert_array_equal(free[0], stopped[0])
    np.testing.assert_array_equal(stopped[1], 0.0)
    close(free[1], -PI / 5)


def test_entropy_loss_is_minimal_for_the_uniform_policy():
    loss = jax.jit(rlaxlib.entropy_loss)
    uniform = loss(np.zeros((5, 4), np.float32), np.ones(5))
    close(uniform, -np.log(4))
    assert loss(LOGITS, np.ones(5)) > uniform


def test_reinforce_needs_actions_without_gradient():
    noise = np.random.default_rng(0).normal(size=1000).astype(np.float32)

    def loss(mu, stop):
        action = mu + noise
        action = jax.lax.stop_gradient(action) if stop else action
        log_prob = -0.5 * (action - mu) ** 2
        return jnp.mean(rlaxlib.reinforce_loss(log_prob, action))

    # The return is the action: the gradient of its mean is 1, that of the loss -1.
    both = jax.jit(lambda mu: [jax.grad(loss)(mu, stop) for stop in (True, False)])
    stopped, free = both(0.0)
    np.testing.assert_allclose(stopped, -1.0, atol=0.1)
    assert free == 0.0


# --- COMA and ACER. ---

MU = log_softmax(-LOGITS, axis=-1)
EVERY = np.tile(np.arange(4)[:, None], 5)  # Each action at all time steps.
qpg_gradient = jax.jit(jax.grad(rlaxlib.qpg_loss))


@jax.jit
def acer_gradient(logits, mu_logits, actions, q, returns, max_weight):
    def mean(logits):
        inputs = mu_logits, actions, q, returns, max_weight
        return jnp.mean(rlaxlib.acer_policy_loss(logits, *inputs))

    return jax.grad(mean)(logits)


def test_counterfactual_advantages_have_a_mean_of_zero():
    advantage = jax.jit(jax.vmap(rlaxlib.counterfactual_advantage, (None, None, 0)))
    adv = np.asarray(advantage(Q, PI, EVERY))
    close(np.sum(PI * adv.T, axis=1), np.zeros(5))
    close(adv[1] - adv[0], Q[:, 1] - Q[:, 0])


def test_expected_acer_gradient_is_that_of_all_actions_for_any_truncation():
    def expected(logits, max_weight):
        def one(a_t, returns):
            inputs = logits, MU, a_t, Q, returns, max_weight
            return rlaxlib.acer_policy_loss(*inputs)

        losses = jax.vmap(one)(EVERY, Q.T)
        return jnp.mean(jnp.sum(np.exp(MU).T * losses, axis=0))

    for max_weight in (0.0, 0.5, 1.0, 10.0, np.inf):
        _, found = gradients(expected, LOGITS, max_weight)
        close(found, qpg_gradient(LOGITS, Q))


def test_acer_truncates_the_weight_of_the_action_taken():
    taken = np.arange(5), ACTIONS
    weights = np.exp(log_softmax(LOGITS, axis=-1) - MU)[taken]
    assert 0 < np.sum(weights > 0.75) < 5
    for max_weight in (0.75, np.inf):
        inputs = ACTIONS, ADVANTAGES, np.minimum(np.float32(max_weight), weights)
        _, expected = gradients(rlaxlib.policy_gradient_loss, LOGITS, *inputs)
        inputs = MU, ACTIONS, 0 * Q, ADVANTAGES, max_weight
        close(acer_gradient(LOGITS, *inputs), expected)


def test_acer_on_policy_is_the_policy_gradient():
    returns = Q[np.arange(5), ACTIONS]

    @jax.jit
    def both():
        advantages = rlaxlib.counterfactual_advantage(Q, PI, ACTIONS)
        found = rlaxlib.acer_policy_loss(LOGITS, LOGITS, ACTIONS, Q, returns)
        log_prob_t = log_softmax(LOGITS, axis=-1)[np.arange(5), ACTIONS]
        return found, rlaxlib.reinforce_loss(log_prob_t, advantages)

    close(*both())


def test_acer_corrects_for_actions_that_the_behaviour_never_takes():
    mu_logits = np.where(np.arange(4) == 1, 0.0, np.full((5, 4), -np.inf))
    for max_weight in (1.0, np.inf):
        inputs = np.float32(mu_logits), EVERY[1], Q, Q[:, 1], max_weight
        close(acer_gradient(LOGITS, *inputs), qpg_gradient(LOGITS, Q))


@pytest.mark.parametrize("padding", [[False] * 4, [False, True, True, True]])
def test_acer_ignores_the_legal_actions_of_invalid_steps(padding):
    valid = np.array([True, False, True, True, True])
    legal = np.where(valid[:, None], True, padding)
    arguments = LOGITS, MU, np.zeros(5, int), Q, ADVANTAGES
    found = rlaxlib.acer_policy_loss(*arguments, action_mask=legal, sample_mask=valid)
    close(found, rlaxlib.acer_policy_loss(*arguments, sample_mask=valid))


def test_acer_does_without_a_ratio_where_no_policy_takes_the_action():
    logits = np.float32([[0.0, -np.inf]])
    inputs = logits, logits, np.array([1]), np.ones((1, 2), "f"), np.ones(1, "f")
    assert rlaxlib.acer_policy_loss(*inputs) == 0


def test_acer_ignores_invalid_steps_and_illegal_actions():
    valid = np.array([True, False, True, True, True])
    legal = np.broadcast_to(np.arange(4) < 3, (5, 4))
    actions = np.minimum(ACTIONS, 2)

    @jax.jit
    def evaluate(inputs, masks):
        def total(logits, mu_logits, q, returns):
            losses = rlaxlib.acer_policy_loss(
                logits,
                mu_logits,
                actions,
                q,
                returns,
                0.5,
                stop_target_gradients=False,
                **masks,
            )
            return jnp.sum(losses)

        return jax.value_and_grad(total, argnums=(0, 2, 3))(*inputs)

    spoiled = (
        np.where(valid[:, None], LOGITS, np.float32(np.nan)),
        MU,
        np.where(valid[:, None] & legal, Q, np.float32(np.inf)),
        np.where(valid, ADVANTAGES, np.float32(np.nan)),
    )
    _, found = evaluate(spoiled, {"action_mask": legal, "sample_mask": valid})
    parts = LOGITS[:, :3], MU[:, :3], Q[:, :3], ADVANTAGES
    _, expected = evaluate(parts, {"sample_mask": valid})
    for one, other in zip(map(np.asarray, found), expected, strict=True):
        close(one[:, :3] if one.ndim == 2 else one, other)
        assert not np.any(one[1])
    masks = {"action_mask": np.zeros((5, 4), bool), "sample_mask": valid}
    assert evaluate((LOGITS, MU, Q, ADVANTAGES), masks)[0] == 0


# --- Masks of legal actions. ---


LOSSES = {
    "policy_gradient": lambda logits, q, **mask: rlaxlib.policy_gradient_loss(
        logits, np.zeros(5, int), ADVANTAGES, WEIGHTS, **mask
    ),
    "entropy": lambda logits, q, **mask: rlaxlib.entropy_loss(logits, WEIGHTS, **mask),
    "counterfactual": lambda logits, q, **mask: jnp.sum(
        rlaxlib.counterfactual_advantage(
            q, rlaxlib.softmax().probs(logits, **mask), np.zeros(5, int), **mask
        )
    ),
    "qpg": rlaxlib.qpg_loss,
    "rm": rlaxlib.rm_loss,
    "rpg": rlaxlib.rpg_loss,
}


def test_masking_an_action_equals_removing_it():
    mask = np.broadcast_to(np.arange(4) < 3, (5, 4))
    q = np.where(mask, Q, np.float32(np.nan))

    @jax.jit
    def evaluate(logits, q):
        run = {name: jax.value_and_grad(loss) for name, loss in LOSSES.items()}
        parts = logits[:, :3], q[:, :3]
        return {n: (f(logits, q, action_mask=mask), f(*parts)) for n, f in run.items()}

    for name, pair in evaluate(LOGITS, q).items():
        (value, gradient), (expected, expected_gradient) = pair
        close(value, expected, err_msg=name)
        close(gradient[:, :3], expected_gradient, err_msg=name)
        np.testing.assert_array_equal(gradient[:, 3], 0.0, err_msg=name)


# --- Extreme inputs. ---


def test_impossible_action_of_weight_zero_has_zero_loss_and_gradient():
    def loss(logits, adv, weight):
        actions, adv_t, w_t = np.array([1]), adv[None], weight[None]
        log_prob_t = jax.nn.log_softmax(logits)[:, 1]
        masked = rlaxlib.reinforce_loss(log_prob_t, adv_t, sample_mask=w_t != 0)
        mean = rlaxlib.policy_gradient_loss(logits, actions, adv_t, w_t)
        return mean + jnp.sum(masked)

    logits = np.array([[0.0, -np.inf]])
    for adv, weight in (0.0, 1.0), (1.0, 0.0):
        value, gradient = gradients(loss, logits, np.float32(adv), np.float32(weight))
        assert value == 0
        np.testing.assert_array_equal(gradient, 0.0)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
def test_gradient_by_the_action_is_exactly_minus_dqda(dtype):
    # Not compiled: a compiled CPU program computes half precision in float32.
    gradient = jax.grad(lambda a, dqda: jnp.sum(rlaxlib.dpg_loss(a, dqda)))
    for dqda in (1e-4, 1e-2, 1.0):
        a_t, dqda_t = np.full(3, 100.0, dtype), np.full(3, dqda, dtype)
        np.testing.assert_array_equal(gradient(a_t, dqda_t), -dqda_t)


def test_dqda_of_any_magnitude_is_clipped_by_its_norm():
    magnitudes = np.array([1e15, 1e5, 1.0, 1e-5, 1e-15])
    dqda_t = magnitudes[:, None] * np.array([3.0, -1.0, 0.5])
    norms = np.linalg.norm(dqda_t, axis=-1, keepdims=True)

    def clip(dqda_t, clipping):
        def loss(a_t):
            return jnp.sum(rlaxlib.dpg_loss(a_t, dqda_t, clipping))

        return -jax.grad(loss)(jnp.zeros(3))

    clip = jax.jit(jax.vmap(clip, (0, None)))
    for clipping in (0.0, 1e-12, 1.0, 1e10, np.inf):
        found = clip(np.float32(dqda_t), clipping)
        definition = dqda_t * np.minimum(1.0, clipping / norms)
        np.testing.assert_allclose(found, definition, rtol=1e-6)


@pytest.mark.parametrize(("dtype", "actions"), [(np.int8, 128), (np.uint8, 300)])
def test_actions_may_have_a_narrow_integer_type(dtype, actions):
    logits, q = np.random.default_rng(0).normal(size=(2, 2, actions)).astype("f")
    a = np.array([0, 100])

    def of(a):
        inputs = logits, logits, a, q, np.ones(2, np.float32)
        return (
            rlaxlib.policy_gradient_loss(logits, a, np.ones(2), np.ones(2)),
            rlaxlib.counterfactual_advantage(q, jax.nn.softmax(logits), a),
            rlaxlib.acer_policy_loss(*inputs),
        )

    jax.tree.map(close, *jax.jit(lambda: (of(a.astype(dtype)), of(a)))())


def test_half_precision_dqda_does_not_overflow_its_norm():
    dqda_t = np.array([3e4, -4e4], np.float16)
    loss = rlaxlib.dpg_loss(np.zeros(2, np.float16), dqda_t, 5.0)
    np.testing.assert_array_equal(loss, np.array([4.5, 8.0], np.float16))


def test_clipping_a_zero_dqda_gives_zero_loss_and_gradient():
    def loss(a_t, dqda_t, clipping):
        return jnp.sum(rlaxlib.dpg_loss(a_t, dqda_t, clipping, False))

    gradient = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))
    for clipping in (0.0, 1.0, np.inf):
        value, found = gradient(np.ones(2), np.zeros(2), clipping)
        assert value == 0
        np.testing.assert_array_equal(found, np.zeros((2, 2)))


# --- Bounded actions. ---


def test_inverted_gradients_keep_an_ascending_action_within_its_bounds():
    def ascend(a_t, _):
        def loss(a_t):
            dqda_t = rlaxlib.invert_gradients(a_t, np.array([3.0, -3.0]), -2.0, 2.0)
            return jnp.sum(rlaxlib.dpg_loss(a_t, dqda_t))

        a_t = a_t - 0.1 * jax.grad(loss)(a_t)
        return a_t, a_t

    climb = jax.jit(lambda a_t: jax.lax.scan(ascend, a_t, length=200))
    for start in (0.0, 5.0):
        end, path = climb(np.array([start, start]))
        close(end, [2.0, -2.0], atol=1e-3)
        assert np.all(np.abs(path) <= max(2.0, start))


def test_inverted_gradient_is_zero_at_the_bound_and_whole_at_the_other():
    a_t, dqda_t = np.array([1.0, -1.0, 1.0, -1.0]), np.array([5.0, -5.0, -5.0, 5.0])
    found = rlaxlib.invert_gradients(a_t, dqda_t, -1.0, 1.0)
    np.testing.assert_array_equal(found, [0.0, 0.0, -5.0, 5.0])


# --- One mask for all steps. ---


BY_SHARED_MASK = [
    name
    for name in rlaxlib.__all__
    if (spec := getattr(rlaxlib, name, None)) is not None
    and hasattr(spec, "signature")
    and "action_mask" in (specs := spec.signature().specs)
    and specs["action_mask"].shapes[-1] not in (("A",),)
]


@pytest.mark.parametrize("name", BY_SHARED_MASK)
def test_one_mask_serves_all_steps(name):
    shapes = getattr(rlaxlib, name).signature().specs["action_mask"].shapes
    assert ("A",) in shapes
