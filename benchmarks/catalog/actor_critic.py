"""Actor-critics: what is measured, with two critics and six dimensions."""

from typing import Any

from benchmarks.catalog.shared import REWARD, row
from benchmarks.inputs import key, normal, positive, unit

_normal: dict[str, Any] = {"mu": normal("6"), "sigma": positive("6")}
_discrete: dict[str, Any] = {
    "logits": normal("A"),
    "q": normal("2 A"),
    "temperature": unit(),
}

CASES = (
    row(
        "soft_actor_critic_target",
        **REWARD,
        q_t=normal("2"),
        log_prob_t=normal(),
        temperature=unit(),
    ),
    row("clipped_double_q_target", **REWARD, q_t=normal("2")),
    row(
        "smoothed_target_action",
        settings={"stddev": 0.2, "clip": 0.5, "minimum": -1.0, "maximum": 1.0},
        key=key(),
        action=normal("6"),
    ),
    row("soft_policy_loss", log_prob=normal(), q=normal("2"), temperature=unit()),
    row(
        "temperature_loss",
        log_temperature=normal(),
        log_prob=normal(),
        target_entropy=normal(),
    ),
    row("tanh_normal_log_prob", pre_tanh=normal("6"), **_normal),
    row("tanh_normal_log_prob_of_action", action=unit("6"), **_normal),
    row("discrete_soft_value", **_discrete),
    row("discrete_soft_policy_loss", **_discrete),
    row(
        "discrete_temperature_loss",
        log_temperature=normal(),
        logits=normal("A"),
        target_entropy=normal(),
    ),
)
