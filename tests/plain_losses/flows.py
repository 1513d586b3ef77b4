"""Losses of `recipes/flows.py` as their authors' code has them: files at each loss."""

import jax
import jax.numpy as jnp
import numpy as np
from recipes import flows as recipes

from plain_losses.common import (
    ACTION,
    GAMMA,
    KEY,
    B,
    Case,
    D,
    F,
    cases,
    given,
    make_batch,
    normal,
    of,
    seed,
    stop,
)

seed(__name__)


OBSERVATIONS, ACTIONS = ACTION.s_tm1, ACTION.a_tm1
K = 3
ADV = normal(B)
CHAIN = ACTION._replace(x=normal(K + 1, B, D), old_log_prob=normal(K, B, D))
PARAMS = tuple(0.5 * normal(F + D + 1, D) for _ in range(2))
W_CRITIC = normal(F + D)


def field(w, s, x, t):
    time = jnp.broadcast_to(jnp.asarray(t, jnp.float32) / 10, s.shape[:1])
    return jnp.tanh(jnp.concatenate([s, x, time[:, None]], axis=-1) @ w)


def actor(w, s, noise):
    return field(w, s, noise, 0)


def critic(s, a):
    return jnp.tanh(jnp.concatenate([s, a], axis=-1) @ W_CRITIC)


def two_critics(w, s, a):
    return jnp.tanh(jnp.concatenate([s, a], axis=-1) @ w)


# --- FQL. ---


def plain_flow_bc(p, t):
    """seohongpark/fql@719d044, agents/fql.py: bc_flow_loss of actor_loss."""
    keys = jax.vmap(jax.random.split)(jax.random.split(KEY, B))
    x_0 = jax.vmap(lambda key: jax.random.normal(key, (D,)))(keys[:, 0])
    t = jax.vmap(jax.random.uniform)(keys[:, 1])[:, None]
    x_1 = ACTIONS
    x_t = (1 - t) * x_0 + t * x_1
    vel = x_1 - x_0
    pred = field(p, OBSERVATIONS, x_t, t[:, 0])
    return jnp.mean((pred - vel) ** 2)


def plain_fql_critic(p, t):
    """seohongpark/fql@719d044, agents/fql.py: critic_loss, with "mean"."""
    noises = jax.random.normal(KEY, (B, D))
    next_actions = jnp.clip(actor(PARAMS[0], ACTION.s_t, noises), -1, 1)
    next_qs = two_critics(t, ACTION.s_t, next_actions).T
    next_q = jnp.mean(next_qs, axis=0)
    masks = 1.0 * (ACTION.discount_t > 0)
    target_q = ACTION.r_t + 0.9 * masks * next_q
    q = two_critics(p, OBSERVATIONS, ACTIONS).T
    return jnp.mean((q - target_q) ** 2)


def compute_flow_actions(w, noises):
    actions = noises
    for i in range(10):
        vels = field(w, OBSERVATIONS, actions, jnp.full(B, i / 10))
        actions = actions + vels / 10
    return jnp.clip(actions, -1, 1)


def plain_fql_actor(p, t):
    """seohongpark/fql@719d044, agents/fql.py: distill_loss and q_loss of actor_loss."""
    noises = jax.random.normal(KEY, (B, D))
    target_flow_actions = stop(compute_flow_actions(t, noises))
    actor_actions = actor(p, OBSERVATIONS, noises)
    distill_loss = jnp.mean((actor_actions - target_flow_actions) ** 2)
    actor_actions = jnp.clip(actor_actions, -1, 1)
    q_loss = -jnp.mean(critic(OBSERVATIONS, actor_actions))
    return 10.0 * distill_loss + q_loss


# --- FPO. ---


