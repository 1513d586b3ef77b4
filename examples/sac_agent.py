"""Learn to swing up a pendulum by soft actor-critic, with an agent that is a pytree.

Soft actor-critic learns a stochastic policy over continuous actions, which is paid for
its entropy: the temperature says how much, and learns too. The agent holds four
modules, each with parameters of its own, in one pytree: `agent.update(batch)` returns
another agent, `agent.sample_actions(observations, seed=key)` acts. Because nothing is
hidden, thousands of steps of environment, replay and learning are compiled as one loop.

    rlaxlib.tanh_normal_log_prob   how likely an action is, which has bounds,
    rlaxlib.sac_critic_target      what the critics learn to predict,
    rlaxlib.l2_loss                by how much they fail to,
    rlaxlib.sac_policy_loss        makes the actions valuable, and undecided,
    rlaxlib.sac_temperature_loss   finds the temperature for an entropy.

Returns are at best about -150, in gymnax's Pendulum. Expect more than -200 in the final
evaluation, after about 30 seconds on two cores, compilation included. With `--dataset`,
all experience is written to a file, to learn from it offline: `common/offline.py` says
what is in it.

    python examples/sac_agent.py --seed=1 --dataset=results/pendulum.npz
"""

import dataclasses

import jax
import jax.numpy as jnp
import optax
from common import curves, offline, pendulum
from common.flags import flag, run
from common.networks import MLP, critics
from common.train_state import TrainState, target_update
from flax import linen as nn
from flax import struct

