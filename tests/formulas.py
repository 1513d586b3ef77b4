"""Formulas of authors' codes in plain `jax.numpy`, which pages and recipes share.

`from_pages/` and `plain_losses/` name the repositories, commits and files that have
them. Each is written as those files have it, of one stream if it has a time axis.
"""

import jax
import jax.numpy as jnp
import numpy as np

stop = jax.lax.stop_gradient
log_softmax, softmax = jax.nn.log_softmax, jax.nn.softmax


def pick(x, a):
    return jnp.take_along_axis(x, a[..., None], axis=-1)[..., 0]


# --- Returns and advantages, by loops. ---


def backwards(b, a, last=0.0):
    """Return `y[t] = b[t] + a[t] * y[t + 1]`, where the one after the end is `last`."""
    total, found = last, []
    for t in reversed(range(len(b))):
        total = b[t] + a[t] * total
        found.append(total)
    return jnp.stack(found[::-1])


def gae(values, r_t, discount_t, v_t, lambda_=0.95):
    delta = r_t + discount_t * v_t - values
    return backwards(delta, discount_t * lambda_)


def masked_gae(values, r_t, sample_mask):
    """Return GAE of γ 0.99, λ 0.95, which goes on over tokens to ignore."""
    total, following, found = 0.0, 0.0, []
    for t in reversed(range(len(r_t))):
        step = r_t[t] + 0.99 * following - values[t] + 0.99 * 0.95 * total
        following = jnp.where(sample_mask[t], values[t], following)
        total = jnp.where(sample_mask[t], step, total)
        found.append(total)
    return jnp.stack(found[::-1]) * sample_mask


def lambda_returns(r_t, discount_t, v_t, lambda_):
    rewards = r_t + discount_t * (1 - lambda_) * v_t
    return backwards(rewards, discount_t * lambda_, v_t[-1])


def n_step(r_t, discount_t, n=3):
    """Return the sums of n rewards, and the factors of the values after them."""
    sums, factors = [], []
    for t in range(len(r_t)):
        total, factor = 0.0, 1.0
        for k in range(t, min(t + n, len(r_t))):
            total, factor = total + factor * r_t[k], factor * discount_t[k]
        sums.append(total)
        factors.append(factor)
    return jnp.stack(sums), jnp.stack(factors)


def pqn(r_t, done, v_t, discount=0.9, lambda_=0.65, late=False):
    """Return the targets of PQN, of which one bootstraps too late if asked for."""
    total = r_t[-1] + discount * (1 - done[-1]) * v_t[-1]
    v_t, found = v_t.at[-2].set(v_t[-1]) if late else v_t, [total]
    for t in reversed(range(len(r_t) - 1)):
        bootstrap = r_t[t] + discount * (1 - done[t]) * v_t[t]
        total = bootstrap + discount * lambda_ * (total - v_t[t])
        total = (1 - done[t]) * total + done[t] * r_t[t]
        found.append(total)
    return jnp.stack(found[::-1])


def standardized(x, ddof=0, epsilon=1e-8):
    return (x - jnp.mean(x)) / (jnp.std(x, ddof=ddof) + epsilon)


def whiten(x, ddof=1):
    return (x - jnp.mean(x)) * jax.lax.rsqrt(jnp.var(x, ddof=ddof) + 1e-8)


def masked_whiten(adv, sample_mask):
    kept = adv[sample_mask]
    scale = jax.lax.rsqrt(jnp.var(kept, ddof=1) + 1e-8)
    return jnp.where(sample_mask, (adv - jnp.mean(kept)) * scale, 0.0)


def normalized(observation):
    """Normalise by running moments from a count of 1e-4, of one update."""
    n = len(observation)
    total, mean = 1e-4 + n, jnp.mean(observation, axis=0)
    m_2 = 1e-4 + jnp.var(observation, axis=0) * n + mean**2 * 1e-4 * n / total
    return (observation - mean * n / total) / jnp.sqrt(m_2 / total + 1e-8)


# --- Policy gradients. ---


def clipped(log_prob, old_log_prob, adv, low=0.2, high=0.2):
    ratio = jnp.exp(log_prob - old_log_prob)
    return -jnp.minimum(ratio * adv, jnp.clip(ratio, 1 - low, 1 + high) * adv)


def dual_clipped(log_prob, old_log_prob, adv, low=0.2, high=0.28, bound=3.0):
    loss = clipped(log_prob, old_log_prob, adv, low, high)
    return jnp.where(adv < 0, jnp.minimum(-bound * adv, loss), loss)


def gspo(log_prob, old_log_prob, adv, low=3e-4, high=4e-4):
    """Return the loss of the mean log-ratio, for each token."""
    return clipped(jnp.mean(log_prob - old_log_prob), 0.0, adv, low, high)


def gspo_token(log_prob, log_ratio, adv, low=3e-4, high=4e-4):
    """Return the loss of a mean log-ratio, whose gradient is that of each token."""
    return clipped(log_prob - stop(log_prob) + stop(log_ratio), 0.0, adv, low, high)


