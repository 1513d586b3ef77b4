"""Expectiles of returns: ER-DQN.

- `expectile_regression_loss`: expectile loss between predictions and samples;
- `expectile_q_learning`: the same for Q-learning, from samples;
- `impute_expectile_samples`: samples that have given expectiles;
- `imputed_expectile_q_learning`: the loss of ER-DQN, from expectiles.

Expectiles minimise the asymmetric squared error, as quantiles minimise the asymmetric
absolute error. The expectile at :math:`τ = ½` is the mean: predict it among the others,
to select actions by. Expectiles are closer to the mean than samples. Bootstrapping from
them would shrink the distribution, so ER-DQN imputes samples first.

Functions here take one transition. Use `jax.vmap` for a batch.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from rlaxlib._core import safe, streams
from rlaxlib._core.gradients import stop_if
from rlaxlib._core.indexing import pick, pick_slice
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Float, Int, Static
from rlaxlib.values._shared import asymmetric_loss, hats

__all__ = [
    "expectile_q_learning",
    "expectile_regression_loss",
    "impute_expectile_samples",
    "imputed_expectile_q_learning",
]


@checked
def expectile_regression_loss(
    dist_src: Float[ArrayLike, "N"],
    tau_src: Float[ArrayLike, "N in [0, 1]"],
    dist_target: Float[ArrayLike, "K"],
    *,
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Compute the expectile regression loss.

    Takes one distribution and its samples, returns one loss.

    ::

        L = ∑_i (1/K) ∑_j |τ_i - 1[y_j < x_i]| (y_j - x_i)²

    The minimisers are the expectiles of the samples at :math:`τ_i`. The targets must be
    samples, not expectiles: see `impute_expectile_samples`.

    Args:
        dist_src: Predicted expectiles :math:`x`, shape `[N]`.
        tau_src: Their fractions :math:`τ` in [0, 1], shape `[N]`.
        dist_target: Samples :math:`y`, shape `[K]`.
        stop_target_gradients: Whether to stop the gradient of the samples.

    Returns:
        Loss, shape `[]`.

    Raises:
        ArgumentError: If a shape, dtype or NumPy `tau_src` is wrong.

    Example:
        >>> dist_src, tau_src, dist_target = jnp.array([[0, 3], [0.25, 0.75], [2, 4]])
        >>> print(rlaxlib.expectile_regression_loss(dist_src, tau_src, dist_target))
        3.0

    References:
        Whitney K. Newey and James L. Powell, *Asymmetric Least Squares Estimation and
        Testing*, 1987. https://doi.org/10.2307/1911031

        Mark Rowland and others, *Statistics and Samples in Distributional Reinforcement
        Learning*, 2019. https://arxiv.org/abs/1902.08102
    """
    y = stop_if(stop_target_gradients, dist_target)
    return asymmetric_loss(jnp.square, dist_src, tau_src, y)


