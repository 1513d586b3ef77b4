"""Tell how targets are distributed that belong to different outputs of a layer."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from rlaxlib._core import devices
from rlaxlib._core.devices import AxisName

_FEW = 4  # For so many outputs it is faster to look through all targets for each.


def describe(
    shift: Array,
    targets: Array,
    indices: Array,
    axis_name: AxisName | None,
    *,
    whole: bool,
) -> tuple[Array, Array, Array]:
    """Return the number of targets of each output, and how they are distributed.

    Args:
        shift: What their means are taken to be, `[N]`.
        targets: Targets, `[...]`.
        indices: Output that each belongs to, `[...]`. One that is negative or too large
            belongs to none.
        axis_name: As for `devices.total`.
        whole: Whether the first target can be taken to belong to some output.

    Returns:
        The numbers of targets, their means less `shift`, and their variances, each of
        shape `[N]`; all 0 where there are none.
    """
    size = shift.size
    indices = indices.astype(jnp.int32)
    indices = jnp.where(indices < 0, size, indices)
    groups = _Few(indices, size) if size <= _FEW else _Many(indices, size)
    x = groups.spread(targets)
    # Less one of the targets, or a rounded mean of them, squares lose no digits.
    if whole and size == 1:
        known, amid = indices.ravel()[:1] == 0, targets.ravel()[:1]
    else:
        count, total = groups.sums(jnp.ones_like(x), x)
        known, amid = count > 0, total / jnp.maximum(count, 1)
    amid = devices.maximum(jnp.where(known, amid, -jnp.inf), axis_name)
    amid = jnp.where(amid > -jnp.inf, amid, shift)
    error = x - groups.of_each(amid)
    sums = groups.sums(jnp.ones_like(error), error, jnp.square(error))
    count, *totals = devices.total(sums, axis_name)
    mean, square = (each / jnp.maximum(count, 1) for each in totals)
    variance = jnp.maximum(square - jnp.square(mean), 0)
    return count, (amid - shift) + mean, variance


class _Many(NamedTuple):
    """Numbers that belong to many outputs, each of which is reached by its index."""

    indices: Array
    size: int

    def spread(self, x: Array) -> Array:
        """Return numbers in a shape in which all that follows takes them."""
        return x

    def of_each(self, table: Array) -> Array:
        """Return what each number's output has in a table, or 0."""
        return table.at[self.indices].get(mode="fill", fill_value=0)

    def sums(self, *numbers: Array) -> Array:
        """Return the sums of each output, one row for each set of numbers."""
        x = jnp.stack(numbers, axis=-1)
        zeros = jnp.zeros((self.size, len(numbers)), x.dtype)
        return zeros.at[self.indices].add(x, mode="drop").T


class _Few(NamedTuple):
    """Numbers that belong to few outputs: for each of them, all are looked through."""

    indices: Array
    size: int

    def spread(self, x: Array) -> Array:
        return x[None]

    def of_each(self, table: Array) -> Array:
        return table.reshape(self.size, *(1,) * self.indices.ndim)

    def sums(self, *numbers: Array) -> Array:
        own = self._own
        x = jnp.stack([jnp.where(own, each, jnp.zeros_like(each)) for each in numbers])
        return jnp.sum(x, axis=tuple(range(2, x.ndim)))

    @property
    def _own(self) -> Array:
        outputs = self.of_each(jnp.arange(self.size, dtype=jnp.int32))
        return self.indices[None] == outputs
