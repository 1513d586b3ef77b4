"""Rows of `distributions/_latents.py`, and their definitions in NumPy."""

import jax
import numpy as np
from contract import ACTIONS
from row import Gradients, Precision, Row
from rows.distributions.categorical import divergence, legal, masked, softmax

GROUPS = 5


def unimix_logits(logits, mix, action_mask=None):
    """Hafner et al. 2023, over the possible classes."""
    possible = np.broadcast_to(legal(logits, action_mask), logits.shape)
    even = possible / np.sum(possible, axis=-1, keepdims=True)
    return np.log((1 - mix) * softmax(logits, action_mask) + mix * even)


def straight_through_sample(key, logits, action_mask=None):
    """Hafner et al. 2020, algorithm 1."""
    logits = np.where(legal(logits, action_mask), logits, -np.inf)
    return np.eye(ACTIONS)[np.asarray(jax.random.categorical(key, logits))]


def probabilities(x, constants):
    """Return the probabilities, whose gradient the sample has."""
    return softmax(x["logits"], constants.get("action_mask"))


def balanced_kl(
    posterior_logits,
    prior_logits,
    free_nats,
    dynamics_weight,
    representation_weight,
    action_mask=None,
):
    """Hafner et al. 2023, equation 3: the bound is on the sum over all variables."""
    kl = np.sum(
        divergence(
            softmax(posterior_logits, action_mask), softmax(prior_logits, action_mask)
        )
    )
    bound = np.maximum(kl, free_nats)
    loss = dynamics_weight * bound + representation_weight * bound
    return [np.asarray(each) for each in (loss, bound, bound, kl)]


def held(x, constants):
    """Stop the gradient of the distribution that a term does not train."""
    dynamics = {**x, "posterior_logits": constants["posterior_logits"]}
    representation = {**x, "prior_logits": constants["prior_logits"]}
    _, dynamics, _, _ = balanced_kl(**dynamics, **WEIGHTS)
    _, _, representation, _ = balanced_kl(**representation, **WEIGHTS)
    loss = dynamics * WEIGHTS["dynamics_weight"]
    loss += representation * WEIGHTS["representation_weight"]
    *_, kl = balanced_kl(**constants, **WEIGHTS)
    return loss, dynamics, representation, kl


WEIGHTS = {"free_nats": 1.0, "dynamics_weight": 0.8, "representation_weight": 0.2}


def make_logits(rng):
    return {"logits": rng.normal(size=(GROUPS, ACTIONS))}


def make_mixed(rng):
    return {**make_logits(rng), "mix": np.asarray(rng.uniform(0.01, 0.5))}


def make_both(rng):
    """Draw logits with a KL divergence of more than the free nats."""
    prior = rng.normal(size=(GROUPS, ACTIONS))
    posterior = prior + 2 * rng.normal(size=(GROUPS, ACTIONS))
    return {"posterior_logits": posterior, "prior_logits": prior}


ROWS = [
    Row(unimix_logits, make_mixed, precision=Precision(condition=4.0)),
    Row(
        straight_through_sample,
        masked(make_logits, "logits"),
        "mask",
        gradients=Gradients(
            free_definition=probabilities,
            first_order_only="the gradient is that of the probabilities",
        ),
    ),
    Row(
        balanced_kl,
        masked(make_both, "posterior_logits"),
        "mask",
        settings=WEIGHTS,
        gradients=Gradients(
            free_definition=held,
            first_order_only="each term stops the gradient of one of its arguments",
        ),
    ),
]