def weighted(log_prob, old_log_prob, adv, low, high):
    """Return the loss of clipped importance weights, as of CISPO."""
    return -stop(jnp.clip(jnp.exp(log_prob - old_log_prob), low, high)) * adv * log_prob


def sapo(log_prob, old_log_prob, adv):
    tau, ratio = jnp.where(adv > 0, 1.0, 1.05), jnp.exp(log_prob - old_log_prob)
    return -jax.nn.sigmoid(tau * (ratio - 1)) * 4 / tau * adv


def vespo_weight(log_w, adv):
    """Return the weight of an answer with such a log-ratio."""
    k, rate = (jnp.where(adv >= 0, *pair) for pair in ((2.0, 3.0), (3.0, 2.0)))
    return stop(jnp.exp(k * log_w + rate * (1 - jnp.exp(log_w))))


def geometric_mean(log_prob, old_log_prob, adv, low=0.4, high=0.4):
    """Return the loss of GMPO of one answer."""
    log_ratio = log_prob - old_log_prob
    near = jnp.clip(log_ratio, -low, high)
    least, most = jnp.minimum(log_ratio, near), jnp.maximum(log_ratio, near)
    return -adv * jnp.exp(jnp.mean(jnp.where(adv >= 0, least, most)))


def kl_cov(log_prob, old_log_prob, adv, count):
    """Return the loss with a KL term for the tokens of the largest covariances."""
    log_ratio = log_prob - old_log_prob
    covariance = stop((adv - jnp.mean(adv)) * (log_prob - jnp.mean(log_prob)))
    chosen = jnp.argsort(-covariance)[:count]
    is_large = jnp.zeros(len(adv), bool).at[chosen].set(True)
    return -adv * jnp.exp(log_ratio) + jnp.where(is_large, jnp.abs(log_ratio), 0.0)


def within_tv(log_prob, old_log_prob, adv, bound=0.2):
    change = jnp.exp(log_prob) - jnp.exp(old_log_prob)
    return jnp.where(adv > 0, change <= bound, change >= -bound)


def within_kl(log_prob, old_log_prob, adv, bound=0.05):
    p, mu = jnp.exp(log_prob), jnp.exp(old_log_prob)
    kl = mu * (old_log_prob - log_prob) + (1 - mu) * jnp.log((1 - mu) / (1 - p))
    return (kl <= bound) | jnp.where(adv > 0, p <= mu, p >= mu)


def discovered(log_prob, old_log_prob, adv, alpha=2.0, beta=0.6):
    """Return the loss of discovered policy optimization, with its drift."""
    log_diff, relu = log_prob - old_log_prob, jax.nn.relu
    r1 = jnp.exp(log_diff) - 1.0
    drift1 = relu(r1 * adv - alpha * jnp.tanh(r1 * adv / alpha))
    drift2 = relu(log_diff * adv - beta * jnp.tanh(log_diff * adv / beta))
    return -(jnp.exp(log_diff) * adv - jnp.where(adv >= 0.0, drift1, drift2))


def clipped_values(v, old_v, target, epsilon=0.2):
    near = old_v + jnp.clip(v - old_v, -epsilon, epsilon)
    return 0.5 * jnp.maximum((v - target) ** 2, (near - target) ** 2)


def k3(log_prob, base):
    return jnp.exp(base - log_prob) - (base - log_prob) - 1


def statistics(log_prob, old_log_prob, epsilon=0.2):
    """Return the approximate KL divergence, and the fraction of clipped ratios."""
    log_prob = stop(log_prob)  # To be logged.
    outside = jnp.abs(jnp.exp(log_prob - old_log_prob) - 1) > epsilon
    return jnp.mean(k3(old_log_prob, log_prob)), jnp.mean(outside)


def entropy(logits):
    return -jnp.sum(softmax(logits) * log_softmax(logits), axis=-1)


def log_prob_and_entropy(logits, tokens):
    return pick(log_softmax(logits), tokens), entropy(logits)


# --- Preferences, and losses of tokens. ---


def preference(chosen, rejected, ref_chosen=0.0, ref_rejected=0.0):
    return (chosen - ref_chosen) - (rejected - ref_rejected)


def dpo(chosen, rejected, ref_chosen, ref_rejected, beta=0.1):
    logits = preference(chosen, rejected, ref_chosen, ref_rejected)
    return -jax.nn.log_sigmoid(beta * logits)


def log_odds(chosen, rejected):
    """Return ORPO's log-odds of mean log-probabilities."""
    odds = jnp.log1p(-jnp.exp(chosen)) - jnp.log1p(-jnp.exp(rejected))
    return chosen - rejected - odds


def token_mean(losses, mask):
    return jnp.sum(losses * mask) / jnp.sum(mask)


