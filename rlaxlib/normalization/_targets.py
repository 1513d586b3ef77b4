"""Tell how targets are distributed that belong to different outputs of a layer."""

from __future__ import annotations

from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
from jax import Array

from rlaxlib._core import devices
from rlaxlib._core.devices import AxisName

_FEW = 4  # For so many outputs it is faster to look through all targets for each.
_STRIDE = 11  # Prime, so that no regular order of outputs is out of step with it.
_ENOUGH = 4096  # From so many targets on, each eleventh may know all outputs.


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
    groups = _Few(indices, size) if size <= _FEW else _Many(indices, size)
    x = groups.spread(targets)
    # Less one of the targets, or a rounded mean of them, squares lose no digits.
    if whole and size == 1:
        known, amid = indices.ravel()[:1] == 0, targets.ravel()[:1]
    else:
        known, amid = groups.means(x)
    amid = devices.maximum(jnp.where(known, amid, -jnp.inf), axis_name)
    amid = jnp.where(amid > -jnp.inf, amid, shift)
    powers = groups.sums_of_powers(x - groups.of_each(amid), 2)
    count, *totals = devices.total(powers, axis_name)
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

    def means(self, x: Array) -> tuple[Array, Array]:
        """Return the mean of each output, or of some of its numbers, if it has any."""
        if x.size < _ENOUGH:
            return _means(self, x)
        some = _Many(self.indices.ravel()[::_STRIDE], self.size)
        known, means = _means(some, x.ravel()[::_STRIDE])
        return cast(
            tuple[Array, Array],
            jax.lax.cond(
                jnp.all(known), lambda: (known, means), lambda: _means(self, x)
            ),
        )

    def of_each(self, table: Array) -> Array:
        """Return what each number's output has in a table; if it has none, anything."""
        own = table.at[self.indices]
        return own.get(mode="clip", wrap_negative_indices=False)

    def sums_of_powers(self, x: Array, degree: int) -> Array:
        """Return the sums of each output, one row for each power from 0 on."""
        powers = [jnp.ones_like(x), x, jnp.square(x)][: degree + 1]
        # XLA adds 4 in a row at once, and 3 one by one.
        rest = [jnp.zeros_like(x)] * (-len(powers) % 2)
        rows = jnp.stack([*powers, *rest], axis=-1)
        total = jnp.zeros((self.size, rows.shape[-1]), x.dtype).at[self.indices]
        total = total.add(rows, mode="drop", wrap_negative_indices=False)
        return total.T[: len(powers)]


class _Few(NamedTuple):
    """Numbers that belong to few outputs: for each of them, all are looked through."""

    indices: Array
    size: int

    def spread(self, x: Array) -> Array:
        return x.reshape(1, -1)

    def means(self, x: Array) -> tuple[Array, Array]:
        return _means(self, x)

    def of_each(self, table: Array) -> Array:
        return table[:, None]

    def sums_of_powers(self, x: Array, degree: int) -> Array:
        outputs = self.of_each(jnp.arange(self.size, dtype=jnp.int32))
        own = self.spread(self.indices) == outputs
        x = jnp.where(own, x, jnp.zeros_like(x))
        powers = [own.astype(x.dtype), x, jnp.square(x)][: degree + 1]
        return jnp.stack([jnp.sum(each, axis=-1) for each in powers])


def _means(groups: _Few | _Many, x: Array) -> tuple[Array, Array]:
    """Return which outputs have numbers, and their means."""
    count, total = groups.sums_of_powers(x, 1)
    return count > 0, total / jnp.maximum(count, 1)
