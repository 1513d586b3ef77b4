"""Compare the regret of eight bandit policies with the theory, over 200 runs each.

A bandit has five arms with Bernoulli rewards. A policy is three pure functions, so that
`jax.lax.scan` plays 10,000 pulls, and `jax.vmap` plays 200 bandits at once. The regret
is the expected reward of the best arm minus that of the arm that was pulled, summed
over pulls. The functions of the library that the policies use:

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

`--problem=switching` rotates the arms every 2500 pulls. Policies that forget recover:

- `rlaxlib.sliding_window_init`: sliding-window UCB,
- `rlaxlib.sliding_window_update`: its statistics,
- `rlaxlib.thompson_gaussian`: Thompson sampling with discounted statistics.

`--problem=linear` draws a context for each arm before each pull:

- `rlaxlib.linear_bandit_init`, `rlaxlib.linucb_update`: a regression on contexts,
- `rlaxlib.linucb_scores`: LinUCB,
- `rlaxlib.linear_thompson_sample`: linear Thompson sampling.

The output has the mean regret of each policy beside the theoretical rates. Its last row
has about 65 for KL-UCB and 45 for Thompson sampling, after about a minute on two cores.

    python bandits.py --problem linear

Packages: tqdm, tyro.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from tqdm import tqdm

import rlaxlib


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings; each is a command-line flag."""

    seed: int = 0  # Seed of the rewards, contexts and policies.
    output: str = "bandits.csv"  # File for the regrets.
    problem: Literal["bernoulli", "switching", "linear"] = "bernoulli"  # The problem.
    runs: int = 200  # Number of bandits for each policy.
    pulls: int = 10_000  # Number of pulls of each bandit.
    arms: int = 5  # Number of arms.
    best_mean: float = 0.7  # Mean reward of the best arm.
    gap: float = 0.1  # Difference of mean rewards between an arm and the next.
    period: int = 2500  # Pulls between switches.
    features: int = 5  # Features of a context.
    noise: float = 0.1  # Standard deviation of the rewards of linear bandits.
    bonus_scale: float = 0.3  # Scale of the bonus of UCB with switching arms.
    temperature: float = 0.05  # Temperature of Boltzmann exploration.
    step_size: float = 0.1  # Step size of the gradient bandit.
    discount: float = 0.999  # Discount of discounted UCB and Thompson sampling.
    window: int = 800  # Window of sliding-window UCB, in pulls.


SMALL = Config(problem="linear", runs=4, pulls=100)  # For tests.


# --- Problems. ---


class Situation(NamedTuple):
    """A bandit before a pull. Policies know all but the means."""

    step: jax.Array  # Number of the pull, from 1.
    contexts: jax.Array  # [A, D]
    means: jax.Array  # [A]: the expected rewards.


class Pull(NamedTuple):
    """The pull of an arm."""

    arm: jax.Array
    context: jax.Array  # [D]: of the arm.
    reward: jax.Array
    probability: jax.Array  # That the arm was pulled with.


