"""MinAtar through gymnax: environments, training in one function, evaluation.

N environments, T steps. An observation is a 10 × 10 image of C binary channels.
"""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnax
import jax
import jax.numpy as jnp

GAMES = ("Breakout", "Asterix", "Freeway", "SpaceInvaders")
EVALUATIONS = 4  # After the initial one.
EPISODES = 32  # Of an evaluation.

Act = Callable[[jax.Array, jax.Array], jax.Array]  # From a key and observations.


class World(NamedTuple):
    """State of N environments."""

    observation: jax.Array  # bool[N, 10, 10, C]
    state: Any


class Transition(NamedTuple):
    """Transitions, [N, ...]."""

    s_tm1: jax.Array
    a_tm1: jax.Array
    r_t: jax.Array
    discount_t: jax.Array  # 0 where an episode ended, else 1.
    truncated_t: jax.Array  # True at the time limit.
    s_t: jax.Array  # Before a reset.


class Game(NamedTuple):
    """A game of MinAtar, whose environments reset by themselves."""

    env: Any
    params: Any

    @property
    def num_actions(self) -> int:
        """Number of actions, A."""
        return self.env.num_actions

    def reset(self, key: jax.Array, num: int) -> World:
        """Return the first state of N environments."""
        keys = jax.random.split(key, num)
        observation, state = jax.vmap(self.env.reset, (0, None))(keys, self.params)
        return World(observation != 0, state)

    def step(
        self, key: jax.Array, world: World, action: jax.Array
    ) -> tuple[World, Transition]:
        """Take a step in each environment."""
        observation, state, r_t, terminated, truncated, info = jax.vmap(
            self.env.step, (0, 0, 0, None)
        )(jax.random.split(key, len(action)), world.state, action, self.params)
        transition = Transition(
            s_tm1=world.observation,
            a_tm1=action,
            r_t=r_t,
            discount_t=1.0 - terminated,
            truncated_t=truncated,
            s_t=info["final_observation"] != 0,
        )
        return World(observation != 0, state), transition

    def collect(
        self, key: jax.Array, world: World, act: Act, steps: int
    ) -> tuple[World, Transition]:
        """Take T steps in each environment; return streams, [T, N, ...]."""

        def step(world, key):
            act_key, step_key = jax.random.split(key)
            return self.step(step_key, world, act(act_key, world.observation))

        return jax.lax.scan(step, world, jax.random.split(key, steps))

    def evaluate(self, key: jax.Array, act: Act) -> jax.Array:
        """Return the average return of one episode in each of N environments."""

        def step(carry):
            key, world, running, total = carry
            key, act_key, step_key = jax.random.split(key, 3)
            action = act(act_key, world.observation)
            world, transition = self.step(step_key, world, action)
            ended = (transition.discount_t == 0) | transition.truncated_t
            return key, world, running & ~ended, total + running * transition.r_t

        key, reset_key = jax.random.split(key)
        world, running = self.reset(reset_key, EPISODES), jnp.ones(EPISODES, bool)
        *_, total = jax.lax.while_loop(
            lambda carry: jnp.any(carry[2]), step, (key, world, running, 0.0 * running)
        )
        return jnp.mean(total)


class Agent(NamedTuple):
    """An agent as pure functions. A round is a rollout and its updates.

    Attributes:
        round_steps: Environment steps of a round.
        init: From a key to a state.
        update: From a state and a key to the state after a round.
        act: From a state, a key and observations to the actions of an evaluation.
    """

    round_steps: int
    init: Callable[[jax.Array], Any]
    update: Callable[[Any, jax.Array], Any]
    act: Callable[[Any, jax.Array, jax.Array], jax.Array]


def make(name: str) -> Game:
    """Create a game by its name."""
    return Game(*gymnax.make(f"{name}-MinAtar"))


def rounds(agent: Agent, steps: int) -> list[int]:
    """Return the number of rounds before each evaluation."""
    total = steps // agent.round_steps
    return [total * each // EVALUATIONS for each in range(EVALUATIONS + 1)]


def train(game: Game, agent: Agent, key: jax.Array, steps: int) -> jax.Array:
    """Train an agent; return its average returns, [EVALUATIONS + 1]."""
    init_key, learn_key, evaluate_key = jax.random.split(key, 3)

    def learn_and_evaluate(carry, last):
        count, state = jax.lax.while_loop(
            lambda carry: carry[0] < last,
            lambda carry: (
                carry[0] + 1,
                agent.update(carry[1], jax.random.fold_in(learn_key, carry[0])),
            ),
            carry,
        )
        key = jax.random.fold_in(evaluate_key, last)
        score = game.evaluate(key, lambda key, s: agent.act(state, key, s))
        return (count, state), score

    carry = jnp.int32(0), agent.init(init_key)
    return jax.lax.scan(learn_and_evaluate, carry, jnp.array(rounds(agent, steps)))[1]


def patches(x: jax.Array) -> jax.Array:
    """Return the 3 × 3 patches of images, [..., H, W, C], as [..., H - 2, W - 2, 9 C].

    A dense layer on patches is a convolution. On a CPU, and mapped over seeds, it is
    several times faster than one.
    """
    height, width = x.shape[-3] - 2, x.shape[-2] - 2
    corners = itertools.product(range(3), repeat=2)
    parts = [x[..., i : i + height, j : j + width, :] for i, j in corners]
    return jnp.concatenate(parts, axis=-1).astype(jnp.float32)
