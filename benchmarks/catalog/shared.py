"""What the rows of all topics are made of."""

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks import steps
from benchmarks.case import Case
from benchmarks.inputs import Input, Size, discount, normal

ACTIONS = 18
ONE_STEP = (Size(batch=4096, actions=ACTIONS),)
NUMBERS = (Size(batch=65536),)
STREAMS = (
    Size(batch=256, steps=20, actions=ACTIONS),
    Size(batch=256, steps=128, actions=ACTIONS),
    Size(batch=32, steps=1000, actions=ACTIONS),
)
TRAINING = (Size(batch=256, actions=steps.ACTIONS),)

STREAM: dict[str, Any] = {"r_t": normal("T"), "discount_t": discount("T")}
REWARD: dict[str, Any] = {"r_t": normal(), "discount_t": discount()}
LAMBDA: dict[str, Any] = {"lambda_": 0.95}


def row(
    name: str,
    sizes: tuple[Size, ...] = ONE_STEP,
    /,
    *,
    settings: Mapping[str, Any] | None = None,
    of: Mapping[str, Any] | None = None,
    label: str = "",
    smooth: bool = True,
    positional: bool = False,
    peer: str = "",
    **inputs: Input,
) -> Case:
    """Return a case, whose inputs are written like arguments of the function."""
    return Case(
        name=name,
        inputs=inputs,
        sizes=sizes,
        settings=settings or {},
        of=of or {},
        label=label,
        smooth=smooth,
        positional=positional,
        peer=peer,
    )


def elementwise(
    name: str,
    /,
    *,
    inputs: Mapping[str, Callable[[str], Input]],
    label: str = "",
    **options: Any,
) -> tuple[Case, Case]:
    """Return two cases of a function of each number: of many, and of many vectors."""
    numbers = {each: draw("") for each, draw in inputs.items()}
    vectors = {each: draw("A") for each, draw in inputs.items()}
    of_vectors = f"{label}, vectors" if label else "vectors"
    return (
        row(name, NUMBERS, label=label, **options, **numbers),
        row(name, label=of_vectors, **options, **vectors),
    )
