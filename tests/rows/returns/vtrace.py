"""Rows of `returns/_vtrace.py`, and their definitions in NumPy."""

import numpy as np
from row import Gradients, Peer, Row
from rows.returns._shared import all_but_value, maker, sum_of_errors

# --- Definitions. ---


def leaky(rho, threshold, alpha):
    """Zahavy et al. 2020: a mixture of the clipped ratio and the ratio itself."""
    return alpha * np.minimum(threshold, rho) + (1 - alpha) * rho


def leaky_vtrace(
    v_tm1,
    v_t,
    r_t,
    discount_t,
    rho_tm1,
    alpha_,
    lambda_,
    clip_rho_threshold=1.0,
    clip_c_threshold=1.0,
):
    """Espeholt et al. 2018, equation 1, minus the value of each state."""
    rho = leaky(rho_tm1, clip_rho_threshold, alpha_)
    c = lambda_ * leaky(rho_tm1, clip_c_threshold, alpha_)
    return sum_of_errors(rho * (r_t + discount_t * v_t - v_tm1), discount_t * c)


def vtrace(v_tm1, v_t, r_t, discount_t, rho_tm1, lambda_, **thresholds):
    return leaky_vtrace(
        v_tm1, v_t, r_t, discount_t, rho_tm1, 1.0, lambda_, **thresholds
    )


def leaky_vtrace_td_error_and_advantage(
    v_tm1,
    v_t,
    r_t,
    discount_t,
    rho_tm1,
    alpha,
    lambda_,
    clip_pg_rho_threshold=1.0,
    **thresholds,
):
    """Espeholt et al. 2018, section 4.2: bootstrap from the corrected next value."""
    errors = leaky_vtrace(
        v_tm1, v_t, r_t, discount_t, rho_tm1, alpha, lambda_, **thresholds
    )
    lambda_ = np.broadcast_to(lambda_, r_t.shape)
    q_estimate = r_t + discount_t * v_t
    for t in range(len(r_t) - 1):
        q_estimate[t] += discount_t[t] * lambda_[t] * errors[t + 1]
    advantage = leaky(rho_tm1, clip_pg_rho_threshold, alpha) * (q_estimate - v_tm1)
    return errors, advantage, q_estimate


def vtrace_td_error_and_advantage(
    v_tm1, v_t, r_t, discount_t, rho_tm1, lambda_, **thresholds
):
    return leaky_vtrace_td_error_and_advantage(
        v_tm1, v_t, r_t, discount_t, rho_tm1, 1.0, lambda_, **thresholds
    )


# --- Arguments. ---


def with_one_clock(make):
    """Return a function that draws values without resets, `v_t[:-1] == v_tm1[1:]`."""

    def consistent(rng):
        drawn = make(rng)
        drawn["v_t"][:-1] = drawn["v_tm1"][1:]
        return drawn

    return consistent


VTRACE = ("v_tm1", "v_t", "r_t", "discount_t", "rho_tm1", "lambda_")


LEAKY = ("v_tm1", "v_t", "r_t", "discount_t", "rho_tm1", "alpha_", "lambda_")


LEAKY_PG = ("v_tm1", "v_t", "r_t", "discount_t", "rho_tm1", "alpha", "lambda_")


NOT_STOPPED = {True: "rlax lets the gradient into advantages and q"}


ROWS = [
    Row(
        vtrace,
        maker(*VTRACE),
        settings={"clip_rho_threshold": 1.5},
        gradients=Gradients(
            targets=("v_t", "r_t", "discount_t", "rho_tm1", "lambda_"),
            stopped_definition=all_but_value(vtrace, clip_rho_threshold=1.5),
        ),
    ),
    Row(
        leaky_vtrace,
        maker(*LEAKY),
        settings={"clip_rho_threshold": 1.5},
        gradients=Gradients(
            targets=("v_t", "r_t", "discount_t", "rho_tm1", "alpha_", "lambda_"),
            stopped_definition=all_but_value(leaky_vtrace, clip_rho_threshold=1.5),
        ),
    ),
    Row(
        vtrace_td_error_and_advantage,
        maker(*VTRACE),
        settings={"clip_rho_threshold": 1.5, "clip_pg_rho_threshold": 0.5},
        peer=Peer(
            make=with_one_clock(maker(*VTRACE)),
            no_gradients={
                **NOT_STOPPED,
                False: "rlax takes the gradient to v_tm1 that belongs to v_t",
            },
        ),
        gradients=Gradients(
            targets=("v_t", "r_t", "discount_t", "rho_tm1", "lambda_"),
            stopped_definition=all_but_value(
                vtrace_td_error_and_advantage,
                clip_rho_threshold=1.5,
                clip_pg_rho_threshold=0.5,
            ),
        ),
    ),
    Row(
        leaky_vtrace_td_error_and_advantage,
        maker(*LEAKY_PG),
        settings={"clip_rho_threshold": 1.5, "clip_pg_rho_threshold": 0.5},
        peer=Peer(
            make=with_one_clock(maker(*LEAKY_PG)),
            no_gradients={
                **NOT_STOPPED,
                False: "rlax takes the gradient to v_tm1 that belongs to v_t",
            },
        ),
        gradients=Gradients(
            targets=("v_t", "r_t", "discount_t", "rho_tm1", "alpha", "lambda_"),
            stopped_definition=all_but_value(
                leaky_vtrace_td_error_and_advantage,
                clip_rho_threshold=1.5,
                clip_pg_rho_threshold=0.5,
            ),
        ),
    ),
]
