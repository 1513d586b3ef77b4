"""The zoo's further losses of language models, on the token task."""

import functools

import jax
import jax.numpy as jnp
from recipes import language_updates as recipes
from recipes.language import log_probs

import rlaxlib
from zoo import tokens
from zoo.tokens import V, answers, closeness, entry, logits, tuned

TEMPERATURE = 0.1  # Of DRO.
BOTH = "reward", "gradient"


def learner(name, data=None, settings=None, recipe=None, **options):
    """Return the entry of a recipe, on answers of the policy unless `data` is given."""
    recipe, settings = recipe or getattr(recipes, name), settings or {}

    def loss(params, batch):
        return recipe(params, logits, batch, **settings)

    return entry(f"language_updates.{name}", loss, data or answers(), **options)


def clip_cov():
    """Return the entry of Clip-Cov, whose batches have a key."""

    def data(key, state, fault):
        return answers()(key, state, fault)._replace(key=key)

    def loss(params, batch):
        settings = {"fraction": 0.02, "minimum": 0.05, "epsilon": 0.2}
        return recipes.clip_cov(params, logits, batch, batch.key, **settings)

    return entry("language_updates.clip_cov", loss, data, repeats=4)


def judged(low):
    """Return a function to groups of answers with rewards of 1 and `low`.

    An answer has 1 with the probability of its reward. The fault turns the verdicts.
    """
    sampled = answers()

    def data(key, state, fault):
        sample_key, key = jax.random.split(key)
        batch = sampled(sample_key, state, fault)
        right = jax.random.uniform(key, batch.rewards.shape) < jnp.abs(batch.rewards)
        right = right == (fault.reward > 0)
        return batch._replace(rewards=jnp.where(right, 1.0, low))

    return data


def demonstrations(key, state, fault, size=16, among=8):
    """Return the best of several answers of the reference, or the worst."""
    batch = tokens.sample(key, state.target, size * among)
    rewards = fault.reward * tokens.reward(batch).reshape(-1, among)
    best = jnp.argmax(rewards, axis=1) + among * jnp.arange(len(rewards))
    return jax.tree.map(lambda x: x[best], batch)


def several(key, state, fault):
    """Return answers with two rewards: of tokens in their places, and of the length."""
    batch = answers()(key, state, fault)
    length = jnp.sum(batch.sample_mask, axis=1)
    target = jnp.sum(tokens.TARGETS >= 0, axis=1)[batch.inputs[:, 0] - V]
    right = fault.reward * (length == target).reshape(batch.rewards.shape)
    return batch._replace(all_rewards=jnp.stack([batch.rewards, right]))


def engine(key, state, fault):
    """Return answers of an inference engine, whose logits have a systematic error."""
    error = 0.2 * tokens.first(jax.random.key(1))
    actor = state._replace(params=state.params + error)
    batch = answers()(key, actor, fault)
    sampler = batch.old_log_prob
    batch = tokens.logged(batch, state.params, state.target)
    return batch._replace(sampler_log_prob=sampler)


def of_reference(key, state, fault):
    """Return answers of the reference."""
    return answers()(key, state._replace(params=state.target), fault)


dft = functools.partial(learner, "dft", demonstrations, start=tuned, fails=BOTH)


def supervised(params, apply, batch):
    """Return the loss of DFT without the weights of tokens."""
    log_prob, mask = log_probs(params, apply, batch), batch.sample_mask
    return rlaxlib.aggregate_losses(-log_prob, "token_mean", sample_mask=mask)


def mirror_descent(log_ref):
    """Return the optimum of DRO, a step of mirror descent from the reference."""
    r = tokens.REWARDS
    mean = jnp.sum(jnp.exp(log_ref) * r, axis=1, keepdims=True)
    return tokens.least(log_ref, lambda f: TEMPERATURE * f - (r - mean))


def dro(temperature):
    settings, measure = {"temperature": temperature}, closeness(mirror_descent)
    return learner("dro", of_reference, settings, measure=measure)


ENTRIES = {
    "dppo": learner("dppo", repeats=4, fails=BOTH),
    "prime_ipo": learner("prime_ipo", repeats=4),
    "max_rl": learner("max_rl", judged(0.0)),
    "vespo": learner("vespo", repeats=3, fails=BOTH),  # Stale experience.
    "otb": learner("otb", fails=BOTH),
    "dft": dft()._replace(without={"the weights": dft(recipe=supervised).run}),
    "topr": learner("topr", judged(-1.0), repeats=2, fails=BOTH),
    "dro": dro(TEMPERATURE)._replace(without={"the squared log-ratio": dro(0.0).run}),
    "kl_cov": learner("kl_cov", repeats=4, settings={"fraction": 0.02}),
    "clip_cov": clip_cov(),
    "pass_at_k": learner("pass_at_k", measure=tokens.best_of(4)),
    "gdpo": learner("gdpo", several, repeats=2, settings={"weights": jnp.ones(2)}),
    "sequence_mask_tis": learner(
        "sequence_mask_tis", engine, settings={"low": 0.8, "high": 1.25}
    ),
}
