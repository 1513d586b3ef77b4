"""Lay out trees over devices for `jax.pmap`: a first axis, with one entry a device."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def replicate(tree: Any, num_devices: int) -> Any:
    """Give every device the same."""
    copies = jax.tree.map(lambda x: jnp.broadcast_to(x, (num_devices, *x.shape)), tree)
    return _place(copies, num_devices)


def unreplicate(tree: Any) -> Any:
    """Take what the first device has, where all have the same."""
    return jax.tree.map(lambda x: x[0], tree)


def shard_batch(batch: Any, num_devices: int) -> Any:
    """Give every device a part of a batch, all parts alike in size."""

    def shard(x: jax.Array) -> jax.Array:
        if len(x) % num_devices:
            raise ValueError(f"{len(x)} entries do not part among {num_devices}.")
        return x.reshape(num_devices, len(x) // num_devices, *x.shape[1:])

    return _place(jax.tree.map(shard, batch), num_devices)


def unshard_batch(batch: Any) -> Any:
    """Join the parts of a batch again."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch)


def _place(tree: Any, num_devices: int) -> Any:
    """Put each entry of the first axis where `jax.pmap` over "data" looks for it.

    It takes what lies nowhere in particular, but not what lies on other devices.
    """
    mesh = Mesh(np.asarray(jax.devices()[:num_devices]), ("data",))
    return jax.device_put(tree, NamedSharding(mesh, PartitionSpec("data")))
