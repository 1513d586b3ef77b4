"""Losses of `recipes/policy_gradient.py` in plain `jax.numpy`."""

import jax
import jax.numpy as jnp
from recipes import policy_gradient as recipes

from plain_losses.common import (
    MPO_A,
    MPO_A_PARAMS,
    ONE,
    PAIR_PARAMS,
    Q_PARAMS,
    SEARCH,
    STREAM,
    TWO_Q,
    TWO_Q_PARAMS,
    VMPO_PARAMS,
    A,
    ActorCritic,
    B,
    Case,
    F,
    M,
    Q,
    T,
    backward,
    both,
    cross_entropy,
    kl_terms,
    linear,
    log_prob,
    mean_entropy,
    normal,
    of,
    one_step,
    pick,
    policy_and_q,
    policy_and_value,
    rescale,
    retrace,
    squares,
    stop,
    two_hot,
)


def plain_reinforce(p, t):
    b, zeros = STREAM, jnp.zeros((B, T))
    returns = backward(b.r_t, b.discount_t, zeros, 1.0, zeros[:, 0])
    return -jnp.mean(log_prob(Q(p, b.s_tm1), b.a_tm1) * returns)


def plain_a2c(p, t):
    """openai/baselines@ea25b9e, baselines/a2c/a2c.py."""
    b, ((logits, v_tm1), (_, v_t)) = STREAM, both(policy_and_value, p)
    errors = stop(backward(b.r_t, b.discount_t, v_t, 1.0, v_t[:, -1])) - v_tm1
    loss = -stop(errors) * log_prob(logits, b.a_tm1) + errors**2 / 2
    return jnp.mean(loss) - 0.01 * mean_entropy(logits)


def plain_impala(p, t):
    """google-deepmind/scalable_agent@6c0c8a7, experiment.py and vtrace.py."""
    b, ((logits, v_tm1), (_, v_t)) = STREAM, both(policy_and_value, p)
    log_pi = log_prob(logits, b.a_tm1)
    rho = jnp.minimum(1, jnp.exp(log_pi - log_prob(b.logits_tm1, b.a_tm1)))
    errors, advantages, last = [], [], jnp.zeros(B)
    for k in reversed(range(T)):
        target = b.r_t[:, k] + b.discount_t[:, k] * (v_t[:, k] + last)
        advantages.append(rho[:, k] * (target - v_tm1[:, k]))
        delta = b.r_t[:, k] + b.discount_t[:, k] * v_t[:, k] - v_tm1[:, k]
        last = rho[:, k] * (delta + b.discount_t[:, k] * last)
        errors.append(last)
    errors, advantages = (stop(jnp.stack(x[::-1], 1)) for x in (errors, advantages))
    value_loss = (errors + stop(v_tm1) - v_tm1) ** 2 / 2
    loss = jnp.sum(-advantages * log_pi + 0.5 * value_loss)
    return loss - 0.01 * mean_entropy(logits) * B * T


def plain_acer(p, t, c=1.5, delta=5.0):
    """openai/baselines@ea25b9e, baselines/acer/acer.py: grads, as those of a loss."""
    b, eps, ((logits, q), (logits_t, q_t)) = STREAM, 1e-6, both(policy_and_q, p)
    f, mu = jax.nn.softmax(logits), jax.nn.softmax(b.logits_tm1)
    qret = stop(retrace(q_t, jax.nn.softmax(logits_t), 1.0))
    v, rho = stop(jnp.sum(f * q, axis=-1)), f / (mu + eps)

    def loss_policy(f):
        logf, entropy = jnp.log(pick(f, b.a_tm1) + eps), -jnp.sum(f * jnp.log(f), -1)
        gain = logf * stop((qret - v) * jnp.minimum(c, pick(rho, b.a_tm1)))
        excess = stop((q - v[..., None]) * jnp.maximum(1 - c / (rho + eps), 0) * f)
        gain = jnp.mean(gain) + jnp.mean(jnp.sum(jnp.log(f + eps) * excess, axis=-1))
        return -gain - 0.01 * jnp.mean(entropy)

    g = -jax.grad(loss_policy)(stop(f)) * B * T
    k = -jax.nn.softmax(policy_and_q(t, b.s_tm1)[0]) / (stop(f) + eps)
    excess = jnp.sum(k * g, axis=-1) - delta
    adj = jnp.maximum(0, excess / (jnp.sum(k**2, axis=-1) + eps))
    assert isinstance(adj, jax.core.Tracer) or 0 < jnp.mean(adj > 0) < 1
    g = stop(g - adj[..., None] * k)
    loss_q = jnp.mean((qret - pick(q, b.a_tm1)) ** 2 * 0.5)
    return -jnp.sum(g / (B * T) * f) + 0.5 * loss_q


