"""Losses of `recipes/language_updates.py` in plain `jax.numpy`."""

import itertools

import formulas as f
import jax
import jax.numpy as jnp
import numpy as np
from formulas import pick
from recipes import language_updates as recipes

from plain_losses.common import KEY, Batch, Case, T, normal, of, seed, stop
from plain_losses.language import (
    ANSWERS,
    MASK,
    PROMPTS,
    TABLE,
    G,
    bigrams,
    grouped,
    logps,
    ppo,
)

seed(__name__)


GROUPS = jax.jit(grouped)(ANSWERS.rewards)

BINARY = ANSWERS._replace(rewards=np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]))
SIGNED = ANSWERS._replace(rewards=np.array([[1.0, -1.0, 1.0], [-1.0, -1.0, 1.0]]))
SEVERAL = ANSWERS._replace(all_rewards=normal(2, PROMPTS, G))
WEIGHTS = np.array([1.0, 0.5])
COVARIANCES = {"minimum": 0.2, "maximum": 2.0, "epsilon": 0.2}
# One answer with a ratio above the band, one below it, and others near 1.
OFFSETS = np.array([0.05, -0.05, 0.0, 0.0, 0.0, 0.0])[:, None]
SAMPLED = ANSWERS._replace(
    sampler_log_prob=ANSWERS.old_log_prob + OFFSETS + 0.001 * normal(PROMPTS * G, T)
)


def token_mean(loss):
    return f.token_mean(loss, MASK)


def plain_dppo(p, t):
    """verl-project/verl@1dda039.

    verl/trainer/ppo/core_algos.py: compute_policy_loss_dppo_tv.
    """
    log_prob, old_log_prob = logps(p), ANSWERS.old_log_prob
    losses = f.weighted(log_prob, old_log_prob, GROUPS, 0.0, 3.0)
    return token_mean(losses * f.within_tv(log_prob, old_log_prob, GROUPS, 0.1))


def plain_max_rl(p, t):
    """tajwarfahim/maxrl@c0698eb, on policy.

    verl/trainer/ppo/core_algos.py: compute_maxrl_outcome_advantage.
    """
    scores = []
    for row in BINARY.rewards:
        mean = jnp.mean(row)
        scores.append((row - mean) / (mean + 1e-6))
    advantages = jnp.concatenate(scores)[:, None] * MASK
    return token_mean(-advantages * logps(p))


def plain_vespo(p, t):
    """FloyedShen/VESPO@aa1f304, recipe/vespo/code/core_algos.py, token-mean."""
    seq_log_ratio = jnp.sum((logps(p) - ANSWERS.old_log_prob) * MASK, axis=-1)
    weight = f.vespo_weight(seq_log_ratio, GROUPS[:, 0])[:, None]
    return token_mean(-weight * GROUPS * logps(p))


def plain_otb(p, t):
    """verl-project/verl@1dda039: compute_optimal_token_baseline_advantage.

    verl/trainer/ppo/core_algos.py, with handle_zero_tail, on policy.
    """
    sum_pi_squared = stop(jnp.sum(jax.nn.softmax(p[ANSWERS.inputs]) ** 2, axis=-1))
    w_per_timestep = 1 - 2 * stop(jnp.exp(logps(p))) + sum_pi_squared
    w_cumulative = jnp.cumsum(w_per_timestep * MASK, axis=-1)
    returns = ANSWERS.rewards.reshape(-1, 1) * MASK
    baselines = []
    for first in range(0, PROMPTS * G, G):
        group = slice(first, first + G)
        w = w_cumulative[group] * MASK[group]
        baseline = jnp.sum(returns[group] * w, axis=0) / (jnp.sum(w, axis=0) + 1e-8)
        response_lengths = np.sum(np.asarray(MASK)[group], axis=-1)
        for length in response_lengths:
            second = np.sort(response_lengths)[-2]
            alone = (length > second) & (np.arange(T) >= second)
            baselines.append(jnp.where(alone, 0.0, baseline))
    advantages = (returns - jnp.stack(baselines)) * MASK
    return token_mean(-advantages * logps(p))


