"""Arrays: what is measured."""

from benchmarks.catalog.shared import ACTIONS, STREAMS, row
from benchmarks.inputs import action, mask, normal

CASES = (
    row("batched_index", values=normal("A"), indices=action()),
    row("one_hot", settings={"num_classes": ACTIONS}, indices=action()),
    row("replace_masked", data=normal("A"), replacement=normal("A"), mask=mask("A")),
    row("masked_mean", STREAMS, x=normal("T"), mask=mask("T")),
    row("standardize", STREAMS, x=normal("T")),
)
