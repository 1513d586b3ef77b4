"""Sorting, a task for language models with answers that a program can check.

A prompt is a list of 3 to 6 numbers from 0 to 9, and `=`. The right answer is the
sorted list and END:

    3 1 2 1 =   ->   1 1 2 3 END
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

import rlaxlib
from common import transformer
from common.train_state import TrainState
from common.transformer import END, PAD, Samples, Transformer

EQUALS, ZERO = 2, 3
VOCABULARY = ZERO + 10
SHORTEST, LONGEST = 3, 6
LENGTH = 2 * LONGEST + 2


class Problems(NamedTuple):
    """Lists to sort, padded at the end."""

    prompts: jax.Array  # [B, T]
    solutions: jax.Array  # [B, T], prompts with answers.


def make_problems(keys: jax.Array) -> Problems:
    """Return a random problem for each key."""

    def one(key):
        size_key, number_key = jax.random.split(key)
        size = jax.random.randint(size_key, (), SHORTEST, LONGEST + 1)
        numbers = jax.random.randint(number_key, (LONGEST,), 0, 10)
        numbers = jnp.where(jnp.arange(LONGEST) < size, numbers, 10)  # 10 sorts last.
        places, padding = jnp.arange(LENGTH), jnp.full(LENGTH - LONGEST, 10)
        listed = jnp.concatenate([numbers, padding]) + ZERO
        ordered = jnp.concatenate([jnp.sort(numbers), padding]) + ZERO
        prompt = jnp.where(places < size, listed, PAD)
        prompt = prompt.at[size].set(EQUALS)
        answer = jnp.where(places < size, ordered, PAD).at[size].set(END)
        return Problems(prompt, prompt + jnp.roll(answer, size + 1))

    return jax.vmap(one)(keys)


def grade(tokens: jax.Array, solutions: jax.Array) -> jax.Array:
    """Return 1 for each right answer, 0 for each wrong one, `[B]`."""
    return jnp.all(tokens == solutions, axis=1).astype(jnp.float32)


def answer(
    policy: TrainState, keys: jax.Array, number: int
) -> tuple[Samples, jax.Array]:
    """Sample answers to a random problem for each key, and grade them.

    Returns:
        `keys * number` samples, those of a problem next to each other, and their
        rewards, `[keys, number]`.
    """
    prompts, solutions = (jnp.repeat(x, number, axis=0) for x in make_problems(keys))
    answer_keys = jax.vmap(lambda key: jax.random.split(key, number))(keys)
    samples = transformer.sample(policy, prompts, answer_keys.reshape(-1))
    return samples, grade(samples.tokens, solutions).reshape(-1, number)


def imitate(
    key: jax.Array, target: float, batch_size: int = 128, interval: int = 5
) -> TrainState:
    """Imitate solutions until a fraction of sampled answers is right.

    Args:
        key: Key of the parameters and the problems.
        target: Fraction of right answers, in [0, 1).
        batch_size: Solutions in a batch.
        interval: Gradient steps between evaluations.

    Returns:
        The policy.
    """
    model = Transformer(VOCABULARY, LENGTH)
    init_key, key = jax.random.split(key)
    params = model.init(init_key, jnp.zeros((1, LENGTH), int))["params"]
    policy = TrainState.create(model, params, optax.adam(1e-3))

    def step(policy, key):
        problems = make_problems(jax.random.split(key, batch_size))
        mask = (problems.prompts == PAD) & (problems.solutions != PAD)

        def loss(params):
            log_prob = transformer.log_probs(policy, problems.solutions, params)
            return rlaxlib.aggregate_losses(-log_prob, sample_mask=mask[:, 1:])

        return policy.apply_loss_fn(loss_fn=loss), None

    def score(policy, key):
        _, rewards = answer(policy, jax.random.split(key, 256), 1)
        return jnp.mean(rewards)

    def improve(carry):
        policy, key, _ = carry
        step_key, test_key, key = jax.random.split(key, 3)
        policy, _ = jax.lax.scan(step, policy, jax.random.split(step_key, interval))
        return policy, key, score(policy, test_key)

    @jax.jit
    def run(policy, key):
        start = (policy, key, jnp.zeros(()))
        return jax.lax.while_loop(lambda carry: carry[2] < target, improve, start)[0]

    return run(policy, key)
