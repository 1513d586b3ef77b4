"""Losses of recipes as their authors' code has them, and batches for them.

`common.py` has batches and networks, each other module the plain losses and the cases
of one module of recipes. A plain loss is transcribed from the file that it names, at a
commit, in the order and with the reductions of that file; where no code is known, from
the paper. Streams are given to it in pieces without masks, as the authors have them:
`common.rollouts`. `agreement.py` is the table of what is equal, and up to what.
"""

import pkgutil
from importlib import import_module

import recipes

MODULES = [each.name for each in pkgutil.iter_modules(recipes.__path__)]


def all_cases():
    """Return the cases of all recipes that are losses, by name."""
    own = [each.name for each in pkgutil.iter_modules(__path__)]
    found = [
        import_module(f"plain_losses.{module}").CASES
        for module in MODULES
        if module in own
    ]
    return {name: case for cases in found for name, case in cases.items()}
