"""Learn to catch a falling ball by REINFORCE, with a baseline.

The oldest policy gradient. Play an episode, make each action more likely by as much as
the return that followed was better than expected, and forget the episode. What was
expected, the baseline, is a value that the network learns on the way. It changes
nothing about where the gradient points on average, since it does not depend on the
action; but it takes away most of what varies from episode to episode. It shows:

    rlaxlib.softmax               chooses the actions,
    rlaxlib.discounted_returns    says what followed each of them,
    rlaxlib.policy_gradient_loss  makes those more likely that did well,
    rlaxlib.l2_loss               teaches the baseline what to expect.

Every function of rlaxlib takes one stream of experience, which here is the episode.

In bsuite's Catch a ball drops through ten rows of five columns, and the agent moves a
paddle below it. An episode takes nine steps and returns +1 for a catch, -1 for a miss:
-0.6 on average for a random agent. Expect +1.00 in the final evaluation, after about
10 seconds on two cores, imports and compilation included. Every field of `Config` is a
flag:

    python examples/reinforce_baseline.py --seed=1 --learning_rate=0.001
"""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from common import catch, curves
from common.flags import flag, run
from flax import linen as nn
from flax.training.train_state import TrainState

import rlaxlib


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything there is to choose."""

    seed: int = flag(0, "Seed of the network, the actions and the environment.")
    output: str = flag("results/reinforce_baseline", "Folder for the learning curve.")
    train_episodes: int = flag(3000, "Episodes to learn from.")
    eval_episodes: int = flag(100, "Episodes of each evaluation, played greedily.")
    eval_interval: int = flag(250, "Training episodes between two evaluations.")
    hidden_units: int = flag(64, "Units of the network's only hidden layer.")
    learning_rate: float = flag(3e-3, "Step size of Adam.")
    discount: float = flag(0.99, "What a reward is worth one step before it comes.")
    baseline_cost: float = flag(0.5, "Weight of the baseline's loss.")


# --- The agent: a network, its optimizer, and pure functions. ---


class Network(nn.Module):
    """A policy and its value, of one observation."""

    num_actions: int
    hidden_units: int

    @nn.compact
    def __call__(self, observation):
        """Return the logits of all actions, and the value."""
        hidden = nn.relu(nn.Dense(self.hidden_units)(jnp.ravel(observation)))
        logits, value = nn.Dense(self.num_actions)(hidden), nn.Dense(1)(hidden)
        return logits, jnp.squeeze(value, axis=-1)


def make_agent(key, environment, config) -> TrainState:
    """Initialise the network and its optimizer."""
    network = Network(environment.action_spec().num_values, config.hidden_units)
    observation = environment.observation_spec().generate_value()
    return TrainState.create(
        apply_fn=network.apply,
        params=network.init(key, observation),
        tx=optax.adam(config.learning_rate),
    )


@jax.jit
def act(agent, key, step, observation):
    """Choose an action as the policy does, at random."""
    logits, _ = agent.apply_fn(agent.params, observation)
    return rlaxlib.softmax().sample(jax.random.fold_in(key, step), logits)


@jax.jit
def act_greedily(agent, observation):
    """Choose the action that the policy finds best."""
    logits, _ = agent.apply_fn(agent.params, observation)
    return jnp.argmax(logits)


@functools.partial(jax.jit, static_argnames="config")
def learn(agent, episode, config):
    """Take one gradient step on one episode."""
    network = jax.vmap(agent.apply_fn, in_axes=(None, 0))
    discount_t = config.discount * episode.discount  # 0 at the end of the episode.
    return_t = rlaxlib.discounted_returns(episode.reward, discount_t, v_t=0.0)

    def loss(params):
        logits_t, v_t = network(params, episode.observation[:-1])
        # The loss holds the advantages constant: the policy learns nothing through v_t.
        policy_loss = rlaxlib.policy_gradient_loss(
            logits_t, episode.action, return_t - v_t, w_t=jnp.ones_like(v_t)
        )
        baseline_loss = jnp.mean(rlaxlib.l2_loss(v_t, return_t))
        return policy_loss + config.baseline_cost * baseline_loss

    return agent.apply_gradients(grads=jax.grad(loss)(agent.params))


# --- The agent meets its environment. ---


def train(config: Config) -> list[catch.Evaluation]:
    """Train an agent, and return its learning curve."""
    init_key, act_key = jax.random.split(jax.random.key(config.seed))
    steps = itertools.count()  # For new randomness at each.

    def train_episode(agent, environment):
        episode = catch.play(
            environment,
            lambda observation: act(agent, act_key, next(steps), observation),
        )
        return learn(agent, episode, config), np.sum(episode.reward)

    agent = make_agent(init_key, catch.Catch(), config)
    _, curve = catch.train(agent, train_episode, act_greedily, config)
    return curve


def main(config):
    curves.report(train(config), "REINFORCE on Catch", config.output)


if __name__ == "__main__":
    run(main, Config)
