"""Rows of `bandits/_randomized.py`, and their definitions in NumPy."""

import numpy as np
from row import Gradients, Precision
from rows._shared import joined
from rows.bandits._shared import ARMS, pull, row
from scipy import optimize

# --- Probabilities. ---


def softmax(means, temperature):
    return np.exp(means / temperature) / np.sum(np.exp(means / temperature))


def exp3_probabilities(log_weights, exploration):
    share = softmax(log_weights, 1.0)
    return (1 - exploration) * share + exploration / len(log_weights)


def exp3_update(log_weights, arm, reward, probability, step_size):
    log_weights = np.array(log_weights)
    log_weights[arm] += step_size * reward / probability
    return log_weights


def tsallis_inf_probabilities(losses, step_size):
    def weights(x):
        return 4 / (step_size * (losses - x)) ** 2

    least = losses.min()
    bounds = least - 2 * np.sqrt(len(losses)) / step_size - 1, least - 1e-9
    x = optimize.brentq(lambda x: weights(x).sum() - 1, *bounds, xtol=1e-14)
    return weights(x)


def tsallis_inf_update(losses, arm, loss, probability, baseline):
    losses = losses + baseline
    losses[arm] += (loss - np.broadcast_to(baseline, losses.shape)[arm]) / probability
    return losses


def gradient_bandit_init(num_arms):
    return [np.zeros(num_arms), np.asarray(0.0), np.asarray(0), np.asarray(0.0)]


def gradient_bandit_update(state, arm, reward, step_size):
    preferences, baseline, pulls, rest = state
    policy = softmax(preferences, 1.0)
    taken = np.arange(len(preferences)) == arm
    preferences = preferences + step_size * (reward - baseline) * (taken - policy)
    baseline = (pulls * baseline + reward) / (pulls + 1)
    return preferences, baseline, pulls + 1, rest


# --- What they are called with. ---


def chance(rng):
    return {"probability": np.asarray(rng.uniform(0.2, 0.8))}


ROWS = [
    row(
        exp3_probabilities,
        lambda rng: {
            "log_weights": rng.normal(size=ARMS),
            "exploration": np.asarray(rng.uniform(0.1, 0.9)),
        },
    ),
    row(
        exp3_update,
        joined(
            lambda rng: {"log_weights": rng.normal(size=ARMS)},
            pull,
            chance,
            lambda rng: {"step_size": np.asarray(rng.uniform(0.1, 0.5))},
        ),
        gradients=Gradients(constants=("state.baseline_rest",)),
        precision=Precision(condition=4.0, carried={"log_weights": 0}),
    ),
    row(
        tsallis_inf_probabilities,
        lambda rng: {
            "losses": rng.uniform(0.0, 5.0, ARMS),
            "step_size": np.asarray(rng.uniform(0.2, 2.0)),
        },
        precision=Precision(condition=4.0),
    ),
    row(
        tsallis_inf_update,
        joined(
            lambda rng: {"losses": rng.uniform(0.0, 5.0, ARMS)},
            lambda rng: {"arm": pull(rng)["arm"], "loss": pull(rng)["reward"]},
            chance,
            lambda rng: {"baseline": np.asarray(rng.uniform(0.0, 0.5))},
        ),
        precision=Precision(condition=4.0, carried={"losses": 0}),
    ),
    row(
        gradient_bandit_init,
        lambda rng: {},
        settings={"num_arms": ARMS},
        gradients=Gradients(exist=False),
    ),
    row(
        gradient_bandit_update,
        joined(
            lambda rng: {
                "state.preferences": rng.normal(size=ARMS),
                "state.baseline": np.asarray(rng.uniform(0.2, 0.8)),
                "state.num_pulls": np.asarray(3),
                "state.baseline_rest": np.asarray(0.0),
            },
            pull,
            lambda rng: {"step_size": np.asarray(rng.uniform(0.1, 0.5))},
        ),
        gradients=Gradients(constants=("state.baseline_rest",)),
    ),
]
