"""Losses of flow and diffusion policies: FQL, diffusion policy, IDQL, QSM, FPO, DPPO.

`apply(params, s, x, t)` returns the velocity or the noise of an action `x`, [B, D], at
time or step `t`, [B]. A batch of B transitions has the fields

    s_tm1    observations, [B, ...],
    a_tm1    actions in [-1, 1], [B, D].
"""

import jax
import jax.numpy as jnp

import rlaxlib

# --- Flows. ---


def flow_bc(params, apply, batch, key):
    """Flow matching, behaviour cloning: velocities of paths from noise to actions.

    Park et al., 2025, https://arxiv.org/abs/2502.02538. Source:
    github.com/seohongpark/fql@719d044, agents/fql.py, where the loss is a mean over the
    D dimensions of actions: this one is D times as large. Divide it by D where it is
    added to other losses, as to `fql_actor`. Usual: 10 steps of Euler's method, Adam
    3e-4, batch 256.
    """
    keys = jax.random.split(key, len(batch.a_tm1))
    x, t, velocity = jax.vmap(rlaxlib.flow_matching_sample)(keys, batch.a_tm1)
    prediction = apply(params, batch.s_tm1, x, t)
    return jnp.mean(rlaxlib.flow_matching_loss(prediction, velocity))


def flow_action(params, apply, s, noise, num_steps=10):
    """Return actions of a flow policy, from noise, by Euler's method."""

    def step(x, t):
        return x + apply(params, s, x, jnp.full(len(x), t)) / num_steps, None

    return jax.lax.scan(step, noise, jnp.arange(num_steps) / num_steps)[0]


def fql_critic(params, target_params, apply, batch, key, actor, take_min=False):
    """FQL, critics: one-step TD learning at the actions of the one-step policy.

    `apply(params, s, a)` returns the values of two critics, [B, 2]. `actor(s, noise)`
    is the policy of `fql_actor`; the batch has `s_t`, `r_t` and `discount_t` too. The
    target is the mean of the target critics, or their minimum. Park et al., 2025,
    https://arxiv.org/abs/2502.02538. Source: github.com/seohongpark/fql@719d044,
    agents/fql.py, the same loss. Usual: two critics, their minimum for some tasks of
    antmaze and D4RL, LayerNorm, target critics updated at a rate of 0.005.
    """
    noise = jax.random.normal(key, batch.a_tm1.shape)
    a_t = jnp.clip(actor(batch.s_t, noise), -1, 1)
    q_t = apply(target_params, batch.s_t, a_t)
    v_t = jnp.min(q_t, axis=-1) if take_min else jnp.mean(q_t, axis=-1)
    target = jax.lax.stop_gradient(batch.r_t + batch.discount_t * v_t)
    q_tm1 = apply(params, batch.s_tm1, batch.a_tm1)
    return jnp.mean(jnp.square(q_tm1 - target[:, None]))


def fql_actor(params, flow_params, apply, batch, key, actor, critic, weight=10.0):
    """FQL, actor: a one-step policy learns the flow's actions, and to raise q.

    `actor(params, s, noise)` returns actions, `critic(s, a)` the mean of the online
    critics, [B], whose minimum the critics' targets may have. Park et al., 2025,
    https://arxiv.org/abs/2502.02538. Source: github.com/seohongpark/fql@719d044,
    agents/fql.py, the same loss; there `flow_bc`, as a mean over the dimensions of
    actions, is added to it, and one Adam learns all. Usual: weight 10 to 1,000 by task,
    or 0.03 to 10 if q is divided by its mean size, discount 0.99 to 0.995, Adam 3e-4,
    batch 256.
    """
    noise = jax.random.normal(key, batch.a_tm1.shape)
    target = jnp.clip(flow_action(flow_params, apply, batch.s_tm1, noise), -1, 1)
    a = actor(params, batch.s_tm1, noise)
    loss = rlaxlib.flow_matching_loss(a, target) / a.shape[-1]
    q = critic(batch.s_tm1, jnp.clip(a, -1, 1))
    return jnp.mean(weight * loss - q)


def fpo_losses(params, apply, batch, key, num_samples=8, num_steps=10):
    """FPO: return the loss that stands for minus the log-probability of an action, [B].

    It is the error of the noise, t times that of the velocity: a mean over the
    dimensions of actions and over several samples. Times are those of the sampler's
    steps, 0, 1/10, ..., as in the code; the paper has them uniform in [0, 1].
    """

    def one(key):
        noise_key, key = jax.random.split(key)
        noise = jax.random.normal(noise_key, batch.a_tm1.shape)
        t = jax.random.randint(key, (len(noise), 1), 0, num_steps) / num_steps
        x, velocity = (1 - t) * noise + t * batch.a_tm1, batch.a_tm1 - noise
        error = t * (apply(params, batch.s_tm1, x, t[:, 0]) - velocity)
        return jnp.mean(jnp.square(error), axis=-1)

    return jnp.mean(jax.vmap(one)(jax.random.split(key, num_samples)), axis=0)


