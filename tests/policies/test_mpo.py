"""Test MPO: its weights, its temperature, and the constraints on how far it moves."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib
from rlaxlib import LagrangePenalty

RNG = np.random.default_rng(0)
LOG_PROBS, Q = jnp.asarray(RNG.normal(size=(2, 4, 5)), jnp.float32)
KL = jnp.asarray(RNG.uniform(0.1, 1.0, (5, 3)), jnp.float32)
TEMPERATURE = LagrangePenalty(jnp.float32(0.5), 0.1)


def identity(x):
    return x


def e_step(q, temperature=1.0, bound=0.1, **settings):
    penalty = LagrangePenalty(temperature, bound)
    loss, weights, _ = rlaxlib.mpo_compute_weights_and_temperature_loss(
        q, penalty, identity, **settings
    )
    return loss, weights


# --- What the functions compute. ---


def test_weights_are_as_far_from_even_as_allowed_where_the_loss_is_lowest():
    slope = jax.grad(lambda temperature: e_step(Q[:, 0], temperature)[0])
    low, high = 1e-3, 1e3
    for _ in range(60):
        middle = np.sqrt(low * high)
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    _, weights = e_step(Q[:, 0], middle)
    np.testing.assert_allclose(jnp.sum(weights * jnp.log(4 * weights)), 0.1, rtol=1e-4)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_samples_may_be_on_any_axis(axis):
    q = jnp.stack([Q, -Q, 2 * Q], axis=2)
    moved = jnp.moveaxis(q, 0, axis)
    loss, weights = e_step(q)
    other_loss, other_weights = e_step(moved, sample_axis=axis)
    close(other_loss, loss)
    close(jnp.moveaxis(other_weights, axis, 0), weights)


def test_without_constraints_there_is_no_penalty():
    for learn, shape in ((rlaxlib.mpo_loss, (5,)), (rlaxlib.vmpo_loss, (4, 5))):
        loss, outputs = learn(LOG_PROBS, Q, TEMPERATURE, [])
        close(loss, outputs.policy_loss + outputs.temperature_loss)
        np.testing.assert_array_equal(outputs.kl_loss, np.zeros(shape))
        np.testing.assert_array_equal(outputs.alpha_loss, np.zeros(shape))
    none = rlaxlib.compute_parametric_kl_penalty_and_dual_loss([], identity)
    assert none == (0.0, 0.0)
    half = [none[0] + jnp.ones(2, dtype) for dtype in (jnp.bfloat16, jnp.float32)]
    assert [each.dtype for each in half] == [jnp.bfloat16, jnp.float32]


def test_a_constraint_per_dimension_is_one_for_each_dimension():
    duals = jnp.array([1.0, 2.0, 3.0])
    together = [(KL, LagrangePenalty(duals, 0.5, per_dimension=True))]
    apart = [(KL[:, i], LagrangePenalty(duals[i], 0.5)) for i in range(3)]
    for one, other in zip(
        rlaxlib.compute_parametric_kl_penalty_and_dual_loss(together, identity),
        rlaxlib.compute_parametric_kl_penalty_and_dual_loss(apart, identity),
        strict=True,
    ):
        close(one, other)


@pytest.mark.parametrize(
    ("per_dimension", "shapes"),
    [(False, [(), (1,), (5,)]), (True, [(), (1,), (3,), (5, 3)])],
)
def test_a_dual_variable_may_stand_for_many_divergences(per_dimension, shapes):
    kl = KL if per_dimension else KL[:, 0]
    losses = [
        rlaxlib.kl_constraint_loss(
            kl, LagrangePenalty(jnp.full(shape, 2.0), 0.5, per_dimension), identity
        )
        for shape in shapes
    ]
    for shape, each in zip(shapes, losses, strict=True):
        close(each[:2], losses[0][:2])
        assert each[2].shape == shape


@pytest.mark.parametrize("stop", [True, False])
def test_the_penalty_and_its_dual_pull_whatever_the_flag(stop):
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


# --- Penalties under JAX. ---


def test_whether_a_penalty_is_per_dimension_is_known_while_jax_traces():
    @jax.jit
    def loss(penalty):
        return jnp.sum(rlaxlib.kl_constraint_loss(KL, penalty, identity)[1])

    for per_dimension in (True, False):
        penalty = LagrangePenalty(jnp.float32(2.0), 0.5, per_dimension=per_dimension)
        gradient = jax.grad(loss)(penalty)
        close(gradient.alpha, jnp.sum(0.5 - KL))
        assert gradient.per_dimension is per_dimension
    shapes = jax.eval_shape(
        lambda p: rlaxlib.kl_constraint_loss(KL, p, identity), penalty
    )
    assert shapes[0].shape == (5, 3)


def test_a_penalty_is_a_named_tuple():
    penalty = LagrangePenalty(1.0, 0.5)._replace(per_dimension=True)
    alpha, epsilon, per_dimension = penalty
    assert (alpha, epsilon, per_dimension) == (1.0, 0.5, True)
    assert pickle.loads(pickle.dumps(penalty)) == penalty
    assert len(jax.tree.leaves(penalty)) == 2


# --- Extremes. ---


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
@pytest.mark.parametrize("temperature", [0.01, 1e-10])
def test_values_of_any_size_have_weights(q, expected, temperature):
    def total(q, temperature):
        loss, weights = e_step(q, temperature)
        return jnp.sum(weights * jnp.array([1.0, 2.0, 4.0])) + 1e-38 * loss

    q = jnp.array(q, jnp.float32)
    close(e_step(q, temperature)[1], expected)
    for gradient in jax.grad(total, argnums=(0, 1))(q, jnp.float32(temperature)):
        assert jnp.all(jnp.isfinite(gradient))


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_a_parameter_of_zero_is_a_low_temperature_in_half_precision(dtype):
    penalty = LagrangePenalty(jnp.zeros((), dtype), 0.1)
    loss, outputs = rlaxlib.mpo_loss(
        LOG_PROBS.astype(dtype), Q.astype(dtype), penalty, []
    )
    assert jnp.all(jnp.isfinite(loss))
    best = jnp.argmax(Q, axis=0)
    np.testing.assert_array_equal(outputs.normalized_weights, jnp.eye(4)[:, best])


def test_an_action_ruled_out_is_no_loss_without_weight():
    q, log_probs = jnp.array([0.0, -jnp.inf]), jnp.array([-1.0, -jnp.inf])
    (loss, _), gradient = jax.value_and_grad(rlaxlib.mpo_loss, has_aux=True)(
        log_probs, q, LagrangePenalty(1.0, jnp.log(2.0)), []
    )
    close(loss, 1.0)
    close(gradient, [-1.0, 0.0])


# --- What the functions refuse. ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: rlaxlib.mpo_loss(LOG_PROBS, Q, TEMPERATURE, [], sample_axis=2),
            r"^mpo_loss: `sample_axis` must be at most 1, but is 2",
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
            r"^mpo_loss: `projection_operator\(temperature_constraint.alpha\)` must "
            r"lie in \(0, inf\), but is 0",
        ),
        (
            lambda: rlaxlib.mpo_loss(LOG_PROBS, Q, LagrangePenalty(1.0, -0.1), []),
            r"`temperature_constraint.epsilon` must lie in \[0, inf\), but is -0.1",
        ),
        (
            lambda: rlaxlib.mpo_loss(LOG_PROBS, Q, (1.0, 0.1), []),
            r"`temperature_constraint.alpha` is None, but must be float\[\] or \[1\]",
        ),
        (
            lambda: rlaxlib.mpo_loss(LOG_PROBS, Q, TEMPERATURE, [(KL, TEMPERATURE)]),
            r"`kl_constraints\[0\]\[0\]` is float32\[5, 3\], .*where \.\.\. = 5",
        ),
        (
            lambda: rlaxlib.kl_constraint_loss(
                KL, LagrangePenalty(-1.0, 0.1), identity
            ),
            r"^kl_constraint_loss: `projection_operator\(penalty.alpha\)` must lie in "
            r"\[0, inf\), but is -1",
        ),
        (
            lambda: rlaxlib.kl_constraint_loss(
                KL, LagrangePenalty(jnp.ones(3), 0.1), identity
            ),
            r"`penalty.alpha` is float32\[3\], .* float\[\] or \[1\] or \[\.\.\.\]",
        ),
        (
            lambda: rlaxlib.compute_parametric_kl_penalty_and_dual_loss(
                [(KL, LagrangePenalty(1.0, 0.1, True)), (KL[:4, 0], TEMPERATURE)],
                identity,
            ),
            r"`kl_constraints\[1\]\[0\]` is float32\[4\], .*where \.\.\. = 5",
        ),
        (
            lambda: jax.jit(
                lambda flag: rlaxlib.kl_constraint_loss(
                    KL, LagrangePenalty(1.0, 0.1, flag), identity
                )
            )(True),
            r"`penalty.per_dimension` must be a Python value, but is traced",
        ),
    ],
)
def test_says_what_is_wrong(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        call()
