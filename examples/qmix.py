"""Train QMIX or VDN on a game of two agents, in which only QMIX finds the best team.

The two-step game of the QMIX paper: by the first step, agent 1 alone chooses one of two
payoff matrices. In the second step, both agents choose a row and a column, and the team
gets the reward of the cell:

    7 7      0 1
    7 7      1 8

Each agent acts by its own action values, which depend on its own observation. Both
algorithms learn them from the team's reward, by Q-learning of one value of the team. In
VDN it is the sum of the agents' values. The sum that is nearest to the second matrix
gives its best cell 6.5, so VDN chooses the first. QMIX mixes the values by a network
that increases with each of them, whose weights depend on the state. It learns that the
second matrix returns 8.

- `rlaxlib.epsilon_greedy`: the actions,
- `rlaxlib.qmix`: the value of the team, from those of the agents,
- `rlaxlib.batched_index`: the values of the actions,
- `rlaxlib.td_learning`: the TD errors of the team,
- `rlaxlib.l2_loss`: their loss,
- `rlaxlib.periodic_update`: the copies to the target network.

As in the paper, all actions are random in training, so that only the representation of
the values matters. Random agents return +4.75 on average. Expect at least +8.0 in the
final evaluation, and +7.0 from VDN, as the paper reports, after about 10 seconds on two
cores.

    python qmix.py --seed 1 --mixing-units 0

Packages: flax, optax, tqdm, tyro.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro
from flax import linen as nn
from flax.training.train_state import TrainState
from tqdm import trange

import rlaxlib


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings; each is a command-line flag."""

    seed: int = 0  # Seed of the networks and the actions.
    output: str = "qmix.csv"  # File for the learning curve.
    evaluations: int = 20  # Number of evaluations.
    iterations: int = 100  # Updates between evaluations.
    batch_size: int = 32  # Episodes per update.
    mixing_units: int = 8  # Hidden units of the mixing network; 0 for VDN.
    learning_rate: float = 3e-3  # Learning rate of Adam.
    discount: float = 0.99  # Discount factor.
    epsilon: float = 1.0  # Probability of a random action in training.
    target_period: int = 50  # Updates between copies to the target network.


SMALL = Config(evaluations=6)  # For tests.

NUM_STATES, NUM_AGENTS, NUM_ACTIONS = 3, 2, 2


class Transitions(NamedTuple):
    """Transitions of the team, [B, ...]."""

    state: Any
    action: Any  # Of both agents, [B, N].
    reward: Any
    discount: Any  # 0 after the second step.
    next_state: Any


# --- Team: network, loss and update. B states, N agents, H mixing units. ---


class Network(nn.Module):
    """Action values of all agents, and the weights of a mix of them."""

    mixing_units: int

    @nn.compact
    def __call__(self, state):
        """Return action values, [B, N, A]; and weights, or None for VDN."""
        x = jax.nn.one_hot(state, NUM_STATES)
        agents = jnp.broadcast_to(jnp.eye(NUM_AGENTS), (len(x), NUM_AGENTS, NUM_AGENTS))
        seen = jnp.broadcast_to(x[:, None], (len(x), NUM_AGENTS, NUM_STATES))
        observation = jnp.concatenate([seen, agents], axis=-1)
        q = nn.Dense(NUM_ACTIONS)(nn.relu(nn.Dense(32)(observation)))
        if self.mixing_units == 0:
            return q, None
        hidden = nn.Dense(NUM_AGENTS * self.mixing_units)(x)
        weights = (
            hidden.reshape(len(x), NUM_AGENTS, self.mixing_units),
            nn.Dense(self.mixing_units)(x),
            nn.Dense(self.mixing_units)(x),
            nn.Dense(1)(nn.relu(nn.Dense(self.mixing_units)(x))).squeeze(-1),
        )
        return q, weights


class Team(TrainState):
    """An online network, its optimizer, and the parameters of a target network."""

    target_params: Any


