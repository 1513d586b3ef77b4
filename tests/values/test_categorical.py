"""Test categorical values: projection, cross-entropy, gradients and bad input."""

import functools

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close
from scipy.special import log_softmax, softmax

import rlaxlib

project = jax.jit(rlaxlib.categorical_l2_project)
td_learning = jax.jit(rlaxlib.categorical_td_learning)
q_learning = jax.jit(rlaxlib.categorical_q_learning)
regression_loss = rlaxlib.categorical_regression_loss
loss_and_gradient = jax.jit(jax.value_and_grad(regression_loss), static_argnums=2)
PAIRS = {
    "two-hot": rlaxlib.twohot_pair(-10.0, 10.0, 21),
    "HL-Gauss": rlaxlib.hl_gauss_pair(-10.0, 10.0, 21),
    "HL-Gauss after symlog": rlaxlib.compose_tx(
        rlaxlib.SIGNED_LOGP1_PAIR, rlaxlib.hl_gauss_pair(-3.0, 3.0, 21)
    ),
    "unbiased": rlaxlib.unbiased_transform_pair(
        -3.0, 3.0, 21, rlaxlib.SIGNED_LOGP1_PAIR
    ),
}
each_pair = pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)


def floats(*numbers):
    return np.array(numbers, np.float32)


ATOMS = floats(-2.0, -1.0, 0.0, 1.0, 2.0)
LOGITS = floats(0.5, -1.0, 0.0, 2.0, 1.0)
REGRESSED = np.random.default_rng(0).normal(size=21).astype(np.float32)


# --- Projection. ---


def test_probability_is_shared_in_proportion_to_distance():
    close(project(floats(0.25), floats(1.0), ATOMS), [0.0, 0.0, 0.75, 0.25, 0.0])


def test_atoms_outside_the_range_are_clipped_to_it():
    atoms, probs = floats(-9.0, 9.0, -np.inf, np.inf), floats(0.1, 0.2, 0.3, 0.4)
    close(project(atoms, probs, ATOMS), [0.4, 0.0, 0.0, 0.0, 0.6])


def test_projection_onto_the_same_atoms_is_the_identity():
    probs = softmax(LOGITS)
    np.testing.assert_array_equal(project(ATOMS, probs, ATOMS), probs)


def test_a_single_new_atom_gets_all_probability():
    close(project(ATOMS, softmax(LOGITS), floats(7.0)), [1.0])


@pytest.mark.parametrize(
    "new",
    [(0.0, 0.0, 1.0), (0.0, 1.0, 1.0), (1.0, 1.0, 1.0), (0.0, 1.0, 1.0, 2.0), (1.0,)],
)
def test_equal_new_atoms_preserve_probability_and_mean(new):
    old = floats(-1.0, 0.0, 0.5, 1.0, 1.5, 3.0)
    probs = floats(0.1, 0.2, 0.1, 0.3, 0.2, 0.1)
    projected = project(old, probs, floats(*new))
    close(np.sum(projected), 1.0)
    mean = np.sum(probs * old.clip(new[0], new[-1]))
    close(np.sum(projected * floats(*new)), mean)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_atoms_that_coincide_in_half_precision_preserve_probability(dtype):
    atoms = np.linspace(-10.0, 10.0, 601).astype(dtype)
    probs = np.full(601, 1 / 601, dtype)
    assert dtype == jnp.float16 or len(np.unique(atoms)) < 601
    projected = np.float32(project(atoms, probs, atoms))
    close(np.sum(projected), np.sum(probs.astype(np.float32)))


@hypothesis.given(
    st.lists(st.floats(-5, 5, width=32), min_size=9, max_size=9),
    st.lists(st.integers(-4, 4), min_size=7, max_size=7),
)
def test_probability_is_preserved_and_so_is_the_mean_of_clipped_atoms(old, new):
    old, new = np.array(old, np.float32), np.sort(np.array(new, np.float32))
    projected = np.asarray(project(old, np.full(9, 1 / 9, np.float32), new))
    assert np.min(projected) >= 0
    np.testing.assert_allclose(np.sum(projected), 1.0, rtol=1e-6)
    mean = np.mean(np.clip(old, new[0], new[-1]))
    np.testing.assert_allclose(np.sum(projected * new), mean, rtol=1e-5, atol=1e-5)


