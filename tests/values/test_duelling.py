"""Test the action values of duelling networks: identities and illegal actions."""

import jax
import jax.numpy as jnp
import numpy as np
from experience import close

import rlaxlib

ADVANTAGES = jnp.array([1.0, -4.0, 3.0, 8.0])
MASK = jnp.array([True, False, True, True])


def test_a_constant_added_to_the_advantages_changes_nothing():
    q = rlaxlib.duelling_q_values(2.0, ADVANTAGES)
    close(rlaxlib.duelling_q_values(2.0, ADVANTAGES + 5.0), q)
    close(jnp.mean(q), 2.0)


def test_illegal_actions_have_no_influence_and_are_never_greedy():
    def legal(v, advantages):
        return rlaxlib.duelling_q_values(v, advantages, action_mask=MASK)[MASK]

    for illegal in (-4.0, 1e6, jnp.inf, jnp.nan):
        advantages = ADVANTAGES.at[1].set(illegal)
        q = rlaxlib.duelling_q_values(2.0, advantages, action_mask=MASK)
        close(q[MASK], rlaxlib.duelling_q_values(2.0, ADVANTAGES[MASK]))
        assert q[1] == -jnp.inf
        by_value, by_advantage = jax.jacobian(legal, (0, 1))(2.0, advantages)
        np.testing.assert_array_equal(by_value, jnp.ones(3))
        np.testing.assert_array_equal(by_advantage[:, 1], jnp.zeros(3))
        close(by_advantage[:, MASK], jnp.eye(3) - 1 / 3)


def test_no_legal_action_gives_minus_infinity():
    nothing = jnp.zeros(4, bool)
    q = rlaxlib.duelling_q_values(2.0, ADVANTAGES, action_mask=nothing)
    np.testing.assert_array_equal(q, jnp.full(4, -jnp.inf))


def test_maps_over_atoms():
    v = jax.random.normal(jax.random.key(0), (3,))
    advantages = jax.random.normal(jax.random.key(1), (4, 3))
    logits = jax.vmap(rlaxlib.duelling_q_values, (0, 1), 1)(v, advantages)
    for atom in range(3):
        alone = rlaxlib.duelling_q_values(v[atom], advantages[:, atom])
        np.testing.assert_array_equal(logits[:, atom], alone)
