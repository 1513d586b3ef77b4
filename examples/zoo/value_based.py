"""The zoo's learners of action values, on the corridor, from replay."""

from collections import namedtuple
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import optax
from recipes import value_based as recipes

import rlaxlib
from zoo import r2d2
from zoo.networks import forward, mlp
from zoo.tasks import corridor, plane
from zoo.training import Agent, Batch, Entry, begin, descend, online

TASK = corridor()
A = TASK.actions
HIDDEN = 32
UPDATES = 1200
OPTIMIZER = optax.adam(optax.linear_schedule(5e-3, 0.0, UPDATES))
PERIOD = 20  # Updates from one copy of the target network to the next.
EPSILON = 0.5  # Exploration: half of the actions are random.
QUANTILES = 8
ATOMS = 21  # In [-1, 1].


def perceptron(key, outputs=A):
    """Return the parameters of a network."""
    return mlp(key, TASK.size, HIDDEN, outputs)


def agent(loss, init=perceptron, q=forward, epsilon=EPSILON, optimizer=OPTIMIZER):
    """Return an ε-greedy agent.

    Args:
        loss: Function of parameters, target parameters, batch and key.
        init: Function from a key to the first parameters.
        q: Function of parameters and an observation to action values, [A].
        epsilon: Exploration.
        optimizer: Optimizer.
    """

    def act(state, key, s):
        return rlaxlib.epsilon_greedy(epsilon).sample(key, q(state.params, s))

    def update(state, key, batch):
        return descend(
            state, lambda p: loss(p, state.target, batch, key), optimizer, PERIOD
        )

    return Agent(
        init=lambda key: begin(init(key), optimizer),
        act=act,
        best=lambda state, key, s: jnp.argmax(q(state.params, s), axis=-1),
        update=update,
    )


def entry(recipe, agent, fails=("reward", "bootstrap"), **options):
    """Return an entry on the corridor."""
    options = {"updates": UPDATES, "steps": 1, "replay": 64} | options
    return Entry(
        recipe=", ".join(f"value_based.{name}" for name in recipe.split()),
        run=online(TASK, agent, **options),
        about=TASK.about,
        random=TASK.random,
        best=TASK.best,
        states=0.95,
        fails=fails,
    )


def with_target(recipe, apply=forward, **options):
    """Return the loss of a recipe with a target network and without a key."""
    return lambda params, target, batch, key: recipe(
        params, target, apply, batch, **options
    )


def without_target(recipe, **options):
    return lambda params, target, batch, key: recipe(params, forward, batch, **options)


def pqn(params, target, batch, key):
    returns = recipes.pqn_targets(params, forward, batch)
    return recipes.pqn(params, forward, batch, returns)


# --- Networks. ---


def duel(params, s):
    """Return a state's value and advantages."""
    x = forward(params, s)
    return x[..., 0], x[..., 1:]


def duel_q(params, s):
    v, adv = duel(params, s)
    return jnp.vectorize(rlaxlib.dueling_q_values, signature="(),(a)->(a)")(v, adv)


def c51_logits(params, s):
    """Return the logits of the atoms of each action, [..., A, K]."""
    x = forward(params, s)
    return x.reshape(*x.shape[:-1], A, ATOMS)


def c51_q(params, s):
    return jax.nn.softmax(c51_logits(params, s)) @ jnp.linspace(-1, 1, ATOMS)


def quantiles(params, s):
    """Return quantiles, or samples, of each action, [..., N, A]."""
    x = forward(params, s)
    return x.reshape(*x.shape[:-1], QUANTILES, A)


def quantiles_q(params, s):
    return quantiles(params, s).mean(axis=-2)


def implicit_init(key):
    """Return parameters of networks of features, of fractions and of quantiles."""
    keys = jax.random.split(key, 4)
    return {
        "torso": mlp(keys[0], TASK.size, HIDDEN),
        "cosine": mlp(keys[1], HIDDEN, HIDDEN),
        "head": mlp(keys[2], HIDDEN, A),
        "fractions": mlp(keys[3], HIDDEN, QUANTILES, scale=0.1),
    }


