"""Losses of DreamerV3: the world model, the actor, and the critic, on two streams.

Replayed streams are those of `value_based.py`, with `s`, [B, T+1, ...], as `r2d2` has
it. A batch of imagined streams, each from a replayed state on, has the fields

    s                states and samples of the model, of T+1 steps, [B, T+1, ...],
    a_tm1, r_t       actions and predicted rewards, [B, T],
    discount_t       predicted probabilities of continuing, times the discount, [B, T],
    first_discount   that of the first state, [B],
    values           values of the online critic, [B, T+1].

Needs `policy_gradient.py` and `value_based.py` in the same package.
"""

import jax
import jax.numpy as jnp

import rlaxlib

from .policy_gradient import log_probs  # noqa: TID252 - Any package.
from .value_based import masks, sequences, valid  # noqa: TID252 - Any package.


def dreamer_pair(num_bins):
    """Return the encoding of values of DreamerV3: two-hot, symexp bins."""
    return rlaxlib.unbiased_transform_pair(
        -20.0, 20.0, num_bins, rlaxlib.SIGNED_LOGP1_PAIR
    )


def dreamer_unroll(params, apply, s, first, a, key):
    """Return states, samples, and logits of posteriors and priors, of one sequence.

    `apply.start(params)` is a first state and sample, from which `apply.dynamics`
    begins before each first observation, with the action -1, whose one-hot vector is 0.
    """

    def step(carry, inputs):
        s, first, a, key = inputs
        carry = rlaxlib.tree_select(first, apply.start(params), carry)
        state, prior = apply.dynamics(params, *carry, jnp.where(first, -1, a))
        posterior = rlaxlib.unimix_logits(apply.encoder(params, state, s))
        z = rlaxlib.straight_through_sample(key, posterior)
        return (state, z), (state, z, posterior, rlaxlib.unimix_logits(prior))

    inputs = s, first, a, jax.random.split(key, len(s))
    return jax.lax.scan(step, apply.start(params), inputs)[1]


def dreamer_model(params, apply, batch, key, free_nats=1.0):
    """DreamerV3, world model: reconstruction, rewards, ends, and a balanced KL.

    The batch has `s`, [B, T+1, ...], as that of `r2d2`. `apply.start`, `apply.dynamics`
    and `apply.encoder` are those of `dreamer_unroll`. `apply.decoder` takes states and
    samples, and returns observations by symlog, logits of rewards, zero at first, and
    the logit of the discount. Hafner et al., 2023, https://arxiv.org/abs/2301.04104.
    Source: github.com/danijar/dreamerv3@e3f0224, dreamerv3/agent.py and
    dreamerv3/rssm.py, the same losses, whose heads of rewards and ends learn on first
    observations too. Usual: 32 samples of 64 classes, 32 in the model of 50M
    parameters; KL weights 1 and 0.1, 1 free nat, discount 1 - 1/333, 16 streams of 64
    steps. One optimizer for all: LaProp 4e-5 with epsilon 1e-20 and a warm-up of 1,000
    updates, RMS scaling before momentum, adaptive gradient clipping at 0.3; the paper's
    first version has Adam.
    """
    s, first, mask = sequences(batch)
    seen = ~first | jnp.pad(mask, ((0, 0), (0, 1)))
    a = jnp.pad(batch.a_tm1, ((0, 0), (1, 0)), constant_values=-1)
    unroll = jax.vmap(dreamer_unroll, (None, None, 0, 0, 0, 0))
    keys = jax.random.split(key, len(s))
    state, z, *logits = unroll(params, apply, s, first, a, keys)
    kl, _ = jax.vmap(jax.vmap(lambda *x: rlaxlib.balanced_kl(*x, free_nats)))(*logits)
    decoded, r_logits, logit = apply.decoder(params, state, z)
    s_loss = 2 * jnp.sum(rlaxlib.l2_loss(decoded, rlaxlib.signed_logp1(s)), axis=-1)
    r_t, discount_t = valid(batch, (batch.r_t, batch.discount_t))
    target = dreamer_pair(r_logits.shape[-1]).apply(r_t)
    r_loss = rlaxlib.categorical_cross_entropy(target, r_logits[:, 1:])
    end_loss = jax.nn.softplus(logit[:, 1:]) - discount_t * logit[:, 1:]
    loss = rlaxlib.masked_mean(kl + s_loss, mask=seen)
    return loss + rlaxlib.masked_mean(r_loss + end_loss, mask=mask)