@checked
def expectile_q_learning(
    dist_q_tm1: Float[ArrayLike, "N, A"],
    tau_q_tm1: Float[ArrayLike, "N in [0, 1]"],
    a_tm1: Int[ArrayLike, "in [0, A)"],
    r_t: Float[ArrayLike, ""],
    discount_t: Float[ArrayLike, "in [-1, 1]"],
    dist_q_t_selector: Float[ArrayLike, "M, A"],
    dist_q_t: Float[ArrayLike, "K, A"],
    *,
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Compute the expectile Q-learning loss, from samples.

    Takes one transition, returns one loss.

    ::

        L = ∑_i (1/K) ∑_j |τ_i - 1[y_j < x_i(a_{t-1})]| (y_j - x_i(a_{t-1}))²,
        y_j = r_t + γ_t x'_j(a^*),   a^* = argmax_a (1/M) ∑_m s_m(a).

    With expectiles in place of samples, each step of bootstrapping would narrow the
    distributions: see `imputed_expectile_q_learning`.

    Args:
        dist_q_tm1: Expectiles :math:`x` of each action's return, shape `[N, A]`.
        Other arguments: as `quantile_q_learning`.

    Returns:
        Loss, shape `[]`; NaN if a traced action is outside [0, A).

    Raises:
        ArgumentError: If a shape, dtype or concrete value is wrong.

    Example:
        >>> dist_q_tm1, tau = jnp.array([[0.0, 9.0]]), jnp.array([0.25])
        >>> q_t = jnp.array([[6.0, 1.0], [2.0, 1.0]])
        >>> print(rlaxlib.expectile_q_learning(dist_q_tm1, tau, 0, 1.0, 0.5, q_t, q_t))
        2.5

    References:
        Mark Rowland and others, *Statistics and Samples in Distributional Reinforcement
        Learning*, 2019. https://arxiv.org/abs/1902.08102
    """
    a_t = jnp.argmax(jnp.mean(dist_q_t_selector, axis=0))
    y = r_t + streams.bootstrap(discount_t, pick_slice(dist_q_t, a_t, axis=1))
    x = pick_slice(dist_q_tm1, a_tm1, axis=1)
    return expectile_regression_loss(
        x, tau_q_tm1, y, stop_target_gradients=stop_target_gradients
    )


@checked
def impute_expectile_samples(
    expectiles: Float[ArrayLike, "N"],
    tau: Float[ArrayLike, "N in [0, 1]"],
    num_samples: Static[int, "in [1, inf)"] | None = None,
) -> Float[Array, "num_samples"]:
    """Impute samples that have the given expectiles (ER-DQN).

    Takes the expectiles of one state, returns samples.

    The :math:`n` samples :math:`z`, of equal weight, solve

    ::

        ∑_i |τ_k - 1[z_i < e_k]| (z_i - e_k) = 0   for all k.

    With their mean :math:`m` and the convex, piecewise linear function
    :math:`P(x) = ∑_i max(x - z_i, 0)`, the equations are

    ::

        (1 - 2 τ_k) P(e_k) = n τ_k (m - e_k).

    The derivative of :math:`P` counts the samples below :math:`x`, so that these are
    differences of its convex conjugate. With :math:`P` linear between expectiles,

    ::

        z_i = P^*(i) - P^*(i - 1),   P^*(0) = 0,   P^*(n) = n m,
        P^*(i) = max_k [i e_k - P(e_k)]   for 0 < i < n.

    The mean is the expectile at :math:`τ = ½`, if it is given. Otherwise a search, 25
    times as slow, finds the best mean, up to 10 ranges beyond the expectiles.

    If :math:`n` samples with these expectiles exist, the result has them up to
    rounding, otherwise approximately. If no distribution has them, as for an untrained
    network, the samples are finite, ascending and have the right mean. Expectiles that
    cross are sorted. For :math:`n` far above :math:`N`, each tail is one far sample.

    Args:
        expectiles: Expectiles :math:`e`, shape `[N]`.
        tau: Their fractions :math:`τ` in [0, 1], in any order, shape `[N]`.
        num_samples: Number :math:`n` of samples, in [1, inf); or None for `N`.

    Returns:
        Samples :math:`z`, ascending, without a gradient, shape `[num_samples]`.

    Raises:
        ArgumentError: If a shape, dtype, NumPy `tau` or `num_samples` is wrong.

    Example:
        >>> expectiles, tau = jnp.array([1.0, 2.0, 3.0]), jnp.array([0.25, 0.5, 0.75])
        >>> print(rlaxlib.impute_expectile_samples(expectiles, tau))
        [-0.5  2.   4.5]

    References:
        Mark Rowland and others, *Statistics and Samples in Distributional Reinforcement
        Learning*, section 3.3, 2019. https://arxiv.org/abs/1902.08102
    """
    n = num_samples or expectiles.size
    e, tau = map(jnp.sort, jax.lax.stop_gradient((expectiles, tau)))
    tau = jnp.where(jnp.abs(tau - 0.5) < 1e-6, 0.5, tau)  # 1 - 2 τ would be noise.
    center = e[e.size // 2]  # A common offset would cost precision.
    e = e - center

    def misfit(mean: Array) -> Array:
        u = _samples(mean, e, tau, n)[None, :] - e[:, None]
        weights = jnp.where(u < 0, 1 - tau[:, None], tau[:, None])
        return jnp.sum(jnp.abs(jnp.sum(weights * u, axis=1)))

    # The best of 33 means, then of 33 closer ones around it, and so on. Those nearest
    # to the middle come first, because `argmin` returns the first of equal misfits.
    offsets = jnp.array(sorted(np.linspace(-0.5, 0.5, 33), key=abs), e.dtype)

    def narrow_down(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        rounds, low, high = state
        means = (low + high) / 2 + offsets * (high - low)
        # One at a time: all would hold 33 N² numbers.
        best = pick(means, jnp.argmin(jax.lax.map(misfit, means)))
        step = (high - low) / 20
        return rounds - 1, jnp.maximum(low, best - step), jnp.minimum(high, best + step)

    far = 10 * (e[-1] - e[0])
    low = jnp.max(jnp.where(tau <= 0.5, e, e[0] - far))
    high = jnp.min(jnp.where(tau >= 0.5, e, e[-1] + far))
    rounds = 8 * jnp.all(tau != 0.5).astype(int)  # The mean is known, or searched for.
    state = jax.lax.while_loop(
        lambda state: state[0] > 0, narrow_down, (rounds, low, high)
    )
    _, low, high = state
    return _samples((low + high) / 2, e, tau, n) + center


@checked
def imputed_expectile_q_learning(
    dist_q_tm1: Float[ArrayLike, "N, A"],
    tau_q_tm1: Float[ArrayLike, "N in [0, 1]"],
    a_tm1: Int[ArrayLike, "in [0, A)"],
    r_t: Float[ArrayLike, ""],
    discount_t: Float[ArrayLike, "in [-1, 1]"],
    dist_q_t_selector: Float[ArrayLike, "N, A"],
    dist_q_t: Float[ArrayLike, "N, A"],
    *,
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Compute the expectile Q-learning loss, from expectiles (ER-DQN).

    Takes one transition, returns one loss.

    ::

        L = ∑_i (1/N) ∑_j |τ_i - 1[y_j < x_i(a_{t-1})]| (y_j - x_i(a_{t-1}))²,
        y_j = r_t + γ_t z_j,   a^* = argmax_a s_{1/2}(a),

    where the samples :math:`z` are `impute_expectile_samples` of :math:`x'(a^*)`. The
    mean :math:`s_{1/2}` is the expectile at :math:`τ = ½`, interpolated if it is
    missing. With the online network as :math:`s`, this is double Q-learning.

    Args:
        tau_q_tm1: Fractions :math:`τ` of all expectiles, in [0, 1], shape `[N]`.
        dist_q_t_selector: Next expectiles :math:`s` to select by, shape `[N, A]`.
        dist_q_t: Next expectiles :math:`x'`, without a gradient, shape `[N, A]`.
        Other arguments: as `expectile_q_learning`.

    Returns:
        Loss, shape `[]`; NaN if a traced action is outside [0, A).

    Raises:
        ArgumentError: If a shape, dtype or concrete value is wrong.

    Example:
        >>> dist_q_tm1, tau = jnp.array([[2.0, 0.0]] * 3), jnp.array([0.25, 0.5, 0.75])
        >>> q_t = jnp.array([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]])
        >>> loss = rlaxlib.imputed_expectile_q_learning
        >>> print(loss(dist_q_tm1, tau, 0, 0.0, 1.0, q_t, q_t))
        6.25

    References:
        Mark Rowland and others, *Statistics and Samples in Distributional Reinforcement
        Learning*, 2019. https://arxiv.org/abs/1902.08102
    """
    a_t = jnp.argmax(_means(dist_q_t_selector, tau_q_tm1))
    e_t = safe.floored(pick_slice(dist_q_t, a_t, axis=1))
    y = r_t + discount_t * impute_expectile_samples(e_t, tau_q_tm1)
    x = pick_slice(dist_q_tm1, a_tm1, axis=1)
    return expectile_regression_loss(
        x, tau_q_tm1, y, stop_target_gradients=stop_target_gradients
    )


def _means(dist: Array, tau: Array) -> Array:
    """Return the expectile at 1/2 of each column, interpolated if it is missing."""
    order = jnp.argsort(tau)
    weights = hats(jnp.full_like(tau, 0.5, shape=()), tau[order])
    return safe.expectation(weights[:, None], dist[order], axis=0)


def _samples(mean: Array, e: Array, tau: Array, n: int) -> Array:
    """Return the differences of the convex conjugate of P, given the mean."""
    half = tau == 0.5
    p = n * tau * (mean - e) / jnp.where(half, 1, 1 - 2 * tau)
    i = jnp.arange(1, n, dtype=e.dtype)
    lines = i[None, :] * e[:, None] - p[:, None]
    unknown = half & ~jnp.all(half)  # At the mean, P is not determined.
    conjugate = jnp.max(jnp.where(unknown[:, None], -jnp.inf, lines), axis=0)
    return jnp.diff(conjugate, prepend=jnp.zeros_like(mean), append=n * mean)
