"""Distributional values: what is measured."""

from typing import Any

from benchmarks.case import Case
from benchmarks.catalog.shared import REWARD, row
from benchmarks.inputs import Input, Size, action, grid, key, normal, probs, unit

ONE_STEP = (Size(batch=256),)
SMALL, MIDDLE, LARGE = ("51", "201", "601")


def _midpoints(number: str) -> Input:
    return grid(number, 0.0, 1.0)


def _td(atoms: str) -> dict[str, Any]:
    return {
        "v_atoms_tm1": grid(atoms),
        "v_logits_tm1": normal(atoms),
        **REWARD,
        "v_atoms_t": grid(atoms),
        "v_logits_t": normal(atoms),
    }


def _q(atoms: str) -> dict[str, Any]:
    return {
        "q_atoms_tm1": grid(atoms),
        "q_logits_tm1": normal(f"A {atoms}"),
        "a_tm1": action(),
        **REWARD,
        "q_atoms_t": grid(atoms),
        "q_logits_t": normal(f"A {atoms}"),
    }


def _taken(number: str) -> dict[str, Any]:
    return {
        "dist_q_tm1": normal(f"{number} A"),
        "tau_q_tm1": _midpoints(number),
        "a_tm1": action(),
        **REWARD,
    }


def _learn(number: str) -> dict[str, Any]:
    following = normal(f"{number} A")
    return _taken(number) | {"dist_q_t_selector": following, "dist_q_t": following}


def _risk(name: str, level: float) -> Case:
    return row(name, ONE_STEP, settings={"level": level}, fractions=unit("32"))


CASES = (
    *(
        row(
            "categorical_l2_project",
            ONE_STEP,
            label=f"{atoms} atoms",
            z_p=normal(atoms),
            probs=probs(atoms),
            z_q=grid(atoms),
        )
        for atoms in (SMALL, MIDDLE, LARGE)
    ),
    *(
        row("categorical_td_learning", ONE_STEP, label=f"{atoms} atoms", **_td(atoms))
        for atoms in (SMALL, MIDDLE, LARGE)
    ),
    row("categorical_q_learning", ONE_STEP, **_q(SMALL)),
    row(
        "categorical_double_q_learning",
        ONE_STEP,
        **_q(SMALL),
        q_t_selector=normal("A"),
    ),
    *(
        row(
            "quantile_regression_loss",
            ONE_STEP,
            label=f"{number} quantiles",
            settings={"huber_param": 1.0},
            dist_src=normal(number),
            tau_src=_midpoints(number),
            dist_target=normal(number),
        )
        for number in ("8", "32", "200")
    ),
    *(
        row(
            "quantile_q_learning",
            ONE_STEP,
            label=f"{number} quantiles",
            settings={"huber_param": 1.0},
            **_learn(number),
        )
        for number in ("32", "200")
    ),
    *(
        row(
            "quantile_expected_sarsa",
            ONE_STEP,
            label=f"{number} quantiles",
            settings={"huber_param": 1.0},
            **_taken(number),
            dist_q_t=normal(f"{number} A"),
            probs_a_t=probs("A"),
        )
        for number in ("32", "200")
    ),
    row(
        "expectile_regression_loss",
        ONE_STEP,
        label="200 expectiles",
        dist_src=normal("200"),
        tau_src=_midpoints("200"),
        dist_target=normal("200"),
    ),
    row("expectile_q_learning", ONE_STEP, label="11 expectiles", **_learn("11")),
    *(
        row(
            "impute_expectile_samples",
            ONE_STEP,
            label=f"{number} expectiles",
            smooth=False,
            expectiles=grid(number),
            tau=_midpoints(number),
        )
        for number in ("10", "11")
    ),
    row(
        "imputed_expectile_q_learning",
        ONE_STEP,
        label="11 expectiles",
        **_learn("11"),
    ),
    row("sample_quantile_fractions", ONE_STEP, settings={"n": 32}, key=key()),
    row("cosine_embedding", ONE_STEP, settings={"dim": 64}, fractions=unit("32")),
    _risk("cvar_fractions", 0.25),
    _risk("wang_fractions", -0.75),
    _risk("cpw_fractions", 0.71),
    _risk("power_fractions", -2.0),
    row(
        "conditional_value_at_risk",
        ONE_STEP,
        settings={"level": 0.25},
        quantiles=normal("32"),
    ),
    row(
        "quantile_fraction_loss",
        ONE_STEP,
        fractions=grid("33", 0.0, 1.0),
        quantiles_at_fractions=normal("31"),
        quantiles_at_midpoints=normal("32"),
    ),
    row(
        "truncated_quantile_targets",
        ONE_STEP,
        settings={"num_dropped": 2},
        dist_q_t=normal("5 25"),
    ),
    row(
        "energy_distance_loss",
        ONE_STEP,
        samples=normal("200"),
        targets=normal("200"),
    ),
)