def compute_cfm_loss(p):
    """Return the losses of samples, [B, 8]; time is the share of the noise there."""
    keys = jax.vmap(jax.random.split)(jax.random.split(KEY, 8))
    t_current = jnp.linspace(1.0, 0.0, 10 + 1)[:-1]
    eps = jnp.stack([jax.random.normal(key, (B, D)) for key in keys[:, 0]], axis=1)
    index = [jax.random.randint(key, (B, 1), 0, 10) for key in keys[:, 1]]
    t = t_current[jnp.stack(index, axis=1)]
    x_t = t * eps + (1.0 - t) * ACTIONS[:, None]
    losses = []
    for i in range(8):
        # A network of the recipe returns the velocity to the data, at their share.
        velocity_pred = -field(p, OBSERVATIONS, x_t[:, i], 1.0 - t[:, i, 0])
        x0_pred = x_t[:, i] - t[:, i] * velocity_pred
        x1_pred = x0_pred + velocity_pred
        losses.append(jnp.mean((eps[:, i] - x1_pred) ** 2, axis=-1))
    return jnp.stack(losses, axis=-1)


INITIAL_CFM_LOSS = jax.jit(compute_cfm_loss)(PARAMS[0]) + 0.05 * normal(B, 8)


def plain_fpo(p, t):
    """akanazawa/fpo@418c255, playground/src/flow_policy/fpo.py: _compute_fpo_loss.

    The loss of the policy, with advantages that are normalised there.
    """
    cfm_loss = compute_cfm_loss(p)
    rho_s = jnp.exp(jnp.mean(INITIAL_CFM_LOSS, axis=-1) - jnp.mean(cfm_loss, axis=-1))
    surrogate_loss1 = rho_s * ADV
    surrogate_loss2 = jnp.clip(rho_s, 1 - 0.05, 1 + 0.05) * ADV
    return -jnp.mean(jnp.minimum(surrogate_loss1, surrogate_loss2))


# --- Diffusion policy, QSM. ---


def cosine_alphas_cumprod(num_steps):
    """Return those of "squaredcos_cap_v2" of the scheduler."""
    steps = np.arange(num_steps + 1) / num_steps
    alpha_bar = np.cos((steps + 0.008) / 1.008 * np.pi / 2) ** 2
    betas = np.minimum(1 - alpha_bar[1:] / alpha_bar[:-1], 0.999)
    return jnp.asarray(np.cumprod(1 - betas), jnp.float32)


def vp_beta_schedule(timesteps):
    """Return the variances of forward steps, as jaxrl5/networks/diffusion.py."""
    t = np.arange(1, timesteps + 1)
    b_max, b_min = 10.0, 0.1
    alpha = np.exp(
        -b_min / timesteps - 0.5 * (b_max - b_min) * (2 * t - 1) / timesteps**2
    )
    return 1 - alpha


def drawn(num_steps, key=KEY):
    """Return the steps and the noise of the actions."""
    time_key, key = jax.random.split(key)
    timesteps = jax.random.randint(time_key, (B,), 0, num_steps)
    keys = jax.random.split(key, B)
    return timesteps, jax.vmap(lambda key: jax.random.normal(key, (D,)))(keys)


def plain_diffusion_bc(p, t):
    """real-stanford/diffusion_policy@5ba07ac: compute_loss.

    diffusion_policy/policy/diffusion_unet_lowdim_policy.py, of whole actions, with the
    scheduler of its configurations.
    """
    timesteps, noise = drawn(100)
    alpha = cosine_alphas_cumprod(100)[timesteps][:, None]
    noisy_trajectory = jnp.sqrt(alpha) * ACTIONS + jnp.sqrt(1 - alpha) * noise
    pred = field(p, OBSERVATIONS, noisy_trajectory, timesteps)
    return jnp.mean(jnp.mean((pred - noise) ** 2, axis=-1))


def plain_qsm(p, t):
    """Alescontrela/score_matching_rl@2e77893: update_actor, with M_q = 50.

    jaxrl5/agents/score_matching/score_matching_learner.py
    """
    time, noise_sample = drawn(5)
    alpha_hats = jnp.cumprod(1 - vp_beta_schedule(5))[time]
    alpha_1, alpha_2 = jnp.sqrt(alpha_hats)[:, None], jnp.sqrt(1 - alpha_hats)[:, None]
    noisy_actions = alpha_1 * ACTIONS + alpha_2 * noise_sample
    critic_jacobian = jax.grad(lambda a: jnp.sum(critic(OBSERVATIONS, a)))(
        noisy_actions
    )
    eps_pred = field(p, OBSERVATIONS, noisy_actions, time)
    actor_loss = jnp.mean((-50 * stop(critic_jacobian) - eps_pred) ** 2, axis=-1)
    return jnp.mean(actor_loss)


