"""Test the PPO example: rollouts, losses, updates, evaluation and resumption."""

import csv
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import ppo_pure_jax as example
import pytest

# --- Helpers. ---

PPO = example.make(
    "CartPole-v1",
    num_envs=8,
    num_steps=24,
    num_epochs=2,
    num_minibatches=4,
    value_epsilon=0.2,
    num_evaluations=1,
    iterations=2,
    eval_episodes=16,
)
TIMED = PPO.replace(env_params=PPO.env_params.replace(max_steps_in_episode=15))
init, apply = jax.jit(PPO.init), jax.jit(PPO.network.apply)


@functools.cache
def begin(seed=0):
    """Return an initial state."""
    return init(*jax.random.split(jax.random.key(seed)))


def resume(state, iterations, learning_rate=3e-4):
    """Return the state after some iterations, and the metrics."""
    ppo = PPO.set(iterations=iterations, learning_rate=learning_rate)
    return ppo.train(state=state, skip_initial_evaluation=True)


@functools.cache
def collect():
    """Return rollouts with episodes that terminate, or are truncated after 15 steps."""
    state = begin()
    return jax.jit(TIMED.collect)(state.collection, state.algorithm.params)


def predict(params, observation):
    """Return the log-probabilities and the values of the network, in NumPy."""
    logits, value = map(np.float64, apply(params, observation.reshape(-1, 4)))
    logits -= logits.max(axis=-1, keepdims=True)
    log_probs = logits - np.log(np.sum(np.exp(logits), axis=-1, keepdims=True))
    batch = observation.shape[:-1]
    return log_probs.reshape(*batch, 2), value.reshape(batch)


def is_same(one, other):
    one, other = (jax.tree.leaves(jax.tree.map(plain, each)) for each in (one, other))
    return all(map(np.array_equal, one, other))


def plain(x):
    is_key = jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(x) if is_key else x)


# --- Updates and learning. ---


@pytest.mark.trust
def test_rollouts_distinguish_termination_and_truncation():
    _, data = collect()
    assert data.observation.shape == (24, 8, 4)
    x, _, angle, _ = np.moveaxis(np.asarray(data.next_observation), -1, 0)
    # The position advances by the velocity, before a reset.
    moved = data.observation[..., 0] + 0.02 * data.observation[..., 1]
    np.testing.assert_allclose(x, moved, atol=1e-6)
    terminated = (np.abs(x) > 2.4) | (np.abs(angle) > np.deg2rad(12))
    assert np.array_equal(data.terminated, terminated)
    ends = np.asarray(data.terminated | data.truncated)
    for env in range(8):
        length = 0
        for t in range(24):
            length += 1
            assert data.truncated[t, env] == (length == 15)
            length *= not ends[t, env]
    assert np.any(data.terminated)
    assert np.any(data.truncated & ~data.terminated)
    follows = np.all(data.observation[1:] == data.next_observation[:-1], axis=-1)
    assert np.array_equal(follows, ~ends[:-1])


def test_actions_are_sampled_from_the_policy_with_their_log_probabilities():
    _, data = collect()
    log_probs, _ = predict(begin().algorithm.params, data.observation)
    chosen = np.take_along_axis(log_probs, np.asarray(data.action)[..., None], -1)
    np.testing.assert_allclose(data.log_prob, chosen[..., 0], rtol=1e-4, atol=1e-6)
    expected = np.exp(log_probs[..., 1]).mean()
    assert np.mean(data.action) == pytest.approx(expected, abs=4 * 0.5 / np.sqrt(192))


