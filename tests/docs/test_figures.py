"""Draw the figures of the manual, and compare them with the committed files."""

import importlib
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import contract
import jax
import matplotlib as mpl
import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "figures"
LIGHT, DARK = "#ffffff", "#131416"  # Background colours of pages.
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
HASH = re.compile(r"\bm[0-9a-f]{10}\b")  # Element ids, hashes of exact coordinates.
NAMES = sorted({path.stem for path in FOLDER.glob("*.py")} - {"make", "style"})


@pytest.fixture
def scripts(monkeypatch):
    """Return the modules shared by the scripts of the figures."""
    monkeypatch.syspath_prepend(FOLDER)
    # The default settings of JAX, not the strict ones of the tests.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield {name: importlib.import_module(name) for name in ("make", "style")}


def element(svg, name):
    """Return the text of the last metadata element of an SVG file with a name."""
    names = "{http://purl.org/dc/elements/1.1/}" + name
    return [each.text for each in ET.fromstring(svg.encode()).iter(names)][-1]


def shown(svg):
    """Return the texts and numbers of a figure from its metadata."""
    description = json.loads(element(svg, "description"))
    return description["words"], description["numbers"]


def contrast(one, other):
    """Return the contrast ratio of two colours (WCAG 2)."""

    def luminance(color):
        rgb = np.array(mpl.colors.to_rgb(color))
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        return linear @ np.array([0.2126, 0.7152, 0.0722])

    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


# --- Contents. ---


@pytest.mark.parametrize("name", contract.share(NAMES, "svg"))
def test_figure_equals_the_committed_file(name, scripts):
    kept = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    drawn = scripts["make"].draw(name)
    (kept_words, kept_numbers), (words, numbers) = shown(kept), shown(drawn)
    assert words == kept_words
    assert len(numbers) == len(kept_numbers)
    for each, other in zip(numbers, kept_numbers, strict=True):
        scale = np.max(np.abs(other), initial=1e-30)
        np.testing.assert_allclose(each, other, rtol=0, atol=1e-3 * scale)
    # Other versions of matplotlib may draw the same figure by other paths.
    if element(kept, "title") == element(drawn, "title"):
        drawn, kept = (HASH.sub("id", svg) for svg in (drawn, kept))
        assert NUMBER.split(drawn) == NUMBER.split(kept)
        lines, kept_lines = (
            np.array([float(each) for each in NUMBER.findall(svg)])
            for svg in (drawn, kept)
        )
        # Where rounding decides a draw, one of 64 runs moves: less than half a point.
        np.testing.assert_allclose(lines, kept_lines, rtol=1e-3, atol=0.5)


def test_each_example_has_a_curve_and_its_numbers():
    names = {path.stem for path in (FOLDER.parents[1] / "examples").glob("*.py")}
    for kind in ("csv", "svg"):
        assert {path.stem for path in (FOLDER / "curves").glob(f"*.{kind}")} == names


def test_drawing_is_deterministic(scripts):
    assert scripts["make"].draw("timeline") == scripts["make"].draw("timeline")


def test_each_svg_file_has_a_script():
    assert sorted(path.stem for path in FOLDER.glob("*.svg")) == NAMES


# --- Style. ---


@pytest.mark.parametrize("page", [LIGHT, DARK])
def test_colours_have_enough_contrast_on_a_page(page, scripts):
    style = scripts["style"]
    assert contrast(style.INK, page) > 4
    assert all(contrast(color, page) > 3 for color in style.COLORS)


@pytest.mark.parametrize("name", NAMES)
def test_figure_is_transparent_and_uses_the_colours_of_the_style(name, scripts):
    svg = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    style = scripts["style"]
    assert set(re.findall(r"#[0-9a-f]{6}\b", svg)) <= {style.INK, *style.COLORS}
    assert "<text" not in svg  # Text is drawn as paths, independent of fonts.


# --- Command line. ---


def test_command_writes_the_named_figures(scripts, monkeypatch, tmp_path):
    monkeypatch.setattr(scripts["make"], "FOLDER", tmp_path)
    scripts["make"].main(["timeline"])
    assert [path.name for path in tmp_path.iterdir()] == ["timeline.svg"]
