"""Test that policy losses have the gradient of the true objective.

The policy is a softmax of a table of logits. The objective is solved by linear algebra
and differentiated by complex steps, without the policy-gradient theorem. The expected
loss is a sum over all states and actions, weighted by the discounted number of visits,
or over all trajectories.
"""

from typing import NamedTuple

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlaxlib
from truth import mdp
from truth.enumeration import MDPS, WORLDS, averagings, streams

CELLS = mdp.STATES * mdp.ACTIONS
S, A = (x.ravel() for x in np.indices((mdp.STATES, mdp.ACTIONS)))  # Of each cell.
KL_KINDS = ("k1", "k2", "k3", "abs")
START = np.full(mdp.STATES, 1 / mdp.STATES)  # Distribution of the first state.


class Data(NamedTuple):
    """What the losses of an MDP are made of; `C` cells are all pairs of s and a."""

    logits: np.ndarray  # [S, A]
    mu_logits: np.ndarray  # [S, A]
    q: np.ndarray  # [S, A]
    v: np.ndarray  # [S]
    soft_q: np.ndarray  # [S, A]
    visits: np.ndarray  # [S]


# --- True gradients. ---


def softmax(logits):
    weights = np.exp(logits)
    return weights / np.sum(weights, axis=-1, keepdims=True)


def derivative(function, x):
    """Return the gradient of an analytic function by complex steps."""
    steps = 1e-30j * np.eye(x.size).reshape(x.size, *x.shape)
    return np.array([function(x + step).imag / 1e-30 for step in steps]).reshape(
        x.shape
    )


def expected_return(m, temperature=0.0):
    """Return the expected return from the start as a function of the logits."""

    def objective(logits):
        pi = softmax(logits)
        on = np.einsum("sa,sat->st", pi, m.p)
        reward = np.sum(pi * (m.r - temperature * np.log(pi)), axis=-1)
        return START @ np.linalg.solve(np.eye(mdp.STATES) - on, reward)

    return objective


def score_gradient(pi, weights):
    """Return ∑_a w(s, a) ∇ log π(a|s), the gradient by the logits, `[S, A]`."""
    return weights - pi * np.sum(weights, axis=-1, keepdims=True)


def data_of(m):
    q = mdp.action_values(m, m.pi)
    entropy = -np.sum(m.pi * np.log(m.pi), axis=-1)
    bonus = 0.3 * m.discount * entropy[m.after]
    soft_q = mdp.action_values(m._replace(reward=m.reward + bonus), m.pi)
    logits, mu_logits = np.log(m.pi), np.log(m.mu)
    v, visits = np.sum(m.pi * q, axis=-1), mdp.visits(m, m.pi, START)
    return Data(logits, mu_logits, q, v, soft_q, visits)


DATA = Data(*map(np.stack, zip(*map(data_of, MDPS), strict=True)))
PI, RHO = np.stack([m.pi for m in MDPS]), np.stack([m.rho for m in MDPS])
ADVANTAGES, VISITS = DATA.q - DATA.v[..., None], DATA.visits[..., None]
TRUE = np.stack([derivative(expected_return(m), np.log(m.pi)) for m in MDPS])


def gradients(losses, *data):
    """Return the gradients of a loss of logits, or of many, for all MDPs."""

    @jax.jit  # One program of many losses compiles in half the time.
    def program(*data):
        return jax.tree.map(lambda f: jax.vmap(jax.jacrev(f))(*data), losses)

    with contract.x64(True):
        return jax.tree.map(np.asarray, program(*data))


# --- Losses, summed over states and actions. ---


def visited(data, logits):
    """Return the weights of all cells under a policy, `[C]`."""
    return data.visits[S] * jax.nn.softmax(logits)[S, A]


def log_prob(logits):
    """Return the log-probabilities of all cells, `[C]`."""
    return jax.nn.log_softmax(logits)[S, A]


def advantages(data):
    return data.q[S, A] - data.v[S]


def policy_gradient(logits, data):
    weights = CELLS * visited(data, data.logits)  # The loss is a mean.

    def loss(baseline):
        adv = data.q[S, A] - baseline[S]
        return rlaxlib.policy_gradient_loss(logits[S], A, adv, weights)

    # The value, no baseline, and any other.
    baselines = jnp.stack([data.v, jnp.zeros(6), jnp.arange(6.0)])
    return jax.vmap(loss)(baselines)


def reinforce(logits, data):
    losses = rlaxlib.reinforce_loss(log_prob(logits), data.q[S, A])
    return visited(data, data.logits) @ losses


