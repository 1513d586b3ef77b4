"""On a CPU, XLA sums a product wrongly if a large batch shares one factor.

The smallest program, for a report to https://github.com/openxla/xla: `python
tests/shared_product.py` prints the error, 15.5 with jaxlib 0.10.2 on Linux x86-64, for
about 1e-6 with 0.7.0, 0.9.2, 0.10.0, 0.10.1, 0.11.0 and 0.12.0.1.

It is wrong in single precision if an elementwise operation follows the sum over the
last axis, one factor has two axes or more and is broadcast over leading axes of the
other, the last axis has more than one entry, and the result more than 32,768: from the
leading slice on that contains this entry. `XLA_FLAGS=
--xla_cpu_experimental_ynn_fusion_type=` cures it, and so does `jnp.vecdot(p, q,
precision="highest")`.
"""

import jax
import jax.numpy as jnp
import numpy as np

CURE = {"xla_cpu_experimental_ynn_fusion_type": ""}


def error(**options):
    """Return the largest error of the program; `options` are those of the compiler."""
    rng = np.random.default_rng(0)
    p = rng.normal(size=(20_000, 4)).astype(np.float32)
    q = rng.normal(size=(2, 20_000, 4)).astype(np.float32)
    program = jax.jit(lambda p, q: -jnp.sum(p * q, -1), compiler_options=options)
    return np.abs(program(p[None], q) + np.sum(np.float64(p) * q, -1)).max()


if __name__ == "__main__":
    print(f"jaxlib {jax.lib.__version__}: {error():.1e}")
