"""What is measured, under the topics of rlaxlib and in their order."""

from benchmarks.catalog import (
    actor_critic,
    arrays,
    diagnostics,
    distributional,
    distributions,
    exploration,
    losses,
    maximum_a_posteriori,
    nonlinear,
    normalization,
    policies,
    proximal,
    replay,
    returns,
    trajectories,
    transforms,
    trees,
    values,
    whole_steps,
)

TOPICS = {
    "arrays": arrays.CASES,
    "losses": losses.CASES,
    "transforms": transforms.CASES,
    "distributions": distributions.CASES,
    "returns": returns.CASES,
    "normalization": normalization.CASES,
    "exploration": exploration.CASES,
    "trajectories": trajectories.CASES,
    "replay": replay.CASES,
    "diagnostics": diagnostics.CASES,
    "trees": trees.CASES,
    "values": values.CASES + distributional.CASES + nonlinear.CASES,
    "policies": (
        policies.CASES
        + proximal.CASES
        + actor_critic.CASES
        + maximum_a_posteriori.CASES
    ),
    "whole steps": whole_steps.CASES,
}
