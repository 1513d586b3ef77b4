"""Test the measurements for a GPU, at small sizes on a CPU."""

import time

import pytest

from benchmarks import gpu


@pytest.mark.slow
def test_all_parts_run_at_small_sizes(tmp_path):
    page = tmp_path / "page.md"
    gpu.main(["--rehearse", f"--output={page}", "--minutes=10"])
    text = page.read_text()
    assert [line[3:] for line in text.splitlines() if line[:3] == "## "] == [*gpu.PARTS]
    assert text.count(" passed") == 3  # Some tests at both precisions of products.
    assert "failed" not in text


def test_a_part_that_the_page_has_is_not_measured_again(tmp_path):
    page = tmp_path / "page.md"
    assert gpu.measure("Device", page, True, time.monotonic() + 60)
    text = page.read_text()
    assert "- device: cpu" in text
    assert gpu.measure("Device", page, True, time.monotonic())
    assert page.read_text() == text


def test_a_part_without_time_is_left_for_the_next_run(tmp_path, capsys):
    page = tmp_path / "page.md"
    with pytest.raises(SystemExit, match="Not measured: Sizes, MinAtar"):
        gpu.main(["Sizes", "MinAtar", f"--output={page}", "--minutes=0"])
    assert not page.exists()
    assert "timed out" in capsys.readouterr().err