# --- DPPO. ---


def get_logprobs(p, denoising_ind):
    """Return log-densities of the dimensions of one step, [B, D]."""
    next_mean = field(p, OBSERVATIONS, CHAIN.x[denoising_ind], denoising_ind)
    z = (CHAIN.x[denoising_ind + 1] - next_mean) / 0.1
    return -(z**2) / 2 - jnp.log(0.1) - jnp.log(2 * jnp.pi) / 2


def plain_diffusion_ppo(p, t):
    """irom-princeton/dppo@cc7234a, model/diffusion/diffusion_ppo.py: pg_loss of loss.

    With clip_ploss_coef 0.01 and gamma_denoising 0.99, for all steps of all actions.
    """
    denoising_inds = np.repeat(np.arange(K), B)
    newlogprobs = jnp.concatenate([get_logprobs(p, k) for k in range(K)])
    oldlogprobs = CHAIN.old_log_prob.reshape(K * B, D)
    newlogprobs = jnp.mean(jnp.clip(newlogprobs, -5, 2), axis=-1)
    oldlogprobs = jnp.mean(jnp.clip(oldlogprobs, -5, 2), axis=-1)
    advantages = jnp.tile(ADV, K)
    advantages = advantages - jnp.mean(advantages)
    advantages = advantages / (jnp.std(advantages, ddof=1) + 1e-8)
    advantages = advantages * 0.99 ** (K - denoising_inds - 1)
    ratio = jnp.exp(newlogprobs - oldlogprobs)
    t = denoising_inds / (K - 1)
    clip_ploss_coef = 0.001 + (0.01 - 0.001) * (np.exp(3 * t) - 1) / (np.exp(3) - 1)
    pg_loss1 = -advantages * ratio
    pg_loss2 = -advantages * jnp.clip(ratio, 1 - clip_ploss_coef, 1 + clip_ploss_coef)
    return jnp.mean(jnp.maximum(pg_loss1, pg_loss2))


# Samples near the means, so that ratios are near 1 as those of PPO; one is far.
@jax.jit
def sample_chain():
    CHAIN.x, CHAIN.old_log_prob = map(jnp.asarray, (CHAIN.x, CHAIN.old_log_prob))
    for step in range(K):
        mean = field(PARAMS[0], OBSERVATIONS, CHAIN.x[step], step)
        noise = normal(B, D)
        noise[0, 0] = 5.0
        CHAIN.x = CHAIN.x.at[step + 1].set(mean + 0.1 * noise)
        density = get_logprobs(PARAMS[0], step) + 0.05 * normal(B, D)
        CHAIN.old_log_prob = CHAIN.old_log_prob.at[step].set(density)
    return CHAIN.x, CHAIN.old_log_prob


CHAIN.x, CHAIN.old_log_prob = map(np.asarray, sample_chain())

CRITICS = tuple(normal(F + D, 2) for _ in range(2))


# --- Flow-GRPO and DiffusionNFT. ---

TIMES = np.array([0.0, 0.2, 0.5, 0.9], np.float32)
STEPS = ACTION._replace(x=normal(K + 1, B, D), times=TIMES)


def sde_step_with_logprob(w, k):
    """yifan123/flow_grpo@ac4c86e, flow_grpo/diffusers_patch/sd3_sde_with_logprob.py.

    Here `sigmas` fall from 1 to 0, and the model's output is the velocity to the noise.
    """
    sigmas = 1 - TIMES
    sigma, dt, sample = sigmas[k], sigmas[k + 1] - sigmas[k], STEPS.x[k]
    model_output = -field(w, OBSERVATIONS, sample, TIMES[k])
    bounded = sigmas[1] if sigma == 1 else sigma
    std = np.sqrt(sigma / (1 - bounded)) * 0.7
    mean = sample * (1 + std**2 / (2 * sigma) * dt)
    mean += model_output * (1 + std**2 * (1 - sigma) / (2 * sigma)) * dt
    scale = std * np.sqrt(-dt)
    log_prob = -((STEPS.x[k + 1] - mean) ** 2) / (2 * scale**2)
    log_prob += -np.log(scale) - np.log(np.sqrt(2 * np.pi))
    return jnp.mean(log_prob, axis=-1), mean, std