def plain_coma(p, t):
    b, (logits, q) = STREAM, policy_and_q(p, STREAM.s_tm1)
    pi_t, q_t = jax.nn.softmax(policy_and_q(p, b.s_t)[0]), policy_and_q(t, b.s_t)[1]
    v_t = jnp.sum(pi_t * q_t, axis=-1)
    returns = stop(backward(b.r_t, b.discount_t, v_t, 0.8, v_t[:, -1]))
    adv = stop(pick(q, b.a_tm1) - jnp.sum(jax.nn.softmax(logits) * q, axis=-1))
    value_loss = (returns - pick(q, b.a_tm1)) ** 2 / 2
    return jnp.mean(-adv * log_prob(logits, b.a_tm1) + value_loss)


def advantages(r_t, v_tm1, v_t):
    target, last = [], jnp.zeros(B)
    for k in reversed(range(T)):
        discount_t = STREAM.discount_t[:, k]
        delta = r_t[:, k] + discount_t * v_t[:, k] - v_tm1[:, k]
        last = delta + 0.95 * discount_t * last
        target.append(last + v_tm1[:, k])
    target = jnp.stack(target[::-1], axis=1)
    return target - v_tm1, target


def standard(x):
    return (x - jnp.mean(x)) / jnp.std(x)


def gae():
    adv, target = advantages(STREAM.r_t, STREAM.v_tm1, STREAM.v_t)
    return standard(adv), target


def ratios(logits):
    b = STREAM
    return jnp.exp(log_prob(logits, b.a_tm1) - log_prob(b.logits_tm1, b.a_tm1))


def surrogate(ratio, adv):
    return -jnp.minimum(ratio * adv, jnp.clip(ratio, 0.8, 1.2) * adv)


def plain_ppo(p, t):
    """openai/baselines@ea25b9e.

    baselines/ppo2/model.py and baselines/ppo2/runner.py.
    """
    b, (logits, v), (adv, target) = STREAM, policy_and_value(p, STREAM.s_tm1), gae()
    old_v = b.v_tm1
    ratio = ratios(logits)
    clipped = jnp.clip(v, old_v - 0.2, old_v + 0.2)
    value_loss = jnp.maximum((v - target) ** 2, (clipped - target) ** 2) / 2
    loss = jnp.mean(surrogate(ratio, adv) + 0.5 * value_loss)
    return loss - 0.01 * mean_entropy(logits)


def clipped_values(v, target):
    near = STREAM.v_tm1 + jnp.clip(v - STREAM.v_tm1, -0.2, 0.2)
    return 0.5 * jnp.maximum((v - target) ** 2, (near - target) ** 2)


def plain_spo(p, t):
    """MyRepositories-hub/Simple-Policy-Optimization@9fdeda3, mujoco/trainer.py."""
    (logits, v), (adv, target) = policy_and_value(p, STREAM.s_tm1), gae()
    ratio = ratios(logits)
    policy_loss = -(ratio * adv - jnp.abs(adv) / 0.4 * (ratio - 1) ** 2)
    loss = jnp.mean(policy_loss + 0.5 * clipped_values(v, target))
    return loss - 0.01 * mean_entropy(logits)


