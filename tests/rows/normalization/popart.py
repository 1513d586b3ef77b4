"""Rows of `normalization/_popart.py`, and their definitions in NumPy."""

import numpy as np
from contract import ACTIONS, actions, fields
from row import Gradients, Loose, Peer, Precision, Row
from rows._shared import of_fields

import rlaxlib

SETTINGS = {"step_size": 0.25, "scale_lb": 1e-3, "scale_ub": 1e3}


# --- PopArt. ---


def normalize(shift, scale, unnormalized, indices):
    return (unnormalized - shift[indices]) / scale[indices]


def unnormalize(shift, scale, normalized, indices):
    return scale[indices] * normalized + shift[indices]


def unnormalize_linear(shift, scale, inputs, indices):
    normalized = inputs[np.arange(len(indices)), indices]
    return normalized, unnormalize(shift, scale, normalized, indices)


def art(
    shift,
    scale,
    second_moment,
    targets,
    indices,
    step_size,
    scale_lb,
    scale_ub,
    sample_mask=None,
):
    """Van Hasselt et al. 2016: one step towards the mean for each of the targets."""
    shift, scale, second_moment = map(np.array, (shift, scale, second_moment))
    mask = np.ones(targets.shape, bool) if sample_mask is None else sample_mask
    for k in range(len(shift)):
        own = targets[mask & (indices == k)]
        for _ in own:
            shift[k] += step_size * (np.mean(own) - shift[k])
            second_moment[k] += step_size * (np.mean(own**2) - second_moment[k])
    scale = np.sqrt(second_moment - shift**2)
    return shift, np.clip(scale, scale_lb, scale_ub), second_moment


def pop(w, b=None, **states):
    shift, new_shift = states["old.shift"], states["new.shift"]
    scale, new_scale = states["old.scale"], states["new.scale"]
    rescaled = {"w": w * scale / new_scale}
    if b is not None:
        rescaled["b"] = (scale * b + shift - new_shift) / new_scale
    return rescaled


def popart(w, b, shift, scale, second_moment, targets, indices, **settings):
    state = art(shift, scale, second_moment, targets, indices, **settings)
    names = ("old.shift", "old.scale", "new.shift", "new.scale")
    states = dict(zip(names, (shift, scale, *state[:2]), strict=True))
    return pop(w, b, **states), state


# --- Functions of arrays only. ---


def with_statistics(name):
    """Return a function that takes the fields of a state as separate arguments."""

    def find(library):
        def function(**given):
            state = pop_state(library, given)
            return getattr(library, name)(state=state, **given)

        return function

    return find


def pop_state(library, given, name="state"):
    """Take the fields of a state out of arguments; a second moment is optional."""
    shift, scale = given.pop(f"{name}.shift"), given.pop(f"{name}.scale")
    moment = given.pop(f"{name}.second_moment", scale)
    return library.PopArtState(shift, scale, moment)


def pop_of(library):
    def function(**given):
        old, new = (pop_state(library, given, name) for name in ("old", "new"))
        return library.pop(given, old, new)

    return function


def popart_of(library):
    def function(w, b, targets, indices, step_size, scale_lb, scale_ub, **fields):
        _, update = library.popart(ACTIONS, step_size, scale_lb, scale_ub)
        state = pop_state(library, fields)
        return update({"w": w, "b": b}, state, targets, indices)

    return function


# --- Arguments. ---


def make_statistics(rng, name="state"):
    return {
        f"{name}.shift": rng.normal(scale=0.5, size=ACTIONS),
        f"{name}.scale": rng.uniform(1.0, 2.0, size=ACTIONS),
    }


def with_numbers(name, *axes):
    """Return a function that draws statistics, numbers and their outputs."""

    def make(rng):
        return {
            **make_statistics(rng),
            name: rng.normal(size=(5, *axes)),
            "indices": actions(rng, 5),
        }

    return make


def make_targets(rng, indices=None):
    """Draw a state, and targets of all outputs but one."""
    statistics = make_statistics(rng)
    squares = statistics["state.shift"] ** 2 + statistics["state.scale"] ** 2
    indices = np.array([0, 1, 0, 2, 0, 1]) if indices is None else indices
    return {
        **statistics,
        "state.second_moment": squares,
        "targets": rng.normal(size=indices.shape),
        "indices": indices,
    }


def make_one_target_each(rng):
    return make_targets(rng, rng.permutation(ACTIONS))


def make_masked(rng):
    return {
        **make_targets(rng),
        "sample_mask": np.array([True] * 3 + [False] * 2 + [True]),
    }


def make_layer(rng):
    return {"w": rng.normal(size=(3, ACTIONS)), "b": rng.normal(size=ACTIONS)}


def make_rescaled(rng):
    return {
        **make_layer(rng),
        **make_statistics(rng, "old"),
        **make_statistics(rng, "new"),
    }


def make_without_bias(rng):
    drawn = make_rescaled(rng)
    del drawn["b"]
    return drawn


ROWS = [
    Row(
        of_fields(normalize),
        with_numbers("unnormalized"),
        find=with_statistics("normalize"),
        loose=Loose(batches=False),
    ),
    Row(
        of_fields(unnormalize),
        with_numbers("normalized"),
        find=with_statistics("unnormalize"),
        loose=Loose(batches=False),
    ),
    Row(
        of_fields(unnormalize_linear),
        with_numbers("inputs", ACTIONS),
        find=with_statistics("unnormalize_linear"),
        loose=Loose(batches=False),
    ),
    Row(
        of_fields(art),
        make_targets,
        settings=SETTINGS,
        find=with_statistics("art"),
        precision=Precision(carried=fields(rlaxlib.PopArtState)),
        peer=Peer(make=make_one_target_each),
        gradients=Gradients(exist=False),
        loose=Loose(batches=False),
    ),
    Row(
        of_fields(art),
        make_masked,
        "mask",
        settings=SETTINGS,
        find=with_statistics("art"),
        precision=Precision(carried=fields(rlaxlib.PopArtState)),
        peer=Peer(why_not="rlax takes no mask"),
        gradients=Gradients(exist=False),
        loose=Loose(batches=False),
    ),
    Row(
        pop,
        make_rescaled,
        find=pop_of,
        precision=Precision(carried={"b": 0, "w": 1}, decisive=("w",)),
        loose=Loose(lengths=("w",), trees=("b",)),
    ),
    Row(
        pop,
        make_without_bias,
        "no bias",
        find=pop_of,
        peer=Peer(why_not="rlax wants a bias"),
        precision=Precision(carried={"w": 0}, decisive=("w",)),
        loose=Loose(lengths=("w",)),
    ),
    Row(
        of_fields(popart),
        lambda rng: make_layer(rng) | make_targets(rng),
        settings=SETTINGS,
        invalid=({"indices": np.array([0, 1, 0, 2, 0, ACTIONS])},),
        find=popart_of,
        peer=Peer(make=lambda rng: make_layer(rng) | make_one_target_each(rng)),
        gradients=Gradients(exist=False),
        precision=Precision(
            decisive=("w",), carried={"b": 0, "w": 1} | fields(rlaxlib.PopArtState, 2)
        ),
        loose=Loose(lengths=("w",), dtypes=("targets",), trees=("b",)),
    ),
]