def plain_flow_grpo(p, t):
    """yifan123/flow_grpo@ac4c86e, scripts/train_sd3.py: policy_loss and kl_loss."""
    losses, advantages = [], jnp.clip(5 * ADV, -5, 5)
    for k in range(K):
        log_prob, mean, std = sde_step_with_logprob(p, k)
        _, mean_ref, _ = sde_step_with_logprob(t, k)
        ratio = jnp.exp(log_prob - STEPS.old_log_prob[k])
        unclipped_loss = -advantages * ratio
        clipped_loss = -advantages * jnp.clip(ratio, 1 - 1e-4, 1 + 1e-4)
        policy_loss = jnp.mean(jnp.maximum(unclipped_loss, clipped_loss))
        kl_loss = jnp.mean((mean - mean_ref) ** 2, axis=1) / (2 * std**2)
        losses.append(policy_loss + 0.04 * jnp.mean(kl_loss))
    return sum(losses) / K


# Next points near the means, as those of an SDE.
for step in range(K):
    _, mean, std = sde_step_with_logprob(PARAMS[0], step)
    STEPS.x[step + 1] = mean + 0.3 * std * normal(B, D)
STEPS.old_log_prob = np.stack(
    [sde_step_with_logprob(PARAMS[0], k)[0] + 1e-3 * normal(B) for k in range(K)]
)


def plain_diffusion_nft(p, t):
    """NVlabs/DiffusionNFT@24af555, scripts/train_nft_sd3.py: policy_loss, beta 0.1.

    Without `kl_div_loss`; `t` is the share of the noise.
    """
    keys = jax.vmap(jax.random.split)(jax.random.split(KEY, B))
    noise = jax.vmap(lambda key: jax.random.normal(key, (D,)))(keys[:, 0])
    time = jax.vmap(jax.random.uniform)(keys[:, 1])  # The share of the data.
    share = 1 - time[:, None]
    xt = (1 - share) * ACTIONS + share * noise
    forward_prediction, old_prediction = (
        -field(p, OBSERVATIONS, xt, time),
        -field(t, OBSERVATIONS, xt, time),
    )
    r = jnp.clip(jnp.clip(5 * ADV, -5, 5) / 5 / 2.0 + 0.5, 0, 1)
    positive = 0.1 * forward_prediction + (1 - 0.1) * stop(old_prediction)
    negative = (1.0 + 0.1) * stop(old_prediction) - 0.1 * forward_prediction

    def loss(prediction):
        x0_prediction = xt - share * prediction
        weight = stop(jnp.mean(jnp.abs(x0_prediction - ACTIONS), axis=1, keepdims=True))
        return jnp.mean((x0_prediction - ACTIONS) ** 2 / jnp.clip(weight, 1e-5), axis=1)

    ori_policy_loss = r * loss(positive) / 0.1 + (1.0 - r) * loss(negative) / 0.1
    return jnp.mean(ori_policy_loss * 5)


# --- Q-chunking. ---

H = 3
CHUNKS = make_batch((B, H), s_tm1=normal(B, H, F), s_t=normal(B, H, F))
CHUNKS.a_tm1 = np.tanh(normal(B, H, D))
IS_CUT, IS_END = np.zeros((B, H), bool), np.zeros((B, H), bool)
IS_CUT[0, 0] = IS_END[1, 1] = IS_END[2, 2] = True
CHUNKS.truncated_t = IS_CUT
CHUNKS.discount_t = np.where(IS_END, 0.0, GAMMA).astype(np.float32)
CHUNKS.sample_mask = None
FLOWS = tuple(0.5 * normal(F + H * D + 1, H * D) for _ in range(2))
CHUNK_CRITICS = tuple(normal(F + H * D, 2) for _ in range(2))


