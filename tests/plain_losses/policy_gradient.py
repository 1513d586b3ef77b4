"""Losses of `recipes/policy_gradient.py` in plain `jax.numpy`."""

import formulas as f
import jax
import jax.numpy as jnp
import numpy as np
from formulas import pick
from jax import nn
from jax.nn import log_softmax
from recipes import policy_gradient as recipes

from plain_losses.common import (
    GAMMA,
    IS_VALID,
    MPO_A,
    MPO_A_PARAMS,
    ONE,
    PAIR_PARAMS,
    Q_PARAMS,
    ROLLOUTS,
    TWO_Q,
    TWO_Q_PARAMS,
    VMPO_PARAMS,
    A,
    ActorCritic,
    B,
    F,
    Q,
    T,
    cases,
    chained,
    given,
    integers,
    linear,
    mean_entropy,
    normal,
    one_step,
    policy_and_q,
    policy_and_value,
    pool,
    seed,
    squares,
    stop,
)

seed(__name__)


def plain_reinforce(p, t):
    """The paper's equation: episodic REINFORCE, without a baseline."""

    def losses(b):
        returns = f.backwards(b.r_t, GAMMA * (1 - b.dones))
        return (-returns * pick(log_softmax(Q(p, b.s_tm1)), b.a_tm1),)

    return jnp.mean(*pool(losses))


def plain_a2c(p, t):
    """openai/baselines@ea25b9e, baselines/a2c/runner.py and baselines/a2c/a2c.py."""

    def collect(b):
        pi, values = policy_and_value(p, b.obs)
        returns = f.backwards(b.r_t, GAMMA * (1 - b.dones), values[-1])
        return pi[:-1], values[:-1], b.a_tm1, stop(returns)

    pi, values, actions, returns = pool(collect)
    adv = stop(returns - values)
    neglogpac = -pick(log_softmax(pi), actions)
    pg_loss, vf_loss = jnp.mean(adv * neglogpac), jnp.mean((values - returns) ** 2)
    return pg_loss - entropy(pi) * 0.01 + vf_loss * 0.5


def plain_impala(p, t):
    """google-deepmind/scalable_agent@6c0c8a7, experiment.py and vtrace.py."""

    def losses(b):
        logits, values = policy_and_value(p, b.obs)
        logits, bootstrap = logits[:-1], stop(values[-1])
        values, discounts = values[:-1], GAMMA * (1 - b.dones)
        log_rhos = pick(log_softmax(logits), b.a_tm1)
        log_rhos = stop(log_rhos - pick(log_softmax(b.logits_tm1), b.a_tm1))
        rhos = jnp.minimum(1.0, jnp.exp(log_rhos))
        fixed = stop(values)
        values_t_plus_1 = jnp.append(fixed[1:], bootstrap)
        deltas = rhos * (b.r_t + discounts * values_t_plus_1 - fixed)
        vs = f.backwards(deltas, discounts * rhos) + fixed
        vs_t_plus_1 = jnp.append(vs[1:], bootstrap)
        pg_advantages = rhos * (b.r_t + discounts * vs_t_plus_1 - fixed)
        cross_entropy = -pick(log_softmax(logits), b.a_tm1)
        total = jnp.sum(cross_entropy * pg_advantages)
        total += 0.5 * 0.5 * jnp.sum((vs - values) ** 2)
        return (total[None] - 0.01 * jnp.sum(f.entropy(logits)),)

    return jnp.sum(*pool(losses))


