"""Test the pairs: round trips, ranges, dtypes, equality, pickling and bad input."""

import functools
import inspect

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlaxlib

HYPERBOLIC = rlaxlib.SIGNED_HYPERBOLIC_PAIR
PAIRS = {
    "identity": rlaxlib.IDENTITY_PAIR,
    "symlog": rlaxlib.SIGNED_LOGP1_PAIR,
    "hyperbolic": HYPERBOLIC,
    "sinh": rlaxlib.HYPERBOLIC_SIN_PAIR,
    "discount": rlaxlib.DISCOUNT_TRANSFORM_PAIR,
    "composed": rlaxlib.compose_tx(HYPERBOLIC, rlaxlib.SIGNED_LOGP1_PAIR),
    "empty composition": rlaxlib.compose_tx(),
    "two-hot": rlaxlib.twohot_pair(-1.0, 1.0, 201),
    "HL-Gauss": rlaxlib.hl_gauss_pair(-1.0, 1.0, 201, stddev_ratio=2.0),
    "symlog HL-Gauss": rlaxlib.compose_tx(
        rlaxlib.SIGNED_LOGP1_PAIR,
        rlaxlib.hl_gauss_pair(-1.0, 1.0, 201, stddev_ratio=2.0),
    ),
    "muzero": rlaxlib.muzero_pair(-1.0, 1.0, 201, HYPERBOLIC),
    "unbiased": rlaxlib.unbiased_transform_pair(-1.0, 1.0, 201, HYPERBOLIC),
}
apply, apply_inv = (
    jax.jit(lambda x, pair, name=name: getattr(pair, name)(x), static_argnums=1)
    for name in ("apply", "apply_inv")
)
outside_support = jax.jit(rlaxlib.outside_support, static_argnums=1)
WIDE = {
    "muzero": rlaxlib.muzero_pair(-300.0, 300.0, 601, HYPERBOLIC),
    "unbiased": rlaxlib.unbiased_transform_pair(-300.0, 300.0, 601, HYPERBOLIC),
}


# --- What the functions compute. ---


X = np.append(np.linspace(-0.9, 0.9, 101), 0.9).astype(np.float32)  # An even number.


@jax.jit
def round_trips(x):
    """Return a round trip with each pair, and the gradient of the square of one."""

    def loss(x, pair):
        back = pair.apply_inv(pair.apply(x))
        return jnp.sum(jnp.square(back)), back

    gradient = jax.grad(loss, has_aux=True)
    return {name: gradient(x, pair) for name, pair in PAIRS.items()}


def test_inverse_undoes_the_transform_and_the_gradients_are_inverse_to_each_other():
    inside = [33, 67, 89]  # Neither bins nor 0.
    for name, (gradient, back) in round_trips(X).items():
        np.testing.assert_allclose(back, X, atol=5e-7, err_msg=name)
        at = np.asarray(gradient)[inside]
        np.testing.assert_allclose(at, 2 * X[inside], rtol=2e-2, err_msg=name)


@pytest.mark.parametrize("pair", WIDE.values(), ids=WIDE)
def test_returns_of_every_magnitude_survive_a_round_trip(pair):
    x = np.array([1.03, 4.43, -3012.33, 0.0, 1e-6, 5e4], np.float32)
    np.testing.assert_allclose(apply_inv(apply(x, pair), pair), x, rtol=1e-6)


def test_only_the_unbiased_pair_decodes_the_mean_of_returns():
    def mean(pair):
        decode = jax.jit(
            lambda x, y: pair.apply_inv(0.5 * (pair.apply(x) + pair.apply(y)))
        )
        return decode(0.0, 16.0)

    np.testing.assert_allclose(mean(WIDE["unbiased"]), 8.0, rtol=1e-5)
    np.testing.assert_allclose(mean(WIDE["muzero"]), mean(HYPERBOLIC), rtol=1e-5)


@pytest.mark.parametrize("bins", [rlaxlib.twohot_pair, rlaxlib.hl_gauss_pair])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_outside_support_reports_values_outside_the_bins_only(bins, dtype):
    pair = bins(-0.3, 0.7, 11)
    x = np.array([-0.31, -0.3, 0.0, 0.7, 0.71, -np.inf, np.inf, np.nan], dtype)
    expected = np.array([1, 0, 0, 0, 1, 1, 1, 1], bool)
    np.testing.assert_array_equal(outside_support(x, pair), expected)

    composed = rlaxlib.compose_tx(
        rlaxlib.TxPair(lambda x: 2 * x, lambda x: x / 2), pair
    )
    half = x / np.array(2, dtype)
    found = outside_support(half, rlaxlib.compose_tx(composed))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("make", [rlaxlib.muzero_pair, rlaxlib.unbiased_transform_pair])