def plain_dft(p, t):
    """yongliang-wu/DFT@e153181, verl/verl/trainer/fsdp_dft_trainer.py."""
    probs = jax.nn.softmax(p[ANSWERS.inputs])
    prob_coefficients = pick(probs, ANSWERS.tokens)
    loss = -jnp.log(prob_coefficients) * stop(prob_coefficients) * MASK
    return jnp.sum(loss) / jnp.sum(MASK)


def plain_topr(p, t):
    """alibaba/ROLL@8eb27cc, roll/pipeline/rlvr/actor_pg_worker.py.

    _compute_topr_loss, with seq-mean-token-sum.
    """
    log_probs, advantages = logps(p), SIGNED.rewards.reshape(-1, 1)
    ratio, positive = jnp.exp(log_probs - SIGNED.old_log_prob), advantages > 0
    clipped_ratio = stop(jnp.clip(ratio, 0.0, 1.0))
    positive_loss = -advantages * log_probs * positive
    negative_loss = -clipped_ratio * advantages * log_probs * ~positive
    return jnp.mean(jnp.sum((positive_loss + negative_loss) * MASK, axis=-1))


def plain_dro(p, t):
    """alibaba/ROLL@8eb27cc, roll/pipeline/rlvr/actor_pg_worker.py.

    _compute_kimi15_loss, with seq-mean-token-sum.
    """
    advantages = grouped(ANSWERS.rewards, scale=False)
    log_probs, old_log_probs, tau = logps(p), ANSWERS.old_log_prob, 0.1
    loss = -advantages * log_probs + tau * 0.5 * (log_probs - old_log_probs) ** 2
    return jnp.mean(jnp.sum(loss * MASK, axis=-1))


def plain_kl_cov(p, t):
    """PRIME-RL/Entropy-Mechanism-of-RL@8850579: compute_policy_loss_kl_cov.

    verl/trainer/ppo/core_algos.py, with 33 % of the tokens, rounded down.
    """
    valid = np.nonzero(np.asarray(MASK))
    advantages = jnp.broadcast_to(GROUPS, MASK.shape)
    tokens = (x[valid] for x in (logps(p), ANSWERS.old_log_prob, advantages))
    return jnp.mean(f.kl_cov(*tokens, int(len(valid[0]) * 33 / 100)))


def plain_gdpo(p, t):
    """verl-project/verl@1dda039: compute_gdpo_outcome_advantage.

    verl/trainer/ppo/core_algos.py.
    """
    new_advantage = sum(
        weight * grouped(scores) * MASK
        for weight, scores in zip(WEIGHTS, SEVERAL.all_rewards, strict=True)
    )
    mean, n = token_mean(new_advantage), jnp.sum(MASK)
    var = token_mean((new_advantage - mean) ** 2) * n / (n - 1)
    advantages = (new_advantage - mean) * jax.lax.rsqrt(var + 1e-8) * MASK
    return token_mean(ppo(p, advantages))


def plain_sequence_mask_tis(p, t):
    """OpenRLHF/OpenRLHF@3c3be62, openrlhf/models/loss.py: "seq-mask-tis".

    Where no weight of a token is above its bound.
    """
    loss = ppo(p, GROUPS)
    rollout_log_ratio = SAMPLED.old_log_prob - SAMPLED.sampler_log_prob
    seq_log_ratio = jnp.sum(rollout_log_ratio * MASK, axis=-1) / jnp.sum(MASK, axis=-1)
    seq_is = jnp.exp(seq_log_ratio)
    seq_mask = (seq_is >= 0.99) & (seq_is <= 1.01)
    vllm_is = jnp.exp(rollout_log_ratio)
    return token_mean(seq_mask[:, None] * vllm_is * loss)


def plain_prime_ipo(p, t):
    """PrimeIntellect-ai/prime-rl@559b447, src/prime_rl/trainer/rl/loss.py."""
    log_ratio, advantages = (
        logps(p) - ANSWERS.old_log_prob,
        grouped(ANSWERS.rewards, scale=False),
    )
    keep = jnp.abs(jnp.exp(logps(p)) - jnp.exp(ANSWERS.old_log_prob)) <= 0.1
    losses = -jnp.where(keep, jnp.exp(log_ratio), 0) * advantages
    return token_mean(losses + 1e-3 * log_ratio**2)


