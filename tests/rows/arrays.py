"""Rows of `arrays.py`, and their definitions in NumPy."""

import numpy as np
from contract import ACTIONS, actions
from row import Gradients, Peer, Precision, Row


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


def masked_mean(x, mask=None, axis=None, denominator=None):
    mask = np.ones(x.shape, bool) if mask is None else mask
    mask = np.broadcast_to(lhs_broadcast(mask, x), x.shape)
    count = np.sum(mask, axis) if denominator is None else denominator
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


NOT_IN_RLAX = "rlax has no such function"


ROWS = [
    Row(
        name="AllSum",
        definition=all_sum,
        make=make_numbers,
        find=lambda library: library.AllSum(),
        over_devices=lambda library, axis_name: library.AllSum(axis_name),
    ),
    Row(
        name="AllSum",
        case="one axis",
        definition=all_sum,
        make=make_numbers,
        settings={"axis": 0},
        find=lambda library: library.AllSum(),
    ),
    Row(
        name="batched_index",
        definition=batched_index,
        make=make_indexed,
    ),
    Row(
        name="batched_index",
        case="keepdims",
        definition=batched_index,
        make=make_indexed,
        settings={"keepdims": True},
    ),
    Row(
        name="lhs_broadcast",
        definition=lhs_broadcast,
        make=lambda rng: {
            "source": rng.normal(size=3),
            "target": rng.normal(size=(3, 2, 2)),
        },
        gradients=Gradients(constants=("target",)),
        precision=Precision(decisive=("source",)),
    ),
    Row(
        name="one_hot",
        definition=one_hot,
        make=lambda rng: {"indices": actions(rng, 5, 3)},
        settings={"num_classes": ACTIONS},
        gradients=Gradients(exist=False),
        invalid=({"num_classes": 0},),
    ),
    Row(
        name="replace_masked",
        definition=replace_masked,
        make=make_replaced,
        invalid=({"mask": 0.5}, {"mask": np.array([0, 1, 2, 0])}),
    ),
    Row(
        name="masked_mean",
        definition=masked_mean,
        make=make_masked,
        peer=Peer(why_not=NOT_IN_RLAX),
        over_devices=lambda library, axis_name: (
            lambda **arguments: library.masked_mean(**arguments, axis_name=axis_name)
        ),
    ),
    Row(
        name="masked_mean",
        case="one axis",
        definition=masked_mean,
        make=make_masked,
        settings={"axis": 0},
        peer=Peer(why_not=NOT_IN_RLAX),
        invalid=({"axis": 2},),
    ),
    Row(
        name="masked_mean",
        case="denominator",
        definition=masked_mean,
        make=make_masked,
        settings={"denominator": 16.0},
        peer=Peer(why_not=NOT_IN_RLAX),
        invalid=({"denominator": 0.0}, {"denominator": -1.0}),
    ),
    Row(
        name="standardize",
        definition=standardize,
        make=make_masked,
        peer=Peer(why_not=NOT_IN_RLAX),
        precision=Precision(condition=4.0),
        over_devices=lambda library, axis_name: (
            lambda **arguments: library.standardize(**arguments, axis_name=axis_name)
        ),
    ),
    Row(
        name="standardize",
        case="no mask",
        definition=standardize,
        make=make_numbers,
        peer=Peer(why_not=NOT_IN_RLAX),
        precision=Precision(condition=4.0),
    ),
    Row(
        name="standardize",
        case="ddof",
        definition=standardize,
        make=make_masked,
        settings={"ddof": 1, "epsilon": 0.1},
        invalid=({"ddof": -1}, {"epsilon": -0.1}),
        peer=Peer(why_not=NOT_IN_RLAX),
        precision=Precision(condition=4.0),
        over_devices=lambda library, axis_name: (
            lambda **arguments: library.standardize(**arguments, axis_name=axis_name)
        ),
    ),
]
