"""The zoo's losses of language models, on the token task.

The objectives with a KL divergence to the reference, and the preferences that fit a
known distribution, are compared with their optimum: see `tokens.closeness`.
"""

from functools import partial

import jax
import jax.numpy as jnp
from recipes import language as recipes
from recipes.language import log_probs

from zoo import tokens
from zoo.tokens import (
    answers,
    entry,
    logits,
    preferences,
    regularized,
    reward,
    sample,
    tuned,
)

BETA = 0.15  # KL cost of the optima, for rewards in [0, 1].
SCALE = 4.0  # Rewards of the labels of DPO, IPO and the reward model.


def learner(name, data=None, apply=logits, settings=None, without=None, **options):
    """Return the entry of a recipe, on answers of the policy unless `data` is given.

    `without` has the arguments that leave a part out, by the name of the part.
    """
    own = {"data": data, "apply": apply, "settings": settings, **options}
    parts = {x: learner(name, **own | y).run for x, y in (without or {}).items()}
    settings = settings or {}

    def loss(params, batch):
        return getattr(recipes, name)(params, apply, batch, **settings)

    return entry(f"language.{name}", loss, data or answers(), without=parts, **options)


# --- What some batches have besides. ---


def greedy(key, state, fault):
    """Return answers of the policy, with the rewards of greedy ones."""
    batch, best = answers()(key, state, fault), sample(key, 1e4 * state.params, 1)
    return batch._replace(greedy_rewards=fault.reward * reward(best))


def valued(key, state, fault):
    """Return answers with the values of their tokens.

    Rewards are positive where all of an answer is right.
    """
    batch = answers(rewards=lambda x: reward(x) - 0.9)(key, state, fault)
    return batch._replace(values=tokens.both(state.params, batch.inputs)[1])


def taught(key, state, fault, scale=1.0):
    """Return answers of the policy, with the logits of a teacher, or turned ones."""
    batch = answers()(key, state, fault)
    teacher = scale * fault.reward * tokens.logits(TEACHER, batch.inputs)
    return batch._replace(teacher_logits=teacher)


def scored(key, state, fault, scale=1.0):
    """Return answers of the policy, with the log-probabilities of a teacher."""
    batch = answers()(key, state, fault)
    teacher = log_probs(scale * fault.reward * TEACHER, logits, batch)
    return batch._replace(teacher_log_prob=teacher)


TEACHER = 4 * tokens.first(jax.random.key(1))


