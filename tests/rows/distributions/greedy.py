"""Rows of `distributions/_greedy.py`, and their definitions in NumPy."""

import numpy as np
from contract import ACTIONS, actions
from row import Gradients, Row
from rows.distributions._shared import BATCH, made
from rows.distributions.categorical import discrete, legal

# --- Categorical distributions. ---


def greedy(preferences, action_mask=None):
    """Uniform over the best legal actions."""
    preferences = np.where(legal(preferences, action_mask), preferences, -np.inf)
    best = preferences == np.max(preferences, axis=-1, keepdims=True)
    return best / np.sum(best, axis=-1, keepdims=True)


def epsilon_greedy(preferences, action_mask=None, epsilon=0.25):
    """Mix the greedy policy with the uniform one over legal actions."""
    allowed = legal(preferences, action_mask)
    uniform = allowed / np.sum(allowed, axis=-1, keepdims=True)
    return epsilon * uniform + (1 - epsilon) * greedy(preferences, action_mask)


ROWS = [
    *discrete("greedy", "preferences", greedy, made("greedy")),
    *discrete(
        "epsilon_greedy", "preferences", epsilon_greedy, made("epsilon_greedy", 0.25)
    ),
    Row(
        greedy,
        lambda rng: {"preferences": actions(rng, BATCH, ACTIONS) / 2},
        "ties",
        name="greedy.probs",
        find=made("greedy")("probs"),
        gradients=Gradients(exist=False),
    ),
    Row(
        epsilon_greedy,
        lambda rng: {"preferences": rng.normal(size=(BATCH, ACTIONS))},
        "another epsilon",
        name="epsilon_greedy.probs",
        settings={"epsilon": 0.5},
        find=made("epsilon_greedy", 0.25)("probs"),
    ),
]
