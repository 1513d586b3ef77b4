"""Compare whole training runs with rejax's: PPO, DQN, PQN, SAC and TD3.

    python -m benchmarks.training [NAMES] [--seeds=10]

Each library trains in one jitted function of a seed, on gymnax's CartPole or Pendulum:
the same networks, steps, updates, batches, replay and evaluations. rejax requires an
older gymnax than the examples, so that it has its own virtual environment, which the
first run creates. Each library runs in its own process, on the CPU or another device.
The processes take turns, so that load on the machine affects both.
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
ENVIRONMENT = ROOT / ".venv" / "rejax"
EVALUATIONS = 4  # In addition to the initial one.

# --- Settings, with rejax's names. Networks have two hidden layers of 64 units. ---

_CARTPOLE = {"env": "CartPole-v1", "gamma": 0.99}
_PENDULUM = {
    "env": "Pendulum-v1",
    "gamma": 0.99,
    "total_timesteps": 20_000,
    "num_envs": 1,
    "num_epochs": 1,  # Updates a round.
    "buffer_size": 20_000,
    "fill_buffer": 1000,
    "batch_size": 128,
    "learning_rate": 1e-3,
    "polyak": 0.99,
}
SETTINGS: dict[str, dict[str, Any]] = {
    "PPO": {
        **_CARTPOLE,
        "total_timesteps": 262_144,
        "num_envs": 64,
        "num_steps": 64,
        "num_epochs": 8,
        "num_minibatches": 16,
        "learning_rate": 3e-4,
        "gae_lambda": 0.95,
        "clip_eps": 0.2,
        "vf_coef": 0.5,
        "ent_coef": 0.01,
    },
    "DQN": {
        **_CARTPOLE,
        "total_timesteps": 100_000,
        "num_envs": 10,
        "num_epochs": 2,  # Updates a round.
        "buffer_size": 50_000,
        "fill_buffer": 1000,
        "batch_size": 100,
        "learning_rate": 1e-3,
        "polyak": 0.98,
        "exploration_fraction": 0.5,
    },
    "PQN": {
        **_CARTPOLE,
        "total_timesteps": 524_288,
        "num_envs": 16,
        "num_steps": 128,
        "num_epochs": 5,
        "num_minibatches": 16,
        "learning_rate": 3e-4,
        "td_lambda": 0.9,
        "exploration_fraction": 0.5,
    },
    "SAC": _PENDULUM,
    # Noise of torques in [-2, 2]: 0.3, 0.2 and 0.5 of actions in [-1, 1].
    "TD3": {
        **_PENDULUM,
        "policy_delay": 2,
        "exploration_noise": 0.6,
        "target_noise": 0.4,
        "target_noise_clip": 1.0,
    },
}
for _settings in SETTINGS.values():
    _settings["eval_freq"] = _settings["total_timesteps"] // EVALUATIONS


class Run(NamedTuple):
    """A training run: its time, and the mean return of each evaluation."""

    seconds: float
    returns: list[float]


class Result(NamedTuple):
    """Measurements of one algorithm of one library."""

    compilations: list[float]  # Seconds, including tracing.
    runs: list[Run]  # One per seed.


Results = dict[str, Result]  # Of each library.


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark, or one of its processes.

    Args:
        arguments: Command-line arguments, without the program name.
    """
    options = _parser().parse_args(arguments)
    if options.device == "cpu":
        jax.config.update("jax_platforms", "cpu")
    if options.library:
        (name,) = options.names
        serve(_TRAIN[options.library](name))
        return
    pythons = interpreters(options.environment)
    turns = [*[-1] * options.compilations, *range(options.seeds)]
    results = {
        name: measure(name, pythons, options.device, turns)
        for name in options.names or SETTINGS
    }
    text = "\n".join(report(results, _about()))
    print(f"\n{text}")
    if options.output:
        options.output.write_text(f"{text}\n", encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.training", description=__doc__.partition("\n")[0]
    )
    parser.add_argument(
        "names",
        nargs="*",
        type=_algorithm,
        metavar="NAME",
        help=f"algorithms, of {', '.join(SETTINGS)}; all by default",
    )
    parser.add_argument("--seeds", type=int, default=10, help="runs per library")
    parser.add_argument(
        "--compilations", type=int, default=3, help="compilations per library"
    )
    parser.add_argument("--device", default="cpu", help="cpu or gpu")
    parser.add_argument(
        "--environment",
        type=pathlib.Path,
        metavar="FOLDER",
        default=ENVIRONMENT,
        help="virtual environment of rejax, created if missing (.venv/rejax)",
    )
    parser.add_argument(
        "--output", type=pathlib.Path, metavar="FILE", help="file for the results"
    )
    parser.add_argument("--library", choices=(OURS, THEIRS), help=argparse.SUPPRESS)
    return parser


