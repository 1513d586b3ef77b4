"""Training loops of the zoo: online, from replay, and offline, with faults to try."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

POINTS = 20  # Evaluations of a run.
EPISODES = 64  # Episodes of an evaluation.


class Fault(NamedTuple):
    """What is done to all that a learner sees; evaluations see the task as it is."""

    reward: float = 1.0  # Factor of the rewards.
    bootstrap: float = 1.0  # Factor of the discounts.
    gradient: bool = False  # True to make `jax.lax.stop_gradient` the identity.


FAULTS = {
    "reward": Fault(reward=-1.0),  # The reward's sign turned.
    "bootstrap": Fault(bootstrap=0.0),  # The bootstrap taken out.
    "gradient": Fault(gradient=True),  # The stopped gradients let through.
}


class Run(NamedTuple):
    """A training before its first update, which `curve` carries out."""

    state: Any
    update: Callable[[Any, Any], Any]  # state, input: the next state.
    inputs: jax.Array  # Of all updates, such as their keys, [updates, ...].
    score: Callable[[Any], jax.Array]  # Of a state, such as the return of its policy.

    def curve(self) -> jax.Array:
        """Return the scores before the updates and after each part, [POINTS + 1]."""

        def one(state, x):
            return self.update(state, x), None

        def point(state, inputs):
            state, _ = jax.lax.scan(one, state, inputs)
            return state, self.score(state)

        inputs = self.inputs.reshape(POINTS, -1, *self.inputs.shape[1:])
        _, scores = jax.lax.scan(point, self.state, inputs)
        return jnp.append(self.score(self.state), scores)


class Entry(NamedTuple):
    """An algorithm of the zoo: its recipe, its task and what it reaches there."""

    recipe: str  # File and functions, such as "value_based.dqn".
    run: Callable[[jax.Array, Fault], Run]  # From a key.
    about: str  # The task, one line.
    random: float  # What random actions, or the first parameters, return.
    best: float  # What the best policy returns.
    states: float  # What the worst of five seeds reaches at least.
    fails: tuple[str, ...]  # Names of `FAULTS` that take the median of five below.
    # Runs without the part that the algorithm adds, by its name, which do so, too.
    without: Mapping[str, Callable[[jax.Array, Fault], Run]] = MappingProxyType({})


class Batch(NamedTuple):
    """Transitions, [B], or streams, [B, T]: fields as the recipes have them."""

    s_tm1: jax.Array
    a_tm1: jax.Array
    r_t: jax.Array
    discount_t: jax.Array
    s_t: jax.Array
    truncated_t: jax.Array
    sample_mask: Any = None


class Agent(NamedTuple):
    """Pure functions of an agent, for one observation and one batch."""

    init: Callable[[jax.Array], Any]  # From a key to a state.
    act: Callable[[Any, jax.Array, jax.Array], jax.Array]  # state, key, s: explore.
    best: Callable[[Any, jax.Array, jax.Array], jax.Array]  # The same, to be evaluated.
    update: Callable[[Any, jax.Array, Batch], Any]  # state, key, batch.


class State(NamedTuple):
    """Parameters, target parameters, and the optimizer's state."""

    params: Any
    target: Any
    optimizer: Any
    count: jax.Array


def begin(params, optimizer):
    """Return the state of a learner from its first parameters."""
    copy = jax.tree.map(jnp.array, params)
    return State(params, copy, optimizer.init(params), jnp.zeros((), jnp.int32))


def descend(state, loss, optimizer, period=1, rate=1.0):
    """Return a learner's state after a step down the gradient of `loss(params)`.

    The target parameters move by `rate` to the parameters, every `period` steps.
    """
    gradients = jax.grad(loss)(state.params)
    updates, optimizer_state = optimizer.update(
        gradients, state.optimizer, state.params
    )
    params = optax.apply_updates(state.params, updates)
    count = state.count + 1
    near = optax.incremental_update(params, state.target, rate)
    target = optax.periodic_update(near, state.target, count, period)
    return State(params, target, optimizer_state, count)


def play(task, act, key, num, steps):
    """Return `num` streams of `steps` steps, from resets; see `unroll`."""
    reset_key, key = jax.random.split(key)
    state = jax.vmap(task.reset)(jax.random.split(reset_key, num))
    return unroll(task, act, key, (state, jnp.zeros(num, int)), steps, Fault())[1]


def unroll(task, act, key, carry, steps, fault):
    """Take steps in N environments, which begin anew at the end of an episode.

    Args:
        task: Environment.
        act: Function of a key and an observation to an action.
        key: Random key.
        carry: States of the environments, and steps since their resets, [N].
        steps: Number of steps, T.
        fault: What is done to rewards and discounts.

    Returns:
        The next carry, and the streams, [N, T], with the task's discount.
    """

    def one(carry, key):
        (state, count), (act_key, step_key, reset_key) = carry, jax.random.split(key, 3)
        s_tm1 = task.observe(state)
        a_tm1 = act(act_key, s_tm1)
        state, reward, terminated = task.step(step_key, state, a_tm1)
        count = count + 1
        truncated = (count >= task.limit) & ~terminated
        over = truncated | terminated
        discount = fault.bootstrap * task.discount * (1.0 - terminated)
        batch = Batch(
            *(s_tm1, a_tm1, fault.reward * reward, discount),
            *(task.observe(state), truncated),
        )
        first = task.reset(reset_key)
        state = jax.tree.map(lambda x, y: jnp.where(over, x, y), first, state)
        return (state, jnp.where(over, 0, count)), batch

    def stream(carry, key):
        return jax.lax.scan(one, carry, jax.random.split(key, steps))

    return jax.vmap(stream)(carry, jax.random.split(key, len(carry[1])))


