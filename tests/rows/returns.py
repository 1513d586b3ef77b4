"""Returns: definitions in NumPy, and the rows that compare the functions with them."""

import jax.numpy as jnp
import numpy as np
from contract import (
    ACTIONS,
    BAD_DISCOUNTS,
    BAD_LAMBDA,
    BAD_POLICY,
    BAD_RATIOS,
    BAD_TRACES,
    STEPS,
    Row,
    actions,
    away_from,
    discounts,
    probabilities,
)

# --- Definitions. ---


def sum_of_errors(errors, decay):
    """Sum the errors from each step on, each times all decays before it."""
    return np.array(
        [
            sum(np.prod(decay[t:k]) * errors[k] for k in range(t, len(errors)))
            for t in range(len(errors))
        ]
    )


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


def n_step_transitions(r_t, discount_t, n):
    """Add up rewards and multiply discounts over each window, to its last step."""
    rewards, discounts, index = [], [], []
    for t in range(len(r_t)):
        window = range(t, min(t + n, len(r_t)))
        rewards.append(sum(np.prod(discount_t[t:k]) * r_t[k] for k in window))
        discounts.append(np.prod(discount_t[window]))
        ends = [k for k in window if discount_t[k] == 0]
        index.append(min([window[-1], *ends]))
    return np.array(rewards), np.array(discounts), np.array(index)


def n_step_transitions_and_last_rewards(r_t, discount_t, n):
    rewards, discounts, index = n_step_transitions(r_t, discount_t, n)
    return rewards, discounts, r_t[index]


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


def last_rewards_of(library):
    """Return the function with the reward at each index in place of the index."""

    def last_rewards(r_t, discount_t, n, truncated_t=None, sample_mask=None):
        masks = {"truncated_t": truncated_t, "sample_mask": sample_mask}
        rewards, discounts, index = library.n_step_transitions(
            r_t, discount_t, n, **masks
        )
        last = jnp.asarray(r_t, rewards.dtype)[index]
        if sample_mask is not None:
            last = jnp.where(sample_mask, last, 0)
        return rewards, discounts, last

    return last_rewards


def one_fewer(make, *names):
    """Return a function that draws these arguments with one entry fewer."""

    def fewer(rng):
        drawn = make(rng)
        return drawn | {name: drawn[name][:-1] for name in names}

    return fewer


def with_one_clock(make):
    """Return a function that draws values without resets, `v_t[:-1] == v_tm1[1:]`."""

    def consistent(rng):
        drawn = make(rng)
        drawn["v_t"][:-1] = drawn["v_tm1"][1:]
        return drawn

    return consistent


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


LAMBDA = ("r_t", "discount_t", "v_t", "lambda_")
GAE = ("r_t", "discount_t", "lambda_", "values")
CORRECTED = ("r_t", "discount_t", "rho_tm1", "lambda_", "values")
ROWWISE = ("r_t", "discount_t", "lambda_", "v_tm1", "v_t")
GENERAL = ("q_t", "v_t", "r_t", "discount_t", "c_t")
ACTION_VALUES = ("q_t", "a_t", "r_t", "discount_t", "c_t", "pi_t")
VTRACE = ("v_tm1", "v_t", "r_t", "discount_t", "rho_tm1", "lambda_")
LEAKY = ("v_tm1", "v_t", "r_t", "discount_t", "rho_tm1", "alpha_", "lambda_")
LEAKY_PG = ("v_tm1", "v_t", "r_t", "discount_t", "rho_tm1", "alpha", "lambda_")

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

NOT_STOPPED = {True: "rlax lets the gradient into advantages and q (audit, 3.1)"}
NOT_PUBLIC = "importance_corrected_td_errors"


# --- The rows. ---

