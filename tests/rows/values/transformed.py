"""Rows of `values/_transformed.py`, and their definitions in NumPy."""

import numpy as np
from row import Gradients, Peer, Precision, Row
from rows.returns import multistep, off_policy
from rows.transforms import squashing
from rows.values.multistep import many_steps, taken, with_one_lambda

import rlaxlib

HYPERBOLIC = rlaxlib.SIGNED_HYPERBOLIC_PAIR


IN_NUMPY = {
    HYPERBOLIC: (squashing.signed_hyperbolic, squashing.signed_parabolic),
    rlaxlib.HYPERBOLIC_SIN_PAIR: (
        squashing.hyperbolic_arcsin,
        squashing.hyperbolic_sin,
    ),
}


def transformed_lambda_returns(tx_pair, r_t, discount_t, v_t, lambda_):
    """Van Hasselt et al. 2019: the transform of a return of inverse transforms."""
    apply, apply_inv = IN_NUMPY[tx_pair]
    found = multistep.lambda_returns(r_t, discount_t, apply_inv(v_t), lambda_)
    return apply(np.asarray(found))


def transformed_n_step_returns(tx_pair, r_t, discount_t, v_t, n, lambda_t=None):
    apply, apply_inv = IN_NUMPY[tx_pair]
    lambda_t = np.ones_like(r_t) if lambda_t is None else lambda_t
    found = multistep.n_step_bootstrapped_returns(
        r_t, discount_t, apply_inv(v_t), lambda_t, n
    )
    return apply(np.asarray(found))


def transformed_general_off_policy_returns_from_action_values(
    tx_pair, q_t, a_t, r_t, discount_t, c_t, pi_t
):
    apply, apply_inv = IN_NUMPY[tx_pair]
    found = off_policy.general_off_policy_returns_from_action_values(
        apply_inv(q_t), a_t, r_t, discount_t, c_t, pi_t
    )
    return apply(np.asarray(found))


def transformed_q_lambda(q_tm1, a_tm1, r_t, discount_t, q_t, lambda_, tx_pair):
    best = np.max(q_t, axis=-1)
    target = transformed_lambda_returns(tx_pair, r_t, discount_t, best, lambda_)
    return target - taken(q_tm1, a_tm1)


def transformed_retrace(
    q_tm1, q_t, a_tm1, a_t, r_t, discount_t, pi_t, mu_t, lambda_, tx_pair, eps=1e-8
):
    """Kapturowski et al. 2019, with the coefficients of Munos et al. 2016."""
    c_t = lambda_ * np.minimum(1.0, taken(pi_t, a_t) / (mu_t + eps))
    target = transformed_general_off_policy_returns_from_action_values(
        tx_pair, q_t, a_t, r_t, discount_t, c_t, pi_t
    )
    return target - taken(q_tm1, a_tm1)


def transformed_n_step_q_learning(
    q_tm1, a_tm1, target_q_t, a_t, r_t, discount_t, n, tx_pair
):
    """Kapturowski et al. 2019."""
    target = transformed_n_step_returns(
        tx_pair, r_t, discount_t, taken(target_q_t, a_t), n
    )
    return target - taken(q_tm1, a_tm1)


# --- Arguments. ---


def stopped(definition, **settings):
    """Return a function whose gradient is that of a result that is stopped."""
    return lambda x, constants: definition(**constants, **settings)


# rlax wraps functions without `tx_pair`, and takes values by position only.
def lambda_returns_of_rlax(library):
    def call(tx_pair, r_t, discount_t, v_t, lambda_=1.0, stop_target_gradients=False):
        return library.transformed_lambda_returns(
            tx_pair, r_t, discount_t, v_t, lambda_, stop_target_gradients
        )

    return call


def n_step_returns_of_rlax(library):
    def call(
        tx_pair, r_t, discount_t, v_t, n, lambda_t=1.0, stop_target_gradients=False
    ):
        return library.transformed_n_step_returns(
            tx_pair, r_t, discount_t, v_t, n, lambda_t, stop_target_gradients
        )

    return call