def sample_sequence():
    """ColinQiyangLi/qc@48283b4, utils/datasets.py: sample_sequence."""
    terminals, masks, valid = IS_CUT | IS_END, 1.0 - IS_END, np.ones((B, H))
    total, mask, ended = np.zeros(B), np.ones(B), np.zeros(B)
    for i in range(H):
        valid[:, i] = 1 - ended
        total = total + GAMMA**i * CHUNKS.r_t[:, i]
        mask = np.minimum(mask, masks[:, i])
        ended = np.maximum(ended, terminals[:, i])
    return total, mask, jnp.asarray(valid, jnp.float32)


def chunk_mean(s, a):
    return jnp.mean(two_critics(CHUNK_CRITICS[0], s, a), axis=-1)


def best_of_n(s, key):
    """ColinQiyangLi/qc@48283b4, agents/acfql.py: sample_actions, of 4 samples."""
    best = []
    noises = jax.random.normal(key, (4, B, H * D))
    for i in range(B):
        x = noises[:, i]
        observations = jnp.tile(s[i], (4, 1))
        for k in range(10):
            x = x + field(FLOWS[0], observations, x, k / 10) / 10
        x = jnp.clip(x, -1, 1)
        best.append(x[jnp.argmax(chunk_mean(observations, x))])
    return jnp.stack(best)


def qc_actor(s, key):
    return recipes.qc_actions(FLOWS[0], field, s, key, H * D, chunk_mean, 4)


def plain_qc_critic(p, t):
    """ColinQiyangLi/qc@48283b4, agents/acfql.py: critic_loss, "best-of-n"."""
    rewards, masks, valid = sample_sequence()
    s_t = CHUNKS.s_t[:, -1]
    next_q = jnp.mean(two_critics(t, s_t, best_of_n(s_t, KEY)), axis=-1)
    target_q = rewards + GAMMA**H * masks * next_q
    q = two_critics(p, CHUNKS.s_tm1[:, 0], CHUNKS.a_tm1.reshape(B, -1))
    return jnp.mean((q - stop(target_q)[:, None]) ** 2 * valid[:, -1:])


def plain_qc_flow(p, t):
    """ColinQiyangLi/qc@48283b4, agents/acfql.py: bc_flow_loss."""
    _, _, valid = sample_sequence()
    losses, keys = [], jax.random.split(KEY, B)
    for i, key in enumerate(keys):
        noise_key, time_key = jax.random.split(key)
        x_0, x_1 = jax.random.normal(noise_key, (H * D,)), CHUNKS.a_tm1[i].reshape(-1)
        time = jax.random.uniform(time_key)
        x_t = (1 - time) * x_0 + time * x_1
        pred = field(p, CHUNKS.s_tm1[i, :1], x_t[None], time)[0]
        squares = jnp.reshape((pred - (x_1 - x_0)) ** 2, (H, D))
        losses.append(jnp.mean(squares * valid[i][:, None]))
    return sum(losses) / B


# --- Diffusion-QL. ---


CUMPROD = np.cumprod(1 - vp_beta_schedule(5))


def reverse_process(w, s, key):
    """Zhendong-Wang/Diffusion-Policies-for-Offline-RL@d871f5c, agents/diffusion.py.

    Of 5 steps of the variance-preserving schedule.
    """
    start_key, key = jax.random.split(key)
    cumprod, prev = CUMPROD, np.append(1.0, CUMPROD[:-1])
    betas = 1 - cumprod / prev
    variance = betas * (1 - prev) / (1 - cumprod)
    x, keys = jax.random.normal(start_key, (B, D)), jax.random.split(key, 5)
    for i, step_key in zip(reversed(range(5)), keys, strict=True):
        noise = jnp.stack(
            [jax.random.normal(each, (D,)) for each in jax.random.split(step_key, B)]
        )
        x_recon = np.sqrt(1 / cumprod[i]) * x
        x_recon -= np.sqrt(1 / cumprod[i] - 1) * field(w, s, x, i)
        x_recon = jnp.clip(x_recon, -1, 1)
        mean = betas[i] * np.sqrt(prev[i]) / (1 - cumprod[i]) * x_recon
        mean += (1 - prev[i]) * np.sqrt(1 - betas[i]) / (1 - cumprod[i]) * x
        x = mean + (i > 0) * np.sqrt(variance[i]) * noise
    return jnp.clip(x, -1, 1)


