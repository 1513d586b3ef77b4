"""Losses of agents in plain `jax.numpy`, and batches for them: the tests of recipes."""

from types import SimpleNamespace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from recipes.continuous import ActorCritic

B, T, A, D, F, M = 4, 5, 3, 2, 4, 7
KEY = jax.random.key(7)
stop = jax.lax.stop_gradient
RANDOM = np.random.default_rng(0)


def normal(*shape):
    return jnp.asarray(RANDOM.normal(size=shape), jnp.float32)


# --- Batches, and linear networks. ---


def make_batch(shape, **others):
    return SimpleNamespace(
        a_tm1=jnp.asarray(RANDOM.integers(A, size=shape)),
        r_t=normal(*shape),
        discount_t=jnp.asarray(RANDOM.choice([0.9, 0.0, 0.9], shape), jnp.float32),
        probability=jnp.asarray(RANDOM.uniform(0.1, 1, B), jnp.float32),
        **others,
    )


ONE = make_batch((B,), s_tm1=normal(B, F), s_t=normal(B, F))
N_STEP = make_batch((B, 3), s_tm1=normal(B, F), s_t=normal(B, F))
N_STEP.a_tm1 = ONE.a_tm1
STREAM = make_batch(
    (B, T),
    s=normal(B, T + 1, F),
    logits_tm1=normal(B, T, A),
    values=normal(B, T + 1),
    state=normal(B, F),
)
ACTION = make_batch((B,), s_tm1=normal(B, F), s_t=normal(B, F))
ACTION.a_tm1 = jnp.tanh(normal(B, D))
SEARCH = SimpleNamespace(
    s=normal(B, F),
    a_tm1=None,
    r_t=normal(B, T),
    logits=normal(B, T + 1, A),
    q=jax.nn.sigmoid(normal(B, T + 1, A)),
    visits=jnp.asarray(RANDOM.integers(4, size=(B, T + 1, A))),
    v=jax.nn.sigmoid(normal(B, T + 1)),
    returns=normal(B, T + 1),
)


def linear(*shape):
    """Return a network with outputs of a shape, and its parameters twice."""

    def apply(w, s):
        return (s @ w).reshape(*s.shape[:-1], *shape)

    size = int(np.prod(shape))
    return apply, (0.5 * normal(F, size), 0.5 * normal(F, size))


Q, Q_PARAMS = linear(A)
ATOMS, ATOMS_PARAMS = linear(A, M)
QUANTILES, QUANTILES_PARAMS = linear(M, A)
PAIR, PAIR_PARAMS = linear(A + 1)
TWO_Q, TWO_Q_PARAMS = linear(2 * A)


def policy_and_value(w, s):
    x = PAIR(w, s)
    return x[..., :A], x[..., A]


def policy_and_q(w, s):
    x = TWO_Q(w, s)
    return x[..., :A], x[..., A:]


def implicit(w, s, tau):
    return jnp.cos(tau)[..., None] * Q(w, s)[:, None] + tau[..., None]


def fractions(params, s):
    widths = jax.nn.softmax(s @ params["fractions"])
    first = jnp.zeros_like(widths[:, :1])
    return jnp.concatenate([first, jnp.cumsum(widths, axis=-1)], axis=-1)


FQF = SimpleNamespace(
    fractions=fractions,
    quantiles=lambda params, s, tau: implicit(params["quantiles"], s, tau),
)
FQF_PARAMS = tuple({"fractions": normal(F, M), "quantiles": q} for q in Q_PARAMS)


def recurrent(w, state, s):
    return Q(w, s + state[:, None])


def mean_and_stddev(w, s):
    mean, stddev = jnp.split(s @ w, 2, axis=-1)
    return mean, jax.nn.softplus(stddev)


def actor_critic(*shape, gaussian=True):
    """Return networks for continuous actions, and their parameters twice."""

    def critic(w, s, a):
        return jnp.tanh(jnp.concatenate([s, a], -1) @ w).reshape(*a.shape[:-1], *shape)

    size = 2 * D if gaussian else D
    actor = mean_and_stddev if gaussian else lambda w, s: jnp.tanh(s @ w)
    return ActorCritic(actor, critic), tuple(
        ActorCritic(normal(F, size), normal(F + D, int(np.prod(shape))), duals)
        for duals in (jnp.array([1.0, 2.0, 3.0]),) * 2
    )


