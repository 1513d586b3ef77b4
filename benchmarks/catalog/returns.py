"""Returns: what is measured."""

import functools
from typing import Any

from benchmarks.catalog.shared import LAMBDA, STREAM, STREAMS, row
from benchmarks.inputs import action, mask, normal, positive, probs, unit, value

_n_step = functools.partial(
    row, "n_step_bootstrapped_returns", **STREAM, v_t=normal("T")
)
_two_values: dict[str, Any] = {
    "v_tm1": value("T", time=0),
    "v_t": value("T", time=1),
    **STREAM,
}
_off_policy: dict[str, Any] = {**_two_values, "rho_tm1": positive("T")}
_leaky: dict[str, Any] = {**LAMBDA, "alpha_": 0.8}

CASES = (
    row("discounted_returns", STREAMS, **STREAM, v_t=normal("T")),
    row("lambda_returns", STREAMS, settings=LAMBDA, **STREAM, v_t=normal("T")),
    _n_step(STREAMS, settings={"n": 5}, label="n=5"),
    _n_step(STREAMS[1:], settings={"n": 100}, label="n=100"),
    row(
        "truncated_generalized_advantage_estimation",
        STREAMS,
        settings=LAMBDA,
        **STREAM,
        values=normal("T+1"),
    ),
    row(
        "generalized_advantage_estimation",
        STREAMS,
        settings=LAMBDA,
        **_two_values,
        truncated_t=mask("T"),
    ),
    row(
        "generalized_advantage_estimation",
        STREAMS,
        settings={**LAMBDA, "normalized_weights": True},
        label="normalized weights",
        **_two_values,
        truncated_t=mask("T"),
    ),
    row("upgo_returns", STREAMS, **_two_values),
    row(
        "tree_backup",
        STREAMS,
        settings=LAMBDA,
        q_tm1=normal("T A"),
        q_t=normal("T A"),
        a_tm1=action("T"),
        a_t=action("T"),
        **STREAM,
        pi_t=probs("T A"),
    ),
    row(
        "general_off_policy_returns_from_action_values",
        STREAMS,
        q_t=normal("T A"),
        a_t=action("T"),
        **STREAM,
        c_t=unit("T"),
        pi_t=probs("T A"),
    ),
    row(
        "general_off_policy_returns_from_q_and_v",
        STREAMS,
        q_t=normal("T-1"),
        v_t=normal("T"),
        **STREAM,
        c_t=unit("T-1"),
    ),
    row("vtrace", STREAMS, settings=LAMBDA, **_off_policy),
    row(
        "vtrace",
        STREAMS,
        settings=LAMBDA,
        label="sample_mask",
        **_off_policy,
        sample_mask=mask("T"),
    ),
    row("leaky_vtrace", STREAMS, settings=_leaky, **_off_policy),
    row("vtrace_td_error_and_advantage", STREAMS, settings=LAMBDA, **_off_policy),
    row(
        "leaky_vtrace_td_error_and_advantage",
        STREAMS,
        settings={**LAMBDA, "alpha": 0.8},
        **_off_policy,
    ),
    row(
        "importance_corrected_td_errors",
        STREAMS,
        settings=LAMBDA,
        peer="rlax._src.multistep",
        **STREAM,
        rho_tm1=positive("T"),
        values=normal("T+1"),
    ),
)
