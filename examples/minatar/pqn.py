"""PQN on MinAtar: Q(λ) on fresh rollouts, without replay or target network.

Layer normalisation takes the place of the target network.

    rlaxlib.epsilon_greedy     the policy,
    rlaxlib.lambda_returns     the targets,
    rlaxlib.batched_index      the values of the actions taken,
    rlaxlib.l2_loss            the loss.

The hyper-parameters are those of the authors, `pqn_minatar.yaml` of
https://github.com/mttga/purejaxql, for 10 million steps. Both schedules span the steps
of the run, as there. The authors divide observations by 255, which suits pixels and
not the binary channels of MinAtar: here they are 0 and 1.

Reference:
    Matteo Gallici and others, *Simplifying Deep Temporal Difference Learning*, 2024.
    https://arxiv.org/abs/2407.04811
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

import rlaxlib
from minatar.games import Agent, Game, World, patches

SOURCE = "https://arxiv.org/abs/2407.04811"
PUBLISHED: dict[str, float] = {}  # Figures only.

NUM_ENVS, NUM_STEPS = 128, 32
EPOCHS, MINIBATCHES = 2, 32
LEARNING_RATE = 5e-4  # Of RAdam; falls linearly to 0.
MAX_NORM = 10.0  # Of gradients.
DISCOUNT, LAMBDA = 0.99, 0.65
EPSILON, EPSILON_FRACTION = (1.0, 0.05), 0.1  # Falls over a tenth of the steps.


class Network(nn.Module):
    """A convolution, a hidden layer, and the values of A actions."""

    num_actions: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return action values, [..., A]."""
        init = nn.initializers.he_normal()
        x = nn.relu(nn.LayerNorm()(nn.Dense(16, kernel_init=init)(patches(x))))
        x = x.reshape(*x.shape[:-3], -1)
        x = nn.relu(nn.LayerNorm()(nn.Dense(128, kernel_init=init)(x)))
        return nn.Dense(self.num_actions)(x)


class State(NamedTuple):
    """State of a training run."""

    params: Any
    optimizer: optax.OptState
    world: World
    rounds: jax.Array


def make(game: Game, steps: int) -> Agent:
    """Create a PQN agent for a game and a number of steps."""
    network = Network(game.num_actions)
    round_steps = NUM_ENVS * NUM_STEPS
    num_rounds = steps // round_steps
    epsilon = optax.linear_schedule(*EPSILON, int(EPSILON_FRACTION * num_rounds))
    learning_rate = optax.linear_schedule(
        LEARNING_RATE, 0.0, num_rounds * EPOCHS * MINIBATCHES
    )
    optimizer = optax.flatten(
        optax.chain(optax.clip_by_global_norm(MAX_NORM), optax.radam(learning_rate))
    )

    def init(key):
        init_key, reset_key = jax.random.split(key)
        world = game.reset(reset_key, NUM_ENVS)
        params = network.init(init_key, world.observation)
        return State(params, optimizer.init(params), world, jnp.int32(0))

    def update(state, key):
        collect_key, shuffle_key = jax.random.split(key)

        def act(key, s):
            q = network.apply(state.params, s)
            return rlaxlib.epsilon_greedy(epsilon(state.rounds)).sample(key, q)

        world, rollout = game.collect(collect_key, state.world, act, NUM_STEPS)
        v_t = jnp.max(network.apply(state.params, rollout.s_t), axis=-1)
        target = jax.vmap(returns, in_axes=1, out_axes=1)(rollout, v_t)
        data = rollout.s_tm1, rollout.a_tm1, target
        data = jax.tree.map(lambda x: x.reshape(round_steps, *x.shape[2:]), data)

        def step(carry, rows):
            params, optimizer_state = carry
            gradient = jax.grad(loss)(params, *jax.tree.map(lambda x: x[rows], data))
            updates, optimizer_state = optimizer.update(
                gradient, optimizer_state, params
            )
            return (optax.apply_updates(params, updates), optimizer_state), None

        order = jax.vmap(jax.random.permutation, (0, None))(
            jax.random.split(shuffle_key, EPOCHS), round_steps
        )
        (params, optimizer_state), _ = jax.lax.scan(
            step,
            (state.params, state.optimizer),
            order.reshape(EPOCHS * MINIBATCHES, -1),
        )
        return State(params, optimizer_state, world, state.rounds + 1)

    def loss(params, s, a, target):
        q = rlaxlib.batched_index(network.apply(params, s), a)
        return jnp.mean(rlaxlib.l2_loss(q - target))

    def evaluate(state, key, s):
        return jnp.argmax(network.apply(state.params, s), axis=-1)

    return Agent(round_steps, init, update, evaluate)


def returns(rollout, v_t):
    """Return the targets of one environment, [T]."""
    return rlaxlib.lambda_returns(
        rollout.r_t,
        DISCOUNT * rollout.discount_t,
        v_t,
        LAMBDA,
        truncated_t=rollout.truncated_t,
    )
