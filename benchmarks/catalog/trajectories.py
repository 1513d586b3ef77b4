"""Trajectories: what is measured.

rlax takes batches here, most of them with time first; so these rows give all streams at
once, to both libraries.
"""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.case import Case
from benchmarks.catalog.shared import ACTIONS, ONE_STEP, STREAMS, row
from benchmarks.inputs import Input, Shape, Size, action, key, normal

_LENGTH, _STARTS = 4, 4
_FIRST = 0


def _extract_subsequences(library: Any) -> Callable[..., Any]:
    return lambda trajectories, start_indices: library.extract_subsequences(
        trajectories, start_indices, _LENGTH
    )


def _embed_oar(library: Any) -> Callable[..., Any]:
    return lambda features, action, reward: library.embed_oar(
        features, action, reward, ACTIONS
    )


def _time_first() -> Input:
    """Return streams of features, with time as the first axis."""

    def draw(rng: np.random.Generator, shape: Shape, size: Size) -> Any:
        streams, *rest = shape
        return rng.normal(size=(rest[0], streams, *rest[1:])).astype(np.float32)

    return Input(draw, "T A")


def _starts() -> Input:
    """Return where windows start, several in each stream."""

    def draw(rng: np.random.Generator, shape: Shape, size: Size) -> Any:
        last = size.axis("T") - _LENGTH
        return rng.integers(last + 1, size=(*shape, _STARTS), dtype=np.int32)

    return Input(draw)


def _step_types() -> Input:
    """Return step types, time first, of episodes that last about ten steps.

    Nowhere do two first steps follow each other: rlax leaves them as they are.
    """

    def draw(rng: np.random.Generator, shape: Shape, size: Size) -> Any:
        streams, steps = shape
        step_type = np.ones((steps, streams), np.int32)
        starts = rng.uniform(size=step_type.shape) < 0.1
        step_type[1:][starts[1:] & ~starts[:-1]] = _FIRST
        return step_type

    return Input(draw, "T")


CASES = (
    Case(
        name="extract_subsequences",
        sizes=STREAMS,
        inputs={"trajectories": _time_first(), "start_indices": _starts()},
        step=_extract_subsequences,
    ),
    row(
        "sample_start_indices",
        (Size(batch=256),),
        settings={
            "batch_size": 1,
            "num_start_indices": _STARTS,
            "max_valid_start_idx": 120,
        },
        smooth=False,
        rng_key=key(),
    ),
    Case(
        name="fix_step_type_on_interruptions",
        sizes=STREAMS,
        inputs={"step_type": _step_types()},
        step=operator.attrgetter("fix_step_type_on_interruptions"),
    ),
    Case(
        name="embed_oar",
        sizes=ONE_STEP,
        inputs={"features": normal("64"), "action": action(), "reward": normal()},
        step=_embed_oar,
    ),
)
