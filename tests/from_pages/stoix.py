"""Stoix, EdanToledo/Stoix@8fff19c, below `stoix`.

`utils/{loss,multistep,running_statistics}.py`, `systems/mpo/discrete_loss.py` and
`systems/q_learning/ff_dqn_reg.py`. Estimates of one stream, without the batch.
"""

import formulas as f
import jax
import jax.numpy as jnp

from from_pages import flags, integers, normal, uniform

N, A, M = 6, 3, 7  # Examples or steps, actions, atoms or quantiles.
stop = jax.lax.stop_gradient
INPUTS = {
    "pi_log_prob_t": (log_prob := normal(N)),
    "b_pi_log_prob_t": log_prob + normal(N, scale=0.3),
    "gae_t": normal(N),
    "epsilon": 0.2,
    "alpha": 2.0,
    "beta": 0.6,
    "kl_t": uniform(N),
    "pred_value_t": (value := normal(N)),
    "behavior_value_t": value + normal(N, scale=0.3),
    "targets_t": normal(N),
    "q_tm1": normal(N, A),
    "q_tm1_target": normal(N, A),
    "a_tm1": integers(A, N),
    "r_t": normal(N),
    "d_t": 0.9 * (1 - flags(1, 4, length=N)),
    "discount_t": 0.9 * (1 - flags(4, length=N)),
    "q_t": normal(N, A),
    "q_t_value": normal(N, A),
    "q_t_selector": normal(N, A),
    "values": (values := normal(N + 1)),
    "v_tm1": values[:-1],
    "v_t": normal(N),
    "huber_loss_parameter": 0.5,
    "entropy_temperature": 0.5,
    "munchausen_coefficient": 0.8,
    "clip_value_min": -1.0,
    "atoms": jnp.linspace(-2.0, 2.0, M),
    "q_logits_tm1": normal(N, A, M),
    "q_logits_t": normal(N, A, M),
    "v_logits_tm1": normal(N, M),
    "v_logits_t": normal(N, M),
    "dist_src": normal(N, M),
    "tau_src": uniform(N, M),
    "dist_target": normal(N, M),
    "huber_param": 1.0,
    "dist_q_tm1": normal(N, M, A),
    "dist_q_t_selector": normal(N, M, A),
    "dist_q_t": normal(N, M, A),
    "lambda_": 0.8,
    "truncation_t": flags(2, length=N).astype(jnp.float32),
    "q_taken_tm1": normal(N),
    "q_taken_t": normal(N - 1),
    "c_t": uniform(N - 1, high=1.5),
    "rho_tm1": uniform(N, high=2.0),
    "observation": 5 + normal(N, A),
    "log_temperature": jnp.float32(0.4),
    "log_alpha": jnp.float32(-0.3),
    "rewards": normal(N, 2),
    "discounts": 0.9 * jnp.stack([1 - flags(1, length=N), 1 - flags(4, length=N)], 1),
}
TRAINED = {
    *("pi_log_prob_t", "pred_value_t", "q_tm1", "v_tm1", "q_logits_tm1"),
    *("v_logits_tm1", "dist_src", "dist_target", "dist_q_tm1", "q_taken_tm1"),
    "log_alpha",
}


# --- stoix/utils/loss.py. ---


def policy_penalty(pi_log_prob_t, b_pi_log_prob_t, gae_t, beta, kl_t):
    ratio = jnp.exp(pi_log_prob_t - b_pi_log_prob_t)
    return -jnp.mean(ratio * gae_t - beta * jnp.mean(kl_t))


def mean_loss(td_error, huber_loss_parameter):
    return jnp.mean(f.huber(td_error, huber_loss_parameter))


def q_learning(q_tm1, a_tm1, r_t, d_t, q_t, huber_loss_parameter):
    target_tm1 = r_t + d_t * jnp.max(q_t, axis=-1)
    return mean_loss(target_tm1 - f.pick(q_tm1, a_tm1), huber_loss_parameter)


def double_q(q_tm1, q_t_value, a_tm1, r_t, d_t, q_t_selector, huber_loss_parameter):
    target_tm1 = r_t + d_t * f.pick(q_t_value, jnp.argmax(q_t_selector, axis=-1))
    return mean_loss(target_tm1 - f.pick(q_tm1, a_tm1), huber_loss_parameter)


