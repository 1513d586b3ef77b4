"""Train a maximum a posteriori policy optimisation (MPO) agent on Catch.

In each state, the E-step reweights the target policy by the exponentiated action values
of the critic. The M-step fits the online policy to the result by cross-entropy, within
a bound on the KL divergence from the target policy. All experience is replayed.

- `rlaxlib.softmax`: the behaviour policy,
- `rlaxlib.expected_sarsa`: the TD errors of the critic,
- `rlaxlib.l2_loss`: the loss of the TD errors,
- `rlaxlib.categorical_mpo_loss`: the E-step, the M-step and the dual losses,
- `rlaxlib.LagrangePenalty`: a bound with its dual variable,
- `rlaxlib.periodic_update`: the parameters of the target network.

Common questions about MPO:

*Which distributions does the KL divergence compare?* KL(target || online), in the same
state. The target policy is a copy of the online policy from some updates ago. Its
gradient is stopped. The improved policy of the E-step enters the cross-entropy only.

*Why is the KL divergence not 0, if the target network is a copy?* It is 0, and so is
its gradient, in the first update after each copy. From the second update on, it is
positive, and the penalty keeps it near its bound. So the target network must be copied
rarely: copied after each update, the KL divergence would always be 0.

*Why does `rlaxlib.mpo_loss` take a list of constraints?* A Gaussian policy has two: a
loose one for the mean and a tight one for the standard deviation. A categorical policy
has one, which `categorical_mpo_loss` computes from the logits.

*Which learning rate do the dual variables have?* Their own, larger than that of the
network, because they have to adapt faster than the policy that they constrain.

In bsuite's Catch, an episode has nine steps and returns +1 for a catch and -1 for a
miss. A random agent averages -0.6. Expect at least +0.9 in the final evaluation, and
+1.0 with most seeds, after about 25 seconds on two cores.

    python mpo.py --seed 1 --policy-bound 0.001

Packages: bsuite, flax, optax, tqdm, tyro.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

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

    seed: int = 0  # Seed of the network, actions, replay and environment.
    output: str = "mpo.csv"  # File for the learning curve.
    train_episodes: int = 2000  # Number of training episodes.
    eval_interval: int = 250  # Training episodes between evaluations.
    eval_episodes: int = 100  # Episodes per evaluation, with greedy actions.
    batch_size: int = 64  # Transitions per batch.
    updates_per_episode: int = 5  # Updates after each episode.
    target_period: int = 100  # Updates between copies to the target network.
    temperature_bound: float = 0.1  # Bound on KL(improved || target), in nats.
    policy_bound: float = 0.01  # Bound on KL(target || online), in nats.
    learning_rate: float = 1e-3  # Learning rate of the network.
    dual_learning_rate: float = 1e-2  # Learning rate of the dual variables.
    discount: float = 0.99  # Discount factor.


SMALL = Config(train_episodes=20, eval_interval=10, eval_episodes=5)  # For tests.


class Transition(NamedTuple):
    """A transition, or a batch of transitions."""

    observation_tm1: np.ndarray
    a_tm1: np.ndarray
    r_t: np.ndarray
    discount_t: np.ndarray
    observation_t: np.ndarray


# --- Agent: network, loss and update. ---


class Network(nn.Module):
    """Logits of the policy and action values, each [B, A], of observations."""

    num_actions: int

    @nn.compact
    def __call__(self, observation):
        hidden = nn.relu(nn.Dense(64)(observation.reshape(len(observation), -1)))
        return nn.Dense(self.num_actions)(hidden), nn.Dense(self.num_actions)(hidden)


class Agent(TrainState):
    """An online and a target network, dual variables, and an optimizer."""

    target_params: Any


def loss(params, agent, batch, config):
    """Return the loss of a batch, and the outputs of MPO."""
    target_logits_tm1, target_q_tm1 = agent.apply_fn(
        agent.target_params, batch.observation_tm1
    )
    target_logits_t, target_q_t = agent.apply_fn(
        agent.target_params, batch.observation_t
    )
    logits_tm1, q_tm1 = agent.apply_fn(params["online"], batch.observation_tm1)
    td_errors = jax.vmap(rlaxlib.expected_sarsa)(
        *(q_tm1, batch.a_tm1, batch.r_t, config.discount * batch.discount_t),
        *(target_q_t, rlaxlib.softmax().probs(target_logits_t)),
    )
    duals, penalty = params["duals"], rlaxlib.LagrangePenalty
    mpo_loss = jax.vmap(rlaxlib.categorical_mpo_loss, (0, 0, 0, None, None))
    policy_loss, outputs = mpo_loss(
        *(logits_tm1, target_logits_tm1, target_q_tm1),
        penalty(duals["temperature"], config.temperature_bound),
        penalty(duals["policy"], config.policy_bound),
    )
    return jnp.mean(rlaxlib.l2_loss(td_errors) + policy_loss), outputs


@functools.partial(jax.jit, static_argnames="config")
def learn(agent, batch, config):
    """Take one gradient step on a batch; return the agent and the outputs of MPO."""
    grads, outputs = jax.grad(loss, has_aux=True)(agent.params, agent, batch, config)
    agent = agent.apply_gradients(grads=grads)
    target_params = rlaxlib.periodic_update(
        agent.params["online"], agent.target_params, agent.step, config.target_period
    )
    return agent.replace(target_params=target_params), outputs


@jax.jit
def act(agent, key, observation):
    """Return an action of the online policy, and the most likely action."""
    logits, _ = agent.apply_fn(agent.params["online"], observation[None])
    return rlaxlib.softmax().sample(key, logits[0]), jnp.argmax(logits[0])


# --- Agent and environment. ---


def make_agent(key, environment, config) -> Agent:
    """Initialise the network, the dual variables and the optimizer."""
    network = Network(environment.action_spec().num_values)
    online = network.init(key, environment.reset().observation[None])
    # The loss applies a softplus, so that these may be any real numbers.
    duals = {"temperature": jnp.ones(()), "policy": jnp.ones(())}
    optimizers = {
        "online": optax.adam(config.learning_rate),
        "duals": optax.adam(config.dual_learning_rate),
    }
    return Agent.create(
        apply_fn=network.apply,
        params={"online": online, "duals": duals},
        tx=optax.partition(optimizers, {"online": "online", "duals": "duals"}),
        target_params=online,
    )


def train(config: Config) -> list[tuple[int, float]]:
    """Train an agent; return the evaluation returns over training episodes."""
    environment, eval_environment = Catch(seed=config.seed), Catch(seed=config.seed + 1)
    init_key, act_key = jax.random.split(jax.random.key(config.seed))
    agent = make_agent(init_key, environment, config)
    random, replay, curve = np.random.default_rng(config.seed), [], []
    for episode in (progress := trange(1, config.train_episodes + 1)):
        timestep = environment.reset()
        while not timestep.last():
            key = jax.random.fold_in(act_key, len(replay))
            action = int(act(agent, key, timestep.observation)[0])
            previous, timestep = timestep, environment.step(action)
            # Observation, action, reward, discount (0 at a terminal step), and next.
            replay.append((previous.observation, action, *timestep[1:]))
        for _ in range(config.updates_per_episode):
            indices = random.integers(len(replay), size=config.batch_size)
            batch = [
                np.stack(x) for x in zip(*(replay[i] for i in indices), strict=True)
            ]
            agent, _ = learn(agent, Transition(*batch), config)
        if episode % config.eval_interval == 0:
            curve.append((episode, evaluate(agent, eval_environment, config)))
            progress.set_postfix_str(f"return {curve[-1][1]:+.2f}")
    return curve


def evaluate(agent, environment, config) -> float:
    """Return the mean return of greedy episodes."""
    total, key = 0.0, jax.random.key(0)
    for _ in range(config.eval_episodes):
        timestep = environment.reset()
        while not timestep.last():
            _, action = act(agent, key, timestep.observation)
            timestep = environment.step(int(action))
            total += timestep.reward
    return total / config.eval_episodes


if __name__ == "__main__":
    config = tyro.cli(Config)
    rows, header = train(config), "episode,evaluation return"
    np.savetxt(config.output, rows, "%g", ",", header=header, comments="")