def test_the_gradient_of_projection_is_one_sided_at_an_inner_atom():
    def projected(z):
        return project(z[None], floats(1.0), floats(0.0, 1.0, 3.0))

    jacobian = jax.jit(jax.vmap(jax.jacrev(projected)))
    found = jacobian(floats(-1.0, 0.5, 1.0, 2.0, 4.0))
    expected = [[0, 0, 0], [-1, 1, 0], [0, -0.5, 0.5], [0, -0.5, 0.5], [0, 0, 0]]
    close(found, expected)


def test_projection_needs_no_memory_for_pairs_of_atoms():
    atoms = np.linspace(-10.0, 10.0, 601, dtype=np.float32)
    for function in (project, jax.grad(lambda *x: jnp.sum(project(*x) ** 2))):
        compiled = jax.jit(function).lower(atoms, atoms, atoms).compile()
        assert compiled.memory_analysis().temp_size_in_bytes < 40 * 601 * 4


def test_nan_propagates():
    nan = floats(np.nan, 0, 0, 0, 0)
    assert np.isnan(project(nan, softmax(LOGITS), ATOMS)).any()
    assert np.isnan(project(ATOMS, nan, ATOMS)).any()
    assert np.isnan(project(ATOMS, LOGITS, floats(-2, -1, np.nan, 1, 2))).any()
    assert np.isnan(td_learning(ATOMS, LOGITS, np.nan, 0.9, ATOMS, LOGITS))


# --- Learning. ---


def test_an_action_of_a_narrow_dtype_may_be_one_of_many():
    logits = np.tile(LOGITS, (256, 1))
    inputs = 0.3, 0.9, ATOMS, logits
    selector = np.zeros(256, np.float32)

    @jax.jit
    def both(action):
        double = rlaxlib.categorical_double_q_learning
        found = rlaxlib.categorical_q_learning(ATOMS, logits, action, *inputs)
        return found, double(ATOMS, logits, action, *inputs, selector)

    found, other = both(np.uint8(5))  # 256 does not fit.
    close(found, td_learning(ATOMS, LOGITS, 0.3, 0.9, ATOMS, LOGITS))
    assert np.isfinite(other)


def test_q_learning_with_one_action_is_td_learning():
    q = q_learning(ATOMS, LOGITS[None], 0, 0.3, 0.9, ATOMS, -LOGITS[None])
    close(q, td_learning(ATOMS, LOGITS, 0.3, 0.9, ATOMS, -LOGITS))


def test_double_q_learning_with_its_own_means_as_selector_is_q_learning():
    logits = np.stack([LOGITS, -LOGITS, 2 * LOGITS])
    means = np.sum(softmax(logits, axis=-1) * ATOMS, axis=-1)
    inputs = ATOMS, logits, 1, 0.3, 0.9, ATOMS, logits
    double = jax.jit(rlaxlib.categorical_double_q_learning)(*inputs, means)
    close(double, q_learning(*inputs))


def test_the_target_at_the_end_of_an_episode_is_the_reward():
    loss = td_learning(ATOMS, LOGITS, 1.0, 0.0, ATOMS, -LOGITS)
    close(loss, -log_softmax(LOGITS)[3])


def test_gradients_are_finite_where_target_probabilities_are_zero():
    def loss(*floats):
        atoms, logits, r_t, discount_t, logits_t = floats
        inputs = r_t, discount_t, atoms, logits_t, False
        return rlaxlib.categorical_td_learning(atoms, logits, *inputs)

    inputs = ATOMS, LOGITS, np.float32(0.25), np.float32(0.0), -LOGITS
    gradients = jax.jit(jax.grad(loss, argnums=range(5)))(*inputs)
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    close(gradients[2], LOGITS[2] - LOGITS[3])  # Probability moves from 2 to 3.


