"""Losses of `recipes/language_updates.py` in plain `jax.numpy`."""

import itertools

import jax
import jax.numpy as jnp
from recipes import language_updates as recipes

from plain_losses.common import KEY, Case, T, normal, of, stop
from plain_losses.language import (
    ANSWERS,
    GROUPS,
    LAST,
    MASK,
    PROMPTS,
    TABLE,
    G,
    bigrams,
    clip,
    log_pi,
    mean_of_tokens,
    of_groups,
    ratios,
    total,
)

BINARY = ANSWERS._replace(rewards=jnp.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]))
SIGNED = ANSWERS._replace(rewards=jnp.array([[1.0, -1.0, 1.0], [-1.0, -1.0, 1.0]]))
SEVERAL = ANSWERS._replace(all_rewards=normal(2, PROMPTS, G))
WEIGHTS = jnp.array([1.0, 0.5])
# One answer with a ratio above the band, one below it, and others near 1.
OFFSETS = jnp.array([0.05, -0.05, 0.0, 0.0, 0.0, 0.0])[:, None]
SAMPLED = ANSWERS._replace(
    sampler_log_prob=ANSWERS.old_log_prob + OFFSETS + 0.001 * normal(PROMPTS * G, T)
)


COVARIANCES = {"minimum": 0.2, "maximum": 2.0, "epsilon": 0.2}


def plain_dppo(p, t):
    """verl-project/verl@1dda039, verl/trainer/ppo/core_algos.py."""
    pi, mu = jnp.exp(log_pi(p)), jnp.exp(ANSWERS.old_log_prob)
    leaves = jnp.where(GROUPS > 0, pi - mu > 0.1, mu - pi > 0.1)
    weight = stop(jnp.where(leaves, 0, jnp.minimum(ratios(p), 3)))
    return mean_of_tokens(-weight * GROUPS * log_pi(p))


def plain_prime_ipo(p, t):
    """PrimeIntellect-ai/prime-rl@559b447, src/prime_rl/trainer/rl/loss.py."""
    pi, mu = jnp.exp(log_pi(p)), jnp.exp(ANSWERS.old_log_prob)
    keep, adv = jnp.abs(pi - mu) <= 0.1, of_groups(ANSWERS.rewards)
    kl = log_ratios(p) ** 2
    return mean_of_tokens(-jnp.where(keep, ratios(p), 0) * adv + 1e-3 * kl)


def plain_max_rl(p, t):
    """tajwarfahim/maxrl@c0698eb, verl/trainer/ppo/core_algos.py."""
    mean = jnp.mean(BINARY.rewards, axis=1, keepdims=True)
    adv = (BINARY.rewards - mean) / mean
    return mean_of_tokens(-adv.reshape(-1, 1) * log_pi(p))


def plain_vespo(p, t):
    """FloyedShen/VESPO@aa1f304, recipe/vespo/code/core_algos.py, token-mean."""
    w = stop(jnp.exp(total(jnp.log(ratios(p)))))[:, None]
    k, rate = (jnp.where(GROUPS >= 0, *pair) for pair in ((2, 3), (3, 2)))
    weight = w**k * jnp.exp(rate * (1 - w))
    return mean_of_tokens(-weight * GROUPS * log_pi(p))


def plain_otb(p, t):
    """verl-project/verl@1dda039: compute_optimal_token_baseline_advantage.

    verl/trainer/ppo/core_algos.py, with handle_zero_tail.
    """
    probs = stop(jax.nn.softmax(p[ANSWERS.inputs]))
    taken = stop(jnp.exp(log_pi(p)))
    energy = jnp.where(MASK, 1 - 2 * taken + jnp.sum(probs**2, axis=-1), 0)
    weights = jnp.where(MASK, jnp.cumsum(energy, axis=1), 0).reshape(PROMPTS, G, T)
    rewards = ANSWERS.rewards[:, :, None]
    sums = jnp.sum(weights, axis=1)
    baseline = jnp.sum(weights * rewards, axis=1) / jnp.where(sums > 0, sums, 1)
    lengths = jnp.sort(jnp.sum(MASK, axis=1).reshape(PROMPTS, G), axis=1)
    tail = jnp.arange(T)[None] >= lengths[:, -2:-1]
    adv = (rewards - jnp.where(tail, 0, baseline)[:, None]).reshape(-1, T)
    return mean_of_tokens(-adv * log_pi(p))


def plain_dft(p, t):
    """yongliang-wu/DFT@e153181, verl/verl/trainer/fsdp_dft_trainer.py."""
    return mean_of_tokens(-stop(jnp.exp(log_pi(p))) * log_pi(p))


def plain_topr(p, t):
    rewards = SIGNED.rewards.reshape(-1, 1)
    whole = jnp.exp(total(jnp.log(ratios(p))))[:, None]
    weight = stop(jnp.where(rewards > 0, 1, jnp.minimum(whole, 1)))
    return jnp.mean(total(-weight * rewards * log_pi(p)))


