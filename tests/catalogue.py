"""The signatures of all checked functions and methods."""

import copy
import sys

import rlaxlib


def checked_functions():
    """Yield all checked functions and methods, public or not."""
    package = f"{rlaxlib.__name__}."
    for module in [x for n, x in sys.modules.items() if n.startswith(package)]:
        for owner in [
            module,
            *filter(lambda x: isinstance(x, type), vars(module).values()),
        ]:
            for thing in list(vars(owner).values()):
                if hasattr(thing, "signature") and hasattr(thing, "__wrapped__"):
                    yield f"{thing.__module__}.{thing.__qualname__}", thing


def check(plan, **given):
    """Check some arguments of a function, as if it had no others."""
    part = copy.copy(plan)
    part.specs = {name: plan.specs[name] for name in given}
    for names in ("arrays", "options", "bare", "functions", "checked", "traced"):
        setattr(part, names, [name for name in getattr(plan, names) if name in given])
    part.fit = part._fit
    return part.check(given)


ALL = {name: function.signature() for name, function in checked_functions()}
