"""Test bandits: identities, limits and edges, and regret against its theory.

Regrets are means over seeds. `upper` and `lower` are limits of confidence of 99.9 %
for the expected regret, three and a third standard errors from the mean.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import x64
from regret import SEEDS, growth, many_samples, run_updates

import rlaxlib

MEANS = np.array([0.8, 0.5, 0.3])
GAPS = MEANS.max() - MEANS
STEPS = 1000


def kl(p, q):
    return p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))


# The regret of any consistent policy is at least this times log T, for large T.
LAI_ROBBINS = sum(gap / kl(MEANS.max() - gap, MEANS.max()) for gap in GAPS[1:])


def simulate(choose, update, initial, rewards_of, means=MEANS, steps=STEPS):
    """Return the regret of a policy after each pull, for each seed.

    Args:
        choose: Function of a key, a state and a time, that returns an arm, and the
            probability that it was chosen with, or None.
        update: Function of a state, an arm, its reward and that probability.
        initial: The state before the first pull.
        rewards_of: Function of a key and means, that samples a reward of each arm.
        means: Mean rewards of the arms, for all time or for each step.
        steps: Number of pulls.
    """
    means = jnp.broadcast_to(jnp.asarray(means, float), (steps, np.shape(means)[-1]))

    def run(key):
        def step(state, inputs):
            t, key, means = inputs
            of_rewards, of_arm = jax.random.split(key)
            arm, probability = choose(of_arm, state, t)
            reward = rewards_of(of_rewards, means)[arm]
            state = update(state, arm, reward, probability)
            return state, jnp.max(means) - means[arm]

        inputs = jnp.arange(1, steps + 1), jax.random.split(key, steps), means
        return jnp.cumsum(jax.lax.scan(step, initial, inputs)[1])

    keys = jax.random.split(jax.random.key(0), SEEDS)
    return np.asarray(jax.jit(jax.vmap(run))(keys))


def bernoulli(key, means):
    return jax.random.bernoulli(key, means).astype(float)


def gaussian(key, means):
    return means + jax.random.normal(key, means.shape)


def highest(scores):
    """Return a policy that pulls the arm with the highest score."""
    return lambda key, state, t: (jnp.argmax(scores(key, state)), None)


def sampled(probabilities):
    """Return a policy that samples an arm."""

    def choose(key, state, t):
        p = probabilities(state, t)
        arm = jax.random.categorical(key, jnp.log(p))
        return arm, p[arm]

    return choose


@functools.cache
def of_scores(name):
    """Return the regret of a policy of `SCORES` for Bernoulli rewards."""
    return of_statistics(SCORES[name])


def of_statistics(scores, rewards_of=bernoulli, update=rlaxlib.bandit_update, **more):
    """Return the regret of a policy that scores arms by their statistics."""
    return simulate(
        highest(scores),
        lambda state, arm, reward, _: update(state, arm, reward),
        more.pop("initial", rlaxlib.bandit_init(len(MEANS))),
        rewards_of,
        **more,
    )


def upper(regret):
    return np.mean(regret) + 3.3 * np.std(regret) / np.sqrt(len(regret))


def lower(regret):
    return np.mean(regret) - 3.3 * np.std(regret) / np.sqrt(len(regret))


def logarithmic_fit(regret):
    """Return the regret per unit of log t over the last decade, and R² of the fit."""
    steps = regret.shape[1]
    t = np.arange(steps // 10, steps)
    x, y = np.log(t + 1), regret.mean(axis=0)[t]
    return np.polyfit(x, y, 1)[0], np.corrcoef(x, y)[0, 1] ** 2


# --- Statistics. ---


def history(steps=40, arms=3):
    rng = np.random.default_rng(0)
    return rng.integers(arms, size=steps), rng.normal(size=steps)


@jax.jit
def run_bandit(state, arms, rewards, discount=1.0):
    update = functools.partial(rlaxlib.bandit_update, discount=discount)
    return run_updates(update, state, arms, rewards)


def test_statistics_of_many_pulls_are_accurate_in_single_precision():
    """The rounding error of a factor of 1 - 1/N would be a bias of 1e-3."""
    rewards = np.random.default_rng(0).normal(3.0, 1.0, size=200_000).astype("f4")
    state = run_bandit(rlaxlib.bandit_init(1), np.zeros(rewards.size, int), rewards)
    np.testing.assert_allclose(state.means[0], np.mean(rewards, dtype=float), 1e-4)
    np.testing.assert_allclose(state.variances[0], np.var(rewards, dtype=float), 1e-4)


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_statistics_are_weighted_moments_of_all_rewards(discount):
    arms, rewards = history()
    with x64(True):
        state = run_bandit(rlaxlib.bandit_init(4), arms, rewards, discount)
    state = [np.asarray(each) for each in state]
    weights = discount ** np.arange(len(arms))[::-1]
    for a in range(3):
        w, r = weights[arms == a], rewards[arms == a]
        mean = np.average(r, weights=w)
        found = [each[a] for each in state[:3]]
        expected = w.sum(), mean, np.average((r - mean) ** 2, weights=w)
        np.testing.assert_allclose(found, expected, 1e-12)
    assert not any(each[3] for each in state)


@pytest.mark.parametrize("window", [1, 7, 100])
def test_a_sliding_window_holds_the_last_pulls(window):
    arms, rewards = history()
    state = rlaxlib.sliding_window_init(4, window)
    with x64(True):
        state = jax.tree.map(lambda x: np.float64(x) if x.dtype == "f4" else x, state)
        state = run_updates(rlaxlib.sliding_window_update, state, arms, rewards)
        initial = rlaxlib.bandit_init(4)
        whole = run_bandit(initial, arms[-window:], rewards[-window:])
    for found, expected in zip(state[:3], whole[:3], strict=True):
        np.testing.assert_allclose(found, expected, 1e-12, 1e-14)


def test_an_update_of_a_window_is_compiled_once():
    window = rlaxlib.sliding_window_init(2, 3)
    update = jax.jit(rlaxlib.sliding_window_update)
    for _ in range(2):
        window = update(window, 1, 0.5)
    assert update._cache_size() == 1


bandit_update = jax.jit(rlaxlib.bandit_update)


def test_a_traced_arm_out_of_range_gives_nan():
    zeros = jnp.zeros(3)
    updates = (
        lambda arm: rlaxlib.bandit_update(rlaxlib.bandit_init(3), arm, 1.0),
        lambda arm: rlaxlib.sliding_window_update(
            rlaxlib.sliding_window_init(3, 2), arm, 1.0
        ),
        lambda arm: rlaxlib.exp3_update(zeros, arm, 1.0, 0.5, 0.1),
        lambda arm: rlaxlib.tsallis_inf_update(zeros, arm, 1.0, 0.5),
        lambda arm: rlaxlib.gradient_bandit_update(
            rlaxlib.GradientBanditState(zeros, 0.0, 1, 0.0), arm, 1.0, 0.1
        ),
    )
    update_all = jax.jit(lambda arm: [update(arm) for update in updates])
    for arm in (-1, 3):
        for state in update_all(arm):
            found = jax.tree.leaves(state)[0]
            np.testing.assert_array_equal(np.isnan(found), True)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16])
def test_an_arm_of_few_bits_is_the_same_arm(dtype):
    arms = int(np.iinfo(dtype).max) + 1  # More than the type of the arm can hold.
    zeros = jnp.zeros(arms)
    window = rlaxlib.sliding_window_init(arms, 2)
    updates = (
        lambda arm: rlaxlib.bandit_update(rlaxlib.bandit_init(arms), arm, 1.0),
        lambda arm: rlaxlib.sliding_window_update(window, arm, 1.0),
        lambda arm: rlaxlib.exp3_update(zeros, arm, 1.0, 0.5, 0.1),
        lambda arm: rlaxlib.tsallis_inf_update(zeros, arm, 1.0, 0.5),
        lambda arm: rlaxlib.gradient_bandit_update(
            rlaxlib.GradientBanditState(zeros, 0.0, 1, 0.0), arm, 1.0, 0.1
        ),
    )
    update_all = jax.jit(lambda arm: [update(arm) for update in updates])
    found, expected = update_all(dtype(100)), update_all(np.int32(100))
    for one, other in zip(
        jax.tree.leaves(found), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_array_equal(one, other)
        assert np.isfinite(other).all()


def test_states_can_be_scanned_and_mapped():
    arms, rewards = history()
    rewards = np.float32(rewards)
    state = rlaxlib.gradient_bandit_init(3)
    update = functools.partial(rlaxlib.gradient_bandit_update, step_size=0.1)
    many = jax.jit(jax.vmap(lambda r: run_updates(update, state, arms, r)))
    batch = many(np.stack([rewards, -rewards]))
    assert batch.preferences.shape == (2, 3)
    np.testing.assert_array_equal(batch.num_pulls, 40)
    mean = rewards.mean()
    np.testing.assert_allclose(batch.baseline, [mean, -mean], 1e-5)


# --- Upper confidence bounds. ---


SCORES = {
    "ucb": lambda key, s: rlaxlib.ucb_scores(s.counts, s.means),
    "tuned": lambda key, s: rlaxlib.ucb_tuned_scores(s.counts, s.means, s.variances),
    "kl": lambda key, s: rlaxlib.kl_ucb_scores(s.counts, s.means),
    "beta": lambda key, s: rlaxlib.thompson_beta(key, s.counts, s.means),
    "gaussian": lambda key, s: rlaxlib.thompson_gaussian(key, s.counts, s.means),
}


def test_counts_may_be_integers():
    statistics = [[3, 1, 7], [0.5, 0.25, 0], [0.1, 0, 0.2]]
    state = rlaxlib.BanditState(*np.float32(statistics), *np.zeros((3, 3), np.float32))
    key = jax.random.key(0)

    @jax.jit
    def all_scores(*counts):
        states = [state._replace(counts=each) for each in counts]
        return {
            n: [scores(key, each) for each in states] for n, scores in SCORES.items()
        }

    counts = [state.counts.astype(x) for x in (np.float32, np.int8, np.int64)]
    with x64(True):
        found = all_scores(*counts)
    for name, (expected, *others) in found.items():
        for each in others:
            np.testing.assert_array_equal(each, expected, err_msg=name)
            assert each.dtype == jnp.float32, name


@pytest.mark.parametrize("name", ["ucb", "tuned", "kl"])
def test_arms_that_have_not_been_pulled_come_first(name):
    state = rlaxlib.bandit_init(3)
    pulled = bandit_update(state, 1, 1.0)
    score = jax.jit(functools.partial(SCORES[name], None))
    with jax.debug_nans(True):
        np.testing.assert_array_equal(score(state), np.inf)
        scores = np.asarray(score(pulled))
    np.testing.assert_array_equal(np.isinf(scores), [True, False, True])
    np.testing.assert_allclose(scores[1], 1.0, 1e-6)


def test_a_discount_of_zero_forgets_all_pulls():
    ones, rests = jnp.ones((2, 2)), jnp.zeros((3, 2))
    state = rlaxlib.BanditState(jnp.full(2, 3.0), *ones, *rests)
    found = bandit_update(state, 0, 4.0, 0.0)
    np.testing.assert_array_equal(found[:3], [[1, 0], [4, 1], [0, 1]])


def test_ucb_regret_is_within_the_bound_of_auer_and_logarithmic():
    regret = of_scores("ucb")
    bound = sum(8 * np.log(STEPS) / gap for gap in GAPS[1:])
    bound += (1 + np.pi**2 / 3) * GAPS.sum()
    assert upper(regret[:, -1]) < bound
    assert growth(regret) < 0.5
    rate, fit = logarithmic_fit(regret)
    assert fit > 0.98
    # By far not the smallest possible.
    assert rate > 3 * LAI_ROBBINS


def test_tuned_ucb_and_kl_ucb_regret_is_less_than_that_of_ucb():
    regret = {name: of_scores(name)[:, -1] for name in ("ucb", "tuned", "kl")}
    assert upper(regret["tuned"]) < 0.5 * lower(regret["ucb"])
    assert upper(regret["kl"]) < 0.5 * lower(regret["ucb"])


@pytest.mark.parametrize("name", ["kl", "beta"])
def test_regret_reaches_the_lower_bound_of_lai_and_robbins(name):
    regret = of_scores(name)
    assert upper(regret[:, -1]) < LAI_ROBBINS * np.log(STEPS)
    assert lower(regret[:, -1]) > 0.3 * LAI_ROBBINS * np.log(STEPS)
    assert growth(regret) < 0.4
    rate, fit = logarithmic_fit(regret)
    assert 0.4 * LAI_ROBBINS < rate < 1.6 * LAI_ROBBINS
    assert fit > 0.9


def test_gaussian_thompson_regret_reaches_the_lower_bound_of_lai_and_robbins():
    means = np.array([2.0, 1.0, 0.0])
    bound = sum(2 / gap for gap in (1.0, 2.0)) * np.log(STEPS)
    regret = of_statistics(SCORES["gaussian"], gaussian, means=means)
    assert 0.3 * bound < lower(regret[:, -1])
    assert upper(regret[:, -1]) < 1.5 * bound
    assert growth(regret) < 0.4


def test_forgetting_follows_rewards_that_change():
    def scores(key, s):
        return rlaxlib.ucb_scores(s.counts, s.means, bonus_scale=0.5)

    means = np.repeat([[0.7, 0.3], [0.3, 0.7]], STEPS, axis=0)
    after = {}
    for name, update, initial in (
        ("all", rlaxlib.bandit_update, rlaxlib.bandit_init(2)),
        (
            "discount",
            functools.partial(rlaxlib.bandit_update, discount=0.99),
            rlaxlib.bandit_init(2),
        ),
        (
            "window",
            rlaxlib.sliding_window_update,
            rlaxlib.sliding_window_init(2, window=100),
        ),
    ):
        regret = of_statistics(
            scores,
            update=update,
            initial=initial,
            means=means,
            steps=2 * STEPS,
        )
        after[name] = regret[:, -1] - regret[:, STEPS - 1]
    assert upper(after["discount"]) < lower(after["all"])
    assert upper(after["window"]) < lower(after["all"])


kl_ucb_scores = jax.jit(rlaxlib.kl_ucb_scores)


def test_kl_ucb_is_known_for_certain_rewards_and_tighter_than_pinskers_bound():
    rng = np.random.default_rng(0)
    counts, means = rng.uniform(1, 100, 50), rng.uniform(size=50)
    means[:2] = 0.0, 1.0
    with x64(True), jax.debug_nans(True):
        scores = np.asarray(kl_ucb_scores(counts, means))
        hoeffding = jax.jit(rlaxlib.ucb_scores)(counts, means, bonus_scale=0.5**0.5)
    expected = 1 - np.exp(-np.log(counts.sum()) / counts[0])
    np.testing.assert_allclose(scores[:2], [expected, 1.0], 1e-12)
    assert np.all(scores <= np.asarray(hoeffding))
    assert np.all((scores >= means) & (scores <= 1))


def test_kl_ucb_bonus_is_accurate_where_it_is_small():
    # p log(p/q) + (1 - p) log((1 - p)/(1 - q)) cancels where q is near p.
    counts, means = np.array([1e6, 1e6]), np.array([0.5, 0.1])
    with x64(True):
        exact = np.asarray(kl_ucb_scores(counts, means)) - means
    counts, means = np.float32(counts), np.float32(means)
    found = np.asarray(kl_ucb_scores(counts, means))
    np.testing.assert_allclose(found - means, exact, 1e-4)


def test_kl_ucb_has_no_gradient():
    counts, means = np.float32([3, 4]), np.float32([0.5, 0.1])
    gradient = jax.jit(jax.grad(lambda *x: rlaxlib.kl_ucb_scores(*x).sum(), (0, 1)))
    for each in gradient(counts, means):
        np.testing.assert_array_equal(each, 0)


# --- Thompson sampling. ---


def test_thompson_beta_samples_have_the_moments_of_the_posterior():
    counts, means = np.float32([0, 10, 1e4]), np.float32([0, 0.8, 0.25])

    def sample(key, means):
        return rlaxlib.thompson_beta(key, counts, means, prior_alpha=2.0)

    @jax.jit
    def program(keys):
        samples = jax.vmap(lambda key: sample(key, means))(keys)
        return samples, jax.grad(lambda x: sample(keys[0], x).sum())(means)

    found = program(jax.random.split(jax.random.key(0), 5000))
    samples, gradient = map(np.asarray, found)
    np.testing.assert_array_equal(gradient, 0)
    a, b = 2 + counts * means, 1 + counts * (1 - means)
    mean, variance = a / (a + b), a * b / (a + b) ** 2 / (a + b + 1)
    np.testing.assert_allclose(samples.mean(axis=0), mean, 0.02)
    np.testing.assert_allclose(samples.var(axis=0), variance, 0.05)


def test_thompson_gaussian_samples_come_from_the_prior_before_the_first_pull():
    sample = functools.partial(
        rlaxlib.thompson_gaussian,
        counts=jnp.zeros(2),
        means=jnp.zeros(2),
        stddev=0.1,
        prior_mean=3.0,
        prior_stddev=0.5,
    )
    samples = many_samples(sample)
    np.testing.assert_allclose(samples.mean(axis=0), 3.0, 0.01)
    np.testing.assert_allclose(samples.std(axis=0), 0.5, 0.02)


# --- Randomised policies. ---


ARMS = 4


def hard_means(steps):
    """Return means so close that no policy can distinguish them much sooner."""
    return np.array([0.5 + np.sqrt(ARMS / steps)] + [0.5] * (ARMS - 1))


def exp3_regret(steps):
    rate = np.sqrt(ARMS * np.log(ARMS) / ((np.e - 1) * steps))

    def update(log_weights, arm, reward, p):
        return rlaxlib.exp3_update(log_weights, arm, reward, p, rate / ARMS)

    choose = sampled(lambda state, t: rlaxlib.exp3_probabilities(state, rate))
    means = hard_means(steps)
    return simulate(choose, update, jnp.zeros(ARMS), bernoulli, means, steps)


def tsallis_regret(means, steps):
    def update(losses, arm, reward, p):
        return rlaxlib.tsallis_inf_update(losses, arm, 1 - reward, p)

    choose = sampled(
        lambda state, t: rlaxlib.tsallis_inf_probabilities(
            state, 2 / jnp.sqrt(t.astype(float))
        )
    )
    initial = jnp.zeros(len(means))
    return simulate(choose, update, initial, bernoulli, means, steps)


def test_exp3_regret_is_within_the_bound_of_auer_and_grows_as_a_root():
    final = {steps: exp3_regret(steps)[:, -1] for steps in (250, 2000)}
    for steps, regret in final.items():
        assert upper(regret) < 2 * np.sqrt((np.e - 1) * steps * ARMS * np.log(ARMS))
    ratio = np.mean(final[2000]) / np.mean(final[250])
    assert 8**0.4 < ratio < 8**0.6


def test_tsallis_inf_regret_is_within_its_bound_and_grows_as_a_root():
    final = {n: tsallis_regret(hard_means(n), n)[:, -1] for n in (250, 2000)}
    for steps, regret in final.items():
        assert upper(regret) < 4 * np.sqrt(ARMS * steps) + 1
    ratio = np.mean(final[2000]) / np.mean(final[250])
    assert 8**0.4 < ratio < 8**0.6


def test_tsallis_inf_regret_is_logarithmic_for_independent_rewards():
    regret = tsallis_regret(MEANS, 2 * STEPS)
    assert growth(regret) < 0.4
    assert logarithmic_fit(regret)[1] > 0.98


def test_boltzmann_regret_is_linear_at_a_constant_temperature():
    def choose(key, state, t):
        p = rlaxlib.softmax(temperature=0.2).probs(state.means)
        return jax.random.categorical(key, jnp.log(p)), None

    def update(state, arm, reward, _):
        return rlaxlib.bandit_update(state, arm, reward)

    regret = simulate(choose, update, rlaxlib.bandit_init(3), bernoulli)
    p = np.exp(MEANS / 0.2) / np.exp(MEANS / 0.2).sum()
    late = (regret[:, -1] - regret[:, STEPS // 2]) / (STEPS / 2)
    assert lower(late) < p @ GAPS < upper(late)
    assert growth(regret) > 0.9


def test_estimates_are_unbiased_for_the_rewards_of_all_arms():
    rewards, p = np.array([0.3, 0.9, 0.1]), np.array([0.2, 0.7, 0.1])
    zeros, baseline = np.zeros(3, np.float32), np.float32([0.5, 0, 0.5])

    @jax.jit
    @jax.vmap
    def both(arm, reward, p):
        exp3 = rlaxlib.exp3_update(zeros, arm, reward, p, 1.0)
        tsallis = rlaxlib.tsallis_inf_update(zeros, arm, reward, p, baseline=baseline)
        return exp3, tsallis

    for estimates in both(np.arange(3), np.float32(rewards), np.float32(p)):
        np.testing.assert_allclose(p @ estimates, rewards, 1e-5)


tsallis_inf_probabilities = jax.jit(rlaxlib.tsallis_inf_probabilities)


@pytest.mark.parametrize(
    "losses",
    [
        np.zeros(1),
        np.array([0.0, 1e9]),
        np.array([7e5, 7e5 + 1, 7e5 + 2]),
        np.append(0.0, np.full(10**5, 50.0)),
        np.append(0.0, np.geomspace(1e-6, 1e9, 999)),
    ],
)
@pytest.mark.parametrize("learning_rate", [1e-3, 2.0])
def test_tsallis_inf_probabilities_minimise_its_objective(losses, learning_rate):
    with x64(True):
        p = np.asarray(tsallis_inf_probabilities(losses, learning_rate))
    np.testing.assert_allclose(p.sum(), 1, 1e-12)
    # The derivative of the objective is the same in all directions.
    derivative = losses - 2 / learning_rate / np.sqrt(p)
    scale = np.abs(losses).max() + 2 / learning_rate
    np.testing.assert_allclose(derivative, derivative[0], 0, 1e-9 * scale)


def test_expected_update_of_a_gradient_bandit_is_the_gradient_of_the_reward():
    means, preferences = np.float32(MEANS), np.float32([0.3, -0.2, 0.1])

    @jax.jit
    @jax.vmap
    def update(arm, reward):
        state = rlaxlib.GradientBanditState(preferences, 0.7, 5, 0.0)
        state = rlaxlib.gradient_bandit_update(state, arm, reward, 0.5)
        return state.preferences

    steps = np.asarray(update(np.arange(3), means)) - preferences
    p = np.exp(preferences) / np.sum(np.exp(preferences))
    expected, gradient = p @ steps, p * (means - p @ means)
    np.testing.assert_allclose(expected, 0.5 * gradient, 1e-4, 1e-7)


def test_first_reward_of_a_gradient_bandit_is_its_baseline():
    state = rlaxlib.gradient_bandit_init(3)
    state = jax.jit(rlaxlib.gradient_bandit_update)(state, 1, 5.0, 0.5)
    np.testing.assert_array_equal(state.preferences, 0)
    assert (state.baseline, state.num_pulls) == (5.0, 1)
    state = rlaxlib.gradient_bandit_update(state, 1, 6.0, 0.5)
    np.testing.assert_allclose(state.preferences, np.array([-1, 2, -1]) / 6, 1e-6)
    assert (state.baseline, state.num_pulls) == (5.5, 2)


def test_gradient_bandit_finds_the_best_arm():
    def choose(key, state, t):
        return jax.random.categorical(key, state.preferences), None

    def update(state, arm, reward, _):
        return rlaxlib.gradient_bandit_update(state, arm, reward, 0.2)

    initial = rlaxlib.gradient_bandit_init(3)
    regret = simulate(choose, update, initial, bernoulli)
    late = (regret[:, -1] - regret[:, STEPS // 2]) / (STEPS / 2)
    assert upper(late) < 0.05 * GAPS.mean()


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32])
def test_a_count_of_pulls_does_not_overflow(dtype):
    pulls = dtype(min(np.iinfo(dtype).max, 1000))
    state = rlaxlib.GradientBanditState(jnp.zeros(2), 0.0, jnp.asarray(pulls), 0.0)
    state = rlaxlib.gradient_bandit_update(state, 0, 1.0, 0.1)
    np.testing.assert_allclose(state.baseline, 1 / (int(pulls) + 1), rtol=1e-6)
    assert state.num_pulls >= pulls


def test_arms_without_pulls_add_nothing_to_the_gradient_by_the_bonus():
    counts, means = np.float32([0, 1, 3]), np.float32([0, 0.5, 0.25])

    def pulled(bonus_scale):
        return jnp.sum(rlaxlib.ucb_scores(counts, means, bonus_scale)[1:])

    expected = np.sqrt(np.log(4)) * (1 + 1 / np.sqrt(3))
    np.testing.assert_allclose(jax.grad(pulled)(1.0), expected, 1e-6)
