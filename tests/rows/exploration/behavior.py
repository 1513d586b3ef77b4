"""Rows of `exploration/_behavior.py`, and their definitions in NumPy."""

import jax
import numpy as np
from contract import ACTIONS, fields
from row import Gradients, Precision, Row
from rows._shared import of_fields, with_state
from rows.exploration.bonuses import scalar

import rlaxlib

FEATURES, HEADS, BATCH = 3, 3, 6


# --- Behaviour. ---


def apex_epsilons(num_actors, base, exponent):
    return np.array(
        [base ** (1 + i / (num_actors - 1) * exponent) for i in range(num_actors)]
    )


def ez_greedy_init():
    return np.asarray(0), np.asarray(0)


def ez_greedy(
    key,
    preferences,
    epsilon,
    duration_exponent,
    a,
    remaining,
    max_duration,
    action_mask=None,
):
    """Dabney et al. 2020, with durations from the inverse of their distribution."""
    legal = np.ones(len(preferences), bool) if action_mask is None else action_mask
    of_start, of_duration, of_action = jax.random.split(key, 3)
    if remaining == 0 or not legal[a]:
        shares = np.arange(1.0, max_duration + 1) ** -duration_exponent
        point = float(jax.random.uniform(of_duration)) * shares.sum()
        logits = np.where(legal, 0.0, -np.inf)
        a = int(jax.random.categorical(of_action, logits))
        starts = float(jax.random.uniform(of_start)) < epsilon
        remaining = np.flatnonzero(np.cumsum(shares) > point)[0] + 1 if starts else 0
    greedy = np.argmax(np.where(legal, preferences, -np.inf))
    chosen = a if remaining > 0 else greedy
    return [np.asarray(x) for x in (chosen, a, max(remaining - 1, 0))]


def factorized_noise(key, num_inputs, num_outputs):
    def f(x):
        return np.sign(x) * np.abs(x) ** 0.5

    keys = jax.random.split(key)
    sizes = (num_inputs, num_outputs)
    rows, columns = (
        f(np.asarray(jax.random.normal(each, (n,)), np.float64))
        for each, n in zip(keys, sizes, strict=True)
    )
    return np.array([[x * y for y in columns] for x in rows]), columns


def bootstrapped_q_learning(q_tm1, a_tm1, r_t, discount_t, q_t, head_mask):
    targets = r_t + discount_t * q_t.max(axis=1)
    return head_mask * (targets - q_tm1[:, a_tm1])


# --- What they are called with. ---


def make_ez_greedy(remaining):
    return lambda rng: {
        "preferences": rng.normal(size=ACTIONS),
        "epsilon": scalar(rng),
        "duration_exponent": scalar(rng, 1.5, 2.5),
        "state.a": np.asarray(rng.integers(ACTIONS)),
        "state.remaining": np.asarray(remaining),
    }


def ez_row(case, remaining, **more):
    return Row(
        of_fields(ez_greedy),
        make_ez_greedy(remaining),
        case=case,
        find=with_state("ez_greedy", "EzGreedyState"),
        precision=Precision(carried=fields(rlaxlib.EzGreedyState, 1)),
        gradients=Gradients(exist=False),
        **more,
    )


ROWS = [
    Row(
        apex_epsilons,
        lambda rng: {"base": scalar(rng), "exponent": scalar(rng, 2.0, 8.0)},
        settings={"num_actors": 5},
    ),
    Row(ez_greedy_init, lambda rng: {}, gradients=Gradients(exist=False)),
    ez_row("", 0, settings={"max_duration": 50}),
    ez_row(
        "of legal actions",
        3,
        settings={
            "max_duration": 50,
            "action_mask": np.array([True, False, False, True]),
        },
    ),
    Row(
        factorized_noise,
        lambda rng: {},
        settings={"num_inputs": 3, "num_outputs": 2},
        gradients=Gradients(exist=False),
    ),
    Row(
        bootstrapped_q_learning,
        lambda rng: {
            "q_tm1": rng.normal(size=(HEADS, ACTIONS)),
            "a_tm1": np.asarray(rng.integers(ACTIONS)),
            "r_t": scalar(rng),
            "discount_t": scalar(rng),
            "q_t": rng.normal(size=(HEADS, ACTIONS)),
            "head_mask": np.array([True, False, True]),
        },
        gradients=Gradients(targets=("r_t", "discount_t", "q_t")),
    ),
]
