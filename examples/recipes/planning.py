"""Losses of models and of planning: TD-MPC2, SPR, BBF, MR.Q, Sampled MuZero; MPPI.

A batch of B sequences of T steps has the fields

    s                 observations, [B, T+1, ...],
    a_tm1             actions in [-1, 1], [B, T, D],
    r_t, discount_t   rewards and discounts, 0 where the episode ended, [B, T].

Needs `value_based.py` in the same package.
"""

import jax
import jax.numpy as jnp

import rlaxlib

from .value_based import rainbow, valid  # noqa: TID252 - Any package.


def unroll(params, apply, s, a):
    """Return the latent states that a model predicts from the first, [T+1, B, ...]."""
    z = apply.encode(params, s[:, 0])

    def step(z, a):
        z = apply.next(params, z, a)
        return z, z

    return jnp.concatenate([z[None], jax.lax.scan(step, z, jnp.swapaxes(a, 0, 1))[1]])


def tdmpc2_pair(num_bins):
    """Return the encoding of values of TD-MPC2: two-hot in the space of symlog."""
    return rlaxlib.muzero_pair(-10.0, 10.0, num_bins, rlaxlib.SIGNED_LOGP1_PAIR)


def two_critics(key, logits):
    """Return the values of two of N critics, from logits, [..., N, M]."""
    q = tdmpc2_pair(logits.shape[-1]).apply_inv(jax.nn.softmax(logits))
    return jax.random.choice(key, q, (2,), replace=False, axis=-1)


def tdmpc2_targets(params, target_params, apply, batch, key):
    """Return the TD targets of TD-MPC2, [B, T]: the smaller of two target critics."""
    act_key, key = jax.random.split(key)
    z = apply.encode(params, batch.s[:, 1:])
    mean, stddev = apply.policy(params, z)
    a = jnp.tanh(mean + stddev * jax.random.normal(act_key, mean.shape))
    q = two_critics(key, apply.value(target_params, z, a))
    return batch.r_t + batch.discount_t * jnp.min(q, axis=-1)


def tdmpc2_model(params, apply, batch, rho=0.5):
    """TD-MPC2, model: latent states, rewards and values of an unrolled model.

    `apply` has `encode`, `next`, and the logits `reward`, [B, 1, M], and `value` of N
    critics, [B, N, M]; the batch has targets of q, `target`, [B, T], such as
    `tdmpc2_targets`. The targets of latent states are those of the encoder itself: only
    the critics have target networks. Hansen et al., 2023,
    https://arxiv.org/abs/2310.16828. Source:
    github.com/nicklashansen/tdmpc2@e9f5932, tdmpc2/tdmpc2.py: _update, the same loss;
    where episodes end, a head of the termination has a weight of 1. Usual: rho 0.5,
    weights 20, 0.1 and 0.1, 3 steps, 5 critics of 101 bins, Adam 3e-4, 0.3 times that
    for the encoder, batch 256, gradients clipped to a norm of 20, target critics
    updated at a rate of 0.01, discount 1 - 5/L for episodes of L steps, within [0.95,
    0.995].
    """
    z, a = unroll(params, apply, batch.s, batch.a_tm1), jnp.swapaxes(batch.a_tm1, 0, 1)
    target = apply.encode(jax.lax.stop_gradient(params), batch.s[:, 1:])
    error = jnp.mean(jnp.square(z[1:] - jnp.swapaxes(target, 0, 1)), axis=-1)

    def entropy(head, targets):
        logits = jax.vmap(head, (None, 0, 0))(params, z[:-1], a)
        target = tdmpc2_pair(logits.shape[-1]).apply(targets.T)[:, :, None]
        losses = -jnp.sum(target * jax.nn.log_softmax(logits), axis=-1)
        return jnp.mean(losses, axis=-1)

    r_loss, loss = entropy(apply.reward, batch.r_t), entropy(apply.value, batch.target)
    loss = jnp.mean(20 * error + 0.1 * (r_loss + loss), axis=1)
    return jnp.mean(rho ** jnp.arange(len(error)) * loss)


