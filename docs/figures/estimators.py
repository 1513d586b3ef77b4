"""Bias and standard deviation of return estimators on a random walk, over λ and n.

The walk has nine states. It starts in the middle and ends beyond either side, with a
reward of -1 on the left and 1 on the right. With probability 0.2 the action is replaced
by a random one. The target policy goes right with probability 0.7. All estimates
bootstrap from the values of the uniform policy, as after a policy improvement. The
figure shows the estimate for the first step of an episode.
"""

import itertools
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import style
from jax import Array
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import rlaxlib

STATES, SLIP, DISCOUNT = 9, 0.2, 0.95
TARGET, UNIFORM = np.array([0.3, 0.7]), np.array([0.5, 0.5])  # Of left and right.
EPISODES, STEPS = 4096, 96
LAMBDAS = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0)
LENGTHS = (1, 2, 4, 8, 16, 32, 64)


class Stream(NamedTuple):
    """The arrays of an episode, and the true value."""

    v_tm1: Array
    v_t: Array
    r_t: Array
    discount_t: Array
    q_t: Array
    a_t: Array
    rho_tm1: Array
    truth: Array  # The true value of the first step.


def draw() -> Figure:
    """Draw the bias of estimators against their standard deviation."""
    figure = style.figure(3.8)
    left, right = figure.subplots(1, 2, sharey=True)
    stream = sample(TARGET, of_actions=False)
    curve(left, "λ-returns", lambda_returns, LAMBDAS, stream)
    curve(left, "n-step", n_step_returns, LENGTHS, stream)
    curve(left, "UPGO", upgo_returns, (0,), stream)
    left.set(title="on-policy", ylabel="bias")
    left.legend(loc="upper left", fontsize="small")
    for text, place in {
        "λ = 0, n = 1": (0.14, -0.485),
        "λ = 0.9": (0.185, -0.22),
        "n = 8": (0.305, -0.17),
        "λ = 1": (0.3, 0.02),
    }.items():
        left.text(*place, text, fontsize="small")

    stream = sample(UNIFORM, of_actions=True)
    for name, trace in TRACES.items():
        curve(right, name, partial(off_policy_returns, trace), LAMBDAS, stream)
    curve(right, "uncorrected", uncorrected_returns, LAMBDAS, stream)
    stream = sample(UNIFORM, of_actions=False)
    curve(right, "V-trace", vtrace_returns, LAMBDAS, stream, color=style.INK)
    right.set_title("off-policy")
    right.legend(loc="lower right", fontsize="small", bbox_to_anchor=(1.03, 0.1))
    for axes in (left, right):
        axes.axhline(0, color=style.INK, lw=0.8, zorder=0)
        axes.set_xlabel("standard deviation")
    return figure


def curve(
    axes: Axes,
    name: str,
    estimator: Callable,
    parameters: Iterable,
    stream: Stream,
    **options: str,
) -> None:
    """Draw bias against standard deviation, with one point per parameter."""
    points = []
    for parameter in parameters:
        estimate = jax.vmap(partial(estimator, parameter))
        errors = np.asarray(estimate(stream)[:, 0] - stream.truth, np.float64)
        points.append((np.std(errors), np.mean(errors)))
    axes.plot(*np.array(points).T, marker=".", lw=1.4, label=name, **options)


# --- Estimators for one stream. ---


def lambda_returns(lambda_: float, stream: Stream) -> Array:
    """Estimate by λ-returns."""
    return rlaxlib.lambda_returns(
        stream.r_t, stream.discount_t, stream.v_t, jnp.float32(lambda_)
    )


def n_step_returns(n: int, stream: Stream) -> Array:
    """Estimate by n-step returns."""
    return rlaxlib.n_step_bootstrapped_returns(
        stream.r_t, stream.discount_t, stream.v_t, n
    )


def upgo_returns(_: float, stream: Stream) -> Array:
    """Estimate by UPGO returns."""
    return rlaxlib.upgo_returns(stream.v_tm1, stream.r_t, stream.discount_t, stream.v_t)


