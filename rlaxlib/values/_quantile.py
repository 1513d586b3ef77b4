"""Quantiles and samples of returns: QR-DQN, IQN, FQF, TQC and MMD-DQN.

- `quantile_regression_loss`: quantile (Huber) loss between predictions and samples;
- `quantile_q_learning`: the same for Q-learning (QR-DQN, IQN);
- `quantile_expected_sarsa`: the same for expected SARSA;
- `quantile_midpoints`: fractions of QR-DQN; those of IQN are uniform samples;
- `cosine_embedding`: features of fractions, for the network of IQN;
- `fqf_fraction_loss`: loss for learned fractions (FQF);
- `tqc_targets`: pooled and truncated quantiles of several critics (TQC);
- `energy_distance_loss`: energy distance between two sets of samples (MMD-DQN).

A distribution is represented by its quantiles :math:`x_i = F⁻¹(τ_i)` at some fractions
:math:`τ_i`, or by samples, which are quantiles at fractions of equal weight. Losses sum
over the predicted quantiles and average over the samples of the target.
Functions here take one transition. Use `jax.vmap` for a batch.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from rlaxlib import losses
from rlaxlib._core import indexing, safe, streams
from rlaxlib._core.gradients import stop_if
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Float, Int, Static
from rlaxlib.values._shared import asymmetric_loss

__all__ = [
    "cosine_embedding",
    "energy_distance_loss",
    "fqf_fraction_loss",
    "quantile_expected_sarsa",
    "quantile_midpoints",
    "quantile_q_learning",
    "quantile_regression_loss",
    "tqc_targets",
]

# --- Quantile regression. ---


@checked
def quantile_regression_loss(
    dist_src: Float[ArrayLike, "N"],
    tau_src: Float[ArrayLike, "N in [0, 1]"],
    dist_target: Float[ArrayLike, "K"],
    huber_param: Float[ArrayLike, "in [0, inf)"] = 0.0,
    stop_target_gradients: bool = True,
    *,
    normalize_huber: Static[bool, ""] = False,
) -> Float[Array, ""]:
    """Compute the quantile regression loss, or its Huber form (QR-DQN, IQN).

    Takes one distribution and its samples, returns one loss.

    ::

        L = ∑_i (1/K) ∑_j |τ_i - 1[y_j < x_i]| ρ_κ(y_j - x_i),   ρ_0(u) = |u|,
        ρ_κ(u) = { ½ u²            if |u| ≤ κ
                 { κ (|u| - ½ κ)   otherwise

    With :math:`κ = 0` the minimisers are the quantiles. With :math:`κ > 0`, 1 in
    QR-DQN, they are M-quantiles, which tend to the expectiles as :math:`κ` grows.

    IQN (equation 3) divides :math:`ρ_κ` by :math:`κ`, so that the loss converges to
    that of :math:`κ = 0`: set `normalize_huber`. QR-DQN (equation 10) does not.

    Args:
        dist_src: Predicted quantiles :math:`x`, shape `[N]`.
        tau_src: Their fractions :math:`τ` in [0, 1], shape `[N]`.
        dist_target: Samples :math:`y`, such as quantiles of the target, shape `[K]`.
        huber_param: Huber threshold :math:`κ`, in [0, inf), shape `[]`.
        stop_target_gradients: Whether to stop the gradient of the samples.
        normalize_huber: Whether to divide :math:`ρ_κ` by :math:`κ`, if it is not 0.

    Returns:
        Loss, shape `[]`.

    Raises:
        ArgumentError: If a shape, dtype or concrete value is wrong or a flag traced.

    Example:
        >>> dist_src, tau_src, dist_target = jnp.array([[0, 3], [0.25, 0.75], [2, 4]])
        >>> print(rlaxlib.quantile_regression_loss(dist_src, tau_src, dist_target))
        1.25

    References:
        Will Dabney and others, *Distributional Reinforcement Learning with Quantile
        Regression*, 2017. https://arxiv.org/abs/1710.10044

        Will Dabney and others, *Implicit Quantile Networks for Distributional
        Reinforcement Learning*, 2018. https://arxiv.org/abs/1806.06923
    """
    y = stop_if(stop_target_gradients, dist_target)
    kappa = jnp.where(huber_param > 0, huber_param, 1)

    def rho(u: Array) -> Array:
        penalty = jnp.where(huber_param > 0, losses.huber_loss(u, kappa), jnp.abs(u))
        return penalty / kappa if normalize_huber else penalty

    return asymmetric_loss(rho, dist_src, tau_src, y)


@checked
def quantile_q_learning(
    dist_q_tm1: Float[ArrayLike, "N, A"],
    tau_q_tm1: Float[ArrayLike, "N in [0, 1]"],
    a_tm1: Int[ArrayLike, "in [0, A)"],
    r_t: Float[ArrayLike, ""],
    discount_t: Float[ArrayLike, "in [-1, 1]"],
    dist_q_t_selector: Float[ArrayLike, "M, A"],
    dist_q_t: Float[ArrayLike, "K, A"],
    huber_param: Float[ArrayLike, "in [0, inf)"] = 0.0,
    stop_target_gradients: bool = True,
    *,
    normalize_huber: Static[bool, ""] = False,
) -> Float[Array, ""]:
    """Compute the quantile Q-learning loss (QR-DQN, IQN).

    Takes one transition, returns one loss.

    ::

        L = ∑_i (1/K) ∑_j |τ_i - 1[y_j < x_i(a_{t-1})]| ρ_κ(y_j - x_i(a_{t-1})),
        y_j = r_t + γ_t x'_j(a^*),   a^* = argmax_a ∑_m s_m(a),

    with :math:`ρ_κ` as in `quantile_regression_loss`. With the online network as the
    selector :math:`s`, this is double Q-learning. IQN draws separate samples :math:`s`.
    To select by action values, such as the weighted means of FQF, pass them as one
    sample: `q_t[None]`.

    Args:
        dist_q_tm1: Quantiles :math:`x` of each action's return, shape `[N, A]`.
        tau_q_tm1: Their fractions :math:`τ` in [0, 1], shape `[N]`.
        a_tm1: Action taken, in [0, A), shape `[]`.
        r_t: Reward, shape `[]`.
        discount_t: Discount in [-1, 1], 0 where the episode ended, shape `[]`.
        dist_q_t_selector: Next samples :math:`s` to select by, shape `[M, A]`.
        dist_q_t: Samples :math:`x'` of each action's next return, shape `[K, A]`.
        huber_param: Huber threshold :math:`κ`, in [0, inf), shape `[]`.
        stop_target_gradients: Whether to stop the gradient of the target.
        normalize_huber: Whether to divide :math:`ρ_κ` by :math:`κ`, if it is not 0.

    Returns:
        Loss, shape `[]`; NaN if a traced action is outside [0, A).

    Raises:
        ArgumentError: If a shape, dtype or concrete value is wrong or a flag traced.

    Example:
        >>> dist_q_tm1, tau = jnp.array([[0.0, 9.0]]), jnp.array([0.25])
        >>> q_t = jnp.array([[8.0, 1.0], [4.0, 1.0]])
        >>> print(rlaxlib.quantile_q_learning(dist_q_tm1, tau, 0, 1.0, 0.5, q_t, q_t))
        1.0

    References:
        Will Dabney and others, *Distributional Reinforcement Learning with Quantile
        Regression*, 2017. https://arxiv.org/abs/1710.10044

        Will Dabney and others, *Implicit Quantile Networks for Distributional
        Reinforcement Learning*, 2018. https://arxiv.org/abs/1806.06923
    """
    a_t = jnp.argmax(jnp.mean(dist_q_t_selector, axis=0))
    y = r_t + streams.bootstrap(discount_t, indexing.pick_slice(dist_q_t, a_t, axis=1))
    x = indexing.pick_slice(dist_q_tm1, a_tm1, axis=1)
    step = x, tau_q_tm1, y, huber_param, stop_target_gradients
    return quantile_regression_loss(*step, normalize_huber=normalize_huber)


@checked
def quantile_expected_sarsa(
    dist_q_tm1: Float[ArrayLike, "N, A"],
    tau_q_tm1: Float[ArrayLike, "N in [0, 1]"],
    a_tm1: Int[ArrayLike, "in [0, A)"],
    r_t: Float[ArrayLike, ""],
    discount_t: Float[ArrayLike, "in [-1, 1]"],
    dist_q_t: Float[ArrayLike, "K, A"],
    probs_a_t: Float[ArrayLike, "A in [0, 1]"],
    huber_param: Float[ArrayLike, "in [0, inf)"] = 0.0,
    stop_target_gradients: bool = True,
    *,
    normalize_huber: Static[bool, ""] = False,
) -> Float[Array, ""]:
    """Compute the quantile expected SARSA loss.

    Takes one transition, returns one loss.

    ::

        L = ∑_a π_t(a) ∑_i (1/K) ∑_j |τ_i - 1[y_{j,a} < x_i(a_{t-1})]|
            ρ_κ(y_{j,a} - x_i(a_{t-1})),
        y_{j,a} = r_t + γ_t x'_j(a),

    with :math:`ρ_κ` as in `quantile_regression_loss`.

    Args:
        probs_a_t: Next action probabilities :math:`π_t`, in [0, 1], shape `[A]`.
        stop_target_gradients: Whether to stop the gradient of target and `probs_a_t`.
        Other arguments: as `quantile_q_learning`.

    Returns:
        Loss, shape `[]`; NaN if a traced action is outside [0, A).

    Raises:
        ArgumentError: If a shape, dtype or concrete value is wrong or a flag traced.

    Example:
        >>> dist_q_tm1, tau = jnp.array([[0.0, 9.0]]), jnp.array([0.25])
        >>> dist_q_t, probs = jnp.array([[6.0, 2.0]]), jnp.array([0.5, 0.5])
        >>> loss = rlaxlib.quantile_expected_sarsa
        >>> print(loss(dist_q_tm1, tau, 0, 1.0, 0.5, dist_q_t, probs))
        0.75

    References:
        Will Dabney and others, *Distributional Reinforcement Learning with Quantile
        Regression*, 2017. https://arxiv.org/abs/1710.10044
    """
    y = r_t + streams.bootstrap(discount_t, dist_q_t)
    y, pi = stop_if(stop_target_gradients, (y, probs_a_t))
    x = indexing.pick_slice(dist_q_tm1, a_tm1, axis=1)

    def loss(y: Array) -> Array:
        step = x, tau_q_tm1, y, huber_param, False
        return quantile_regression_loss(*step, normalize_huber=normalize_huber)

    return safe.dot(pi, jax.vmap(loss, in_axes=1)(y))


# --- Fractions. ---


@checked
def quantile_midpoints(
    num_quantiles: Static[int, "in [1, inf)"],
    *,
    dtype: DTypeLike = jnp.float32,
) -> Float[Array, "num_quantiles"]:
    """Return the midpoints of equal intervals, the fractions of QR-DQN.

    Takes a number, returns as many fractions.

    ::

        τ̂_i = (2 i - 1) / (2 n),   i = 1, …, n

    The quantiles at these fractions, as samples, minimise the Wasserstein distance.

    Args:
        num_quantiles: Number :math:`n` of fractions, a Python integer in [1, inf).
        dtype: Dtype of the result.

    Returns:
        Fractions, in ascending order, shape `[num_quantiles]`.

    Raises:
        ArgumentError: If `num_quantiles` is not a Python integer of at least 1.

    Example:
        >>> print(rlaxlib.quantile_midpoints(4))
        [0.125 0.375 0.625 0.875]

    References:
        Will Dabney and others, *Distributional Reinforcement Learning with Quantile
        Regression*, 2017. https://arxiv.org/abs/1710.10044
    """
    return jnp.asarray((np.arange(num_quantiles) + 0.5) / num_quantiles, dtype)


@checked
def cosine_embedding(
    fractions: Float[ArrayLike, "N in [0, 1]"],
    num_features: Static[int, "in [1, inf)"],
) -> Float[Array, "N, num_features"]:
    """Compute the cosine features of fractions, the network input of IQN.

    Takes the fractions of one state, returns one vector for each.

    ::

        φ_i(τ) = cos(π i τ),   i = 0, …, D - 1

    Args:
        fractions: Fractions :math:`τ` in [0, 1], shape `[N]`.
        num_features: Number :math:`D` of features, a Python integer in [1, inf), such
            as 64.

    Returns:
        Features, shape `[N, D]`.

    Raises:
        ArgumentError: If a shape, dtype, NumPy fraction or `num_features` is wrong.

    Example:
        >>> print(rlaxlib.cosine_embedding(jnp.array([0.0, 1.0]), 3))
        [[ 1.  1.  1.]
         [ 1. -1.  1.]]

    References:
        Will Dabney and others, *Implicit Quantile Networks for Distributional
        Reinforcement Learning*, 2018. https://arxiv.org/abs/1806.06923
    """
    i = jnp.arange(num_features, dtype=fractions.dtype)
    return jnp.cos(jnp.pi * jnp.outer(fractions, i))


@checked
def fqf_fraction_loss(
    fractions: Float[ArrayLike, "N+1 ascending in [0, 1]"],
    quantiles_at_fractions: Float[ArrayLike, "N-1"],
    quantiles_at_midpoints: Float[ArrayLike, "N"],
) -> Float[Array, ""]:
    """Compute the loss for learned quantile fractions (FQF).

    Takes the fractions of one state, returns one loss.

    ::

        L = ∑_{i=1}^{N-1} τ_i [2 F⁻¹(τ_i) - F⁻¹(τ̂_i) - F⁻¹(τ̂_{i-1})],
        τ̂_i = (τ_i + τ_{i+1}) / 2,

    with the gradient of the quantiles stopped. It has the gradient, but not the value,
    of the Wasserstein distance between the distribution and its quantiles at the
    midpoints. Train only the fractions with it, and stop their gradient in the quantile
    loss. The paper adds a small bonus on the entropy of :math:`τ_{i+1} - τ_i`.

    Args:
        fractions: Fractions :math:`τ_0, …, τ_N`, ascending, in [0, 1], from 0 to 1,
            shape `[N+1]`.
        quantiles_at_fractions: Quantiles :math:`F⁻¹(τ_1), …`, shape `[N-1]`.
        quantiles_at_midpoints: Quantiles :math:`F⁻¹(τ̂_0), …`, shape `[N]`.

    Returns:
        Loss, shape `[]`.

    Raises:
        ArgumentError: If a shape, dtype or NumPy fraction is wrong.

    Example:
        >>> fractions, at_fractions = jnp.array([0.0, 0.5, 1.0]), jnp.array([4.0])
        >>> loss, at_midpoints = rlaxlib.fqf_fraction_loss, jnp.array([1.0, 5.0])
        >>> print(loss(fractions, at_fractions, at_midpoints))
        1.0

    References:
        Derek Yang and others, *Fully Parameterized Quantile Function for Distributional
        Reinforcement Learning*, 2019. https://arxiv.org/abs/1911.02140
    """
    midpoints = quantiles_at_midpoints
    gradient = 2 * quantiles_at_fractions - midpoints[1:] - midpoints[:-1]
    return safe.dot(fractions[1:-1], jax.lax.stop_gradient(gradient))


# --- Samples. ---


@checked
def tqc_targets(
    dist_q_t: Float[ArrayLike, "C, N"], num_dropped: Static[int, "in [0, N)"]
) -> Float[Array, "C*N-C*num_dropped"]:
    """Pool the quantiles of several critics and drop the largest (TQC).

    Takes the quantiles of all critics, returns the ones to learn from.

    ::

        z_{(1)} ≤ z_{(2)} ≤ … ≤ z_{(C N)}   of which the first C N - C d

    The paper drops :math:`d` = 0 to 5 of 25, against overestimation. Train each critic
    on :math:`r + γ (z - α log π)` by `quantile_regression_loss` with `huber_param=1`.

    Args:
        dist_q_t: Next quantiles of C target critics, in any order, shape `[C, N]`.
        num_dropped: Number :math:`d` to drop for each critic, a Python integer
            in [0, N).

    Returns:
        Smallest quantiles, in ascending order, shape `[C*N - C*num_dropped]`.

    Raises:
        ArgumentError: If a shape, dtype or `num_dropped` is wrong.

    Example:
        >>> dist_q_t = jnp.array([[1.0, 4.0, 9.0], [0.0, 2.0, 5.0]])
        >>> print(rlaxlib.tqc_targets(dist_q_t, num_dropped=1))
        [0. 1. 2. 4.]

    References:
        Arsenii Kuznetsov and others, *Controlling Overestimation Bias with Truncated
        Mixture of Continuous Distributional Quantile Critics*, 2020.
        https://arxiv.org/abs/2005.04269
    """
    critics, quantiles = dist_q_t.shape
    kept = critics * (quantiles - num_dropped)
    return jnp.sort(jnp.ravel(dist_q_t))[:kept]


@checked
def energy_distance_loss(
    samples: Float[ArrayLike, "N"],
    targets: Float[ArrayLike, "K"],
    *,
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Compute the squared energy distance between two sets of samples (MMD-DQN).

    Takes two sets of samples, returns one loss.

    ::

        L = (2 / (N K)) ∑_{i,j} |x_i - y_j| - (1/N²) ∑_{i,i'} |x_i - x_{i'}|
            - (1/K²) ∑_{j,j'} |y_j - y_{j'}|

    This is the loss of MMD-DQN with the kernel :math:`k(x, y) = -|x - y|`. Apart from
    rounding, it is never negative, and 0 only if the distributions are equal.

    Args:
        samples: Predicted samples :math:`x`, shape `[N]`.
        targets: Samples :math:`y` of the target, shape `[K]`.
        stop_target_gradients: Whether to stop the gradient of the targets.

    Returns:
        Loss, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype.

    Example:
        >>> print(rlaxlib.energy_distance_loss(jnp.array([0.0, 2.0]), jnp.array([1.0])))
        1.0

    References:
        Thanh Tang Nguyen, Sunil Gupta and Svetha Venkatesh, *Distributional
        Reinforcement Learning via Moment Matching*, 2021.
        https://arxiv.org/abs/2007.12354
    """
    x, y = samples, stop_if(stop_target_gradients, targets)
    return 2 * _mean_distance(x, y) - _mean_distance(x, x) - _mean_distance(y, y)


def _mean_distance(x: Array, y: Array) -> Array:
    """Return the mean of |x_i - y_j| over all pairs."""
    d = x[:, None] - y[None, :]
    return jnp.mean(jnp.sign(d) * d)  # Unlike `abs`, with a derivative of 0 at 0.
