"""The zoo's DreamerV3: a world model of logged steps, and a policy of imagined ones.

The logged actions are random. After the end of an episode comes a step to the next one,
which the sample mask leaves out.
"""

from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from recipes import dreamer as recipes

import rlaxlib
from zoo.networks import forward, mlp
from zoo.tasks import corridor
from zoo.training import Agent, Entry, State, begin, descend, offline, play

TASK = corridor()
A = TASK.actions
GROUPS, CLASSES = 4, 4  # Of the samples.
LATENT = GROUPS * CLASSES
HIDDEN, BINS = 32, 41  # With the usual 255 bins, 2 of 15 seeds miss the far end.
STREAMS, STEPS = 320, 12  # Logged steps.
HORIZON = 6  # Imagined steps.
TRIALS = 8  # Episodes of an evaluation.
UPDATES = 600
RATE = 0.02  # Of the slow critic.
FREE_NATS = 0.1  # The usual 1 is half of what tells 8 cells apart.
SCALE = 4.0  # Of observations: with 1, errors of some seeds cost less than the KL.
ENTROPY_COST = 3e-3


class Params(NamedTuple):
    """Parameters of the world model, of the actor and of the critic."""

    model: Any
    actor: Any
    critic: Any


class Learner(NamedTuple):
    """State of a learner, and of the scale of the returns."""

    state: State
    scale: Any


class Sequences(NamedTuple):
    """Logged streams, as the recipes have them."""

    s: jax.Array
    a_tm1: jax.Array
    r_t: jax.Array
    discount_t: jax.Array
    sample_mask: jax.Array
    truncated_t: Any = None
    returns: Any = None


class Imagined(NamedTuple):
    """Imagined streams, as the recipes have them."""

    s: Any
    a_tm1: jax.Array
    r_t: jax.Array
    discount_t: jax.Array
    first_discount: Any = None
    values: Any = None


# With the rate of the critic, an actor is deterministic before rewards are learned.
OPTIMIZER = optax.multi_transform(
    {
        rate: optax.adam(optax.linear_schedule(rate, 0.0, UPDATES))
        for rate in (1e-2, 1e-3)
    },
    Params(model=1e-2, actor=1e-3, critic=1e-2),
)


# --- Logged data. ---


def endless():
    """Return the task without ends: after an episode comes a step to the next one."""

    def over(x):
        return (x == 0) | (x == TASK.size - 1)

    def reset(key):
        return jax.random.randint(key, (), 1, TASK.size - 1)

    def step(key, x, a):
        after, reward, _ = TASK.step(key, x, a)
        state = jnp.where(over(x), reset(key), after)
        return state, jnp.where(over(x), 0.0, reward), jnp.array(False)

    return TASK._replace(reset=reset, step=step, limit=STEPS + 1)


def data(key):
    """Return streams of random actions, [N, T]."""

    def random(key, s):
        return jax.random.randint(key, (), 0, A)

    batch = play(endless(), random, key, STREAMS, STEPS)
    before, after = (s[..., 0] + s[..., -1] for s in (batch.s_tm1, batch.s_t))
    discount = batch.discount_t * (1 - after)
    return batch._replace(discount_t=discount, sample_mask=before == 0)


# --- World model, actor and critic. ---


def flat(state, z):
    """Return states beside samples, [..., H + G * C]."""
    return jnp.concatenate([state, z.reshape(*z.shape[:-2], LATENT)], axis=-1)


def grouped(logits):
    return logits.reshape(*logits.shape[:-1], GROUPS, CLASSES)


def dynamics(params, state, z, a):
    """Return the next states of a minimal gated unit, and the logits of priors."""
    x = jnp.concatenate([flat(state, z), jax.nn.one_hot(a, A)], axis=-1)
    gate, x = jnp.split(forward(params["gates"], x), 2, axis=-1)
    state = state + jax.nn.sigmoid(gate) * (jnp.tanh(x) - state)
    return state, grouped(forward(params["prior"], state))


def encoder(params, state, s):
    return grouped(forward(params["encoder"], jnp.concatenate([state, s], axis=-1)))


def decoder(params, state, z):
    """Return observations, logits of rewards and the logit of the discount."""
    x = flat(state, z)
    s, logit = (forward(params[name], x) for name in ("s", "goes_on"))
    return s, forward(params["reward"], x), logit[..., 0]


MODEL = SimpleNamespace(
    start=lambda _: (jnp.zeros(HIDDEN), jnp.zeros((GROUPS, CLASSES))),
    dynamics=dynamics,
    encoder=encoder,
    decoder=decoder,
)


def init(key):
    keys = jax.random.split(key, 8)
    x = HIDDEN + LATENT, HIDDEN
    model = {
        "gates": mlp(keys[0], HIDDEN + LATENT + A, HIDDEN, 2 * HIDDEN),
        "prior": mlp(keys[1], HIDDEN, HIDDEN, LATENT),
        "encoder": mlp(keys[2], HIDDEN + TASK.size, HIDDEN, LATENT),
        "s": mlp(keys[3], *x, TASK.size),
        "reward": mlp(keys[4], *x, BINS, scale=0.0),
        "goes_on": mlp(keys[5], *x, 1),
    }
    actor = mlp(keys[6], *x, A, scale=0.0)
    return Params(model, actor, mlp(keys[7], *x, BINS, scale=0.0))


