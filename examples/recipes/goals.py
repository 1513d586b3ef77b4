"""Losses of goal-conditioned RL: HER, contrastive RL, GCIVL and HIQL, QRL.

A batch of B transitions has the fields

    s_tm1, s_t        observations before and after the action, [B, ...],
    a_tm1             actions in [-1, 1], [B, D],
    goal              goals: states that were reached later, or others, [B, ...],
    r_t, discount_t   -1 and γ, but 0 and 0 at the goal, [B].

At the goal means where `s_t` is the goal for losses of action values, as those of HER,
and where `s_tm1` is the goal for losses of state values, as in OGBench. With `s_t`, the
state value of a goal would be lower than its neighbours'.

Goals are sampled from one stream, [T, ...], with the masks of `value_based.py`, which
must be in the same package. Its discounts are 0 where an episode ends.
"""

import jax
import jax.numpy as jnp

import rlaxlib

from .value_based import masks  # noqa: TID252 - Any package.


def her(key, batch, achieved_t, reward):
    """HER: the batch of one stream with goals that were achieved later.

    `achieved_t` are the goals achieved by each step, [T, ...], and `reward` is the
    function from achieved and desired goals to rewards. Any loss takes the batch, such
    as `dqn` on observations beside goals. Andrychowicz et al., 2017,
    https://arxiv.org/abs/1707.01495. Usual (github.com/openai/baselines): 4 in 5
    transitions, by "future", discount 0.98, Adam 1e-3, batch 256, target networks
    updated at a rate of 0.05 after every 40 updates.
    """
    sample = rlaxlib.hindsight_indices
    indices = sample(key, batch.discount_t, "future", **masks(batch))
    goal = achieved_t[indices]
    return batch._replace(goal=goal, r_t=reward(achieved_t, goal))


def contrastive_critic(params, apply, batch, penalty=0.1):
    """Contrastive RL, critic: tells the goals of a transition from those of others.

    `apply` returns embeddings of states and actions, and of goals, each [B, D]. Goals
    are states at geometric distances. Eysenbach et al., 2022,
    https://arxiv.org/abs/2206.07568. Usual (github.com/MichalBortkiewicz/JaxGCRL):
    InfoNCE with penalty 0.1, discount 0.99, Adam 3e-4, batch 256.
    """
    x, y = apply(params, batch.s_tm1, batch.a_tm1, batch.goal)
    logits = x @ y.T
    loss = rlaxlib.categorical_cross_entropy(jnp.eye(len(x)), logits)
    log_sums = jax.nn.logsumexp(logits, axis=-1)
    return jnp.mean(loss + penalty * jnp.square(log_sums))


def gcivl_value(params, target_params, apply, batch, expectile=0.9):
    """GCIVL and HIQL, values: an expectile of the targets, without actions.

    `apply(params, s, goal)` returns two values, [B, 2]. The actor is that of IQL, with
    the difference of values as advantage; HIQL has a second one for subgoals. Park et
    al., 2023, https://arxiv.org/abs/2307.11949. Usual (github.com/seohongpark/ogbench):
    expectile 0.9 for GCIVL and 0.7 for HIQL, discount 0.99, Adam 3e-4, batch 1024,
    target networks updated at a rate of 0.005.
    """
    v_tm1, v_t = (apply(target_params, s, batch.goal) for s in (batch.s_tm1, batch.s_t))
    targets = batch.r_t[:, None] + batch.discount_t[:, None] * v_t
    adv = jnp.min(targets, axis=-1) - jnp.mean(v_tm1, axis=-1)
    v = apply(params, batch.s_tm1, batch.goal)
    adv = jnp.broadcast_to(adv[:, None], v.shape)
    loss = rlaxlib.hiql_value_loss(v, targets, adv, expectile)
    return jnp.mean(jnp.sum(loss, axis=-1))


def qrl_value(params, alpha, apply, batch, epsilon=0.25, offset=15.0):
    """QRL, values: distances as long as possible, but of at most 1 for each step.

    `apply(params, s)` returns embeddings, [B, K, D]. The second output is the loss of
    `alpha`, the multiplier before the softplus. Wang et al., 2023,
    https://arxiv.org/abs/2304.01203. Usual
    (github.com/quasimetric-learning/quasimetric-rl): epsilon 0.25, offset 15, AdamW
    1e-4 and 0.01 for `alpha`; offset 500, with 100 in place of 10, and 64 components of
    8 in github.com/seohongpark/ogbench.
    """
    distance = jax.vmap(rlaxlib.quasimetric_distance)
    x, y, goal = (apply(params, s) for s in (batch.s_tm1, batch.s_t, batch.goal))
    violation = jnp.mean(jnp.square(jax.nn.relu(distance(x, y) - 1)))
    bound = rlaxlib.LagrangePenalty(alpha, epsilon**2)
    penalty, alpha_loss, _ = rlaxlib.kl_constraint_loss(
        violation, bound, jax.nn.softplus
    )
    shortfall = jax.nn.softplus((offset - distance(x, goal)) / 10) * 10
    return jnp.mean(shortfall) + penalty, alpha_loss


def mrn_value(params, apply, s, goal):
    """Return values of goals by MRN: minus the distance, [B], for any loss of values.

    `apply(params, s)` returns embeddings and residuals side by side, [B, 2D].
    """
    (x, u), (y, w) = (jnp.split(apply(params, each), 2, axis=-1) for each in (s, goal))
    return -jax.vmap(rlaxlib.mrn_distance)(x, y, u, w)


def geometric_goals(key, batch, achieved_t, gamma=0.99):
    """Return goals at geometric distances, those of contrastive RL, of one stream."""
    sample = rlaxlib.geometric_hindsight_indices
    inputs = key, batch.discount_t, gamma, "renormalize"
    return achieved_t[sample(*inputs, **masks(batch))]
