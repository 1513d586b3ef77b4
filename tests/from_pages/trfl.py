"""TRFL, google-deepmind/trfl@ed6eff5.

`trfl/value_ops.py`, `trfl/action_value_ops.py`, `trfl/sequence_ops.py`,
`trfl/retrace_ops.py`, `trfl/retrace_of_rhos_ops.py`, `trfl/dist_value_ops.py`,
`trfl/pixel_control_ops.py`, `trfl/vtrace_ops.py`, `trfl/policy_gradient_ops.py`,
`trfl/discrete_policy_gradient_ops.py`, `trfl/periodic_ops.py`.
"""

import formulas as f
import jax
import jax.numpy as jnp

from from_pages import flags, integers, normal, uniform

A, M, T = 4, 11, 6
stop = jax.lax.stop_gradient
INPUTS = {
    "v": normal(),
    "q": normal(A),
    "a": jnp.int32(2),
    "r_t": jnp.float32(0.3),
    "pcont_t": jnp.float32(0.9),
    "next_v": normal(),
    "next_q": normal(A),
    "selector": normal(A),
    "next_a": jnp.int32(1),
    "probs": jax.nn.softmax(normal(A)),
    "values": (values := normal(T + 1))[:-1],
    "next_values": values[1:],
    "rewards": normal(T),
    "pcontinues": 0.9 * (1 - flags(2, length=T)),
    "lambdas": uniform(T),
    "qs": normal(T, A),
    "next_qs": normal(T, A),
    "actions": (actions := integers(A, T + 1))[:-1],
    "next_actions": actions[1:],
    "pi": jax.nn.softmax(normal(T, A)),
    "mu": uniform(T, low=0.1),
    "q_values": normal(T),
    "log_rhos": normal(T, scale=0.3),
    "atoms": jnp.linspace(-2.0, 2.0, M),
    "logits": normal(A, M),
    "next_logits": normal(A, M),
    "images": uniform(3, 4, 4, 2),
    "policy_logits": normal(T, A),
    "behaviour_logits": normal(T, A),
    "adv": normal(T),
    "log_probs": normal(T),
    "action": normal(2),
    "dqda": normal(2),
    "mean": normal(2),
    "stddev": uniform(2, low=0.5, high=2.0),
    "next_mean": normal(2),
    "next_stddev": uniform(2, low=0.5, high=2.0),
    "cell_qs": normal(3, 2, 1, A),
    "box_actions": normal(T, 2),
    "means": normal(T, 2),
    "stddevs": uniform(T, 2, low=0.5, high=2.0),
}
TRAINED = {
    *("v", "q", "qs", "logits", "policy_logits", "values", "next_values", "next_v"),
    *("next_q", "next_qs", "log_probs", "cell_qs", "means", "stddevs"),
}


def loss(target, prediction):
    return 0.5 * (stop(target) - prediction) ** 2


def log_prob(logits, actions):
    return f.pick(jax.nn.log_softmax(logits), actions)


def lambda_view(rewards, pcontinues, next_values):
    return f.lambda_returns(rewards, pcontinues, next_values, jnp.full(T, 0.8))


def qlambda(qs, actions, rewards, pcontinues, next_qs):
    best = jnp.max(next_qs, axis=1)
    target = lambda_view(rewards, pcontinues, best)
    return loss(target, f.pick(qs, actions))


def sarsa_lambda(qs, actions, rewards, pcontinues, next_qs, next_actions):
    taken = f.pick(next_qs, next_actions)
    target = lambda_view(rewards, pcontinues, taken)
    return loss(target, f.pick(qs, actions))


def retrace_core(qs, next_qs, actions, next_actions, rewards, pcontinues, pi, mu):
    c_t = 0.8 * jnp.minimum(1.0, f.pick(pi, next_actions) / mu)
    expected, taken = jnp.sum(pi * next_qs, axis=1), f.pick(next_qs, next_actions)
    c_t = c_t.at[-1].set(0.0)
    value = expected - c_t * taken
    target = f.backwards(rewards + pcontinues * value, pcontinues * c_t)
    return loss(target, f.pick(qs, actions))