def implicit(params, s, tau):
    """Return quantiles at fractions [..., N], as in IQN: [..., N, A]."""
    x = jnp.tanh(forward(params["torso"], s))
    cosines = jnp.vectorize(
        lambda tau: rlaxlib.cosine_embedding(tau, HIDDEN), signature="(n)->(n,d)"
    )(tau)
    weights = jax.nn.relu(forward(params["cosine"], cosines))
    return forward(params["head"], x[..., None, :] * weights)


def implicit_q(params, s):
    tau = rlaxlib.quantile_midpoints(QUANTILES)
    return implicit(params, s, tau).mean(axis=0)


# --- Losses that need more than a network. ---


def iqn(params, target, batch, key):
    return recipes.iqn(params, target, implicit, batch, key, 8, 8)


def munchausen_iqn(params, target, batch, key):
    return recipes.munchausen_iqn(params, target, implicit, batch, key, num=16)


def fractions(params, s):
    """Return ascending fractions from 0 to 1, [..., N + 1]."""
    x = jnp.tanh(forward(params["torso"], s))
    widths = jax.nn.softmax(forward(params["fractions"], jax.lax.stop_gradient(x)))
    ends = jnp.cumsum(widths, axis=-1)
    return jnp.concatenate([0 * ends[..., :1], ends], axis=-1)


FQF = SimpleNamespace(fractions=fractions, quantiles=implicit)


def fqf(params, target, batch, key):
    loss = recipes.fqf(params, target, FQF, batch)
    return loss + recipes.fqf_fractions(params, FQF, batch)


def fqf_q(params, s):
    tau = fractions(params, s)
    q = implicit(params, s, (tau[1:] + tau[:-1]) / 2)
    return jnp.diff(tau) @ q


PrioritisedBatch = namedtuple("PrioritisedBatch", (*Batch._fields, "probability"))