def plain_discovered(p, t):
    """luchris429/purejaxrl@31756b1, purejaxrl/dpo_continuous_action.py."""
    (logits, v), (adv, target) = policy_and_value(p, STREAM.s_tm1), gae()
    ratio = ratios(logits)
    x, y = (ratio - 1) * adv, jnp.log(ratio) * adv
    drift = jnp.where(adv >= 0, x - 2 * jnp.tanh(x / 2), y - 0.6 * jnp.tanh(y / 0.6))
    loss = -(ratio * adv - jnp.maximum(drift, 0)) + 0.5 * clipped_values(v, target)
    return jnp.mean(loss)


COSTS = STREAM._replace(
    c_t=normal(B, T), cost_v_tm1=normal(B, T), cost_v_t=normal(B, T)
)


def policy_and_two_values(w, s):
    x = TWO_Q(w, s)
    return x[..., :A], x[..., A], x[..., A + 1]


def plain_ppo_lagrangian(p, t):
    b, (logits, v, cost_v) = COSTS, policy_and_two_values(p, COSTS.s_tm1)
    adv, target = advantages(b.r_t, b.v_tm1, b.v_t)
    cost_adv, cost_target = advantages(b.c_t, b.cost_v_tm1, b.cost_v_t)
    adv = standard((adv - 2 * cost_adv) / 3)
    value_loss = (v - target) ** 2 / 2 + (cost_v - cost_target) ** 2 / 2
    return jnp.mean(surrogate(ratios(logits), adv) + 0.5 * value_loss)


def plain_ppo_penalty(p, t):
    b, (logits, v), (adv, target) = STREAM, policy_and_value(p, STREAM.s_tm1), gae()
    log_pi, log_mu = jax.nn.log_softmax(logits), jax.nn.log_softmax(b.logits_tm1)
    ratio = jnp.exp(pick(log_pi, b.a_tm1) - pick(log_mu, b.a_tm1))
    kl = jnp.sum(jnp.exp(log_mu) * (log_mu - log_pi), axis=-1)
    value_loss = (v - target) ** 2 / 2
    return jnp.mean(-ratio * adv + 2.0 * kl + 0.5 * value_loss)


def plain_decoupled_ppo(p, t):
    """openai/ppo-ewma@625dac7, ppo_ewma/ppo.py."""
    b, (logits, v), (adv, target) = STREAM, policy_and_value(p, STREAM.s_tm1), gae()
    log_pi = log_prob(logits, b.a_tm1)
    proximal = stop(log_prob(policy_and_value(t, b.s_tm1)[0], b.a_tm1))
    weight = jnp.exp(proximal - log_prob(b.logits_tm1, b.a_tm1))
    policy_loss = weight * surrogate(jnp.exp(log_pi - proximal), adv)
    return jnp.mean(policy_loss + (v - target) ** 2 / 2)


def plain_categorical_mpo(p, t):
    """google-deepmind/acme@770bc75, acme/agents/jax/mpo/categorical_mpo.py."""
    eta, alpha = jax.nn.softplus(p.duals)
    s = STREAM.s_tm1
    log_pi = jax.nn.log_softmax(Q(p.actor, s))
    log_old = stop(jax.nn.log_softmax(Q(t.actor, s)))
    tilted = log_old + stop(Q(t.critic, s)) / eta
    weights = stop(jax.nn.softmax(tilted))
    temperature = eta * (0.1 + jax.nn.logsumexp(tilted, axis=-1))
    kl = jnp.sum(jnp.exp(log_old) * (log_old - log_pi), axis=-1)
    policy_loss = -jnp.sum(weights * log_pi, axis=-1)
    return jnp.mean(policy_loss + temperature + kl_terms(kl, alpha, 0.0025))


