"""Losses of offline reinforcement learning: weighting, pessimism, support of the data.

Parameters and `apply` have the fields of `ActorCritic`, for continuous actions:
`apply.actor(params.actor, s)` returns mean and standard deviation of a tanh-Gaussian,
`apply.critic(params.critic, s, a)` the values of N critics, [..., N], and
`apply.value(params.value, s)` a state value. A loss has a gradient for one of these. A
batch of B transitions of a data set has the fields

    s_tm1, s_t        observations before and after the action, [B, ...],
    a_tm1             actions in [-1, 1], [B, D]; for discrete actions in [0, A), [B],
    r_t, discount_t   rewards and discounts, [B].

A batch of streams is that of `value_based.py`. Temperatures and weights suppose the
usual scale of rewards, which differs between methods: it stands beside them. Needs
`continuous.py` and `value_based.py` in the same package.
"""

import jax
import jax.numpy as jnp

import rlaxlib

from .continuous import sac_critic, sample_tanh_normal  # noqa: TID252 - Any package.
from .value_based import double_dqn, masks, valid  # noqa: TID252 - Any package.

# --- What the recipes share. ---


def log_density(params, apply, s, a):
    """Return the log-densities of the data's actions under the policy."""
    log_prob = rlaxlib.tanh_normal_log_prob_of_action
    for _ in a.shape[:-1]:
        log_prob = jax.vmap(log_prob)
    return log_prob(a, *apply.actor(params.actor, s))


def smallest_q(params, apply, s, a):
    """Return the minimum over the critics, which have no gradient."""
    q = apply.critic(jax.lax.stop_gradient(params.critic), s, a)
    return jax.vmap(rlaxlib.ensemble_value)(q)


def critics_loss(params, apply, batch, target):
    """Return the squared error of all critics."""
    q_tm1 = apply.critic(params.critic, batch.s_tm1, batch.a_tm1)
    td_errors = jax.lax.stop_gradient(target)[:, None] - q_tm1
    return jnp.mean(jnp.sum(rlaxlib.l2_loss(td_errors), axis=-1))


# --- Values of the data's actions only: IQL, XQL, SQL. ---


def iql_value(params, target_params, apply, batch, expectile=0.7):
    """IQL, state values: an expectile of the values of the data's actions.

    Kostrikov et al., 2021, https://arxiv.org/abs/2110.06169. Source:
    github.com/ikostrikov/implicit_q_learning@09d7002, critic.py, the same
    loss. The order of updates: first the values, then the actor, then the critics; the
    actor and the critics use the values just updated. Usual: expectile 0.7 for
    locomotion and 0.9 for mazes, 2 critics, discount 0.99, Adam 3e-4, batch 256.
    Rewards of locomotion are divided by the range of returns, times 1000; those of
    mazes are -1 until the goal.
    """
    q = smallest_q(target_params, apply, batch.s_tm1, batch.a_tm1)
    v = apply.value(params.value, batch.s_tm1)
    return jnp.mean(rlaxlib.expectile_loss(v, q, expectile))


def iql_critic(params, apply, batch):
    """IQL, critics: TD learning of q from the state values, which have no gradient.

    Kostrikov et al., 2021, https://arxiv.org/abs/2110.06169. Source:
    github.com/ikostrikov/implicit_q_learning@09d7002, critic.py, squares without ½:
    twice this loss. Usual: Adam 3e-4, target critics updated at a rate of 0.005.
    """
    v_t = apply.value(params.value, batch.s_t)
    target = batch.r_t + batch.discount_t * v_t
    return critics_loss(params, apply, batch, target)


