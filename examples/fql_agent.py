"""Train an agent on Pendulum by flow Q-learning (FQL), from recorded data.

A flow policy can represent any distribution of actions, such as that of data which
several policies recorded. It is trained by flow matching: a network predicts the
velocity from noise to an action of the data, and an action is the solution of the flow
from noise, by Euler's method. The gradient of a value through all steps of a flow is
slow and unstable, so FQL trains the flow by behaviour cloning only. Besides, it trains
a policy with one step from noise to an action, which learns both to end where the flow
ends and to maximise the value. The agent is a pytree: `agent.update(batch)` returns a
new agent.

- `rlaxlib.flow_matching_sample`: the points of the paths, and their velocities,
- `rlaxlib.flow_matching_loss`: the loss of the flow, and that of the distillation,
- `rlaxlib.ensemble_value`: the mean value of two critics,
- `rlaxlib.td_learning`: the TD errors of the critics,
- `rlaxlib.l2_loss`: their loss.

The data set is that of `cql_agent.py`, of mixed quality: all experience of a short run
of `sac_agent.py`, with many random actions before it. `--dataset` reads any other data
set of Pendulum. The flow alone imitates the data (BC), and is evaluated too. The weight
of the distillation fits this scale of rewards. A higher one keeps closer to the data.

A random agent returns about -1200 in gymnax's Pendulum, and the best return is about
-150. Expect about -800 in the data, less than -700 from BC and more than -250 from FQL,
after about a minute on two cores, imports and compilation included.

    python examples/fql_agent.py --seed=1 --weight=10
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
    output: str = flag("results/fql_agent", "Folder for data set and learning curves.")
    dataset: str = flag("", "Data set to read; if empty, one is made.")
    data_random_steps: int = flag(4000, "Steps with random actions in the data set.")
    data_train_steps: int = flag(6000, "Steps of a learning SAC agent in the data set.")
    train_steps: int = flag(8000, "Training batches.")
    eval_episodes: int = flag(32, "Episodes per evaluation, with sampled actions.")
    eval_interval: int = flag(1000, "Batches between evaluations.")
    batch_size: int = flag(128, "Transitions per batch.")
    hidden_units: int = flag(64, "Units of each of the two hidden layers.")
    learning_rate: float = flag(1e-3, "Learning rate of Adam.")
    discount: float = flag(0.99, "Discount factor.")
    tau: float = flag(0.01, "Step size of the target critics.")
    flow_steps: int = flag(10, "Steps of Euler's method.")
    weight: float = flag(3.0, "Weight of the distillation loss, relative to values.")


# --- Agent: modules and losses. ---


class Policy(nn.Module):
    """A network from observations and further vectors to D numbers."""

    hidden_units: int
    action_size: int

    @nn.compact
    def __call__(self, observations, *inputs):
        x = jnp.concatenate([observations, *inputs], axis=-1)
        x = MLP((self.hidden_units, self.hidden_units))(x)
        return nn.Dense(self.action_size)(x)


class FlowAgent(struct.PyTreeNode):
    """A flow policy, trained by behaviour cloning."""

    key: jax.Array
    flow: TrainState  # From observations, points and times to velocities.
    flow_steps: int = struct.field(pytree_node=False)

    @jax.jit
    def sample_actions(self, observations, *, seed, temperature=1.0):
        """Sample actions, shape `[..., D]`, at any temperature."""
        shape = (*observations.shape[:-1], pendulum.ACTION_SIZE)
        actions = self.act(observations, jax.random.normal(seed, shape))
        return jnp.clip(actions, -1.0, 1.0)

    def act(self, observations, noise):
        """Return actions from noise."""
        return self.solve(observations, noise)

    def solve(self, observations, noise):
        """Return the ends of the flow from noise, by Euler's method."""

        def step(x, t):
            times = jnp.full((*x.shape[:-1], 1), t)
            return x + self.flow(observations, x, times) / self.flow_steps, None

        times = jnp.arange(self.flow_steps) / self.flow_steps
        return jax.lax.scan(step, noise, times)[0]

    @jax.jit
    def update(self, batch):
        """Return the agent after an update on a batch, and metrics."""
        key, flow_key = jax.random.split(self.key)
        keys = jax.random.split(flow_key, len(batch.actions))
        x, t, velocity = jax.vmap(rlaxlib.flow_matching_sample)(keys, batch.actions)

        def loss(params):
            prediction = self.flow(batch.observations, x, t[:, None], params=params)
            flow_loss = jnp.mean(rlaxlib.flow_matching_loss(prediction, velocity))
            return flow_loss, {"flow_loss": flow_loss}

        flow, info = self.flow.apply_loss_fn(loss_fn=loss, has_aux=True)
        return self.replace(key=key, flow=flow), info


