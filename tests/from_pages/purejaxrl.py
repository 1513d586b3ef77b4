"""PureJaxRL, PureJaxQL and Rejax.

luchris429/purejaxrl@31756b1, `purejaxrl/{ppo,ppo_rnn,dqn,dpo_continuous_action}.py` and
`wrappers.py`; mttga/purejaxql@47af6d7, `purejaxql/{pqn_gymnax,pqn_rnn_gymnax}.py`;
keraJLi/rejax@d751095, `src/rejax/algos/{pqn,iqn,dqn,sac,td3}.py`.
"""

import formulas as f
import jax
import jax.numpy as jnp

from from_pages import flags, integers, normal, uniform

T, A, N, M = 8, 4, 5, 1000
stop = jax.lax.stop_gradient
INPUTS = {
    "values": (values := normal(T + 1))[:-1],
    "v_t": values[1:],
    "r_t": normal(T),
    "discount_t": 0.9 * (1 - flags(2, length=T)),
    "done": flags(3, length=T + 1).astype(jnp.float32),
    "adv": normal(T),
    "log_prob": (log_prob := normal(T)),
    "old_log_prob": log_prob + normal(T, scale=0.3),
    "v": (v := normal(T)),
    "old_v": v + normal(T, scale=0.3),
    "target": normal(T),
    "q": normal(T, A),
    "a": integers(A, T),
    "next_q": normal(T, A),
    "observation": 3 + normal(M, 3),
    "quantiles": normal(N, A),
    "next_quantiles": normal(N, A),
    "tau": uniform(N),
    "logits": normal(T, A),
    "qs": normal(2, T, A),
    "log_alpha": jnp.float32(-0.4),
}
TRAINED = {"log_prob", "v", "q", "quantiles", "logits", "log_alpha"}


def td_error(q, a, r_t, discount_t, next_q):
    return f.pick(q, a) - (r_t + discount_t * jnp.max(next_q, axis=-1))


def iqn(quantiles, tau, a, r_t, discount_t, next_quantiles):
    """Return the mean over targets of the sums over quantiles."""
    step = a[0], r_t[0], discount_t[0], next_quantiles, next_quantiles
    return f.quantile_q(quantiles, tau, *step, kappa=0.5) / 0.5


ROWS = {
    "ppo: advantages": (f.gae, "values r_t discount_t v_t"),
    "ppo: policy": lambda log_prob, old_log_prob, adv: f.clipped(
        log_prob, old_log_prob, f.standardized(adv)
    ),
    "ppo: value": (f.clipped_values, "v old_v target"),
    "ppo_rnn: advantages": lambda values, r_t, done, v_t: f.gae(
        values, r_t, 0.9 * (1 - done[1:]), v_t
    ),
    "dpo_continuous_action": lambda log_prob, old_log_prob, adv: f.discovered(
        log_prob, old_log_prob, f.standardized(adv)
    ),
    "dqn": (lambda *x: td_error(*x) ** 2, "q a r_t discount_t next_q"),
    "NormalizeVecObservation": (f.normalized, "observation"),
    "pqn_rnn_gymnax: targets": lambda r_t, discount_t, v_t: f.pqn(
        r_t, discount_t == 0, v_t
    ),
    "pqn_gymnax: targets": lambda r_t, discount_t, v_t: f.pqn(
        r_t, discount_t == 0, v_t, late=True
    ),
    "pqn_gymnax: loss": lambda q, a, target: 0.5 * (f.pick(q, a) - target) ** 2,
    "PQN.calculate_targets": lambda r_t, discount_t, v_t: f.lambda_returns(
        r_t, discount_t.at[-1].set(0.9), jnp.append(v_t[1:], v_t[-1]), 0.65
    ),
    "IQN.update": iqn,
    "DQN: loss": (lambda *x: 0.5 * td_error(*x) ** 2, "q a r_t discount_t next_q"),
    "SAC: discrete target": lambda r_t, discount_t, logits, qs: (
        r_t + discount_t * f.soft_value(logits, qs)
    ),
    "SAC: discrete actor": lambda logits, qs: -f.soft_value(logits, qs),
    "SAC: alpha": lambda log_alpha, log_prob: (
        -jnp.exp(log_alpha) * stop(log_prob - 3.0)
    ),
    "TD3: target": lambda r_t, discount_t, next_q: (
        r_t + discount_t * jnp.minimum(next_q[:, 0], next_q[:, 1])
    ),
}