import rlaxlib


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything there is to choose."""

    seed: int = flag(0, "Seed of the networks, the actions and the environment.")
    output: str = flag("results/sac_agent", "Folder for the learning curve.")
    dataset: str = flag("", "File for all experience, to learn from; or none.")
    random_steps: int = flag(1000, "Steps at random, before the agent acts.")
    train_steps: int = flag(10_000, "Steps to learn from, once each.")
    eval_episodes: int = flag(32, "Episodes of each evaluation, by the mean action.")
    eval_interval: int = flag(1000, "Training steps between two evaluations.")
    batch_size: int = flag(128, "Steps of a batch.")
    hidden_units: int = flag(64, "Units of each of two hidden layers.")
    learning_rate: float = flag(1e-3, "Step size of Adam.")
    discount: float = flag(0.99, "What a reward is worth one step before it comes.")
    tau: float = flag(0.01, "Part of the way that the target critics go at a time.")
    target_entropy: float = flag(-1.0, "Entropy to aim at: minus one a dimension.")


# --- The agent: modules, and what they learn from a batch. ---


class Actor(nn.Module):
    """A Gaussian, of which the action is the tanh."""

    hidden_units: int
    action_size: int

    @nn.compact
    def __call__(self, observations):
        x = MLP((self.hidden_units, self.hidden_units))(observations)
        mu = nn.Dense(self.action_size)(x)
        log_sigma = jnp.clip(nn.Dense(self.action_size)(x), -5.0, 2.0)
        return mu, jnp.exp(log_sigma)


class LogTemperature(nn.Module):
    """One number."""

    @nn.compact
    def __call__(self):
        return self.param("log_temperature", nn.initializers.zeros, ())


class SACAgent(struct.PyTreeNode):
    """An agent of soft actor-critic."""

    key: jax.Array
    actor: TrainState
    critic: TrainState
    target_critic: TrainState
    log_temperature: TrainState
    discount: float = struct.field(pytree_node=False)
    tau: float = struct.field(pytree_node=False)
    target_entropy: float = struct.field(pytree_node=False)

    @jax.jit
    def sample_actions(self, observations, *, seed, temperature=1.0):
        """Draw actions, shape `[..., D]`; the median ones at a temperature of 0."""
        mu, sigma = self.actor(observations)
        return jnp.tanh(mu + temperature * sigma * jax.random.normal(seed, mu.shape))

    @jax.jit
    def update(self, batch):
        """Return the agent that has learnt from a batch, and numbers to know of."""
        key, critic_key, actor_key = jax.random.split(self.key, 3)
        critic, critic_info = self._update_critic(batch, critic_key)
        agent = self.replace(key=key, critic=critic)
        actor, actor_info = agent._update_actor(batch, actor_key)
        log_temperature, info = agent._update_temperature(actor_info["entropy"])
        agent = agent.replace(
            actor=actor,
            log_temperature=log_temperature,
            target_critic=target_update(critic, self.target_critic, self.tau),
        )
        return agent, {**critic_info, **actor_info, **info}

    def _update_critic(self, batch, key):
        actions, log_probs = self._draw(self.actor.params, batch.next_observations, key)
        targets = jax.vmap(rlaxlib.sac_critic_target, (0, 0, 0, 0, None))(
            batch.rewards,
            self.discount * batch.discounts,
            self.target_critic(batch.next_observations, actions),
            log_probs,
            jnp.exp(self.log_temperature()),
        )

        def loss(params):
            q = self.critic(batch.observations, batch.actions, params=params)
            critic_loss = jnp.mean(rlaxlib.l2_loss(q - targets[:, None]))
            return critic_loss, {"critic_loss": critic_loss, "q": jnp.mean(q)}

        return self.critic.apply_loss_fn(loss_fn=loss, has_aux=True)

    def _update_actor(self, batch, key):
        temperature = jnp.exp(self.log_temperature())

        def loss(params):
            actions, log_probs = self._draw(params, batch.observations, key)
            q = self.critic(batch.observations, actions)
            losses = jax.vmap(rlaxlib.sac_policy_loss, (0, 0, None))(
                log_probs, q, temperature
            )
            actor_loss = jnp.mean(losses)
            info = {"actor_loss": actor_loss, "entropy": -jnp.mean(log_probs)}
            return actor_loss, info

        return self.actor.apply_loss_fn(loss_fn=loss, has_aux=True)

    def _update_temperature(self, entropy):
        def loss(params):
            log_temperature = self.log_temperature(params=params)
            temperature_loss = rlaxlib.sac_temperature_loss(
                log_temperature, -entropy, self.target_entropy
            )
            return temperature_loss, {"temperature": jnp.exp(log_temperature)}

        return self.log_temperature.apply_loss_fn(loss_fn=loss, has_aux=True)

    def _draw(self, params, observations, key):
        """Draw an action for each observation, and say how likely it was."""
        mu, sigma = self.actor(observations, params=params)
        u = mu + sigma * jax.random.normal(key, mu.shape)
        return jnp.tanh(u), jax.vmap(rlaxlib.tanh_normal_log_prob)(u, mu, sigma)


def make_agent(key, config) -> SACAgent:
    """Initialise the modules and their optimizers."""
    key, actor_key, critic_key = jax.random.split(key, 3)
    observations = jnp.zeros((1, pendulum.OBSERVATION_SIZE))
    actions = jnp.zeros((1, pendulum.ACTION_SIZE))

    actor = Actor(config.hidden_units, pendulum.ACTION_SIZE)
    critic = critics(2, (config.hidden_units, config.hidden_units))
    log_temperature = LogTemperature()
    actor_params = actor.init(actor_key, observations)["params"]
    critic_params = critic.init(critic_key, observations, actions)["params"]
    temperature_params = log_temperature.init(key)["params"]

    adam = optax.adam(config.learning_rate)
    return SACAgent(
        key=key,
        actor=TrainState.create(actor, actor_params, adam),
        critic=TrainState.create(critic, critic_params, adam),
        target_critic=TrainState.create(critic, critic_params),
        log_temperature=TrainState.create(log_temperature, temperature_params, adam),
        discount=config.discount,
        tau=config.tau,
        target_entropy=config.target_entropy,
    )


# --- The agent meets its environment. ---


def train(config: Config) -> list[pendulum.Evaluation]:
    """Train an agent, and return its learning curve."""
    agent = make_agent(jax.random.key(config.seed), config)
    _, curve, experience = pendulum.train(agent, config)
    if config.dataset:
        offline.save(experience, config.dataset)
    return curve


def main(config):
    curves.report(train(config), "Soft actor-critic on Pendulum", config.output)


if __name__ == "__main__":
    run(main, Config)
