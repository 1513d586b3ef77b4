"""Test flow matching and diffusion: endpoints, limits, and that they invert noise."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

KEYS = jax.random.split(jax.random.key(0), 4000)


# --- Flow matching. ---


def test_points_lie_on_the_straight_path_from_noise_to_data():
    data = jnp.array([1.0, -2.0])
    sample = jax.jit(jax.vmap(rlaxlib.flow_matching_sample, (0, None)))
    x, t, velocity = sample(KEYS, data)
    noise = data[None] - velocity
    close(x + (1 - t)[:, None] * velocity, jnp.broadcast_to(data, x.shape))
    close(np.mean(noise, axis=0), np.zeros(2), atol=0.05)
    close(np.cov(noise.T), np.eye(2), atol=0.08)
    assert np.min(t) >= 0
    assert np.max(t) < 1
    close(np.mean(t), 0.5, atol=0.02)


def test_a_path_starts_from_the_noise_that_is_given():
    data, noise = jnp.array([1.0, -2.0]), jnp.array([0.5, 0.25])
    x, t, velocity = rlaxlib.flow_matching_sample(KEYS[0], data, noise)
    close(velocity, data - noise)
    close(x, noise + t * velocity)
    # The time is that of a path whose noise is sampled.
    assert t == rlaxlib.flow_matching_sample(KEYS[0], data).t


def test_the_mean_velocity_minimises_the_loss_and_transports_noise_to_data():
    # Between Gaussians the mean velocity is known: from N(0, 1) to N(m, s²).
    m, s, steps = 3.0, 0.5, 200
    rng = np.random.default_rng(1)

    def velocity(x, t):
        variance = (1 - t) ** 2 + t**2 * s**2
        return m + (t * s**2 - (1 - t)) / variance * (x - t * m)

    x = rng.normal(size=4000)
    for t in np.arange(steps) / steps:
        x = x + velocity(x, t) / steps
    close([np.mean(x), np.std(x)], [m, s], atol=0.05)
    data = np.float32(m + s * rng.normal(size=(4000, 1)))
    path = jax.jit(jax.vmap(rlaxlib.flow_matching_sample))(KEYS, data)
    points, t, target = map(np.asarray, path)

    def loss(shift):
        return np.mean(np.square(velocity(points, t[:, None]) + shift - target))

    assert loss(0.0) < min(loss(0.2), loss(-0.2))


def transported(noise_level, steps=200):
    """Return samples of a flow to a Gaussian of mean 3 and deviation 0.5."""
    m, s = 3.0, 0.5
    times = jnp.arange(steps + 1) / steps

    def step(x, inputs):
        key, t, next_t = inputs
        variance = (1 - t) ** 2 + t**2 * s**2
        velocity = m + (t * s**2 - (1 - t)) / variance * (x - t * m)
        step = jax.vmap(rlaxlib.flow_sde_step, (0, 0, None, None, None))
        mean, stddev = step(x, velocity, t, next_t, noise_level)
        noise = stddev[:, None] * jax.random.normal(key, x.shape)
        return mean + noise, None

    keys = jax.random.split(jax.random.key(2), steps)
    start = jax.random.normal(jax.random.key(1), (4000, 1))
    return jax.lax.scan(step, start, (keys, times[:-1], times[1:]))[0]


def test_noise_in_the_steps_of_a_flow_keeps_the_distribution():
    levels = np.float32([0.7, 0.0])
    x, without = np.asarray(jax.jit(jax.vmap(transported))(levels))[..., 0]
    for each in (x, without):
        close([np.mean(each), np.std(each)], [3.0, 0.5], atol=0.05)
    assert np.corrcoef(x, without)[0, 1] < 0.5


def test_a_step_of_a_flow_without_noise_is_one_of_eulers_method():
    x, velocity = jnp.array([1.0, -2.0]), jnp.array([0.5, 3.0])
    for t in (0.0, 0.25):
        mean, stddev = rlaxlib.flow_sde_step(x, velocity, t, 1.0, noise_level=0.0)
        close(mean, x + velocity * (1.0 - t))
        assert stddev == 0


# --- Diffusion. ---


@pytest.mark.parametrize(
    "schedule",
    [rlaxlib.cosine_noise_schedule, rlaxlib.linear_noise_schedule],
)
def test_schedules_decrease_from_almost_one_to_almost_zero(schedule):
    shares = schedule(1000)
    assert shares.shape == (1000,)
    assert np.all(np.diff(shares) < 0)
    assert shares[0] > 0.999
    assert 0 < shares[-1] < 1e-4
    assert schedule(4, dtype=jnp.bfloat16).dtype == jnp.bfloat16


@pytest.mark.parametrize("kind", ["noise", "velocity", "data"])
def test_the_last_step_recovers_the_data_from_an_exact_prediction(kind):
    data = jnp.array([0.3, -0.7])
    key, share = jax.random.key(0), 0.4
    x, target = rlaxlib.diffusion_noise(key, data, share, kind)
    step = jax.jit(rlaxlib.diffusion_reverse_step, static_argnums=5)
    for clip in (1.0, 0.5):
        found = step(key, x, target, share, 1.0, kind, clip=clip)
        close(found, np.clip(data, -clip, clip))


@pytest.mark.parametrize("kind", ["noise", "velocity", "data"])
def test_reverse_steps_transport_noise_to_data(kind):
    # For Gaussian data, the mean of the data given x is linear in x.
    m, s = 2.0, 0.5
    shares = rlaxlib.cosine_noise_schedule(100)
    later = jnp.append(1.0, shares[:-1])

    def step(x, inputs):
        keys, share, next_share = inputs
        variance = share * s**2 + 1 - share
        data = m + jnp.sqrt(share) * s**2 / variance * (x - jnp.sqrt(share) * m)
        noise = (x - jnp.sqrt(share) * data) / jnp.sqrt(1 - share)
        predictions = {
            "noise": noise,
            "velocity": jnp.sqrt(share) * noise - jnp.sqrt(1 - share) * data,
            "data": data,
        }
        reverse = functools.partial(rlaxlib.diffusion_reverse_step, kind=kind)
        reverse = jax.vmap(reverse, (0, 0, 0, None, None))
        return reverse(keys, x, predictions[kind], share, next_share), None

    keys = jax.random.split(jax.random.key(1), (100, 4000))
    start = jax.random.normal(jax.random.key(2), (4000, 1))
    inputs = keys, shares[::-1], later[::-1]
    x, _ = jax.jit(lambda: jax.lax.scan(step, start, inputs))()
    close([np.mean(x), np.std(x)], [m, s], atol=0.05)


def test_noise_of_the_first_and_of_the_last_share():
    key, data = jax.random.key(0), jnp.array([3.0, -1.0])
    clean, _ = rlaxlib.diffusion_noise(key, data, 1.0)
    np.testing.assert_array_equal(clean, data)
    x, noise = rlaxlib.diffusion_noise(key, data, 0.0)
    np.testing.assert_array_equal(x, noise)


# --- Ends of the range. ---

DTYPES = jnp.float32, jnp.bfloat16, jnp.float16
SCHEDULES = rlaxlib.cosine_noise_schedule, rlaxlib.linear_noise_schedule


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_shares_have_a_signal_and_a_finite_step(dtype):
    numbers = 1, 2, 100, 1000, 10_000
    each = [np.asarray(f(n, dtype=dtype)) for f in SCHEDULES for n in numbers]
    later = np.concatenate([np.append(np.ones((), x.dtype), x[:-1]) for x in each])
    shares = np.concatenate(each)
    assert np.all(shares > 0)
    assert np.all(shares <= 1)
    x, y = jnp.full(2, 0.5, dtype), jnp.full(2, 0.25, dtype)

    @jax.jit
    @jax.vmap
    def steps(share, later_share):
        return [
            rlaxlib.diffusion_reverse_step(
                KEYS[0], x, y, share, later_share, kind=kind, clip=1.0
            )
            for kind in ("noise", "velocity", "data")
        ]

    for found in steps(shares, later):
        assert np.all(np.isfinite(found))
        # No step adds more noise than the forward process has.
        assert np.all(np.abs(found) < 6)


def of_kinds(*arguments):
    """Return reverse steps by predictions of noise, velocity and data."""
    step = functools.partial(rlaxlib.diffusion_reverse_step, KEYS[0], *arguments)
    return [step(kind=kind) for kind in ("noise", "velocity", "data")]


@pytest.mark.parametrize("dtype", DTYPES)
def test_without_noise_a_step_returns_the_data(dtype):
    x, y, one = np.array([0.5], dtype), np.array([0.25], dtype), np.ones((), dtype)
    found = jax.jit(of_kinds)(x, y, one, one)
    np.testing.assert_array_equal(found, [x, x, y])


def test_without_a_signal_the_prediction_is_the_data():
    x, y = np.float32([0.5]), np.float32([0.25])
    _, *found = jax.jit(of_kinds)(x, y, 0.0, 0.36)
    noise = np.sqrt(0.64) * jax.random.normal(KEYS[0], (1,))
    close(found, [np.sqrt(0.36) * data + noise for data in (-y, y)])


def test_a_prediction_of_noise_gives_nan_without_a_signal():
    x = jnp.ones(1)
    assert jnp.isnan(rlaxlib.diffusion_reverse_step(KEYS[0], x, x, 0.0, 0.5))


def test_gradients_at_the_ends_of_the_range_are_finite():
    x, y = jnp.array([0.5]), jnp.array([0.25])

    def total(share, later, kind):
        step = rlaxlib.diffusion_reverse_step
        return jnp.sum(step(KEYS[0], x, y, share, later, kind))

    def noised(share, kind):
        return jnp.sum(jnp.stack(rlaxlib.diffusion_noise(KEYS[0], x, share, kind)))

    @functools.partial(jax.jit, static_argnums=2)
    def gradients(share, later, kind):
        by_both = jax.value_and_grad(lambda *x: total(*x, kind), (0, 1))
        by_share = jax.grad(lambda share: noised(share, kind))
        return jax.vmap(by_both)(share, later), jax.vmap(by_share)(share)

    share, later = np.float32([[0.5, 1, 0.5, 0.501, 0.499, 0], [1, 1, 0.5, 1, 1, 0.5]])
    for kind in ("noise", "velocity", "data"):
        (value, by_both), of_noise = gradients(share, later, kind)
        has_value = share > 0 if kind == "noise" else share >= 0
        assert np.all(np.isfinite(by_both)[:, has_value]), kind
        assert np.all(np.isfinite(of_noise))
        if kind == "noise":
            # The mean of the last step is the data: only its coefficient of noise is 0.
            close(by_both[0][0], (value[3] - value[4]) / 0.002, rtol=1e-2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_times_are_spread_up_to_one_to_which_half_precision_rounds(dtype):
    data = jnp.zeros(1, dtype)
    sample = jax.jit(jax.vmap(rlaxlib.flow_matching_sample, (0, None)))
    t = np.asarray(sample(KEYS, data).t, np.float64)
    assert np.min(t) >= 0
    assert 0.99 < np.max(t) <= 1
    assert np.max(t) < 1 or dtype != jnp.float32