def iql_actor(params, target_params, apply, batch, temperature=1 / 3, max_weight=100.0):
    """IQL, actor: the data's actions, weighted by their exponentiated advantages.

    Kostrikov et al., 2021, https://arxiv.org/abs/2110.06169. Source:
    github.com/ikostrikov/implicit_q_learning@09d7002, actor.py, the same loss. Usual:
    temperature 1/3 for locomotion and 1/10 for mazes, whose inverses, 3 and 10, the
    code has; weights at most 100, Adam 3e-4 with cosine decay. The code's policy is a
    Gaussian, whose mean is a tanh.
    """
    q = smallest_q(target_params, apply, batch.s_tm1, batch.a_tm1)
    adv = q - apply.value(jax.lax.stop_gradient(params.value), batch.s_tm1)
    log_prob = log_density(params, apply, batch.s_tm1, batch.a_tm1)
    weights = rlaxlib.advantage_weights(adv, temperature, max_weight)
    return jnp.mean(rlaxlib.reinforce_loss(log_prob, weights))


def xql_value(params, target_params, apply, batch, temperature=2.0):
    """XQL, state values: Gumbel regression. Critics and actor are those of IQL.

    Garg et al., 2023, https://arxiv.org/abs/2301.02328. Source:
    github.com/Div99/XQL@dff09af, offline/critic.py, the same loss, divided by
    the largest exponential of the batch; beyond its clip of errors over temperature, 7,
    the gradient is 0 there, and here that at the clip. Usual: temperature 2 for
    locomotion and 0.6 for mazes, rewards as for IQL, Adam 3e-4. The critics'
    loss is there Huber's with a bound of 20.
    """
    q = smallest_q(target_params, apply, batch.s_tm1, batch.a_tm1)
    v = apply.value(params.value, batch.s_tm1)
    return jnp.mean(rlaxlib.xql_value_loss(v, q, temperature))


def sql_value(params, target_params, apply, batch, temperature=1.0):
    """SQL, sparse Q-learning, state values. The critics are those of IQL.

    Xu et al., 2023, https://arxiv.org/abs/2303.15810. Source:
    github.com/ryanxhr/IVR@58edd26, critic.py, the same loss. Usual: temperature (alpha)
    1 for locomotion, 0.1 for mazes and 3 for the umaze of diverse data, Adam 3e-4,
    rewards as for IQL.
    """
    q = smallest_q(target_params, apply, batch.s_tm1, batch.a_tm1)
    v = apply.value(params.value, batch.s_tm1)
    return jnp.mean(rlaxlib.sql_value_loss(v, q, temperature))


def sql_actor(params, target_params, apply, batch, max_weight=100.0):
    """SQL, sparse Q-learning, actor: actions of low value have no weight.

    Xu et al., 2023, https://arxiv.org/abs/2303.15810, with the weight 1 + (q - v)/(2 ·
    temperature), of which the code keeps q - v alone. Source:
    github.com/ryanxhr/IVR@58edd26, actor.py, the same loss. Usual: those of
    `sql_value`, weights at most 100.
    """
    q = smallest_q(target_params, apply, batch.s_tm1, batch.a_tm1)
    v = apply.value(jax.lax.stop_gradient(params.value), batch.s_tm1)
    weights = jnp.clip(q - v, 0.0, max_weight)
    log_prob = log_density(params, apply, batch.s_tm1, batch.a_tm1)
    return jnp.mean(rlaxlib.reinforce_loss(log_prob, weights))


# --- Weighted regression of the policy: AWR, AWAC, CRR. ---


def awr(params, apply, batch, lambda_=0.95, temperature=1.0, max_weight=20.0):
    """AWR: λ-returns minus state values weight the data's actions. On streams.

    Peng et al., 2019, https://arxiv.org/abs/1910.00177. Source:
    github.com/xbpeng/awr@831442f, learning/awr_agent.py, the same loss, but for a
    penalty of Gaussian means beyond the bounds of actions. Usual: temperature 1 for
    standardised advantages, weights at most 20, discount 0.99, λ 0.95, SGD with
    momentum 0.9, 2.5e-5 to 1e-4 for the actor and 0.01 for the values. There the
    network predicts values divided by 100, and the loss is that of these.
    """
    s_tm1, s_t, a_tm1 = valid(batch, (batch.s_tm1, batch.s_t, batch.a_tm1))
    v_tm1, v_t = (apply.value(params.value, s) for s in (s_tm1, s_t))
    returns = jax.vmap(rlaxlib.lambda_returns, (0, 0, 0, None))(
        batch.r_t, batch.discount_t, v_t, lambda_, **masks(batch)
    )
    adv_t, mask = jax.lax.stop_gradient(returns) - v_tm1, batch.sample_mask
    log_prob = log_density(params, apply, s_tm1, a_tm1)
    weights = rlaxlib.advantage_weights(
        rlaxlib.standardize(adv_t, mask=mask), temperature, max_weight
    )
    loss = rlaxlib.reinforce_loss(log_prob, weights)
    return rlaxlib.masked_mean(loss + rlaxlib.l2_loss(adv_t), mask=mask)


