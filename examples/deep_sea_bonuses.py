"""Train a Q-learning agent on Deep Sea with an exploration bonus, or bootstrapped DQN.

Deep Sea of gymnax is a hard exploration problem. The agent descends one row per step
through a square grid, and moves left or right; the meaning of the two actions differs
between cells. The reward of 1 is in the lower right corner, and each move to the right
costs a little. One of 2 ** size action sequences reaches the reward.

The bonus of `--method` is for novel state-action pairs. It is added to the reward, and
to the action values when the agent acts:

- `rnd`: prediction errors, divided by the scale of `rlaxlib.reward_scale`,
- `ngu`: nearest neighbours, `rlaxlib.episodic_memory_intrinsic_rewards`. Never Give Up
  clears its memory after each episode. In Deep Sea, no episode visits a cell twice, so
  the memory here is kept.
- `count`: a table of visits,
- `bootstrapped`: no bonus, but each episode follows one of ten heads, which learn from
  different transitions. A fixed random prior is added to the values of each head.
- `none`: ε-greedy exploration alone.

The other functions are common to all:

- `rlaxlib.epsilon_greedy`: the behaviour policy,
- `rlaxlib.bootstrapped_q_learning`: the TD errors, of one head or of several,
- `rlaxlib.l2_loss`: the losses of the TD errors,
- `rlaxlib.periodic_update`: the parameters of the target network.

Expect at least +0.98 in the final evaluation, where the maximum is +0.99, with each
method but `none`, after about 15 seconds on two cores. With `none`, expect about 0,
unless it finds the reward by chance, as with one of five seeds.

    python deep_sea_bonuses.py --method ngu --size 20 --train-episodes 1000

Packages: flax, gymnax, optax, tqdm, tyro.
"""

import dataclasses
import functools
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro
from flax import linen as nn
from gymnax.environments.bsuite.deep_sea import DeepSea
from tqdm import trange

