"""Test the QMIX example: the game, the loss of the team and its learning."""

import csv
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import qmix as example
from common import loops

# --- Helpers. ---

SHORT = example.Config(evaluations=1, iterations=3, batch_size=8, target_period=2)


def make_team(mixing_units):
    make = jax.jit(example.make_team, static_argnums=(1, 2))
    return make(jax.random.key(0), SHORT, mixing_units)


def play(actions):
    """Play an episode with given actions of both agents at both steps."""
    steps = iter(jnp.array(actions)[:, None])
    return example.play(lambda key, state: next(steps), jax.random.key(0), 1)


# --- Game and losses. ---


@pytest.mark.parametrize(
    ("first", "second", "reward"),
    [
        ((0, 1), (1, 0), 7),
        ((1, 0), (0, 0), 0),
        ((1, 1), (1, 0), 1),
        ((1, 0), (1, 1), 8),
    ],
)
def test_agent_1_chooses_the_payoff_matrix(first, second, reward):
    batch = play([first, second])
    matrix = 1 + first[0]
    assert batch.state.tolist() == [0, matrix]
    assert batch.next_state[0] == matrix
    assert batch.reward.tolist() == [0, reward]
    assert batch.discount.tolist() == [1, 0]
    assert batch.action.tolist() == [list(first), list(second)]


@pytest.mark.parametrize("mixing_units", [0, 8])
def test_loss_is_that_of_double_q_learning_of_the_team(mixing_units):
    team, other = make_team(mixing_units), make_team(mixing_units)
    params = jax.tree.map(lambda x: 1.5 * x, other.target.params)
    team = team.replace(target=team.target.replace(params=params))
    state = np.array([0, 1, 2, 0])
    batch = example.Transitions(
        state=state,
        action=np.array([[0, 1], [1, 1], [1, 0], [1, 0]]),
        reward=np.float32([0, 7, 1, 0]),
        discount=np.float32([1, 0, 0, 1]),
        next_state=np.array([1, 1, 2, 2]),
    )

    def value(network, state, action):
        q, weights = network(state)
        q = np.take_along_axis(np.float64(q), action[..., None], -1)[..., 0]
        if not mixing_units:
            return q.sum(axis=1)
        hidden, bias, output, last = map(np.float64, weights)
        x = np.einsum("bn,bnh->bh", q, np.abs(hidden)) + bias
        x = np.where(x > 0, x, np.exp(x) - 1)
        return np.sum(np.abs(output) * x, axis=1) + last

    best = np.argmax(team.network(batch.next_state)[0], axis=-1)
    target = value(team.target, batch.next_state, best)
    error = batch.reward + 0.99 * batch.discount * target
    error -= value(team.network, state, batch.action)
    loss = jax.jit(type(team).loss)(team, team.network.params, batch)
    np.testing.assert_allclose(loss, np.mean(0.5 * error**2), rtol=1e-4)


def test_agents_observe_the_state_and_their_own_number():
    """So that one network has different values for both."""
    q, _ = make_team(8).network(jnp.arange(3))
    assert q.shape == (3, 2, 2)
    assert len({tuple(each) for each in np.asarray(q).reshape(6, 2).tolist()}) == 6


def test_target_network_is_copied_after_every_second_update():
    update = jax.jit(lambda team, key: team.update(key))
    start = make_team(8)
    one = update(start, jax.random.key(0))
    two = update(one, jax.random.key(1))
    for team, same in ((one, start.network), (two, two.network)):
        jax.tree.map(np.testing.assert_array_equal, team.target.params, same.params)
    assert int(two.network.step) == 2


# --- Training runs. ---


@pytest.mark.trust
def test_curves_are_written(tmp_path):
    example.main(dataclasses.replace(SHORT, output=str(tmp_path)))
    with open(tmp_path / "curve.csv", newline="") as file:
        header, *points = csv.reader(file)
    assert header == ["curve", "step", "eval_return"]
    names = [(point[0], point[1]) for point in points]
    assert names == [("QMIX", "0"), ("QMIX", "48"), ("VDN", "0"), ("VDN", "48")]
    assert (tmp_path / "curve.svg").read_bytes().startswith(b"<?xml")


@pytest.mark.slow
def test_final_values_and_returns_match_the_docstring(monkeypatch):
    """The nearest sum to the matrix 0 1, 1 8 is 6.5 at its best cell."""
    teams, original = [], loops.train

    def keep(*args):
        team, curve = original(*args)
        teams.append(team)
        return team, curve

    monkeypatch.setattr(loops, "train", keep)
    curves = example.train(example.Config())
    assert curves["QMIX"][-1].eval_return == 8
    assert curves["VDN"][-1].eval_return == 7
    values = [
        float(team.value(team.network, jnp.array([2]), jnp.array([[1, 1]]))[0])
        for team in teams
    ]
    assert values == pytest.approx([8, 6.5], abs=0.4)