def dreamer_returns(values, batch, lambda_=0.95):
    """Return the λ-returns of imagined streams, and the weights of their steps.

    The weight of a step is the probability that the episode goes on up to its state,
    the first one included: a stream from a state that ended an episode weighs nothing.
    """
    returns = jax.vmap(rlaxlib.lambda_returns, (0, 0, 0, None))(
        batch.r_t, batch.discount_t, values[:, 1:], lambda_
    )
    before = batch.first_discount[:, None], batch.discount_t[:, :-1]
    return returns, jnp.cumprod(jnp.concatenate(before, axis=1), axis=1)


def dreamer_actor(params, apply, batch, scale, entropy_cost=3e-4):
    """DreamerV3, actor: REINFORCE on imagined streams, with normalised returns.

    `apply` returns logits. `scale` is the output of `percentile_scale` for the returns
    of `dreamer_returns`. Hafner et al., 2023, https://arxiv.org/abs/2301.04104. Source:
    github.com/danijar/dreamerv3@e3f0224, dreamerv3/agent.py: imag_loss, the same loss.
    Usual: 15 steps, λ 0.95, discount 1 - 1/333, entropy cost 3e-4, `unimix_logits`
    0.01, `percentile_scale` from 5 to 95 with a rate of 0.01 and a minimum of 1, not
    debiased, the optimizer of the model.
    """
    returns, weights = dreamer_returns(batch.values, batch)
    logits = apply(params, batch.s)[:, :-1]
    adv_t = weights * (returns - batch.values[:, :-1]) / scale
    log_prob = log_probs(logits, batch.a_tm1)
    loss = jnp.mean(jax.vmap(rlaxlib.reinforce_loss)(log_prob, adv_t))
    return loss + entropy_cost * jnp.mean(
        jax.vmap(rlaxlib.entropy_loss)(logits, weights)
    )


def dreamer_value_losses(logits, slow_logits, returns, slow_cost=1.0):
    """Return the cross-entropies of values with returns and with the slow average."""
    pair = dreamer_pair(logits.shape[-1])
    slow = pair.apply_inv(jax.nn.softmax(slow_logits))
    target = pair.apply(returns) + slow_cost * pair.apply(slow)
    target = jax.lax.stop_gradient(target)
    return -jnp.sum(target * jax.nn.log_softmax(logits), axis=-1)


def dreamer_critic(params, target_params, apply, batch, slow_cost=1.0):
    """DreamerV3, critic: two-hot regression on λ-returns, and on its slow average.

    `apply` returns logits of the values, [B, T+1, M], zero at first. Hafner et al.,
    2023, https://arxiv.org/abs/2301.04104. Source:
    github.com/danijar/dreamerv3@e3f0224, dreamerv3/agent.py: imag_loss, the same loss.
    Usual: M = 255 bins, target network averaged with a decay of 0.98, the optimizer of
    the model, and `dreamer_replay_critic` beside this loss.
    """
    logits, slow_logits = (apply(w, batch.s) for w in (params, target_params))
    pair = dreamer_pair(logits.shape[-1])
    values = pair.apply_inv(jax.nn.softmax(jax.lax.stop_gradient(logits)))
    returns, weights = dreamer_returns(values, batch)
    inputs = (x[:, :-1] for x in (logits, slow_logits))
    return jnp.mean(weights * dreamer_value_losses(*inputs, returns, slow_cost))


def dreamer_replay_critic(
    params, target_params, apply, batch, lambda_=0.95, slow_cost=1.0
):
    """DreamerV3, critic on replayed streams, which bootstrap from imagined returns.

    The batch has the model's states and samples `s`, [B, T+1, ...], and `returns`, [B,
    T+1]: of each state, the first λ-return that `dreamer_returns` has for the stream
    imagined from it. Hafner et al., 2023, https://arxiv.org/abs/2301.04104. Source:
    github.com/danijar/dreamerv3@e3f0224, dreamerv3/agent.py: repl_loss, the same loss
    as a mean over valid steps; there a last observation, whose loss is 0, counts as a
    step. Usual: weight 0.3, discount 1 - 1/333, λ 0.95; the gradient goes through `s`
    into the world model.
    """
    s, _, mask = sequences(batch)
    logits, slow_logits = (apply(w, s)[:, :-1] for w in (params, target_params))
    returns = jax.vmap(rlaxlib.lambda_returns, (0, 0, 0, None))
    inputs = batch.r_t, batch.discount_t, batch.returns[:, 1:], lambda_
    returns = valid(batch, returns(*inputs, **masks(batch)))
    losses = dreamer_value_losses(logits, slow_logits, returns, slow_cost)
    return rlaxlib.masked_mean(losses, mask=mask)
