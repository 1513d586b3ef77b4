"""Exact expectations of the library's functions over all trajectories of three MDPs."""

import functools

import contract
import jax
import jax.numpy as jnp
import numpy as np

from truth import mdp

STEPS = 3
MDPS = [mdp.random_mdp(kind) for kind in mdp.KINDS]


@functools.cache
def streams(steps=STEPS):
    """Return all trajectories of all MDPs, with axes `[MDP, N, ...]`."""
    each = [mdp.trajectories(m, steps)[0] for m in MDPS]
    return mdp.Stream(*map(np.stack, zip(*each, strict=True)))


@functools.cache
def averagings(policy, of_actions, steps=STEPS):
    """Return the weights of all MDPs, where the policy is "pi" or "mu"."""
    return np.stack(
        [mdp.averaging(m, getattr(m, policy), steps, of_actions) for m in MDPS]
    )


def expected_errors(estimator, tables, settings, policy, steps=STEPS):
    """Return expected errors of the first step, `[MDP, setting, table, cell]`.

    Args:
        estimator: Function of a table, a stream and a setting, which returns one error
            for each step.
        tables: State values, shape `[MDP, M, S]`, or action values, shape
            `[MDP, M, S, A]`.
        settings: Settings of the estimator, shape `[K, ...]`.
        policy: Policy that acts, "pi" or "mu".
        steps: Number of steps of the trajectories.
    """
    weights = averagings(policy, tables.ndim == 4, steps)
    with contract.x64(True):
        average = functools.partial(_average, estimator)
        average = jax.jit(jax.vmap(average, in_axes=(0, 0, 0, None)))
        errors = average(tables, streams(steps), weights, settings)
    return np.asarray(errors)


def _average(estimator, tables, stream, weights, settings):
    def first(setting, table, step):
        return estimator(table, step, setting)[0]

    each = jax.vmap(first, in_axes=(None, None, 0))
    each = jax.vmap(each, in_axes=(None, 0, None))
    each = jax.vmap(each, in_axes=(0, None, None))
    return each(settings, tables, stream) @ weights