ROWS = [
    Row(
        name="discounted_returns",
        definition=discounted_returns,
        make=maker("r_t", "discount_t", "v_t"),
        invalid=BAD_DISCOUNTS,
        targets=("r_t", "discount_t", "v_t"),
        flagged=constant(discounted_returns),
        multistep=True,
    ),
    Row(
        name="lambda_returns",
        definition=lambda_returns,
        make=maker(*LAMBDA),
        invalid=(*BAD_DISCOUNTS, {"lambda_": -0.1}),
        targets=LAMBDA,
        flagged=constant(lambda_returns),
        multistep=True,
    ),
    Row(
        name="n_step_bootstrapped_returns",
        definition=n_step_bootstrapped_returns,
        make=maker("r_t", "discount_t", "v_t", "lambda_t"),
        settings={"n": 3},
        invalid=({"n": 0}, {"n": -1}, {"n": 2.0}),
        targets=("r_t", "discount_t", "v_t", "lambda_t"),
        flagged=constant(n_step_bootstrapped_returns, n=3),
        multistep=True,
    ),
    Row(
        name="n_step_transitions",
        definition=n_step_transitions,
        make=maker("r_t", "discount_t"),
        settings={"n": 3},
        invalid=({"n": 0}, {"n": -1}, {"n": 2.0}),
        peer="rlax has no such function",
    ),
    Row(
        name="n_step_transitions",
        case="streams",
        of=last_rewards_of,
        definition=n_step_transitions_and_last_rewards,
        # The index jumps where a discount becomes 0.
        make=maker(
            *("r_t", "discount_t"), discount_t=lambda rng: rng.uniform(0.5, 1.0, STEPS)
        ),
        settings={"n": 3},
        peer="rlax has no such function",
        multistep=True,
    ),
    Row(
        name="truncated_generalized_advantage_estimation",
        definition=truncated_generalized_advantage_estimation,
        make=maker(*GAE),
        invalid=BAD_DISCOUNTS + BAD_LAMBDA,
        targets=GAE,
        flagged=constant(truncated_generalized_advantage_estimation),
        multistep=True,
        rows=maker(*ROWWISE),
        assemble=values_of_rows,
    ),
    Row(
        name="generalized_advantage_estimation",
        definition=generalized_advantage_estimation,
        make=maker("v_tm1", "v_t", "r_t", "discount_t", "lambda_"),
        peer="rlax has no advantages with two values a step",
        invalid=BAD_DISCOUNTS + BAD_LAMBDA,
        targets=("v_tm1", "v_t", "r_t", "discount_t", "lambda_"),
        flagged=constant(generalized_advantage_estimation),
        multistep=True,
    ),
    Row(
        name="upgo_returns",
        definition=upgo_returns,
        make=maker("v_tm1", "v_t", "r_t", "discount_t"),
        peer="rlax has no such returns",
        invalid=BAD_DISCOUNTS,
        targets=("v_t", "r_t", "discount_t"),
        flagged=constant(upgo_returns),
        multistep=True,
    ),
    Row(
        name="linear_recurrence",
        definition=linear_recurrence,
        make=maker("a", "b", "final"),
        peer="rlax has no such function",
    ),
    Row(
        name="linear_recurrence",
        case="streams",
        definition=linear_recurrence,
        make=maker("a", "b"),
        settings={"final": 0.0},
        peer="rlax has no such function",
        multistep=True,
    ),
    Row(
        name="tree_backup",
        definition=tree_backup,
        make=make_tree,
        peer="rlax has no such errors",
        invalid=BAD_POLICY + BAD_DISCOUNTS + BAD_LAMBDA,
        targets=("q_t", "r_t", "discount_t", "pi_t", "lambda_"),
        multistep=True,
    ),
    Row(
        name="importance_corrected_td_errors",
        definition=importance_corrected_td_errors,
        make=maker(*CORRECTED),
        peer_of=lambda rlax: getattr(rlax._src.multistep, NOT_PUBLIC),
        invalid=BAD_RATIOS + BAD_DISCOUNTS + BAD_LAMBDA,
        targets=("r_t", "discount_t", "rho_tm1", "lambda_"),
        flagged=all_but_value(importance_corrected_td_errors),
        multistep=True,
        rows=maker(*ROWWISE, "rho_tm1"),
        assemble=values_of_rows,
    ),
    Row(
        name="general_off_policy_returns_from_q_and_v",
        definition=general_off_policy_returns_from_q_and_v,
        make=one_fewer(maker(*GENERAL), "q_t", "c_t"),
        invalid=BAD_TRACES + BAD_DISCOUNTS,
        targets=GENERAL,
        flagged=constant(general_off_policy_returns_from_q_and_v),
        spare=("q_t", "c_t"),
        multistep=True,
        rows=maker(*GENERAL),
    ),
    Row(
        name="general_off_policy_returns_from_action_values",
        definition=general_off_policy_returns_from_action_values,
        make=make_action_values,
        invalid=BAD_TRACES + BAD_POLICY + BAD_DISCOUNTS,
        targets=("q_t", "r_t", "discount_t", "c_t", "pi_t"),
        flagged=constant(general_off_policy_returns_from_action_values),
        multistep=True,
    ),
    Row(
        name="vtrace",
        definition=vtrace,
        make=maker(*VTRACE),
        settings={"clip_rho_threshold": 1.5},
        invalid=(*BAD_RATIOS, {"clip_rho_threshold": -1.0}, {"clip_c_threshold": -1.0}),
        targets=("v_t", "r_t", "discount_t", "rho_tm1", "lambda_"),
        flagged=all_but_value(vtrace, clip_rho_threshold=1.5),
        multistep=True,
    ),
    Row(
        name="leaky_vtrace",
        definition=leaky_vtrace,
        make=maker(*LEAKY),
        settings={"clip_rho_threshold": 1.5},
        invalid=(
            *BAD_RATIOS,
            {"clip_rho_threshold": -1.0},
            {"clip_c_threshold": -1.0},
            {"alpha_": 2.0},
        ),
        targets=("v_t", "r_t", "discount_t", "rho_tm1", "alpha_", "lambda_"),
        flagged=all_but_value(leaky_vtrace, clip_rho_threshold=1.5),
        multistep=True,
    ),
    Row(
        name="vtrace_td_error_and_advantage",
        definition=vtrace_td_error_and_advantage,
        make=maker(*VTRACE),
        settings={"clip_rho_threshold": 1.5, "clip_pg_rho_threshold": 0.5},
        invalid=(
            *BAD_RATIOS,
            {"clip_rho_threshold": -1.0},
            {"clip_pg_rho_threshold": np.nan},
            {"clip_c_threshold": -1.0},
        ),
        # Elsewhere rlax takes the next state's value from the wrong array (audit, 1.6).
        peer_make=with_one_clock(maker(*VTRACE)),
        peer_gradient={
            **NOT_STOPPED,
            False: "rlax takes the gradient to v_tm1 that belongs to v_t",
        },
        targets=("v_t", "r_t", "discount_t", "rho_tm1", "lambda_"),
        flagged=all_but_value(
            vtrace_td_error_and_advantage,
            clip_rho_threshold=1.5,
            clip_pg_rho_threshold=0.5,
        ),
        multistep=True,
    ),
    Row(
        name="leaky_vtrace_td_error_and_advantage",
        definition=leaky_vtrace_td_error_and_advantage,
        make=maker(*LEAKY_PG),
        settings={"clip_rho_threshold": 1.5, "clip_pg_rho_threshold": 0.5},
        invalid=(
            *BAD_RATIOS,
            {"clip_rho_threshold": -1.0},
            {"clip_pg_rho_threshold": np.nan},
            {"clip_c_threshold": -1.0},
            {"alpha": -0.5},
        ),
        peer_make=with_one_clock(maker(*LEAKY_PG)),
        peer_gradient={
            **NOT_STOPPED,
            False: "rlax takes the gradient to v_tm1 that belongs to v_t",
        },
        targets=("v_t", "r_t", "discount_t", "rho_tm1", "alpha", "lambda_"),
        flagged=all_but_value(
            leaky_vtrace_td_error_and_advantage,
            clip_rho_threshold=1.5,
            clip_pg_rho_threshold=0.5,
        ),
        multistep=True,
    ),
]
