"""Compare the regret of eight bandit policies with the theory, over 200 runs each.

A bandit has five arms with Bernoulli rewards. A policy is an initial state and two pure
functions, so that `jax.lax.scan` plays 10,000 pulls, and `jax.vmap` plays 200 bandits
at once. The regret is the expected reward of the best arm minus that of the arm that
was pulled, summed over pulls. The functions of the library that the policies use:

- `rlaxlib.bandit_init`, `rlaxlib.bandit_update`: counts, means and variances,
- `rlaxlib.ucb_scores`: UCB1,
- `rlaxlib.ucb_tuned_scores`: UCB1-tuned,
- `rlaxlib.kl_ucb_scores`: KL-UCB,
- `rlaxlib.thompson_beta`: Thompson sampling,
- `rlaxlib.exp3_probabilities`, `rlaxlib.exp3_update`: Exp3,
- `rlaxlib.tsallis_inf_probabilities`: Tsallis-INF,
- `rlaxlib.tsallis_inf_update`: its loss estimates,
- `rlaxlib.gradient_bandit_init`: the gradient bandit,
- `rlaxlib.gradient_bandit_update`: its update,
- `rlaxlib.softmax`: Boltzmann exploration,
- `rlaxlib.greedy`: the arm with the highest score,
- `rlaxlib.categorical_sample`: the arm that is pulled.

No policy that works for all bandits has less regret in the long run than C log t, with
the constant C of Lai and Robbins. KL-UCB and Thompson sampling reach it. The regret of
Exp3 and Tsallis-INF is of order √t even if an adversary chooses the rewards. With a
constant temperature, the regret of Boltzmann exploration grows linearly.

The output has the mean regret of each policy beside the theoretical rates. Its last row
has about 65 for KL-UCB and 45 for Thompson sampling, after about a minute on two cores.

    python bandits.py --arms 10 --gap 0.05

Packages: tqdm, tyro.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from tqdm import tqdm

import rlaxlib


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings; each is a command-line flag."""

    seed: int = 0  # Seed of the rewards and policies.
    output: str = "bandits.csv"  # File for the regrets.
    runs: int = 200  # Number of bandits for each policy.
    pulls: int = 10_000  # Number of pulls of each bandit.
    arms: int = 5  # Number of arms.
    best_mean: float = 0.7  # Mean reward of the best arm.
    gap: float = 0.1  # Difference of mean rewards between an arm and the next.
    temperature: float = 0.05  # Temperature of Boltzmann exploration.
    step_size: float = 0.1  # Step size of the gradient bandit.


SMALL = Config(runs=4, pulls=100)  # For tests.


class Pull(NamedTuple):
    """The pull of an arm."""

    arm: jax.Array
    reward: jax.Array
    probability: jax.Array  # That the arm was pulled with.


# --- Policies. ---


class Policy(NamedTuple):
    """A bandit policy: the initial state and two pure functions."""

    init: Any
    probabilities: Callable[[jax.Array, Any, jax.Array], jax.Array]  # Key, state, step.
    update: Callable[[Any, Pull], Any]


def policies(config: Config) -> dict[str, Policy]:
    """Return all policies."""

    def thompson(key, state):
        return rlaxlib.thompson_beta(key, state.counts, state.means)

    def tuned(_, state):
        return rlaxlib.ucb_tuned_scores(state.counts, state.means, state.variances)

    return {
        "UCB1": by_scores(config, lambda _, s: rlaxlib.ucb_scores(s.counts, s.means)),
        "UCB1-tuned": by_scores(config, tuned),
        "KL-UCB": by_scores(
            config, lambda _, s: rlaxlib.kl_ucb_scores(s.counts, s.means)
        ),
        "Thompson": by_scores(config, thompson),
        "Exp3": exp3(config),
        "Tsallis-INF": tsallis_inf(config),
        "gradient": gradient_bandit(config),
        "Boltzmann": boltzmann(config),
    }


def update_means(state, pull):
    """Update the statistics of the arms."""
    return rlaxlib.bandit_update(state, pull.arm, pull.reward)


def by_scores(config, scores) -> Policy:
    """Return the policy that pulls the arm with the highest score.

    `scores` is a function from a key and the statistics of the arms.
    """

    def probabilities(key, state, _):
        return rlaxlib.greedy().probs(scores(key, state))

    return Policy(rlaxlib.bandit_init(config.arms), probabilities, update_means)