def evaluate(task, act, key, episodes=EPISODES):
    """Return the mean return over whole episodes."""
    batch = play(task, act, key, episodes, task.limit)
    ended = (batch.discount_t == 0) | batch.truncated_t
    first = jnp.cumsum(ended, axis=1) - ended == 0  # Steps of the first episode.
    return jnp.mean(jnp.sum(batch.r_t * first, axis=1))


def online(
    task, agent, updates, num=16, steps=8, replay=0, window=1, repeats=1, score=evaluate
) -> Callable[[jax.Array, Fault], Run]:
    """Return a function of a key and a fault to the run of an agent.

    Args:
        task: Environment.
        agent: Agent.
        updates: Number of rounds: each takes steps in all environments, then updates.
        num: Number of environments, N.
        steps: Steps a round in each environment, T.
        replay: Size of the batches that are drawn from all experience so far, of
            windows of steps, or 0 to update on the N fresh streams of T steps.
        window: Steps of a window, [replay, window]; transitions, [replay], if 1.
        repeats: Updates a round.
        score: Function of a task, a policy and a key to a point of the curve.
    """

    def run(key, fault):
        init_key, reset_key, run_key, eval_key = jax.random.split(key, 4)
        carry = jax.vmap(task.reset)(jax.random.split(reset_key, num))
        carry = carry, jnp.zeros(num, int)
        learner = agent.init(init_key)
        memory = None
        if replay:
            shapes = jax.eval_shape(
                lambda: unroll(task, _act(agent, learner), key, carry, steps, fault)[1]
            )
            memory = jax.tree.map(
                lambda x: jnp.zeros((num, updates * steps, *x.shape[2:]), x.dtype),
                shapes,
            )

        def update(state, index):
            learner, carry, memory = state
            act_key, draw_key = jax.random.split(jax.random.fold_in(run_key, index))
            act = _act(agent, learner)
            carry, batch = unroll(task, act, act_key, carry, steps, fault)
            if replay:
                memory = jax.tree.map(
                    lambda old, new: jax.lax.dynamic_update_slice_in_dim(
                        old, new, index * steps, axis=1
                    ),
                    memory,
                    batch,
                )

            def learn(learner, key):
                draw_key, key = jax.random.split(key)
                drawn = batch
                if replay:
                    end = (index + 1) * steps
                    drawn = _draw(draw_key, memory, replay, window, end)
                return agent.update(learner, key, drawn), None

            keys = jax.random.split(draw_key, repeats)
            learner, _ = jax.lax.scan(learn, learner, keys)
            return learner, carry, memory

        return Run(
            *((learner, carry, memory), update, jnp.arange(updates)),
            lambda state: score(task, _best(agent, state[0]), eval_key),
        )

    return run


def offline(
    task, agent, data, updates, size=64, score=evaluate
) -> Callable[[jax.Array, Fault], Run]:
    """Return a function of a key and a fault to the run of an agent on logged data.

    Args:
        task: Environment, in which the agent is evaluated.
        agent: Agent, of which `act` is not used.
        data: Function from a key to the data set: transitions, [N], or streams, [N, T].
        updates: Number of updates.
        size: Size of the batches.
        score: Function of a task, a policy and a key to a point of the curve.
    """

    def run(key, fault):
        init_key, data_key, run_key, eval_key = jax.random.split(key, 4)
        batches = data(data_key)
        batches = batches._replace(
            r_t=fault.reward * batches.r_t,
            discount_t=fault.bootstrap * batches.discount_t,
        )

        def update(learner, key):
            draw_key, key = jax.random.split(key)
            rows = jax.random.randint(draw_key, (size,), 0, len(batches.r_t))
            drawn = jax.tree.map(lambda x: x[rows], batches)
            return agent.update(learner, key, drawn)

        return Run(
            *(agent.init(init_key), update, jax.random.split(run_key, updates)),
            lambda learner: score(task, _best(agent, learner), eval_key),
        )

    return run


def _act(agent, learner):
    return lambda key, s: agent.act(learner, key, s)


def _best(agent, learner):
    return lambda key, s: agent.best(learner, key, s)


def _draw(key, memory, size, window, end):
    """Return windows of steps that begin at random, without their axis for one step."""
    row_key, step_key = jax.random.split(key)
    num = memory.r_t.shape[0]
    rows = jax.random.randint(row_key, (size,), 0, num)
    starts = jax.random.randint(step_key, (size,), 0, end - window + 1)
    steps = starts[:, None] + jnp.arange(window)
    drawn = jax.tree.map(lambda x: x[rows[:, None], steps], memory)
    return jax.tree.map(lambda x: x[:, 0], drawn) if window == 1 else drawn
