"""Agents of the training runs, with rlaxlib's losses: DQN, PQN, SAC and TD3.

An agent is made from the settings of its run, which have rejax's names, see
`benchmarks/training.py`, and its task, see `benchmarks/loops.py`. The losses of SAC and
TD3 are the recipes in `examples/`, which has to be on the path.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from recipes.continuous import (
    ActorCritic,
    sac_actor,
    sac_critic,
    sac_temperature,
    sample_tanh_normal,
    td3_actor,
    td3_critic,
)

import rlaxlib
from benchmarks.ppo import shuffle


class Batch(NamedTuple):
    """Transitions, [B, ...], or streams of them, [T, B, ...]."""

    s_tm1: jax.Array
    a_tm1: jax.Array
    r_t: jax.Array
    discount_t: jax.Array
    truncated_t: jax.Array  # True at a time limit.
    s_t: jax.Array  # Before a reset.


class Learner(NamedTuple):
    """Parameters, those of the target network, and the optimizer's state."""

    params: Any
    target: Any
    optimizer: optax.OptState
    count: jax.Array  # Of updates.


class Agent(NamedTuple):
    """Pure functions of an agent.

    Attributes:
        init: From a key and observations to a state.
        act: From a state, a key, observations and noise to actions.
        explore: From a key and a shape to random actions.
        update: From a state, a key and a batch to a state.
        noise: From the number of steps so far to the noise of exploration.
        evaluation_noise: Noise of an evaluation.
    """

    init: Callable[..., Any]
    act: Callable[..., jax.Array]
    explore: Callable[..., jax.Array]
    update: Callable[..., Any]
    noise: Callable[[jax.Array], Any]
    evaluation_noise: float


# --- Networks and their parameters. ---


class MLP(nn.Module):
    """Two hidden layers of 64 units, and linear outputs."""

    outputs: int
    activation: Callable[[jax.Array], jax.Array] = nn.swish

    @nn.compact
    def __call__(self, *inputs: jax.Array) -> jax.Array:
        """Return the outputs, [..., outputs], for inputs, [..., features]."""
        x = jnp.concatenate(inputs, axis=-1)
        for _ in range(2):
            x = self.activation(nn.Dense(64)(x))
        return nn.Dense(self.outputs)(x)


def begin(params, adam) -> Learner:
    """Return a learner with its first parameters."""
    return Learner(params, params, adam.init(params), jnp.int32(0))


def descend(learner, adam, loss, tau=0.0) -> Learner:
    """Take a step of Adam on `loss(params)`, and one of size `tau` of the target."""
    gradient = jax.grad(loss)(learner.params)
    updates, optimizer = adam.update(gradient, learner.optimizer)
    params = optax.apply_updates(learner.params, updates)
    learner = Learner(params, learner.target, optimizer, learner.count + 1)
    return follow(learner, tau) if tau else learner


def follow(learner, tau) -> Learner:
    """Move the target parameters towards the parameters."""
    target = optax.incremental_update(learner.params, learner.target, tau)
    return learner._replace(target=target)


def _adam(settings):
    """Return Adam, which updates all parameters as one vector."""
    return optax.flatten(optax.adam(settings["learning_rate"]))


# --- Discrete actions. ---


def dqn(settings, task) -> Agent:
    """Create a DQN agent, with double Q-learning."""
    network, adam = MLP(task.size), _adam(settings)
    gamma, tau = settings["gamma"], 1 - settings["polyak"]

    def update(learner, key, batch):
        q_t_value = network.apply(learner.target, batch.s_t)

        def loss(params):
            td_error = jax.vmap(rlaxlib.double_q_learning)(
                network.apply(params, batch.s_tm1),
                batch.a_tm1,
                batch.r_t,
                gamma * batch.discount_t,
                q_t_value,
                network.apply(params, batch.s_t),
            )
            return jnp.mean(rlaxlib.l2_loss(td_error))

        return descend(learner, adam, loss, tau)

    return _epsilon_greedy(settings, network, adam, update)


def pqn(settings, task) -> Agent:
    """Create a PQN agent: Q(λ) on fresh streams, without replay or target network."""
    network = MLP(task.size, lambda x: nn.relu(nn.LayerNorm()(x)))
    adam, gamma, lambda_ = _adam(settings), settings["gamma"], settings["td_lambda"]
    epochs, minibatches = settings["num_epochs"], settings["num_minibatches"]

    def returns(r_t, discount_t, q_t, truncated_t):
        v_t = jnp.max(q_t, axis=-1)
        return rlaxlib.lambda_returns(
            r_t, gamma * discount_t, v_t, lambda_, truncated_t=truncated_t
        )

    def update(learner, key, batch):
        q_t = network.apply(learner.params, batch.s_t)
        target = jax.vmap(returns, in_axes=1, out_axes=1)(
            batch.r_t, batch.discount_t, q_t, batch.truncated_t
        )
        steps = batch.s_tm1, batch.a_tm1, target
        steps = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), steps)

        def one(learner, rows):
            s, a, target = jax.tree.map(lambda x: x[rows], steps)

            def loss(params):
                q = rlaxlib.batched_index(network.apply(params, s), a)
                return jnp.mean(rlaxlib.l2_loss(q - target))

            return descend(learner, adam, loss), None

        order = shuffle(key, target.size, epochs)
        order = order.reshape(epochs * minibatches, -1)
        return jax.lax.scan(one, learner, order)[0]

    return _epsilon_greedy(settings, network, adam, update)


