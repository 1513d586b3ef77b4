"""Rows of `arrays.py`, and their definitions in NumPy."""

import numpy as np
from contract import ACTIONS, actions
from row import Gradients, Precision, Row


def all_sum(x, axis=None):
    return np.sum(x, axis)


def batched_index(values, indices, keepdims=False):
    picked = np.zeros(indices.shape)
    for position in np.ndindex(indices.shape):
        picked[position] = values[position][indices[position]]
    return picked[..., None] if keepdims else picked


def lhs_broadcast(source, target):
    return source.reshape(source.shape + (1,) * (target.ndim - source.ndim))


def one_hot(indices, num_classes):
    return np.eye(num_classes)[indices]


def replace_masked(data, replacement, mask):
    data = np.array(data)
    data[mask] = 0.0 if replacement is None else replacement[mask]
    return data


def masked_mean(x, mask=None, axis=None):
    mask = np.ones(x.shape, bool) if mask is None else mask
    mask = np.broadcast_to(lhs_broadcast(mask, x), x.shape)
    count = np.sum(mask, axis)
    return np.sum(x * mask, axis) / count


def standardize(x, mask=None, ddof=0, epsilon=0.0):
    mask = np.ones(x.shape, bool) if mask is None else mask
    mask = np.broadcast_to(lhs_broadcast(mask, x), x.shape)
    divisor = np.std(x[mask], ddof=ddof) + epsilon
    return np.where(mask, (x - np.mean(x[mask])) / divisor, 0.0)


def make_numbers(rng):
    return {"x": rng.normal(size=(4, 3))}


def make_masked(rng):
    mask = rng.permutation([True, True, True, False])
    return {"x": rng.normal(size=(4, 3)), "mask": mask}


def make_indexed(rng):
    return {"values": rng.normal(size=(5, 3, ACTIONS)), "indices": actions(rng, 5, 3)}


def make_replaced(rng):
    return {
        "data": rng.normal(size=(4, 3)),
        "replacement": rng.normal(size=(4, 3)),
        "mask": rng.permutation([True, True, False, False]),
    }


ROWS = [
    Row(
        all_sum,
        make_numbers,
        name="AllSum",
        find=lambda library: library.AllSum(),
        over_devices=lambda library, axis_name: library.AllSum(axis_name),
    ),
    Row(
        all_sum,
        make_numbers,
        "one axis",
        name="AllSum",
        settings={"axis": 0},
        find=lambda library: library.AllSum(),
    ),
    Row(batched_index, make_indexed),
    Row(batched_index, make_indexed, "keepdims", settings={"keepdims": True}),
    Row(
        lhs_broadcast,
        lambda rng: {
            "source": rng.normal(size=3),
            "target": rng.normal(size=(3, 2, 2)),
        },
        gradients=Gradients(constants=("target",)),
        precision=Precision(decisive=("source",)),
    ),
    Row(
        one_hot,
        lambda rng: {"indices": actions(rng, 5, 3)},
        settings={"num_classes": ACTIONS},
        gradients=Gradients(exist=False),
    ),
    Row(replace_masked, make_replaced),
    Row(
        masked_mean,
        make_masked,
        over_devices=lambda library, axis_name: (
            lambda **arguments: library.masked_mean(**arguments, axis_name=axis_name)
        ),
    ),
    Row(
        masked_mean,
        make_masked,
        "one axis",
        settings={"axis": 0},
        invalid=({"axis": 2},),
    ),
    Row(
        standardize,
        make_masked,
        precision=Precision(condition=4.0),
        over_devices=lambda library, axis_name: (
            lambda **arguments: library.standardize(**arguments, axis_name=axis_name)
        ),
    ),
    Row(standardize, make_numbers, "no mask", precision=Precision(condition=4.0)),
    Row(
        standardize,
        make_masked,
        "ddof",
        settings={"ddof": 1, "epsilon": 0.1},
        precision=Precision(condition=4.0),
        over_devices=lambda library, axis_name: (
            lambda **arguments: library.standardize(**arguments, axis_name=axis_name)
        ),
    ),
]
