"""Train QMIX and VDN on a game of two agents, in which only QMIX finds the best team.

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

As in the paper, all actions are random during training, so that only the representation
of the values matters. Random agents return +4.75 on average. Expect +8.00 from QMIX and
+7.00 from VDN in the final evaluation, as the paper reports, after about 15 seconds on
two cores, imports and compilation included.

    python examples/qmix.py --seed=1 --epsilon=0.5
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from common import curves, loops
from common.flags import flag, run
from common.networks import MLP
from common.train_state import TrainState
from flax import linen as nn
from flax import struct

import rlaxlib


@dataclasses.dataclass(frozen=True)
class Config:
    """Configuration; each field is a command-line flag."""

    seed: int = flag(0, "Seed of the networks and the actions.")
    output: str = flag("results/qmix", "Folder for the learning curves.")
    evaluations: int = flag(20, "Evaluations, in addition to the initial one.")
    iterations: int = flag(100, "Updates between evaluations.")
    batch_size: int = flag(32, "Episodes per update.")
    hidden_units: int = flag(32, "Units of the hidden layers of the agents.")
    mixing_units: int = flag(8, "Hidden units of the mixing network.")
    learning_rate: float = flag(3e-3, "Learning rate of Adam.")
    discount: float = flag(0.99, "Discount factor.")
    epsilon: float = flag(1.0, "Probability of a random action in training.")
    target_period: int = flag(50, "Updates between copies to the target network.")


# --- Game. A state is 0 at the first step, then 1 or 2, the number of the matrix. ---

NUM_STATES, NUM_AGENTS, NUM_ACTIONS = 3, 2, 2
PAYOFFS = jnp.array([[[7.0, 7.0], [7.0, 7.0]], [[0.0, 1.0], [1.0, 8.0]]])


class Transitions(NamedTuple):
    """Transitions of the team, [B, ...]."""

    state: Any
    action: Any  # Of both agents, [B, N].
    reward: Any
    discount: Any  # 0 after the second step.
    next_state: Any


def play(choose, key, num_episodes):
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


# --- Agents. B states, N agents, H hidden units of the mixing network. ---


class Network(nn.Module):
    """Action values of all agents, and the weights of a mix of them."""

    hidden_units: int
    mixing_units: int

    @nn.compact
    def __call__(self, state):
        """Return action values, [B, N, A]; and weights, None with no mixing units."""
        x = jax.nn.one_hot(state, NUM_STATES)
        agents = jnp.broadcast_to(jnp.eye(NUM_AGENTS), (*state.shape, NUM_AGENTS, 2))
        seen = jnp.broadcast_to(x[..., None, :], (*agents.shape[:-1], NUM_STATES))
        observation = jnp.concatenate([seen, agents], axis=-1)
        q = nn.Dense(NUM_ACTIONS)(MLP((self.hidden_units,))(observation))
        if self.mixing_units == 0:
            return q, None
        hidden = nn.Dense(NUM_AGENTS * self.mixing_units)(x)
        weights = (
            hidden.reshape(*state.shape, NUM_AGENTS, self.mixing_units),
            nn.Dense(self.mixing_units)(x),
            nn.Dense(self.mixing_units)(x),
            nn.Dense(1)(MLP((self.mixing_units,))(x)).squeeze(-1),
        )
        return q, weights


class Team(struct.PyTreeNode):
    """Two agents with one network; without mixing units, their values are summed."""

    network: TrainState
    target: TrainState
    config: Config = struct.field(pytree_node=False)

    def choose(self, key, state, epsilon):
        """Return the actions of both agents, [B, N]: each knows its own values only."""
        q, _ = self.network(state)
        return rlaxlib.epsilon_greedy(epsilon).sample(key, q)

    def value(self, network, state, action, params=None):
        """Return the value of the team for the actions of both agents, [B]."""
        q, weights = network(state, params=params)
        q = rlaxlib.batched_index(q, action)
        if weights is None:
            return jnp.sum(q, axis=-1)
        return jax.vmap(rlaxlib.qmix)(q, *weights)

    def update(self, key):
        """Play episodes and update on them."""
        choose = functools.partial(self.choose, epsilon=self.config.epsilon)
        batch = play(choose, key, self.config.batch_size)
        loss = functools.partial(self.loss, batch=batch)
        network = self.network.apply_loss_fn(loss_fn=loss)
        params = rlaxlib.periodic_update(
            network.params, self.target.params, network.step, self.config.target_period
        )
        return self.replace(network=network, target=self.target.replace(params=params))

    def loss(self, params, batch):
        """Return the loss of a batch of transitions: double Q-learning of the team."""
        best = jnp.argmax(self.network(batch.next_state, params=params)[0], axis=-1)
        td_error = jax.vmap(rlaxlib.td_learning)(
            self.value(self.network, batch.state, batch.action, params),
            batch.reward,
            self.config.discount * batch.discount,
            self.value(self.target, batch.next_state, best),
        )
        return jnp.mean(rlaxlib.l2_loss(td_error))


def make_team(key, config, mixing_units) -> Team:
    """Initialise a team; without mixing units, it learns by VDN."""
    network = Network(config.hidden_units, mixing_units)
    params = network.init(key, jnp.zeros(1, int))["params"]
    return Team(
        network=TrainState.create(network, params, optax.adam(config.learning_rate)),
        target=TrainState.create(network, params),
        config=config,
    )


# --- Training. ---


def evaluate(team, key):
    """Return the return of an episode without exploration."""
    choose = functools.partial(team.choose, epsilon=0.0)
    return jnp.sum(play(choose, key, 1).reward)


def train(config: Config) -> dict[str, list[loops.Point]]:
    """Train both teams and return their learning curves."""
    team_key, key = jax.random.split(jax.random.key(config.seed))

    def improve(team, key):
        keys = jax.random.split(key, config.iterations)
        return jax.lax.scan(lambda team, key: (team.update(key), None), team, keys)[0]

    def learn(mixing_units):
        team = make_team(team_key, config, mixing_units)
        steps = 2 * config.iterations * config.batch_size
        args = key, improve, evaluate, config.evaluations, steps
        return loops.train(team, *args)[1]

    return {"QMIX": learn(config.mixing_units), "VDN": learn(0)}


def main(config):
    curves.report(train(config), "QMIX and VDN on a two-step game", config.output)


if __name__ == "__main__":
    run(main, Config)
