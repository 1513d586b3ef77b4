"""Hold the pages for those who come from another library to what there is here."""

import re
import types
from pathlib import Path

import catalog
import library
import pytest
import test_parity

import rlaxlib

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    str(path.relative_to(DOCS)): path.read_text(encoding="utf-8")
    for path in sorted(DOCS.rglob("*.md"))
    if "_build" not in path.parts
}

# All that these libraries publish, at the versions that the pages name.
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
    """Return what stands between backticks, the roles before them aside."""
    return set(re.findall(r"`([^`\n]+)`", PAGES[page]))


# --- Names. ---


@pytest.mark.parametrize("page", PAGES)
def test_names_that_a_page_links_are_ours(page):
    for name in re.findall(r"\{ours\}`([^`]*)`", PAGES[page]):
        library.address(name)  # Raises for a name that there is not.


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("from/")])
def test_names_with_the_name_of_the_library_in_front_are_ours(page):
    for name in re.findall(r"\brlaxlib\.(\w+)", PAGES[page]):
        assert hasattr(rlaxlib, name)


def test_a_name_that_is_not_ours_is_found():
    with pytest.raises(KeyError):
        library.address("no_such_function")


@pytest.mark.parametrize(
    ("page", "names"),
    [("from/trfl.md", TRFL), ("from/coax.md", COAX), ("from/torchrl.md", TORCHRL)],
)
def test_nothing_that_the_other_library_has_is_left_out(page, names):
    assert set(names.split()) <= {name.split("(")[0] for name in literals(page)}


# --- What is new. ---


def test_names_of_rlax_are_those_that_it_has(rlax):
    public, private = library.rlax_names()
    assert public == {
        name
        for name, thing in vars(rlax).items()
        if name[0] != "_" and not isinstance(thing, types.ModuleType)
    }
    assert private == set(test_parity.HIDDEN)


def test_every_name_is_either_new_or_one_of_rlax():
    new = re.findall(r"^\|\{ours\}`(\w+)`\|\S", library.new_names(), re.M)
    assert len(new) == len(set(new)) > 100
    old = set.union(*library.rlax_names())
    assert {*new, *old} == set(catalog.NAMES)


def test_new_arguments_are_told_of():
    lines = library.new_options().splitlines()
    (cuts,) = [line for line in lines if line.startswith("|`truncated_t`|")]
    assert "{ours}`lambda_returns`" in cuts
    assert "{ours}`upgo_returns`" not in cuts  # All of it is new.


# --- What is different. ---


def test_every_difference_has_a_topic_and_a_reason():
    rows = list(library.differences())
    assert len(rows) == PAGES["differences.md"].count("\n| ") - 2  # Two headers.
    assert rows[0][0] == ""
    for topic, (names, *cells) in rows:
        assert len(cells) == 3
        assert all(cells)
        assert bool(topic) == bool(names)
        assert not cells[-1].startswith("As above")  # Lists have another above.


def test_every_difference_is_shown():
    shown = library.differences_of_all() + library.differences_by_topic()
    for _, (_, theirs, ours, why) in library.differences():
        for each in (theirs, ours, why):
            assert each in shown


def test_a_difference_belongs_to_the_topic_of_its_function():
    topics = {names: topic for topic, (names, *_) in library.differences()}
    assert topics["`art`, `popart`"] == "normalization"
    assert topics["categorical distributions"] == "distributions"
