"""Transformed values, and auxiliary tasks: what is measured."""

import types
from typing import Any

import jax.numpy as jnp

from benchmarks.catalog.shared import LAMBDA, STREAM, STREAMS, row
from benchmarks.inputs import Size, action, normal, probs, unit

# The same functions for both libraries: what differs is how they are used.
_PAIR: dict[str, Any] = {
    "tx_pair": types.SimpleNamespace(apply=jnp.arcsinh, apply_inv=jnp.sinh)
}
_TAKEN: dict[str, Any] = {"q_tm1": normal("T A"), "a_tm1": action("T"), **STREAM}
_PICTURES = (Size(batch=16, steps=20, actions=18),)

CASES = (
    row(
        "transformed_q_lambda",
        STREAMS,
        settings={**LAMBDA, **_PAIR},
        **_TAKEN,
        q_t=normal("T A"),
    ),
    row(
        "transformed_retrace",
        STREAMS,
        settings={**LAMBDA, **_PAIR},
        **_TAKEN,
        q_t=normal("T A"),
        a_t=action("T"),
        pi_t=probs("T A"),
        mu_t=unit("T"),
    ),
    row(
        "transformed_n_step_q_learning",
        STREAMS,
        settings={"n": 5, **_PAIR},
        **_TAKEN,
        target_q_t=normal("T A"),
        a_t=action("T"),
    ),
    row(
        "pixel_control_rewards",
        _PICTURES,
        settings={"cell_size": 4},
        observations=unit("T+1 80 80 3"),
    ),
    row(
        "pixel_control_loss",
        _PICTURES,
        settings={"discount_factor": 0.9, "cell_size": 4},
        observations=unit("T+1 80 80 3"),
        actions=action("T"),
        action_values=normal("T+1 20 20 A"),
    ),
)
