"""DQN on MinAtar, with uniform replay.

    rlaxlib.epsilon_greedy   the policy,
    rlaxlib.q_learning       the TD errors,
    rlaxlib.huber_loss       the loss.

The hyper-parameters are those of `revisiting_rainbow/Configs/dqn_*.gin` of
https://github.com/JohanSamir/revisiting_rainbow, for 10 million steps, and Dopamine's
defaults where these have none, such as ε. ε falls over the same number of steps as
there, so that a shorter run is the beginning of a long one. The authors step one
environment and update after every fourth step; here four environments take one step
between updates.

Reference:
    Johan S. Obando-Ceron and Pablo Samuel Castro, *Revisiting Rainbow: Promoting more
    insightful and inclusive deep reinforcement learning research*, 2020.
    https://arxiv.org/abs/2011.14826
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

import rlaxlib
from minatar.games import Agent, Game, Transition, World, patches

SOURCE = "https://arxiv.org/abs/2011.14826"
PUBLISHED: dict[str, float] = {}  # Figures only.

NUM_ENVS = 4  # Steps between updates.
BATCH_SIZE, CAPACITY = 32, 100_000
MIN_STEPS = 1_000  # In replay, before the first update.
TARGET_PERIOD = 1_000  # Steps between copies to the target network.
LEARNING_RATE, ADAM_EPSILON = 2.5e-4, 3.125e-4
DISCOUNT = 0.99
EPSILON, EPSILON_STEPS = (1.0, 0.01), 250_000
EVALUATION_EPSILON = 0.001


class Network(nn.Module):
    """A convolution, and the values of A actions."""

    num_actions: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return action values, [..., A]."""
        init = nn.initializers.xavier_uniform()
        edges = [(0, 0)] * (x.ndim - 3) + [(1, 1), (1, 1), (0, 0)]
        x = nn.relu(nn.Dense(16, kernel_init=init)(patches(jnp.pad(x, edges))))
        x = x.reshape(*x.shape[:-3], -1)
        return nn.Dense(self.num_actions, kernel_init=init)(x)


class State(NamedTuple):
    """State of a training run."""

    params: Any
    target: Any
    optimizer: optax.OptState
    world: World
    replay: Transition  # The latest transitions, [CAPACITY, ...].
    steps: jax.Array


def make(game: Game, steps: int) -> Agent:
    """Create a DQN agent for a game; no hyper-parameter depends on the steps."""
    network = Network(game.num_actions)
    optimizer = optax.flatten(optax.adam(LEARNING_RATE, eps=ADAM_EPSILON))
    epsilon = optax.linear_schedule(*EPSILON, EPSILON_STEPS, MIN_STEPS)

    def init(key):
        init_key, reset_key = jax.random.split(key)
        world = game.reset(reset_key, NUM_ENVS)
        params = network.init(init_key, world.observation)
        action = jnp.zeros(NUM_ENVS, jnp.int32)
        _, transition = jax.eval_shape(game.step, key, world, action)
        replay = jax.tree.map(
            lambda x: jnp.zeros((CAPACITY, *x.shape[1:]), x.dtype), transition
        )
        optimizer_state = optimizer.init(params)
        return State(params, params, optimizer_state, world, replay, jnp.int32(0))

    def update(state, key):
        def step(state, key):
            step_key, learn_key = jax.random.split(key)
            state = remember(state, step_key)
            learned = jax.lax.cond(
                state.steps > MIN_STEPS,
                learn,
                lambda state, key: (state.params, state.optimizer),
                state,
                learn_key,
            )
            return state._replace(params=learned[0], optimizer=learned[1]), None

        keys = jax.random.split(key, TARGET_PERIOD // NUM_ENVS)
        state, _ = jax.lax.scan(step, state, keys)
        return state._replace(target=state.params)

    def remember(state, key):
        act_key, step_key = jax.random.split(key)
        action = act(state, act_key, state.world.observation, epsilon(state.steps))
        world, transition = game.step(step_key, state.world, action)
        start = state.steps % CAPACITY
        replay = jax.tree.map(
            lambda x, new: jax.lax.dynamic_update_slice_in_dim(x, new, start, 0),
            state.replay,
            transition,
        )
        steps = state.steps + NUM_ENVS
        return state._replace(world=world, replay=replay, steps=steps)

    def learn(state, key):
        stored = jnp.minimum(state.steps, CAPACITY)
        rows = jax.random.randint(key, (BATCH_SIZE,), 0, stored)
        batch = jax.tree.map(lambda x: x[rows], state.replay)
        q_t = network.apply(state.target, batch.s_t)

        def loss(params):
            td_error = jax.vmap(rlaxlib.q_learning)(
                network.apply(params, batch.s_tm1),
                batch.a_tm1,
                batch.r_t,
                DISCOUNT * batch.discount_t,
                q_t,
            )
            return jnp.mean(rlaxlib.huber_loss(td_error))

        gradient = jax.grad(loss)(state.params)
        updates, optimizer_state = optimizer.update(gradient, state.optimizer)
        return optax.apply_updates(state.params, updates), optimizer_state

    def act(state, key, s, epsilon):
        q = network.apply(state.params, s)
        return rlaxlib.epsilon_greedy(epsilon).sample(key, q)

    def evaluate(state, key, s):
        return act(state, key, s, EVALUATION_EPSILON)

    return Agent(TARGET_PERIOD, init, update, evaluate)
