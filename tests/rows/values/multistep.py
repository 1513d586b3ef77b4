"""Rows of `values/_multistep.py`, and their definitions in NumPy."""

import numpy as np
from contract import (
    ACTIONS,
    STEPS,
    actions,
    discounts,
    probabilities,
)
from row import Gradients, Loose, Row, Stream
from rows.returns import multistep, off_policy
from rows.values.td import TD, Q

# --- Many steps. ---


def taken(q, a):
    return q[np.arange(len(a)), a]


def td_lambda(v_tm1, r_t, discount_t, v_t, lambda_):
    return multistep.lambda_returns(r_t, discount_t, v_t, lambda_) - v_tm1


def sarsa_lambda(q_tm1, a_tm1, r_t, discount_t, q_t, a_t, lambda_):
    before, after = taken(q_tm1, a_tm1), taken(q_t, a_t)
    return td_lambda(before, r_t, discount_t, after, lambda_)


def q_lambda(q_tm1, a_tm1, r_t, discount_t, q_t, lambda_):
    after = np.max(q_t, axis=-1)
    return td_lambda(taken(q_tm1, a_tm1), r_t, discount_t, after, lambda_)


def watkins_trace(q_t, a_t):
    """Watkins 1989: 1 for greedy actions."""
    return np.array([float(a == np.argmax(q)) for q, a in zip(q_t, a_t, strict=True)])


def retrace(q_tm1, q_t, a_tm1, a_t, r_t, discount_t, pi_t, mu_t, lambda_, eps=1e-8):
    """Munos et al. 2016: coefficients are importance ratios, truncated at 1."""
    c_t = lambda_ * np.minimum(1.0, taken(pi_t, a_t) / (mu_t + eps))
    target = off_policy.general_off_policy_returns_from_action_values(
        q_t, a_t, r_t, discount_t, c_t, pi_t
    )
    return target - taken(q_tm1, a_tm1)


def retrace_continuous(q_tm1, q_t, v_t, r_t, discount_t, log_rhos, lambda_):
    c_t = lambda_ * np.minimum(1.0, np.exp(log_rhos))
    target = off_policy.general_off_policy_returns_from_q_and_v(
        q_t, v_t, r_t, discount_t, c_t
    )
    return target - q_tm1


# --- Arguments. ---


def many_steps(*names, **extra):
    """Return a function that draws these arguments of a multistep error."""

    def make(rng):
        a_t, pi_t = actions(rng, STEPS), probabilities(rng, STEPS, ACTIONS)
        # Importance ratios on both sides of 1, where Retrace truncates.
        ratios = rng.permutation(np.repeat([0.5, 2.0], STEPS // 2))
        drawn = {
            "v_tm1": rng.normal(size=STEPS),
            "v_t": rng.normal(size=STEPS),
            "r_t": rng.normal(size=STEPS),
            "discount_t": discounts(rng),
            "lambda_": rng.uniform(0.2, 1.0, STEPS),
            "q_tm1": rng.normal(size=(STEPS, ACTIONS)),
            "q_t": rng.normal(size=(STEPS, ACTIONS)),
            "a_tm1": actions(rng, STEPS),
            "a_t": a_t,
            "pi_t": pi_t,
            "mu_t": taken(pi_t, a_t) / ratios,
            "q_t_value": rng.normal(size=(STEPS, ACTIONS)),
            "q_t_selector": rng.normal(size=(STEPS, ACTIONS)),
            "log_rhos": np.log(ratios * rng.uniform(0.8, 1.2, STEPS)),
        }
        drawn |= {name: draw(rng) for name, draw in extra.items()}
        return {name: drawn[name] for name in names}

    return make


def without_last(rng):
    """Draw arguments without the last values and ratios, which are never used."""
    drawn = make_continuous(rng)
    return drawn | {name: drawn[name][:-1] for name in ("q_t", "log_rhos")}


def with_one_lambda(make):
    """Return a function that draws one lambda for all steps."""

    def make_one(rng):
        drawn = make(rng)
        return drawn | {"lambda_": np.asarray(drawn["lambda_"][0])}

    return make_one


RETRACE = ("q_tm1", "q_t", "a_tm1", "a_t", "r_t", "discount_t", "pi_t", "mu_t")


CONTINUOUS = ("q_tm1", "q_t", "v_t", "r_t", "discount_t", "log_rhos", "lambda_")


make_retrace = with_one_lambda(many_steps(*RETRACE, "lambda_"))


make_continuous = with_one_lambda(
    many_steps(
        *CONTINUOUS,
        q_tm1=lambda rng: rng.normal(size=STEPS),
        q_t=lambda rng: rng.normal(size=STEPS),
    )
)


ROWS = [
    Row(
        td_lambda,
        many_steps(*TD, "lambda_"),
        gradients=Gradients(targets=("r_t", "discount_t", "v_t", "lambda_")),
    ),
    Row(
        sarsa_lambda,
        many_steps(*Q, "a_t", "lambda_"),
        gradients=Gradients(targets=("r_t", "discount_t", "q_t", "lambda_")),
    ),
    Row(
        q_lambda,
        many_steps(*Q, "lambda_"),
        gradients=Gradients(targets=("r_t", "discount_t", "q_t", "lambda_")),
    ),
    Row(watkins_trace, many_steps("q_t", "a_t"), gradients=Gradients(exist=False)),
    Row(
        retrace,
        make_retrace,
        gradients=Gradients(
            targets=("r_t", "discount_t", "q_t", "pi_t", "mu_t", "lambda_")
        ),
    ),
    Row(
        retrace_continuous,
        without_last,
        gradients=Gradients(
            targets=("r_t", "discount_t", "q_t", "v_t", "log_rhos", "lambda_")
        ),
        loose=Loose(spare=("q_t", "log_rhos")),
        stream=Stream(make=make_continuous),
    ),
]