def awac_critic(params, target_params, apply, batch, key):
    """AWAC, critics: SAC without the entropy bonus. It serves CRR as well.

    Nair et al., 2020, https://arxiv.org/abs/2006.09359. Source:
    github.com/rail-berkeley/rlkit@ac45a9d, rlkit/torch/sac/awac_trainer.py, squares
    without ½: twice this loss. Usual: discount 0.99, Adam 3e-4, batch 1024, target
    critics updated at a rate of 0.005.
    """
    return sac_critic(params, target_params, apply, batch, key, temperature=0.0)


def awac_actor(params, apply, batch, key, temperature=1.0, max_weight=100.0):
    """AWAC, actor: the advantage is relative to an action of the policy.

    Nair et al., 2020, https://arxiv.org/abs/2006.09359. Source:
    github.com/rail-berkeley/rlkit@ac45a9d, rlkit/torch/sac/awac_trainer.py. Usual
    (paper, appendix; the code): temperature 1 for locomotion and 0.3 for manipulation,
    in the code 2 and 0.5, on rewards of D4RL as they are, Adam 3e-4, weight decay 1e-4.
    The code divides the weights by their mean over the batch in place of the bound.
    """
    a, _ = sample_tanh_normal(key, *apply.actor(params.actor, batch.s_tm1))
    q, v = (smallest_q(params, apply, batch.s_tm1, x) for x in (batch.a_tm1, a))
    log_prob = log_density(params, apply, batch.s_tm1, batch.a_tm1)
    weights = rlaxlib.advantage_weights(q - v, temperature, max_weight)
    return jnp.mean(rlaxlib.reinforce_loss(log_prob, weights))


def crr_actor(
    params, apply, batch, key, kind="exp", num_samples=4, beta=1.0, max_weight=20.0
):
    """CRR, actor: a mean over actions of the policy is the baseline.

    The critic is that of `awac_critic`, categorical in the paper. Wang et al., 2020,
    https://arxiv.org/abs/2006.15134. Source: github.com/google-deepmind/acme@770bc75,
    acme/agents/jax/crr/losses.py, the same weights. Usual (paper, appendix; the code):
    4 samples, `beta` 1, weights at most 20, Adam 1e-4, where Acme has 3e-4; rewards as
    they are.
    """
    keys = jax.random.split(key, num_samples)
    policy = apply.actor(params.actor, batch.s_tm1)
    a, _ = jax.vmap(sample_tanh_normal, (0, None, None))(keys, *policy)
    q = smallest_q(params, apply, batch.s_tm1, batch.a_tm1)
    q_samples = jax.vmap(lambda a: smallest_q(params, apply, batch.s_tm1, a))(a)
    weights = jax.vmap(rlaxlib.crr_weights, (0, 1, None, None, None, None))
    weights = weights(q, q_samples, kind, "mean", beta, max_weight)
    log_prob = log_density(params, apply, batch.s_tm1, batch.a_tm1)
    return jnp.mean(rlaxlib.reinforce_loss(log_prob, weights))


# --- Pessimism: CQL, Cal-QL, EDAC. ---


