"""What is measured, under the topics of rlaxlib and in their order."""

from benchmarks.catalog import (
    arrays,
    distributions,
    losses,
    policies,
    returns,
    values,
    whole_steps,
)

TOPICS = {
    "arrays": arrays.CASES,
    "losses": losses.CASES,
    "distributions": distributions.CASES,
    "returns": returns.CASES,
    "values": values.CASES,
    "policies": policies.CASES,
    "whole steps": whole_steps.CASES,
}
