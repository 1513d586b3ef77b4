"""Compare training runs of PPO with rejax, on CartPole-v1.

    python -m benchmarks.ppo

Each library trains in one jitted function, with the same hyper-parameters: 262,144
steps and five evaluations of 128 episodes. rejax requires an older gymnax than the
example, so that it has its own virtual environment, which the first run creates. Each
library runs in its own process, on the CPU. The processes take turns, so that load on
the machine affects both.
"""

import argparse
import importlib.metadata
import json
import math
import pathlib
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from benchmarks import machine

ROOT = pathlib.Path(__file__).parents[1]
OURS, THEIRS = "rlaxlib", "rejax"
VERSIONS = {"rejax": "0.1.3", "gymnax": "0.0.9"}
STEPS, EVALUATIONS = 262_144, 4  # In addition to the initial one.
EPISODES = 128


class Run(NamedTuple):
    """A training run: its time, and the mean return of each evaluation."""

    seconds: float
    returns: list[float]


class Result(NamedTuple):
    """Measurements of one library."""

    compilations: list[float]  # Seconds, including tracing.
    runs: list[Run]  # One per seed.


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark, or one of its two processes.

    Args:
        arguments: Command-line arguments, without the program name.
    """
    options = _parser().parse_args(arguments)
    jax.config.update("jax_platforms", "cpu")
    if options.library:
        serve({OURS: _ours, THEIRS: _theirs}[options.library]())
        return
    peer = _peer(options.environment)
    results = _measure(peer, options.seeds, options.compilations)
    text = "\n".join(report(results, _about()))
    print(f"\n{text}")
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)
        (options.output / "ppo.md").write_text(f"{text}\n", encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ppo", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--seeds", type=int, default=10, help="runs per library")
    parser.add_argument(
        "--compilations", type=int, default=3, help="compilations per library"
    )
    parser.add_argument(
        "--environment",
        type=pathlib.Path,
        metavar="FOLDER",
        default=ROOT / ".venv" / "rejax",
        help="virtual environment of rejax, created if missing (.venv/rejax)",
    )
    parser.add_argument(
        "--output", type=pathlib.Path, metavar="FOLDER", help="folder for ppo.md"
    )
    parser.add_argument("--library", choices=(OURS, THEIRS), help=argparse.SUPPRESS)
    return parser


# --- Process of one library. ---


def serve(train: Callable[[int], Any]) -> None:
    """Read seeds from stdin, one a line; for each, print a `Run` as JSON.

    Args:
        train: Function from a seed to the returns of all episodes, shape
            `[evaluations, episodes]`. It is compiled for a negative seed, and run for
            any other.
    """
    compiled = None
    for line in sys.stdin:
        seed, returns = int(line), []
        begin = time.perf_counter()
        if seed < 0:
            jax.clear_caches()
            compiled = jax.jit(train).lower(0).compile()
            seconds = time.perf_counter() - begin
        else:
            episodes = jax.block_until_ready(compiled(seed))
            seconds = time.perf_counter() - begin
            returns = episodes.mean(axis=1).tolist()
        print(json.dumps(Run(seconds, returns)._asdict()), flush=True)


def _ours() -> Callable[[int], Any]:
    """Return the training function of the example, from a seed to all returns."""
    sys.path.insert(0, str(ROOT / "examples"))
    import ppo_pure_jax  # noqa: PLC0415

    ppo = ppo_pure_jax.make(
        "CartPole-v1",
        learning_rate=3e-4,
        discount=0.99,
        lambda_=0.95,
        epsilon=0.2,
        value_epsilon=0.2,
        value_cost=0.5,
        entropy_cost=0.01,
        hidden_units=64,
        num_envs=64,
        num_steps=64,
        num_epochs=8,
        num_minibatches=16,
        num_evaluations=EVALUATIONS,
        iterations=STEPS // EVALUATIONS // (64 * 64),
        eval_episodes=EPISODES,
    )
    return lambda seed: ppo.train(jax.random.key(seed))[1].episode_return


def _theirs() -> Callable[[int], Any]:
    """Return the training function of rejax, from a seed to all returns."""
    from rejax import PPO  # noqa: PLC0415
    from rejax.evaluate import evaluate  # noqa: PLC0415

    def play(algorithm, state, key):
        act, most = algorithm.make_act(state), algorithm.env_params.max_steps_in_episode
        env, params = algorithm.env, algorithm.env_params
        return evaluate(act, key, env, params, EPISODES, most)

    algorithm = PPO.create(
        env="CartPole-v1",
        learning_rate=3e-4,
        gamma=0.99,
        gae_lambda=0.95,
        clip_eps=0.2,
        vf_coef=0.5,
        ent_coef=0.01,
        agent_kwargs={"hidden_layer_sizes": (64, 64), "activation": "swish"},
        num_envs=64,
        num_steps=64,
        num_epochs=8,
        num_minibatches=16,
        total_timesteps=STEPS,
        eval_freq=STEPS // EVALUATIONS,
    ).replace(eval_callback=play)
    return lambda seed: algorithm.train(jax.random.PRNGKey(seed))[1][1]


# --- Main process. ---


def _measure(peer: str, seeds: int, compilations: int) -> dict[str, Result]:
    """Compile and run both libraries in turns."""
    processes = {OURS: _start(sys.executable, OURS), THEIRS: _start(peer, THEIRS)}
    results = {library: Result([], []) for library in processes}
    try:
        for turn, seed in enumerate([*[-1] * compilations, *range(seeds)]):
            for library in list(processes)[:: -1 if turn % 2 else 1]:
                run = _request(processes[library], seed)
                if seed < 0:
                    results[library].compilations.append(run.seconds)
                else:
                    results[library].runs.append(run)
                print(_line(library, seed, run), flush=True)
    finally:
        for process in processes.values():
            process.stdin.close()
            process.wait()
    return results


def _start(python: str, library: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [python, "-m", "benchmarks.ppo", f"--library={library}"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _request(process: subprocess.Popen[str], seed: int) -> Run:
    """Send a seed to a process and return its run."""
    print(seed, file=process.stdin, flush=True)
    for line in process.stdout:
        if line.startswith("{"):  # Skips messages of imports.
            return Run(**json.loads(line))
    raise RuntimeError("A process ended early; see its output above.")


def _line(library: str, seed: int, run: Run) -> str:
    label = "compiled" if seed < 0 else f"seed {seed}"
    returns = " ".join(f"{each:.0f}" for each in run.returns)
    return f"{library:8} {label:8} {run.seconds:6.2f} s  {returns}"


def _peer(folder: pathlib.Path) -> str:
    """Return the Python of the environment with rejax, created if missing."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    same = {name: importlib.metadata.version(name) for name in ("jax", "jaxlib")}
    wanted = [f"{name}=={version}" for name, version in {**VERSIONS, **same}.items()]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True)
    return str(python)


