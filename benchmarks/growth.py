"""How time grows with the size of a problem: steps, streams, actions, atoms, quantiles.

Each row is a gradient of one function, vmapped over streams, at growing sizes, beside
the function of the same name in rlax.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.timing import Program


class Growth(NamedTuple):
    """A function, and the sizes at which it is timed.

    Attributes:
        name: The function and what grows.
        sizes: Values of the size that grows.
        make: Function of a library and a size, returning a program.
    """

    name: str
    sizes: tuple[int, ...]
    make: Callable[[Any, int], Program]


def _normal(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32)


def _actions(number: int, *shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).integers(number, size=shape))


def _gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the gradient of a function's mean square by its first argument."""
    return jax.grad(lambda *inputs: jnp.mean(function(*inputs) ** 2))


def vtrace(library: Any, steps: int) -> Program:
    """V-trace over `T` steps of 64 streams."""

    def errors(v_tm1: Any, v_t: Any, r_t: Any, discount_t: Any, rho_tm1: Any) -> Any:
        return jax.vmap(library.vtrace)(v_tm1, v_t, r_t, discount_t, rho_tm1)

    v, rho = _normal(64, steps), jnp.exp(0.1 * _normal(64, steps))
    return _gradient(errors), (v, v, v, jnp.full_like(v, 0.99), rho)


def n_step(library: Any, n: int) -> Program:
    """`n`-step returns of 16 streams of 256 steps."""
    function = functools.partial(library.n_step_bootstrapped_returns, n=n)
    v = _normal(16, 256)
    returns = jax.vmap(lambda v_t, r_t: function(r_t, jnp.full_like(r_t, 0.99), v_t))
    return _gradient(returns), (v, v)


def streams(library: Any, number: int) -> Program:
    """Policy gradient of `B` streams of 20 steps with 18 actions."""

    def losses(logits_t: Any, a_t: Any, adv_t: Any, w_t: Any) -> Any:
        return jax.vmap(library.policy_gradient_loss)(logits_t, a_t, adv_t, w_t)

    w_t = jnp.ones((number, 20))
    return _gradient(losses), (
        _normal(number, 20, 18),
        _actions(18, number, 20),
        _normal(number, 20),
        w_t,
    )


def actions(library: Any, number: int) -> Program:
    """Entropy and KL of a softmax over `A` actions, 1024 rows."""

    def losses(p: Any, q: Any) -> Any:
        kl = library.categorical_kl_divergence(p, q)
        return library.softmax().entropy(p) + kl

    return _gradient(losses), (_normal(1024, number), _normal(1024, number)[::-1])


def atoms(library: Any, number: int) -> Program:
    """Projection onto `N` atoms, as in C51, 256 rows."""
    z = jnp.linspace(-10.0, 10.0, number)
    project = jax.vmap(library.categorical_l2_project, (0, 0, None))
    target = jnp.clip(z[None] * 0.99 + _normal(256, 1), -10.0, 10.0)
    return (lambda probs: project(target, probs, z)), (
        jax.nn.softmax(_normal(256, number)),
    )


def quantiles(library: Any, number: int) -> Program:
    """Quantile regression of `N` quantiles on `N`, 64 rows."""

    def losses(dist_src: Any, dist_target: Any) -> Any:
        tau = (jnp.arange(number, dtype=jnp.float32) + 0.5) / number
        loss = functools.partial(library.quantile_regression_loss, huber_param=1.0)
        return jax.vmap(loss, (0, None, 0))(dist_src, tau, dist_target)

    return _gradient(losses), (_normal(64, number), _normal(64, number) + 1.0)


GROWTH = (
    Growth("`vtrace`, steps", (16, 128, 1024), vtrace),
    Growth("`n_step_bootstrapped_returns`, n", (4, 32, 128), n_step),
    Growth("`policy_gradient_loss`, streams", (64, 512, 4096), streams),
    Growth("softmax entropy and KL, actions", (8, 64, 1024), actions),
    Growth("`categorical_l2_project`, atoms", (51, 201, 601), atoms),
    Growth("`quantile_regression_loss`, quantiles", (32, 128, 256), quantiles),
)


def layouts(library: Any, batch: int) -> Iterator[tuple[str, Program]]:
    """Yield λ-returns of batch-major and of time-major arrays, `T` = 128."""
    function = library.lambda_returns
    inputs = [_normal(batch, 128), jnp.full((batch, 128), 0.99), _normal(batch, 128)]
    yield "batch-major", (jax.vmap(function), tuple(inputs))
    time_major = jax.vmap(function, in_axes=1, out_axes=1)
    yield "time-major", (time_major, tuple(jnp.asarray(x.T) for x in inputs))