def tdmpc2_actor(params, apply, batch, key, scale, entropy_cost=1e-4, rho=0.5):
    """TD-MPC2, policy: the mean of two critics at the states of the unrolled model.

    `apply.policy` returns mean and standard deviation, before a tanh. Returns the loss
    and the values of the first states: use `has_aux=True`. `scale` is the output of
    `percentile_scale` for them. Hansen et al., 2023, https://arxiv.org/abs/2310.16828.
    Source: github.com/nicklashansen/tdmpc2@e9f5932, tdmpc2/tdmpc2.py: update_pi, the
    same loss; its scaled entropy is that of the Gaussian before the tanh, times the
    number of dimensions. Usual: entropy cost 1e-4, rho 0.5, `percentile_scale` from 5
    to 95 with a rate of 0.01 and a minimum of 1, Adam 3e-4 with epsilon 1e-5.
    """
    fixed, (act_key, key) = jax.lax.stop_gradient(params), jax.random.split(key)
    z = unroll(fixed, apply, batch.s, batch.a_tm1)
    mean, stddev = apply.policy(params, z)
    x = mean + stddev * jax.random.normal(act_key, mean.shape)
    entropy = -rlaxlib.gaussian_diagonal().logprob(x, mean, stddev) * x.shape[-1]
    logits = jax.vmap(apply.value, (None, 0, 0))(fixed, z, jnp.tanh(x))
    q = jnp.mean(two_critics(key, logits), axis=-1)
    loss = -jnp.mean(q / scale + entropy_cost * entropy, axis=1)
    return jnp.mean(rho ** jnp.arange(len(loss)) * loss), q[0]


def spr(params, target_params, apply, batch, weight=2.0):
    """SPR: latent states of an unrolled model predict those of a target encoder.

    `apply` has `encode`, `next`, `project` and `predict`: both sides are projected, and
    only the predictions have a predictor. Added to the loss of Rainbow. Schwarzer et
    al., 2020, https://arxiv.org/abs/2007.05929. Source:
    github.com/mila-iqia/spr@0b9dd4e, src/algos.py and src/models.py, the same loss,
    which the importance weights of the replay multiply there, with that of Rainbow, and
    which leaves out the last state of an episode before its end, too (a cosine of 0.96
    at random inputs, half of which end). Usual: 5 steps, weight 2, which is 5 there for
    a mean over steps of twice this loss, a linear predictor, target networks updated at
    a rate of 0.01, Adam 1e-4, batch 32.
    """
    alive = jnp.cumprod(batch.discount_t > 0, axis=1) > 0
    networks = params, target_params, apply
    return weight * jnp.mean(spr_losses(*networks, batch.s, batch.a_tm1, alive))


def spr_losses(params, target_params, apply, s, a, alive):
    """Return the losses of SPR of sequences, [B]: a sum over the steps in `alive`."""
    z = unroll(params, apply, s, a)[1:]
    target = apply.project(target_params, apply.encode(target_params, s[:, 1:]))
    prediction = apply.predict(params, apply.project(params, z))
    loss = rlaxlib.cosine_consistency_loss(
        prediction, jnp.swapaxes(target, 0, 1), sample_mask=alive.T
    )
    return jnp.sum(loss, axis=0)