TRACES = {
    "importance": lambda pi, rho: rho,
    "Q(λ)": lambda pi, rho: jnp.ones_like(rho),
    "Retrace": lambda pi, rho: jnp.minimum(1, rho),
    "tree backup": lambda pi, rho: pi,
}


def off_policy_returns(trace: Callable, lambda_: float, stream: Stream) -> Array:
    """Estimate an action value with an off-policy correction."""
    target = jnp.asarray(TARGET, jnp.float32)
    rho_t = jnp.roll(stream.rho_tm1, -1)  # The last is not used.
    return rlaxlib.general_off_policy_returns_from_action_values(
        stream.q_t,
        stream.a_t,
        stream.r_t,
        stream.discount_t,
        lambda_ * trace(target[stream.a_t], rho_t),
        target + 0 * stream.q_t,  # XLA errs on a CPU if large batches share it.
    )


def uncorrected_returns(lambda_: float, stream: Stream) -> Array:
    """Estimate an action value without off-policy correction."""
    v_t = stream.q_t @ jnp.asarray(TARGET, jnp.float32)
    return rlaxlib.lambda_returns(
        stream.r_t, stream.discount_t, v_t, jnp.float32(lambda_)
    )


def vtrace_returns(lambda_: float, stream: Stream) -> Array:
    """Estimate a state value by V-trace."""
    errors = rlaxlib.vtrace(*stream[:4], stream.rho_tm1, jnp.float32(lambda_))
    return errors + stream.v_tm1


# --- The random walk. ---


def sample(policy: np.ndarray, of_actions: bool) -> Stream:
    """Return episodes of a policy, with true state values or action values."""
    random = np.random.default_rng(0)
    shape = STEPS, EPISODES
    actions = (random.random(shape) < policy[1]).astype(np.int32)
    sideways = random.integers(2, size=shape)
    moves = np.where(random.random(shape) < SLIP, sideways, actions) * 2 - 1
    places = STATES // 2 + np.cumsum(moves, axis=0)  # Continued beyond the ends.
    outside = (places < 0) | (places >= STATES)
    ended = np.cumsum(outside, axis=0)
    rewards = np.where(outside & (ended == 1), np.sign(moves), 0.0)
    start = np.full((1, EPISODES), STATES // 2)
    states = np.concatenate([start, np.clip(places, 0, STATES - 1)])

    v, q = true_values(UNIFORM)
    target_v, target_q = true_values(TARGET)
    truth = target_q[states[0], actions[0]] if of_actions else target_v[states[0]]
    stream = Stream(
        v_tm1=v[states[:-1]],
        v_t=v[states[1:]],
        r_t=rewards,
        discount_t=np.where(ended == 0, DISCOUNT, 0),
        q_t=q[states[1:]],
        a_t=np.roll(actions, -1, axis=0),  # The last is not used.
        rho_tm1=(TARGET / policy)[actions],
        truth=truth[None],
    )
    as_jax = (jnp.asarray(np.moveaxis(each, 0, 1)) for each in stream)
    single = (x if x.dtype == jnp.int32 else x.astype(jnp.float32) for x in as_jax)
    stream = Stream(*single)
    return stream._replace(truth=stream.truth[:, 0])


def true_values(policy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the state values and the action values of a policy."""
    to, reward = np.zeros((STATES, 2, STATES)), np.zeros((STATES, 2))
    for state in range(STATES):
        for action, move in itertools.product((0, 1), (0, 1)):
            probability = (1 - SLIP) * (action == move) + SLIP / 2
            place = state + 2 * move - 1
            if 0 <= place < STATES:
                to[state, action, place] = probability
            else:
                reward[state, action] += probability * (2 * move - 1)
    on = DISCOUNT * np.einsum("a,sat->st", policy, to)
    v = np.linalg.solve(np.eye(STATES) - on, reward @ policy)
    return v, reward + DISCOUNT * to @ v
