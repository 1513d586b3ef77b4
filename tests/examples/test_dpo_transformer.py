"""Test the DPO example: pairs, loss and learning."""

import csv
import dataclasses
import functools

import dpo_transformer as example
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from common import sorting, transformer
from common.train_state import TrainState

# --- Helpers. ---

SHORT = example.Config(
    prompts=8,
    answers=2,
    train_steps=2,
    report_interval=1,
    batch_size=4,
    eval_prompts=4,
)
SMALL = functools.partial(transformer.Transformer, features=16, layers=1, heads=2)


@pytest.fixture
def _reward_of_length(monkeypatch):
    """Reward short answers, because a random policy does not sort."""

    def grade(tokens, solutions):
        return jnp.sum(tokens == 0, axis=1, dtype=jnp.float32)

    monkeypatch.setattr(sorting, "grade", grade)


@functools.cache
def make_policy(seed=0):
    model = SMALL(sorting.VOCABULARY, sorting.LENGTH)
    tokens = jnp.zeros((1, sorting.LENGTH), int)
    params = jax.jit(model.init)(jax.random.key(seed), tokens)["params"]
    return TrainState.create(model, params, optax.sgd(0.1))


def make_pairs():
    keys = jax.random.split(jax.random.key(1), 8)
    # A new function each time: the reward may differ.
    make = jax.jit(functools.partial(example.make_pairs, num_answers=4))
    return make(make_policy(), keys)


# --- Pairs, loss and learning. ---


@pytest.mark.trust
@pytest.mark.usefixtures("_reward_of_length")
def test_the_chosen_answer_has_the_higher_reward():
    pairs = make_pairs()
    chosen, rejected = (
        np.sum(np.asarray(each.tokens) == 0, axis=1)
        for each in (pairs.chosen, pairs.rejected)
    )
    assert pairs.is_pair.any()
    np.testing.assert_array_equal(pairs.is_pair, chosen > rejected)
    # Both answer the same prompt.
    for one, other in zip(pairs.chosen.tokens, pairs.rejected.tokens, strict=True):
        size = list(one).index(sorting.EQUALS) + 1
        np.testing.assert_array_equal(one[:size], other[:size])


def test_prompts_without_a_right_answer_make_no_pair():
    assert not make_pairs().is_pair.any()


@pytest.mark.trust
@pytest.mark.usefixtures("_reward_of_length")
def test_update_follows_the_gradient_of_dpo():
    pairs, policy = make_pairs(), make_policy(seed=1)

    @jax.jit
    def loss(params):
        log_probs = jnp.stack(
            [
                jnp.sum(
                    transformer.log_probs(policy, each.tokens, params)
                    * each.sample_mask,
                    axis=1,
                )
                - each.ref_log_prob
                for each in (pairs.chosen, pairs.rejected)
            ]
        )
        losses = jnp.log1p(jnp.exp(-0.5 * (log_probs[0] - log_probs[1])))
        return jnp.sum(losses * pairs.is_pair) / jnp.sum(pairs.is_pair)

    config = dataclasses.replace(SHORT, beta=0.5)
    new = jax.jit(functools.partial(example.update, config=config))(policy, pairs)
    gradient = jax.grad(loss)(policy.params)
    jax.tree.map(
        lambda x, y, g: np.testing.assert_allclose(x, y - 0.1 * g, atol=1e-5),
        new.params,
        policy.params,
        gradient,
    )
    assert loss(new.params) < loss(policy.params)


@pytest.mark.trust
def test_command_writes_its_curve(tmp_path, monkeypatch):
    monkeypatch.setattr(sorting, "imitate", lambda key, target: make_policy())
    example.main(dataclasses.replace(SHORT, output=str(tmp_path)))
    with open(tmp_path / "curve.csv", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["step", "preference", "accuracy"]
    assert [row[0] for row in rows] == ["0", "1", "2"]


@pytest.mark.slow
def test_final_accuracy_matches_the_docstring():
    curve = example.train(example.Config())
    assert curve[0].accuracy < 0.4
    assert curve[-1].accuracy > 0.5
    assert curve[-1].preference > 0.9
