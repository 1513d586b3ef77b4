"""Learn to catch a falling ball by Q(λ), from whole episodes.

An episode has one reward, at its end. Q-learning moves it back by a single step each
time: what the ninth step has learnt, the eighth can learn next. Q(λ) compares every
step with returns over all horizons, those that reach far weighing λ more each, so that
the reward is felt at once by all that led to it. The agent plays an episode, and takes
one gradient step on all of it:

    rlaxlib.epsilon_greedy   chooses the actions,
    rlaxlib.q_lambda         compares the values of an episode with its λ-returns,
    rlaxlib.l2_loss          turns the errors into a loss to descend.

The returns are those of what was done, explorations included (Peng's Q(λ)). With
`--watkins` they are those of the best actions only: a return ends, with the value of
the best action, where another was taken, as `rlaxlib.batched_index` tells.

Expect +1.00 in the final evaluation, where a random agent has -0.6, after about 10
seconds on two cores, imports and compilation included. Every field of `Config` is a
flag:

    python examples/online_q_lambda.py --seed=1 --lambda_=0.5 --watkins
"""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import optax
from common import catch, curves
from common.flags import flag, run
from flax import linen as nn
from flax.training.train_state import TrainState

import rlaxlib


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything there is to choose."""

    seed: int = flag(0, "Seed of the network, the exploration and the environment.")
    output: str = flag("results/online_q_lambda", "Folder for the learning curve.")
    train_episodes: int = flag(3000, "Episodes to learn from.")
    eval_episodes: int = flag(100, "Episodes of each evaluation, played greedily.")
    eval_interval: int = flag(250, "Training episodes between two evaluations.")
    hidden_units: int = flag(64, "Units of the network's only hidden layer.")
    learning_rate: float = flag(2e-3, "Step size of Adam.")
    epsilon: float = flag(0.1, "Probability of a random action during training.")
    discount: float = flag(0.99, "What a reward is worth one step before it comes.")
    lambda_: float = flag(0.9, "From 0, for one step at a time, to 1, for all at once.")
    watkins: bool = flag(False, "Whether to end returns where an action explored.")


# --- The agent: a network, its optimizer, and two pure functions. ---


def make_agent(key, environment, config) -> TrainState:
    """Initialise the network and its optimizer."""
    num_actions = environment.action_spec().num_values
    network = nn.Sequential(
        [jnp.ravel, nn.Dense(config.hidden_units), nn.relu, nn.Dense(num_actions)]
    )
    observation = environment.observation_spec().generate_value()
    return TrainState.create(
        apply_fn=network.apply,
        params=network.init(key, observation),
        tx=optax.adam(config.learning_rate),
    )


@jax.jit
def act(agent, key, step, observation, epsilon):
    """Choose a random action with probability ε, the one of highest value otherwise."""
    q_values = agent.apply_fn(agent.params, observation)
    key = jax.random.fold_in(key, step)
    return rlaxlib.epsilon_greedy(epsilon).sample(key, q_values)


@functools.partial(jax.jit, static_argnames="config")
def learn(agent, episode, config):
    """Take one gradient step on all steps of an episode."""

    def loss(params):
        # One row more than steps: both ends of every step are in it.
        q = jax.vmap(agent.apply_fn, (None, 0))(params, episode.observation)
        td_errors = rlaxlib.q_lambda(
            q[:-1],
            episode.action,
            episode.reward,
            config.discount * episode.discount,  # 0 at the end of the episode.
            q[1:],
            traces(q[:-1], episode.action, config),
        )
        return jnp.mean(rlaxlib.l2_loss(td_errors))

    return agent.apply_gradients(grads=jax.grad(loss)(agent.params))


def traces(q_tm1, a_tm1, config):
    """Say how much of what follows each step to put in place of the best value."""
    if not config.watkins:
        return config.lambda_
    taken = rlaxlib.batched_index(q_tm1, a_tm1)
    is_best = taken == jnp.max(q_tm1, axis=-1)
    # What follows a step begins with the next action; after the last there is none.
    return config.lambda_ * jnp.append(is_best[1:], False)


# --- The agent meets its environment. ---


def train_episode(agent, key, steps, environment, config) -> tuple[TrainState, float]:
    """Play one episode, then learn from it; return the agent that this made."""
    episode = catch.play(
        environment,
        lambda observation: act(agent, key, next(steps), observation, config.epsilon),
    )
    return learn(agent, episode, config), episode.reward.sum()


def train(config: Config) -> list[catch.Evaluation]:
    """Train an agent, and return its learning curve."""
    init_key, act_key = jax.random.split(jax.random.key(config.seed))
    steps = itertools.count()  # For new randomness at each.
    _, curve = catch.train(
        make_agent(init_key, catch.Catch(), config),
        lambda agent, env: train_episode(agent, act_key, steps, env, config),
        lambda agent, observation: act(agent, act_key, 0, observation, epsilon=0.0),
        config,
    )
    return curve


def main(config):
    curves.report(train(config), "Q(λ) on Catch", config.output)


if __name__ == "__main__":
    run(main, Config)