def test_advantages_bootstrap_at_truncation_and_not_at_termination():
    random = np.random.default_rng(0)
    observation, next_observation = random.normal(size=(2, 5, 1, 4)).astype("f4")
    next_observation[[0, 2]] = observation[[1, 3]]
    column = np.array([False, True, False, False, False])[:, None]
    data = example.Trajectory(
        observation=observation,
        action=np.zeros((5, 1), int),
        log_prob=np.zeros((5, 1), "f4"),
        reward=random.normal(size=(5, 1)).astype("f4"),
        terminated=column,
        truncated=np.roll(column, 2),
        next_observation=next_observation,
    )
    params = begin().algorithm.params
    (_, value), (_, next_value) = (
        predict(params, each) for each in (observation, next_observation)
    )
    error = data.reward + 0.99 * next_value * ~column - value
    assert np.all(np.abs(next_value[[1, 3]]) > 0.02)
    decay = 0.99 * 0.95
    advantage = np.zeros((5, 1))
    advantage[4] = error[4]
    advantage[3] = error[3]  # Truncated.
    advantage[2] = error[2] + decay * advantage[3]
    advantage[1] = error[1]  # Terminated.
    advantage[0] = error[0] + decay * advantage[1]
    steps = jax.jit(PPO.estimate)(params, data)
    np.testing.assert_allclose(steps.advantage, advantage, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(steps.value, value, rtol=1e-4, atol=1e-6)


def make_minibatch(params):
    """Return a batch in which some ratios are clipped."""
    random = np.random.default_rng(1)
    observation = random.normal(size=(64, 4)).astype("f4")
    action = random.integers(2, size=64)
    log_probs, value = predict(params, observation)
    log_prob = log_probs[np.arange(64), action] + 0.3 * random.normal(size=64)
    value = value + 0.3 * random.normal(size=64)
    advantage = random.normal(size=64)
    return example.Minibatch(
        observation=observation,
        action=action,
        log_prob=log_prob.astype("f4"),
        value=value.astype("f4"),
        advantage=advantage.astype("f4"),
    )


def test_loss_matches_the_definition_of_ppo():
    params = begin().algorithm.params
    batch = jax.tree.map(np.asarray, make_minibatch(params))
    log_probs, value = predict(params, batch.observation)
    ratio = np.exp(log_probs[np.arange(64), batch.action] - batch.log_prob)
    adv = (batch.advantage - batch.advantage.mean()) / batch.advantage.std()
    policy_loss = -np.minimum(ratio * adv, np.clip(ratio, 0.8, 1.2) * adv)
    target = batch.value + batch.advantage
    clipped = batch.value + np.clip(value - batch.value, -0.2, 0.2)
    value_loss = 0.5 * np.maximum((value - target) ** 2, (clipped - target) ** 2)
    entropy = -np.sum(np.exp(log_probs) * log_probs, axis=1)
    expected = np.mean(policy_loss + 0.5 * value_loss - 0.01 * entropy)
    assert jax.jit(PPO.loss)(params, batch) == pytest.approx(expected, rel=1e-4)
    assert 0 < np.mean(ratio != np.clip(ratio, 0.8, 1.2)) < 1
    assert 0 < np.mean(value_loss > 0.5 * (value - target) ** 2) < 1


def test_update_follows_the_gradient_of_the_loss():
    """One epoch with one minibatch of all steps."""
    state, (_, data) = begin().algorithm, collect()
    ppo = PPO.set(num_epochs=1, num_minibatches=1)

    @jax.jit
    def update():
        steps = ppo.estimate(state.params, data)
        batch = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), steps)
        gradient = jax.grad(ppo.loss)(state.params, batch)
        adam = optax.adam(3e-4)
        updates, _ = adam.update(gradient, adam.init(state.params))
        return optax.apply_updates(state.params, updates)

    new = jax.jit(ppo.learn)(state, data)
    assert not is_same(new.params, state.params)
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, atol=3e-6), new.params, update()
    )
    assert not is_same(new.key, state.key)


def test_policy_and_value_have_separate_networks():
    params = begin().algorithm.params
    random = np.random.default_rng(0)
    layers = [
        {name: random.normal(size=x.shape) for name, x in layer.items()}
        for layer in params["params"].values()
    ]
    params = {"params": dict(zip(params["params"], layers, strict=True))}
    observation = random.normal(size=(5, 4))
    towers = layers[:3], layers[3:]
    for tower, output in zip(towers, apply(params, observation), strict=True):
        x = observation.T
        for number, layer in enumerate(tower):
            x = layer["kernel"] @ x + layer["bias"]
            x = x / (1 + np.exp(-x)) if number < 2 else x
        expected = x.T.reshape(output.shape)
        np.testing.assert_allclose(output, expected, rtol=1e-3, atol=1e-3)


def test_each_epoch_is_a_random_permutation_of_all_steps():
    for number in (96, 4096):
        order = np.asarray(example.shuffle(jax.random.key(0), number, 3))
        assert np.array_equal(np.sort(order), np.tile(np.arange(number), (3, 1)))
    assert np.mean(order[0] == order[1]) < 0.01
    assert np.mean(order[0] == np.arange(4096)) < 0.01
    assert abs(np.corrcoef(order[0], np.arange(4096))[0, 1]) < 4 / np.sqrt(4096)