def plain_acer(p, t, c=1.5, delta=5.0):
    """openai/baselines@ea25b9e, baselines/acer/acer.py: grads, as those of a loss."""
    eps, n = 1e-6, IS_VALID.sum()

    def q_retrace(b):
        logits, q = policy_and_q(p, b.obs)
        pi, mu, rows = jax.nn.softmax(logits), jax.nn.softmax(b.logits_tm1), b.a_tm1
        v, q_i = jnp.sum(pi * q, axis=-1), pick(q[:-1], rows)
        rho_bar = jnp.minimum(1.0, pick(pi[:-1] / (mu + eps), rows))
        qret, qrets = v[-1], []
        for i in reversed(range(len(b.r_t))):
            qret = b.r_t[i] + GAMMA * qret * (1.0 - b.dones[i])
            qrets.append(qret)
            qret = rho_bar[i] * (qret - q_i[i]) + v[i]
        polyak = jax.nn.softmax(policy_and_q(t, b.s_tm1)[0])
        return pi[:-1], polyak, q[:-1], mu, b.a_tm1, stop(jnp.stack(qrets[::-1]))

    f, f_pol, q, mu, actions, qret = pool(q_retrace)
    v, rho, pi = stop(jnp.sum(f * q, axis=-1)), stop(f / (mu + eps)), f

    def loss_policy(f):
        logf = jnp.log(pick(f, actions) + eps)
        gain_f = logf * stop((qret - v) * jnp.minimum(c, pick(rho, actions)))
        weights = stop((q - v[:, None]) * jax.nn.relu(1.0 - c / (rho + eps)) * f)
        gain_bc = jnp.sum(jnp.log(f + eps) * weights, axis=1)
        entropy = jnp.mean(-jnp.sum(f * jnp.log(f), axis=1))
        return -jnp.mean(gain_f) - jnp.mean(gain_bc) - 0.01 * entropy

    g = jax.grad(lambda f: -loss_policy(f) * n)(stop(f))
    k = -f_pol / (stop(f) + eps)
    k_dot_g, k_dot_k = jnp.sum(k * g, axis=-1), jnp.sum(k**2, axis=-1)
    adj = jnp.maximum(0.0, (k_dot_g - delta) / (k_dot_k + eps))
    assert isinstance(adj, jax.core.Tracer) or 0 < jnp.mean(adj > 0) < 1
    grads_f = stop(-(g - adj[:, None] * k) / n)
    loss_q = jnp.mean((qret - pick(q, actions)) ** 2 * 0.5)
    return jnp.sum(grads_f * pi) + 0.5 * loss_q


def plain_coma(p, t):
    """oxwhirl/pymarl@c971afd, src/learners/coma_learner.py and src/utils/rl_utils.py.

    The action in the last state of a stream, whose target value it takes, is 0.
    """

    def learn(b):
        logits, q_vals = policy_and_q(p, b.s_tm1)
        target_q = policy_and_q(t, b.obs)[1]
        taken = pick(target_q, jnp.append(b.a_tm1, 0))
        discounts = GAMMA * (1 - b.dones)
        targets = f.lambda_returns(b.r_t, discounts, taken[1:], 0.8)
        return logits, q_vals, b.a_tm1, stop(targets)

    logits, q_vals, actions, targets = pool(learn)
    pi, q_taken = jax.nn.softmax(logits), pick(q_vals, actions)
    advantages = stop(q_taken - jnp.sum(pi * q_vals, axis=-1))
    coma_loss = -jnp.mean(advantages * jnp.log(pick(pi, actions)))
    return coma_loss + jnp.mean((q_taken - targets) ** 2)


def advantages(b):
    """Return GAE and returns of a piece, with λ 0.95."""
    advs = f.gae(b.values[:-1], b.r_t, GAMMA * (1.0 - b.dones), b.values[1:])
    return advs, advs + b.values[:-1]


def on_policy(p, apply=policy_and_value, b=ROLLOUTS):
    """Return outputs of valid steps, and log-probabilities, new and old, of actions."""
    outputs = apply(p, b.s_tm1[IS_VALID])
    log_probs = (
        pick(log_softmax(x), b.a_tm1[IS_VALID])
        for x in (outputs[0], b.logits_tm1[IS_VALID])
    )
    return *outputs, *log_probs


def clipped_values(vpred, returns):
    """Return the value loss of baselines/ppo2/model.py, with its ½."""
    return jnp.mean(f.clipped_values(vpred, ROLLOUTS.v_tm1[IS_VALID], returns))


def entropy(logits):
    return jnp.mean(f.entropy(logits))


