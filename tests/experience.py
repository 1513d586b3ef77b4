"""A random stream of experience for tests, as float32."""

import functools

import numpy as np

close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5)


def make_stream(steps=8, seed=0, actions=4):
    """Sample all arguments that functions take."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=steps + 1)
    pi, mu = rng.dirichlet(np.ones(actions), size=(2, steps))
    a_t = rng.integers(actions, size=steps)
    drawn = {
        "r_t": rng.normal(size=steps),
        "discount_t": rng.uniform(0.5, 1.0, size=steps),
        "values": values,
        "v_tm1": values[:-1],
        "v_t": values[1:],
        "q_tm1": rng.normal(size=(steps, actions)),
        "q_t": rng.normal(size=(steps, actions)),
        "a_tm1": rng.integers(actions, size=steps),
        "a_t": a_t,
        "pi_t": pi,
        "mu_t": mu[np.arange(steps), a_t],
        "rho_tm1": rng.uniform(0.3, 2.0, size=steps),
    }
    return {name: _narrow(array) for name, array in drawn.items()}


def pick(stream, *names):
    """Return some arguments of a stream, by name."""
    return {name: stream[name] for name in names}


def _narrow(array):
    return array.astype(np.int32 if array.dtype.kind == "i" else np.float32)