def plain_dro(p, t):
    adv = of_groups(ANSWERS.rewards)[:, 0]
    log_ratio = total(jnp.log(ratios(p)))
    return jnp.mean(-adv * total(log_pi(p)) + 0.1 * log_ratio**2 / 2)


def log_ratios(p):
    return log_pi(p) - ANSWERS.old_log_prob


def plain_kl_cov(p, t):
    """PRIME-RL/Entropy-Mechanism-of-RL@8850579: compute_policy_loss_kl_cov.

    verl/trainer/ppo/core_algos.py, with 20 % of the tokens.
    """
    x, count = log_pi(p), 20
    mean_x, mean_adv = (jnp.sum(total(each)) / count for each in (x, GROUPS))
    covariance = jnp.where(MASK, (x - mean_x) * (GROUPS - mean_adv), -jnp.inf)
    lowest = jnp.sort(covariance.ravel())[-4]
    kl = jnp.where(covariance >= lowest, jnp.abs(log_ratios(p)), 0)
    return mean_of_tokens(-ratios(p) * GROUPS + kl)


def plain_clip_cov(p, t):
    """PRIME-RL/Entropy-Mechanism-of-RL@8850579: compute_policy_loss_clip_cov.

    verl/trainer/ppo/core_algos.py, where all tokens within the bounds are chosen.
    """
    x = log_pi(p)
    mean_x, mean_adv = (jnp.sum(total(each)) / 20 for each in (x, GROUPS))
    covariance = (x - mean_x) * (GROUPS - mean_adv)
    keep = (covariance < 0.2) | (covariance > 2.0)
    return mean_of_tokens(jnp.where(keep, clip(ratios(p), GROUPS, 0.2, 0.2), 0))


def plain_pass_at_k(p, t):
    """Return the loss of the sets of k answers, with the best reward of each."""
    shaped = []
    for rewards in ANSWERS.rewards.tolist():
        sets = list(itertools.combinations(range(G), 2))
        best = {s: max(rewards[i] for i in s) for s in sets}
        shaped.append([sum(best[s] for s in sets if i in s) for i in range(G)])
    shaped = G * jnp.array(shaped) / len(sets)
    others = (jnp.sum(shaped, axis=1, keepdims=True) - shaped) / (G - 1)
    return jnp.mean(total(-of_groups(shaped, others) * log_pi(p)))


def plain_gdpo(p, t):
    """verl-project/verl@1dda039: compute_gdpo_outcome_advantage.

    verl/trainer/ppo/core_algos.py; groups divide by their number, not that minus 1.
    """
    each = [of_groups(x, std=True)[:, 0] for x in SEVERAL.all_rewards]
    adv = WEIGHTS[0] * each[0] + WEIGHTS[1] * each[1]
    adv = jnp.broadcast_to(adv[:, None], MASK.shape)
    adv = (adv - jnp.mean(adv, where=MASK)) / jnp.std(adv, where=MASK, ddof=1)
    return mean_of_tokens(clip(ratios(p), adv, 0.2, 0.2))


def plain_sequence_mask_tis(p, t):
    """OpenRLHF/OpenRLHF@3c3be62, openrlhf/models/loss.py: seq-mask-tis, truncated."""
    log_ratio = SAMPLED.old_log_prob - SAMPLED.sampler_log_prob
    mean = jnp.exp(total(log_ratio) / LAST)[:, None]
    near = (mean >= 0.99) & (mean <= 1.01)
    weight = jnp.where(near, jnp.minimum(jnp.exp(log_ratio), 2), 0)
    return mean_of_tokens(weight * clip(ratios(p), GROUPS, 0.2, 0.2))


def case(name, batch=ANSWERS, *args, factor=1.0, **settings):
    recipe, plain = getattr(recipes, name), globals()[f"plain_{name}"]
    loss = of(recipe, bigrams, batch, *args, **settings)
    return Case(loss, plain, TABLE, factor=factor)


CASES = {
    "dppo": case("dppo", bound=0.1, max_ratio=3.0),
    "prime_ipo": case("prime_ipo", bound=0.1),
    "max_rl": case("max_rl", BINARY),
    "vespo": case("vespo"),
    "otb": case("otb"),
    "dft": case("dft"),
    "topr": case("topr", SIGNED),
    "dro": case("dro"),
    "kl_cov": case("kl_cov", fraction=0.2),
    "clip_cov": case("clip_cov", key=KEY, fraction=1.0, **COVARIANCES),
    "pass_at_k": case("pass_at_k", k=2),
    "gdpo": case("gdpo", SEVERAL, WEIGHTS, factor=(20 / 19) ** 0.5),
    "sequence_mask_tis": case("sequence_mask_tis", SAMPLED),
}
