"""Definitions and arguments that rows of `bandits` share."""

import dataclasses
import inspect

import numpy as np
from contract import ACTIONS, fields
from row import Precision, Row
from rows._shared import with_state

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


# --- What they are called with. ---


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


def exact(draw):
    """Draw a state without rounding errors, which those of its fields begin with."""

    def make(rng):
        state = draw(rng)
        return state | {f"{name}_rest": np.zeros_like(x) for name, x in state.items()}

    return make


def take(draw, *names):
    return lambda rng: {name: np.asarray(draw(rng)[name]) for name in names}


def pull(rng):
    return {
        "arm": np.asarray(rng.integers(ARMS)),
        "reward": np.asarray(rng.uniform(0.2, 0.8)),
    }


def prefixed(draw):
    return lambda rng: {f"state.{name}": x for name, x in draw(rng).items()}


def row(definition, make, **more):
    name = definition.__name__
    takes_state = "state" in inspect.signature(definition).parameters
    if takes_state and name.endswith("_update"):
        carried = fields(getattr(rlaxlib, STATES[name]))
        precision = more.get("precision", Precision())
        more["precision"] = dataclasses.replace(precision, carried=carried)
    return Row(
        of_fields(definition) if takes_state else definition,
        make,
        name=name,
        find=with_state(name, STATES[name]) if takes_state else None,
        **more,
    )


ARM = ({"arm": -1}, {"arm": ARMS})


COUNTS = ({"counts": np.array([-1.0, 1.0, 1.0, 1.0])},)


MEANS = ({"means": np.array([0.0, 0.5, 1.0, 1.5])},)
