"""Test that functions of single steps take steps on any axes."""

import inspect

import contract
import jax
import numpy as np
import pytest

import rlaxlib
from rlaxlib._core import signatures

NAMES = [
    "acer_policy_loss",
    "counterfactual_advantage",
    "decoupled_ppo_loss",
    "discovered_policy_loss",
    "discrete_sac_policy_loss",
    "discrete_sac_temperature_loss",
    "discrete_sac_value",
    "ppo_clip_loss",
    "ppo_penalty_loss",
    "ppo_value_loss",
    "reinforce_loss",
    "sac_critic_target",
    "sac_policy_loss",
    "sac_temperature_loss",
    "simple_policy_loss",
    "td3_critic_target",
]
ROWS = [row for row in contract.collect() if row.name in NAMES]


@pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
def test_steps_on_two_axes_equal_a_map_over_the_second(row):
    inputs = [row.inputs(seed) for seed in range(3)]
    specs = signatures.read(inspect.unwrap(row.function(rlaxlib), stop=_is_checked))
    axes = {name: _axis(specs.arrays[name], x) for name, x in inputs[0].items()}
    stacked = {
        name: inputs[0][name]
        if axis is None
        else np.stack([each[name] for each in inputs], axis)
        for name, axis in axes.items()
    }

    @jax.jit
    def both(stacked):
        mapped = jax.vmap(lambda x: row.call()(**x), in_axes=(axes,), out_axes=-1)
        return row.call()(**stacked), mapped(stacked)

    whole, mapped = both(stacked)
    contract.assert_close(whole, mapped, 1e-6, 1e-6)


def _is_checked(function):
    return hasattr(function, "signature")


def _axis(spec, x):
    """Return where the steps of an argument end, or None if it has no steps."""
    steps = [axes for axes in spec.shapes if axes[:1] == ("...",)]
    if not steps or (spec.shapes[0] == () and x.ndim == 0):
        return None
    trailing = len(steps[0]) - 1
    return x.ndim - trailing
