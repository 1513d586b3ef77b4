"""The zoo's BBF and SR-SPR: Rainbow and SPR on the corridor, with resets.

Batches are uniform, so that all weights are 1.
"""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import optax
from recipes import planning as recipes

import rlaxlib
from zoo.networks import forward, mlp
from zoo.tasks import corridor
from zoo.training import Agent, Entry, begin, descend, online
from zoo.value_based import PrioritisedBatch

TASK = corridor()
A = TASK.actions
HIDDEN, LATENT = 32, 16
ATOMS = 21  # In [-1, 1].
UPDATES = 1200
EPSILON = 0.5
EVERY, LAST = 200, 400  # Updates from one reset to the next, and up to the last one.
PERIOD = 200  # Updates until n and the discount of BBF are the last.
OPTIMIZER = optax.adam(optax.linear_schedule(5e-3, 0.0, UPDATES))
RATE = 0.05  # Of the target networks.


def init(key):
    keys = jax.random.split(key, 5)
    return {
        "encode": mlp(keys[0], TASK.size, HIDDEN),
        "next": mlp(keys[1], HIDDEN + A, HIDDEN, HIDDEN),
        "project": jax.random.normal(keys[2], (HIDDEN, LATENT)) / HIDDEN**0.5,
        "predict": jnp.eye(LATENT),
        "q": mlp(keys[4], HIDDEN, HIDDEN, A * ATOMS),
    }


def following(params, z, a):
    """Return the next latent states."""
    inputs = jnp.concatenate([z, jax.nn.one_hot(a, A)], axis=-1)
    return jnp.tanh(forward(params["next"], inputs))


def logits(params, s):
    x = forward(params["q"], APPLY.encode(params, s))
    return x.reshape(*x.shape[:-1], A, ATOMS)


APPLY = SimpleNamespace(
    encode=lambda params, s: jnp.tanh(forward(params["encode"], s)),
    next=following,
    project=lambda params, z: z @ params["project"],
    predict=lambda params, x: x @ params["predict"],
    q=logits,
)


def q(params, s):
    return jax.nn.softmax(logits(params, s)) @ jnp.linspace(-1, 1, ATOMS)


def reset(state, key, keep):
    """Return the state of a learner after a reset, with moments of 0 for new layers."""
    both = zip((state.params, state.target), jax.random.split(key), strict=True)
    params, target = (recipes.bbf_reset(x, init(k), keep) for x, k in both)

    def kept(moments):
        zeros = jax.tree.map(jnp.zeros_like, moments)
        return zeros | {name: moments[name] for name in ("encode", "next")}

    adam, *rest = state.optimizer
    adam = adam._replace(mu=kept(adam.mu), nu=kept(adam.nu))
    return state._replace(params=params, target=target, optimizer=(adam, *rest))


def agent(keep, anneals):
    """Return an agent that resets its networks, and then anneals n and the discount.

    The target network acts.
    """

    def update(state, key, batch):
        now = (state.count % EVERY == 0) & (state.count > 0) & (state.count <= LAST)
        state = rlaxlib.tree_select(now, reset(state, key, keep), state)
        since = state.count - jnp.minimum(state.count // EVERY * EVERY, LAST)
        n, discount = recipes.bbf_schedule(since, PERIOD) if anneals else (10, 0.99)
        options = {"n": n, "discount": discount, "bounds": (-1.0, 1.0)}
        uniform = jnp.full(len(batch.r_t), 1 / len(batch.r_t))
        inputs = state.target, APPLY, PrioritisedBatch(*batch, uniform)

        def loss(params):
            return recipes.bbf(params, *inputs, **options)[0]

        return descend(state, loss, OPTIMIZER, rate=RATE)

    def act(state, key, s):
        return rlaxlib.epsilon_greedy(EPSILON).sample(key, q(state.target, s))

    return Agent(
        init=lambda key: begin(init(key), OPTIMIZER),
        act=act,
        best=lambda state, key, s: jnp.argmax(q(state.target, s)),
        update=update,
    )


def entry(agent, functions):
    return Entry(
        recipe=f"planning.{functions}",
        run=online(TASK, agent, UPDATES, steps=1, replay=64, window=10),
        about=TASK.about,
        random=TASK.random,
        best=TASK.best,
        states=0.95,
        fails=("reward",),  # Ten steps reach the far end without a bootstrap.
    )


ENTRIES = {
    "bbf": entry(agent(0.5, True), "bbf, bbf_schedule, bbf_reset"),
    "sr_spr": entry(agent(0.8, False), "bbf, bbf_reset"),
}
