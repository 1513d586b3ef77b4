"""Rows of `returns/_multistep.py`, and their definitions in NumPy."""

import numpy as np
from row import Gradients, Row, Stream
from rows.returns._shared import ROWWISE, constant, maker, sum_of_errors, values_of_rows

# --- Definitions. ---


def one_step_target(t, r_t, discount_t, v_t, lambda_, further):
    bootstrap = (1 - lambda_[t]) * v_t[t] + lambda_[t] * further
    return r_t[t] + discount_t[t] * bootstrap


def discounted_returns(r_t, discount_t, v_t):
    """Sum the rewards from each step on, each times all discounts before it."""
    rewards = np.append(r_t, v_t[-1])
    return [
        sum(np.prod(discount_t[t:k]) * rewards[k] for k in range(t, len(rewards)))
        for t in range(len(r_t))
    ]


def lambda_returns(r_t, discount_t, v_t, lambda_):
    def from_step(t):
        if t == len(r_t):
            return v_t[-1]
        return one_step_target(t, r_t, discount_t, v_t, lambda_, from_step(t + 1))

    return np.array([from_step(t) for t in range(len(r_t))])


def n_step_bootstrapped_returns(r_t, discount_t, v_t, lambda_t, n):
    def window(t, steps):
        if steps == 0 or t == len(r_t):
            return v_t[t - 1]
        further = window(t + 1, steps - 1)
        return one_step_target(t, r_t, discount_t, v_t, lambda_t, further)

    return [window(t, n) for t in range(len(r_t))]


def generalized_advantage_estimation(v_tm1, v_t, r_t, discount_t, lambda_):
    return sum_of_errors(r_t + discount_t * v_t - v_tm1, discount_t * lambda_)


def upgo_returns(v_tm1, v_t, r_t, discount_t):
    """Vinyals et al. 2019, with a discount."""

    def from_step(t):
        last = t == len(r_t) - 1
        if last or r_t[t + 1] + discount_t[t + 1] * v_t[t + 1] < v_tm1[t + 1]:
            return r_t[t] + discount_t[t] * v_t[t]
        return r_t[t] + discount_t[t] * from_step(t + 1)

    return np.array([from_step(t) for t in range(len(r_t))])


def linear_recurrence(a, b, final):
    """Unroll the recurrence: the final value and each offset, times all factors."""
    later = np.append(b, final)
    return np.array(
        [
            sum(np.prod(a[t:k]) * later[k] for k in range(t, len(later)))
            for t in range(len(b))
        ]
    )


def truncated_generalized_advantage_estimation(
    r_t, discount_t, lambda_, values, v_t=None
):
    v_t = values[1:] if v_t is None else v_t
    return generalized_advantage_estimation(values[:-1], v_t, r_t, discount_t, lambda_)


# --- Arguments. ---


LAMBDA = ("r_t", "discount_t", "v_t", "lambda_")


GAE = ("r_t", "discount_t", "lambda_", "values")


ROWS = [
    Row(
        discounted_returns,
        maker("r_t", "discount_t", "v_t"),
        gradients=Gradients(
            targets=("r_t", "discount_t", "v_t"),
            stopped_definition=constant(discounted_returns),
        ),
    ),
    Row(
        lambda_returns,
        maker(*LAMBDA),
        gradients=Gradients(
            targets=LAMBDA, stopped_definition=constant(lambda_returns)
        ),
    ),
    Row(
        n_step_bootstrapped_returns,
        maker("r_t", "discount_t", "v_t", "lambda_t"),
        settings={"n": 3},
        gradients=Gradients(
            targets=("r_t", "discount_t", "v_t", "lambda_t"),
            stopped_definition=constant(n_step_bootstrapped_returns, n=3),
        ),
    ),
    Row(
        truncated_generalized_advantage_estimation,
        maker(*GAE),
        gradients=Gradients(
            targets=GAE,
            stopped_definition=constant(truncated_generalized_advantage_estimation),
        ),
        stream=Stream(make=maker(*ROWWISE), assemble=values_of_rows),
    ),
    Row(
        generalized_advantage_estimation,
        maker("v_tm1", "v_t", "r_t", "discount_t", "lambda_"),
        gradients=Gradients(
            targets=("v_tm1", "v_t", "r_t", "discount_t", "lambda_"),
            stopped_definition=constant(generalized_advantage_estimation),
        ),
    ),
    Row(
        upgo_returns,
        maker("v_tm1", "v_t", "r_t", "discount_t"),
        gradients=Gradients(
            targets=("v_t", "r_t", "discount_t"),
            stopped_definition=constant(upgo_returns),
        ),
    ),
    Row(linear_recurrence, maker("a", "b", "final"), stream=None),
    Row(linear_recurrence, maker("a", "b"), "streams", settings={"final": 0.0}),
]
