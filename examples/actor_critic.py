"""Train an actor-critic with V-trace (IMPALA) on Catch, from lagging actors.

In distributed training, actors play with parameters that are some updates old. This
example simulates that: the policy from `--lag` updates ago plays each episode. The
experience is off-policy, which biases the plain policy gradient; V-trace corrects it.

- `rlaxlib.softmax`: the policy,
- `rlaxlib.categorical_importance_sampling_ratios`: the ratios π/μ of learner and actor,
- `rlaxlib.vtrace_td_error_and_advantage`: the TD errors and advantages,
- `rlaxlib.policy_gradient_loss`: the loss of the actor,
- `rlaxlib.l2_loss`: the loss of the critic,
- `rlaxlib.entropy_loss`: the entropy regularisation.

Functions of rlaxlib take one stream of experience, here an episode. `loss_of` is
written for one episode, and `jax.vmap` makes the batch.

In bsuite's Catch, a ball falls through ten rows of five columns, and the agent moves a
paddle in the bottom row. An episode has nine steps and returns +1 for a catch and -1
for a miss. A random agent averages -0.6. Expect +1.00 in the final evaluation, after
about 25 seconds on two cores, imports and compilation included. Without the correction,
four of five seeds do not learn the task, or forget it again:

    python examples/actor_critic.py --seed=1
    python examples/actor_critic.py --seed=1 --nocorrect
"""

import collections
import dataclasses
import functools
import itertools
from typing import NamedTuple

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
    """Configuration; each field is a command-line flag."""

    seed: int = flag(0, "Seed of the network, actions and environment.")
    output: str = flag("results/actor_critic", "Folder for the learning curve.")
    train_episodes: int = flag(8000, "Number of training episodes.")
    eval_episodes: int = flag(100, "Episodes per evaluation, with greedy actions.")
    eval_interval: int = flag(500, "Training episodes between evaluations.")
    batch_size: int = flag(8, "Episodes per batch.")
    lag: int = flag(64, "Age of the actors' parameters, in updates.")
    correct: bool = flag(True, "Whether to correct for the lag with V-trace.")
    hidden_units: int = flag(64, "Units of the hidden layer.")
    learning_rate: float = flag(3e-3, "Learning rate of Adam.")
    discount: float = flag(0.99, "Discount factor.")
    critic_cost: float = flag(0.5, "Weight of the critic loss.")
    entropy_cost: float = flag(0.01, "Weight of the entropy loss.")


class Experience(NamedTuple):
    """An episode of T steps, and the logits of the policy that acted."""

    episode: catch.Trajectory
    logits: np.ndarray  # [T, A]: of the behaviour policy μ.


# --- Agent: network, optimizer and pure functions. ---


class Network(nn.Module):
    """Logits of the actor and the value of the critic, for one observation."""

    num_actions: int
    hidden_units: int

    @nn.compact
    def __call__(self, observation):
        """Return the logits and the value."""
        hidden = nn.relu(nn.Dense(self.hidden_units)(jnp.ravel(observation)))
        logits, value = nn.Dense(self.num_actions)(hidden), nn.Dense(1)(hidden)
        return logits, jnp.squeeze(value, axis=-1)


def make_agent(key, environment, config) -> TrainState:
    """Initialise the network and the optimizer."""
    network = Network(environment.action_spec().num_values, config.hidden_units)
    observation = environment.observation_spec().generate_value()
    return TrainState.create(
        apply_fn=network.apply,
        params=network.init(key, observation),
        tx=optax.adam(config.learning_rate),
    )


@jax.jit
def act(agent, key, step, observation):
    """Sample an action from the policy; return it and the logits."""
    logits, _ = agent.apply_fn(agent.params, observation)
    return rlaxlib.softmax().sample(jax.random.fold_in(key, step), logits), logits


@jax.jit
def act_greedily(agent, observation):
    """Return the most likely action."""
    logits, _ = agent.apply_fn(agent.params, observation)
    return jnp.argmax(logits)


def loss_of(experience, params, apply_fn, config):
    """Return the loss of one episode."""
    (observation, action, reward, discount), actor_logits = experience
    logits, values = jax.vmap(apply_fn, in_axes=(None, 0))(params, observation)
    logits, v_tm1, v_t = logits[:-1], values[:-1], values[1:]
    ones = jnp.ones_like(reward)

    ratios = rlaxlib.categorical_importance_sampling_ratios
    estimate = rlaxlib.vtrace_td_error_and_advantage(
        v_tm1,
        v_t,
        reward,
        config.discount * discount,  # 0 at a terminal step.
        rho_tm1=ratios(logits, actor_logits, action) if config.correct else ones,
    )
    actor_loss = rlaxlib.policy_gradient_loss(
        logits, action, estimate.pg_advantage, w_t=ones
    )
    critic_loss = jnp.mean(rlaxlib.l2_loss(estimate.errors))
    entropy_loss = rlaxlib.entropy_loss(logits, w_t=ones)
    return (
        actor_loss
        + config.critic_cost * critic_loss
        + config.entropy_cost * entropy_loss
    )


@functools.partial(jax.jit, static_argnames="config")
def learn(agent, batch, config):
    """Take one gradient step on a batch of episodes."""

    def loss(params):
        of_one = functools.partial(
            loss_of, params=params, apply_fn=agent.apply_fn, config=config
        )
        return jnp.mean(jax.vmap(of_one)(batch))

    return agent.apply_gradients(grads=jax.grad(loss)(agent.params))


# --- Training. ---


def play(environment, actor, key, steps) -> Experience:
    """Play an episode and record the logits of the behaviour policy."""
    actor_logits = []

    def choose(observation):
        action, logits = act(actor, key, next(steps), observation)
        actor_logits.append(logits)
        return action

    return Experience(catch.play(environment, choose), np.stack(actor_logits))


def train(config: Config) -> list[catch.Evaluation]:
    """Train an agent and return its learning curve."""
    init_key, act_key = jax.random.split(jax.random.key(config.seed))
    agent = make_agent(init_key, catch.Catch(), config)
    steps, batch = itertools.count(), []
    # The agents after the latest updates; the oldest one acts.
    versions = collections.deque([agent], maxlen=config.lag + 1)

    def train_episode(agent, environment):
        experience = play(environment, versions[0], act_key, steps)
        batch.append(experience)
        if len(batch) == config.batch_size:
            stacked = jax.tree.map(lambda *each: np.stack(each), *batch)
            agent = learn(agent, stacked, config)
            versions.append(agent)
            batch.clear()
        return agent, np.sum(experience.episode.reward)

    _, curve = catch.train(agent, train_episode, act_greedily, config)
    return curve


def main(config):
    curves.report(train(config), "Actor-critic with V-trace on Catch", config.output)


if __name__ == "__main__":
    run(main, Config)