def cql_actions(params, apply, batch, key, num_samples):
    """Return actions and log-densities: uniform, the policy's, its next; [3N, B]."""
    keys = jax.random.split(key, (3, num_samples))
    sample = jax.vmap(sample_tanh_normal, (0, None, None))
    actor = jax.lax.stop_gradient(params.actor)
    a, log_prob = sample(keys[0], *apply.actor(actor, batch.s_tm1))
    a_t, log_prob_t = sample(keys[1], *apply.actor(actor, batch.s_t))
    uniform = jax.random.uniform(keys[2, 0], a.shape, minval=-1.0, maxval=1.0)
    flat = jnp.full_like(log_prob, -a.shape[-1] * jnp.log(2.0))
    log_probs = jnp.concatenate([flat, log_prob, log_prob_t])
    return jnp.concatenate([uniform, a, a_t]), log_probs


def cql_gap(params, apply, batch, key, num_samples=10, min_q=-jnp.inf):
    """Return the conservative loss of CQL, [B, N]: `min_q` is that of Cal-QL."""
    a, log_prob = cql_actions(params, apply, batch, key, num_samples)
    critic = jax.vmap(apply.critic, (None, None, 0))
    q_samples = critic(params.critic, batch.s_tm1, a)
    bound = jnp.broadcast_to(min_q, log_prob.shape)
    bound = bound.at[:num_samples].set(-jnp.inf)  # Not for uniform actions.

    def loss(q, q_samples, log_prob, bound):
        return rlaxlib.cql_loss(q, q_samples, log_prob, min_q=bound)

    loss = jax.vmap(jax.vmap(loss, (0, 1, None, None)), (0, 1, 1, 1))
    q = apply.critic(params.critic, batch.s_tm1, batch.a_tm1)
    return loss(q, q_samples, log_prob, bound)


def cql_critic(params, target_params, apply, batch, key, weight=2.5, num_samples=10):
    """CQL, critics: SAC with lower values of actions that the data lacks.

    The actor is that of SAC. Kumar et al., 2020, https://arxiv.org/abs/2006.04779.
    Source: github.com/aviralkumar2907/CQL@d67dbe9, d4rl/rlkit/torch/sac/cql.py, twice
    this loss. Usual: weight 5 or 10 for locomotion, or that of `cql_temperature`, 10
    samples each, Adam 3e-4 for the critics and 1e-4 for the actor, which clones actions
    for 40,000 updates, rewards as they are. There the TD loss is a square without ½:
    the same weight is half of it here, 2.5 or 5.
    """
    td_key, key = jax.random.split(key)
    gap = cql_gap(params, apply, batch, key, num_samples)
    td_loss = sac_critic(params, target_params, apply, batch, td_key, temperature=0.0)
    return td_loss + weight * jnp.mean(jnp.sum(gap, axis=-1))


def cql_temperature(
    log_temperature, params, apply, batch, key, target_gap=1.0, num_samples=10
):
    """CQL, Lagrange form: the weight rises while the gap is above its target.

    The `weight` of `cql_critic` is the exponential of `log_temperature`. Kumar et al.,
    2020, https://arxiv.org/abs/2006.04779. Source:
    github.com/aviralkumar2907/CQL@d67dbe9, d4rl/rlkit/torch/sac/cql.py, where the gap
    is multiplied by the weight of `cql_critic`, 5, before the target is subtracted: a
    target of 5 there is 1 here. Usual: target 1 to 2 here, 5 to 10 there, Adam 3e-4.
    The gap includes log K and the volume of actions, 3.9 before learning for one
    dimension: a target above it is slack.
    """
    gap = jnp.mean(cql_gap(params, apply, batch, key, num_samples))
    excess = jax.lax.stop_gradient(gap - target_gap)
    return -jnp.exp(log_temperature) * excess


