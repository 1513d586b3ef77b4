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

    Park et al., 2025, https://arxiv.org/abs/2502.02538. Usual
    (github.com/seohongpark/fql): 10 steps of Euler's method, Adam 3e-4, batch 256.
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


def fql_actor(params, flow_params, apply, batch, key, actor, critic, weight=10.0):
    """FQL, actor: a one-step policy learns the flow's actions, and to raise q.

    `actor(params, s, noise)` returns actions, `critic(s, a)` values, [B]. Park et al.,
    2025, https://arxiv.org/abs/2502.02538. Usual (github.com/seohongpark/fql): weight
    10 to 1,000 by task, or 0.03 to 10 if q is divided by its mean size, discount 0.99
    to 0.995, Adam 3e-4, batch 256.
    """
    noise = jax.random.normal(key, batch.a_tm1.shape)
    target = jnp.clip(flow_action(flow_params, apply, batch.s_tm1, noise), -1, 1)
    a = actor(params, batch.s_tm1, noise)
    loss = rlaxlib.flow_matching_loss(a, target) / a.shape[-1]
    q = critic(batch.s_tm1, jnp.clip(a, -1, 1))
    return jnp.mean(weight * loss - q)


def fpo_losses(params, apply, batch, key, num_samples=8):
    """FPO: return the loss that stands for minus the log-probability of an action, [B].

    It is the error of the noise, t times that of the velocity: a mean over the
    dimensions of actions and over several samples.
    """

    def one(key):
        keys = jax.random.split(key, len(batch.a_tm1))
        x, t, velocity = jax.vmap(rlaxlib.flow_matching_sample)(keys, batch.a_tm1)
        error = t[:, None] * (apply(params, batch.s_tm1, x, t) - velocity)
        return jnp.mean(jnp.square(error), axis=-1)

    return jnp.mean(jax.vmap(one)(jax.random.split(key, num_samples)), axis=0)


def fpo(params, apply, batch, key, adv_t, old_losses, epsilon=0.05):
    """FPO: PPO, where the loss of flow matching stands for minus a log-probability.

    `old_losses` are the `fpo_losses` of the old parameters, with the same key.
    McAllister et al., 2025, https://arxiv.org/abs/2507.21053. Usual
    (github.com/akanazawa/fpo): 8 samples for each action, whose losses are averaged
    before the ratio, clip 0.05, flows of 10 steps, standardised advantages, discount
    0.995, λ 0.95, 16 epochs of 32 minibatches, Adam 3e-4.
    """
    losses = fpo_losses(params, apply, batch, key)
    loss, _ = rlaxlib.ppo_clip_loss(-losses, -old_losses, adv_t, epsilon)
    return jnp.mean(loss)


# --- Diffusion. ---


def diffusion_bc(params, apply, batch, key, num_steps=100, cosine=True):
    """Diffusion policy: behaviour cloning by the prediction of noise.

    The linear schedule is that of DDPM, for 1,000 steps. Chi et al., 2023,
    https://arxiv.org/abs/2303.04137. Usual (github.com/real-stanford/diffusion_policy):
    100 steps of the cosine schedule, actions of 16 steps at once, of which 8 are taken,
    AdamW 1e-4, batch 256, a moving average of the parameters.
    """
    step_key, key = jax.random.split(key)
    k = jax.random.randint(step_key, batch.a_tm1.shape[:1], 0, num_steps)
    schedule = (
        rlaxlib.cosine_noise_schedule if cosine else rlaxlib.linear_noise_schedule
    )
    shares = schedule(num_steps)[k]
    keys = jax.random.split(key, len(k))
    x, noise = jax.vmap(rlaxlib.diffusion_noise)(keys, batch.a_tm1, shares)
    error = apply(params, batch.s_tm1, x, k) - noise
    return jnp.mean(jnp.square(error))


def diffusion_action(params, apply, s, key, num_dims, num_steps=100):
    """Return actions of a diffusion policy, in [-1, 1]."""
    shares = rlaxlib.cosine_noise_schedule(num_steps)
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


def idql_action(q_samples, a_samples):
    """IDQL: the best of N actions of a diffusion policy, that of the highest value.

    The policy is that of `diffusion_bc`, the critic that of IQL. Hansen-Estruch et al.,
    2023, https://arxiv.org/abs/2304.10573. Usual (github.com/philippe-eecs/IDQL): 64
    samples, 5 steps, Adam 3e-4, batch 512.
    """
    return a_samples[jnp.argmax(q_samples)]


def qsm(params, apply, batch, key, critic, scale=50.0, num_steps=10):
    """QSM: the score of the policy is the gradient of q with respect to the action.

    `critic(s, a)` returns values, [B]. Psenka et al., 2023,
    https://arxiv.org/abs/2312.11752. Usual (github.com/Alescontrela/score_matching_rl):
    scale 50, or 120 for difficult tasks, 5 steps, discount 0.99, Adam 3e-4.
    """
    step_key, key = jax.random.split(key)
    k = jax.random.randint(step_key, batch.a_tm1.shape[:1], 0, num_steps)
    share = rlaxlib.cosine_noise_schedule(num_steps)[k]
    keys = jax.random.split(key, len(k))
    x, _ = jax.vmap(rlaxlib.diffusion_noise)(keys, batch.a_tm1, share)
    score = scale * jax.grad(lambda x: jnp.sum(critic(batch.s_tm1, x)))(x)
    target = -jnp.sqrt(1 - share)[:, None] * score
    error = apply(params, batch.s_tm1, x, k) - jax.lax.stop_gradient(target)
    return jnp.mean(jnp.sum(rlaxlib.l2_loss(error), axis=-1))


def diffusion_ppo(params, apply, batch, adv_t, stddev=0.1, epsilon=0.01):
    """DPPO, diffusion PPO: each step of the reverse process is an action of PPO.

    The batch has the samples of all steps, `x`, [K+1, B, D], and the log-densities
    `old_log_prob`, [K, B]. `apply(params, s, x, k)` returns the mean of the next
    sample. Ren et al., 2024, https://arxiv.org/abs/2409.00588. Usual
    (github.com/irom-princeton/dppo): the last 10 of 20 steps, clip 0.01, stddev at
    least 0.1, 10 epochs, Adam 1e-4.
    """
    steps = jnp.arange(len(batch.x) - 1)
    mean = jax.vmap(apply, (None, None, 0, 0))(params, batch.s_tm1, batch.x[:-1], steps)
    policy = rlaxlib.gaussian_diagonal(stddev)
    log_prob = policy.logprob(batch.x[1:], mean)
    adv_t = jnp.broadcast_to(adv_t, log_prob.shape)
    loss, _ = rlaxlib.ppo_clip_loss(log_prob, batch.old_log_prob, adv_t, epsilon)
    return jnp.mean(loss)