def _algorithm(name: str) -> str:
    if name.upper() not in SETTINGS:
        raise argparse.ArgumentTypeError(f"{name} is not one of {', '.join(SETTINGS)}")
    return name.upper()


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


def trace(library: str, name: str) -> None:
    """Trace a training run, which imports all that it needs."""
    jax.eval_shape(_TRAIN[library](name), 0)


def ours(name: str) -> Callable[[int], Any]:
    """Return a training run with rlaxlib.

    Args:
        name: Name of the algorithm.

    Returns:
        Function from a seed to all returns, `[evaluations, episodes]`.
    """
    sys.path.insert(0, str(ROOT / "examples"))
    settings = SETTINGS[name]
    if name == "PPO":
        return _ppo(settings)
    from benchmarks import agents, loops  # noqa: PLC0415 - Not with rejax's gymnax.

    task = loops.make(settings["env"])
    agent = getattr(agents, name.lower())(settings, task)
    return loops.Loop(task, agent, settings).train


def _ppo(settings: Mapping[str, Any]) -> Callable[[int], Any]:
    """Return a training run of PPO."""
    from benchmarks import ppo as runs  # noqa: PLC0415 - Not with rejax's gymnax.

    rollout = settings["num_envs"] * settings["num_steps"]
    ppo = runs.make(
        settings["env"],
        **{name: settings[name] for name in ("learning_rate", "num_envs", "num_steps")},
        **{name: settings[name] for name in ("num_epochs", "num_minibatches")},
        discount=settings["gamma"],
        lambda_=settings["gae_lambda"],
        epsilon=settings["clip_eps"],
        value_epsilon=settings["clip_eps"],
        value_cost=settings["vf_coef"],
        entropy_cost=settings["ent_coef"],
        num_evaluations=EVALUATIONS,
        iterations=settings["eval_freq"] // rollout,
    )
    return lambda seed: ppo.train(jax.random.key(seed))[1].episode_return


def _theirs(name: str) -> Callable[[int], Any]:
    """Return a training run of rejax, which evaluates 128 episodes."""
    import rejax  # noqa: PLC0415 - In its own environment.

    algorithm = getattr(rejax, name).create(**SETTINGS[name])
    return lambda seed: algorithm.train(jax.random.PRNGKey(seed))[1][1]


_TRAIN = {OURS: ours, THEIRS: _theirs}

# --- Main process. ---


def measure(
    name: str, pythons: Mapping[str, str], device: str, turns: Sequence[int]
) -> Results:
    """Run both libraries in turns.

    Args:
        name: Name of the algorithm.
        pythons: Interpreter of each library.
        device: Where to run, `cpu` or `gpu`.
        turns: Seed of each turn, or a negative number, which compiles.

    Returns:
        Times and returns of each library.
    """
    processes = {
        library: _start(python, library, name, device)
        for library, python in pythons.items()
    }
    results = {library: Result([], []) for library in processes}
    try:
        for turn, seed in enumerate(turns):
            for library in list(processes)[:: -1 if turn % 2 else 1]:
                run = _request(processes[library], seed)
                if seed < 0:
                    results[library].compilations.append(run.seconds)
                else:
                    results[library].runs.append(run)
                print(_line(name, library, seed, run), file=sys.stderr, flush=True)
    finally:
        for process in processes.values():
            process.stdin.close()
            process.wait()
    return results


