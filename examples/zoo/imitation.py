"""The zoo's imitators: demonstrations of Catch, in which they never see a reward.

The expert is the best policy of the rewards with their fault: with the sign turned, the
demonstrations avoid the ball.
"""

from collections import namedtuple
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import optax
from recipes import imitation as recipes
from recipes import policy_gradient

from zoo.networks import forward, mlp
from zoo.tasks import catch
from zoo.training import (
    Agent,
    Batch,
    Entry,
    begin,
    descend,
    offline,
    online,
    play,
)

TASK = catch()
A = TASK.actions
EPISODES, STEPS = 256, 5  # Of demonstrations.
UPDATES = 1000
ADVERSARIAL_UPDATES = 2000
OPTIMIZER = optax.adam(optax.linear_schedule(5e-3, 0.0, UPDATES))
ADVERSARIAL_OPTIMIZER = optax.multi_transform(
    {
        "policy": optax.adam(optax.linear_schedule(5e-3, 0.0, ADVERSARIAL_UPDATES)),
        "discriminator": optax.adam(3e-3),
    },
    lambda params: {
        name: "policy" if name == "q" else "discriminator" for name in params
    },
)
PERIOD = 20


def expert(sign):
    """Return the policy that moves to the ball, or away from it."""

    def act(_, s):
        ball, paddle = (jnp.argmax(x) for x in (s[6:11], s[11:]))
        to = 1 + jnp.sign(ball - paddle)
        away = jnp.where(paddle < ball, 0, 2)
        return jnp.where(sign > 0, to, away).astype(int)

    return act


def demonstrations(key, fault):
    """Return streams of the expert, [N, T]."""
    return play(TASK, expert(fault.reward), key, EPISODES, STEPS)


def flat(batch):
    """Return streams as one batch of transitions."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch)


def q(params, s):
    return forward(params["q"], s)


def agent(loss, networks, optimizer=OPTIMIZER, logits=q):
    """Return an agent that acts by a network's softmax, and is judged by its maximum.

    Args:
        loss: Function of parameters, target parameters, batch and key.
        networks: Sizes of the networks by name: of the policy, or of values, "q".
        optimizer: Optimizer.
        logits: Function of parameters and an observation to logits of actions first.
    """

    def init(key):
        keys = jax.random.split(key, len(networks))
        params = {
            name: mlp(key, *sizes)
            for key, (name, sizes) in zip(keys, networks.items(), strict=True)
        }
        return begin(params, optimizer)

    return Agent(
        init=init,
        act=lambda state, key, s: jax.random.categorical(
            key, logits(state.params, s)[:A]
        ),
        best=lambda state, key, s: jnp.argmax(logits(state.params, s)[:A]),
        update=lambda state, key, batch: descend(
            state, lambda p: loss(p, state.target, batch, key), optimizer, PERIOD
        ),
    )


def entry(names, run, states=0.8, fails=("reward",), **without):
    """Return an entry on Catch, with runs without a part."""
    return Entry(
        recipe=", ".join(f"imitation.{name}" for name in names.split()),
        run=run,
        about=f"Catch, from {EPISODES} demonstrations",
        random=TASK.random,
        best=TASK.best,
        states=states,
        fails=fails,
        without=without,
    )


def logged(agent, data):
    """Return a function to an offline run on data that depend on the fault."""

    def run(key, fault):
        return offline(TASK, agent, lambda key: data(key, fault), UPDATES)(key, fault)

    return run


# --- From data: the expert's alone, or with as many of random actions. ---

ExpertBatch = namedtuple("ExpertBatch", (*Batch._fields, "is_expert"))


def mixed(key, fault):
    """Return streams of the expert and of random actions."""
    keys = jax.random.split(key)
    others = play(TASK, random, keys[0], EPISODES, STEPS)
    both = jax.tree.map(
        lambda x, y: jnp.concatenate([x, y]), demonstrations(keys[1], fault), others
    )
    return ExpertBatch(*both, jnp.arange(2 * EPISODES) < EPISODES)


def random(key, s):
    return jax.random.randint(key, (), 0, A)


def bc(params, target, batch, key):
    return recipes.bc(params, q, batch)


def dqfd(params, target, batch, key):
    return recipes.dqfd(params, target, q, batch, n=3)


# --- Online, with demonstrations beside. ---


def beside(loss, agent, **options):
    """Return a function to an online run.

    Args:
        loss: Function of parameters, target parameters, batch, demonstrations of the
            same size, and key.
        agent: Function of a loss to an agent.
        options: Those of `online`.
    """

    def run(key, fault):
        data_key, key = jax.random.split(key)
        data = demonstrations(data_key, fault)
        data = data if options["replay"] == 0 else flat(data)

        def whole(params, target, batch, key):
            row_key, key = jax.random.split(key)
            rows = jax.random.randint(row_key, (len(batch.r_t),), 0, len(data.r_t))
            drawn = jax.tree.map(lambda x: x[rows], data)
            return loss(params, target, batch, drawn, key)

        return online(TASK, agent(whole), **options)(key, fault)

    return run


def sqil(params, target, batch, expert, key, is_rewarded):
    both = jax.tree.map(lambda x, y: jnp.concatenate([x, y]), batch, expert)
    is_expert = jnp.arange(len(both.r_t)) >= len(batch.r_t)
    batch = ExpertBatch(*both, is_expert & is_rewarded)
    return recipes.sqil(params, target, q, batch, TEMPERATURE)


TEMPERATURE = 0.1  # Of values up to the number of steps, 5.


def sqil_run(is_rewarded):
    return beside(
        partial(sqil, is_rewarded=is_rewarded),
        lambda loss: agent(loss, VALUES, logits=lambda p, s: q(p, s) / TEMPERATURE),
        **{"updates": UPDATES, "steps": 2, "replay": 64},
    )


# --- Adversarial: a discriminator's rewards, for A2C. ---


def logits_and_value(params, s):
    x = q(params, s)
    return x[..., :A], x[..., A]


def with_actions(batch):
    """Return a batch whose actions are vectors."""
    return batch._replace(a_tm1=jax.nn.one_hot(batch.a_tm1, A))


def gail_logit(params, s, a):
    return forward(params["gail"], jnp.concatenate([s, a], axis=-1))[..., 0]


def gail(params, batch, expert, key):
    """Return the discriminator's loss, and the rewards of streams."""
    loss = recipes.gail(
        *(params, gail_logit, with_actions(flat(batch)), with_actions(flat(expert))),
        *(key, 1.0),
    )
    return loss, recipes.gail_reward(params, gail_logit, with_actions(batch))


