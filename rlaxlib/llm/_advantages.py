"""Advantages of language-model RL: groups of answers, pass@k, and rewards of tokens.

- Advantages of a group of answers to one prompt (GRPO, RLOO, MaxRL):
  `group_advantages`, and the baseline of OPO, `length_weighted_baseline`.
- Pass@k: `pass_at_k`, and the rewards that optimise it, `pass_at_k_rewards` (PKPO).
- Rewards of tokens with a KL penalty: `kl_shaped_rewards`.

Returns and advantages of tokens are those of `discounted_returns` and
`generalized_advantage_estimation`, with `sample_mask`.
"""

from __future__ import annotations

import math
from typing import Literal

import jax
import jax.numpy as jnp

from rlaxlib._core import devices, indexing, meshes, moments, ratios, safe, streams
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, AxisName, Bool, Float, Int, Static
from rlaxlib.llm import _shared

__all__ = [
    "group_advantages",
    "kl_shaped_rewards",
    "length_weighted_baseline",
    "pass_at_k",
    "pass_at_k_rewards",
]


@checked(wide=True)
def group_advantages(
    rewards: Float[ArrayLike, "G"],
    baseline: Literal["mean", "leave_one_out", "none"] = "mean",
    scale: Literal["stddev", "mean", "none"] = "stddev",
    ddof: Static[int, "in [0, inf)"] = 1,
    epsilon: Float[ArrayLike, "in [0, inf)"] = 1e-6,
    *,
    sample_mask: Bool[ArrayLike, "G"] | None = None,
    group_ids: Int[ArrayLike, "G in [0, G)"] | None = None,
    axis_name: AxisName | None = None,
) -> Float[Array, "G"]:
    """Compute the advantages of a group of answers (GRPO, RLOO, MaxRL).

    Takes the rewards of answers to one prompt, or of several groups, returns one
    advantage for each.

    ::

        Â_i = (r_i - b_i) / (σ + ε),   σ² = (1/(G - ddof)) ∑_i (r_i - r̄)²

    The baseline :math:`b_i` is the mean :math:`r̄`; the mean of the other answers
    (`"leave_one_out"`), which is unbiased; or 0 (`"none"`), for rewards from which
    another baseline is subtracted. With the scale `"mean"`, the divisor is
    :math:`r̄ + ε`; without a scale, it is 1.

    - GRPO: the defaults.
    - Dr. GRPO: `scale="none"`.
    - RLOO: `baseline="leave_one_out", scale="none"`.
    - ReMax: the rewards minus the reward of the greedy answer.
    - OPO: the rewards minus the `length_weighted_baseline`.
    - MaxRL: `scale="mean"`, for rewards of 0 and 1: it maximises the likelihood of a
      correct answer, and not its probability.

    Args:
        rewards: Rewards :math:`r_i` of the G answers to one prompt, shape `[G]`.
        baseline: `"mean"`, `"leave_one_out"` or `"none"`.
        scale: `"stddev"`, `"mean"` or `"none"`.
        ddof: Python integer in [0, inf), as in `jnp.std`; PyTorch's default is 1.
        epsilon: Constant :math:`ε` added to the scale, in [0, inf), shape `[]`.
        sample_mask: False for answers to ignore, shape `[G]`; or None.
        group_ids: Prompt of each answer, in [0, G), of groups of any size in any order,
            shape `[G]`; or None for one group. With `axis_name`, the ids are those of
            all devices, and so is G: a prompt has the same id everywhere.
        axis_name: Mapped axis name, or names, of the group; or None.

    Returns:
        Advantages, shape `[G]`, 0 for ignored answers. They are 0 if all rewards are
        equal, with the baselines `"mean"` and `"leave_one_out"`; and if the mean is not
        positive, with the scale `"mean"`.

    Raises:
        ArgumentError: If a shape, dtype, option or concrete value is wrong.

    Example:
        >>> rewards = jnp.array([1.0, 0.0, 0.0, 0.0])
        >>> print(rlaxlib.group_advantages(rewards).round(2))
        [ 1.5 -0.5 -0.5 -0.5]

    References:
        Zhihong Shao and others, *DeepSeekMath: Pushing the Limits of Mathematical
        Reasoning in Open Language Models*, section 4.1, 2024.
        https://arxiv.org/abs/2402.03300

        Zichen Liu and others, *Understanding R1-Zero-Like Training: A Critical
        Perspective*, section 3.1, 2025. https://arxiv.org/abs/2503.20783

        Arash Ahmadian and others, *Back to Basics: Revisiting REINFORCE Style
        Optimization for Learning from Human Feedback in LLMs*, 2024.
        https://arxiv.org/abs/2402.14740

        Ziniu Li and others, *ReMax: A Simple, Effective, and Efficient Reinforcement
        Learning Method for Aligning Large Language Models*, 2023.
        https://arxiv.org/abs/2310.10505

        Fahim Tajwar and others, *Maximum Likelihood Reinforcement Learning*, 2026.
        https://arxiv.org/abs/2602.02710
    """
    exists = streams.filled(sample_mask, rewards)
    if group_ids is None:
        found = moments.of(rewards, exists, axis_name)
    else:
        found = _group_moments(rewards, exists, group_ids, axis_name)
    size, mean, _, centered = found
    others = jnp.maximum(size - 1, 1)
    choices = {"mean": centered, "leave_one_out": centered * size / others}
    advantages = choices.get(baseline, rewards)
    if scale == "none":
        return advantages
    if scale == "mean":  # A negative mean would turn all signs around.
        return safe.divide(advantages, jnp.where(mean > 0, mean + epsilon, 0))
    return safe.divide(advantages, found.stddev(ddof) + epsilon)


