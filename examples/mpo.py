"""Learn to catch a falling ball by maximum a posteriori policy optimisation (MPO).

The E-step asks, of every state, how likely a better policy would make each action: the
likelier, the more it is worth by the critic. The M-step teaches that to the policy, and
keeps it from moving far. All experience is replayed, whoever made it. It shows:

    rlaxlib.softmax               chooses the actions,
    rlaxlib.expected_sarsa        teaches the critic what the target policy would earn,
    rlaxlib.l2_loss               turns its errors into a loss,
    rlaxlib.categorical_mpo_loss  is both steps, and the losses of the dual variables,
    rlaxlib.LagrangePenalty       is a bound with the dual variable that enforces it,
    rlaxlib.periodic_update       copies the target network now and then.

What people ask about MPO:

*Which two distributions go into the divergence?* The target policy and the one that
learns, in this order, in the same state: KL(target || online). The target policy is a
copy of the online one from some updates ago. It is constant: the gradient reaches the
online policy alone. The better policy of the E-step is in neither place; the online one
learns from it by its cross-entropy, which is the policy's loss.

*The target network starts as a copy. Why is the divergence not 0?* It is 0, and so is
its gradient, in the first update after each copy. That update moves the online policy,
and the target stays: from the second update on there is a distance, which the penalty
keeps near its bound. So the target must stand still for many updates. Were it copied
after each of them, the divergence would be 0 forever, and hold nothing back.

*Why are constraints a list in `rlaxlib.mpo_loss`, and not here?* A Gaussian policy has
two, a loose one for its mean and a tight one for its standard deviation: else it loses
its width, and with it its exploration, as fast as it finds better means. The list has a
divergence and a penalty for each. A categorical policy has one divergence, which
`categorical_mpo_loss` takes by itself, from the logits; in `mpo_loss`, which takes any
policy by samples, its list would have one entry, as that of `vmpo.py` has. Of three
actions there is no need to sample: all of them count, each by its probability.

*Which learning rate do dual variables have?* Their own, larger than the network's. They
must keep pace with a policy that they are to hold back.

In bsuite's Catch a ball drops through ten rows of five columns, and the agent moves a
paddle below it. An episode takes nine steps and returns +1 for a catch, -1 for a miss:
-0.6 on average for a random agent. Expect +1.00 in the final evaluation, after about
15 seconds on two cores, imports and compilation included. Every field of `Config` is a
flag:

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
    """Everything there is to choose."""

    seed: int = flag(0, "Seed of network, actions, replay and environment.")
    output: str = flag("results/mpo", "Folder for the learning curve.")
    train_episodes: int = flag(2000, "Episodes to learn from.")
    eval_episodes: int = flag(100, "Episodes of each evaluation, played greedily.")
    eval_interval: int = flag(250, "Training episodes between two evaluations.")
    replay_capacity: int = flag(20_000, "Transitions to remember.")
    batch_size: int = flag(64, "Transitions of each update.")
    updates_per_episode: int = flag(5, "Updates after each episode.")
    target_period: int = flag(100, "Updates between two copies of the target network.")
    temperature_bound: float = flag(0.1, "Nats from the target to the better policy.")
    policy_bound: float = flag(0.01, "Nats from the target to the online policy.")
    hidden_units: int = flag(64, "Units of the network's only hidden layer.")
    learning_rate: float = flag(1e-3, "Step size of Adam, for the network.")
    dual_learning_rate: float = flag(1e-2, "Step size of Adam, for the dual variables.")
    discount: float = flag(0.99, "What a reward is worth one step before it comes.")


class Transition(NamedTuple):
    """One step from an observation to the next."""

    observation_tm1: np.ndarray
    a_tm1: int
    r_t: float
    discount_t: float
    observation_t: np.ndarray


# --- The agent: a network, dual variables, their optimizer, and pure functions. ---


class Network(nn.Module):
    """A policy and the values of all actions, of one observation."""

    num_actions: int
    hidden_units: int

    @nn.compact
    def __call__(self, observation):
        """Return the logits of all actions, and their values."""
        hidden = nn.relu(nn.Dense(self.hidden_units)(jnp.ravel(observation)))
        return nn.Dense(self.num_actions)(hidden), nn.Dense(self.num_actions)(hidden)


class Agent(TrainState):
    """A network with its target network, dual variables, and an optimizer of both."""

    target_params: Any  # Parameters of the target network.


def make_agent(key, environment, config) -> Agent:
    """Initialise the network, the dual variables and their optimizer."""
    network = Network(environment.action_spec().num_values, config.hidden_units)
    observation = environment.observation_spec().generate_value()
    online = network.init(key, observation)
    # The loss makes these positive by a softplus: they may be any numbers.
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
    """Choose an action as the online policy does, at random."""
    logits, _ = agent.apply_fn(agent.params["online"], observation)
    return rlaxlib.softmax().sample(jax.random.fold_in(key, step), logits)


@jax.jit
def act_greedily(agent, observation):
    """Choose the action that the online policy finds best."""
    logits, _ = agent.apply_fn(agent.params["online"], observation)
    return jnp.argmax(logits)


@functools.partial(jax.jit, static_argnames="config")
def learn(agent, batch, config):
    """Take one gradient step on a batch of transitions; return what MPO did, too."""
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
            config.discount * batch.discount_t,  # 0 at the end of the episode.
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


# --- The agent meets its environment. ---


def train(config: Config) -> list[catch.Evaluation]:
    """Train an agent, and return its learning curve."""
    init_key, act_key = jax.random.split(jax.random.key(config.seed))
    replay = Replay(config.replay_capacity, config.seed)
    steps = itertools.count()  # For new randomness at each.

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