def retrace_of_rhos(q_values, next_values, rewards, pcontinues, log_rhos):
    cs = jnp.minimum(1.0, jnp.exp(log_rhos))
    cs = 0.8 * jnp.append(cs[1:], 1.0)
    deltas = rewards + pcontinues * next_values - q_values
    return stop(f.backwards(deltas, pcontinues * cs) + q_values)


def pixel_control(images):
    """Return the mean absolute change of each cell of 2 by 2 pixels."""
    change = jnp.abs(images[1:] - images[:-1])
    return jnp.mean(change.reshape(2, 2, 2, 2, 2, 2), axis=(2, 4, 5))


def pixel_control_loss(images, actions, cell_qs):
    observations, q = 0.5 * images[:, :, 2:4], cell_qs[:, :, 0]
    change = jnp.abs(observations[1:] - observations[:-1])
    pseudo_rewards = jnp.mean(change.reshape(2, 2, 2, 2, 2), axis=(2, 3, 4))
    total, found = jnp.max(q[-1], axis=-1), 0.0
    for t in (1, 0):
        # With a λ of 1.
        total = pseudo_rewards[t] + 0.9 * total
        found += jnp.sum(loss(total, q[t, :, actions[t]]))
    return found


def of_length(rewards, pcontinues, next_v):
    return jnp.pad(f.backwards(rewards[:4], pcontinues[:4], next_v), (0, T - 4))


def vtrace(values, next_values, rewards, pcontinues, log_rhos):
    rhos = jnp.minimum(1.0, jnp.exp(log_rhos))
    deltas = rhos * (rewards + pcontinues * next_values - values)
    vs = f.backwards(deltas, pcontinues * rhos) + values
    later = jnp.append(vs[1:], next_values[-1])
    return stop((vs, rhos * (rewards + pcontinues * later - values)))


def a2c(log_prob, entropies, values, rewards, pcontinues, next_values):
    returns = lambda_view(rewards, pcontinues, next_values)
    critic = jnp.sum(loss(returns, values))
    actor = -jnp.sum(log_prob * stop(returns - values))
    return actor + 0.5 * critic - 0.01 * jnp.sum(entropies)


def discrete_a2c(policy_logits, actions, values, rewards, pcontinues, next_values):
    of_actions = log_prob(policy_logits, actions)
    stream = values, rewards, pcontinues, next_values
    return a2c(of_actions, f.entropy(policy_logits), *stream)


def gaussian_a2c(means, stddevs, box_actions, values, rewards, pcontinues, next_values):
    z = (box_actions - means) / stddevs
    scale = jnp.log(stddevs) + 0.5 * jnp.log(2 * jnp.pi)
    stream = values, rewards, pcontinues, next_values
    return a2c(jnp.sum(-0.5 * z**2 - scale, 1), jnp.sum(0.5 + scale, 1), *stream)


def periodically(q, next_q):
    # The counter begins high enough for the first call to update.
    counter, found = 3, []
    for _ in range(7):
        found.append(q if counter >= 3 else next_q)
        counter = 1 if counter >= 3 else counter + 1
    return jnp.stack(found)


def dpg(action, dqda):
    return 0.5 * (stop(dqda + action) - action) ** 2


def kl_gaussian(mean, stddev, next_mean, next_stddev):
    moved = (stddev**2 + (mean - next_mean) ** 2) / (2 * next_stddev**2)
    return jnp.sum(jnp.log(next_stddev / stddev) + moved - 0.5)


