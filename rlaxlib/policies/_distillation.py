"""Policy distillation: sampled policy targets, and the cross-entropy loss on them.

A policy is a distribution object with `sample`, `log_prob` and `batch_shape`, as in
distrax and TensorFlow Probability. Functions take the whole batch of states that the
object is defined for.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from rlaxlib._core import dtypes, safe
from rlaxlib._core.gradients import stop_if
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Float, Key, Shaped, Static
from rlaxlib.policies._shared import check_shape

__all__ = [
    "PolicyTarget",
    "constant_policy_targets",
    "sampled_policy_distillation_loss",
    "zero_policy_targets",
]


class Distribution(Protocol):
    """The methods of a distribution object that these functions use."""

    @property
    def batch_shape(self) -> Any:
        """Shape of the batch of states."""
        ...

    def sample(self, *, seed: Any, sample_shape: Any) -> Any:
        """Sample actions, with the axes of `sample_shape` before `batch_shape`."""
        ...

    def log_prob(self, value: Any) -> Any:
        """Return the log-probability of an action for each state."""
        ...


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PolicyTarget:
    """Sampled actions and their weights, a target for a policy.

    Attributes:
        actions: N actions for each state, shape `[N, ...]`.
        weights: Weights, such as the ratios of a target to the sampled policy, of the
            shape of the log-probabilities, shape `[N, ...]`.
    """

    actions: Shaped[Array, "*_"]
    weights: Float[Array, "*_"]

    def replace(self, **changes: Any) -> PolicyTarget:
        """Return a copy with some arrays replaced.

        Args:
            **changes: The new arrays by name.

        Returns:
            The copy.
        """
        return dataclasses.replace(self, **changes)


@checked
def constant_policy_targets(
    distribution: Distribution,
    rng_key: Key[ArrayLike, ""],
    num_samples: Static[int, "in [1, inf)"],
    weights_scale: Float[ArrayLike, ""] = 1.0,
) -> PolicyTarget:
    """Sample policy targets of constant weight.

    Takes the policy of a batch of states, returns N actions and weights for each state.

    ::

        a_i ~ p,   w_i = c,   i = 1 … N

    Args:
        distribution: Distribution with `sample`, `log_prob` and `batch_shape`.
        rng_key: PRNG key, shape `[]`.
        num_samples: Number :math:`N` of actions for each state, in [1, inf).
        weights_scale: Weight :math:`c` of each action, shape `[]`.

    Returns:
        A `PolicyTarget` with weights of shape `[N, *batch_shape]`.

    Raises:
        ArgumentError: If a shape, dtype or `num_samples` is wrong.

    Example:
        >>> import distrax
        >>> uniform, key = distrax.Categorical(logits=jnp.zeros(4)), jax.random.key(0)
        >>> print(rlaxlib.constant_policy_targets(uniform, key, 3, 0.5).weights)
        [0.5 0.5 0.5]

    References:
        Matteo Hessel and others, *Muesli: Combining Improvements in Policy
        Optimization*, 2021. https://arxiv.org/abs/2104.06159
    """
    actions = distribution.sample(seed=rng_key, sample_shape=(num_samples,))
    log_prob = distribution.log_prob(actions[0])
    # Half precision of the scale is raised, that of a distribution is not.
    with jax.numpy_dtype_promotion("standard"):
        dtype = jnp.result_type(weights_scale, log_prob.dtype)
    shape = (num_samples, *log_prob.shape)
    return PolicyTarget(actions, jnp.full(shape, weights_scale, dtype))


@checked
def zero_policy_targets(
    distribution: Distribution,
    rng_key: Key[ArrayLike, ""],
    num_samples: Static[int, "in [1, inf)"],
    *,
    weights_scale: Float[ArrayLike, ""] = 0.0,
) -> PolicyTarget:
    """Sample policy targets of weight 0.

    Takes the policy of a batch of states, returns N actions and weights for each state.

    ::

        a_i ~ p,   w_i = 0,   i = 1 … N

    Use them in place of other targets, such as those beyond the end of an episode.

    Args:
        distribution: Distribution with `sample`, `log_prob` and `batch_shape`.
        rng_key: PRNG key, shape `[]`.
        num_samples: Number :math:`N` of actions for each state, in [1, inf).
        weights_scale: Weight of each action; leave it at 0, shape `[]`.

    Returns:
        A `PolicyTarget` with weights of shape `[N, *batch_shape]`.

    Raises:
        ArgumentError: If a shape, dtype or `num_samples` is wrong.

    Example:
        >>> import distrax
        >>> uniform = distrax.Categorical(logits=jnp.zeros(4))
        >>> print(rlaxlib.zero_policy_targets(uniform, jax.random.key(0), 3).weights)
        [0. 0. 0.]

    References:
        Matteo Hessel and others, *Muesli: Combining Improvements in Policy
        Optimization*, 2021. https://arxiv.org/abs/2104.06159
    """
    return constant_policy_targets(distribution, rng_key, num_samples, weights_scale)


@checked
def sampled_policy_distillation_loss(
    distribution: Distribution,
    policy_targets: PolicyTarget,
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Compute the sampled policy-distillation (cross-entropy) loss.

    Takes the policy of a batch of states, returns the mean loss.

    ::

        L = -(1/N) ∑_i w_i log π(a_i)

    The loss is also averaged over states. With samples from :math:`p` and weights
    :math:`q(a)/p(a)` it estimates the cross-entropy of :math:`π` relative to :math:`q`.

    Args:
        distribution: Policy :math:`π`, with `log_prob` and `batch_shape`.
        policy_targets: A `PolicyTarget` of actions :math:`a_i` and weights :math:`w_i`.
        stop_target_gradients: Whether to stop the gradients of the actions and weights.

    Returns:
        Loss, shape `[]`. An impossible action of weight 0 adds nothing.

    Raises:
        ArgumentError: If the shape or dtype of weights or log-probabilities is wrong.

    Example:
        >>> import distrax
        >>> policy = distrax.Categorical(probs=jnp.array([0.25, 0.75]))
        >>> targets = rlaxlib.PolicyTarget(jnp.array([0, 1]), jnp.array([2.0, 0.0]))
        >>> print(f"{rlaxlib.sampled_policy_distillation_loss(policy, targets):.4f}")
        1.3863

    References:
        Matteo Hessel and others, *Muesli: Combining Improvements in Policy
        Optimization*, section 4.1, 2021. https://arxiv.org/abs/2104.06159
    """
    actions, weights = stop_if(
        stop_target_gradients, (policy_targets.actions, policy_targets.weights)
    )
    # Map over the samples, so that the distribution need not broadcast.
    log_prob = distribution.log_prob
    for _ in range(min(weights.ndim - len(distribution.batch_shape), actions.ndim)):
        log_prob = jax.vmap(log_prob)
    log_probs = log_prob(actions)
    name, taken = "policy_targets.weights", "log_prob(policy_targets.actions)"
    check_shape(name, weights, [log_probs.shape], taken, log_probs)
    # Half precision of a distribution is not raised, as that of arguments is.
    log_probs = dtypes.raised(log_probs)
    return -jnp.mean(safe.expectation(weights, log_probs, axis=0)) / len(weights)