def _group_moments(
    rewards: Array, exists: Array, group_ids: Array, axis_name: AxisName | None
) -> moments.Moments:
    """Return the moments of the group of each answer; each is `[G]`."""

    def total(x: Array) -> Array:
        return _shared.sums(x, group_ids, axis_name)

    number = total(exists.astype(rewards.dtype))
    size = jnp.maximum(number, 1)
    first = total(rewards) / size
    # Twice, so that equal rewards have deviations of exactly 0.
    mean = first + total(jnp.where(exists, rewards - first, 0)) / size
    deviations = jnp.where(exists, rewards - mean, 0)
    variance = total(jnp.square(deviations)) / size
    return moments.Moments(number, mean, variance, deviations)


@checked(wide=True)
def length_weighted_baseline(
    rewards: Float[ArrayLike, "G"],
    lengths: Int[ArrayLike, "G in [0, inf)"],
    *,
    sample_mask: Bool[ArrayLike, "G"] | None = None,
    axis_name: AxisName | None = None,
) -> Float[Array, ""]:
    """Compute the optimal reward baseline of a group of answers (OPO).

    Takes the rewards of one group of answers, returns one baseline.

    ::

        b = (∑_i l_i r_i) / ∑_i l_i

    It minimises the variance of the policy gradient if the squared norm of
    :math:`∇ log π(y_i)` is proportional to the length. The advantages are
    :math:`r_i - b`.

    Args:
        rewards: Rewards :math:`r_i` of the G answers to one prompt, shape `[G]`.
        lengths: Numbers :math:`l_i` of tokens of the answers, in [0, inf), shape `[G]`.
        sample_mask: False for answers to ignore, shape `[G]`; or None.
        axis_name: Mapped axis name, or names, of the group; or None.

    Returns:
        Baseline, shape `[]`; 0 if the sum of all lengths is 0.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a NumPy length is negative.

    Example:
        >>> rewards, lengths = jnp.array([1.0, 0.0]), jnp.array([10, 30])
        >>> print(rlaxlib.length_weighted_baseline(rewards, lengths))
        0.25

    References:
        Yaru Hao and others, *On-Policy RL with Optimal Reward Baseline*, 2025.
        https://arxiv.org/abs/2505.23585
    """
    weights = lengths.astype(rewards.dtype)
    weighted = devices.total(safe.dot(weights, rewards), axis_name)
    total = devices.total(jnp.sum(weights), axis_name)
    return safe.divide(weighted, total)


