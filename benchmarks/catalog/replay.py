"""Replay: what is measured.

There is one buffer, large; and many sequences, of which each has a priority.
"""

from typing import Any

from benchmarks.catalog.shared import STREAMS, row
from benchmarks.inputs import Input, Size, discount, key, mask, normal, unit

_BUFFER, _FILTERS = (Size(batch=1),), (Size(batch=64),)
_ENTRIES, _PARTICLES, _DRAWS = "100000", "1000", 256


def _buffer(name: str, **arguments: Any) -> Any:
    return row(name, _BUFFER, smooth=False, **arguments)


def _entries() -> Input:
    return unit(_ENTRIES)


CASES = (
    _buffer("prioritized_probabilities", priorities=_entries()),
    _buffer("rank_probabilities", priorities=_entries()),
    _buffer(
        "importance_sampling_weights",
        settings={"exponent": 0.4},
        probabilities=_entries(),
    ),
    _buffer(
        "stratified_sample",
        settings={"num_samples": _DRAWS},
        key=key(),
        probabilities=_entries(),
    ),
    row(
        "systematic_resample",
        _FILTERS,
        smooth=False,
        key=key(),
        weights=unit(_PARTICLES),
    ),
    row(
        "sequence_priority",
        STREAMS,
        smooth=False,
        td_errors=normal("T"),
        mask=mask("T"),
    ),
    row(
        "hindsight_indices",
        STREAMS,
        smooth=False,
        key=key(),
        discount_t=discount("T"),
    ),
)
