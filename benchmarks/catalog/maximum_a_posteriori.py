"""MPO, V-MPO and policy targets: what is measured."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from benchmarks.case import Case
from benchmarks.catalog.shared import row
from benchmarks.inputs import Input, Size, normal, positive, unit
from rlaxlib import LagrangePenalty

Step = Callable[..., Any]

# Twenty sampled actions a state; a batch of steps of V-MPO.
STATES = (Size(batch=256, steps=20, actions=6),)
BATCH = (Size(batch=160, steps=512, actions=6),)

_each = LagrangePenalty(2.0, 0.01, per_dimension=True)
_temperature = LagrangePenalty(0.5, 0.1)


def _at_a_time(function: Callable[[Any], Step]) -> Callable[[Any], Step]:
    """Make a step of a function and its gradient, which take all streams at once."""

    def step(library: Any) -> Step:
        def losses(arrays: tuple[Array, ...]) -> tuple[Array, Any]:
            outputs = function(library)(*arrays)
            return sum(jnp.mean(each) for each in jax.tree.leaves(outputs)), outputs

        def run(*arrays: Array) -> Any:
            return jax.grad(losses, has_aux=True)(arrays)

        return run

    return step


def _mpo(library: Any) -> Step:
    """Return MPO's loss, with a constraint on the mean and one on the covariance."""

    def loss(log_probs: Array, q: Array, kl: Array, alpha: Array) -> Array:
        penalty = library.LagrangePenalty(alpha[0, 0], 0.01, per_dimension=True)
        return library.mpo_loss(
            log_probs,
            q,
            library.LagrangePenalty(0.5, 0.1),
            [(kl, penalty), (kl, penalty)],
            sample_axis=1,
        )[0]

    return loss


def _vmpo(library: Any) -> Step:
    def loss(log_probs: Array, advantages: Array, kl: Array) -> Array:
        return library.vmpo_loss(
            log_probs,
            advantages,
            library.LagrangePenalty(0.5, 0.1),
            [(kl, library.LagrangePenalty(2.0, 0.01))],
        )[0]

    return loss


def _e_step(library: Any) -> Step:
    def weights(q: Array) -> tuple[Array, Array]:
        return library.mpo_compute_weights_and_temperature_loss(
            q, library.LagrangePenalty(0.5, 0.1), jax.nn.softplus, sample_axis=1
        )[:2]

    return weights


def _vmpo_e_step(library: Any) -> Step:
    def weights(advantages: Array) -> tuple[Array, Array]:
        ones = jnp.ones_like(advantages)
        return library.vmpo_compute_weights_and_temperature_loss(
            advantages,
            ones,
            ones,
            library.LagrangePenalty(0.5, 0.1),
            jax.nn.softplus,
            0.5,
        )[:2]

    return weights


def _constraints(library: Any) -> Step:
    def losses(kl: Array, alpha: Array) -> tuple[Array, Array]:
        penalty = library.LagrangePenalty(alpha[0, 0], 0.01, per_dimension=True)
        return library.compute_parametric_kl_penalty_and_dual_loss(
            [(kl, penalty), (kl, penalty)], jax.nn.softplus
        )

    return losses


def _case(
    name: str,
    function: Callable[[Any], Step],
    sizes: tuple[Size, ...],
    **inputs: Input,
) -> Case:
    """Return a case of a function that takes all streams at once, and its gradient."""
    return Case(name=name, inputs=inputs, sizes=sizes, step=_at_a_time(function))


CASES = (
    _case(
        "mpo_loss",
        _mpo,
        STATES,
        sample_log_probs=normal("20 T"),
        sample_q_values=normal("20 T"),
        kl=positive("T A"),
        alpha=unit("T A"),
    ),
    _case(
        "mpo_compute_weights_and_temperature_loss",
        _e_step,
        STATES,
        sample_q_values=normal("20 T"),
    ),
    _case(
        "compute_parametric_kl_penalty_and_dual_loss",
        _constraints,
        STATES,
        kl=positive("T A"),
        alpha=unit("T A"),
    ),
    _case(
        "vmpo_loss",
        _vmpo,
        BATCH,
        sample_log_probs=normal("T"),
        advantages=normal("T"),
        kl=positive("T"),
    ),
    _case(
        "vmpo_compute_weights_and_temperature_loss",
        _vmpo_e_step,
        BATCH,
        advantages=normal("T"),
    ),
    row(
        "gaussian_mpo_loss",
        (Size(batch=4096, actions=6),),
        settings={
            "temperature_constraint": _temperature,
            "mean_constraint": _each,
            "stddev_constraint": _each,
            "bounds_constraint": _temperature,
        },
        mu=normal("A"),
        sigma=positive("A"),
        target_mu=normal("A"),
        target_sigma=positive("A"),
        sample_actions=normal("20 A"),
        sample_q_values=normal("20"),
    ),
    row(
        "categorical_mpo_loss",
        settings={
            "temperature_constraint": _temperature,
            "policy_constraint": LagrangePenalty(2.0, 0.01),
        },
        logits=normal("A"),
        target_logits=normal("A"),
        q_values=normal("A"),
    ),
)
