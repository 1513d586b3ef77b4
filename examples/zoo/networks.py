"""Networks of the zoo, as pairs of functions on pytrees."""

import jax
import jax.numpy as jnp


def mlp(key, *sizes, scale=1.0):
    """Return the parameters of a perceptron; `scale` is that of its last layer."""
    keys = jax.random.split(key, len(sizes) - 1)
    layers = []
    for k, m, n in zip(keys, sizes[:-1], sizes[1:], strict=True):
        layers.append((jax.random.normal(k, (m, n)) / m**0.5, jnp.zeros(n)))
    weight, bias = layers[-1]
    return [*layers[:-1], (scale * weight, bias)]


def forward(params, x):
    """Return the perceptron's output, with a hyperbolic tangent after each layer."""
    *hidden, (weight, bias) = params
    for w, b in hidden:
        x = jnp.tanh(x @ w + b)
    return x @ weight + bias


def ensemble(key, num, *sizes):
    """Return the parameters of `num` perceptrons, with a leading axis."""
    return jax.vmap(lambda key: mlp(key, *sizes))(jax.random.split(key, num))


def forward_ensemble(params, x):
    """Return the outputs of all perceptrons, [..., N, outputs]."""
    return jax.vmap(forward, (0, None), -2)(params, x)
