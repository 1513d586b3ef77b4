"""Losses of `recipes/goals.py` as their authors' code has them: files at each loss."""

from types import SimpleNamespace

import formulas as f
import jax
import jax.numpy as jnp
import numpy as np
from recipes import goals as recipes

from plain_losses.common import (
    ACTION,
    GAMMA,
    KEY,
    ActorCritic,
    B,
    D,
    F,
    cases,
    given,
    mean_and_stddev,
    normal,
    seed,
    stop,
)

seed(__name__)


K, SIZE = 2, 3
GOALS = ACTION._replace(goal=normal(B, F), subgoal=normal(B, F), target=normal(B, F))


def embeddings(w, s, a, goal):
    return jnp.concatenate([s, a], axis=-1) @ w["sa"], goal @ w["g"]


EMBEDDINGS = {"sa": normal(F + D, 3), "g": normal(F, 3)}, None


def two_values(w, s, goal):
    return jnp.tanh(jnp.concatenate([s, goal], axis=-1) @ w)


TWO_VALUES = tuple(normal(2 * F, 2) for _ in range(2))


def embed(w, s):
    return (s @ w).reshape(len(s), K, SIZE)


# --- Contrastive RL: MichalBortkiewicz/JaxGCRL, jaxgcrl/agents/crl/losses.py. ---


def energy_fn(x, y):
    """Return that of "norm"."""
    return -jnp.sqrt(jnp.sum((x - y) ** 2, axis=-1) + 1e-6)


def plain_contrastive_critic(p, t):
    """MichalBortkiewicz/JaxGCRL@6dccab2: critic_loss, by "fwd_infonce"."""
    sa_repr, g_repr = embeddings(p, GOALS.s_tm1, GOALS.a_tm1, GOALS.goal)
    logits = energy_fn(sa_repr[:, None, :], g_repr[None, :, :])
    critic_loss = -jnp.mean(jnp.diag(logits) - jax.nn.logsumexp(logits, axis=1))
    logsumexp = jax.nn.logsumexp(logits + 1e-6, axis=1)
    return critic_loss + 0.1 * jnp.mean(logsumexp**2)


def fixed_critic(s, a, goal):
    return embeddings(EMBEDDINGS[0], s, a, goal)


def goal_policy(w, s, goal):
    return mean_and_stddev(w, jnp.concatenate([s, goal], axis=-1))


def plain_contrastive_actor(p, t):
    """MichalBortkiewicz/JaxGCRL@6dccab2: actor_loss, with an alpha of 0.2."""
    means, stds = goal_policy(p, GOALS.s_tm1, GOALS.goal)
    x_ts = means + stds * jax.random.normal(KEY, means.shape)
    action = jnp.tanh(x_ts)
    log_prob = jax.scipy.stats.norm.logpdf(x_ts, loc=means, scale=stds)
    log_prob -= jnp.log((1 - action**2) + 1e-6)
    log_prob = jnp.sum(log_prob, axis=-1)
    qf_pi = energy_fn(*fixed_critic(GOALS.s_tm1, action, GOALS.goal))
    return jnp.mean(0.2 * log_prob - qf_pi)


# --- GCIVL and HIQL: seohongpark/ogbench, impls/agents. ---


def expectile_loss(adv, diff, expectile=0.9):
    weight = jnp.where(adv >= 0, expectile, 1 - expectile)
    return weight * diff**2


def plain_gcbc(p, t):
    """seohongpark/ogbench@1d41409, impls/agents/gcbc.py: actor_loss."""
    return -jnp.mean(unit_gaussian(p, GOALS.s_tm1, GOALS.goal, GOALS.a_tm1))


