"""Losses of PPO's relatives and of transfer: PPG, RPO, continuous PPO, QDagger.

A batch of streams is that of `policy_gradient.py`. Needs that file in the same package.
"""

import jax
import jax.numpy as jnp

import rlaxlib

from .policy_gradient import valid  # noqa: TID252 - Any package.


def ppg_auxiliary(params, apply, batch, target, kl_cost=1.0):
    """PPG, auxiliary phase: values teach the network of the policy, which stays.

    `apply` returns logits and the values of an auxiliary head. `logits_tm1` are those
    after the phase of PPO. Cobbe et al., 2020, https://arxiv.org/abs/2009.04416.
    Source: github.com/openai/phasic-policy-gradient@7295473,
    phasic_policy_gradient/ppg.py, the same loss. Usual: 6 epochs after 32 iterations of
    PPO, KL cost 1, Adam 5e-4; the values of PPO learn in both phases.
    """
    s, old, target = valid(batch, (batch.s_tm1, batch.logits_tm1, target))
    logits, v = apply(params, s)
    loss = rlaxlib.l2_loss(v, jax.lax.stop_gradient(target))
    kl = rlaxlib.categorical_kl_divergence(old, logits)
    return rlaxlib.masked_mean(loss + kl_cost * kl, mask=batch.sample_mask)


def qdagger(params, teacher_params, apply, batch, td_loss, weight, temperature=0.1):
    """QDagger: a teacher's policy is distilled, less as the student catches up.

    `apply` returns q, and `td_loss` is the loss of the student, such as `dqn`. Agarwal
    et al., 2022, https://arxiv.org/abs/2206.01626. Source:
    github.com/google-research/reincarnating_rl@e9df46e,
    reincarnating_rl/qdagger_dqn_agent.py, the same gradient: a KL divergence there.
    Usual: `weight` is 3 times 1 minus the ratio of the scores of student and teacher,
    temperature 0.1, 3-step targets, Adam 1e-4, which falls to 1e-5 with the weight.
    """
    q, teacher_q = (apply(p, batch.s_tm1) for p in (params, teacher_params))
    teacher = jax.nn.softmax(jax.lax.stop_gradient(teacher_q) / temperature)
    loss = rlaxlib.categorical_cross_entropy(teacher, q / temperature)
    return td_loss(params) + weight * jnp.mean(loss)


def gaussian_ppo(params, apply, batch, adv_t, target, epsilon=0.2, value_cost=0.5):
    """Continuous PPO: a Gaussian policy of normalised observations.

    `apply` returns mean, standard deviation and v. The batch has `old_log_prob`, [B,
    T], and observations from `running_moments`; rewards from `reward_scale` give
    advantages and targets. Andrychowicz et al., 2020, https://arxiv.org/abs/2006.05990.
    Source: github.com/vwxyzjn/cleanrl@fe8d8a0, cleanrl/ppo_continuous_action.py, the
    same loss. Usual: streams of 2,048 steps, 10 epochs, 32 minibatches, clip 0.2, Adam
    3e-4 annealed to 0, with epsilon 1e-5, gradients clipped to a norm of 0.5.
    """
    mean, stddev, v = apply(params, valid(batch, batch.s_tm1))
    policy, mask = rlaxlib.gaussian_diagonal(), batch.sample_mask
    log_prob = policy.logprob(valid(batch, batch.a_tm1), mean, stddev)
    adv_t = rlaxlib.standardize(adv_t, mask=mask, ddof=1)
    inputs = log_prob, batch.old_log_prob, adv_t, epsilon
    loss, _ = rlaxlib.ppo_clip_loss(*inputs, sample_mask=mask)
    old_v, target = jax.lax.stop_gradient(valid(batch, (batch.v_tm1, target)))
    value_loss, _ = rlaxlib.ppo_value_loss(v, old_v, target, epsilon)
    return rlaxlib.masked_mean(loss + value_cost * value_loss, mask=mask)


def rpo(params, apply, batch, key, adv_t, target, alpha=0.5):
    """RPO: continuous PPO, whose mean is moved by uniform noise in each update.

    Rahman and Xue, 2022, https://arxiv.org/abs/2212.07536. Source:
    github.com/vwxyzjn/cleanrl@fe8d8a0, cleanrl/rpo_continuous_action.py, the same loss.
    Usual: alpha 0.5, or 0.01 where that is worse than PPO.
    """

    def noisy(params, s):
        mean, *others = apply(params, s)
        noise = jax.random.uniform(key, mean.shape, mean.dtype, -alpha, alpha)
        return mean + noise, *others

    return gaussian_ppo(params, noisy, batch, adv_t, target)


def normalize(observations, rewards, discounts, moments, scale):
    """Return normalised observations and rewards of a stream, and both states.

    `moments` and `scale` are states of `running_moments` and `reward_scale`.
    """
    (mean, variance), moments = rlaxlib.running_moments().update(moments, observations)
    s = jnp.clip((observations - mean) / jnp.sqrt(variance + 1e-8), -10, 10)
    divisor, scale = rlaxlib.reward_scale().update(scale, rewards, discounts)
    return s, jnp.clip(rewards / divisor, -10, 10), moments, scale
