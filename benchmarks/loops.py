"""Training runs of agents on gymnax, online or from replay, as functions of a seed."""

from collections.abc import Mapping
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
        """Return the environments after a reset."""
        return World(*jax.vmap(self.env.reset, (0, None))(keys, self.params))

    def step(self, keys, world, action):
        """Return the environments after a step and resets, and the transitions."""
        command = action if self.scale is None else self.scale * action
        observation, state, r_t, terminated, truncated, info = jax.vmap(
            self.env.step, (0, 0, 0, None)
        )(keys, world.state, command, self.params)
        batch = Batch(
            s_tm1=world.observation,
            a_tm1=action,
            r_t=r_t,
            discount_t=1.0 - terminated,
            truncated_t=truncated,
            s_t=info["final_observation"],
        )
        return World(observation, state), batch


class World(NamedTuple):
    """State of N environments."""

    observation: jax.Array  # [N, ...]
    state: Any


class Run(NamedTuple):
    """State of a training run."""

    agent: Any
    world: World
    replay: Batch | None  # The latest transitions, [capacity, ...].
    rounds: jax.Array


def make(name: str) -> Task:
    """Create a task from the name of an environment."""
    env, params = gymnax.make(name)
    space = env.action_space(params)
    if hasattr(space, "n"):
        return Task(env, params, int(space.n), None)
    return Task(env, params, space.shape[0], float(space.high))


class Loop:
    """Training runs of an agent.

    A round takes T steps in each of N environments. From replay, it then updates the
    agent on `num_epochs` batches; else once, on the streams of the round.
    """

    def __init__(self, task: Task, agent: Agent, settings: Mapping[str, Any]):
        self.task, self.agent, self.settings = task, agent, settings
        self.num, self.steps = (
            settings["num_envs"],
            settings.get("num_steps", 1),
        )  # N, T
        self.size = self.num * self.steps
        self.capacity = settings.get("buffer_size", 0)  # 0 without replay.

    def train(self, seed: int) -> jax.Array:
        """Return the returns of all evaluations, [evaluations, EPISODES]."""
        begin_key, learn_key, evaluate_key = jax.random.split(jax.random.key(seed), 3)

        def learn_and_evaluate(run, last):
            run = jax.lax.while_loop(
                lambda run: run.rounds < last,
                lambda run: self.learn(run, jax.random.fold_in(learn_key, run.rounds)),
                run,
            )
            key = jax.random.fold_in(evaluate_key, last)
            return run, self.evaluate(run.agent, key)

        # The initial evaluation follows 0 rounds, so that it is not compiled twice.
        steps, interval = self.settings["total_timesteps"], self.settings["eval_freq"]
        last = jnp.arange(0, steps + 1, interval) // self.size
        return jax.lax.scan(learn_and_evaluate, self.begin(begin_key), last)[1]

    def begin(self, key):
        """Return the initial state, with some random actions in replay."""
        init_key, reset_key, key = jax.random.split(key, 3)
        world = self.task.reset(jax.random.split(reset_key, self.num))
        run = Run(self.agent.init(init_key, world.observation), world, None, 0)
        if not self.capacity:
            return run._replace(rounds=jnp.int32(0))

        def explore(key, s):
            return self.agent.explore(key, len(s))

        _, batch = jax.eval_shape(lambda: self.collect(world, key, explore))
        replay = jax.tree.map(
            lambda x: jnp.zeros((self.capacity, *x.shape[2:]), x.dtype), batch
        )

        def fill(rounds, run):
            run = run._replace(rounds=rounds)
            return self.remember(run, jax.random.fold_in(key, rounds), explore)[0]

        rounds = self.settings["fill_buffer"] // self.num + 1
        run = run._replace(replay=replay, rounds=jnp.int32(0))
        return jax.lax.fori_loop(0, rounds, fill, run)

    def learn(self, run, key):
        """Take the steps of a round, and update the agent."""
        act_key, draw_key, update_key = jax.random.split(key, 3)
        noise = self.agent.noise(run.rounds * self.size)
        run, batch = self.remember(
            run, act_key, lambda key, s: self.agent.act(run.agent, key, s, noise)
        )
        if not self.capacity:
            return run._replace(agent=self.agent.update(run.agent, update_key, batch))
        epochs, size = self.settings["num_epochs"], self.settings["batch_size"]
        stored = jnp.minimum(run.rounds * self.size, self.capacity)
        rows = jax.random.randint(draw_key, (epochs, size), 0, stored)
        batches = jax.tree.map(lambda x: x[rows], run.replay)
        agent, _ = jax.lax.scan(
            lambda agent, inputs: (self.agent.update(agent, *inputs), None),
            run.agent,
            (jax.random.split(update_key, epochs), batches),
        )
        return run._replace(agent=agent)

    def remember(self, run, key, act):
        """Take the steps of a round, and store them in replay."""
        world, batch = self.collect(run.world, key, act)
        replay = run.replay
        if self.capacity:
            rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch)
            start = run.rounds * self.size % self.capacity
            write = jax.lax.dynamic_update_slice_in_dim
            replay = jax.tree.map(lambda x, new: write(x, new, start, 0), replay, rows)
        return Run(run.agent, world, replay, run.rounds + 1), batch

    def collect(self, world, key, act):
        """Take T steps; return the environments, and the streams, [T, N]."""

        def step(world, key):
            keys = jax.random.split(key, self.num + 1)
            action = act(keys[0], world.observation)
            return self.task.step(keys[1:], world, action)

        return jax.lax.scan(step, world, jax.random.split(key, self.steps))

    def evaluate(self, agent, key):
        """Return the return of one episode in each of the evaluation environments."""

        def step(carry):
            key, world, running, total = carry
            keys = jax.random.split(key, EPISODES + 2)
            noise = self.agent.evaluation_noise
            action = self.agent.act(agent, keys[1], world.observation, noise)
            world, batch = self.task.step(keys[2:], world, action)
            ended = (batch.discount_t == 0) | batch.truncated_t
            return keys[0], world, running & ~ended, total + running * batch.r_t

        keys = jax.random.split(key, EPISODES + 1)
        running = jnp.ones(EPISODES, bool)
        *_, total = jax.lax.while_loop(
            lambda carry: jnp.any(carry[2]),
            step,
            (keys[0], self.task.reset(keys[1:]), running, 0.0 * running),
        )
        return total
