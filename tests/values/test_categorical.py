"""Test categorical values: what projection keeps, and what learning is safe from."""

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

project = rlaxlib.categorical_l2_project


def floats(*numbers):
    return jnp.array(numbers, jnp.float32)


ATOMS = floats(-2.0, -1.0, 0.0, 1.0, 2.0)
LOGITS = floats(0.5, -1.0, 0.0, 2.0, 1.0)


# --- What the functions compute. ---


def test_an_atom_between_two_is_shared_the_nearer_getting_more():
    close(project(floats(0.25), floats(1.0), ATOMS), [0.0, 0.0, 0.75, 0.25, 0.0])


def test_what_lies_beyond_goes_to_the_first_or_the_last():
    atoms, probs = floats(-9.0, 9.0, -jnp.inf, jnp.inf), floats(0.1, 0.2, 0.3, 0.4)
    close(project(atoms, probs, ATOMS), [0.4, 0.0, 0.0, 0.0, 0.6])


def test_onto_itself_a_distribution_stays_what_it_is():
    probs = jax.nn.softmax(LOGITS)
    np.testing.assert_array_equal(project(ATOMS, probs, ATOMS), probs)


def test_onto_one_atom_everything_goes():
    close(project(ATOMS, jax.nn.softmax(LOGITS), floats(7.0)), [1.0])


@pytest.mark.parametrize(
    "new",
    [(0.0, 0.0, 1.0), (0.0, 1.0, 1.0), (1.0, 1.0, 1.0), (0.0, 1.0, 1.0, 2.0), (1.0,)],
)
def test_equal_atoms_cost_no_probability(new):
    old = floats(-1.0, 0.0, 0.5, 1.0, 1.5, 3.0)
    probs = floats(0.1, 0.2, 0.1, 0.3, 0.2, 0.1)
    projected = project(old, probs, floats(*new))
    close(jnp.sum(projected), 1.0)
    close(jnp.sum(projected * floats(*new)), jnp.sum(probs * old.clip(new[0], new[-1])))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_atoms_that_collide_in_half_precision_cost_no_probability(dtype):
    atoms = jnp.linspace(-10.0, 10.0, 601).astype(dtype)
    probs = jnp.full(601, 1 / 601, dtype)
    assert dtype == jnp.float16 or len(np.unique(atoms)) < 601
    projected = project(atoms, probs, atoms).astype(jnp.float32)
    close(jnp.sum(projected), jnp.sum(probs.astype(jnp.float32)))


@hypothesis.given(
    st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=9),
    st.lists(st.integers(-4, 4), min_size=1, max_size=9),
)
def test_probability_is_conserved_and_so_is_the_mean_within_the_range(old, new):
    old, new = np.array(old, np.float32), np.sort(np.array(new, np.float32))
    probs = np.full(old.size, 1 / old.size, np.float32)
    projected = np.asarray(jax.jit(project)(old, probs, new))
    assert np.min(projected) >= 0
    np.testing.assert_allclose(np.sum(projected), 1.0, rtol=1e-6)
    mean = np.mean(np.clip(old, new[0], new[-1]))
    np.testing.assert_allclose(np.sum(projected * new), mean, rtol=1e-5, atol=1e-5)


# --- How they relate. ---


def test_one_action_makes_q_learning_td_learning():
    rest = floats(0.3)[0], floats(0.9)[0], ATOMS
    q = rlaxlib.categorical_q_learning(ATOMS, LOGITS[None], 0, *rest, -LOGITS[None])
    close(q, rlaxlib.categorical_td_learning(ATOMS, LOGITS, *rest, -LOGITS))


def test_double_q_learning_that_chooses_by_its_own_means_is_q_learning():
    logits = jnp.stack([LOGITS, -LOGITS, 2 * LOGITS])
    means = jnp.sum(jax.nn.softmax(logits) * ATOMS[None], axis=-1)
    inputs = ATOMS, logits, 1, 0.3, 0.9, ATOMS, logits
    double = rlaxlib.categorical_double_q_learning(*inputs, means)
    close(double, rlaxlib.categorical_q_learning(*inputs))


