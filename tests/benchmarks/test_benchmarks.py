"""Test that the benchmarks measure what they say, though not how fast anything is."""

import functools
import json
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlaxlib
from benchmarks import catalog, machine, measure, programs, run, timing
from benchmarks.case import Case, MissingFunctionError
from benchmarks.inputs import Size, action, normal

# --- What the tests share. ---

CASES = [case for cases in catalog.TOPICS.values() for case in cases]
WITHOUT_PEER = {
    "advantage_learning",
    "approximate_kl",
    "balanced_kl",
    "categorical_mpo_loss",
    "clip_fraction",
    "clipped_double_q_target",
    "clipped_value_loss",
    "cmpo_policy_targets",
    "cmpo_sample_weights",
    "completed_q_values",
    "conditional_value_at_risk",
    "cosine_embedding",
    "cpw_fractions",
    "cvar_fractions",
    "decoupled_ppo_loss",
    "differential_td_learning",
    "discovered_policy_loss",
    "discrete_soft_policy_loss",
    "discrete_soft_value",
    "discrete_temperature_loss",
    "dormant_fraction",
    "effective_rank",
    "effective_sample_size",
    "energy_distance_loss",
    "ensemble_value",
    "expectile_q_learning",
    "expectile_regression_loss",
    "explained_variance",
    "gaussian_mpo_loss",
    "generalized_advantage_estimation",
    "gumbel_policy_targets",
    "hindsight_indices",
    "importance_sampling_weights",
    "impute_expectile_samples",
    "imputed_expectile_q_learning",
    "masked_mean",
    "mellowmax",
    "munchausen_q_learning",
    "ornstein_uhlenbeck_noise",
    "percentile_scale",
    "persistent_advantage_learning",
    "power_fractions",
    "ppo_clip_loss",
    "ppo_penalty_loss",
    "prioritized_probabilities",
    "quantile_fraction_loss",
    "rank_probabilities",
    "return_based_scale",
    "reward_scale",
    "running_moments",
    "sample_quantile_fractions",
    "scale_gradient",
    "score_function_loss",
    "sequence_priority",
    "simple_policy_loss",
    "smoothed_target_action",
    "soft_actor_critic_target",
    "soft_policy_loss",
    "soft_q_learning",
    "soft_value",
    "standardize",
    "straight_through_sample",
    "stratified_sample",
    "subset_minimum",
    "systematic_resample",
    "tanh_normal_log_prob",
    "tanh_normal_log_prob_of_action",
    "temperature_loss",
    "transform_from_hl_gauss",
    "transform_to_hl_gauss",
    "tree_backup",
    "truncated_quantile_targets",
    "unimix_logits",
    "upgo_returns",
    "value_bias",
    "wang_fractions",
}
NO_EFFORT = timing.Effort(pairs=3, sample=0.0, compilations=1)

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)


@pytest.fixture(scope="module")
def tables(rlax, tmp_path_factory):
    """Run the command once, on a few functions."""
    del rlax
    folder = tmp_path_factory.mktemp("tables")
    chosen = "^(discounted_returns|softmax.sample|standardize)$"
    status = run.main(["--quick", "--select", chosen, "--output", str(folder)])
    assert status == 0
    markdown = (folder / f"{machine.slug()}.md").read_text(encoding="utf-8")
    content = json.loads((folder / f"{machine.slug()}.json").read_text("utf-8"))
    return markdown, content


def toy(factor):
    """Return a library of one function."""
    return types.SimpleNamespace(__name__="toy", times=lambda x: factor * x)


TOY = Case(name="times", inputs={"x": normal("A")}, sizes=(Size(batch=2, actions=3),))


def measured(ours, theirs):
    libraries = {measure.OURS: ours, measure.THEIRS: theirs}
    return list(measure.rows("toys", TOY, TOY.sizes[0], libraries, NO_EFFORT))


def traced(case, library):
    """Trace all passes of a case, at a small size."""
    size = case.sizes[0]._replace(batch=2, steps=case.sizes[0].steps and 4)
    with programs.plain_jax():
        made = programs.of(case, size, library)
        return {
            name: jax.eval_shape(program.function, *program.arguments)
            for name, program in made.items()
        }


def shapes(tree):
    return [(each.shape, each.dtype) for each in jax.tree.leaves(tree)]


# --- What is measured. ---


@every_case
def test_both_libraries_take_the_same_inputs_and_give_the_same_shapes(case, rlax):
    ours = traced(case, rlaxlib)
    if case.name in WITHOUT_PEER:
        with pytest.raises(MissingFunctionError):
            traced(case, rlax)
        return
    theirs = traced(case, rlax)
    assert ours.keys() == theirs.keys()
    assert shapes(list(ours.values())) == shapes(list(theirs.values()))