DPG, DPG_PARAMS = actor_critic(gaussian=False)
TD3, TD3_PARAMS = actor_critic(2, gaussian=False)
D4PG, D4PG_PARAMS = actor_critic(M, gaussian=False)
MPO, MPO_PARAMS = actor_critic()
SAC, SAC_PARAMS = actor_critic(3)
TQC, TQC_PARAMS = actor_critic(3, M)
MPO_A = ActorCritic(Q, Q)
MPO_A_PARAMS = tuple(
    ActorCritic(normal(F, A), normal(F, A), jnp.array([1.0, 2.0])) for _ in range(2)
)


class Policy(NamedTuple):
    policy: jax.Array
    duals: jax.Array


VMPO_PARAMS = tuple(Policy(w, jnp.array([1.0, 2.0])) for w in PAIR_PARAMS)


# --- The losses in plain `jax.numpy`. ---


def pick(x, a):
    return jnp.take_along_axis(x, a[..., None], axis=-1)[..., 0]


def huber(x):
    return jnp.where(jnp.abs(x) < 1, x**2 / 2, jnp.abs(x) - 0.5)


def log_prob(logits, a):
    return pick(jax.nn.log_softmax(logits), a)


def mean_entropy(logits):
    log_pi = jax.nn.log_softmax(logits)
    return -jnp.mean(jnp.sum(jnp.exp(log_pi) * log_pi, axis=-1))


def backward(r_t, discount_t, v_t, lambda_, last):
    """Return λ-returns of streams, by a loop."""
    returns = []
    for t in reversed(range(r_t.shape[1])):
        mixed = (1 - lambda_) * v_t[:, t] + lambda_ * last
        last = r_t[:, t] + discount_t[:, t] * mixed
        returns.append(last)
    return jnp.stack(returns[::-1], axis=1)


def project(r, discount, probs, atoms):
    """Return the projection of shifted atoms onto the same atoms (C51)."""
    z = jnp.clip(r[:, None] + discount[:, None] * atoms, atoms[0], atoms[-1])
    distance = jnp.abs(z[:, :, None] - atoms) / (atoms[1] - atoms[0])
    return jnp.sum(probs[:, :, None] * jnp.clip(1 - distance, 0, 1), axis=1)


def cross_entropy(probs, logits):
    return -jnp.sum(probs * jax.nn.log_softmax(logits), axis=-1)


def quantile(x, tau, y):
    """Return the quantile Huber loss of `[B, N]` and targets `[B, K]`."""
    u = stop(y)[:, None] - x[:, :, None]
    weight = jnp.abs(tau[..., :, None] - (u < 0))
    return jnp.mean(jnp.sum(jnp.mean(weight * huber(u), axis=2), axis=1))


def one_step(value, b=ONE):
    return b.r_t + b.discount_t * value


def plain_dqn(p, t):
    target = one_step(jnp.max(Q(t, ONE.s_t), -1))
    return jnp.mean(huber(stop(target) - pick(Q(p, ONE.s_tm1), ONE.a_tm1)))


def plain_double_dqn(p, t, q=Q):
    best = jnp.argmax(q(p, ONE.s_t), -1)
    target = one_step(pick(q(t, ONE.s_t), best))
    return jnp.mean(huber(stop(target) - pick(q(p, ONE.s_tm1), ONE.a_tm1)))


def duelling(w, s):
    advantages, v = policy_and_value(w, s)
    return v[..., None] + advantages - jnp.mean(advantages, -1, keepdims=True)


def plain_c51(p, t):
    atoms = jnp.linspace(-10, 10, M)
    rows = jnp.arange(B)
    probs = jax.nn.softmax(ATOMS(t, ONE.s_t))
    probs = probs[rows, jnp.argmax(probs @ atoms, -1)]
    target = project(ONE.r_t, ONE.discount_t, probs, atoms)
    logits = ATOMS(p, ONE.s_tm1)[rows, ONE.a_tm1]
    return jnp.mean(cross_entropy(stop(target), logits))


