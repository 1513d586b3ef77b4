"""Test the pairs: round trips, dtypes, pickling, and what is refused."""

import pickle

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlaxlib

SQUASH = rlaxlib.SIGNED_HYPERBOLIC_PAIR
PAIRS = {
    "identity": rlaxlib.IDENTITY_PAIR,
    "log": rlaxlib.SIGNED_LOGP1_PAIR,
    "symlog": rlaxlib.SYMLOG_PAIR,
    "hyperbolic": SQUASH,
    "sinh": rlaxlib.HYPERBOLIC_SIN_PAIR,
    "discount": rlaxlib.DISCOUNT_TRANSFORM_PAIR,
    "chain": rlaxlib.compose_tx(SQUASH, rlaxlib.SIGNED_LOGP1_PAIR),
    "nothing": rlaxlib.compose_tx(),
    "two-hot": rlaxlib.twohot_pair(-1.0, 1.0, 201),
    "HL-Gauss": rlaxlib.hl_gauss_pair(-1.0, 1.0, 201, sigma=0.02),
    "squashed HL-Gauss": rlaxlib.compose_tx(
        rlaxlib.SYMLOG_PAIR, rlaxlib.hl_gauss_pair(-1.0, 1.0, 201, sigma=0.02)
    ),
    "muzero": rlaxlib.muzero_pair(-1.0, 1.0, 201, SQUASH),
    "unbiased": rlaxlib.unbiased_transform_pair(-1.0, 1.0, 201, SQUASH),
}
each_pair = pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
SPREAD = {
    "muzero": rlaxlib.muzero_pair(-300.0, 300.0, 601, SQUASH),
    "unbiased": rlaxlib.unbiased_transform_pair(-300.0, 300.0, 601, SQUASH),
}


# --- What the functions compute. ---


@each_pair
def test_pairs_undo_what_they_do(pair):
    x = jnp.linspace(-0.9, 0.9, 101)
    np.testing.assert_allclose(pair.apply_inv(pair.apply(x)), x, atol=5e-7)


@pytest.mark.parametrize("pair", SPREAD.values(), ids=SPREAD)
def test_bins_bring_back_returns_of_all_sizes(pair):
    x = np.array([1.03, 4.43, -3012.33, 0.0, 1e-6, 5e4], np.float32)
    np.testing.assert_allclose(pair.apply_inv(pair.apply(x)), x, rtol=1e-6)


def test_only_unbiased_bins_give_the_mean_of_returns():
    means = {
        name: pair.apply_inv(0.5 * (pair.apply(0.0) + pair.apply(16.0)))
        for name, pair in SPREAD.items()
    }
    np.testing.assert_allclose(means["unbiased"], 8.0, rtol=1e-5)
    squashed = 0.5 * SQUASH.apply(16.0)
    np.testing.assert_allclose(means["muzero"], SQUASH.apply_inv(squashed), rtol=1e-5)


@pytest.mark.parametrize("bins", [rlaxlib.twohot_pair, rlaxlib.hl_gauss_pair])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_numbers_beyond_the_bins_are_told_and_those_at_the_end_are_not(bins, dtype):
    pair = bins(-0.3, 0.7, 11)
    x = jnp.array([-0.31, -0.3, 0.0, 0.7, 0.71, -jnp.inf, jnp.inf, jnp.nan], dtype)
    expected = np.array([1, 0, 0, 0, 1, 1, 1, 1], bool)
    np.testing.assert_array_equal(rlaxlib.out_of_range(x, pair), expected)

    chain = rlaxlib.compose_tx(rlaxlib.TxPair(lambda x: 2 * x, lambda x: x / 2), pair)
    found = rlaxlib.out_of_range(x / 2, rlaxlib.compose_tx(chain))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("make", [rlaxlib.muzero_pair, rlaxlib.unbiased_transform_pair])
def test_the_range_of_a_pair_that_squashes_is_that_of_what_is_squashed(make, dtype):
    pair = make(-2.0, 3.0, 11, rlaxlib.SYMLOG_PAIR)
    x = jnp.array([-6.5, -6.3, 0.0, 19.0, 19.2], dtype)
    np.testing.assert_array_equal(rlaxlib.out_of_range(x, pair), [1, 0, 0, 0, 1])


def test_a_chain_applies_in_order_and_goes_back_in_reverse():
    double = rlaxlib.TxPair(lambda x: 2 * x, lambda x: x / 2)
    one_more = rlaxlib.TxPair(lambda x: x + 1, lambda x: x - 1)
    chain = rlaxlib.compose_tx(double, one_more)
    assert chain.apply(3.0) == 7.0
    assert chain.apply_inv(7.0) == 3.0