def td_learning(v_tm1, r_t, discount_t, v_t, huber_loss_parameter):
    return mean_loss(r_t + discount_t * v_t - v_tm1, huber_loss_parameter)


def munchausen(
    q_tm1,
    q_tm1_target,
    a_tm1,
    r_t,
    d_t,
    q_t,
    entropy_temperature,
    munchausen_coefficient,
    clip_value_min,
    huber_loss_parameter,
):
    tau = entropy_temperature
    term = f.pick(tau * jax.nn.log_softmax(q_tm1_target / tau, axis=-1), a_tm1)
    term = munchausen_coefficient * jnp.clip(term, clip_value_min, 0.0)
    next_v = tau * jax.nn.logsumexp(q_t / tau, axis=-1)
    td_error = stop(r_t + term + d_t * next_v) - f.pick(q_tm1, a_tm1)
    return mean_loss(td_error, huber_loss_parameter)


def categorical_td(v_logits_tm1, atoms, r_t, d_t, v_logits_t):
    """Return the cross-entropy of each example."""
    project = jax.vmap(f.project, in_axes=(0, 0, 0, None))
    target = project(r_t, d_t, jax.nn.softmax(v_logits_t), atoms)
    return -jnp.sum(target * jax.nn.log_softmax(v_logits_tm1), axis=-1)


def categorical_q(q_logits_tm1, atoms, a_tm1, r_t, d_t, q_logits_t, q_t_selector):
    best = q_logits_t[jnp.arange(N), jnp.argmax(q_t_selector, axis=-1)]
    return categorical_td(q_logits_tm1[jnp.arange(N), a_tm1], atoms, r_t, d_t, best)


quantile_regression = jax.vmap(f.quantile_huber)


def quantile_q(dist_q_tm1, tau_src, a_tm1, r_t, d_t, dist_q_t_selector, dist_q_t):
    step = a_tm1, r_t, d_t, dist_q_t_selector, dist_q_t
    return jnp.mean(jax.vmap(f.quantile_q)(dist_q_tm1, tau_src, *step))


# --- stoix/utils/multistep.py. ---


def gae(v_tm1, r_t, discount_t, v_t, lambda_, truncation_t):
    delta = r_t + discount_t * v_t - v_tm1
    return f.backwards(delta, discount_t * lambda_ * (1.0 - truncation_t))


def off_policy(q_taken_t, v_t, r_t, discount_t, c_t):
    rewards = r_t[:-1] + discount_t[:-1] * (v_t[:-1] - c_t * q_taken_t)
    last = r_t[-1] + discount_t[-1] * v_t[-1]
    return jnp.append(f.backwards(rewards, discount_t[:-1] * c_t, last), last)


def corrected_errors(r_t, discount_t, rho_tm1, lambda_, values, truncation_t):
    rho_t, delta = jnp.append(rho_tm1[1:], 1.0), r_t + discount_t * values[1:]
    after = discount_t * rho_t * lambda_ * (1.0 - truncation_t)
    return rho_tm1 * f.backwards(delta - values[:-1], after)


def n_step(r_t, discount_t, v_t, lambda_, n=3):
    targets = jnp.append(v_t[n - 1 :], jnp.full(n - 1, v_t[-1]))
    r_t, discount_t = jnp.pad(r_t, (0, n - 1)), jnp.append(discount_t, jnp.ones(n - 1))
    lambda_t = jnp.append(jnp.full(N, lambda_), jnp.ones(n - 1))
    v_t = jnp.append(v_t, jnp.full(n - 1, v_t[-1]))
    for i in reversed(range(n)):
        r, d, lam, v = (x[i : i + N] for x in (r_t, discount_t, lambda_t, v_t))
        targets = r + d * ((1.0 - lam) * v + lam * targets)
    return targets


def retrace(q_taken_tm1, q_taken_t, v_t, r_t, discount_t, c_t, lambda_):
    c_t = jnp.minimum(1.0, c_t) * lambda_
    return stop(off_policy(q_taken_t, v_t, r_t, discount_t, c_t)) - q_taken_tm1


# --- Elsewhere. ---


