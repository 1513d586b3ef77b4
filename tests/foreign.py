"""Arrays of other libraries, as far as they look like those of NumPy."""

import numpy as np


class Tensor:
    """An array of another library: torch has `detach`, all others do not."""

    def __init__(self, array):
        self.array, self.shape = array, array.shape
        self.dtype = f"torch.{array.dtype}"

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.array, dtype, copy=copy)


class TorchTensor(Tensor):
    def detach(self):
        return self


class Variable(Tensor):
    """A variable of a network, which `jnp.asarray` reads."""

    __array__ = None

    def __jax_array__(self):
        return self.array