@checked
def pass_at_k(
    num_correct: Int[ArrayLike, "... in [0, num_samples]"],
    num_samples: Int[ArrayLike, "[] or [...] in [k, inf)"],
    k: Static[int, "in [1, inf)"],
) -> Float[Array, "..."]:
    """Estimate pass@k, the probability that one of k answers is correct.

    Takes numbers of correct answers of any shape, returns one estimate for each.

    ::

        1 - C(n - c, k) / C(n, k)

    The estimate is unbiased, unlike :math:`1 - (1 - c/n)^k`. :math:`C(n, k)` is the
    binomial coefficient.

    Args:
        num_correct: Number :math:`c` of correct answers, in [0, `num_samples`],
            shape `[...]`.
        num_samples: Number :math:`n` of answers, in [`k`, inf), shape `[]` or `[...]`.
        k: Number of attempts, a Python integer in [1, inf).

    Returns:
        Estimate, of the shape of `num_correct`, float32.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> print(rlaxlib.pass_at_k(1, 4, k=2))
        0.5

    References:
        Mark Chen and others, *Evaluating Large Language Models Trained on Code*,
        equation 1, 2021. https://arxiv.org/abs/2107.03374
    """
    c, n = num_correct.astype(float), num_samples.astype(float)
    c, n = (jnp.broadcast_to(x[..., None], (*c.shape, k)) for x in (c, n))
    i = jax.lax.broadcasted_iota(c.dtype, c.shape, c.ndim - 1)
    # `1 - ∏_i (1 - c / (n - i))` for i < k, without rounding the product near 1.
    ratios = jnp.minimum(c / jnp.maximum(n - i, 1), 1)
    return jnp.abs(jnp.expm1(jnp.sum(jnp.log1p(-ratios), axis=-1)))


@checked(wide=True)
def pass_at_k_rewards(
    rewards: Float[ArrayLike, "G"], k: Static[int, "in [1, G]"]
) -> Float[Array, "G"]:
    r"""Compute rewards whose policy gradient is that of pass@k (PKPO).

    Takes the rewards of one group of answers, returns one reward for each.

    ::

        s_i = (1/C(G, k)) ∑_{S ∋ i, |S| = k} max_{j ∈ S} r_j

    The sum of :math:`s_i ∇ log π(y_i)` over the group is an unbiased estimate of the
    gradient of the expected maximum of the rewards of k answers; for a mean over the
    group, multiply by :math:`G`. If rewards are 0 or 1, that is pass@k:
    :math:`s_i = k/G` for a correct answer, and for another :math:`k/G` times the
    `pass_at_k` of :math:`k - 1` among the others.

    Args:
        rewards: Rewards :math:`r_i` of the G answers to one prompt, shape `[G]`.
        k: Number of attempts, a Python integer in [1, G].

    Returns:
        Rewards :math:`s_i`, shape `[G]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or `k` is outside [1, G].

    Example:
        >>> rewards = jnp.array([1.0, 0.0, 0.0, 0.0])
        >>> print(4 * rlaxlib.pass_at_k_rewards(rewards, k=2))
        [2.        0.6666667 0.6666667 0.6666667]

    References:
        Christian Walder and Deep Karkhanis, *Pass@K Policy Optimization: Solving Harder
        Reinforcement Learning Problems*, 2025. https://arxiv.org/abs/2505.15201
    """
    size = rewards.shape[0]
    # Of the sets with an answer, those whose maximum is answer j, in ascending order.
    subsets = math.comb(size, k)
    own = [math.comb(j, k - 1) / subsets for j in range(size)]
    pairs = [math.comb(j - 1, k - 2) / subsets for j in range(1, size)] if k > 1 else 0
    order = jnp.argsort(rewards)
    ordered = rewards[order]
    shared = jnp.asarray(pairs, rewards.dtype) * ordered[1:]
    later = jnp.pad(jax.lax.cumsum(shared, reverse=True), (0, 1))
    shaped = jnp.asarray(own, rewards.dtype) * ordered + later
    return meshes.unsort(order, shaped)