# --- Report. ---


def report(results: Mapping[str, Result], about: Mapping[str, str]) -> list[str]:
    """Return the lines of a Markdown page.

    Args:
        results: Measurements of each library, with the same order of seeds.
        about: Machine, versions and date.

    Returns:
        The lines: machine and versions, compile time, speed and returns.
    """
    ours, theirs = results[OURS], results[THEIRS]
    compilations = ours.compilations, theirs.compilations
    seconds = [[run.seconds for run in each.runs] for each in (ours, theirs)]
    speeds = [[STEPS / each for each in library] for library in seconds]
    rows = [
        ("", OURS, THEIRS, "ratio"),
        ("---", "---:", "---:", "---:"),
        _row("compile, s", *compilations, ".1f"),
        _row("run, s", *seconds, ".2f"),
        _row("steps a second", *speeds, ",.0f"),
    ]
    for number in range(EVALUATIONS + 1):
        returns = [
            _spread([run.returns[number] for run in each.runs])
            for each in (ours, theirs)
        ]
        step = STEPS // EVALUATIONS * number
        rows.append((f"return after {step:,} steps", *returns, ""))
    return [
        f"# PPO compared with {THEIRS} {VERSIONS['rejax']}, on CartPole",
        "",
        *(f"- {name}: {value}" for name, value in about.items()),
        "",
        f"Medians of {len(ours.compilations)} compilations, including tracing, and of "
        f"{len(ours.runs)} seeds. A ratio is {OURS} divided by {THEIRS}, with its "
        "median and range over the turns. Returns are means over the seeds, with the "
        "standard error.",
        "",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def _row(
    title: str, ours: Sequence[float], theirs: Sequence[float], style: str
) -> tuple[str, ...]:
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    ratio = f"{statistics.median(ratios):.2f}, {min(ratios):.2f}-{max(ratios):.2f}"
    numbers = (format(statistics.median(each), style) for each in (ours, theirs))
    return (title, *numbers, ratio)


def _spread(numbers: Sequence[float]) -> str:
    """Return the mean and its standard error."""
    error = statistics.stdev(numbers) / math.sqrt(len(numbers))
    return f"{statistics.fmean(numbers):.0f} ± {error:.0f}"


def _about() -> dict[str, str]:
    about = machine.describe()
    del about["rlax"]
    packages = {name: importlib.metadata.version(name) for name in ("flax", "gymnax")}
    return {**about, **packages, f"gymnax of {THEIRS}": VERSIONS["gymnax"]}


if __name__ == "__main__":
    main()