def plain_rainbow(p, t):
    atoms, b, rows = jnp.linspace(-10, 10, M), N_STEP, jnp.arange(B)
    d = b.discount_t
    r = b.r_t[:, 0] + d[:, 0] * (b.r_t[:, 1] + d[:, 1] * b.r_t[:, 2])
    best = jnp.argmax(jax.nn.softmax(ATOMS(p, b.s_t)) @ atoms, -1)
    probs = jax.nn.softmax(ATOMS(t, b.s_t))[rows, best]
    target = project(r, d[:, 0] * d[:, 1] * d[:, 2], probs, atoms)
    loss = cross_entropy(stop(target), ATOMS(p, b.s_tm1)[rows, b.a_tm1])
    return jnp.mean((jnp.min(b.probability) / b.probability) ** 0.4 * loss)


def plain_qr_dqn(p, t):
    rows, q_t = jnp.arange(B), QUANTILES(t, ONE.s_t)
    best = jnp.argmax(jnp.mean(q_t, axis=1), -1)
    y = ONE.r_t[:, None] + ONE.discount_t[:, None] * q_t[rows, :, best]
    x = QUANTILES(p, ONE.s_tm1)[rows, :, ONE.a_tm1]
    return quantile(x, (jnp.arange(M) + 0.5) / M, y)


def plain_iqn(p, t):
    keys, rows = jax.random.split(KEY, 3), jnp.arange(B)
    tau, tau_t, tau_policy = (
        jax.random.uniform(k, (B, n)) for k, n in zip(keys, (6, 6, 4), strict=True)
    )
    best = jnp.argmax(jnp.mean(implicit(t, ONE.s_t, tau_policy), axis=1), -1)
    z = implicit(t, ONE.s_t, tau_t)[rows, :, best]
    y = ONE.r_t[:, None] + ONE.discount_t[:, None] * z
    return quantile(implicit(p, ONE.s_tm1, tau)[rows, :, ONE.a_tm1], tau, y)


def plain_fqf(p, t):
    rows = jnp.arange(B)
    tau, tau_t = stop(fractions(p, ONE.s_tm1)), stop(fractions(p, ONE.s_t))
    mid, mid_t = (tau[:, 1:] + tau[:, :-1]) / 2, (tau_t[:, 1:] + tau_t[:, :-1]) / 2
    q_t = FQF.quantiles(t, ONE.s_t, mid_t)
    best = jnp.argmax(jnp.einsum("bn,bna->ba", jnp.diff(tau_t), q_t), -1)
    y = ONE.r_t[:, None] + ONE.discount_t[:, None] * q_t[rows, :, best]
    return quantile(FQF.quantiles(p, ONE.s_tm1, mid)[rows, :, ONE.a_tm1], mid, y)


def plain_fqf_fractions(p, t):
    rows, tau = jnp.arange(B), fractions(p, ONE.s_tm1)
    mid = (tau[:, 1:] + tau[:, :-1]) / 2
    inner = FQF.quantiles(p, ONE.s_tm1, tau[:, 1:-1])[rows, :, ONE.a_tm1]
    outer = FQF.quantiles(p, ONE.s_tm1, mid)[rows, :, ONE.a_tm1]
    corrections = stop(2 * inner - outer[:, 1:] - outer[:, :-1])
    return jnp.mean(jnp.sum(tau[:, 1:-1] * corrections, axis=1))


def plain_munchausen(p, t):
    tau, q_t = 0.03, Q(t, ONE.s_t)
    log_pi = log_prob(Q(t, ONE.s_tm1) / tau, ONE.a_tm1)
    soft = tau * jax.nn.logsumexp(q_t / tau, axis=-1)
    target = one_step(soft) + 0.9 * jnp.maximum(-1, tau * log_pi)
    return jnp.mean(huber(stop(target) - pick(Q(p, ONE.s_tm1), ONE.a_tm1)))


