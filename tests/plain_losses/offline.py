"""Losses of `recipes/offline.py` in plain `jax.numpy`."""

import jax
import jax.numpy as jnp
from recipes import offline as recipes

from plain_losses.common import (
    ACTION,
    KEY,
    ONE,
    Q_PARAMS,
    STREAM,
    TWO_Q_PARAMS,
    A,
    B,
    Case,
    D,
    F,
    Q,
    T,
    actor_critic,
    backward,
    both,
    draw,
    huber,
    log_prob,
    mean_and_stddev,
    normal,
    of,
    one_step,
    pick,
    policy_and_q,
    squares,
    stop,
)

DATA = ACTION._replace(returns=normal(B), a_t=jnp.tanh(normal(B, D)))
DATA_STREAM = STREAM._replace(a_tm1=jnp.tanh(normal(B, T, D)))
S, A_TM1 = DATA.s_tm1, DATA.a_tm1
SAC, SAC_PARAMS = actor_critic(3)
NET = SAC._replace(value=lambda w, s: (s @ w)[..., 0])
NET_PARAMS = tuple(p._replace(value=normal(F, 1)) for p in SAC_PARAMS)
TD3, TD3_PARAMS = actor_critic(2, gaussian=False)


def density(w, s, a):
    mu, sigma = mean_and_stddev(w, s)
    log_normal = -(((jnp.arctanh(a) - mu) / sigma) ** 2) / 2 - jnp.log(sigma)
    log_normal = log_normal - jnp.log(2 * jnp.pi) / 2
    return jnp.sum(log_normal - jnp.log(1 - a**2), axis=-1)


def min_q(p, s, a):
    return stop(jnp.min(NET.critic(p.critic, s, a), axis=-1))


def value(p):
    return NET.value(p.value, S)


def weighted(weights, p):
    return -jnp.mean(stop(weights) * density(p.actor, S, A_TM1))


def plain_iql_value(p, t):
    """ikostrikov/implicit_q_learning@09d7002, critic.py."""
    u = min_q(t, S, A_TM1) - value(p)
    return jnp.mean(jnp.where(u > 0, 0.7, 0.3) * u**2)


def plain_iql_critic(p, t):
    """ikostrikov/implicit_q_learning@09d7002, critic.py."""
    target = one_step(NET.value(p.value, DATA.s_t), DATA)
    return squares(NET.critic(p.critic, S, A_TM1), target)


def plain_iql_actor(p, t):
    """ikostrikov/implicit_q_learning@09d7002, actor.py."""
    adv = min_q(t, S, A_TM1) - value(p)
    return weighted(jnp.minimum(jnp.exp(3 * adv), 100), p)


def plain_xql_value(p, t):
    """Div99/XQL@dff09af, offline/critic.py."""
    z = jnp.minimum((min_q(t, S, A_TM1) - value(p)) / 2, 7)
    largest = stop(jnp.maximum(jnp.max(z), -1))
    scaled = jnp.exp(z - largest) - z * jnp.exp(-largest) - jnp.exp(-largest)
    return jnp.mean(scaled)


def plain_sql_value(p, t):
    """ryanxhr/IVR@58edd26, critic.py: update_v, "SQL", with alpha 1."""
    v = value(p)
    w = (min_q(t, S, A_TM1) - v) / 2 + 1
    return jnp.mean(jnp.where(w > 0, w**2, 0) + v)


def plain_sql_actor(p, t):
    """ryanxhr/IVR@58edd26, actor.py: update_actor, "SQL"."""
    return weighted(jnp.clip(min_q(t, S, A_TM1) - value(p), 0, 100), p)


def plain_awr(p, t):
    """xbpeng/awr@831442f, learning/awr_agent.py."""
    b, (v_tm1, v_t) = DATA_STREAM, both(NET.value, p.value)
    adv = stop(backward(b.r_t, b.discount_t, v_t, 0.95, v_t[:, -1])) - v_tm1
    standard = (adv - jnp.mean(adv)) / jnp.std(adv)
    weights = stop(jnp.minimum(jnp.exp(standard), 20))
    log_pi = density(p.actor, b.s_tm1, b.a_tm1)
    return jnp.mean(-weights * log_pi + adv**2 / 2)


def plain_awac_critic(p, t):
    """rail-berkeley/rlkit@ac45a9d, rlkit/torch/sac/awac_trainer.py."""
    a_t, _ = draw(p.actor, DATA.s_t)
    target = one_step(min_q(t, DATA.s_t, a_t), DATA)
    return squares(NET.critic(p.critic, S, A_TM1), target)


def plain_awac_actor(p, t):
    """rail-berkeley/rlkit@ac45a9d, rlkit/torch/sac/awac_trainer.py.

    A softmax over the batch, times its size: another length, the same direction.
    """
    a, _ = draw(p.actor, S)
    adv = min_q(p, S, A_TM1) - min_q(p, S, a)
    return weighted(B * jax.nn.softmax(adv), p)


