"""Test the suggestions for missing names, and the texts of `help()`."""

import pydoc
import re
import tomllib
import types
from pathlib import Path

import pytest

import rlaxlib
from rlaxlib._core import suggestions

HERE = Path(__file__).parent
QUERIES = dict(
    line.split(": ")
    for line in (HERE / "docs/queries.txt").read_text("utf-8").splitlines()
)
GUESSES = tomllib.loads((HERE / "guesses.toml").read_text("utf-8"))
ELSEWHERE = ("jax.", "optax.", "flax.", "distrax.", "flashbax.", "mctx.", "orbax.")


def flat(tables):
    """Return guesses, with the answers to each."""
    return [
        (guess, [answers] if isinstance(answers, str) else answers)
        for table in tables.values()
        for guess, answers in table.items()
    ]


def answers(name, module=rlaxlib):
    """Return the names that the error of a missing name suggests."""
    with pytest.raises(AttributeError, match=f"no attribute {name!r}") as error:
        getattr(module, name)
    return re.findall("`(.*?)`", str(error.value))


def test_a_name_of_another_library_leads_to_what_a_colleague_would_answer():
    guesses = flat(GUESSES["names"])
    found = {guess: answers(guess)[:1] for guess, _ in guesses}
    assert len(found) >= 200
    right = [
        x for x, names in guesses if found[x] and found[x][0].startswith(tuple(names))
    ]
    assert [guess for guess, _ in guesses if found[guess] and guess not in right] == []
    assert len(right) >= 0.9 * len(found), found.keys() - right


