"""Exploration: the distance that noise covers, and bonuses that fall with visits."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import style
from jax import Array
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import rlaxlib

STEPS, WALKS, VISITS = 100, 1024, 100
DAMPING = 0.15


def draw() -> Figure:
    """Draw distances over time, and bonuses over the visits of a state."""
    figure = style.figure(3.0)
    left, right = figure.subplots(1, 2)
    draw_distances(left)
    draw_bonuses(right)
    for axes in (left, right):
        axes.set(xscale="log", yscale="log")
        axes.set_xticks([1, 10, 100], ["1", "10", "100"])
    left.set_yticks([1, 10, 100], ["1", "10", "100"])
    right.set_yticks([0.001, 0.01, 0.1, 1], ["0.001", "0.01", "0.1", "1"])
    return figure


def draw_distances(axes: Axes) -> None:
    """Draw the root mean squared sum of actions of unit variance over time."""
    times = np.arange(1, STEPS + 1)
    for label, walk, color in (
        ("εz-greedy", ez_walk, style.GREEN),
        ("Ornstein-Uhlenbeck", ou_walk, style.BLUE),
        ("Gaussian, ε-greedy", gaussian_walk, style.ORANGE),
    ):
        keys = jax.random.split(jax.random.key(0), WALKS)
        sums = np.cumsum(jax.jit(jax.vmap(walk))(keys), axis=1)
        axes.plot(times, np.sqrt(np.mean(sums**2, axis=0)), color=color, label=label)
    axes.set(title="distance covered", xlabel="steps", ylim=(0.8, 150))
    axes.legend(fontsize="small", loc="upper left")


def gaussian_walk(key: Array) -> Array:
    """Return independent Gaussian actions."""
    return rlaxlib.add_gaussian_noise(key, jnp.zeros(STEPS), 1.0)


def ou_walk(key: Array) -> Array:
    """Return actions of an Ornstein-Uhlenbeck process of unit variance."""
    stddev = (DAMPING * (2 - DAMPING)) ** 0.5

    def step(noise: Array, key: Array) -> tuple[Array, Array]:
        noise = rlaxlib.ornstein_uhlenbeck_noise(key, noise, DAMPING, stddev)
        return noise, noise

    start, *keys = jax.random.split(key, STEPS + 1)
    return jax.lax.scan(step, jax.random.normal(start), jnp.stack(keys))[1]


def ez_walk(key: Array) -> Array:
    """Return actions of -1 and 1 that last for random durations."""

    def step(state: rlaxlib.EzGreedyState, key: Array) -> Any:
        action, state = rlaxlib.ez_greedy(key, state, jnp.zeros(2), 1.0, 2.0, 100)
        return state, 2.0 * action - 1.0

    state = rlaxlib.ez_greedy_init()
    return jax.lax.scan(step, state, jax.random.split(key, STEPS))[1]


def draw_bonuses(axes: Axes) -> None:
    """Draw the bonus of a state that is visited again and again."""
    visits = np.arange(1, VISITS + 1)
    for label, bonuses, color in (
        ("counts", 0.05 / np.sqrt(visits + 0.01), style.ORANGE),
        ("episodic, NGU", episodic_bonuses(), style.GREEN),
        ("RND", rnd_bonuses(), style.BLUE),
    ):
        axes.plot(visits, bonuses / bonuses[0], color=color, label=label)
    axes.set(title="bonus of a state", xlabel="visits", ylim=(1e-4, 1.5))
    axes.legend(fontsize="small", loc="lower left")


def episodic_bonuses() -> np.ndarray:
    """Return the episodic rewards of Never Give Up, which remembers each visit."""
    memory = jnp.full((VISITS + 1, 1), jnp.inf).at[0].set(9.0)  # One other state.
    state = rlaxlib.IntrinsicRewardState(memory, 1, 100.0, 2)

    def visit(state: rlaxlib.IntrinsicRewardState, _: None) -> Any:
        reward, state = rlaxlib.episodic_memory_intrinsic_rewards(
            jnp.zeros((1, 1)), 10, 1.0, state, max_memory_size=VISITS + 1
        )
        return state, reward[0]

    return np.asarray(jax.lax.scan(visit, state, length=VISITS)[1])


def rnd_bonuses() -> np.ndarray:
    """Return the error of a predictor that learns from each visit."""

    def error(prediction: Array) -> Array:
        return jnp.sum(jnp.square(prediction - jnp.ones(4)))

    def visit(prediction: Array, _: None) -> tuple[Array, Array]:
        loss, gradient = jax.value_and_grad(error)(prediction)
        return prediction - 0.02 * gradient, loss

    return np.asarray(jax.lax.scan(visit, jnp.zeros(4), length=VISITS)[1])
