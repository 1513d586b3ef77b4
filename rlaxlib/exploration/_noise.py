"""Add noise to what an agent would do, so that it tries something else as well.

Each function takes one action or prior, or any number of them: leading axes are a
batch, and all of it comes from one key.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import checks, dtypes

__all__ = [
    "add_dirichlet_noise",
    "add_gaussian_noise",
    "add_ornstein_uhlenbeck_noise",
    "ornstein_uhlenbeck_noise",
]


def add_gaussian_noise(key: ArrayLike, action: ArrayLike, stddev: ArrayLike) -> Array:
    """Add Gaussian noise to a continuous action.

    .. math::

        a' = a + σ ε,   ε ~ Normal(0, 1)

    The noise of each dimension and each step is independent of all others; it is in
    units of the action, and may carry it beyond its bounds: clip it. TD3 found
    :math:`σ` of a tenth of the largest action to do as well as noise with a memory,
    `add_ornstein_uhlenbeck_noise`.

    Args:
        key: Random key, shape `[]`.
        action: Action :math:`a`, or a batch of them: one number, shape `[]`; or
            vectors, shape `[..., A]`.
        stddev: Standard deviation :math:`σ`, at least 0: one for all, shape `[]`; or
            for each dimension, shape `[A]`; or for each of each row, shape `[..., A]`.

    Returns:
        Noisy actions, of the shape of `action`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if `stddev` is
            negative.

    Example:
        >>> action = jnp.array([0.5, -0.5])
        >>> print(rlaxlib.add_gaussian_noise(jax.random.key(0), action, stddev=0.0))
        [ 0.5 -0.5]

    References:
        Scott Fujimoto, Herke van Hoof and David Meger, *Addressing Function
        Approximation Error in Actor-Critic Methods*, section 6.1, 2018.
        https://arxiv.org/abs/1802.09477
    """
    key, action, stddev = checks.arrays(
        key=(key, "key[]"),
        action=(action, "float[] or [..., A]"),
        stddev=(
            stddev,
            "float[] or [A] or [..., A]" if np.ndim(action) else "float[]",
        ),
    )
    checks.within("[0, inf)", stddev=stddev)
    (action, stddev), narrow = dtypes.widen(action, stddev)
    return narrow(action + _scale(_normal(key, action, stddev), stddev))


def add_ornstein_uhlenbeck_noise(
    key: ArrayLike,
    action: ArrayLike,
    noise_tm1: ArrayLike,
    damping: ArrayLike,
    stddev: ArrayLike,
) -> Array:
    """Add noise with a memory to a continuous action (Ornstein-Uhlenbeck).

    .. math::

        a'_t = a_t + n_t,   n_t = (1 - θ) n_{t-1} + σ ε_t,   ε_t ~ Normal(0, 1)

    The noise is needed again at the next step, and this returns the action alone. With
    the same key, `ornstein_uhlenbeck_noise` returns the noise, to add and to carry;
    there it is told what to choose for :math:`θ` and :math:`σ`.

    Args:
        key: Random key, shape `[]`.
        action: Action :math:`a_t`, or a batch of them: one number, shape `[]`; or
            vectors, shape `[..., A]`.
        noise_tm1: Noise :math:`n_{t-1}` of the step before, 0 at the start of an
            episode: one number, if the action is one, else vectors, shape `[..., A]`.
        damping: What part :math:`θ` of the noise is forgotten at each step, in [0, 2],
            shape `[]`.
        stddev: Standard deviation :math:`σ` of what is added at each step, at least 0:
            one for all, shape `[]`; or for each dimension, shape `[A]`; or for each of
            each row, shape `[..., A]`.

    Returns:
        Noisy actions, of the shape of `action`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if `damping` lies
            outside [0, 2], or if `stddev` is negative.

    Example:
        >>> key, action, noise = jax.random.key(0), jnp.array([1.0]), jnp.array([4.0])
        >>> add = rlaxlib.add_ornstein_uhlenbeck_noise
        >>> print(add(key, action, noise, damping=0.25, stddev=0.0))
        [4.]

    References:
        George E. Uhlenbeck and Leonard S. Ornstein, *On the Theory of the Brownian
        Motion*, 1930. https://doi.org/10.1103/PhysRev.36.823

        Timothy P. Lillicrap and others, *Continuous Control with Deep Reinforcement
        Learning*, section 3, 2015. https://arxiv.org/abs/1509.02971
    """
    key, action, noise_tm1, damping, stddev = checks.arrays(
        key=(key, "key[]"),
        action=(action, "float[] or [..., A]"),
        noise_tm1=(noise_tm1, "float[..., A]" if np.ndim(action) else "float[]"),
        damping=(damping, "float[]"),
        stddev=(
            stddev,
            "float[] or [A] or [..., A]" if np.ndim(action) else "float[]",
        ),
    )
    checks.within("[0, 2]", damping=damping)
    checks.within("[0, inf)", stddev=stddev)
    (action, *process), narrow = dtypes.widen(action, noise_tm1, damping, stddev)
    return narrow(action + _continue(key, *process))


def ornstein_uhlenbeck_noise(
    key: ArrayLike, noise_tm1: ArrayLike, damping: ArrayLike, stddev: ArrayLike
) -> Array:
    """Continue noise that has a memory, to add to an action and to carry on.

    .. math::

        n_t = (1 - θ) n_{t-1} + σ ε_t,   ε_t ~ Normal(0, 1)

    Such noise pushes in one direction for a while, which moves a body with inertia
    farther than noise that is new at each step. It remembers about :math:`1/θ` steps:
    with :math:`θ = 1` nothing, with :math:`θ = 0` everything, a random walk. After many
    steps its standard deviation is :math:`σ/√(θ (2 - θ))`, more than :math:`σ`. DDPG
    took :math:`θ = 0.15` and :math:`σ = 0.2`, for actions in [-1, 1].

    Args:
        key: Random key, shape `[]`.
        noise_tm1: Noise :math:`n_{t-1}` of the step before, 0 at the start of an
            episode: one number, shape `[]`; or vectors, shape `[..., A]`.
        damping: What part :math:`θ` of the noise is forgotten at each step, in [0, 2]:
            beyond 1 it changes its sign from step to step, shape `[]`.
        stddev: Standard deviation :math:`σ` of what is added at each step, at least 0:
            one for all, shape `[]`; or for each dimension, shape `[A]`; or for each of
            each row, shape `[..., A]`.

    Returns:
        Noise :math:`n_t`, of the shape of `noise_tm1`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if `damping` lies
            outside [0, 2], or if `stddev` is negative.

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
    key, noise_tm1, damping, stddev = checks.arrays(
        key=(key, "key[]"),
        noise_tm1=(noise_tm1, "float[] or [..., A]"),
        damping=(damping, "float[]"),
        stddev=(
            stddev,
            "float[] or [A] or [..., A]" if np.ndim(noise_tm1) else "float[]",
        ),
    )
    checks.within("[0, 2]", damping=damping)
    checks.within("[0, inf)", stddev=stddev)
    process, narrow = dtypes.widen(noise_tm1, damping, stddev)
    return narrow(_continue(key, *process))