def plain_vmpo(p, t):
    b, ((logits, v), (_, v_t)) = STREAM, both(policy_and_value, p.policy)
    eta, alpha = jax.nn.softplus(p.duals)
    errors = stop(backward(b.r_t, b.discount_t, v_t, 0.95, v_t[:, -1])) - v
    adv = stop(errors)
    best = adv >= jnp.median(adv)
    tilted = jnp.where(best, adv / eta, -jnp.inf)
    temperature = eta * (0.01 + jax.nn.logsumexp(tilted) - jnp.log(B * T / 2))
    weights = B * T * stop(jax.nn.softmax(tilted, axis=(0, 1)))
    log_pi = jax.nn.log_softmax(logits)
    log_old = stop(jax.nn.log_softmax(policy_and_value(t.policy, b.s_tm1)[0]))
    kl = jnp.sum(jnp.exp(log_old) * (log_old - log_pi), axis=-1)
    loss = -weights * pick(log_pi, b.a_tm1) + kl_terms(kl, alpha, 0.01)
    return jnp.mean(loss + 0.5 * errors**2 / 2) + temperature


def plain_muesli(p, t):
    b, (logits, q) = STREAM, policy_and_q(p, STREAM.s_tm1)
    (prior, target_q), (prior_t, q_t) = stop(both(policy_and_q, t))
    pi = jax.nn.softmax(prior)
    v = jnp.sum(pi * target_q, axis=-1)
    log_mu = log_prob(b.logits_tm1, b.a_tm1)
    returns = retrace(q_t, jax.nn.softmax(prior_t), 0.95)
    adv, log_pi = (returns - v) / 2, log_prob(logits, b.a_tm1)
    rho = stop(jnp.minimum(1, jnp.exp(log_pi - log_mu)))
    cmpo = pi * jnp.exp(jnp.clip((target_q - v[..., None]) / 2, -1, 1))
    cmpo = cmpo / jnp.sum(cmpo, axis=-1, keepdims=True)
    value_loss = (returns - pick(q, b.a_tm1)) ** 2 / 2
    loss = -rho * adv * log_pi + 0.25 * value_loss + cross_entropy(cmpo, logits)
    return jnp.mean(loss)


def model(w, s, a):
    policy, value, reward = w
    s = s + jnp.mean(a, axis=1, keepdims=True)
    shapes = (T + 1, A), (T + 1, M), (T, M)
    return tuple(
        (s @ x).reshape(B, *n)
        for x, n in zip((policy, value, reward), shapes, strict=True)
    )


def plain_gumbel_muzero(p, t):
    """google-deepmind/mctx@b53073f, mctx/_src/qtransforms.py."""
    b, (logits, v_logits, r_logits) = SEARCH, model(p, SEARCH.s, SEARCH.a_tm1)
    prior, visited = jax.nn.softmax(b.logits), b.visits > 0
    mass = jnp.sum(prior * visited, axis=-1)
    mean_q = jnp.sum(prior * visited * b.q, -1) / jnp.where(mass > 0, mass, 1)
    total = jnp.sum(b.visits, axis=-1)
    mixed = (b.v + total * jnp.where(mass > 0, mean_q, 0)) / (1 + total)
    q = jnp.where(visited, b.q, mixed[..., None])
    low, high = jnp.min(q, -1, keepdims=True), jnp.max(q, -1, keepdims=True)
    q = (q - low) / jnp.where(high > low, high - low, 1)
    most = jnp.max(b.visits, -1, keepdims=True)
    target = jax.nn.softmax(b.logits + 0.1 * (50 + most) * q)
    bins, mask = jnp.linspace(-300, 300, M), b.sample_mask
    policy_loss = mask * cross_entropy(target, logits)
    returns, r_t = b.returns * mask, b.r_t * mask[:, :-1]
    value_loss = cross_entropy(two_hot(rescale(returns), bins), v_logits)
    reward_loss = cross_entropy(two_hot(rescale(r_t), bins), r_logits)
    loss = policy_loss + 0.25 * value_loss
    loss = loss.at[:, 1:].add(reward_loss)
    # The gradients of unrolled steps are scaled by 1/K in MuZero's pseudocode.
    return jnp.mean(loss @ jnp.array([1] + T * [1 / T]))


