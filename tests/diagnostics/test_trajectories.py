"""Test what is found to be inconsistent in a stream, and how it is said."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify

import rlaxlib

GOOD = {
    "r_t": jnp.array([0.0, 1.0, 2.0, 3.0]),
    "discount_t": jnp.array([0.5, 0.0, 1.0, 0.5]),
    "truncated_t": jnp.array([False, False, False, True]),
    "sample_mask": jnp.array([True, True, False, True]),
}


def spoiled(**changes):
    """Change entries of a stream that is consistent: `r_t={0: nan}`."""
    stream = dict(GOOD)
    for name, entries in changes.items():
        for row, value in entries.items():
            stream[name] = stream[name].at[row].set(value)
    return stream


BAD = {
    "reward": (
        spoiled(r_t={0: jnp.nan}),
        [0],
        "`r_t` must be finite, but is nan in row 0",
    ),
    "infinite reward": (
        spoiled(r_t={3: -jnp.inf}),
        [3],
        "`r_t` must be finite, but is -inf in row 3",
    ),
    "discount": (
        spoiled(discount_t={0: 1.25}),
        [0],
        "`discount_t` must lie in [0, 1], but is 1.25 in row 0",
    ),
    "negative discount": (
        spoiled(discount_t={3: -0.5, 0: jnp.nan}),
        [0, 3],
        "`discount_t` must lie in [0, 1], but is nan in row 0",
    ),
    "both ends": (
        spoiled(truncated_t={1: True}),
        [1],
        "`truncated_t` is true in row 1, which ends its episode, for `discount_t` is "
        "0.0: a stream is cut only where the episode goes on",
    ),
    "lost end": (
        spoiled(discount_t={1: 0.5, 2: 0.0}),
        [2],
        "`discount_t` is 0.0 in row 2, but `sample_mask` is false: the end of the "
        "episode is lost, and its estimates run into the next one",
    ),
    "no decision": (
        GOOD | {"sample_mask": jnp.zeros(4, bool)},
        [0, 1, 2, 3],
        "`sample_mask` is false in all rows, from row 0 on: there is no decision",
    ),
}
every_bad = pytest.mark.parametrize("case", BAD)

# Streams as in the tests of multistep estimates, and the rows whose end is lost.
ENDS = [
    ("..0..", "11011", [2]),
    ("..0..", "11111", []),
    (".00..", "11011", []),  # The decision before was the end already.
    (".x0..", "11011", []),
    ("..0..", "11000", []),  # Padding.
    ("..0..", "00011", []),
    ("..00.", "11001", [2, 3]),
    ("..0x0", "11001", [2]),  # The cut comes after, and no harm is done; it is told.
    ("0.0.0", "10101", []),
    (".0.0.", "10101", [1, 3]),
]


# --- What is found. ---


def test_a_consistent_stream_passes():
    np.testing.assert_array_equal(rlaxlib.check_trajectory(**GOOD), True)
    for name in ("truncated_t", "sample_mask"):
        assert rlaxlib.check_trajectory(**GOOD | {name: None}).all()


def test_what_is_no_decision_may_hold_anything():
    stream = spoiled(r_t={2: jnp.nan}, discount_t={2: 7.0}, truncated_t={2: True})
    assert rlaxlib.check_trajectory(**stream).all()


@every_bad
def test_an_inconsistency_is_said_in_words(case):
    stream, _, message = BAD[case]
    with pytest.raises(rlaxlib.ArgumentError) as error:
        rlaxlib.check_trajectory(**stream)
    assert str(error.value) == f"check_trajectory: {message}."


def test_all_that_is_inconsistent_is_said_at_once():
    stream = spoiled(r_t={0: jnp.nan}, discount_t={3: 2.0}, truncated_t={1: True})
    with pytest.raises(rlaxlib.ArgumentError) as error:
        rlaxlib.check_trajectory(**stream)
    said = str(error.value).split(". ")
    assert [part.split("`")[1] for part in said] == ["r_t", "discount_t", "truncated_t"]


@pytest.mark.parametrize(("ends", "decisions", "lost"), ENDS)
def test_an_end_is_lost_where_estimates_would_run_into_the_next_episode(
    ends, decisions, lost
):
    discount_t = jnp.array([0.0 if end == "0" else 0.5 for end in ends])
    truncated_t = jnp.array([end == "x" for end in ends])
    sample_mask = jnp.array([decision == "1" for decision in decisions])
    _, consistent = checkify.checkify(rlaxlib.check_trajectory)(
        jnp.ones(5),
        discount_t,
        truncated_t=truncated_t,
        sample_mask=sample_mask,
    )
    assert np.flatnonzero(~consistent).tolist() == lost


# --- How the function behaves under JAX. ---


@every_bad
def test_compiled_code_says_the_same_through_checkify(case):
    stream, rows, message = BAD[case]
    function = checkify.checkify(lambda x: rlaxlib.check_trajectory(**x))
    error, consistent = jax.jit(function)(stream)
    assert error.get().startswith(f"check_trajectory: {message}.")
    assert np.flatnonzero(~consistent).tolist() == rows
    error, consistent = jax.jit(function)(GOOD)
    assert error.get() is None
    assert consistent.all()


def test_a_batch_is_checked_stream_by_stream():
    streams = [GOOD, BAD["discount"][0], GOOD]
    batch = jax.tree.map(lambda *each: jnp.stack(each), *streams)
    function = jax.vmap(lambda x: rlaxlib.check_trajectory(**x))
    error, consistent = jax.jit(checkify.checkify(function))(batch)
    assert "but is 1.25 in row 0" in error.get()
    assert consistent.all(axis=1).tolist() == [True, False, True]


def test_a_loss_that_checks_its_stream_still_has_its_gradient():
    def loss(x):
        rlaxlib.check_trajectory(x, GOOD["discount_t"])
        return jnp.sum(x)

    error, gradient = jax.jit(checkify.checkify(jax.grad(loss)))(GOOD["r_t"])
    assert error.get() is None
    np.testing.assert_array_equal(gradient, 1.0)