def plain_crr_actor(p, t):
    """google-deepmind/acme@770bc75, acme/agents/jax/crr/losses.py."""
    samples = [draw(p.actor, S, key)[0] for key in jax.random.split(KEY, 4)]
    baseline = sum(min_q(p, S, a) for a in samples) / 4
    return weighted(jnp.exp(min_q(p, S, A_TM1) - baseline), p)


def gap(p, key, bound=-jnp.inf):
    keys = jax.random.split(key, (3, 2))
    bound = jnp.broadcast_to(bound, B)[:, None]
    q = []
    for key, s in zip(keys[:2].reshape(-1), (S, S, DATA.s_t, DATA.s_t), strict=True):
        a, log_pi = draw(stop(p.actor), s, key)
        q.append(jnp.maximum(NET.critic(p.critic, S, a), bound) - log_pi[:, None])
    uniform = jax.random.uniform(keys[2, 0], (2, B, D), minval=-1.0, maxval=1.0)
    q += [NET.critic(p.critic, S, a) + D * jnp.log(2) for a in uniform]
    gaps = jax.nn.logsumexp(jnp.stack(q), axis=0) - NET.critic(p.critic, S, A_TM1)
    return jnp.mean(jnp.sum(gaps, axis=-1))


def plain_cql_critic(p, t, bound=-jnp.inf, weight=5.0):
    """aviralkumar2907/CQL@d67dbe9, d4rl/rlkit/torch/sac/cql.py."""
    td_key, key = jax.random.split(KEY)
    a_t, _ = draw(p.actor, DATA.s_t, td_key)
    target = one_step(min_q(t, DATA.s_t, a_t), DATA)
    td_loss = squares(NET.critic(p.critic, S, A_TM1), target)
    return td_loss + weight * gap(p, key, bound)


def plain_cal_ql_critic(p, t):
    """nakamotoo/Cal-QL@ac6eafe, JaxCQL/conservative_sac.py."""
    return plain_cql_critic(p, t, DATA.returns)


def plain_cql_temperature(p, t):
    """aviralkumar2907/CQL@d67dbe9: alpha_prime_loss, with min_q_weight 1.

    d4rl/rlkit/torch/sac/cql.py
    """
    return -jnp.exp(p) * stop(gap(t, KEY) / 3 - 5)


def plain_discrete_cql(p, t):
    best = jnp.argmax(Q(p, ONE.s_t), -1)
    target = one_step(pick(Q(t, ONE.s_t), best))
    q = Q(p, ONE.s_tm1)
    loss = huber(stop(target) - pick(q, ONE.a_tm1))
    gap = jax.nn.logsumexp(q, -1) - pick(q, ONE.a_tm1)
    return jnp.mean(loss + 0.01 * gap)


def plain_edac_critic(p, t):
    """snu-mllab/EDAC@198d570, lifelong_rl/trainers/q_learning/sac.py."""
    a_t, log_pi = draw(p.actor, DATA.s_t)
    target = one_step(min_q(t, DATA.s_t, a_t) - 0.2 * log_pi, DATA)
    loss = squares(NET.critic(p.critic, S, A_TM1), target)
    g = [
        jax.jacfwd(lambda a, i=i: NET.critic(p.critic, S, a)[:, i].sum())(A_TM1)
        for i in range(3)
    ]
    u = [x / jnp.linalg.norm(x, axis=-1, keepdims=True) for x in g]
    pairs = sum(jnp.sum(u[i] * u[j], -1) for i in range(3) for j in range(3) if i != j)
    return loss + 2 * jnp.mean(pairs) / 2


def distance(x, y):
    return jnp.sum((x - y) ** 2, axis=-1)


def plain_td3_bc_actor(p, t):
    """sfujim/TD3_BC@8791ad7, TD3_BC.py."""
    a = TD3.actor(p.actor, S)
    q = TD3.critic(stop(p.critic), S, a)[:, 0]
    weight = 2.5 / stop(jnp.mean(jnp.abs(q)))
    return -weight * jnp.mean(q) + jnp.mean((a - A_TM1) ** 2)


def plain_rebrac_critic(p, t):
    """tinkoff-ai/ReBRAC@694385b, src/algorithms/rebrac.py."""
    keys = jax.random.split(KEY, B)
    noise = jnp.stack([jax.random.normal(key, (D,)) for key in keys])
    noise = jnp.clip(0.2 * noise, -0.5, 0.5)
    a_t = jnp.clip(TD3.actor(t.actor, DATA.s_t) + noise, -1, 1)
    v_t = jnp.min(TD3.critic(t.critic, DATA.s_t, a_t), -1)
    target = one_step(v_t - 0.01 * distance(a_t, DATA.a_t), DATA)
    return squares(TD3.critic(p.critic, S, A_TM1), target)


def plain_rebrac_actor(p, t):
    """tinkoff-ai/ReBRAC@694385b, src/algorithms/rebrac.py."""
    a = TD3.actor(p.actor, S)
    q = jnp.min(TD3.critic(stop(p.critic), S, a), -1)
    return jnp.mean(-q / stop(jnp.mean(jnp.abs(q))) + 0.01 * distance(a, A_TM1))


