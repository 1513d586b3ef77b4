"""Draw the figures of the manual, each into a file of SVG beside its script.

    python docs/figures/make.py             # All of them.
    python docs/figures/make.py timeline    # Those named.

A figure is a script in this folder that has a function `draw`, which returns it. What
it shows, in words and numbers, is written into its file as well: the lines of a file
depend on the version of matplotlib, but what they show does not.
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
    """Tell what a figure shows: its words, and the numbers that are drawn."""
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
    """Draw the figures named, or all."""
    for name in names or NAMES:
        path = FOLDER / f"{name}.svg"
        path.write_text(draw(name), encoding="utf-8", newline="\n")
        print(path)


if __name__ == "__main__":
    main(sys.argv[1:])
