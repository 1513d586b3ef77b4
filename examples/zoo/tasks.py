"""Small environments in `jax.numpy`, whose best returns are known."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Task(NamedTuple):
    """An environment of pure functions, for one episode at a time."""

    about: str  # One line, without a full stop.
    reset: Callable[[jax.Array], Any]  # From a key to a state.
    observe: Callable[[Any], jax.Array]  # From a state to an observation, [S].
    step: Callable[..., Any]  # (key, state, action) -> state, reward, terminated.
    limit: int  # Steps after which an episode is cut.
    actions: int  # Discrete actions, or dimensions of an action in [-1, 1].
    random: float  # Mean return of random actions.
    best: float  # Mean return of the best policy.
    discount: float = 0.95

    @property
    def size(self):
        """The size of an observation."""
        return self.observe(self.reset(jax.random.key(0))).shape[-1]


def corridor():
    """Return a corridor of 8 cells: 1 at the far end, 0.3 at the near one.

    An episode begins in the third cell, so that a learner which does not look ahead
    takes the near end, or walks about until the limit.
    """

    def step(_, x, a):
        x = x + 2 * a - 1
        reward = jnp.where(x == 7, 1.0, jnp.where(x == 0, 0.3, 0.0))
        return x, reward, (x == 0) | (x == 7)

    return Task(
        about="Corridor of 8 cells: the far end pays 1, the near one 0.3",
        reset=lambda _: jnp.array(2),
        observe=lambda x: jax.nn.one_hot(x, 8),
        step=step,
        limit=30,
        actions=2,
        random=0.47,
        best=1.0,
    )


def catch():
    """Return Catch: a ball falls through 6 rows, a paddle moves over 5 columns."""

    def reset(key):
        ball, paddle = jax.random.randint(key, (2,), 0, 5)
        return jnp.stack([jnp.array(0), ball, paddle])

    def observe(state):
        row, ball, paddle = state
        return jnp.concatenate(
            [jax.nn.one_hot(x, n) for x, n in ((row, 6), (ball, 5), (paddle, 5))]
        )

    def step(_, state, a):
        row, ball, paddle = state
        paddle = jnp.clip(paddle + a - 1, 0, 4)
        row = row + 1
        reward = jnp.where(row == 5, jnp.where(ball == paddle, 1.0, -1.0), 0.0)
        return jnp.stack([row, ball, paddle]), reward, row == 5

    return Task(
        about="Catch: a paddle below a falling ball, +1 for a catch and -1 for a miss",
        reset=reset,
        observe=observe,
        step=step,
        limit=10,
        actions=3,
        random=-0.6,
        best=1.0,
    )


def point():
    """Return a point on a line that a force moves to the origin, in 20 steps.

    The reward is minus the squared distance and a tenth of the squared force.
    """

    def reset(key):
        x = jax.random.uniform(key, (), minval=-1, maxval=1)
        return jnp.stack([x, jnp.zeros(())])

    def step(_, state, a):
        x, v = state
        force = jnp.clip(a[0], -1, 1)
        v = 0.9 * v + 0.3 * force
        x = jnp.clip(x + 0.5 * v, -2, 2)
        reward = -(x**2) - 0.1 * force**2
        return jnp.stack([x, v]), reward, jnp.array(False)

    return Task(
        about="Point mass: a force moves a point to the origin, in 20 steps",
        reset=reset,
        observe=lambda state: state,
        step=step,
        limit=20,
        actions=1,
        random=-28.9,
        best=-0.42,
    )


def plane():
    """Return a point in the plane that actions move to the origin, in 20 steps.

    The reward is minus half the squared distance before the action, and a twentieth of
    the squared action: a learner which does not look ahead does not move.
    """

    def step(_, x, a):
        force = jnp.clip(a, -1, 1)
        reward = -0.5 * jnp.sum(x**2) - 0.05 * jnp.sum(force**2)
        return jnp.clip(x + 0.3 * force, -2, 2), reward, jnp.array(False)

    return Task(
        about="Point in the plane: actions move it to the origin, at a cost",
        reset=lambda key: jax.random.uniform(key, (2,), minval=-1, maxval=1),
        observe=lambda x: x,
        step=step,
        limit=20,
        actions=2,
        random=-12.7,
        best=-0.6,
        discount=0.9,
    )
