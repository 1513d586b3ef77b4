"""Count the operations of traced programs beside rlax's: `python tests/programs.py`.

The counts are the same on every machine. They are of the value, and of the gradient by
all floats that have one; broadcasts, reshapes and conversions of dtypes do not count.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import contract
import jax
import jax.numpy as jnp
from row import Row

FREE = {
    *("broadcast_in_dim", "convert_element_type", "copy", "reshape", "squeeze"),
    *("closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "jit", "pjit"),
    "stop_gradient",
}
# Names of more than twice as many operations as rlax's, each with the reason.
ABOVE_TWICE = {
    "greedy.probs": "the action of argmax is a best one where XLA rounds values twice",
    "transform_from_2hot_nonlinear": "symmetric bins have a mean of exactly 0",
}


class Count(NamedTuple):
    """Numbers of operations of one name, ours and rlax's."""

    name: str
    kind: str
    ours: int
    theirs: int

    @property
    def ratio(self) -> float:
        """The ratio; with 3 more of each, 1 operation is not half of 2."""
        return (self.ours + 3) / (self.theirs + 3)


def operations(jaxpr: Any) -> int:
    """Return the number of operations of a program, those of inner ones included."""
    total = 0
    for equation in jaxpr.eqns:
        total += equation.primitive.name not in FREE
        for parameter in equation.params.values():
            each = parameter if isinstance(parameter, list | tuple) else [parameter]
            inner = [getattr(x, "jaxpr", x) for x in each]
            total += sum(operations(x) for x in inner if hasattr(x, "eqns"))
    return total


def counts(rlax: Any) -> Iterator[Count]:
    """Yield the counts of every row that is compared with rlax."""
    for row in contract.collect():
        if row.compared and row.drawn:
            calls = row.call(), row.peer_call(rlax)
            inputs = contract.peer_inputs(row)
            yield Count(row.id, "value", *(_values(call, inputs) for call in calls))
            if row.gradients.exist and not row.peer.no_gradients:
                both = (_gradients(row, call, inputs) for call in calls)
                yield Count(row.id, "gradient", *both)


def _values(call: Any, inputs: dict[str, Any]) -> int:
    return operations(jax.make_jaxpr(lambda x: call(**x))(inputs).jaxpr)


def _gradients(row: Row, call: Any, inputs: dict[str, Any]) -> int:
    def total(free: dict[str, Any]) -> Any:
        found = jax.tree.leaves(call(**inputs | free))
        return sum(jnp.sum(x) for x in found if contract.is_float(x))

    free = {name: inputs[name] for name in row.variables}
    return operations(jax.make_jaxpr(jax.grad(total))(free).jaxpr)


def mean(found: list[Count], kind: str) -> float:
    """Return the geometric mean of the ratios of a kind."""
    ratios = [math.log(count.ratio) for count in found if count.kind == kind]
    return math.exp(sum(ratios) / len(ratios))


def main() -> None:
    """Print the means, and the names with the most operations beside rlax's."""
    import rlax  # noqa: PLC0415 - The tests import it with its warnings silenced.

    found = list(counts(rlax))
    print("\n## Operations\n")
    print("Of the traced programs, beside rlax's: geometric means, and the highest.\n")
    print("| program | operations | ratio |\n| --- | ---: | ---: |")
    for kind in ("value", "gradient"):
        print(f"| {kind}, mean of all | | {mean(found, kind):.2f} |")
    for name, kind, *pair in sorted(found, key=lambda x: -x.ratio)[:12]:
        ratio = Count(name, kind, *pair).ratio
        print(f"| {name}, {kind} | {pair[0]} / {pair[1]} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
