"""Test the action values of duelling networks: identities and illegal actions."""

import jax
import numpy as np
from experience import close

import rlaxlib

ADVANTAGES = np.float32([1.0, -4.0, 3.0, 8.0])
MASK = np.array([True, False, True, True])
dueling = jax.jit(rlaxlib.dueling_q_values)


def test_a_constant_added_to_the_advantages_changes_nothing():
    q = dueling(2.0, ADVANTAGES)
    close(dueling(2.0, ADVANTAGES + 5), q)
    close(np.mean(q), 2.0)


def test_illegal_actions_have_no_influence_and_are_never_greedy():
    def legal(v, advantages):
        q = rlaxlib.dueling_q_values(v, advantages, action_mask=MASK)
        return q[MASK], q

    jacobians = jax.jit(jax.jacobian(legal, (0, 1), has_aux=True))
    expected = dueling(2.0, ADVANTAGES[MASK])
    for illegal in (-4.0, 1e6, np.inf, np.nan):
        advantages = np.where(np.arange(4) == 1, np.float32(illegal), ADVANTAGES)
        found = jax.tree.map(np.asarray, jacobians(2.0, advantages))
        (by_value, by_advantage), q = found
        close(q[MASK], expected)
        assert q[1] == -np.inf
        np.testing.assert_array_equal(by_value, np.ones(3))
        np.testing.assert_array_equal(by_advantage[:, 1], np.zeros(3))
        close(by_advantage[:, MASK], np.eye(3) - 1 / 3)


def test_no_legal_action_gives_minus_infinity():
    q = dueling(2.0, ADVANTAGES, action_mask=np.zeros(4, bool))
    np.testing.assert_array_equal(q, np.full(4, -np.inf))


def test_maps_over_atoms():
    rng = np.random.default_rng(0)
    v, advantages = np.float32(rng.normal(size=3)), np.float32(rng.normal(size=(4, 3)))
    mapped = jax.jit(jax.vmap(rlaxlib.dueling_q_values, (0, 1), 1))
    logits = np.asarray(mapped(v, advantages))
    for atom in range(3):
        close(logits[:, atom], dueling(v[atom], advantages[:, atom]))
