"""A token task of the zoo: prompts, short answers, a table as the model, and its loop.

An answer has up to 4 of 6 tokens, and ends with token 0. Its reward is the fraction of
the tokens of the prompt's target that it has in their places. All answers are few
enough to list, so that measures and optima are exact.
"""

from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from recipes.language import log_probs

from zoo.training import Entry, Run, begin, descend

P, T, V = 3, 4, 6  # Prompts, tokens of an answer, and tokens in all.
TARGETS = jnp.array([[3, 0, -1, -1], [1, 4, 0, -1], [5, 2, 2, 0]])
ABOUT = "Tokens: 3 prompts with answers of 2 to 4 tokens"
RANDOM, TUNED = 0.14, 0.43  # Rewards of `first` and `tuned` with logits without noise.
UPDATES = 1200
OPTIMIZER = optax.adam(optax.linear_schedule(0.05, 0.0, UPDATES))
NEVER = UPDATES + 1  # Updates after which the reference becomes the policy.


class Answers(NamedTuple):
    """Answers, as the recipes have them; further fields are those of some recipes."""

    inputs: Any
    tokens: Any
    sample_mask: Any
    old_log_prob: Any = None
    ref_log_prob: Any = None
    rewards: Any = None
    greedy_rewards: Any = None
    values: Any = None
    desirable: Any = None
    mismatched: Any = None
    teacher_logits: Any = None
    all_rewards: Any = None
    sampler_log_prob: Any = None
    teacher_log_prob: Any = None
    key: Any = None


class Pairs(NamedTuple):
    """Pairs of answers to the same prompts."""

    chosen: Answers
    rejected: Answers


# --- The model: a table of prompt, position and last token. ---


def first(key):
    """Return a table of logits, [P, T, V, V], and of a value beside them."""
    return 0.5 * jax.random.normal(key, (P, T, V, V + 1))


def tuned(key):
    """Return a table whose right tokens have probabilities of about a half."""
    right = jax.nn.one_hot(TARGETS, V + 1)  # Zeros after the end.
    return first(key) + 1.5 * right[:, :, None]


def both(table, inputs):
    """Return logits and values at the inputs, which begin with the prompt."""
    time = jnp.arange(inputs.shape[-1])
    last = jnp.where(time > 0, inputs, 0)
    x = table[inputs[..., :1] - V, time, last]
    return x[..., :V], x[..., V]


def logits(table, inputs):
    """Return the logits at the inputs."""
    return both(table, inputs)[0]


def sample(key, table, num):
    """Return `num` answers to each prompt, [P num, T], in one scan over the tokens.

    Sampling goes on after the end of an answer, where `sample_mask` is False.
    """
    prompt = jnp.repeat(jnp.arange(P), num)

    def one(carry, inputs):
        last, going = carry
        t, key = inputs
        token = jax.random.categorical(key, table[prompt, t, last, :V])
        return (token, going & (token > 0)), (token, going)

    start = jnp.zeros_like(prompt), jnp.ones_like(prompt, bool)
    inputs = jnp.arange(T), jax.random.split(key, T)
    tokens, mask = (x.T for x in jax.lax.scan(one, start, inputs)[1])
    inputs = jnp.concatenate([prompt[:, None] + V, tokens[:, :-1]], axis=1)
    return Answers(inputs, tokens, mask)


def logged(answers, old, ref):
    """Return answers with log-probabilities; they are NaN after the end."""
    old, ref = (
        jnp.where(answers.sample_mask, log_probs(x, logits, answers), jnp.nan)
        for x in (old, ref)
    )
    return answers._replace(old_log_prob=old, ref_log_prob=ref)


@jax.jit
def reward(answers):
    """Return the fraction of the target that each answer has, [B]."""
    target = TARGETS[answers.inputs[:, 0] - V]
    hits = answers.sample_mask & (answers.tokens == target)
    return jnp.sum(hits, axis=1) / jnp.sum(target >= 0, axis=1)


# --- All answers, and what is measured of a policy. ---