def plain_gcivl_value(p, t):
    """seohongpark/ogbench@1d41409, impls/agents/gcivl.py and hiql.py: value_loss."""
    b, masks = GOALS, 1.0 * (GOALS.discount_t > 0)
    next_v1_t, next_v2_t = two_values(t, b.s_t, b.goal).T
    next_v_t = jnp.minimum(next_v1_t, next_v2_t)
    q = b.r_t + 0.9 * masks * next_v_t
    v1_t, v2_t = two_values(t, b.s_tm1, b.goal).T
    adv = q - (v1_t + v2_t) / 2
    q1, q2 = (b.r_t + 0.9 * masks * x for x in (next_v1_t, next_v2_t))
    v1, v2 = two_values(p, b.s_tm1, b.goal).T
    value_loss1 = jnp.mean(expectile_loss(adv, q1 - v1))
    value_loss2 = jnp.mean(expectile_loss(adv, q2 - v2))
    return value_loss1 + value_loss2


def unit_gaussian(w, s, goal, a):
    mean = jnp.concatenate([s, goal], axis=-1) @ w
    return -jnp.sum((a - mean) ** 2 + jnp.log(2 * jnp.pi), axis=-1) / 2


def fixed_value(s, goal):
    return two_values(TWO_VALUES[0], s, goal)


def awr(log_prob, s, next_s, goals, alpha):
    v1, v2 = fixed_value(s, goals).T
    nv1, nv2 = fixed_value(next_s, goals).T
    adv = (nv1 + nv2) / 2 - (v1 + v2) / 2
    exp_a = jnp.minimum(jnp.exp(adv * alpha), 100.0)
    return -jnp.mean(exp_a * log_prob)


def plain_gcivl_actor(p, t):
    """seohongpark/ogbench@1d41409, impls/agents/gcivl.py: actor_loss."""
    b = GOALS
    log_prob = unit_gaussian(p, b.s_tm1, b.goal, b.a_tm1)
    return awr(log_prob, b.s_tm1, b.s_t, b.goal, 10.0)


def of_goal(*shape):
    """Return a network of observations and goals, whose last axis one is dropped."""

    def apply(w, s, *a):
        x = jnp.tanh(jnp.concatenate([*s, *a], axis=-1) @ w)
        return x if shape else x[..., 0]

    return apply


GCIQL = ActorCritic(of_goal(D), of_goal(2), value=of_goal())
GCIQL_PARAMS = tuple(
    ActorCritic(normal(2 * F, D), normal(2 * F + D, 2), value=normal(2 * F, 1))
    for _ in range(2)
)


def two_q(w, s, a):
    """Return the values of both critics."""
    q = jnp.tanh(jnp.concatenate([s, GOALS.goal, a], axis=-1) @ w)
    return q[:, 0], q[:, 1]


def goal_value(w, s):
    return jnp.tanh(jnp.concatenate([s, GOALS.goal], axis=-1) @ w)[:, 0]


def plain_gciql_values(p, t):
    """seohongpark/ogbench@1d41409, impls/agents/gciql.py: value_loss, critic_loss."""
    b, masks = GOALS, GOALS.discount_t > 0
    adv = jnp.minimum(*two_q(t.critic, b.s_tm1, b.a_tm1)) - goal_value(p.value, b.s_tm1)
    value_loss = jnp.mean(f.expectile(adv, 0.9))
    q = b.r_t + GAMMA * masks * stop(goal_value(p.value, b.s_t))
    q1, q2 = two_q(p.critic, b.s_tm1, b.a_tm1)
    return value_loss + jnp.mean((q1 - q) ** 2 + (q2 - q) ** 2)


def plain_gciql_actor(p, t):
    """seohongpark/ogbench@1d41409, impls/agents/gciql.py: actor_loss, ddpgbc."""
    mean = jnp.tanh(jnp.concatenate([GOALS.s_tm1, GOALS.goal], axis=-1) @ p.actor)
    critic = stop(p.critic)
    q = jnp.minimum(*two_q(critic, GOALS.s_tm1, jnp.clip(mean, -1, 1)))
    q_loss = -jnp.mean(q) / stop(jnp.mean(jnp.abs(q)) + 1e-6)
    log_prob = -jnp.sum((GOALS.a_tm1 - mean) ** 2 + jnp.log(2 * jnp.pi), axis=-1) / 2
    return q_loss - jnp.mean(0.3 * log_prob)