ROWS = {
    "td_learning": lambda v, r_t, pcont_t, next_v: loss(r_t + pcont_t * next_v, v),
    "td_learning: td_error": lambda v, r_t, pcont_t, next_v: (
        stop(r_t + pcont_t * next_v) - v
    ),
    "qlearning": lambda q, a, r_t, pcont_t, next_q: loss(
        r_t + pcont_t * jnp.max(next_q), q[a]
    ),
    "double_qlearning": lambda q, a, r_t, pcont_t, next_q, selector: loss(
        r_t + pcont_t * next_q[jnp.argmax(selector)], q[a]
    ),
    "persistent_qlearning": lambda q, a, r_t, pcont_t, next_q: loss(
        r_t + pcont_t * (0.5 * jnp.max(next_q) + 0.5 * next_q[a]), q[a]
    ),
    "sarsa": lambda q, a, r_t, pcont_t, next_q, next_a: loss(
        r_t + pcont_t * next_q[next_a], q[a]
    ),
    "sarse": lambda q, a, r_t, pcont_t, next_q, probs: loss(
        r_t + pcont_t * (probs @ next_q), q[a]
    ),
    "qv_learning": lambda q, a, r_t, pcont_t, next_v: loss(
        r_t + pcont_t * next_v, q[a]
    ),
    "qv_max": lambda v, r_t, pcont_t, next_q: loss(r_t + pcont_t * jnp.max(next_q), v),
    "td_lambda": (
        lambda v, *x: jnp.sum(loss(lambda_view(*x), v)),
        "values rewards pcontinues next_values",
    ),
    "qlambda": qlambda,
    "sarsa_lambda": sarsa_lambda,
    "retrace_core, retrace": retrace_core,
    "retrace_from_importance_weights, retrace_from_action_log_probs": retrace_of_rhos,
    "categorical_dist_td_learning": lambda atoms, logits, r_t, pcont_t, next_logits: (
        f.c51(atoms, logits, 0, r_t, pcont_t, next_logits[:1])
    ),
    "categorical_dist_qlearning": (f.c51, "atoms logits a r_t pcont_t next_logits"),
    "categorical_dist_double_qlearning": (
        f.c51,
        "atoms logits a r_t pcont_t next_logits selector",
    ),
    "pixel_control_rewards": pixel_control,
    "pixel_control_loss": pixel_control_loss,
    "generalized_lambda_returns": (lambda_view, "rewards pcontinues next_values"),
    "multistep_forward_view": (
        f.lambda_returns,
        "rewards pcontinues next_values lambdas",
    ),
    "scan_discounted_sum": (f.backwards, "rewards pcontinues next_v"),
    "scan_discounted_sum: sequence_lengths": of_length,
    "vtrace_from_importance_weights": vtrace,
    "vtrace_from_logits": lambda policy_logits, behaviour_logits, actions: jnp.exp(
        log_prob(policy_logits, actions) - log_prob(behaviour_logits, actions)
    ),
    "discrete_policy_gradient": lambda policy_logits, actions, adv: (
        -adv * log_prob(policy_logits, actions)
    ),
    "discrete_policy_gradient_loss": lambda policy_logits, actions, adv: jnp.sum(
        -adv * log_prob(policy_logits, actions)
    ),
    "policy_gradient, policy_gradient_loss": lambda log_probs, adv: -adv * log_probs,
    "discrete_policy_entropy_loss": lambda policy_logits: (
        -jnp.sum(f.entropy(policy_logits))
    ),
    "policy_entropy_loss": lambda policy_logits: -f.entropy(policy_logits),
    "sequence_advantage_actor_critic_loss": discrete_a2c,
    "sequence_a2c_loss": gaussian_a2c,
    "dpg": dpg,
    "epsilon_greedy": lambda q: 0.1 / A + 0.9 * jax.nn.one_hot(jnp.argmax(q), A),
    "huber_loss": lambda q: f.huber(q, 0.5),
    "batched_index": (f.pick, "policy_logits actions"),
    "periodic_target_update, periodically": periodically,
    "update_target_variables": lambda q, next_q: 0.1 * q + 0.9 * next_q,
    "distribution_ops.l2_project": lambda atoms, logits: f.project(
        0.1, 1.0, jax.nn.softmax(logits[0]), atoms
    ),
    "distribution_ops.factorised_kl_gaussian": kl_gaussian,
}
