"""Losses of flow and diffusion policies: FQL, Q-chunking, diffusion policies, IDQL.

And Diffusion-QL and QSM; FPO, Flow-GRPO, DiffusionNFT and DPPO on-policy.
`apply(params, s, x, t)` returns the velocity or the noise of an action `x`, [B, D], at
time or step `t`, [B]. A batch of B transitions has the fields

    s_tm1    observations, [B, ...],
    a_tm1    actions in [-1, 1], [B, D].

A loss of critics has those of `offline.py` too. A batch of streams is that of
`value_based.py`, which must be in the same package.
"""

import jax
import jax.numpy as jnp

import rlaxlib

from .value_based import n_step_batch, valid  # noqa: TID252 - Any package.

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
    return jnp.mean(jnp.sum(jnp.square(prediction - velocity), axis=-1))


def flow_action(params, apply, s, noise, num_steps=10):
    """Return actions of a flow policy, from noise, by Euler's method."""

    def step(x, t):
        return x + apply(params, s, x, jnp.full(len(x), t)) / num_steps, None

    return jax.lax.scan(step, noise, jnp.arange(num_steps) / num_steps)[0]


def td_errors(params, target_params, apply, batch, a_t, take_min=False):
    """Return the errors of critics, [B, N], for one target: their mean or minimum."""
    q_t = apply(target_params, batch.s_t, a_t)
    v_t = jnp.min(q_t, axis=-1) if take_min else jnp.mean(q_t, axis=-1)
    target = jax.lax.stop_gradient(batch.r_t + batch.discount_t * v_t)
    return apply(params, batch.s_tm1, batch.a_tm1) - target[:, None]


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
    inputs = params, target_params, apply, batch, a_t, take_min
    return jnp.mean(jnp.square(td_errors(*inputs)))


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
    loss = jnp.mean(jnp.square(a - jax.lax.stop_gradient(target)), axis=-1)
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


def flow_sde_steps(params, apply, batch, noise_level=0.7):
    """Return mean and stddev of all steps of a batch, and their log-densities, [K, B].

    A log-density is a mean over the dimensions of actions, as in the code.
    """

    def step(x, next_x, t, next_t):
        velocity = apply(params, batch.s_tm1, x, jnp.full(len(x), t))
        step = jax.vmap(rlaxlib.flow_sde_step, (0, 0, None, None, None))
        mean, stddev = step(x, velocity, t, next_t, noise_level)
        log_prob = jax.vmap(rlaxlib.gaussian_diagonal().logprob)(next_x, mean, stddev)
        return mean, stddev, log_prob / mean.shape[-1]

    x, times = batch.x, batch.times
    return jax.vmap(step)(x[:-1], x[1:], times[:-1], times[1:])


def flow_grpo(
    params,
    ref_params,
    apply,
    batch,
    adv_t,
    noise_level=0.7,
    epsilon=1e-4,
    kl_cost=0.04,
    max_adv=5.0,
):
    """Flow-GRPO: each step of a flow with noise is an action of GRPO.

    The batch has the points of all steps, `x`, [K+1, B, D], their times from 0 to 1,
    `times`, [K+1], and the log-densities of `flow_sde_steps` when they were sampled,
    `old_log_prob`, [K, B]. `adv_t` are those of `group_advantages`. Liu et al., 2025,
    https://arxiv.org/abs/2505.05470. Source: github.com/yifan123/flow_grpo@ac4c86e,
    scripts/train_sd3.py and flow_grpo/diffusers_patch/sd3_sde_with_logprob.py, the same
    loss, whose KL lacks a division by the time of a step. Usual: 10 steps of which the
    last is left out, 24 actions of each of 48 states, the standard deviation of the
    whole batch, clip 1e-4 for images, KL cost 0.04, 0.01 for PickScore, AdamW 3e-4.
    """
    mean, stddev, log_prob = flow_sde_steps(params, apply, batch, noise_level)
    reference = flow_sde_steps(ref_params, apply, batch, noise_level)[0]
    surrogate = jax.vmap(rlaxlib.ppo_clip_loss, (0, 0, None, None))
    adv_t = jnp.clip(adv_t, -max_adv, max_adv)
    loss, _ = surrogate(log_prob, batch.old_log_prob, adv_t, epsilon)
    change = jnp.square(mean - jax.lax.stop_gradient(reference))
    variance = stddev**2 / jnp.diff(batch.times)[:, None]
    kl = jnp.mean(change, axis=-1) / (2 * variance)
    return jnp.mean(loss + kl_cost * kl)


