"""Test the GRPO example: samples, losses, updates on several devices, learning."""

import csv
import dataclasses
import functools

import contract
import grpo_transformer as example
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from common import sorting, transformer
from common.train_state import TrainState
from common.transformer import END, PAD, Transformer

# --- Helpers. ---

# A target of 0 leaves the policy random.
SHORT = example.Config(
    imitation=0.0,
    prompts=8,
    group_size=4,
    minibatches=2,
    train_updates=2,
    report_interval=1,
    eval_prompts=4,
)
KEYS = jax.random.split(jax.random.key(1), SHORT.prompts)
ALGORITHMS = [*example.ALGORITHMS]


SMALL = functools.partial(Transformer, features=16, layers=1, heads=2)


@functools.cache
def make_policy():
    """Return a small policy, with an optimizer that does not amplify rounding."""
    model = SMALL(sorting.VOCABULARY, sorting.LENGTH)
    params = jax.jit(model.init)(KEYS[0], jnp.zeros((1, sorting.LENGTH), int))["params"]
    return TrainState.create(model, params, optax.sgd(0.1))


@functools.cache
def problems():
    return jax.tree.map(np.asarray, jax.jit(sorting.make_problems)(KEYS))


sample = jax.jit(transformer.sample)


@functools.cache
def answers():
    """Return answers of the random policy, to 8 prompts."""
    return sample(make_policy(), problems().prompts, KEYS)


# --- The task. ---


def test_solutions_are_sorted_lists():
    sizes = set()
    for prompt, solution in zip(*problems(), strict=True):
        size = list(prompt).index(sorting.EQUALS)
        sizes.add(size)
        assert not prompt[size + 1 :].any()
        expected = [*prompt[: size + 1], *sorted(prompt[:size]), END]
        assert list(solution) == expected + [PAD] * (sorting.LENGTH - len(expected))
    assert len(sizes) > 1
    assert sizes <= {3, 4, 5, 6}


def test_only_the_solution_is_right():
    solutions = problems().solutions
    wrong = solutions.copy()
    wrong[:4, 8] += 1
    np.testing.assert_array_equal(sorting.grade(wrong, solutions), np.arange(8) > 3)


def test_samples_keep_the_prompt_and_end_once():
    tokens, _, mask = map(np.asarray, answers())
    for answer, prompt, is_sampled in zip(
        tokens, problems().prompts, mask, strict=True
    ):
        size = np.sum(prompt != PAD)
        np.testing.assert_array_equal(answer[:size], prompt[:size])
        length = is_sampled.sum()
        expected = (np.arange(1, sorting.LENGTH) >= size) & (
            np.arange(1, sorting.LENGTH) < size + length
        )
        np.testing.assert_array_equal(is_sampled, expected)
        chosen = answer[size : size + length]
        stops = np.isin(chosen, (END, PAD))
        assert not stops[:-1].any()
        assert stops[-1] or size + length == sorting.LENGTH
        assert not answer[size + length :].any()


def test_log_probabilities_of_sampler_and_learner_agree():
    tokens, log_prob, mask = answers()
    found = jax.jit(transformer.log_probs)(make_policy(), tokens)
    np.testing.assert_allclose(found[mask], log_prob[mask], rtol=1e-4, atol=1e-5)


def test_samples_follow_the_policy():
    prompts = np.tile(problems().prompts[:1], (2000, 1))
    keys = jax.random.split(jax.random.key(2), 2000)
    tokens, log_prob, mask = map(np.asarray, sample(make_policy(), prompts, keys))
    first = np.argmax(mask[0])
    chosen = tokens[:, first + 1]
    for token in np.unique(chosen):
        expected = np.exp(log_prob[np.argmax(chosen == token), first])
        assert np.mean(chosen == token) == pytest.approx(expected, abs=0.04)


# --- Updates and learning. ---


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_first_gradient_is_the_policy_gradient(algorithm):
    config = dataclasses.replace(SHORT, algorithm=algorithm, kl=0.5)
    log_prob = jnp.array([-1.0, -2.0, -3.0, 0.0])
    mask = jnp.array([True, True, True, False])

    def loss(log_prob):
        losses = example.token_losses(
            log_prob,
            jnp.array([-1.0, -2.0, -3.0, -9.0]),
            log_prob - 2,
            jnp.full(4, 3.0),
            mask,
            None,
            config,
        )
        return jnp.sum(losses)

    # Of the KL loss: the weight times the log-ratio.
    np.testing.assert_allclose(
        jax.jit(jax.grad(loss))(log_prob), mask * (0.5 * 2 - 3.0), atol=1e-4
    )


@pytest.mark.parametrize("algorithm", contract.share(ALGORITHMS, "packed"))
def test_gradient_step_on_packed_rows_equals_that_on_padded_ones(algorithm):
    config = dataclasses.replace(SHORT, algorithm=algorithm, kl=0.1)
    samples, adv = answers(), jnp.linspace(-1.0, 1.0, 8)
    batch = example.Batch(samples, samples.log_prob - 0.1, adv)
    one, packed = (
        jax.jit(functools.partial(example.learn, config=each))(make_policy(), batch)
        for each in (config, dataclasses.replace(config, packed=4))
    )
    change = jax.tree.map(lambda x, y: x - y, one.params, make_policy().params)
    assert max(float(jnp.max(jnp.abs(x))) for x in jax.tree.leaves(change)) > 1e-3
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6),
        one.params,
        packed.params,
    )


@pytest.mark.trust
def test_update_on_several_devices_equals_that_on_one(monkeypatch):
    def grade(tokens, solutions):  # No group of a random policy has a right answer.
        return jnp.mean(tokens == solutions, axis=1)

    monkeypatch.setattr(sorting, "grade", grade)
    policy, new = make_policy(), []
    for devices in (1, 4):
        config = dataclasses.replace(SHORT, devices=devices, kl=0.1)
        new.append(example.compile_for(config)(policy, policy, KEYS))
    one, many = (jax.tree.map(np.asarray, each.params) for each in new)
    assert new[0].step == SHORT.minibatches
    assert len(jax.tree.leaves(new[1])[0].sharding.device_set) == 4
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5), one, many)
    change = jax.tree.map(lambda x, y: np.max(np.abs(x - y)), one, policy.params)
    assert max(jax.tree.leaves(change)) > 1e-3


def test_groups_without_a_right_answer_have_no_advantage():
    batch, rewards = jax.jit(functools.partial(example.collect, config=SHORT))(
        make_policy(), make_policy(), KEYS
    )
    assert rewards.shape == (8, 4)
    assert not rewards.any()  # A random policy does not sort.
    assert not batch.advantages.any()


@pytest.mark.trust
def test_command_writes_its_curve(tmp_path, monkeypatch):
    monkeypatch.setattr(sorting, "Transformer", SMALL)
    config = dataclasses.replace(SHORT, devices=jax.device_count())
    example.main(dataclasses.replace(config, output=str(tmp_path)))
    with open(tmp_path / "curve.csv", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["update", "pass_at_8", "accuracy"]
    assert [row[0] for row in rows] == ["0", "1", "2"]


@pytest.mark.slow
def test_final_accuracy_matches_the_docstring():
    curve = example.train(example.Config())
    assert curve[0].accuracy < 0.4
    assert curve[-1].accuracy > 0.9
