"""Bandits: definitions in NumPy, and a row for each function."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
from contract import ACTIONS, Row, fields
from scipy import optimize

import rlaxlib

ARMS, DIMENSIONS, WINDOW = ACTIONS, 3, 5
STATES = {
    "gradient_bandit_update": "GradientBanditState",
    "bandit_update": "BanditState",
    "linear_thompson_sample": "LinearBanditState",
    "linucb_scores": "LinearBanditState",
    "linucb_update": "LinearBanditState",
    "sliding_window_update": "SlidingWindowState",
}


# --- Statistics. ---


def bandit_init(num_arms):
    return [np.zeros(num_arms)] * 3


def bandit_update(state, arm, reward, discount):
    """Add a reward to a weighted mean and variance, by their sums of powers."""
    counts, means, variances = state
    weight = np.arange(len(counts)) == arm
    total = discount * counts * means + weight * reward
    squares = discount * counts * (variances + means**2) + weight * reward**2
    counts = discount * counts + weight
    means, squares = total / counts, squares / counts
    return counts, means, squares - means**2


def sliding_window_init(num_arms, window):
    return [*bandit_init(num_arms), np.full(window, -1), np.zeros(window)]


def sliding_window_update(state, arm, reward):
    counts, _, _, arms, rewards = state
    arms, rewards = np.append(arms[1:], arm), np.append(rewards[1:], reward)
    of_arms = [rewards[arms == a] for a in range(len(counts))]
    means = [np.mean(each) if each.size else 0.0 for each in of_arms]
    variances = [np.var(each) if each.size else 0.0 for each in of_arms]
    counts = np.array([each.size for each in of_arms], float)
    return counts, np.array(means), np.array(variances), arms, rewards


# --- Scores. ---


def ucb_scores(counts, means, bonus_scale):
    return means + bonus_scale * np.sqrt(np.log(counts.sum()) / counts)


def ucb_tuned_scores(counts, means, variances):
    rate = np.log(counts.sum()) / counts
    bound = np.minimum(0.25, variances + np.sqrt(2 * rate))
    return means + np.sqrt(rate * bound)


def kl_ucb_scores(counts, means, log_log_scale):
    log_t = np.log(counts.sum())
    budgets = (log_t + log_log_scale * np.log(log_t)) / counts

    def excess(q, p, budget):
        return p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q)) - budget

    return np.array(
        [
            optimize.brentq(excess, p, 1 - 1e-15, (p, budget), xtol=1e-15)
            for p, budget in zip(means, budgets, strict=True)
        ]
    )


# --- Samples, from the same random numbers. ---


def thompson_beta(key, counts, means, prior_alpha, prior_beta):
    successes = prior_alpha + counts * means
    failures = prior_beta + counts * (1 - means)
    a, b = (jnp.asarray(each, float) for each in (successes, failures))
    return np.asarray(jax.random.beta(key, a, b), np.float64)


def thompson_gaussian(key, counts, means, stddev, prior_mean, prior_stddev):
    variance = 1 / (1 / prior_stddev**2 + counts / stddev**2)
    mean = variance * (prior_mean / prior_stddev**2 + counts * means / stddev**2)
    noise = np.asarray(jax.random.normal(key, means.shape), np.float64)
    return mean + np.sqrt(variance) * noise


# --- Probabilities. ---


def boltzmann_probabilities(means, temperature):
    return np.exp(means / temperature) / np.sum(np.exp(means / temperature))


def exp3_probabilities(log_weights, exploration):
    share = boltzmann_probabilities(log_weights, 1.0)
    return (1 - exploration) * share + exploration / len(log_weights)


def exp3_update(log_weights, arm, reward, probability, learning_rate):
    log_weights = np.array(log_weights)
    log_weights[arm] += learning_rate * reward / probability
    return log_weights


def tsallis_inf_probabilities(losses, learning_rate):
    def weights(x):
        return 4 / (learning_rate * (losses - x)) ** 2

    least = losses.min()
    bounds = least - 2 * np.sqrt(len(losses)) / learning_rate - 1, least - 1e-9
    x = optimize.brentq(lambda x: weights(x).sum() - 1, *bounds, xtol=1e-14)
    return weights(x)


def tsallis_inf_update(losses, arm, loss, probability, baseline):
    losses = losses + baseline
    losses[arm] += (loss - np.broadcast_to(baseline, losses.shape)[arm]) / probability
    return losses


def gradient_bandit_update(state, arm, reward, step_size):
    preferences, baseline, pulls = state
    policy = boltzmann_probabilities(preferences, 1.0)
    taken = np.arange(len(preferences)) == arm
    preferences = preferences + step_size * (reward - baseline) * (taken - policy)
    return preferences, (pulls * baseline + reward) / (pulls + 1), pulls + 1


# --- Linear bandits. ---


def linear_bandit_init(num_features, regularization):
    return np.zeros(num_features), np.eye(num_features) / np.sqrt(regularization)


def linucb_scores(state, contexts, bonus_scale):
    weights, root = state
    covariance = root @ root.T
    widths = [np.sqrt(x @ covariance @ x) for x in contexts]
    return contexts @ weights + bonus_scale * np.array(widths)


def linucb_update(state, context, reward):
    """Solve the normal equations; the root is one whose product is the inverse."""
    weights, root = state
    precision = np.linalg.inv(root @ root.T)
    vector = precision @ weights + reward * context
    precision = precision + np.outer(context, context)
    phi = root.T @ context
    # The symmetric square root of the inverse of 1 + φ φᵀ, by its eigenvalues.
    values, axes = np.linalg.eigh(np.eye(len(phi)) + np.outer(phi, phi))
    updated = root @ (axes / np.sqrt(values)) @ axes.T
    np.testing.assert_allclose(
        updated @ updated.T @ precision, np.eye(len(phi)), 1e-6, 1e-6
    )
    return np.linalg.solve(precision, vector), updated


def linear_thompson_sample(key, state, scale):
    weights, root = state
    noise = np.asarray(jax.random.normal(key, weights.shape), np.float64)
    return weights + scale * root @ noise


# --- What they are called with. ---


def with_state(name):
    """Find a function, as one of the fields of its state under the names of errors."""

    def find(library):
        function, kind = getattr(library, name), getattr(library, STATES[name])

        def call(**arguments):
            fields = {each: arguments.pop(f"state.{each}") for each in kind._fields}
            return function(state=kind(**fields), **arguments)

        return call

    return find


def of_fields(definition):
    """Turn a definition that takes a state into one that takes its fields."""

    def define(**arguments):
        names = [name for name in arguments if name.startswith("state.")]
        state = [arguments.pop(name) for name in names]
        return definition(state=state, **arguments)

    return define


def statistics(rng):
    return {
        "counts": rng.uniform(2.0, 9.0, ARMS),
        "means": rng.uniform(0.1, 0.9, ARMS),
        "variances": rng.uniform(0.01, 0.1, ARMS),
    }


def take(draw, *names):
    return lambda rng: {name: np.asarray(draw(rng)[name]) for name in names}


def pull(rng):
    return {
        "arm": np.asarray(rng.integers(ARMS)),
        "reward": np.asarray(rng.uniform(0.2, 0.8)),
    }


def chance(rng):
    return {"probability": np.asarray(rng.uniform(0.2, 0.8))}


def joined(*draws):
    return lambda rng: {name: x for draw in draws for name, x in draw(rng).items()}


def prefixed(draw):
    return lambda rng: {f"state.{name}": x for name, x in draw(rng).items()}


def regression(rng):
    root = np.eye(DIMENSIONS) + 0.3 * rng.normal(size=(DIMENSIONS, DIMENSIONS))
    return {"weights": rng.normal(size=DIMENSIONS), "root": root}


def row(definition, make, **more):
    name = definition.__name__
    takes_state = "state" in inspect.signature(definition).parameters
    if takes_state and name.endswith("_update"):
        more["carried"] = fields(getattr(rlaxlib, STATES[name]))
    return Row(
        name=name,
        definition=of_fields(definition) if takes_state else definition,
        make=make,
        of=with_state(name) if takes_state else None,
        peer="rlax has none",
        **more,
    )


ARM = ({"arm": -1}, {"arm": ARMS})
COUNTS = ({"counts": np.array([-1.0, 1.0, 1.0, 1.0])},)
STATE = (
    {"state.counts": np.full(ARMS, -1.0)},
    {"state.variances": np.full(ARMS, -1.0)},
)
MEANS = ({"means": np.array([0.0, 0.5, 1.0, 1.5])},)
PROBABILITY = ({"probability": 0.0}, {"probability": 1.5})

ROWS = [
    row(
        bandit_init,
        lambda rng: {},
        settings={"num_arms": ARMS},
        differentiable=False,
        invalid=({"num_arms": 0},),
    ),
    row(
        bandit_update,
        joined(
            prefixed(statistics),
            pull,
            lambda rng: {"discount": np.asarray(rng.uniform(0.6, 0.9))},
        ),
        condition=4.0,
        invalid=(*ARM, *STATE, {"discount": -0.1}, {"discount": 1.1}),
    ),
    row(
        sliding_window_init,
        lambda rng: {},
        settings={"num_arms": ARMS, "window": WINDOW},
        differentiable=False,
        invalid=({"num_arms": 0}, {"window": 0}),
    ),
    row(
        sliding_window_update,
        joined(
            prefixed(statistics),
            lambda rng: {
                "state.arms": rng.integers(-1, ARMS, WINDOW),
                "state.rewards": rng.uniform(0.0, 1.0, WINDOW),
            },
            pull,
        ),
        any_length=("state.counts",),
        invalid=ARM + STATE,
    ),
    row(
        ucb_scores,
        joined(
            take(statistics, "counts", "means"),
            lambda rng: {"bonus_scale": np.asarray(rng.uniform(0.5, 2.0))},
        ),
        any_dtype=("counts",),
        invalid=({"bonus_scale": -1.0}, *COUNTS),
    ),
    row(
        ucb_tuned_scores,
        # With few pulls and many, so that either bound of the variance is the smaller.
        joined(
            statistics,
            lambda rng: {"counts": rng.uniform(2.0, 4.0, ARMS) ** [1, 1, 6, 6]},
        ),
        any_dtype=("counts",),
        invalid=(*COUNTS, {"variances": np.full(ARMS, -1.0)}),
    ),
    row(
        kl_ucb_scores,
        joined(
            take(statistics, "counts", "means"),
            lambda rng: {"log_log_scale": np.asarray(rng.uniform(0.0, 3.0))},
        ),
        differentiable=False,
        any_dtype=("counts",),
        invalid=({"log_log_scale": -1.0}, *COUNTS, *MEANS),
    ),
    row(
        thompson_beta,
        joined(
            take(statistics, "counts", "means"),
            lambda rng: {
                "prior_alpha": np.asarray(rng.uniform(1.0, 2.0)),
                "prior_beta": np.asarray(rng.uniform(1.0, 2.0)),
            },
        ),
        key="key",
        differentiable=False,
        any_dtype=("counts",),
        invalid=({"prior_alpha": 0.0}, {"prior_beta": -1.0}, *COUNTS, *MEANS),
    ),
    row(
        thompson_gaussian,
        joined(
            take(statistics, "counts", "means"),
            lambda rng: {
                "stddev": np.asarray(rng.uniform(0.5, 2.0)),
                "prior_mean": np.asarray(rng.normal()),
                "prior_stddev": np.asarray(rng.uniform(0.5, 2.0)),
            },
        ),
        key="key",
        any_dtype=("counts",),
        invalid=({"stddev": 0.0}, {"prior_stddev": -1.0}, *COUNTS),
    ),
    row(
        boltzmann_probabilities,
        joined(
            take(statistics, "means"),
            lambda rng: {"temperature": np.asarray(rng.uniform(0.2, 2.0))},
        ),
        invalid=({"temperature": 0.0}, {"temperature": -1.0}),
    ),
    row(
        exp3_probabilities,
        lambda rng: {
            "log_weights": rng.normal(size=ARMS),
            "exploration": np.asarray(rng.uniform(0.1, 0.9)),
        },
        invalid=({"exploration": -0.1}, {"exploration": 1.1}),
    ),
    row(
        exp3_update,
        joined(
            lambda rng: {"log_weights": rng.normal(size=ARMS)},
            pull,
            chance,
            lambda rng: {"learning_rate": np.asarray(rng.uniform(0.1, 0.5))},
        ),
        condition=4.0,
        carried={"log_weights": 0},
        invalid=(*ARM, *PROBABILITY, {"learning_rate": -1.0}),
    ),
    row(
        tsallis_inf_probabilities,
        lambda rng: {
            "losses": rng.uniform(0.0, 5.0, ARMS),
            "learning_rate": np.asarray(rng.uniform(0.2, 2.0)),
        },
        condition=4.0,
        invalid=({"learning_rate": 0.0}, {"learning_rate": -1.0}),
    ),
    row(
        tsallis_inf_update,
        joined(
            lambda rng: {"losses": rng.uniform(0.0, 5.0, ARMS)},
            lambda rng: {"arm": pull(rng)["arm"], "loss": pull(rng)["reward"]},
            chance,
            lambda rng: {"baseline": np.asarray(rng.uniform(0.0, 0.5))},
        ),
        condition=4.0,
        carried={"losses": 0},
        invalid=(*ARM, *PROBABILITY),
    ),
    row(
        gradient_bandit_update,
        joined(
            lambda rng: {
                "state.preferences": rng.normal(size=ARMS),
                "state.baseline": np.asarray(rng.uniform(0.2, 0.8)),
                "state.pulls": np.asarray(3),
            },
            pull,
            lambda rng: {"step_size": np.asarray(rng.uniform(0.1, 0.5))},
        ),
        invalid=(*ARM, {"step_size": -1.0}),
    ),
    row(
        linear_bandit_init,
        lambda rng: {"regularization": np.asarray(rng.uniform(0.5, 2.0))},
        settings={"num_features": DIMENSIONS},
        invalid=({"regularization": 0.0}, {"num_features": 0}),
    ),
    row(
        linucb_scores,
        joined(
            prefixed(regression),
            lambda rng: {
                "contexts": rng.normal(size=(ARMS, DIMENSIONS)),
                "bonus_scale": np.asarray(rng.uniform(0.5, 2.0)),
            },
        ),
        condition=4.0,
        any_length=("contexts",),
        invalid=({"bonus_scale": -1.0},),
    ),
    row(
        linucb_update,
        joined(
            prefixed(regression),
            lambda rng: {
                "context": rng.normal(size=DIMENSIONS),
                "reward": np.asarray(rng.normal()),
            },
        ),
        condition=8.0,
    ),
    row(
        linear_thompson_sample,
        joined(
            prefixed(regression),
            lambda rng: {"scale": np.asarray(rng.uniform(0.5, 2.0))},
        ),
        key="key",
        condition=4.0,
        invalid=({"scale": -1.0},),
    ),
]