def test_evaluation_plays_each_episode_to_its_end():
    evaluate, state = jax.jit(TIMED.evaluate), begin()
    metrics = evaluate(state)
    length = np.asarray(metrics.episode_length)
    assert length.shape == (16,)
    assert length.min() >= 8  # The pole takes at least 8 steps to fall.
    assert 8 < np.sum(length == 15) + np.sum(length < 15) == 16
    assert np.array_equal(metrics.episode_return, length)
    assert metrics.step == 0
    later = evaluate(state.replace(iteration=jnp.int32(3)))
    assert later.step == 3 * 24 * 8
    assert not np.array_equal(later.episode_length, length)


# --- Training runs. ---


def test_the_network_and_the_environments_have_separate_seeds():
    one, two = (jax.random.key(seed) for seed in (1, 2))
    state, network, environments = init(one, one), init(two, one), init(one, two)
    assert is_same(network.collection, state.collection)
    assert is_same(network.evaluation_key, state.evaluation_key)
    assert not is_same(network.algorithm.params, state.algorithm.params)
    assert not is_same(network.algorithm.key, state.algorithm.key)
    assert is_same(environments.algorithm, state.algorithm)
    assert not is_same(environments.evaluation_key, state.evaluation_key)
    for name in ("key", "observation"):
        other, same = (getattr(x.collection, name) for x in (environments, state))
        assert not is_same(other, same)


@pytest.mark.trust
def test_resumed_run_equals_an_uninterrupted_run():
    state, metrics = resume(begin(), 2)
    assert metrics.step.tolist() == [2 * 24 * 8]
    half, _ = resume(begin(), 1)
    assert not is_same(half.algorithm.params, state.algorithm.params)
    resumed, again = resume(half, 1)
    assert is_same(resumed, state)
    assert is_same(again, metrics)


def test_the_initial_evaluation_can_be_skipped():
    for skip, rows in ((False, 3), (True, 2)):
        ppo = PPO.set(num_evaluations=2)
        train = functools.partial(ppo.train, skip_initial_evaluation=skip)
        _, metrics = jax.eval_shape(train, jax.random.key(0))
        assert metrics.step.shape == (rows,)
        assert metrics.episode_return.shape == (rows, 16)


@pytest.mark.trust
def test_vmap_over_seeds_and_learning_rates_equals_separate_runs():
    seeds, rates = (0, 1), (3e-4, 1e-3)

    @jax.jit
    @jax.vmap
    def train(key, learning_rate):
        ppo = PPO.set(learning_rate=learning_rate)
        return ppo.train(key, skip_initial_evaluation=True)

    keys = jnp.stack([jax.random.key(seed) for seed in seeds])
    states, metrics = train(keys, jnp.array(rates))
    assert metrics.step.tolist() == [[2 * 24 * 8]] * 2
    for number, (seed, rate) in enumerate(zip(seeds, rates, strict=True)):
        alone, _ = resume(begin(seed), 2, rate)
        jax.tree.map(
            lambda x, y, i=number: np.testing.assert_allclose(x, y[i], atol=1e-5),
            alone.algorithm.params,
            states.algorithm.params,
        )


@pytest.mark.parametrize("name", ["Catch-bsuite", "Acrobot-v1"])
def test_other_environments_have_the_same_metrics(name):
    ppo = example.make(name)
    _, metrics = jax.eval_shape(ppo.train, jax.random.key(0))
    assert metrics.episode_return.shape == (5, 128)


@pytest.mark.trust
def test_command_writes_its_curve(tmp_path):
    """A random agent averages about 20 steps."""
    example.main(example.Config(output=str(tmp_path), evaluations=1, iterations=1))
    with open(tmp_path / "curve.csv", newline="") as file:
        header, *points = csv.reader(file)
    assert header == ["step", "eval_return"]
    assert [point[0] for point in points] == ["0", "4096"]
    assert all(8 <= float(point[1]) < 50 for point in points)
    assert (tmp_path / "curve.svg").read_bytes().startswith(b"<?xml")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "least"),
    [("CartPole-v1", 450), ("Catch-bsuite", 0.9), ("Acrobot-v1", -120)],
)
def test_final_return_matches_the_docstring(environment, least):
    config = example.Config(environment=environment)
    assert example.train(config)[-1].eval_return > least
