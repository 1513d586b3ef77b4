"""Flow matching and diffusion: samples to train on, schedules and reverse steps.

- Flow matching: `flow_matching_sample`; `flow_sde_step` samples actions with a density.
- Diffusion (DDPM): `diffusion_noise`, `diffusion_reverse_step`, and the schedules
  `cosine_noise_schedule` and `linear_noise_schedule`.

Functions take one example, such as the action of one transition. Use `jax.vmap` for a
batch, with one key for each example. An action of a flow policy is the solution of
:math:`dx/dt = v(x, t)` from noise at time 0 to time 1; with Euler's method,
:math:`x ← x + v(x, t)/K` for :math:`t = 0, 1/K, …`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from rlaxlib._core import safe
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Float, Key, Static

__all__ = [
    "DiffusionSample",
    "FlowSample",
    "FlowStep",
    "cosine_noise_schedule",
    "diffusion_noise",
    "diffusion_reverse_step",
    "flow_matching_sample",
    "flow_sde_step",
    "linear_noise_schedule",
]


class FlowSample(NamedTuple):
    """A point of a path from noise to data, and the velocity there.

    Attributes:
        x: Point :math:`x_t`, shape `[D]`.
        t: Time :math:`t` in [0, 1), shape `[]`; half precision may round it to 1.
        velocity: Velocity of the path, the target of the network, shape `[D]`.
    """

    x: Float[Array, "D"]
    t: Float[Array, ""]
    velocity: Float[Array, "D"]


class FlowStep(NamedTuple):
    """The Gaussian of the next point of a flow with noise.

    Attributes:
        mean: Mean of the next point, shape `[D]`.
        stddev: Standard deviation of each of its dimensions, at least 0, shape `[]`.
    """

    mean: Float[Array, "D"]
    stddev: Float[Array, ""]


class DiffusionSample(NamedTuple):
    """Data with noise, and the target of the network.

    Attributes:
        x: Data with noise :math:`x_k`, shape `[D]`.
        targets: Target of the network, shape `[D]`.
    """

    x: Float[Array, "D"]
    targets: Float[Array, "D"]


# --- Flow matching. ---


@checked
def flow_matching_sample(
    key: Key[ArrayLike, ""],
    data: Float[ArrayLike, "D"],
    noise: Float[ArrayLike, "D"] | None = None,
) -> FlowSample:
    """Sample a point of a straight path from noise to data (flow matching).

    Takes one example, returns a point, its time, and the velocity to predict.

    ::

        x_t = (1 - t) x_0 + t a,   v = a - x_0
        x_0 ~ Normal(0, I),   t ~ U[0, 1)

    Train a network :math:`v_θ` on :math:`x_t`, :math:`t` and the state, by the squared
    error :math:`‖v_θ(x_t, t) - v‖²`.

    Args:
        key: Random key, shape `[]`.
        data: Example :math:`a`, such as an action, shape `[D]`.
        noise: Start :math:`x_0` of the path, shape `[D]`; or None to sample it.

    Returns:
        A `FlowSample`: the point `x`, its time `t` and the `velocity`. Half precision
        rounds some times to 1.

    Raises:
        ArgumentError: If a shape or dtype is wrong.

    Example:
        >>> key, data, noise = jax.random.key(0), jnp.array([4.0]), jnp.array([1.0])
        >>> x, t, velocity = rlaxlib.flow_matching_sample(key, data, noise)
        >>> print(velocity, jnp.allclose(x, noise + t * velocity))
        [3.] True

    References:
        Yaron Lipman and others, *Flow Matching for Generative Modeling*, 2022.
        https://arxiv.org/abs/2210.02747

        Seohong Park, Qiyang Li and Sergey Levine, *Flow Q-Learning*, 2025.
        https://arxiv.org/abs/2502.02538
    """
    noise_key, time_key = jax.random.split(key)
    if noise is None:
        noise = jax.random.normal(noise_key, data.shape, data.dtype)
    t = jax.random.uniform(time_key, (), data.dtype)
    return FlowSample((1 - t) * noise + t * data, t, data - noise)


@checked
def flow_sde_step(
    x: Float[ArrayLike, "D"],
    velocity: Float[ArrayLike, "D"],
    t: Float[ArrayLike, "in [0, 1)"],
    next_t: Float[ArrayLike, "in (t, 1]"],
    noise_level: Float[ArrayLike, "in [0, inf)"] = 0.7,
) -> FlowStep:
    """Compute the Gaussian of one step of a flow with noise (Flow-GRPO).

    Takes a point of the flow and its velocity, returns mean and standard deviation
    after the step.

    ::

        x' ~ Normal(m, σ² (t' - t) I),   σ = a √((1 - t)/s)
        m = x + (v + a²/(2 s) (t v - x)) (t' - t)
        s = t, or t' where t = 0

    Noise gives a flow policy a density, so that its steps can be actions of a policy
    gradient. The points have the same distribution at each time as those of the flow:
    the drift is corrected by :math:`σ²/2` times the score, which is
    :math:`(t v - x)/(1 - t)`. With a noise level of 0 the mean is a step of Euler's
    method. In the paper time runs from data to noise, and :math:`s = t`, which is 0 in
    the first step; the authors' code has :math:`t'` there.

    Sample a step by `mean + stddev * jax.random.normal(key, mean.shape)`. Its
    log-density is `gaussian_diagonal().logprob(next_x, mean, stddev)`, of which the
    authors take the mean over dimensions, not the sum.

    Args:
        x: Point :math:`x` of the flow, shape `[D]`.
        velocity: Velocity :math:`v` that the network predicts there, shape `[D]`.
        t: Time :math:`t`, in [0, 1), 0 for noise, shape `[]`.
        next_t: Next time :math:`t'`, in (`t`, 1], shape `[]`.
        noise_level: Noise level :math:`a`, in [0, inf), shape `[]`.

    Returns:
        A `FlowStep`: `mean` :math:`m` and `stddev` :math:`σ √(t' - t)`.

    Raises:
        ArgumentError: If a shape, dtype or concrete value is wrong.

    Example:
        >>> x, velocity = jnp.array([2.0]), jnp.array([1.0])
        >>> mean, stddev = rlaxlib.flow_sde_step(x, velocity, 0.5, 0.75, 1.0)
        >>> print(mean, stddev)
        [1.875] 0.5

    References:
        Jie Liu and others, *Flow-GRPO: Training Flow Matching Models via Online RL*,
        2025. https://arxiv.org/abs/2505.05470
    """
    step, start = next_t - t, jnp.where(t > 0, t, next_t)
    correction = jnp.square(noise_level) / (2 * start) * (t * velocity - x)
    mean = x + (velocity + correction) * step
    return FlowStep(mean, noise_level * jnp.sqrt((1 - t) / start * step))


# --- Diffusion. ---


@checked
def cosine_noise_schedule(
    num_steps: Static[int, "in [1, inf)"],
    offset: Static[float, "in [0, inf)"] = 0.008,
    max_beta: Static[float, "in (0, 1)"] = 0.999,
    *,
    dtype: DTypeLike = jnp.float32,
) -> Float[Array, "num_steps"]:
    """Compute the cosine schedule of a diffusion (improved DDPM).

    Takes a number of steps, returns the remaining share of the signal after each.

    ::

        ᾱ_k = ∏_{j ≤ k} (1 - β_j),   β_j = min(1 - f(j) / f(j-1), β_max)
        f(j) = cos²((j/K + s) / (1 + s) · π/2)

    It is the schedule of diffusion policies, often with fewer than 100 steps.

    Args:
        num_steps: Number :math:`K` of steps, a Python integer in [1, inf).
        offset: Offset :math:`s`, a Python number in [0, inf). It gives the first step
            noise.
        max_beta: Greatest variance :math:`β_max` added by a step, a Python number
            in (0, 1).
        dtype: Dtype of the result. Half precision rounds the first shares to 1, so that
            their steps have no noise.

    Returns:
        Shares :math:`ᾱ_1, …, ᾱ_K` of the variance, more than 0, shape `[num_steps]`.

    Raises:
        ArgumentError: If an integer or a concrete value is wrong.

    Example:
        >>> print(rlaxlib.cosine_noise_schedule(2, offset=0.0, max_beta=0.75))
        [0.5   0.125]

    References:
        Alex Nichol and Prafulla Dhariwal, *Improved Denoising Diffusion Probabilistic
        Models*, section 3.2, 2021. https://arxiv.org/abs/2102.09672
    """
    steps = np.arange(num_steps + 1) / num_steps
    f = np.square(np.cos((steps + offset) / (1 + offset) * np.pi / 2))
    beta = np.minimum(1 - f[1:] / f[:-1], max_beta)
    return _shares(beta, dtype)


@checked
def linear_noise_schedule(
    num_steps: Static[int, "in [1, inf)"],
    min_beta: Static[float, "in (0, 1)"] = 1e-4,
    max_beta: Static[float, "in (0, 1)"] = 0.02,
    *,
    dtype: DTypeLike = jnp.float32,
) -> Float[Array, "num_steps"]:
    """Compute the linear schedule of a diffusion (DDPM).

    Takes a number of steps, returns the remaining share of the signal after each.

    ::

        ᾱ_k = ∏_{j ≤ k} (1 - β_j)
        β_j = β_min + (j - 1)/(K - 1) (β_max - β_min),   β_1 = β_min if K = 1

    The defaults belong to 1000 steps: with fewer, the last share is far from 0.

    Args:
        num_steps: Number :math:`K` of steps, a Python integer in [1, inf).
        min_beta: Variance :math:`β_min` that the first step adds, a Python number
            in (0, 1).
        max_beta: Variance :math:`β_max` that the last step adds, a Python number
            in (0, 1).
        dtype: Dtype of the result. Half precision rounds the first shares to 1, so that
            their steps have no noise.

    Returns:
        Shares :math:`ᾱ_1, …, ᾱ_K` of the variance, more than 0, shape `[num_steps]`.

    Raises:
        ArgumentError: If an integer or a concrete value is wrong.

    Example:
        >>> print(rlaxlib.linear_noise_schedule(2, min_beta=0.25, max_beta=0.5))
        [0.75  0.375]

    References:
        Jonathan Ho, Ajay Jain and Pieter Abbeel, *Denoising Diffusion Probabilistic
        Models*, section 4, 2020. https://arxiv.org/abs/2006.11239
    """
    beta = np.linspace(min_beta, max_beta, num_steps)
    return _shares(beta, dtype)


def _shares(beta: np.ndarray, dtype: DTypeLike) -> Array:
    """Return the shares of the signal after steps that add the variances `beta`."""
    # Rounded to 0, a share would leave no signal to compute the data from.
    least = float(jnp.finfo(dtype).tiny)
    return jnp.asarray(np.maximum(np.cumprod(1 - beta), least), dtype)


@checked
def diffusion_noise(
    key: Key[ArrayLike, ""],
    data: Float[ArrayLike, "D"],
    alpha_bar: Float[ArrayLike, "in [0, 1]"],
    kind: Literal["noise", "velocity", "data"] = "noise",
) -> DiffusionSample:
    """Add the noise of one step of a diffusion to data (DDPM).

    Takes one example, returns it with noise, and the target of the network.

    ::

        x_k = √ᾱ a + √(1 - ᾱ) ε,   ε ~ Normal(0, I)
        y = { ε                     noise
            { √ᾱ ε - √(1 - ᾱ) a     velocity
            { a                     data

    Train a network on :math:`x_k`, :math:`k` and the state by the squared error, with
    :math:`k` uniform among the steps of a schedule. Diffusion policies predict the
    noise; velocities are more accurate where :math:`ᾱ` is close to 0.

    Args:
        key: Random key, shape `[]`.
        data: Example :math:`a`, such as an action, shape `[D]`.
        alpha_bar: Share :math:`ᾱ` of step :math:`k` of a schedule, in [0, 1],
            shape `[]`.
        kind: What the network predicts: `"noise"`, `"velocity"` or `"data"`.

    Returns:
        A `DiffusionSample`: the data with noise, `x`, and the `targets`.

    Raises:
        ArgumentError: If a shape, dtype, option or concrete value is wrong.

    Example:
        >>> key, data = jax.random.key(0), jnp.array([2.0])
        >>> x, noise = rlaxlib.diffusion_noise(key, data, alpha_bar=0.25)
        >>> print(jnp.allclose(x, 0.5 * data + 0.75**0.5 * noise))
        True

    References:
        Jonathan Ho, Ajay Jain and Pieter Abbeel, *Denoising Diffusion Probabilistic
        Models*, 2020. https://arxiv.org/abs/2006.11239

        Tim Salimans and Jonathan Ho, *Progressive Distillation for Fast Sampling of
        Diffusion Models*, 2022. https://arxiv.org/abs/2202.00512

        Cheng Chi and others, *Diffusion Policy: Visuomotor Policy Learning via Action
        Diffusion*, 2023. https://arxiv.org/abs/2303.04137
    """
    noise = jax.random.normal(key, data.shape, data.dtype)
    signal, sigma = safe.sqrt(alpha_bar), safe.sqrt(1 - alpha_bar)
    targets = {
        "noise": noise,
        "velocity": signal * noise - sigma * data,
        "data": data,
    }
    return DiffusionSample(signal * data + sigma * noise, targets[kind])


@checked
def diffusion_reverse_step(
    key: Key[ArrayLike, ""],
    x: Float[ArrayLike, "D"],
    predictions: Float[ArrayLike, "D"],
    alpha_bar: Float[ArrayLike, "in [0, 1]"],
    next_alpha_bar: Float[ArrayLike, "in (0, 1] in [alpha_bar, 1]"],
    kind: Literal["noise", "velocity", "data"] = "noise",
    clip: Float[ArrayLike, "in [0, inf]"] = jnp.inf,
) -> Float[Array, "D like x"]:
    """Sample one step of the reverse process of a diffusion (DDPM).

    Takes one sample and the prediction of the network, returns the next sample.

    ::

        â = { (x - √(1 - ᾱ) y) / √ᾱ   noise
            { √ᾱ x - √(1 - ᾱ) y       velocity
            { y                       data
        α = ᾱ / ᾱ',   β = 1 - α
        x' = √ᾱ' β/(1 - ᾱ) â + √α (1 - ᾱ')/(1 - ᾱ) x + σ ε
        σ² = β (1 - ᾱ')/(1 - ᾱ),   ε ~ Normal(0, I)

    Begin with :math:`x ~ Normal(0, I)` at the last step of the schedule. The last call,
    from its first step, has :math:`ᾱ' = 1`, and returns :math:`â`: there :math:`σ = 0`.
    The other steps sample a Gaussian, whose density is very high at the first steps of
    the schedule. DPPO, which takes steps for actions of PPO, therefore bounds :math:`σ`
    below, and computes mean and density itself.

    Args:
        key: Random key, shape `[]`.
        x: Sample :math:`x` with noise, shape `[D]`.
        predictions: Prediction :math:`y` of the network, shape `[D]`.
        alpha_bar: Share :math:`ᾱ` of this step of the schedule, in [0, 1], shape `[]`.
            At 0 there is no signal, and :math:`â` from noise is infinite, at the bound
            of `clip` if there is one, or NaN. At 1 there is no noise, as where half
            precision rounds a share.
        next_alpha_bar: Share :math:`ᾱ'` of the step before it in the schedule, or 1
            after the first one, in (0, 1] and in [`alpha_bar`, 1], shape `[]`.
        kind: What the network predicts: `"noise"`, `"velocity"` or `"data"`.
        clip: Bound of :math:`|â|`, in [0, inf], shape `[]`; 1 for actions in [-1, 1].

    Returns:
        The next sample :math:`x'`, shape `[D]`.

    Raises:
        ArgumentError: If a shape, dtype, option or concrete value is wrong.

    Example:
        >>> x, noise = jnp.array([2.0]), jnp.array([0.0])
        >>> key = jax.random.key(0)
        >>> print(rlaxlib.diffusion_reverse_step(key, x, noise, 0.25, 1.0))
        [4.]

    References:
        Jonathan Ho, Ajay Jain and Pieter Abbeel, *Denoising Diffusion Probabilistic
        Models*, equation 7 and algorithm 2, 2020. https://arxiv.org/abs/2006.11239

        Allen Z. Ren and others, *Diffusion Policy Policy Optimization*, 2024.
        https://arxiv.org/abs/2409.00588
    """
    signal, sigma = safe.sqrt(alpha_bar), safe.sqrt(1 - alpha_bar)
    data = predictions
    if kind == "noise":
        data = (x - sigma * predictions) / signal
    elif kind == "velocity":
        data = signal * x - sigma * predictions
    data = jnp.clip(data, -clip, clip)
    alpha = alpha_bar / next_alpha_bar
    # Without noise, both are 0/0.
    share = safe.divide(1 - alpha, 1 - alpha_bar, otherwise=1)
    rest = safe.divide(1 - next_alpha_bar, 1 - alpha_bar)
    weight, next_weight = safe.sqrt(alpha) * rest, jnp.sqrt(next_alpha_bar) * share
    mean = next_weight * data + weight * x
    variance = (1 - alpha) * rest
    return mean + safe.sqrt(variance) * jax.random.normal(key, x.shape, x.dtype)
