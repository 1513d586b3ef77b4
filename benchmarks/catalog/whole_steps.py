"""Whole steps of training: what is measured."""

from benchmarks import steps
from benchmarks.case import Case
from benchmarks.catalog.shared import REWARD, TRAINING
from benchmarks.inputs import action

CASES = (
    Case(
        name="q_learning",
        label="a step of training a network",
        sizes=TRAINING,
        inputs={
            "parameters": steps.parameters(),
            "observation_tm1": steps.observation(),
            "a_tm1": action(),
            **REWARD,
            "observation_t": steps.observation(),
        },
        step=steps.q_learning,
    ),
)
