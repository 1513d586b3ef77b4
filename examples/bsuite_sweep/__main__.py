"""Run the sweep on all processors, and write `docs/bsuite.md`: see `__init__.py`.

Each agent and experiment is a set of runs, one a setting. It is skipped if
`scores.json` has its score, which is stored as soon as the last run is done. After an
interruption, the same command continues.
"""

import argparse
import json
import multiprocessing
import os
from collections import defaultdict
from collections.abc import Sequence
from concurrent import futures
from pathlib import Path

import pandas as pd
from tqdm import tqdm

from bsuite_sweep import page, training

SCORES = Path(__file__).parent / "scores.json"
# A process has one thread.
FLAGS = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what the command line names and is missing."""
    names, experiments = training.AGENTS, list(training.EXPERIMENTS)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", nargs="*", choices=names, default=names)
    parser.add_argument(
        "--experiments", nargs="*", choices=experiments, default=experiments
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--scores", type=Path, default=SCORES)
    options = parser.parse_args(arguments)
    stored = json.loads(options.scores.read_text())
    runs = [
        (agent, experiment, bsuite_id)
        for experiment in options.experiments
        for agent in options.agents
        if experiment not in stored[agent]
        for bsuite_id in training.settings(experiment)
    ]
    runs.sort(key=lambda run: training.weight(*run), reverse=True)
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAGS}"
    done = defaultdict(list)
    context = multiprocessing.get_context("spawn")
    with futures.ProcessPoolExecutor(options.processes, context) as pool:
        tasks = {pool.submit(training.run, *each): each for each in runs}
        for task in tqdm(futures.as_completed(tasks), total=len(tasks), unit="run"):
            agent, experiment, _ = tasks[task]
            results = done[agent, experiment]
            results.append(task.result())
            if len(results) == len(training.settings(experiment)):
                stored[agent][experiment] = summarize(experiment, results)
                options.scores.write_text(json.dumps(stored, indent=1) + "\n")
    if all(stored.values()):
        page.write(stored)


def summarize(
    experiment: str, results: Sequence[tuple[pd.DataFrame, float]]
) -> page.Result:
    """Return the score of an experiment from its runs."""
    logs, seconds = zip(*results, strict=True)
    return {
        "score": round(training.score(logs), 3),
        "tags": list(training.EXPERIMENTS[experiment].tags),
        "settings": len(logs),
        "steps": sum(int(log.steps.iloc[-1]) for log in logs),
        "seconds": round(sum(seconds)),
    }


if __name__ == "__main__":
    main()
