"""TorchRL, pytorch/rl@ae9719f.

`torchrl/objectives/value/functional.py`, `torchrl/objectives/*.py`,
`torchrl/modules/functional.py`, `torchrl/modules/models/dreamer_v3.py`.
"""

import formulas as f
import jax
import jax.numpy as jnp

from from_pages import flags, integers, normal

T, A, D, M = 6, 4, 3, 5
stop = jax.lax.stop_gradient
INPUTS = {
    "v_tm1": normal(T),
    "v_t": normal(T),
    "r_t": normal(T),
    "discount_t": 0.9 * (1 - flags(4, length=T)),
    "truncated_t": flags(2, length=T),
    "row_v_t": normal(T),
    "row_discount_t": 0.9 * (1 - flags(4, length=T)),
    "log_pi": normal(T, scale=0.5),
    "log_mu": normal(T, scale=0.5),
    "log_prob": (log_prob := normal(T)),
    "old_log_prob": log_prob + normal(T, scale=0.3),
    "next_log_prob": normal(T),
    "adv": normal(T),
    "q": normal(T, A),
    "a": integers(A, T),
    "next_q": normal(T, A),
    "qs": normal(2, T),
    "next_qs": normal(2, T),
    "log_alpha": jnp.float32(-0.4),
    "v": normal(T),
    "old_v": normal(T),
    "target": normal(T),
    "action": normal(T, D),
    "data_action": normal(T, D),
    "kl": jnp.abs(normal(T, scale=0.1)),
    "atoms": jnp.linspace(-2.0, 2.0, M),
    "atom_logits": normal(T, A, M),
    "next_atom_logits": normal(T, A, M),
    "logits": normal(T, A),
    "action_qs": normal(2, T, A),
    "tau": (jnp.arange(4) + 0.5) / 4,
    "quantiles": normal(T, 4),
    "next_quantiles": normal(T, 2, 4),
    "sample_log_probs": normal(T, A),
    "hidden_weights": normal(T, D, 4),
    "hidden_bias": normal(T, 4),
    "output_weights": normal(T, 4),
}
INPUTS |= {
    "state_value": normal(2, T, 1),
    "next_state_value": normal(2, T, 1),
    "reward": normal(2, T, 1),
    "terminated": (terminated := flags(3, 4, 11, length=2 * T).reshape(2, T, 1)),
    "done": terminated | flags(1, 8, length=2 * T).reshape(2, T, 1),
}
INPUTS["row_v_t"] = INPUTS["row_v_t"].at[:-1].set(INPUTS["v_tm1"][1:])
TRAINED = {"log_prob", "q", "qs", "log_alpha", "v", "action", "quantiles"} | {
    *("atom_logits", "hidden_weights", "hidden_bias", "output_weights")
}


def lambda_return(r_t, discount_t, v_t, truncated_t, lambda_):
    """Compute TD(λ), which begins anew where an episode was cut."""
    total, found = v_t[-1], []
    for t in reversed(range(T)):
        total = jnp.where(truncated_t[t], v_t[t], total)
        bootstrap = (1 - lambda_) * v_t[t] + lambda_ * total
        total = r_t[t] + discount_t[t] * bootstrap
        found = [total, *found]
    return jnp.stack(found)


def gae(state_value, next_state_value, reward, done, terminated):
    target = reward + 0.9 * (1 - terminated) * next_state_value
    after = 0.9 * 0.95 * (1 - done)
    pairs = zip(target - state_value, after, strict=True)
    advantage = jnp.stack([f.backwards(*pair) for pair in pairs])
    return advantage, advantage + state_value


def vtrace(v_tm1, row_v_t, r_t, row_discount_t, log_pi, log_mu):
    rho = jnp.minimum(jnp.exp(log_pi - log_mu), 1.0)
    deltas = rho * (r_t + row_discount_t * row_v_t - v_tm1)
    targets = f.backwards(deltas, row_discount_t * rho) + v_tm1
    after = jnp.append(targets[1:], row_v_t[-1])
    return rho * (r_t + row_discount_t * after - v_tm1)


