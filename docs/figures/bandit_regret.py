"""Regret of bandit policies: arms that stay the same, and arms that are exchanged."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import style
from jax import Array
from matplotlib.figure import Figure

import rlaxlib

MEANS, STEPS, RUNS, PERIOD = (0.7, 0.6, 0.5, 0.4), 3000, 64, 1000


class Policy(NamedTuple):
    """The initial state of a policy, its choice of an arm, and its update."""

    state: Any
    act: Callable[..., tuple[Array, Array]]
    update: Callable[..., Any]


def draw() -> Figure:
    """Draw the mean regret of policies over pulls."""
    figure = style.figure(3.2)
    left, right = figure.subplots(1, 2)
    times = np.unique(np.geomspace(1, STEPS, 120).astype(int))
    for (label, policy), color in zip(policies().items(), style.COLORS, strict=False):
        points = regret(policy, STEPS)[times - 1]
        left.plot(times, points, color=color, label=label)
    late = times[times >= 10]
    theory = lai_robbins() * np.log(late)
    left.plot(late, theory, "--", color=style.INK, lw=1.2, label="C log t")
    left.set(xscale="log", title="fixed arms", ylim=(0, 150))
    left.set_xticks([1, 10, 100, 1000], ["1", "10", "100", "1000"])
    times = np.arange(1, STEPS + 1, 25)
    for (label, policy), color in zip(forgetful().items(), style.COLORS, strict=False):
        points = regret(policy, PERIOD)[times - 1]
        right.plot(times, points, color=color, label=label)
    for time in range(PERIOD, STEPS, PERIOD):
        right.axvline(time, color=style.INK, lw=1, ls=":")
    right.set(title="exchanged arms", ylim=(0, 250), xticks=[0, 1000, 2000, 3000])
    for axes in (left, right):
        axes.set_xlabel("pulls")
        axes.legend(fontsize="small", loc="upper left")
    left.set_ylabel("regret")
    return figure


def lai_robbins() -> float:
    """Return the constant of the lower bound of Lai and Robbins."""
    p, q = np.array(MEANS[1:]), MEANS[0]
    kl = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
    return float(np.sum((q - p) / kl))


def regret(policy: Policy, period: int) -> np.ndarray:
    """Return the mean regret after each pull, with arms that move after each period."""
    times = jnp.arange(STEPS)
    means = jax.vmap(jnp.roll, (None, 0))(jnp.asarray(MEANS), times // period)

    def pull(state: Any, inputs: Any) -> tuple[Any, Array]:
        t, key, rewards = inputs
        arm, probability = policy.act(key, state, t + 1.0)
        return policy.update(state, arm, rewards[arm], probability), arm

    def run(key: Array) -> Array:
        of_arms, of_rewards = jax.random.split(key)
        rewards = jax.random.bernoulli(of_rewards, means).astype(means.dtype)
        inputs = times, jax.random.split(of_arms, STEPS), rewards
        _, arms = jax.lax.scan(pull, policy.state, inputs)
        return jnp.cumsum(max(MEANS) - means[times, arms])

    keys = jax.random.split(jax.random.key(0), RUNS)
    return np.mean(jax.jit(jax.vmap(run))(keys), axis=0)


def policies() -> dict[str, Policy]:
    """Return policies for arms that stay the same."""
    arms = len(MEANS)

    def tsallis(key: Array, losses: Array, t: Array) -> tuple[Array, Array]:
        p = rlaxlib.tsallis_inf_probabilities(losses, 2 / jnp.sqrt(t))
        arm = jax.random.categorical(key, jnp.log(p))
        return arm, p[arm]

    def lose(losses: Array, arm: Array, reward: Array, probability: Array) -> Array:
        return rlaxlib.tsallis_inf_update(losses, arm, 1 - reward, probability)

    return {
        "UCB1": scored(lambda key, s: rlaxlib.ucb_scores(s.counts, s.means)),
        "Tsallis-INF": Policy(jnp.zeros(arms), tsallis, lose),
        "Thompson": scored(
            lambda key, s: rlaxlib.thompson_beta(key, s.counts, s.means)
        ),
        "KL-UCB": scored(lambda key, s: rlaxlib.kl_ucb_scores(s.counts, s.means)),
    }


def forgetful() -> dict[str, Policy]:
    """Return UCB with statistics of all pulls, and of the last ones."""

    def scores(key: Array, state: Any) -> Array:
        return rlaxlib.ucb_scores(state.counts, state.means, 0.5)

    window = rlaxlib.sliding_window_init(len(MEANS), 300)
    discounted = functools.partial(rlaxlib.bandit_update, discount=0.997)
    return {
        "UCB, all pulls": scored(scores),
        "discount of 0.997": scored(scores, discounted),
        "window of 300": scored(scores, rlaxlib.sliding_window_update, window),
    }


def scored(
    scores: Callable[..., Array],
    update: Callable[..., Any] = rlaxlib.bandit_update,
    state: Any = None,
) -> Policy:
    """Return a policy that pulls the arm with the highest score."""

    def act(key: Array, state: Any, t: Array) -> tuple[Array, Array]:
        # Of equal scores the first is pulled, however they are rounded.
        return jnp.argmax(jnp.round(scores(key, state), 4)), jnp.ones(())

    state = rlaxlib.bandit_init(len(MEANS)) if state is None else state
    return Policy(state, act, lambda state, arm, r, p: update(state, arm, r))
