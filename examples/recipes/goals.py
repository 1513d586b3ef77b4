"""Losses of goal-conditioned RL: HER, contrastive RL, GCBC, GCIVL, HIQL, GCIQL, QRL.

A batch of B transitions has the fields

    s_tm1, s_t        observations before and after the action, [B, ...],
    a_tm1             actions in [-1, 1], [B, D],
    goal              goals: states that were reached later, or others, [B, ...],
    r_t, discount_t   -1 and γ, but 0 and 0 at the goal, [B].

At the goal means where `s_t` is the goal for losses of action values, as those of HER,
and where `s_tm1` is the goal for losses of state values, as in OGBench. With `s_t`, the
state value of a goal would be lower than its neighbours'.

Goals are sampled from one stream, [T, ...], with the masks of `value_based.py`, which
must be in the same package, as `continuous.py` and `offline.py`. Its discounts are 0
where an episode ends.
"""

import jax
import jax.numpy as jnp

import rlaxlib

from .continuous import sample_tanh_normal  # noqa: TID252 - Any package.
from .offline import iql_critic, iql_value, smallest_q  # noqa: TID252 - Any package.
from .value_based import masks  # noqa: TID252 - Any package.


def her(key, batch, achieved_t, reward, share=0.8):
    """HER: the batch of one stream, where a share of the goals were achieved later.

    `achieved_t` are the goals achieved by each step, [T, ...], and `reward` is the
    function from achieved and desired goals to rewards, of all steps. Any loss takes
    the batch, such as `dqn` on observations beside goals. Andrychowicz et al., 2017,
    https://arxiv.org/abs/1707.01495. Source: github.com/openai/baselines@ea25b9e,
    baselines/her/her_sampler.py, the same distribution of goals; there no episode ends
    at its goal, and targets are clipped to [-1/(1 - γ), 0]. Usual: 4 in 5, "future",
    discount 0.98, Adam 1e-3, batch 256, target networks updated at a rate of 0.05 after
    every 40 updates.
    """
    index_key, key = jax.random.split(key)
    sample = rlaxlib.hindsight_indices
    indices = sample(index_key, batch.discount_t, "future", **masks(batch))
    is_later = jax.random.bernoulli(key, share, indices.shape)
    goal = jax.vmap(jnp.where)(is_later, achieved_t[indices], batch.goal)
    return batch._replace(goal=goal, r_t=reward(achieved_t, goal))


def energy(x, y):
    """Return minus the distances of embeddings."""
    return -jnp.sqrt(jnp.sum(jnp.square(x - y), axis=-1) + 1e-6)


def contrastive_critic(params, apply, batch, penalty=0.1):
    """Contrastive RL, critic: tells the goals of a transition from those of others.

    `apply` returns embeddings of states and actions, and of goals, each [B, D]. Goals
    are states at geometric distances. Eysenbach et al., 2022,
    https://arxiv.org/abs/2206.07568, with inner products and a binary loss. Source:
    github.com/MichalBortkiewicz/JaxGCRL@6dccab2, jaxgcrl/agents/crl/losses.py, the same
    loss. Usual: InfoNCE with penalty 0.1, discount 0.99, Adam 3e-4, batch 256.
    """
    x, y = apply(params, batch.s_tm1, batch.a_tm1, batch.goal)
    logits = energy(x[:, None], y[None])
    loss = rlaxlib.categorical_cross_entropy(jnp.eye(len(x)), logits)
    log_sums = jax.nn.logsumexp(logits, axis=-1)
    return jnp.mean(loss + penalty * jnp.square(log_sums))


def contrastive_actor(params, apply, batch, key, critic, temperature):
    """Contrastive RL, actor: SAC in the energy of actions and goals.

    `apply(params, s, goal)` returns mean and standard deviation of a tanh-Gaussian,
    `critic(s, a, goal)` the embeddings. The temperature is that of `sac_temperature`.
    Eysenbach et al., 2022, https://arxiv.org/abs/2206.07568. Source:
    github.com/MichalBortkiewicz/JaxGCRL@6dccab2, jaxgcrl/agents/crl/losses.py, the same
    loss. Usual: target entropy -D/2 for D dimensions, Adam 3e-4, goals of the critic.
    """
    policy = apply(params, batch.s_tm1, batch.goal)
    a, log_prob = sample_tanh_normal(key, *policy)
    q = energy(*critic(batch.s_tm1, a, batch.goal))
    return jnp.mean(temperature * log_prob - q)


