"""Definitions and arguments that rows of `returns` share."""

import numpy as np
from contract import STEPS, away_from, discounts

# --- Definitions. ---


def sum_of_errors(errors, decay):
    """Sum the errors from each step on, each times all decays before it."""
    return np.array(
        [
            sum(np.prod(decay[t:k]) * errors[k] for k in range(t, len(errors)))
            for t in range(len(errors))
        ]
    )


# --- Arguments. ---


def maker(*names, **extra):
    """Return a function that draws the arguments of these names."""

    def make(rng):
        ratios = rng.uniform(0.2, 2.5, STEPS)
        for kink in (0.5, 1.0, 1.5):
            ratios = away_from(ratios, kink)
        drawn = {
            "r_t": rng.normal(size=STEPS),
            "discount_t": discounts(rng),
            "values": rng.normal(size=STEPS + 1),
            "v_tm1": rng.normal(size=STEPS),
            "v_t": rng.normal(size=STEPS),
            "lambda_": rng.uniform(size=STEPS),
            "lambda_t": rng.uniform(size=STEPS),
            "rho_tm1": ratios,
            "alpha": rng.uniform(0.2, 0.8),
            "alpha_": rng.uniform(0.2, 0.8),
            "q_t": rng.normal(size=STEPS),
            "c_t": rng.uniform(0.2, 1.2, STEPS),
            "a": rng.uniform(-1.0, 1.0, STEPS),
            "b": rng.normal(size=STEPS),
            "final": np.asarray(rng.normal()),
        }
        drawn |= {name: draw(rng) for name, draw in extra.items()}
        return {name: drawn[name] for name in names}

    return make


def values_of_rows(rows, xp):
    """Turn `v_tm1` and `v_t` into the argument `values`."""
    rows = dict(rows)
    values = xp.concatenate([rows.pop("v_tm1"), rows["v_t"][-1:]])
    return rows | {"values": values}


def constant(definition, **settings):
    """Return a definition whose gradient is stopped entirely."""
    return lambda x, constants: definition(**constants, **settings)


def all_but_value(definition, **settings):
    """Return a definition of errors with a gradient by the subtracted value only."""

    def flagged(x, constants):
        before = x["v_tm1"] if "v_tm1" in x else x["values"][:-1]
        fixed = constants["v_tm1"] if "v_tm1" in x else constants["values"][:-1]
        found = definition(**constants, **settings)
        errors, *others = found if isinstance(found, tuple) else (found,)
        return errors + fixed - before, *others

    return flagged


ROWWISE = ("r_t", "discount_t", "lambda_", "v_tm1", "v_t")
