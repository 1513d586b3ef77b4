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

Functions of rlaxlib take one stream of experience, here an episode. `loss` is written
for one episode, and `jax.vmap` makes the batch.

In bsuite's Catch, a ball falls through ten rows of five columns, and the agent moves a
paddle in the bottom row. An episode has nine steps and returns +1 for a catch and -1
for a miss. A random agent averages -0.6. Expect at least +0.9 in the final evaluation,
and +1.0 with most seeds, after about 25 seconds on two cores. Without the correction,
four of five seeds do not learn the task, or forget it again:

    python actor_critic.py --seed 1
    python actor_critic.py --seed 1 --no-correct

Packages: bsuite, flax, optax, tqdm, tyro.
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
import tyro
from bsuite.environments.catch import Catch
from flax import linen as nn
from flax.training.train_state import TrainState
from tqdm import trange

import rlaxlib


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings; each is a command-line flag."""

    seed: int = 0  # Seed of the network, actions and environment.
    output: str = "actor_critic.csv"  # File for the learning curve.
    train_episodes: int = 8000  # Number of training episodes.
    eval_interval: int = 500  # Training episodes between evaluations.
    eval_episodes: int = 100  # Episodes per evaluation, with greedy actions.
    batch_size: int = 8  # Episodes per batch.
    lag: int = 64  # Age of the actor's parameters, in updates.
    correct: bool = True  # Whether to correct for the lag with V-trace.
    learning_rate: float = 3e-3  # Learning rate of Adam.
    discount: float = 0.99  # Discount factor.
    critic_cost: float = 0.5  # Weight of the loss of the critic.
    entropy_cost: float = 0.01  # Weight of the entropy loss.


SMALL = Config(
    train_episodes=20, eval_interval=10, eval_episodes=5, batch_size=2, lag=1
)  # For tests.


class Episode(NamedTuple):
    """An episode of T steps, or a batch of episodes with a leading axis."""

    observation: np.ndarray  # [T+1, ...]: the last one is after the last step.
    logits: np.ndarray  # [T, A]: of the actor's policy μ.
    action: np.ndarray  # [T]
    reward: np.ndarray  # [T]
    discount: np.ndarray  # [T]: 0 at the terminal step, else 1.


# --- Agent: network, loss and update. ---


class Network(nn.Module):
    """Logits of the actor and the value of the critic, for one observation."""

    num_actions: int

    @nn.compact
    def __call__(self, observation):
        hidden = nn.relu(nn.Dense(64)(observation.ravel()))
        logits, value = nn.Dense(self.num_actions)(hidden), nn.Dense(1)(hidden)
        return logits, value.squeeze(-1)


def loss(params, apply, episode, config):
    """Return the loss of actor and critic on one episode."""
    logits, values = jax.vmap(apply, (None, 0))(params, episode.observation)
    logits, v_tm1, v_t = logits[:-1], values[:-1], values[1:]
    ones = jnp.ones_like(v_t)
    rho_tm1 = rlaxlib.categorical_importance_sampling_ratios(
        logits, episode.logits, episode.action
    )
    vtrace = rlaxlib.vtrace_td_error_and_advantage(
        v_tm1,
        v_t,
        episode.reward,
        config.discount * episode.discount,  # 0 at a terminal step.
        rho_tm1 if config.correct else ones,
    )
    actor_loss = rlaxlib.policy_gradient_loss(
        logits, episode.action, vtrace.pg_advantage, w_t=ones
    )
    critic_loss = jnp.mean(rlaxlib.l2_loss(vtrace.errors))
    entropy_loss = rlaxlib.entropy_loss(logits, w_t=ones)
    return (
        actor_loss
        + config.critic_cost * critic_loss
        + config.entropy_cost * entropy_loss
    )


@functools.partial(jax.jit, static_argnames="config")
def learn(agent, batch, config):
    """Take one gradient step on a batch of episodes."""

    def mean_loss(params):
        losses = jax.vmap(loss, (None, None, 0, None))
        return jnp.mean(losses(params, agent.apply_fn, batch, config))

    return agent.apply_gradients(grads=jax.grad(mean_loss)(agent.params))


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


# --- Agent and environment. ---


def play(environment, agent, key, steps) -> Episode:
    """Play an episode, with a new key for each step."""
    timestep = environment.reset()
    observations, transitions = [timestep.observation], []
    while not timestep.last():
        action, logits = act(agent, key, next(steps), timestep.observation)
        timestep = environment.step(int(action))
        observations.append(timestep.observation)
        transitions.append((logits, action, timestep.reward, timestep.discount))
    return Episode(
        np.stack(observations), *map(np.array, zip(*transitions, strict=True))
    )


def train(config: Config) -> list[tuple[int, float]]:
    """Train an agent; return the evaluation returns over training episodes."""
    environment, eval_environment = Catch(seed=config.seed), Catch(seed=config.seed + 1)
    init_key, act_key = jax.random.split(jax.random.key(config.seed))
    network = Network(environment.action_spec().num_values)
    agent = TrainState.create(
        apply_fn=network.apply,
        params=network.init(init_key, environment.reset().observation),
        tx=optax.adam(config.learning_rate),
    )
    # The agents after the latest updates; the oldest one acts.
    versions = collections.deque([agent], maxlen=config.lag + 1)
    steps, batch, curve = itertools.count(), [], []
    for episode in (progress := trange(1, config.train_episodes + 1)):
        batch.append(play(environment, versions[0], act_key, steps))
        if len(batch) == config.batch_size:
            # In Catch, all episodes have nine steps; pad them elsewhere.
            stacked = jax.tree.map(lambda *each: np.stack(each), *batch)
            agent, batch = learn(agent, stacked, config), []
            versions.append(agent)
        if episode % config.eval_interval == 0:
            curve.append((episode, evaluate(agent, eval_environment, config)))
            progress.set_postfix_str(f"return {curve[-1][1]:+.2f}")
    return curve


def evaluate(agent, environment, config) -> float:
    """Return the mean return of greedy episodes."""
    total = 0.0
    for _ in range(config.eval_episodes):
        timestep = environment.reset()
        while not timestep.last():
            timestep = environment.step(int(act_greedily(agent, timestep.observation)))
            total += timestep.reward
    return total / config.eval_episodes


if __name__ == "__main__":
    config = tyro.cli(Config)
    rows, header = train(config), "episode,evaluation return"
    np.savetxt(config.output, rows, "%g", ",", header=header, comments="")
