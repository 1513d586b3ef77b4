"""Losses and rewards of exploration: RND, with PPO too, NGU, ICM, bootstrapped DQN.

A batch of B transitions or streams has the fields of `value_based.py`. Needs it and
`policy_gradient.py` in the same package.
"""

from functools import partial

import jax
import jax.numpy as jnp
import optax

import rlaxlib

from .policy_gradient import (  # noqa: TID252 - Any package.
    advantages,
    entropy,
    log_probs,
    retrace_errors,
    value_loss,
)
from .value_based import valid  # noqa: TID252 - Any package.


def rnd(params, target_params, apply, batch):
    """RND: a predictor learns the features of a random network.

    `apply` returns features, [B, K], of the observation reached; `target_params` never
    change. Burda et al., 2018, https://arxiv.org/abs/1810.12894. Source:
    github.com/openai/random-network-distillation@f75c0f1, ppo_agent.py and
    policies/cnn_policy_param_matched.py, a mean over the K features, on a quarter of
    the steps at random: this loss is K times that, 512 there. Usual: observations
    standardised and clipped at 5, Adam 1e-4, the whole batch of 32 environments, or a
    quarter of that of 128.
    """
    targets = jax.lax.stop_gradient(apply(target_params, batch.s_t))
    errors = jnp.square(apply(params, batch.s_t) - targets)
    return jnp.mean(jnp.sum(errors, axis=-1))


def rnd_rewards(params, target_params, apply, batch, state, discount=0.99):
    """RND, rewards of B streams, for `rnd_ppo`, and the next state.

    The errors are divided by the scale of their discounted sums, which no end of an
    episode cuts. `state` is at first `jax.vmap(reward_scale().init)(jnp.zeros(B))`; the
    scale is that of all streams. Burda et al., 2018, https://arxiv.org/abs/1810.12894.
    Source: github.com/openai/random-network-distillation@f75c0f1, ppo_agent.py. Usual:
    intrinsic discount 0.99.
    """
    x, y = (apply(p, valid(batch, batch.s_t)) for p in (params, target_params))
    errors = valid(batch, jnp.sum(jnp.square(x - y), axis=-1))
    update = rlaxlib.reward_scale(epsilon=0.0, axis_name="b").update
    scale, state = jax.vmap(update, axis_name="b")(
        state, errors, jnp.full_like(errors, discount), sample_mask=batch.sample_mask
    )
    return jax.lax.stop_gradient(errors / scale[:, None]), state


def novelty(batch, discount):
    """Return streams of intrinsic rewards, whose returns go on over all ends."""
    discount_t = jnp.full_like(batch.r_t, discount)
    batch = batch._replace(r_t=batch.intrinsic_r_t, discount_t=discount_t)
    v_tm1, v_t = batch.intrinsic_v_tm1, batch.intrinsic_v_t
    return batch._replace(v_tm1=v_tm1, v_t=v_t, truncated_t=None)