def plain_ppo(p, t):
    """openai/baselines@ea25b9e.

    baselines/ppo2/model.py and baselines/ppo2/runner.py.
    """
    (advs, returns), (logits, vpred, log_prob, old) = pool(advantages), on_policy(p)
    pg_loss = jnp.mean(f.clipped(log_prob, old, f.standardized(advs)))
    return pg_loss - entropy(logits) * 0.01 + clipped_values(vpred, returns) * 0.5


def plain_spo(p, t):
    """MyRepositories-hub/Simple-Policy-Optimization@9fdeda3, mujoco/trainer.py."""
    (advs, returns), (logits, v, log_prob, old) = pool(advantages), on_policy(p)
    ratios, advs = jnp.exp(log_prob - old), f.standardized(advs, ddof=1)
    penalty = jnp.abs(advs) * (ratios - 1) ** 2 / (2 * 0.2)
    policy_loss = -jnp.mean(advs * ratios - penalty)
    return policy_loss + clipped_values(v, returns) * 0.5 - entropy(logits) * 0.01


def plain_discovered_policy_optimization(p, t):
    """luchris429/purejaxrl@31756b1, purejaxrl/dpo_continuous_action.py."""
    (gae, targets), (_, value, log_prob, old) = pool(advantages), on_policy(p)
    loss_actor = jnp.mean(f.discovered(log_prob, old, f.standardized(gae)))
    return loss_actor + 0.5 * clipped_values(value, targets)


COSTS = ROLLOUTS._replace(
    c_t=normal(B, T), cost_v_tm1=normal(B, T), cost_v_t=normal(B, T)
)
COSTS.cost_v_t = chained(COSTS.cost_v_tm1, COSTS.cost_v_t)
COST_FIELDS = {"r_t": COSTS.c_t, "v_tm1": COSTS.cost_v_tm1, "v_t": COSTS.cost_v_t}


def policy_and_two_values(w, s):
    x = TWO_Q(w, s)
    return x[..., :A], x[..., A], x[..., A + 1]


def plain_ppo_lagrangian(p, t):
    """PKU-Alignment/omnisafe@15603dd.

    omnisafe/algorithms/on_policy/naive_lagrange/ppo_lag.py, with the advantages of
    omnisafe/common/buffer/onpolicy_buffer.py: get, and both critics' losses by 1/4,
    where each has an optimizer of its own.
    """
    (adv_r, target_r), (adv_c, target_c) = (
        pool(advantages, COSTS._replace(**x)) for x in ({}, COST_FIELDS)
    )
    _, v, cost_v, logp, old = on_policy(p, policy_and_two_values, COSTS)
    adv_r, adv_c = f.standardized(adv_r), adv_c - jnp.mean(adv_c)
    loss_pi = jnp.mean(f.clipped(logp, old, (adv_r - 2.0 * adv_c) / (1 + 2.0)))
    loss_r, loss_c = jnp.mean((v - target_r) ** 2), jnp.mean((cost_v - target_c) ** 2)
    return loss_pi + (loss_r + loss_c) / 4


# A policy that has moved little, whose KL is below twice the target.
NEAR = ROLLOUTS._replace(
    logits_tm1=policy_and_value(PAIR_PARAMS[0], ROLLOUTS.s_tm1)[0]
    + 0.05 * normal(B, T, A)
)


def plain_ppo_penalty(p, t):
    """joschu/modular_rl@6970cde, modular_rl/ppo.py: PpoSgdUpdater.

    With the squared error of values, by 1/4.
    """
    (adv, target), (logits, v, log_prob, old) = pool(advantages), on_policy(p, b=NEAR)
    prob, oldprob = jax.nn.softmax(logits), jax.nn.softmax(NEAR.logits_tm1[IS_VALID])
    surr = -jnp.mean(jnp.exp(log_prob - old) * f.standardized(adv))
    kl = jnp.mean(jnp.sum(oldprob * (jnp.log(oldprob) - jnp.log(prob)), axis=1))
    kl_cutoff = 0.01 * 2.0
    beyond = 1000 * (kl > kl_cutoff) * (kl - kl_cutoff) ** 2
    return surr + 2.0 * kl + beyond + jnp.mean((v - target) ** 2) / 4


