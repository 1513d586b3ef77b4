"""The zoo's cures of networks that cannot learn: DQN on the corridor, with dead units.

All hidden units begin with a bias so low that they are 0 for all inputs, and have no
gradient. Without a cure all states have the same values. The action that goes on
differs from cell to cell, so that one action for all states goes back and forth.
"""

import jax
import jax.numpy as jnp
import optax
from recipes import plasticity as recipes
from recipes import value_based

import rlaxlib
from zoo.networks import mlp
from zoo.tasks import corridor
from zoo.training import Agent, Entry, begin, descend, online


def winding():
    """Return the corridor, in every second cell of which actions are swapped."""
    straight = corridor()
    return straight._replace(
        about=f"{straight.about}; actions are swapped in every second cell",
        step=lambda key, x, a: straight.step(key, x, jnp.where(x % 2 == 0, 1 - a, a)),
    )


TASK = winding()
A = TASK.actions
HIDDEN = 32
UPDATES = 2000
OPTIMIZER = optax.adam(optax.linear_schedule(5e-3, 0.0, UPDATES))
PERIOD = 20
EPSILON = 0.5
EVERY = 100  # Updates from one cure to the next.
LAST = 1000  # The last cure.


def hidden(params, s):
    weight, bias = params[0]
    return jax.nn.relu(s @ weight + bias)


def q(params, s):
    weight, bias = params[1]
    return hidden(params, s) @ weight + bias


def fresh(key):
    return mlp(key, TASK.size, HIDDEN, A)


def dead(params):
    """Return parameters whose hidden units are 0."""
    (weight, bias), last = params
    return [(weight, bias - 2.0), last]


def dqn(params, target, batch):
    return value_based.dqn(params, target, q, batch)


def no_cure(params, key, batch):
    return params


def redo(params, key, batch):
    """Return parameters after ReDo, which renews biases, too."""
    (w_in, b_in), (w_out, b_out) = params
    (fresh_in, fresh_b), _ = fresh(key)
    joined = jnp.vstack([w_in, b_in]), w_out, jnp.vstack([fresh_in, fresh_b])
    w_in, w_out = recipes.redo(hidden(params, batch.s_tm1), *joined)
    return [(w_in[:-1], w_in[-1]), (w_out, b_out)]


def partial_reset(params, key, batch):
    return recipes.partial_reset(params, fresh(key), keep=0.5)


def agent(loss, cure=no_cure):
    """Return an ε-greedy agent.

    Args:
        loss: Function of the first parameters, before units died, parameters, target
            parameters and batch.
        cure: Function of parameters, key and batch to parameters.
    """

    def init(key):
        params = fresh(key)
        return begin(dead(params), OPTIMIZER), params

    def act(learner, key, s):
        return rlaxlib.epsilon_greedy(EPSILON).sample(key, q(learner[0].params, s))

    def update(learner, key, batch):
        state, first = learner
        state = descend(
            state, lambda p: loss(first, p, state.target, batch), OPTIMIZER, PERIOD
        )
        cured = cure(state.params, key, batch)
        now = (state.count % EVERY == 0) & (state.count <= LAST)
        params = rlaxlib.tree_select(now, cured, state.params)
        return state._replace(params=params), first

    return Agent(
        init=init,
        act=act,
        best=lambda learner, key, s: jnp.argmax(q(learner[0].params, s)),
        update=update,
    )


def plain(first, params, target, batch):
    return dqn(params, target, batch)


def l2_init(first, params, target, batch):
    return recipes.l2_init(params, first, lambda p: dqn(p, target, batch), WEIGHT)


WEIGHT = 1e-3


def entry(name, own):
    """Return an entry on the corridor."""
    options = {"updates": UPDATES, "steps": 1, "replay": 64}
    return Entry(
        recipe=f"plasticity.{name}",
        run=online(TASK, own, **options),
        about=f"{TASK.about}; all hidden units are dead at first",
        random=TASK.random,
        best=TASK.best,
        states=0.95,
        fails=("reward", "bootstrap"),
        without={"the cure": online(TASK, agent(plain), **options)},
    )


ENTRIES = {
    "redo": entry("redo", agent(plain, redo)),
    "partial_reset": entry("partial_reset", agent(plain, partial_reset)),
    "l2_init": entry("l2_init", agent(l2_init)),
}
