"""Test that bodies are as plain as rlax's, by the operations of the traced programs."""

import pytest
from programs import ABOVE_TWICE, counts, mean

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # rlax's.


def test_programs_have_no_more_operations_than_rlax(rlax):
    found = list(counts(rlax))
    assert mean(found, "value") < 1.1
    assert mean(found, "gradient") < 0.95
    above = {count.name.partition(":")[0] for count in found if count.ratio > 2}
    assert above == ABOVE_TWICE.keys()