def cal_ql_critic(params, target_params, apply, batch, key, weight=2.5, num_samples=10):
    """Cal-QL, critics: CQL with values bounded below by the returns of the data.

    The batch has the discounted return from each transition on, `returns`, [B].
    Nakamoto et al., 2023, https://arxiv.org/abs/2303.05479. Source:
    github.com/nakamotoo/Cal-QL@ac6eafe, JaxCQL/conservative_sac.py, twice this loss.
    Usual: weight 5, and 1 for Adroit, in the units of its TD loss, a square without ½,
    which are 2.5 and 0.5 here; for mazes also the factor of `cql_temperature`, with a
    target of 0.8; 10 samples each, Adam 3e-4 for the critics and 1e-4 for the actor.
    Its TD target takes the best of 10 actions of the policy.
    """
    td_key, key = jax.random.split(key)
    gap = cql_gap(params, apply, batch, key, num_samples, batch.returns)
    td_loss = sac_critic(params, target_params, apply, batch, td_key, temperature=0.0)
    return td_loss + weight * jnp.mean(jnp.sum(gap, axis=-1))


def discrete_cql(params, target_params, apply, batch, weight=0.01):
    """CQL, discrete: double DQN and the cross-entropy of the data's actions.

    `apply` returns q, [B, A]. Kumar et al., 2020, https://arxiv.org/abs/2006.04779.
    Source: github.com/takuseno/d3rlpy@38c34b6,
    d3rlpy/algos/qlearning/torch/cql_impl.py, by others, the same loss, whose weight is
    1. Usual (paper; github.com/aviralkumar2907/CQL, atari): QR-DQN with 200 quantiles
    in place of double DQN, weight 1 with 10% of the data and 4 with 1%, Adam 5e-5 with
    epsilon 0.01/32. That loss is a sum over quantiles, with up to 100 times the
    gradient of this one: the same weight is about 0.01 or 0.04 here.
    """
    q_tm1 = apply(params, batch.s_tm1)
    gap = jax.vmap(rlaxlib.discrete_cql_loss)(q_tm1, batch.a_tm1)
    return double_dqn(params, target_params, apply, batch) + weight * jnp.mean(gap)


def edac_critic(params, target_params, apply, batch, key, temperature, weight=1.0):
    """EDAC, critics: SAC with N critics whose gradients differ. Its actor is SAC's.

    With `weight=0` it is SAC-N. An et al., 2021, https://arxiv.org/abs/2110.01548.
    Source: github.com/snu-mllab/EDAC@198d570, lifelong_rl/trainers/q_learning/sac.py,
    twice this loss. Usual (paper, appendix; the code): N = 10 to 50, weight 0 to 5 for
    locomotion and up to 1000 for Adroit, Adam 3e-4, batch 256. There the TD loss is a
    square without ½: the weight here is half of that.
    """
    td_loss = sac_critic(params, target_params, apply, batch, key, temperature)
    gradient = jax.jacrev(lambda a, s: apply.critic(params.critic, s, a))
    gradients = jax.vmap(gradient)(batch.a_tm1, batch.s_tm1)
    diversity = jax.vmap(rlaxlib.edac_diversity_loss)(gradients)
    return td_loss + weight * jnp.mean(diversity)


# --- Close to the data's actions: TD3+BC, ReBRAC, BCQ. ---


def td3_bc_actor(params, apply, batch, alpha=2.5):
    """TD3+BC, actor: value, and distance from the data. Its critic is TD3's.

    `apply.actor` returns actions. Fujimoto and Gu, 2021,
    https://arxiv.org/abs/2106.06860. Source: github.com/sfujim/TD3_BC@8791ad7,
    TD3_BC.py, 1/D of this loss for D dimensions of actions. Usual: weight 2.5,
    standardised observations, Adam 3e-4, batch 256; `alpha` does not depend on the
    scale of rewards.
    """
    a = apply.actor(params.actor, batch.s_tm1)
    q = apply.critic(jax.lax.stop_gradient(params.critic), batch.s_tm1, a)[:, 0]
    # The paper's weight is for a mean over the dimensions of actions.
    weight = rlaxlib.td3_bc_weight(q, alpha * a.shape[-1])
    loss = jax.vmap(rlaxlib.td3_bc_loss, (0, 0, 0, None))
    return jnp.mean(loss(q, a, batch.a_tm1, weight))