def coma(logits, data):
    adv = rlaxlib.counterfactual_advantage(data.q[S], jax.nn.softmax(logits)[S], A)
    weights = CELLS * visited(data, data.logits)
    return rlaxlib.policy_gradient_loss(logits[S], A, adv, weights)


def of_ratios(function, *options, old="logits"):
    """Return the loss of PPO and its kind, weighted by the policy that acts."""

    def loss(logits, data):
        old_logits = getattr(data, old)
        losses = function(
            log_prob(logits), log_prob(old_logits), advantages(data), *options
        )
        losses = losses[0] if isinstance(losses, tuple) else losses
        return visited(data, old_logits) @ losses

    return loss


def clipped_surrogate(logits, data):
    weights = CELLS * visited(data, data.logits)
    ratios = jnp.exp(log_prob(logits) - log_prob(data.logits))
    return rlaxlib.clipped_surrogate_pg_loss(ratios, weights * advantages(data), 0.2)


def decoupled_ppo(log_prob_t, mu_log_prob_t, adv_t):
    # The data are those of μ, the proximal policy is π.
    proximal = jax.lax.stop_gradient(log_prob_t)
    return rlaxlib.decoupled_ppo_loss(log_prob_t, mu_log_prob_t, proximal, adv_t)


def of_states(function, values="q"):
    """Return a loss over all actions, weighted by the visits of the states."""

    def loss(logits, data):
        def one(logits, q):
            return function(logits[None], q[None])

        losses = jax.vmap(one)(logits, getattr(data, values))
        return data.visits @ losses

    return loss


def dpg(logits, data):
    # The policy's probabilities are a deterministic action of an MDP whose values are
    # linear in it, with the gradient q.
    losses = jax.vmap(rlaxlib.dpg_loss)(jax.nn.softmax(logits), data.q)
    return data.visits @ jnp.sum(losses, axis=-1)


def acer(logits, data):
    def loss(max_weight):
        losses = rlaxlib.acer_policy_loss(
            logits[S], data.mu_logits[S], A, data.q[S], data.q[S, A], max_weight
        )
        return visited(data, data.mu_logits) @ losses

    # The critic alone, both, and importance sampling alone.
    return jax.vmap(loss)(jnp.array([0.0, 1.0, jnp.inf]))


LOSSES = {
    "policy gradient": policy_gradient,
    "REINFORCE": reinforce,
    "COMA": coma,
    "QPG": of_states(rlaxlib.qpg_loss),
    "DPG": dpg,
    "ACER": acer,
    "PPO": of_ratios(rlaxlib.ppo_clip_loss),
    "clipped surrogate": clipped_surrogate,
    "decoupled PPO": of_ratios(decoupled_ppo, old="mu_logits"),
    "PPO-penalty": of_ratios(rlaxlib.ppo_penalty_loss, 0.7),
    "SPO": of_ratios(rlaxlib.simple_policy_loss),
    "DPO": of_ratios(rlaxlib.discovered_policy_loss),
    "CISPO": of_ratios(rlaxlib.cispo_loss),
    "CISPO off-policy": of_ratios(rlaxlib.cispo_loss, 1.0, 9.0, old="mu_logits"),
    "SAPO": of_ratios(rlaxlib.sapo_loss),
}


def test_each_loss_has_the_gradient_of_the_expected_return():
    for name, found in gradients(LOSSES, DATA.logits, DATA).items():
        truth = TRUE if found.ndim == 3 else np.stack([TRUE] * 3, axis=1)
        np.testing.assert_allclose(found, -truth, rtol=0, atol=1e-12, err_msg=name)


# --- Losses with another objective. ---


def test_counterfactual_advantages_are_those_of_the_policy():
    with contract.x64(True):
        found = rlaxlib.counterfactual_advantage(DATA.q[0][S], PI[0][S], A)
    np.testing.assert_allclose(found, ADVANTAGES[0].ravel(), rtol=0, atol=1e-12)


def test_rpg_has_the_policy_gradient_times_the_number_of_better_actions():
    found = gradients(of_states(rlaxlib.rpg_loss), DATA.logits, DATA)
    truth = TRUE * np.sum(ADVANTAGES > 0, axis=-1, keepdims=True)
    np.testing.assert_allclose(found, -truth, rtol=0, atol=1e-12)


def test_rmpg_has_the_policy_gradient_of_positive_advantages():
    found = gradients(of_states(rlaxlib.rm_loss), DATA.logits, DATA)
    truth = score_gradient(PI, VISITS * PI * np.maximum(ADVANTAGES, 0))
    np.testing.assert_allclose(found, -truth, rtol=0, atol=1e-12)