def fpo(params, apply, batch, key, adv_t, old_losses, epsilon=0.05):
    """FPO: PPO, where the loss of flow matching stands for minus a log-probability.

    `old_losses` are the `fpo_losses` of the old parameters, with the same key.
    McAllister et al., 2025, https://arxiv.org/abs/2507.21053. Source:
    github.com/akanazawa/fpo@418c255, playground/src/flow_policy/fpo.py, the same loss
    for standardised advantages, which `adv_t` are. Usual: 8 samples for each action,
    whose losses are averaged before the ratio, clip 0.05, flows of 10 steps, value loss
    0.25, discount 0.995, λ 0.95, 16 epochs of 32 minibatches, Adam 3e-4.
    """
    losses = fpo_losses(params, apply, batch, key)
    loss, _ = rlaxlib.ppo_clip_loss(-losses, -old_losses, adv_t, epsilon)
    return jnp.mean(loss)


# --- Diffusion. ---


def diffusion_bc(
    params,
    apply,
    batch,
    key,
    num_steps=100,
    schedule=rlaxlib.cosine_noise_schedule,
):
    """Diffusion policy: behaviour cloning by the prediction of noise.

    DDPM has `linear_noise_schedule`, for 1,000 steps, IDQL `vp_noise_schedule`. Chi et
    al., 2023, https://arxiv.org/abs/2303.04137. Source:
    github.com/real-stanford/diffusion_policy@5ba07ac,
    diffusion_policy/policy/diffusion_unet_lowdim_policy.py, the same loss. Usual: 100
    steps of the cosine schedule, actions of 16 steps at once, of which 8 are taken,
    AdamW 1e-4, batch 256, a moving average of the parameters.
    """
    step_key, key = jax.random.split(key)
    k = jax.random.randint(step_key, batch.a_tm1.shape[:1], 0, num_steps)
    keys, shares = jax.random.split(key, len(k)), schedule(num_steps)[k]
    x, noise = jax.vmap(rlaxlib.diffusion_noise)(keys, batch.a_tm1, shares)
    error = apply(params, batch.s_tm1, x, k) - noise
    return jnp.mean(jnp.square(error))


def vp_noise_schedule(num_steps):
    """Return the shares of the signal of a variance-preserving schedule, for few steps.

    Source: github.com/Alescontrela/score_matching_rl@2e77893,
    jaxrl5/networks/diffusion.py.
    """
    u = jnp.arange(1, num_steps + 1) / num_steps
    return jnp.exp(-0.1 * u - (10 - 0.1) / 2 * u**2)


def diffusion_action(
    params,
    apply,
    s,
    key,
    num_dims,
    num_steps=100,
    schedule=rlaxlib.cosine_noise_schedule,
):
    """Return actions of a diffusion policy, in [-1, 1]."""
    shares = schedule(num_steps)
    later = jnp.append(1.0, shares[:-1])

    def step(x, inputs):
        k, key = inputs
        prediction = apply(params, s, x, jnp.full(len(x), k))
        reverse = jax.vmap(rlaxlib.diffusion_reverse_step, (0, 0, 0) + (None,) * 4)
        keys = jax.random.split(key, len(x))
        x = reverse(keys, x, prediction, shares[k], later[k], "noise", 1.0)
        return x, None

    start_key, key = jax.random.split(key)
    start = jax.random.normal(start_key, (len(s), num_dims))
    inputs = jnp.arange(num_steps)[::-1], jax.random.split(key, num_steps)
    return jax.lax.scan(step, start, inputs)[0]


def score_action(params, apply, s, key, num_dims, num_steps=5):
    """Return actions of IDQL and QSM, in [-1, 1], which are clipped after each step.

    Unlike those of `diffusion_action`, the noise of a step has the variance of the
    forward step. Source: github.com/philippe-eecs/IDQL@7582571,
    jaxrl5/networks/diffusion.py: ddpm_sampler, by `vp_noise_schedule`.
    """
    shares = vp_noise_schedule(num_steps)
    alphas = shares / jnp.append(1.0, shares[:-1])

    def step(x, inputs):
        k, noise = inputs
        prediction, beta = apply(params, s, x, jnp.full(len(x), k)), 1 - alphas[k]
        x = (x - beta / jnp.sqrt(1 - shares[k]) * prediction) / jnp.sqrt(alphas[k])
        return jnp.clip(x + jnp.sqrt(beta) * noise, -1, 1), None

    noise = jax.random.normal(key, (num_steps + 1, len(s), num_dims))
    noise = noise.at[-1].set(0.0)  # The last step adds none.
    return jax.lax.scan(step, noise[0], (jnp.arange(num_steps)[::-1], noise[1:]))[0]


