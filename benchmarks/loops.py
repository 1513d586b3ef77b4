"""Training runs of agents on gymnax, online or from replay, as functions of a seed."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import gymnax
import jax
import jax.numpy as jnp

from benchmarks.agents import Agent, Batch

EPISODES = 128  # Of an evaluation, as in rejax.


class Task(NamedTuple):
    """Environments of gymnax, each with its own key and state."""

    env: Any
    params: Any
    size: int  # Number of actions, or of their dimensions.
    scale: float | None  # Magnitude of continuous actions, which agents take as 1.

    def reset(self, keys):
        """Return observations and states."""
        return jax.vmap(self.env.reset, (0, None))(keys, self.params)

    def step(self, keys, state, action):
        """Return the next observations and states, after resets, and a batch."""
        action = action if self.scale is None else self.scale * action
        return jax.vmap(self.env.step, (0, 0, 0, None))(
            keys, state, action, self.params
        )


class World(NamedTuple):
    """State of the environments, [N]."""

    observation: jax.Array
    state: Any


class Run(NamedTuple):
    """State of a training run."""

    agent: Any
    world: World
    replay: Batch | None  # The latest transitions.
    rounds: jax.Array


def make(name: str) -> Task:
    """Create a task from the name of an environment."""
    env, params = gymnax.make(name)
    space = env.action_space(params)
    if hasattr(space, "n"):
        return Task(env, params, int(space.n), None)
    return Task(env, params, space.shape[0], float(space.high))


def train(
    task: Task, agent: Agent, settings: Mapping[str, Any]
) -> Callable[[int], jax.Array]:
    """Return a function from a seed to the returns of all evaluations.

    Args:
        task: Environments.
        agent: Agent.
        settings: Settings with the names of rejax's. A round takes `num_steps` steps in
            each of `num_envs` environments. With `buffer_size`, it updates the agent on
            `num_epochs` batches from replay, which begins with random actions; else it
            updates the agent once, on the streams of the round.

    Returns:
        Function from a seed to returns, [evaluations, EPISODES].
    """
    num, steps = settings["num_envs"], settings.get("num_steps", 1)
    rounds = settings["eval_freq"] // (num * steps)
    evaluations = settings["total_timesteps"] // settings["eval_freq"]
    capacity = settings.get("buffer_size", 0)
    warm_up = settings["fill_buffer"] // num + 1 if capacity else 0

    def begin(key):
        init_key, reset_key, key = jax.random.split(key, 3)
        world = World(*task.reset(jax.random.split(reset_key, num)))
        run = Run(agent.init(init_key, world.observation), world, None, jnp.int32(0))
        if not capacity:
            return run
        act = lambda key, s: agent.explore(key, num)
        _, batch = jax.eval_shape(lambda: collect(task, world, key, act, steps))
        replay = jax.tree.map(
            lambda x: jnp.zeros((capacity, *x.shape[2:]), x.dtype), batch
        )
        return jax.lax.fori_loop(
            0,
            warm_up,
            lambda i, run: remember(run, jax.random.fold_in(key, i), act)[0],
            run._replace(replay=replay),
        )

    def remember(run, key, act):
        """Take steps, and store them in replay."""
        world, batch = collect(task, run.world, key, act, steps)
        replay = run.replay
        if capacity:
            flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch)
            start = run.rounds * num * steps % capacity
            write = jax.lax.dynamic_update_slice_in_dim
            replay = jax.tree.map(lambda x, new: write(x, new, start, 0), replay, flat)
        return run._replace(world=world, replay=replay, rounds=run.rounds + 1), batch

    def learn(run, key):
        """Take steps, and update the agent."""
        act_key, draw_key, update_key = jax.random.split(key, 3)
        noise = agent.noise(run.rounds * num * steps)
        act = lambda key, s: agent.act(run.agent, key, s, noise)
        run, batch = remember(run, act_key, act)
        if not capacity:
            return run._replace(agent=agent.update(run.agent, update_key, batch))
        epochs = settings["num_epochs"]
        stored = jnp.minimum(run.rounds * num * steps, capacity)
        rows = jax.random.randint(
            draw_key, (epochs, settings["batch_size"]), 0, stored
        )
        batches = jax.tree.map(lambda x: x[rows], run.replay)
        updated, _ = jax.lax.scan(
            lambda state, inputs: (agent.update(state, *inputs), None),
            run.agent,
            (jax.random.split(update_key, epochs), batches),
        )
        return run._replace(agent=updated)

    def train_one(seed):
        keys = jax.random.split(jax.random.key(seed), 3)

        def learn_and_evaluate(run, last):
            run = jax.lax.while_loop(
                lambda run: run.rounds < last,
                lambda run: learn(run, jax.random.fold_in(keys[1], run.rounds)),
                run,
            )
            key = jax.random.fold_in(keys[2], last)
            act = lambda key, s: agent.act(run.agent, key, s, agent.evaluation_noise)
            return run, evaluate(task, key, act)

        last = rounds * jnp.arange(evaluations + 1)
        return jax.lax.scan(learn_and_evaluate, begin(keys[0]), last)[1]

    return train_one


def collect(task, world, key, act, steps):
    """Take steps in all environments; return their new state, and streams, [T, N]."""

    def one(world, key):
        keys = jax.random.split(key, len(world.observation) + 1)
        action = act(keys[0], world.observation)
        observation, state, r_t, terminated, truncated, info = task.step(
            keys[1:], world.state, action
        )
        batch = Batch(
            s_tm1=world.observation,
            a_tm1=action,
            r_t=r_t,
            discount_t=1.0 - terminated,
            truncated_t=truncated,
            s_t=info["final_observation"],
        )
        return World(observation, state), batch

    return jax.lax.scan(one, world, jax.random.split(key, steps))


def evaluate(task, key, act):
    """Return the returns of one episode in each of the evaluation environments."""

    def one(carry):
        key, world, running, total = carry
        key, step_key = jax.random.split(key)
        world, batch = collect(task, world, step_key, act, 1)
        reward, ended = batch.r_t[0], (batch.discount_t[0] == 0) | batch.truncated_t[0]
        return key, world, running & ~ended, total + running * reward

    reset_key, key = jax.random.split(key)
    world = World(*task.reset(jax.random.split(reset_key, EPISODES)))
    running = jnp.ones(EPISODES, bool)
    *_, total = jax.lax.while_loop(
        lambda carry: jnp.any(carry[2]), one, (key, world, running, 0.0 * running)
    )
    return total
