"""The zoo's curricula: locks, most of which cannot be opened.

A level is a lock: a number of actions in an order of its own. A wrong action ends the
episode. PLR and SFL have 800 locks, of which 8 can be opened; ACCEL has locks of 1 to
1200 actions, of which an episode has 12, and all begin with the same ones.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from recipes import curricula as recipes
from recipes.policy_gradient import a2c

import rlaxlib
from zoo.networks import forward, mlp
from zoo.tasks import Task
from zoo.training import Entry, Run, State, begin, descend, unroll

NUM, STEPS = 16, 24  # Streams of an update.
UPDATES = 500
OPTIMIZER = optax.adam(1e-2)
EVERY = 50  # Updates from one set of levels of SFL to the next.
A = 3


class Locks(NamedTuple):
    """A space of levels, which are numbers from 0."""

    about: str
    levels: int  # Number of levels.
    steps: int  # Longest episode.
    tested: jax.Array  # Levels that can be opened.
    length: Callable[[jax.Array], jax.Array]  # Of a level.
    code: Callable[[jax.Array, jax.Array], jax.Array]  # The right action at a place.
    observe: Callable[[jax.Array, jax.Array], jax.Array]  # Of a level and a place.
    random: float


CODE = jnp.array([2, 0, 1, 1, 0, 2, 0, 2, 1, 0, 1, 2])
FIXED = Locks(
    about="800 locks of 3 actions, of which 8 can be opened",
    levels=800,
    steps=3,
    tested=jnp.arange(0, 800, 100),
    length=lambda level: jnp.where(level % 100 == 0, 3, 4),
    code=lambda level, place: (
        (level // 100 + level // 300 + place * (level // 200)) % A
    ),
    observe=lambda level, place: jax.nn.one_hot(3 * level + place, 2400),
    random=0.04,
)
GROWING = Locks(
    about="Locks of 1 to 12 actions; 99 of 100 random levels have more",
    levels=1200,
    steps=12,
    tested=jnp.arange(12),
    length=lambda level: level + 1,
    code=lambda level, place: CODE[place],
    observe=lambda level, place: jnp.append(
        jax.nn.one_hot(place, 12), jax.nn.one_hot(jnp.minimum(level, 12), 13)
    ),
    random=0.04,
)


class Lock(NamedTuple):
    """State of an environment: it keeps its level from episode to episode."""

    level: jax.Array
    place: jax.Array


def task(locks, level):
    """Return the environment of one level."""

    def step(_, state, a):
        right = a == locks.code(level, state.place)
        place = state.place + 1
        opened = right & (place == locks.length(level))
        over = ~right | opened | (place == locks.steps)
        return state._replace(place=place), jnp.where(opened, 1.0, 0.0), over

    return Task(
        about=locks.about,
        reset=lambda _: Lock(level, jnp.array(0)),
        observe=lambda state: locks.observe(*state),
        step=step,
        limit=locks.steps + 1,
        actions=A,
        random=locks.random,
        best=1.0,
    )


def policy_and_value(params, s):
    x = forward(params, s)
    return x[..., :-1], x[..., -1]


class Stream(NamedTuple):
    """Streams of one level each, [B, T], with values."""

    s_tm1: jax.Array
    a_tm1: jax.Array
    r_t: jax.Array
    discount_t: jax.Array
    s_t: jax.Array
    truncated_t: jax.Array
    sample_mask: Any
    v_tm1: jax.Array
    v_t: jax.Array

    @property
    def is_success(self):
        """Whether a step opened the lock."""
        return self.r_t > 0


class Trained(NamedTuple):
    """State of a training."""

    learner: State
    buffer: recipes.Levels


def play(params, key, locks, levels, fault):
    """Return a stream of each level."""

    def one(key, level):
        def act(key, s):
            return rlaxlib.softmax().sample(key, policy_and_value(params, s)[0])

        here = task(locks, level)
        first = jax.tree.map(lambda x: x[None], here.reset(key))
        carry = first, jnp.zeros(1, int)
        batch = unroll(here, act, key, carry, STEPS, fault)[1]
        return jax.tree.map(lambda x: x[0], batch)

    batch = jax.vmap(one)(jax.random.split(key, len(levels)), levels)
    v_tm1, v_t = (policy_and_value(params, s)[1] for s in (batch.s_tm1, batch.s_t))
    return Stream(*batch, v_tm1, v_t)


def learn(learner, batch):
    return descend(
        learner, lambda p: a2c(p, policy_and_value, batch, 1.0, 0.05), OPTIMIZER
    )


def plr(locks, state, key, fault):
    """Train on levels that PLR samples."""
    choose_key, play_key = jax.random.split(key)
    learner, buffer = state
    options = {"staleness": 0.1, "temperature": 1.0}
    indices, buffer = recipes.plr_replay(choose_key, buffer, NUM, **options)
    levels, highest = buffer.levels
    batch = play(learner.params, play_key, locks, levels[indices], fault)
    highest = highest.at[indices].max(jnp.max(batch.r_t, axis=1))
    buffer = buffer._replace(levels=(levels, highest))
    scores = recipes.plr_scores(batch, highest[indices])
    buffer = buffer._replace(scores=buffer.scores.at[indices].set(scores))
    return Trained(learn(learner, batch), buffer)


def accel(locks, state, key, fault, has_edits=True):
    """Train on levels that PLR samples, edit them, and insert the edited levels.

    Without the edits, insert random levels.
    """
    choose_key, play_key, edit_key, child_key = jax.random.split(key, 4)
    learner, buffer = state
    indices, buffer = recipes.plr_replay(choose_key, buffer, NUM)
    levels = buffer.levels[indices]
    batch = play(learner.params, play_key, locks, levels, fault)
    scores = buffer.scores.at[indices].set(recipes.accel_scores(batch))
    learner = learn(learner, batch)
    if has_edits:
        change = jax.random.randint(edit_key, (NUM,), -2, 3)
        levels = jnp.clip(levels + change, 0, locks.levels - 1)
    else:
        levels = jax.random.randint(edit_key, (NUM,), 0, locks.levels)
    batch = play(learner.params, child_key, locks, levels, fault)

    def insert(buffer, each):
        return recipes.plr_insert(buffer, *each), None

    children = levels, recipes.accel_scores(batch)
    buffer = buffer._replace(scores=scores)
    return Trained(learner, jax.lax.scan(insert, buffer, children)[0])


def sfl(locks, state, key, fault, has_scores=True):
    """Train on levels of high learnability and on random ones, half each."""
    learner, buffer = state
    choose_key, new_key, play_key = jax.random.split(key, 3)

    def renewed(buffer):
        if not has_scores:
            new = jax.random.randint(new_key, (NUM // 2,), 0, locks.levels)
            return buffer._replace(levels=new)
        batch = play(learner.params, new_key, locks, jnp.arange(locks.levels), fault)
        found = recipes.sfl_levels(jnp.arange(locks.levels), batch, NUM // 2)
        return buffer._replace(levels=found[0], scores=found[1])

    now = learner.count % EVERY == 0
    buffer = jax.lax.cond(now, renewed, lambda buffer: buffer, buffer)
    new = jax.random.randint(choose_key, (NUM // 2,), 0, locks.levels)
    levels = jnp.append(buffer.levels, new)
    batch = play(learner.params, play_key, locks, levels, fault)
    return Trained(learn(learner, batch), buffer)


def opened(locks, state):
    """Return the share of the tested locks that the likeliest actions open."""

    def right(level, place):
        s = locks.observe(level, place)
        logits, _ = policy_and_value(state.learner.params, s)
        is_right = jnp.argmax(logits) == locks.code(level, place)
        return is_right | (place >= locks.length(level))

    each = jax.vmap(jax.vmap(right, (None, 0)), (0, None))
    return jnp.mean(jnp.all(each(locks.tested, jnp.arange(locks.steps)), axis=1))


def run(locks, update, levels, key, fault):
    """Return a run from a buffer of levels with high scores, so that all are tried."""
    init_key, key = jax.random.split(key)
    size = locks.observe(jnp.array(0), jnp.array(0)).size
    params = mlp(init_key, size, 64, A + 1, scale=0.01)
    ones = jnp.ones(len(jax.tree.leaves(levels)[0]))
    buffer = recipes.Levels(levels, ones, ones, ones > 0)
    keys = jax.random.split(key, UPDATES)
    return Run(
        Trained(begin(params, OPTIMIZER), buffer),
        lambda state, key: update(locks, state, key, fault),
        keys,
        functools.partial(opened, locks),
    )


def entry(functions, locks, own, levels, states, without=None):
    """Return an entry; `without` has updates that lack a part."""

    def trained(update):
        return functools.partial(run, locks, update, levels)

    return Entry(
        recipe=f"curricula.{functions}",
        run=trained(own),
        about=locks.about,
        random=locks.random,
        best=1.0,
        states=states,
        fails=("reward", "bootstrap"),
        without={part: trained(update) for part, update in (without or {}).items()},
    )


FIRST = jnp.arange(800), jnp.zeros(800)  # Levels, and the highest return of each.
ENTRIES = {
    "plr": entry("plr_replay, plr_scores", FIXED, plr, FIRST, 0.6),
    "accel": entry(
        *("accel_scores, plr_insert", GROWING, accel, jnp.zeros(64, int), 0.75),
        {"the edits": functools.partial(accel, has_edits=False)},
    ),
    # From random levels alone, half of the runs reach the bar after 300 updates.
    "sfl": entry(
        *("sfl_levels", FIXED, sfl, jnp.zeros(NUM // 2, int), 0.87),
        {"the scores of levels": functools.partial(sfl, has_scores=False)},
    ),
}
