"""Draw the figures of the manual, and hold them against the files that are kept."""

import importlib
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import jax
import matplotlib as mpl
import numpy as np
import pytest

pytestmark = pytest.mark.optimized

FOLDER = Path(__file__).parents[2] / "docs" / "figures"
LIGHT, DARK = "#ffffff", "#131416"  # Pages that a figure must be legible on.
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
HASH = re.compile(r"\bm[0-9a-f]{10}\b")  # Of lines, to the last digit: a name of them.
NAMES = sorted({path.stem for path in FOLDER.glob("*.py")} - {"make", "style"})


@pytest.fixture
def scripts(monkeypatch):
    """Return the modules that scripts in the folder of figures would import."""
    monkeypatch.syspath_prepend(FOLDER)
    # The settings of a script, not the strict ones of the library's tests.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield {name: importlib.import_module(name) for name in ("make", "style")}


def element(svg, name):
    """Return the text of an element of an SVG file's metadata, of the last such."""
    names = "{http://purl.org/dc/elements/1.1/}" + name
    return [each.text for each in ET.fromstring(svg.encode()).iter(names)][-1]


def shown(svg):
    """Return the words and the numbers that a figure shows, whatever its lines are."""
    description = json.loads(element(svg, "description"))
    return description["words"], description["numbers"]


def contrast(one, other):
    """Return the contrast of two colours, by the guidelines for web pages (WCAG 2)."""

    def luminance(color):
        rgb = np.array(mpl.colors.to_rgb(color))
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        return linear @ np.array([0.2126, 0.7152, 0.0722])

    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


# --- What they show. ---


@pytest.mark.parametrize("name", NAMES)
def test_figure_is_the_one_that_is_kept(name, scripts):
    kept = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    drawn = scripts["make"].draw(name)
    (kept_words, kept_numbers), (words, numbers) = shown(kept), shown(drawn)
    assert words == kept_words
    assert len(numbers) == len(kept_numbers)
    for each, other in zip(numbers, kept_numbers, strict=True):
        scale = np.max(np.abs(other), initial=1e-30)
        np.testing.assert_allclose(each, other, rtol=0, atol=1e-3 * scale)
    # Another version of matplotlib may set the same figure in other lines.
    if element(kept, "title") == element(drawn, "title"):
        drawn, kept = (HASH.sub("lines", svg) for svg in (drawn, kept))
        assert NUMBER.split(drawn) == NUMBER.split(kept)
        lines, kept_lines = (
            np.array([float(each) for each in NUMBER.findall(svg)])
            for svg in (drawn, kept)
        )
        np.testing.assert_allclose(lines, kept_lines, rtol=1e-3, atol=0.1)


def test_figure_is_drawn_the_same_each_time(scripts):
    assert scripts["make"].draw("timeline") == scripts["make"].draw("timeline")


def test_each_file_has_a_script():
    assert sorted(path.stem for path in FOLDER.glob("*.svg")) == NAMES


# --- How they look. ---


@pytest.mark.parametrize("page", [LIGHT, DARK])
def test_colours_can_be_told_from_a_page(page, scripts):
    style = scripts["style"]
    assert contrast(style.INK, page) > 4
    assert all(contrast(color, page) > 3 for color in style.COLOURS)


@pytest.mark.parametrize("name", NAMES)
def test_figure_is_transparent_and_coloured_by_the_style(name, scripts):
    svg = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    style = scripts["style"]
    assert set(re.findall(r"#[0-9a-f]{6}\b", svg)) <= {style.INK, *style.COLOURS}
    assert "<text" not in svg  # Words are lines, and look the same everywhere.


# --- How they are made. ---


def test_figures_are_written_where_they_are_named(scripts, monkeypatch, tmp_path):
    monkeypatch.setattr(scripts["make"], "FOLDER", tmp_path)
    scripts["make"].main(["timeline"])
    assert [path.name for path in tmp_path.iterdir()] == ["timeline.svg"]
