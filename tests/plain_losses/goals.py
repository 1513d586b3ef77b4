"""Losses of `recipes/goals.py` in plain `jax.numpy`."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
from recipes import goals as recipes

from plain_losses.common import (
    ACTION,
    GAMMA,
    KEY,
    ActorCritic,
    B,
    Case,
    D,
    F,
    mean_and_stddev,
    normal,
    of,
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


def plain_contrastive_critic(p, t):
    """MichalBortkiewicz/JaxGCRL@6dccab2: critic_loss, "norm" and "fwd_infonce".

    jaxgcrl/agents/crl/losses.py
    """
    x, y = embeddings(p, GOALS.s_tm1, GOALS.a_tm1, GOALS.goal)
    logits = -jnp.sqrt(jnp.sum((x[:, None] - y[None]) ** 2, axis=-1) + 1e-6)
    sums = jnp.log(jnp.sum(jnp.exp(logits), axis=1))
    return -jnp.mean(jnp.diagonal(logits) - sums) + 0.1 * jnp.mean(sums**2)


def fixed_critic(s, a, goal):
    return embeddings(EMBEDDINGS[0], s, a, goal)


def goal_policy(w, s, goal):
    return mean_and_stddev(w, jnp.concatenate([s, goal], axis=-1))


def plain_contrastive_actor(p, t):
    """MichalBortkiewicz/JaxGCRL@6dccab2, jaxgcrl/agents/crl/losses.py: actor_loss."""
    mean, stddev = goal_policy(p, GOALS.s_tm1, GOALS.goal)
    noise = jax.random.normal(KEY, mean.shape)
    a = jnp.tanh(mean + stddev * noise)
    log_prob = -(noise**2) / 2 - jnp.log(stddev) - jnp.log(2 * jnp.pi) / 2
    log_prob = jnp.sum(log_prob - jnp.log(1 - a**2 + 1e-6), axis=-1)
    x, y = fixed_critic(GOALS.s_tm1, a, GOALS.goal)
    q = -jnp.sqrt(jnp.sum((x - y) ** 2, axis=-1) + 1e-6)
    return jnp.mean(0.2 * log_prob - q)


def plain_gcbc(p, t):
    """seohongpark/ogbench@1d41409, impls/agents/gcbc.py: actor_loss."""
    return -jnp.mean(unit_gaussian(p, GOALS.s_tm1, GOALS.goal, GOALS.a_tm1))


def plain_gcivl_value(p, t):
    """seohongpark/ogbench@1d41409, impls/agents/gcivl.py and hiql.py: value_loss."""
    b = GOALS
    v_t, v_tm1 = (two_values(t, s, b.goal) for s in (b.s_t, b.s_tm1))
    target = b.r_t[:, None] + b.discount_t[:, None] * v_t
    adv = b.r_t + b.discount_t * jnp.min(v_t, axis=1) - jnp.mean(v_tm1, axis=1)
    weight = jnp.where(adv >= 0, 0.9, 0.1)[:, None]
    error = stop(target) - two_values(p, b.s_tm1, b.goal)
    return jnp.mean(jnp.sum(weight * error**2, axis=1))


def unit_gaussian(w, s, goal, a):
    mean = jnp.concatenate([s, goal], axis=-1) @ w
    return -jnp.sum((a - mean) ** 2 + jnp.log(2 * jnp.pi), axis=-1) / 2


def fixed_value(s, goal):
    return two_values(TWO_VALUES[0], s, goal)


def awr(log_prob, s_tm1, s_t, goal, alpha):
    adv = jnp.mean(fixed_value(s_t, goal) - fixed_value(s_tm1, goal), axis=-1)
    return -jnp.mean(jnp.minimum(jnp.exp(adv * alpha), 100.0) * log_prob)


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
    value_loss = jnp.mean(jnp.where(adv >= 0, 0.9, 1 - 0.9) * adv**2)
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
    low = HIQL.low(p, b.s_tm1, b.subgoal, b.a_tm1)
    high = HIQL.high(p, b.s_tm1, b.goal, b.target)
    low = awr(low, b.s_tm1, b.s_t, b.subgoal, 3.0)
    return low + awr(high, b.s_tm1, b.target, b.goal, 3.0)


def lengths(x, y):
    """Return the distances of one pair: the union of intervals, by a loop."""
    components = []
    for xs, ys in zip(x, y, strict=True):
        order, covered, reach = jnp.argsort(xs), 0.0, -jnp.inf
        for i in range(SIZE):
            low, high = xs[order[i]], ys[order[i]]
            covered += jnp.maximum(0, high - jnp.maximum(low, reach))
            reach = jnp.maximum(reach, jnp.maximum(low, high))
        components.append(covered)
    components = jnp.stack(components)
    return (jnp.max(components) + jnp.mean(components)) / 2


def plain_qrl_value(p, t):
    """quasimetric-learning/quasimetric-rl@0a611a4: global push, local constraint.

    quasimetric_rl/modules/quasimetric_critic/losses
    """
    x, y, goal = (embed(p, s) for s in (GOALS.s_tm1, GOALS.s_t, GOALS.goal))
    local = jnp.stack([lengths(*pair) for pair in zip(x, y, strict=True)])
    far = jnp.stack([lengths(*pair) for pair in zip(x, goal, strict=True)])
    violation = jnp.mean(jnp.maximum(0, local - 1) ** 2)
    push = jnp.mean(10 * jnp.log(1 + jnp.exp((15 - far) / 10)))
    return push + jax.nn.softplus(stop(t)) * violation


CASES = {
    "contrastive_critic": Case(
        of(recipes.contrastive_critic, embeddings, GOALS),
        plain_contrastive_critic,
        EMBEDDINGS,
    ),
    "contrastive_actor": Case(
        of(recipes.contrastive_actor, goal_policy, GOALS, KEY, fixed_critic, 0.2),
        plain_contrastive_actor,
        (0.3 * normal(2 * F, 2 * D), None),
    ),
    "gcbc": Case(
        of(recipes.gcbc, unit_gaussian, GOALS), plain_gcbc, (normal(2 * F, D), None)
    ),
    "gciql_values": Case(
        of(recipes.gciql_values, GCIQL, GOALS),
        plain_gciql_values,
        GCIQL_PARAMS,
        "actor",
    ),
    "gciql_actor": Case(
        of(recipes.gciql_actor, GCIQL, GOALS),
        plain_gciql_actor,
        GCIQL_PARAMS,
        "critic value",
    ),
    "gcivl_actor": Case(
        of(recipes.gcivl_actor, unit_gaussian, GOALS, fixed_value),
        plain_gcivl_actor,
        (normal(2 * F, D), None),
    ),
    "hiql_actor": Case(
        of(recipes.hiql_actor, HIQL, GOALS, fixed_value),
        plain_hiql_actor,
        ({"low": normal(2 * F, D), "high": normal(2 * F, 2)}, None),
    ),
    "gcivl_value": Case(
        of(recipes.gcivl_value, two_values, GOALS), plain_gcivl_value, TWO_VALUES
    ),
    "qrl_value": Case(
        of(recipes.qrl_value, embed, GOALS),
        plain_qrl_value,
        (normal(F, K * SIZE), jnp.float32(0.7)),
    ),
}