import rlaxlib


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings; each is a command-line flag."""

    seed: int = 0  # Seed of the networks, exploration, replay and environment.
    output: str = "deep_sea_bonuses.csv"  # File for the learning curve.
    method: Literal["rnd", "ngu", "count", "bootstrapped", "none"] = "rnd"  # See above.
    size: int = 10  # Rows and columns of the grid.
    train_episodes: int = 500  # Number of training episodes.
    eval_interval: int = 25  # Training episodes between evaluations.
    epsilon: float = 0.1  # Probability of a random action in training.
    count_scale: float = 0.1  # Scale of the bonus from counts.
    rnd_scale: float = 1.0  # Scale of the bonus of RND.
    ngu_scale: float = 0.01  # Scale of the bonus of NGU.
    num_neighbors: int = 10  # Nearest neighbours of NGU.
    num_heads: int = 10  # Heads of bootstrapped DQN.
    head_probability: float = 0.5  # Probability that a head learns from a step.
    prior_scale: float = 1.0  # Scale of the priors of bootstrapped DQN.
    learning_rate: float = 3e-3  # Learning rate of Adam.
    batch_size: int = 32  # Transitions per batch, one batch per step.
    target_period: int = 5  # Gradient steps between copies to the target network.
    discount: float = 0.99  # Discount factor.


SMALL = Config(
    method="count", size=4, train_episodes=20, eval_interval=10
)  # For tests.


class Transition(NamedTuple):
    """A transition, or a batch of transitions."""

    observation_tm1: jax.Array
    a_tm1: jax.Array
    r_t: jax.Array
    discount_t: jax.Array
    observation_t: jax.Array
    head_mask: jax.Array  # [K]: true for the heads that learn from it.


# --- Agent: network, loss and update. Without `bootstrapped`, there is K = 1 head. ---


class MLP(nn.Module):
    """A hidden layer, and a linear one."""

    outputs: int

    @nn.compact
    def __call__(self, x):
        return nn.Dense(self.outputs)(nn.relu(nn.Dense(64)(x)))


HEAD, FEATURES = MLP(2), MLP(2 * 16)


def action_values(params, prior, observation, config):
    """Return the action values of all heads, [K, A]."""
    apply = jax.vmap(HEAD.apply, (0, None))
    if config.method != "bootstrapped":
        return apply(params, observation)
    return apply(params, observation) + config.prior_scale * apply(prior, observation)


def loss(params, agent, transition, config):
    """Return the loss of one transition, the sum over heads."""
    td_errors = rlaxlib.bootstrapped_q_learning(
        action_values(params, agent.prior, transition.observation_tm1, config),
        transition.a_tm1,
        transition.r_t,
        transition.discount_t,
        action_values(agent.target, agent.prior, transition.observation_t, config),
        transition.head_mask,
    )
    return jnp.sum(rlaxlib.l2_loss(td_errors))


class Agent(NamedTuple):
    """Parameters of all heads, the state of the optimizer, and that of the bonus."""

    params: Any
    target: Any
    prior: Any
    opt_state: Any
    updates: jax.Array
    bonus: Any


def learn(agent, batch, config) -> Agent:
    """Take one gradient step on a batch of transitions."""

    def mean_loss(params):
        losses = jax.vmap(loss, (None, None, 0, None))(params, agent, batch, config)
        return jnp.mean(losses)

    grads, adam = jax.grad(mean_loss)(agent.params), optax.adam(config.learning_rate)
    changes, opt_state = adam.update(grads, agent.opt_state)
    params, updates = optax.apply_updates(agent.params, changes), agent.updates + 1
    target = rlaxlib.periodic_update(
        params, agent.target, updates, config.target_period
    )
    return agent._replace(
        params=params, target=target, opt_state=opt_state, updates=updates
    )


def make_agent(key, config) -> Agent:
    """Initialise the heads, their priors, the optimizer and the bonus."""
    head_key, prior_key, bonus_key = jax.random.split(key, 3)
    x = jnp.zeros(config.size**2)
    heads = config.num_heads if config.method == "bootstrapped" else 1
    init = jax.vmap(HEAD.init, (0, None))
    params = init(jax.random.split(head_key, heads), x)
    prior = init(jax.random.split(prior_key, heads), x)
    opt_state = optax.adam(config.learning_rate).init(params)
    bonus = init_bonus(bonus_key, config)
    return Agent(params, params, prior, opt_state, jnp.int32(0), bonus)


# --- Bonuses: functions of M state-action pairs. ---


class RndBonus(NamedTuple):
    """Random features, a network that predicts them, and the scale of its errors."""

    target: Any
    params: Any
    opt_state: Any
    moments: rlaxlib.RewardScaleState


def init_bonus(key, config):
    """Return the initial state of the bonus."""
    cells, memory = config.size**2, config.size * config.train_episodes
    if config.method == "count":
        return jnp.zeros((cells, 2))
    if config.method == "rnd":
        target, params = (
            FEATURES.init(each, jnp.zeros(cells)) for each in jax.random.split(key)
        )
        opt_state = optax.adam(config.learning_rate).init(params)
        moments = rlaxlib.reward_scale().init(jnp.zeros(()))
        return RndBonus(target, params, opt_state, moments)
    if config.method == "ngu":  # Random projections of the pairs, and a memory.
        projections = jax.random.normal(key, (2, cells, 16))
        memory = jnp.full((memory, 16), jnp.inf).at[: config.num_neighbors].set(0.0)
        state = rlaxlib.IntrinsicRewardState(memory, jnp.int32(0), jnp.float32(0.0))
        return projections, state
    return ()


def bonus(state, observations, actions, config):
    """Return the bonuses of pairs, [M], and the state after visits of them."""
    if config.method == "count":
        cells = jnp.argmax(observations, axis=-1), actions
        bonuses = config.count_scale / jnp.sqrt(state[cells] + 0.01)
        return bonuses, state.at[cells].add(1)
    if config.method == "rnd":
        return rnd_bonus(state, observations, actions, config)
    if config.method == "ngu":
        projections, memory = state
        rewards, memory = rlaxlib.episodic_memory_intrinsic_rewards(
            jax.vmap(jnp.matmul)(observations, projections[actions]),
            config.num_neighbors,
            config.ngu_scale,
            memory,
            max_similarity=2.0,
            max_memory_size=config.size * config.train_episodes,
        )
        return rewards, (projections, memory)
    return jnp.zeros(len(actions)), state


def rnd_bonus(state, observations, actions, config):
    """Return the prediction errors of pairs, and the state after a gradient step."""

    def features(params):
        x = FEATURES.apply(params, observations).reshape(-1, 2, 16)
        return x[jnp.arange(len(actions)), actions]

    def prediction_loss(params):
        errors = jnp.square(features(params) - features(state.target))
        errors = jnp.sum(errors, axis=-1)
        return jnp.mean(errors), errors

    grads, errors = jax.grad(prediction_loss, has_aux=True)(state.params)
    # The stream of bonuses does not end with an episode.
    scale, moments = rlaxlib.reward_scale(epsilon=0.0).update(
        state.moments, errors, jnp.full_like(errors, config.discount)
    )
    adam = optax.adam(config.learning_rate)
    changes, opt_state = adam.update(grads, state.opt_state)
    params = optax.apply_updates(state.params, changes)
    state = RndBonus(state.target, params, opt_state, moments)
    return config.rnd_scale * errors / scale, state


# --- Agent and environment, compiled together. ---


def explore(agent, key, observation, head, config):
    """Sample an ε-greedy action with respect to the values of a head plus bonus."""
    q_values = action_values(agent.params, agent.prior, observation, config)[head]
    both = jnp.stack([observation, observation])
    bonuses, _ = bonus(agent.bonus, both, jnp.arange(2), config)
    return rlaxlib.epsilon_greedy(config.epsilon).sample(key, q_values + bonuses)


def exploit(agent, observation, config):
    """Return the greedy action with respect to the mean of the heads."""
    q_values = action_values(agent.params, agent.prior, observation, config)
    return jnp.argmax(jnp.mean(q_values, axis=0))


def play(key, act, config):
    """Play an episode with `act`, a function from key and observation to action."""
    environment = DeepSea(config.size, jax.random.key(config.seed))

    def step(carry, key):
        observation, state = carry
        action = act(key, observation.ravel())
        next_observation, state, reward, *_, info = environment.step(key, state, action)
        last = info["final_observation"]
        steps = observation.ravel(), action, reward, last.ravel()
        return (next_observation, state), steps

    keys = jax.random.split(key, config.size)
    return jax.lax.scan(step, environment.reset(key), keys)[1]


def train_episode(agent, replay, key, episode, config):
    """Play an episode, and take one gradient step for each of its steps."""
    play_key, head_key, mask_key, sample_key = jax.random.split(key, 4)
    heads = replay.head_mask.shape[1]
    head = jax.random.randint(head_key, (), 0, heads)
    observation_tm1, a_tm1, r_t, observation_t = play(
        play_key, lambda key, x: explore(agent, key, x, head, config), config
    )
    bonuses, state = bonus(agent.bonus, observation_tm1, a_tm1, config)
    probability = config.head_probability if heads > 1 else 1.0
    mask = jax.random.bernoulli(mask_key, probability, (config.size, heads))
    discount_t = jnp.full(config.size, config.discount).at[-1].set(0.0)
    steps = Transition(
        *(observation_tm1, a_tm1, r_t + bonuses, discount_t, observation_t, mask)
    )
    start = episode * config.size
    replay = jax.tree.map(
        lambda old, new: jax.lax.dynamic_update_slice_in_dim(old, new, start, 0),
        *(replay, steps),
    )

    def step(agent, key):
        indices = jax.random.randint(key, (config.batch_size,), 0, start + config.size)
        batch = jax.tree.map(lambda x: x[indices], replay)
        return learn(agent, batch, config), None

    agent, keys = agent._replace(bonus=state), jax.random.split(sample_key, config.size)
    return jax.lax.scan(step, agent, keys)[0], replay


@functools.partial(jax.jit, static_argnames="config")
def improve(agent, replay, key, first, config):
    """Play episodes with updates; return agent, replay and the return without bonus."""

    def one(carry, episode):
        episode_key = jax.random.fold_in(key, episode)
        return train_episode(*carry, episode_key, episode, config), None

    episodes = first + jnp.arange(config.eval_interval)
    (agent, replay), _ = jax.lax.scan(one, (agent, replay), episodes)
    _, _, reward, _ = play(key, lambda _, x: exploit(agent, x, config), config)
    return agent, replay, jnp.sum(reward)


def train(config: Config) -> list[tuple[int, float]]:
    """Train an agent; return the evaluation returns over training episodes."""
    agent_key, key = jax.random.split(jax.random.key(config.seed))
    agent, curve = make_agent(agent_key, config), []
    heads = len(jax.tree.leaves(agent.params)[0])
    shapes = [(config.size**2,), (), (), (), (config.size**2,), (heads,)]
    dtypes = [jnp.float32, jnp.int32, *[jnp.float32] * 3, bool]
    steps = config.size * config.train_episodes
    replay = Transition(
        *(jnp.zeros((steps, *x), t) for x, t in zip(shapes, dtypes, strict=True))
    )
    evaluations = config.train_episodes // config.eval_interval
    for number in (progress := trange(1, evaluations + 1)):
        first = (number - 1) * config.eval_interval
        agent, replay, eval_return = improve(agent, replay, key, first, config)
        curve.append((number * config.eval_interval, float(eval_return)))
        progress.set_postfix_str(f"return {eval_return:+.2f}")
    return curve


if __name__ == "__main__":
    config = tyro.cli(Config)
    rows, header = train(config), "episode,evaluation return"
    np.savetxt(config.output, rows, "%g", ",", header=header, comments="")
