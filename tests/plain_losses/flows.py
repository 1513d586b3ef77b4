"""Losses of `recipes/flows.py` as their authors' code has them: files at each loss."""

import jax
import jax.numpy as jnp
import numpy as np
from recipes import flows as recipes

from plain_losses.common import ACTION, KEY, B, Case, D, F, normal, of, seed, stop

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


INITIAL_CFM_LOSS = compute_cfm_loss(PARAMS[0]) + 0.05 * normal(B, 8)


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


def drawn(num_steps):
    """Return the steps and the noise of the actions."""
    time_key, key = jax.random.split(KEY)
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
for step in range(K):
    mean = field(PARAMS[0], OBSERVATIONS, CHAIN.x[step], step)
    noise = normal(B, D).at[0, 0].set(5.0)
    CHAIN.x = CHAIN.x.at[step + 1].set(mean + 0.1 * noise)
    density = get_logprobs(PARAMS[0], step) + 0.05 * normal(B, D)
    CHAIN.old_log_prob = CHAIN.old_log_prob.at[step].set(density)

CRITICS = tuple(normal(F + D, 2) for _ in range(2))

CASES = {
    "flow_bc": Case(of(recipes.flow_bc, field, ACTION, KEY), plain_flow_bc, PARAMS),
    "fql_critic": Case(
        of(
            *(recipes.fql_critic, two_critics, ACTION, KEY),
            lambda s, noise: actor(PARAMS[0], s, noise),
        ),
        plain_fql_critic,
        CRITICS,
    ),
    "fql_actor": Case(
        of(recipes.fql_actor, field, ACTION, KEY, actor, critic),
        plain_fql_actor,
        PARAMS,
    ),
    "fpo": Case(
        of(recipes.fpo, field, ACTION, KEY, ADV, jnp.mean(INITIAL_CFM_LOSS, axis=-1)),
        plain_fpo,
        PARAMS,
    ),
    "diffusion_bc": Case(
        of(recipes.diffusion_bc, field, ACTION, KEY), plain_diffusion_bc, PARAMS
    ),
    "qsm": Case(of(recipes.qsm, field, ACTION, KEY, critic), plain_qsm, PARAMS),
    "diffusion_ppo": Case(
        of(recipes.diffusion_ppo, field, CHAIN, ADV), plain_diffusion_ppo, PARAMS
    ),
}