def bbf(params, target_params, apply, batch, n=3, discount=0.997, bounds=(-10.0, 10.0)):
    """BBF and SR-SPR: Rainbow and SPR, many updates a step, and resets.

    The batch has streams, as `rainbow` in `value_based.py`, of n and 5 steps or more.
    `apply` is that of `spr`, and `apply.q` that of `rainbow`. Returns the loss and the
    new priorities, before the exponent: use `has_aux=True`. `bbf_reset` resets the
    parameters, after which `bbf_schedule` has n and the discount of BBF. Schwarzer et
    al., 2023, https://arxiv.org/abs/2305.19452; D'Oro et al., 2022,
    https://openreview.net/forum?id=OpC-9aBBVJe. Source:
    github.com/google-research/google-research@1d4d2f1,
    bigger_better_faster/bbf/agents/spr_agent.py, the same gradient; its replay takes
    the value one step before the end of the n rewards, and its mask is that of SPR's
    code. Usual: a duelling network, 51 atoms, priority exponent 0.5, batch 32, AdamW
    1e-4 with epsilon 1.5e-4, target network updated at a rate of 0.005, which acts
    without noise. BBF: a ResNet, 2 updates a step, weight decay 0.1. SR-SPR: 8 updates
    a step, n = 10, discount 0.99.
    """
    alive, steps = going_on(batch)[:, :5], jnp.arange(batch.r_t.shape[1])
    # Where the n steps end.
    cut = jnp.broadcast_to(steps == n - 1, batch.r_t.shape)
    cut = cut | (False if batch.truncated_t is None else batch.truncated_t)
    discount_t = jnp.where(batch.discount_t > 0, discount, 0.0)
    streams = batch._replace(discount_t=discount_t, truncated_t=cut)
    loss, priorities = rainbow(params, target_params, apply.q, streams, 0.5, *bounds)
    s_tm1, s_t = valid(batch, (batch.s_tm1, batch.s_t))
    s = jnp.concatenate([s_tm1[:, :1], s_t[:, :5]], axis=1)
    losses = spr_losses(params, target_params, apply, s, batch.a_tm1[:, :5], alive)
    weights = rlaxlib.importance_sampling_weights(batch.probability, 0.5)
    return loss + 2.0 * jnp.mean(weights * losses), priorities


def going_on(batch):
    """Return whether a stream goes on after a step and those before, [B, T]."""
    goes_on = batch.discount_t > 0
    if batch.truncated_t is not None:
        goes_on = goes_on & ~batch.truncated_t
    return jnp.cumprod(valid(batch, goes_on), axis=1) > 0


def bbf_schedule(updates, period=10_000):
    """Return n, from 10 to 3, and the discount of BBF, by the updates since a reset.

    Schwarzer et al., 2023, https://arxiv.org/abs/2305.19452. Source:
    github.com/google-research/google-research@1d4d2f1,
    bigger_better_faster/bbf/agents/spr_agent.py, the same schedules. Usual: discount
    0.97 to 0.997, over 10,000 updates.
    """
    share = jnp.clip(updates / period, 0, 1)
    return jnp.round(10 * 0.3**share), 1 - 0.03 * 0.1**share


def bbf_reset(params, fresh_params, keep=0.5, names=("encode", "next")):
    """Return parameters, a dict, after a reset: part of `names`, and none of the rest.

    Target parameters are reset too, with other fresh ones, and the optimizer's moments
    of all but `names` become 0. Schwarzer et al., 2023,
    https://arxiv.org/abs/2305.19452. Source:
    github.com/google-research/google-research@1d4d2f1,
    bigger_better_faster/bbf/agents/spr_agent.py, the same parameters. Usual: BBF keeps
    0.5 every 40,000 updates, SR-SPR 0.8.
    """
    mixed = rlaxlib.shrink_and_perturb(params, fresh_params, keep, 1 - keep)
    return fresh_params | {name: mixed[name] for name in names}


def mrq_encoder(params, target_params, apply, batch, pair):
    """MR.Q, encoder: states, rewards and ends that an unrolled model predicts.

    The batch has streams of transitions, as in `value_based.py`.
    `apply.encode(params.encoder, s)` returns latent states, and
    `apply.model(params.encoder, z, a)` next ones, logits of rewards, [B, K], of `pair`,
    such as `unbiased_transform_pair(-10, 10, 65, SIGNED_LOGP1_PAIR)`, and whether the
    episode ends, [B]. Fujimoto et al., 2025, https://arxiv.org/abs/2501.16142. Source:
    github.com/facebookresearch/MRQ@8a44a7d, MRQ/MRQ.py: train_encoder, the same loss;
    where no episode ever ended, there is no loss of ends. Usual: 5 steps, weights 1,
    0.1 and 0.1, AdamW 1e-4 with weight decay 1e-4, batch 256, 250 updates after each
    copy of the target networks.
    """

    def step(z, a):
        outputs = apply.model(params.encoder, z, a)
        return outputs[0], outputs

    fields = batch.s_tm1, batch.a_tm1, batch.r_t, batch.s_t
    s_tm1, a_tm1, r_t, s_t = valid(batch, fields)
    z, a = apply.encode(params.encoder, s_tm1[:, 0]), jnp.swapaxes(a_tm1, 0, 1)
    outputs = jax.lax.scan(step, z, a)[1]
    z, logits, ends = (jnp.swapaxes(x, 0, 1) for x in outputs)
    target = jax.lax.stop_gradient(apply.encode(target_params.encoder, s_t))
    entropy = jax.vmap(rlaxlib.categorical_regression_loss, (0, 0, None))
    entropy = jax.vmap(entropy, (0, 0, None))(logits, r_t, pair)
    loss = jnp.mean(jnp.square(z - target), axis=-1) + 0.1 * entropy
    loss = loss + 0.1 * jnp.square(ends - (batch.discount_t == 0))
    began = jnp.pad(going_on(batch)[:, :-1], ((0, 0), (1, 0)), constant_values=True)
    return jnp.mean(jnp.sum(jnp.where(valid(batch, began), loss, 0.0), axis=1))


