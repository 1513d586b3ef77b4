"""The zoo's explorers, on a lock whose reward random actions do not find."""

from collections import namedtuple
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from recipes import exploration as recipes
from recipes import value_based

import rlaxlib
from zoo.networks import forward, mlp
from zoo.tasks import Task
from zoo.training import Agent, Batch, Entry, State, begin, descend, online

CELLS, ACTIONS = 12, 3  # One of 100,000 random episodes opens the lock.
FEATURES = 16
HIDDEN = 32
HEADS = 10
UPDATES = 600
NUM = 16  # Environments.
REPEATS = 8  # Updates from the same streams.
EPOCHS = 4  # Those of PPO.
PERIOD = 20
EPSILON = 0.2


class Lock(NamedTuple):
    """The cell, and two numbers of the episode and the step that learners may use."""

    cell: jax.Array
    episode: jax.Array
    step: jax.Array


def lock():
    """Return a lock of `CELLS` cells: one action goes on, others to the start.

    Which action goes on differs between cells. After the last cell comes the first.
    """
    right = jax.random.randint(jax.random.key(7), (CELLS,), 0, ACTIONS)

    def step(_, state, a):
        on = a == right[state.cell]
        opened = on & (state.cell == CELLS - 1)
        cell = jnp.where(on & ~opened, state.cell + 1, 0)
        return Lock(cell, state.episode, state.step + 1), 1.0 * opened, jnp.array(False)

    def observe(state):
        numbers = jnp.stack([state.episode, state.step / CELLS])
        return jnp.append(jax.nn.one_hot(state.cell, CELLS), numbers)

    limit = 3 * CELLS // 2
    return Task(
        about=f"Lock: 1 for {CELLS} right actions in a row, each one of {ACTIONS}",
        reset=lambda key: Lock(jnp.array(0), jax.random.uniform(key), jnp.array(0)),
        observe=observe,
        step=step,
        limit=limit,
        actions=ACTIONS,
        random=(1 + (limit - CELLS) * (1 - 1 / ACTIONS)) / ACTIONS**CELLS,
        best=1.0,
        discount=0.99,
    )


TASK = lock()
A = TASK.actions


class Learner(NamedTuple):
    """What is learned by gradients, and moments of the bonus."""

    state: State
    moments: Any = ()

    @property
    def params(self):
        return self.state.params


def cells(s):
    """Return observations without the numbers of the episode and the step."""
    return s[..., :CELLS]


def q(params, s):
    return forward(params["q"], cells(s))


def no_bonus(params, batch, moments):
    return batch, moments


def agent(
    loss,
    networks,
    bonus=no_bonus,
    q=q,
    best=None,
    moments=(),
    repeats=REPEATS,
    rate=2e-2,
    scale=0.0,
):
    """Return an ε-greedy agent.

    Args:
        loss: Function of parameters, target parameters and batch.
        networks: Sizes of the networks by name, "q" of action values among them.
        bonus: Function of parameters, batch and moments to a batch with intrinsic
            rewards and the next moments.
        q: Function of parameters and an observation to action values, [A].
        best: The same, for the evaluation, if it differs.
        moments: First moments of the bonus.
        repeats: Updates from the same batch and bonus.
        rate: Learning rate at the start; it falls to 0.
        scale: Scale of the first action values. Random ones explore: those above 0 are
            optimistic.
    """
    optimizer = optax.adam(optax.linear_schedule(rate, 0.0, REPEATS * UPDATES))

    def init(key):
        keys = jax.random.split(key, len(networks))
        params = {
            name: mlp(key, *sizes, scale=scale if name == "q" else 1.0)
            for key, (name, sizes) in zip(keys, networks.items(), strict=True)
        }
        return Learner(begin(params, optimizer), moments)

    def update(learner, key, batch):
        state, moments = learner
        batch, moments = bonus(state.params, batch, moments)

        def one(state, _):
            gradient_of = partial(loss, target=state.target, batch=batch)
            return descend(state, gradient_of, optimizer, PERIOD), None

        state, _ = jax.lax.scan(one, state, length=repeats)
        return Learner(state, moments)

    return Agent(
        init=init,
        act=lambda learner, key, s: rlaxlib.epsilon_greedy(EPSILON).sample(
            key, q(learner.params, s)
        ),
        best=lambda learner, key, s: jnp.argmax((best or q)(learner.params, s)),
        update=update,
    )