def n_step(r_t, discount_t, v_t, n):
    """Return n-step returns of streams, each by a loop."""
    steps = r_t.shape[1]
    returns = []
    for t in range(steps):
        end = min(t + n, steps)
        value = v_t[:, end - 1]
        for k in reversed(range(t, end)):
            value = r_t[:, k] + discount_t[:, k] * value
        returns.append(value)
    return jnp.stack(returns, axis=1)


def rescale(x):
    return jnp.sign(x) * (jnp.sqrt(jnp.abs(x) + 1) - 1) + 1e-3 * x


def undo(y):
    root = jnp.sqrt(1 + 4e-3 * (jnp.abs(y) + 1 + 1e-3))
    return jnp.sign(y) * (((root - 1) / 2e-3) ** 2 - 1)


def plain_r2d2(p, t):
    b = STREAM
    q, target_q = recurrent(p, b.state, b.s), recurrent(t, b.state, b.s)
    v_t = undo(pick(target_q, jnp.argmax(q, -1))[:, 1:])
    target = rescale(n_step(b.r_t, b.discount_t, v_t, 2))
    errors = (stop(target) - pick(q[:, :-1], b.a_tm1)).at[:, :2].set(0.0)
    weights = (jnp.min(b.probability) / b.probability) ** 0.6
    return jnp.mean(weights[:, None] * errors**2 / 2)


def plain_ape_x(p, t):
    b, q = STREAM, Q(p, STREAM.s)
    v_t = pick(Q(t, b.s), jnp.argmax(q, -1))[:, 1:]
    target = n_step(b.r_t, b.discount_t, v_t, 3)
    weights = (jnp.min(b.probability) / b.probability) ** 0.4
    return jnp.mean(weights[:, None] * huber(stop(target) - pick(q[:, :-1], b.a_tm1)))


def plain_pqn(p, t):
    q = Q(p, STREAM.s)
    v_t = jnp.max(q, -1)[:, 1:]
    target = backward(STREAM.r_t, STREAM.discount_t, v_t, 0.65, v_t[:, -1])
    return jnp.mean((stop(target) - pick(q[:, :-1], STREAM.a_tm1)) ** 2 / 2)


def plain_reinforce(p, t):
    b, zeros = STREAM, jnp.zeros((B, T))
    returns = backward(b.r_t, b.discount_t, zeros, 1.0, zeros[:, 0])
    return -jnp.mean(log_prob(Q(p, b.s)[:, :-1], b.a_tm1) * returns)


def plain_a2c(p, t):
    b, (logits, v) = STREAM, policy_and_value(p, STREAM.s)
    logits = logits[:, :-1]
    returns = backward(b.r_t, b.discount_t, v[:, 1:], 1.0, v[:, -1])
    errors = stop(returns) - v[:, :-1]
    loss = -stop(errors) * log_prob(logits, b.a_tm1) + 0.5 * errors**2 / 2
    return jnp.mean(loss) - 0.01 * mean_entropy(logits)


def plain_impala(p, t):
    b, (logits, v) = STREAM, policy_and_value(p, STREAM.s)
    logits = logits[:, :-1]
    log_pi = log_prob(logits, b.a_tm1)
    rho = jnp.minimum(1, jnp.exp(log_pi - log_prob(b.logits_tm1, b.a_tm1)))
    errors, last = [], jnp.zeros(B)
    for k in reversed(range(T)):
        delta = b.r_t[:, k] + b.discount_t[:, k] * v[:, k + 1] - v[:, k]
        last = rho[:, k] * (delta + b.discount_t[:, k] * last)
        errors.append(last)
    errors = stop(jnp.stack(errors[::-1], axis=1))
    value_loss = (errors + stop(v[:, :-1]) - v[:, :-1]) ** 2 / 2
    return jnp.mean(-errors * log_pi + 0.5 * value_loss) - 0.01 * mean_entropy(logits)


def gae():
    b = STREAM
    v_t = b.values[:, 1:]
    target = backward(b.r_t, b.discount_t, v_t, 0.95, v_t[:, -1])
    adv = target - b.values[:, :-1]
    return (adv - jnp.mean(adv)) / jnp.std(adv), target


def surrogate(ratio, adv):
    return -jnp.minimum(ratio * adv, jnp.clip(ratio, 0.8, 1.2) * adv)