def plain_decoupled_ppo(p, t):
    """openai/ppo-ewma@625dac7, ppo_ewma/ppo.py, with an imp_samp_max of 2."""
    (adv, vtarg), (pd, vpred, newlogp, logp) = pool(advantages), on_policy(p)
    rec_logp, adv = stop(on_policy(t)[2]), f.standardized(adv)
    logp_adj = jnp.maximum(logp, stop(newlogp) - jnp.log(2.0))
    logratio = jnp.clip(newlogp - rec_logp, jnp.log(1.0 - 0.2), jnp.log(1.0 + 0.2))
    pg_losses = -adv * jnp.exp(newlogp - logp_adj)
    pg_losses2 = -adv * jnp.exp(logratio + rec_logp - logp_adj)
    pg = jnp.mean(jnp.maximum(pg_losses, pg_losses2))
    negent = -entropy(pd) * 0.01
    return negent + pg + 0.5 * jnp.mean((vpred - vtarg) ** 2)


def plain_categorical_mpo(p, t):
    """google-deepmind/acme@770bc75, acme/agents/jax/mpo/categorical_mpo.py."""
    s = ROLLOUTS.s_tm1[IS_VALID]
    temperature, alpha = jax.nn.softplus(p.duals) + 1e-8
    logits, target_logits = Q(p.actor, s), stop(Q(t.actor, s))
    tempered_q_values = stop(Q(t.critic, s)) / temperature
    unnormalized = tempered_q_values + log_softmax(target_logits)
    logits_e_step = log_softmax(unnormalized)
    log_normalizer = unnormalized[:, 0] - logits_e_step[:, 0]
    loss_temperature = temperature * (0.1 + jnp.mean(log_normalizer))
    e_step = jnp.exp(logits_e_step)
    loss_policy = -jnp.mean(jnp.sum(e_step * log_softmax(logits), axis=-1))
    log_ratio = log_softmax(target_logits) - log_softmax(logits)
    mean_kl = jnp.mean(jnp.sum(jax.nn.softmax(target_logits) * log_ratio, axis=-1))
    loss_kl, loss_alpha = stop(alpha) * mean_kl, alpha * (0.0025 - stop(mean_kl))
    return loss_policy + loss_kl + loss_alpha + loss_temperature


def plain_vmpo(p, t):
    """kakaoenterprise/JORLDY@15a7536, jorldy/core/agent/vmpo.py: learn.

    With both multipliers as softplus of a parameter.
    """

    def collect(b):
        value = policy_and_value(p.policy, b.obs)[1]
        next_value = jnp.append(value[1:-1], value[-1])
        adv = stop(f.gae(value[:-1], b.r_t, GAMMA * (1 - b.dones), next_value))
        return adv, adv + stop(value[:-1])

    (adv, ret), (pi, value, log_prob, _) = pool(collect), on_policy(p.policy)
    eta, alpha = jax.nn.softplus(p.duals)
    half = len(adv) // 2
    _, idx_tophalf = jax.lax.top_k(adv, half)
    exp_adv_eta = jnp.exp(adv[idx_tophalf] / eta)
    psi = stop(exp_adv_eta / jnp.sum(exp_adv_eta))
    critic_loss = jnp.mean((value - ret) ** 2)
    eta_loss = eta * 0.01 + eta * jnp.log(jnp.mean(exp_adv_eta))
    actor_loss = -jnp.sum(psi * log_prob[idx_tophalf])
    log_pi, log_pi_old = log_softmax(pi), stop(log_softmax(on_policy(t.policy)[0]))
    kld_pi = jnp.sum(jnp.exp(log_pi_old) * (log_pi_old - log_pi), axis=-1)
    alpha_loss = jnp.mean(alpha * (0.01 - stop(kld_pi)) + stop(alpha) * kld_pi)
    return critic_loss + actor_loss + eta_loss + alpha_loss


