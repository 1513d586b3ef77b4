"""Rows of `values/_auxiliary.py`, and their definitions in NumPy."""

import numpy as np
from contract import ACTIONS, STEPS, actions, discounts
from row import Gradients, Peer, Row


def pixel_control_rewards(observations, cell_size):
    """Jaderberg et al. 2016: the mean absolute change in each cell."""
    steps, height, width = np.array(observations.shape[:3]) - (1, 0, 0)
    rewards = np.zeros((steps, height // cell_size, width // cell_size))
    for t, row, column in np.ndindex(*rewards.shape):
        cell = (
            slice(row * cell_size, (row + 1) * cell_size),
            slice(column * cell_size, (column + 1) * cell_size),
        )
        change = observations[t + 1][cell] - observations[t][cell]
        rewards[t, row, column] = np.mean(np.abs(change))
    return rewards


def feature_control_rewards(features, cumulant_type, discount=None):
    before, after = features[:-1], features[1:]
    if cumulant_type == "potential":
        return np.reshape(discount, (-1, 1)) * after - before
    return {
        "feature": after,
        "absolute_change": np.abs(after - before),
        "increase": after - before,
        "decrease": before - after,
    }[cumulant_type]


def targets(observations, action_values, discount_factor, cell_size):
    """Return the discounted returns, which bootstrap from the last action values."""
    rewards = pixel_control_rewards(observations, cell_size)
    discount_t = np.broadcast_to(discount_factor, len(rewards))
    later, found = np.max(action_values[-1], axis=-1), []
    for reward, discount in zip(rewards[::-1], discount_t[::-1], strict=True):
        later = reward + discount * later
        found.append(later)
    return np.stack(found[::-1])


def loss(returns, action_values, actions):
    taken = [q[..., a] for q, a in zip(action_values[:-1], actions, strict=True)]
    return (returns - np.stack(taken)) ** 2 / 2


def pixel_control_loss(
    observations, actions, action_values, discount_factor, cell_size
):
    returns = targets(observations, action_values, discount_factor, cell_size)
    return loss(returns, action_values, actions)


def with_stopped_targets(x, constants):
    names = ("observations", "action_values", "discount_factor")
    returns = targets(*(constants[name] for name in names), cell_size=2)
    return loss(returns, x["action_values"], x["actions"])


# --- Arguments. ---


def draw_observations(rng):
    """Draw images in which every pixel changes, by at least 0.1."""
    changes = rng.choice([-1, 1], (STEPS, 4, 6, 3)) * rng.uniform(
        0.1, 1.0, (STEPS, 4, 6, 3)
    )
    return np.concatenate([np.zeros((1, 4, 6, 3)), np.cumsum(changes, axis=0)])


def make_pixels(rng):
    return {"observations": draw_observations(rng)}


def make_features(rng):
    return {"features": draw_observations(rng)[:, 0, 0]}


def make_potential(rng):
    return make_features(rng) | {"discount": discounts(rng)}


def make_loss(rng):
    return make_pixels(rng) | {
        "actions": actions(rng, STEPS),
        "action_values": rng.normal(size=(STEPS + 1, 2, 3, ACTIONS)),
        "discount_factor": discounts(rng),
    }


def features(cumulant_type, make=make_features, **options):
    return Row(
        feature_control_rewards,
        make,
        cumulant_type,
        settings={"cumulant_type": cumulant_type},
        **options,
    )


ROWS = [
    Row(pixel_control_rewards, make_pixels, settings={"cell_size": 2}),
    features("feature"),
    features("absolute_change"),
    features("increase"),
    features("decrease"),
    features(
        "potential",
        make_potential,
        peer=Peer(make=lambda rng: make_features(rng) | {"discount": np.asarray(0.9)}),
        invalid=({"discount": None},),
    ),
    Row(
        pixel_control_loss,
        make_loss,
        settings={"cell_size": 2},
        gradients=Gradients(
            free_definition=with_stopped_targets,
            first_order_only="the gradient of the targets is stopped",
            constants=("observations", "discount_factor"),
        ),
        stream=None,
    ),
]