def idql_action(q_samples, a_samples):
    """IDQL: the best of N actions of a diffusion policy, that of the highest value.

    The policy is `score_action` after `diffusion_bc` with `vp_noise_schedule`, whose
    loss is here a mean over the D dimensions, not a sum. Values are the smaller of
    IQL's two target critics. Hansen-Estruch et al., 2023,
    https://arxiv.org/abs/2304.10573. Source: github.com/philippe-eecs/IDQL@7582571,
    jaxrl5/agents/ddpm_iql/ddpm_iql_learner.py: eval_actions, the same action. Usual: 64
    samples, 5 steps, expectile 0.7, Adam 3e-4 annealed to 0, batch 512, parameters
    averaged at a rate of 0.001.
    """
    return a_samples[jnp.argmax(q_samples)]


def qsm(params, apply, batch, key, critic, scale=50.0, num_steps=5):
    """QSM: the noise to remove is minus the gradient of q with respect to the action.

    `critic(s, a)` returns values, [B]: the mean of two, not of targets. `scale` is M_q
    in the code and α in the paper. The true noise of a score is √(1-ᾱ) times minus the
    score; code and paper leave this factor out, so that the last steps, of little
    noise, are greedier. Psenka et al., 2023, https://arxiv.org/abs/2312.11752. Source:
    github.com/Alescontrela/score_matching_rl@2e77893,
    jaxrl5/agents/score_matching/score_matching_learner.py: a mean over the D dimensions
    of actions without ½; this one is D/2 times as large. Usual: scale 50, or 120 for
    difficult tasks, 5 steps, `score_action`, discount 0.99, Adam 3e-4, TD learning at
    actions of the policy with further noise of 0.1, by the smaller target critic.
    """
    step_key, key = jax.random.split(key)
    k = jax.random.randint(step_key, batch.a_tm1.shape[:1], 0, num_steps)
    keys = jax.random.split(key, len(k))
    share = vp_noise_schedule(num_steps)[k]
    x, _ = jax.vmap(rlaxlib.diffusion_noise)(keys, batch.a_tm1, share)
    target = -scale * jax.grad(lambda x: jnp.sum(critic(batch.s_tm1, x)))(x)
    error = apply(params, batch.s_tm1, x, k) - jax.lax.stop_gradient(target)
    return jnp.mean(jnp.sum(rlaxlib.l2_loss(error), axis=-1))


def diffusion_ppo(
    params,
    apply,
    batch,
    adv_t,
    stddev=0.1,
    epsilon=0.01,
    first_epsilon=0.001,
    denoising_discount=0.99,
):
    """DPPO, diffusion PPO: each step of the reverse process is an action of PPO.

    The batch has the samples of all steps, `x`, [K+1, B, D], and the log-densities of
    each dimension, `old_log_prob`, [K, B, D]. `apply(params, s, x, k)` returns the mean
    of the next sample. As in the code, the log-density of a step is a mean over the
    dimensions, each within [-5, 2]; early steps have smaller advantages, by
    `denoising_discount`, γ_denoising, and the clip grows from `first_epsilon`,
    clip_ploss_coef_base, to `epsilon`, clip_ploss_coef. The paper's ratio is that of
    the densities. Ren et al., 2024, https://arxiv.org/abs/2409.00588. Source:
    github.com/irom-princeton/dppo@cc7234a, model/diffusion/diffusion_ppo.py, the same
    loss for all steps of a batch, which it samples. Usual: the last 10 of 20 steps,
    stddev at least 0.1, clips 0.001 and 0.01, both 0.01 in Gym, discount 0.9 to 1,
    value loss 0.5, 5 to 10 epochs, Adam 1e-4.
    """
    last = len(batch.x) - 2
    steps = jnp.arange(last + 1)
    mean = jax.vmap(apply, (None, None, 0, 0))(params, batch.s_tm1, batch.x[:-1], steps)
    log_prob = rlaxlib.gaussian_diagonal(stddev).logprob(
        batch.x[1:, ..., None], mean[..., None]
    )
    inputs = (
        jnp.mean(jnp.clip(x, -5.0, 2.0), axis=-1)
        for x in (log_prob, batch.old_log_prob)
    )
    adv_t = rlaxlib.standardize(jnp.tile(adv_t, (last + 1, 1)), ddof=1)
    adv_t = adv_t * denoising_discount ** (last - steps)[:, None]
    growth = jnp.expm1(3 * steps / max(last, 1)) / jnp.expm1(3.0)
    epsilons = first_epsilon + (epsilon - first_epsilon) * growth
    return jnp.mean(jax.vmap(rlaxlib.ppo_clip_loss)(*inputs, adv_t, epsilons)[0])
