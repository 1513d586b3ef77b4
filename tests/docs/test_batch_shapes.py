"""Test that the pages of algorithms show the shapes of the batches that run.

`PYTHONPATH=examples:tests:tests/examples:docs/_ext python tests/docs/
test_batch_shapes.py` writes them into `docs/shapes.json`.
"""

import json
import re

import algorithms
import numpy as np
import test_all_recipes as recipes
from plain_losses.common import Batch

FILE = algorithms.DOCS / "shapes.json"
# Sizes in `plain_losses.common`, and names of axes that no text states.
SIZES = {"D": (2,), "T": (3, 5), "N": (3,), "A": (3,), "T+1": (6,), "K+1": (6,)}
AXES = {2: "D", 3: "A", 5: "T", 6: "T+1", 7: "M"}


def ranks(algorithm):
    """Yield name and shape of the fields that functions of an algorithm read."""
    for function in [*algorithm.functions, *algorithm.helpers]:
        call = recipes.ALL[function.name][0] if function.name in recipes.ALL else None
        arguments = call.arguments if call else {}
        batches = {k: x for k, x in arguments.items() if isinstance(x, Batch)}
        for name, batch in batches.items():
            for field in recipes.fields(function.name, name) if name != "step" else ():
                value = getattr(batch, field)
                if value is not None and not isinstance(value, Batch):
                    yield field, np.shape(value)


def named(field, shape, text, others):
    """Return a shape with the names of its axes, as a text has them.

    Streams have an axis more than the transitions of a text, or one less.
    """
    known = "N" if "[B, N" in others else "K" if "[B, K]" in others else "T"
    stated = [x.split(", ") for x in re.findall(r"\[([A-Z]\b[^]]*)\]", text)]
    changed = [[*x[:1], known, *x[1:]] for x in stated]
    changed += [x[:i] + x[i + 1 :] for x in stated for i in range(1, len(x))]
    for axes in stated + changed:
        pairs = [*zip(axes, shape, strict=False)]
        if len(axes) == len(shape) and all(n in SIZES.get(x, (n,)) for x, n in pairs):
            return axes
    names = AXES | {"N": {3: "N"}, "K": {5: "K", 6: "K+1"}, "T": {}}[known]
    axes = ["B", *(names.get(n, "K") for n in shape[1:])]
    is_state = field[0] in "sg" or field == "target"
    return [*axes[:-1], "..."] if axes[-1] == "K" and is_state else axes


def shapes():
    """Return the shapes of all fields of all algorithms, as text."""
    found = {}
    for name, algorithm in algorithms.algorithms().items():
        fields = algorithm.fields
        others = " ".join(fields.values())
        for field, shape in ranks(algorithm):
            if shape and field in fields:
                text = ", ".join(named(field, shape, fields[field], others))
                text = f"[{text.replace('…', '...')}]"
                listed = found.setdefault(name, {}).setdefault(field, [])
                listed += [text] * (text not in listed)
    return found


def test_the_pages_show_the_shapes_of_batches_that_run():
    assert shapes() == json.loads(FILE.read_text("utf-8"))


if __name__ == "__main__":
    lines = (f"{json.dumps(k)}: {json.dumps(v)}" for k, v in shapes().items())
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
