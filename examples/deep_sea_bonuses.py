"""Compare exploration bonuses and bootstrapped DQN on Deep Sea, side by side.

Deep Sea of gymnax is a hard exploration problem. The agent descends one row per step
through a square grid, and moves left or right; the meaning of the two actions differs
between cells. The reward of 1 is in the lower right corner, and each move to the right
costs a little. One of 2 ** size action sequences reaches the reward.

All agents are Q-learning with replay. They differ in their bonus for novel state-action
pairs, which is added to the reward, and to the action values when the agent acts:

    ε-greedy       no bonus,
    count          rlaxlib.count_bonus, from a table of visits,
    RND            rlaxlib.rnd_loss and rlaxlib.rnd_reward, from prediction errors,
    NGU            rlaxlib.episodic_memory_intrinsic_rewards, from nearest neighbours,
    bootstrapped   no bonus, but rlaxlib.bootstrap_mask: each episode follows one of
                   several heads, which learn from different transitions. Each head adds
                   a fixed random prior to its values.

The other functions are common to all:

- `rlaxlib.epsilon_greedy`: the behaviour policy,
- `rlaxlib.bootstrapped_q_learning`: the TD errors, of one head or of several,
- `rlaxlib.l2_loss`: the losses of the TD errors,
- `rlaxlib.periodic_update`: the parameters of the target network.

Never Give Up clears its memory after each episode. In Deep Sea, no episode visits a
cell twice, so the memory here is kept.

Expect +0.99 in the final evaluation, the maximum, with each bonus and with several
heads. With ε-greedy exploration expect about 0, unless it finds the reward by chance,
as with one of five seeds. All of it takes about a minute on two cores, imports and
compilation included.

    python examples/deep_sea_bonuses.py --seed=1 --size=8
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from common import catch, curves
from common.flags import flag, run
from common.networks import MLP
from flax import linen as nn
from gymnax.environments.bsuite.deep_sea import DeepSea
from tqdm import tqdm

import rlaxlib


@dataclasses.dataclass(frozen=True)
class Config:
    """Configuration; each field is a command-line flag."""

    seed: int = flag(0, "Seed of the networks, exploration, replay and environment.")
    output: str = flag("results/deep_sea_bonuses", "Folder for the learning curves.")
    size: int = flag(10, "Rows and columns of the grid.")
    train_episodes: int = flag(500, "Number of training episodes of each agent.")
    eval_interval: int = flag(25, "Training episodes between evaluations.")
    epsilon: float = flag(0.1, "Probability of a random action during training.")
    count_scale: float = flag(0.1, "Scale of the bonus from counts.")
    rnd_scale: float = flag(1.0, "Scale of the bonus of RND.")
    ngu_scale: float = flag(0.01, "Scale of the bonus of NGU.")
    num_heads: int = flag(10, "Heads of bootstrapped DQN.")
    head_probability: float = flag(0.5, "Probability that a head learns from a step.")
    prior_scale: float = flag(1.0, "Scale of the priors of bootstrapped DQN.")
    hidden_units: int = flag(64, "Units of the hidden layers.")
    learning_rate: float = flag(3e-3, "Learning rate of Adam.")
    batch_size: int = flag(32, "Transitions per batch, one batch per step.")
    target_period: int = flag(5, "Gradient steps between target network updates.")
    discount: float = flag(0.99, "Discount factor.")


# --- Bonuses: functions of state-action pairs. ---


class Bonus(NamedTuple):
    """A bonus: the initial state and two pure functions."""

    init: Any
    rewards: Callable[..., jax.Array]  # State, observations [M], actions [M] to [M].
    update: Callable[..., Any]  # State, observations, actions to the next state.


def no_bonus() -> Bonus:
    """Return a bonus of 0."""

    def rewards(_, __, actions):
        return jnp.zeros(len(actions))

    return Bonus((), rewards, lambda state, _, __: state)


def count_bonus(config) -> Bonus:
    """Return a bonus for pairs that have been visited seldom."""

    def rewards(counts, observations, actions):
        visits = counts[jnp.argmax(observations, axis=-1), actions]
        return rlaxlib.count_bonus(visits, config.count_scale)

    def update(counts, observations, actions):
        return counts.at[jnp.argmax(observations, axis=-1), actions].add(1)

    return Bonus(jnp.zeros((config.size**2, 2)), rewards, update)


def rnd_bonus(key, config) -> Bonus:
    """Return a bonus for pairs whose random features are predicted badly."""
    network = nn.Sequential([MLP((config.hidden_units,)), nn.Dense(2 * 16)])
    keys, tx = jax.random.split(key), optax.adam(config.learning_rate)
    target, predictor = (network.init(k, jnp.zeros(config.size**2)) for k in keys)

    def features(params, observations, actions):
        x = network.apply(params, observations).reshape(-1, 2, 16)
        return x[jnp.arange(len(actions)), actions]

    def rewards(state, observations, actions):
        params, _, moments = state
        r_t, _ = rlaxlib.rnd_reward(
            moments,
            features(params, observations, actions),
            features(target, observations, actions),
        )
        return config.rnd_scale * r_t

    def update(state, observations, actions):
        params, opt_state, moments = state
        targets = features(target, observations, actions)

        def loss(params):
            predictions = features(params, observations, actions)
            return jnp.mean(jax.vmap(rlaxlib.rnd_loss)(predictions, targets))

        predictions = features(params, observations, actions)
        _, moments = rlaxlib.rnd_reward(moments, predictions, targets)
        updates, opt_state = tx.update(jax.grad(loss)(params), opt_state)
        return optax.apply_updates(params, updates), opt_state, moments

    # Not `jnp.asarray`: a weak type would compile the second update anew.
    moments = jax.tree.map(np.asarray, rlaxlib.RndState())
    return Bonus((predictor, tx.init(predictor), moments), rewards, update)


def ngu_bonus(key, config) -> Bonus:
    """Return a bonus for pairs whose embeddings are far from those visited."""
    projections = jax.random.normal(key, (2, config.size**2, 16))
    num_neighbors, size = 10, config.size * config.train_episodes
    memory = jnp.full((size, 16), jnp.inf).at[:num_neighbors].set(0.0)

    def judge(state, observations, actions):
        embeddings = jax.vmap(jnp.matmul)(observations, projections[actions])
        return rlaxlib.episodic_memory_intrinsic_rewards(
            embeddings,
            num_neighbors,
            config.ngu_scale,
            state,
            max_similarity=2.0,
            max_memory_size=size,
        )

    init = jax.tree.map(np.asarray, rlaxlib.IntrinsicRewardState(memory))
    return Bonus(init, lambda *args: judge(*args)[0], lambda *args: judge(*args)[1])


# --- Agent: K heads of action values, and pure functions. ---


class Agent(NamedTuple):
    """The state of an agent, a pytree."""

    params: Any
    target_params: Any
    prior_params: Any
    opt_state: Any
    num_updates: jax.Array
    bonus: Any


class Transition(NamedTuple):
    """A transition, or a batch of transitions."""

    observation_tm1: jax.Array
    a_tm1: jax.Array
    r_t: jax.Array
    discount_t: jax.Array
    observation_t: jax.Array
    head_mask: jax.Array  # [K]: true for the heads that learn from it.


class Method(NamedTuple):
    """What the agents differ in."""

    bonus: Bonus
    num_heads: int = 1  # K
    head_probability: float = 1.0
    prior_scale: float = 0.0


def methods(config: Config) -> dict[str, Method]:
    """Return all methods by name."""
    rnd_key, ngu_key = jax.random.split(jax.random.key(config.seed))
    return {
        "ε-greedy": Method(no_bonus()),
        "count": Method(count_bonus(config)),
        "RND": Method(rnd_bonus(rnd_key, config)),
        "NGU": Method(ngu_bonus(ngu_key, config)),
        "bootstrapped": Method(
            no_bonus(), config.num_heads, config.head_probability, config.prior_scale
        ),
    }


def make_network(config) -> nn.Module:
    """Return the network of a head."""
    return nn.Sequential([MLP((config.hidden_units,)), nn.Dense(2)])


def make_agent(key, method, config) -> Agent:
    """Initialise the heads, their priors and the optimizer."""
    keys = jax.random.split(key, (2, method.num_heads))
    init = jax.vmap(make_network(config).init, (0, None))
    params, prior_params = (init(k, jnp.zeros(config.size**2)) for k in keys)
    opt_state = optax.adam(config.learning_rate).init(params)
    zero = jnp.zeros((), jnp.int32)
    return Agent(params, params, prior_params, opt_state, zero, method.bonus.init)


def action_values(agent, params, observation, method, config):
    """Return the action values of all heads, shape `[K, A]`."""
    apply = jax.vmap(make_network(config).apply, (0, None))
    prior = jax.lax.stop_gradient(apply(agent.prior_params, observation))
    return apply(params, observation) + method.prior_scale * prior


def exploit(agent, observation, method, config):
    """Return the greedy action with respect to the mean of the heads."""
    q_values = action_values(agent, agent.params, observation, method, config)
    return jnp.argmax(jnp.mean(q_values, axis=0))


def explore(agent, key, observation, head, method, config):
    """Sample an ε-greedy action with respect to the values of a head plus bonus."""
    q_values = action_values(agent, agent.params, observation, method, config)[head]
    both = jnp.stack([observation, observation])
    bonus = method.bonus.rewards(agent.bonus, both, jnp.arange(2))
    return rlaxlib.epsilon_greedy(config.epsilon).sample(key, q_values + bonus)


def learn(agent, batch, method, config) -> Agent:
    """Take one gradient step on a batch of transitions."""

    def loss(params, transition):
        td_errors = rlaxlib.bootstrapped_q_learning(
            action_values(agent, params, transition.observation_tm1, method, config),
            transition.a_tm1,
            transition.r_t,
            transition.discount_t,
            action_values(
                agent, agent.target_params, transition.observation_t, method, config
            ),
            transition.head_mask,
        )
        return jnp.sum(rlaxlib.l2_loss(td_errors))

    def mean_loss(params):
        return jnp.mean(jax.vmap(loss, (None, 0))(params, batch))

    grads, tx = jax.grad(mean_loss)(agent.params), optax.adam(config.learning_rate)
    updates, opt_state = tx.update(grads, agent.opt_state)
    params = optax.apply_updates(agent.params, updates)
    num_updates = agent.num_updates + 1
    return agent._replace(
        params=params,
        target_params=rlaxlib.periodic_update(
            params, agent.target_params, num_updates, config.target_period
        ),
        opt_state=opt_state,
        num_updates=num_updates,
    )


# --- Training, compiled with the environment. ---


def make_environment(config) -> DeepSea:
    """Return the environment, whose actions depend on the seed."""
    return DeepSea(config.size, jax.random.key(config.seed))


def play(key, act, config):
    """Play an episode with `act`, a function from key and observation to action.

    Returns:
        Observations, actions, rewards and next observations, each `[T, ...]`.
    """
    environment = make_environment(config)

    def one(carry, key):
        observation, state = carry
        action = act(key, observation.ravel())
        next_observation, state, reward, _, _, info = environment.step(
            key, state, action
        )
        last = info["final_observation"]
        steps = observation.ravel(), action, reward, last.ravel()
        return (next_observation, state), steps

    keys = jax.random.split(key, config.size)
    _, steps = jax.lax.scan(one, environment.reset(key), keys)
    return steps


def train_episode(agent, replay, key, episode, method, config):
    """Play an episode and update; return the agent, the replay and the return."""
    play_key, head_key, mask_key, sample_key = jax.random.split(key, 4)
    head = jax.random.randint(head_key, (), 0, method.num_heads)
    observation_tm1, a_tm1, r_t, observation_t = play(
        play_key,
        lambda key, x: explore(agent, key, x, head, method, config),
        config,
    )
    bonus = method.bonus.rewards(agent.bonus, observation_tm1, a_tm1)
    mask = jax.vmap(rlaxlib.bootstrap_mask, (0, None, None))(
        jax.random.split(mask_key, config.size),
        method.num_heads,
        method.head_probability,
    )
    discount_t = jnp.full(config.size, config.discount).at[-1].set(0.0)
    steps = Transition(
        observation_tm1, a_tm1, r_t + bonus, discount_t, observation_t, mask
    )
    start = episode * config.size
    replay = jax.tree.map(
        lambda old, new: jax.lax.dynamic_update_slice_in_dim(old, new, start, 0),
        replay,
        steps,
    )
    agent = agent._replace(
        bonus=method.bonus.update(agent.bonus, observation_tm1, a_tm1)
    )

    def one(agent, key):
        indices = jax.random.randint(key, (config.batch_size,), 0, start + config.size)
        batch = jax.tree.map(lambda x: x[indices], replay)
        return learn(agent, batch, method, config), None

    agent, _ = jax.lax.scan(one, agent, jax.random.split(sample_key, config.size))
    return agent, replay, jnp.sum(r_t)


def train_agent(method: Method, config: Config) -> list[catch.Evaluation]:
    """Train an agent and return its learning curve."""
    agent_key, train_key = jax.random.split(jax.random.key(config.seed))
    agent = make_agent(agent_key, method, config)
    cells, steps = config.size**2, config.size * config.train_episodes
    replay = Transition(
        observation_tm1=jnp.zeros((steps, cells)),
        a_tm1=jnp.zeros(steps, jnp.int32),
        r_t=jnp.zeros(steps),
        discount_t=jnp.zeros(steps),
        observation_t=jnp.zeros((steps, cells)),
        head_mask=jnp.zeros((steps, method.num_heads), bool),
    )

    @jax.jit
    def train_episodes(carry, episodes):
        def one(carry, episode):
            key = jax.random.fold_in(train_key, episode)
            agent, replay, episode_return = train_episode(
                *carry, key, episode, method, config
            )
            return (agent, replay), episode_return

        (agent, replay), returns = jax.lax.scan(one, carry, episodes)
        rewards = play(
            train_key, lambda _, x: exploit(agent, x, method, config), config
        )[2]
        return (agent, replay), jnp.mean(returns), jnp.sum(rewards)

    carry, curve = (agent, replay), []
    for start in range(0, config.train_episodes, config.eval_interval):
        stop = min(start + config.eval_interval, config.train_episodes)
        carry, train_return, eval_return = train_episodes(
            carry, jnp.arange(start, stop)
        )
        curve.append(catch.Evaluation(stop, float(train_return), float(eval_return)))
    return curve


def train(config: Config) -> dict[str, list[catch.Evaluation]]:
    """Train all agents; return their learning curves."""
    named = methods(config)
    with tqdm(named, unit="agent") as progress:
        return {name: train_agent(named[name], config) for name in progress}


def main(config):
    curves.report(train(config), "Exploration bonuses on Deep Sea", config.output)


if __name__ == "__main__":
    run(main, Config)