# --- How they behave under JAX. ---


@each_pair
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64])
def test_dtype_follows_the_argument_both_ways(pair, dtype):
    with contract.x64(dtype in (jnp.float32, jnp.float64)):
        x = jnp.asarray(0.3, dtype)
        there = pair.apply(x)
        back = pair.apply_inv(there)
        assert there.dtype == back.dtype == dtype
        eps = max(float(jnp.finfo(dtype).eps), 1e-15)
        np.testing.assert_allclose(np.float64(back), np.float64(x), rtol=8 * eps)


@each_pair
def test_pairs_can_be_pickled_and_be_static_arguments(pair):
    copy = pickle.loads(pickle.dumps(pair))
    np.testing.assert_array_equal(copy.apply(0.3), pair.apply(0.3))
    there = pair.apply(0.3)
    np.testing.assert_array_equal(copy.apply_inv(there), pair.apply_inv(there))

    apply = jax.jit(lambda pair, x: pair.apply(x), static_argnums=0)
    for _ in range(2):
        np.testing.assert_allclose(apply(pair, 0.3), there, rtol=1e-6, atol=1e-7)
    assert apply._cache_size() == 1


@each_pair
def test_a_pair_may_be_used_within_a_program(pair):
    def loss(x):
        return jnp.sum(jnp.square(pair.apply_inv(pair.apply(x))))

    x = jnp.array([0.3, -0.3, 0.7])
    gradient = jax.jit(jax.grad(loss))(x)
    np.testing.assert_allclose(gradient, 2 * x, rtol=2e-2)


# --- What they refuse. ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: rlaxlib.twohot_pair(1.0, -1.0, 5),
            "^twohot_pair: `min_value` and `max_value` must increase",
        ),
        (
            lambda: rlaxlib.muzero_pair(-1.0, 1.0, 1, SQUASH),
            "`num_bins` must be at least 2",
        ),
        (
            lambda: rlaxlib.unbiased_transform_pair(1.0, 1.0, 5, SQUASH),
            "^unbiased_transform_pair: `min_value` and `max_value` must increase",
        ),
        (
            lambda: rlaxlib.unbiased_transform_pair(
                -300.0, 300.0, 601, rlaxlib.HYPERBOLIC_SIN_PAIR
            ),
            r"^unbiased_transform_pair: `bins` must lie in \(-inf, inf\)",
        ),
        (
            lambda: rlaxlib.unbiased_transform_pair(
                -1.0, 1.0, 5, rlaxlib.TxPair(jnp.negative, jnp.negative)
            ),
            "^unbiased_transform_pair: `bins` must increase",
        ),
        (
            lambda: SPREAD["unbiased"].apply_inv(jnp.ones(7)),
            r"^unbiased_transform_pair.apply_inv: `x` is float32\[7\], but must be "
            r"float\[\.\.\., 601\]",
        ),
        (
            lambda: rlaxlib.hl_gauss_pair(1.0, -1.0, 5),
            "^hl_gauss_pair: `min_value` and `max_value` must increase",
        ),
        (
            lambda: rlaxlib.hl_gauss_pair(-1.0, 1.0, 1),
            "^hl_gauss_pair: `num_bins` must be at least 2",
        ),
        (
            lambda: rlaxlib.hl_gauss_pair(-1.0, 1.0, 5, sigma=0.0),
            r"^hl_gauss_pair: `sigma` must lie in \(0, inf\), but is 0.0",
        ),
        (
            lambda: PAIRS["HL-Gauss"].apply_inv(jnp.ones(7)),
            r"^hl_gauss_pair.apply_inv: `probs` is float32\[7\], but must be "
            r"float\[\.\.\., 201\]",
        ),
        *(
            (
                lambda pair=pair: rlaxlib.out_of_range(0.5, pair),
                "^out_of_range: `tx_pair` must be a pair with bins",
            )
            for pair in (SQUASH, PAIRS["chain"], rlaxlib.TxPair(jnp.sin, jnp.sin))
        ),
        (
            lambda: rlaxlib.DISCOUNT_TRANSFORM_PAIR.apply([0.5]),
            "^discount_transform_pair.apply: `x`",
        ),
        (lambda: PAIRS["muzero"].apply("3"), "^muzero_pair.apply: `x` is '3'"),
    ],
)
def test_says_what_is_wrong(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        call()