def normalized(observation):
    mean = jnp.mean(observation, axis=0)
    summed_variance = jnp.sum((observation - mean) ** 2, axis=0)
    return (observation - mean) / jnp.sqrt(summed_variance / N)


def mpo(q_tm1, q_t_selector, q_t, log_temperature, log_alpha):
    temperature = jax.nn.softplus(log_temperature) + 1e-8
    alpha = jax.nn.softplus(log_alpha) + 1e-8
    log_pi, log_prior = jax.nn.log_softmax(q_tm1), jax.nn.log_softmax(q_t_selector)
    unnormalized = q_t / temperature + log_prior
    e_step = jax.nn.log_softmax(unnormalized)
    log_normalizer = unnormalized[:, 0] - e_step[:, 0]
    loss_temperature = temperature * (0.1 + jnp.mean(log_normalizer))
    loss_policy = -jnp.mean(jnp.sum(jnp.exp(e_step) * log_pi, axis=-1))
    mean_kl = jnp.mean(jnp.sum(jnp.exp(log_prior) * (log_prior - log_pi), axis=-1))
    loss_alpha = alpha * (0.01 - stop(mean_kl))
    return loss_policy + stop(alpha) * mean_kl + loss_alpha + loss_temperature


def regularized(q_tm1, a_tm1, r_t, d_t, q_t, huber_loss_parameter):
    loss = q_learning(q_tm1, a_tm1, r_t, d_t, q_t, huber_loss_parameter)
    return 0.1 * jnp.mean(f.pick(q_tm1, a_tm1)) + loss


ROWS = {
    "ppo_clip_loss": lambda pi_log_prob_t, b_pi_log_prob_t, gae_t: jnp.mean(
        f.clipped(pi_log_prob_t, b_pi_log_prob_t, gae_t)
    ),
    "ppo_penalty_loss": policy_penalty,
    "dpo_loss": lambda pi_log_prob_t, b_pi_log_prob_t, gae_t: jnp.mean(
        f.discovered(pi_log_prob_t, b_pi_log_prob_t, gae_t)
    ),
    "clipped_value_loss": lambda pred_value_t, behavior_value_t, targets_t: jnp.mean(
        f.clipped_values(pred_value_t, behavior_value_t, targets_t)
    ),
    "q_learning": q_learning,
    "double_q_learning": double_q,
    "td_learning": td_learning,
    "td_learning, huber_loss_parameter=0": lambda v_tm1, r_t, discount_t, v_t: jnp.mean(
        0.5 * (r_t + discount_t * v_t - v_tm1) ** 2
    ),
    "munchausen_q_learning": munchausen,
    "categorical_double_q_learning": categorical_q,
    "categorical_td_learning": lambda v_logits_tm1, atoms, r_t, d_t, v_logits_t: (
        jnp.mean(categorical_td(v_logits_tm1, atoms, r_t, d_t, v_logits_t))
    ),
    "quantile_regression_loss": (quantile_regression, "dist_src tau_src dist_target"),
    "quantile_q_learning": quantile_q,
    "batch_truncated_generalized_advantage_estimation": gae,
    "standardize_advantages": lambda gae_t: (
        (gae_t - jnp.mean(gae_t)) / jnp.sqrt(jnp.var(gae_t) + 1e-5)
    ),
    "batch_discounted_returns, time_major=True": lambda rewards, discounts: f.backwards(
        rewards, discounts, rewards[-1]
    ),
    "batch_n_step_bootstrapped_returns": n_step,
    "batch_general_off_policy_returns_from_q_and_v": off_policy,
    "batch_retrace_continuous": retrace,
    "batch_lambda_returns": (f.lambda_returns, "r_t discount_t v_t lambda_"),
    "batch_discounted_returns": lambda r_t, discount_t, v_t: f.backwards(
        r_t, discount_t, v_t[-1]
    ),
    "importance_corrected_td_errors": corrected_errors,
    "batch_q_lambda": lambda r_t, discount_t, q_t, lambda_: f.lambda_returns(
        r_t, discount_t, jnp.max(q_t, axis=-1), lambda_
    ),
    "running_statistics": normalized,
    "categorical_mpo_loss": mpo,
    "ff_dqn_reg": regularized,
}
