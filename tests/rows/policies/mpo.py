"""Rows of `policies/_mpo.py`, and their definitions in NumPy."""

import numpy as np
from contract import ACTIONS
from row import Gradients, Loose, Peer
from rows.policies.constraints import (
    DIMENSIONS,
    SAMPLES,
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
from rows.policies.gaussian_mpo import constraint, e_step, make_dual, parametric_row

# --- The E-step. ---


def mpo_compute_weights_and_temperature_loss(
    sample_q_values, projection_operator=None, sample_axis=0, **penalties
):
    """Abdolmaleki et al. 2018, section 4.1."""
    temperature = softplus(penalties["temperature_constraint.alpha"])
    bound = penalties["temperature_constraint.epsilon"]
    raised = np.exp(sample_q_values / temperature)
    log_mean = np.log(np.mean(raised, axis=sample_axis))
    weights = raised / np.sum(raised, axis=sample_axis, keepdims=True)
    samples = np.asarray(raised.shape[sample_axis])
    return temperature * (bound + log_mean), weights, samples


# --- The M-step. ---


def mpo_loss(sample_log_probs, sample_q_values, sample_axis=0, held=None, **others):
    """Return loss and outputs; `held` are the arguments with stopped gradients.

    With `use_stop_gradient=False` the weights have a gradient.
    """
    settings = {"sample_axis": sample_axis}
    temperature_loss, weights, count = mpo_compute_weights_and_temperature_loss(
        sample_q_values, **settings, **others
    )
    if held and others.get("use_stop_gradient", True):
        given = {name: x for name, x in held.items() if name != "sample_log_probs"}
        _, weights, _ = mpo_compute_weights_and_temperature_loss(**given, **settings)
    policy_loss = -np.sum(weights * sample_log_probs, axis=sample_axis)
    duals = compute_parametric_kl_penalty_and_dual_loss(
        **constraints_of(others), held=constraints_of(held) if held else None
    )
    scales = [others.get(name, 1.0) for name in SCALES]
    return losses(temperature_loss, policy_loss, duals, weights, count, scales)


SCALES = (
    "policy_loss_weight",
    "temperature_loss_weight",
    "kl_loss_weight",
    "alpha_loss_weight",
)


# --- Arguments. ---


def make_mpo(rng):
    return {
        "sample_log_probs": rng.normal(size=(SAMPLES, STATES)),
        "sample_q_values": rng.normal(size=(SAMPLES, STATES)),
        **make_temperature(rng),
        **make_constraints(rng, (), (DIMENSIONS,)),
    }


# --- Functions. ---


def categorical_mpo_loss(action_mask, held=None, **x):
    c = held or x

    def policy(logits):
        probs = np.where(action_mask, np.exp(logits), 0.0)
        return probs / np.sum(probs)

    def entropy(probs):
        return -np.sum(probs[action_mask] * np.log(probs[action_mask]))

    pi, prior = policy(x["logits"])[action_mask], policy(c["target_logits"])
    constant = policy(c["logits"])
    temperature = e_step("temperature_constraint", c["q"], prior, x, c)
    policy_loss = -np.sum(temperature[2][action_mask] * np.log(pi))
    p = prior[action_mask]
    divergences = [np.sum(p * np.log(p / each)) for each in (pi, constant[action_mask])]
    penalty = constraint("policy_constraint", *divergences, x, c)
    loss = policy_loss + temperature[0] + sum(penalty[:2])
    legal = c["q"][action_mask]
    entropies = entropy(constant), entropy(prior)
    parts = policy_loss, temperature, penalty, legal.min(), legal.max(), *entropies
    return np.asarray(loss), *parts


# --- Arguments. ---


def make_categorical(rng):
    return {
        "logits": rng.normal(size=ACTIONS),
        "target_logits": rng.normal(size=ACTIONS),
        "q": rng.normal(size=ACTIONS),
        **make_dual(rng, "temperature_constraint"),
        **make_dual(rng, "policy_constraint"),
        "action_mask": rng.permutation(np.arange(ACTIONS) > 0),
    }


ROWS = [
    row(
        "mpo_compute_weights_and_temperature_loss",
        mpo_compute_weights_and_temperature_loss,
        lambda rng: {
            "sample_q_values": rng.normal(size=(SAMPLES, STATES)),
            **make_temperature(rng),
        },
        settings=SOFTPLUS,
        loose=Loose(lengths=("sample_q_values",)),
    ),
    row(
        "mpo_compute_weights_and_temperature_loss",
        mpo_compute_weights_and_temperature_loss,
        lambda rng: {
            "sample_q_values": rng.normal(size=(STATES, 2, SAMPLES)),
            **make_temperature(rng),
        },
        case="last axis",
        settings=SOFTPLUS | {"sample_axis": -1},
        loose=Loose(lengths=("sample_q_values",)),
    ),
    row(
        "mpo_loss",
        mpo_loss,
        make_mpo,
        settings=SOFTPLUS,
        gradients=Gradients(
            free_definition=lambda x, constants: mpo_loss(**x, held=constants),
            first_order_only=STOPPED,
        ),
    ),
    row(
        "mpo_loss",
        mpo_loss,
        make_mpo,
        case="free weights",
        settings=SOFTPLUS
        | {"use_stop_gradient": False}
        | dict(zip(SCALES, (0.5, 2.0, 3.0, 0.25), strict=True)),
        gradients=Gradients(
            free_definition=lambda x, constants: mpo_loss(
                **x,
                use_stop_gradient=False,
                **dict(zip(SCALES, (0.5, 2.0, 3.0, 0.25), strict=True)),
                held=constants,
            ),
            first_order_only=STOPPED,
        ),
        peer=Peer(no_gradients={None: "rlax's penalty cancels its dual"}),
    ),
    parametric_row(categorical_mpo_loss, make_categorical, loose=Loose(batches=False)),
]