def value(team, params, state, action):
    """Return the value of the team for the actions of both agents, [B]."""
    q, weights = team.apply_fn(params, state)
    q = rlaxlib.batched_index(q, action)
    return (
        jnp.sum(q, axis=-1) if weights is None else jax.vmap(rlaxlib.qmix)(q, *weights)
    )


def loss(params, team, batch, config):
    """Return the loss of a batch of transitions: double Q-learning of the team."""
    q, _ = team.apply_fn(params, batch.next_state)
    td_errors = jax.vmap(rlaxlib.td_learning)(
        value(team, params, batch.state, batch.action),
        batch.reward,
        config.discount * batch.discount,
        value(team, team.target_params, batch.next_state, jnp.argmax(q, axis=-1)),
    )
    return jnp.mean(rlaxlib.l2_loss(td_errors))


def learn(team, key, config):
    """Return the team after episodes and a gradient step on them."""
    choose = functools.partial(act, team, epsilon=config.epsilon)
    batch = play(choose, key, config.batch_size)
    team = team.apply_gradients(grads=jax.grad(loss)(team.params, team, batch, config))
    target_params = rlaxlib.periodic_update(
        team.params, team.target_params, team.step, config.target_period
    )
    return team.replace(target_params=target_params)


def act(team, key, state, epsilon):
    """Return the actions of both agents, [B, N]: each has its own values only."""
    q, _ = team.apply_fn(team.params, state)
    return rlaxlib.epsilon_greedy(epsilon).sample(key, q)


# --- Game. A state is 0 at the first step, then 1 or 2, the number of the matrix. ---

PAYOFFS = jnp.array([[[7.0, 7.0], [7.0, 7.0]], [[0.0, 1.0], [1.0, 8.0]]])


def play(choose, key, num_episodes) -> Transitions:
    """Play episodes with `choose`, from key and states to the actions of both agents.

    Returns:
        The transitions of all first steps, then those of all second steps.
    """
    first_key, second_key = jax.random.split(key)
    start = jnp.zeros(num_episodes, int)
    first = choose(first_key, start)
    matrix = 1 + first[:, 0]  # Agent 2 has no influence.
    second = choose(second_key, matrix)
    reward = PAYOFFS[matrix - 1, second[:, 0], second[:, 1]]
    return Transitions(
        state=jnp.concatenate([start, matrix]),
        action=jnp.concatenate([first, second]),
        reward=jnp.concatenate([0.0 * reward, reward]),
        discount=jnp.concatenate([0.0 * reward + 1.0, 0.0 * reward]),
        next_state=jnp.concatenate([matrix, matrix]),
    )


# --- Training. ---


def make_team(key, config) -> Team:
    """Initialise the networks and the optimizer."""
    network = Network(config.mixing_units)
    params = network.init(key, jnp.zeros(1, int))
    return Team.create(
        apply_fn=network.apply,
        params=params,
        tx=optax.adam(config.learning_rate),
        target_params=params,
    )


@functools.partial(jax.jit, static_argnames="config")
def improve(team, key, config):
    """Return the team after updates, and the return of a greedy episode."""
    keys = jax.random.split(key, config.iterations)
    team, _ = jax.lax.scan(
        lambda team, key: (learn(team, key, config), None), team, keys
    )
    episode = play(functools.partial(act, team, epsilon=0.0), key, 1)
    return team, jnp.sum(episode.reward)


def train(config: Config) -> list[tuple[int, float]]:
    """Train a team; return the evaluation returns over training steps."""
    team_key, key = jax.random.split(jax.random.key(config.seed))
    team, curve = make_team(team_key, config), []
    for number in (progress := trange(1, config.evaluations + 1)):
        team, eval_return = improve(team, jax.random.fold_in(key, number), config)
        steps = number * config.iterations * config.batch_size * 2
        curve.append((steps, float(eval_return)))
        progress.set_postfix_str(f"return {eval_return:+.2f}")
    return curve


if __name__ == "__main__":
    config = tyro.cli(Config)
    rows, header = train(config), "step,evaluation return"
    np.savetxt(config.output, rows, "%g", ",", header=header, comments="")
