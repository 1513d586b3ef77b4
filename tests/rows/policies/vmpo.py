"""Rows of `policies/_vmpo.py`, and their definitions in NumPy."""

import functools

import numpy as np
from row import Gradients, Peer
from rows.policies.constraints import (
    SOFTPLUS,
    STATES,
    STOPPED,
    compute_parametric_kl_penalty_and_dual_loss,
    constraints_of,
    losses,
    make_constraints,
    make_temperature,
    row,
    softplus,
)

# --- The E-step. ---


def top_k(top_k_fraction, restarting_weights, scaled_advantages):
    """Song et al. 2020, section 4.1: the top half of the valid steps."""
    valid = np.flatnonzero(restarting_weights)
    best = np.argsort(-scaled_advantages.ravel()[valid], kind="stable")
    marks = np.zeros(scaled_advantages.size)
    marks[valid[best[: max(1, int(top_k_fraction * len(valid)))]]] = 1.0
    return marks.reshape(scaled_advantages.shape)


def vmpo_compute_weights_and_temperature_loss(
    advantages,
    restarting_weights,
    importance_weights,
    top_k_fraction,
    projection_operator=None,
    **penalties,
):
    """Song et al. 2020, section 4.1."""
    temperature = softplus(penalties["temperature_constraint.alpha"])
    bound = penalties["temperature_constraint.epsilon"]
    chosen = top_k(top_k_fraction, restarting_weights, advantages)
    raised = chosen * importance_weights * np.exp(advantages / temperature)
    log_mean = np.log(np.sum(raised) / np.sum(chosen))
    loss = temperature * (bound + log_mean)
    return np.asarray(loss), raised / np.sum(raised), np.sum(chosen)


# --- The M-step. ---


def vmpo_loss(sample_log_probs, top_k_fraction=0.5, held=None, **others):
    keep = others.pop("use_stop_gradient", True)
    temperature_loss, weights, count = vmpo_compute_weights_and_temperature_loss(
        **others, top_k_fraction=top_k_fraction
    )
    if held:
        constant = {name: x for name, x in held.items() if name != "sample_log_probs"}
        importance = (
            {"importance_weights": constant["importance_weights"]} if keep else {}
        )
        temperature_loss, *_ = vmpo_compute_weights_and_temperature_loss(
            **others | importance, top_k_fraction=top_k_fraction
        )
        if keep:
            _, weights, _ = vmpo_compute_weights_and_temperature_loss(
                **constant, top_k_fraction=top_k_fraction
            )
    policy_loss = -weights.size * weights * sample_log_probs
    duals = compute_parametric_kl_penalty_and_dual_loss(
        **constraints_of(others), held=constraints_of(held) if held else None
    )
    return losses(temperature_loss, policy_loss, duals, weights, count)


def vmpo_e_step_with_constant_weights(x, constants):
    importance = {"importance_weights": constants["importance_weights"]}
    loss, _, count = vmpo_compute_weights_and_temperature_loss(
        **x | importance, top_k_fraction=0.5
    )
    _, weights, _ = vmpo_compute_weights_and_temperature_loss(
        **constants, top_k_fraction=0.5
    )
    return loss, weights, count


# --- Arguments. ---


def make_vmpo(rng, restarts=2):
    restarting = rng.permutation(np.arange(STATES) >= restarts).astype(float)
    return {
        "advantages": rng.normal(size=STATES),
        "restarting_weights": restarting,
        "importance_weights": rng.uniform(0.5, 1.5, STATES),
        **make_temperature(rng),
    }


def make_vmpo_loss(rng, restarts=2):
    return {
        "sample_log_probs": rng.normal(size=STATES),
        **make_vmpo(rng, restarts),
        **make_constraints(rng, (), (STATES,)),
    }


def without_restarts(make):
    return functools.partial(make, restarts=0)


ROWS = [
    row(
        "vmpo_compute_weights_and_temperature_loss",
        vmpo_compute_weights_and_temperature_loss,
        make_vmpo,
        settings=SOFTPLUS | {"top_k_fraction": 0.5},
        peer=Peer(make=without_restarts(make_vmpo)),
        gradients=Gradients(
            constants=("restarting_weights",),
            targets=("importance_weights",),
            stopped_definition=vmpo_e_step_with_constant_weights,
        ),
    ),
    row(
        "vmpo_loss",
        vmpo_loss,
        make_vmpo_loss,
        settings=SOFTPLUS,
        peer=Peer(make=without_restarts(make_vmpo_loss)),
        gradients=Gradients(
            constants=("restarting_weights",),
            free_definition=lambda x, constants: vmpo_loss(**x, held=constants),
            first_order_only=STOPPED,
        ),
    ),
    row(
        "vmpo_loss",
        vmpo_loss,
        make_vmpo_loss,
        case="free weights",
        settings=SOFTPLUS | {"use_stop_gradient": False, "top_k_fraction": 1.0},
        peer=Peer(
            make=without_restarts(make_vmpo_loss),
            no_gradients={None: "rlax's penalty cancels its dual"},
        ),
        gradients=Gradients(
            constants=("restarting_weights",),
            free_definition=lambda x, constants: vmpo_loss(
                **x, use_stop_gradient=False, top_k_fraction=1.0, held=constants
            ),
            first_order_only=STOPPED,
        ),
    ),
]
