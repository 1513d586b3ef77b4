"""Test the sections of pages that are made of examples."""

import re
from pathlib import Path

import gallery
import pytest

import rlaxlib

DOCS = Path(__file__).parents[2] / "docs"
ROW = ["", "+1.00", "+0.96", "5", "12"]


# --- The gallery. ---


def test_gallery_has_every_example_its_source_and_its_functions():
    for name in gallery.names():
        shown = gallery.example(name, [])
        assert f"## {name}\n" in shown
        assert f"../examples/{name}.py\n" in shown
        source = (gallery.EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
        for function in re.findall(r"^    rlaxlib\.(\w+)", source, re.M):
            assert f"{{ours}}`{function}`" in shown


def test_gallery_links_what_the_library_has():
    linked = re.findall(r"\{ours\}`(\w+)`", gallery.gallery())
    assert set(linked) <= set(rlaxlib.__all__)
    # A list of several, over two lines of the docstring.
    assert "- {ours}`epsilon_greedy`, {ours}`q_learning`, {ours}`l2_loss`: " in (
        gallery.example("bc_agent", [])
    )


def test_gallery_shows_what_was_measured(monkeypatch, tmp_path):
    for name in gallery.names():
        (tmp_path / f"{name}.py").write_text('"""Learn."""', encoding="utf-8")
    line = "| [`dqn`](dqn.py), late | Learn | [curve](curves/dqn.png) | +1.00 | +0.96 |"
    (tmp_path / "README.md").write_text(f"{line} 5 | 12 |\n", encoding="utf-8")
    monkeypatch.setattr(gallery, "EXAMPLES", tmp_path)
    assert gallery.measured() == {"dqn": [["late", *ROW[1:]]]}
    with pytest.raises(FileNotFoundError, match=r"dqn\.png"):
        gallery.gallery()
    (tmp_path / "curves").mkdir()
    (tmp_path / "curves" / "dqn.png").touch()
    shown = gallery.gallery()
    assert shown.count("![") == 1
    assert "|late|+1.00|+0.96|5|12|" in shown


def test_curves_of_which_the_readme_tells_are_there():
    for name, rows in gallery.measured().items():
        assert "![" in gallery.example(name, rows)
