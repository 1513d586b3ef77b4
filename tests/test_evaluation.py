"""Test evaluation: exact values, limits, long trajectories and coverage."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from experience import close

import rlaxlib

KINDS = "is", "wis", "pdis", "wpdis", "dr", "wdr"
RANDOM = np.random.default_rng(0)
evaluate = jax.jit(rlaxlib.off_policy_evaluation, static_argnames=("kind", "axis_name"))


def values_of(kind, *values):
    return dict(zip(("q_tm1", "v_tm1"), values, strict=True)) if "dr" in kind else {}


def make_trajectories(count, steps, seed=0):
    """Return rewards, discounts and ratios of a random walk of two actions."""
    rng = np.random.default_rng(seed)
    a = rng.integers(2, size=(count, steps))
    r = (np.cumsum(2 * a - 1, axis=1) * 0.1 + a).astype(np.float32)
    discount = np.full((count, steps), 0.9, np.float32)
    rho = np.where(a == 1, 0.8, 0.2).astype(np.float32) / np.float32(0.5)
    return r, discount, rho


def named(kind, r, discount, rho, *values):
    """Return data by the names of their arguments."""
    return {"rho_tm1": rho, "r_t": r, "discount_t": discount} | values_of(kind, *values)


@functools.partial(jax.jit, static_argnames="kind")
def with_gradients(data, kind, sample_mask=None):
    """Return an estimate and its gradients by all data."""
    settings = {"kind": kind, "sample_mask": sample_mask}

    def estimate(data):
        return rlaxlib.off_policy_evaluation(**data, **settings)

    return jax.value_and_grad(estimate)(data)


# --- Off-policy evaluation. ---


@pytest.mark.parametrize("kind", KINDS)
def test_on_policy_estimates_are_the_mean_return(kind):
    r, discount, rho = make_trajectories(4, 5)
    expected = np.mean(np.sum(r * 0.9 ** np.arange(5), axis=1))
    data = named(kind, r, discount, np.ones_like(rho), 0 * r, 0 * r)
    close(with_gradients(data, kind)[0], expected)


@pytest.mark.parametrize("kind", KINDS)
def test_estimates_converge_to_the_value_of_the_policy(kind):
    steps = 3
    expected = 0.0
    for a in map(np.array, itertools.product((0, 1), repeat=steps)):
        rewards = np.cumsum(2 * a - 1) * 0.1 + a
        probability = np.prod(np.where(a == 1, 0.8, 0.2))
        expected += probability * np.sum(rewards * 0.9 ** np.arange(steps))
    r, discount, rho = make_trajectories(40_000, steps)
    wrong = values_of(kind, np.full_like(r, 0.3), np.full_like(r, 0.3))
    found = evaluate(rho, r, discount, **wrong, kind=kind)
    np.testing.assert_allclose(found, expected, rtol=0.02)


@pytest.mark.parametrize("kind", ["dr", "wdr"])
def test_exact_values_of_a_deterministic_environment_remove_the_variance(kind):
    # The reward is the action: q is known, and so is v.
    a = RANDOM.integers(2, size=(5, 3))
    r, discount = a.astype(np.float32), np.full((5, 3), 0.5, np.float32)
    rho = np.where(a == 1, 0.8, 0.2).astype(np.float32) / np.float32(0.5)
    later = 0.8 * np.array([0.5 + 0.25, 0.5, 0.0], np.float32)
    q, v = r + later, np.broadcast_to(0.8 + later, r.shape)
    close(
        evaluate(rho, r, discount, q_tm1=q, v_tm1=v, kind=kind), 0.8 * (1 + 0.5 + 0.25)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_steps_after_the_end_may_hold_anything(kind):
    r, discount, rho = make_trajectories(4, 5)
    values = RANDOM.normal(size=(2, 4, 5)).astype(np.float32)
    data = named(kind, r, discount, rho, *values)
    discount[:, 2] = 0.0
    expected = evaluate(**{name: x[:, :3] for name, x in data.items()}, kind=kind)
    r[:, 3:], rho[:, 3:] = 1e6, 7.0
    close(with_gradients(data, kind)[0], expected)


@pytest.mark.parametrize("kind", KINDS)
def test_ignored_steps_and_trajectories_are_as_if_deleted(kind):
    values = RANDOM.normal(size=(2, 4, 5)).astype(np.float32)
    data = named(kind, *make_trajectories(4, 5), *values)
    expected, _ = with_gradients(data, kind)
    mask = np.zeros((6, 9), bool)
    # One trajectory is padded in front, one behind, one has gaps, and two are ignored.
    for i, steps in enumerate(([4, 5, 6, 7, 8], [0, 1, 2, 3, 4], [0, 2, 3, 5, 8])):
        mask[i, steps] = True
    mask[4, [1, 2, 3, 4, 7]] = True

    def place(x):
        placed = np.full(mask.shape, np.nan, np.float32)
        placed[mask] = x.ravel()
        return placed

    data = {name: place(x) for name, x in data.items()}
    found, gradients = with_gradients(data, kind, mask)
    close(found, expected)
    for gradient in map(np.asarray, gradients.values()):
        assert np.all(np.isfinite(gradient))
        assert not np.any(gradient[~mask])
    assert with_gradients(data, kind, mask & False)[0] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_data_after_an_end_may_be_nan_and_a_discount_of_nan_shows(kind):
    r, discount, rho = make_trajectories(4, 5)
    discount[:, 2] = 0.0
    data = named(kind, r, discount, rho, r, r)
    expected, _ = with_gradients(data, kind)
    is_late = np.arange(5) > 2
    bad = {n: np.where(is_late, np.float32(np.nan), x) for n, x in data.items()}
    found, gradient = with_gradients(bad, kind)
    close(found, expected)
    assert all(np.all(np.isfinite(x)) for x in gradient.values())
    data["discount_t"][0, 1] = np.nan
    assert np.isnan(with_gradients(data, kind)[0])


@pytest.mark.parametrize("kind", ["wis", "wpdis", "wdr"])
def test_products_of_many_ratios_do_not_overflow(kind):
    r, discount = np.ones((3, 800), np.float32), np.full((3, 800), 0.9, np.float32)
    values = values_of(kind, r, r)
    for ratio in (1.5, 0.5):
        rho = np.full((3, 800), ratio, np.float32)
        np.testing.assert_allclose(
            evaluate(rho, r, discount, **values, kind=kind), 10.0, rtol=1e-4
        )


@pytest.mark.parametrize("kind", ["pdis", "dr"])
@pytest.mark.parametrize(("ratio", "discount"), [(1.25, 0.85), (0.5, 0.9)])
def test_discounts_keep_products_of_many_ratios_finite(kind, ratio, discount):
    # The product of the ratios alone is 1e58 after 600 steps.
    r, rho, gamma = (np.full((2, 600), x, np.float32) for x in (1.0, ratio, discount))
    values = np.float32(0.5) * r, 0 * r
    loss, gradients = with_gradients(named(kind, r, gamma, rho, *values), kind)
    powers = ratio * (
        np.float64(ratio) * np.float64(np.float32(discount))
    ) ** np.arange(600)
    reward = 0.5 if kind == "dr" else 1.0
    np.testing.assert_allclose(loss, reward * np.sum(powers), rtol=1e-4)
    np.testing.assert_allclose(
        gradients["r_t"], np.tile(powers / 2, (2, 1)), rtol=1e-4, atol=1e-30
    )


@pytest.mark.parametrize("kind", KINDS)
def test_infinite_products_of_ratios_weigh_no_reward_of_zero(kind):
    r, discount = np.zeros((2, 200), np.float32), np.ones((2, 200), np.float32)
    values = values_of(kind, r, r)
    assert evaluate(2 * discount, r, discount, **values, kind=kind) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_ratios_of_zero_have_finite_gradients(kind):
    r, discount, rho = make_trajectories(4, 5)
    rho[0, 2] = rho[1, 0] = 0.0
    _, gradients = with_gradients(named(kind, r, discount, rho, r, r), kind)
    assert np.all(np.isfinite(gradients["rho_tm1"]))
    found, _ = with_gradients(named(kind, r, discount, 0 * rho, r, r), kind)
    assert np.isfinite(found)


def test_doubly_robust_estimates_need_values_and_others_take_none():
    r, discount, rho = make_trajectories(4, 5)
    with pytest.raises(rlaxlib.ArgumentError, match="`q_tm1` and `v_tm1` are needed"):
        evaluate(rho, r, discount, "dr", q_tm1=r)
    with pytest.raises(rlaxlib.ArgumentError, match="must be None with the kind"):
        evaluate(rho, r, discount, "is", q_tm1=r, v_tm1=r)


# --- Scores. ---


def test_extreme_scores_do_not_move_the_interquartile_mean():
    scores = RANDOM.normal(size=(5, 8)).astype(np.float32)
    expected = rlaxlib.interquartile_mean(scores)
    scores[np.unravel_index(np.argmax(scores), scores.shape)] = 1e6
    close(rlaxlib.interquartile_mean(scores), expected)
    close(expected, scipy.stats.trim_mean(scores, 0.25, axis=None))


def test_probabilities_of_improvement_of_two_algorithms_sum_to_one():
    x = RANDOM.integers(4, size=(5, 3)).astype(np.float32)  # With ties.
    y = RANDOM.integers(4, size=(7, 3)).astype(np.float32)
    better, worse = (
        rlaxlib.probability_of_improvement(*pair) for pair in ((x, y), (y, x))
    )
    close(better + worse, 1.0)
    close(rlaxlib.probability_of_improvement(x, x), 0.5)
    assert rlaxlib.probability_of_improvement(x + 10, y) == 1.0


def test_a_score_of_nan_is_neither_cut_nor_compared():
    scores = np.array([1.0, 2.0, 3.0, np.nan], np.float32)
    assert np.isnan(rlaxlib.interquartile_mean(scores))
    pair = scores[:, None], np.zeros((4, 1), np.float32)
    for x, y in (pair, pair[::-1]):
        assert np.isnan(rlaxlib.probability_of_improvement(x, y))


# --- Intervals. ---


@pytest.mark.parametrize("stratified", [False, True])
def test_intervals_cover_the_mean_as_often_as_they_say(stratified):
    data = jax.random.normal(jax.random.key(0), (300, 30, 2))
    interval = functools.partial(
        rlaxlib.bootstrap_interval,
        statistic=jnp.mean,
        confidence=0.8,
        num_samples=100,
        stratified=stratified,
    )
    keys = jax.random.split(jax.random.key(1), 300)
    low, high = map(np.asarray, jax.jit(jax.vmap(interval))(keys, data))
    covered = np.mean((low < 0) & (high > 0))
    assert 0.7 < covered < 0.88


def test_arrays_are_resampled_together_unless_stratified():
    x = np.arange(20, dtype=np.float32)[:, None]

    def difference(data):
        return jnp.max(jnp.abs(data[0] - data[1]))

    @functools.partial(jax.jit, static_argnums=1)
    def interval(key, stratified):
        options = {"stratified": stratified}
        return rlaxlib.bootstrap_interval(key, (x, x), difference, **options)

    key = jax.random.key(0)
    assert max(interval(key, stratified=False)) == 0
    assert min(interval(key, stratified=True)) > 0


def test_an_estimate_of_trajectories_has_an_interval():
    r, discount, rho = make_trajectories(200, 3)

    @jax.jit
    def interval(key):
        return rlaxlib.bootstrap_interval(
            key,
            (rho, r, discount),
            lambda data: rlaxlib.off_policy_evaluation(*data, kind="wpdis"),
            num_samples=200,
        )

    low, high = interval(jax.random.key(0))
    assert low < rlaxlib.off_policy_evaluation(rho, r, discount) < high
    assert high - low < 0.6


def test_stratified_arrays_may_have_different_numbers_of_runs():
    scores = np.full((4, 2), 1.0), np.full((5, 2), 3.0)
    ends = rlaxlib.bootstrap_interval(
        jax.random.key(0),
        scores,
        lambda data: jnp.mean(data[0]) - jnp.mean(data[1]),
        num_samples=10,
        stratified=True,
    )
    np.testing.assert_array_equal(ends, [-2, -2])


@pytest.mark.parametrize(
    ("data", "stratified", "message"),
    [
        (
            (np.ones(3), np.ones(4)),
            False,
            r"`data\[1\]` is float32\[4\], must be array\[N, \*_\]",
        ),
        (
            {"r": np.ones(())},
            False,
            r"`data\['r'\]` is float64\[\], must be array\[_, \*_\]",
        ),
        (np.ones((0, 2)), False, r"`data` is float64\[0, 2\], must be .* not empty"),
        (np.ones(4), True, r"`data` is float32\[4\], must be array\[R, M\]"),
        ((), False, "`data` has no arrays"),
        (np.ones(3, ">f4"), False, r"`data` is >f4\[3\], must be"),
        (np.array([1.0, None]), False, r"`data` is object\[2\], must be"),
    ],
)
def test_arrays_must_share_their_first_axis(data, stratified, message):
    key = jax.random.key(0)
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        rlaxlib.bootstrap_interval(key, data, jnp.mean, stratified=stratified)


@pytest.mark.parametrize(
    "statistic",
    [lambda x: jnp.mean(x, 0), lambda x: (jnp.mean(x),), lambda _: "no", jnp.any],
)
def test_a_statistic_must_be_one_number(statistic):
    data = np.ones((4, 3), np.float32)
    with pytest.raises(rlaxlib.ArgumentError, match=r"`statistic\(data\)` (is|has) "):
        rlaxlib.bootstrap_interval(jax.random.key(0), data, statistic, num_samples=2)


def test_a_statistic_may_be_an_integer_or_a_constant():
    data = np.arange(4)
    for statistic, expected in (
        (len, 4),
        (jnp.size, 4),
        (lambda _: 0.5, 0.5),
    ):
        interval = rlaxlib.bootstrap_interval(
            jax.random.key(0), data, statistic, num_samples=2
        )
        close(interval, (expected, expected))
