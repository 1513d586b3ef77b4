"""Test that the benchmarks compare the same computation in both libraries."""

import jax
import numpy as np
import pytest

import rlaxlib
from benchmarks import __main__ as command
from benchmarks import growth, memory, steps

pytestmark = [
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),  # rlax's.
    pytest.mark.trust,
]


@pytest.fixture(autouse=True)
def _like_a_user():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.mark.parametrize("step", steps.STEPS, ids=lambda step: step.name)
def test_a_learner_step_has_the_same_loss_in_both_libraries(step, rlax):
    losses = jax.jit(
        lambda *inputs: [step.loss(each, *inputs) for each in (rlaxlib, rlax)]
    )
    ours, theirs = losses(*step.inputs())
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "each", growth.GROWTH, ids=[each.name for each in growth.GROWTH]
)
def test_a_growing_program_computes_the_same_in_both_libraries(each, rlax):
    programs = [each.make(library, each.sizes[0]) for library in (rlaxlib, rlax)]
    functions, (arguments, _) = zip(*programs, strict=True)
    results = jax.jit(lambda *inputs: [each(*inputs) for each in functions])(*arguments)
    np.testing.assert_allclose(*results, rtol=1e-3, atol=1e-5)


def test_layouts_hold_the_same_numbers():
    (_, (first, one)), (_, (second, other)) = growth.layouts(rlaxlib, 3)
    np.testing.assert_allclose(first(*one), second(*other).T, rtol=1e-5)


def test_the_page_has_a_row_for_each_comparison(rlax, monkeypatch, tmp_path):
    monkeypatch.setattr(steps, "STEPS", steps.STEPS[:1])
    negative = jax.numpy.negative, (np.ones(3, np.float32),)
    row = growth.Growth("n", (4,), lambda library, _: negative)
    monkeypatch.setattr(growth, "GROWTH", [row])
    layouts = {"batch": negative, "time": negative}
    monkeypatch.setattr(growth, "layouts", lambda library, _: layouts)
    monkeypatch.setattr(memory, "SOFTMAX", memory.SOFTMAX[2:3])
    monkeypatch.setattr(memory, "HEADS", {"logits": memory.HEADS["logits"]})
    monkeypatch.setattr(command, "LARGE", (32, 8, 64))
    monkeypatch.setattr(command, "SMALL", (16, 8, 64))
    monkeypatch.setattr(jax, "clear_caches", lambda: None)
    command.main(["--quick", "--output", str(tmp_path / "page.md")])
    page = (tmp_path / "page.md").read_text()
    for text in ("| DQN |", "| geometric mean |", "n = 4", "B = 8192", "| logits |"):
        assert text in page