def _start(python: str, library: str, name: str, device: str) -> subprocess.Popen[str]:
    options = f"--library={library}", f"--device={device}"
    return subprocess.Popen(
        [python, "-m", "benchmarks.training", name, *options],
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
    code = process.wait()
    raise RuntimeError(f"A process ended early with code {code}; see its output above.")


def _line(name: str, library: str, seed: int, run: Run) -> str:
    label = "compiled" if seed < 0 else f"seed {seed}"
    returns = " ".join(f"{each:.0f}" for each in run.returns)
    return f"{name:4} {library:8} {label:8} {run.seconds:6.2f} s  {returns}"


def interpreters(folder: pathlib.Path = ENVIRONMENT) -> dict[str, str]:
    """Return the interpreter of each library; rejax has its own environment.

    Args:
        folder: The environment of rejax, created if missing.
    """
    python, installed = folder / "bin" / "python", folder / "installed.txt"
    same = {name: importlib.metadata.version(name) for name in ("jax", "jaxlib")}
    wanted = [f"{name}=={version}" for name, version in {**VERSIONS, **same}.items()]
    if not installed.exists() or installed.read_text().split() != wanted:
        # JAX for a GPU is that of the system, if it has one.
        venv.create(folder, with_pip=True, system_site_packages=True)
        pip = (python, "-m", "pip", "install", "--quiet")
        subprocess.run([*pip, *wanted], stdout=sys.stderr, check=True)
        installed.write_text("\n".join(wanted))
    return {OURS: sys.executable, THEIRS: str(python)}


# --- Report. ---


def report(results: Mapping[str, Results], about: Mapping[str, str]) -> list[str]:
    """Return the lines of a Markdown page.

    Args:
        results: Measurements of each algorithm and library, with the same order of
            seeds.
        about: Machine, versions and date.

    Returns:
        The lines: machine and versions, a table of times, and one of returns.
    """
    return [
        f"# Training runs compared with {THEIRS} {VERSIONS['rejax']}",
        "",
        *(f"- {name}: {value}" for name, value in about.items()),
        "",
        f"Each cell has {OURS} / {THEIRS}: medians over compilations, including "
        f"tracing, and over seeds. A ratio is {OURS} divided by {THEIRS}, the median "
        "and range over the turns. Returns are means over the seeds, with the standard "
        "error, of the evaluations halfway and at the end.",
        "",
        *table(results),
    ]


def table(results: Mapping[str, Results]) -> list[str]:
    """Return a table of the measurements of each algorithm and library."""
    return [
        "| run | steps | seeds | run, s | ratio | compile, s | ratio "
        "| return halfway | final return |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        *(_row(name, each[OURS], each[THEIRS]) for name, each in results.items()),
    ]


def _row(name: str, ours: Result, theirs: Result) -> str:
    pair = ours, theirs
    settings = SETTINGS[name]
    cells = [
        f"{name}, {settings['env'].partition('-')[0]}",
        f"{settings['total_timesteps']:,}",
        f"{len(ours.runs)}",
        *_times([[run.seconds for run in each.runs] for each in pair], ".2f"),
        *_times([each.compilations for each in pair], ".1f"),
        *(
            " / ".join(_spread([run.returns[i] for run in each.runs]) for each in pair)
            for i in (EVALUATIONS // 2, EVALUATIONS)
        ),
    ]
    return f"| {' | '.join(cells)} |"


def _times(seconds: Sequence[Sequence[float]], style: str) -> tuple[str, str]:
    """Return the medians of both libraries, and the ratio with its range."""
    ratios = [one / other for one, other in zip(*seconds, strict=True)]
    return (
        " / ".join(format(statistics.median(each), style) for each in seconds),
        f"{statistics.median(ratios):.2f}, {min(ratios):.2f}-{max(ratios):.2f}",
    )


def _spread(numbers: Sequence[float]) -> str:
    """Return the mean and its standard error, which needs two numbers."""
    error = statistics.stdev(numbers) / math.sqrt(len(numbers))
    return f"{statistics.fmean(numbers):.0f} ± {error:.0f}"


def _about() -> dict[str, str]:
    about = machine.describe()
    del about["rlax"]
    packages = {name: importlib.metadata.version(name) for name in ("flax", "gymnax")}
    return {**about, **packages, f"gymnax of {THEIRS}": VERSIONS["gymnax"]}


if __name__ == "__main__":
    main()