def test_outside_support_applies_the_transform_before_the_bins(make, dtype):
    pair = make(-2.0, 3.0, 11, rlaxlib.SIGNED_LOGP1_PAIR)
    x = np.array([-6.5, -6.3, 0.0, 19.0, 19.2], dtype)
    np.testing.assert_array_equal(outside_support(x, pair), [1, 0, 0, 0, 1])


@pytest.mark.parametrize("count", [254, 255])
@pytest.mark.parametrize(
    "make",
    [
        rlaxlib.twohot_pair,
        rlaxlib.hl_gauss_pair,
        functools.partial(rlaxlib.muzero_pair, tx=HYPERBOLIC),
        functools.partial(
            rlaxlib.unbiased_transform_pair, tx=rlaxlib.SIGNED_LOGP1_PAIR
        ),
    ],
    ids=["two-hot", "HL-Gauss", "muzero", "unbiased"],
)
def test_symmetric_probabilities_have_a_mean_of_zero(make, count):
    # A critic whose last layer is 0 then predicts 0, and not the rounding error of bins
    # of 5e8.
    half = np.random.default_rng(0).dirichlet(np.ones(count), 10).astype(np.float32)
    probs = np.concatenate([half + half[:, ::-1], np.full((1, count), 1 / count)])
    pair, probs = make(-20.0, 20.0, count), np.float32(probs)
    both = jax.jit(lambda traced, x: [each.apply_inv(x) for each in (pair, traced)])
    np.testing.assert_array_equal(both(pair, probs), 0)


def test_composition_applies_in_order_and_inverts_in_reverse():
    double = rlaxlib.TxPair(lambda x: 2 * x, lambda x: x / 2)
    one_more = rlaxlib.TxPair(lambda x: x + 1, lambda x: x - 1)
    composed = rlaxlib.compose_tx(double, one_more)
    assert composed.apply(3.0) == 7.0
    assert composed.apply_inv(7.0) == 3.0


# --- How they behave under JAX. ---


@pytest.mark.parametrize("double", [False, True])
def test_dtype_follows_the_argument_both_ways(double):
    dtypes = (np.float32, np.float64) if double else (jnp.float16, jnp.bfloat16)
    inputs = [np.array(0.3, dtype) for dtype in dtypes]

    def both_ways(x, pair):
        encoded = pair.apply(x)
        return x, encoded, pair.apply_inv(encoded)

    @jax.jit
    def all_pairs(inputs):
        return {n: [both_ways(x, pair) for x in inputs] for n, pair in PAIRS.items()}

    with contract.x64(double):
        outputs = all_pairs(inputs)
    for name, results in outputs.items():
        for x, encoded, back in results:
            assert encoded.dtype == back.dtype == x.dtype, name
            rtol = 8 * max(float(jnp.finfo(x.dtype).eps), 1e-15)
            pair = np.float64(back), np.float64(x)
            np.testing.assert_allclose(*pair, rtol=rtol, err_msg=name)


def make_pairs(high):
    return {
        rlaxlib.twohot_pair(-1.0, high, 5),
        rlaxlib.hl_gauss_pair(-1.0, high, 5),
        rlaxlib.hl_gauss_pair(-1.0, high, 5, stddev_ratio=0.3),
        rlaxlib.muzero_pair(-1.0, high, 5, HYPERBOLIC),
        rlaxlib.unbiased_transform_pair(-1.0, high, 5, HYPERBOLIC),
        rlaxlib.compose_tx(HYPERBOLIC, rlaxlib.hl_gauss_pair(-1.0, high, 5)),
    }


def test_pairs_are_equal_if_made_from_equal_arguments():
    assert make_pairs(1.0) == make_pairs(1.0)
    assert len(make_pairs(1.0)) == 6
    assert not make_pairs(1.0) & make_pairs(2.0)
    bins = rlaxlib.twohot_pair(-1.0, 1.0, 5)
    muzero = rlaxlib.muzero_pair(-1.0, 1.0, 5, HYPERBOLIC)
    assert muzero == rlaxlib.compose_tx(HYPERBOLIC, bins)


def test_functions_of_a_pair_can_be_compiled_and_mapped():
    pair = rlaxlib.twohot_pair(-1.0, 1.0, 5)
    assert list(inspect.signature(pair.apply).parameters) == ["scalar"]
    x = np.float32([0.25, -0.5])
    expected = [[0, 0, 0.5, 0.5, 0], [0, 1, 0, 0, 0]]
    np.testing.assert_array_equal(jax.jit(jax.vmap(pair.apply))(x), expected)
    np.testing.assert_array_equal(pair.apply(scalar=x), expected)


