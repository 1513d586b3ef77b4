"""Imitation learning: losses and rewards from an expert's demonstrations.

- Behaviour cloning (BC): the loss is `-log_prob`, averaged by `masked_mean`.
- Q-learning from demonstrations (DQfD): `dqfd_margin_loss`.
- Adversarial imitation (GAIL, AIRL, FAIRL, DAC): `discriminator_loss`,
  `gradient_penalty`, `adversarial_reward`, `airl_logit`.
- Soft Q imitation learning (SQIL): the reward is 1 for demonstrations, otherwise 0.
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp

from rlaxlib import arrays
from rlaxlib._core import safe
from rlaxlib._core.gradients import td_error
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Bool, Float, Int

__all__ = [
    "adversarial_reward",
    "airl_logit",
    "discriminator_loss",
    "dqfd_margin_loss",
    "gradient_penalty",
]


@checked
def dqfd_margin_loss(
    q: Float[ArrayLike, "A"],
    a: Int[ArrayLike, "in [0, A)"],
    margin: Float[ArrayLike, "in [0, inf)"] = 0.8,
    *,
    action_mask: Bool[ArrayLike, "A"] | None = None,
) -> Float[Array, ""]:
    """Compute the large-margin loss of deep Q-learning from demonstrations (DQfD).

    Takes the values of all actions and one action, returns one loss.

    ::

        L = max_b [q(b) + m 1[b ≠ a]] - q(a)

    It is 0 if the expert's action is better than all others by the margin. Add it, on
    demonstrations only, to the TD loss.

    Args:
        q: Action values, shape `[A]`.
        a: Action :math:`a` of the expert, in [0, A), shape `[]`.
        margin: Margin :math:`m`, in [0, inf), in the unit of the values, shape `[]`.
        action_mask: True for legal actions, plus the expert's, shape `[A]`; or None.

    Returns:
        Loss, at least 0, shape `[]`; NaN if a traced action is outside [0, A).

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> print(rlaxlib.dqfd_margin_loss(jnp.array([2.0, 1.75, 0.0]), 0, margin=0.5))
        0.25

    References:
        Todd Hester and others, *Deep Q-Learning from Demonstrations*, 2017.
        https://arxiv.org/abs/1704.03732
    """
    # The difference first: large values would round the margin.
    gaps = q - arrays.batched_index(q, a) + margin
    if action_mask is not None:
        gaps = jnp.where(action_mask, gaps, -jnp.inf)
    is_expert = jnp.arange(q.size) == a.astype(int)
    return jnp.max(jnp.where(is_expert, 0, gaps))


@checked
def discriminator_loss(
    expert_logit: Float[ArrayLike, "..."],
    policy_logit: Float[ArrayLike, "..."],
    *,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "..."]:
    """Compute the discriminator loss of adversarial imitation (GAIL, AIRL, DAC).

    Takes logits of any shape, returns one loss for each pair.

    ::

        L = -log D(s_E, a_E) - log(1 - D(s, a)),   D = 1/(1 + exp(-`logit`))

    At the minimum the logit is the log-ratio of the densities of expert and policy.

    Args:
        expert_logit: Logits for the expert's states and actions, shape `[...]`.
        policy_logit: Logits for the policy's states and actions, shape `[...]`.
        sample_mask: False for pairs to ignore, shape `[...]`; or None.

    Returns:
        Losses, one for each pair, shape `[...]`, 0 for ignored pairs.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> print(rlaxlib.discriminator_loss(0.0, 0.0).round(4), jnp.log(4.0).round(4))
        1.3863 1.3863

    References:
        Jonathan Ho and Stefano Ermon, *Generative Adversarial Imitation Learning*,
        2016. https://arxiv.org/abs/1606.03476
    """
    return jax.nn.softplus(-expert_logit) + jax.nn.softplus(policy_logit)


@checked
def gradient_penalty(gradient: Float[ArrayLike, "D"]) -> Float[Array, ""]:
    """Compute the gradient penalty of a discriminator (WGAN-GP, DAC).

    Takes the gradient at one input, returns one penalty.

    ::

        L = (‖∇_x f(x)‖ - 1)²,   x = u x_E + (1 - u) x_π,   u ~ Uniform(0, 1)

    The gradient of the logit :math:`f` by its input, from `jax.grad`, is taken at a
    random point between an input of the expert and one of the policy. DAC adds the
    penalty to `discriminator_loss` with a weight of 10.

    Args:
        gradient: Gradient :math:`∇_x f(x)` by all inputs, concatenated, shape `[D]`.

    Returns:
        Penalty, shape `[]`. Its gradient is 0 for a gradient of 0, such as that of a
        new last layer of zeros; that of `jnp.linalg.norm` would be NaN.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> print(rlaxlib.gradient_penalty(jnp.array([3.0, 4.0])))
        16.0

    References:
        Ishaan Gulrajani and others, *Improved Training of Wasserstein GANs*, 2017.
        https://arxiv.org/abs/1704.00028
    """
    return jnp.square(safe.norm(gradient) - 1)


@checked
def adversarial_reward(
    logit: Float[ArrayLike, "..."],
    kind: Literal["gail", "airl", "fairl"] = "gail",
) -> Float[Array, "..."]:
    """Compute the reward of adversarial imitation (GAIL, AIRL, FAIRL).

    Takes logits of any shape, returns one reward for each.

    ::

        r_gail = -log(1 - D) = log(1 + e^h),
        r_airl = log D - log(1 - D) = h,
        r_fairl = -h e^h

    The logit :math:`h` of the discriminator :math:`D` is 0 where it cannot distinguish
    expert and policy. GAIL's reward is positive, and favours long episodes. AIRL's has
    both signs; maximising it minimises KL(policy ‖ expert). FAIRL's minimises KL(expert
    ‖ policy); its magnitude grows exponentially, so clip the logit.

    Args:
        logit: Logits :math:`h` of the discriminator, shape `[...]`.
        kind: Reward: `"gail"`, `"airl"` or `"fairl"`.

    Returns:
        Rewards :math:`r`, without a gradient, shape `[...]`.

    Raises:
        ArgumentError: If a dtype or `kind` is wrong.

    Example:
        >>> logit = jnp.log(jnp.array([1.0, 3.0]))
        >>> print(jnp.exp(rlaxlib.adversarial_reward(logit, "gail")).round(4))
        [2. 4.]

    References:
        Jonathan Ho and Stefano Ermon, *Generative Adversarial Imitation Learning*,
        2016. https://arxiv.org/abs/1606.03476

        Justin Fu, Katie Luo and Sergey Levine, *Learning Robust Rewards with
        Adversarial Inverse Reinforcement Learning*, 2017.
        https://arxiv.org/abs/1710.11248

        Seyed Kamyar Seyed Ghasemipour, Richard Zemel and Shixiang Gu, *A Divergence
        Minimization Perspective on Imitation Learning Methods*, 2019.
        https://arxiv.org/abs/1911.02256
    """
    h = jax.lax.stop_gradient(logit)
    if kind == "gail":
        return jax.nn.softplus(h)
    return h if kind == "airl" else -jnp.exp(h) * h


@checked
def airl_logit(
    potential_tm1: Float[ArrayLike, "..."],
    log_prob_tm1: Float[ArrayLike, "..."],
    r_t: Float[ArrayLike, "..."],
    discount_t: Float[ArrayLike, "... in [-1, 1]"],
    potential_t: Float[ArrayLike, "..."],
) -> Float[Array, "..."]:
    """Compute the discriminator logit of adversarial inverse RL (AIRL).

    Takes transitions of any shape, returns one logit for each.

    ::

        h = f - log π(a_{t-1} | s_{t-1}),
        f = r(s_{t-1}, a_{t-1}) + γ_t Φ(s_t) - Φ(s_{t-1})

    The discriminator is :math:`D = e^f/(e^f + π(a | s))`. At the optimum :math:`f` is
    the expert's advantage; a reward :math:`r` that depends on the state alone is then
    the expert's reward up to a constant. The gradient of the policy is stopped.

    Args:
        potential_tm1: Learned potentials :math:`Φ(s_{t-1})`, shape `[...]`.
        log_prob_tm1: Log-probabilities of the actions under the current policy, also
            for the expert's actions, shape `[...]`.
        r_t: Learned rewards :math:`r(s_{t-1}, a_{t-1})`, shape `[...]`.
        discount_t: Discounts :math:`γ_t` in [-1, 1], 0 where the episode ended,
            shape `[...]`.
        potential_t: Learned potentials :math:`Φ(s_t)`, shape `[...]`.

    Returns:
        Logits :math:`h`, shape `[...]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> print(rlaxlib.airl_logit(3.0, -2.0, 1.0, 0.5, 4.0))
        2.0

    References:
        Justin Fu, Katie Luo and Sergey Levine, *Learning Robust Rewards with
        Adversarial Inverse Reinforcement Learning*, 2017.
        https://arxiv.org/abs/1710.11248
    """
    f = td_error(potential_tm1, r_t, discount_t, potential_t)
    return f - jax.lax.stop_gradient(log_prob_tm1)
