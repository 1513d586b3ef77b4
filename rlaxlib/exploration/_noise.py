"""Exploration noise: Gaussian, Ornstein-Uhlenbeck and Dirichlet.

Leading axes of an action, noise or prior are a batch, and one key samples all of it.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rlaxlib._core import checks
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Bool, Float, Key

__all__ = [
    "add_dirichlet_noise",
    "add_gaussian_noise",
    "add_ornstein_uhlenbeck_noise",
    "ornstein_uhlenbeck_noise",
]


@checked
def add_gaussian_noise(
    key: Key[ArrayLike, ""],
    action: Float[ArrayLike, "[] or [..., A]"],
    stddev: Float[ArrayLike, "[] or [A] or [..., A] in [0, inf)"],
) -> Float[Array, "[] or [..., A]"]:
    """Add Gaussian noise to continuous actions.

    Takes one action, or a batch, returns noisy ones.

    ::

        a' = a + σ ε,   ε ~ Normal(0, 1)

    The result can exceed the bounds of the action: clip it. TD3 uses a tenth of the
    largest action as :math:`σ`.

    Args:
        key: PRNG key, shape `[]`.
        action: Actions :math:`a`: a scalar, shape `[]`; or vectors, shape `[..., A]`.
        stddev: Standard deviation :math:`σ`, in [0, inf), shape `[]`, `[A]` or
            `[..., A]`.

    Returns:
        Noisy actions, of the shape of `action`.

    Raises:
        ArgumentError: If a shape, dtype, scalar or NumPy value is wrong.

    Example:
        >>> action = jnp.array([0.5, -0.5])
        >>> print(rlaxlib.add_gaussian_noise(jax.random.key(0), action, stddev=0.0))
        [ 0.5 -0.5]

    References:
        Scott Fujimoto, Herke van Hoof and David Meger, *Addressing Function
        Approximation Error in Actor-Critic Methods*, section 6.1, 2018.
        https://arxiv.org/abs/1802.09477
    """
    return action + _gaussian(key, action, stddev)


@checked
def add_ornstein_uhlenbeck_noise(
    key: Key[ArrayLike, ""],
    action: Float[ArrayLike, "[] or [..., A]"],
    noise_tm1: Float[ArrayLike, "[] or [..., A]"],
    damping: Float[ArrayLike, "in [0, 2]"],
    stddev: Float[ArrayLike, "[] or [A] or [..., A] in [0, inf)"],
) -> Float[Array, "[] or [..., A]"]:
    """Add Ornstein-Uhlenbeck noise to continuous actions.

    Takes one action, or a batch, returns noisy ones.

    ::

        a'_t = a_t + n_t,   n_t = (1 - θ) n_{t-1} + σ ε_t,   ε_t ~ Normal(0, 1)

    The next step needs the noise :math:`n_t`, which `ornstein_uhlenbeck_noise` returns
    for the same key; see there how to choose :math:`θ` and :math:`σ`.

    Args:
        key: PRNG key, shape `[]`.
        action: Actions :math:`a_t`: a scalar, shape `[]`; or vectors, shape `[..., A]`.
        noise_tm1: Noise :math:`n_{t-1}`, 0 at first, like the action, shape `[]` or
            `[..., A]`.
        damping: Damping :math:`θ`, in [0, 2], shape `[]`.
        stddev: Standard deviation :math:`σ`, in [0, inf), shape `[]`, `[A]` or
            `[..., A]`.

    Returns:
        Noisy actions, of the shape of `action`.

    Raises:
        ArgumentError: If a shape, dtype, scalar or NumPy value is wrong.

    Example:
        >>> key, action, noise = jax.random.key(0), jnp.array([1.0]), jnp.array([4.0])
        >>> add = rlaxlib.add_ornstein_uhlenbeck_noise
        >>> print(add(key, action, noise, damping=0.25, stddev=0.0))
        [4.]

    References:
        George E. Uhlenbeck and Leonard S. Ornstein, *On the Theory of the Brownian
        Motion*, 1930. https://doi.org/10.1103/PhysRev.36.823
    """
    if noise_tm1.shape != action.shape:
        checks.fail(f"`noise_tm1` has shape {noise_tm1.shape}, must be {action.shape}")
    noise_t = ornstein_uhlenbeck_noise(
        key=key, noise_tm1=noise_tm1, damping=damping, stddev=stddev
    )
    return action + noise_t


@checked
def ornstein_uhlenbeck_noise(
    key: Key[ArrayLike, ""],
    noise_tm1: Float[ArrayLike, "[] or [..., A]"],
    damping: Float[ArrayLike, "in [0, 2]"] = 0.15,
    stddev: Float[ArrayLike, "[] or [A] or [..., A] in [0, inf)"] = 0.2,
) -> Float[Array, "[] or [..., A] like noise_tm1"]:
    """Advance an Ornstein-Uhlenbeck noise process by one step.

    Takes the noise of one step, returns the noise of the next.

    ::

        n_t = (1 - θ) n_{t-1} + σ ε_t,   ε_t ~ Normal(0, 1)

    The noise is correlated over about :math:`1/θ` steps: :math:`θ = 1` gives
    independent noise, :math:`θ = 0` a random walk. Its stationary standard deviation is
    :math:`σ/√(θ (2 - θ))`. The defaults are those of DDPG.

    Args:
        key: PRNG key, shape `[]`.
        noise_tm1: Noise :math:`n_{t-1}`, 0 at the start of an episode, shape `[]` or
            `[..., A]`.
        damping: Damping :math:`θ`, in [0, 2], shape `[]`. Above 1, the sign alternates.
        stddev: Standard deviation :math:`σ`, in [0, inf), shape `[]`, `[A]` or
            `[..., A]`.

    Returns:
        Noise :math:`n_t`, of the shape of `noise_tm1`.

    Raises:
        ArgumentError: If a shape, dtype, scalar or NumPy value is wrong.

    Example:
        >>> key, noise = jax.random.key(0), jnp.array([4.0, -2.0])
        >>> print(rlaxlib.ornstein_uhlenbeck_noise(key, noise, damping=0.5, stddev=0.0))
        [ 2. -1.]

    References:
        George E. Uhlenbeck and Leonard S. Ornstein, *On the Theory of the Brownian
        Motion*, 1930. https://doi.org/10.1103/PhysRev.36.823

        Timothy P. Lillicrap and others, *Continuous Control with Deep Reinforcement
        Learning*, section 3, 2015. https://arxiv.org/abs/1509.02971
    """
    return (1 - damping) * noise_tm1 + _gaussian(key, noise_tm1, stddev)


@checked
def add_dirichlet_noise(
    key: Key[ArrayLike, ""],
    prior: Float[ArrayLike, "..., A in [0, 1]"],
    dirichlet_alpha: Float[ArrayLike, "[] or [A] in (0, inf)"],
    dirichlet_fraction: Float[ArrayLike, "in [0, 1]"],
    *,
    action_mask: Bool[ArrayLike, "[A] or [..., A]"] | None = None,
) -> Float[Array, "..., A"]:
    """Mix Dirichlet noise into the root prior of a search (AlphaZero).

    Takes the probabilities of all actions, returns noisy ones.

    ::

        P'(a) = (1 - f) P(a) + f η_a,   η ~ Dir(α, …, α)

    A good :math:`α` is about 10 divided by the number of legal actions: AlphaZero uses
    0.3 for chess, 0.15 for shogi and 0.03 for Go, MuZero 0.25 for Atari, all with
    :math:`f = 0.25`. Pass `action_mask` if legal actions may have a prior of 0, for
    example in half precision.

    Args:
        key: PRNG key, shape `[]`.
        prior: Probabilities :math:`P` of the actions, in [0, 1], shape `[..., A]`.
        dirichlet_alpha: Concentration :math:`α`, in (0, inf), shape `[]` or `[A]`.
        dirichlet_fraction: Fraction :math:`f` of the noise, in [0, 1], shape `[]`.
        action_mask: True for legal actions, which receive noise, shape `[A]` or
            `[..., A]`; or None for those whose prior is not 0.

    Returns:
        Noisy priors, shape `[..., A]`; 0 for illegal actions.

    Raises:
        ArgumentError: If a shape, dtype, scalar or NumPy value is wrong.

    Example:
        >>> key, prior = jax.random.key(0), jnp.array([0.0, 1.0, 0.0])
        >>> print(rlaxlib.add_dirichlet_noise(key, prior, 0.3, 0.25))
        [0. 1. 0.]

    References:
        David Silver and others, *A General Reinforcement Learning Algorithm that
        Masters Chess, Shogi and Go through Self-Play*, 2018.
        https://doi.org/10.1126/science.aar6404
    """
    legal = prior != 0
    if action_mask is not None:
        legal = jnp.broadcast_to(action_mask, prior.shape)
    # Normalised gamma variables are Dirichlet; those of a subset are so too.
    dtype = jnp.result_type(prior, dirichlet_alpha)
    log_gamma = jax.random.loggamma(key, dirichlet_alpha, prior.shape, dtype)
    # The softmax would be NaN without any legal action.
    shared = legal | ~jnp.any(legal, axis=-1, keepdims=True)
    noise = jax.nn.softmax(jnp.where(shared, log_gamma, -jnp.inf), axis=-1)
    prior, noise = (jnp.where(legal, x, 0) for x in (prior, noise))
    return (1 - dirichlet_fraction) * prior + dirichlet_fraction * noise


def _gaussian(key: Array, like: Array, stddev: Array) -> Array:
    """Sample :math:`σ ε` for each entry of an array."""
    shapes = dict.fromkeys([(), like.shape[-1:], like.shape])
    if stddev.shape not in shapes:
        needed = " or ".join(map(str, shapes))
        checks.fail(f"`stddev` has shape {stddev.shape}, must be {needed}")
    noise = jax.random.normal(key, like.shape, jnp.result_type(like, stddev))
    return jnp.broadcast_to(stddev, like.shape) * noise