def add_dirichlet_noise(
    key: ArrayLike,
    prior: ArrayLike,
    dirichlet_alpha: ArrayLike,
    dirichlet_fraction: ArrayLike,
    *,
    mask: ArrayLike | None = None,
) -> Array:
    """Mix the prior of a search with Dirichlet noise, as AlphaZero does at the root.

    .. math::

        P'(a) = (1 - f) P(a) + f η_a,   η ~ Dir(α, …, α)

    The smaller :math:`α`, the fewer the actions that share the noise: about 10 over the
    number of legal ones is a good choice. AlphaZero took 0.3 for chess, 0.15 for shogi
    and 0.03 for Go, MuZero 0.25 for Atari, all with :math:`f = 0.25`.

    Noise is for legal actions. One whose prior is exactly 0 is taken to be ruled out,
    and remains so; where a legal action may have a prior of 0, as in half precision,
    say with `mask` which ones are legal.

    Args:
        key: Random key, shape `[]`.
        prior: Probabilities :math:`P` of the actions, shape `[..., A]`.
        dirichlet_alpha: Concentration :math:`α` of the noise, more than 0: one for all
            actions, shape `[]`; or for each, shape `[A]`.
        dirichlet_fraction: Fraction :math:`f` that is noise, in [0, 1], shape `[]`.
        mask: True where an action is legal, for all rows alike, shape `[A]`; or for
            each, shape `[..., A]`; or None if all whose prior is not 0 are.

    Returns:
        Noisy priors, shape `[..., A]`; 0 where an action is not legal.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if `dirichlet_alpha`
            is not positive, or if `dirichlet_fraction` lies outside [0, 1].

    Example:
        >>> key, prior = jax.random.key(0), jnp.array([0.0, 1.0, 0.0])
        >>> print(rlaxlib.add_dirichlet_noise(key, prior, 0.3, 0.25))
        [0. 1. 0.]

    References:
        David Silver and others, *A General Reinforcement Learning Algorithm that
        Masters Chess, Shogi and Go through Self-Play*, 2018.
        https://doi.org/10.1126/science.aar6404

        Julian Schrittwieser and others, *Mastering Atari, Go, Chess and Shogi by
        Planning with a Learned Model*, 2019. https://arxiv.org/abs/1911.08265
    """
    key, prior, alpha, fraction, mask = checks.arrays(
        key=(key, "key[]"),
        prior=(prior, "float[..., A]"),
        dirichlet_alpha=(dirichlet_alpha, "float[] or [A]"),
        dirichlet_fraction=(dirichlet_fraction, "float[]"),
        mask=(mask, "bool[A] or [..., A] or None"),
    )
    checks.within("(0, inf)", dirichlet_alpha=alpha)
    checks.within("[0, 1]", dirichlet_fraction=fraction)
    (prior, alpha, fraction), narrow = dtypes.widen(prior, alpha, fraction)
    legal = prior != 0 if mask is None else jnp.broadcast_to(mask, prior.shape)
    dtype = jnp.result_type(prior, alpha)
    # Logarithms of the gamma variables that a Dirichlet one is made of: those of the
    # legal actions, by themselves, make one over these.
    alphas = jnp.broadcast_to(alpha.astype(dtype), prior.shape[-1:])
    logits = jax.random.loggamma(key, alphas, prior.shape, dtype)
    drawn = legal | ~jnp.any(legal, axis=-1, keepdims=True)
    noise = jax.nn.softmax(jnp.where(drawn, logits, -jnp.inf), axis=-1)
    mixed = (1 - fraction) * prior + fraction * noise
    return narrow(jnp.where(legal, mixed, jnp.zeros_like(mixed)))


def _continue(key: Array, noise_tm1: Array, damping: Array, stddev: Array) -> Array:
    """Return the noise of this step, from that of the one before."""
    fresh = _normal(key, noise_tm1, stddev)
    return (1 - damping) * noise_tm1 + _scale(fresh, stddev)


def _normal(key: Array, like: Array, stddev: Array) -> Array:
    """Draw a number for each entry of an array."""
    return jax.random.normal(key, like.shape, jnp.result_type(like, stddev))


def _scale(noise: Array, stddev: Array) -> Array:
    """Scale noise by one deviation for all, for each dimension, or for each number."""
    return noise * jnp.broadcast_to(stddev, noise.shape)