def mrq_critic(
    params, target_params, apply, batch, key, scale, target_scale, stddev=0.2, clip=0.3
):
    """MR.Q, critics: TD3's loss of n steps, with rewards of scale 1.

    `apply.joint(params.encoder, z, a)` returns features of a latent state and an
    action, and `apply.critic` q of them, [B, 2]. `scale` is the mean size of rewards in
    the replay, `target_scale` the one when the target networks were copied before. Only
    the critics have a gradient. For n steps, pass `n_step_batch(batch)` of
    `value_based.py`. Returns the loss and the new priorities, before the exponent: use
    `has_aux=True`. Fujimoto et al., 2025, https://arxiv.org/abs/2501.16142. Source:
    github.com/facebookresearch/MRQ@8a44a7d, MRQ/MRQ.py: train_rl, the same loss, whose
    n steps leave out the reward of the step that ends an episode. Usual: n = 3, noise
    0.2 clipped at 0.3, discount 0.99, AdamW 3e-4 with weight decay 1e-4, gradients
    clipped to a norm of 20, priority exponent 0.4, without importance weights.
    """
    z_t = apply.encode(target_params.encoder, batch.s_t)
    a_t = jnp.tanh(apply.actor(target_params.actor, z_t))
    noisy = jax.vmap(rlaxlib.td3_target_action, (0, 0, None, None))
    a_t = noisy(jax.random.split(key, len(a_t)), a_t, stddev, clip)
    features_t = apply.joint(target_params.encoder, z_t, a_t)
    q_t = apply.critic(target_params.critic, features_t) * target_scale / scale
    target = batch.r_t / scale + batch.discount_t * jnp.min(q_t, axis=-1)
    encoder = jax.lax.stop_gradient(params.encoder)
    z = apply.encode(encoder, batch.s_tm1)
    q = apply.critic(params.critic, apply.joint(encoder, z, batch.a_tm1))
    td_error = jax.lax.stop_gradient(target)[:, None] - q
    priorities = jnp.maximum(jnp.max(jnp.abs(td_error), axis=-1), 1.0)
    return jnp.mean(rlaxlib.huber_loss(td_error)), priorities


def mrq_actor(params, apply, batch, penalty=1e-5):
    """MR.Q, actor: the mean of both critics, and small actions before the tanh.

    `apply.actor` returns actions before the tanh, [B, D]; those of discrete actions are
    a Gumbel softmax in the code. Fujimoto et al., 2025,
    https://arxiv.org/abs/2501.16142. Source: github.com/facebookresearch/MRQ@8a44a7d,
    MRQ/MRQ.py: train_rl, the same loss. Usual: penalty 1e-5, AdamW 3e-4, noise of 0.2
    to explore.
    """
    fixed = jax.lax.stop_gradient((params.encoder, params.critic))
    z = apply.encode(fixed[0], batch.s_tm1)
    x = apply.actor(params.actor, z)
    q = apply.critic(fixed[1], apply.joint(fixed[0], z, jnp.tanh(x)))
    return penalty * jnp.mean(jnp.square(x)) - jnp.mean(q)


