"""Train a soft actor-critic (SAC) agent on Pendulum.

SAC learns a stochastic policy over continuous actions that maximises reward and
entropy. The temperature, the weight of the entropy, is learned too. The agent is a
pytree of four modules and their parameters: `agent.update(batch)` returns a new agent,
and `agent.sample_actions(observations, seed=key)` returns actions. Both are pure, so
that environment, replay and updates are compiled as one loop.

- `rlaxlib.tanh_normal_log_prob`: the log-densities of tanh-Gaussian actions,
- `rlaxlib.sac_critic_target`: the targets of the critics,
- `rlaxlib.l2_loss`: the loss of the critics,
- `rlaxlib.sac_policy_loss`: the loss of the policy,
- `rlaxlib.sac_temperature_loss`: the loss of the temperature.

A random agent returns about -1200 in gymnax's Pendulum, and the best return is about
-150. Expect more than -200 in the final evaluation, after about 30 seconds on two
cores, imports and compilation included. With `--dataset`, all experience is written to
a file, for offline RL, in the format of `common/offline.py`.

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
    """Configuration; each field is a command-line flag."""

    seed: int = flag(0, "Seed of the networks, actions and environment.")
    output: str = flag("results/sac_agent", "Folder for the learning curve.")
    dataset: str = flag("", "File for all experience; none if empty.")
    random_steps: int = flag(1000, "Steps with random actions, before training.")
    train_steps: int = flag(10_000, "Training steps, with one update per step.")
    eval_episodes: int = flag(32, "Episodes per evaluation, with median actions.")
    eval_interval: int = flag(1000, "Training steps between evaluations.")
    batch_size: int = flag(128, "Transitions per batch.")
    hidden_units: int = flag(64, "Units of each of the two hidden layers.")
    learning_rate: float = flag(1e-3, "Learning rate of Adam.")
    discount: float = flag(0.99, "Discount factor.")
    tau: float = flag(0.01, "Step size of the target critics.")
    target_entropy: float = flag(-1.0, "Target entropy, often minus the action size.")


# --- Agent: modules and losses. ---


class Actor(nn.Module):
    """Mean and standard deviation of a tanh-Gaussian policy, before the tanh."""

    hidden_units: int
    action_size: int

    @nn.compact
    def __call__(self, observations):
        x = MLP((self.hidden_units, self.hidden_units))(observations)
        mu = nn.Dense(self.action_size)(x)
        log_sigma = jnp.clip(nn.Dense(self.action_size)(x), -5.0, 2.0)
        return mu, jnp.exp(log_sigma)


class LogTemperature(nn.Module):
    """The logarithm of the temperature."""

    @nn.compact
    def __call__(self):
        return self.param("log_temperature", nn.initializers.zeros, ())


class SACAgent(struct.PyTreeNode):
    """A soft actor-critic agent."""

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
        """Sample actions, shape `[..., D]`; the median at a temperature of 0."""
        mu, sigma = self.actor(observations)
        return jnp.tanh(mu + temperature * sigma * jax.random.normal(seed, mu.shape))

    @jax.jit
    def update(self, batch):
        """Return the agent after an update on a batch, and metrics."""
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
        actions, log_probs = self._sample(
            self.actor.params, batch.next_observations, key
        )
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
            actions, log_probs = self._sample(params, batch.observations, key)
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

    def _sample(self, params, observations, key):
        """Sample an action for each observation; return it and its log-density."""
        mu, sigma = self.actor(observations, params=params)
        u = mu + sigma * jax.random.normal(key, mu.shape)
        return jnp.tanh(u), jax.vmap(rlaxlib.tanh_normal_log_prob)(u, mu, sigma)


def make_agent(key, config) -> SACAgent:
    """Initialise the modules and the optimizers."""
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


# --- Training. ---


def train(config: Config) -> list[pendulum.Evaluation]:
    """Train an agent and return its learning curve."""
    agent = make_agent(jax.random.key(config.seed), config)
    _, curve, experience = pendulum.train(agent, config)
    if config.dataset:
        offline.save(experience, config.dataset)
    return curve


def main(config):
    curves.report(train(config), "Soft actor-critic on Pendulum", config.output)


if __name__ == "__main__":
    run(main, Config)
