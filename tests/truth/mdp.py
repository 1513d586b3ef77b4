"""Random tabular MDPs, solved by linear algebra, and all their trajectories.

An MDP has S states, A actions and B branches: an action leads to one of B next states.
So all trajectories of a few steps can be listed, and expectations are exact sums. All
arrays are NumPy arrays in double precision.
"""

from typing import NamedTuple

import numpy as np

STATES, ACTIONS, BRANCHES = 6, 3, 2
KINDS = ("continuing", "terminating", "layered")


class Mdp(NamedTuple):
    """An MDP, a target policy and a behaviour policy.

    Attributes:
        after: Next states, int, shape `[S, A, B]`.
        prob: Their probabilities, shape `[S, A, B]`.
        reward: Rewards, shape `[S, A, B]`.
        discount: Discounts, 0 where the episode terminates, shape `[S, A, B]`.
        pi: Target policy, shape `[S, A]`.
        mu: Behaviour policy, shape `[S, A]`.
    """

    after: np.ndarray
    prob: np.ndarray
    reward: np.ndarray
    discount: np.ndarray
    pi: np.ndarray
    mu: np.ndarray

    @property
    def r(self):
        """Expected rewards, shape `[S, A]`."""
        return np.sum(self.prob * self.reward, axis=-1)

    @property
    def p(self):
        """Discounted transition probabilities, shape `[S, A, S]`."""
        to = np.eye(STATES)[self.after]
        return np.einsum("sab,sabt->sat", self.prob * self.discount, to)

    @property
    def rho(self):
        """Importance ratios, shape `[S, A]`."""
        return self.pi / self.mu


class Stream(NamedTuple):
    """Trajectories of T steps; `N` of them have a leading axis of this length."""

    s_tm1: np.ndarray
    a_tm1: np.ndarray
    r_t: np.ndarray
    discount_t: np.ndarray
    s_t: np.ndarray
    a_t: np.ndarray
    pi_t: np.ndarray  # Of all actions.
    mu_t: np.ndarray  # Of the action taken.
    rho_tm1: np.ndarray
    rho_t: np.ndarray


def random_mdp(kind, seed=0):
    """Sample an MDP.

    Args:
        kind: "continuing", whose discounts depend on the transition; "terminating",
            where a third of all transitions end the episode; or "layered", where it
            ends after three steps at most.
        seed: Seed of the random numbers.
    """
    rng = np.random.default_rng([KINDS.index(kind), seed])
    shape = (STATES, ACTIONS, BRANCHES)
    after = rng.integers(STATES, size=shape)
    discount = rng.uniform(0.6, 0.8, size=shape)
    if kind == "terminating":
        discount = np.where(rng.random(shape) < 1 / 3, 0.0, 0.8)
    if kind == "layered":
        layer = np.arange(STATES)[:, None, None] // 2
        after = (2 * layer + 2 + rng.integers(2, size=shape)) % STATES
        discount = np.broadcast_to(np.where(layer == 2, 0.0, 0.8), shape)
    prob = rng.dirichlet(np.full(BRANCHES, 3.0), size=shape[:2])
    pi, mu = rng.dirichlet(np.full(ACTIONS, 1.5), size=(2, STATES))
    # No action is so rare that its ratio dwarfs all others.
    pi, mu = 0.9 * pi + 0.1 / ACTIONS, 0.7 * mu + 0.3 / ACTIONS
    return Mdp(after, prob, rng.normal(size=shape), discount, pi, mu)


# --- True values. ---


def action_values(mdp, policy):
    """Return the action values of a policy, shape `[S, A]`."""
    on = np.einsum("sat,tb->satb", mdp.p, policy)
    cells = STATES * ACTIONS
    matrix = np.eye(cells) - on.reshape(cells, cells)
    return np.linalg.solve(matrix, mdp.r.ravel()).reshape(STATES, ACTIONS)


def state_values(mdp, policy):
    """Return the state values of a policy, shape `[S]`."""
    return np.sum(policy * action_values(mdp, policy), axis=-1)


def greedy(q):
    """Return the greedy policy, shape `[S, A]`."""
    return np.eye(ACTIONS)[np.argmax(q, axis=-1)]


def optimal_values(mdp):
    """Return the optimal action values by policy iteration, shape `[S, A]`."""
    q = mdp.r
    for _ in range(20):
        q = action_values(mdp, greedy(q))
    return q