def gcbc(params, log_prob, batch):
    """GCBC, goal-conditioned behaviour cloning: the data's actions, given later states.

    `log_prob(params, s, goal, a)` returns log-probabilities, [B]. Ghosh et al., 2019,
    https://arxiv.org/abs/1912.06088. Source: github.com/seohongpark/ogbench@1d41409,
    impls/agents/gcbc.py, by others, the same loss. Usual: Gaussians of standard
    deviation 1, goals of the same episode, uniformly, Adam 3e-4, batch 1024.
    """
    return -jnp.mean(log_prob(params, batch.s_tm1, batch.goal, batch.a_tm1))


def gcivl_value(params, target_params, apply, batch, expectile=0.9):
    """GCIVL and HIQL, values: an expectile of the targets, without actions.

    `apply(params, s, goal)` returns two values, [B, 2]. Park et al., 2023,
    https://arxiv.org/abs/2307.11949. Source: github.com/seohongpark/ogbench@1d41409,
    impls/agents/gcivl.py and impls/agents/hiql.py, the same loss. Usual: expectile 0.9
    for GCIVL and 0.7 for HIQL, discount 0.99, or 0.995 in giant and humanoid mazes,
    Adam 3e-4, batch 1024, target networks updated at a rate of 0.005; 0.2 of the goals
    are the state itself, 0.5 at geometric distances and 0.3 random states.
    """
    v_tm1, v_t = (apply(target_params, s, batch.goal) for s in (batch.s_tm1, batch.s_t))
    targets = batch.r_t[:, None] + batch.discount_t[:, None] * v_t
    adv = jnp.min(targets, axis=-1) - jnp.mean(v_tm1, axis=-1)
    v = apply(params, batch.s_tm1, batch.goal)
    adv = jnp.broadcast_to(adv[:, None], v.shape)
    loss = rlaxlib.hiql_value_loss(v, targets, adv, expectile)
    return jnp.mean(jnp.sum(loss, axis=-1))


def gcivl_actor(params, log_prob, batch, value, temperature=0.1, max_weight=100.0):
    """GCIVL, actor: the data's actions, weighted by the progress to the goal.

    `log_prob(params, s, goal, a)` returns log-probabilities, [B], `value(s, goal)` the
    two values, [B, 2], not those of targets. Park et al., 2023,
    https://arxiv.org/abs/2307.11949. Source: github.com/seohongpark/ogbench@1d41409,
    impls/agents/gcivl.py, the same loss. Usual: temperature 1/10, whose inverse the
    code has (alpha), weights at most 100, Gaussians of standard deviation 1, all goals
    later ones of the same episode, uniformly, half of them random for stitched data.
    """
    v_tm1, v_t = (
        jnp.mean(value(s, batch.goal), axis=-1) for s in (batch.s_tm1, batch.s_t)
    )
    log_prob = log_prob(params, batch.s_tm1, batch.goal, batch.a_tm1)
    weights = rlaxlib.advantage_weights(v_t - v_tm1, temperature, max_weight)
    return jnp.mean(rlaxlib.reinforce_loss(log_prob, weights))


def with_goal(batch):
    """Return the batch with its goals beside the observations, as a pair."""
    s_tm1, s_t = ((s, batch.goal) for s in (batch.s_tm1, batch.s_t))
    return batch._replace(s_tm1=s_tm1, s_t=s_t)


def gciql_values(params, target_params, apply, batch, expectile=0.9):
    """GCIQL, state values and critics: those of IQL, given the goal.

    `apply` is that of `offline.py`, with a pair of observation and goal as `s`. Park et
    al., 2024, https://arxiv.org/abs/2410.20092. Source:
    github.com/seohongpark/ogbench@1d41409, impls/agents/gciql.py, the same losses.
    Usual: expectile 0.9, 2 critics, LayerNorm, the rest as for `gcivl_value`.
    """
    batch = with_goal(batch)
    value = iql_value(params, target_params, apply, batch, expectile)
    return value + 2 * iql_critic(params, apply, batch)


