"""Rows of `policies/_distillation.py`, and their definitions in NumPy."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from contract import ACTIONS, actions
from row import Gradients, Loose, Row

SAMPLES, STATES = 3, 2


# Values that half precision represents exactly. They need not be normalised.
LOG_PROBS = -np.arange(1.0, 1.0 + STATES * ACTIONS).reshape(STATES, ACTIONS) / 4


class Categorical(NamedTuple):
    """A policy with only the methods that the functions use."""

    log_probs: Any

    @property
    def batch_shape(self):
        return self.log_probs.shape[:-1]

    def sample(self, *, seed, sample_shape):
        shape = (*sample_shape, *self.batch_shape)
        return jax.random.categorical(seed, self.log_probs, shape=shape)

    def log_prob(self, value):
        # Not by indexing, which does not know its sharding on an explicit mesh.
        shape = (*value.shape, self.log_probs.shape[-1])
        table = jnp.broadcast_to(self.log_probs, shape)
        taken = jax.nn.one_hot(value, shape[-1], dtype=bool)
        return jnp.sum(table, axis=-1, where=taken)


def policy(x):
    """Return a policy with the dtype of an argument."""
    return Categorical(jnp.asarray(LOG_PROBS, getattr(x, "dtype", jnp.float32)))


def sampled_policy_distillation_loss(**policy_targets):
    taken, weights = parts(policy_targets)
    states = np.broadcast_to(np.arange(STATES), taken.shape)
    return -np.mean(weights * LOG_PROBS[states, taken])


def parts(policy_targets):
    """Return actions and weights from the arguments of these names."""
    return [policy_targets[f"policy_targets.{name}"] for name in ("actions", "weights")]


def sampling(name):
    def find(library):
        def call(rng_key, weights_scale):
            return getattr(library, name)(
                policy(weights_scale), rng_key, SAMPLES, weights_scale=weights_scale
            )

        return call

    return find


def distilling(library):
    def loss(stop_target_gradients=True, **policy_targets):
        taken, weights = parts(policy_targets)
        return library.sampled_policy_distillation_loss(
            policy(weights),
            library.PolicyTarget(actions=taken, weights=weights),
            stop_target_gradients,
        )

    return loss


def make_targets(rng):
    return {
        "policy_targets.actions": actions(rng, SAMPLES, STATES),
        "policy_targets.weights": rng.uniform(0.5, 1.5, (SAMPLES, STATES)),
    }


ROWS = [
    *(
        Row(
            "the samples depend on the key",
            lambda rng: {"weights_scale": np.asarray(rng.uniform(0.5, 1.5))},
            name=name,
            loose=Loose(batches=True),
            find=sampling(name),
        )
        for name in ("constant_policy_targets", "zero_policy_targets")
    ),
    Row(
        sampled_policy_distillation_loss,
        make_targets,
        find=distilling,
        gradients=Gradients(targets=("policy_targets.weights",)),
    ),
]
