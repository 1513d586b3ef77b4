"""Test that returns and TD errors converge to the values that theory names.

The expected update of an estimator is an exact sum over all trajectories of three
steps. Most estimators are linear: their expected update is `x + A x + b`, and it
converges to the solution of `A x + b = 0` if the spectral radius of `I + A` is below 1.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

import rlaxlib
from truth import mdp
from truth.enumeration import MDPS, STEPS, expected_errors

LAMBDAS = np.array([0.0, 0.5, 1.0])
KINDS = mdp.KINDS


class Case(NamedTuple):
    """An estimator, and what theory says about it.

    Attributes:
        estimator: Function of a table of values, a stream and a setting.
        policy: Policy that acts, "pi" or "mu".
        settings: Its settings, such as λ.
        theory: Function of an MDP and a setting that returns the matrix and the offset
            of the expected update, and the values that it converges to.
    """

    estimator: Callable[..., Any]
    policy: str
    settings: np.ndarray
    theory: Callable[..., Any]


# --- State values. ---


def transitions(v, stream):
    """Return values before, rewards, discounts and values after each step."""
    return v[stream.s_tm1], stream.r_t, stream.discount_t, v[stream.s_t]


def lambda_returns(v, stream, lambda_):
    v_tm1, r_t, discount_t, v_t = transitions(v, stream)
    return rlaxlib.lambda_returns(r_t, discount_t, v_t, lambda_) - v_tm1


def td_lambda(v, stream, lambda_):
    return rlaxlib.td_lambda(*transitions(v, stream), lambda_)


def generalized_advantages(v, stream, lambda_):
    v_tm1, r_t, discount_t, v_t = transitions(v, stream)
    return rlaxlib.generalized_advantage_estimation(
        v_tm1, r_t, discount_t, v_t, lambda_
    )


def truncated_generalized_advantages(v, stream, lambda_):
    values = v[jnp.append(stream.s_tm1, stream.s_t[-1])]
    return rlaxlib.truncated_generalized_advantage_estimation(
        stream.r_t, stream.discount_t, lambda_, values
    )


def discounted_returns(v, stream, _):
    v_tm1, r_t, discount_t, v_t = transitions(v, stream)
    return rlaxlib.discounted_returns(r_t, discount_t, v_t) - v_tm1


def n_step_returns(n):
    def estimator(v, stream, lambda_):
        v_tm1, r_t, discount_t, v_t = transitions(v, stream)
        returns = rlaxlib.n_step_bootstrapped_returns(r_t, discount_t, v_t, n, lambda_)
        return returns - v_tm1

    return estimator


def importance_sampling(v, stream, lambda_):
    values = v[jnp.append(stream.s_tm1, stream.s_t[-1])]
    return rlaxlib.importance_corrected_td_errors(
        stream.r_t, stream.discount_t, stream.rho_tm1, lambda_, values
    )


def vtrace(v, stream, setting):
    v_tm1, r_t, discount_t, v_t = transitions(v, stream)
    lambda_, clip_rho, clip_c = setting
    return rlaxlib.vtrace(
        v_tm1,
        v_t,
        r_t,
        discount_t,
        stream.rho_tm1,
        lambda_,
        clip_rho,
        clip_c_threshold=clip_c,
    )


def vtrace_output(v, stream, setting):
    v_tm1, r_t, discount_t, v_t = transitions(v, stream)
    lambda_, clip_rho, clip_c = setting
    return rlaxlib.vtrace_td_error_and_advantage(
        v_tm1,
        v_t,
        r_t,
        discount_t,
        stream.rho_tm1,
        lambda_,
        clip_rho,
        clip_pg_rho_threshold=clip_rho,
        clip_c_threshold=clip_c,
    )


def leaky_vtrace(v, stream, setting):
    v_tm1, r_t, discount_t, v_t = transitions(v, stream)
    alpha, lambda_, clip_rho = setting
    return rlaxlib.leaky_vtrace(
        v_tm1, v_t, r_t, discount_t, stream.rho_tm1, alpha, lambda_, clip_rho
    )


def leaky_vtrace_output(v, stream, setting):
    v_tm1, r_t, discount_t, v_t = transitions(v, stream)
    alpha, lambda_, clip_rho = setting
    return rlaxlib.leaky_vtrace_td_error_and_advantage(
        v_tm1, v_t, r_t, discount_t, stream.rho_tm1, alpha, lambda_, clip_rho
    )


def on_policy(steps):
    def theory(m, lambda_):
        update = mdp.state_update(m, m.pi, 1.0, lambda_, steps)
        return *update, mdp.state_values(m, m.pi)

    return theory


def of_importance_sampling(m, lambda_):
    update = mdp.state_update(m, m.mu, m.rho, lambda_ * m.rho, STEPS)
    return *update, mdp.state_values(m, m.pi)


def of_vtrace(m, setting):
    lambda_, clip_rho, clip_c = setting
    rho, c = np.minimum(clip_rho, m.rho), lambda_ * np.minimum(clip_c, m.rho)
    truth = mdp.state_values(m, mdp.clipped_policy(m, clip_rho))
    return *mdp.state_update(m, m.mu, rho, c, STEPS), truth


def of_leaky_vtrace(m, setting):
    alpha, lambda_, clip_rho = setting
    rho = (1 - alpha) * m.rho + alpha * np.minimum(clip_rho, m.rho)
    c = lambda_ * ((1 - alpha) * m.rho + alpha * np.minimum(1.0, m.rho))
    evaluated = m.mu * rho
    evaluated /= np.sum(evaluated, axis=-1, keepdims=True)
    update = mdp.state_update(m, m.mu, rho, c, STEPS)
    return *update, mdp.state_values(m, evaluated)


CLIPS = np.array(  # λ, and the clips of the TD errors and of the traces.
    [
        [1.0, 0.3, 0.3],
        [1.0, 1.0, 1.0],
        [0.5, 1.0, 0.3],
        [1.0, 2.0, 1.0],
        [1.0, np.inf, 1.0],
        [0.5, np.inf, np.inf],
    ]
)
LEAKS = np.array(  # α, λ, and the clip of the TD errors.
    [[0.0, 1.0, 1.0], [0.3, 0.5, 1.0], [0.3, 1.0, 0.5], [1.0, 1.0, 0.3]]
)

STATE_VALUES = {
    "λ-returns": Case(lambda_returns, "pi", LAMBDAS, on_policy(STEPS)),
    "TD(λ)": Case(td_lambda, "pi", LAMBDAS, on_policy(STEPS)),
    "GAE": Case(generalized_advantages, "pi", LAMBDAS, on_policy(STEPS)),
    "truncated GAE": Case(
        truncated_generalized_advantages, "pi", LAMBDAS, on_policy(STEPS)
    ),
    "discounted returns": Case(
        discounted_returns, "pi", np.array([1.0]), on_policy(STEPS)
    ),
    "1-step returns": Case(n_step_returns(1), "pi", LAMBDAS, on_policy(1)),
    "2-step returns": Case(n_step_returns(2), "pi", LAMBDAS, on_policy(2)),
    "importance sampling": Case(
        importance_sampling, "mu", LAMBDAS, of_importance_sampling
    ),
    "V-trace": Case(vtrace, "mu", CLIPS, of_vtrace),
    "V-trace with advantages": Case(
        lambda *arguments: vtrace_output(*arguments).errors, "mu", CLIPS, of_vtrace
    ),
    "leaky V-trace": Case(leaky_vtrace, "mu", LEAKS, of_leaky_vtrace),
    "leaky V-trace with advantages": Case(
        lambda *arguments: leaky_vtrace_output(*arguments).errors,
        "mu",
        LEAKS,
        of_leaky_vtrace,
    ),
}


# --- Action values. ---


def action_transitions(q, stream):
    """Return the arrays that off-policy TD errors begin with."""
    return (
        q[stream.s_tm1],
        q[stream.s_t],
        stream.a_tm1,
        stream.a_t,
        stream.r_t,
        stream.discount_t,
    )


def taken(q, stream):
    """Return the values of the actions taken."""
    return q[stream.s_tm1, stream.a_tm1]


def sarsa_lambda(q, stream, lambda_):
    q_tm1, q_t, a_tm1, a_t, r_t, discount_t = action_transitions(q, stream)
    return rlaxlib.sarsa_lambda(q_tm1, a_tm1, r_t, discount_t, q_t, a_t, lambda_)


def retrace(q, stream, lambda_):
    return rlaxlib.retrace(
        *action_transitions(q, stream), stream.pi_t, stream.mu_t, lambda_, eps=0.0
    )


def retrace_continuous(q, stream, lambda_):
    q_t = q[stream.s_t]
    return rlaxlib.retrace_continuous(
        taken(q, stream),
        q[stream.s_t, stream.a_t],
        jnp.sum(stream.pi_t * q_t, axis=-1),
        stream.r_t,
        stream.discount_t,
        jnp.log(stream.rho_t),
        lambda_,
    )


def tree_backup(q, stream, lambda_):
    return rlaxlib.tree_backup(
        q_tm1=q[stream.s_tm1],
        a_tm1=stream.a_tm1,
        r_t=stream.r_t,
        discount_t=stream.discount_t,
        q_t=q[stream.s_t],
        a_t=stream.a_t,
        pi_t=stream.pi_t,
        lambda_=lambda_,
    )


def general_returns(trace):
    """Return the estimator with a trace, a function of the stream."""

    def estimator(q, stream, lambda_):
        returns = rlaxlib.general_off_policy_returns_from_action_values(
            q[stream.s_t],
            stream.a_t,
            stream.r_t,
            stream.discount_t,
            lambda_ * trace(stream),
            stream.pi_t,
        )
        return returns - taken(q, stream)

    return estimator


def of_sarsa_lambda(m, lambda_):
    update = mdp.action_update(m, m.pi, m.pi, lambda_, STEPS)
    return *update, mdp.action_values(m, m.pi)


def off_policy(trace):
    """Return the theory of a trace, a function of the MDP."""

    def theory(m, lambda_):
        update = mdp.action_update(m, m.mu, m.pi, lambda_ * trace(m), STEPS)
        return *update, mdp.action_values(m, m.pi)

    return theory


RETRACE = off_policy(lambda m: np.minimum(1.0, m.rho))
TREE = off_policy(lambda m: m.pi)

ACTION_VALUES = {
    "Sarsa(λ)": Case(sarsa_lambda, "pi", LAMBDAS, of_sarsa_lambda),
    "Retrace": Case(retrace, "mu", LAMBDAS, RETRACE),
    "Retrace for continuous actions": Case(retrace_continuous, "mu", LAMBDAS, RETRACE),
    "tree backup": Case(tree_backup, "mu", LAMBDAS, TREE),
    "importance sampling of action values": Case(
        general_returns(lambda stream: stream.rho_t),
        "mu",
        LAMBDAS,
        off_policy(lambda m: m.rho),
    ),
    # Safe only for policies that are close, or a small λ.
    "Q(λ) with corrections": Case(
        general_returns(lambda stream: jnp.ones_like(stream.r_t)),
        "mu",
        np.array([0.0, 0.2]),
        off_policy(lambda m: np.ones_like(m.pi)),
    ),
}


def expected_updates(cases, policy, shape):
    """Return A and b of each expected update, with axes `[MDP, setting, ...]`."""
    cells = int(np.prod(shape))
    basis = np.concatenate([np.zeros((1, cells)), np.eye(cells)]).reshape(-1, *shape)
    estimators = {name: case.estimator for name, case in cases.items()}
    settings = {name: case.settings for name, case in cases.items()}
    of_actions = len(shape) == 2
    each = expected_errors(estimators, basis, settings, policy, of_actions=of_actions)
    for name, errors in each.items():
        offset = errors[:, :, 0]
        linear = np.swapaxes(errors[:, :, 1:] - offset[:, :, None], -1, -2)
        yield name, (linear, offset)


@pytest.mark.parametrize("policy", ["pi", "mu"])
@pytest.mark.parametrize(
    ("cases", "shape"),
    [(STATE_VALUES, (mdp.STATES,)), (ACTION_VALUES, (mdp.STATES, mdp.ACTIONS))],
    ids=["state values", "action values"],
)
def test_expected_updates_converge_to_the_values_of_theory(cases, shape, policy):
    cases = {name: case for name, case in cases.items() if case.policy == policy}
    for name, update in expected_updates(cases, policy, shape):
        settings, theory = cases[name].settings, cases[name].theory
        close = functools.partial(np.testing.assert_allclose, rtol=0, err_msg=name)
        for m, of_mdp in zip(MDPS, zip(*update, strict=True), strict=True):
            for setting, a, b in zip(settings, *of_mdp, strict=True):
                theory_a, theory_b, truth = theory(m, setting)
                close(a, theory_a, atol=1e-12)
                close(b, theory_b, atol=1e-12)
                radius = np.abs(np.linalg.eigvals(np.eye(len(a)) + a)).max()
                assert radius < 1, name
                close(np.linalg.solve(a, -b).reshape(shape), truth, atol=1e-10)


# --- Estimates for each action, at the true values. ---


def estimates(estimator, v, settings, policy):
    """Return mean estimates, `[MDP, setting, S, A, ...]`, from values `[MDP, S]`."""
    found = expected_errors(estimator, v, settings, policy, of_actions=True)
    own = np.stack([each[:, i] for i, each in enumerate(found)])
    return own.reshape(*own.shape[:2], mdp.STATES, mdp.ACTIONS, *own.shape[3:])


def test_gae_at_the_true_values_estimates_the_advantages():
    q = np.stack([mdp.action_values(m, m.pi) for m in MDPS])
    v = np.stack([mdp.state_values(m, m.pi) for m in MDPS])
    found = estimates(generalized_advantages, v, LAMBDAS, "pi")
    truth = np.broadcast_to((q - v[:, :, None])[:, None], found.shape)
    np.testing.assert_allclose(found, truth, rtol=0, atol=1e-12)


VTRACE_OUTPUTS = {  # Estimator, setting, and the clip of the ratios.
    "V-trace": (
        vtrace_output,
        [0.5, 0.6, 1.0],
        lambda rho: np.minimum(0.6, rho),
    ),
    "leaky V-trace": (
        leaky_vtrace_output,
        [0.4, 0.5, 1.0],
        lambda rho: 0.6 * rho + 0.4 * np.minimum(1.0, rho),
    ),
}


@pytest.mark.parametrize("name", VTRACE_OUTPUTS)
def test_vtrace_at_its_fixed_point_estimates_action_values_and_advantages(name):
    output, setting, clip = VTRACE_OUTPUTS[name]

    def estimator(v, stream, setting):
        _, advantage, q_estimate = output(v, stream, setting)
        return jnp.stack([q_estimate, advantage], axis=-1)

    rho = np.stack([clip(m.rho) for m in MDPS])
    policies = np.stack([m.mu for m in MDPS]) * rho
    policies /= np.sum(policies, axis=-1, keepdims=True)
    q = np.stack([*map(mdp.action_values, MDPS, policies)])
    v = np.sum(policies * q, axis=-1)
    found = estimates(estimator, v, np.array([setting]), "mu")[:, 0]
    np.testing.assert_allclose(found[..., 0], q, rtol=0, atol=1e-12)
    advantages = rho * (q - v[:, :, None])
    np.testing.assert_allclose(found[..., 1], advantages, rtol=0, atol=1e-12)


# --- UPGO. ---


def upgo(v, stream, _):
    v_tm1, r_t, discount_t, v_t = transitions(v, stream)
    return rlaxlib.upgo_returns(v_tm1, r_t, discount_t, v_t) - v_tm1


def upgo_bias(m, v, steps):
    """Return the expected UPGO return minus the value of each state.

    The return exceeds its one-step target by that of the next step, if that step does
    well.
    """
    delta = m.reward + m.discount * v[m.after] - v[:, None, None]
    chance = m.pi[:, :, None] * m.prob
    later = np.zeros(mdp.STATES)
    for _ in range(steps):
        excess = delta + m.discount * later[m.after]
        later = np.sum(chance * np.where(delta >= 0, excess, 0), axis=(1, 2))
    return np.sum(chance * excess, axis=(1, 2))


def test_upgo_is_optimistic_even_at_the_true_values():
    v = np.stack([mdp.state_values(m, m.pi) for m in MDPS])
    found = expected_errors(upgo, v, LAMBDAS[:1], "pi", of_actions=False)[:, 0]
    for i, m in enumerate(MDPS):
        bias = upgo_bias(m, v[i], STEPS)
        np.testing.assert_allclose(found[i, i], bias, rtol=0, atol=1e-12)
        assert np.all(bias[:4] > 0.05)  # The last layer has one step only.
        assert np.all(upgo_bias(m, v[i], 2) <= bias + 1e-12)
