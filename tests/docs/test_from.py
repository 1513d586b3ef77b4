"""Test the pages for users of other libraries."""

import re
import types
from pathlib import Path

import from_pages
import pytest
import test_parity

import rlaxlib

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    str(path.relative_to(DOCS)): path.read_text(encoding="utf-8")
    for path in sorted(DOCS.rglob("*.md"))
    if "_build" not in path.parts
}

# All public names of these libraries, at the versions given in the pages.
TRFL = """
    assert_rank_and_shape_compatibility batched_index best_effort_shape
    categorical_dist_double_qlearning categorical_dist_qlearning
    categorical_dist_td_learning discrete_policy_entropy_loss discrete_policy_gradient
    discrete_policy_gradient_loss double_qlearning dpg epsilon_greedy
    generalized_lambda_returns huber_loss multistep_forward_view periodic_target_update
    periodically persistent_qlearning pixel_control_loss pixel_control_rewards
    policy_entropy_loss policy_gradient policy_gradient_loss qlambda qlearning
    qv_learning qv_max retrace retrace_core retrace_from_action_log_probs
    retrace_from_importance_weights sarsa sarsa_lambda sarse scan_discounted_sum
    sequence_a2c_loss sequence_advantage_actor_critic_loss td_lambda td_learning
    update_target_variables vtrace_from_importance_weights vtrace_from_logits
"""
TORCHRL = """
    generalized_advantage_estimate reward2go td0_advantage_estimate td0_return_estimate
    td1_advantage_estimate td1_return_estimate td_lambda_advantage_estimate
    td_lambda_return_estimate vec_generalized_advantage_estimate
    vec_td1_advantage_estimate vec_td1_return_estimate vec_td_lambda_advantage_estimate
    vec_td_lambda_return_estimate vtrace_advantage_estimate
"""
COAX = """
    ClippedDoubleQLearning DoubleQLearning ExpectedSarsa QLearning Sarsa SimpleTD
    SoftClippedDoubleQLearning SoftQLearning
    DeterministicPG PPOClip SoftPG VanillaPG
    EntropyRegularizer KLDivRegularizer NStepEntropyRegularizer
    mse huber logloss logloss_sign quantile_huber
    MonteCarlo NStep PrioritizedReplayBuffer SimpleReplayBuffer
"""


def literals(page):
    """Return all texts between backticks."""
    return set(re.findall(r"`([^`\n]+)`", PAGES[page]))


# --- Names. ---


def test_names_prefixed_with_rlaxlib_exist():
    for page, text in PAGES.items():
        for name in re.findall(r"\brlaxlib\.(\w+)", text):
            # The manual itself is `rlaxlib.pdf`.
            assert hasattr(rlaxlib, name) or name[0] == "_" or name == "pdf", page


@pytest.mark.parametrize(
    ("page", "names"),
    [
        *(("from/trfl.md", TRFL), ("from/coax.md", COAX), ("from/torchrl.md", TORCHRL)),
    ],
)
def test_page_contains_all_names_of_the_other_library(page, names):
    assert set(names.split()) <= {name.split("(")[0] for name in literals(page)}


def test_names_marked_as_in_rlax_are_public_names_of_rlax(rlax):
    listed = (DOCS / "_ext" / "rlax_names.txt").read_text(encoding="utf-8")
    public, private = (set(part.split()) for part in listed.split("\n\n"))
    assert public == {
        name
        for name, thing in vars(rlax).items()
        if name[0] != "_" and not isinstance(thing, types.ModuleType)
    }
    assert private == set(test_parity.HIDDEN)


# --- Rows. ---

FORMULAS = Path(from_pages.__file__).parent
COMPARED = sorted(path.stem for path in FORMULAS.glob("[a-z]*.py"))


# Pages whose rows name functions only: rlax has the same names.
NAMES_ONLY = ["rlax"]


def test_each_other_page_has_formulas():
    pages = {path.stem for path in (DOCS / "from").glob("*.md")}
    assert sorted(pages - {*NAMES_ONLY}) == COMPARED


@pytest.mark.parametrize(
    ("page", "row"), [(page, row) for page in COMPARED for row in from_pages.rows(page)]
)
def test_code_of_a_row_equals_the_formula_of_the_other_library(page, row):
    from_pages.check(page, row)


@pytest.mark.parametrize("page", COMPARED)
def test_each_formula_has_a_row(page):
    module, _ = from_pages.load(page)
    assert list(module.ROWS) == list(from_pages.rows(page))


@pytest.mark.parametrize("page", NAMES_ONLY)
def test_a_page_of_names_names_a_commit(page):
    link = r"\[([\w.-]+/[\w.-]+)@(\w{7})\]\(https://github.com/\1/tree/\2\)"
    assert re.search(link, PAGES[f"from/{page}.md"])


@pytest.mark.parametrize("page", COMPARED)
def test_a_page_names_the_commit_of_its_formulas(page):
    module, _ = from_pages.load(page)
    commits = re.findall(r"([\w.-]+/[\w.-]+)@([0-9a-f]{7,})", module.__doc__)
    assert commits
    for repository, commit in commits:
        link = f"[{repository}@{commit}](https://github.com/{repository}/tree/{commit})"
        assert link in PAGES[f"from/{page}.md"]