def test_a_batch_may_be_spread_over_an_explicit_mesh():
    explicit = (jax.sharding.AxisType.Explicit,)
    mesh = jax.make_mesh((2,), ("data",), axis_types=explicit)
    there = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    expected = round_trips(X)
    for name, found in round_trips(jax.device_put(X, there)).items():
        gradient, back = expected[name]
        np.testing.assert_allclose(found[1], back, atol=1e-6, err_msg=name)
        np.testing.assert_allclose(found[0], gradient, rtol=1e-5, err_msg=name)


def test_a_pair_can_be_made_within_a_program():
    def encode(x):
        return rlaxlib.unbiased_transform_pair(-2.0, 3.0, 5, HYPERBOLIC).apply(x)

    np.testing.assert_allclose(jax.jit(encode)(0.7), encode(0.7), rtol=1e-6)


# --- Bad input. ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: rlaxlib.unbiased_transform_pair(
                -300.0, 300.0, 601, rlaxlib.HYPERBOLIC_SIN_PAIR
            ),
            r"^unbiased_transform_pair: `bins` is -?inf, must",
        ),
        (
            lambda: rlaxlib.unbiased_transform_pair(
                -1.0, 1.0, 5, rlaxlib.TxPair(jnp.negative, jnp.negative)
            ),
            "^unbiased_transform_pair: `bins` is 0.5, must increase",
        ),
        (
            lambda: WIDE["unbiased"].apply_inv(np.ones(7, np.float32)),
            r"^UnbiasedTransformPair\.apply_inv: `x` is float32\[7\], must be "
            r"float\[\.\.\., 601\]",
        ),
        (
            lambda: PAIRS["HL-Gauss"].apply_inv(np.ones(7, np.float32)),
            r"^HlGaussPair\.apply_inv: `probs` is float32\[7\], must be "
            r"float\[\.\.\., 201\]",
        ),
        *(
            (
                lambda pair=pair: rlaxlib.outside_support(0.5, pair),
                "^outside_support: `tx_pair` has no bins, must be a pair such as",
            )
            for pair in (
                HYPERBOLIC,
                PAIRS["composed"],
                rlaxlib.DISCOUNT_TRANSFORM_PAIR,
                rlaxlib.TxPair(jnp.sin, jnp.sin),
            )
        ),
    ],
)
def test_rejects_bad_input(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        call()


@pytest.mark.parametrize("make", [rlaxlib.twohot_pair, rlaxlib.hl_gauss_pair])
def test_pairs_of_traced_bounds_may_be_made_in_several_programs(make):
    def there_and_back(bound):
        pair = make(-bound, bound, 21)
        pair = rlaxlib.compose_tx(rlaxlib.SIGNED_LOGP1_PAIR, pair)
        return pair.apply_inv(pair.apply(0.3))

    for _ in range(2):
        found = jax.jit(functools.partial(there_and_back))(2.0)
        np.testing.assert_allclose(found, 0.3, atol=0.02)


def test_the_bounds_of_an_unbiased_pair_may_be_traced():
    def encode(low):
        tx = rlaxlib.IDENTITY_PAIR
        return rlaxlib.unbiased_transform_pair(low, 1.0, 5, tx).apply(0.5)

    np.testing.assert_allclose(jax.jit(encode)(-1.0), encode(-1.0), atol=1e-6)


MAKERS = {
    "two-hot": rlaxlib.twohot_pair,
    "HL-Gauss": rlaxlib.hl_gauss_pair,
    "muzero": functools.partial(rlaxlib.muzero_pair, tx=HYPERBOLIC),
    "unbiased": functools.partial(rlaxlib.unbiased_transform_pair, tx=HYPERBOLIC),
}
each_maker = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


@each_maker
def test_other_bounds_of_an_argument_give_what_concrete_ones_give_in_one_program(make):
    program = jax.jit(lambda pair, x: (pair.apply(x), pair.apply_inv(pair.apply(x))))
    x = jnp.linspace(-4.0, 6.0, 7)
    pairs = [make(low, high, 21) for low, high in ((-1.0, 1.0), (-2.0, 3.0))]
    for pair in pairs:
        probs = pair.apply(x)
        expected = probs, pair.apply_inv(probs)
        for found, each in zip(program(pair, x), expected, strict=True):
            np.testing.assert_allclose(found, each, rtol=1e-5, atol=2e-6)
    assert program._cache_size() == 1
    # One pair for each of several tasks.
    stacked = jax.tree.map(lambda *bounds: jnp.array(bounds), *pairs)
    found = jax.vmap(lambda pair: pair.apply(x))(stacked)
    expected = [pair.apply(x) for pair in pairs]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6)


@each_maker
def test_a_loss_of_a_pair_with_other_bounds_compiles_nothing(make, caplog):
    def loss(bound):
        pair = make(-bound, bound, 21)
        return rlaxlib.categorical_regression_loss(jnp.zeros(21), 0.3, pair)

    loss(1.0)
    with jax.log_compiles():
        loss(2.0)
    assert not caplog.records
