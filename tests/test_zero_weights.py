"""Test that a coefficient of 0 switches a term off, and that no ratio gives NaN."""

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlaxlib

# Parts of the names of scalars that weigh a term of a loss or a target.
WEIGHTS = (
    "centering",
    "coefficient",
    "discount_t",
    "momentum",
    "smoothing",
    "temperature",
    "weight",
)
TOPICS = ("distributions", "imitation", "llm", "offline", "planning", "policies")
NAMES = {name for topic in TOPICS for name in getattr(rlaxlib, topic).__all__}
NAMES |= {"bootstrapped_q_learning", "icm_losses", "munchausen_q_learning"}
# Data that other terms depend on as well, or in a square or a softmax whose gradient by
# another argument is `0 * inf`.
SQUARES = {
    ("icm_losses", "features_t"),
    ("icm_losses", "predicted_features"),
    ("mpo_loss:free weights", "sample_log_probs"),
    ("munchausen_q_learning", "target_q_tm1"),
    ("rebrac_critic_target", "action_t"),
    ("rebrac_critic_target", "data_action_t"),
    ("rebrac_critic_target:one critic", "action_t"),
    ("rebrac_critic_target:one critic", "data_action_t"),
    ("vmpo_loss", "advantages"),
    ("vmpo_loss:free weights", "advantages"),
    ("vmpo_loss:free weights", "sample_log_probs"),
}
SPECIAL = (np.inf, -np.inf, np.nan)


def weights_of(row):
    """Yield the names of scalars that may weigh a term, and may be 0."""
    for name, spec in row.specs.items():
        is_weight = any(part in name for part in WEIGHTS) and name != "max_weight"
        if () in spec.shapes and is_weight:
            try:
                row.call(**{name: 0.0})(**without(row.inputs(3), name))
            except rlaxlib.ArgumentError:
                continue
            yield name


def without(arguments, name):
    return {n: x for n, x in arguments.items() if n != name}


def evaluate(row, arguments, weight, data):
    """Return a result and its gradients by all but the weight and the data."""
    names = [n for n in row.moving if n in arguments and n not in (weight, data)]
    call = row.call()

    def total(moved):
        outputs = call(**arguments | moved)
        first = jax.tree.leaves(outputs)[0]
        return contract.weigh(first, 0), first

    if not row.differentiable:
        return [total({})[1]]
    moved = {n: arguments[n] for n in names}
    gradients, first = jax.grad(total, has_aux=True)(moved)
    return [first, *gradients.values()]


def is_same(one, other):
    return all(np.array_equal(x, y) for x, y in zip(one, other, strict=True))


CASES = [
    (row, weight)
    for row in contract.collect()
    if row.name.partition(".")[0] in NAMES
    for weight in weights_of(row)
]


@pytest.mark.parametrize(
    ("row", "weight"), CASES, ids=[f"{row.id}-{name}" for row, name in CASES]
)
def test_a_weight_of_zero_switches_infinite_terms_off(row, weight):
    """Data that the result does not depend on may be infinite or NaN."""
    given = row.inputs(3)
    arguments = given | {weight: jnp.zeros(())}
    for data in row.floats:
        if data == weight or "." in data or (row.id, data) in SQUARES:
            continue
        x = given[data]
        moved = {data: 0.9 * x + 0.01}
        right, other, *weighted = (
            evaluate(row, each, weight, data)
            for each in (arguments, arguments | moved, given, given | moved)
        )
        if is_same(right, other) and not is_same(*weighted):
            for value in SPECIAL:
                spoiled = arguments | {data: jnp.full_like(x, value)}
                try:
                    found = evaluate(row, spoiled, weight, data)
                except rlaxlib.ArgumentError:
                    continue  # A range excludes the value.
                assert is_same(right, found), (data, value)
