"""Replicate and shard trees over devices for `jax.pmap`, along a leading axis."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def replicate(tree: Any, num_devices: int) -> Any:
    """Replicate a tree on all devices."""
    copies = jax.tree.map(lambda x: jnp.broadcast_to(x, (num_devices, *x.shape)), tree)
    return _place(copies, num_devices)


def unreplicate(tree: Any) -> Any:
    """Return the copy of the first device."""
    return jax.tree.map(lambda x: x[0], tree)


def shard_batch(batch: Any, num_devices: int) -> Any:
    """Split a batch evenly over devices."""

    def shard(x: jax.Array) -> jax.Array:
        if len(x) % num_devices:
            raise ValueError(
                f"The batch size is {len(x)}, must be divisible by {num_devices}."
            )
        return x.reshape(num_devices, len(x) // num_devices, *x.shape[1:])

    return _place(jax.tree.map(shard, batch), num_devices)


def unshard_batch(batch: Any) -> Any:
    """Concatenate the shards of a batch."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch)


def _place(tree: Any, num_devices: int) -> Any:
    """Shard the leading axis as `jax.pmap` over "data" expects it.

    `jax.pmap` rejects arrays that are committed to other devices.
    """
    mesh = Mesh(np.asarray(jax.devices()[:num_devices]), ("data",))
    return jax.device_put(tree, NamedSharding(mesh, PartitionSpec("data")))
