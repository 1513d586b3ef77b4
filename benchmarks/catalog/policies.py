"""Policies: what is measured."""

from typing import Any

from benchmarks.catalog.shared import STREAMS, row
from benchmarks.inputs import action, normal, positive, unit

_action_values: dict[str, Any] = {"logits_t": normal("T A"), "q_t": normal("T A")}
_search: dict[str, Any] = {
    "logits": normal("A"),
    "q": normal("A"),
    "visits": action("A"),
    "v": normal(),
}

CASES = (
    row(
        "policy_gradient_loss",
        STREAMS,
        logits_t=normal("T A"),
        a_t=action("T"),
        adv_t=normal("T"),
        w_t=unit("T"),
    ),
    row("entropy_loss", STREAMS, logits_t=normal("T A"), w_t=unit("T")),
    row(
        "clipped_surrogate_pg_loss",
        STREAMS,
        settings={"epsilon": 0.2},
        prob_ratios_t=positive("T"),
        adv_t=normal("T"),
    ),
    row("qpg_loss", STREAMS, **_action_values),
    row("rm_loss", STREAMS, **_action_values),
    row("rpg_loss", STREAMS, **_action_values),
    row("dpg_loss", a_t=normal("A"), dqda_t=normal("A")),
    row(
        "dpg_loss",
        settings={"dqda_clipping": 1.0},
        label="clipped",
        a_t=normal("A"),
        dqda_t=normal("A"),
    ),
    row(
        "score_function_loss",
        STREAMS,
        log_prob_t=normal("T"),
        adv_t=normal("T"),
        w_t=unit("T"),
    ),
    row("cmpo_policy_targets", prior_logits=normal("A"), q=normal("A"), v=normal()),
    row("cmpo_sample_weights", q=normal("16"), v=normal()),
    row("completed_q_values", **_search),
    row("gumbel_policy_targets", **_search),
)
