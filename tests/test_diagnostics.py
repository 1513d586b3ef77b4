"""Test diagnostics: expectations, extreme values, masks, devices and streams."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close
from jax.experimental import checkify

import rlaxlib

LOGITS, OTHER = np.float32([0.5, -1, 0.2]), np.float32([0.1, 0.4, -0.3])
TARGETS = np.float32([1, 2, 4, 9])
explained_variance, effective_sample_size, importance_statistics = (
    jax.jit(getattr(rlaxlib, name), static_argnames="axis_name")
    for name in (
        "explained_variance",
        "effective_sample_size",
        "importance_statistics",
    )
)
OF_RATIOS = [effective_sample_size, importance_statistics]


# --- Values. ---


def test_explained_variance_is_one_for_perfect_and_zero_for_constant_values():
    assert explained_variance(TARGETS, TARGETS) == 1
    close(explained_variance(TARGETS + 3, TARGETS), 1.0)
    close(explained_variance(np.full(4, 4, np.float32), TARGETS), 0.0)


def test_explained_variance_of_equal_targets_is_zero():
    found = jax.jit(jax.value_and_grad(explained_variance, (0, 1)))
    for value in (0.0, 0.1, -1e6):
        targets = np.full(4, value, np.float32)
        for predictions in (targets, np.arange(4, dtype=np.float32)):
            result, gradients = found(predictions, targets)
            assert result == 0, value
            np.testing.assert_array_equal(gradients, 0.0, err_msg=str(value))


def test_explained_variance_is_precise_far_from_zero():
    rng = np.random.default_rng(0)
    targets = np.float32(1e6 + rng.normal(size=1000))
    predictions = np.float32(targets + 0.5 * rng.normal(size=1000))
    errors = targets.astype(float) - predictions
    expected = 1 - np.var(errors) / np.var(targets.astype(float))
    close(explained_variance(predictions, targets), expected, rtol=1e-4)


def test_explained_variance_ignores_masked_entries():
    function = explained_variance
    predictions = np.float32([[0.5, np.nan], [3, 2]])
    targets = np.float32([[1, 2], [np.inf, 4]])
    mask = np.array([[True, False], [False, True]])
    found = jax.jit(jax.value_and_grad(function, (0, 1)))
    result, gradients = found(predictions, targets, sample_mask=mask)
    close(result, function(predictions[mask], targets[mask]))
    assert np.all(np.isfinite(gradients))
    np.testing.assert_array_equal(np.asarray(gradients)[:, ~mask], 0.0)
    assert found(predictions, targets, sample_mask=mask & False)[0] == 0


def test_explained_variance_does_not_hide_nan():
    bad = np.float32([1, 2, np.nan, 9])
    assert np.isnan(explained_variance(bad, TARGETS))
    assert np.isnan(explained_variance(TARGETS, bad))


def test_explained_variance_over_devices_equals_that_of_one_device():
    function = explained_variance
    predictions = np.float32([[0.5, 7], [3, 2]])
    targets, mask = TARGETS.reshape(2, 2), np.array([[True, True], [False, True]])
    over = jax.vmap(
        lambda *x: function(*x[:2], sample_mask=x[2], axis_name="i"),
        axis_name="i",
    )

    @jax.jit
    def both(*x):
        return over(*x), function(*x[:2], sample_mask=x[2])

    parts, whole = both(predictions, targets, mask)
    close(parts, np.repeat(whole, 2))


# --- Importance ratios. ---


@pytest.mark.parametrize("shift", [-1e4, 0.0, 1e4])
def test_effective_sample_size_ranges_from_one_to_the_number_of_samples(shift):
    size = effective_sample_size
    close(size(np.full(4, shift, np.float32)), 4.0)
    close(size(np.float32([shift, 200 + shift, shift, shift])), 1.0)
    close(size(np.float32([shift, shift, -np.inf, -np.inf])), 2.0)


def test_effective_sample_size_of_zero_weights_is_zero():
    log_weights = np.full(3, -np.inf, np.float32)
    size, gradient = jax.jit(jax.value_and_grad(effective_sample_size))(log_weights)
    assert size == 0
    assert not np.any(np.isnan(gradient))


def test_importance_statistics_are_unbiased():
    pi, mu = (np.exp(x) / np.sum(np.exp(x)) for x in (LOGITS, OTHER))
    over_actions = jax.jit(jax.vmap(importance_statistics))
    each = jax.tree.map(np.asarray, over_actions(np.log(pi / mu)[:, None]))
    close(np.sum(mu * each.chi_squared), np.sum(pi**2 / mu) - 1)
    close(np.sum(mu * each.mean_ratio), 1.0)
    close(np.sum(mu * each.kl), np.sum(mu * np.log(mu / pi)))


@pytest.mark.parametrize("size", [1, 4])
def test_importance_statistics_of_equal_policies(size):
    statistics = importance_statistics(np.zeros(size, np.float32))
    np.testing.assert_array_equal(statistics, [1, 0, 0, 0, 0, 0, 0, 1])


def test_ratio_that_overflows_leaves_other_statistics_finite():
    statistics = importance_statistics(np.float32([0, 200, 0, 0]))
    assert statistics.mean_ratio == np.inf
    assert statistics.max_log_ratio == 200
    close(statistics.mean_log_ratio, 50.0)
    close(statistics.effective_fraction, 0.25)


def test_importance_statistics_of_an_impossible_action():
    statistics = importance_statistics(np.float32([-np.inf, 0, -np.inf, 0]))
    assert statistics.min_log_ratio == -np.inf
    assert statistics.max_log_ratio == 0
    assert statistics.kl == np.inf
    close(statistics.mean_ratio, 0.5)
    close(statistics.effective_fraction, 0.5)


@pytest.mark.parametrize("function", OF_RATIOS)
def test_ratio_diagnostics_ignore_masked_entries(function):
    log_ratio = np.float32([0.5, np.nan, -1, np.inf])
    mask = np.array([True, False, True, False])

    def total(x, mask):
        found = function(x, sample_mask=mask)
        return sum(jax.tree.leaves(found)), found

    gradients = jax.jit(jax.grad(total, has_aux=True))
    gradient, found = gradients(log_ratio, mask)
    jax.tree.map(close, found, function(log_ratio[mask]))
    assert np.all(np.isfinite(gradient))
    np.testing.assert_array_equal(np.asarray(gradient)[~mask], 0.0)
    _, nothing = gradients(log_ratio, mask & False)
    np.testing.assert_array_equal(jax.tree.leaves(nothing), 0.0)


@pytest.mark.parametrize("function", OF_RATIOS)
def test_ratio_diagnostics_do_not_hide_nan(function):
    result = function(np.float32([0.1, np.nan, 9, 0]))
    assert np.isnan(jax.tree.leaves(result)[0])


@pytest.mark.parametrize("function", OF_RATIOS)
def test_ratio_diagnostics_over_devices_equal_those_of_one_device(function):
    log_ratio = np.float32([[0.5, 0.1], [3, -2]])
    mask = np.array([[True, True], [False, True]])
    over = jax.vmap(
        lambda x, mask: function(x, sample_mask=mask, axis_name="i"),
        axis_name="i",
    )

    @jax.jit
    def both(x, mask):
        return over(x, mask), function(x.ravel(), sample_mask=mask.ravel())

    parts, whole = both(log_ratio, mask)
    jax.tree.map(lambda part, one: close(part, np.repeat(one, 2)), parts, whole)


def test_importance_statistics_have_no_gradient():
    def total(x):
        return sum(importance_statistics(x))

    gradient = jax.jit(jax.grad(total))(np.float32([0.5, -0.5]))
    np.testing.assert_array_equal(gradient, 0.0)


# --- Trajectories. ---

GOOD = {
    "r_t": np.float32([0, 1, 2, 3]),
    "discount_t": np.float32([0.5, 0, 1, 0.5]),
    "truncated_t": np.array([False, False, False, True]),
    "sample_mask": np.array([True, True, False, True]),
    "v_t": np.float32([1, 1e30, 0, 2]),
}


def change(**changes):
    """Change entries of a consistent stream: `r_t={0: nan}`."""
    stream = {name: array.copy() for name, array in GOOD.items()}
    for name, entries in changes.items():
        for step, value in entries.items():
            stream[name][step] = value
    return stream


BAD = {
    "reward": (
        change(r_t={0: np.nan}),
        [0],
        "`r_t` is nan at step 0, must be finite",
    ),
    "value of NaN within an episode": (
        change(v_t={0: np.nan}),
        [0],
        "`v_t` is nan at step 0, must be finite",
    ),
    "infinite value after an episode": (
        change(v_t={1: np.inf}),
        [1],
        "`v_t` is inf at step 1, must be finite",
    ),
    "infinite reward": (
        change(r_t={3: -np.inf}),
        [3],
        "`r_t` is -inf at step 3, must be finite",
    ),
    "discount": (
        change(discount_t={0: 1.25}),
        [0],
        "`discount_t` is 1.25 at step 0, must be in [-1, 1]",
    ),
    "negative discount": (
        change(discount_t={3: -1.5, 0: np.nan}),
        [0, 3],
        "`discount_t` is nan at step 0, must be in [-1, 1]",
    ),
    "terminated and truncated": (
        change(truncated_t={1: True}),
        [1],
        "`truncated_t` is True at step 1, must be False where `discount_t` is 0",
    ),
    "lost end": (
        change(discount_t={1: 0.5, 2: 0.0}),
        [2],
        "`discount_t` is 0.0 at step 2, but `sample_mask` is False: the end of the "
        "episode is lost, and its estimates run into the next one",
    ),
    "missing end": (
        change(discount_t={1: 0.5}),
        [2],
        "`sample_mask` is False at step 2, but no step before it ends the episode: if "
        "the next valid step begins another one, set `truncated_t`, or the estimates "
        "run into it",
    ),
    "flags of ends": (
        {
            "r_t": np.ones(4, np.float32),
            "discount_t": np.array([0.0, 1.0, 0.0, 0.0], np.float32),
        },
        [1],
        "`discount_t` is 1.0 at step 1 and 0 at most others, like `done`: it must be "
        "the discount times `1 - terminated`",
    ),
    "no valid step": (
        GOOD | {"sample_mask": np.zeros(4, bool)},
        [0, 1, 2, 3],
        "`sample_mask` is False at step 0, and at all others",
    ),
}
every_bad = pytest.mark.parametrize("case", BAD)
CHECK = jax.jit(checkify.checkify(lambda x: rlaxlib.check_trajectory(**x)))

# Streams as in the tests of multistep estimates, and the steps whose end is lost.
ENDS = [
    ("..0..", "11011", [2]),
    ("..0..", "11111", []),
    (".00..", "11011", []),  # The previous valid step has terminated already.
    (".x0..", "11011", []),
    ("..0..", "11000", []),  # Padding.
    ("..0..", "00011", []),
    ("..00.", "11001", [2, 3]),
    ("..0x0", "11001", [2]),  # Reported, although the cut prevents harm.
    ("0.0.0", "10101", []),
    (".0.0.", "10101", [1, 3]),
    # A gap needs an end before it or in it.
    ("..x..", "11011", []),  # A cut at the ignored step.
    (".x...", "11011", []),
    (".....", "11011", [2]),
    (".....", "11001", [2]),
    ("...x.", "11001", []),
    ("....x", "11001", [2]),  # The cut comes too late.
    (".....", "00111", []),
    (".....", "11100", []),
    (".0...", "10110", [1]),  # Its end is lost.
    (".0.x.", "01011", []),
]


def test_consistent_stream_passes():
    np.testing.assert_array_equal(rlaxlib.check_trajectory(**GOOD), True)
    assert rlaxlib.check_trajectory(GOOD["r_t"], GOOD["discount_t"]).all()


def test_masked_steps_may_hold_anything():
    stream = change(r_t={2: np.nan}, discount_t={2: 7.0}, truncated_t={2: True})
    assert rlaxlib.check_trajectory(**stream).all()


@every_bad
def test_inconsistency_is_reported_directly_and_through_checkify(case):
    stream, steps, message = BAD[case]
    with pytest.raises(rlaxlib.ArgumentError) as raised:
        rlaxlib.check_trajectory(**stream)
    assert str(raised.value) == f"check_trajectory: {message}."
    error, consistent = CHECK(stream)
    assert error.get().startswith(f"check_trajectory: {message}.")
    assert np.flatnonzero(~np.asarray(consistent)).tolist() == steps


def test_checkify_reports_nothing_for_a_consistent_stream():
    error, consistent = CHECK(GOOD)
    assert error.get() is None
    assert consistent.all()


def test_all_inconsistencies_are_reported_at_once():
    stream = change(r_t={0: np.nan}, discount_t={3: 2.0}, truncated_t={1: True})
    with pytest.raises(rlaxlib.ArgumentError) as error:
        rlaxlib.check_trajectory(**stream)
    parts = str(error.value).split(". ")
    names = [part.split("`")[1] for part in parts]
    assert names == ["r_t", "discount_t", "truncated_t"]


def test_end_is_lost_where_estimates_would_run_into_the_next_episode():
    ends, valid = (np.array([list(each[i]) for each in ENDS]) for i in range(2))
    batch = {
        "r_t": np.ones(ends.shape, np.float32),
        "discount_t": np.where(ends == "0", np.float32(0), np.float32(0.5)),
        "truncated_t": ends == "x",
        "sample_mask": valid == "1",
    }
    check = checkify.checkify(jax.vmap(lambda x: rlaxlib.check_trajectory(**x)))
    _, consistent = jax.jit(check)(batch)
    lost = [np.flatnonzero(~each).tolist() for each in np.asarray(consistent)]
    assert lost == [expected for _, _, expected in ENDS]


def test_undiscounted_episodes_are_not_taken_for_flags():
    ones = np.ones(4, np.float32)
    for each in ([1, 1, 1, 0], [1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]):
        discount_t = np.array(each, np.float32)
        assert rlaxlib.check_trajectory(ones, discount_t).all()
    flags = np.array([0, 0.5, 0, 0], np.float32)
    assert rlaxlib.check_trajectory(ones, flags).all()


def test_batch_is_checked_stream_by_stream():
    streams = [GOOD, BAD["discount"][0], GOOD]
    batch = jax.tree.map(lambda *each: np.stack(each), *streams)
    function = jax.vmap(lambda x: rlaxlib.check_trajectory(**x))
    error, consistent = jax.jit(checkify.checkify(function))(batch)
    assert "is 1.25 at step 0" in error.get()
    assert consistent.all(axis=1).tolist() == [True, False, True]


def test_loss_that_checks_its_stream_keeps_its_gradient():
    def loss(x):
        rlaxlib.check_trajectory(x, GOOD["discount_t"])
        return jnp.sum(x)

    error, gradient = jax.jit(checkify.checkify(jax.grad(loss)))(GOOD["r_t"])
    assert error.get() is None
    np.testing.assert_array_equal(gradient, 1.0)


def test_the_value_of_a_terminal_state_may_be_minus_infinity():
    assert np.all(rlaxlib.check_trajectory(**change(v_t={1: -np.inf})))
