"""Rows of `returns/_off_policy.py`, and their definitions in NumPy."""

import numpy as np
from contract import (
    ACTIONS,
    STEPS,
    actions,
    probabilities,
)
from row import Gradients, Loose, Peer, Row, Stream
from rows.returns._shared import (
    ROWWISE,
    all_but_value,
    constant,
    maker,
    sum_of_errors,
    values_of_rows,
)

# --- Definitions. ---


def importance_corrected_td_errors(r_t, discount_t, rho_tm1, lambda_, values, v_t=None):
    """Sutton et al. 2014: an error is weighted by all ratios up to its step."""
    v_t = values[1:] if v_t is None else v_t
    errors = r_t + discount_t * v_t - values[:-1]
    rho_t = np.append(rho_tm1[1:], 0.0)
    return rho_tm1 * sum_of_errors(errors, discount_t * lambda_ * rho_t)


def general_off_policy_returns_from_q_and_v(q_t, v_t, r_t, discount_t, c_t):
    """Munos et al. 2016, equation 3, for the returns of the states 0 to T-1."""
    steps = len(r_t)

    def from_step(t):
        if t == steps - 1:
            return r_t[t] + discount_t[t] * v_t[t]
        correction = c_t[t] * (from_step(t + 1) - q_t[t])
        return r_t[t] + discount_t[t] * (v_t[t] + correction)

    return np.array([from_step(t) for t in range(steps)])


def general_off_policy_returns_from_action_values(q_t, a_t, r_t, discount_t, c_t, pi_t):
    q_a_t = np.array([q[a] for q, a in zip(q_t, a_t, strict=True)])
    v_t = np.sum(pi_t * q_t, axis=-1)
    return general_off_policy_returns_from_q_and_v(q_a_t, v_t, r_t, discount_t, c_t)


def tree_backup(q_tm1, q_t, a_tm1, a_t, r_t, discount_t, pi_t, lambda_):
    """Precup et al. 2000: actions not taken keep their values, as leaves of a tree."""
    lambda_ = np.broadcast_to(lambda_, r_t.shape)

    def from_step(t):
        v = np.sum(pi_t[t] * q_t[t])
        if t < len(r_t) - 1:
            taken, trace = q_t[t, a_t[t]], lambda_[t] * pi_t[t, a_t[t]]
            v = v - trace * taken + trace * from_step(t + 1)
        return r_t[t] + discount_t[t] * v

    targets = np.array([from_step(t) for t in range(len(r_t))])
    return targets - q_tm1[np.arange(len(r_t)), a_tm1]


# --- Arguments. ---


def one_fewer(make, *names):
    """Return a function that draws these arguments with one entry fewer."""

    def fewer(rng):
        drawn = make(rng)
        return drawn | {name: drawn[name][:-1] for name in names}

    return fewer


CORRECTED = ("r_t", "discount_t", "rho_tm1", "lambda_", "values")


GENERAL = ("q_t", "v_t", "r_t", "discount_t", "c_t")


ACTION_VALUES = ("q_t", "a_t", "r_t", "discount_t", "c_t", "pi_t")


make_action_values = maker(
    *ACTION_VALUES,
    q_t=lambda rng: rng.normal(size=(STEPS, ACTIONS)),
    a_t=lambda rng: actions(rng, STEPS),
    pi_t=lambda rng: probabilities(rng, STEPS, ACTIONS),
)


make_tree = maker(
    *("q_tm1", "q_t", "a_tm1", "a_t", "r_t", "discount_t", "pi_t", "lambda_"),
    q_tm1=lambda rng: rng.normal(size=(STEPS, ACTIONS)),
    q_t=lambda rng: rng.normal(size=(STEPS, ACTIONS)),
    a_tm1=lambda rng: actions(rng, STEPS),
    a_t=lambda rng: actions(rng, STEPS),
    pi_t=lambda rng: probabilities(rng, STEPS, ACTIONS),
)


NOT_PUBLIC = "importance_corrected_td_errors"


ROWS = [
    Row(
        tree_backup,
        make_tree,
        gradients=Gradients(targets=("q_t", "r_t", "discount_t", "pi_t", "lambda_")),
    ),
    Row(
        importance_corrected_td_errors,
        maker(*CORRECTED),
        peer=Peer(find=lambda rlax: getattr(rlax._src.multistep, NOT_PUBLIC)),
        gradients=Gradients(
            targets=("r_t", "discount_t", "rho_tm1", "lambda_"),
            stopped_definition=all_but_value(importance_corrected_td_errors),
        ),
        stream=Stream(make=maker(*ROWWISE, "rho_tm1"), assemble=values_of_rows),
    ),
    Row(
        general_off_policy_returns_from_q_and_v,
        one_fewer(maker(*GENERAL), "q_t", "c_t"),
        gradients=Gradients(
            targets=GENERAL,
            stopped_definition=constant(general_off_policy_returns_from_q_and_v),
        ),
        loose=Loose(spare=("q_t", "c_t")),
        stream=Stream(make=maker(*GENERAL)),
    ),
    Row(
        general_off_policy_returns_from_action_values,
        make_action_values,
        gradients=Gradients(
            targets=("q_t", "r_t", "discount_t", "c_t", "pi_t"),
            stopped_definition=constant(general_off_policy_returns_from_action_values),
        ),
    ),
]