def rebrac_critic(params, target_params, apply, batch, key, penalty=0.01):
    """ReBRAC, critics: TD3 with a penalty on the distance from the next action.

    The batch has the next action of the data, `a_t`, [B, D], which truncated
    transitions lack: leave them out. Tarasov et al., 2023,
    https://arxiv.org/abs/2305.09836. Source: github.com/tinkoff-ai/ReBRAC@694385b,
    src/algorithms/rebrac.py, twice this loss. Usual: penalty 0 to 0.5 in units of the
    reward, which is that of D4RL, but times 100 in mazes; LayerNorm in the critics, 3
    hidden layers. Locomotion: Adam 1e-3, batch 1024. Adroit: Adam 3e-4, batch 256.
    Mazes: Adam 5e-5, batch 256, discount 0.999.
    """
    a_t = apply.actor(target_params.actor, batch.s_t)
    keys = jax.random.split(key, len(a_t))
    a_t = jax.vmap(rlaxlib.td3_target_action)(keys, a_t)
    q_t = apply.critic(target_params.critic, batch.s_t, a_t)
    distance = jnp.sum(jnp.square(a_t - batch.a_t), axis=-1)
    v_t = jnp.min(q_t, axis=-1) - penalty * distance
    return critics_loss(params, apply, batch, batch.r_t + batch.discount_t * v_t)


def rebrac_actor(params, apply, batch, penalty=0.01):
    """ReBRAC, actor: the smallest value, and distance from the data.

    Tarasov et al., 2023, https://arxiv.org/abs/2305.09836. Source:
    github.com/tinkoff-ai/ReBRAC@694385b, src/algorithms/rebrac.py, the same loss.
    Usual: penalty 0.001 to 0.1, Adam 1e-3 for locomotion and 3e-4 for others, an update
    every 2 updates of the critics.
    """
    a = apply.actor(params.actor, batch.s_tm1)
    q = smallest_q(params, apply, batch.s_tm1, a)
    weight = rlaxlib.td3_bc_weight(q, 1 / penalty)
    loss = jax.vmap(rlaxlib.td3_bc_loss, (0, 0, 0, None))
    return penalty * jnp.mean(loss(q, a, batch.a_tm1, weight))


def discrete_bcq(params, target_params, apply, batch, threshold=0.3, cost=0.01):
    """BCQ, discrete: double DQN over the actions that the data's policy takes.

    `apply` returns q and the logits of the cloned policy, [B, A]. Fujimoto et al.,
    2019, https://arxiv.org/abs/1910.01708. Source: github.com/sfujim/BCQ@4876f7e,
    discrete_BCQ/discrete_BCQ.py, the same loss. Usual: threshold 0.3, Adam 6.25e-5 with
    epsilon 1.5e-4, batch 32, target network copied every 8,000 updates.
    """
    q_tm1, logits = apply(params, batch.s_tm1)
    selector, logits_t = apply(params, batch.s_t)
    legal = jax.vmap(rlaxlib.bcq_action_mask, (0, None))(logits_t, threshold)
    td_error = jax.vmap(rlaxlib.double_q_learning)(
        q_tm1,
        batch.a_tm1,
        batch.r_t,
        batch.discount_t,
        apply(target_params, batch.s_t)[0],
        jnp.where(legal, selector, -jnp.inf),
    )
    log_prob = rlaxlib.batched_index(jax.nn.log_softmax(logits), batch.a_tm1)
    loss = rlaxlib.huber_loss(td_error) - log_prob
    return jnp.mean(loss) + cost * jnp.mean(logits**2)


# --- Close to a generative model of the data's actions: BCQ, BEAR. ---


