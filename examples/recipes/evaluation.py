"""Losses for the evaluation of policies: FQE, successor features; MAGIC; intervals.

A batch of B transitions has the fields

    s_tm1, s_t        observations before and after the action, [B, ...],
    a_tm1             actions, integers in [0, A), [B],
    r_t, discount_t   rewards and discounts, [B].
"""

import jax
import jax.numpy as jnp
import optax

import rlaxlib


def fqe(params, target_params, apply, policy, batch):
    """FQE, fitted Q evaluation: expected Sarsa of a fixed policy on logged data.

    `policy(s)` returns probabilities, [B, A]. The value of the policy is the mean of q
    under it at first states. Le et al., 2019, https://arxiv.org/abs/1903.08738. Source:
    github.com/takuseno/d3rlpy@38c34b6, d3rlpy/ope/torch/fqe_impl.py, the same loss for
    continuous actions of a deterministic policy; for discrete actions, it is Huber's (a
    cosine of 0.998 at random inputs). Usual: discount 0.99, Adam 1e-4, batch 100,
    target networks updated every 100 steps.
    """
    td_error = jax.vmap(rlaxlib.expected_sarsa)(
        apply(params, batch.s_tm1),
        batch.a_tm1,
        batch.r_t,
        batch.discount_t,
        apply(target_params, batch.s_t),
        policy(batch.s_t),
    )
    return jnp.mean(rlaxlib.l2_loss(td_error))


def successor_features(params, target_params, apply, batch, task):
    """Successor features: TD learning of the sums of features that make up a reward.

    `apply` returns them for each action, [B, A, K]. The batch has the features `phi_t`,
    [B, K], and a reward is their product with `task`, [K]. Barreto et al., 2016,
    https://arxiv.org/abs/1606.05312. Usual (none in the paper): those of DQN.
    """
    psi_tm1, psi_t = apply(params, batch.s_tm1), apply(target_params, batch.s_t)
    a_t = jnp.argmax(psi_t @ task, axis=-1)
    # One TD error for each feature, whose value is that of the action.
    x_tm1, x_t = (
        jax.vmap(lambda psi, a: psi[a])(psi, a)
        for psi, a in ((psi_tm1, batch.a_tm1), (psi_t, a_t))
    )
    error = jax.vmap(rlaxlib.td_learning, (0, 0, None, 0))
    errors = jax.vmap(error)(x_tm1, batch.phi_t, batch.discount_t, x_t)
    return jnp.mean(jnp.sum(rlaxlib.l2_loss(errors), axis=-1))


def gpi_action(psi, task):
    """Return the action of generalised policy improvement (GPI).

    `psi`, [N, A, K], are the successor features of N policies in one state.
    """
    return jnp.argmax(jnp.max(psi @ task, axis=0))


def value_interval(key, data, kind="wpdis", confidence=0.95):
    """Return an estimate of the value of a policy, and both ends of its interval.

    `data` are the arguments of `off_policy_evaluation` by name, each [N, T]: ratios,
    rewards and discounts of N trajectories, and values for doubly robust estimates.
    """

    def estimate(data):
        return rlaxlib.off_policy_evaluation(**data, kind=kind)

    interval = rlaxlib.bootstrap_interval
    return estimate(data), *interval(key, data, estimate, confidence)


def partial_estimates(data):
    """Return WDR estimates from the first 0 to T rewards and values after, [T+1]."""
    num_steps = data["r_t"].shape[1]
    steps = jnp.arange(num_steps)[None]

    def estimate(num):
        ends = {"r_t": num, "q_tm1": num, "v_tm1": num + 1}
        kept = {
            name: jnp.where(steps < end, data[name], 0) for name, end in ends.items()
        }
        return rlaxlib.off_policy_evaluation(**data | kept, kind="wdr")

    return jax.vmap(estimate)(jnp.arange(num_steps + 1))


def least_error_weights(error, num_steps=1000):
    """Return the weights, at least 0 and of sum 1, that minimise a quadratic form."""
    size = jnp.maximum(jnp.trace(error), 1e-30)

    def descend(weights, _):
        moved = weights - error @ weights / size
        return optax.projections.projection_simplex(moved), None

    first = jnp.full(len(error), 1 / len(error), error.dtype)
    return jax.lax.scan(descend, first, length=num_steps)[0]


def magic(key, data, num_samples=200, confidence=0.5):
    """MAGIC: the mix of rewards and of a model's values that has the least error.

    Returns an estimate, and the weight of each number of rewards, [T+1]. `data` are as
    in `value_interval`, with values of actions and of states. Covariances and the
    interval are those of resampled estimates. Thomas and Brunskill, 2016,
    https://arxiv.org/abs/1604.00923. Source: github.com/clvoloshin/COBS@bc76441,
    ope/algos/magic.py, by others, the same estimates of each number of rewards, up to
    25 of them; its covariances, of the summands, lack the paper's factor, the number of
    trajectories, and its squared biases, in place of their products, fill whole
    columns. Usual (paper; the code): 200 samples, an interval of 50 %, or 90 %.
    """

    def resample(key):
        num = len(data["r_t"])
        rows = jax.random.randint(key, (num,), 0, num)
        return partial_estimates({name: x[rows] for name, x in data.items()})

    x = partial_estimates(data)
    samples = jax.lax.map(resample, jax.random.split(key, num_samples))
    tail = (1 - confidence) / 2
    low, high = jnp.quantile(samples[:, -1], jnp.array([tail, 1 - tail]))
    bias = x - jnp.clip(x, jnp.minimum(low, x[-1]), jnp.maximum(high, x[-1]))
    weights = least_error_weights(jnp.cov(samples.T) + jnp.outer(bias, bias))
    return weights @ x, weights


def score_intervals(key, scores):
    """Return IQM and optimality gap of scores, [R, M], each with an interval."""
    statistics = {
        "interquartile_mean": rlaxlib.interquartile_mean,
        "optimality_gap": lambda scores: jnp.mean(jax.nn.relu(1 - scores)),
    }
    interval = rlaxlib.bootstrap_interval
    return {
        name: (statistic(scores), *interval(key, scores, statistic, stratified=True))
        for name, statistic in statistics.items()
    }


def improvement_interval(key, scores, other_scores):
    """Return the probability of improvement of one algorithm, and its interval."""

    def probability(pair):
        return rlaxlib.probability_of_improvement(*pair)

    pair = scores, other_scores
    interval = rlaxlib.bootstrap_interval
    return probability(pair), *interval(key, pair, probability, stratified=True)