def test_ppo_off_policy_has_the_policy_gradient_of_unclipped_actions():
    losses = [
        of_ratios(rlaxlib.ppo_clip_loss, 0.2, 0.4, dual_clip, old="mu_logits")
        for dual_clip in (None, 1.5)
    ]
    found = gradients(lambda *x: jnp.stack([f(*x) for f in losses]), DATA.logits, DATA)
    clipped = np.where(ADVANTAGES > 0, RHO > 1.4, RHO < 0.8)
    dual_clipped = (ADVANTAGES < 0) & (RHO > 1.5)
    assert np.any(clipped)
    assert np.any(dual_clipped)
    for i, mask in enumerate((clipped, clipped | dual_clipped)):
        truth = score_gradient(PI, np.where(mask, 0, VISITS * PI * ADVANTAGES))
        np.testing.assert_allclose(found[:, i], -truth, rtol=0, atol=1e-12)


def test_discrete_sac_has_the_gradient_of_the_soft_return():
    def function(logits, q):
        return rlaxlib.discrete_sac_policy_loss(logits[0], q[0], 0.3)

    found = gradients(of_states(function, "soft_q"), DATA.logits, DATA)
    truth = [derivative(expected_return(m, 0.3), np.log(m.pi)) for m in MDPS]
    np.testing.assert_allclose(found, -np.array(truth), rtol=0, atol=1e-12)


def test_entropy_loss_has_the_gradient_of_the_entropy_of_visited_states():
    def loss(logits, data):
        return rlaxlib.entropy_loss(logits, mdp.STATES * data.visits)

    def entropy(visits):
        def objective(logits):
            pi = softmax(logits)
            return -visits @ np.sum(pi * np.log(pi), axis=-1)

        return objective

    found = gradients(loss, DATA.logits, DATA)
    pairs = zip(DATA.visits, DATA.logits, strict=True)
    truth = [derivative(entropy(visits), logits) for visits, logits in pairs]
    np.testing.assert_allclose(found, -np.array(truth), rtol=0, atol=1e-12)


def test_kl_loss_of_each_kind_has_the_gradient_of_the_kl_divergence():
    def loss(logits, data):
        log_probs = log_prob(logits), log_prob(data.mu_logits)
        losses = [rlaxlib.kl_loss(*log_probs, kind) for kind in KL_KINDS]
        return jnp.stack(losses) @ visited(data, data.logits)

    found = gradients(loss, DATA.logits, DATA)
    truth = score_gradient(PI, VISITS * PI * np.log(RHO))
    truth = np.stack([truth] * len(KL_KINDS), axis=1)
    np.testing.assert_allclose(found, truth, rtol=0, atol=1e-12)


def test_coma_has_the_gradient_of_a_team():
    # Two agents with three actions each act at once, with one critic for the pair.
    rng = np.random.default_rng(0)
    q = rng.normal(size=(mdp.ACTIONS, mdp.ACTIONS))
    logits = rng.normal(size=(2, mdp.ACTIONS))
    one, other = (x.ravel() for x in np.indices(q.shape))

    def loss(logits):
        pi = jax.lax.stop_gradient(jax.nn.softmax(logits))
        weights = q.size * pi[0, one] * pi[1, other]
        total = 0.0
        for agent, (values, acts) in enumerate(((q.T[other], one), (q[one], other))):
            own = jnp.broadcast_to(pi[agent], values.shape)
            adv = rlaxlib.counterfactual_advantage(values, own, acts)
            own = jnp.broadcast_to(logits[agent], values.shape)
            total += rlaxlib.policy_gradient_loss(own, acts, adv, weights)
        return total

    def objective(logits):
        pi = softmax(logits)
        return pi[0] @ q @ pi[1]

    truth = derivative(objective, logits)
    (found,) = gradients(loss, logits[None])
    np.testing.assert_allclose(found, -truth, rtol=0, atol=1e-12)


def test_group_advantages_have_the_gradient_of_the_expected_reward():
    # All groups of three answers. The mean includes the answer's own reward.
    factors = {"leave_one_out": 1.0, "mean": 2 / 3, "none": 1.0}
    q, logits = DATA.q[0, 0], DATA.logits[0, 0]
    groups = np.indices((mdp.ACTIONS,) * 3).reshape(3, -1).T

    def loss(logits, baseline):
        def of_group(group):
            rewards = jnp.asarray(q)[group]
            adv = rlaxlib.group_advantages(rewards, baseline=baseline, scale="none")
            return jnp.mean(rlaxlib.reinforce_loss(log_pi[group], adv))

        log_pi = jax.nn.log_softmax(logits)
        chance = jnp.prod(jax.lax.stop_gradient(jnp.exp(log_pi))[groups], axis=-1)
        return chance @ jax.vmap(of_group)(jnp.asarray(groups))

    def losses(logits):
        return jnp.stack([loss(logits, baseline) for baseline in factors])

    truth = derivative(lambda logits: softmax(logits) @ q, logits)
    (found,) = gradients(losses, logits[None])
    truth = truth * np.array([*factors.values()])[:, None]
    np.testing.assert_allclose(found, -truth, rtol=0, atol=1e-12)