class FQLAgent(FlowAgent):
    """A flow Q-learning agent, which acts by a policy of one step."""

    actor: TrainState  # From observations and noise to actions.
    critic: TrainState
    target_critic: TrainState
    discount: float = struct.field(pytree_node=False)
    tau: float = struct.field(pytree_node=False)
    weight: float = struct.field(pytree_node=False)

    def act(self, observations, noise):
        """Return actions from noise, in one step."""
        return self.actor(observations, noise)

    @jax.jit
    def update(self, batch):
        """Return the agent after an update on a batch, and metrics."""
        agent, flow_info = super().update(batch)
        key, critic_key, actor_key = jax.random.split(agent.key, 3)
        critic, critic_info = self._update_critic(batch, critic_key)
        agent = agent.replace(key=key, critic=critic)
        actor, actor_info = agent._update_actor(batch, actor_key)
        target_critic = target_update(critic, self.target_critic, self.tau)
        agent = agent.replace(actor=actor, target_critic=target_critic)
        return agent, {**flow_info, **critic_info, **actor_info}

    def _update_critic(self, batch, key):
        actions = self.sample_actions(batch.next_observations, seed=key)
        q_t = self.target_critic(batch.next_observations, actions)
        v_t = jax.vmap(functools.partial(rlaxlib.ensemble_value, kind="mean"))(q_t)
        td_learning = jax.vmap(rlaxlib.td_learning)  # Over the batch.
        td_learning = jax.vmap(td_learning, (1, None, None, None), 1)  # Over critics.

        def loss(params):
            q = self.critic(batch.observations, batch.actions, params=params)
            discounts = self.discount * batch.discounts
            td_errors = td_learning(q, batch.rewards, discounts, v_t)
            td_loss = jnp.mean(rlaxlib.l2_loss(td_errors))
            return td_loss, {"td_loss": td_loss, "q": jnp.mean(q)}

        return self.critic.apply_loss_fn(loss_fn=loss, has_aux=True)

    def _update_actor(self, batch, key):
        noise = jax.random.normal(key, batch.actions.shape)
        ends = self.solve(batch.observations, noise)

        def loss(params):
            actions = self.actor(batch.observations, noise, params=params)
            distillation = jnp.mean(rlaxlib.flow_matching_loss(actions, ends))
            q = self.critic(batch.observations, jnp.clip(actions, -1.0, 1.0))
            actor_loss = self.weight * distillation - jnp.mean(q)
            return actor_loss, {"actor_loss": actor_loss, "distillation": distillation}

        return self.actor.apply_loss_fn(loss_fn=loss, has_aux=True)


def make_agents(key, config) -> tuple[FlowAgent, FQLAgent]:
    """Initialise the modules and the optimizers of both agents."""
    key, flow_key, actor_key, critic_key = jax.random.split(key, 4)
    observations = jnp.zeros((1, pendulum.OBSERVATION_SIZE))
    actions = jnp.zeros((1, pendulum.ACTION_SIZE))

    policy = Policy(config.hidden_units, pendulum.ACTION_SIZE)
    critic = critics(2, (config.hidden_units, config.hidden_units))
    flow_inputs = observations, actions, jnp.zeros((1, 1))
    flow_params = policy.init(flow_key, *flow_inputs)["params"]
    actor_params = policy.init(actor_key, observations, actions)["params"]
    critic_params = critic.init(critic_key, observations, actions)["params"]

    adam = optax.adam(config.learning_rate)
    flow = TrainState.create(policy, flow_params, adam)
    fql = FQLAgent(
        key=key,
        flow=flow,
        flow_steps=config.flow_steps,
        actor=TrainState.create(policy, actor_params, adam),
        critic=TrainState.create(critic, critic_params, adam),
        target_critic=TrainState.create(critic, critic_params),
        discount=config.discount,
        tau=config.tau,
        weight=config.weight,
    )
    return FlowAgent(key, flow, config.flow_steps), fql


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
    """Read or make a data set; return the learning curves of FQL and BC."""
    data = offline.load(config.dataset) if config.dataset else make_dataset(config)
    bc, fql = make_agents(jax.random.key(config.seed), config)
    return {
        "FQL": pendulum.train_offline(fql, data, config)[1],
        "BC": pendulum.train_offline(bc, data, config)[1],
    }


def main(config):
    curves.report(train(config), "Flow Q-learning on Pendulum", config.output)


if __name__ == "__main__":
    run(main, Config)
