"""Trees: what is measured."""

from benchmarks.catalog.shared import STREAMS, row
from benchmarks.inputs import action, mask, normal

CASES = (
    row("tree_select", pred=mask(), on_true=normal("A"), on_false=normal("A")),
    row("tree_split_leaves", STREAMS[:1], tree_like=normal("T A")),
    row(
        "tree_replace_masked",
        STREAMS,
        tree_data=normal("T A"),
        tree_replacement=normal("T A"),
        mask=mask("T"),
    ),
    row("transpose_last_axis_to_first", STREAMS, tree=normal("T A")),
    row("transpose_first_axis_to_last", STREAMS, tree=normal("T A")),
    row(
        "conditional_update",
        new_tensors=normal("A"),
        old_tensors=normal("A"),
        is_time=mask(),
    ),
    row(
        "periodic_update",
        settings={"update_period": 3},
        new_tensors=normal("A"),
        old_tensors=normal("A"),
        steps=action(),
    ),
)
