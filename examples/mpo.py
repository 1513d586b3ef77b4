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
its gradient, in the first update after each copy. That update moves the online policy,
but not the target policy. From the second update on, the KL divergence is positive, and
the penalty keeps it near its bound. So the target network must be copied rarely: with a
copy after each update, the KL divergence would always be 0 and constrain nothing.

*Why does `rlaxlib.mpo_loss` take a list of constraints?* A Gaussian policy has two: a
loose one for the mean and a tight one for the standard deviation, which keeps the
policy from losing its exploration early. A categorical policy has one, which
`categorical_mpo_loss` computes from the logits. `vmpo_loss` in `vmpo.py` takes a list
of one. `mpo_loss` takes samples of any policy; with three actions, sampling is not
needed, and each action is weighted by its probability.

*Which learning rate do the dual variables have?* Their own, larger than that of the
network, because they have to adapt faster than the policy that they constrain.

In bsuite's Catch, a ball falls through ten rows of five columns, and the agent moves a
paddle in the bottom row. An episode has nine steps and returns +1 for a catch and -1
for a miss. A random agent averages -0.6. Expect +1.00 in the final evaluation, after
about 15 seconds on two cores, imports and compilation included.

Every field of `Config` is a flag:

    python examples/mpo.py --seed=1 --policy_bound=0.001
"""

import dataclasses
import functools
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from common import catch, curves
from common.flags import flag, run
from common.replay import Replay
from flax import linen as nn
from flax.training.train_state import TrainState

import rlaxlib


@dataclasses.dataclass(frozen=True)
class Config:
    """Configuration; each field is a command-line flag."""

    seed: int = flag(0, "Seed of the network, actions, replay and environment.")
    output: str = flag("results/mpo", "Folder for the learning curve.")
    train_episodes: int = flag(2000, "Number of training episodes.")
    eval_episodes: int = flag(100, "Episodes per evaluation, with greedy actions.")
    eval_interval: int = flag(250, "Training episodes between evaluations.")
    replay_capacity: int = flag(20_000, "Capacity of the replay buffer.")
    batch_size: int = flag(64, "Transitions per batch.")
    updates_per_episode: int = flag(5, "Updates after each episode.")
    target_period: int = flag(100, "Updates between copies to the target network.")
    temperature_bound: float = flag(0.1, "Bound on KL(improved || target), in nats.")
    policy_bound: float = flag(0.01, "Bound on KL(target || online), in nats.")
    hidden_units: int = flag(64, "Units of the hidden layer.")
    learning_rate: float = flag(1e-3, "Learning rate of the network.")
    dual_learning_rate: float = flag(1e-2, "Learning rate of the dual variables.")
    discount: float = flag(0.99, "Discount factor.")


class Transition(NamedTuple):
    """A transition, or a batch of transitions."""

    observation_tm1: np.ndarray
    a_tm1: int
    r_t: float
    discount_t: float
    observation_t: np.ndarray


# --- Agent: network, dual variables, optimizer and pure functions. ---


class Network(nn.Module):
    """Logits of the policy and action values, for one observation."""

    num_actions: int
    hidden_units: int

    @nn.compact
    def __call__(self, observation):
        """Return the logits and the action values."""
        hidden = nn.relu(nn.Dense(self.hidden_units)(jnp.ravel(observation)))
        return nn.Dense(self.num_actions)(hidden), nn.Dense(self.num_actions)(hidden)


class Agent(TrainState):
    """An online and a target network, dual variables, and an optimizer."""

    target_params: Any  # Parameters of the target network.


def make_agent(key, environment, config) -> Agent:
    """Initialise the network, the dual variables and the optimizer."""
    network = Network(environment.action_spec().num_values, config.hidden_units)
    observation = environment.observation_spec().generate_value()
    online = network.init(key, observation)
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


@jax.jit
def act(agent, key, step, observation):
    """Sample an action from the online policy."""
    logits, _ = agent.apply_fn(agent.params["online"], observation)
    return rlaxlib.softmax().sample(jax.random.fold_in(key, step), logits)


@jax.jit
def act_greedily(agent, observation):
    """Return the most likely action of the online policy."""
    logits, _ = agent.apply_fn(agent.params["online"], observation)
    return jnp.argmax(logits)


@functools.partial(jax.jit, static_argnames="config")
def learn(agent, batch, config):
    """Take one gradient step on a batch; return the agent and the MPO outputs."""
    network = jax.vmap(agent.apply_fn, in_axes=(None, 0))
    target_logits_tm1, target_q_tm1 = network(
        agent.target_params, batch.observation_tm1
    )
    target_logits_t, target_q_t = network(agent.target_params, batch.observation_t)

    def loss(params):
        logits_tm1, q_tm1 = network(params["online"], batch.observation_tm1)
        td_error = jax.vmap(rlaxlib.expected_sarsa)(
            q_tm1,
            batch.a_tm1,
            batch.r_t,
            config.discount * batch.discount_t,  # 0 at a terminal step.
            target_q_t,
            rlaxlib.softmax().probs(target_logits_t),
        )
        duals = params["duals"]
        penalty = rlaxlib.LagrangePenalty
        policy_loss, outputs = jax.vmap(
            rlaxlib.categorical_mpo_loss, in_axes=(0, 0, 0, None, None)
        )(
            logits_tm1,
            target_logits_tm1,
            target_q_tm1,
            penalty(duals["temperature"], config.temperature_bound),
            penalty(duals["policy"], config.policy_bound),
        )
        return jnp.mean(rlaxlib.l2_loss(td_error) + policy_loss), outputs

    grads, outputs = jax.grad(loss, has_aux=True)(agent.params)
    agent = agent.apply_gradients(grads=grads)
    target_params = rlaxlib.periodic_update(
        agent.params["online"], agent.target_params, agent.step, config.target_period
    )
    return agent.replace(target_params=target_params), outputs


# --- Training. ---


def train(config: Config) -> list[catch.Evaluation]:
    """Train an agent and return its learning curve."""
    init_key, act_key = jax.random.split(jax.random.key(config.seed))
    replay = Replay(config.replay_capacity, config.seed)
    steps = itertools.count()  # A new key for each step.

    def train_episode(agent, environment):
        episode = catch.play(
            environment,
            lambda observation: act(agent, act_key, next(steps), observation),
        )
        observations, *rest = episode
        for each in zip(observations[:-1], *rest, observations[1:], strict=True):
            replay.add(Transition(*each))
        for _ in range(config.updates_per_episode):
            agent, _ = learn(agent, replay.sample(config.batch_size), config)
        return agent, np.sum(episode.reward)

    agent = make_agent(init_key, catch.Catch(), config)
    _, curve = catch.train(agent, train_episode, act_greedily, config)
    return curve


def main(config):
    curves.report(train(config), "MPO on Catch", config.output)


if __name__ == "__main__":
    run(main, Config)