def vae_loss(params, apply, batch, key, kl_cost=0.5):
    """BCQ and BEAR, model of the data's actions: a conditional VAE.

    `apply.encode(params.vae, s, a)` returns mean and standard deviation of latents,
    twice as many as dimensions of actions, and `apply.decode(params.vae, s, z)` actions
    before the tanh. The losses of actors and critics have no gradient for the model.
    Fujimoto et al., 2018, https://arxiv.org/abs/1812.02900. Source:
    github.com/sfujim/BCQ@4876f7e, continuous_BCQ/BCQ.py, the same loss. Usual: latents
    with standard deviations of at least exp(-4), Adam 1e-3.
    """
    mean, stddev = apply.encode(params.vae, batch.s_tm1, batch.a_tm1)
    z = mean + stddev * jax.random.normal(key, mean.shape)
    a = jnp.tanh(apply.decode(params.vae, batch.s_tm1, z))
    kl = rlaxlib.gaussian_diagonal().kl_to_standard_normal(mean, stddev)
    error = jnp.mean(jnp.square(a - batch.a_tm1))
    return error + kl_cost * jnp.mean(kl) / mean.shape[-1]


def vae_actions(params, apply, s, key, num_dims, num_samples=10):
    """Return likely actions of the data before the tanh, [N, B, D]: |z| ≤ 0.5."""
    z = jax.random.normal(key, (num_samples, len(s), 2 * num_dims))
    decode = jax.vmap(apply.decode, (None, None, 0))
    return decode(jax.lax.stop_gradient(params.vae), s, jnp.clip(z, -0.5, 0.5))


def best_value(params, apply, s, a, mix=0.75):
    """Return the value of the best of several actions, [N, B, D]; of BCQ and BEAR."""
    q = jax.vmap(apply.critic, (None, None, 0))(params.critic, s, a)
    value = jax.vmap(jax.vmap(rlaxlib.ensemble_value, (0, None, None)), (0, None, None))
    return jnp.max(value(q, "min_max_mix", mix), axis=0)


def perturbed(params, apply, s, a, phi=0.05):
    """BCQ: return actions, [N, B, D], that the actor moves by at most `phi`."""
    change = jax.vmap(apply.actor, (None, None, 0))(params.actor, s, a)
    return jnp.clip(a + phi * change, -1, 1)


def bcq_critic(
    params, target_params, apply, batch, key, num_samples=10, phi=0.05, mix=0.75
):
    """BCQ, critics: the best of several likely actions of the data in the target.

    `apply.actor` takes an observation and an action, and returns a change within
    [-1, 1] of it. Fujimoto et al., 2018, https://arxiv.org/abs/1812.02900. Source:
    github.com/sfujim/BCQ@4876f7e, continuous_BCQ/BCQ.py, twice this loss. Usual: 10
    samples, 0.75 of the minimum and 0.25 of the maximum of two critics, phi 0.05, Adam
    1e-3, batch 100, target networks updated at a rate of 0.005; acts by the first
    critic's best of 100 samples.
    """
    size = batch.a_tm1.shape[-1]
    a_t = jnp.tanh(vae_actions(params, apply, batch.s_t, key, size, num_samples))
    a_t = perturbed(target_params, apply, batch.s_t, a_t, phi)
    v_t = best_value(target_params, apply, batch.s_t, a_t, mix)
    target = batch.r_t + batch.discount_t * v_t
    return critics_loss(params, apply, batch, target)


def bcq_actor(params, apply, batch, key, phi=0.05):
    """BCQ, actor: raises the first critic's value of a likely action of the data.

    Fujimoto et al., 2018, https://arxiv.org/abs/1812.02900. Source:
    github.com/sfujim/BCQ@4876f7e, continuous_BCQ/BCQ.py, the same loss. Usual: phi
    0.05, Adam 1e-3.
    """
    size = batch.a_tm1.shape[-1]
    a = jnp.tanh(vae_actions(params, apply, batch.s_tm1, key, size, 1))
    a = perturbed(params, apply, batch.s_tm1, a, phi)[0]
    critic = jax.lax.stop_gradient(params.critic)
    return -jnp.mean(apply.critic(critic, batch.s_tm1, a)[:, 0])