def flat(batch):
    """Return streams as one batch of transitions."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch)


def entry(names, agent, without, fails=("reward", "bootstrap"), **options):
    """Return an entry on the lock, with agents that lack a part."""
    options = {"updates": UPDATES, "num": NUM} | options
    return Entry(
        recipe=", ".join(f"exploration.{name}" for name in names.split()),
        run=online(TASK, agent, **options),
        about=TASK.about,
        random=TASK.random,
        best=TASK.best,
        states=0.9,
        fails=fails,
        without={part: online(TASK, x, **options) for part, x in without.items()},
    )


NETWORKS = {"q": (CELLS, A)}
EMBEDDING = {"features": (CELLS, FEATURES), "inverse": (2 * FEATURES, HIDDEN, A)}


def inverse(params, x_tm1, x_t):
    """Return the logits of the action between two observations."""
    return forward(params["inverse"], jnp.concatenate([x_tm1, x_t], axis=-1))


# --- RND: a random network, which is the first parameters of the predictor. ---

RANDOM = mlp(jax.random.key(1), CELLS, HIDDEN, FEATURES)


def rnd_features(params, s):
    return forward(params, cells(s))


def rnd_bonus(params, batch, moments, weight=16.0):
    args = params["rnd"], RANDOM, rnd_features, batch, moments
    rewards, moments = recipes.rnd_rewards(*args)
    return batch._replace(r_t=batch.r_t + weight * rewards), moments


def pqn(params, batch):
    target = value_based.pqn_targets(params, q, batch)
    return value_based.pqn(params, q, batch, target)


def rnd(params, target, batch):
    loss = recipes.rnd(params["rnd"], RANDOM, rnd_features, flat(batch))
    return loss + pqn(params, batch)


# --- RND with PPO: two value functions. ---

NovelStream = namedtuple(
    "NovelStream",
    "s_tm1 a_tm1 r_t discount_t s_t truncated_t sample_mask logits_tm1 v_tm1 v_t "
    "intrinsic_r_t intrinsic_v_tm1 intrinsic_v_t",
)


def two_values(params, s):
    """Return logits and the values of both rewards."""
    x = forward(params["policy"], cells(s))
    return x[..., :A], x[..., A], x[..., A + 1]


def rnd_ppo(weight=1.0):
    """Return an agent that samples its policy, with several updates for each stream.

    Intrinsic rewards have a `weight`.
    """
    # The predictor is slow, so that novelty lasts until the policy finds it.
    optimizers = {
        name: optax.adam(optax.linear_schedule(rate, 0.0, EPOCHS * UPDATES))
        for name, rate in (("policy", 5e-3), ("rnd", 3e-4))
    }
    optimizer = optax.multi_transform(optimizers, {name: name for name in optimizers})

    def init(key):
        keys = jax.random.split(key)
        networks = {
            "policy": mlp(keys[0], CELLS, HIDDEN, A + 2, scale=0.1),
            "rnd": mlp(keys[1], CELLS, HIDDEN, FEATURES),
        }
        return Learner(begin(networks, optimizer), RND_STATE)

    def act(learner, key, s):
        return rlaxlib.softmax().sample(key, two_values(learner.params, s)[0])

    def update(learner, key, batch):
        state, moments = learner
        args = state.params["rnd"], RANDOM, rnd_features, batch, moments
        rewards, moments = recipes.rnd_rewards(*args)
        outputs = two_values(state.params, batch.s_tm1)
        logits, v_tm1, intrinsic_v_tm1 = outputs
        _, v_t, _ = two_values(state.params, batch.s_t)
        # A stream is an episode: after its end comes a first observation, as at its
        # begin.
        intrinsic_v_t = jnp.roll(intrinsic_v_tm1, -1, axis=1)
        values = logits, v_tm1, v_t, weight * rewards, intrinsic_v_tm1, intrinsic_v_t
        batch = NovelStream(*batch, *values)

        def loss(params):
            predictor = params["rnd"], RANDOM, rnd_features, flat(batch)
            return recipes.rnd_ppo(params, two_values, batch) + recipes.rnd(*predictor)

        def one(state, _):
            return descend(state, loss, optimizer), None

        state, _ = jax.lax.scan(one, state, length=EPOCHS)
        return Learner(state, moments)

    return Agent(init=init, act=act, best=act, update=update)


# --- ICM: what the action changes, predicted in the space of features. ---


def icm_forward(params, x, a):
    return forward(params["forward"], jnp.append(x, jax.nn.one_hot(a, A), axis=-1))


ICM = SimpleNamespace(
    features=lambda params, s: forward(params["features"], cells(s)),
    forward=jax.vmap(icm_forward, (None, 0, 0)),
    inverse=inverse,
)


def icm_bonus(params, batch, moments, scale=1.0):
    _, rewards = recipes.icm(params, ICM, flat(batch), scale)
    return batch._replace(r_t=batch.r_t + rewards.reshape(batch.r_t.shape)), moments


def icm(params, target, batch):
    loss, _ = recipes.icm(params, ICM, flat(batch))
    return 10 * loss + pqn(params, batch)


# --- NGU: episodic novelty, of whole episodes. ---

NGU = SimpleNamespace(embedding=ICM.features, inverse=inverse)
IntrinsicBatch = namedtuple("IntrinsicBatch", (*Batch._fields, "intrinsic_r_t"))


def ngu_rewards(params, batch, moments):
    """Return the rewards of one episode, whose first observation is remembered."""
    s = jnp.concatenate([batch.s_tm1[:1], batch.s_t])
    x = NGU.embedding(params, s)
    predictions = rnd_features(params["rnd"], s)
    errors = jnp.sum(jnp.square(predictions - rnd_features(RANDOM, s)), axis=-1)
    memory = rlaxlib.IntrinsicRewardState(jnp.full((TASK.limit + 1, FEATURES), jnp.inf))
    return recipes.ngu_rewards(x, errors, memory, moments)[0][1:], errors


def ngu_bonus(params, batch, moments):
    rewards, errors = jax.vmap(ngu_rewards, (None, 0, None))(params, batch, moments)
    moments = jnp.stack([jnp.mean(errors), jnp.std(errors) + 1e-3])
    return IntrinsicBatch(*batch, rewards), moments


def ngu(params, target, batch, beta=0.03):
    loss = recipes.ngu(params, target, q, batch, beta)
    batch = flat(batch)
    loss += recipes.rnd(params["rnd"], RANDOM, rnd_features, batch)
    return loss + recipes.ngu_embedding(params, NGU, batch)


# --- Bootstrapped DQN: an episode follows one head. ---


def heads(params, features):
    q = forward(params["q"], features)
    return q.reshape(*q.shape[:-1], HEADS, A)


HeadBatch = namedtuple("HeadBatch", (*Batch._fields, "head_mask"))
BOOTSTRAPPED = SimpleNamespace(
    torso=lambda params, s: jnp.tanh(forward(params["torso"], cells(s))), heads=heads
)


def head_mask(s):
    """Return the mask of a transition, the same whenever it is drawn."""
    episode, step = s[..., CELLS:]
    bits = jax.lax.bitcast_convert_type(episode + step, jnp.uint32)
    return jax.random.bernoulli(jax.random.key(bits), 0.5, (HEADS,))


def bootstrapped_dqn(params, target, batch):
    batch = HeadBatch(*batch, jax.vmap(head_mask)(batch.s_tm1))
    return recipes.bootstrapped_dqn(params, target, BOOTSTRAPPED, batch)


def mean_q(params, s):
    """Return the mean of the heads."""
    return jnp.mean(heads(params, BOOTSTRAPPED.torso(params, s)), axis=0)


def episode_q(params, s):
    """Return the action values of the head that the episode follows."""
    head = (s[CELLS] * HEADS).astype(int)
    return heads(params, BOOTSTRAPPED.torso(params, s))[head]


RND_STATE = jax.vmap(rlaxlib.reward_scale().init)(jnp.zeros(NUM))
RND_NETWORKS = NETWORKS | {"rnd": (CELLS, HIDDEN, FEATURES)}
STREAMS = {"steps": TASK.limit}
REPLAY = {"steps": TASK.limit, "replay": 128, "repeats": REPEATS}

INTRINSIC = "the intrinsic reward"


def icm_agent(bonus):
    networks = NETWORKS | EMBEDDING | {"forward": (FEATURES + A, HIDDEN, FEATURES)}
    return agent(icm, networks, bonus)


def ngu_agent(**options):
    networks, moments = RND_NETWORKS | EMBEDDING, jnp.array([0.0, 1.0])
    return agent(partial(ngu, **options), networks, ngu_bonus, moments=moments)


def bootstrapped_agent(scale=1.0):
    """Return an agent whose heads have first values of a scale, 0 for equal heads."""
    networks = {"torso": (CELLS, HIDDEN), "q": (HIDDEN, HEADS * A)}
    # With a rate of 0.02, some seeds end below 1.
    options = {"best": mean_q, "repeats": 1, "rate": 1e-2, "scale": scale}
    return agent(bootstrapped_dqn, networks, q=episode_q, **options)


ENTRIES = {
    "rnd": entry(
        "rnd rnd_rewards",
        agent(rnd, RND_NETWORKS, rnd_bonus, moments=RND_STATE),
        {INTRINSIC: agent(rnd, RND_NETWORKS)},
        **STREAMS,
    ),
    "rnd_ppo": entry("rnd_ppo", rnd_ppo(), {INTRINSIC: rnd_ppo(0.0)}, **STREAMS),
    "icm": entry(
        "icm", icm_agent(icm_bonus), {INTRINSIC: icm_agent(no_bonus)}, **STREAMS
    ),
    "ngu": entry(
        "ngu_embedding ngu_rewards ngu",
        ngu_agent(),
        {INTRINSIC: ngu_agent(beta=0.0)},
        fails=("reward",),  # Without a bootstrap, novelty is a reward of the next step.
        num=2 * NUM,  # Of half as many, one run in twenty never finds the last cell.
        **STREAMS,
    ),
    "bootstrapped_dqn": entry(
        "bootstrapped_dqn",
        bootstrapped_agent(),
        {"heads that differ": bootstrapped_agent(scale=0.0)},
        **REPLAY,
    ),
}