def halves(key, state, fault):
    """Return both answers of pairs, desirable or not, and answers to other prompts."""
    pairs = preferences()(key, state, fault)
    batch = jax.tree.map(lambda *x: jnp.concatenate(x), *pairs)
    desirable = jnp.arange(len(batch.tokens)) < len(pairs.chosen.tokens)
    others = jax.tree.map(lambda x: jnp.roll(x, len(x) // tokens.P // 2, axis=0), batch)
    inputs = others.inputs.at[:, 0].set(batch.inputs[:, 0])
    others = tokens.logged(others._replace(inputs=inputs), state.target, state.target)
    return batch._replace(desirable=desirable, mismatched=others)


def preferring(name, scale=20.0, **options):
    """Return the entry of a recipe that learns from pairs of a tuned reference."""
    return learner(name, preferences(scale=scale), start=tuned, **options)


# --- Optima and measures. ---


def win_rate(log_ref, scale=SCALE):
    """Return the probabilities of a win against an answer of the reference."""
    r = scale * tokens.REWARDS
    wins = jax.nn.sigmoid(r[:, :, None] - r[:, None])
    return jnp.einsum("pij,pj->pi", wins, jnp.exp(log_ref))


def to_teacher(log_ref):
    """Return the log-probabilities of the teacher's answers."""
    return tokens.distribution(TEACHER)


def scores(table, inputs):
    """Return the scores of all tokens, sums of those that the table gives each."""
    each = logits(table, inputs[:, :-1])
    each = jnp.take_along_axis(each, inputs[:, 1:, None], axis=2)[..., 0]
    return jnp.pad(jnp.cumsum(each, axis=1), ((0, 0), (1, 0)))


def explained(ref):
    """Return a measure: the part of the rewards' variance that scores explain.

    Rewards are those of the labels, minus their mean for each prompt: centring.
    """
    all_tokens = jnp.concatenate([tokens.ALL.inputs[:, :1], tokens.ALL.tokens], axis=1)
    last = jnp.sum(tokens.ALL.sample_mask, axis=1, keepdims=True)
    weight = jnp.exp(tokens.distribution(ref))
    mean = jnp.sum(weight * tokens.REWARDS, axis=1, keepdims=True)
    target = SCALE * (tokens.REWARDS - mean)

    def measure(table):
        score = jnp.take_along_axis(scores(table, all_tokens), last, axis=1)
        error = jnp.square(score.reshape(target.shape) - target)
        return 1 - jnp.sum(weight * error) / jnp.sum(weight * target**2)

    return measure


SOFT = {"measure": regularized(BETA), "settings": {"kl_cost": BETA}}
REFERENCE = {
    "the reference": {"data": preferences(scale=SCALE, has_reference=False)},
}

ENTRIES = {
    # Groups of answers.
    "grpo": learner("grpo", repeats=4),
    "dr_grpo": learner("dr_grpo", repeats=4, settings={"max_length": tokens.T}),
    # A penalty of 1/6 for four tokens, which are still the best where they are right.
    "dapo": learner("dapo", repeats=4, settings={"max_length": 9, "cache_length": 6}),
    "rloo": learner("rloo", **SOFT),
    "remax": learner("remax", greedy, **SOFT),
    "opo": learner("opo"),
    "reinforce_plus_plus": learner("reinforce_plus_plus", **SOFT),
    "gspo": learner("gspo", repeats=4),
    "cispo": learner("cispo", repeats=4, fails=("reward", "gradient")),
    "sapo": learner("sapo", repeats=4),
    "gmpo": learner("gmpo", repeats=4),
    "rlhf_ppo": learner(
        *("rlhf_ppo", valued, tokens.both),
        repeats=4,
        without={"the KL penalty": {"settings": {"kl_cost": 0.0}}},
        **SOFT,
    ),
    "vapo": learner(
        *("vapo", valued, tokens.both),
        repeats=4,
        settings={"alpha": 4.0, "value_cost": 0.5},
    ),
    # Preferences.
    "dpo": preferring(
        *("dpo", SCALE),
        measure=regularized(0.5 / SCALE),
        settings={"beta": 0.5},
        without=REFERENCE,
    ),
    "ipo": preferring(
        *("ipo", SCALE),
        measure=regularized(0.1, win_rate),
        settings={"beta": 0.1},
        without=REFERENCE,
    ),
    "simpo": preferring("simpo"),
    # The supervised term alone reaches 0.6, the mean reward of chosen answers.
    "orpo": preferring(
        "orpo",
        settings={"coefficient": 5.0},
        states=0.65,
        without={"the odds ratio": {"settings": {"coefficient": 0.0}}},
    ),
    # For small β the loss is nearly linear in log π, and least for π proportional to
    # π_ref max(0, 2 w - 1), with the win rates w. Its mean reward depends on the
    # reference: 0.68 or more at 35 seeds.
    "kto": learner("kto", halves, start=tuned, states=0.68),
    "reward_model": preferring(
        *("reward_model", SCALE),
        apply=scores,
        measure=explained,
        measured="the part of the variance of rewards that the scores explain",
        without={"the centring": {"settings": {"centering": 0.0}}},
    ),
    # Distillation.
    "on_policy_distillation": learner(
        *("on_policy_distillation", taught),
        measure=tokens.closeness(to_teacher),
        without={"the teacher": {"data": partial(taught, scale=0.0)}},
    ),
    "sampled_distillation": learner(
        *("sampled_distillation", scored),
        measure=tokens.closeness(to_teacher),
        without={"the teacher": {"data": partial(scored, scale=0.0)}},
    ),
}
