"""The zoo's learners of action values, on the corridor, from replay."""

import jax
import jax.numpy as jnp
import optax
from recipes import value_based as recipes

import rlaxlib
from zoo.networks import forward, mlp
from zoo.tasks import corridor
from zoo.training import Agent, Entry, begin, descend, online

TASK = corridor()
OPTIMIZER = optax.adam(3e-3)
PERIOD = 20  # Updates from one copy of the target network to the next.


def agent(loss, outputs=TASK.actions, q=forward, epsilon=0.2):
    """Return an ε-greedy agent.

    Args:
        loss: Function of parameters, target parameters, batch and key.
        outputs: Size of the network's output.
        q: Function of parameters and an observation to action values, [A].
        epsilon: Exploration.
    """

    def act(state, key, s):
        return rlaxlib.epsilon_greedy(epsilon).sample(key, q(state.params, s))

    def update(state, key, batch):
        return descend(
            state, lambda p: loss(p, state.target, batch, key), OPTIMIZER, PERIOD
        )

    return Agent(
        init=lambda key: begin(mlp(key, TASK.size, 32, outputs), OPTIMIZER),
        act=act,
        best=lambda state, key, s: jnp.argmax(q(state.params, s)),
        update=update,
    )


def entry(recipe, agent, fails=("reward", "bootstrap"), **options):
    """Return an entry on the corridor."""
    options = {"updates": 600, "steps": 2, "replay": 64} | options
    return Entry(
        recipe=f"value_based.{recipe}",
        train=online(TASK, agent, **options),
        about=TASK.about,
        random=TASK.random,
        best=TASK.best,
        states=0.95,
        fails=fails,
    )


def dqn(params, target, batch, key):
    return recipes.dqn(params, target, forward, batch)


def c51_logits(params, s):
    """Return the logits of 21 atoms for each action."""
    x = forward(params, s)
    return x.reshape(*x.shape[:-1], TASK.actions, 21)


def c51(params, target, batch, key):
    return recipes.c51(params, target, c51_logits, batch, -1.0, 1.0)


def c51_q(params, s):
    return jax.nn.softmax(c51_logits(params, s)) @ jnp.linspace(-1, 1, 21)


def pqn(params, target, batch, key):
    return recipes.pqn(params, forward, batch)


ENTRIES = {
    "dqn": entry("dqn", agent(dqn)),
    "c51": entry("c51", agent(c51, 21 * TASK.actions, c51_q)),
    "pqn": entry("pqn", agent(pqn), steps=8, replay=0),
}
