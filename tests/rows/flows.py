"""Rows of `flows.py`, and their definitions in NumPy."""

import jax
import numpy as np
from row import Gradients, Precision, Row

DIMENSIONS, STEPS = 3, 8


def normal(key, shape):
    return np.asarray(jax.random.normal(key, shape), np.float64)


def flow_matching_sample(key, data, noise=None):
    """Park et al. 2025, section 3: a straight path from noise to an action."""
    noise_key, time_key = jax.random.split(key)
    start = normal(noise_key, data.shape) if noise is None else noise
    t = np.asarray(jax.random.uniform(time_key), np.float64)
    return start + t * (data - start), t, data - start


def flow_sde_step(x, velocity, t, next_t, noise_level=0.7):
    """Liu et al. 2025, section 4.2, where 1 is the time of noise.

    The first step is that of the code: yifan123/flow_grpo@ac4c86e,
    flow_grpo/diffusers_patch/sd3_sde_with_logprob.py.
    """
    time, next_time, v = 1 - t, 1 - next_t, -velocity
    dt = next_time - time
    sigma = noise_level * np.sqrt(time / (1 - (time if time < 1 else next_time)))
    drift = v + sigma**2 / (2 * time) * (x + (1 - time) * v)
    return x + drift * dt, sigma * np.sqrt(-dt)


def cosine_noise_schedule(num_steps, dtype, offset=0.008, max_beta=0.999):
    """Nichol and Dhariwal 2021, equation 17."""
    assert dtype is float

    def f(t):
        return np.cos((t / num_steps + offset) / (1 + offset) * np.pi / 2) ** 2

    shares, share = [], 1.0
    for t in range(1, num_steps + 1):
        share *= 1 - min(1 - f(t) / f(t - 1), max_beta)
        shares.append(share)
    return np.array(shares)


def linear_noise_schedule(num_steps, dtype, min_beta=1e-4, max_beta=0.02):
    """Ho et al. 2020, section 4."""
    assert dtype is float
    shares, share = [], 1.0
    for t in range(num_steps):
        share *= 1 - (min_beta + t / max(num_steps - 1, 1) * (max_beta - min_beta))
        shares.append(share)
    return np.array(shares)


def diffusion_noise(key, data, alpha_bar, kind="noise"):
    """Ho et al. 2020, equation 4; Salimans and Ho 2022, section 4."""
    noise = normal(key, data.shape)
    x = alpha_bar**0.5 * data + (1 - alpha_bar) ** 0.5 * noise
    if kind == "noise":
        return x, noise
    if kind == "data":
        return x, data
    return x, alpha_bar**0.5 * noise - (1 - alpha_bar) ** 0.5 * data


def diffusion_reverse_step(
    key, x, predictions, alpha_bar, next_alpha_bar, kind="noise", clip=np.inf
):
    """Ho et al. 2020: algorithm 2 for predicted noise, equation 7 for other kinds."""
    beta = 1 - alpha_bar / next_alpha_bar
    variance = (1 - next_alpha_bar) / (1 - alpha_bar) * beta
    noise = np.sqrt(variance) * normal(key, x.shape)
    if kind == "noise" and clip == np.inf:
        scaled = beta / np.sqrt(1 - alpha_bar) * predictions
        return (x - scaled) / np.sqrt(1 - beta) + noise
    if kind == "noise":
        data = (x - np.sqrt(1 - alpha_bar) * predictions) / np.sqrt(alpha_bar)
    elif kind == "velocity":
        data = np.sqrt(alpha_bar) * x - np.sqrt(1 - alpha_bar) * predictions
    else:
        data = predictions
    data = np.minimum(np.maximum(data, -clip), clip)
    mean = np.sqrt(next_alpha_bar) * beta / (1 - alpha_bar) * data
    mean += np.sqrt(1 - beta) * (1 - next_alpha_bar) / (1 - alpha_bar) * x
    return mean + noise


# --- Arguments. ---


def vectors(*names):
    return lambda rng: {name: rng.normal(size=DIMENSIONS) for name in names}


def make_step(rng):
    return {
        **vectors("x", "velocity")(rng),
        "next_t": np.asarray(rng.uniform(0.6, 0.9)),
        "noise_level": np.asarray(rng.uniform(0.5, 1.5)),
    }


def make_later_step(rng):
    return {**make_step(rng), "t": np.asarray(rng.uniform(0.2, 0.4))}


def make_noised(rng):
    return {
        "data": rng.normal(size=DIMENSIONS),
        "alpha_bar": np.asarray(rng.uniform(0.2, 0.8)),
    }


def make_reverse(rng):
    return {
        "x": rng.normal(size=DIMENSIONS),
        "predictions": rng.normal(size=DIMENSIONS),
        "alpha_bar": np.asarray(rng.uniform(0.2, 0.4)),
        "next_alpha_bar": np.asarray(rng.uniform(0.6, 0.9)),
    }


def make_clipped(rng):
    return {**make_reverse(rng), "clip": np.asarray(rng.uniform(0.4, 0.8))}


ROWS = [
    Row(flow_matching_sample, vectors("data")),
    Row(
        flow_matching_sample,
        vectors("data", "noise"),
        "given noise",
    ),
    Row(flow_sde_step, make_later_step, precision=Precision(condition=8.0)),
    Row(flow_sde_step, make_step, "first step", settings={"t": 0.0}),
    Row(
        cosine_noise_schedule,
        lambda rng: {},
        settings={"num_steps": STEPS, "dtype": float},
        gradients=Gradients(exist=False),
    ),
    Row(
        linear_noise_schedule,
        lambda rng: {},
        settings={"num_steps": STEPS, "dtype": float},
        gradients=Gradients(exist=False),
    ),
    Row(diffusion_noise, make_noised),
    *(
        Row(diffusion_noise, make_noised, kind, settings={"kind": kind})
        for kind in ("velocity", "data")
    ),
    *(
        Row(
            diffusion_reverse_step,
            make_reverse,
            kind,
            settings={"kind": kind},
            precision=Precision(carried={"x": 0}, condition=8.0),
            invalid=({"next_alpha_bar": 0.9, "alpha_bar": 1.0},),
        )
        for kind in ("noise", "velocity", "data")
    ),
    *(
        Row(
            diffusion_reverse_step,
            make_clipped,
            f"{kind}, clipped",
            precision=Precision(carried={"x": 0}, condition=8.0),
            settings={"kind": kind},
        )
        for kind in ("noise", "data")
    ),
]
