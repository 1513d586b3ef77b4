"""DQN, bootstrapped DQN and a recurrent actor-critic, as bsuite's baselines.

    rlaxlib.bootstrapped_q_learning   the TD errors of K heads; DQN has one,
    rlaxlib.periodic_update           the parameters of the target network,
    rlaxlib.td_lambda                 the TD errors of the actor-critic,
    rlaxlib.policy_gradient_loss      the loss of its actor,
    rlaxlib.epsilon_greedy, rlaxlib.softmax   the policies.

Networks, optimizers, replay and the order of updates are those of
`bsuite/baselines/jax/` in https://github.com/google-deepmind/bsuite, but for two that
cost time: the update of bootstrapped DQN costs as much as forty of DQN, and comes after
every `period` steps; layers of the actor-critic have 64 units where bsuite's have 256.

References:
    Volodymyr Mnih et al., *Playing Atari with Deep Reinforcement Learning*, 2013.
    https://arxiv.org/abs/1312.5602

    Ian Osband et al., *Randomized Prior Functions for Deep Reinforcement Learning*,
    2018. https://arxiv.org/abs/1806.03335
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

import rlaxlib
from bsuite_sweep.environments import Environment

DISCOUNT = 0.99
CAPACITY = 10_000  # Transitions in replay.
TARGET_PERIOD = 4  # Updates between copies to the target network.
SEQUENCE = 32  # Steps in the longest sequence of the actor-critic.
UNITS = 64  # Of each layer of the actor-critic.

Layers = list[tuple[jax.Array, jax.Array]]  # Weights and biases.


class Transition(NamedTuple):
    """A transition, or N of them."""

    s_tm1: jax.Array
    a_tm1: jax.Array
    r_t: jax.Array
    discount_t: jax.Array  # 0 at the end of an episode, else 1.
    s_t: jax.Array


class Agent(NamedTuple):
    """An agent as pure functions.

    Attributes:
        init: From a key to a state.
        act: From a state, a key and an observation to an action and a state.
        update: From a state, a key and a transition to a state.
    """

    init: Callable[[jax.Array], Any]
    act: Callable[[Any, jax.Array, jax.Array], tuple[jax.Array, Any]]
    update: Callable[[Any, jax.Array, Transition], Any]


def empty(env: Environment, num: int) -> Transition:
    """Return room for N transitions."""
    s = env.observe(env.reset(jax.random.key(0)))
    s, zeros = jnp.zeros((num, *s.shape), s.dtype), jnp.zeros(num)
    return Transition(s, jnp.zeros(num, jnp.int32), zeros, zeros, s)


def insert(rows: Transition, index: jax.Array, row: Transition) -> Transition:
    """Return the transitions with one replaced."""
    return jax.tree.map(lambda x, new: x.at[index].set(new), rows, row)


def num_inputs(env: Environment) -> int:
    """Return the size of an observation."""
    return env.num_cells or env.observe(env.reset(jax.random.key(0))).size


def init_mlp(key: jax.Array, sizes: Sequence[int]) -> Layers:
    """Initialise the layers of a network."""
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        (jax.random.truncated_normal(key, -2, 2, (m, n)) / m**0.5, jnp.zeros(n))
        for key, m, n in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def mlp(layers: Layers, s: jax.Array) -> jax.Array:
    """Return the outputs of a network for N observations."""
    (w, b), *others = layers
    # A one-hot vector times the weights is a row of them.
    x = (w[s] if s.ndim == 1 else s @ w) + b
    for w, b in others:
        x = jax.nn.relu(x) @ w + b
    return x


# --- DQN, with K heads and randomized prior functions. ---


class DQNState(NamedTuple):
    """State of DQN."""

    learner: tuple[Any, Any, optax.OptState, jax.Array]  # Online and target networks.
    prior: Any
    replay: Transition
    steps: jax.Array
    head: jax.Array  # The one that acts.


def dqn(
    env: Environment,
    *,
    heads: int = 1,
    hidden: Sequence[int] = (64, 64),
    prior_scale: float = 0.0,
    epsilon: float = 0.05,
    batch_size: int = 32,
    min_steps: int = 100,
    period: int = 1,
) -> Agent:
    """Create DQN, or with several heads bootstrapped DQN."""
    optimizer = optax.adam(1e-3)
    sizes = num_inputs(env), *hidden, env.num_actions

    def q_values(params, prior, s):
        values = jax.vmap(mlp, (0, None))(params, s)
        if prior_scale:
            values += prior_scale * jax.vmap(mlp, (0, None))(prior, s)
        return jnp.moveaxis(values, 0, 1)  # [N, K, A]

    def init(key):
        keys = jax.random.split(key, (3, heads))
        params, target, prior = (
            jax.vmap(lambda k: init_mlp(k, sizes))(k) for k in keys
        )
        zero = jnp.int32(0)
        learner = params, target, optimizer.init(params), zero
        return DQNState(learner, prior, empty(env, CAPACITY), zero, zero)

    def act(state, key, s):
        networks = state.learner[0], state.prior
        networks = jax.tree.map(lambda x: x[state.head][None], networks)
        q = q_values(*networks, s[None])[0, 0]
        return rlaxlib.epsilon_greedy(epsilon).sample(key, q), state

    def update(state, key, transition):
        head_key, learn_key = jax.random.split(key)
        head = jax.random.randint(head_key, (), 0, heads)
        state = state._replace(
            replay=insert(state.replay, state.steps % CAPACITY, transition),
            steps=state.steps + 1,
            head=jnp.where(transition.discount_t == 0, head, state.head),
        )
        learns = (state.steps >= min_steps) & (state.steps % period == 0)
        learner = jax.lax.cond(
            learns, learn, lambda state, _: state.learner, state, learn_key
        )
        return state._replace(learner=learner)

    def learn(state, key):
        params, target, optimizer_state, count = state.learner
        stored = jnp.minimum(state.steps, CAPACITY)
        rows = jax.random.randint(key, (batch_size,), 0, stored)
        batch = jax.tree.map(lambda x: x[rows], state.replay)
        q_t = q_values(target, state.prior, batch.s_t)

        def loss(params):
            td_errors = jax.vmap(rlaxlib.bootstrapped_q_learning)(
                q_values(params, state.prior, batch.s_tm1),
                batch.a_tm1,
                batch.r_t,
                DISCOUNT * batch.discount_t,
                q_t,
                jnp.ones((batch_size, heads), bool),
            )
            return jnp.sum(jnp.mean(td_errors**2, axis=0))

        changes, optimizer_state = optimizer.update(
            jax.grad(loss)(params), optimizer_state
        )
        params, count = optax.apply_updates(params, changes), count + 1
        target = rlaxlib.periodic_update(params, target, count, TARGET_PERIOD)
        return params, target, optimizer_state, count

    return Agent(init, act, update)


def bootstrapped_dqn(env: Environment, period: int) -> Agent:
    """Create bootstrapped DQN with randomized prior functions."""
    return dqn(
        env,
        heads=20,
        hidden=(50, 50),
        prior_scale=5.0,
        epsilon=0.0,
        batch_size=128,
        min_steps=128,
        period=period,
    )


# --- Actor-critic, with an LSTM. ---

Core = tuple[jax.Array, jax.Array]  # The hidden units and the cells of the LSTM.


class ActorCriticState(NamedTuple):
    """State of the actor-critic."""

    learner: tuple[Any, optax.OptState]
    core: Core
    first: Core  # Before the sequence.
    sequence: Transition  # Since the last update.
    length: jax.Array


def lstm(layer: Layers, core: Core, x: jax.Array) -> Core:
    """Return the state of the LSTM after an input."""
    hidden, cells = core
    gates = mlp(layer, jnp.concatenate([x, hidden])[None])[0]
    i, g, f, o = jnp.split(gates, 4)
    cells = jax.nn.sigmoid(f + 1) * cells + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(cells), cells


def unroll(params: Any, core: Core, s: jax.Array) -> tuple[jax.Array, jax.Array, Core]:
    """Return the logits and values of N observations in a row, and the last state."""

    def step(core, x):
        core = lstm(params["core"], core, x)
        return core, core[0]

    # On a CPU, four steps in one take a fifth of the time.
    core, hidden = jax.lax.scan(step, core, mlp(params["torso"], s), unroll=4)
    outputs = mlp(params["heads"], hidden)
    return outputs[:, :-1], outputs[:, -1], core


def actor_critic(env: Environment) -> Agent:
    """Create an actor-critic, with the TD(λ) errors of at most 32 steps."""
    optimizer = optax.adam(3e-3)
    start = jnp.zeros(UNITS), jnp.zeros(UNITS)
    sizes = {
        "torso": (num_inputs(env), UNITS, UNITS),
        "core": (2 * UNITS, 4 * UNITS),
        "heads": (UNITS, env.num_actions + 1),
    }

    def init(key):
        keys = jax.random.split(key, len(sizes))
        pairs = zip(keys, sizes.items(), strict=True)
        params = {name: init_mlp(key, size) for key, (name, size) in pairs}
        learner = params, optimizer.init(params)
        sequence = empty(env, SEQUENCE)
        return ActorCriticState(learner, start, start, sequence, jnp.int32(0))

    def act(state, key, s):
        logits, _, core = unroll(state.learner[0], state.core, s[None])
        action = rlaxlib.softmax().sample(key, logits[0])
        return action, state._replace(core=core)

    def update(state, key, transition):
        done = transition.discount_t == 0
        sequence = insert(state.sequence, state.length, transition)
        state = state._replace(sequence=sequence, length=state.length + 1)
        ends = (state.length == SEQUENCE) | done
        learner = jax.lax.cond(ends, learn, lambda state: state.learner, state)
        core = rlaxlib.tree_select(done, start, state.core)
        first = rlaxlib.tree_select(ends, core, state.first)
        length = jnp.where(ends, 0, state.length)
        return ActorCriticState(learner, core, first, sequence, length)

    def learn(state):
        params, optimizer_state = state.learner
        sequence, mask = state.sequence, jnp.arange(SEQUENCE) < state.length
        w_t = mask * SEQUENCE / state.length  # Means are over the valid steps.
        s = jnp.append(sequence.s_tm1, sequence.s_t[:1], axis=0)
        s = s.at[state.length].set(sequence.s_t[state.length - 1])

        def loss(params):
            logits, v, _ = unroll(params, state.first, s)
            td_errors = rlaxlib.td_lambda(
                v[:-1],
                sequence.r_t,
                DISCOUNT * sequence.discount_t,
                v[1:],
                0.9,
                sample_mask=mask,
            )
            actor_loss = rlaxlib.policy_gradient_loss(
                logits[:-1], sequence.a_tm1, td_errors, w_t
            )
            return actor_loss + jnp.mean(w_t * td_errors**2)

        changes, optimizer_state = optimizer.update(
            jax.grad(loss)(params), optimizer_state
        )
        return optax.apply_updates(params, changes), optimizer_state

    return Agent(init, act, update)
