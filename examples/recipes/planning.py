"""Losses of models and of planning: TD-MPC2, SPR, Sampled MuZero; plans by MPPI.

A batch of B sequences of T steps has the fields

    s                 observations, [B, T+1, ...],
    a_tm1             actions in [-1, 1], [B, T, D],
    r_t, discount_t   rewards and discounts, 0 where the episode ended, [B, T].

Needs `policy_gradient.py` in the same package.
"""

import jax
import jax.numpy as jnp

import rlaxlib

from .policy_gradient import dreamer_pair  # noqa: TID252 - Any package.


def unroll(params, apply, s, a):
    """Return the latent states that a model predicts from the first, [T+1, B, ...]."""
    z = apply.encode(params, s[:, 0])

    def step(z, a):
        z = apply.next(params, z, a)
        return z, z

    return jnp.concatenate([z[None], jax.lax.scan(step, z, jnp.swapaxes(a, 0, 1))[1]])


def tdmpc2_model(params, target_params, apply, batch, rho=0.5):
    """TD-MPC2, model: latent states, rewards and values of an unrolled model.

    `apply` has `encode`, `next`, and the logits `reward` and `value`, [B, M]; the batch
    has targets of q, `target`, [B, T]: TD targets of the smaller of two of 5 critics.
    Hansen et al., 2023, https://arxiv.org/abs/2310.16828. Usual
    (github.com/nicklashansen/tdmpc2): rho 0.5, weights 20, 0.1 and 0.1, 3 steps, 101
    bins, Adam 3e-4, batch 256, gradients clipped to a norm of 20.
    """
    z, a = unroll(params, apply, batch.s, batch.a_tm1), jnp.swapaxes(batch.a_tm1, 0, 1)
    target = jnp.swapaxes(apply.encode(target_params, batch.s[:, 1:]), 0, 1)
    error = jnp.mean(rlaxlib.l2_loss(z[1:], jax.lax.stop_gradient(target)), axis=-1)

    def entropies(head, targets):
        logits = jax.vmap(head, (None, 0, 0))(params, z[:-1], a)
        pair = dreamer_pair(logits.shape[-1])

        def loss(x, y):
            return rlaxlib.categorical_regression_loss(x, y, pair)

        return jax.vmap(jax.vmap(loss))(logits, targets.T)

    rewards = entropies(apply.reward, batch.r_t)
    values = entropies(apply.value, batch.target)
    weights = rho ** jnp.arange(len(error))
    loss = jnp.mean(20 * 2 * error + 0.1 * (rewards + values), axis=1)
    return jnp.mean(weights * loss)


def spr(params, target_params, apply, batch, weight=2.0):
    """SPR: latent states of an unrolled model predict those of a target encoder.

    `apply` has `encode`, `next`, `project` and `predict`: both sides are projected, and
    only the predictions have a predictor. Added to the loss of Rainbow. Schwarzer et
    al., 2020, https://arxiv.org/abs/2007.05929. Usual (github.com/mila-iqia/spr): 5
    steps, weight 2, which is 5 there for a mean over steps of twice this loss, a linear
    predictor, target networks updated at a rate of 0.01, Adam 1e-4, batch 32.
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
    2021, https://arxiv.org/abs/2104.06303. Usual (github.com/opendilab/LightZero, by
    others): 20 samples, 50 simulations, Adam 1e-4, batch 256.
    """
    mean, stddev = apply(params, batch.s[:, 0])
    policy = rlaxlib.gaussian_diagonal()
    log_prob = policy.logprob(batch.a_samples, mean, stddev)
    weights = batch.visits / jnp.sum(batch.visits, axis=0)
    return -jnp.mean(jnp.sum(jax.lax.stop_gradient(weights) * log_prob, axis=0))


def mppi_plan(key, evaluate, plan, num_samples=512, iterations=6):
    """Return a plan after some iterations of MPPI; the agent takes its first mean.

    `evaluate` is a function from actions, [N, T, D], to returns of the model, [N].
    `shift_plan` makes the first plan of the next step.
    """

    def iterate(plan, key):
        noise = jax.random.normal(key, (num_samples, *plan.mean.shape))
        actions = jnp.clip(plan.mean[None] + plan.stddev[None] * noise, -1, 1)
        update = rlaxlib.mppi_update
        bounds = {"num_elites": 64, "min_stddev": 0.05, "max_stddev": 2.0}
        return update(plan, actions, evaluate(actions), **bounds), None

    return jax.lax.scan(iterate, plan, jax.random.split(key, iterations))[0]


def pets_action(key, evaluate, plan, num_samples=500, iterations=5):
    """Return the action of PETS, by the cross-entropy method, and the next plan."""

    def iterate(plan, key):
        noise = jax.random.normal(key, (num_samples, *plan.mean.shape))
        actions = jnp.clip(plan.mean[None] + plan.stddev[None] * noise, -1, 1)
        elites = {"num_elites": num_samples // 10, "momentum": 0.1}
        return rlaxlib.cem_update(plan, actions, evaluate(actions), **elites), None

    plan, _ = jax.lax.scan(iterate, plan, jax.random.split(key, iterations))
    return plan.mean[0], rlaxlib.shift_plan(plan, stddev=0.5)
