"""The scores on bsuite beside those of its repository, `docs/bsuite.md`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

import pandas as pd
from bsuite.experiments import summary_analysis

from bsuite_sweep import training

PAGE = Path(__file__).parents[2] / "docs" / "bsuite.md"
START, END = "<!-- measured: start -->\n", "<!-- measured: end -->\n"
TITLES = "DQN", "bootstrapped DQN", "actor-critic"
# Read off a bar chart, to within 0.01.
PUBLISHED = json.loads((Path(__file__).parent / "published.json").read_text())


class Result(TypedDict):
    """The result of an agent on an experiment."""

    score: float
    tags: list[str]
    settings: int
    steps: int
    seconds: int


Scores = dict[str, dict[str, Result]]  # By agent and experiment.


def write(scores: Scores) -> None:
    """Replace the measured part of the page."""
    before, rest = PAGE.read_text(encoding="utf-8").split(START)
    _, after = rest.split(END)
    text = f"{before}{START}\n{measured(scores)}{END}{after}"
    PAGE.write_text(text, encoding="utf-8")


def measured(scores: Scores) -> str:
    """Return the tables of scores by tag and by experiment, and the steps."""
    ours = {agent: values(runs) for agent, runs in scores.items()}
    pairs = [column for a in ours for column in (ours[a], PUBLISHED[a])]
    whole = len(training.EXPERIMENTS)
    averages = [by_tag(column) if len(column) == whole else {} for column in pairs]
    results = [result for runs in scores.values() for result in runs.values()]
    steps = sum(result["steps"] for result in results) / 1e6
    total = f"All runs together have {steps:.0f} million steps.\n"
    tags = sorted(summary_analysis.ALL_TAGS)
    return "\n".join(
        [
            table("tag", tags, averages),
            table("experiment", list(PUBLISHED["dqn"]), pairs),
            total,
        ]
    )


def values(runs: Mapping[str, Result]) -> dict[str, float]:
    """Return the scores of an agent."""
    return {experiment: result["score"] for experiment, result in runs.items()}


def by_tag(scores: Mapping[str, float]) -> dict[str, float]:
    """Return the average score of the experiments with each tag, by bsuite."""
    frame = pd.DataFrame(scores.items(), columns=["bsuite_env", "score"])
    tags = [str(training.EXPERIMENTS[name].tags) for name in frame.bsuite_env]
    frame = summary_analysis.ave_score_by_tag(frame.assign(tags=tags), [])
    return dict(zip(frame.tag, frame.score, strict=True))


def table(title: str, names: list[str], columns: list[dict[str, float]]) -> str:
    """Return a table in Markdown, with a dash where there is no score."""
    head = [title, *(head for name in TITLES for head in (name, "bsuite's"))]
    cells = [head, ["---"] + ["--:"] * len(columns)]
    for name in names:
        scores = [f"{x[name]:.2f}" if name in x else "–" for x in columns]
        cells.append([name.replace("_", " "), *scores])
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)