def test_no_two_rows_have_the_same_title():
    titles = [case.title for case in CASES]
    assert len(titles) == len(set(titles))


def test_the_gradient_pulls_back_to_all_float_inputs():
    inputs = {"x": normal("A"), "a_t": action(), "y": normal()}
    case = Case(name="pick", inputs=inputs, sizes=TOY.sizes)
    library = types.SimpleNamespace(__name__="toy", pick=lambda x, a_t, y: x[a_t] * y)
    gradient = programs.of(case, Size(batch=2, actions=3), library)["gradient"]
    (x, a_t, y), (cotangent,) = gradient.arguments
    by_x, by_y = gradient.function(*gradient.arguments)
    chosen = np.eye(3)[a_t]
    np.testing.assert_allclose(by_x, chosen * (y * cotangent)[:, None], rtol=1e-6)
    np.testing.assert_allclose(by_y, (chosen * x).sum(axis=1) * cotangent, rtol=1e-6)


def test_functions_without_a_gradient_have_a_forward_pass_only():
    for case in CASES:
        if case.name in {"one_hot", "greedy.probs", "categorical_sample"}:
            assert traced(case, rlaxlib).keys() == {"forward"}


# --- How it is measured. ---


def test_samples_are_taken_in_turns():
    order = []
    runs = {name: functools.partial(order.append, name) for name in "ab"}
    seconds = timing.side_by_side([runs], timing.Effort(pairs=3, sample=0.0))
    assert order[-6:] == ["a", "b", "b", "a", "a", "b"]
    assert {name: len(each) for name, each in seconds.items()} == {"a": 3, "b": 3}


def test_each_compilation_has_its_share_of_the_samples():
    order = []
    rounds = [{"a": functools.partial(order.append, n)} for n in range(3)]
    seconds = timing.side_by_side(rounds, timing.Effort(pairs=6, sample=0.0))
    assert len(seconds["a"]) == 6
    assert order == sorted(order)
    assert len({order.count(n) for n in range(3)}) == 1


def test_a_program_is_compiled_as_often_as_asked():
    program = programs.Program(jax.jit(lambda x: x + 1), (jnp.ones(3),))
    effort = timing.Effort(compilations=2, patience=60.0)
    compiled = timing.compile_all({"a": program}, effort)
    assert [float(each.run(jnp.ones(3))[0]) for each in compiled["a"]] == [2.0, 2.0]


def test_a_sample_has_as_many_calls_as_fill_it():
    calls = []
    rounds = [{"a": lambda: calls.append(1)}]
    timing.side_by_side(rounds, timing.Effort(2, sample=1e-3))
    assert len(calls) > 100


def test_the_same_program_is_neither_faster_nor_slower():
    for row in measured(toy(1.0), toy(1.0)):
        assert row.same_program
        assert row.verdict == "even"
        assert row.agrees


def test_results_that_differ_are_said_to():
    forward, gradient = measured(toy(1.0), toy(1.01))
    assert not forward.same_program
    assert forward.difference == pytest.approx(0.01 / 1.01, rel=1e-3)
    assert not forward.agrees
    assert not gradient.agrees


@pytest.mark.parametrize(
    ("quartiles", "verdict"),
    [((0.5, 0.8, 0.9), "faster"), ((0.9, 1.1, 1.2), "even"), ((1.1, 1.2, 2), "slower")],
)
def test_a_row_is_slower_if_three_pairs_in_four_say_so(quartiles, verdict):
    row = measure.Row("toys", "times", "B=1", "forward", {})
    assert row.verdict == ""
    row = measure.Row(
        "toys", "times", "B=1", "forward", {}, timing.Quartiles(*quartiles)
    )
    assert row.verdict == verdict


def test_numbers_that_are_finite_on_one_side_only_differ_without_limit():
    assert programs.difference(jnp.array([1.0, jnp.nan]), jnp.ones(2)) == np.inf
    assert programs.difference(jnp.array([1.0, jnp.inf]), jnp.ones(2)) == np.inf
    assert programs.difference(jnp.ones(3), jnp.ones(2)) == np.inf
    same = jnp.array([1.0, jnp.nan, jnp.inf])
    assert programs.difference(same, same) == 0


# --- What is written. ---


def test_the_table_has_a_line_for_each_pass_of_each_function(tables):
    markdown, content = tables
    found = [(row["name"], row["direction"]) for row in content["rows"]]
    assert found == [
        ("standardize", "forward"),
        ("standardize", "gradient"),
        ("softmax.sample", "forward"),
        ("discounted_returns", "forward"),
        ("discounted_returns", "gradient"),
    ]
    for name, direction in found:
        lines = [line for line in markdown.splitlines() if f"`{name}`" in line]
        assert any(f"| {direction} |" in line for line in lines)