def diffusion_nft(
    params, old_params, apply, batch, key, adv_t, beta=1.0, max_adv=5.0, least=1e-5
):
    """DiffusionNFT: flow matching of good actions, and of bad ones with turned sign.

    `old_params` are those of the policy that acted, or an average of past ones, and
    `adv_t` those of `group_advantages`. Zheng et al., 2025,
    https://arxiv.org/abs/2509.16117. Source: github.com/NVlabs/DiffusionNFT@24af555,
    scripts/train_nft_sd3.py, the same loss, but for the times, those of the sampler's
    steps there, and for 1e-4 times the squared distance from the first network's
    velocities. Usual: beta 1 or 0.1, groups of 24, AdamW 3e-4, `old_params` averaged
    with a decay that rises from 0 to 0.5, or later to 0.999.
    """
    keys = jax.random.split(key, len(batch.a_tm1))
    x, t, _ = jax.vmap(rlaxlib.flow_matching_sample)(keys, batch.a_tm1)
    new = apply(params, batch.s_tm1, x, t)
    old = jax.lax.stop_gradient(apply(old_params, batch.s_tm1, x, t))

    def loss(velocity):
        error = x + (1 - t)[:, None] * velocity - batch.a_tm1
        size = jnp.maximum(jnp.mean(jnp.abs(error), axis=-1), least)
        return jnp.mean(jnp.square(error), axis=-1) / jax.lax.stop_gradient(size)

    positive, negative = (loss(old + sign * beta * (new - old)) for sign in (1, -1))
    share = jnp.clip(adv_t / max_adv, -1, 1) / 2 + 0.5
    return jnp.mean(share * positive + (1 - share) * negative) * max_adv / beta


# --- Q-chunking: an action is a chunk of h actions, of h·D dimensions. ---


def chunks(streams):
    """Return streams of h steps as transitions, whose action is that of all steps.

    Steps after the end of an episode are ignored, and those after padding.
    """
    cut = False if streams.truncated_t is None else streams.truncated_t
    ended = ((streams.discount_t == 0) | cut).astype(int)
    mask = jnp.cumsum(ended, axis=1) - ended == 0
    if streams.sample_mask is not None:
        mask &= jnp.cumprod(streams.sample_mask, axis=1) == 1
    a_tm1 = valid(streams, streams.a_tm1).reshape(len(ended), -1)
    return n_step_batch(streams)._replace(a_tm1=a_tm1, sample_mask=mask)


def qc_flow(params, apply, batch, key):
    """QC and QC-FQL, behaviour policy: flow matching of chunks, up to the end.

    The batch is that of `chunks`. Li et al., 2025, https://arxiv.org/abs/2507.07969.
    Source: github.com/ColinQiyangLi/qc@48283b4, agents/acfql.py, the same loss. Usual:
    chunks of 5 actions, 10 steps of Euler's method, Adam 3e-4, batch 256.
    """
    keys = jax.random.split(key, len(batch.a_tm1))
    x, t, velocity = jax.vmap(rlaxlib.flow_matching_sample)(keys, batch.a_tm1)
    shape = *batch.sample_mask.shape, -1
    errors = (apply(params, batch.s_tm1, x, t) - velocity).reshape(shape)
    valid_errors = jnp.where(batch.sample_mask[..., None], errors, 0)
    return jnp.mean(jnp.square(valid_errors))


