"""Losses of models and of planning: TD-MPC2, SPR, Sampled MuZero; plans by MPPI.

A batch of B sequences of T steps has the fields

    s                 observations, [B, T+1, ...],
    a_tm1             actions in [-1, 1], [B, T, D],
    r_t, discount_t   rewards and discounts, 0 where the episode ended, [B, T].
"""

import jax
import jax.numpy as jnp

import rlaxlib


def unroll(params, apply, s, a):
    """Return the latent states that a model predicts from the first, [T+1, B, ...]."""
    z = apply.encode(params, s[:, 0])

    def step(z, a):
        z = apply.next(params, z, a)
        return z, z

    return jnp.concatenate([z[None], jax.lax.scan(step, z, jnp.swapaxes(a, 0, 1))[1]])


def tdmpc2_pair(num_bins):
    """Return the encoding of values of TD-MPC2: two-hot in the space of symlog."""
    return rlaxlib.muzero_pair(-10.0, 10.0, num_bins, rlaxlib.SYMLOG_PAIR)


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
    z = unroll(params, apply, batch.s, batch.a_tm1)[1:]
    target = apply.encode(target_params, batch.s[:, 1:])
    target = jnp.swapaxes(apply.project(target_params, target), 0, 1)
    alive = jnp.cumprod(batch.discount_t > 0, axis=1).T > 0
    prediction = apply.predict(params, apply.project(params, z))
    loss = rlaxlib.cosine_consistency_loss(prediction, target, sample_mask=alive)
    return weight * jnp.mean(jnp.sum(loss, axis=0))


def sampled_muzero_policy(params, apply, batch):
    """Sampled MuZero, policy: the visits of K sampled actions are the targets.

    The batch has the actions `a_samples`, [K, B, D], and `visits`, [K, B]. `apply`
    returns mean and standard deviation. Values are those of MuZero. Hubert et al.,
    2021, https://arxiv.org/abs/2104.06303. Source:
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
