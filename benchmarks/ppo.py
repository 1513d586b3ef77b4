"""PPO of the training runs, on the environments of gymnax, in one jitted function.

A training run is a pure function `(key) -> (state, metrics)`. It continues from a
state, and `jax.vmap` maps it over seeds or hyper-parameters:

    ppo = make("CartPole-v1")
    state, metrics = ppo.train(key)
    state, metrics = ppo.train(state=state, skip_initial_evaluation=True)
    states, metrics = jax.vmap(ppo.train)(jax.random.split(key, 8))
    states, metrics = jax.vmap(lambda r: ppo.set(learning_rate=r).train(key))(rates)

`examples/ppo_pure_jax.py` is the same algorithm, shorter.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import gymnax
import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax import struct
from gymnax.environments.environment import Environment
from jax.flatten_util import ravel_pytree

import rlaxlib

Params = Any  # Parameters of the network, a tree of flax.

# --- Data types. B environments, T steps, A actions. ---


class HyperParameters(struct.PyTreeNode):
    """Hyper-parameters: scalars, which may be traced, and static sizes."""

    learning_rate: float = 3e-4
    discount: float = 0.99
    lambda_: float = 0.95  # Of GAE.
    epsilon: float = 0.2  # Clipping range of the ratios.
    value_epsilon: float = math.inf  # Clipping range of the values.
    value_cost: float = 0.5
    entropy_cost: float = 0.01
    iterations: int = 16  # Rollouts between evaluations.

    num_envs: int = struct.field(pytree_node=False, default=64)  # B
    num_steps: int = struct.field(pytree_node=False, default=64)  # T
    num_epochs: int = struct.field(pytree_node=False, default=8)
    num_minibatches: int = struct.field(pytree_node=False, default=16)
    hidden_units: int = struct.field(pytree_node=False, default=64)
    num_evaluations: int = struct.field(pytree_node=False, default=4)
    eval_episodes: int = struct.field(pytree_node=False, default=128)


class CollectionState(struct.PyTreeNode):
    """State of the data collection."""

    key: jax.Array
    env_state: Any
    observation: jax.Array  # [B, ...]


class AlgorithmState(struct.PyTreeNode):
    """State of the optimisation."""

    key: jax.Array
    params: Params
    optimizer_state: optax.OptState


class State(struct.PyTreeNode):
    """State of a training run."""

    iteration: jax.Array
    evaluation_key: jax.Array
    collection: CollectionState
    algorithm: AlgorithmState


class Trajectory(struct.PyTreeNode):
    """Rollouts of all environments, [T, B, ...]."""

    observation: jax.Array
    action: jax.Array
    log_prob: jax.Array
    reward: jax.Array
    terminated: jax.Array  # No bootstrap.
    truncated: jax.Array  # Time limit: bootstrap from the final observation.
    next_observation: jax.Array  # Before a reset.


class Minibatch(struct.PyTreeNode):
    """A batch of steps, [N, ...]."""

    observation: jax.Array
    action: jax.Array
    log_prob: jax.Array
    value: jax.Array
    advantage: jax.Array


class Metrics(struct.PyTreeNode):
    """Metrics of an evaluation."""

    step: jax.Array  # Total steps of all environments so far.
    episode_return: jax.Array  # [eval_episodes]
    episode_length: jax.Array  # [eval_episodes]


# --- Algorithm. ---


class Dense(nn.Module):
    """A dense layer on columns, [inputs, N].

    On a CPU, its gradient is faster than that of flax's layer, which maps rows.
    """

    features: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return the features, [features, N]."""
        init = nn.initializers.lecun_normal(in_axis=1, out_axis=0)
        kernel = self.param("kernel", init, (self.features, x.shape[0]))
        bias = self.param("bias", nn.initializers.zeros, (self.features, 1))
        return kernel @ x + bias