def plain_ppo(p, t):
    b, (logits, v), (adv, target) = STREAM, policy_and_value(p, STREAM.s), gae()
    logits, v, old_v = logits[:, :-1], v[:, :-1], b.values[:, :-1]
    ratio = jnp.exp(log_prob(logits, b.a_tm1) - log_prob(b.logits_tm1, b.a_tm1))
    clipped = jnp.clip(v, old_v - 0.2, old_v + 0.2)
    value_loss = jnp.maximum((v - target) ** 2, (clipped - target) ** 2) / 2
    loss = jnp.mean(surrogate(ratio, adv) + 0.5 * value_loss)
    return loss - 0.01 * mean_entropy(logits)


def plain_ppo_penalty(p, t):
    b, (logits, v), (adv, target) = STREAM, policy_and_value(p, STREAM.s), gae()
    log_pi, log_mu = (
        jax.nn.log_softmax(logits[:, :-1]),
        jax.nn.log_softmax(b.logits_tm1),
    )
    ratio = jnp.exp(pick(log_pi, b.a_tm1) - pick(log_mu, b.a_tm1))
    kl = jnp.sum(jnp.exp(log_mu) * (log_mu - log_pi), axis=-1)
    value_loss = (v[:, :-1] - target) ** 2 / 2
    return jnp.mean(-ratio * adv + 2.0 * kl + 0.5 * value_loss)


def plain_decoupled_ppo(p, t):
    b, (logits, v), (adv, target) = STREAM, policy_and_value(p, STREAM.s), gae()
    log_pi = log_prob(logits[:, :-1], b.a_tm1)
    proximal = stop(log_prob(policy_and_value(t, b.s)[0][:, :-1], b.a_tm1))
    weight = jnp.exp(proximal - log_prob(b.logits_tm1, b.a_tm1))
    policy_loss = weight * surrogate(jnp.exp(log_pi - proximal), adv)
    return jnp.mean(policy_loss + 0.5 * (v[:, :-1] - target) ** 2 / 2)


def kl_terms(kl, alpha, epsilon):
    return stop(alpha) * kl + alpha * (epsilon - stop(kl))


def plain_categorical_mpo(p, t):
    eta, alpha = jax.nn.softplus(p.duals)
    log_pi = jax.nn.log_softmax(Q(p.actor, STREAM.s))
    log_old = stop(jax.nn.log_softmax(Q(t.actor, STREAM.s)))
    tilted = log_old + stop(Q(t.critic, STREAM.s)) / eta
    weights = stop(jax.nn.softmax(tilted))
    temperature = eta * (0.1 + jax.nn.logsumexp(tilted, axis=-1))
    kl = jnp.sum(jnp.exp(log_old) * (log_old - log_pi), axis=-1)
    policy_loss = -jnp.sum(weights * log_pi, axis=-1)
    return jnp.mean(policy_loss + temperature + kl_terms(kl, alpha, 0.01))


def plain_vmpo(p, t):
    b, (logits, v) = STREAM, policy_and_value(p.policy, STREAM.s)
    eta, alpha = jax.nn.softplus(p.duals)
    v_t = stop(v[:, 1:])
    errors = backward(b.r_t, b.discount_t, v_t, 1.0, v_t[:, -1]) - v[:, :-1]
    adv = stop(errors)
    best = adv >= jnp.median(adv)
    tilted = jnp.where(best, adv / eta, -jnp.inf)
    temperature = eta * (0.01 + jax.nn.logsumexp(tilted) - jnp.log(B * T / 2))
    weights = B * T * stop(jax.nn.softmax(tilted, axis=(0, 1)))
    log_pi = jax.nn.log_softmax(logits[:, :-1])
    log_old = stop(jax.nn.log_softmax(policy_and_value(t.policy, b.s)[0][:, :-1]))
    kl = jnp.sum(jnp.exp(log_old) * (log_old - log_pi), axis=-1)
    loss = -weights * pick(log_pi, b.a_tm1) + kl_terms(kl, alpha, 0.01)
    return jnp.mean(loss + 0.5 * errors**2 / 2) + temperature


