"""Rows of `planning.py`, and their definitions in NumPy."""

import numpy as np
from contract import fields as fields_of
from row import Gradients, Precision, Row

import rlaxlib
from rows._shared import with_state

SAMPLES, HORIZON, DIMENSIONS = 6, 3, 2


def best(returns, number):
    return sorted(range(len(returns)), key=lambda i: -returns[i])[:number]


def mixed(state, mean, variance, momentum, min_stddev, max_stddev):
    stddev = momentum * state["stddev"] + (1 - momentum) * np.sqrt(variance)
    mean = momentum * state["mean"] + (1 - momentum) * mean
    return mean, np.minimum(np.maximum(stddev, min_stddev), max_stddev)


def cem_update(
    state, actions, returns, num_elites, momentum=0.0, min_stddev=0.0, max_stddev=np.inf
):
    """De Boer et al. 2005, section 4: the elites' moments, smoothed."""
    elites = actions[best(returns, num_elites)]
    mean, variance = np.mean(elites, axis=0), np.var(elites, axis=0)
    return mixed(state, mean, variance, momentum, min_stddev, max_stddev)


def mppi_update(
    state,
    actions,
    returns,
    temperature=2.0,
    num_elites=None,
    momentum=0.0,
    min_stddev=0.0,
    max_stddev=np.inf,
):
    """Hansen et al. 2023, appendix A: weights of the elites, and their moments."""
    elites = best(returns, num_elites or len(returns))
    weights = np.exp(returns[elites] / temperature)
    weights = weights / np.sum(weights)
    mean = sum(w * a for w, a in zip(weights, actions[elites], strict=True))
    squares = [(a - mean) ** 2 for a in actions[elites]]
    variance = sum(w * x for w, x in zip(weights, squares, strict=True))
    return mixed(state, mean, variance, momentum, min_stddev, max_stddev)


def plan_init(num_steps, num_dimensions, stddev):
    shape = num_steps, num_dimensions
    return np.zeros(shape), np.full(shape, stddev)


def shift_plan(state, stddev):
    mean = np.stack([*state["mean"][1:], np.zeros(DIMENSIONS)])
    return mean, np.full(mean.shape, stddev)


# --- Arguments. ---


def of_state(definition):
    """Gather the fields of the state."""

    def define(**arguments):
        fields = {n: arguments.pop(f"state.{n}") for n in ("mean", "stddev")}
        return definition(state=fields, **arguments)

    return define


def make_plan(*names):
    def make(rng):
        drawn = {
            "state.mean": rng.normal(size=(HORIZON, DIMENSIONS)),
            "state.stddev": rng.uniform(0.5, 2.0, (HORIZON, DIMENSIONS)),
            "actions": rng.normal(size=(SAMPLES, HORIZON, DIMENSIONS)),
            "returns": rng.normal(size=SAMPLES),
            "momentum": np.asarray(rng.uniform(0.1, 0.9)),
            "min_stddev": np.asarray(rng.uniform(0.3, 0.6)),
            "max_stddev": np.asarray(rng.uniform(1.0, 1.5)),
            "temperature": np.asarray(rng.uniform(0.5, 2.0)),
            "stddev": np.asarray(rng.uniform(0.5, 2.0)),
            "a": rng.normal(size=DIMENSIONS),
        }
        return {name: drawn[name] for name in names}

    return make


def row(definition, names, case="", **fields):
    return Row(
        of_state(definition),
        make_plan("state.mean", "state.stddev", *names),
        case,
        name=definition.__name__,
        find=with_state(definition.__name__, "PlanState"),
        gradients=Gradients(exist=False),
        precision=Precision(carried=fields_of(rlaxlib.PlanState)),
        **fields,
    )


SAMPLED = ("actions", "returns")


BOUNDS = ("momentum", "min_stddev", "max_stddev")


ROWS = [
    Row(
        plan_init,
        lambda rng: {"stddev": np.asarray(rng.uniform(0.5, 2.0))},
        settings={"num_steps": HORIZON, "num_dimensions": DIMENSIONS},
        gradients=Gradients(exist=False),
    ),
    row(cem_update, (*SAMPLED, *BOUNDS), settings={"num_elites": 3}),
    row(cem_update, SAMPLED, "defaults", settings={"num_elites": 4}),
    row(mppi_update, (*SAMPLED, *BOUNDS), settings={"num_elites": 3}),
    row(mppi_update, (*SAMPLED, "temperature"), "all samples"),
    row(shift_plan, ("stddev",)),
]
