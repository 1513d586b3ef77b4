"""Expected updates of estimators on a random MDP, beside the values of theory.

The MDP has four states, two actions and two next states for each action. All
trajectories of up to four steps can be listed, so expectations are exact sums. Points
are computed by the library's functions, lines by linear algebra.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import style
from jax import Array
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import rlaxlib

STATES, ACTIONS, BRANCHES, STEPS, DISCOUNT = 4, 2, 2, 4, 0.8
random = np.random.default_rng(4)
AFTER = random.integers(STATES, size=(STATES, ACTIONS, BRANCHES))
PROB = random.dirichlet(np.full(BRANCHES, 3.0), size=(STATES, ACTIONS))
REWARD = random.normal(size=AFTER.shape)
PI, MU = random.dirichlet(np.full(ACTIONS, 2.0), size=(2, STATES)) * 0.9 + 0.05
RHO = PI / MU

R = np.sum(PROB * REWARD, axis=-1)  # Expected rewards, [S, A].
P = np.einsum("sab,sabt->sat", PROB, np.eye(STATES)[AFTER])  # Transitions, [S, A, S].
LAMBDAS, FINE = np.linspace(0, 1, 6), np.linspace(0, 1, 41)
CLIPS = np.array([0.05, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0])


def draw() -> Figure:
    """Draw contraction, the fixed point of V-trace, the bias of UPGO, and distances."""
    figure = style.figure(5.2)
    axes = figure.subplots(2, 2)
    draw_contraction(axes[0, 0])
    draw_vtrace(axes[0, 1])
    draw_upgo(axes[1, 0])
    draw_distributions(axes[1, 1])
    return figure


def draw_contraction(axes: Axes) -> None:
    """Draw how much an expected update of four steps reduces the largest error."""
    for name, (estimator, policy, trace) in ESTIMATORS.items():
        tables = np.eye(STATES * ACTIONS).reshape(-1, STATES, ACTIONS)
        tables = np.concatenate([0 * tables[:1], tables])
        errors = expected_errors(estimator, tables, LAMBDAS, policy)
        matrix = np.swapaxes(errors[:, 1:] - errors[:, :1], -1, -2)
        points = modulus(matrix)
        lines = [modulus(theory(policy, lambda_ * trace)) for lambda_ in FINE]
        (line,) = axes.plot(FINE, lines, lw=1.4, label=name)
        axes.plot(LAMBDAS, points, "o", ms=4, color=line.get_color())
    axes.axhline(1, color=style.INK, lw=0.8)
    axes.set(title="largest error after one update", xlabel="λ", ylim=(0, 1.2))
    axes.legend(fontsize="small", loc="lower left")


def draw_vtrace(axes: Axes) -> None:
    """Draw the fixed point of V-trace over the clip of the TD errors."""
    tables = np.concatenate([np.zeros((1, STATES)), np.eye(STATES)])
    errors = expected_errors(vtrace, tables, CLIPS, MU)
    matrix = np.swapaxes(errors[:, 1:] - errors[:, :1], -1, -2)
    points = np.linalg.solve(matrix, -errors[:, 0, :, None])[..., 0]
    clips = np.linspace(0.02, 3, 60)
    clipped = np.minimum(clips[:, None, None] * MU, PI)
    policies = clipped / np.sum(clipped, axis=-1, keepdims=True)
    lines = np.array([state_values(policy) for policy in policies])
    for state in range(STATES):
        (line,) = axes.plot(clips, lines[:, state], lw=1.4)
        axes.plot(CLIPS, points[:, state], "o", ms=4, color=line.get_color())
    axes.plot([0] * STATES, state_values(MU), "_", color=style.INK, ms=12)
    axes.plot([3.1] * STATES, state_values(PI), "_", color=style.INK, ms=12)
    axes.set(title="fixed point of V-trace", xlabel="clip $\\bar{\\rho}$")
    axes.set_ylabel("value of each state")


def draw_upgo(axes: Axes) -> None:
    """Draw the expected UPGO return minus the true value over the number of steps."""
    v = state_values(PI)
    numbers, many = np.arange(1, STEPS + 1), np.arange(1, 11)
    points = [expected_errors(upgo, v[None], [0.0], PI, n)[0, 0] for n in numbers]
    lines = np.array([upgo_bias(v, n) for n in many])
    for state in range(STATES):
        (line,) = axes.plot(many, lines[:, state], lw=1.4)
        points_of_state = [each[state] for each in points]
        axes.plot(numbers, points_of_state, "o", ms=4, color=line.get_color())
    axes.axhline(0, color=style.INK, lw=0.8)
    axes.set(title="bias of UPGO at the true values", xlabel="steps of the stream")
    axes.set_ylabel("bias in each state")


def draw_distributions(axes: Axes) -> None:
    """Draw the distance of two distributions over repeated expected updates."""
    updates = np.arange(13)
    for name, (update, pair, distance, rate, color) in DISTRIBUTIONS.items():
        (one, other), distances = pair, []
        for _ in updates:
            distances.append(distance(one, other))
            one, other = update(one), update(other)
        distances = np.array(distances) / distances[0]
        axes.plot(updates, rate**updates, "--", lw=1.2, color=color)
        axes.plot(updates, distances, "o-", ms=3, lw=1, color=color, label=name)
    axes.set(title="distance of two distributions", xlabel="updates", yscale="log")
    axes.legend(fontsize="small", loc="lower left")


# --- Theory. ---


def state_values(policy: np.ndarray) -> np.ndarray:
    """Return the state values of a policy."""
    on = DISCOUNT * np.einsum("sa,sat->st", policy, P)
    return np.linalg.solve(np.eye(STATES) - on, np.sum(policy * R, axis=-1))


def theory(policy: np.ndarray, trace: np.ndarray) -> np.ndarray:
    """Return the matrix of an expected update of action values, with a trace."""
    cells = STATES * ACTIONS
    on = DISCOUNT * np.einsum("sat,tb->satb", P, policy * trace).reshape(cells, cells)
    to = DISCOUNT * np.einsum("sat,tb->satb", P, PI).reshape(cells, cells)
    powers = sum(np.linalg.matrix_power(on, k) for k in range(STEPS))
    return powers @ (to - np.eye(cells))


def modulus(matrix: np.ndarray) -> np.ndarray:
    """Return the largest error after `x + A x`, from errors of at most 1."""
    return np.max(np.sum(np.abs(np.eye(matrix.shape[-1]) + matrix), axis=-1), axis=-1)


def upgo_bias(v: np.ndarray, steps: int) -> np.ndarray:
    """Return the expected UPGO return of a number of steps minus the value."""
    delta = REWARD + DISCOUNT * v[AFTER] - v[:, None, None]
    chance, later = PI[:, :, None] * PROB, np.zeros(STATES)
    for _ in range(steps):
        excess = delta + DISCOUNT * later[AFTER]
        later = np.sum(chance * np.where(delta >= 0, excess, 0), axis=(1, 2))
    return np.sum(chance * excess, axis=(1, 2))


# --- Expected updates by the library, over all trajectories. ---


@functools.cache
def trajectories(steps: int) -> tuple[np.ndarray, ...]:
    """Return states and actions, `[N, steps + 1]`, rewards, and probabilities."""
    shape = STATES, *(ACTIONS, BRANCHES) * steps, ACTIONS
    first, *choices = np.indices(shape).reshape(len(shape), -1)
    actions, branches = np.array(choices[::2]).T, np.array(choices[1::2]).T
    states = np.repeat(first[:, None], steps + 1, axis=1)
    for t in range(steps):
        states[:, t + 1] = AFTER[states[:, t], actions[:, t], branches[:, t]]
    step = states[:, :-1], actions[:, :-1], branches
    return states, actions, REWARD[step], np.prod(PROB[step], axis=-1)


def expected_errors(
    estimator: Callable[..., Array],
    tables: np.ndarray,
    settings: np.ndarray,
    policy: np.ndarray,
    steps: int = STEPS,
) -> np.ndarray:
    """Return the expected error of the first step, `[setting, table, cell]`."""
    states, actions, rewards, chance = trajectories(steps)
    weights = chance * np.prod(policy[states, actions][:, 1:], axis=-1)
    cell, cells = states[:, 0], STATES
    if tables.ndim == 3:
        cell, cells = ACTIONS * cell + actions[:, 0], STATES * ACTIONS
    else:
        weights = weights * policy[states, actions][:, 0]

    def first(setting: Array, table: Array, *stream: Array) -> Array:
        return estimator(setting, table, *stream)[0]

    each = jax.vmap(first, in_axes=(None, None, 0, 0, 0))
    each = jax.vmap(each, in_axes=(None, 0, None, None, None))
    each = jax.vmap(each, in_axes=(0, None, None, None, None))
    arrays = (jnp.asarray(x, jnp.float32) for x in (settings, tables))
    errors = jax.jit(each)(*arrays, states, actions, jnp.float32(rewards))
    return np.asarray(errors, np.float64) @ (weights[:, None] * np.eye(cells)[cell])


def off_policy(trace: np.ndarray) -> Callable[..., Array]:
    """Return the TD errors of off-policy returns with a trace, `[S, A]`."""

    def estimator(lambda_: Array, q: Array, s: Array, a: Array, r_t: Array) -> Array:
        c_t = lambda_ * jnp.asarray(trace, jnp.float32)[s[1:], a[1:]]
        v = jnp.sum(jnp.asarray(PI, jnp.float32) * q, axis=-1)
        discount_t = jnp.full_like(r_t, DISCOUNT)
        returns = rlaxlib.general_off_policy_returns_from_q_and_v(
            q[s[1:], a[1:]], v[s[1:]], r_t, discount_t, c_t
        )
        return returns - q[s[:-1], a[:-1]]

    return estimator


def vtrace(clip: Array, v: Array, s: Array, a: Array, r_t: Array) -> Array:
    """Return the TD errors of V-trace."""
    rho_tm1 = jnp.asarray(RHO, jnp.float32)[s[:-1], a[:-1]]
    discount_t = jnp.full_like(r_t, DISCOUNT)
    return rlaxlib.vtrace(
        v[s[:-1]], v[s[1:]], r_t, discount_t, rho_tm1, clip_rho_threshold=clip
    )


def upgo(_: Array, v: Array, s: Array, a: Array, r_t: Array) -> Array:
    """Return UPGO returns minus values."""
    v_tm1, v_t, discount_t = v[s[:-1]], v[s[1:]], jnp.full_like(r_t, DISCOUNT)
    return rlaxlib.upgo_returns(v_tm1, r_t, discount_t, v_t) - v_tm1


ESTIMATORS = {
    name: (off_policy(trace), policy, trace)
    for name, policy, trace in (
        ("importance", MU, RHO),
        ("Retrace", MU, np.minimum(1, RHO)),
        ("tree backup", MU, PI),
        ("Q(λ)", MU, np.ones_like(PI)),
    )
}


# --- Expected updates of distributions. ---

ATOMS = np.linspace(-20, 20, 41)
TAU = rlaxlib.quantile_midpoints(9)
STEP = tuple(  # Probability under π, reward and next state, [S, A * B].
    x.reshape(STATES, -1) for x in (PI[:, :, None] * PROB, REWARD, AFTER)
)


@jax.jit
def categorical_update(probs: Array) -> Array:
    """Return the projected targets of C51, averaged over the transitions."""

    def target(r_t: Array, s_t: Array) -> Array:
        return rlaxlib.categorical_l2_project(r_t + DISCOUNT * ATOMS, probs[s_t], ATOMS)

    chance, reward, after = STEP
    return jnp.einsum("sb,sbk->sk", chance, jax.vmap(jax.vmap(target))(reward, after))


@jax.jit
def quantile_update(quantiles: Array) -> Array:
    """Return the minimisers of the quantile loss, which are among the targets."""

    def minimize(chance: Array, r_t: Array, s_t: Array) -> Array:
        targets = r_t[:, None] + DISCOUNT * quantiles[s_t]

        def loss(tau: Array, x: Array) -> Array:
            one = functools.partial(
                rlaxlib.quantile_regression_loss, x[None], tau[None]
            )
            return jax.vmap(one)(targets) @ chance

        corners = jnp.ravel(targets)
        losses = jax.vmap(jax.vmap(loss, in_axes=(None, 0)), in_axes=(0, None))
        return corners[jnp.argmin(losses(TAU, corners), axis=-1)]

    return jax.vmap(minimize)(*STEP)


def cramer(x: Array, y: Array) -> np.ndarray:
    """Return the largest Cramér distance of all states."""
    return np.max(np.sqrt(np.sum(np.cumsum(x - y, axis=-1) ** 2, axis=-1)))


def wasserstein(x: Array, y: Array) -> np.ndarray:
    """Return the largest distance of two quantiles."""
    return np.max(np.abs(x - y))


ONE_HOT = np.eye(ATOMS.size)[[[14] * STATES, [26] * STATES]]
DISTRIBUTIONS = {
    "C51, Cramér": (
        categorical_update,
        list(ONE_HOT),
        cramer,
        DISCOUNT**0.5,
        style.BLUE,
    ),
    "quantiles, $W_\\infty$": (
        quantile_update,
        [np.linspace(-6, -4, 9) + np.zeros((STATES, 1)), np.zeros((STATES, 9))],
        wasserstein,
        DISCOUNT,
        style.ORANGE,
    ),
}