def boltzmann(config) -> Policy:
    """Return Boltzmann exploration with a constant temperature."""

    def probabilities(_, state, __):
        return rlaxlib.softmax(config.temperature).probs(state.means)

    return Policy(rlaxlib.bandit_init(config.arms), probabilities, update_means)


def gradient_bandit(config) -> Policy:
    """Return the gradient bandit."""

    def probabilities(_, state, __):
        return jax.nn.softmax(state.preferences)

    def update(state, pull):
        return rlaxlib.gradient_bandit_update(
            state, pull.arm, pull.reward, config.step_size
        )

    return Policy(rlaxlib.gradient_bandit_init(config.arms), probabilities, update)


def exp3(config) -> Policy:
    """Return Exp3, with the exploration of its regret bound."""
    arms = config.arms
    share = min(1.0, (arms * np.log(arms) / ((np.e - 1) * config.pulls)) ** 0.5)

    def probabilities(_, log_weights, __):
        return rlaxlib.exp3_probabilities(log_weights, share)

    def update(log_weights, pull):
        return rlaxlib.exp3_update(
            log_weights, pull.arm, pull.reward, pull.probability, share / arms
        )

    return Policy(jnp.zeros(arms), probabilities, update)


def tsallis_inf(config) -> Policy:
    """Return Tsallis-INF, with the learning rate of its regret bound."""

    def probabilities(_, losses, step):
        return rlaxlib.tsallis_inf_probabilities(losses, 2 / jnp.sqrt(step))

    def update(losses, pull):
        return rlaxlib.tsallis_inf_update(
            losses, pull.arm, 1 - pull.reward, pull.probability
        )

    return Policy(jnp.zeros(config.arms), probabilities, update)


# --- Theory. ---


def arm_means(config) -> np.ndarray:
    """Return the expected rewards of the arms, the best first."""
    return config.best_mean - config.gap * np.arange(config.arms, dtype=np.float32)


def rates(t: np.ndarray, config: Config) -> dict[str, np.ndarray]:
    """Return the theoretical regret after `t` pulls, by name."""
    arms = config.arms
    return {
        "C log t (Lai-Robbins)": lai_robbins(arm_means(config)) * np.log(t),
        "4 √(t A) + 1 (Tsallis-INF)": 4 * np.sqrt(t * arms) + 1,
        "2.6 √(t A log A) (Exp3)": 2.6 * np.sqrt(t * arms * np.log(arms)),
    }


def lai_robbins(means) -> float:
    """Return the constant of Lai and Robbins for Bernoulli rewards."""
    p, q = np.delete(means, np.argmax(means)), np.max(means)
    kl = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
    return float(np.sum((q - p) / kl))


# --- Simulation. ---


@functools.partial(jax.jit, static_argnames=("name", "config"))
def play(key, name: str, config: Config) -> jax.Array:
    """Play one bandit by a policy; return the regret after each pull, shape `[T]`."""
    init, probabilities, update = policies(config)[name]
    means = jnp.asarray(arm_means(config))

    def one(carry, step):
        state, regret = carry
        keys = jax.random.split(jax.random.fold_in(key, step), 3)
        probs = probabilities(keys[0], state, step)
        arm = rlaxlib.categorical_sample(keys[1], probs)
        reward = jax.random.bernoulli(keys[2], means[arm]).astype(jnp.float32)
        state = update(state, Pull(arm, reward, probs[arm]))
        regret += jnp.max(means) - means[arm]
        return (state, regret), regret

    _, regrets = jax.lax.scan(one, (init, 0.0), jnp.arange(1, config.pulls + 1))
    return regrets


def train(config: Config) -> list[tuple[float, ...]]:
    """Play all bandits by all policies; return pulls, mean regrets and rates."""
    pulls = np.unique(np.geomspace(1, config.pulls, 50).astype(int))
    keys = jax.random.split(jax.random.key(config.seed), config.runs)
    columns = [pulls]
    for name in tqdm(policies(config), unit="policy"):
        regrets = jax.vmap(play, (0, None, None))(keys, name, config)[:, pulls - 1]
        columns.append(np.mean(regrets, axis=0))
    columns += rates(pulls, config).values()
    return [tuple(map(float, row)) for row in zip(*columns, strict=True)]


if __name__ == "__main__":
    config = tyro.cli(Config)
    rows, names = train(config), [*policies(config), *rates(np.ones(1), config)]
    header = ",".join(["pulls", *names])
    np.savetxt(config.output, rows, "%g", ",", header=header, comments="")