def sampled_muzero_policy(params, apply, batch):
    """Sampled MuZero, policy: the visits of K sampled actions are the targets.

    The batch has the actions `a_samples`, [K, B, D], and `visits`, [K, B]. `apply`
    returns mean and standard deviation. This is the loss of the policy at the first
    state alone: rewards, values and the unrolled model have those of `muzero`. Hubert
    et al., 2021, https://arxiv.org/abs/2104.06303. Source:
    github.com/opendilab/LightZero@9f717c8, lzero/policy/sampled_muzero.py, by others,
    the same gradient for actions before the tanh of its policy. Usual: 20 samples, 50
    simulations, Adam 1e-4, batch 256.
    """
    mean, stddev = apply(params, batch.s[:, 0])
    policy = rlaxlib.gaussian_diagonal()
    log_prob = policy.logprob(batch.a_samples, mean, stddev)
    weights = batch.visits / jnp.sum(batch.visits, axis=0)
    return -jnp.mean(jnp.sum(jax.lax.stop_gradient(weights) * log_prob, axis=0))


def mppi_plan(key, evaluate, plan, proposals, num_samples=512, iterations=6):
    """TD-MPC2, planning: return an action and a plan, after some iterations of MPPI.

    `evaluate` is a function from actions, [N, T, D], to returns of the model, [N].
    `proposals`, [P, T, D], are sequences of actions of the policy. The action is the
    first one of an elite that is sampled by its weight; in training, add noise of
    `plan.stddev[0]` to it, and clip it. `shift_plan` makes the first plan of the next
    step. Hansen et al., 2023, https://arxiv.org/abs/2310.16828. Source:
    github.com/nicklashansen/tdmpc2@e9f5932, tdmpc2/tdmpc2.py: _plan, the same plan.
    Usual: 512 samples, 24 of which the policy proposes, 64 elites, horizon 3, standard
    deviation 2 at first, temperature 0.5, which multiplies returns there and is 2 here.
    """

    def iterate(plan, key):
        shape = num_samples - len(proposals), *plan.mean.shape
        sampled = plan.mean + plan.stddev * jax.random.normal(key, shape)
        actions = jnp.concatenate([proposals, jnp.clip(sampled, -1, 1)])
        update, returns = rlaxlib.mppi_update, evaluate(actions)
        bounds = {"num_elites": 64, "min_stddev": 0.05, "max_stddev": 2.0}
        return update(plan, actions, returns, 2.0, **bounds), (actions, returns)

    keys = jax.random.split(key, iterations + 1)
    plan, (actions, returns) = jax.lax.scan(iterate, plan, keys[1:])
    returns, elites = jax.lax.top_k(returns[-1], 64)
    chosen = elites[jax.random.categorical(keys[0], returns / 2.0)]
    return actions[-1, chosen, 0], plan


def pets_action(key, evaluate, plan, num_samples=500, iterations=5):
    """PETS: the first action of a plan by the cross-entropy method, and the next plan.

    `evaluate` is a function from actions, [N, T, D], to returns, [N], which are means
    over an ensemble of models. Samples are within two standard deviations, each of at
    most half the distance to -1 or 1. The first plan is `plan_init(T, D, 0.5)`. Chua et
    al., 2018, https://arxiv.org/abs/1805.12114. Source:
    github.com/kchua/handful-of-trials@77fd880, dmbrl/misc/optimizers/cem.py, the same
    plan. Usual: 500 samples, a tenth of them elites, 5 iterations, horizon 25 to 30, 5
    models, 20 particles for each sample.
    """

    def iterate(plan, key):
        noise = jax.random.truncated_normal(key, -2, 2, (num_samples, *plan.mean.shape))
        stddev = jnp.minimum(plan.stddev, (1 - jnp.abs(plan.mean)) / 2)
        actions = plan.mean + stddev * noise
        elites = num_samples // 10
        fitted = rlaxlib.cem_update(plan, actions, evaluate(actions), elites)
        mean = 0.1 * plan.mean + 0.9 * fitted.mean
        variance = 0.1 * jnp.square(plan.stddev) + 0.9 * jnp.square(fitted.stddev)
        goes_on = jnp.max(jnp.square(plan.stddev)) > 0.001
        after = rlaxlib.PlanState(mean, jnp.sqrt(variance))
        return rlaxlib.tree_select(goes_on, after, plan), None

    plan, _ = jax.lax.scan(iterate, plan, jax.random.split(key, iterations))
    return plan.mean[0], rlaxlib.shift_plan(plan, stddev=0.5)