def off_policy_returns_of_rlax(library):
    def call(
        tx_pair, q_t, a_t, r_t, discount_t, c_t, pi_t, stop_target_gradients=False
    ):
        return library.transformed_general_off_policy_returns_from_action_values(
            tx_pair, q_t, a_t, r_t, discount_t, c_t, pi_t, stop_target_gradients
        )

    return call


def draw_c(rng):
    return rng.uniform(0.2, 1.0, 6)


LAMBDA = ("r_t", "discount_t", "v_t", "lambda_")


N_STEP = ("r_t", "discount_t", "v_t", "lambda_t")


VALUES = ("q_t", "r_t", "discount_t", "c_t", "pi_t")


Q = ("q_tm1", "a_tm1", "r_t", "discount_t", "q_t", "lambda_")


RETRACE = ("q_tm1", "q_t", "a_tm1", "a_t", "r_t", "discount_t", "pi_t", "mu_t")


R2D2 = ("q_tm1", "a_tm1", "target_q_t", "a_t", "r_t", "discount_t")


PAIR = {"tx_pair": HYPERBOLIC}


ROUNDING = 10.0  # The transform and its inverse lose precision, with an eps of 1/1000.


ROWS = [
    Row(
        transformed_lambda_returns,
        many_steps(*LAMBDA),
        settings=PAIR,
        peer=Peer(find=lambda_returns_of_rlax),
        gradients=Gradients(
            targets=LAMBDA,
            stopped_definition=stopped(transformed_lambda_returns, **PAIR),
        ),
        precision=Precision(condition=ROUNDING),
    ),
    Row(
        transformed_n_step_returns,
        many_steps(*N_STEP, lambda_t=draw_c),
        settings={**PAIR, "n": 3},
        peer=Peer(find=n_step_returns_of_rlax),
        gradients=Gradients(
            targets=N_STEP,
            stopped_definition=stopped(transformed_n_step_returns, **PAIR, n=3),
        ),
        precision=Precision(condition=ROUNDING),
    ),
    Row(
        transformed_general_off_policy_returns_from_action_values,
        many_steps(*VALUES, "a_t", c_t=draw_c),
        settings=PAIR,
        peer=Peer(find=off_policy_returns_of_rlax),
        gradients=Gradients(
            targets=VALUES,
            stopped_definition=stopped(
                transformed_general_off_policy_returns_from_action_values, **PAIR
            ),
        ),
        precision=Precision(condition=ROUNDING),
    ),
    Row(
        transformed_q_lambda,
        many_steps(*Q),
        settings=PAIR,
        gradients=Gradients(targets=("r_t", "discount_t", "q_t", "lambda_")),
        precision=Precision(condition=ROUNDING),
    ),
    Row(
        transformed_q_lambda,
        many_steps(*Q),
        "hyperbolic sine",
        settings={"tx_pair": rlaxlib.HYPERBOLIC_SIN_PAIR},
        gradients=Gradients(targets=("r_t", "discount_t", "q_t", "lambda_")),
        precision=Precision(condition=ROUNDING),
    ),
    Row(
        transformed_retrace,
        with_one_lambda(many_steps(*RETRACE, "lambda_")),
        settings=PAIR,
        gradients=Gradients(
            targets=("r_t", "discount_t", "q_t", "pi_t", "mu_t", "lambda_")
        ),
        precision=Precision(condition=ROUNDING),
    ),
    Row(
        transformed_n_step_q_learning,
        many_steps(*R2D2, target_q_t=lambda rng: rng.normal(size=(6, 4))),
        settings={**PAIR, "n": 3},
        gradients=Gradients(targets=("r_t", "discount_t", "target_q_t")),
        precision=Precision(condition=ROUNDING),
    ),
]
