"""Test the n-step transitions: their targets, their indices and invalid input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close, make_stream, pick

import rlaxlib

transitions = jax.jit(rlaxlib.n_step_transitions, static_argnames="n")


@pytest.mark.parametrize("masked", [False, True])
def test_targets_are_n_step_returns(masked):
    inputs, steps = pick(make_stream(), "r_t", "discount_t"), np.arange(8)
    if masked:
        inputs |= {"truncated_t": steps % 5 == 3, "sample_mask": steps % 4 != 2}
    v_t = make_stream()["v_t"]

    def both(n):
        r_t, discount_t, index = rlaxlib.n_step_transitions(**inputs, n=n)
        expected = rlaxlib.n_step_bootstrapped_returns(**inputs, v_t=v_t, n=n)
        return r_t + discount_t * jnp.asarray(v_t)[index], expected

    for n, targets in jax.jit(lambda: [(k, both(k)) for k in (1, 3, 100)])():
        close(*targets, err_msg=f"n = {n}")


def test_indices_stay_in_the_episode_and_are_their_own_at_ignored_steps():
    discount_t = jnp.array([1.0, 0.0, 1.0, 1.0, 1.0, 1.0])
    truncated_t = jnp.array([0, 0, 0, 1, 0, 0], bool)
    sample_mask = jnp.array([1, 1, 1, 1, 0, 1], bool)
    masks = {"truncated_t": truncated_t, "sample_mask": sample_mask}
    found = transitions(jnp.ones(6), discount_t, n=4, **masks)
    np.testing.assert_array_equal(found.indices, [1, 1, 3, 3, 4, 5])
    close(found.r_t, [2, 1, 2, 1, 0, 1])
    close(found.discount_t, [0, 0, 1, 1, 0, 1])


def test_the_program_does_not_grow_with_n():
    def size(n):
        program = jax.make_jaxpr(lambda x: rlaxlib.n_step_transitions(x, x, n))
        return len(str(program(jnp.ones(500))).splitlines())

    assert size(400) == size(4)
