"""Test the values to which Q-learning, its variants and one-step errors converge.

The maximum makes the expected update nonlinear, so it is repeated until it converges.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

import rlaxlib
from truth import mdp
from truth.enumeration import MDPS, WORLDS, expected_errors, fixed_points

HALF = np.array([0.5])  # The one setting of most cases.


def one_step(function):
    """Return the estimator of an error that takes one transition."""

    def estimator(table, stream, setting):
        step = mdp.Stream(*(x[0] for x in stream))
        return function(table, step, setting)[None]

    return estimator


def transition(q, step):
    """Return the arguments of most one-step errors."""
    return q[step.s_tm1], step.a_tm1, step.r_t, step.discount_t, q[step.s_t]


# --- One step. ---


def td_learning(v, step, _):
    return rlaxlib.td_learning(v[step.s_tm1], step.r_t, step.discount_t, v[step.s_t])


def sarsa(q, step, _):
    return rlaxlib.sarsa(*transition(q, step), step.a_t)


def expected_sarsa(q, step, _):
    return rlaxlib.expected_sarsa(*transition(q, step), step.pi_t)


def q_learning(q, step, _):
    return rlaxlib.q_learning(*transition(q, step))


def double_q_learning(q, step, sign):
    # At -1 the selected actions are the worst.
    return rlaxlib.double_q_learning(*transition(q, step), sign * q[step.s_t])


def qv_learning(q, step, _):
    v_t = jnp.sum(step.pi_t * q[step.s_t])
    return rlaxlib.qv_learning(*transition(q, step)[:-1], v_t)


def soft_q_learning(q, step, tau):
    return rlaxlib.soft_q_learning(*transition(q, step), tau)


def mellowmax(q, step, tau):
    v_t = rlaxlib.mellowmax(q[step.s_t], 1 / tau)
    return rlaxlib.qv_learning(*transition(q, step)[:-1], v_t)


def sac(q, step, tau):
    log_prob_t = jnp.log(step.pi_t[step.a_t])
    target = rlaxlib.sac_critic_target(
        step.r_t, step.discount_t, q[step.s_t, step.a_t], log_prob_t, tau
    )
    return target - q[step.s_tm1, step.a_tm1]


def discrete_sac(q, step, tau):
    v_t = rlaxlib.discrete_sac_value(jnp.log(step.pi_t), q[step.s_t], tau)
    return rlaxlib.qv_learning(*transition(q, step)[:-1], v_t)


def munchausen(q, step, bound):
    q_tm1, a_tm1, r_t, discount_t, q_t = transition(q, step)
    return rlaxlib.munchausen_q_learning(
        q_tm1, q_tm1, a_tm1, r_t, discount_t, q_t, 0.5, 0.6, bound
    )


def advantage_learning(q, step, alpha):
    q_tm1, *rest = transition(q, step)
    return rlaxlib.advantage_learning(q_tm1, q_tm1, *rest, alpha)


def persistent_q_learning(q, step, alpha):
    return rlaxlib.persistent_q_learning(*transition(q, step), alpha)


# --- Many steps. ---


def watkins(q, stream, lambda_):
    q_t = q[stream.s_t]
    trace = rlaxlib.watkins_trace(q_t, stream.a_t)
    return rlaxlib.q_lambda(*transition(q, stream), lambda_ * trace)


def peng(q, stream, lambda_):
    return rlaxlib.q_lambda(*transition(q, stream), lambda_)


def two_step(q, stream, _):
    return rlaxlib.n_step_q_learning(*transition(q, stream), n=2)


def double_two_step(q, stream, sign):
    q_t = q[stream.s_t]
    return rlaxlib.n_step_double_q_learning(*transition(q, stream), sign * q_t, n=2)


# --- The values of theory. ---


def on_policy(m, _):
    return mdp.action_values(m, m.pi)


def optimum(m, _):
    return mdp.optimal_values(m)


def iterate(m, value):
    """Return the fixed point of q = r + γ P value(q)."""
    q = np.zeros_like(m.pi)
    for _ in range(200):
        q = m.r + m.p @ value(q)
    return q


def soft_value(q, tau):
    return tau * np.log(np.sum(np.exp(q / tau), axis=-1))


def soft_optimum(m, tau):
    return iterate(m, lambda q: soft_value(q, tau))


def of_mellowmax(m, tau):
    return iterate(m, lambda q: soft_value(q, tau) - tau * np.log(mdp.ACTIONS))


def of_selector(m, sign):
    return iterate(m, lambda q: np.max(q, -1) if sign > 0 else np.min(q, -1))


def soft_on_policy(m, tau):
    entropy = -np.sum(m.pi * np.log(m.pi), axis=-1)
    return mdp.action_values(m._replace(reward=_with(m, tau * entropy)), m.pi)


def _with(m, bonus):
    """Return the rewards with the discounted bonus of the next state."""
    return m.reward + m.discount * bonus[m.after]


def of_munchausen(m, bound):
    # Without the bound, q - α τ log π is soft optimal at the temperature (1 - α) τ. A
    # bound of 0 leaves no bonus.
    if bound == 0:
        return soft_optimum(m, 0.5)
    tau = (1 - 0.6) * 0.5
    q = soft_optimum(m, tau)
    return q + 0.6 * 0.5 * (q - soft_value(q, tau)[:, None]) / tau


def of_advantage_learning(m, alpha):
    q = mdp.optimal_values(m)
    v = np.max(q, axis=-1, keepdims=True)
    return v - (v - q) / (1 - alpha)  # The same best value, larger action gaps.


def of_persistence(m, alpha):
    # With probability α the next action repeats the last one.
    q = np.zeros_like(m.pi)
    for _ in range(200):
        repeated = np.einsum("sat,ta->sa", m.p, q)
        q = m.r + (1 - alpha) * m.p @ np.max(q, axis=-1) + alpha * repeated
    return q


class Case(NamedTuple):
    """An estimator, the policy that acts, settings, and the values of theory."""

    estimator: Callable[..., Any]
    policy: str
    settings: np.ndarray
    theory: Callable[..., Any]


SIGNS = np.array([1.0, -1.0])
ONE_STEP = {
    "Sarsa": Case(sarsa, "pi", HALF, on_policy),
    "expected Sarsa": Case(expected_sarsa, "mu", HALF, on_policy),
    "Q-learning": Case(q_learning, "mu", HALF, optimum),
    "double Q-learning": Case(double_q_learning, "mu", SIGNS, of_selector),
    "QV-learning": Case(qv_learning, "mu", HALF, on_policy),
    "soft Q-learning": Case(soft_q_learning, "mu", HALF, soft_optimum),
    "mellowmax": Case(mellowmax, "mu", HALF, of_mellowmax),
    "SAC": Case(sac, "pi", HALF, soft_on_policy),
    "discrete SAC": Case(discrete_sac, "mu", HALF, soft_on_policy),
    "Munchausen": Case(munchausen, "mu", np.array([0.0, -1e6]), of_munchausen),
    "advantage learning": Case(advantage_learning, "mu", HALF, of_advantage_learning),
    "persistent Q-learning": Case(persistent_q_learning, "mu", HALF, of_persistence),
}


@pytest.mark.parametrize("policy", ["pi", "mu"])
def test_one_step_errors_converge_to_the_values_of_theory(policy):
    cases = {name: case for name, case in ONE_STEP.items() if case.policy == policy}
    estimators = {name: one_step(case.estimator) for name, case in cases.items()}
    settings = {name: case.settings for name, case in cases.items()}
    found = fixed_points(estimators, settings, policy, steps=1)
    for name, case in cases.items():
        truth = [[case.theory(m, each) for each in case.settings] for m in MDPS]
        np.testing.assert_allclose(found[name], truth, 0, 1e-9, err_msg=name)


def test_td_learning_converges_to_the_state_values():
    found = fixed_points(one_step(td_learning), HALF, "pi", steps=1, of_actions=False)
    truth = [[mdp.state_values(m, m.pi)] for m in MDPS]
    np.testing.assert_allclose(found, truth, rtol=0, atol=1e-9)


def test_persistent_advantage_learning_has_larger_gaps_and_the_best_values():
    def estimator(q, step, alpha):
        q_tm1, *rest = transition(q, step)
        return rlaxlib.persistent_advantage_learning(q_tm1, q_tm1, *rest, alpha)

    found = fixed_points(one_step(estimator), HALF, "mu", steps=1)[:, 0]
    optimal = np.array([mdp.optimal_values(m) for m in MDPS])
    advantage = np.array([of_advantage_learning(m, 0.5) for m in MDPS])
    best = np.max(optimal, axis=-1)
    np.testing.assert_allclose(np.max(found, axis=-1), best, rtol=0, atol=1e-9)
    assert np.all(found < optimal + 1e-9)
    assert np.all(found > advantage - 1e-9)


# --- Many steps. ---


def test_watkins_converges_to_the_optimal_values():
    found = fixed_points(watkins, np.array([0.5, 1.0]), "mu", steps=2)
    truth = [[mdp.optimal_values(m)] * 2 for m in MDPS]
    np.testing.assert_allclose(found, truth, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("estimator", "sign"), [(two_step, 1.0), (double_two_step, -1.0)]
)
def test_uncorrected_two_step_q_learning_follows_mu_for_one_step(estimator, sign):
    # The first action is free, the second is that of μ, the third is selected.
    found = fixed_points(estimator, np.array([sign]), "mu", steps=2)[:, 0]
    for m, q in zip(MDPS, found, strict=True):
        selected = np.sum(mdp.greedy(sign * q) * q, axis=-1)
        v = np.sum(m.mu * (m.r + m.p @ selected), axis=-1)
        np.testing.assert_allclose(q, m.r + m.p @ v, rtol=0, atol=1e-9)


def test_pengs_q_lambda_converges_to_the_values_of_a_mixture():
    # λ μ + (1 - λ) π with the greedy policy π; the last step of a window is greedy.
    lambdas = np.array([0.3, 0.9])
    found = fixed_points(peng, lambdas, "mu", steps=3)
    for m, kind, limits in zip(MDPS, mdp.KINDS, found, strict=True):
        for lambda_, q in zip(lambdas, limits, strict=True):
            mixture = lambda_ * m.mu + (1 - lambda_) * mdp.greedy(q)
            value = np.max(q, axis=-1)
            for _ in range(2):
                tail = np.sum(m.mu * (m.r + m.p @ value), axis=-1)
                value = (1 - lambda_) * np.max(q, axis=-1) + lambda_ * tail
            np.testing.assert_allclose(q, m.r + m.p @ value, rtol=0, atol=1e-9)
            if kind == "layered":  # The window holds whole episodes.
                truth = mdp.action_values(m, mixture)
                np.testing.assert_allclose(q, truth, rtol=0, atol=1e-9)
                assert np.max(mdp.optimal_values(m) - q) > 0.1


# --- Transformed values. ---

HYPERBOLIC = rlaxlib.SIGNED_HYPERBOLIC_PAIR


def transformed_watkins(q, stream, lambda_):
    q_t = q[stream.s_t]
    trace = rlaxlib.watkins_trace(q_t, stream.a_t)
    return rlaxlib.transformed_q_lambda(
        *transition(q, stream), lambda_ * trace, tx_pair=HYPERBOLIC
    )


def transformed_retrace(q, stream, lambda_):
    q_tm1, a_tm1, r_t, discount_t, q_t = transition(q, stream)
    arguments = q_tm1, q_t, a_tm1, stream.a_t, r_t, discount_t
    return rlaxlib.transformed_retrace(
        *arguments, stream.pi_t, stream.mu_t, lambda_, tx_pair=HYPERBOLIC
    )


def transformed_two_step(q, stream, _):
    q_tm1, a_tm1, r_t, discount_t, q_t = transition(q, stream)
    best = jnp.argmax(q_t, axis=-1)
    return rlaxlib.transformed_n_step_q_learning(
        q_tm1, a_tm1, q_t, best, r_t, discount_t, n=2, tx_pair=HYPERBOLIC
    )


@pytest.mark.parametrize(
    ("estimator", "policy"),
    [
        (transformed_watkins, "mu"),
        (transformed_retrace, "mu"),
        (transformed_two_step, "pi"),
    ],
)
def test_transformed_errors_converge_to_the_transform_of_the_values(estimator, policy):
    # Without randomness in returns; otherwise only approximately.
    found = fixed_points(estimator, HALF, policy, steps=2, world="deterministic")
    truth = [[mdp.optimal_values(m)] for m in WORLDS["deterministic"]]
    size = np.abs(truth)
    truth = np.sign(truth) * (np.sqrt(size + 1) - 1) + 1e-3 * np.array(truth)
    np.testing.assert_allclose(found, truth, rtol=0, atol=1e-9)


# --- Average reward. ---


def test_differential_td_errors_measure_the_error_of_the_reward_rate():
    m = MDPS[0]
    on = np.einsum("sa,sab,sabt->st", m.pi, m.prob, np.eye(mdp.STATES)[m.after])
    rewards = np.sum(m.pi * m.r, axis=-1)
    visited = np.linalg.matrix_power(on, 1000)[0]
    gain = visited @ rewards
    # The differential values, whose mean over visits is 0.
    centered = np.eye(mdp.STATES) - on + visited
    v = np.linalg.solve(centered, rewards - gain)

    def estimator(v, step, rate):
        return rlaxlib.td_learning(v[step.s_tm1], step.r_t - rate, 1.0, v[step.s_t])

    tables = np.stack([v, np.arange(6.0)])
    rates = np.array([gain, gain - 0.7])
    errors = expected_errors(
        one_step(estimator), tables, rates, "pi", of_actions=False
    )[0]
    np.testing.assert_allclose(errors[0, 0], 0, rtol=0, atol=1e-12)
    np.testing.assert_allclose(errors[1] @ visited, 0.7, rtol=0, atol=1e-12)
