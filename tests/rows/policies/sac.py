"""Rows of `policies/_sac.py`, and their definitions in NumPy."""

import jax
import numpy as np
from contract import ACTIONS
from row import Gradients, Loose, Precision, Row

CRITICS = 3


DIMENSIONS = 4


# --- Continuous actions. ---


def sac_critic_target(r_t, discount_t, q_t, log_prob_t, temperature):
    """Haarnoja et al. 2018, section 4.2."""
    return r_t + discount_t * (np.min(q_t) - temperature * log_prob_t)


def sac_policy_loss(log_prob, q, temperature):
    """Haarnoja et al. 2018, section 4.2."""
    return temperature * log_prob - np.min(q)


def sac_temperature_loss(log_temperature, log_prob, target_entropy, kind="alpha"):
    """Haarnoja et al. 2018, section 5."""
    factor = np.exp(log_temperature) if kind == "alpha" else log_temperature
    return factor * (-log_prob - target_entropy)


def td3_target_action(key, a_t, stddev=0.2, clip=0.5, minimum=-1.0, maximum=1.0):
    """Fujimoto et al. 2018, section 5.3."""
    noise = stddev * np.asarray(jax.random.normal(key, a_t.shape), np.float64)
    return np.clip(a_t + np.clip(noise, -clip, clip), minimum, maximum)


# --- Discrete actions. ---


def softmax(logits, action_mask=None):
    weights = np.exp(logits - np.max(logits))
    weights = weights if action_mask is None else np.where(action_mask, weights, 0.0)
    return weights / np.sum(weights)


def entropy(logits, action_mask=None):
    pi = softmax(logits, action_mask)
    return -np.sum(pi[pi > 0] * np.log(pi[pi > 0]))


def discrete_sac_value(logits, q, temperature, action_mask=None):
    """Christodoulou 2019, section 3."""
    q = q if q.ndim == 1 else np.min(q, axis=0)
    mean = np.sum(softmax(logits, action_mask) * q)
    return mean + temperature * entropy(logits, action_mask)


def discrete_sac_policy_loss(logits, q, temperature, action_mask=None):
    """Christodoulou 2019, section 3."""
    return -discrete_sac_value(logits, q, temperature, action_mask)


# --- Arguments. ---


def make_numbers(*names):
    def make(rng):
        action_mask = rng.permutation(np.arange(ACTIONS) > 0)
        drawn = {
            "r_t": rng.normal(),
            "discount_t": rng.uniform(0.5, 1.0),
            "q_t": rng.normal(size=CRITICS),
            "log_prob_t": rng.normal(),
            "temperature": rng.uniform(0.1, 1.0),
            "log_prob": rng.normal(),
            "q": rng.normal(size=CRITICS),
            "log_temperature": rng.normal(),
            "target_entropy": rng.normal(),
            "logits": rng.normal(size=ACTIONS),
            "action_mask": action_mask,
        }
        return {name: np.asarray(drawn[name]) for name in names}

    return make


def make_discrete(*names, critics=(CRITICS,)):
    def make(rng):
        q = rng.normal(size=(*critics, ACTIONS))
        return make_numbers("logits", "temperature", *names)(rng) | {"q": q}

    return make


def make_action(rng):
    """Draw bounds that some actions exceed, and noise that is seldom clipped."""
    return {
        "a_t": rng.normal(size=DIMENSIONS),
        "stddev": rng.uniform(0.2, 0.5, DIMENSIONS),
        "clip": np.asarray(rng.uniform(0.3, 0.6)),
        "minimum": rng.uniform(-1.5, -0.5, DIMENSIONS),
        "maximum": rng.uniform(0.5, 1.5, DIMENSIONS),
    }


TARGET = ("r_t", "discount_t", "q_t", "log_prob_t", "temperature")


STOPPED = ("q", "temperature")


ROWS = [
    Row(sac_critic_target, make_numbers(*TARGET), gradients=Gradients(targets=TARGET)),
    Row(
        sac_policy_loss,
        make_numbers("log_prob", "q", "temperature"),
        gradients=Gradients(constants=("temperature",)),
    ),
    Row(
        sac_temperature_loss,
        make_numbers("log_temperature", "log_prob", "target_entropy"),
        gradients=Gradients(constants=("log_prob", "target_entropy")),
        precision=Precision(condition=4.0),
    ),
    Row(
        sac_temperature_loss,
        make_numbers("log_temperature", "log_prob", "target_entropy"),
        case="log alpha",
        settings={"kind": "log_alpha"},
        gradients=Gradients(constants=("log_prob", "target_entropy")),
        precision=Precision(condition=4.0),
    ),
    Row(td3_target_action, make_action, invalid=({"maximum": -1.0, "minimum": 1.0},)),
    Row(
        discrete_sac_value,
        make_discrete(),
        loose=Loose(lengths=("q",)),
    ),
    Row(
        discrete_sac_value,
        make_discrete(critics=()),
        case="one critic",
    ),
    Row(
        discrete_sac_value,
        make_discrete("action_mask"),
        case="masked",
        loose=Loose(lengths=("q",)),
    ),
    Row(
        discrete_sac_policy_loss,
        make_discrete(),
        gradients=Gradients(constants=STOPPED),
        loose=Loose(lengths=("q",)),
    ),
    Row(
        discrete_sac_policy_loss,
        make_discrete("action_mask", critics=()),
        case="masked, one critic",
        gradients=Gradients(constants=STOPPED),
    ),
]
