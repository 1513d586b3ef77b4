"""Networks for continuous control: MLP, critic and ensemble of critics."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn


class MLP(nn.Module):
    """A multilayer perceptron with a ReLU after each layer."""

    layers: Sequence[int]

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for units in self.layers:
            x = nn.relu(nn.Dense(units)(x))
        return x


class Critic(nn.Module):
    """An action-value network."""

    layers: Sequence[int]

    @nn.compact
    def __call__(self, observations: jax.Array, actions: jax.Array) -> jax.Array:
        x = MLP(self.layers)(jnp.concatenate([observations, actions], axis=-1))
        return nn.Dense(1)(x).squeeze(-1)


def critics(number: int, layers: Sequence[int]) -> nn.Module:
    """Create an ensemble of N critics with values of shape `[..., N]`."""
    ensemble = nn.vmap(
        Critic,
        variable_axes={"params": 0},
        split_rngs={"params": True},
        in_axes=None,
        out_axes=-1,
        axis_size=number,
    )
    return ensemble(layers)
