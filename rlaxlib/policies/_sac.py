"""Soft actor-critic (SAC), discrete SAC and TD3: critic targets and policy losses.

Functions take time steps on any axes, and return one number for each. The value of an
action is one number, or the values by N critics on a first axis, whose minimum is used.
`ensemble_value` and `subset_minimum` choose otherwise.

Train critics on the targets, for example by `l2_loss`. The gradient of a policy loss
flows through the critics into the actions: do not update the critics with it.
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp

from rlaxlib import distributions
from rlaxlib._core import safe, streams
from rlaxlib._core.gradients import stop_if
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Bool, Float, Key

__all__ = [
    "discrete_sac_policy_loss",
    "discrete_sac_value",
    "sac_critic_target",
    "sac_policy_loss",
    "sac_temperature_loss",
    "td3_target_action",
]


@checked
def sac_critic_target(
    r_t: Float[ArrayLike, "..."],
    discount_t: Float[ArrayLike, "... in [-1, 1]"],
    q_t: Float[ArrayLike, "[...] or [N, ...]"],
    log_prob_t: Float[ArrayLike, "..."],
    temperature: Float[ArrayLike, "in [0, inf)"],
    *,
    stop_target_gradients: bool = True,
) -> Float[Array, "..."]:
    """Compute the critic target of soft actor-critic (SAC).

    Takes transitions, returns the target of each.

    ::

        y = r_t + γ_t (min_i q_i(s_t, a_t) - α log π(a_t | s_t)),
        a_t ~ π(· | s_t)

    Sample the next action from the current policy. For REDQ, pass
    `subset_minimum(key, q_t, 2)` as `q_t`. The target of TD3 has no entropy bonus, and
    the next action of `td3_target_action`.

    Args:
        r_t: Reward, shape `[...]`.
        discount_t: Discount in [-1, 1], 0 where the episode ended, shape `[...]`.
        q_t: Value of the next action, shape `[...]`; or by N critics, `[N, ...]`.
        log_prob_t: Log-density of the next action, shape `[...]`.
        temperature: Temperature :math:`α`, in [0, inf), shape `[]`.
        stop_target_gradients: Whether to stop the gradient of the target.

    Returns:
        Target :math:`y` of all critics, shape `[...]`.

    Raises:
        ArgumentError: If a shape, dtype or concrete `temperature` is wrong.

    Example:
        >>> print(rlaxlib.sac_critic_target(1.0, 0.5, jnp.array([4.0, 6.0]), -2.0, 3.0))
        6.0

    References:
        Tuomas Haarnoja and others, *Soft Actor-Critic Algorithms and Applications*,
        2018. https://arxiv.org/abs/1812.05905
    """
    v_t = _minimum(q_t, r_t) - temperature * log_prob_t
    target = r_t + streams.bootstrap(discount_t, v_t)
    return stop_if(stop_target_gradients, target)


@checked
def td3_target_action(
    key: Key[ArrayLike, ""],
    a_t: Float[ArrayLike, "D"],
    stddev: Float[ArrayLike, "[] or [D] in [0, inf)"] = 0.2,
    clip: Float[ArrayLike, "[] or [D] in [0, inf]"] = 0.5,
    minimum: Float[ArrayLike, "[] or [D]"] = -1.0,
    maximum: Float[ArrayLike, "[] or [D] in [minimum, inf]"] = 1.0,
) -> Float[Array, "D"]:
    """Add clipped Gaussian noise to a target action (target policy smoothing of TD3).

    Takes one action, returns one action.

    ::

        a' = clip(a + clip(σ ε, -c, c), l, h),   ε ~ Normal(0, 1)

    The defaults are those of TD3, for actions in [-1, 1]. Scale :math:`σ` and :math:`c`
    by half the range of other actions.

    Args:
        key: PRNG key, one for each action of a batch, shape `[]`.
        a_t: Action :math:`a` of the target policy, shape `[D]`.
        stddev: Standard deviation :math:`σ` of noise, in [0, inf), shape `[]` or `[D]`.
        clip: Maximum magnitude :math:`c` of the noise, in [0, inf], shape `[]` or
            `[D]`.
        minimum: Lower bound :math:`l` of the action, shape `[]` or `[D]`.
        maximum: Upper bound :math:`h`, in [`minimum`, inf], shape `[]` or `[D]`.

    Returns:
        Action :math:`a'`, shape `[D]`.

    Raises:
        ArgumentError: If a shape, dtype or concrete value is wrong.

    Example:
        >>> key, a_t = jax.random.key(0), jnp.array([0.5, 2.0])
        >>> print(rlaxlib.td3_target_action(key, a_t, clip=0.0))
        [0.5 1. ]

    References:
        Scott Fujimoto, Herke van Hoof and David Meger, *Addressing Function
        Approximation Error in Actor-Critic Methods*, 2018.
        https://arxiv.org/abs/1802.09477
    """
    epsilon = jax.random.normal(key, a_t.shape, jnp.result_type(a_t, stddev))
    noise = jnp.clip(stddev * epsilon, -clip, clip)
    return jnp.clip(a_t + noise, minimum, maximum)


@checked
def sac_policy_loss(
    log_prob: Float[ArrayLike, "..."],
    q: Float[ArrayLike, "[...] or [N, ...]"],
    temperature: Float[ArrayLike, "in [0, inf)"],
    *,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "..."]:
    """Compute the policy loss of soft actor-critic (SAC).

    Takes actions, returns the loss of each.

    ::

        L = α log π(a_θ) - min_i q_i(a_θ),   a_θ = f_θ(ε)

    The gradient flows through the reparameterised action, such as
    :math:`tanh(μ + σ ε)`, into the critics and the log-density. The gradient of
    the temperature is stopped. For REDQ, pass `ensemble_value(q, "mean")`.

    Args:
        log_prob: Log-density of the action, shape `[...]`.
        q: Value of the action, shape `[...]`; or by N critics, shape `[N, ...]`.
        temperature: Temperature :math:`α`, in [0, inf), shape `[]`.
        sample_mask: False for actions to ignore, shape `[...]`; or None.

    Returns:
        Loss, shape `[...]`, 0 for ignored actions.

    Raises:
        ArgumentError: If a shape, dtype or concrete `temperature` is wrong.

    Example:
        >>> print(rlaxlib.sac_policy_loss(-2.0, jnp.array([4.0, 6.0]), 3.0))
        -10.0

    References:
        Tuomas Haarnoja and others, *Soft Actor-Critic Algorithms and Applications*,
        2018. https://arxiv.org/abs/1812.05905
    """
    entropy_cost = jax.lax.stop_gradient(temperature) * log_prob
    return entropy_cost - _minimum(q, log_prob)


@checked
def sac_temperature_loss(
    log_temperature: Float[ArrayLike, ""],
    log_prob: Float[ArrayLike, "..."],
    target_entropy: Float[ArrayLike, "[] or [...]"],
    kind: Literal["alpha", "log_alpha"] = "alpha",
    *,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "..."]:
    """Compute the temperature loss of soft actor-critic (SAC).

    Takes actions, returns the loss of each.

    ::

        L = -α (log π(a) + H̄),   α = exp(`log_temperature`)

    The temperature rises while the entropy is below its target :math:`H̄`. The gradient
    of the policy is stopped. The paper has :math:`H̄ = -D` for D dimensions in [-1, 1];
    for another range, add the logarithms of the scales. PyTorch implementations have
    :math:`log α` in place of :math:`α`, with the same optimum: the temperature then
    moves as fast when it is small.

    Discrete SAC sums over the actions: pass `-softmax().entropy(logits)` as `log_prob`.
    Its target is 0.98 of the maximum entropy, :math:`log A` for A legal actions. If the
    target is out of reach, the temperature grows without bound.

    Args:
        log_temperature: Logarithm of the temperature, to be trained, shape `[]`.
        log_prob: Log-density of an action sampled from the policy, shape `[...]`.
        target_entropy: Target entropy :math:`H̄` in nats, shape `[]` or `[...]`.
        kind: `"alpha"`, or `"log_alpha"` for the logarithm in its place.
        sample_mask: False for actions to ignore, shape `[...]`; or None.

    Returns:
        Loss, shape `[...]`, 0 for ignored actions.

    Raises:
        ArgumentError: If a shape, dtype or option is wrong.

    Example:
        >>> print(rlaxlib.sac_temperature_loss(0.0, log_prob=3.0, target_entropy=-2.0))
        -1.0

    References:
        Tuomas Haarnoja and others, *Soft Actor-Critic Algorithms and Applications*,
        section 5, 2018. https://arxiv.org/abs/1812.05905

        Petros Christodoulou, *Soft Actor-Critic for Discrete Action Settings*, 2019.
        https://arxiv.org/abs/1910.07207
    """
    deficit = jax.lax.stop_gradient(log_prob + target_entropy)
    factor = jnp.exp(log_temperature) if kind == "alpha" else log_temperature
    return -factor * deficit


@checked
def discrete_sac_value(
    logits: Float[ArrayLike, "..., A"],
    q: Float[ArrayLike, "[..., A] or [N, ..., A]"],
    temperature: Float[ArrayLike, "in [0, inf)"],
    *,
    action_mask: Bool[ArrayLike, "[A] or [..., A]"] | None = None,
) -> Float[Array, "..."]:
    """Compute the soft state value of discrete soft actor-critic (discrete SAC).

    Takes states, returns the value of each.

    ::

        v = ∑_a π(a) (min_i q_i(a) - α log π(a)),   π = softmax(logits)

    It replaces the sample of `sac_critic_target`: pass it as `v_t` to `qv_learning`. It
    is maximal for :math:`π = softmax(q/α)`, where it equals `soft_value`.

    Args:
        logits: Logits of the policy, shape `[..., A]`.
        q: Action values, shape `[..., A]`; or by N critics, shape `[N, ..., A]`.
        temperature: Temperature :math:`α`, in [0, inf), shape `[]`.
        action_mask: True for legal actions, shape `[A]` or `[..., A]`; or None.

    Returns:
        Value :math:`v`, shape `[...]`, 0 if no action is legal.

    Raises:
        ArgumentError: If a shape, dtype or concrete `temperature` is wrong.

    Example:
        >>> logits, q = jnp.zeros(2), jnp.array([[2.0, 8.0], [4.0, 6.0]])
        >>> print(rlaxlib.discrete_sac_value(logits, q, temperature=0.0))
        4.0

    References:
        Petros Christodoulou, *Soft Actor-Critic for Discrete Action Settings*, 2019.
        https://arxiv.org/abs/1910.07207
    """
    return _soft_value(logits, q, temperature, action_mask)


@checked
def discrete_sac_policy_loss(
    logits: Float[ArrayLike, "..., A"],
    q: Float[ArrayLike, "[..., A] or [N, ..., A]"],
    temperature: Float[ArrayLike, "in [0, inf)"],
    *,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
    action_mask: Bool[ArrayLike, "[A] or [..., A]"] | None = None,
) -> Float[Array, "..."]:
    """Compute the policy loss of discrete soft actor-critic (discrete SAC).

    Takes states, returns the loss of each.

    ::

        L = ∑_a π(a) (α log π(a) - min_i q_i(a)),   π = softmax(logits)

    The gradients of the action values and the temperature are stopped.

    Args:
        sample_mask: False for states to ignore, shape `[...]`; or None.
        Other arguments: as `discrete_sac_value`.

    Returns:
        Loss, shape `[...]`, 0 for ignored states and if no action is legal.

    Raises:
        ArgumentError: If a shape, dtype or concrete `temperature` is wrong.

    Example:
        >>> logits, q = jnp.zeros(2), jnp.array([[2.0, 8.0], [4.0, 6.0]])
        >>> print(jax.grad(rlaxlib.discrete_sac_policy_loss)(logits, q, 1.0))
        [ 1. -1.]

    References:
        Petros Christodoulou, *Soft Actor-Critic for Discrete Action Settings*, 2019.
        https://arxiv.org/abs/1910.07207
    """
    q, temperature = jax.lax.stop_gradient((q, temperature))
    return -_soft_value(logits, q, temperature, action_mask)


def _minimum(q: Array, like: Array) -> Array:
    """Return the least value by N critics, of the shape of another array."""
    return q if q.ndim == like.ndim else jnp.min(q, axis=0)


def _soft_value(
    logits: Array, q: Array, temperature: Array, action_mask: Array | None
) -> Array:
    """Return the expected action value plus the temperature times the entropy."""
    policy = distributions.softmax()
    pi = policy.probs(logits, action_mask=action_mask)
    entropy = policy.entropy(logits, action_mask=action_mask)
    if action_mask is not None:
        q = jnp.where(streams.filled(action_mask, q), q, 0)
    return safe.expectation(pi, _minimum(q, logits)) + temperature * entropy