HIQL = SimpleNamespace(
    low=lambda w, *args: unit_gaussian(w["low"], *args),
    high=lambda w, s, goal, a: unit_gaussian(w["high"], s, goal, a[:, :2]),
)


def plain_hiql_actor(p, t):
    """seohongpark/ogbench@1d41409, impls/agents/hiql.py: both actor losses."""
    b = GOALS
    log_prob = HIQL.low(p, b.s_tm1, b.subgoal, b.a_tm1)
    low_actor_loss = awr(log_prob, b.s_tm1, b.s_t, b.subgoal, 3.0)
    log_prob = HIQL.high(p, b.s_tm1, b.goal, b.target)
    high_actor_loss = awr(log_prob, b.s_tm1, b.target, b.goal, 3.0)
    return low_actor_loss + high_actor_loss


# --- QRL: quasimetric-learning/quasimetric-rl. ---


def quasimetric_model(x, y):
    """Return distances, [N]: the lengths of unions of intervals, by a loop."""

    def component(x, y):
        order, covered, reach = jnp.argsort(x), 0.0, -jnp.inf
        for i in range(SIZE):
            low, high = x[order[i]], y[order[i]]
            covered += jnp.maximum(0, high - jnp.maximum(low, reach))
            reach = jnp.maximum(reach, jnp.maximum(low, high))
        return covered

    components = jax.vmap(jax.vmap(component))(x, y)
    # With a raw_alpha whose sigmoid is 0.3, in torchqmet/reductions.py: MaxMean.
    return 0.3 * jnp.max(components, axis=1) + (1 - 0.3) * jnp.mean(components, axis=1)


ROLLED = GOALS._replace(goal=np.roll(GOALS.s_t, 1, axis=0))


def plain_qrl_value(p, t):
    """quasimetric-learning/quasimetric-rl@0a611a4: global_push, local_constraint.

    quasimetric_rl/modules/quasimetric_critic/losses, without the loss of the
    multiplier: the violation there has minus epsilon², which has no gradient here.
    """
    zx, zy = embed(p, GOALS.s_tm1), embed(p, GOALS.s_t)
    dists = quasimetric_model(zx, jnp.roll(zy, 1, axis=0))
    tsfm_dist = jnp.mean(jax.nn.softplus(0.1 * (15 - dists)) / 0.1)
    dist = quasimetric_model(zx, zy)
    sq_deviation = jnp.mean(jnp.maximum(0, dist - 1) ** 2)
    return tsfm_dist + sq_deviation * jax.nn.softplus(stop(t))


CASES = cases(
    recipes,
    globals(),
    {
        "contrastive_critic": given(EMBEDDINGS, embeddings, GOALS),
        "contrastive_actor": given(
            (0.3 * normal(2 * F, 2 * D), None),
            goal_policy,
            GOALS,
            KEY,
            fixed_critic,
            0.2,
        ),
        "gcbc": given((normal(2 * F, D), None), unit_gaussian, GOALS),
        "gciql_values": given(GCIQL_PARAMS, GCIQL, GOALS, stopped="actor"),
        "gciql_actor": given(GCIQL_PARAMS, GCIQL, GOALS, stopped="critic value"),
        "gcivl_actor": given(
            (normal(2 * F, D), None), unit_gaussian, GOALS, fixed_value
        ),
        "hiql_actor": given(
            ({"low": normal(2 * F, D), "high": normal(2 * F, 2)}, None),
            HIQL,
            GOALS,
            fixed_value,
        ),
        "gcivl_value": given(TWO_VALUES, two_values, GOALS),
        "qrl_value": given(
            (normal(F, K * SIZE), np.float32(0.7)), embed, ROLLED, mix=0.3
        ),
    },
)
