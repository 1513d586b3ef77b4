"""Test the errors of elementwise functions in single precision."""

import os

import precision
import pytest

POINTS = precision.POINTS if os.environ.get("RLAXLIB_TRUST") else 1 << 12


@pytest.mark.parametrize("case", precision.cases(), ids=lambda case: case.text)
def test_error_is_at_most_a_few_ulp(case):
    assert precision.measure(case, POINTS) <= case.most