def plain_muesli(p, t):
    """The paper's equations: 6, 10, 12 and 14, with Retrace for the values."""

    def losses(b):
        logits, q = policy_and_q(p, b.s_tm1)
        prior, target_q = stop(policy_and_q(t, b.obs))
        pi = jax.nn.softmax(prior)
        v, q_i = jnp.sum(pi * target_q, axis=-1), pick(target_q[:-1], b.a_tm1)
        log_mu, log_pi = (pick(log_softmax(x), b.a_tm1) for x in (b.logits_tm1, logits))
        ratio = pick(pi[:-1], b.a_tm1) / jnp.exp(log_mu)
        total, returns = v[-1], []
        for k in reversed(range(len(b.r_t))):
            returns.append(b.r_t[k] + GAMMA * (1 - b.dones[k]) * total)
            c = 0.95 * jnp.minimum(1, ratio[k])
            total = v[k] + c * (returns[-1] - q_i[k])
        returns = jnp.stack(returns[::-1])
        weights = stop(jnp.minimum(1, jnp.exp(log_pi - log_mu)))
        pg = -weights * (returns - v[:-1]) / 2 * log_pi
        adv = jnp.clip((target_q - v[:, None])[:-1] / 2, -1, 1)
        cmpo = pi[:-1] * jnp.exp(adv)
        cmpo = cmpo / jnp.sum(cmpo, axis=-1, keepdims=True)
        distance = -jnp.sum(cmpo * log_softmax(logits), axis=-1)
        return (pg + distance + 0.25 * (returns - pick(q, b.a_tm1)) ** 2 / 2,)

    return jnp.mean(*pool(losses))


PARTICLES = 4
SMC = ActorCritic(Q, lambda w, s: Q(w, s)[..., 0])
SEARCHED = ROLLOUTS._replace(
    a_samples=integers(A, B, T, PARTICLES),
    weights=nn.softmax(normal(B, T, PARTICLES)),
    advs=normal(B, T, PARTICLES),
)


def plain_smc_actor(p, t):
    """EdanToledo/Stoix@8fff19c, stoix/systems/spo/ff_spo.py: _actor_loss_fn.

    With stoix/systems/mpo/continuous_loss.py, of the valid steps.
    """
    b = SEARCHED
    a, weights, advs = (x[IS_VALID] for x in (b.a_samples, b.weights, b.advs))
    online, target = (log_softmax(Q(x.actor, b.s_tm1))[IS_VALID] for x in (p, t))
    temperature, alpha = nn.softplus(p.duals) + 1e-8
    q_logsumexp = nn.logsumexp(advs / temperature, axis=-1)
    loss_temperature = 0.5 + jnp.mean(q_logsumexp) - jnp.log(PARTICLES)
    log_prob = jnp.take_along_axis(online, a, axis=-1)
    loss_policy = -jnp.mean(jnp.sum(log_prob * weights, axis=-1))
    target = stop(target)
    mean_kl = jnp.mean(jnp.sum(jnp.exp(target) * (target - online), axis=-1))
    loss_kl, loss_alpha = stop(alpha) * mean_kl, alpha * (1e-3 - stop(mean_kl))
    return loss_policy + temperature * loss_temperature + loss_alpha + loss_kl