def plain_discrete_sac_critic(p, t):
    """p-christ/Deep-Reinforcement-Learning-Algorithms-with-PyTorch@4835bac.

    agents/actor_critic_agents/SAC_Discrete.py.
    """
    log_pi = jax.nn.log_softmax(Q(p.actor, ONE.s_t))
    q = jnp.min(DISCRETE.critic(t.critic, ONE.s_t), axis=-2)
    v_t = jnp.sum(jnp.exp(log_pi) * (q - 0.2 * log_pi), axis=-1)
    q_tm1 = DISCRETE.critic(p.critic, ONE.s_tm1)[jnp.arange(B), :, ONE.a_tm1]
    return squares(q_tm1, one_step(v_t))


def plain_discrete_sac_actor(p, t):
    """p-christ/Deep-Reinforcement-Learning-Algorithms-with-PyTorch@4835bac.

    agents/actor_critic_agents/SAC_Discrete.py.
    """
    log_pi = jax.nn.log_softmax(Q(p.actor, ONE.s_tm1))
    q = jnp.min(DISCRETE.critic(stop(p.critic), ONE.s_tm1), axis=-2)
    return jnp.mean(jnp.sum(jnp.exp(log_pi) * (0.2 * log_pi - q), axis=-1))


def plain_discrete_sac_temperature(p, t):
    """p-christ/Deep-Reinforcement-Learning-Algorithms-with-PyTorch@4835bac.

    agents/actor_critic_agents/SAC_Discrete.py.
    """
    entropy = mean_entropy(Q(t.actor, ONE.s_tm1))
    return jnp.exp(p) * stop(entropy - 0.5)


TWO, TWO_PARAMS = linear(2, A)
DISCRETE = ActorCritic(Q, TWO)
DISCRETE_PARAMS = tuple(map(ActorCritic, Q_PARAMS, TWO_PARAMS))

LEGAL = STREAM._replace(legal_tm1=normal(B, T, A) < 0.8)
LEGAL.legal_tm1 = LEGAL.legal_tm1 | jax.nn.one_hot(LEGAL.a_tm1, A, dtype=bool)


def ppo_loss(logits, v):
    """Return the loss of PPO of all streams."""
    (adv, target), near = gae(), STREAM.v_tm1 + jnp.clip(v - STREAM.v_tm1, -0.2, 0.2)
    value_loss = jnp.maximum((v - target) ** 2, (near - target) ** 2) / 2
    return jnp.mean(surrogate(ratios(logits), adv) + 0.5 * value_loss)


def plain_masked_ppo(p, t):
    logits, v = policy_and_value(p, STREAM.s_tm1)
    logits = jnp.where(LEGAL.legal_tm1, logits, -1e8)
    return ppo_loss(logits, v) - 0.01 * mean_entropy(logits)


REMEMBERED = STREAM._replace(state=normal(B, F), first=jnp.arange(B * T) % 3 == 1)
REMEMBERED.first = REMEMBERED.first.reshape(B, T)


def unit(state, s):
    return jnp.tanh(0.5 * state + s)


def unrolled(params, state, s, first):
    """Return logits and values of a network whose state adds up observations."""

    def step(state, inputs):
        s, first = inputs
        state = unit(jnp.where(first[:, None], 0.0, state), s)
        return state, state

    inputs = jnp.swapaxes(s, 0, 1), first.T
    _, states = jax.lax.scan(step, state, inputs)
    return policy_and_value(params, jnp.swapaxes(states, 0, 1))