# Algorithms of which recipes are, and how people spell them.
ALGORITHMS = {
    "CrossQ": "crossq cross_q crossq_loss",
    "DroQ": "droq droq_loss dropout_q",
    "RLPD": "rlpd",
    "BRO": "bro bigger_regularized_optimistic",
    "FastTD3": "fasttd3 fast_td3",
    "FastSAC": "fastsac fast_sac",
    "SimBa": "simba simba_loss",
    "SimBaV2": "simbav2 simba_v2",
    "XQC": "xqc",
    "REPPO": "reppo reppo_loss relative_entropy_pathwise_policy_optimization",
    "MRQ": "mrq mr_q MR_Q mrq_loss",
    "DrQv2": "drqv2 drq_v2",
    "MASAC": "masac multi_agent_sac",
    "MADDPG": "maddpg maddpg_loss multi_agent_ddpg",
    "IPPO": "ippo ippo_loss independent_ppo",
    "SHAQ": "shaq shapley_q_learning",
    "BBF": "bbf bigger_better_faster",
    "SR_SPR": "sr_spr srspr SRSPR",
    "M_IQN": "m_iqn miqn munchausen_iqn",
    "DQNReg": "dqn_reg DQN_Reg dqnreg",
    "BranchingDQN": "branching_dqn branching_q BDQ bdq action_branching",
    "RecurrentPPO": "recurrent_ppo ppo_recurrent lstm_ppo ppo_lstm",
    "MaskablePPO": "maskable_ppo masked_ppo ppo_masked mask_ppo ppo_mask",
    "AlphaZero": "alphazero alpha_zero alphazero_loss",
    "MuZero": "muzero mu_zero muzero_loss",
    "SampledMuZero": "sampled_muzero",
    "SPO": "spo spo_loss",
    "RNDPPO": "rnd_ppo ppo_rnd",
    "QC": "qc q_chunking action_chunking qc_fql QC_FQL",
    "DiffusionQL": "diffusion_ql diffusion_q_learning",
    "FlowGRPO": "flow_grpo flow_grpo_loss",
    "DiffusionNFT": "diffusion_nft nft",
    "GCBC": "gcbc goal_conditioned_bc",
    "GCIQL": "gciql goal_conditioned_iql",
    "BEAR": "bear bear_loss",
    "BCQ": "bcq bcq_loss",
    "PLR": "plr prioritized_level_replay",
    "ACCEL": "accel",
    "SFL": "sfl sampling_for_learnability",
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_in_any_spelling_leads_to_the_same_functions(name):
    found = answers(name)
    assert found
    for spelling in ALGORITHMS[name].split():
        assert answers(spelling) == found, spelling


def test_nothing_follows_the_bracket_of_a_row():
    table = suggestions.tables()["concepts"]
    assert [row for row in table if re.search(r" \(.*\).", row)] == []


@pytest.mark.parametrize(
    ("name", "found"),
    {
        "UED": "level_probabilities",
        "unsupervised_environment_design": "level_probabilities",
        "curriculum": "level_probabilities",
        "staleness": "level_probabilities",
        "natural_policy_gradient": "fisher_vector_product",
        "v_mix": "mixed_value",
        "log_alpha": "sac_temperature_loss",
        "continuous_bcq": "ensemble_value",
    }.items(),
)
def test_a_word_of_a_paper_leads_to_the_function(name, found):
    assert answers(name)[0] == found


def test_a_search_term_leads_to_the_function():
    guesses = {
        guess: name
        for guess, name in QUERIES.items()
        if guess.isidentifier()
        and guess not in rlaxlib.__all__
        and name in rlaxlib.__all__  # Others are pages of the manual.
    }
    assert len(guesses) >= 45
    assert {guess: answers(guess)[0] for guess in guesses} == guesses


def test_nothing_is_suggested_where_nobody_knows_what_is_meant():
    names = GUESSES["nothing"]["names"]
    assert [name for name in names if answers(name)] == []


def test_a_misspelt_name_leads_to_the_right_one_unless_it_is_an_acronym():
    for typo, name in {
        "vtrce": "vtrace",
        "lamda_returns": "lambda_returns",
        "labmda_returns": "lambda_returns",
        "q_lerning": "q_learning",
        "q_elarning": "q_learning",
        "huber_los": "huber_loss",
        "masked_man": "masked_mean",
        "squashed_gausian": "squashed_gaussian",
        "generalised_advantage_estimation": "generalized_advantage_estimation",
    }.items():
        assert answers(typo)[0] == name
    assert answers("cqk") == answers("xqk") == []


@pytest.mark.parametrize("name", ["generalized_advantage_estimation", "vtrace"])
def test_a_name_without_one_letter_leads_to_the_right_one(name):
    for i in range(len(name)):
        assert answers(name[:i] + name[i + 1 :])[0] == name


def test_the_first_words_of_a_name_lead_to_all_that_begin_so():
    first = {
        "generalized_advantage": "generalized_advantage_estimation",
        "true_online": "true_online_td_lambda",
        "overlong": "overlong_penalty",
        "eligibility": "eligibility_trace",
        "general_off_policy_returns": "general_off_policy_returns_from_q_and_v",
    }
    assert [word for word, name in first.items() if name not in answers(word)] == []


def test_all_meanings_of_an_acronym_are_listed():
    for word, names in {
        "dppo": ["divergence_ppo_mask", "diffusion_reverse_step"],
        "iql": ["expectile_loss", "q_learning"],
        "spo": ["simple_policy_loss", "mpo_compute_weights_and_temperature_loss"],
    }.items():
        assert set(names) <= set(answers(word)), word


def test_an_import_of_a_missing_name_says_what_the_attribute_says():
    with pytest.raises(ImportError, match="cannot import name 'gae'") as error:
        from rlaxlib import gae  # noqa: F401, PLC0415 - The name is missing.
    assert re.findall("`(.*?)`", str(error.value)) == answers("gae")
    with pytest.raises(ImportError, match="cannot import name 'zzzzzz'"):
        from rlaxlib import zzzzzz  # noqa: F401, PLC0415 - Python raises this one.


def test_a_topic_suggests_names_too():
    found = answers("gae", rlaxlib.returns)
    assert found[0] == "rlaxlib.generalized_advantage_estimation"
    assert answers("huber_loss", rlaxlib.returns) == ["rlaxlib.huber_loss"]
    assert answers("vmap", rlaxlib.values) == ["jax.vmap"]
    assert not hasattr(rlaxlib.returns, "__path_of__")


def test_tables_lead_to_names_that_exist():
    tables = suggestions.tables()
    for names in (tables["concepts"] | tables["functions"]).values():
        real = [x for x in names if re.fullmatch(r"[\w.]+", x)]  # No expressions.
        assert all(x in rlaxlib.__all__ or x.startswith(ELSEWHERE) for x in real)


# Names that the library had before its first release.
FORMER = {
    "accumulating_trace": "eligibility_trace",
    "advantage_expectile_loss": "hiql_value_loss",
    "advantage_weighted_loss": "reinforce_loss(log_prob, advantage_weights(adv, "
    "temperature, max_weight))",
    "approximate_kl": "jnp.mean(kl_loss(old_log_prob, log_prob))",
    "behaviour_cloning_loss": "-log_prob",
    "boltzmann_probabilities": "softmax",
    "bootstrap_mask": "jax.random.bernoulli(key, probability, (num_heads,))",
    "burn_in_mask": "jnp.arange(num_steps) >= burn_in",
    "cmpo_sample_weights": "num_samples * e / (1 + jnp.sum(e) - e)",
    "completed_q_values": "jnp.where(visits > 0, q, mixed_value(logits, q, visits, v))",
    "cvar_fractions": "eta * fractions",
    "clip_fraction": "jnp.mean(jnp.abs(outputs.ratio - 1) > epsilon)",
    "count_bonus": "scale / jnp.sqrt(counts + 0.01)",
    "cpw_fractions": 'distorted_fractions(fractions, eta, "cpw")',
    "cql_temperature_loss": "-jnp.exp(log_temperature) * "
    "jax.lax.stop_gradient(gap - target_gap)",
    "diayn_reward": "jax.nn.log_softmax(logits)[skill] + jnp.log(logits.size)",
    "differential_td_learning": "td_learning(v_tm1, r_t - reward_rate, 1.0, v_t)",
    "discrete_sac_temperature_loss": "sac_temperature_loss(log_temperature, "
    "-softmax().entropy(logits), target_entropy)",
    "dormant_fraction": "jnp.mean(redo_mask(activations))",
    "dppo_mask": "divergence_ppo_mask",
    "duelling_q_values": "dueling_q_values",
    "dutch_trace": "true_online_td_lambda",
    "effective_rank": "1 + jnp.sum(jnp.cumsum(s) < 0.99 * jnp.sum(s))",
    "ensemble_diversity_loss": "edac_diversity_loss",
    "factorised_noise": "factorized_noise",
    "flow_matching_loss": "jnp.sum(jnp.square(predictions - velocity), axis=-1)",
    "geometric_hindsight_indices": "hindsight_indices(key, discount_t, "
    '"geometric", discount)',
    "get_top_k_weights": "jax.lax.top_k(advantages, k)",
    "gtd2_losses": "gtd2_loss",
    "gumbel_value_loss": "xql_value_loss",
    "icm_losses": "icm_loss",
    "iql_value_loss": "expectile_loss(v, jax.lax.stop_gradient(q), expectile)",
    "ladder_epsilons": "apex_epsilons",
    "monotonic_mix": "qmix",
    "ngu_reward": "episodic * jnp.clip(modulation, 1, 5)",
    "optimality_gap": "jnp.mean(jax.nn.relu(target - scores))",
    "power_fractions": 'distorted_fractions(fractions, eta, "power")',
    "quantile_fraction_loss": "fqf_fraction_loss",
    "quantile_mean": "jnp.mean(quantiles)",
    "rebrac_critic_target": "r_t + discount_t * (jnp.min(q_t, axis=0) - "
    "penalty_weight * jnp.sum((a_t - data_a_t) ** 2, axis=-1))",
    "replacing_trace": 'eligibility_trace(trace, gradient, decay, "replacing")',
    "returns_to_go": "discounted_returns(r_t, discount_t, jnp.zeros_like(r_t))",
    "rnd_loss": "jnp.sum(jnp.square(predictions - jax.lax.stop_gradient(targets)), "
    "axis=-1)",
    "rnd_reward": "reward_scale(0.0).update(state, errors, discounts)",
    "RndState": "reward_scale(0.0).init",
    "sample_quantile_fractions": "jax.random.uniform(key, (num_quantiles,))",
    "scale_gradient": "optax.scale_gradient",
    "sparse_value_loss": "sql_value_loss",
    "spo_loss": "simple_policy_loss",
    "symexp": "signed_expm1",
    "symlog": "signed_logp1",
    "SYMLOG_PAIR": "SIGNED_LOGP1_PAIR",
    "sqil_reward": "jnp.where(is_expert, 1.0, 0.0)",
    "tdc_losses": "tdc_loss",
    "td3_critic_target": "r_t + discount_t * jnp.min(q_t, axis=0)",
    "token_baseline": "optimal_token_baseline",
    "transform_from_hl_gauss": "hl_gauss_pair(...).apply_inv",
    "transform_to_hl_gauss": "hl_gauss_pair(...).apply",
    "truncated_quantile_targets": "tqc_targets",
    "value_bias": "masked_mean(values - returns, mask=sample_mask)",
    "wang_fractions": 'distorted_fractions(fractions, eta, "wang")',
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


def test_help_of_a_field_has_its_own_text_only():
    described = 0
    for name in rlaxlib.__all__:
        thing = getattr(rlaxlib, name)
        for field in getattr(thing, "_fields", ()):
            text = getattr(thing, field).__doc__ or ""
            others = [f" {other}: " in text for other in thing._fields]
            assert not any(others), (name, field)
            described += bool(text)
    assert described > 100