def plain_diffusion_ql_critic(p, t):
    """Zhendong-Wang/Diffusion-Policies-for-Offline-RL@d871f5c, agents/ql_diffusion.py.

    critic_loss, without max_q_backup.
    """
    next_action = reverse_process(PARAMS[0], ACTION.s_t, KEY)
    target_q1, target_q2 = two_critics(t, ACTION.s_t, next_action).T
    target_q = ACTION.r_t + ACTION.discount_t * jnp.minimum(target_q1, target_q2)
    current_q1, current_q2 = two_critics(p, OBSERVATIONS, ACTIONS).T
    target_q = stop(target_q)
    return jnp.mean((current_q1 - target_q) ** 2 + (current_q2 - target_q) ** 2)


def fixed_critics(s, a):
    return two_critics(W_CRITICS, s, a)


def plain_diffusion_ql_actor(p, t):
    """Zhendong-Wang/Diffusion-Policies-for-Offline-RL@d871f5c, agents/ql_diffusion.py.

    actor_loss; which critic is the first is random.
    """
    bc_key, act_key, key = jax.random.split(KEY, 3)
    k, noise = drawn(5, bc_key)
    share = jnp.asarray(CUMPROD)[k][:, None]
    x = jnp.sqrt(share) * ACTIONS + jnp.sqrt(1 - share) * noise
    bc_loss = jnp.mean((field(p, OBSERVATIONS, x, k) - noise) ** 2)
    first, second = jax.random.permutation(key, jnp.arange(2))
    q = fixed_critics(OBSERVATIONS, reverse_process(p, OBSERVATIONS, act_key))
    return bc_loss - jnp.mean(q[:, first]) / stop(jnp.mean(jnp.abs(q[:, second])))


W_CRITICS = normal(F + D, 2)


CASES = cases(
    recipes,
    globals(),
    {
        "flow_bc": given(PARAMS, field, ACTION, KEY),
        "fql_actor": given(PARAMS, field, ACTION, KEY, actor, critic),
        "flow_grpo": given(PARAMS, field, STEPS, 5 * ADV),
        "diffusion_nft": given(PARAMS, field, ACTION, KEY, 5 * ADV, beta=0.1),
        "qc_flow": given(FLOWS, field, recipes.chunks(CHUNKS), KEY),
        "qc_critic": given(
            CHUNK_CRITICS, two_critics, recipes.chunks(CHUNKS), KEY, qc_actor
        ),
        "diffusion_ql_actor": given(PARAMS, field, ACTION, KEY, fixed_critics),
        "fpo": given(
            PARAMS, field, ACTION, KEY, ADV, np.mean(INITIAL_CFM_LOSS, axis=-1)
        ),
        "diffusion_bc": given(PARAMS, field, ACTION, KEY),
        "qsm": given(PARAMS, field, ACTION, KEY, critic),
        "diffusion_ppo": given(PARAMS, field, CHAIN, ADV),
    },
)
CASES |= {
    "fql_critic": Case(
        of(
            *(recipes.fql_critic, two_critics, ACTION, KEY),
            lambda s, noise: actor(PARAMS[0], s, noise),
        ),
        plain_fql_critic,
        CRITICS,
    ),
    "diffusion_ql_critic": Case(
        of(
            *(recipes.diffusion_ql_critic, two_critics, ACTION, KEY),
            lambda s, key: jnp.clip(
                recipes.diffusion_action(
                    PARAMS[0], field, s, key, D, 5, recipes.vp_noise_schedule
                ),
                -1,
                1,
            ),
        ),
        plain_diffusion_ql_critic,
        CRITICS,
    ),
}
