"""Train an agent on Pendulum by implicit Q-learning (IQL), from recorded data.

IQL learns offline, without evaluating an action that is not in the data. The state
value is an expectile of the values of the data's actions, close to their maximum. The
critics learn from it, and the policy imitates the data's actions, weighted by their
advantages. The agent is a pytree: `agent.update(batch)` returns a new agent.

- `rlaxlib.iql_value_loss`: the loss of the state value,
- `rlaxlib.l2_loss`: the loss of the critics,
- `rlaxlib.gaussian_diagonal`: the policy,
- `rlaxlib.advantage_weighted_loss`: the loss of the policy,

The data set has mixed quality. It is all experience of a short run of `sac_agent.py`,
with many random actions before it, and is written to a file in the format of
`common/offline.py`. `--dataset` reads any other data set of Pendulum. Behaviour cloning
(BC) of the same data shows what the weights contribute.

A random agent returns about -1200 in gymnax's Pendulum, and the best return is about
-150. Expect about -800 in the data, less than -700 from BC, and more than -400 from
IQL, with most seeds more than -200, after about a minute on two cores,
imports and compilation included.

    python examples/iql_agent.py --seed=1 --expectile=0.7
"""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import optax
import sac_agent
from common import curves, offline, pendulum
from common.flags import flag, run
from common.networks import MLP, critics
from common.train_state import TrainState, target_update
from flax import linen as nn
from flax import struct

import rlaxlib


@dataclasses.dataclass(frozen=True)
class Config:
    """Configuration; each field is a command-line flag."""

    seed: int = flag(0, "Seed of the networks, data set and environment.")
    output: str = flag("results/iql_agent", "Folder for data set and learning curves.")
    dataset: str = flag("", "Data set to read; if empty, one is made.")
    data_random_steps: int = flag(4000, "Steps with random actions in the data set.")
    data_train_steps: int = flag(6000, "Steps of a learning SAC agent in the data set.")
    train_steps: int = flag(20_000, "Training batches.")
    eval_episodes: int = flag(32, "Episodes per evaluation, with mean actions.")
    eval_interval: int = flag(2000, "Batches between evaluations.")
    batch_size: int = flag(128, "Transitions per batch.")
    hidden_units: int = flag(64, "Units of each of the two hidden layers.")
    learning_rate: float = flag(1e-3, "Learning rate of Adam.")
    discount: float = flag(0.99, "Discount factor.")
    tau: float = flag(0.01, "Step size of the target critics.")
    expectile: float = flag(0.8, "Expectile of the values of the data's actions.")
    temperature: float = flag(1.0, "Temperature of the advantage weights.")
    max_weight: float = flag(100.0, "Maximum advantage weight.")


# --- Agent: modules and losses. ---


class Actor(nn.Module):
    """Mean and standard deviation of a Gaussian policy."""

    hidden_units: int
    action_size: int

    @nn.compact
    def __call__(self, observations):
        x = MLP((self.hidden_units, self.hidden_units))(observations)
        mu = jnp.tanh(nn.Dense(self.action_size)(x))
        log_sigma = self.param("log_sigma", nn.initializers.zeros, (self.action_size,))
        return mu, jnp.broadcast_to(jnp.exp(jnp.clip(log_sigma, -5.0, 2.0)), mu.shape)


class Value(nn.Module):
    """A state-value network."""

    hidden_units: int

    @nn.compact
    def __call__(self, observations):
        x = MLP((self.hidden_units, self.hidden_units))(observations)
        return nn.Dense(1)(x).squeeze(-1)


class BCAgent(struct.PyTreeNode):
    """An agent trained by behaviour cloning."""

    actor: TrainState

    @jax.jit
    def sample_actions(self, observations, *, seed, temperature=1.0):
        """Sample actions, shape `[..., D]`; the mean at a temperature of 0."""
        mu, sigma = self.actor(observations)
        noise = temperature * sigma * jax.random.normal(seed, mu.shape)
        return jnp.clip(mu + noise, -1.0, 1.0)

    @jax.jit
    def update(self, batch):
        """Return the agent after an update on a batch, and metrics."""

        def loss(params):
            log_probs = log_prob(self.actor, batch, params)
            bc_loss = -jnp.mean(log_probs)
            return bc_loss, {"actor_loss": bc_loss}

        actor, info = self.actor.apply_loss_fn(loss_fn=loss, has_aux=True)
        return self.replace(actor=actor), info