def plain_muesli(p, t):
    b, (logits, q), (prior, target_q) = (
        STREAM,
        policy_and_q(p, STREAM.s),
        stop(policy_and_q(t, STREAM.s)),
    )
    pi = jax.nn.softmax(prior)
    v = jnp.sum(pi * target_q, axis=-1)
    log_mu = log_prob(b.logits_tm1, b.a_tm1)
    returns, last, c = [], jnp.zeros(B), jnp.zeros(B)
    for k in reversed(range(T)):
        last = b.r_t[:, k] + b.discount_t[:, k] * (v[:, k + 1] + c * last)
        returns.append(last)
        a = b.a_tm1[:, k]
        c = 0.95 * jnp.minimum(1, pick(pi[:, k], a) / jnp.exp(log_mu[:, k]))
        last = last - pick(target_q[:, k], a)
    returns = jnp.stack(returns[::-1], axis=1)
    adv, log_pi = returns - v[:, :-1], log_prob(logits[:, :-1], b.a_tm1)
    rho = stop(jnp.minimum(1, jnp.exp(log_pi - log_mu)))
    cmpo = pi * jnp.exp(jnp.clip(target_q - v[..., None], -1, 1))
    cmpo = cmpo / jnp.sum(cmpo, axis=-1, keepdims=True)
    value_loss = (returns - pick(q[:, :-1], b.a_tm1)) ** 2 / 2
    loss = jnp.mean(-rho * adv * log_pi + 0.25 * value_loss)
    return loss + jnp.mean(cross_entropy(cmpo, logits))


def two_hot(x, bins):
    """Return the two-hot encoding of `x` on bins in ascending order."""
    above = jnp.clip(jnp.searchsorted(bins, x), 1, len(bins) - 1)
    low, high = bins[above - 1], bins[above]
    weight = (jnp.clip(x, bins[0], bins[-1]) - low) / (high - low)
    weight = weight[..., None]
    hot = jax.nn.one_hot
    return (1 - weight) * hot(above - 1, len(bins)) + weight * hot(above, len(bins))


def model(w, s, a):
    policy, value, reward = w
    shapes = (T + 1, A), (T + 1, M), (T, M)
    return tuple(
        (s @ x).reshape(B, *n)
        for x, n in zip((policy, value, reward), shapes, strict=True)
    )


def plain_gumbel_muzero(p, t):
    b, (logits, v_logits, r_logits) = SEARCH, model(p, SEARCH.s, None)
    prior, visited = jax.nn.softmax(b.logits), b.visits > 0
    mass = jnp.sum(prior * visited, axis=-1)
    mean_q = jnp.sum(prior * visited * b.q, -1) / jnp.where(mass > 0, mass, 1)
    total = jnp.sum(b.visits, axis=-1)
    mixed = (b.v + total * jnp.where(mass > 0, mean_q, 0)) / (1 + total)
    q = jnp.where(visited, b.q, mixed[..., None])
    target = jax.nn.softmax(b.logits + (50 + jnp.max(b.visits, -1, keepdims=True)) * q)
    bins = jnp.linspace(-300, 300, M)
    policy_loss = cross_entropy(target, logits)
    value_loss = cross_entropy(two_hot(rescale(b.returns), bins), v_logits)
    reward_loss = cross_entropy(two_hot(rescale(b.r_t), bins), r_logits)
    return jnp.mean(policy_loss + 0.25 * value_loss) + jnp.mean(reward_loss)


def steps_alive():
    alive = jnp.cumprod(STREAM.discount_t, axis=1)
    return jnp.concatenate([jnp.ones((B, 1)), alive[:, :-1]], axis=1)


def plain_dreamer_actor(p, t):
    b, logits = STREAM, Q(p, STREAM.s)[:, :-1]
    v_t = b.values[:, 1:]
    adv = backward(b.r_t, b.discount_t, v_t, 0.95, v_t[:, -1]) - b.values[:, :-1]
    log_pi = jax.nn.log_softmax(logits)
    entropy = -jnp.sum(jnp.exp(log_pi) * log_pi, axis=-1)
    loss = -adv / 2.0 * pick(log_pi, b.a_tm1) - 3e-4 * entropy
    return jnp.mean(steps_alive() * loss)