def _all():
    """Return all answers to each prompt, with zeros after the end, [P N, T]."""
    tokens = np.array(list(product(range(V), repeat=T)))
    going = np.cumsum(tokens == 0, axis=1) - (tokens == 0) == 0
    is_first = np.all(going | (tokens == 0), axis=1)
    tokens, mask = np.tile(tokens[is_first], (P, 1)), np.tile(going[is_first], (P, 1))
    prompt = np.repeat(np.arange(P), len(tokens) // P)[:, None] + V
    inputs = np.concatenate([prompt, tokens[:, :-1]], axis=1)
    return Answers(*map(jnp.asarray, (inputs, tokens, mask)))


ALL = _all()
REWARDS = reward(ALL).reshape(P, -1)


def distribution(table):
    """Return the log-probabilities of all answers, [P, N]."""
    log_prob = log_probs(table, logits, ALL)
    return jnp.sum(log_prob, axis=1, where=ALL.sample_mask).reshape(P, -1)


def mean_reward(ref):
    """Return a measure: the mean reward of a policy."""
    return lambda table: jnp.mean(jnp.sum(jnp.exp(distribution(table)) * REWARDS, 1))


def closeness(optimum):
    """Return a function of the reference to a measure: 0 for it, 1 for the optimum.

    It is 1 - KL(π ‖ π*) / KL(π_ref ‖ π*). If π* maximises E[u] - β KL(π ‖ π_ref), it
    is the part of the greatest improvement of that objective which π has.

    Args:
        optimum: Function of the log-probabilities of the reference, [P, N], to those
            of the optimum, up to a constant for each prompt.
    """

    def start(ref):
        log_ref = distribution(ref)
        best = jax.nn.log_softmax(optimum(log_ref))

        def kl(log_p):
            return jnp.mean(jnp.sum(jnp.exp(log_p) * (log_p - best), axis=1))

        scale = kl(log_ref)
        return lambda table: 1 - kl(distribution(table)) / scale

    return start


def regularized(beta, utility=lambda log_ref: REWARDS):
    """Return the optimum of E[u] - β KL(π ‖ π_ref), π_ref exp(u/β), for `closeness`."""
    return closeness(lambda log_ref: log_ref + utility(log_ref) / beta)


def best_of(k):
    """Return a function of the reference to a measure: the best reward of k answers.

    It is 0 for the reference, and 1 if the best answer is always among them.
    """
    order = jnp.argsort(REWARDS, axis=1)
    rewards = jnp.take_along_axis(REWARDS, order, axis=1)

    def expected(table):
        probs = jnp.take_along_axis(jnp.exp(distribution(table)), order, axis=1)
        below = jnp.cumsum(probs, axis=1) ** k  # That none is better.
        return jnp.mean(jnp.sum(rewards * jnp.diff(below, axis=1, prepend=0.0), axis=1))

    def start(ref):
        least = expected(ref)
        return lambda table: (expected(table) - least) / (1 - least)

    return start


def least(log_ref, gradient):
    """Return the log-probabilities of the least loss with a sum of 1, for `closeness`.

    The loss is a sum over answers of functions of f = log(π/π_ref), of which
    `gradient`, divided by π_ref, increases. Where the loss is least, it is -λ exp(f),
    for the multiplier λ ≥ 0 of the sum of the probabilities.
    """

    def bisect(is_high, low, high, shape):
        def halve(_, bounds):
            middle = sum(bounds) / 2
            high = is_high(middle)
            return jnp.where(high, bounds[0], middle), jnp.where(
                high, middle, bounds[1]
            )

        bounds = jnp.full(shape, low), jnp.full(shape, high)
        return jax.lax.fori_loop(0, 40, halve, bounds)[0]

    def policy(lambda_):
        def is_high(f):
            return gradient(f) + lambda_ * jnp.exp(f) > 0

        return log_ref + bisect(is_high, -50.0, 20.0, log_ref.shape)

    def is_high(lambda_):
        return jnp.sum(jnp.exp(policy(lambda_)), axis=1, keepdims=True) < 1

    return policy(bisect(is_high, 0.0, 10.0, (P, 1)))


# --- Training. ---


def answers(size=64, rewards=reward):
    """Return a function that samples groups of answers from the policy.

    Args:
        size: Answers to each prompt.
        rewards: Function of answers to their rewards, [B].
    """

    def data(key, state, fault):
        batch = sample(key, state.params, size)
        batch = logged(batch, state.params, state.target)
        found = fault.reward * rewards(batch).reshape(P, size)
        return batch._replace(rewards=found)

    return data


def preferences(size=64, scale=20.0, has_reference=True):
    """Return a function that samples pairs of answers of the reference, with labels.

    The labels are of a Bradley-Terry model, whose rewards are `scale` times those of
    the task. The fault of the reward turns them. Without the reference, its
    log-probabilities are 0.
    """

    def data(key, state, fault):
        keys = jax.random.split(key, 3)
        ref = state.target
        pair = [logged(sample(k, ref, size), ref, ref) for k in keys[:2]]
        if not has_reference:
            pair = [x._replace(ref_log_prob=jnp.zeros(x.tokens.shape)) for x in pair]
        advantage = fault.reward * scale * (reward(pair[0]) - reward(pair[1]))
        chosen = jax.random.bernoulli(keys[2], jax.nn.sigmoid(advantage))

        def choose(x, y):
            return jnp.where(chosen.reshape(-1, *[1] * (x.ndim - 1)), x, y)

        return Pairs(jax.tree.map(choose, *pair), jax.tree.map(choose, *pair[::-1]))

    return data


def entry(recipe, loss, data, measure=mean_reward, **options):
    """Return an entry of the token task.

    Args:
        recipe: File and functions.
        loss: Function of a table and a batch.
        data: Function of a key, a state and a fault to a batch. The state's target is
            the reference.
        measure: Function of the reference to one of the policy, both tables.
        options: `repeats`, the updates for each batch; `period`, the updates from one
            reference to the next; `start`, the first table; `measured`, what `measure`
            is; and fields of the entry.
    """
    repeats, period = options.pop("repeats", 1), options.pop("period", NEVER)
    start = options.pop("start", first)

    def run(key, fault):
        init_key, run_key = jax.random.split(key)
        state = begin(start(init_key), OPTIMIZER)
        measured = measure(state.params)

        def update(state, key):
            batch = data(key, state, fault)

            def again(state, _):
                return descend(state, lambda p: loss(p, batch), OPTIMIZER, period), None

            return jax.lax.scan(again, state, length=repeats)[0]

        keys = jax.random.split(run_key, UPDATES // repeats)
        return Run(state, update, keys, lambda state: measured(state.params))

    random, states = 0.0, 0.9
    measured = "how far the policy is on the way from its reference to the optimum"
    if measure is mean_reward:
        random, states = {first: RANDOM, tuned: TUNED}[start], 0.95
        policy = {first: "a random policy", tuned: "a tuned policy"}[start]
        measured = f"the share of right tokens, at first that of {policy}"
    about = f"{ABOUT}; measured is {options.pop('measured', measured)}"
    options = {"states": states, "fails": ("reward",)} | options
    return Entry(recipe, run, about, random=random, best=1.0, **options)