def prioritized(recipe, apply, **options):
    """Return the loss of prioritised replay, on one transition of four.

    The batch is uniform, and the priorities are the recipe's, as they are now.
    """

    def loss(params, target, batch, key):
        num = len(batch.r_t)
        batch = PrioritisedBatch(*batch, jnp.full(num, 1 / num))
        _, priorities = recipe(params, target, apply, batch, **options)
        p = rlaxlib.prioritized_probabilities(priorities, 0.5)
        rows = jax.random.choice(key, num, (num // 4,), p=p)
        batch = jax.tree.map(lambda x: x[rows], batch)._replace(probability=p[rows])
        return recipe(params, target, apply, batch, **options)[0]

    return loss


# --- Actions of several parts: branching DQN. ---


FORCES = jnp.linspace(-1, 1, 5)  # Of each axis of the plane.


def forces():
    """Return the plane, where each part of an action is one of five forces."""
    task = plane()

    def step(key, x, a):
        return task.step(key, x, FORCES[a])

    return task._replace(
        about="Point in the plane: one of five forces on each axis, at a cost",
        step=step,
        random=-15.4,
        best=-0.65,
    )


def branches(params, s):
    """Return a state's value, and the advantages of the forces on each axis."""
    x = forward(params, s)
    return x[..., 0], x[..., 1:].reshape(*x.shape[:-1], -1, len(FORCES))


def branching_dqn():
    task, updates = forces(), 2000
    return online(
        task,
        agent(
            prioritized(recipes.branching_dqn, branches),
            lambda key: mlp(key, task.size, 64, 1 + task.actions * len(FORCES)),
            lambda params, s: branches(params, s)[1],
            optimizer=optax.adam(optax.linear_schedule(5e-3, 0.0, updates)),
        ),
        **{"updates": updates, "steps": 1, "replay": 128},
    )


QUANTILE = {"init": partial(perceptron, outputs=QUANTILES * A), "q": quantiles_q}
CATEGORICAL = {"init": partial(perceptron, outputs=ATOMS * A), "q": c51_q}
DUEL = {"init": partial(perceptron, outputs=1 + A), "q": duel_q}
RANGE = {"low": -1.0, "high": 1.0}
WINDOWS = {"replay": 128, "window": 3}
FQF_OPTIMIZER = optax.multi_transform(
    {"quantiles": OPTIMIZER, "fractions": optax.rmsprop(1e-4)},
    lambda params: {
        name: "fractions" if name == "fractions" else "quantiles" for name in params
    },
)

ENTRIES = {
    "dqn": entry("dqn", agent(with_target(recipes.dqn))),
    "double_dqn": entry("double_dqn", agent(with_target(recipes.double_dqn))),
    "dueling_dqn": entry(
        "dueling_dqn", agent(with_target(recipes.dueling_dqn, duel), **DUEL)
    ),
    # Without a bootstrap, 9 of 25 runs reach the far end, too.
    "c51": entry(
        "c51",
        agent(with_target(recipes.c51, c51_logits, **RANGE), **CATEGORICAL),
        fails=("reward",),
    ),
    "qr_dqn": entry(
        "qr_dqn", agent(with_target(recipes.qr_dqn, quantiles), **QUANTILE)
    ),
    "iqn": entry("iqn", agent(iqn, implicit_init, implicit_q), replay=32),
    "fqf": entry(
        "fqf fqf_fractions",
        agent(fqf, implicit_init, fqf_q, optimizer=FQF_OPTIMIZER),
        replay=32,
    ),
    "mmd_dqn": entry(
        "mmd_dqn", agent(with_target(recipes.mmd_dqn, quantiles), **QUANTILE)
    ),
    "rainbow": entry(
        "rainbow",
        agent(prioritized(recipes.rainbow, c51_logits, **RANGE), **CATEGORICAL),
        fails=("reward",),  # Its n steps reach far without a bootstrap.
        **WINDOWS,
    ),
    # Without a bootstrap, 4 of 25 runs reach the far end, too.
    "munchausen_iqn": entry(
        "munchausen_iqn",
        agent(munchausen_iqn, implicit_init, implicit_q),
        fails=("reward",),
    ),
    "dqn_reg": entry("dqn_reg", agent(with_target(recipes.dqn_reg))),
    "munchausen_dqn": entry(
        "munchausen_dqn", agent(with_target(recipes.munchausen_dqn))
    ),
    "advantage_learning": entry(
        "advantage_learning", agent(with_target(recipes.advantage_learning))
    ),
    "persistent_advantage_learning": entry(
        "persistent_advantage_learning",
        agent(with_target(recipes.persistent_advantage_learning)),
    ),
    "deep_mellow": entry(
        "deep_mellow", agent(without_target(recipes.deep_mellow, omega=30.0))
    ),
    "pcl": entry(
        "pcl",
        agent(without_target(recipes.pcl, temperature=0.02)),
        window=8,
        replay=32,
    ),
    "n_step_dqn": entry(
        "n_step_dqn", agent(with_target(recipes.n_step_dqn)), window=4, replay=32
    ),
    "ape_x": entry(
        "ape_x", agent(prioritized(recipes.ape_x, duel_q), **DUEL), **WINDOWS
    ),
    "branching_dqn": Entry(
        recipe="value_based.branching_dqn",
        run=branching_dqn(),
        about=forces().about,
        random=forces().random,
        best=forces().best,
        states=-1.2,  # The worst of fifteen runs has -1.0.
        fails=("reward", "bootstrap"),
    ),
    "pqn": entry("pqn pqn_targets", agent(pqn), steps=8, replay=0),
    "r2d2": r2d2.ENTRY,
}
