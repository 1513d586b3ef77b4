"""Exact expectations of the library's functions over all trajectories of three MDPs."""

import functools

import contract
import jax
import numpy as np

from truth import mdp

STEPS = 3
MDPS = [mdp.random_mdp(kind) for kind in mdp.KINDS]


def deterministic(m):
    """Return the MDP with the first branch of each action only, and the best policy."""
    m = m._replace(prob=np.broadcast_to(np.eye(mdp.BRANCHES)[0], m.prob.shape))
    return m._replace(pi=mdp.greedy(mdp.optimal_values(m)))


WORLDS = {
    "random": MDPS,
    "deterministic": [deterministic(m) for m in MDPS],
    "layered": [mdp.random_mdp("layered", seed) for seed in range(3)],
}


@functools.cache
def streams(steps=STEPS, world="random"):
    """Return all trajectories of all MDPs, with axes `[MDP, N, ...]`."""
    each = [mdp.trajectories(m, steps)[0] for m in WORLDS[world]]
    return mdp.Stream(*map(np.stack, zip(*each, strict=True)))


@functools.cache
def averagings(policy, of_actions, steps=STEPS, world="random"):
    """Return the weights of `mdp.averaging` of all MDPs for the policy "pi" or "mu"."""
    each = (
        mdp.averaging(m, getattr(m, policy), steps, of_actions) for m in WORLDS[world]
    )
    return np.stack([*each])


def expected_errors(estimators, tables, settings, policy, *, of_actions):
    """Return expected errors of the first step, `[MDP, setting, table, cell, ...]`.

    Args:
        estimators: Function of a table, a stream and a setting, which returns one error
            for each step, or several; or a dictionary of many.
        tables: Tables of values, shape `[M, ...]`.
        settings: Settings of the estimator, shape `[K, ...]`; or a dictionary.
        policy: Policy that acts, "pi" or "mu".
        of_actions: Whether cells are pairs of a state and an action, or states.
    """
    weights = averagings(policy, of_actions)

    def average(estimator, settings, streams, tables, weights):
        average = functools.partial(_average, estimator)
        average = jax.vmap(average, in_axes=(0, None, 0, None))
        average = jax.vmap(average, in_axes=(None, 0, None, None))
        average = jax.vmap(average, in_axes=(None, None, None, 0))
        return average(streams, tables, weights, settings)

    errors = _map(average, estimators, settings, streams(), tables, weights)
    return jax.tree.map(lambda x: np.moveaxis(x, 2, 0), errors)


def fixed_points(estimators, settings, policy, *, steps, of_actions=True, **of_world):
    """Return the limits of repeated expected updates, `[MDP, setting, ...]`."""
    weights = averagings(policy, of_actions, steps, **of_world)
    shape = (mdp.STATES, mdp.ACTIONS) if of_actions else (mdp.STATES,)

    def limits(estimator, settings, streams, weights):
        def limit(stream, weights, setting):
            def update(_, table):
                errors = _average(estimator, stream, table, weights, setting)
                return table + errors.reshape(shape)

            # 0.8^130 = 2.5e-13
            return jax.lax.fori_loop(0, 130, update, np.zeros(shape))

        limit = jax.vmap(limit, in_axes=(None, None, 0))
        return jax.vmap(limit, in_axes=(0, 0, None))(streams, weights, settings)

    return _map(limits, estimators, settings, streams(steps, **of_world), weights)


def _map(function, estimators, settings, *data):
    """Call a function with each estimator and its settings, in one program."""

    @jax.jit
    def program(settings, *data):
        return jax.tree.map(lambda f, x: function(f, x, *data), estimators, settings)

    with contract.x64(True):
        return jax.tree.map(np.asarray, program(settings, *data))


def _average(estimator, stream, table, weights, setting):
    """Return the expected errors of the first step, one or several for each cell."""
    errors = jax.vmap(lambda step: estimator(table, step, setting)[0])(stream)
    return weights.T @ errors
