"""Losses of imitation: behaviour cloning, DQfD, adversarial imitation, SQIL.

The batches are those of `value_based.py`, which it needs in the same package. `expert`
is a batch of demonstrations, of the same size as the other; in a mixed batch,
`is_expert`, [B], is True for demonstrations.
"""

import jax
import jax.numpy as jnp

import rlaxlib

from .value_based import masks, valid  # noqa: TID252 - Any package.


def bc(params, apply, batch):
    """BC, behaviour cloning: the likelihood of the expert's actions.

    `apply` returns logits, [B, A]. Pomerleau, 1988,
    https://proceedings.neurips.cc/paper/1988/hash/812b4ba287f5ee0bc9d43bbf5bbe87fb-Abstract.html.
    Source: github.com/HumanCompatibleAI/imitation@e5ef188,
    src/imitation/algorithms/bc.py, by others, the same loss, but for an entropy bonus
    of 1e-3. Usual: Adam 1e-3, batch 32, there; often Adam 3e-4, batch 256, weight
    decay.
    """
    log_pi = jax.nn.log_softmax(apply(params, batch.s_tm1))
    log_prob = rlaxlib.batched_index(log_pi, batch.a_tm1)
    return -jnp.mean(log_prob)


def dqfd(params, target_params, apply, batch, n=10, margin=0.8):
    """DQfD: 1-step and n-step double Q-learning, and a margin on demonstrations.

    On streams, `apply` returns q, [B, T, A]. Hester et al., 2018,
    https://arxiv.org/abs/1704.03732. Source: github.com/opendilab/DI-engine@d0b21d0,
    ding/policy/dqfd.py, by others, the same loss. Usual: n = 10, margin 0.8, all
    weights 1, L2 regularisation 1e-5, prioritised replay, one half of the batch
    demonstrations.
    """
    s_tm1, s_t = valid(batch, (batch.s_tm1, batch.s_t))
    q_tm1, a_tm1, ends = apply(params, s_tm1), batch.a_tm1, masks(batch)
    q_t = apply(target_params, s_t), apply(params, s_t)
    td_learning = jax.vmap(rlaxlib.n_step_double_q_learning, (0,) * 6 + (None,))
    inputs = q_tm1, a_tm1, batch.r_t, batch.discount_t, *q_t
    td_loss = sum(jnp.square(td_learning(*inputs, k, **ends)) for k in (1, n))
    margin_loss = jax.vmap(rlaxlib.dqfd_margin_loss, (0, 0, None))
    supervised = jax.vmap(margin_loss, (0, 0, None))(q_tm1, a_tm1, margin)
    loss = td_loss + batch.is_expert[:, None] * supervised
    return rlaxlib.masked_mean(loss, mask=batch.sample_mask)


def gail(params, apply, batch, expert, key, penalty=10.0):
    """GAIL, discriminator, with the gradient penalty of DAC. `apply` returns a logit.

    Actions are vectors, [B, D]. Ho and Ermon, 2016, https://arxiv.org/abs/1606.03476;
    Kostrikov et al., 2019, https://arxiv.org/abs/1809.02925. Source:
    github.com/google-research/google-research@0c1bbe5, dac/gail.py, the same loss.
    Usual (DAC): penalty 10, Adam 1e-3, batch 100, rewards for TD3: the logit by
    default, those of `gail_reward` as an option.
    """
    logits = (apply(params, x.s_tm1, x.a_tm1) for x in (expert, batch))
    loss = jnp.mean(rlaxlib.discriminator_loss(*logits))
    u = jax.random.uniform(key, (len(batch.a_tm1), 1))
    s, a = (
        u * x + (1 - u) * y
        for x, y in ((expert.s_tm1, batch.s_tm1), (expert.a_tm1, batch.a_tm1))
    )
    gradient = jax.vmap(jax.grad(lambda x: apply(params, *x)))((s, a))
    norms = jax.vmap(rlaxlib.gradient_penalty)(jnp.concatenate(gradient, axis=-1))
    return loss + penalty * jnp.mean(norms)


def gail_reward(params, apply, batch):
    """Return the rewards of GAIL."""
    logit = apply(params, batch.s_tm1, batch.a_tm1)
    return rlaxlib.adversarial_reward(logit, kind="gail")


def airl_logit(params, apply, batch):
    """Return the logits of AIRL's discriminator."""
    return rlaxlib.airl_logit(
        apply.potential(params, batch.s_tm1),
        batch.log_prob,
        apply.reward(params, batch.s_tm1),
        batch.discount_t,
        apply.potential(params, batch.s_t),
    )


def airl(params, apply, batch, expert):
    """AIRL, discriminator: a learned reward of the state, shaped by a potential.

    `apply.reward` and `apply.potential` return one number for each state. In both
    batches `log_prob`, [B], is the log-probability of the action under the current
    policy. Fu et al., 2018, https://arxiv.org/abs/1710.11248. Source:
    github.com/justinjfu/inverse_rl@9609933, inverse_rl/models/airl_state.py, a mean
    over both batches: half of this loss. Usual: Adam 1e-3, batch 32, discount 1 of the
    potential, TRPO. The code's reward is that of `apply.reward`, with an entropy bonus
    of 0.1, in place of `airl_reward`. At an end the potential is 0 here, and in the
    code that of an observation of zeros.
    """
    logits = (airl_logit(params, apply, x) for x in (expert, batch))
    return jnp.mean(rlaxlib.discriminator_loss(*logits))


def airl_reward(params, apply, batch):
    """Return the rewards of AIRL."""
    return rlaxlib.adversarial_reward(airl_logit(params, apply, batch), kind="airl")


def sqil(params, target_params, apply, batch, temperature=1.0):
    """SQIL: soft Q-learning, with reward 1 for demonstrations and 0 for others.

    The policy is the softmax of q over `temperature`: values of demonstrations are
    about 1/(1 - discount), so that 1 leaves it near uniform where that is small.
    `apply` returns q, [B, A]. Reddy et al., 2020, https://arxiv.org/abs/1905.11108.
    Source: github.com/HumanCompatibleAI/imitation@e5ef188,
    src/imitation/algorithms/sqil.py, by others, with DQN in place of soft Q-learning,
    with Huber's loss (a cosine of 0.89 at random inputs). Usual: one half of the batch
    demonstrations, otherwise those of DQN.
    """
    r_t = jnp.where(batch.is_expert, 1.0, 0.0)
    q_tm1, q_t = apply(params, batch.s_tm1), apply(target_params, batch.s_t)
    td_error = jax.vmap(rlaxlib.soft_q_learning, (0, 0, 0, 0, 0, None))(
        q_tm1, batch.a_tm1, r_t, batch.discount_t, q_t, temperature
    )
    return jnp.mean(rlaxlib.l2_loss(td_error))
