"""Test KL constraints: their dual variables, and the penalty as a pytree."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib
from rlaxlib import LagrangePenalty

KL = jnp.asarray(np.random.default_rng(0).uniform(0.1, 1.0, (5, 3)), jnp.float32)
PENALTY = LagrangePenalty(2.0, 0.5)


def identity(x):
    return x


def losses(*constraints):
    return rlaxlib.compute_parametric_kl_penalty_and_dual_loss(constraints, identity)


def test_without_constraints_the_losses_are_zero_of_any_dtype():
    zeros = losses()
    assert zeros == (0.0, 0.0)
    sums = [zeros[0] + jnp.ones(2, dtype) for dtype in (jnp.bfloat16, jnp.float32)]
    assert [each.dtype for each in sums] == [jnp.bfloat16, jnp.float32]


def test_a_constraint_per_dimension_equals_one_constraint_for_each_dimension():
    duals = jnp.array([1.0, 2.0, 3.0])
    together = losses((KL, LagrangePenalty(duals, 0.5, per_dimension=True)))
    apart = losses(*((KL[:, i], LagrangePenalty(duals[i], 0.5)) for i in range(3)))
    close(together, apart)


@pytest.mark.parametrize(
    ("per_dimension", "shapes"),
    [(False, [(), (1,), (5,)]), (True, [(), (1,), (3,), (5, 3)])],
)
def test_a_dual_variable_broadcasts_to_the_divergences(per_dimension, shapes):
    kl = KL if per_dimension else KL[:, 0]
    expected = rlaxlib.kl_constraint_loss(
        kl, LagrangePenalty(jnp.full(kl.shape, 2.0), 0.5, per_dimension), identity
    )
    for shape in shapes:
        penalty = LagrangePenalty(jnp.full(shape, 2.0), 0.5, per_dimension)
        found = rlaxlib.kl_constraint_loss(kl, penalty, identity)
        close(found[:2], expected[:2])
        assert found[2].shape == shape


# --- Penalties under JAX. ---


def test_per_dimension_stays_a_python_bool_in_transformations():
    @jax.jit
    def loss(penalty):
        return jnp.sum(rlaxlib.kl_constraint_loss(KL, penalty, identity)[1])

    for per_dimension in (True, False):
        penalty = LagrangePenalty(jnp.float32(2.0), 0.5, per_dimension=per_dimension)
        gradient = jax.grad(loss)(penalty)
        close(gradient.alpha, jnp.sum(0.5 - KL))
        assert gradient.per_dimension is per_dimension


def test_a_penalty_is_a_named_tuple_and_can_be_pickled():
    penalty = LagrangePenalty(1.0, 0.5)._replace(per_dimension=True)
    alpha, epsilon, per_dimension = penalty
    assert (alpha, epsilon, per_dimension) == (1.0, 0.5, True)
    assert pickle.loads(pickle.dumps(penalty)) == penalty
    assert len(jax.tree.leaves(penalty)) == 2


# --- Errors. ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: losses((KL[:, 0], LagrangePenalty(1.0, -0.1))),
            r"^compute_parametric_kl_penalty_and_dual_loss: "
            r"`kl_constraints\[0\]\[1\].epsilon` is -0.1, must be in \[0, inf\)",
        ),
        (
            lambda: rlaxlib.kl_constraint_loss(
                KL, LagrangePenalty(-1.0, 0.1), identity
            ),
            r"^kl_constraint_loss: `projection_operator\(penalty.alpha\)` is -1.0, "
            r"must be in \[0, inf\)",
        ),
        (
            lambda: rlaxlib.kl_constraint_loss(
                KL, LagrangePenalty(jnp.ones(3), 0.1), identity
            ),
            r"`penalty.alpha` has shape \(3,\), must be \(\) or \(1,\) or \(5, 3\)",
        ),
        (
            lambda: losses(
                (KL, PENALTY._replace(per_dimension=True)), (KL[:4, 0], PENALTY)
            ),
            r"`kl_constraints\[1\]\[0\]` has shape \(4,\), must be \(5,\)",
        ),
        (
            lambda: jax.jit(
                lambda flag: rlaxlib.kl_constraint_loss(
                    KL, LagrangePenalty(1.0, 0.1, flag), identity
                )
            )(True),
            r"`penalty.per_dimension` is traced, must be a Python value",
        ),
    ],
)
def test_names_the_wrong_argument(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        call()