def sequence_means(losses, mask):
    """Return the mean over answers that are not empty of their means."""
    tokens = jnp.sum(mask, axis=-1)
    means = jnp.sum(losses * mask, axis=-1) / jnp.clip(tokens, 1)
    return jnp.sum(means) / jnp.sum(tokens > 0)


def answers(mask):
    """Return the number of answers that are not empty."""
    return jnp.sum(jnp.any(mask, axis=-1))


# --- Values. ---


def huber(x, delta=1.0):
    size = jnp.abs(x)
    return jnp.where(size <= delta, 0.5 * x**2, delta * (size - 0.5 * delta))


def project(r_t, discount_t, probs, atoms):
    """Return the projection of one distribution: each atom goes to its two neighbors.

    Algorithm 1 of C51, for all atoms at once.
    """
    tz = jnp.clip(r_t + discount_t * atoms, atoms[0], atoms[-1])
    b = (tz - atoms[0]) / (atoms[1] - atoms[0])
    lower, upper = jnp.floor(b).astype(int), jnp.ceil(b).astype(int)
    m = jnp.zeros(len(atoms)).at[lower].add(probs * (upper - b + (lower == upper)))
    return m.at[upper].add(probs * (b - lower))


def c51(atoms, logits, a, r_t, discount_t, next_logits, selector=None):
    """Return the cross-entropy of one transition; the best action is a selector's."""
    probs = softmax(next_logits)
    best = jnp.argmax(probs @ atoms if selector is None else selector)
    target = project(r_t, discount_t, probs[best], atoms)
    return -jnp.sum(stop(target) * log_softmax(logits[a]))


def quantile_huber(source, tau, target, kappa=1.0):
    """Return a sum over the quantiles of the means over targets."""
    error = target[None, :] - source[:, None]
    weight = jnp.abs(tau[:, None] - (error < 0))
    return jnp.sum(jnp.mean(stop(weight) * huber(error, kappa), axis=1))


def quantile_q(quantiles, tau, a, r_t, discount_t, selector, next_quantiles, kappa=1.0):
    """Return the loss of one transition, with the best action by a mean of samples."""
    best = jnp.argmax(jnp.mean(selector, axis=0))
    target = stop(r_t + discount_t * next_quantiles[:, best])
    return quantile_huber(quantiles[:, a], tau, target, kappa)


def middles(n):
    return (jnp.arange(n) + 0.5) / n


def two_hot(x, bins):
    """Return the two-hot encoding of `x` on bins in ascending order."""
    above = jnp.clip(jnp.searchsorted(bins, x), 1, len(bins) - 1)
    low, high = bins[above - 1], bins[above]
    weight = ((jnp.clip(x, bins[0], bins[-1]) - low) / (high - low))[..., None]
    hot = jax.nn.one_hot
    return (1 - weight) * hot(above - 1, len(bins)) + weight * hot(above, len(bins))


def two_hot_loss(logits, x, bins):
    return -jnp.sum(stop(two_hot(x, bins)) * log_softmax(logits), axis=-1)


def symlog(x):
    return jnp.sign(x) * jnp.log1p(jnp.abs(x))


def symexp(x):
    return jnp.sign(x) * jnp.expm1(jnp.abs(x))


def unimix(logits):
    return 0.99 * softmax(logits) + 0.01 / logits.shape[-1]


def soft_value(logits, qs, temperature=0.2):
    """Return the soft value of the minimum of several critics."""
    cost = temperature * log_softmax(logits)
    return jnp.sum(softmax(logits) * (jnp.min(qs, axis=0) - cost), axis=-1)


def td3_action(key, next_action):
    noise = jnp.clip(0.2 * jax.random.normal(key, next_action.shape), -0.5, 0.5)
    return jnp.clip(next_action + noise, -1, 1)


def expectile(difference, tau=0.7):
    return jnp.abs(tau - (difference < 0)) * difference**2


def td3_bc(q, action, data_action):
    scale = 2.5 / stop(jnp.mean(jnp.abs(q)))
    return -scale * jnp.mean(q) + jnp.mean((action - data_action) ** 2)


def log_normal(x, mean, stddev):
    scale = jnp.log(stddev) + 0.5 * np.log(2 * np.pi)
    return jnp.sum(-0.5 * ((x - mean) / stddev) ** 2 - scale, axis=-1)


def dreamer_return(rew, term, boot, last, discount):
    """Return the λ-returns of the observations but the last, with λ 0.95."""
    live, cont = (1 - term[1:]) * discount, (1 - last[1:]) * 0.95
    return backwards(rew[1:] + (1 - cont) * live * boot[1:], live * cont, boot[-1])


def clipped_q(q, a, r_t, discount_t, next_q, selector, bound):
    """Return the loss of double Q-learning, half a square with a clipped gradient."""
    error = stop(r_t + discount_t * next_q[jnp.argmax(selector)]) - q[a]
    gradient = stop(jnp.clip(error, -bound, bound)) * (error - stop(error))
    return stop(0.5 * error**2) + gradient
