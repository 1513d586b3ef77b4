"""On a CPU, XLA sums a product wrongly if a large batch shares one factor, or both.

The smallest programs, for a report to https://github.com/openxla/xla: `python
tests/shared_product.py` prints their errors on Linux x86-64, for about 1e-6 where they
are right. With one factor, it is 15.5 with jaxlib 0.10.2, and right with 0.7.0, 0.9.2,
0.10.0, 0.10.1, 0.11.0 to 0.11.2 and 0.12.0.1. With both, it is 30 or more, as of memory
that nobody has written, with 0.10.2 and all later versions, and right with 0.7.0 and
0.10.1.

With one factor it is wrong in single precision if an elementwise operation follows the
sum over the last axis, the factor has two axes or more and is broadcast over leading
axes of the other, the last axis has more than one entry, and the result more than
32,768: from the leading slice on that contains this entry. `XLA_FLAGS=
--xla_cpu_experimental_ynn_fusion_type=` cures both, and `jnp.vecdot(p, q,
precision="highest")` the first.
"""

import jax
import jax.numpy as jnp
import numpy as np

# With both factors; in these maxima ignore NaN, too.
WRONG = ("0.10.2", "0.11.0", "0.11.1", "0.11.2", "0.12.0.1")
CURE = {"xla_cpu_experimental_ynn_fusion_type": ""}


def error(**options):
    """Return the largest error of the program; `options` are those of the compiler."""
    rng = np.random.default_rng(0)
    p = rng.normal(size=(20_000, 4)).astype(np.float32)
    q = rng.normal(size=(2, 20_000, 4)).astype(np.float32)
    program = jax.jit(lambda p, q: -jnp.sum(p * q, -1), compiler_options=options)
    return np.abs(program(p[None], q) + np.sum(np.float64(p) * q, -1)).max()


def error_of_both(**options):
    """Return that of a batch whose results are all the same."""
    rng = np.random.default_rng(0)
    p = rng.normal(size=(1024, 5, 3)).astype(np.float32)
    q = rng.normal(size=(1, 1, 5, 1)).astype(np.float32)
    y = rng.normal(size=(1, 1024, 3)).astype(np.float32)

    def program(p, q, y):
        return jnp.sum(jnp.broadcast_to(p, (33, *p.shape)) * q, 2) * y

    found = jax.jit(program, compiler_options=options)(p, q, y)
    return np.abs(found - np.sum(np.float64(p) * q, 2) * y).max()


if __name__ == "__main__":
    print(f"jaxlib {jax.lib.__version__}: {error():.1e}, {error_of_both():.1e}")