def critic_logits(w, s):
    return (s @ w).reshape(*s.shape[:-1], M)


def plain_dreamer_critic(p, t):
    b, logits = STREAM, critic_logits(p, STREAM.s)
    spaced = jnp.linspace(-20, 20, M)
    bins = jnp.sign(spaced) * jnp.expm1(jnp.abs(spaced))
    values = stop(jax.nn.softmax(logits) @ bins)
    slow = stop(jax.nn.softmax(critic_logits(t, b.s)) @ bins)[:, :-1]
    v_t = values[:, 1:]
    returns = backward(b.r_t, b.discount_t, v_t, 0.95, v_t[:, -1])
    target = two_hot(returns, bins) + two_hot(slow, bins)
    return jnp.mean(steps_alive() * cross_entropy(target, logits[:, :-1]))


def plain_ddpg_critic(p, t):
    target = one_step(
        DPG.critic(t.critic, ACTION.s_t, DPG.actor(t.actor, ACTION.s_t)), ACTION
    )
    q = DPG.critic(p.critic, ACTION.s_tm1, ACTION.a_tm1)
    return jnp.mean((stop(target) - q) ** 2 / 2)


def plain_ddpg_actor(p, t):
    a = DPG.actor(p.actor, ACTION.s_tm1)
    return -jnp.mean(DPG.critic(stop(p.critic), ACTION.s_tm1, a))


def critics_loss(q, target):
    return jnp.mean(jnp.sum((q - stop(target)[:, None]) ** 2, axis=-1)) / 2


def plain_td3_critic(p, t):
    keys = jax.random.split(KEY, B)
    noise = jnp.stack([jax.random.normal(key, (D,)) for key in keys])
    noise = jnp.clip(0.2 * noise, -0.5, 0.5)
    a_t = jnp.clip(TD3.actor(t.actor, ACTION.s_t) + noise, -1, 1)
    target = one_step(jnp.min(TD3.critic(t.critic, ACTION.s_t, a_t), -1), ACTION)
    return critics_loss(TD3.critic(p.critic, ACTION.s_tm1, ACTION.a_tm1), target)


def plain_td3_actor(p, t):
    a = TD3.actor(p.actor, ACTION.s_tm1)
    return -jnp.mean(TD3.critic(stop(p.critic), ACTION.s_tm1, a)[:, 0])


def plain_d4pg_critic(p, t):
    b, atoms = ACTION, jnp.linspace(-150, 150, M)
    probs = jax.nn.softmax(D4PG.critic(t.critic, b.s_t, D4PG.actor(t.actor, b.s_t)))
    target = project(b.r_t, b.discount_t, probs, atoms)
    logits = D4PG.critic(p.critic, b.s_tm1, b.a_tm1)
    return jnp.mean(cross_entropy(stop(target), logits))


def plain_d4pg_actor(p, t):
    a = D4PG.actor(p.actor, ACTION.s_tm1)
    probs = jax.nn.softmax(D4PG.critic(stop(p.critic), ACTION.s_tm1, a))
    return -jnp.mean(probs @ jnp.linspace(-150, 150, M))


def draw(w, s, key=KEY):
    mu, sigma = mean_and_stddev(w, s)
    noise = jax.random.normal(key, mu.shape)
    u = mu + sigma * noise
    log_cosh = jnp.logaddexp(u, -u) - jnp.log(2)
    density = -(noise**2) / 2 - jnp.log(sigma) - jnp.log(2 * jnp.pi) / 2
    return jnp.tanh(u), jnp.sum(density + 2 * log_cosh, axis=-1)


def plain_sac_critic(p, t, key=KEY, reduce=lambda q: jnp.min(q, -1)):
    a_t, log_pi = draw(p.actor, ACTION.s_t, key)
    v_t = reduce(SAC.critic(t.critic, ACTION.s_t, a_t)) - 0.2 * log_pi
    q = SAC.critic(p.critic, ACTION.s_tm1, ACTION.a_tm1)
    return critics_loss(q, one_step(v_t, ACTION))