class IQLAgent(BCAgent):
    """An agent trained by implicit Q-learning."""

    value: TrainState
    critic: TrainState
    target_critic: TrainState
    discount: float = struct.field(pytree_node=False)
    tau: float = struct.field(pytree_node=False)
    expectile: float = struct.field(pytree_node=False)
    temperature: float = struct.field(pytree_node=False)
    max_weight: float = struct.field(pytree_node=False)

    @jax.jit
    def update(self, batch):
        """Return the agent after an update on a batch, and metrics."""
        # [B]: the minimum of the target critics.
        q = jnp.min(self.target_critic(batch.observations, batch.actions), axis=-1)
        value, value_info = self._update_value(batch, q)
        actor, actor_info = self._update_actor(batch, q - value(batch.observations))
        critic, critic_info = self._update_critic(batch, value)
        agent = self.replace(
            actor=actor,
            value=value,
            critic=critic,
            target_critic=target_update(critic, self.target_critic, self.tau),
        )
        return agent, {**value_info, **actor_info, **critic_info}

    def _update_value(self, batch, q):
        def loss(params):
            v = self.value(batch.observations, params=params)
            losses = rlaxlib.iql_value_loss(v, q, self.expectile)
            value_loss = jnp.mean(losses)
            return value_loss, {"value_loss": value_loss, "v": jnp.mean(v)}

        return self.value.apply_loss_fn(loss_fn=loss, has_aux=True)

    def _update_actor(self, batch, adv):
        def loss(params):
            losses = rlaxlib.advantage_weighted_loss(
                log_prob(self.actor, batch, params),
                adv,
                self.temperature,
                self.max_weight,
            )
            actor_loss = jnp.mean(losses)
            return actor_loss, {"actor_loss": actor_loss, "adv": jnp.mean(adv)}

        return self.actor.apply_loss_fn(loss_fn=loss, has_aux=True)

    def _update_critic(self, batch, value):
        v_t = value(batch.next_observations)
        targets = batch.rewards + self.discount * batch.discounts * v_t

        def loss(params):
            q = self.critic(batch.observations, batch.actions, params=params)
            critic_loss = jnp.mean(rlaxlib.l2_loss(q - targets[:, None]))
            return critic_loss, {"critic_loss": critic_loss, "q": jnp.mean(q)}

        return self.critic.apply_loss_fn(loss_fn=loss, has_aux=True)


def log_prob(actor, batch, params):
    """Return the log-densities of the data's actions, shape `[B]`."""
    mu, sigma = actor(batch.observations, params=params)
    return rlaxlib.gaussian_diagonal().logprob(batch.actions, mu, sigma)


def make_agents(key, config) -> tuple[BCAgent, IQLAgent]:
    """Initialise the modules and the optimizers of both agents."""
    actor_key, value_key, critic_key = jax.random.split(key, 3)
    observations = jnp.zeros((1, pendulum.OBSERVATION_SIZE))
    actions = jnp.zeros((1, pendulum.ACTION_SIZE))
    layers = (config.hidden_units, config.hidden_units)

    actor = Actor(config.hidden_units, pendulum.ACTION_SIZE)
    value, critic = Value(config.hidden_units), critics(2, layers)
    actor_params = actor.init(actor_key, observations)["params"]
    value_params = value.init(value_key, observations)["params"]
    critic_params = critic.init(critic_key, observations, actions)["params"]

    adam = optax.adam(config.learning_rate)
    actor_state = TrainState.create(actor, actor_params, adam)
    iql = IQLAgent(
        actor=actor_state,
        value=TrainState.create(value, value_params, adam),
        critic=TrainState.create(critic, critic_params, adam),
        target_critic=TrainState.create(critic, critic_params),
        discount=config.discount,
        tau=config.tau,
        expectile=config.expectile,
        temperature=config.temperature,
        max_weight=config.max_weight,
    )
    return BCAgent(actor_state), iql


# --- Training. ---


def make_dataset(config: Config) -> offline.Transitions:
    """Write and return the experience of a short run of SAC."""
    path = str(Path(config.output) / "dataset.npz")
    sac_config = sac_agent.Config(
        seed=config.seed,
        dataset=path,
        random_steps=config.data_random_steps,
        train_steps=config.data_train_steps,
        eval_interval=config.data_train_steps,
    )
    sac_agent.train(sac_config)
    return offline.load(path)


def train(config: Config) -> dict[str, list[pendulum.OfflineEvaluation]]:
    """Read or make a data set; return the learning curves of IQL and BC."""
    data = offline.load(config.dataset) if config.dataset else make_dataset(config)
    bc, iql = make_agents(jax.random.key(config.seed), config)
    return {
        "IQL": pendulum.train_offline(iql, data, config)[1],
        "BC": pendulum.train_offline(bc, data, config)[1],
    }


def main(config):
    curves.report(train(config), "Implicit Q-learning on Pendulum", config.output)


if __name__ == "__main__":
    run(main, Config)