def plain_discrete_bcq(p, t):
    """sfujim/BCQ@4876f7e, discrete_BCQ/discrete_BCQ.py."""
    q, logits = policy_and_q(p, ONE.s_tm1)
    selector, logits_t = policy_and_q(p, ONE.s_t)
    mu = jax.nn.softmax(logits_t)
    legal = mu / jnp.max(mu, -1, keepdims=True) > 0.3
    best = jnp.argmax(jnp.where(legal, selector, -jnp.inf), -1)
    target = one_step(pick(policy_and_q(t, ONE.s_t)[0], best))
    td_loss = huber(stop(target) - pick(q, ONE.a_tm1))
    loss = td_loss - log_prob(logits, ONE.a_tm1)
    return jnp.mean(loss) + 0.01 * jnp.mean(logits**2)


def transformer(w, returns, s, a):
    return jnp.concatenate([returns[..., None], s], axis=-1) @ w


def plain_decision_transformer(p, t):
    """kzl/decision-transformer@e2d82e6, atari/mingpt/model_atari.py."""
    b, returns = STREAM, [jnp.zeros(B)]
    for k in reversed(range(T)):
        returns.append(b.r_t[:, k] + jnp.sign(b.discount_t[:, k]) * returns[-1])
    returns = jnp.stack(returns[:0:-1], axis=1)
    return -jnp.mean(log_prob(transformer(p, returns, b.s_tm1, None), b.a_tm1))


# A value far below those of the critics in the first state, so that it has a weight.
OPTIMISTIC = tuple(x._replace(value=-10 * S[:1].T) for x in NET_PARAMS)
VALUE, ACTOR, CRITIC = "actor critic", "critic value", "actor value"
CASES = {
    "decision_transformer": Case(
        of(recipes.decision_transformer, transformer, STREAM),
        plain_decision_transformer,
        (normal(F + 1, A), None),
    ),
    "iql_value": Case(
        of(recipes.iql_value, NET, DATA), plain_iql_value, NET_PARAMS, VALUE
    ),
    "iql_critic": Case(
        of(recipes.iql_critic, NET, DATA),
        plain_iql_critic,
        NET_PARAMS,
        CRITIC,
        factor=0.5,
    ),
    "iql_actor": Case(
        of(recipes.iql_actor, NET, DATA), plain_iql_actor, NET_PARAMS, ACTOR
    ),
    "xql_value": Case(
        of(recipes.xql_value, NET, DATA), plain_xql_value, NET_PARAMS, VALUE, cosine=1.0
    ),
    "sql_value": Case(
        of(recipes.sql_value, NET, DATA), plain_sql_value, NET_PARAMS, VALUE
    ),
    "sql_actor": Case(
        of(recipes.sql_actor, NET, DATA), plain_sql_actor, OPTIMISTIC, ACTOR
    ),
    "awr": Case(of(recipes.awr, NET, DATA_STREAM), plain_awr, NET_PARAMS, "critic"),
    "awac_critic": Case(
        of(recipes.awac_critic, NET, DATA, KEY),
        plain_awac_critic,
        NET_PARAMS,
        CRITIC,
        factor=0.5,
    ),
    "awac_actor": Case(
        of(recipes.awac_actor, NET, DATA, KEY),
        plain_awac_actor,
        NET_PARAMS,
        ACTOR,
        cosine=1.0,
    ),
    "crr_actor": Case(
        of(recipes.crr_actor, NET, DATA, KEY), plain_crr_actor, NET_PARAMS, ACTOR
    ),
    "cql_critic": Case(
        of(recipes.cql_critic, NET, DATA, KEY, num_samples=2),
        plain_cql_critic,
        NET_PARAMS,
        CRITIC,
        factor=0.5,
    ),
    "cql_temperature": Case(
        of(recipes.cql_temperature, NET, DATA, KEY, num_samples=2),
        plain_cql_temperature,
        (jnp.float32(0.3), NET_PARAMS[0]),
    ),
    "cal_ql_critic": Case(
        of(recipes.cal_ql_critic, NET, DATA, KEY, num_samples=2),
        plain_cal_ql_critic,
        NET_PARAMS,
        CRITIC,
        factor=0.5,
    ),
    "discrete_cql": Case(
        of(recipes.discrete_cql, Q, ONE), plain_discrete_cql, Q_PARAMS
    ),
    "edac_critic": Case(
        of(recipes.edac_critic, NET, DATA, KEY, 0.2),
        plain_edac_critic,
        NET_PARAMS,
        CRITIC,
        factor=0.5,
    ),
    "td3_bc_actor": Case(
        of(recipes.td3_bc_actor, TD3, DATA),
        plain_td3_bc_actor,
        TD3_PARAMS,
        "critic",
        factor=D,
    ),
    "rebrac_critic": Case(
        of(recipes.rebrac_critic, TD3, DATA, KEY),
        plain_rebrac_critic,
        TD3_PARAMS,
        "actor",
        factor=0.5,
    ),
    "rebrac_actor": Case(
        of(recipes.rebrac_actor, TD3, DATA), plain_rebrac_actor, TD3_PARAMS, "critic"
    ),
    "discrete_bcq": Case(
        of(recipes.discrete_bcq, policy_and_q, ONE), plain_discrete_bcq, TWO_Q_PARAMS
    ),
}