# --- Losses of whole trajectories. ---

LAYERED = WORLDS["layered"]


def monte_carlo(stream, _):
    return rlaxlib.discounted_returns(stream.r_t, stream.discount_t, 9.0)


def generalized_advantages(lambda_, error=0.0):
    def estimate(stream, v):
        v = v + error * jnp.arange(6.0)
        return rlaxlib.generalized_advantage_estimation(
            v[stream.s_tm1], stream.r_t, stream.discount_t, v[stream.s_t], lambda_
        )

    return estimate


def vtrace_advantages(clip, on_policy=False, error=0.0):
    def estimate(stream, v):
        v = v + error * jnp.arange(6.0)
        rho_tm1 = jnp.ones_like(stream.r_t) if on_policy else stream.rho_tm1
        return rlaxlib.vtrace_td_error_and_advantage(
            v[stream.s_tm1],
            v[stream.s_t],
            stream.r_t,
            stream.discount_t,
            rho_tm1,
            clip_rho_threshold=clip,
            clip_pg_rho_threshold=clip,
            clip_c_threshold=clip,
        ).pg_advantage

    return estimate


def expected_gradients(estimates, policy, v, weigh_by_ratios=False):
    """Return the gradients of the policy-gradient loss, averaged over episodes.

    Args:
        estimates: Function of a stream and state values that returns advantages, or
            many.
        policy: Policy that acts, "pi" or "mu".
        v: State values of all MDPs.
        weigh_by_ratios: Whether to weight a step by the ratios of all earlier steps.
    """

    def loss_of(estimate):
        def of_stream(logits, stream, v):
            decay = stream.discount_t * (stream.rho_tm1 if weigh_by_ratios else 1.0)
            weights = jnp.cumprod(jnp.append(jnp.ones(1), decay[:-1]))
            arguments = stream.a_tm1, estimate(stream, v), len(decay) * weights
            return rlaxlib.policy_gradient_loss(logits[stream.s_tm1], *arguments)

        def loss(logits, stream, weights, v):
            losses = jax.vmap(of_stream, in_axes=(None, 0, None))(logits, stream, v)
            return weights @ losses

        return loss

    losses = jax.tree.map(loss_of, estimates)
    weights = averagings(policy, of_actions=False, world="layered") @ START
    logits = np.stack([np.log(m.pi) for m in LAYERED])
    return gradients(losses, logits, streams(world="layered"), weights, v)


ESTIMATES = {
    "pi": {
        "Monte Carlo": monte_carlo,
        "A2C with wrong values": generalized_advantages(1.0, error=1.0),
        "GAE": generalized_advantages(0.7),
        "V-trace": vtrace_advantages(1.0, on_policy=True, error=1.0),
    },
    "mu": {"V-trace without clips": vtrace_advantages(np.inf, error=1.0)},
}


@pytest.mark.parametrize("policy", ESTIMATES)
def test_advantages_of_trajectories_have_the_gradient_of_the_expected_return(policy):
    v = np.stack([mdp.state_values(m, m.pi) for m in LAYERED])
    off_policy = policy == "mu"
    each = expected_gradients(ESTIMATES[policy], policy, v, weigh_by_ratios=off_policy)
    truth = [derivative(expected_return(m), np.log(m.pi)) for m in LAYERED]
    for name, found in each.items():
        np.testing.assert_allclose(found, -np.array(truth), 0, 1e-12, err_msg=name)


def test_vtrace_has_the_policy_gradient_of_the_clipped_policy_where_mu_goes():
    policies = [mdp.clipped_policy(m, 0.8) for m in LAYERED]
    q = np.stack([*map(mdp.action_values, LAYERED, policies)])
    v = np.sum(policies * q, axis=-1)
    found = expected_gradients(vtrace_advantages(0.8), "mu", v)
    visits = np.stack([mdp.visits(m, m.mu, START) for m in LAYERED])
    clipped = np.stack([np.minimum(0.8 * m.mu, m.pi) for m in LAYERED])
    weights = visits[..., None] * clipped * (q - v[..., None])
    truth = score_gradient(np.stack([m.pi for m in LAYERED]), weights)
    np.testing.assert_allclose(found, -truth, rtol=0, atol=1e-12)
