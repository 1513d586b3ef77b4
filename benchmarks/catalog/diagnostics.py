"""Diagnostics: what is measured, at the size of a batch for PPO."""

from typing import Any

from benchmarks.catalog.shared import row
from benchmarks.inputs import Size, normal

_BATCH = (Size(batch=1),)
_SAMPLES, _FEATURES = "65536", "512"


def _over_batch(name: str, *names: str) -> Any:
    inputs = {each: normal(_SAMPLES) for each in names}
    return row(name, _BATCH, smooth=False, **inputs)


CASES = (
    _over_batch("explained_variance", "predictions", "targets"),
    _over_batch("value_bias", "values", "returns"),
    _over_batch("approximate_kl", "log_ratios"),
    _over_batch("clip_fraction", "log_ratios", "adv_t"),
    _over_batch("effective_sample_size", "log_weights"),
    row(
        "dormant_fraction",
        _BATCH,
        smooth=False,
        activations=normal(f"2048 {_FEATURES}"),
    ),
    row("effective_rank", _BATCH, smooth=False, features=normal(f"2048 {_FEATURES}")),
)