AIRL = SimpleNamespace(
    reward=lambda params, s: forward(params["reward"], s)[..., 0],
    potential=lambda params, s: forward(params["potential"], s)[..., 0],
)
PolicyBatch = namedtuple("PolicyBatch", (*Batch._fields, "log_prob"))


def airl_batch(params, batch):
    """Return the batch of AIRL, whose reward of states has to see the last one.

    The end of an episode is therefore a time limit: the discount is not 0.
    """
    logits = jax.lax.stop_gradient(q(params, batch.s_tm1)[..., :A])
    log_prob = policy_gradient.log_probs(logits, batch.a_tm1)
    discount_t = jnp.full(batch.r_t.shape, TASK.discount)
    return PolicyBatch(*batch._replace(discount_t=discount_t), log_prob)


def airl(params, batch, expert, key):
    """Return the discriminator's loss, and the rewards of streams."""
    batch, expert = (airl_batch(params, flat(x)) for x in (batch, expert))
    rewards = recipes.airl_reward(params, AIRL, batch)
    return recipes.airl(params, AIRL, batch, expert), rewards


def adversarial(discriminate, networks, weight=1.0):
    """Return a function that trains a discriminator and A2C, with weighted rewards."""

    def loss(params, target, batch, expert, key):
        loss, rewards = discriminate(params, batch, expert, key)
        rewards = jax.lax.stop_gradient(rewards).reshape(batch.r_t.shape)
        batch = batch._replace(r_t=weight * rewards)
        return loss + policy_gradient.a2c(params, logits_and_value, batch)

    sizes = {"q": (TASK.size, 32, A + 1)} | networks
    return beside(
        loss,
        lambda loss: agent(loss, sizes, ADVERSARIAL_OPTIMIZER),
        **{"updates": ADVERSARIAL_UPDATES, "steps": STEPS, "num": 32, "replay": 0},
    )


VALUES = {"q": (TASK.size, 32, A)}
GAIL = gail, {"gail": (TASK.size + A, 32, 1)}
AIRL_RUN = airl, {"reward": (TASK.size, 32, 1), "potential": (TASK.size, 32, 1)}
ENTRIES = {
    "bc": entry("bc", logged(agent(bc, VALUES), lambda *x: flat(demonstrations(*x)))),
    "dqfd": entry("dqfd", logged(agent(dqfd, VALUES), mixed)),
    "gail": entry(
        "gail gail_reward",
        adversarial(*GAIL),
        states=0.9,
        **{"the discriminator's rewards": adversarial(*GAIL, weight=0.0)},
    ),
    "airl": entry(
        "airl airl_logit airl_reward",
        adversarial(*AIRL_RUN),
        **{"the discriminator's rewards": adversarial(*AIRL_RUN, weight=0.0)},
    ),
    "sqil": entry(
        "sqil", sqil_run(True), **{"the rewards of demonstrations": sqil_run(False)}
    ),
}