def plain_redq_critic(p, t):
    # With a subset of all critics, which is no random choice.
    return plain_sac_critic(p, t, jax.random.split(KEY)[1])


def plain_sac_actor(p, t, net=SAC, reduce=lambda q: jnp.min(q, axis=-1)):
    a, log_pi = draw(p.actor, ACTION.s_tm1)
    q = reduce(net.critic(stop(p.critic), ACTION.s_tm1, a))
    return jnp.mean(0.2 * log_pi - q)


def plain_sac_temperature(p, t):
    _, log_pi = draw(t.actor, ACTION.s_tm1)
    return jnp.mean(-jnp.exp(p) * stop(log_pi + -2.0))


def plain_tqc_critic(p, t):
    a_t, log_pi = draw(p.actor, ACTION.s_t)
    z = jnp.sort(TQC.critic(t.critic, ACTION.s_t, a_t).reshape(B, -1))[:, : 3 * (M - 2)]
    z = z - 0.2 * log_pi[:, None]
    y = ACTION.r_t[:, None] + ACTION.discount_t[:, None] * z
    x = TQC.critic(p.critic, ACTION.s_tm1, ACTION.a_tm1)
    tau = (jnp.arange(M) + 0.5) / M
    return sum(quantile(x[:, i], tau, y) for i in range(3)) / 3


def log_normal(a, mean, stddev):
    z = (a - mean) / stddev
    return jnp.sum(-(z**2) / 2 - jnp.log(stddev) - jnp.log(2 * jnp.pi) / 2, axis=-1)


def plain_mpo(p, t):
    s = ACTION.s_tm1
    (mu, sigma), old = mean_and_stddev(p.actor, s), stop(mean_and_stddev(t.actor, s))
    old_mu, old_sigma = old
    a = old_mu + old_sigma * jax.random.normal(KEY, (6, B, D))
    q = jnp.stack([MPO.critic(stop(t.critic), s, each) for each in a])
    eta, alpha, beta = jax.nn.softplus(p.duals)
    weights = stop(jax.nn.softmax(q / eta, axis=0))
    log_pi = log_normal(a, mu, old_sigma) + log_normal(a, old_mu, sigma)
    mean_exp = jax.nn.logsumexp(q / eta, axis=0) - jnp.log(6)
    kl_mean = jnp.sum((mu - old_mu) ** 2 / (2 * old_sigma**2), axis=-1)
    ratio = old_sigma / sigma
    kl_stddev = jnp.sum(ratio**2 / 2 - 0.5 - jnp.log(ratio), axis=-1)
    loss = -jnp.sum(weights * log_pi, axis=0) + eta * (0.1 + mean_exp)
    loss = loss + kl_terms(kl_mean, alpha, 0.01)
    return jnp.mean(loss + kl_terms(kl_stddev, beta, 0.0001))


def plain_discrete_sac_critic(p, t):
    log_pi = jax.nn.log_softmax(Q(p.actor, ONE.s_t))
    q = jnp.min(DISCRETE.critic(t.critic, ONE.s_t), axis=-2)
    v_t = jnp.sum(jnp.exp(log_pi) * (q - 0.2 * log_pi), axis=-1)
    q_tm1 = DISCRETE.critic(p.critic, ONE.s_tm1)[jnp.arange(B), :, ONE.a_tm1]
    return critics_loss(q_tm1, one_step(v_t))


def plain_discrete_sac_actor(p, t):
    log_pi = jax.nn.log_softmax(Q(p.actor, ONE.s_tm1))
    q = jnp.min(DISCRETE.critic(stop(p.critic), ONE.s_tm1), axis=-2)
    return jnp.mean(jnp.sum(jnp.exp(log_pi) * (0.2 * log_pi - q), axis=-1))


def plain_discrete_sac_temperature(p, t):
    entropy = mean_entropy(Q(t.actor, ONE.s_tm1))
    return jnp.exp(p) * stop(entropy - 0.5)


TWO, TWO_PARAMS = linear(2, A)
DISCRETE = ActorCritic(Q, TWO)
DISCRETE_PARAMS = tuple(map(ActorCritic, Q_PARAMS, TWO_PARAMS))
