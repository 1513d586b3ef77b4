"""coax, coax-dev/coax@cf85595.

`coax/td_learning`, `coax/policy_objectives`, `coax/regularizers`, `coax/value_losses`,
`coax/reward_tracing`, `coax/experience_replay`, `coax/proba_dists`, `coax/utils`.
"""

import formulas as f
import jax
import jax.numpy as jnp
import numpy as np

from from_pages import flags, integers, normal, uniform

A, M, N, K, T, D = 4, 11, 5, 3, 7, 2
stop = jax.lax.stop_gradient
INPUTS = {
    "v": normal(),
    "q": normal(A),
    "a": jnp.int32(2),
    "r_t": jnp.float32(0.3),
    "discount_t": jnp.float32(0.9),
    "next_v": normal(),
    "next_q": normal(A),
    "next_a": jnp.int32(1),
    "probs": jax.nn.softmax(normal(A)),
    "selector": normal(A),
    "next_qs": normal(2),
    "log_prob": normal(),
    "atoms": jnp.linspace(-2.0, 2.0, M),
    "logits": normal(A, M),
    "next_logits": normal(A, M),
    "quantiles": normal(N, A),
    "next_quantiles": normal(N, A),
    "tau": jnp.arange(N) / N,
    "targets": normal(K),
    "log_probs": (log_probs := normal(T)),
    "old_log_probs": log_probs + normal(T, scale=0.3),
    "adv": normal(T),
    "action": normal(D),
    "dqda": normal(D),
    "sign": 1.0 - 2.0 * integers(2),
    "rewards": normal(T),
    "discounts": 0.9 * (1 - flags(3, length=T)),
    "priorities": uniform(A, low=0.1),
    "mean": normal(D),
    "stddev": uniform(D, low=0.5, high=2.0),
    "key": jax.random.key(0),
    "noise": normal(D),
    "dones": flags(1, length=A),
    "q_batch": normal(T, A),
    "q_targ": normal(T, A),
    "actions": integers(A, T),
    "weights": jnp.array([0.01, 0.1, 0.5, 1.0, 3.0, 10.0, 30.0]),
}
TRAINED = {"v", "q", "q_batch", "logits", "quantiles", "log_probs", "log_prob"}


def td_error(target, prediction):
    return stop(target) - prediction


def q_learning_batch(q_batch, q_targ, actions, rewards, discounts, weights):
    error = rewards + discounts * jnp.max(q_targ, axis=1)
    error -= q_batch[jnp.arange(T), actions]
    return jnp.mean(jnp.clip(weights, 0.1, 10) * f.huber(error))


def kl_divergence(logits, next_logits):
    log_p, log_q = jax.nn.log_softmax(logits), jax.nn.log_softmax(next_logits)
    return jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=-1)


def n_step_entropy(logits, dones):
    """Return the discounted entropies of the first steps, those after an end off."""
    total, valid = 0.0, 1.0
    for n in range(A):
        total += 0.99**n * valid * f.entropy(logits[n])
        valid *= 1.0 - dones[n]
    return -0.1 * total


def quantiles_uniform(key):
    draws = jax.random.uniform(key, (N,))
    return jnp.cumsum(draws / jnp.sum(draws))


def prioritized(priorities, probs):
    p = priorities**0.6
    weights = (A * probs) ** -0.4
    return p / jnp.sum(p), weights / jnp.max(weights)


def v_of_bins(atoms, logits, r_t, discount_t, next_logits):
    return f.c51(atoms, logits, 0, r_t, discount_t, next_logits[:1])


