"""d3rlpy, takuseno/d3rlpy@38c34b6, `d3rlpy/algos/qlearning/torch/*_impl.py`.

HumanCompatibleAI/imitation@e5ef188, `src/imitation/algorithms/bc.py`,
`src/imitation/algorithms/adversarial/*.py`, `src/imitation/rewards/reward_nets.py`.

david-cortes/contextualbandits@52b8dfc, `contextualbandits/online.py`,
`contextualbandits/linreg/`.
"""

import formulas as f
import jax
import jax.numpy as jnp

from from_pages import flags, integers, normal, uniform

B, A, D, N = 6, 4, 3, 5
stop = jax.lax.stop_gradient
INPUTS = {
    "log_prob": normal(B),
    "adv": normal(B),
    "action": normal(B, D),
    "data_action": normal(B, D),
    "q": normal(B),
    "q_samples": normal(B, N),
    "logits": normal(B, A, scale=2.0),
    "a": integers(A, B),
    "v": normal(B),
    "expert_logit": normal(B),
    "discount_t": 0.9 * (1 - flags(2, length=B)),
    "is_expert": flags(0, 3, length=B),
    "context": normal(D),
    "predictions": uniform(B, A, low=0.1, high=0.9),
}
TRAINED = {"log_prob", "logits", "v", "action", "expert_logit"}


def mmd(action, data_action, kernel):
    def mean(x, y):
        difference = x[:, None] - y[None]
        size = difference**2 if kernel == "gaussian" else jnp.abs(difference)
        return jnp.mean(jnp.exp(-jnp.sum(size, axis=-1) / (2 * 0.7)))

    squared = mean(action, action) + mean(data_action, data_action)
    return jnp.sqrt(squared - 2 * mean(action, data_action) + 1e-6)


def allowed(logits):
    log_probs = jax.nn.log_softmax(logits)
    return log_probs - jnp.max(log_probs, axis=1, keepdims=True) > jnp.log(0.3)


def rebrac(q, action, data_action):
    scale = 1 / stop(jnp.mean(jnp.abs(q)))
    return -scale * q + 0.1 * jnp.sum((data_action - action) ** 2, axis=1)


def discriminator(expert_logit, v):
    losses = -jax.nn.log_sigmoid(expert_logit), -jax.nn.log_sigmoid(-v)
    return (losses[0] + losses[1]) / 2


def shaped(q, adv, discount_t, v):
    return adv + 0.9 * (discount_t > 0) * v - q


def linucb(context, action):
    inverse = jnp.linalg.inv(2 * jnp.eye(D) + jnp.outer(context, context))
    width = jnp.sqrt(jnp.sum(action @ inverse * action, axis=1))
    return action @ inverse @ context * 1.5 + 0.5 * width


ROWS = {
    "BC, DiscreteBC": lambda log_prob: -log_prob,
    "AWAC": lambda log_prob, adv: -log_prob * B * jax.nn.softmax(adv / 0.5),
    "BEAR: gaussian": lambda action, data_action: mmd(action, data_action, "gaussian"),
    "BEAR: laplacian": lambda action, data_action: mmd(
        action, data_action, "laplacian"
    ),
    "CRR: binary": lambda q, q_samples: q > jnp.mean(q_samples, axis=1),
    "CRR: exp": lambda q, q_samples: jnp.clip(
        jnp.exp((q - jnp.max(q_samples, axis=1)) / 0.5), 0, 20
    ),
    "DiscreteBCQ": allowed,
    "DiscreteCQL": lambda logits, a: (
        jax.nn.logsumexp(logits, axis=1) - f.pick(logits, a)
    ),
    "IQL: value": lambda v, q: f.expectile(q - v),
    "IQL: actor": lambda log_prob, adv: (
        -jnp.minimum(jnp.exp(3.0 * adv), 100.0) * log_prob
    ),
    "ReBRAC: actor": rebrac,
    "TD3PlusBC: actor": (f.td3_bc, "q action data_action"),
    "BC: loss": lambda log_prob, logits: -log_prob - 1e-3 * f.entropy(logits),
    "GAIL, AIRL: discriminator": discriminator,
    "GAIL: reward": lambda v: stop(-jax.nn.log_sigmoid(-v)),
    "AIRL: logit": lambda q, log_prob, adv, discount_t, v: (
        shaped(q, adv, discount_t, v) - stop(log_prob)
    ),
    "AIRL: reward": shaped,
    "SQIL": lambda is_expert: is_expert.astype(float),
    "LinUCB": linucb,
    "SoftmaxExplorer": lambda predictions: jax.nn.softmax(
        2 * jnp.log(predictions / (1 - predictions))
    ),
}
