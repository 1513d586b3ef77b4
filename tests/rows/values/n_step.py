"""Rows of `values/_n_step.py`, and their definitions in NumPy."""

import numpy as np
from row import Gradients, Row
from rows.returns import multistep
from rows.values.multistep import many_steps, taken
from rows.values.td import Q

# --- Many steps. ---


def n_step_q_learning(q_tm1, a_tm1, r_t, discount_t, q_t, n):
    """Mnih et al. 2016, section 4."""
    return n_step_double_q_learning(q_tm1, a_tm1, r_t, discount_t, q_t, q_t, n)


def n_step_double_q_learning(q_tm1, a_tm1, r_t, discount_t, q_t_value, q_t_selector, n):
    """Horgan et al. 2018, section 3.1."""
    v_t = taken(q_t_value, np.argmax(q_t_selector, axis=-1))
    target = multistep.n_step_bootstrapped_returns(
        r_t, discount_t, v_t, np.ones(len(r_t)), n
    )
    return target - taken(q_tm1, a_tm1)


ROWS = [
    Row(
        n_step_q_learning,
        many_steps(*Q),
        settings={"n": 3},
        gradients=Gradients(targets=("r_t", "discount_t", "q_t")),
    ),
    Row(
        n_step_double_q_learning,
        many_steps(*Q[:-1], "q_t_value", "q_t_selector"),
        settings={"n": 3},
        gradients=Gradients(targets=("r_t", "discount_t", "q_t_value")),
    ),
]