@checked(wide=True)
def kl_shaped_rewards(
    final_reward: Float[ArrayLike, "[] or [T]"],
    log_prob: Float[ArrayLike, "T"],
    ref_log_prob: Float[ArrayLike, "T"],
    coefficient: Float[ArrayLike, "in [0, inf)"],
    *,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
    segment_ids: Int[ArrayLike, "T in [0, T)"] | None = None,
) -> Float[Array, "T"]:
    """Compute the rewards of tokens, with a KL penalty (RLHF).

    Takes one answer or packed row, returns one reward for each token.

    ::

        r_t = -β (log π(a_t) - log π_ref(a_t)) + 1[t = T_last] R

    The reward :math:`R` falls on the last valid token. The expected return is
    :math:`E[R] - β KL(π ‖ π_ref)`, for whole answers. Unlike `kl_loss`, the penalty
    takes into account that a token changes the KL of later ones. It is k1: as rewards,
    k2 and k3 do not have the gradient of the KL divergence. Pass the rewards to
    `discounted_returns` or `generalized_advantage_estimation`, with the same
    `sample_mask`. In VAPO, the λ of the policy is :math:`1 - 1/(0.05 l)` for answers of
    length :math:`l`, and the λ of the critic is 1.

    Args:
        final_reward: Reward :math:`R` of the answer, shape `[]`; or that of the answer
            of each token, shape `[T]`.
        log_prob: Log-probabilities under the policy that sampled them, shape `[T]`.
        ref_log_prob: Log-probabilities under the reference policy, shape `[T]`.
        coefficient: Coefficient :math:`β` of the penalty, in [0, inf), shape `[]`.
        sample_mask: True for tokens that the policy chose: not for prompt, padding and
            the output of tools, shape `[T]`; or None.
        segment_ids: Answer of each token of a packed row, in [0, T), shape `[T]`; or
            None for one answer.

    Returns:
        Rewards, shape `[T]`, 0 for other tokens, without a gradient.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> log_prob, ref_log_prob = jnp.array([-1.0, -2.0, 0.0]), jnp.full(3, -1.5)
        >>> mask = jnp.array([True, True, False])
        >>> inputs = 1.0, log_prob, ref_log_prob, 0.5
        >>> print(rlaxlib.kl_shaped_rewards(*inputs, sample_mask=mask))
        [-0.25  1.25  0.  ]

    References:
        Long Ouyang and others, *Training Language Models to Follow Instructions with
        Human Feedback*, 2022. https://arxiv.org/abs/2203.02155

        Yu Yue and others, *VAPO: Efficient and Reliable Reinforcement Learning for
        Advanced Reasoning Tasks*, 2025. https://arxiv.org/abs/2504.05118
    """
    mask = streams.filled(sample_mask, log_prob)
    steps = jnp.arange(mask.size)
    valid = jnp.where(mask, steps, -1)
    if segment_ids is None:
        is_last = steps == jnp.max(valid)
    else:
        is_last = steps == _shared.latest(valid, segment_ids)
        is_answer = indexing.is_inside(segment_ids, mask.size)
        final_reward = jnp.where(is_answer, final_reward, jnp.nan)
        is_last |= ~is_answer
    penalty = coefficient * ratios.log_ratio(log_prob, ref_log_prob)
    return jax.lax.stop_gradient(jnp.where(is_last, final_reward, 0) - penalty)
