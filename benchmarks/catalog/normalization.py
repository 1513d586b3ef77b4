"""Normalisation: what is measured."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array

from benchmarks.case import Case
from benchmarks.catalog.shared import ACTIONS, ONE_STEP
from benchmarks.inputs import Input, Shape, Size, action, discount, normal, positive

TASKS = 57
FEATURES = 256


def _task(axes: str, tasks: int = TASKS) -> Input:
    """Return indices of tasks."""

    def draw(rng: np.random.Generator, shape: Shape, size: Size) -> Any:
        del size
        return rng.integers(0, tasks, shape, np.int32)

    return Input(draw, axes)


def _with_statistics(name: str) -> Callable[[Any], Callable[..., Any]]:
    """Return a function of many numbers, each with an index, and of one state."""

    def step(library: Any) -> Callable[..., Any]:
        def function(shift: Array, scale: Array, numbers: Array, indices: Array) -> Any:
            state = library.PopArtState(shift[0], scale[0], scale[0])
            return tuple(
                jax.tree.leaves(getattr(library, name)(state, numbers, indices))
            )

        return function

    return step


def _popart(outputs: int) -> Callable[[Any], Callable[..., Any]]:
    """Return an update, with all targets of a batch at once."""

    def step(library: Any) -> Callable[..., Any]:
        initial_state, update = library.popart(outputs, 1e-3, 1e-4, 1e4)

        def function(w: Array, b: Array, targets: Array, indices: Array) -> Any:
            params = {"w": w[0], "b": b[0]}
            params, state = update(params, initial_state(), targets, indices)
            return params["w"], params["b"], *state

        return function

    return step


def _update(outputs: int, *sizes: Size) -> Case:
    return Case(
        name="popart",
        label=f"{outputs} outputs" if outputs > 1 else "one output",
        sizes=sizes,
        inputs={
            "w": normal(f"{FEATURES} {outputs}"),
            "b": normal(str(outputs)),
            "targets": normal("T"),
            "indices": _task("T", outputs),
        },
        step=_popart(outputs),
        smooth=False,
    )


def _moments(library: Any) -> Callable[..., Any]:
    init_state, update_moments = library.create_ema(0.99)

    def function(numbers: Array) -> Any:
        moments, state = update_moments(numbers, init_state(numbers))
        moments, _ = update_moments(2 * numbers, state)
        return moments.mean, moments.variance

    return function


def _moments_in_a_loop(library: Any) -> Callable[..., Any]:
    init_state, update_moments = library.create_ema(0.99)

    def step(state: Any, numbers: Array) -> Any:
        moments, state = update_moments(numbers, state)
        return state, (moments.mean, moments.variance)

    def one(numbers: Array) -> Any:
        return jax.lax.scan(step, init_state(numbers[0]), numbers)[1]

    return jax.vmap(one)


def _running(library: Any) -> Callable[..., Any]:
    init_state, update_moments = library.running_moments()

    def function(observations: Array) -> Any:
        moments, state = update_moments(observations, init_state(observations[0, 0]))
        return moments.mean, moments.variance, state.normalize(observations)

    return function


def _ranges(library: Any) -> Callable[..., Any]:
    init_state, update_scale = library.percentile_scale()

    def function(returns: Array) -> Any:
        return update_scale(returns, init_state(returns))[0]

    return function


def _rewards(library: Any) -> Callable[..., Any]:
    init_state, update_scale = library.reward_scale(axis_name="streams")

    def one(r_t: Array, discount_t: Array) -> Any:
        return update_scale(r_t, discount_t, init_state(r_t))[0]

    return jax.vmap(one, axis_name="streams")


def _errors(library: Any) -> Callable[..., Any]:
    init_state, update_scale = library.return_based_scale()

    def function(r_t: Array, discount_t: Array, returns: Array) -> Any:
        return update_scale(r_t, discount_t, returns, init_state(r_t))[0]

    return function


CASES = (
    Case(
        name="running_moments",
        sizes=(Size(batch=256, steps=20),),
        inputs={"observations": normal("T 64")},
        step=_running,
        smooth=False,
    ),
    Case(
        name="percentile_scale",
        sizes=(Size(batch=256, steps=20),),
        inputs={"returns": normal("T")},
        step=_ranges,
        smooth=False,
    ),
    Case(
        name="reward_scale",
        sizes=(Size(batch=256, steps=128),),
        inputs={"r_t": normal("T"), "discount_t": discount("T")},
        step=_rewards,
        smooth=False,
    ),
    Case(
        name="return_based_scale",
        sizes=(Size(batch=256, steps=128),),
        inputs={
            "r_t": normal("T"),
            "discount_t": discount("T"),
            "returns": normal("T"),
        },
        step=_errors,
        smooth=False,
    ),
    Case(
        name="create_ema",
        label="two updates",
        sizes=(Size(batch=256, steps=20), Size(batch=256, steps=128)),
        inputs={"numbers": normal("T")},
        step=_moments,
    ),
    Case(
        name="create_ema",
        label="ten updates of each stream",
        sizes=(Size(batch=256, steps=20), Size(batch=256, steps=128)),
        inputs={"numbers": normal("10 T")},
        step=_moments_in_a_loop,
    ),
    *(
        Case(
            name=name,
            sizes=ONE_STEP,
            inputs={
                "shift": normal("A"),
                "scale": positive("A"),
                "numbers": numbers,
                "indices": action(),
            },
            step=_with_statistics(name),
        )
        for name, numbers in {
            "normalize": normal(),
            "unnormalize": normal(),
            "unnormalize_linear": normal("A"),
        }.items()
    ),
    _update(1, Size(batch=32, steps=20), Size(batch=256, steps=20)),
    _update(ACTIONS, Size(batch=32, steps=20)),
    _update(TASKS, Size(batch=256, steps=20), Size(batch=1024, steps=80)),
)