def situation(key, step, config) -> Situation:
    """Return the contexts and the expected rewards of all arms."""
    if config.problem == "linear":
        theta = jnp.full(config.features, config.features**-0.5)
        contexts = jax.random.ball(key, config.features, shape=(config.arms,))
        return Situation(step, contexts, contexts @ theta)
    means = jnp.asarray(arm_means(config))
    if config.problem == "switching":
        means = jnp.roll(means, (step - 1) // config.period)
    return Situation(step, jnp.eye(config.arms), means)


def sample_reward(key, mean, config) -> jax.Array:
    """Sample the reward of an arm."""
    if config.problem == "linear":
        return mean + config.noise * jax.random.normal(key)
    return jax.random.bernoulli(key, mean).astype(jnp.float32)


def arm_means(config) -> np.ndarray:
    """Return the expected rewards of arms without contexts, the best first."""
    return config.best_mean - config.gap * np.arange(config.arms, dtype=np.float32)


# --- Policies. ---


class Policy(NamedTuple):
    """A bandit policy: the initial state and two pure functions."""

    init: Any
    probabilities: Callable[[jax.Array, Any, Situation], jax.Array]  # Key, state, ...
    update: Callable[[Any, Pull], Any]


def policies(config: Config) -> dict[str, Policy]:
    """Return the policies for a problem."""
    return {
        "bernoulli": bernoulli_policies,
        "switching": switching_policies,
        "linear": linear_policies,
    }[config.problem](config)


def bernoulli_policies(config) -> dict[str, Policy]:
    """Return eight policies for arms with Bernoulli rewards."""

    def thompson(key, state):
        return rlaxlib.thompson_beta(key, state.counts, state.means)

    return {
        "UCB1": by_scores(config, lambda _, s: rlaxlib.ucb_scores(s.counts, s.means)),
        "UCB1-tuned": by_scores(
            config,
            lambda _, s: rlaxlib.ucb_tuned_scores(s.counts, s.means, s.variances),
        ),
        "KL-UCB": by_scores(
            config, lambda _, s: rlaxlib.kl_ucb_scores(s.counts, s.means)
        ),
        "Thompson": by_scores(config, thompson),
        "Exp3": exp3(config),
        "Tsallis-INF": tsallis_inf(config),
        "gradient": gradient_bandit(config),
        "Boltzmann": boltzmann(config),
    }


def switching_policies(config) -> dict[str, Policy]:
    """Return three policies that forget, and one that does not."""

    def ucb(_, state):
        return rlaxlib.ucb_scores(state.counts, state.means, config.bonus_scale)

    def thompson(key, state):
        return rlaxlib.thompson_gaussian(key, state.counts, state.means, stddev=0.5)

    def update_window(state, pull):
        return rlaxlib.sliding_window_update(state, pull.arm, pull.reward)

    return {
        "UCB": by_scores(config, ucb),
        "discounted UCB": by_scores(config, ucb, config.discount),
        "sliding-window UCB": by_scores(config, ucb)._replace(
            init=rlaxlib.sliding_window_init(config.arms, config.window),
            update=update_window,
        ),
        "discounted Thompson": by_scores(config, thompson, config.discount),
    }


def linear_policies(config) -> dict[str, Policy]:
    """Return two policies for linear bandits."""

    def linucb(_, state, situation):
        width = confidence(situation.step, config)
        scores = rlaxlib.linucb_scores(state, situation.contexts, width)
        return rlaxlib.greedy().probs(scores)

    def thompson(key, state, situation):
        theta = rlaxlib.linear_thompson_sample(key, state, config.noise)
        return rlaxlib.greedy().probs(situation.contexts @ theta)

    def update(state, pull):
        return rlaxlib.linucb_update(state, pull.context, pull.reward)

    init = rlaxlib.linear_bandit_init(config.features)
    return {
        "LinUCB": Policy(init, linucb, update),
        "linear Thompson": Policy(init, thompson, update),
    }


def by_scores(config, scores, discount=1.0) -> Policy:
    """Return the policy that pulls the arm with the highest score.

    Args:
        config: Configuration.
        scores: Function from a key and the statistics of the arms to their scores.
        discount: Discount of the statistics.
    """

    def probabilities(key, state, _):
        return rlaxlib.greedy().probs(scores(key, state))

    def update(state, pull):
        return rlaxlib.bandit_update(state, pull.arm, pull.reward, discount=discount)

    return Policy(rlaxlib.bandit_init(config.arms), probabilities, update)


def boltzmann(config) -> Policy:
    """Return Boltzmann exploration with a constant temperature."""

    def probabilities(_, state, __):
        return rlaxlib.softmax(config.temperature).probs(state.means)

    def update(state, pull):
        return rlaxlib.bandit_update(state, pull.arm, pull.reward)

    return Policy(rlaxlib.bandit_init(config.arms), probabilities, update)


def gradient_bandit(config) -> Policy:
    """Return the gradient bandit."""

    def probabilities(_, state, __):
        return jax.nn.softmax(state.preferences)

    def update(state, pull):
        return rlaxlib.gradient_bandit_update(
            state, pull.arm, pull.reward, config.step_size
        )

    init = rlaxlib.gradient_bandit_init(config.arms)
    return Policy(init, probabilities, update)


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

    def probabilities(_, losses, situation):
        rate = 2 / jnp.sqrt(situation.step)
        return rlaxlib.tsallis_inf_probabilities(losses, rate)

    def update(losses, pull):
        return rlaxlib.tsallis_inf_update(
            losses, pull.arm, 1 - pull.reward, pull.probability
        )

    return Policy(jnp.zeros(config.arms), probabilities, update)


# --- Theory. ---


def rates(t: np.ndarray, config: Config) -> dict[str, np.ndarray]:
    """Return the theoretical regret after `t` pulls, by name."""
    if config.problem == "bernoulli":
        arms = config.arms
        return {
            "C log t (Lai-Robbins)": lai_robbins(arm_means(config)) * np.log(t),
            "4 √(t A) + 1 (Tsallis-INF)": 4 * np.sqrt(t * arms) + 1,
            "2.6 √(t A log A) (Exp3)": 2.6 * np.sqrt(t * arms * np.log(arms)),
        }
    if config.problem == "linear":
        size = config.features
        log_determinant = size * np.log(1 + t / size)
        bound = 2 * confidence(t, config) * np.sqrt(2 * t * log_determinant)
        return {"D √t log t (LinUCB)": bound}
    return {}


def lai_robbins(means) -> float:
    """Return the constant of Lai and Robbins for Bernoulli rewards."""
    p, q = np.delete(means, np.argmax(means)), np.max(means)
    kl = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
    return float(np.sum((q - p) / kl))


def confidence(t, config):
    """Return the width of LinUCB's ellipsoid, of probability 1 - 1/t at pull t.

    It is for weights of norm 1, contexts of norm at most 1 and a regularisation of 1.
    """
    log_determinant = config.features * jnp.log(1 + t / config.features)
    return 1 + config.noise * jnp.sqrt(log_determinant + 2 * jnp.log(t))


# --- Simulation. ---


@functools.partial(jax.jit, static_argnames=("name", "config"))
def play(key, name: str, config: Config) -> jax.Array:
    """Play one bandit by a policy; return the regret after each pull, shape `[T]`."""
    init, probabilities, update = policies(config)[name]

    def one(carry, step):
        state, regret = carry
        keys = jax.random.split(jax.random.fold_in(key, step), 4)
        now = situation(keys[0], step, config)
        probs = probabilities(keys[1], state, now)
        arm = rlaxlib.categorical_sample(keys[2], probs)
        reward = sample_reward(keys[3], now.means[arm], config)
        state = update(state, Pull(arm, now.contexts[arm], reward, probs[arm]))
        regret += jnp.max(now.means) - now.means[arm]
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


def names(config: Config) -> list[str]:
    """Return the names of the columns that `train` returns."""
    return ["pulls", *policies(config), *rates(np.ones(1), config)]


if __name__ == "__main__":
    config = tyro.cli(Config)
    rows, header = train(config), ",".join(names(config))
    np.savetxt(config.output, rows, "%g", ",", header=header, comments="")