def plain_clip_cov(p, t):
    """PRIME-RL/Entropy-Mechanism-of-RL@8850579: compute_policy_loss_clip_cov.

    verl/trainer/ppo/core_algos.py, where all tokens within the bounds are chosen.
    """
    log_prob, ratio = logps(p), jnp.exp(logps(p) - ANSWERS.old_log_prob)
    pg_losses1, pg_losses2 = -GROUPS * ratio, -GROUPS * jnp.clip(ratio, 0.8, 1.2)
    mean_log_prob, mean_adv = (token_mean(x) for x in (log_prob, GROUPS))
    cov_all = (GROUPS - mean_adv) * (log_prob - mean_log_prob)
    chosen = (cov_all < 2.0) & (cov_all > 0.2) & ~(pg_losses2 > pg_losses1)
    return token_mean(jnp.maximum(pg_losses1, pg_losses2) * ~chosen)


def plain_pass_at_k(p, t):
    """Return the loss of the sets of k answers: by how much each raises the best.

    Equation 33 of the paper, times G for the mean over answers.
    """
    advantages = []
    for rewards in ANSWERS.rewards.tolist():
        sets = list(itertools.combinations(range(G), 2))
        for i in range(G):
            own = [[rewards[j] for j in s if j != i] for s in sets if i in s]
            raised = [max(*others, rewards[i]) - max(others) for others in own]
            advantages.append(G * sum(raised) / len(sets))
    advantages = jnp.array(advantages)[:, None]
    return jnp.mean(jnp.sum(-advantages * logps(p) * MASK, axis=-1))


# --- PKPO over all groups that can be sampled. ---


BANDIT = np.array([0.5, -0.25, 0.0], np.float32)  # Logits of answers of one token.
CORRECT = np.array([0.0, 1.0, 0.25], np.float32)  # Their rewards.


def expected_pass_at_k(w, size, k):
    """Return the expected loss of PKPO, whose gradient is by enumeration of groups."""
    groups = np.array(list(itertools.product(range(3), repeat=size)))
    probs = np.exp(BANDIT) / np.sum(np.exp(BANDIT))

    def loss(group):
        batch = Batch(
            inputs=jnp.zeros((size, 1), jnp.int32),
            tokens=group[:, None],
            sample_mask=jnp.ones((size, 1), bool),
            rewards=jnp.asarray(CORRECT)[group][None],
        )
        return recipes.pass_at_k(w[None], bigrams, batch, k)

    return jnp.sum(np.prod(probs[groups], axis=1) * jax.vmap(loss)(groups))


def best_of(w, k):
    """Return the expected best reward of k answers."""
    sets = np.array(list(itertools.product(range(3), repeat=k)))
    probability = jnp.prod(jax.nn.softmax(w)[sets], axis=1)
    return jnp.sum(probability * np.max(CORRECT[sets], axis=1))


def case(name, batch=ANSWERS, *args, **settings):
    recipe, plain = getattr(recipes, name), globals()[f"plain_{name}"]
    loss = of(recipe, bigrams, batch, *args, **settings)
    return Case(loss, plain, TABLE)


CASES = {
    "dppo": case("dppo", bound=0.1, max_ratio=3.0),
    "max_rl": case("max_rl", BINARY),
    "vespo": case("vespo"),
    "otb": case("otb"),
    "dft": case("dft"),
    "topr": case("topr", SIGNED),
    "dro": case("dro"),
    "kl_cov": case("kl_cov", fraction=0.33),
    "gdpo": case("gdpo", SEVERAL, WEIGHTS),
    "prime_ipo": case("prime_ipo", bound=0.1),
    "clip_cov": case("clip_cov", key=KEY, fraction=1.0, **COVARIANCES),
    "pass_at_k": case("pass_at_k", k=2),
    "sequence_mask_tis": case("sequence_mask_tis", SAMPLED),
}
