"""Learn off-policy from critics: soft actor-critic, for actions of any kind, and TD3.

Functions here take one step; `jax.vmap` makes the batch. The values of an action by N
critics are one array, `[N]`, the ensemble its only axis, so that no minimum can be
taken over the batch. To use the mean of the critics, as REDQ's policy does, give that
alone, `[1]`.

A critic is trained on a target, say by `l2_loss`. A policy is trained through the
critics, whose parameters are to be held constant meanwhile.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib import distributions
from rlaxlib._core import checks, dtypes, gradients

__all__ = [
    "clipped_double_q_target",
    "discrete_soft_policy_loss",
    "discrete_soft_value",
    "discrete_temperature_loss",
    "smoothed_target_action",
    "soft_actor_critic_target",
    "soft_policy_loss",
    "temperature_loss",
]


def soft_actor_critic_target(
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    log_prob_t: ArrayLike,
    temperature: ArrayLike,
    *,
    stop_target_gradients: bool = True,
) -> Array:
    """Return what soft actor-critic's critics learn to predict.

    .. math::

        y = r_t + γ_t (min_i q_i(s_t, a_t) - α log π(a_t | s_t)),
        a_t ~ π(· | s_t)

    The action is drawn anew from the current policy, not taken from the experience. The
    entropy of the last state of an episode counts no more than its value does. With
    :math:`α = 0` this is `clipped_double_q_target`.

    Args:
        r_t: Reward, shape `[]`.
        discount_t: Discount in [0, 1], 0 where the episode ended, shape `[]`.
        q_t: Values :math:`q_i` of the next action by each of N target critics,
            shape `[N]`.
        log_prob_t: Log-density of the next action, shape `[]`.
        temperature: Temperature :math:`α`, at least 0, shape `[]`.
        stop_target_gradients: Whether to hold the target constant under
            differentiation.

    Returns:
        Target :math:`y`, the same for all critics, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if `temperature`
            is negative.

    Example:
        >>> q_t = jnp.array([4.0, 6.0])
        >>> target = rlaxlib.soft_actor_critic_target(
        ...     1.0, 0.5, q_t, log_prob_t=-2.0, temperature=3.0
        ... )
        >>> print(target)
        6.0

    References:
        Tuomas Haarnoja and others, *Soft Actor-Critic Algorithms and Applications*,
        2018. https://arxiv.org/abs/1812.05905
    """
    r_t, discount_t, q_t, log_prob_t, temperature = checks.arrays(
        r_t=(r_t, "float[]"),
        discount_t=(discount_t, "float[]"),
        q_t=(q_t, "float[N]"),
        log_prob_t=(log_prob_t, "float[]"),
        temperature=(temperature, "float[]"),
    )
    checks.within("[0, inf)", temperature=temperature)
    (r_t, discount_t, q_t, log_prob_t, temperature), narrow = dtypes.widen(
        r_t, discount_t, q_t, log_prob_t, temperature
    )
    target = r_t + discount_t * (jnp.min(q_t) - temperature * log_prob_t)
    return narrow(gradients.stop_if(stop_target_gradients, target))


def clipped_double_q_target(
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    *,
    stop_target_gradients: bool = True,
) -> Array:
    """Return what TD3's critics learn to predict.

    .. math::

        y = r_t + γ_t min_i q_i(s_t, a_t)

    A policy finds the actions that a critic values too highly. Another critic seldom
    errs in the same place, so the lower of two does not; and values that are too low
    are not sought out, and do not spread.

    Args:
        r_t: Reward, shape `[]`.
        discount_t: Discount in [0, 1], 0 where the episode ended, shape `[]`.
        q_t: Values :math:`q_i` of the next action by each of N target critics,
            shape `[N]`. TD3's is a `smoothed_target_action`.
        stop_target_gradients: Whether to hold the target constant under
            differentiation.

    Returns:
        Target :math:`y`, the same for all critics, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype.

    Example:
        >>> print(rlaxlib.clipped_double_q_target(1.0, 0.5, jnp.array([4.0, 6.0])))
        3.0

    References:
        Scott Fujimoto, Herke van Hoof and David Meger, *Addressing Function
        Approximation Error in Actor-Critic Methods*, section 4.2, 2018.
        https://arxiv.org/abs/1802.09477
    """
    r_t, discount_t, q_t = checks.arrays(
        r_t=(r_t, "float[]"),
        discount_t=(discount_t, "float[]"),
        q_t=(q_t, "float[N]"),
    )
    (r_t, discount_t, q_t), narrow = dtypes.widen(r_t, discount_t, q_t)
    target = r_t + discount_t * jnp.min(q_t)
    return narrow(gradients.stop_if(stop_target_gradients, target))


def smoothed_target_action(
    key: ArrayLike,
    action: ArrayLike,
    stddev: ArrayLike,
    clip: ArrayLike,
    minimum: ArrayLike,
    maximum: ArrayLike,
) -> Array:
    """Blur the action of a target policy, to be valued by target critics (TD3).

    .. math::

        a' = clip(a + clip(σ ε, -c, c), l, h),   ε ~ Normal(0, 1)

    A deterministic policy sits on whatever narrow peak a critic has. The mean value of
    actions nearby has no such peaks: similar actions should have similar values.

    The noise is in units of the action. TD3 took :math:`σ = 0.2` and :math:`c = 0.5`
    for actions in [-1, 1]; for others, scale both by half their range.

    Args:
        key: Random key, shape `[]`. Each step of a batch needs its own.
        action: Action :math:`a` of the target policy, shape `[D]`.
        stddev: Standard deviation :math:`σ` of the noise, at least 0: one for all,
            shape `[]`; or for each dimension, shape `[D]`.
        clip: Largest size :math:`c` of the noise, at least 0: one for all, shape `[]`;
            or for each dimension, shape `[D]`.
        minimum: Lowest action :math:`l`: one for all dimensions, shape `[]`; or for
            each, shape `[D]`.
        maximum: Highest action :math:`h`, at least `minimum`: one for all dimensions,
            shape `[]`; or for each, shape `[D]`.

    Returns:
        Action :math:`a'`, shape `[D]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if `stddev` or
            `clip` is negative, or if the bounds are the wrong way round.

    Example:
        >>> key, action = jax.random.key(0), jnp.array([0.5, 2.0])
        >>> print(rlaxlib.smoothed_target_action(key, action, 0.2, 0.0, -1.0, 1.0))
        [0.5 1. ]

    References:
        Scott Fujimoto, Herke van Hoof and David Meger, *Addressing Function
        Approximation Error in Actor-Critic Methods*, section 5.3, 2018.
        https://arxiv.org/abs/1802.09477
    """
    key, action, stddev, clip, minimum, maximum = checks.arrays(
        key=(key, "key[]"),
        action=(action, "float[D]"),
        stddev=(stddev, "float[] or [D]"),
        clip=(clip, "float[] or [D]"),
        minimum=(minimum, "float[] or [D]"),
        maximum=(maximum, "float[] or [D]"),
    )
    checks.within("[0, inf)", stddev=stddev)
    checks.within("[0, inf]", clip=clip)
    checks.ordered(minimum=minimum, maximum=maximum)
    (action, stddev, clip, minimum, maximum), narrow = dtypes.widen(
        action, stddev, clip, minimum, maximum
    )
    noise = jax.random.normal(key, action.shape, jnp.result_type(action, stddev))
    noise = jnp.clip(stddev * noise, -clip, clip)
    return narrow(jnp.clip(action + noise, minimum, maximum))


def soft_policy_loss(
    log_prob: ArrayLike, q: ArrayLike, temperature: ArrayLike
) -> Array:
    """Make actions valuable, and the policy undecided (soft actor-critic).

    .. math::

        L = α log π(a_θ) - min_i q_i(a_θ),   a_θ = f_θ(ε)

    The action is one that the policy draws as a function of its parameters, such as
    :math:`tanh(μ + σ ε)`, and carries their gradient into both terms: into the values,
    through what the critics make of it, and into the log-density, of which
    `tanh_normal_log_prob` keeps the gradient right. The temperature is constant here:
    what it learns from is `temperature_loss`.

    Args:
        log_prob: Log-density of the action, shape `[]`.
        q: Values :math:`q_i` of the action by each of N critics, shape `[N]`.
        temperature: Temperature :math:`α`, at least 0, shape `[]`.

    Returns:
        Loss, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if `temperature`
            is negative.

    Example:
        >>> print(rlaxlib.soft_policy_loss(-2.0, jnp.array([4.0, 6.0]), 3.0))
        -10.0

    References:
        Tuomas Haarnoja and others, *Soft Actor-Critic Algorithms and Applications*,
        2018. https://arxiv.org/abs/1812.05905
    """
    log_prob, q, temperature = checks.arrays(
        log_prob=(log_prob, "float[]"),
        q=(q, "float[N]"),
        temperature=(temperature, "float[]"),
    )
    checks.within("[0, inf)", temperature=temperature)
    (log_prob, q, temperature), narrow = dtypes.widen(log_prob, q, temperature)
    return narrow(jax.lax.stop_gradient(temperature) * log_prob - jnp.min(q))


def temperature_loss(
    log_temperature: ArrayLike, log_prob: ArrayLike, target_entropy: ArrayLike
) -> Array:
    """Learn the temperature at which a policy has the entropy one wants.

    .. math::

        L = -α (log π(a) + H̄),   α = exp(`log_temperature`)

    Minimised, the temperature rises while the entropy, the mean of :math:`-log π(a)`,
    is less than :math:`H̄`, and falls while it is more. The policy is constant here.
    The paper takes :math:`H̄ = -D` for actions of D dimensions in [-1, 1]; where they
    are scaled to another range, and their densities with them, add the logarithms of
    the scales.

    Stable-Baselines3, Dopamine and TorchRL put :math:`log α` in place of :math:`α`. The
    sign and the point of rest are the same; the gradient by :math:`log α` is then not
    :math:`α` times as large. This is the paper's.

    Args:
        log_temperature: Logarithm of the temperature, the parameter to learn,
            shape `[]`.
        log_prob: Log-density of an action that the policy drew, shape `[]`.
        target_entropy: Entropy :math:`H̄` to aim at, in nats, shape `[]`.

    Returns:
        Loss, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype.

    Example:
        >>> print(rlaxlib.temperature_loss(0.0, log_prob=3.0, target_entropy=-2.0))
        -1.0

    References:
        Tuomas Haarnoja and others, *Soft Actor-Critic Algorithms and Applications*,
        section 5, 2018. https://arxiv.org/abs/1812.05905
    """
    log_temperature, log_prob, target_entropy = checks.arrays(
        log_temperature=(log_temperature, "float[]"),
        log_prob=(log_prob, "float[]"),
        target_entropy=(target_entropy, "float[]"),
    )
    (log_temperature, log_prob, target_entropy), narrow = dtypes.widen(
        log_temperature, log_prob, target_entropy
    )
    missing = jax.lax.stop_gradient(log_prob + target_entropy)
    return narrow(-jnp.exp(log_temperature) * missing)


def discrete_soft_value(
    logits: ArrayLike,
    q: ArrayLike,
    temperature: ArrayLike,
    *,
    mask: ArrayLike | None = None,
) -> Array:
    """Value a state by its actions and by how undecided the policy is there.

    .. math::

        v = ∑_a π(a) (min_i q_i(a) - α log π(a)),   π = softmax(logits)

    It is the exact mean over all actions of what `soft_actor_critic_target` has for
    one; as the value `v_t` of the next state, `qv_learning` makes an error of it. It is
    largest, and the `soft_value` of the action values, where the policy is the softmax
    of :math:`q/α`.

    Args:
        logits: Logits of the policy, shape `[A]`.
        q: Action values, shape `[A]`; or by each of N critics, :math:`q_i`,
            shape `[N, A]`.
        temperature: Temperature :math:`α`, at least 0, shape `[]`.
        mask: True where an action is legal, shape `[A]`; or None if all are.

    Returns:
        Value :math:`v`, shape `[]`; 0 where no action is legal.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if `temperature`
            is negative.

    Example:
        >>> logits, q = jnp.zeros(2), jnp.array([[2.0, 8.0], [4.0, 6.0]])
        >>> print(rlaxlib.discrete_soft_value(logits, q, temperature=0.0))
        4.0

    References:
        Petros Christodoulou, *Soft Actor-Critic for Discrete Action Settings*, 2019.
        https://arxiv.org/abs/1910.07207
    """
    logits, q, temperature, mask = checks.arrays(
        logits=(logits, "float[A]"),
        q=(q, "float[A] or [N, A]"),
        temperature=(temperature, "float[]"),
        mask=(mask, "bool[A] or None"),
    )
    checks.within("[0, inf)", temperature=temperature)
    (logits, q, temperature), narrow = dtypes.widen(logits, q, temperature)
    return narrow(_soft_value(logits, q, temperature, mask))


def discrete_soft_policy_loss(
    logits: ArrayLike,
    q: ArrayLike,
    temperature: ArrayLike,
    *,
    mask: ArrayLike | None = None,
) -> Array:
    """Make valuable actions likely, and the policy undecided, for all actions at once.

    .. math::

        L = ∑_a π(a) (α log π(a) - min_i q_i(a)),   π = softmax(logits)

    It is `discrete_soft_value` with a minus sign, of which the action values and the
    temperature are constant. Up to a constant it is :math:`α` times the divergence of
    the policy from the softmax of :math:`q/α`. The sum over actions needs no sample,
    and so no gradient through one.

    Args:
        logits: Logits of the policy, shape `[A]`.
        q: Action values, shape `[A]`; or by each of N critics, :math:`q_i`,
            shape `[N, A]`.
        temperature: Temperature :math:`α`, at least 0, shape `[]`.
        mask: True where an action is legal, shape `[A]`; or None if all are.

    Returns:
        Loss, shape `[]`; 0 where no action is legal.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if `temperature`
            is negative.

    Example:
        >>> logits, q = jnp.zeros(2), jnp.array([[2.0, 8.0], [4.0, 6.0]])
        >>> print(jax.grad(rlaxlib.discrete_soft_policy_loss)(logits, q, 1.0))
        [ 1. -1.]

    References:
        Petros Christodoulou, *Soft Actor-Critic for Discrete Action Settings*, 2019.
        https://arxiv.org/abs/1910.07207
    """
    logits, q, temperature, mask = checks.arrays(
        logits=(logits, "float[A]"),
        q=(q, "float[A] or [N, A]"),
        temperature=(temperature, "float[]"),
        mask=(mask, "bool[A] or None"),
    )
    checks.within("[0, inf)", temperature=temperature)
    (logits, q, temperature), narrow = dtypes.widen(logits, q, temperature)
    q, temperature = jax.lax.stop_gradient((q, temperature))
    return narrow(-_soft_value(logits, q, temperature, mask))


def discrete_temperature_loss(
    log_temperature: ArrayLike,
    logits: ArrayLike,
    target_entropy: ArrayLike,
    *,
    mask: ArrayLike | None = None,
) -> Array:
    """Learn the temperature at which a discrete policy has the entropy one wants.

    .. math::

        L = -α ∑_a π(a) (log π(a) + H̄) = α (H(π) - H̄),
        α = exp(`log_temperature`)

    It is the exact mean over all actions of `temperature_loss`, which says more. No
    policy has more entropy than :math:`log A`, A being the number of legal actions; the
    paper aims at 0.98 of it. Where it may be out of reach the temperature grows without
    end.

    Args:
        log_temperature: Logarithm of the temperature, the parameter to learn,
            shape `[]`.
        logits: Logits of the policy, which is constant here, shape `[A]`.
        target_entropy: Entropy :math:`H̄` to aim at, in nats, shape `[]`.
        mask: True where an action is legal, shape `[A]`; or None if all are.

    Returns:
        Loss, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype.

    Example:
        >>> logits, half = jnp.zeros(4), jnp.log(2.0)
        >>> loss = rlaxlib.discrete_temperature_loss(0.0, logits, half)
        >>> print(loss.round(4), half.round(4))
        0.6931 0.6931

    References:
        Petros Christodoulou, *Soft Actor-Critic for Discrete Action Settings*, 2019.
        https://arxiv.org/abs/1910.07207
    """
    log_temperature, logits, target_entropy, mask = checks.arrays(
        log_temperature=(log_temperature, "float[]"),
        logits=(logits, "float[A]"),
        target_entropy=(target_entropy, "float[]"),
        mask=(mask, "bool[A] or None"),
    )
    (log_temperature, logits, target_entropy), narrow = dtypes.widen(
        log_temperature, logits, target_entropy
    )
    entropy = distributions.softmax().entropy(logits, mask=mask)
    spare = jax.lax.stop_gradient(entropy - target_entropy)
    return narrow(jnp.exp(log_temperature) * spare)


def _soft_value(
    logits: Array, q: Array, temperature: Array, mask: Array | None
) -> Array:
    """Return the mean of the action values, and the entropy times the temperature."""
    legal = logits != -jnp.inf if mask is None else mask & (logits != -jnp.inf)
    # Before the minimum, which of what is no number would have no gradient.
    q = jnp.where(jnp.broadcast_to(legal, q.shape), q, jnp.zeros_like(q))
    q = q if q.ndim == 1 else jnp.min(q, axis=0)
    policy = distributions.softmax()
    mean = jnp.sum(policy.probs(logits, mask=mask) * q)
    return mean + temperature * policy.entropy(logits, mask=mask)
