"""Draw the figures of the manual as SVG files, next to their scripts.

    python docs/figures/make.py             # All figures.
    python docs/figures/make.py timeline    # Selected figures.

Each script in this folder has a function `draw` that returns the figure. The metadata
of the SVG file contains the texts and numbers of the figure, which do not depend on the
version of matplotlib.
"""

import importlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import style
from matplotlib.figure import Figure

FOLDER = Path(__file__).parent
NAMES = tuple(sorted({path.stem for path in FOLDER.glob("*.py")} - {"make", "style"}))


def draw(name: str) -> str:
    """Draw a figure.

    Args:
        name: Name of its script.

    Returns:
        The figure as SVG.
    """
    with mpl.rc_context({**mpl.rcParamsDefault, **style.SETTINGS}):
        figure = importlib.import_module(name).draw()
        metadata = {
            "Date": None,
            "Title": name,
            "Description": json.dumps(contents(figure), ensure_ascii=False),
        }
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata=metadata)
    lines = (line.rstrip() for line in file.getvalue().splitlines())
    return "\n".join(lines) + "\n"


def contents(figure: Figure) -> dict[str, Any]:
    """Return the texts and the plotted numbers of a figure."""
    words, numbers = [each.get_text() for each in figure.texts], []
    for axes in figure.axes:
        texts = [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
        if legend := axes.get_legend():
            texts += legend.get_texts()
        words += [text.get_text() for text in texts]
        numbers += [line.get_xydata() for line in axes.lines]
        numbers += [
            patch.get_patch_transform().transform(patch.get_path().vertices)
            for patch in axes.patches
        ]
        for collection in axes.collections:
            numbers += [path.vertices for path in collection.get_paths()]
            numbers.append(collection.get_offsets())
        numbers += [image.get_array() for image in axes.images]
    return {
        "words": [word for word in words if word],
        "numbers": [[float(f"{x:.4g}") for x in np.ravel(each)] for each in numbers],
    }


def main(names: list[str]) -> None:
    """Draw the figures with the given names, or all."""
    for name in names or NAMES:
        path = FOLDER / f"{name}.svg"
        path.write_text(draw(name), encoding="utf-8", newline="\n")
        print(path)


if __name__ == "__main__":
    main(sys.argv[1:])