class Network(nn.Module):
    """Separate networks for the policy and the value."""

    hidden_units: int
    num_actions: int

    @nn.compact
    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return logits, [N, A], and values, [N], for observations, [N, ...]."""
        x = x.reshape(len(x), -1).T

        def tower(outputs):
            y = x
            for _ in range(2):
                y = nn.swish(Dense(self.hidden_units)(y))
            return Dense(outputs)(y)

        return tower(self.num_actions).T, tower(1)[0]


class Ppo(struct.PyTreeNode):
    """PPO on a gymnax environment."""

    env: Environment = struct.field(pytree_node=False)
    env_params: Any
    hyper: HyperParameters = HyperParameters()
    on_evaluation: Callable[[Metrics], None] | None = struct.field(
        pytree_node=False, default=None
    )

    def set(self, **changes: Any) -> "Ppo":
        """Return a copy with other hyper-parameters."""
        return self.replace(hyper=self.hyper.replace(**changes))

    @functools.partial(jax.jit, static_argnames="skip_initial_evaluation")
    def train(
        self,
        key: jax.Array | None = None,
        state: State | None = None,
        skip_initial_evaluation: bool = False,
    ) -> tuple[State, Metrics]:
        """Start a run, or continue one.

        Args:
            key: Random key of a new run; unused if `state` is given.
            state: State to continue from; or None for a new run.
            skip_initial_evaluation: Whether to skip the evaluation before training.

        Returns:
            The final state, and the metrics of all evaluations, stacked.
        """
        if state is None:
            state = self.init(*jax.random.split(key))

        def learn_and_evaluate(state, iterations):
            state = jax.lax.fori_loop(
                0, iterations, lambda _, state: self.iterate(state), state
            )
            return state, self.evaluate(state)

        # The initial evaluation follows 0 iterations, so that it is not compiled twice.
        iterations = jnp.full(self.hyper.num_evaluations, self.hyper.iterations)
        if not skip_initial_evaluation:
            iterations = jnp.concatenate([jnp.zeros_like(iterations[:1]), iterations])
        return jax.lax.scan(learn_and_evaluate, state, iterations)

    def init(self, network_key: jax.Array, environment_key: jax.Array) -> State:
        """Return the initial state, with separate keys of network and environments."""
        init_key, learn_key = jax.random.split(network_key)
        keys = jax.random.split(environment_key, self.hyper.num_envs + 2)
        observation, env_state = self.reset(keys[2:])
        params = self.network.init(init_key, observation)
        return State(
            iteration=jnp.int32(0),
            evaluation_key=keys[0],
            collection=CollectionState(keys[1], env_state, observation),
            algorithm=AlgorithmState(
                learn_key, params, self.optimizer.init(ravel_pytree(params)[0])
            ),
        )

    def iterate(self, state: State) -> State:
        """Collect rollouts and update on them."""
        collection, trajectory = self.collect(state.collection, state.algorithm.params)
        algorithm = self.learn(state.algorithm, trajectory)
        return state.replace(
            iteration=state.iteration + 1, collection=collection, algorithm=algorithm
        )

    def collect(
        self, state: CollectionState, params: Params
    ) -> tuple[CollectionState, Trajectory]:
        """Take T steps in each environment."""

        def step(carry, keys):
            env_state, observation = carry
            logits, _ = self.network.apply(params, observation)
            action = rlaxlib.softmax().sample(keys[0], logits)
            next_observation, env_state, reward, terminated, truncated, info = jax.vmap(
                self.env.step, (0, 0, 0, None)
            )(keys[1:], env_state, action, self.env_params)
            return (env_state, next_observation), Trajectory(
                observation=observation,
                action=action,
                log_prob=rlaxlib.softmax().logprob(action, logits),
                reward=reward,
                terminated=terminated,
                truncated=truncated,
                next_observation=info["final_observation"],
            )

        # One key per step for the actions, and one per step and environment.
        shape = (self.hyper.num_steps + 1, self.hyper.num_envs + 1)
        keys = jax.random.split(state.key, shape)
        (env_state, observation), trajectory = jax.lax.scan(
            step, (state.env_state, state.observation), keys[1:]
        )
        return CollectionState(keys[0, 0], env_state, observation), trajectory

    def learn(self, state: AlgorithmState, trajectory: Trajectory) -> AlgorithmState:
        """Update on shuffled minibatches of the rollouts, for several epochs."""
        steps = self.estimate(state.params, trajectory)
        steps = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), steps)
        key, shuffle_key = jax.random.split(state.key)
        order = shuffle(shuffle_key, len(steps.action), self.hyper.num_epochs)

        # A flat vector makes the optimizer update one array instead of twelve.
        vector, unravel = ravel_pytree(state.params)

        def update(carry, rows):
            vector, optimizer_state = carry
            minibatch = jax.tree.map(lambda x: x[rows], steps)
            gradient = jax.grad(lambda x: self.loss(unravel(x), minibatch))(vector)
            updates, optimizer_state = self.optimizer.update(gradient, optimizer_state)
            return (optax.apply_updates(vector, updates), optimizer_state), None

        (vector, optimizer_state), _ = jax.lax.scan(
            update,
            (vector, state.optimizer_state),
            order.reshape(self.hyper.num_epochs * self.hyper.num_minibatches, -1),
        )
        return AlgorithmState(key, unravel(vector), optimizer_state)

    def estimate(self, params: Params, trajectory: Trajectory) -> Minibatch:
        """Estimate the values and the advantages of all steps."""
        observations = jnp.stack([trajectory.observation, trajectory.next_observation])
        shape = observations.shape[:3]
        rows = observations.reshape(-1, *observations.shape[3:])
        value, next_value = self.network.apply(params, rows)[1].reshape(shape)
        advantage = jax.vmap(self.advantage, in_axes=1, out_axes=1)(
            value, next_value, trajectory
        )
        return Minibatch(
            observation=trajectory.observation,
            action=trajectory.action,
            log_prob=trajectory.log_prob,
            value=value,
            advantage=advantage,
        )

    def advantage(self, value, next_value, trajectory):
        """Estimate the advantages of one environment by GAE."""
        return rlaxlib.generalized_advantage_estimation(
            v_tm1=value,
            v_t=next_value,
            r_t=trajectory.reward,
            discount_t=self.hyper.discount * (1.0 - trajectory.terminated),
            lambda_=self.hyper.lambda_,
            truncated_t=trajectory.truncated,
        )

    def loss(self, params: Params, batch: Minibatch) -> jax.Array:
        """Return the loss of a minibatch."""
        hyper, policy = self.hyper, rlaxlib.softmax()
        logits, value = self.network.apply(params, batch.observation)
        policy_loss, _ = rlaxlib.ppo_clip_loss(
            log_prob=policy.logprob(batch.action, logits),
            old_log_prob=batch.log_prob,
            adv=rlaxlib.standardize(batch.advantage),
            epsilon=hyper.epsilon,
        )
        value_loss, _ = rlaxlib.ppo_value_loss(
            v=value,
            old_v=batch.value,
            targets=batch.value + batch.advantage,
            epsilon=hyper.value_epsilon,
        )
        bonus = hyper.entropy_cost * policy.entropy(logits)
        return jnp.mean(policy_loss + hyper.value_cost * value_loss - bonus)

    def evaluate(self, state: State) -> Metrics:
        """Play one episode in each of the evaluation environments."""
        step_env = jax.vmap(self.env.step_env, (0, 0, 0, None))
        is_truncated = jax.vmap(self.env.is_truncated, (0, None))

        def step(carry):
            key, env_state, observation, running, total, length = carry
            keys = jax.random.split(key, self.hyper.eval_episodes + 2)
            logits, _ = self.network.apply(state.algorithm.params, observation)
            action = rlaxlib.softmax().sample(keys[1], logits)
            observation, env_state, reward, terminated, _ = step_env(
                keys[2:], env_state, action, self.env_params
            )
            total, length = total + running * reward, length + running
            running &= ~(terminated | is_truncated(env_state, self.env_params))
            return keys[0], env_state, observation, running, total, length

        key = jax.random.fold_in(state.evaluation_key, state.iteration)
        keys = jax.random.split(key, self.hyper.eval_episodes + 1)
        observation, env_state = self.reset(keys[1:])
        running = jnp.ones(self.hyper.eval_episodes, bool)
        *_, total, length = jax.lax.while_loop(
            lambda carry: jnp.any(carry[3]),
            step,
            (keys[0], env_state, observation, running, 0.0 * running, 0 * running),
        )
        steps = state.iteration * self.hyper.num_steps * self.hyper.num_envs
        metrics = Metrics(steps, episode_return=total, episode_length=length)
        if self.on_evaluation is not None:
            jax.debug.callback(self.on_evaluation, metrics)
        return metrics

    def reset(self, keys: jax.Array) -> tuple[jax.Array, Any]:
        """Reset one environment per key."""
        return jax.vmap(self.env.reset, (0, None))(keys, self.env_params)

    @property
    def network(self) -> Network:
        """The network module."""
        return Network(self.hyper.hidden_units, self.env.num_actions)

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """The optimizer; its learning rate may be traced."""
        return optax.adam(self.hyper.learning_rate)


def make(environment: str, **hyper: Any) -> Ppo:
    """Create PPO for a gymnax environment, by its name."""
    return Ppo(*gymnax.make(environment), hyper=HyperParameters(**hyper))


def shuffle(key: jax.Array, number: int, times: int) -> jax.Array:
    """Return random permutations of `range(number)`, [times, number].

    Each index is in the low bits of a random number, so that one sort is enough. With
    `jax.random.permutation`, a run takes a quarter longer.
    """
    low = (number - 1).bit_length()
    bits = jax.random.bits(key, (times, number)) >> low << low
    return jnp.sort(bits | jnp.arange(number, dtype=bits.dtype)) % (1 << low)
