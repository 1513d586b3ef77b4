"""Test sums of products in every public function, in a batch that shares a factor.

XLA of some versions sums a product wrongly on a CPU if a large batch shares one factor,
or both: see `shared_product.py`. Each argument is mapped alone over the outer of two
batch axes, which shares the others.
"""

import functools
import os

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest

# Numbers of examples of both batch axes, and of different ones among them: the fault
# begins at 32,768 results.
OUTER, INNER, EACH = 33, 1024, 16

# Functions for `make test`, of those that were wrong; `make trust` sweeps all.
FEW = ("categorical_cross_entropy", "clipped_surrogate_pg_loss", "discrete_sac_value")
FEW += ("length_weighted_baseline",)


def is_swept(row):
    """Return whether a row has an argument to share, and another one."""
    return bool(row.float_names) and len(row.make(np.random.default_rng(0))) > 1


ROWS = [row for row in contract.of_topic(contract.collect()) if is_swept(row)]


def each_row(rows):
    return pytest.mark.parametrize("row", rows, ids=[row.id for row in rows])


@each_row([row for row in ROWS if row.id in FEW])
def test_an_argument_may_be_shared_by_a_large_batch(row):
    compare_shared_with_mapped(row, row.call(**row.setting(row.flags[-1])))


@pytest.mark.trust
@each_row([row for row in ROWS if row.id not in FEW])
def test_any_argument_may_be_shared_by_a_large_batch(row):
    call = row.call(**row.setting(row.flags[-1]))

    def value_and_gradient(**inputs):
        found, outputs = contract.gradient(row, call, inputs)
        # JAX itself adds the sum in a gradient by a temperature or a dual variable.
        kept = {name: x for name, x in found.items() if x.ndim}
        return outputs, {n: x for n, x in kept.items() if not n.endswith(".alpha")}

    # With these flags XLA is wrong in further places of gradients.
    is_fast = "optimization_level=0" in os.environ.get("XLA_FLAGS", "")
    has_gradient = row.gradients.exist and not is_fast
    compare_shared_with_mapped(row, value_and_gradient if has_gradient else call)


def compare_shared_with_mapped(row, function):
    """Compare a batch that shares an argument with a loop over the outer axis."""
    rng = np.random.default_rng(0)
    each = contract.stack([row.inputs(seed) for seed in range(EACH)])
    many = take(each, rng.integers(EACH, size=(OUTER, INNER)))
    one = take(each, rng.integers(EACH, size=INNER))

    def negated(inputs):  # The fault needs an operation after the sum.
        outputs = jax.tree.leaves(function(**inputs))
        return [-x if contract.is_float(x) else x for x in outputs]

    inner = jax.vmap(negated)

    loop = jax.jit(functools.partial(jax.lax.map, inner))
    for shared in sharings(row, each):
        axes = {name: None if name in shared else 0 for name in each}
        mapped = {name: (one if name in shared else many)[name] for name in each}
        found = jax.jit(jax.vmap(inner, (axes,)))(mapped)
        whole = {
            name: jnp.broadcast_to(x, (OUTER, *x.shape)) if name in shared else x
            for name, x in mapped.items()
        }
        for output, expected in zip(found, loop(whole), strict=True):
            if not contract.is_key(output):
                assert_alike(output, expected, f"shared: {', '.join(shared)}")


def sharings(row, names):
    """Return the arguments to share: all except for one, for each of them.

    Then a factor that does not depend on the one is shared, and the other is not.
    """
    return [
        tuple(other for other in names if other != name) for name in row.float_names
    ]


def take(each, indices):
    return {name: x[indices] for name, x in each.items()}


def assert_alike(found, expected, message):
    """Compare in the precision of the dtype; a wrong sum is far off."""
    found, expected = np.asarray(found), np.asarray(expected)
    finite = np.abs(expected[np.isfinite(expected)])
    scale = max(1.0, np.median(finite)) if finite.size else 1.0
    np.testing.assert_allclose(found, expected, 1e-4, 1e-4 * scale, err_msg=message)
