"""Offline RL in one state: critics outside the data, and policies inside it."""

import jax
import jax.numpy as jnp
import numpy as np
import style
from jax import Array
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.polynomial.chebyshev import chebvander

import rlaxlib

ACTIONS = np.linspace(-1, 1, 201)
MEAN, STDDEV = -0.2, 0.3  # Of the actions in the data, which are clipped to [-1, 1].
TEMPERATURES = {"BC": np.inf, "β = 0.3": 0.3, "β = 0.05": 0.05}
LINES = ":", "--", "-"


def draw() -> Figure:
    """Draw critics with and without CQL, and policies of three temperatures."""
    figure = style.figure(3.0)
    left, right = figure.subplots(1, 2, sharex=True)
    draw_critics(left)
    draw_policies(right)
    for axes in (left, right):
        axes.set(xlabel="action", xticks=[-1, 0, 1])
    return figure


def true_value(a: Array) -> Array:
    """Return the value of an action, highest at 0.25."""
    return 1 - 2 * jnp.square(a - 0.25)


def critic(weights: Array, a: Array | np.ndarray) -> Array:
    """Return the value of an action by a polynomial of degree 5."""
    basis = chebvander(np.asarray(a), weights.size - 1)
    return jnp.asarray(basis, weights.dtype) @ weights


def data() -> tuple[Array, Array]:
    """Return 100 actions and their rewards."""
    of_actions, of_rewards = jax.random.split(jax.random.key(0))
    a = MEAN + STDDEV * jax.random.normal(of_actions, (100,))
    a = jnp.clip(a, -1, 0.45)
    return a, true_value(a) + 0.3 * jax.random.normal(of_rewards, (100,))


def fit(cql_weight: float) -> Array:
    """Return the weights of a critic, by Newton's method."""
    actions, rewards = data()
    uniform, log_prob = np.linspace(-1, 1, 101), jnp.full(101, -jnp.log(2.0))

    def loss(weights: Array) -> Array:
        q = critic(weights, actions)
        conservative = jax.vmap(rlaxlib.cql_loss, (0, None, None))
        penalty = conservative(q, critic(weights, uniform), log_prob)
        errors = rlaxlib.l2_loss(q, rewards)
        decay = 1e-4 * jnp.sum(jnp.square(weights))
        return jnp.mean(errors) + cql_weight * jnp.mean(penalty) + decay

    def step(_: int, weights: Array) -> Array:
        newton = jnp.linalg.solve(jax.hessian(loss)(weights), jax.grad(loss)(weights))
        return weights - 0.5 * newton

    return jax.lax.fori_loop(0, 40, step, jnp.zeros(6))


def draw_critics(axes: Axes) -> None:
    """Draw two critics, and the action that each prefers."""
    actions, rewards = data()
    axes.plot(actions, rewards, ".", color=style.INK, ms=3, alpha=0.5)
    axes.plot(ACTIONS, true_value(ACTIONS), color=style.INK, lw=1.2, label="true value")
    for label, weight, color in (
        ("regression", 0.0, style.ORANGE),
        ("with CQL", 0.1, style.BLUE),
    ):
        values = critic(fit(weight), ACTIONS)
        best = np.argmax(values)
        axes.plot(ACTIONS, values, color=color, label=label)
        axes.plot(ACTIONS[best], values[best], "o", color=color)
    axes.set(title="critics", ylim=(-3.5, 3.5))
    axes.legend(fontsize="small", loc="upper left")


def draw_policies(axes: Axes) -> None:
    """Draw the policies that advantage-weighted regression converges to."""
    density = np.exp(-0.5 * np.square((ACTIONS - MEAN) / STDDEV))
    values = true_value(ACTIONS)
    for (label, beta), line in zip(TEMPERATURES.items(), LINES, strict=True):
        weights = np.ones_like(values)
        if np.isfinite(beta):
            v = np.sum(density * values) / np.sum(density)
            weights = rlaxlib.advantage_weights(values - v, beta, max_weight=1e6)
        policy = density * weights
        policy = policy / np.sum(policy) / (ACTIONS[1] - ACTIONS[0])
        axes.plot(ACTIONS, policy, line, color=style.GREEN, label=label)
    axes.axvline(0.25, color=style.INK, lw=1, ls="--")
    axes.set(title="weighted policies", ylim=(0, None))
    axes.legend(fontsize="small", loc="upper left")
