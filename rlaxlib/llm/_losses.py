"""Policy losses of language models, and masks and penalties that go with them.

- Losses: `cispo_loss`, `sapo_loss`, `gmpo_loss`. GRPO and DAPO use `ppo_clip_loss`, and
  GSPO uses it with `gspo_ratio`.
- KL to a reference policy: `kl_loss`.
- Tokens to leave out: `clip_cov_mask`, `high_entropy_mask`.
- Penalty for long answers: `overlong_penalty`.

Losses return one number a token: `aggregate_losses` reduces them. `gspo_ratio` and
`gmpo_loss` take one sequence, the others tokens of any shape. The advantage may be one
number for all tokens.
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient

from rlaxlib import arrays
from rlaxlib._core import devices, indexing, ratios, safe, streams
from rlaxlib._core.gradients import stop_if
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, AxisName, Bool, Float, Int, Key
from rlaxlib.llm._shared import means
from rlaxlib.policies import RatioOutputs

__all__ = [
    "cispo_loss",
    "clip_cov_mask",
    "gmpo_loss",
    "gspo_ratio",
    "high_entropy_mask",
    "kl_loss",
    "overlong_penalty",
    "sapo_loss",
]


@checked(wide=True)
def cispo_loss(
    log_prob: Float[ArrayLike, "..."],
    old_log_prob: Float[ArrayLike, "..."],
    adv: Float[ArrayLike, "[] or [...]"],
    epsilon: Float[ArrayLike, "in [0, inf]"] = 1.0,
    epsilon_high: Float[ArrayLike, "in [0, inf]"] = 4.0,
    *,
    stop_target_gradients: bool = True,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
) -> tuple[Float[Array, "..."], RatioOutputs]:
    """Compute the clipped importance-sampling policy optimisation loss (CISPO).

    Takes tokens of any shape, returns one loss for each, and diagnostics.

    ::

        L_t = -w_t Â_t log π(a_t),   w_t = clip(ρ_t, 1 - ε, 1 + ε_high),
        ρ_t = π(a_t) / π_old(a_t)

    The gradient of the weight :math:`w_t` is stopped. A clipped token keeps its
    gradient, with a bounded weight, whereas `ppo_clip_loss` removes it. The paper tunes
    :math:`ε_high`, without a lower bound: :math:`ε = 1`.

    Args:
        log_prob: Log-probabilities of the tokens under the policy, shape `[...]`.
        old_log_prob: The same under the policy that sampled them, shape `[...]`.
        adv: Advantage :math:`Â_t` of all tokens, or of each, shape `[]` or `[...]`.
        epsilon: Clipping range :math:`ε` downwards, in [0, inf], shape `[]`.
        epsilon_high: Clipping range :math:`ε_high` upwards, in [0, inf], shape `[]`.
        stop_target_gradients: Whether `adv` gets no gradient. The weight has none.
        sample_mask: False for tokens to ignore, shape `[...]`; or None.

    Returns:
        A tuple of two: losses, shape `[...]`, 0 for ignored tokens, and a
        `RatioOutputs`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> log_prob = jnp.array([-2.0, -1.0])
        >>> old_log_prob = log_prob - jnp.log(jnp.array([0.5, 16.0]))
        >>> loss, outputs = rlaxlib.cispo_loss(log_prob, old_log_prob, adv=1.0)
        >>> print(loss, outputs.clipped)
        [1. 5.] [False  True]

    References:
        MiniMax, *MiniMax-M1: Scaling Test-Time Compute Efficiently with Lightning
        Attention*, equation 4, 2025. https://arxiv.org/abs/2506.13585
    """
    adv, old_log_prob = stop_if(stop_target_gradients, adv), stop_gradient(old_log_prob)
    ratio = ratios.ratio(ratios.log_ratio(log_prob, old_log_prob))
    weight = jnp.clip(ratio, 1 - epsilon, 1 + epsilon_high)
    loss = -stop_gradient(weight) * adv * safe.floored(log_prob)
    return loss, _statistics(log_prob, old_log_prob, weight != ratio)


@checked(wide=True)
def sapo_loss(
    log_prob: Float[ArrayLike, "..."],
    old_log_prob: Float[ArrayLike, "..."],
    adv: Float[ArrayLike, "[] or [...]"],
    temperature_positive: Float[ArrayLike, "in (0, inf)"] = 1.0,
    temperature_negative: Float[ArrayLike, "in (0, inf)"] = 1.05,
    *,
    stop_target_gradients: bool = True,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
) -> tuple[Float[Array, "..."], RatioOutputs]:
    """Compute the soft adaptive policy optimisation loss (SAPO).

    Takes tokens of any shape, returns one loss for each, and diagnostics.

    ::

        L_t = -(4/τ) σ(τ (ρ_t - 1)) Â_t,   ρ_t = π(a_t) / π_old(a_t)

    The temperature :math:`τ` depends on the sign of the advantage. At :math:`ρ_t = 1`
    the derivative by the ratio is :math:`-Â_t`; away from it the derivative decays,
    faster for a larger temperature.

    Args:
        temperature_positive: Temperature for positive advantages, in (0, inf),
            shape `[]`.
        temperature_negative: Temperature for other advantages, in (0, inf), shape `[]`.
        Other arguments: as `cispo_loss`.

    Returns:
        A tuple of two: losses, shape `[...]`, 0 for ignored tokens, and a
        `RatioOutputs`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> log_prob, old_log_prob = jnp.array([-1.0, 0.0]), jnp.array([-1.0, -9.0])
        >>> print(rlaxlib.sapo_loss(log_prob, old_log_prob, adv=1.0)[0])
        [-2. -4.]

    References:
        Chang Gao and others, *Soft Adaptive Policy Optimization*, 2025.
        https://arxiv.org/abs/2511.20347
    """
    old_log_prob, adv = stop_if(stop_target_gradients, (old_log_prob, adv))
    ratio = ratios.ratio(ratios.log_ratio(log_prob, old_log_prob))
    tau = jnp.where(adv > 0, temperature_positive, temperature_negative)
    gate = 4 / tau * jax.nn.sigmoid(tau * (ratio - 1))
    return -adv * gate, _statistics(log_prob, old_log_prob)


@checked(wide=True)
def gspo_ratio(
    log_prob: Float[ArrayLike, "T"],
    old_log_prob: Float[ArrayLike, "T"],
    kind: Literal["gspo", "gspo_token"] = "gspo",
    *,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
    segment_ids: Int[ArrayLike, "T in [0, T)"] | None = None,
    axis_name: AxisName | None = None,
) -> Float[Array, "T"]:
    """Compute the importance ratio of a whole sequence (GSPO, GSPO-token).

    Takes one sequence or packed row, returns one ratio for each token.

    ::

        s = exp((1/|y|) ∑_t log (π(a_t)/π_old(a_t)))

    All tokens have the value :math:`s`, the geometric mean of their ratios, and in GSPO
    its gradient. In GSPO-token the gradient of token `t` is :math:`s ∇ log π(a_t)`, so
    that advantages may differ between tokens. If all are equal, the mean over tokens
    has the same gradient in both.

    Pass its logarithm to `ppo_clip_loss` as `log_prob`, with zeros as `old_log_prob`
    and a clipping range of about 3e-4. Aggregate by `"sequence_mean_token_mean"`.

    Args:
        log_prob: Log-probabilities of the tokens under the policy, shape `[T]`.
        old_log_prob: The same of the sampler, with gradient stopped, shape `[T]`.
        kind: `"gspo"` or `"gspo_token"`.
        sample_mask: False for tokens to ignore, shape `[T]`; or None.
        segment_ids: Answer of each token of a packed row, in [0, T), shape `[T]`; or
            None for one answer.
        axis_name: Mapped axis name, or names, of the tokens; or None. With it,
            segments are in [0, T) for the T tokens of all devices.

    Returns:
        Ratios, in [e^-40, e^40], shape `[T]`, 0 for ignored tokens. There is no
        gradient at the bounds.

    Raises:
        ArgumentError: If a shape, dtype or `kind` is wrong.

    Example:
        >>> log_prob, old_log_prob = jnp.log(jnp.array([[0.5, 0.5], [0.5, 0.125]]))
        >>> ratio = rlaxlib.gspo_ratio(log_prob, old_log_prob)
        >>> loss, _ = rlaxlib.ppo_clip_loss(jnp.log(ratio), jnp.zeros(2), jnp.ones(2))
        >>> print(ratio, loss)
        [2. 2.] [-1.2 -1.2]

    References:
        Chujie Zheng and others, *Group Sequence Policy Optimization*, equations 7 and
        14, 2025. https://arxiv.org/abs/2507.18071
    """
    log_ratio = ratios.log_ratio(log_prob, stop_gradient(old_log_prob))
    mean = means(log_ratio, sample_mask, segment_ids, axis_name)
    if kind == "gspo_token":
        mean = stop_gradient(mean) + _zero(log_prob)
    # Its logarithm would have a gradient of NaN where it underflows.
    return jnp.exp(jnp.clip(mean, -ratios.BOUND, ratios.BOUND))


@checked(wide=True)
def gmpo_loss(
    log_prob: Float[ArrayLike, "T"],
    old_log_prob: Float[ArrayLike, "T"],
    adv: Float[ArrayLike, "[] or [T]"],
    epsilon: Float[ArrayLike, "in [0, inf]"] = 0.4,
    epsilon_high: Float[ArrayLike, "in [0, inf]"] | None = None,
    *,
    stop_target_gradients: bool = True,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
    segment_ids: Int[ArrayLike, "T in [0, T)"] | None = None,
    axis_name: AxisName | None = None,
) -> tuple[Float[Array, "T"], RatioOutputs]:
    """Compute the geometric-mean policy optimisation loss (GMPO).

    Takes one sequence or packed row, returns one loss for each token, and diagnostics.

    ::

        L = -Â exp((1/|y|) ∑_t l'_t),   l_t = log (π(a_t)/π_old(a_t)),
        l'_t = { min(l_t, ε_high)   if Â ≥ 0
               { max(l_t, -ε)   otherwise

    The geometric mean of the ratios is less sensitive to outliers than the arithmetic
    mean of `ppo_clip_loss`, so the clipping range may be wider.

    Args:
        log_prob: Log-probabilities of the tokens under the policy, shape `[T]`.
        old_log_prob: The same under the policy that sampled them, shape `[T]`.
        adv: Advantage :math:`Â` of the sequence, shape `[]`; or of the answer of each
            token, shape `[T]`.
        epsilon: Clipping range :math:`ε` of the log-ratio downwards, in [0, inf],
            shape `[]`.
        epsilon_high: Upper range :math:`ε_high`, in [0, inf], shape `[]`; or None for
            `epsilon`.
        stop_target_gradients: Whether `old_log_prob` and `adv` get no gradient.
        sample_mask: False for tokens to ignore, shape `[T]`; or None.
        segment_ids: Answer of each token of a packed row, in [0, T), shape `[T]`; or
            None for one answer.
        axis_name: Mapped axis name, or names, of the tokens; or None. With it,
            segments are in [0, T) for the T tokens of all devices.

    Returns:
        A tuple of two: the loss :math:`L` at each token, shape `[T]`, 0 for ignored
        tokens, and the `RatioOutputs` of the tokens. Aggregate by
        `"sequence_mean_token_mean"`. The geometric mean is at most e^40, and has no
        gradient beyond.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> log_prob, old_log_prob = jnp.log(jnp.array([[0.5, 0.5], [0.5, 0.125]]))
        >>> loss, _ = rlaxlib.gmpo_loss(log_prob, old_log_prob, adv=1.0, epsilon=2.0)
        >>> print(loss)
        [-2. -2.]

    References:
        Yuzhong Zhao and others, *Geometric-Mean Policy Optimization*, 2025.
        https://arxiv.org/abs/2507.20673
    """
    low, high = -epsilon, epsilon if epsilon_high is None else epsilon_high
    old_log_prob, adv = stop_if(stop_target_gradients, (old_log_prob, adv))
    log_ratio = ratios.log_ratio(log_prob, old_log_prob)
    upper, lower = jnp.minimum(log_ratio, high), jnp.maximum(log_ratio, low)
    bounded = jnp.where(adv >= 0, upper, lower)
    mean = means(bounded, sample_mask, segment_ids, axis_name)
    loss = -adv * ratios.ratio(mean)
    outputs = _statistics(log_prob, old_log_prob, bounded != log_ratio)
    outputs = outputs._replace(ratio=streams.valid(outputs.ratio, sample_mask))
    return loss, outputs


@checked(wide=True)
def kl_loss(
    log_prob: Float[ArrayLike, "..."],
    ref_log_prob: Float[ArrayLike, "..."],
    kind: Literal["k1", "k2", "k3", "abs"] = "k3",
    *,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "..."]:
    """Compute the KL loss to a reference policy, with an unbiased gradient.

    Takes tokens of any shape, returns one loss for each.

    ::

        k_1 = l,   k_2 = ½ l²,   k_3 = e^{-l} - 1 + l,   abs = |l|,
        l_t = log (π(a_t) / π_ref(a_t))

    The **value** is the estimator. k1 and k3 are unbiased; k3 is not negative, and for
    close policies has a lower variance. The **gradient** is that of k2,
    :math:`l_t ∇ log π(a_t)`, for every kind, and so are further derivatives. Its mean
    over tokens sampled from :math:`π` is the gradient of :math:`KL(π ‖ π_ref)`, whereas
    the mean gradient of the values would be 0 for k1, and that of
    :math:`KL(π_ref ‖ π)` for k3.

    The first policy is the one that sampled the tokens. The mean of
    `kl_loss(old_log_prob, log_prob)` estimates the KL of an update, to log;
    `ppo_penalty_loss` differentiates it. If another policy sampled the tokens, multiply
    the loss by the `importance_weights`. `kl_shaped_rewards` includes the effect of a
    token on the KL of later tokens.

    Args:
        log_prob: Log-probabilities under the policy :math:`π`, shape `[...]`.
        ref_log_prob: Those under the reference policy, gradient stopped, shape `[...]`.
        kind: `"k1"`, `"k2"`, `"k3"` or `"abs"`.
        sample_mask: False for tokens to ignore, shape `[...]`; or None.

    Returns:
        Losses, shape `[...]`, 0 for ignored tokens. They are finite: the log-ratio is
        1e15 where only the reference policy rules out the token.

    Raises:
        ArgumentError: If a shape, dtype or `kind` is wrong.

    Example:
        >>> log_prob, ref_log_prob = jnp.log(jnp.array([[0.5, 0.5], [0.25, 1.0]]))
        >>> print(rlaxlib.kl_loss(log_prob, ref_log_prob).round(3))
        [0.193 0.307]

    References:
        John Schulman, *Approximating KL Divergence*, 2020.
        http://joschu.net/blog/kl-approx.html

        Yunhao Tang and Rémi Munos, *On a Few Pitfalls in KL Divergence Gradient
        Estimation for RL*, 2025. https://arxiv.org/abs/2506.09477
    """
    x = ratios.log_ratio(log_prob, stop_gradient(ref_log_prob))
    k2 = 0.5 * jnp.square(x)
    value = {"k1": x, "k2": k2, "k3": ratios.k3(-x), "abs": jnp.abs(x)}[kind]
    return stop_gradient(value) + _zero(k2)


@checked
def clip_cov_mask(
    key: Key[ArrayLike, ""],
    log_prob: Float[ArrayLike, "..."],
    adv: Float[ArrayLike, "..."],
    fraction: Float[ArrayLike, "in [0, 1]"] = 2e-4,
    minimum: Float[ArrayLike, ""] = 1.0,
    maximum: Float[ArrayLike, "in [minimum, inf]"] = 5.0,
    *,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
    axis_name: AxisName | None = None,
) -> Bool[Array, "..."]:
    """Mask tokens of high covariance of log-probability and advantage (Clip-Cov).

    Takes the tokens of a batch, returns True or False for each.

    ::

        c_t = (log π(a_t) - (1/N) ∑_j log π(a_j)) (Â_t - (1/N) ∑_j Â_j)

    Likely tokens with high advantages reduce the entropy of the policy most. Of the
    tokens with :math:`c_t` in [`minimum`, `maximum`], :math:`⌊r N⌋` random ones are
    masked, or all if there are fewer. Pass the mask to the loss as its `sample_mask`,
    and aggregate the losses with that of all tokens, so that the denominator stays the
    same.

    Args:
        key: PRNG key, another on each device, shape `[]`.
        log_prob: Log-probabilities of the N tokens of a batch, shape `[...]`.
        adv: Advantages :math:`Â_t` of the tokens, shape `[...]`.
        fraction: Fraction :math:`r` of tokens to mask, in [0, 1], shape `[]`.
        minimum: Smallest covariance, shape `[]`.
        maximum: Largest covariance, in [`minimum`, inf], shape `[]`.
        sample_mask: False for tokens to ignore, shape `[...]`; or None.
        axis_name: Mapped axis name, or names, of the batch; or None.

    Returns:
        True for tokens to keep, shape `[...]`, False for ignored tokens.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> log_prob = jnp.array([-1.0, -1.0, -5.0, -5.0])
        >>> adv, key = jnp.array([1.0, 0.0, -2.0, 1.0]), jax.random.key(0)
        >>> print(rlaxlib.clip_cov_mask(key, log_prob, adv, fraction=0.25, minimum=3.0))
        [ True  True False  True]

    References:
        Ganqu Cui and others, *The Entropy Mechanism of Reinforcement Learning for
        Reasoning Language Models*, section 4.2, 2025. https://arxiv.org/abs/2505.22617
    """
    mask = streams.filled(sample_mask, log_prob)
    log_prob = log_prob - arrays.masked_mean(log_prob, mask=mask, axis_name=axis_name)
    adv = adv - arrays.masked_mean(adv, mask=mask, axis_name=axis_name)
    covariance = log_prob * adv
    is_high = mask & (covariance >= minimum) & (covariance <= maximum)
    order = jnp.where(is_high, jax.random.uniform(key, mask.shape), -1.0)
    valid = devices.total(jnp.sum(mask, dtype=fraction.dtype), axis_name)
    count = indexing.part(fraction, valid)
    smallest = _ranked(order, count - 1, axis_name)
    return ~(is_high & (order >= smallest) & (count > 0))


@checked
def high_entropy_mask(
    entropy: Float[ArrayLike, "..."],
    fraction: Float[ArrayLike, "in [0, 1]"] = 0.2,
    *,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
    axis_name: AxisName | None = None,
) -> Bool[Array, "..."]:
    """Select the tokens of the highest entropy (80/20 rule).

    Takes one entropy for each token of a batch, returns True or False for each.

    ::

        m_t = 1[H_t ≥ quantile_{1-ρ}(H)]

    In the paper, the 20 % of tokens with the highest entropy suffice for training.
    Pass the mask to the loss as its `sample_mask`, and divide by the number of all
    tokens.

    Args:
        entropy: Entropies :math:`H_t` at the tokens of a batch, shape `[...]`.
        fraction: Fraction :math:`ρ` of tokens to select, in [0, 1], shape `[]`.
        sample_mask: False for tokens to ignore, shape `[...]`; or None.
        axis_name: Mapped axis name, or names, of the batch; or None.

    Returns:
        True for the selected tokens, shape `[...]`; False for ignored tokens.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> entropy = jnp.array([0.1, 2.0, 0.3, 1.0, 0.2])
        >>> print(rlaxlib.high_entropy_mask(entropy, fraction=0.4))
        [False  True False  True False]

    References:
        Shenzhi Wang and others, *Beyond the 80/20 Rule: High-Entropy Minority Tokens
        Drive Effective Reinforcement Learning for LLM Reasoning*, section 5.1, 2025.
        https://arxiv.org/abs/2506.01939
    """
    mask = streams.filled(sample_mask, entropy)
    count = devices.total(jnp.sum(mask, dtype=fraction.dtype), axis_name)
    rank = indexing.part(fraction, count - 1)
    smallest = _ranked(jnp.where(mask, entropy, -jnp.inf), rank, axis_name)
    return mask & (entropy >= smallest)


@checked
def overlong_penalty(
    lengths: Int[ArrayLike, "... in [0, inf)"],
    max_length: Int[ArrayLike, "in [cache_length, inf)"],
    cache_length: Int[ArrayLike, "in (0, inf)"],
) -> Float[Array, "..."]:
    """Compute the soft penalty for overlong answers (DAPO).

    Takes one length for each answer, returns one penalty for each.

    ::

        r = { 0   if l ≤ L_max - L_cache
            { (L_max - L_cache - l) / L_cache   if L_max - L_cache < l ≤ L_max
            { -1   otherwise

    Add it to the rewards of the answers.

    Args:
        lengths: Numbers :math:`l` of tokens of the answers, in [0, inf), shape `[...]`.
        max_length: Maximum length :math:`L_max`, in [`cache_length`, inf), shape `[]`.
        cache_length: Length :math:`L_cache` over which the penalty grows, in (0, inf),
            shape `[]`.

    Returns:
        Penalties, in [-1, 0], shape `[...]`, float32.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> lengths = jnp.array([10, 80, 90, 100, 1000])
        >>> print(rlaxlib.overlong_penalty(lengths, max_length=100, cache_length=20))
        [ 0.   0.  -0.5 -1.  -1. ]

    References:
        Qiying Yu and others, *DAPO: An Open-Source LLM Reinforcement Learning System at
        Scale*, equation 13, 2025. https://arxiv.org/abs/2503.14476
    """
    # A difference of small dtypes would overflow.
    lengths, maximum, cache = (
        x.astype(int) for x in (lengths, max_length, cache_length)
    )
    return jnp.clip((maximum - cache - lengths) / cache, -1, 0)


def _zero(x: Array) -> Array:
    """Return 0, with the gradient of `x`."""
    x = safe.floored(x)
    return x - stop_gradient(x)


def _ranked(x: Array, rank: Array, axis_name: AxisName | None) -> Array:
    """Return an entry of `x` over all devices by its rank, 0 for the largest."""
    ordered = jnp.sort(devices.gather(x.ravel(), axis_name), descending=True)
    return ordered[jnp.maximum(rank, 0).astype(jnp.int32)]


def _statistics(
    log_prob: Array, old_log_prob: Array, clipped: Array | bool = False
) -> RatioOutputs:
    """Return the statistics of ratios, for a loss that clips some of them."""
    x = ratios.log_ratio(log_prob, old_log_prob)
    clipped |= x > ratios.BOUND
    return RatioOutputs(x, ratios.ratio(x), clipped)