def test_an_episode_that_ended_teaches_the_reward_alone():
    loss = rlaxlib.categorical_td_learning(ATOMS, LOGITS, 1.0, 0.0, ATOMS, -LOGITS)
    close(loss, -jax.nn.log_softmax(LOGITS)[3])


# --- How they behave under JAX. ---


def test_gradients_are_finite_where_labels_are_zero():
    def loss(*floats):
        atoms, logits, r_t, discount_t, logits_t = floats
        inputs = r_t, discount_t, atoms, logits_t, False
        return rlaxlib.categorical_td_learning(atoms, logits, *inputs)

    inputs = ATOMS, LOGITS, jnp.float32(0.25), jnp.float32(0.0), -LOGITS
    for gradient in jax.grad(loss, argnums=range(5))(*inputs):
        assert np.isfinite(gradient).all()
    reward = jax.grad(loss, argnums=2)(*inputs)
    close(reward, LOGITS[2] - LOGITS[3])  # A label moves from the one to the other.


def test_where_an_atom_meets_another_its_slope_is_that_to_the_right():
    def mass(z, i):
        return project(z[None], floats(1.0), floats(0.0, 1.0, 3.0))[i]

    slopes = [
        [jax.grad(mass)(jnp.float32(z), i) for i in range(3)]
        for z in (-1.0, 0.0, 1.0, 3.0, 4.0)
    ]
    expected = [[0, 0, 0], [-1, 1, 0], [0, -0.5, 0.5], [0, -0.5, 0.5], [0, 0, 0]]
    close(np.array(slopes), expected)


def test_what_is_not_a_number_is_not_hidden():
    assert np.isnan(project(floats(jnp.nan), floats(1.0), ATOMS)).any()
    assert np.isnan(project(ATOMS, floats(jnp.nan, 0, 0, 0, 0), ATOMS)).any()
    with pytest.raises(rlaxlib.ArgumentError, match="but is nan"):
        project(ATOMS, LOGITS, ATOMS.at[2].set(jnp.nan))
    traced = jax.jit(project)(ATOMS, LOGITS, ATOMS.at[2].set(jnp.nan))
    assert np.isnan(traced).any()
    loss = rlaxlib.categorical_td_learning(ATOMS, LOGITS, jnp.nan, 0.9, ATOMS, LOGITS)
    assert np.isnan(loss)


def test_an_action_that_is_none_gives_no_number_where_it_is_traced():
    learn = jax.jit(rlaxlib.categorical_q_learning)
    logits = jnp.stack([LOGITS, -LOGITS])
    for action, known in ((-1, False), (0, True), (1, True), (2, False)):
        loss = learn(ATOMS, logits, action, 0.3, 0.9, ATOMS, logits)
        assert np.isfinite(loss) == known


def test_the_program_holds_nothing_for_each_pair_of_atoms():
    atoms = jnp.linspace(-10.0, 10.0, 601)
    for function in (project, jax.grad(lambda *x: jnp.sum(project(*x) ** 2))):
        compiled = jax.jit(function).lower(atoms, atoms, atoms).compile()
        assert compiled.memory_analysis().temp_size_in_bytes < 40 * 601 * 4


# --- What they refuse. ---


def test_atoms_out_of_order_are_refused_and_so_are_none():
    down = ATOMS[::-1]
    with pytest.raises(rlaxlib.ArgumentError, match="`z_q` must never decrease"):
        project(ATOMS, LOGITS, down)
    for nothing in ((floats(), floats(), ATOMS), (ATOMS, LOGITS, floats())):
        with pytest.raises(rlaxlib.ArgumentError, match="not empty"):
            project(*nothing)
    for of, extra in (("td", ()), ("q", (0,)), ("double_q", (0,))):
        learn = getattr(rlaxlib, f"categorical_{of}_learning")
        logits, last = (LOGITS, ()) if of == "td" else (LOGITS[None], ())
        last = (jnp.ones(1),) if of == "double_q" else last
        with pytest.raises(rlaxlib.ArgumentError, match="atoms_tm1` must never"):
            learn(down, logits, *extra, 0.3, 0.9, ATOMS, logits, *last)
        learn(ATOMS, logits, *extra, 0.3, 0.9, down, logits, *last)
