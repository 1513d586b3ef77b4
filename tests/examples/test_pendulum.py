"""Test the training loop on Pendulum with a predictable agent."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import pendulum
from flax import struct

# --- Helpers. ---


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = 0
    random_steps: int = 150
    train_steps: int = 100
    eval_episodes: int = 2
    eval_interval: int = 40
    batch_size: int = 8


class Pusher(struct.PyTreeNode):
    """An agent that applies a torque of 0.1 and counts invalid observations."""

    num_updates: jax.Array
    num_bad: jax.Array  # Observations in batches that were not visited.

    def sample_actions(self, observations, *, seed, temperature=1.0):
        noise = jax.random.uniform(seed, (1,), minval=-0.1, maxval=0.1)
        return jnp.full((1,), 0.1) + temperature * noise

    def update(self, batch):
        # Visited states lie on the unit circle; empty slots of the replay do not.
        cos, sin, _ = batch.observations.T
        bad = jnp.sum(jnp.abs(cos**2 + sin**2 - 1) > 1e-3)
        return Pusher(self.num_updates + 1, self.num_bad + bad), {}


PUSHER = Pusher(jnp.zeros((), int), jnp.zeros((), int))


# --- Training and evaluation. ---


def test_agent_is_updated_once_per_step_on_visited_states():
    agent, curve, _ = pendulum.train(PUSHER, Config())
    assert agent.num_updates == 100
    assert agent.num_bad == 0
    assert [point.step for point in curve] == [190, 230, 250]


def test_experience_has_all_steps_in_order_with_truncation():
    data = jax.tree.map(np.asarray, pendulum.train(PUSHER, Config())[2])
    assert [x.shape for x in data] == [(250, 3), (250, 1), *3 * [(250,)], (250, 3)]
    assert np.ptp(data.actions[:150]) > 1.8
    assert np.all((data.actions[150:] >= 0) & (data.actions[150:] <= 0.2))
    assert np.all(data.discounts == 1)  # Pendulum never terminates.
    assert np.flatnonzero(data.truncated).tolist() == [199]

    follows = np.all(data.next_observations[:-1] == data.observations[1:], axis=1)
    assert np.flatnonzero(~follows).tolist() == [199]
    cos, sin, velocity = data.observations.T.astype(np.float64)
    cost = np.arctan2(sin, cos) ** 2 + 0.1 * velocity**2
    torque = 2 * data.actions[:, 0]
    np.testing.assert_allclose(data.rewards, -cost - 0.001 * torque**2, atol=1e-3)
    expected = np.clip(velocity + 0.05 * (15 * sin + 3 * torque), -8, 8)
    np.testing.assert_allclose(data.next_observations[:, 2], expected, atol=1e-4)


def test_train_return_is_the_mean_per_episode():
    _, curve, data = pendulum.train(PUSHER, Config())
    expected = 200 * np.mean(np.asarray(data.rewards)[150:190])
    assert curve[0].train_return == pytest.approx(expected, rel=1e-4)


def test_evaluation_plays_whole_episodes_without_noise():
    quiet = [float(pendulum.evaluate(PUSHER, jax.random.key(0), 1)) for _ in range(2)]
    assert quiet[0] == quiet[1]
    many = [float(pendulum.evaluate(PUSHER, jax.random.key(i), 64)) for i in range(2)]
    assert many[0] != many[1]
    assert all(-1600 < each < -800 for each in many)  # This does not swing it up.


def test_run_depends_on_the_seed_only():
    first, again, other = (
        pendulum.train(PUSHER, dataclasses.replace(Config(), seed=seed))
        for seed in (1, 1, 2)
    )
    assert first[1] == again[1]
    assert first[1] != other[1]
    assert np.array_equal(first[2].observations, again[2].observations)
    assert not np.array_equal(first[2].observations, other[2].observations)