def _epsilon_greedy(settings, network, adam, update) -> Agent:
    """Create an agent that acts on action values, with a decaying ε."""
    decay = settings["exploration_fraction"] * settings["total_timesteps"]

    def act(learner, key, s, noise):
        q = network.apply(learner.params, s)
        return rlaxlib.epsilon_greedy(noise).sample(key, q)

    return Agent(
        init=lambda key, s: begin(network.init(key, s), adam),
        act=act,
        explore=lambda key, num: jax.random.randint(key, (num,), 0, network.outputs),
        update=update,
        noise=optax.linear_schedule(1.0, 0.05, int(decay)),
        evaluation_noise=0.005,
    )


# --- Continuous actions, in [-1, 1]. ---


def sac(settings, task) -> Agent:
    """Create a SAC agent. One optimizer minimises the sum of its three losses."""
    adam, gamma, tau = _adam(settings), settings["gamma"], 1 - settings["polyak"]
    actor, critics = MLP(2 * task.size, nn.relu), _critics(nn.relu)

    def gaussian(params, s):
        mu, log_sigma = jnp.split(actor.apply(params, s), 2, axis=-1)
        return mu, jnp.exp(jnp.clip(log_sigma, -10.0, 2.0))

    apply = ActorCritic(gaussian, lambda *x: critics.apply(*x)[:, 0])

    def init(key, s):
        params = _init(key, actor, critics, s, task.size)
        return begin(params._replace(duals=jnp.zeros(())), adam)

    def act(learner, key, s, noise):
        return sample_tanh_normal(key, *gaussian(learner.params.actor, s))[0]

    def update(learner, key, batch):
        batch = batch._replace(discount_t=gamma * batch.discount_t)
        keys = jax.random.split(key)
        temperature = jnp.exp(learner.params.duals)

        def loss(params):
            actor = params, apply, batch, keys[0]
            return (
                sac_critic(params, learner.target, apply, batch, keys[1], temperature)
                + sac_actor(*actor, temperature)
                + sac_temperature(params.duals, *actor, -task.size)
            )

        return descend(learner, adam, loss, tau)

    return _continuous(init, act, update, task.size)


def td3(settings, task) -> Agent:
    """Create a TD3 agent, whose state is a learner each for actor and critics."""
    adam, gamma, tau = _adam(settings), settings["gamma"], 1 - settings["polyak"]
    period = settings["policy_delay"]
    exploration, stddev, clip = (
        settings[name] / task.scale
        for name in ("exploration_noise", "target_noise", "target_noise_clip")
    )
    network, critics = MLP(task.size), _critics(nn.swish)
    apply = ActorCritic(
        lambda *x: jnp.tanh(network.apply(*x)), lambda *x: critics.apply(*x)[:, 0]
    )

    def init(key, s):
        params = _init(key, network, critics, s, task.size)
        return ActorCritic(begin(params.actor, adam), begin(params.critic, adam))

    def act(state, key, s, noise):
        action = apply.actor(state.actor.params, s)
        return jnp.clip(rlaxlib.add_gaussian_noise(key, action, noise), -1.0, 1.0)

    def update(state, key, batch):
        batch = batch._replace(discount_t=gamma * batch.discount_t)
        target = ActorCritic(state.actor.target, state.critic.target)

        def critic_loss(params):
            params = ActorCritic(state.actor.params, params)
            return td3_critic(params, target, apply, batch, key, stddev, clip)

        critic = descend(state.critic, adam, critic_loss)

        def improve():
            def actor_loss(params):
                return td3_actor(ActorCritic(params, critic.params), apply, batch)

            actor = descend(state.actor, adam, actor_loss, tau)
            return ActorCritic(actor, follow(critic, tau))

        due = critic.count % period == 0
        return jax.lax.cond(due, improve, lambda: ActorCritic(state.actor, critic))

    return _continuous(init, act, update, task.size, exploration)


def _critics(activation) -> nn.Module:
    """Return two critics, with values of shape [B, 1, 2]."""
    ensemble = nn.vmap(
        MLP,
        variable_axes={"params": 0},
        split_rngs={"params": True},
        in_axes=None,
        out_axes=-1,
        axis_size=2,
    )
    return ensemble(1, activation)


def _init(key, actor, critics, s, action_size) -> ActorCritic:
    """Return the first parameters of an actor and of its critics."""
    keys = jax.random.split(key)
    a = jnp.zeros((len(s), action_size))
    return ActorCritic(actor.init(keys[0], s), critics.init(keys[1], s, a))


def _continuous(init, act, update, action_size, exploration=0.0) -> Agent:
    """Create an agent for actions in [-1, 1]."""
    return Agent(
        init=init,
        act=act,
        explore=lambda key, num: jax.random.uniform(key, (num, action_size), minval=-1),
        update=update,
        noise=lambda steps: exploration,
        evaluation_noise=0.0,
    )