def test_a_row_tells_time_ratio_compilation_and_memory(tables):
    _, content = tables
    by_name = {row["name"]: row for row in content["rows"]}
    for name, row in by_name.items():
        libraries = {"rlaxlib"} if name in WITHOUT_PEER else {"rlaxlib", "rlax"}
        assert row["costs"].keys() == libraries
        for cost in row["costs"].values():
            assert 0 < cost["run"]["low"] <= cost["run"]["median"]
            assert cost["run"]["median"] <= cost["run"]["high"]
            assert cost["trace"] > 0
            assert cost["compile"] > 0
            assert cost["memory"] is None or cost["memory"] >= 0
        assert (row["ratio"] is None) == (name in WITHOUT_PEER)
    assert by_name["discounted_returns"]["difference"] < programs.TOLERANCE
    assert by_name["softmax.sample"]["difference"] is None


def test_the_table_says_on_what_with_what_and_when_it_was_measured(tables):
    markdown, content = tables
    about = content["machine"]
    assert about["device"] == jax.devices()[0].device_kind
    assert about["jax"] == jax.__version__
    assert about["rlax"] != "not installed"
    for name, value in about.items():
        assert f"- {name}: {value}" in markdown
    assert content["summary"] in markdown
    assert content["summary"].startswith("5 rows; 3 beside rlax: ")


def test_without_rlax_there_are_times_of_rlaxlib_alone_and_it_is_said(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, "rlax", None)
    status = run.main(["--quick", "--select", "^l2_loss$", "--output", str(tmp_path)])
    assert status == 0
    assert "rlax is not installed" in capsys.readouterr().err
    markdown = (tmp_path / f"{machine.slug()}.md").read_text(encoding="utf-8")
    assert "rlax is not installed" in markdown
    content = json.loads((tmp_path / f"{machine.slug()}.json").read_text("utf-8"))
    assert [row["costs"].keys() for row in content["rows"]] == [{"rlaxlib"}] * 2


def test_a_function_that_rlaxlib_lacks_is_skipped_and_named(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.delattr(rlaxlib, "l2_loss")
    chosen = "^(l2|huber)_loss$"
    status = run.main(["--quick", "--select", chosen, "--output", str(tmp_path)])
    assert status == 0
    markdown = (tmp_path / f"{machine.slug()}.md").read_text(encoding="utf-8")
    assert "- `l2_loss`: rlaxlib does not have it" in markdown
    assert "1 skipped" in capsys.readouterr().out


def test_a_function_that_fails_does_not_end_the_run(tmp_path, monkeypatch, capsys):
    def broken(**arrays):
        raise ValueError(f"no use for {sorted(arrays)}")

    monkeypatch.setattr(rlaxlib, "l2_loss", broken)
    chosen = "^(l2|huber)_loss$"
    status = run.main(["--quick", "--select", chosen, "--output", str(tmp_path)])
    assert status == 1
    assert "l2_loss: failed: ValueError: no use for" in capsys.readouterr().err
    content = json.loads((tmp_path / f"{machine.slug()}.json").read_text("utf-8"))
    assert {row["name"] for row in content["rows"]} == {"huber_loss"}


def test_a_part_of_the_benchmarks_does_not_overwrite_the_tables(monkeypatch, tmp_path):
    monkeypatch.setattr(run, "TABLES", tmp_path)
    assert run.main(["--quick", "--select", "^huber_loss$"]) == 0
    assert not list(tmp_path.iterdir())


def test_numbers_of_actions_can_be_chosen(monkeypatch, tmp_path):
    monkeypatch.setattr(run, "TABLES", tmp_path)
    folder = tmp_path / "chosen"
    chosen = ["--select", "^(huber_loss|softmax.entropy)$", "--actions", "2", "9"]
    assert run.main(["--quick", *chosen, "--output", str(folder)]) == 0
    content = json.loads((folder / f"{machine.slug()}.json").read_text("utf-8"))
    found = {(row["name"], row["size"]) for row in content["rows"]}
    entropies = {("softmax.entropy", f"B=8, A={n}") for n in (2, 9)}
    assert found - entropies == {("huber_loss", "B=8")}
    assert entropies <= found


def test_the_cost_of_an_import_is_measured_where_it_is_asked_for(tmp_path):
    status = run.main(["--quick", "--select", "^import$", "--output", str(tmp_path)])
    assert status == 0
    content = json.loads((tmp_path / f"{machine.slug()}.json").read_text("utf-8"))
    assert not content["rows"]
    ours = content["imports"][0]
    assert ours["library"] == "rlaxlib"
    assert ours["modules"] > 0
    assert ours["time"]["median"] > 0


def test_a_choice_of_nothing_is_an_error():
    assert run.main(["--quick", "--select", "no such function"]) == 1
