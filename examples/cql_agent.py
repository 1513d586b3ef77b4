"""Train an agent on Pendulum by conservative Q-learning (CQL), from recorded data.

A soft actor-critic (SAC) that learns offline overestimates actions that are not in the
data, and its policy prefers them. CQL adds a loss to the critics: it lowers the values
of actions that the policy would take, and raises the values of the data's actions. The
agent is a pytree: `agent.update(batch)` returns a new agent.

- `rlaxlib.tanh_normal_log_prob`: the log-densities of the policy's actions,
- `rlaxlib.tanh_normal_log_prob_of_action`: the log-densities of the data's actions,
- `rlaxlib.sac_critic_target`: the targets of the critics,
- `rlaxlib.l2_loss`: the TD loss of the critics,
- `rlaxlib.cql_loss`: the conservative loss of the critics,
- `rlaxlib.sac_policy_loss`: the loss of the policy,

The data set has mixed quality. It is all experience of a short run of `sac_agent.py`,
with many random actions before it, and is written to a file in the format of
`common/offline.py`. `--dataset` reads any other data set of Pendulum. Behaviour cloning
(BC) learns from the same data. `--conservative_weight=0` is SAC, learning offline.

A random agent returns about -1200 in gymnax's Pendulum, and the best return is about
-150. Expect about -800 in the data, less than -700 from BC and more than -250 from CQL,
after about a minute on two cores, imports and compilation included.

    python examples/cql_agent.py --seed=1 --conservative_weight=1
"""

import dataclasses
import functools
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
    output: str = flag("results/cql_agent", "Folder for data set and learning curves.")
    dataset: str = flag("", "Data set to read; if empty, one is made.")
    data_random_steps: int = flag(4000, "Steps with random actions in the data set.")
    data_train_steps: int = flag(6000, "Steps of a learning SAC agent in the data set.")
    train_steps: int = flag(8000, "Training batches.")
    eval_episodes: int = flag(32, "Episodes per evaluation, with median actions.")
    eval_interval: int = flag(1000, "Batches between evaluations.")
    batch_size: int = flag(128, "Transitions per batch.")
    hidden_units: int = flag(64, "Units of each of the two hidden layers.")
    learning_rate: float = flag(1e-3, "Learning rate of Adam.")
    discount: float = flag(0.99, "Discount factor.")
    tau: float = flag(0.01, "Step size of the target critics.")
    temperature: float = flag(0.1, "Weight of the entropy of the policy.")
    conservative_weight: float = flag(5.0, "Weight of the conservative loss.")
    num_samples: int = flag(4, "Actions of each kind in the conservative loss.")


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


class BCAgent(struct.PyTreeNode):
    """An agent trained by behaviour cloning."""

    actor: TrainState

    @jax.jit
    def sample_actions(self, observations, *, seed, temperature=1.0):
        """Sample actions, shape `[..., D]`; the median at a temperature of 0."""
        mu, sigma = self.actor(observations)
        return jnp.tanh(mu + temperature * sigma * jax.random.normal(seed, mu.shape))

    @jax.jit
    def update(self, batch):
        """Return the agent after an update on a batch, and metrics."""

        def loss(params):
            mu, sigma = self.actor(batch.observations, params=params)
            log_probs = jax.vmap(rlaxlib.tanh_normal_log_prob_of_action)(
                batch.actions, mu, sigma
            )
            bc_loss = -jnp.mean(log_probs)
            return bc_loss, {"actor_loss": bc_loss}

        actor, info = self.actor.apply_loss_fn(loss_fn=loss, has_aux=True)
        return self.replace(actor=actor), info


