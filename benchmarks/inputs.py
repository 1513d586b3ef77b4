"""Draw the arrays that functions of reinforcement learning are called with.

An `Input` says what an array of one stream holds and which axes it has; a `Size` says
how long the axes are, and how many streams there are.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

Shape = tuple[int, ...]


class Size(NamedTuple):
    """How many streams there are, and how large each is."""

    batch: int
    steps: int | None = None
    actions: int = 18

    def axis(self, name: str) -> int:
        """Return the length of an axis: `T`, `T+1`, `T-1`, `A`, or a number."""
        if name.isdigit():
            return int(name)
        if name == "A":
            return self.actions
        assert self.steps is not None, "only streams have steps"
        return self.steps + int(name.removeprefix("T") or 0)

    def label(self, axes: set[str]) -> str:
        """Return the size as tables show it, with those letters that matter."""
        label = f"B={self.batch}"
        if self.steps is not None:
            label += f", T={self.steps}"
        return f"{label}, A={self.actions}" if "A" in axes else label


class Input(NamedTuple):
    """One argument of one stream: how to draw it, and its axes, such as `"T A"`."""

    draw: Callable[[np.random.Generator, Shape, Size], Any]
    axes: str = ""

    def batch(self, rng: np.random.Generator, size: Size) -> Any:
        """Draw the argument for all streams, in front of the axes of each."""
        axes = [size.axis(name) for name in self.axes.split()]
        return self.draw(rng, (size.batch, *axes), size)


def normal(axes: str = "") -> Input:
    """Return an input that may be anything: a reward, a value, a logit."""
    return Input(lambda rng, shape, _: _single(rng.normal(size=shape)), axes)


def value(axes: str, *, time: int) -> Input:
    """Return the values of the states that a stream visits.

    Args:
        axes: Axes of one stream.
        time: 0 for the states in which the agent acts, `v_tm1`; 1 for those to which
            this leads, `v_t`: the same values, one step later.

    Returns:
        An input for either.
    """

    def draw(rng: np.random.Generator, shape: Shape, size: Size) -> Any:
        del rng, size  # Both arguments come from the same values.
        streams, steps = shape
        values = np.random.default_rng(1).normal(size=(streams, steps + 1))
        return _single(values[:, time : time + steps])

    return Input(draw, axes)


def positive(axes: str = "") -> Input:
    """Return an input around 1: an importance ratio, a standard deviation."""
    return Input(
        lambda rng, shape, _: _single(np.exp(rng.normal(scale=0.3, size=shape))), axes
    )


def unit(axes: str = "") -> Input:
    """Return an input between 0 and 1, and well inside: a probability."""
    return Input(lambda rng, shape, _: _single(rng.uniform(0.05, 0.95, shape)), axes)


def discount(axes: str = "") -> Input:
    """Return discounts near 1, one in 20 of which ends an episode."""

    def draw(rng: np.random.Generator, shape: Shape, size: Size) -> Any:
        del size
        goes_on = rng.uniform(size=shape) < 0.95
        return _single(rng.uniform(0.9, 1.0, shape) * goes_on)

    return Input(draw, axes)


def probs(axes: str) -> Input:
    """Return probabilities that add up to 1 over the last axis."""

    def draw(rng: np.random.Generator, shape: Shape, size: Size) -> Any:
        del size
        weights = np.exp(rng.normal(size=shape))
        return _single(weights / weights.sum(axis=-1, keepdims=True))

    return Input(draw, axes)


def grid(axes: str, low: float = -10.0, high: float = 10.0) -> Input:
    """Return evenly spaced numbers, in the middles of the cells between two bounds."""

    def draw(rng: np.random.Generator, shape: Shape, size: Size) -> Any:
        del rng, size
        cells = (np.arange(shape[-1]) + 0.5) / shape[-1]
        return _single(np.broadcast_to(low + (high - low) * cells, shape))

    return Input(draw, axes)


def binary(axes: str = "") -> Input:
    """Return labels, each 0.0 or 1.0."""
    return Input(lambda rng, shape, _: _single(rng.integers(0, 2, shape)), axes)


def mask(axes: str = "") -> Input:
    """Return a mask that is true in nine out of ten places."""
    return Input(lambda rng, shape, _: rng.uniform(size=shape) < 0.9, axes)


def action(axes: str = "") -> Input:
    """Return indices of actions."""
    return Input(
        lambda rng, shape, size: rng.integers(0, size.actions, shape, np.int32), axes
    )


def key() -> Input:
    """Return a key for random numbers."""

    def draw(rng: np.random.Generator, shape: Shape, size: Size) -> Any:
        del size
        return jax.random.split(jax.random.key(int(rng.integers(2**31))), shape)

    return Input(draw)


def _single(values: Any) -> Any:
    """Return the values in single precision, in which agents train."""
    return np.asarray(values, np.float32)
