"""Rows of `streaming.py`, and their definitions in NumPy."""

import functools

import numpy as np
from contract import fields
from row import Gradients, Loose, Precision, Row

import rlaxlib
from rows._shared import joined, of_fields, with_state

FEATURES = 4


def eligibility_trace(trace, gradient, decay, kind="accumulating"):
    """Sutton and Barto 2018, equation 12.5; Singh and Sutton 1996: features restart."""
    faded = decay * trace
    if kind == "accumulating":
        return faded + gradient
    faded[gradient != 0] = gradient[gradient != 0]
    return faded


def emphatic_trace_init(params):
    return np.zeros_like(params), np.asarray(0.0), np.asarray(1.0), np.asarray(0.0)


def emphatic_trace(
    trace, followon, rho, discount, gradient, rho_tm1, discount_t, lambda_, interest
):
    """Sutton et al. 2015, equations 17 to 20, with the names of this library."""
    followon = rho * discount * followon + interest
    emphasis = lambda_ * interest + (1 - lambda_) * followon
    trace = rho_tm1 * (discount * lambda_ * trace + emphasis * gradient)
    return trace, followon, rho_tm1, discount_t


def true_online_td_init(num_features):
    zeros = np.zeros(num_features)
    return zeros, zeros, np.asarray(0.0), np.asarray(0.0)


def true_online_td_lambda(
    weights, trace, value, discount, x_tm1, r_t, discount_t, x_t, lambda_, step_size
):
    """Van Seijen et al. 2015, algorithm 1, with the discount of each transition."""
    v_tm1, v_t = weights @ x_tm1, weights @ x_t
    error = r_t + discount_t * v_t - v_tm1
    matrix = np.eye(len(trace)) - step_size * np.outer(x_tm1, x_tm1)
    trace = discount * lambda_ * matrix @ trace + x_tm1
    weights = weights + step_size * (error + v_tm1 - value) * trace
    weights = weights - step_size * (v_tm1 - value) * x_tm1
    return weights, trace, v_t, discount_t


def losses(v_tm1, r_t, discount_t, v_t, h_tm1, rho_tm1, held, kind):
    """Return pseudo-losses, in which what has no gradient is held."""
    error = held["r_t"] + held["discount_t"] * held["v_t"] - held["v_tm1"]
    rho, h, discount = held["rho_tm1"], held["h_tm1"], held["discount_t"]
    if kind == "tdc":
        value = -rho * (error * v_tm1 - discount * h * v_t)
    else:
        value = -rho * h * (v_tm1 - discount * v_t)
    correction = rho * (error - h_tm1) ** 2 / 2
    delta = r_t + discount_t * v_t - v_tm1
    return [np.asarray(x) for x in (value + correction, value, correction, delta)]


def tdc_loss(**arguments):
    return losses(**arguments, held=arguments, kind="tdc")


def gtd2_loss(**arguments):
    return losses(**arguments, held=arguments, kind="gtd2")


def obgd_step_size(trace, td_error, step_size, kappa):
    """Elsayed et al. 2024, algorithm 3."""
    bound = step_size * kappa * max(abs(td_error), 1.0) * np.sum(np.abs(trace))
    return min(step_size / bound, step_size)


# --- What they are called with. ---


def vectors(*names):
    return lambda rng: {name: rng.normal(size=FEATURES) for name in names}


def scalars(*names):
    return lambda rng: {name: np.asarray(rng.uniform(0.2, 0.9)) for name in names}


TRACE, ONLINE = "EmphaticTraceState", "TrueOnlineTdState"


DECAYED = joined(vectors("trace", "gradient"), scalars("decay"))


ERRORS = scalars("v_tm1", "r_t", "discount_t", "v_t", "h_tm1", "rho_tm1")


ROWS = [
    Row(
        eligibility_trace,
        DECAYED,
        precision=Precision(condition=4.0, carried={"trace": 0}),
        loose=Loose(batches=False),
    ),
    Row(
        eligibility_trace,
        joined(
            vectors("trace"),
            lambda rng: {"gradient": np.where([1, 0, 1, 0], rng.normal(size=4), 0.0)},
            scalars("decay"),
        ),
        "replacing",
        settings={"kind": "replacing"},
        gradients=Gradients(
            first_order_only="the trace jumps where the gradient is 0", exist=False
        ),
        precision=Precision(carried={"trace": 0}),
        loose=Loose(batches=False),
    ),
    Row(
        emphatic_trace_init,
        lambda rng: {},
        settings={"params": np.ones(4, np.float32)},
        gradients=Gradients(exist=False),
    ),
    Row(
        of_fields(emphatic_trace),
        joined(
            vectors("state.trace"),
            scalars("state.followon", "state.rho", "state.discount"),
            vectors("gradient"),
            scalars("rho_tm1", "discount_t", "lambda_", "interest"),
        ),
        find=with_state("emphatic_trace", TRACE),
        precision=Precision(condition=4.0, carried=fields(rlaxlib.EmphaticTraceState)),
        loose=Loose(batches=False),
        stream=None,
    ),
    Row(
        true_online_td_init,
        lambda rng: {},
        settings={"num_features": 4},
        gradients=Gradients(exist=False),
    ),
    Row(
        of_fields(true_online_td_lambda),
        joined(
            vectors("state.weights", "state.trace"),
            scalars("state.value", "state.discount"),
            vectors("x_tm1"),
            scalars("r_t", "discount_t"),
            vectors("x_t"),
            scalars("lambda_", "step_size"),
        ),
        find=with_state("true_online_td_lambda", ONLINE),
        precision=Precision(condition=64.0, carried=fields(rlaxlib.TrueOnlineTdState)),
        stream=None,
    ),
    Row(
        tdc_loss,
        ERRORS,
        gradients=Gradients(
            free_definition=functools.partial(
                lambda x, held, kind: losses(**x, held=held, kind=kind), kind="tdc"
            ),
            first_order_only="the losses are not those of which the gradient is that",
        ),
        precision=Precision(condition=4.0),
    ),
    Row(
        gtd2_loss,
        ERRORS,
        gradients=Gradients(
            free_definition=functools.partial(
                lambda x, held, kind: losses(**x, held=held, kind=kind), kind="gtd2"
            ),
            first_order_only="the losses are not those of which the gradient is that",
        ),
        precision=Precision(condition=4.0),
    ),
    Row(
        obgd_step_size,
        joined(vectors("trace"), scalars("td_error", "step_size", "kappa")),
        loose=Loose(batches=False),
    ),
]
