"""Train a Q-learning agent on Catch, online: one gradient step per transition.

The simplest agent of deep RL: an ε-greedy policy over the action values of a small
network, without replay buffer, target network or batches. It shows how functions of
rlaxlib connect a network, an optimizer and an environment:

- `rlaxlib.epsilon_greedy`: the behaviour policy,
- `rlaxlib.q_learning`: the TD error,
- `rlaxlib.l2_loss`: the loss of the TD error.

In bsuite's Catch, a ball falls through ten rows of five columns, and the agent moves a
paddle in the bottom row. An episode has nine steps and returns +1 for a catch and -1
for a miss. A random agent averages -0.6. Expect +1.00 in the final evaluation, after
about 20 seconds on two cores, imports and compilation included.

Every field of `Config` is a flag:

    python examples/online_q_learning.py --seed=1 --epsilon=0.05
"""

import dataclasses

import jax
import jax.numpy as jnp
import optax
from common import catch, curves
from common.flags import flag, run
from flax import linen as nn
from flax.training.train_state import TrainState

import rlaxlib


@dataclasses.dataclass(frozen=True)
class Config:
    """Configuration; each field is a command-line flag."""

    seed: int = flag(0, "Seed of the network, exploration and environment.")
    output: str = flag("results/online_q_learning", "Folder for the learning curve.")
    train_episodes: int = flag(4000, "Number of training episodes.")
    eval_episodes: int = flag(100, "Episodes per evaluation, with greedy actions.")
    eval_interval: int = flag(250, "Training episodes between evaluations.")
    hidden_units: int = flag(64, "Units of the hidden layer.")
    learning_rate: float = flag(1e-3, "Learning rate of Adam.")
    epsilon: float = flag(0.1, "Probability of a random action during training.")
    discount: float = flag(0.99, "Discount factor.")


# --- Agent: network, optimizer and pure functions. ---


def make_agent(key, environment, config) -> TrainState:
    """Initialise the network and the optimizer."""
    num_actions = environment.action_spec().num_values
    network = nn.Sequential(
        [jnp.ravel, nn.Dense(config.hidden_units), nn.relu, nn.Dense(num_actions)]
    )
    observation = environment.observation_spec().generate_value()
    return TrainState.create(
        apply_fn=network.apply,
        params=network.init(key, observation),
        tx=optax.adam(config.learning_rate),
    )


@jax.jit
def act(agent, key, observation, epsilon):
    """Sample an action from the ε-greedy policy."""
    q_values = agent.apply_fn(agent.params, observation)
    key = jax.random.fold_in(key, agent.step)  # A new key after each update.
    return rlaxlib.epsilon_greedy(epsilon).sample(key, q_values)


@jax.jit
def learn(agent, observation_tm1, a_tm1, r_t, discount_t, observation_t):
    """Take one gradient step on one transition."""

    def loss(params):
        q_tm1 = agent.apply_fn(params, observation_tm1)
        q_t = agent.apply_fn(params, observation_t)
        td_error = rlaxlib.q_learning(q_tm1, a_tm1, r_t, discount_t, q_t)
        return rlaxlib.l2_loss(td_error)

    return agent.apply_gradients(grads=jax.grad(loss)(agent.params))


# --- Training. ---


def train_episode(agent, key, environment, config) -> tuple[TrainState, float]:
    """Play one episode, with one update per step; return the agent and the return."""
    episode_return = 0.0
    timestep = environment.reset()
    while not timestep.last():
        action = act(agent, key, timestep.observation, config.epsilon)
        previous, timestep = timestep, environment.step(int(action))
        agent = learn(
            agent,
            previous.observation,
            action,
            timestep.reward,
            config.discount * timestep.discount,  # 0 at a terminal step.
            timestep.observation,
        )
        episode_return += timestep.reward
    return agent, episode_return


def train(config: Config) -> list[catch.Evaluation]:
    """Train an agent and return its learning curve."""
    init_key, act_key = jax.random.split(jax.random.key(config.seed))
    _, curve = catch.train(
        make_agent(init_key, catch.Catch(), config),
        lambda agent, environment: train_episode(agent, act_key, environment, config),
        lambda agent, observation: act(agent, act_key, observation, epsilon=0.0),
        config,
    )
    return curve


def main(config):
    curves.report(train(config), "Q-learning on Catch", config.output)


if __name__ == "__main__":
    run(main, Config)
