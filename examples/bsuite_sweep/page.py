"""The scores on bsuite, `docs/bsuite.md`."""

from pathlib import Path
from typing import TypedDict

import pandas as pd
from bsuite.experiments import summary_analysis

from bsuite_sweep import training

PAGE = Path(__file__).parents[2] / "docs" / "bsuite.md"
START, END = "<!-- measured: start -->\n", "<!-- measured: end -->\n"
TITLES = "DQN", "bootstrapped DQN", "actor-critic"


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
    text = f"{before}{START}\n{by_tag(scores)}\n{by_experiment(scores)}{END}{after}"
    PAGE.write_text(text, encoding="utf-8")


def table(head: tuple[str, ...], rows: list[list[str]]) -> str:
    """Return a table in Markdown."""
    cells = [list(head), ["---"] + ["--:"] * (len(head) - 1), *rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


def by_tag(scores: Scores) -> str:
    """Return the table of the average scores of experiments with a tag."""
    columns = [tags(results) for results in scores.values()]
    rows = [
        [tag.replace("_", " "), *(f"{column[tag]:.2f}" for column in columns)]
        for tag in sorted(columns[0])
    ]
    return table(("tag", *TITLES), rows)


def tags(results: dict[str, Result]) -> dict[str, float]:
    """Return the average score of the experiments with each tag, by bsuite."""
    frame = pd.DataFrame(
        [
            {"bsuite_env": name, "score": result["score"], "tags": str(result["tags"])}
            for name, result in results.items()
        ]
    )
    frame = summary_analysis.ave_score_by_tag(frame, [])
    return dict(zip(frame.tag, frame.score, strict=True))


def by_experiment(scores: Scores) -> str:
    """Return the table of all scores."""
    rows = []
    for name in training.EXPERIMENTS:
        results = [runs[name] for runs in scores.values() if name in runs]
        if len(results) == len(scores):
            steps, seconds = (
                " / ".join(f"{form(result)}" for result in results)
                for form in (
                    lambda x: f"{x['steps'] / 1e6:.2f}",
                    lambda x: x["seconds"],
                )
            )
            cells = [f"{result['score']:.2f}" for result in results]
            count = str(results[0]["settings"])
            rows.append([f"`{name}`", *cells, count, steps, seconds])
    head = ("experiment", *TITLES, "settings", "million steps", "seconds")
    return table(head, rows)
