"""Test the bandit example: its problems, its policies, the theory and the output."""

import csv
import dataclasses

import bandits as example
import jax
import jax.numpy as jnp
import numpy as np
import pytest

SHORT = example.Config(runs=4, pulls=40, arms=3, gap=0.2, period=10, window=5)


# --- Problems and theory. ---


def test_arms_rotate_after_each_period():
    config = dataclasses.replace(SHORT, problem="switching")
    best = [
        int(jnp.argmax(example.situation(jax.random.key(0), step, config).means))
        for step in (1, 10, 11, 20, 21, 31)
    ]
    assert best == [0, 0, 1, 1, 2, 0]


def test_linear_rewards_are_bounded_projections_with_noise():
    config = dataclasses.replace(SHORT, problem="linear", arms=1000)
    situation = example.situation(jax.random.key(0), 1, config)
    norms = np.linalg.norm(situation.contexts, axis=1)
    assert 0.9 < norms.max() <= 1
    expected = situation.contexts.sum(axis=1) / np.sqrt(config.features)
    np.testing.assert_allclose(situation.means, expected, atol=1e-6)
    rewards = jax.vmap(example.sample_reward, (0, 0, None))(
        jax.random.split(jax.random.key(1), 1000), situation.means, config
    )
    assert np.std(rewards - situation.means) == pytest.approx(config.noise, rel=0.1)


def test_bernoulli_rewards_have_the_means_of_the_arms():
    np.testing.assert_allclose(example.arm_means(SHORT), [0.7, 0.5, 0.3], rtol=1e-6)
    keys = jax.random.split(jax.random.key(0), 4000)
    rewards = jax.vmap(example.sample_reward, (0, None, None))(keys, 0.7, SHORT)
    assert set(rewards.tolist()) == {0.0, 1.0}
    assert np.mean(rewards) == pytest.approx(0.7, abs=0.03)


def test_constant_of_lai_and_robbins_divides_gaps_by_divergences():
    means = np.array([0.25, 0.5, 0.75])
    # KL(1/4, 3/4) = ½ log 3; KL(1/2, 3/4) = ½ log (4/3).
    expected = 0.5 / (0.5 * np.log(3)) + 0.25 / (0.5 * np.log(4 / 3))
    assert example.lai_robbins(means) == pytest.approx(expected)
    rates = example.rates(np.array([100.0]), SHORT)
    assert [round(float(rate[0]), 1) for rate in rates.values()] == [
        round(example.lai_robbins(example.arm_means(SHORT)) * np.log(100), 1),
        round(4 * np.sqrt(300) + 1, 1),
        round(2.6 * np.sqrt(300 * np.log(3)), 1),
    ]


# --- Policies. ---


@pytest.mark.trust
@pytest.mark.parametrize(
    ("problem", "number"), [("bernoulli", 8), ("switching", 4), ("linear", 2)]
)
def test_policies_prefer_the_arm_with_the_higher_rewards(problem, number):
    """An arm pays 1 and the other 0, ten times each."""
    config = dataclasses.replace(SHORT, problem=problem, arms=2, features=2)
    situation = example.Situation(jnp.array(20), jnp.eye(2), jnp.zeros(2))
    policies = example.policies(config)
    assert len(policies) == number
    for name, (init, probabilities, update) in policies.items():
        state = init
        for step in range(20):
            arm, probability = step % 2, 0.5
            context = situation.contexts[arm]
            state = update(state, example.Pull(arm, context, float(arm), probability))
        chosen = probabilities(jax.random.key(0), state, situation)
        np.testing.assert_allclose(jnp.sum(chosen), 1, rtol=1e-5)
        assert chosen[1] > 0.5, name


@pytest.mark.parametrize("name", ["UCB1", "Exp3"])
def test_regret_is_the_sum_of_gaps(name):
    regrets = np.asarray(example.play(jax.random.key(0), name, SHORT))
    gaps = np.diff(regrets, prepend=0)
    distances = np.abs(gaps[:, None] - [0.0, 0.2, 0.4])
    np.testing.assert_allclose(distances.min(axis=1), 0, atol=1e-5)
    assert 0 < regrets[-1] < 0.4 * 40


# --- Reproducibility and output. ---


@pytest.mark.trust
def test_mean_regret_depends_on_the_seed_and_is_written(tmp_path):
    config = dataclasses.replace(SHORT, problem="linear", output=str(tmp_path))
    first, again, other = (
        example.train(dataclasses.replace(config, seed=seed)) for seed in (0, 0, 1)
    )
    assert first == again
    assert first != other
    example.main(config)
    with open(tmp_path / "curve.csv", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["curve", "pulls", "error", "regret"]
    assert [row[1] for row in rows if row[0] == "LinUCB"][-1] == "40"
    assert float(rows[-1][-1]) == pytest.approx(first["linear Thompson"][-1].regret)
    assert (tmp_path / "curve.svg").read_bytes().startswith(b"<?xml")


@pytest.mark.slow
def test_regret_agrees_with_the_theory():
    config = example.Config()
    regret = {name: curve[-1].regret for name, curve in example.train(config).items()}
    lower, tsallis, exp3 = example.rates(np.array(config.pulls), config).values()
    for name in ("KL-UCB", "Thompson"):
        assert 0.3 * lower < regret[name] < lower
        assert regret[name] < 0.5 * regret["UCB1"]
    assert regret["Tsallis-INF"] < 0.5 * tsallis
    assert regret["Exp3"] < exp3
    assert regret["Boltzmann"] == max(regret.values())


@pytest.mark.slow
def test_policies_that_forget_have_less_regret_when_arms_switch():
    config = example.Config(problem="switching")
    plain, *others = (curve[-1].regret for curve in example.train(config).values())
    assert max(others) < 0.7 * plain


@pytest.mark.slow
def test_regret_of_linear_bandits_is_below_the_bound():
    config = example.Config(problem="linear")
    (bound,) = example.rates(np.array(config.pulls), config).values()
    for curve in example.train(config).values():
        assert curve[-1].regret < 0.05 * bound