def qc_actions(params, apply, s, key, size, critic, num_samples=32):
    """QC: return the best of N chunks of the behaviour policy, [B, h·D].

    `critic(s, a)` returns the mean of the online critics, [B].
    """
    noise = jax.random.normal(key, (num_samples, len(s), size))
    a = jax.vmap(flow_action, (None, None, None, 0))(params, apply, s, noise)
    a = jnp.clip(a, -1, 1)
    return jax.vmap(idql_action, 1)(jax.vmap(critic, (None, 0))(s, a), a)


def qc_critic(params, target_params, apply, batch, key, actor, take_min=False):
    """QC and QC-FQL, critics: TD learning of chunks, with the rewards of all steps.

    The batch is that of `chunks`; a chunk that an end cuts short is left out.
    `apply(params, s, a)` returns the values of two critics, [B, 2], and `actor(s, key)`
    chunks within [-1, 1]: `qc_actions` for QC, the one-step policy of `fql_actor` for
    QC-FQL, whose weight is 100. Li et al., 2025, https://arxiv.org/abs/2507.07969.
    Source: github.com/ColinQiyangLi/qc@48283b4, agents/acfql.py, the same loss. Usual:
    chunks of 5 actions, 32 samples, the mean of two critics, discount 0.99, LayerNorm,
    Adam 3e-4, batch 256, target critics updated at a rate of 0.005.
    """
    a_t = actor(batch.s_t, key)
    errors = td_errors(params, target_params, apply, batch, a_t, take_min)
    return jnp.mean(jnp.where(batch.sample_mask[:, -1:], jnp.square(errors), 0.0))


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


def diffusion_ql_critic(params, target_params, apply, batch, key, actor):
    """Diffusion-QL, critics: TD learning at actions of the diffusion policy.

    `apply(params, s, a)` returns the values of two critics, [B, 2], and `actor(s, key)`
    actions of the policy's average parameters, by `diffusion_action`. Wang et al.,
    2022, https://arxiv.org/abs/2208.06193. Source:
    github.com/Zhendong-Wang/Diffusion-Policies-for-Offline-RL@d871f5c,
    agents/ql_diffusion.py, the same loss; for mazes each critic has the largest of 10
    actions there (max_q_backup). Usual: discount 0.99, Adam 3e-4, in the actor 3e-5 for
    Adroit and 1e-3 for the medium maze with play data, batch 256, gradients clipped to
    a norm of 1 to 10, target critics updated at a rate of 0.005, the average at one of
    0.005 every 5 updates.
    """
    a_t = actor(batch.s_t, key)
    errors = td_errors(params, target_params, apply, batch, a_t, take_min=True)
    return jnp.mean(jnp.sum(jnp.square(errors), axis=-1))


def diffusion_ql_actor(params, apply, batch, key, critic, eta=1.0, num_steps=5):
    """Diffusion-QL, actor: `diffusion_bc`, and the value of its actions.

    The gradient of one critic, taken at random, flows through all steps of the reverse
    process; the mean size of the other divides it. `critic(s, a)` returns both, [B, 2].
    Wang et al., 2022, https://arxiv.org/abs/2208.06193. Source:
    github.com/Zhendong-Wang/Diffusion-Policies-for-Offline-RL@d871f5c,
    agents/ql_diffusion.py, the same loss. Usual: 5 steps of `vp_noise_schedule`, eta 1
    for locomotion, 0.5 to 4.5 for mazes, 0.005 to 0.15 for Adroit and kitchen; acts by
    one of 50 samples, by a softmax of the smaller value.
    """
    bc_key, act_key, key = jax.random.split(key, 3)
    schedule = num_steps, vp_noise_schedule
    loss = diffusion_bc(params, apply, batch, bc_key, *schedule)
    inputs = params, apply, batch.s_tm1, act_key, batch.a_tm1.shape[-1]
    a = jnp.clip(diffusion_action(*inputs, *schedule), -1, 1)
    q = jax.random.permutation(key, critic(batch.s_tm1, a), axis=1)
    size = jax.lax.stop_gradient(jnp.mean(jnp.abs(q[:, 1])))
    return loss - eta * jnp.mean(q[:, 0]) / size


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