def bear_critic(params, target_params, apply, batch, key, num_samples=10, mix=0.75):
    """BEAR, critics: those of BCQ, with actions of the target policy.

    Kumar et al., 2019, https://arxiv.org/abs/1906.00949. Source:
    github.com/aviralkumar2907/BEAR@f2e31c1, algos.py, twice this loss. Usual: 10
    samples, 0.75 of the minimum and 0.25 of the maximum of two critics, Adam 1e-3,
    batch 100, target networks updated at a rate of 0.005; acts by the first critic's
    best of 10 samples.
    """
    keys = jax.random.split(key, num_samples)
    policy = apply.actor(target_params.actor, batch.s_t)
    a_t, _ = jax.vmap(sample_tanh_normal, (0, None, None))(keys, *policy)
    v_t = best_value(target_params, apply, batch.s_t, a_t, mix)
    target = batch.r_t + batch.discount_t * v_t
    return critics_loss(params, apply, batch, target)


def bear_actor(
    params, apply, batch, key, threshold=0.05, bandwidth=40.0, num_samples=10
):
    """BEAR, actor and dual: the value, while the policy stays in the data's support.

    The MMD is between actions before the tanh, of the policy and of the model of the
    data; `params.duals` is the logarithm of its weight. Kumar et al., 2019,
    https://arxiv.org/abs/1906.00949. Source: github.com/aviralkumar2907/BEAR@f2e31c1,
    algos.py, both losses, with mode "auto", a Laplacian kernel and without the ensemble
    variance. Usual: threshold 0.05, 10 samples, a bandwidth (mmd_sigma) of 20 or 10,
    which is 40 or 20 here, the logarithm of the weight within [-5, 10], Adam 1e-3; no
    value in the loss in the first 20 epochs, of 5,000 updates.
    """
    data_key, key = jax.random.split(key)
    size = batch.a_tm1.shape[-1]
    x = vae_actions(params, apply, batch.s_tm1, data_key, size, num_samples)
    mean, stddev = apply.actor(params.actor, batch.s_tm1)
    a = mean + stddev * jnp.clip(jax.random.normal(key, x.shape), -0.5, 0.5)
    distance = jax.vmap(rlaxlib.maximum_mean_discrepancy, (1, 1, None, None))
    distance = jnp.sqrt(distance(a, x, "laplacian", bandwidth) + 1e-6)
    bound = rlaxlib.LagrangePenalty(params.duals, threshold)
    penalty, dual_loss, _ = rlaxlib.kl_constraint_loss(distance, bound, jnp.exp)
    critic = jax.lax.stop_gradient(params.critic)
    q = jax.vmap(apply.critic, (None, None, 0))(critic, batch.s_tm1, jnp.tanh(a))
    return jnp.mean(penalty + dual_loss - jnp.min(jnp.mean(q, axis=0), axis=-1))


# --- Supervised: the decision transformer. ---


def decision_transformer(params, apply, batch):
    """Decision transformer: actions given returns-to-go. On streams.

    `apply` takes the returns-to-go, [B, T], observations and actions, and returns
    logits of each action given what precedes it, [B, T, A]. Chen et al., 2021,
    https://arxiv.org/abs/2106.01345. Source:
    github.com/kzl/decision-transformer@e2d82e6, atari/mingpt/trainer_atari.py, and
    atari/mingpt/model_atari.py, the same loss. Usual: contexts of 20 steps, AdamW 1e-4,
    weight decay 1e-4, batch 64, returns of locomotion divided by 1000. Atari: 30 or 50
    steps, AdamW 6e-4, weight decay 0.1, batch 128.
    """
    undiscounted = 1.0 * (batch.discount_t > 0)
    returns = jax.vmap(rlaxlib.discounted_returns)(
        batch.r_t, undiscounted, jnp.zeros_like(batch.r_t), **masks(batch)
    )
    s_tm1, a_tm1 = valid(batch, (batch.s_tm1, batch.a_tm1))
    logits = apply(params, returns, s_tm1, a_tm1)
    log_prob = rlaxlib.batched_index(jax.nn.log_softmax(logits), batch.a_tm1)
    return rlaxlib.masked_mean(-log_prob, mask=batch.sample_mask)
