"""Test that functions of single steps take steps on any axes."""

import inspect

import contract
import jax
import numpy as np
import pytest

import rlaxlib

NAMES = [
    "acer_policy_loss",
    "counterfactual_advantage",
    "decoupled_ppo_loss",
    "discovered_policy_loss",
    "discrete_sac_policy_loss",
    "discrete_sac_value",
    "ppo_clip_loss",
    "ppo_penalty_loss",
    "ppo_value_loss",
    "reinforce_loss",
    "sac_critic_target",
    "sac_policy_loss",
    "sac_temperature_loss",
    "simple_policy_loss",
]
# Of each function the row with most arguments.
ROWS = {
    name: max(
        (row for row in contract.collect() if row.name == name),
        key=lambda row: len(row.inputs()),
    )
    for name in NAMES
}


@pytest.mark.parametrize("name", NAMES)
def test_steps_on_two_axes_equal_a_map_over_the_second(name):
    axes, call = _axes(ROWS[name]), ROWS[name].call()
    map_second = jax.vmap(lambda x: call(**x), in_axes=(axes,), out_axes=-1)
    both = jax.jit(lambda stacked: (call(**stacked), map_second(stacked)))
    contract.assert_close(*both(_stack(ROWS[name], axes)), 1e-6, 1e-6)


def _stack(row, axes):
    """Return arguments whose steps are on two axes."""
    inputs = [row.inputs(seed) for seed in range(3)]
    return {
        name: inputs[0][name]
        if axis is None
        else np.stack([each[name] for each in inputs], axis)
        for name, axis in axes.items()
    }


def _axes(row):
    specs = inspect.unwrap(row.function(rlaxlib), stop=_is_checked).signature()
    return {name: _axis(specs.specs[name], x) for name, x in row.inputs().items()}


def _is_checked(function):
    return hasattr(function, "signature")


def _axis(spec, x):
    """Return where the steps of an argument end, or None if it has no steps."""
    steps = [axes for axes in spec.shapes if axes[:1] == ("...",)]
    if not steps or (spec.shapes[0] == () and x.ndim == 0):
        return None
    trailing = len(steps[0]) - 1
    return x.ndim - trailing