class CQLAgent(BCAgent):
    """An agent trained by conservative Q-learning."""

    key: jax.Array
    critic: TrainState
    target_critic: TrainState
    discount: float = struct.field(pytree_node=False)
    tau: float = struct.field(pytree_node=False)
    temperature: float = struct.field(pytree_node=False)
    conservative_weight: float = struct.field(pytree_node=False)
    num_samples: int = struct.field(pytree_node=False)

    @jax.jit
    def update(self, batch):
        """Return the agent after an update on a batch, and metrics."""
        key, critic_key, actor_key = jax.random.split(self.key, 3)
        critic, critic_info = self._update_critic(batch, critic_key)
        agent = self.replace(key=key, critic=critic)
        actor, actor_info = agent._update_actor(batch, actor_key)
        target_critic = target_update(critic, self.target_critic, self.tau)
        agent = agent.replace(actor=actor, target_critic=target_critic)
        return agent, {**critic_info, **actor_info}

    def _update_critic(self, batch, key):
        target_key, key = jax.random.split(key)
        actions, log_probs = self._sample(
            self.actor.params, batch.next_observations, target_key
        )
        targets = jax.vmap(rlaxlib.sac_critic_target, (0, 0, 0, 0, None))(
            batch.rewards,
            self.discount * batch.discounts,
            self.target_critic(batch.next_observations, actions),
            log_probs,
            self.temperature,
        )
        samples, log_prob_samples = self._sample_for_critic(batch, key)
        conservative_loss = jax.vmap(  # Over critics, then over the batch.
            jax.vmap(rlaxlib.cql_loss, (0, 1, None)), (0, 1, 1)
        )

        def loss(params):
            critic = functools.partial(self.critic, params=params)
            q = critic(batch.observations, batch.actions)  # [B, N]
            # [K, B, N]: the values of K sampled actions.
            q_samples = jax.vmap(critic, (None, 0))(batch.observations, samples)
            td_loss = jnp.mean(rlaxlib.l2_loss(q - targets[:, None]))
            gap = jnp.mean(conservative_loss(q, q_samples, log_prob_samples))
            critic_loss = td_loss + self.conservative_weight * gap
            return critic_loss, {"td_loss": td_loss, "gap": gap, "q": jnp.mean(q)}

        return self.critic.apply_loss_fn(loss_fn=loss, has_aux=True)

    def _update_actor(self, batch, key):
        def loss(params):
            actions, log_probs = self._sample(params, batch.observations, key)
            q = self.critic(batch.observations, actions)
            losses = jax.vmap(rlaxlib.sac_policy_loss, (0, 0, None))(
                log_probs, q, self.temperature
            )
            actor_loss = jnp.mean(losses)
            info = {"actor_loss": actor_loss, "entropy": -jnp.mean(log_probs)}
            return actor_loss, info

        return self.actor.apply_loss_fn(loss_fn=loss, has_aux=True)

    def _sample(self, params, observations, key):
        """Sample an action for each observation; return it and its log-density."""
        mu, sigma = self.actor(observations, params=params)
        u = mu + sigma * jax.random.normal(key, mu.shape)
        return jnp.tanh(u), jax.vmap(rlaxlib.tanh_normal_log_prob)(u, mu, sigma)

    def _sample_for_critic(self, batch, key):
        """Sample the actions whose values are lowered, and their log-densities.

        Returns:
            Actions, `[K, B, D]`, and their log-densities, `[K, B]`: a third is uniform,
            a third is from the policy, and a third from the policy in the next state.
        """
        keys = jax.random.split(key, (3, self.num_samples))
        sample = jax.vmap(self._sample, (None, None, 0))
        here = sample(self.actor.params, batch.observations, keys[0])
        there = sample(self.actor.params, batch.next_observations, keys[1])
        uniform = jax.random.uniform(keys[2, 0], here[0].shape, minval=-1.0)
        density = 0.5 ** batch.actions.shape[-1]  # On the box [-1, 1].
        log_density = jnp.full(here[1].shape, jnp.log(density))
        return jax.tree.map(
            lambda *xs: jnp.concatenate(xs), here, there, (uniform, log_density)
        )


def make_agents(key, config) -> tuple[BCAgent, CQLAgent]:
    """Initialise the modules and the optimizers of both agents."""
    key, actor_key, critic_key = jax.random.split(key, 3)
    observations = jnp.zeros((1, pendulum.OBSERVATION_SIZE))
    actions = jnp.zeros((1, pendulum.ACTION_SIZE))

    actor = Actor(config.hidden_units, pendulum.ACTION_SIZE)
    critic = critics(2, (config.hidden_units, config.hidden_units))
    actor_params = actor.init(actor_key, observations)["params"]
    critic_params = critic.init(critic_key, observations, actions)["params"]

    adam = optax.adam(config.learning_rate)
    actor_state = TrainState.create(actor, actor_params, adam)
    cql = CQLAgent(
        actor=actor_state,
        key=key,
        critic=TrainState.create(critic, critic_params, adam),
        target_critic=TrainState.create(critic, critic_params),
        discount=config.discount,
        tau=config.tau,
        temperature=config.temperature,
        conservative_weight=config.conservative_weight,
        num_samples=config.num_samples,
    )
    return BCAgent(actor_state), cql


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
    """Read or make a data set; return the learning curves of CQL and BC."""
    data = offline.load(config.dataset) if config.dataset else make_dataset(config)
    bc, cql = make_agents(jax.random.key(config.seed), config)
    return {
        "CQL": pendulum.train_offline(cql, data, config)[1],
        "BC": pendulum.train_offline(bc, data, config)[1],
    }


def main(config):
    curves.report(train(config), "Conservative Q-learning on Pendulum", config.output)


if __name__ == "__main__":
    run(main, Config)
