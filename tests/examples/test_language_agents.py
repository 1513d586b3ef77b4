"""Test the transformers that sort: task, samples, losses."""

import functools

import dpo_transformer
import grpo_transformer
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dpo_transformer import END, EQUALS, LENGTH, PAD, ZERO

KEYS = jax.random.split(jax.random.key(0), 6)
CONFIG = dpo_transformer.Config(layers=2)


@functools.cache
def make_params():
    inputs = jnp.zeros((1, LENGTH), int), jnp.arange(LENGTH)
    init = jax.jit(dpo_transformer.Transformer(CONFIG.layers).init)
    return init(jax.random.key(0), *inputs)["params"]


log_probs = jax.jit(functools.partial(dpo_transformer.log_probs, config=CONFIG))


@functools.cache
def make_samples():
    prompts, _ = jax.vmap(dpo_transformer.make_problem)(KEYS)
    sample = jax.jit(functools.partial(dpo_transformer.sample, config=CONFIG))
    return prompts, sample(make_params(), prompts, KEYS)


# --- Task and samples. ---


def test_answer_is_the_sorted_list():
    problems = jax.vmap(dpo_transformer.make_problem)(KEYS)
    for prompt, solution in zip(*(x.tolist() for x in problems), strict=True):
        size = prompt.index(EQUALS)
        assert 3 <= size <= 6
        assert all(ZERO <= token < ZERO + 10 for token in prompt[:size])
        assert prompt[size + 1 :] == [PAD] * (LENGTH - size - 1)
        answer = [*sorted(prompt[:size]), END]
        assert solution == prompt[: size + 1] + answer + [PAD] * (LENGTH - 2 * size - 2)


def test_sampled_log_probs_are_those_of_the_whole_sequence():
    prompts, samples = make_samples()
    all_tokens, log_prob, mask = map(np.array, samples)
    found = log_probs(make_params(), all_tokens)
    np.testing.assert_allclose(found[mask], log_prob[mask], rtol=1e-4, atol=1e-4)
    for prompt, tokens, chosen in zip(prompts, all_tokens, mask, strict=True):
        size = prompt.tolist().index(EQUALS)
        np.testing.assert_array_equal(tokens[: size + 1], prompt[: size + 1])
        assert not chosen[
            :size
        ].any()  # `chosen` belongs to the tokens from the second.
        assert chosen[size]
        ends = np.flatnonzero((tokens[size + 1 :] == END) | (tokens[size + 1 :] == PAD))
        length = ends[0] + 1 if len(ends) else LENGTH - size - 1
        assert chosen.sum() == length


def test_both_files_have_the_same_task_and_network():
    for name in ("make_problem", "log_probs"):
        code = (getattr(x, name).__code__ for x in (dpo_transformer, grpo_transformer))
        assert len({each.co_code for each in code}) == 1


# --- Losses. ---


def test_dpo_loss_is_its_equation_and_ignores_prompts_without_a_pair():
    _, (tokens, _, mask) = make_samples()
    log_prob = log_probs(make_params(), tokens)
    whole = np.sum(np.where(mask, np.float64(log_prob), 0), axis=1)
    rng = np.random.default_rng(0)
    ref = jnp.float32(whole + rng.normal(size=6))
    answers = dpo_transformer.Answers(tokens, mask, ref)
    chosen = jax.tree.map(lambda x: x[:3], answers)
    rejected = jax.tree.map(lambda x: x[3:], answers)
    is_pair = jnp.array([True, False, True])
    pairs = dpo_transformer.Pairs(chosen, rejected, is_pair)
    reward = 0.1 * (whole - np.float64(ref))
    losses = np.log1p(np.exp(-(reward[:3] - reward[3:])))
    loss = jax.jit(dpo_transformer.loss, static_argnums=2)(make_params(), pairs, CONFIG)
    np.testing.assert_allclose(loss, (losses[0] + losses[2]) / 2, rtol=1e-4)


@pytest.mark.parametrize(
    "algorithm", ["grpo", "rloo", pytest.param("dr_grpo", marks=pytest.mark.trust)]
)
def test_gradient_of_fresh_answers_is_that_of_reinforce(algorithm):
    _, (tokens, _, mask) = make_samples()
    adv = jnp.float32([1.0, -0.5, 0.0, 2.0, -1.0, 0.3])
    old = log_probs(make_params(), tokens)
    batch = grpo_transformer.Batch(tokens, old, mask, adv)
    config = grpo_transformer.Config(algorithm=algorithm, layers=CONFIG.layers)
    mask = np.float32(mask)
    count = mask.sum(axis=1, keepdims=True)
    share = {
        "sequence_mean_token_mean": mask / count / 6,
        "sequence_mean_token_sum": mask / 6,
        "constant": mask / mask.size,
    }[grpo_transformer.ALGORITHMS[algorithm][-1]]

    def reinforce(params):
        log_prob = grpo_transformer.log_probs(params, tokens, config)
        return -jnp.sum(share * adv[:, None] * log_prob)

    loss = functools.partial(grpo_transformer.loss, batch=batch, config=config)
    gradients = jax.jit(lambda params: [jax.grad(f)(params) for f in (loss, reinforce)])
    found, expected = gradients(make_params())
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4)


def test_pairs_have_a_right_and_a_wrong_answer(monkeypatch):
    rewards = jnp.float32([[0, 1, 0], [0, 0, 0], [1, 1, 0]])
    _, samples = make_samples()
    nine = jax.tree.map(lambda x: jnp.tile(x, (2, 1))[:9], samples)
    monkeypatch.setattr(dpo_transformer, "answer", lambda *_: (nine, rewards))
    make_pairs = dpo_transformer.make_pairs.__wrapped__
    pairs = make_pairs(make_params(), KEYS[:3], dpo_transformer.Config(answers=3))
    np.testing.assert_array_equal(pairs.is_pair, [True, False, True])
    np.testing.assert_array_equal(pairs.chosen.tokens[0], nine[0][1])
    np.testing.assert_array_equal(pairs.rejected.tokens[2], nine[0][8])