def sac_value(qs, r_t, discount_t, next_qs, next_log_prob):
    value = jnp.min(next_qs, axis=0) - 0.2 * next_log_prob
    return jnp.sum(f.huber(qs - (r_t + discount_t * value)), axis=0)


def iql_value(v, next_qs):
    return f.expectile(jnp.min(next_qs, axis=0) - v)


def iql_actor(log_prob, next_qs, old_v):
    weight = jnp.exp(3.0 * (jnp.min(next_qs, axis=0) - old_v))
    return -jnp.minimum(weight, 100) * log_prob


def distributional(atoms, atom_logits, a, r_t, discount_t, next_atom_logits, next_q):
    examples = atom_logits, a, r_t, discount_t, next_atom_logits, next_q
    return jax.vmap(lambda *example: f.c51(atoms, *example))(*examples)


def discrete_sac(qs, r_t, discount_t, logits, action_qs):
    target = r_t + discount_t * f.soft_value(logits, action_qs)
    return jnp.sum(f.huber(qs - target), axis=0)


def discrete_alpha(log_alpha, logits):
    log_prob = jnp.sum(jax.nn.softmax(logits) * jax.nn.log_softmax(logits), axis=-1)
    return -log_alpha * stop(log_prob + 0.5)


def redq(qs, r_t, discount_t, next_qs, next_log_prob):
    value = jnp.min(next_qs - 0.2 * next_log_prob, axis=0)
    return f.huber(qs - (r_t + discount_t * value))


def tqc(quantiles, next_quantiles, r_t, discount_t, next_log_prob):
    kept = jnp.sort(next_quantiles.reshape(T, 8), axis=-1)[:, :6]
    value = kept - 0.2 * next_log_prob[:, None]
    target = r_t[:, None] + discount_t[:, None] * value
    losses = jax.vmap(f.quantile_huber, in_axes=(0, None, 0))
    return losses(quantiles, f.middles(4), target) / 4


def mixed(action, hidden_weights, hidden_bias, output_weights, v, target):
    hidden = jnp.einsum("tn,tnh->th", action, jnp.abs(hidden_weights)) + hidden_bias
    team = jnp.sum(jax.nn.elu(hidden) * jnp.abs(output_weights), axis=-1) + v
    return (team - target) ** 2


def two_hot(target, atoms, atom_logits):
    decoded = jnp.sum(jax.nn.softmax(atom_logits[:, 0]) * atoms, axis=-1)
    return f.two_hot(target, atoms), decoded


def kl_terms(atom_logits, next_atom_logits):
    posterior, prior = f.unimix(atom_logits[0]), f.unimix(next_atom_logits[0])

    def kl(x, y):
        return jnp.maximum(jnp.sum(x * (jnp.log(x) - jnp.log(y))), 1.0)

    return kl(stop(posterior), prior), kl(posterior, stop(prior))


