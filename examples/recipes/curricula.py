"""Curricula of levels: PLR, ACCEL and SFL choose what to train on.

A level is what the environment is made from, such as a seed or a maze. `Levels` holds N
of them. Streams are of one level each, [B, T], with any number of episodes; the fields
`v_tm1`, `v_t`, `r_t`, `discount_t`, `truncated_t` and `sample_mask` are those of PPO.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import rlaxlib


class Levels(NamedTuple):
    """A buffer of N levels."""

    levels: Any  # What environments are made from, with a first axis, [N, ...].
    scores: jax.Array  # [N].
    ages: jax.Array  # Samplings since each level was last chosen, [N].
    exists: jax.Array  # False for entries that are empty, [N].


def plr_replay(key, buffer, num, staleness=0.3, temperature=0.3):
    """PLR: sample indices of levels to train on; the buffer has their ages renewed.

    Robust PLR trains on these levels only, and plays new ones to score them: with a
    probability of 0.8 replay, else `plr_insert`. Jiang et al., 2020,
    https://arxiv.org/abs/2010.03934, and 2021, https://arxiv.org/abs/2110.02439.
    Source: github.com/DramaCow/jaxued@0f8f128, src/jaxued/level_sampler.py, where
    levels age between the samples of a batch, too. Usual: 4000 levels, staleness 0.3,
    temperature 0.3, replay 0.8; in PLR's paper both 0.1, replay 0.5 and all levels
    trained on.
    """
    probabilities = rlaxlib.level_probabilities(
        *(buffer.scores, buffer.ages, staleness, temperature),
        sample_mask=buffer.exists,
    )
    indices = jax.random.choice(key, len(buffer.ages), (num,), p=probabilities)
    return indices, buffer._replace(ages=(buffer.ages + 1).at[indices].set(0))


def plr_scores(batch, max_return):
    """PLR: the maximum Monte Carlo regret (MaxMC) of each stream, for sparse rewards.

    `max_return`, [B], is the highest return so far on the level of each stream. Jiang
    et al., 2021, https://arxiv.org/abs/2110.02439. Source:
    github.com/DramaCow/jaxued@0f8f128, src/jaxued/utils.py, the same scores, but minus
    infinity where no episode ended; here 0. Usual: discount 0.995, λ 0.98, streams of
    256 steps.
    """

    def score(v_tm1, discount_t, max_return, truncated_t, sample_mask):
        masks = {"truncated_t": truncated_t, "sample_mask": sample_mask}
        return rlaxlib.max_mc(v_tm1, discount_t, max_return, **masks)

    return jax.vmap(score)(
        *(batch.v_tm1, batch.discount_t, max_return),
        *(batch.truncated_t, batch.sample_mask),
    )


def accel_scores(batch, lambda_=0.98):
    """ACCEL: the positive value loss of each stream, the score of its level.

    Parker-Holder et al., 2022, https://arxiv.org/abs/2203.01302. Source:
    github.com/DramaCow/jaxued@0f8f128, src/jaxued/utils.py, the same scores, but minus
    infinity where no episode ended; here 0. Usual: discount 0.995, λ 0.98, streams of
    256 steps.
    """

    def score(v_tm1, r_t, discount_t, v_t, truncated_t, sample_mask):
        masks = {"truncated_t": truncated_t, "sample_mask": sample_mask}
        inputs = v_tm1, r_t, discount_t, v_t, lambda_
        adv = rlaxlib.generalized_advantage_estimation(*inputs, **masks)
        return rlaxlib.positive_value_loss(adv, discount_t, **masks)

    return jax.vmap(score)(
        *(batch.v_tm1, batch.r_t, batch.discount_t, batch.v_t),
        *(batch.truncated_t, batch.sample_mask),
    )


def plr_insert(buffer, level, score, staleness=0.3, temperature=0.3):
    """PLR: put a level in place of the least likely one, if it has a higher score.

    For ACCEL, insert the edited copies of the levels that were trained on, after they
    were played and scored. Parker-Holder et al., 2022,
    https://arxiv.org/abs/2203.01302. Source: github.com/DramaCow/jaxued@0f8f128,
    src/jaxued/level_sampler.py, the same choice, which may leave out duplicates. Usual:
    5 edits of each level of a replayed batch; ACCEL starts from empty mazes.
    """
    probabilities = rlaxlib.level_probabilities(
        *(buffer.scores, buffer.ages, staleness, temperature),
        sample_mask=buffer.exists,
    )
    worst = jnp.argmin(jnp.where(buffer.exists, probabilities, -1))
    better = ~buffer.exists[worst] | (score > buffer.scores[worst])
    new = Levels(level, score, jnp.zeros_like(score), jnp.array(True))
    return jax.tree.map(
        lambda old, x: old.at[worst].set(jnp.where(better, x, old[worst])), buffer, new
    )


def sfl_levels(levels, batch, num):
    """SFL: the levels of the highest learnability, among those of a batch of streams.

    The batch has `is_success`, [B, T]. Train on half of these levels and half new ones,
    and choose anew every 100 updates. Rutherford et al., 2024,
    https://arxiv.org/abs/2408.15099. Source:
    github.com/amacrutherford/sampling-for-learnability@8b14e2e,
    sfl/train/minigrid_sfl.py, the same score. Usual: the best 1000 of 25,000
    levels, with streams of 2000 steps.
    """
    scores = jax.vmap(rlaxlib.learnability)(
        *(batch.is_success, batch.discount_t),
        **{"truncated_t": batch.truncated_t, "sample_mask": batch.sample_mask},
    )
    scores, indices = jax.lax.top_k(scores, num)
    return jax.tree.map(lambda x: x[indices], levels), scores