def plain_recurrent_ppo(p, t):
    """vwxyzjn/cleanrl@fe8d8a0, cleanrl/ppo_atari_lstm.py, by a loop over the steps."""
    b, state, states = REMEMBERED, REMEMBERED.state, []
    for k in range(T):
        state = unit((1.0 - b.first[:, k, None]) * state, b.s_tm1[:, k])
        states.append(state)
    logits, v = policy_and_value(p, jnp.stack(states, axis=1))
    return ppo_loss(logits, v) - 0.01 * mean_entropy(logits)


CASES = {
    "masked_ppo": Case(
        of(recipes.masked_ppo, policy_and_value, LEGAL), plain_masked_ppo, PAIR_PARAMS
    ),
    "recurrent_ppo": Case(
        of(recipes.recurrent_ppo, unrolled, REMEMBERED),
        plain_recurrent_ppo,
        PAIR_PARAMS,
    ),
    "reinforce": Case(of(recipes.reinforce, Q, STREAM), plain_reinforce, Q_PARAMS),
    "a2c": Case(of(recipes.a2c, policy_and_value, STREAM), plain_a2c, PAIR_PARAMS),
    "impala": Case(
        of(recipes.impala, policy_and_value, STREAM),
        plain_impala,
        PAIR_PARAMS,
        factor=1 / (B * T),
    ),
    "acer": Case(
        of(recipes.acer, policy_and_q, STREAM, 1.5, max_change=5.0),
        plain_acer,
        TWO_Q_PARAMS,
    ),
    "coma": Case(of(recipes.coma, policy_and_q, STREAM), plain_coma, TWO_Q_PARAMS),
    "ppo": Case(of(recipes.ppo, policy_and_value, STREAM), plain_ppo, PAIR_PARAMS),
    "spo": Case(of(recipes.spo, policy_and_value, STREAM), plain_spo, PAIR_PARAMS),
    "discovered_policy_optimization": Case(
        of(recipes.discovered_policy_optimization, policy_and_value, STREAM),
        plain_discovered,
        PAIR_PARAMS,
    ),
    "ppo_lagrangian": Case(
        of(recipes.ppo_lagrangian, policy_and_two_values, COSTS, 2.0),
        plain_ppo_lagrangian,
        TWO_Q_PARAMS,
    ),
    "ppo_penalty": Case(
        of(recipes.ppo_penalty, policy_and_value, STREAM, 2.0),
        plain_ppo_penalty,
        PAIR_PARAMS,
    ),
    "decoupled_ppo": Case(
        of(recipes.decoupled_ppo, policy_and_value, STREAM),
        plain_decoupled_ppo,
        PAIR_PARAMS,
    ),
    "categorical_mpo": Case(
        of(recipes.categorical_mpo, MPO_A, STREAM),
        plain_categorical_mpo,
        MPO_A_PARAMS,
        "critic",
    ),
    "vmpo": Case(of(recipes.vmpo, policy_and_value, STREAM), plain_vmpo, VMPO_PARAMS),
    "muesli": Case(
        of(recipes.muesli, policy_and_q, STREAM, 2.0), plain_muesli, TWO_Q_PARAMS
    ),
    "gumbel_muzero": Case(
        of(recipes.gumbel_muzero, model, SEARCH),
        plain_gumbel_muzero,
        ((normal(F, (T + 1) * A), normal(F, (T + 1) * M), normal(F, T * M)), None),
    ),
    "discrete_sac_critic": Case(
        of(recipes.discrete_sac_critic, DISCRETE, ONE, 0.2),
        plain_discrete_sac_critic,
        DISCRETE_PARAMS,
        "actor",
        factor=0.5,
    ),
    "discrete_sac_actor": Case(
        of(recipes.discrete_sac_actor, DISCRETE, ONE, 0.2),
        plain_discrete_sac_actor,
        DISCRETE_PARAMS,
        "critic",
    ),
    "discrete_sac_temperature": Case(
        of(recipes.discrete_sac_temperature, DISCRETE, ONE, 0.5),
        plain_discrete_sac_temperature,
        (jnp.float32(0.3), DISCRETE_PARAMS[0]),
    ),
}