def test_an_atom_of_logit_minus_infinity_without_target_adds_nothing():
    z, logits = np.linspace(-1.0, 1.0, 3), np.array([0.0, 0.0, -np.inf])
    learn = functools.partial(rlaxlib.categorical_td_learning, z)
    learn = jax.jit(jax.value_and_grad(learn))
    loss, gradient = learn(logits, -1.0, 0.0, z, np.zeros(3))
    np.testing.assert_allclose(loss, np.log(2), rtol=1e-6)
    np.testing.assert_allclose(gradient, [-0.5, 0.5, 0], atol=1e-6)
    # Beside a positive target the floor of a logarithm shows.
    np.testing.assert_allclose(learn(logits, 1.0, 0.0, z, np.zeros(3))[0], 1e15)


def test_a_traced_action_out_of_range_gives_nan():
    logits = np.stack([LOGITS, -LOGITS])
    for learn, last in (
        (rlaxlib.categorical_q_learning, ()),
        (rlaxlib.categorical_double_q_learning, (jnp.ones(2),)),
    ):

        def loss(action, learn=learn, last=last):
            return learn(ATOMS, logits, action, 0.3, 0.9, ATOMS, logits, *last)

        found = jax.jit(jax.vmap(loss))(jnp.array([-1, 0, 1, 2]))
        np.testing.assert_array_equal(np.isnan(found), [True, False, False, True])


def test_atoms_of_the_next_step_may_be_in_any_order():
    expected = td_learning(ATOMS, LOGITS, 0.3, 0.9, ATOMS, LOGITS)
    later = ATOMS[::-1], LOGITS[::-1]
    close(td_learning(ATOMS, LOGITS, 0.3, 0.9, *later), expected)


# --- Regression on a scalar target. ---


@functools.partial(jax.jit, static_argnums=1)
def encode(y, pair):
    return pair.apply(y)


@each_pair
def test_the_minimiser_is_the_distribution_of_the_target_and_decodes_to_it(pair):
    probs = np.asarray(encode(2.3, pair))
    logits = np.log(np.maximum(probs, np.float32(1e-30)))
    close(loss_and_gradient(logits, 2.3, pair)[1], np.zeros(21), atol=1e-6)
    decode = jax.jit(pair.apply_inv)
    close(decode(softmax(logits)), 2.3, rtol=1e-4)


@each_pair
def test_the_gradient_is_the_error_of_the_probabilities(pair):
    _, gradient = loss_and_gradient(REGRESSED, -1.7, pair)
    close(gradient, softmax(REGRESSED) - np.asarray(encode(-1.7, pair)))


@each_pair
def test_a_target_outside_the_bins_is_clipped_and_detected(pair):
    outside = jax.jit(lambda y: rlaxlib.outside_support(y, pair))
    for sign in (1.0, -1.0):
        far = sign * floats(100.0, 1e30, np.inf)
        np.testing.assert_array_equal(outside(far), [True] * 3)
        found = [loss_and_gradient(REGRESSED, float(y), pair) for y in far]
        assert np.isfinite(found[0][0])
        for other in found[1:]:
            jax.tree.map(np.testing.assert_array_equal, other, found[0])


def test_the_gradient_of_the_target_is_that_of_its_probabilities():
    pair, logits = PAIRS["HL-Gauss after symlog"], np.linspace(-1.0, 1.0, 21)

    @jax.jit
    @jax.value_and_grad
    def free(y):
        return regression_loss(logits, y, pair, stop_target_gradients=False)

    difference = float(free(2.31)[0]) - float(free(2.29)[0])
    close(free(2.3)[1], difference / 0.02, rtol=1e-3)


# --- Bad input. ---


@pytest.mark.parametrize("pair", [PAIRS["two-hot"], rlaxlib.IDENTITY_PAIR])
def test_rejects_a_pair_with_another_number_of_bins(pair):
    with pytest.raises(rlaxlib.ArgumentError, match=r"`tx_pair` gives probabilities"):
        regression_loss(np.zeros(7), 0.5, pair)


def test_rejects_no_atoms():
    for empty in ((floats(), floats(), ATOMS), (ATOMS, LOGITS, floats())):
        with pytest.raises(rlaxlib.ArgumentError, match="not empty"):
            rlaxlib.categorical_l2_project(*empty)