def gciql_actor(params, apply, batch, alpha=0.3):
    """GCIQL, actor: the value relative to its size, and the data's actions (DDPG+BC).

    `apply.actor` returns the mean of a Gaussian of standard deviation 1. For discrete
    actions the code has AWR: `iql_actor(params, params, apply, with_goal(batch))`. Park
    et al., 2024, https://arxiv.org/abs/2410.20092. Source:
    github.com/seohongpark/ogbench@1d41409, impls/agents/gciql.py, the same loss. Usual:
    alpha 0.003 for the point in mazes, 0.1 to 0.3 for other locomotion, 1 for
    manipulation, 0.03 for noisy and 0.01 for exploratory data; goals of the same
    episode, uniformly, half of them random for stitched data, and all for exploratory
    data; Adam 3e-4.
    """
    s = batch.s_tm1, batch.goal
    mean = apply.actor(params.actor, s)
    q = smallest_q(params, apply, s, jnp.clip(mean, -1, 1))
    size = jax.lax.stop_gradient(jnp.mean(jnp.abs(q))) + 1e-6
    log_prob = rlaxlib.gaussian_diagonal(1.0).logprob(batch.a_tm1, mean)
    return jnp.mean(-q / size - alpha * log_prob)


def hiql_actor(params, apply, batch, value, temperature=1 / 3):
    """HIQL, actors: one chooses a subgoal on the way, another an action towards it.

    `apply.high(params, s, goal, subgoal)` and `apply.low(params, s, subgoal, a)` return
    log-probabilities of representations of subgoals, and of actions. Both are learned
    as `gcivl_actor`: from `subgoal`, the state k steps later, and from `target`, that
    state or the goal, if it comes earlier. Park et al., 2023,
    https://arxiv.org/abs/2307.11949. Source: github.com/seohongpark/ogbench@1d41409,
    impls/agents/hiql.py, the same losses. Usual: temperatures 1/3, k 25, 100 in mazes
    of the humanoid and 10 for manipulation, representations of 10 dimensions, on a
    sphere, learned by the value.
    """
    near = batch._replace(goal=batch.subgoal)
    far = batch._replace(s_t=batch.target, a_tm1=batch.target)
    low = gcivl_actor(params, apply.low, near, value, temperature)
    return low + gcivl_actor(params, apply.high, far, value, temperature)


def qrl_value(params, alpha, apply, batch, epsilon=0.25, offset=15.0, mix=0.5):
    """QRL, values: distances as long as possible, but of at most 1 for each step.

    `apply(params, s)` returns embeddings, [B, K, D]. Goals are next states of other
    transitions. The second output is the loss of `alpha`, the multiplier before the
    softplus. Wang et al., 2023, https://arxiv.org/abs/2304.01203. Source:
    github.com/quasimetric-learning/quasimetric-rl@0a611a4,
    quasimetric_rl/modules/quasimetric_critic/losses, the same losses of values; latent
    dynamics and the actor, the other losses there, are not here. `mix` is the weight of
    the largest component of a distance, there the sigmoid of a learned number, -1 at
    first. Usual: epsilon 0.25, offset 15, a multiplier of 0.01 at first, AdamW 1e-4 and
    0.01 for `alpha`; offset 500, with 100 in place of 10, a bound of 0.05 in place of
    epsilon², 64 components of 8, and a multiplier of 1 at first, learned with 3e-4 by
    its logarithm, in github.com/seohongpark/ogbench.
    """

    def distance(x, y):
        over_batch = jax.vmap(rlaxlib.quasimetric_distance, (0, 0, None))
        return over_batch(x, y, mix)

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
    inputs = key, batch.discount_t, "truncated_geometric", gamma
    return achieved_t[rlaxlib.hindsight_indices(*inputs, **masks(batch))]