def policy(params, s):
    return rlaxlib.unimix_logits(forward(params, flat(*s)))


def critic(params, s):
    return forward(params, flat(*s))


def decode(logits):
    return recipes.dreamer_pair(BINS).apply_inv(jax.nn.softmax(logits))


def imagine(params, key, first):
    """Return streams that begin at states and samples of the model, [N, ...]."""

    def one(s, key):
        act_key, key = jax.random.split(key)
        a = jax.random.categorical(act_key, policy(params.actor, s))
        state, prior = dynamics(params.model, *s, a)
        z = rlaxlib.straight_through_sample(key, rlaxlib.unimix_logits(prior))
        _, r_logits, logit = decoder(params.model, state, z)
        step = (state, z), a, decode(r_logits), jax.nn.sigmoid(logit)
        return (state, z), step

    _, (s, *rest) = jax.lax.scan(one, first, jax.random.split(key, HORIZON))
    s = jax.tree.map(lambda x, y: jnp.concatenate([x[None], y]), first, s)
    batch = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), Imagined(s, *rest))
    _, _, logit = decoder(params.model, *first)
    values = decode(critic(params.critic, batch.s))
    return batch._replace(first_discount=jax.nn.sigmoid(logit), values=values)


def sequences(batch):
    s = SCALE * jnp.concatenate([batch.s_tm1[:, :1], batch.s_t], axis=1)
    return Sequences(s, batch.a_tm1, batch.r_t, batch.discount_t, batch.sample_mask)


def states(model, key, batch):
    """Return states and samples of all observations, [B, T+1, ...]."""
    first = jnp.pad(~batch.sample_mask, ((0, 0), (1, 0)), constant_values=True)
    a = jnp.pad(batch.a_tm1, ((0, 0), (1, 0)))
    keys = jax.random.split(key, len(a))
    unroll = jax.vmap(recipes.dreamer_unroll, (None, None, 0, 0, 0, 0))
    return unroll(model, MODEL, batch.s, first, a, keys)[:2]


def dreamer():
    """Return a learner of all three, by one optimizer."""
    first_scale, next_scale = rlaxlib.percentile_scale()

    def update(learner, key, batch):
        state, scale = learner
        model_key, state_key, key = jax.random.split(key, 3)
        batch = sequences(batch)
        params = state.params
        s = states(params.model, state_key, batch)
        first = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), s)
        imagined = imagine(params, key, first)
        returns, _ = recipes.dreamer_returns(imagined.values, imagined)
        size, scale = next_scale(scale, returns)
        replayed = batch._replace(returns=returns[:, 0].reshape(len(batch.s), -1))

        def loss(p):
            model = recipes.dreamer_model(
                *(p.model, MODEL, batch, model_key), free_nats=FREE_NATS
            )
            actor = recipes.dreamer_actor(
                *(p.actor, policy, imagined, size), entropy_cost=ENTROPY_COST
            )
            inputs = p.critic, state.target.critic, critic
            value = recipes.dreamer_critic(*inputs, imagined)
            s = states(p.model, state_key, batch)
            replay = recipes.dreamer_replay_critic(*inputs, replayed._replace(s=s))
            return model + actor + value + 0.3 * replay

        return Learner(descend(state, loss, OPTIMIZER, rate=RATE), scale)

    def best(learner, key, inputs):
        params = learner.state.params
        s, (*carry, a) = inputs
        z_key, key = jax.random.split(key)
        state, _ = dynamics(params.model, *carry, a)
        posterior = rlaxlib.unimix_logits(encoder(params.model, state, SCALE * s))
        z = rlaxlib.straight_through_sample(z_key, posterior)
        a = jax.random.categorical(key, policy(params.actor, (state, z)))
        return a, (state, z, a)

    def first(key):
        state = begin(init(key), OPTIMIZER)
        return Learner(state, first_scale(jnp.zeros((1, HORIZON))))

    return Agent(init=first, act=None, best=best, update=update)


def score(task, act, key):
    """Return the mean return of a policy of an observation and its carry."""

    def one(carry, key):
        state, over, agent = carry
        act_key, key = jax.random.split(key)
        a, agent = act(act_key, (task.observe(state), agent))
        state, reward, ended = task.step(key, state, a)
        return (state, over | ended, agent), jnp.where(over, 0.0, reward)

    def episode(key):
        reset_key, key = jax.random.split(key)
        agent = *MODEL.start(None), jnp.array(-1)
        first = task.reset(reset_key), jnp.array(False), agent
        return jnp.sum(jax.lax.scan(one, first, jax.random.split(key, task.limit))[1])

    return jnp.mean(jax.vmap(episode)(jax.random.split(key, TRIALS)))


ENTRY = Entry(
    recipe=(
        "dreamer.dreamer_model, dreamer_actor, dreamer_critic, dreamer_replay_critic"
    ),
    run=offline(TASK, dreamer(), data, UPDATES, size=8, score=score),
    about=f"{TASK.about}, by imagined steps of a model of random ones",
    random=TASK.random,
    best=TASK.best,
    states=0.9,
    fails=("reward", "bootstrap"),
)