ROWS = {
    "generalized_advantage_estimate, vec_generalized_advantage_estimate": gae,
    "td0_return_estimate": lambda r_t, discount_t, v_t: r_t + discount_t * v_t,
    "td0_advantage_estimate": lambda v_tm1, r_t, discount_t, v_t: (
        r_t + discount_t * v_t - v_tm1
    ),
    "td1_return_estimate, vec_td1_return_estimate": (
        lambda *x: lambda_return(*x, 1.0),
        "r_t discount_t v_t truncated_t",
    ),
    "td1_advantage_estimate, vec_td1_advantage_estimate": (
        lambda v, *x: lambda_return(*x, 1.0) - v,
        "v_tm1 r_t discount_t v_t truncated_t",
    ),
    "td_lambda_return_estimate, vec_td_lambda_return_estimate": (
        lambda *x: lambda_return(*x, 0.95),
        "r_t discount_t v_t truncated_t",
    ),
    "td_lambda_advantage_estimate, vec_td_lambda_advantage_estimate": (
        lambda v, *x: lambda_return(*x, 0.95) - v,
        "v_tm1 r_t discount_t v_t truncated_t",
    ),
    "vtrace_advantage_estimate": vtrace,
    "reward2go": (f.backwards, "r_t discount_t"),
    "ReinforceLoss, A2CLoss": lambda log_prob, adv: -log_prob * adv,
    "PPOLoss": lambda log_prob, old_log_prob, adv: (
        -jnp.exp(log_prob - old_log_prob) * adv
    ),
    "ClipPPOLoss, IPPOLoss, MAPPOLoss": (f.clipped, "log_prob old_log_prob adv"),
    "ClipPPOLoss: normalize_advantage": lambda adv: (
        (adv - adv.mean()) / adv.std(ddof=1)
    ),
    "DQNLoss": lambda q, a, r_t, discount_t, next_q: (
        (f.pick(q, a) - (r_t + discount_t * jnp.max(next_q, axis=-1))) ** 2
    ),
    "SACLoss: qvalue": sac_value,
    "SACLoss: actor": lambda log_prob, qs: 0.2 * log_prob - jnp.min(qs, axis=0),
    "SACLoss: alpha": lambda log_alpha, log_prob: -log_alpha * stop(log_prob - 3.0),
    "TD3Loss: qvalue": lambda qs, r_t, discount_t, next_qs: jnp.sum(
        f.huber(qs - (r_t + discount_t * jnp.min(next_qs, axis=0))), axis=0
    ),
    "IQLLoss, DiscreteIQLLoss: value": iql_value,
    "IQLLoss, DiscreteIQLLoss: actor": iql_actor,
    "DiscreteCQLLoss: cql": lambda q, a: jax.nn.logsumexp(q, axis=-1) - f.pick(q, a),
    "TD3BCLoss: actor": (f.td3_bc, "v action data_action"),
    "distance_loss": lambda v, target: ((v - target) ** 2, f.huber(v - target)),
    "SoftUpdate": lambda q, next_q: 0.005 * q + 0.995 * next_q,
    "KLPENPPOLoss": lambda log_prob, old_log_prob, adv, kl: (
        -(jnp.exp(log_prob - old_log_prob) * adv - 0.5 * kl)
    ),
    "KLPENPPOLoss: beta": lambda kl: jnp.where(
        jnp.mean(kl) > 0.015, 1.0, jnp.where(jnp.mean(kl) < 0.01 / 1.5, 0.25, 0.5)
    ),
    "DistributionalDQNLoss": distributional,
    "DDPGLoss: value": lambda v, r_t, discount_t, v_t: (
        (v - (r_t + discount_t * v_t)) ** 2
    ),
    "DiscreteSACLoss: qvalue": discrete_sac,
    "DiscreteSACLoss: actor": lambda logits, action_qs: (
        -f.soft_value(logits, action_qs)
    ),
    "DiscreteSACLoss: alpha": discrete_alpha,
    "REDQLoss: qvalue": redq,
    "REDQLoss: actor": lambda log_prob, qs: -(qs - 0.2 * log_prob),
    "TQCLoss: qvalue": tqc,
    "CQLLoss: cql": lambda v, next_q, sample_log_probs: (
        jax.nn.logsumexp(next_q - sample_log_probs, axis=-1) - v
    ),
    "BCLoss, OnlineDTLoss, ACTLoss": lambda log_prob: -log_prob,
    "DTLoss, DiffusionBCLoss": lambda action, data_action: (action - data_action) ** 2,
    "RNDLoss": lambda action, data_action: jnp.mean(
        (action - stop(data_action)) ** 2, axis=-1
    ),
    "GAILLoss": lambda v, target: (
        -jnp.log(jax.nn.sigmoid(v)) - jnp.log(1 - jax.nn.sigmoid(target))
    ),
    "QMixerLoss": mixed,
    "symlog, symexp": lambda v: (f.symlog(v), f.symexp(v)),
    "two_hot_encode, two_hot_decode": two_hot,
    "two_hot_cross_entropy": lambda target, atoms, atom_logits: f.two_hot_loss(
        atom_logits[:, 0], target, atoms
    ),
    "categorical_kl_terms": kl_terms,
}
