"""Proximal losses: what is measured."""

from typing import Any

from benchmarks.catalog.shared import STREAMS, row
from benchmarks.inputs import normal

_step: dict[str, Any] = {
    "log_prob_t": normal("T"),
    "old_log_prob_t": normal("T"),
    "adv_t": normal("T"),
}

CASES = (
    row("ppo_clip_loss", STREAMS, **_step),
    row("decoupled_ppo_loss", STREAMS, **_step, proximal_log_prob_t=normal("T")),
    row(
        "ppo_penalty_loss",
        STREAMS,
        settings={"coefficient": 1.0},
        **_step,
        kl_t=normal("T"),
    ),
    row("simple_policy_loss", STREAMS, **_step),
    row("discovered_policy_loss", STREAMS, **_step),
    row(
        "clipped_value_loss",
        STREAMS,
        settings={"epsilon": 0.2},
        v=normal("T"),
        old_v=normal("T"),
        target=normal("T"),
    ),
)