def rnd_ppo(
    params,
    apply,
    batch,
    epsilon=0.1,
    entropy_cost=1e-3,
    scales=(2.0, 1.0),
    discount=0.99,
):
    """RND, PPO: two value functions, of episodes and of the rewards of novelty.

    Added to `rnd`. `apply` returns logits and both values. The batch has the rewards of
    `rnd_rewards`, `intrinsic_r_t`, [B, T], and their values when the policy acted,
    `intrinsic_v_tm1` and `intrinsic_v_t`, [B, T], whose returns go on over the ends of
    episodes: after an end `intrinsic_v_t` is the value of the first observation of the
    next. Burda et al., 2018, https://arxiv.org/abs/1810.12894. Source:
    github.com/openai/random-network-distillation@f75c0f1, ppo_agent.py, the same loss.
    Usual: streams of 128 steps, 32 environments, coefficients 2 and 1 of the extrinsic
    and the intrinsic advantages, λ 0.95, intrinsic discount 0.99, extrinsic 0.999 in
    the paper and by default 0.99 in the code, 4 epochs of 4 minibatches, Adam 1e-4.
    """
    (adv_t, target), (intrinsic_adv_t, intrinsic_target) = (
        advantages(x, lambda_=0.95) for x in (batch, novelty(batch, discount))
    )
    logits, v, intrinsic_v = apply(params, valid(batch, batch.s_tm1))
    ratios = (log_probs(x, batch.a_tm1) for x in (logits, batch.logits_tm1))
    adv_t, mask = scales[0] * adv_t + scales[1] * intrinsic_adv_t, batch.sample_mask
    surrogate = jax.vmap(rlaxlib.ppo_clip_loss, (0, 0, 0, None))
    policy_loss, _ = surrogate(*ratios, adv_t, epsilon, sample_mask=mask)
    loss = rlaxlib.masked_mean(policy_loss, mask=mask) + value_loss(v, target, batch)
    loss = loss + value_loss(intrinsic_v, intrinsic_target, batch)
    return loss - entropy_cost * entropy(logits, batch)


def ngu_embedding(params, apply, batch):
    """NGU, embedding: the action is predicted from both observations.

    `apply.embedding` returns vectors, `apply.inverse` takes two and returns logits.
    Badia et al., 2020, https://arxiv.org/abs/2002.06038. Source:
    github.com/michaelnny/deep_rl_zoo@19e3844, deep_rl_zoo/ngu/agent.py, by others, the
    same loss, of the last 5 steps of each sequence, where it is their sum. Usual
    (paper, appendix; optimizer: the code): 32 dimensions, Adam 5e-4.
    """
    x_tm1, x_t = (apply.embedding(params, s) for s in (batch.s_tm1, batch.s_t))
    logits = apply.inverse(params, x_tm1, x_t)
    return -jnp.mean(log_probs(logits, batch.a_tm1))


def ngu_rewards(embeddings, errors, memory, moments, sample_mask=None):
    """NGU, rewards of one stream: episodic novelty times that of RND.

    A stream lies within one episode, and `memory` is emptied before the next: the first
    step, without neighbours, has an episodic novelty of 1000. Each embedding is
    remembered before the next one is compared. `errors` are those of `rnd`, [T], and
    `moments` their mean and standard deviation. Badia et al., 2020,
    https://arxiv.org/abs/2002.06038. Source: github.com/michaelnny/deep_rl_zoo@19e3844,
    deep_rl_zoo/curiosity.py, by others, the same rewards, but for the first 10 of an
    episode, which are 0 there, and means of distances, which are of every tenth step
    and of all episodes. It divides errors by their standard deviation and subtracts no
    mean: so does this, with the deviation as both moments. Usual (paper, appendix; the
    code): 10 neighbours, a memory of 30,000 embeddings.
    """

    def step(memory, inputs):
        x, is_valid = inputs
        novelty, after = rlaxlib.episodic_memory_intrinsic_rewards(
            x[None], 10, 1.0, memory, max_memory_size=len(memory.memory)
        )
        return rlaxlib.tree_select(is_valid, after, memory), novelty[0]

    mask = jnp.ones(len(errors), bool) if sample_mask is None else sample_mask
    memory, episodic = jax.lax.scan(step, memory, (embeddings, mask))
    modulation = 1 + (errors - moments[0]) / moments[1]
    rewards = episodic * jnp.clip(modulation, 1, 5)
    return jnp.where(mask, rewards, 0), memory


