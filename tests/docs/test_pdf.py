"""Test that no line of the PDF of the manual leaves its page. `make pdf` runs it."""

import re
from pathlib import Path

import pytest

LOG = Path(__file__).parents[2] / "build/manual/rlaxlib.log"


@pytest.mark.skipif(not LOG.exists(), reason="There is no log: see make pdf.")
def test_no_line_of_the_pdf_is_wider_than_its_column():
    log = LOG.read_text(encoding="utf-8", errors="replace")
    wide = re.findall(r"^Overfull .hbox \((\d+).*\n.*", log, re.M)
    assert "Output written on rlaxlib" in log
    assert max(map(int, wide), default=0) < 36  # Half an inch; the margin is one.
    assert "Missing character" not in log
