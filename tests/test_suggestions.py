"""Test the suggestions for missing names, and the texts of `help()`."""

import pydoc
import re
import types
from pathlib import Path

import pytest

import rlaxlib
from rlaxlib._core import suggestions

QUERIES = Path(__file__).parent / "docs/queries.txt"
GUESSES = dict(line.split(": ") for line in QUERIES.read_text("utf-8").splitlines())
GUESSES = {
    guess: name
    for guess, name in GUESSES.items()
    if guess.isidentifier() and guess not in rlaxlib.__all__
}


def test_a_guessed_name_raises_an_error_that_suggests_the_right_one():
    assert len(GUESSES) >= 75
    for guess, name in GUESSES.items():
        with pytest.raises(
            AttributeError, match=rf"no attribute {guess!r}. See `{name}`"
        ):
            getattr(rlaxlib, guess)


def test_a_misspelt_name_raises_an_error_that_suggests_the_right_one():
    with pytest.raises(AttributeError, match="See `vtrace`"):
        _ = rlaxlib.vtrce
    assert suggestions.suggest("soft_update", []) == ["optax.incremental_update"]
    assert suggestions.suggest("batched", rlaxlib.__all__) == ["jax.vmap"]


# Names that the library had before its first release.
FORMER = {
    "advantage_expectile_loss": "hiql_value_loss",
    "behaviour_cloning_loss": "-log_prob",
    "boltzmann_probabilities": "softmax",
    "dppo_mask": "divergence_ppo_mask",
    "duelling_q_values": "dueling_q_values",
    "ensemble_diversity_loss": "edac_diversity_loss",
    "factorised_noise": "factorized_noise",
    "gtd2_losses": "gtd2_loss",
    "gumbel_value_loss": "xql_value_loss",
    "icm_losses": "icm_loss",
    "ladder_epsilons": "apex_epsilons",
    "monotonic_mix": "qmix",
    "ngu_reward": "episodic * jnp.clip(modulation, 1, 5)",
    "quantile_fraction_loss": "fqf_fraction_loss",
    "quantile_mean": "jnp.mean(quantiles)",
    "sample_quantile_fractions": "jax.random.uniform(key, (num_quantiles,))",
    "sparse_value_loss": "sql_value_loss",
    "spo_loss": "simple_policy_loss",
    "sqil_reward": "jnp.where(is_expert, 1.0, 0.0)",
    "tdc_losses": "tdc_loss",
    "token_baseline": "optimal_token_baseline",
    "truncated_quantile_targets": "tqc_targets",
}


def test_former_names_lead_to_new_ones_or_to_an_expression():
    for former, name in FORMER.items():
        with pytest.raises(AttributeError, match=re.escape(f"See `{name}`")):
            getattr(rlaxlib, former)


@pytest.mark.parametrize("name", ["__path_of__", "zzzzzz"])
def test_a_name_like_no_other_raises_the_usual_error(name):
    assert not hasattr(rlaxlib, name)
    with pytest.raises(AttributeError, match=f"no attribute {name!r}.?$"):
        getattr(rlaxlib, name)


def test_alias_is_split_into_keywords():
    keywords = ["advantage actor-critic", "A2C", "A3C"]
    assert suggestions.keywords("advantage actor-critic (A2C, A3C)") == keywords
    assert suggestions.keywords("stream Q(λ), TD(λ)") == ["stream Q(λ)", "TD(λ)"]


def test_help_lists_the_topics_and_describes_fields_of_named_tuples():
    for topic, thing in vars(rlaxlib).items():
        if topic in rlaxlib.__all__ and isinstance(thing, types.ModuleType):
            assert re.search(rf"^    .*\b{topic}\b", rlaxlib.__doc__, re.M), topic
    for name in rlaxlib.__all__:
        thing = getattr(rlaxlib, name)
        if isinstance(thing, type):
            assert "Alias for field" not in pydoc.render_doc(thing)
    assert rlaxlib.VTraceOutput.errors.__doc__.startswith("TD error, the target")
