"""Test the example of exploration bonuses: its bonuses, its update and its learning."""

import dataclasses
import functools

import deep_sea_bonuses as example
import jax
import jax.numpy as jnp
import numpy as np
import pytest

# --- Helpers. ---

SHORT = example.Config(
    size=4, train_episodes=6, eval_interval=4, batch_size=8, num_heads=3
)
CELLS = jnp.eye(16)


@functools.cache
def method(name):
    return example.methods(SHORT)[name]


def make_batch(heads):
    random = np.random.default_rng(0)
    return example.Transition(
        observation_tm1=CELLS[:8],
        a_tm1=random.integers(2, size=8),
        r_t=random.normal(size=8).astype(np.float32),
        discount_t=random.choice([0, 0.9], size=8).astype(np.float32),
        observation_t=CELLS[4:12],
        head_mask=random.random((8, heads)) < 0.5,
    )


# --- Bonuses. ---


@pytest.mark.parametrize("name", ["count", "RND", "NGU"])
def test_bonus_decreases_for_repeated_pairs_only(name):
    bonus = method(name).bonus
    judge, update = map(jax.jit, (bonus.rewards, bonus.update))
    state, here = bonus.init, jnp.stack([CELLS[3]] * 4)
    actions = jnp.array([0, 0, 0, 0])
    for _ in range(50):
        state = update(state, here, actions)
    pairs = CELLS[jnp.array([3, 3, 5])], jnp.array([0, 1, 0])
    rewards = judge(state, *pairs)
    assert rewards.shape == (3,)
    assert np.all(rewards >= 0)
    assert rewards[0] < 0.2 * np.min(rewards[1:])


@pytest.mark.parametrize("name", ["count", "RND", "NGU"])
def test_an_update_keeps_the_types_of_the_state(name):
    bonus = method(name).bonus
    before = jax.eval_shape(lambda: bonus.init)
    assert before == jax.eval_shape(bonus.update, before, CELLS[:4], jnp.arange(4) % 2)


def test_count_bonus_counts_pairs():
    bonus = method("count").bonus
    state = bonus.update(bonus.init, CELLS[jnp.array([2, 2, 7])], jnp.array([1, 1, 0]))
    rewards = bonus.rewards(state, CELLS[jnp.array([2, 7, 7])], jnp.array([1, 0, 1]))
    expected = SHORT.count_scale / np.sqrt(np.array([2, 1, 0]) + 0.01)
    np.testing.assert_allclose(rewards, expected, rtol=1e-5)


def test_no_bonus_is_0():
    bonus = method("ε-greedy").bonus
    assert not bonus.rewards(bonus.init, CELLS[:3], jnp.arange(3)).any()


# --- Updates and learning. ---


@pytest.mark.trust
def test_update_follows_the_masked_errors_of_each_head():
    bootstrapped = method("bootstrapped")
    agent = example.make_agent(jax.random.key(0), bootstrapped, SHORT)
    batch = make_batch(3)
    batch.head_mask[:, 1] = False
    agent = agent._replace(target_params=jax.tree.map(jnp.negative, agent.params))
    q_tm1, q_t = (
        example.action_values(agent, params, x, bootstrapped, SHORT)
        for params, x in (
            (agent.params, batch.observation_tm1),
            (agent.target_params, batch.observation_t),
        )
    )  # [K, B, A]
    targets = batch.r_t + batch.discount_t * q_t.max(axis=-1)
    errors = targets - q_tm1[:, np.arange(8), batch.a_tm1]
    ascent = (errors * batch.head_mask.T) @ np.eye(2)[batch.a_tm1]

    learned = example.learn(agent, batch, bootstrapped, SHORT)
    before, after = (x.params["params"]["layers_1"]["bias"] for x in (agent, learned))
    # The first step of Adam has the magnitude of the learning rate.
    np.testing.assert_allclose(after - before, 3e-3 * np.sign(ascent), rtol=1e-3)
    for old, new in zip(
        *map(jax.tree.leaves, (agent.params, learned.params)), strict=True
    ):
        np.testing.assert_array_equal(old[1], new[1])
    jax.tree.map(
        np.testing.assert_array_equal, agent.prior_params, learned.prior_params
    )