def clipped_policy(mdp, threshold):
    """Return the policy that V-trace evaluates, proportional to min(ρ̄ μ, π)."""
    clipped = np.minimum(threshold * mdp.mu, mdp.pi)
    return clipped / np.sum(clipped, axis=-1, keepdims=True)


def visits(mdp, policy, start):
    """Return the discounted number of visits to each state, shape `[S]`."""
    on = np.einsum("sa,sat->st", policy, mdp.p)
    return np.linalg.solve(np.eye(STATES) - on.T, start)


# --- Expected updates, as matrices: x + E[e] = x + A x + b. ---


def state_update(mdp, policy, rho, c, steps):
    """Return A and b of the expected TD error of state values.

    The TD error is e_t = ρ_t δ_t + γ_{t+1} c_t e_{t+1}, and e_T is 0.

    Args:
        mdp: The MDP.
        policy: Policy that acts, shape `[S, A]`.
        rho: Weights of the one-step errors, shape `[S, A]` or a scalar.
        c: Traces, shape `[S, A]` or a scalar.
        steps: Number of steps T.
    """
    trace = np.einsum("sa,sat->st", policy * c, mdp.p)
    error = np.einsum("sa,sat->st", policy * rho, mdp.p)
    error -= np.diag(np.sum(policy * rho, axis=-1))
    offset = np.sum(policy * rho * mdp.r, axis=-1)
    powers = sum(np.linalg.matrix_power(trace, k) for k in range(steps))
    return powers @ error, powers @ offset


def action_update(mdp, policy, target, c, steps):
    """Return A and b of the expected TD error of action values.

    The TD error is e_t = δ_t + γ_{t+1} c_{t+1} e_{t+1}, with e_T = 0 and the one-step
    error of expected Sarsa for the target policy.
    """
    cells = STATES * ACTIONS
    trace = np.einsum("sat,tb->satb", mdp.p, policy * c).reshape(cells, cells)
    error = np.einsum("sat,tb->satb", mdp.p, target).reshape(cells, cells)
    powers = sum(np.linalg.matrix_power(trace, k) for k in range(steps))
    return powers @ (error - np.eye(cells)), powers @ mdp.r.ravel()


# --- All trajectories. ---


def trajectories(mdp, steps):
    """List all trajectories from all states, with the action in the last state."""
    shape = (STATES, *(ACTIONS, BRANCHES) * steps, ACTIONS)
    first, *choices = np.indices(shape).reshape(len(shape), -1)
    actions, branches = np.array(choices[::2]).T, np.array(choices[1::2]).T
    states = np.empty_like(actions)
    states[:, 0] = first
    for t in range(steps):
        states[:, t + 1] = mdp.after[states[:, t], actions[:, t], branches[:, t]]
    s_tm1, s_t, a_tm1, a_t = (
        states[:, :-1],
        states[:, 1:],
        actions[:, :-1],
        actions[:, 1:],
    )
    step = s_tm1, a_tm1, branches
    stream = Stream(
        s_tm1=s_tm1,
        a_tm1=a_tm1,
        r_t=mdp.reward[step],
        discount_t=mdp.discount[step],
        s_t=s_t,
        a_t=a_t,
        pi_t=mdp.pi[s_t],
        mu_t=mdp.mu[s_t, a_t],
        rho_tm1=mdp.rho[s_tm1, a_tm1],
        rho_t=mdp.rho[s_t, a_t],
    )
    return stream, np.prod(mdp.prob[step], axis=-1)


def probabilities(mdp, policy, steps):
    """Return the probability of each trajectory given its start and first action."""
    stream, moves = trajectories(mdp, steps)
    return moves * np.prod(policy[stream.s_t, stream.a_t], axis=-1)


def averaging(mdp, policy, steps, of_actions):
    """Return weights that average over trajectories, given where they start.

    Returns:
        Shape `[N, S]`: column s averages over trajectories from state s. Or, for
        `of_actions`, shape `[N, S * A]`, with columns for each state and first action.
    """
    stream, _ = trajectories(mdp, steps)
    weights = probabilities(mdp, policy, steps)
    s, a = stream.s_tm1[:, 0], stream.a_tm1[:, 0]
    if of_actions:
        return weights[:, None] * np.eye(STATES * ACTIONS)[ACTIONS * s + a]
    return (weights * policy[s, a])[:, None] * np.eye(STATES)[s]