ROWS = {
    "SimpleTD": lambda v, r_t, discount_t, next_v: td_error(
        r_t + discount_t * next_v, v
    ),
    "Sarsa": lambda q, a, r_t, discount_t, next_q, next_a: td_error(
        r_t + discount_t * next_q[next_a], q[a]
    ),
    "ExpectedSarsa": lambda q, a, r_t, discount_t, next_q, probs: td_error(
        r_t + discount_t * (probs @ next_q), q[a]
    ),
    "QLearning": lambda q, a, r_t, discount_t, next_q: td_error(
        r_t + discount_t * jnp.max(next_q), q[a]
    ),
    "QLearning: loss of a batch": q_learning_batch,
    "QLearning: td_error": lambda v, next_v: jnp.clip(next_v - v, -1, 1),
    "DoubleQLearning": lambda q, a, r_t, discount_t, next_q, selector: td_error(
        r_t + discount_t * next_q[jnp.argmax(selector)], q[a]
    ),
    "SoftQLearning": lambda q, a, r_t, discount_t, next_q: td_error(
        r_t + discount_t * 0.3 * jax.nn.logsumexp(next_q / 0.3), q[a]
    ),
    "ClippedDoubleQLearning": lambda r_t, discount_t, next_qs: (
        r_t + discount_t * jnp.min(next_qs)
    ),
    "SoftClippedDoubleQLearning": lambda r_t, discount_t, next_qs: (
        r_t + discount_t * jnp.min(next_qs)
    ),
    "SimpleTD of a StochasticV over bins": (
        v_of_bins,
        "atoms logits r_t discount_t next_logits",
    ),
    "QLearning of a StochasticQ over bins": (
        f.c51,
        "atoms logits a r_t discount_t next_logits",
    ),
    "QLearning of a StochasticQ over quantiles": (
        f.quantile_q,
        "quantiles tau a r_t discount_t next_quantiles next_quantiles",
    ),
    "value_transforms.LogTransform": lambda q: jnp.sign(q) * jnp.log(1 + jnp.abs(q)),
    "VanillaPG": lambda log_probs, adv: -adv * log_probs,
    "PPOClip": (f.clipped, "log_probs old_log_probs adv"),
    "DeterministicPG": lambda dqda: -dqda,
    "SoftPG": lambda log_prob, next_qs: 0.2 * log_prob - jnp.min(next_qs),
    "EntropyRegularizer": lambda logits: jnp.mean(-0.1 * f.entropy(logits)),
    "NStepEntropyRegularizer": n_step_entropy,
    "KLDivRegularizer": kl_divergence,
    "mse": lambda v, next_v: 0.5 * (v - next_v) ** 2,
    "huber": lambda v, next_v: f.huber(next_v - v),
    "logloss": lambda probs: -(1 - probs) * jnp.log(probs) - probs * jnp.log(1 - probs),
    "logloss_sign": lambda sign, v: jnp.log(1.0 + jnp.exp(-sign * v)),
    "quantile_huber": lambda targets, quantiles, tau: (
        f.quantile_huber(quantiles[:, 0], tau, targets, 0.5) / 0.5 * K / N
    ),
    "NStep": (f.n_step, "rewards discounts"),
    "MonteCarlo": (f.backwards, "rewards discounts"),
    "PrioritizedReplayBuffer": prioritized,
    "EpsilonGreedy": lambda q: 0.1 / A + 0.9 * jax.nn.one_hot(jnp.argmax(q), A),
    "BoltzmannPolicy": lambda q: jax.nn.softmax(q / 0.5),
    "proba_dists.CategoricalDist": lambda a, q: (
        jax.nn.log_softmax(q)[a],
        f.entropy(q),
    ),
    "proba_dists.NormalDist": (f.log_normal, "action mean stddev"),
    "proba_dists.SquashedNormalDist": lambda action, mean, stddev: (
        f.log_normal(action, mean, stddev) - jnp.sum(jnp.log(1 - jnp.tanh(action) ** 2))
    ),
    "utils.OrnsteinUhlenbeckNoise": lambda key, noise: (
        noise + 0.15 * (0.0 - noise) + 0.2 * jax.random.normal(key, (D,))
    ),
    "utils.quantiles": lambda: jnp.arange(N, dtype=np.float32) / N,
    "utils.quantiles_uniform": quantiles_uniform,
    "utils.quantile_cos_embedding": lambda tau: jnp.cos(
        jnp.arange(1, 5) * np.pi * tau[:, None]
    ),
    "soft_update": lambda q, next_q: 0.01 * q + 0.99 * next_q,
}