def test_values_include_the_prior_of_each_head():
    bootstrapped = method("bootstrapped")
    agent = example.make_agent(jax.random.key(0), bootstrapped, SHORT)
    priors = example.action_values(
        agent._replace(prior_params=agent.params),
        agent.prior_params,
        CELLS[0],
        bootstrapped._replace(prior_scale=0.0),
        SHORT,
    )
    without, scaled = (
        example.action_values(
            agent,
            agent.params,
            CELLS[0],
            bootstrapped._replace(prior_scale=scale),
            SHORT,
        )
        for scale in (0.0, 3.0)
    )
    assert priors.shape == (3, 2)
    assert np.all(priors != 0)
    np.testing.assert_allclose(scaled, without + 3 * priors, rtol=1e-4, atol=1e-6)


@pytest.mark.trust
def test_episode_is_stored_with_its_bonus():
    count = method("count")
    agent = example.make_agent(jax.random.key(0), count, SHORT)
    steps = SHORT.size * SHORT.train_episodes
    replay = example.Transition(
        observation_tm1=jnp.zeros((steps, 16)),
        a_tm1=jnp.zeros(steps, jnp.int32),
        r_t=jnp.zeros(steps),
        discount_t=jnp.zeros(steps),
        observation_t=jnp.zeros((steps, 16)),
        head_mask=jnp.zeros((steps, 1), bool),
    )
    agent, replay, episode_return = example.train_episode(
        agent, replay, jax.random.key(1), 2, count, SHORT
    )
    rows = jax.tree.map(lambda x: np.asarray(x[8:12]), replay)
    new = SHORT.count_scale / np.sqrt(0.01)  # All pairs of the episode are new.
    np.testing.assert_allclose(rows.r_t.sum() - 4 * new, episode_return, atol=1e-5)
    np.testing.assert_allclose(rows.discount_t, [0.99, 0.99, 0.99, 0])
    np.testing.assert_array_equal(rows.observation_tm1[1:], rows.observation_t[:-1])
    assert rows.observation_tm1[0, 0] == 1
    assert np.all(rows.head_mask)
    assert not replay.observation_tm1[12:].any()
    assert agent.bonus.sum() == 4
    assert agent.num_updates == 4


@pytest.mark.slow
def test_counts_solve_a_small_deep_sea():
    """One of 64 action sequences reaches the reward."""
    config = dataclasses.replace(
        SHORT, size=6, train_episodes=200, eval_interval=200, batch_size=32
    )
    curve = example.train_agent(example.methods(config)["count"], config)
    assert curve[-1].eval_return == pytest.approx(0.99)


# --- Reproducibility and output. ---


@pytest.mark.trust
def test_curves_are_written(tmp_path, monkeypatch):
    names = ["count", "bootstrapped"]
    methods = {name: method(name) for name in names}
    monkeypatch.setattr(example, "methods", lambda config: methods)
    example.main(dataclasses.replace(SHORT, output=str(tmp_path)))
    header, *rows = (tmp_path / "curve.csv").read_text().splitlines()
    assert header == "curve,episode,train_return,eval_return"
    assert [row.split(",")[:2] for row in rows] == [
        [name, episode] for name in names for episode in ("4", "6")
    ]
    assert (tmp_path / "curve.svg").stat().st_size > 0


@pytest.mark.slow
def test_curve_depends_on_the_seed():
    config = dataclasses.replace(SHORT, epsilon=1.0)
    first, again, other = (
        example.train_agent(method("ε-greedy"), dataclasses.replace(config, seed=seed))
        for seed in (0, 0, 1)
    )
    assert first == again
    assert first != other


@pytest.mark.slow
def test_final_returns_match_the_docstring():
    curves = example.train(example.Config())
    last = {name: curve[-1].eval_return for name, curve in curves.items()}
    assert last.pop("ε-greedy") < 0.1
    assert min(last.values()) >= 0.9