def plain_smc_critic(p, t):
    """EdanToledo/Stoix@8fff19c, stoix/systems/spo/ff_spo.py: _critic_loss_fn."""

    def losses(b):
        v, values = SMC.critic(p.critic, b.s_tm1), SMC.critic(t.critic, b.obs)
        discount = GAMMA * (1 - b.dones)
        targets = values[:-1] + f.gae(values[:-1], b.r_t, discount, values[1:])
        return (0.5 * (v - stop(targets)) ** 2,)

    return jnp.mean(*pool(losses))


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

    agents/actor_critic_agents/SAC.py: calculate_entropy_tuning_loss, of the
    log-probabilities of SAC_Discrete.py.
    """
    log_pi = -mean_entropy(Q(t.actor, ONE.s_tm1))
    return -(p * stop(log_pi + 0.5))


TWO, TWO_PARAMS = linear(2, A)
DISCRETE = ActorCritic(Q, TWO)
DISCRETE_PARAMS = tuple(map(ActorCritic, Q_PARAMS, TWO_PARAMS))

LEGAL = ROLLOUTS._replace(action_mask=normal(B, T, A) < 0.8)
LEGAL.action_mask = LEGAL.action_mask | nn.one_hot(LEGAL.a_tm1, A, dtype=bool)


def ppo_of(logits, v):
    """Return the loss of PPO in PyTorch of the logits and values of all steps."""
    advs, returns = pool(advantages)
    a, old = ROLLOUTS.a_tm1, ROLLOUTS.logits_tm1
    log_prob, old = (pick(log_softmax(x), a)[IS_VALID] for x in (logits, old))
    pg_loss = jnp.mean(f.clipped(log_prob, old, f.standardized(advs, ddof=1)))
    values = clipped_values(v[IS_VALID], returns) * 0.5
    return pg_loss - entropy(logits[IS_VALID]) * 0.01 + values


def plain_masked_ppo(p, t):
    """vwxyzjn/invalid-action-masking@6daedd2, gym_vec_api/ppo_multidiscrete_mask.py.

    With the clip of 0.2.
    """
    logits, v = policy_and_value(p, ROLLOUTS.s_tm1)
    return ppo_of(jnp.where(LEGAL.action_mask, logits, -1e8), v)


REMEMBERED = ROLLOUTS._replace(state=normal(B, F), first=np.arange(B * T) % 3 == 1)
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
        s = jnp.where(IS_VALID[:, k, None], b.s_tm1[:, k], 0.0)
        state = unit((1.0 - b.first[:, k, None]) * state, s)
        states.append(state)
    return ppo_of(*policy_and_value(p, jnp.stack(states, axis=1)))


CASES = cases(
    recipes,
    globals(),
    {
        "masked_ppo": given(PAIR_PARAMS, policy_and_value, LEGAL),
        "recurrent_ppo": given(PAIR_PARAMS, unrolled, REMEMBERED),
        "reinforce": given(Q_PARAMS, Q, ROLLOUTS),
        "a2c": given(PAIR_PARAMS, policy_and_value, ROLLOUTS),
        "impala": given(PAIR_PARAMS, policy_and_value, ROLLOUTS),
        "acer": given(TWO_Q_PARAMS, policy_and_q, ROLLOUTS, 1.5, max_change=5.0),
        "coma": given(TWO_Q_PARAMS, policy_and_q, ROLLOUTS),
        "ppo": given(PAIR_PARAMS, policy_and_value, ROLLOUTS),
        "spo": given(PAIR_PARAMS, policy_and_value, ROLLOUTS),
        "discovered_policy_optimization": given(
            PAIR_PARAMS, policy_and_value, ROLLOUTS
        ),
        "ppo_lagrangian": given(TWO_Q_PARAMS, policy_and_two_values, COSTS, 2.0),
        "ppo_penalty": given(PAIR_PARAMS, policy_and_value, NEAR, 2.0),
        "decoupled_ppo": given(PAIR_PARAMS, policy_and_value, ROLLOUTS, max_ratio=2.0),
        "categorical_mpo": given(MPO_A_PARAMS, MPO_A, ROLLOUTS, stopped="critic"),
        "vmpo": given(VMPO_PARAMS, policy_and_value, ROLLOUTS, value_cost=2.0),
        "muesli": given(TWO_Q_PARAMS, policy_and_q, ROLLOUTS, 2.0),
        "smc_actor": given(MPO_A_PARAMS, SMC, SEARCHED, stopped="critic"),
        "smc_critic": given(MPO_A_PARAMS, SMC, ROLLOUTS, stopped="actor duals"),
        "discrete_sac_critic": given(
            DISCRETE_PARAMS, DISCRETE, ONE, 0.2, stopped="actor"
        ),
        "discrete_sac_actor": given(
            DISCRETE_PARAMS, DISCRETE, ONE, 0.2, stopped="critic"
        ),
        "discrete_sac_temperature": given(
            (np.float32(0.3), DISCRETE_PARAMS[0]), DISCRETE, ONE, 0.5
        ),
    },
)
