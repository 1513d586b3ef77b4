"""Values: what is measured."""

from typing import Any

from benchmarks.catalog.shared import LAMBDA, REWARD, STREAM, STREAMS, row
from benchmarks.inputs import action, key, normal, probs, unit, value

_taken: dict[str, Any] = {"q_tm1": normal("A"), "a_tm1": action(), **REWARD}
_target: dict[str, Any] = {
    **_taken,
    "target_q_tm1": normal("A"),
    "target_q_t": normal("A"),
}
_taken_stream: dict[str, Any] = {
    "q_tm1": normal("T A"),
    "a_tm1": action("T"),
    **STREAM,
}

CASES = (
    row("td_learning", v_tm1=normal(), **REWARD, v_t=normal()),
    row(
        "differential_td_learning",
        v_tm1=normal(),
        r_t=normal(),
        v_t=normal(),
        reward_rate=normal(),
    ),
    row("sarsa", **_taken, q_t=normal("A"), a_t=action()),
    row("expected_sarsa", **_taken, q_t=normal("A"), probs_a_t=probs("A")),
    row("q_learning", **_taken, q_t=normal("A")),
    row("double_q_learning", **_taken, q_t_value=normal("A"), q_t_selector=normal("A")),
    row(
        "persistent_q_learning",
        settings={"action_gap_scale": 0.1},
        **_taken,
        q_t=normal("A"),
    ),
    row("qv_learning", **_taken, v_t=normal()),
    row("qv_max", v_tm1=normal(), **REWARD, q_t=normal("A")),
    row("soft_value", settings={"temperature": 0.1}, q=normal("A")),
    row("mellowmax", settings={"omega": 10.0}, q=normal("A")),
    row("soft_q_learning", settings={"temperature": 0.1}, **_taken, q_t=normal("A")),
    row("munchausen_q_learning", **_target),
    *(
        row(name, settings={"action_gap_scale": 0.9}, **_target)
        for name in ("advantage_learning", "persistent_advantage_learning")
    ),
    row("ensemble_value", label="min", q=normal("10")),
    row(
        "ensemble_value",
        label="soft_min",
        settings={"kind": "soft_min"},
        q=normal("10"),
    ),
    row("subset_minimum", settings={"size": 2}, key=key(), q=normal("10")),
    row(
        "td_lambda",
        STREAMS,
        settings=LAMBDA,
        v_tm1=value("T", time=0),
        **STREAM,
        v_t=value("T", time=1),
    ),
    row(
        "sarsa_lambda",
        STREAMS,
        settings=LAMBDA,
        **_taken_stream,
        q_t=normal("T A"),
        a_t=action("T"),
    ),
    row("q_lambda", STREAMS, settings=LAMBDA, **_taken_stream, q_t=normal("T A")),
    row(
        "retrace",
        STREAMS,
        settings=LAMBDA,
        q_tm1=normal("T A"),
        q_t=normal("T A"),
        a_tm1=action("T"),
        a_t=action("T"),
        **STREAM,
        pi_t=probs("T A"),
        mu_t=unit("T"),
    ),
    row(
        "retrace_continuous",
        STREAMS,
        settings=LAMBDA,
        q_tm1=normal("T"),
        q_t=normal("T-1"),
        v_t=normal("T"),
        **STREAM,
        log_rhos=normal("T-1"),
    ),
)