def ngu(params, target_params, apply, batch, beta=0.3, lambda_=0.95):
    """NGU: Retrace of rescaled values of extrinsic plus intrinsic rewards.

    On streams, `apply` returns q, [B, T, A], and the batch has `intrinsic_r_t`, [B, T].
    The target policy is greedy, so that the trace is λ after a greedy action and 0
    after others, whoever acted. Badia et al., 2020, https://arxiv.org/abs/2002.06038.
    Source: github.com/michaelnny/deep_rl_zoo@19e3844, deep_rl_zoo/ngu/agent.py, by
    others, with a softmax of the target values as target policy and a sum over time,
    where this is a mean (a cosine of 0.93 at random inputs). Usual (paper, appendix;
    the code): 32 values of `beta` from 0 to 0.3, λ 0.95, discounts 0.99 to 0.997, Adam
    1e-4, target network copied every 1,500 updates, 1,000 in the code, otherwise those
    of R2D2.
    """
    s_tm1, s_t = valid(batch, (batch.s_tm1, batch.s_t))
    q_tm1, q_t = apply(params, s_tm1), apply(params, s_t)
    pi_t = jax.nn.one_hot(jnp.argmax(q_t, axis=-1), q_t.shape[-1])
    batch = batch._replace(r_t=batch.r_t + beta * batch.intrinsic_r_t)
    target_q, tx_pair = apply(target_params, s_t), rlaxlib.SIGNED_HYPERBOLIC_PAIR
    greedy = q_tm1, target_q, pi_t, jnp.ones(batch.r_t.shape)
    errors = retrace_errors(*greedy, batch, lambda_, tx_pair)
    return rlaxlib.masked_mean(rlaxlib.l2_loss(errors), mask=batch.sample_mask)


def icm(params, apply, batch, scale=0.01):
    """ICM: losses of a forward and an inverse model in the space of features.

    Returns the loss and the rewards, [B]: use `has_aux=True`. `apply.features`,
    `apply.forward` and `apply.inverse` return features, the predicted next ones, and
    logits. Pathak et al., 2017, https://arxiv.org/abs/1705.05363. Source:
    github.com/pathak22/noreward-rl@3e220c2, src/model.py, the same losses: its mean
    over 288 features times 144 is this sum with ½. Usual: weight of the forward model
    0.2, reward scale 0.01, Adam 1e-4 with this loss scaled by 10; the paper says 1e-3.
    There the gradient of the next features is not stopped (a cosine of 0.99 at random
    inputs).
    """
    x_tm1, x_t = (apply.features(params, s) for s in (batch.s_tm1, batch.s_t))
    predicted = apply.forward(params, x_tm1, batch.a_tm1)
    logits = apply.inverse(params, x_tm1, x_t)
    icm_loss = jax.vmap(partial(rlaxlib.icm_loss, reward_scale=scale))
    loss, outputs = icm_loss(predicted, x_t, logits, batch.a_tm1)
    return jnp.mean(loss), outputs.reward


def bootstrapped_dqn(params, target_params, apply, batch):
    """Bootstrapped DQN: each of K heads learns from its own part of the data.

    `apply.torso` returns features, `apply.heads` q of them, [B, K, A]. `head_mask`, [B,
    K], was sampled by `jax.random.bernoulli` as each transition was stored. Osband et
    al., 2016, https://arxiv.org/abs/1602.04621. Source:
    github.com/google-deepmind/bsuite@effafc0, bsuite/baselines/jax/boot_dqn/agent.py:
    squares without ½, twice these, of K whole networks, with noise on rewards; the
    shared torso, with 1/K of the gradient, is the paper's. Usual: K = 20, with prior
    networks, mask probability 0.5, Adam 1e-3, batch 128, target network copied every 4
    updates; github.com/iassael/torch-bootstrapped-dqn has K = 10.
    """
    features = apply.torso(params, batch.s_tm1)
    heads = batch.head_mask.shape[-1]
    q_tm1 = apply.heads(params, optax.scale_gradient(features, 1 / heads))
    q_t = apply.heads(target_params, apply.torso(target_params, batch.s_t))
    td_errors = jax.vmap(rlaxlib.bootstrapped_q_learning)(
        q_tm1, batch.a_tm1, batch.r_t, batch.discount_t, q_t, batch.head_mask
    )
    return jnp.mean(jnp.sum(rlaxlib.l2_loss(td_errors), axis=-1))
