"""Losses of actor-critics for continuous actions: DDPG, TD3, D4PG, SAC, REDQ, TQC, MPO.

And of their successors: CrossQ, BRO, SimBaV2, XQC, FastSAC, FastTD3, DrQ-v2, REPPO.

Parameters and `apply` have the fields `actor` and `critic`, which `ActorCritic` holds:
`apply.actor(params.actor, s)` and `apply.critic(params.critic, s, a)`. Critic losses
have no gradient for the actor, nor actor losses for the critic, so that both may be
added. A batch of B transitions has the fields

    s_tm1, s_t        observations before and after the action, [B, ...],
    a_tm1             actions in [-1, 1], [B, D],
    r_t, discount_t   rewards and discounts, [B].
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import rlaxlib


class ActorCritic(NamedTuple):
    """Parameters or functions of an actor and its critics, and what else there is."""

    actor: Any
    critic: Any
    duals: Any = None
    value: Any = None


def ddpg_critic(params, target_params, apply, batch):
    """DDPG, critic: one-step TD learning. `apply.critic` returns q, [B].

    Lillicrap et al., 2016, https://arxiv.org/abs/1509.02971. Source:
    github.com/openai/baselines@ea25b9e, baselines/ddpg/ddpg_learner.py, a square
    without ½: twice this loss. Usual: discount 0.99, Adam 1e-3 with L2 regularisation
    0.01, batch 64, target networks updated at a rate of 0.01, in the paper 0.001.
    """
    q_tm1 = apply.critic(params.critic, batch.s_tm1, batch.a_tm1)
    a_t = apply.actor(target_params.actor, batch.s_t)
    q_t = apply.critic(target_params.critic, batch.s_t, a_t)
    td_error = jax.vmap(rlaxlib.td_learning)(q_tm1, batch.r_t, batch.discount_t, q_t)
    return jnp.mean(rlaxlib.l2_loss(td_error))


def ddpg_actor(params, apply, batch):
    """DDPG, actor: the deterministic policy gradient. Its value has no meaning.

    Lillicrap et al., 2016, https://arxiv.org/abs/1509.02971. Source:
    github.com/openai/baselines@ea25b9e, baselines/ddpg/ddpg_learner.py, the same
    gradient. Usual: Adam 1e-4, Ornstein-Uhlenbeck noise of damping 0.15 and scale 0.2,
    or noise of the parameters.
    """
    a_tm1 = apply.actor(params.actor, batch.s_tm1)
    critic = jax.lax.stop_gradient(params.critic)
    dqda = jax.grad(lambda a: jnp.sum(apply.critic(critic, batch.s_tm1, a)))(a_tm1)
    return jnp.mean(jnp.sum(jax.vmap(rlaxlib.dpg_loss)(a_tm1, dqda), axis=-1))


def p_dqn_critic(params, target_params, apply, batch):
    """P-DQN, critic: Q-learning over discrete actions that have parameters.

    `apply.actor` returns the parameters of all discrete actions, [B, D], and
    `apply.critic` takes them and returns q, [B, A]. The batch has discrete actions
    `a_tm1`, [B], and their parameters `x_tm1`, [B, D]. Xiong et al., 2018,
    https://arxiv.org/abs/1810.06394. Source: github.com/cycraig/MP-DQN@eec13eb,
    agents/pdqn.py, by others, a square without ½: twice this loss. Usual: Adam 1e-3; on
    Platform discount 0.9 and batch 128, on soccer 0.99 and 32.
    """
    x_t = apply.actor(target_params.actor, batch.s_t)
    q_tm1 = apply.critic(params.critic, batch.s_tm1, batch.x_tm1)
    q_t = apply.critic(target_params.critic, batch.s_t, x_t)
    td_error = jax.vmap(rlaxlib.q_learning)(
        q_tm1, batch.a_tm1, batch.r_t, batch.discount_t, q_t
    )
    return jnp.mean(rlaxlib.l2_loss(td_error))


def p_dqn_actor(params, apply, batch, low=-1.0, high=1.0):
    """P-DQN and PA-DDPG, actor: gradients inverted at the bounds. Without a tanh.

    The value of this loss has no meaning. Hausknecht and Stone, 2016,
    https://arxiv.org/abs/1511.04143. Source: github.com/cycraig/MP-DQN@eec13eb,
    agents/pdqn.py, by others, the same gradient, and
    github.com/mhauskn/dqn-hfo@c7b0a73, src/dqn.cpp. Usual: Adam 1e-5 for the actor and
    1e-3 for the critic, gradients clipped at 10; on Platform
    (github.com/cycraig/MP-DQN, by others) 1e-4 for the actor.
    """
    x_tm1 = apply.actor(params.actor, batch.s_tm1)
    critic = jax.lax.stop_gradient(params.critic)
    dqdx = jax.grad(lambda x: jnp.sum(apply.critic(critic, batch.s_tm1, x)))(x_tm1)
    invert = jax.vmap(rlaxlib.invert_gradients, (0, 0, None, None))
    dqdx = invert(x_tm1, dqdx, low, high)
    return jnp.mean(jnp.sum(jax.vmap(rlaxlib.dpg_loss)(x_tm1, dqdx), axis=-1))


def td3_critic(params, target_params, apply, batch, key, stddev=0.2, clip=0.5):
    """TD3, critics: clipped double Q-learning. `apply.critic` returns q, [B, 2].

    Fujimoto et al., 2018, https://arxiv.org/abs/1802.09477. Source:
    github.com/sfujim/TD3@34770cc, TD3.py, squares without ½: twice this loss. Usual:
    noise 0.2 clipped at 0.5, discount 0.99, Adam 3e-4, batch 256, where the paper has
    1e-3 and 100; exploration noise 0.1 after 25,000 random steps; target networks
    updated at a rate of 0.005.
    """
    q_tm1 = apply.critic(params.critic, batch.s_tm1, batch.a_tm1)
    a_t = apply.actor(target_params.actor, batch.s_t)
    noisy = jax.vmap(rlaxlib.td3_target_action, (0, 0, None, None))
    a_t = noisy(jax.random.split(key, len(a_t)), a_t, stddev, clip)
    q_t = apply.critic(target_params.critic, batch.s_t, a_t)
    target = batch.r_t + batch.discount_t * jnp.min(q_t, axis=-1)
    target = jax.lax.stop_gradient(target)
    return jnp.mean(jnp.sum(rlaxlib.l2_loss(q_tm1 - target[:, None]), axis=-1))


def td3_actor(params, apply, batch):
    """TD3, actor: the value of the first critic, maximised at every second update.

    Fujimoto et al., 2018, https://arxiv.org/abs/1802.09477. Source:
    github.com/sfujim/TD3@34770cc, TD3.py, the same loss. Usual: Adam 3e-4, an update of
    the actor and the target networks every 2 updates of the critics.
    """
    a_tm1 = apply.actor(params.actor, batch.s_tm1)
    critic = jax.lax.stop_gradient(params.critic)
    return -jnp.mean(apply.critic(critic, batch.s_tm1, a_tm1)[:, 0])


def d4pg_critic(params, target_params, apply, batch, low=-150.0, high=150.0):
    """D4PG, critic: categorical TD learning. `apply.critic` returns logits, [B, K].

    For n steps, as in the paper, pass `n_step_batch(batch)` of `value_based.py`.
    Barth-Maron et al., 2018, https://arxiv.org/abs/1804.08617. Source:
    github.com/google-deepmind/acme@770bc75, acme/agents/jax/d4pg/learning.py, the same
    loss. Usual: n = 5, 51 atoms, discount 0.99, Adam 1e-4, batch 256, gradients clipped
    to a norm of 40, target networks copied every 100 updates.
    """
    logits_tm1 = apply.critic(params.critic, batch.s_tm1, batch.a_tm1)
    a_t = apply.actor(target_params.actor, batch.s_t)
    logits_t = apply.critic(target_params.critic, batch.s_t, a_t)
    atoms = jnp.linspace(low, high, logits_t.shape[-1])
    loss = jax.vmap(rlaxlib.categorical_td_learning, (None, 0, 0, 0, None, 0))(
        atoms, logits_tm1, batch.r_t, batch.discount_t, atoms, logits_t
    )
    return jnp.mean(loss)


def d4pg_actor(params, apply, batch, low=-150.0, high=150.0, max_norm=1.0):
    """D4PG, actor: the deterministic policy gradient of the mean of the critic.

    As in the code, it learns at the next observations, the gradient of an action has a
    norm of at most `max_norm`, and the loss is a mean over the D dimensions of actions.
    The paper has the observations themselves, no bound and a sum. Barth-Maron et al.,
    2018, https://arxiv.org/abs/1804.08617. Source:
    github.com/google-deepmind/acme@770bc75, acme/agents/jax/d4pg/learning.py, the same
    loss. Usual: Adam 1e-4, Gaussian noise of scale 0.3.
    """
    critic = jax.lax.stop_gradient(params.critic)

    def total(a):
        logits = apply.critic(critic, batch.s_t, a)
        atoms = jnp.linspace(low, high, logits.shape[-1])
        return jnp.sum(jax.nn.softmax(logits) @ atoms)

    a_t = apply.actor(params.actor, batch.s_t)
    loss = jax.vmap(rlaxlib.dpg_loss, (0, 0, None))
    return jnp.mean(loss(a_t, jax.grad(total)(a_t), max_norm))


def sample_tanh_normal(key, mu, sigma):
    """Sample actions of a tanh-Gaussian, and return them and their log-densities."""
    u = mu + sigma * jax.random.normal(key, mu.shape)
    return jnp.tanh(u), jax.vmap(rlaxlib.tanh_normal_log_prob)(u, mu, sigma)


def sac_critic(params, target_params, apply, batch, key, temperature):
    """SAC, critics: `apply.critic` returns q, [B, 2], `apply.actor` mean and stddev.

    `temperature` is the exponential of `log_temperature`, which is a parameter beside
    those of the networks: see `sac_temperature`. SimBa has these losses, residual
    layers with layer normalisation, and `running_moments` of observations (Lee et al.,
    2024, https://arxiv.org/abs/2410.09754). Haarnoja et al., 2018,
    https://arxiv.org/abs/1812.05905. Source:
    github.com/rail-berkeley/softlearning@13cf187, softlearning/algorithms/sac.py, the
    same losses, and, for SimBa, github.com/SonyResearch/simba@7d0358b,
    scale_rl/agents/sac/sac_update.py, squares without ½: twice this loss. Usual (paper,
    table 1): discount 0.99, Adam 3e-4, batch 256, target critics updated at a rate of
    0.005. SimBa: AdamW 1e-4 with decay 0.01, one critic, two in tasks that terminate,
    target entropy -D/2, first temperature 0.01, 2 blocks of 512, 1 of 128 in the actor.
    """
    q_tm1 = apply.critic(params.critic, batch.s_tm1, batch.a_tm1)
    actor = jax.lax.stop_gradient(params.actor)
    a_t, log_prob_t = sample_tanh_normal(key, *apply.actor(actor, batch.s_t))
    q_t = apply.critic(target_params.critic, batch.s_t, a_t)
    target = jax.vmap(rlaxlib.sac_critic_target, (0, 0, 0, 0, None))(
        batch.r_t, batch.discount_t, q_t, log_prob_t, temperature
    )
    return jnp.mean(jnp.sum(rlaxlib.l2_loss(q_tm1 - target[:, None]), axis=-1))


def sac_actor(params, apply, batch, key, temperature):
    """SAC, actor: the soft value of a reparameterised action.

    Haarnoja et al., 2018, https://arxiv.org/abs/1812.05905. Source:
    github.com/rail-berkeley/softlearning@13cf187, softlearning/algorithms/sac.py, where
    it is the mean of the critics, as in `redq_actor`; the minimum is the paper's (a
    cosine of 0.99 at random inputs). Usual (paper, table 1): Adam 3e-4.
    """
    a_tm1, log_prob = sample_tanh_normal(key, *apply.actor(params.actor, batch.s_tm1))
    q = apply.critic(jax.lax.stop_gradient(params.critic), batch.s_tm1, a_tm1)
    loss = jax.vmap(rlaxlib.sac_policy_loss, (0, 0, None))(log_prob, q, temperature)
    return jnp.mean(loss)


def sac_temperature(
    log_temperature, params, apply, batch, key, target_entropy, kind="alpha"
):
    """SAC, temperature: raised while the entropy is below its target.

    Haarnoja et al., 2018, https://arxiv.org/abs/1812.05905. Source:
    github.com/rail-berkeley/softlearning@13cf187, softlearning/algorithms/sac.py, the
    same loss. The code of REDQ, TQC, CQL and EDAC, in PyTorch, has log α in place of α,
    the kind "log_alpha". Usual (paper, table 1): Adam 3e-4, target entropy -D.
    """
    _, log_prob = sample_tanh_normal(key, *apply.actor(params.actor, batch.s_tm1))
    loss = jax.vmap(rlaxlib.sac_temperature_loss, (None, 0, None, None))
    return jnp.mean(loss(log_temperature, log_prob, target_entropy, kind))


def redq_critic(params, target_params, apply, batch, key, temperature, size=2):
    """REDQ: SAC with the minimum of a random subset of N critics. Its actor is SAC's.

    `apply.critic` returns q, [B, N]; the actor maximises their mean. DroQ (Hiraoka et
    al., 2021, https://arxiv.org/abs/2110.02034) has N = 2, and critics with dropout and
    layer normalisation in place of the many. RLPD (Ball et al., 2023,
    https://arxiv.org/abs/2302.02948) has layer normalisation, and batches of which half
    are offline data. Chen et al., 2021, https://arxiv.org/abs/2101.05982. Source:
    github.com/watchernyu/REDQ@7b5d1bf, redq/algos/redq_sac.py, a mean over the N
    critics times N, without ½: twice this loss. DroQ:
    github.com/TakuyaHiraoka/Dropout-Q-Functions-for-Doubly-Efficient-Reinforcement-Learning@f89a79a,
    KUCodebase/code/agent.py, twice this loss, with dropout in all losses. RLPD:
    github.com/ikostrikov/rlpd@c90fd4b, rlpd/agents/sac/sac_learner.py, a mean over the
    critics, 2/N times this loss, in which the target's entropy is an option. Usual: N =
    10, subsets of 2, 20 updates a step, otherwise those of SAC, but target entropies
    from -1 to -4, those of MBPO. DroQ: a dropout of 0.005 to 0.1 by task. RLPD: target
    entropy -D/2, first temperature 1.
    """
    subset_key, key = jax.random.split(key)
    q_tm1 = apply.critic(params.critic, batch.s_tm1, batch.a_tm1)
    actor = jax.lax.stop_gradient(params.actor)
    a_t, log_prob_t = sample_tanh_normal(key, *apply.actor(actor, batch.s_t))
    q_t = apply.critic(target_params.critic, batch.s_t, a_t)
    v_t = jax.vmap(rlaxlib.subset_minimum, (None, 0, None))(subset_key, q_t, size)
    target = jax.vmap(rlaxlib.sac_critic_target, (0, 0, 0, 0, None))(
        batch.r_t, batch.discount_t, v_t, log_prob_t, temperature
    )
    return jnp.mean(jnp.sum(rlaxlib.l2_loss(q_tm1 - target[:, None]), axis=-1))


def redq_actor(params, apply, batch, key, temperature):
    """REDQ, actor: the soft value under the mean of all critics.

    Chen et al., 2021, https://arxiv.org/abs/2101.05982. Source:
    github.com/watchernyu/REDQ@7b5d1bf, redq/algos/redq_sac.py, the same loss; its
    temperature has the loss of `sac_temperature`, of the kind "log_alpha". Usual: Adam
    3e-4, one update every 20 updates of the critics.
    """

    def mean(params, s, a):
        return jnp.mean(apply.critic(params, s, a), axis=-1, keepdims=True)

    return sac_actor(params, ActorCritic(apply.actor, mean), batch, key, temperature)


def tqc_critic(params, target_params, apply, batch, key, temperature, num_dropped=2):
    """TQC: SAC with quantile critics, dropping the largest in the target.

    `apply.critic` returns quantiles, [B, C, N]. Kuznetsov et al., 2020,
    https://arxiv.org/abs/2005.04269. Source:
    github.com/SamsungLabs/tqc_pytorch@65114eb, tqc/functions.py and tqc/trainer.py, a
    mean over the N quantiles too: this loss is N times that, 25 there, which a clip of
    gradients or SGD feels. Usual: C = 5, N = 25, 2 dropped for each critic (0 for
    HalfCheetah, 5 for Hopper), otherwise those of SAC.
    """
    q_tm1 = apply.critic(params.critic, batch.s_tm1, batch.a_tm1)
    actor = jax.lax.stop_gradient(params.actor)
    a_t, log_prob_t = sample_tanh_normal(key, *apply.actor(actor, batch.s_t))
    q_t = apply.critic(target_params.critic, batch.s_t, a_t)
    z_t = jax.vmap(rlaxlib.tqc_targets, (0, None))(q_t, num_dropped)
    z_t = z_t - temperature * log_prob_t[:, None]
    target = batch.r_t[:, None] + batch.discount_t[:, None] * z_t
    loss = jax.vmap(rlaxlib.quantile_regression_loss, (0, None, None, None))
    tau = rlaxlib.quantile_midpoints(q_tm1.shape[-1])
    return jnp.mean(jax.vmap(loss, (0, None, 0, None))(q_tm1, tau, target, 1.0))


def tqc_actor(params, apply, batch, key, temperature):
    """TQC, actor: the soft value under the mean of all quantiles of all critics.

    Kuznetsov et al., 2020, https://arxiv.org/abs/2005.04269. Source:
    github.com/SamsungLabs/tqc_pytorch@65114eb, tqc/trainer.py, the same loss. Usual:
    Adam 3e-4.
    """

    def mean(params, s, a):
        return jnp.mean(apply.critic(params, s, a), axis=(-2, -1))[..., None]

    return sac_actor(params, ActorCritic(apply.actor, mean), batch, key, temperature)


def mpo(
    params,
    target_params,
    apply,
    batch,
    key,
    num_samples=20,
    bounds=(0.1, 0.01, 0.0001, 0.001),
):
    """MPO, actor: weights of sampled actions, and decoupled constraints on the KL.

    `params.duals` are the parameters of four constraints: temperature, mean, stddev,
    and temperature of the weights by distance from [-1, 1], Acme's penalty. The critic
    is that of `ddpg_critic`, whose `apply.actor` then samples an action with a key of
    its own, where Acme has the mean of 20, or `retrace_continuous`. Abdolmaleki et al.,
    2018, https://arxiv.org/abs/1812.02256. Source:
    github.com/google-deepmind/acme@770bc75, acme/jax/losses/mpo.py, the same loss with
    per_dim_constraining=False. Usual: 20 samples, KL bounds 0.1, 0.0025, 1e-6 and
    0.001, the second and third for each dimension of the action, by default; duals at
    first 10, 10, 1000 and 10, Adam 1e-4 and 1e-2 for the duals, gradients clipped to a
    norm of 40, target networks copied every 100 updates. The bounds here are for all
    dimensions together.
    """
    mean, stddev = apply.actor(params.actor, batch.s_tm1)
    old = apply.actor(target_params.actor, batch.s_tm1)
    a = old[0] + old[1] * jax.random.normal(key, (num_samples, *mean.shape))
    q = jax.vmap(apply.critic, (None, None, 0))(target_params.critic, batch.s_tm1, a)
    *penalties, bound = map(rlaxlib.LagrangePenalty, params.duals, bounds)

    def loss(*inputs):
        mpo_loss = rlaxlib.gaussian_mpo_loss
        return mpo_loss(*inputs, *penalties, bounds_constraint=bound)[0]

    return jnp.mean(jax.vmap(loss, (0, 0, 0, 0, 1, 1))(mean, stddev, *old, a, q))


# --- Successors of SAC and TD3. ---


def crossq_critic(params, apply, batch, key, temperature):
    """CrossQ, critics: SAC without target networks. Its actor is SAC's.

    `apply.critic` returns q, [B, N]. The critic is called once for the observations
    before and after the actions, so that batch normalisation, which takes the place of
    the target networks, has the statistics of both. Bhatt et al., 2024,
    https://arxiv.org/abs/1902.05605. Source: github.com/adityab/CrossQ@a318a26,
    sbx/sac/sac.py, the same loss. The actor's loss normalises by running statistics.
    Usual: N = 2, Adam 1e-3 with a first moment of 0.5, batch renormalisation with
    momentum 0.99, an update of the actor every 3 steps.
    """
    actor = jax.lax.stop_gradient(params.actor)
    a_t, log_prob_t = sample_tanh_normal(key, *apply.actor(actor, batch.s_t))
    s = jnp.concatenate([batch.s_tm1, batch.s_t])
    q = apply.critic(params.critic, s, jnp.concatenate([batch.a_tm1, a_t]))
    q_tm1, q_t = jnp.split(q, 2)
    target = jax.vmap(rlaxlib.sac_critic_target, (0, 0, 0, 0, None))(
        batch.r_t, batch.discount_t, q_t, log_prob_t, temperature
    )
    return jnp.mean(jnp.sum(rlaxlib.l2_loss(q_tm1 - target[:, None]), axis=-1))


def bro_critic(params, target_params, apply, batch, key, temperature, pessimism=0.0):
    """BRO, critics: SAC with quantiles, and less pessimism than the smaller of two.

    `apply.critic` returns quantiles, [B, 2, N]. Nauman et al., 2024,
    https://arxiv.org/abs/2405.16158. Source:
    github.com/naumix/BiggerRegularizedOptimistic@5870a13, jaxrl/bro/critic.py, the same
    loss; the optimistic policy that explores there is left out, as in its bro_minimal.
    Usual: pessimism 0, 100 quantiles, layers of 512 with layer normalisation and
    residual connections, AdamW 3e-4, batch 128, 10 updates a step, target entropy -D/2,
    Adam 3e-4 with a first moment of 0.5 for the temperature, resets of all parameters
    after 15,000, 50,000, 250,000, ... steps.
    """
    q_tm1 = apply.critic(params.critic, batch.s_tm1, batch.a_tm1)
    actor = jax.lax.stop_gradient(params.actor)
    a_t, log_prob_t = sample_tanh_normal(key, *apply.actor(actor, batch.s_t))
    q_t = apply.critic(target_params.critic, batch.s_t, a_t)
    z_t = pessimistic(q_t, pessimism) - temperature * log_prob_t[:, None]
    target = batch.r_t[:, None] + batch.discount_t[:, None] * z_t
    tau = rlaxlib.quantile_midpoints(q_tm1.shape[-1])
    loss = jax.vmap(rlaxlib.quantile_regression_loss, (0, None, None, None))
    loss = jax.vmap(loss, (0, None, 0, None))(q_tm1, tau, target, 1.0)
    return jnp.mean(jnp.sum(loss, axis=-1))


def bro_actor(params, apply, batch, key, temperature, pessimism=0.0):
    """BRO, actor: the soft value under the mean of the quantiles.

    Nauman et al., 2024, https://arxiv.org/abs/2405.16158. Source:
    github.com/naumix/BiggerRegularizedOptimistic@5870a13, jaxrl/bro/actor.py, the same
    loss. Usual: AdamW 3e-4.
    """

    def mean(params, s, a):
        quantiles = pessimistic(apply.critic(params, s, a), pessimism)
        return jnp.mean(quantiles, axis=-1, keepdims=True)

    return sac_actor(params, ActorCritic(apply.actor, mean), batch, key, temperature)


def pessimistic(q, pessimism):
    """Return the mean of two critics minus a part of half their distance, [B, N]."""
    mix = jax.vmap(rlaxlib.ensemble_value, (1, None, None))
    mix = jax.vmap(mix, (0, None, None))
    return mix(q, "min_max_mix", (1 + pessimism) / 2)


def categorical_sac_critic(
    params, target_params, apply, batch, key, temperature, low=-5.0, high=5.0
):
    """SimBaV2, critics: SAC with categorical distributions.

    `apply.critic` returns logits, [B, N, K]; the distribution of the smallest mean is
    the target of all. Its actor is that of SAC, of the means: `categorical_mean`.
    Outside of the loss, weights and features have norm 1, and rewards are divided by
    `reward_scale(max_return=5)`. Lee et al., 2025, https://arxiv.org/abs/2502.15280.
    Source: github.com/dojeon-ai/SimbaV2@14fafb2,
    scale_rl/agents/simbaV2/simbaV2_update.py, the same loss. Usual: 101 atoms in
    [-5, 5], one critic, two in tasks that terminate, target entropy -D/2, first
    temperature 0.01, Adam from 1e-4 to 5e-5, target critics updated at a rate of 0.005,
    2 updates a step.
    """
    logits_tm1 = apply.critic(params.critic, batch.s_tm1, batch.a_tm1)
    actor = jax.lax.stop_gradient(params.actor)
    a_t, log_prob_t = sample_tanh_normal(key, *apply.actor(actor, batch.s_t))
    logits_t = apply.critic(target_params.critic, batch.s_t, a_t)
    atoms = jnp.linspace(low, high, logits_t.shape[-1])
    logits_t = least(logits_t, jax.nn.softmax(logits_t) @ atoms)
    atoms_t = atoms - temperature * log_prob_t[:, None]
    return categorical_loss(batch, atoms, logits_tm1, atoms_t, logits_t)


def xqc_critic(
    params, target_params, apply, batch, key, temperature, low=-5.0, high=5.0
):
    """XQC, critics: categorical SAC, whose critics normalise batches as CrossQ's.

    `apply.critic` is that of `categorical_sac_critic`. Critics and target critics are
    called once each for the observations before and after the actions, so that batch
    normalisation has the statistics of both. The actor, which normalises its batch,
    has the loss of `sac_actor`, of the means, with running statistics of the critics.
    Outside of the loss, weights have norm 1, and rewards are divided by
    `reward_scale(max_return=5)`. Palenicek et al., 2025,
    https://arxiv.org/abs/2509.25174. Source: github.com/danielpalenicek/xqc@9a6832b,
    xqc/agents/xqc/critic.py, the same loss. Usual: that of `categorical_sac_critic`,
    two critics, Adam from 3e-4 to 3e-5, an update of the actor every 3.
    """
    actor = jax.lax.stop_gradient(params.actor)
    a_t, log_prob_t = sample_tanh_normal(key, *apply.actor(actor, batch.s_t))
    s = jnp.concatenate([batch.s_tm1, batch.s_t])
    a = jnp.concatenate([batch.a_tm1, a_t])
    logits_tm1, _ = jnp.split(apply.critic(params.critic, s, a), 2)
    _, logits_t = jnp.split(apply.critic(target_params.critic, s, a), 2)
    atoms = jnp.linspace(low, high, logits_t.shape[-1])
    logits_t = least(logits_t, jax.nn.softmax(logits_t) @ atoms)
    atoms_t = atoms - temperature * log_prob_t[:, None]
    return categorical_loss(batch, atoms, logits_tm1, atoms_t, logits_t)


def fast_sac_critic(
    params, target_params, apply, batch, key, temperature, low=-20.0, high=20.0
):
    """FastSAC, critics: categorical SAC without a minimum, for many environments.

    `apply.critic` returns logits, [B, N, K]; each distribution has a target of its own.
    The actor is `redq_actor` of the means: `categorical_mean`. Seo et al., 2025,
    https://arxiv.org/abs/2512.01996. Source: github.com/amazon-far/holosoma@fc600e7,
    src/holosoma/holosoma/agents/fast_sac/fast_sac_agent.py, the same loss. Usual: 2
    critics with layer normalisation, 101 atoms, discount 0.97, batch 8,192, AdamW 3e-4,
    with betas 0.9 and 0.95 and weight decay 0.001, 8 updates a step, target critics
    updated at a rate of 0.125, an actor update every 4, target entropy 0, first
    temperature 0.001, which learns from log-densities of next actions,
    `running_moments` of observations, and mirror images of all transitions.
    """
    logits_tm1 = apply.critic(params.critic, batch.s_tm1, batch.a_tm1)
    actor = jax.lax.stop_gradient(params.actor)
    a_t, log_prob_t = sample_tanh_normal(key, *apply.actor(actor, batch.s_t))
    logits_t = apply.critic(target_params.critic, batch.s_t, a_t)
    atoms = jnp.linspace(low, high, logits_t.shape[-1])
    atoms_t = atoms - temperature * log_prob_t[:, None]
    return categorical_loss(batch, atoms, logits_tm1, atoms_t, logits_t)


def fast_td3_critic(
    params,
    target_params,
    apply,
    batch,
    key,
    stddev=0.001,
    clip=0.5,
    bounds=(-250.0, 250.0),
):
    """FastTD3, critics: TD3 with categorical distributions, for many environments.

    `apply.critic` returns logits, [B, 2, K]; the distribution of the smaller mean is
    the target of both. There is no target actor. The actor is `fast_td3_actor`. Seo et
    al., 2025, https://arxiv.org/abs/2505.22642. Source:
    github.com/younggyoseo/FastTD3@229ed59, fast_td3/train.py, the same loss. Usual: 128
    environments, each of which explores with a scale of noise of its own, from 0.001 to
    0.4; discount 0.99, batch 32,768, 101 atoms, AdamW 3e-4 with weight decay 0.1,
    `running_moments` of observations, 2 updates a step, target critics updated at a
    rate of 0.1. On MuJoCo Playground 1024 environments, discount 0.97, bounds ±10.
    """
    logits_tm1 = apply.critic(params.critic, batch.s_tm1, batch.a_tm1)
    a_t = apply.actor(jax.lax.stop_gradient(params.actor), batch.s_t)
    noisy = jax.vmap(rlaxlib.td3_target_action, (0, 0, None, None))
    a_t = noisy(jax.random.split(key, len(a_t)), a_t, stddev, clip)
    logits_t = apply.critic(target_params.critic, batch.s_t, a_t)
    atoms = jnp.linspace(*bounds, logits_t.shape[-1])
    z_t = batch.r_t[:, None] + batch.discount_t[:, None] * atoms
    q_t = jax.nn.softmax(logits_t) * jnp.clip(z_t, *bounds)[:, None]
    logits_t = least(logits_t, jnp.sum(q_t, axis=-1))
    atoms_t = jnp.tile(atoms, (len(a_t), 1))
    return categorical_loss(batch, atoms, logits_tm1, atoms_t, logits_t)


def fast_td3_actor(params, apply, batch, bounds=(-250.0, 250.0)):
    """FastTD3, actor: the smaller of the two means of its critics.

    `apply.critic` returns logits, [B, 2, K]. Seo et al., 2025,
    https://arxiv.org/abs/2505.22642. Source: github.com/younggyoseo/FastTD3@229ed59,
    fast_td3/train.py, the same loss. Usual: AdamW 3e-4 with weight decay 0.1, an update
    every 2 updates of the critics.
    """
    a_tm1 = apply.actor(params.actor, batch.s_tm1)
    critic = categorical_mean(apply, *bounds).critic
    q = critic(jax.lax.stop_gradient(params.critic), batch.s_tm1, a_tm1)
    return -jnp.mean(jnp.min(q, axis=-1))


def least(logits, q):
    """Return the logits of the critic of the smallest value for all, [B, N, K]."""
    worst = jnp.argmin(q, axis=-1)[:, None, None]
    return jnp.broadcast_to(jnp.take_along_axis(logits, worst, axis=1), logits.shape)


def categorical_loss(batch, atoms, logits_tm1, atoms_t, logits_t):
    """Return the loss of N critics, [B, N, K], each with a target distribution."""
    axes = (None, 0, None, None, None, 0)
    loss = jax.vmap(rlaxlib.categorical_td_learning, axes)
    loss = jax.vmap(loss, (None, 0, 0, 0, 0, 0))(
        atoms, logits_tm1, batch.r_t, batch.discount_t, atoms_t, logits_t
    )
    return jnp.mean(jnp.sum(loss, axis=-1))


def categorical_mean(apply, low=-5.0, high=5.0):
    """Return networks whose critics return the means of their logits, [B, N]."""

    def means(params, s, a):
        logits = apply.critic(params, s, a)
        return jax.nn.softmax(logits) @ jnp.linspace(low, high, logits.shape[-1])

    return ActorCritic(apply.actor, means)


def drqv2_critic(params, target_params, apply, batch, key, stddev, clip=0.3):
    """DrQ-v2, critics: TD3's loss of n steps, with the noise that explores.

    There is no target actor. For n steps, pass `n_step_batch(batch)` of
    `value_based.py`. The images of a batch are shifted by up to 4 pixels before, and
    the gradient of this loss alone reaches their encoder. Yarats et al., 2021,
    https://arxiv.org/abs/2107.09645. Source: github.com/facebookresearch/drqv2@c0c650b,
    drqv2.py, squares without ½: twice this loss. Usual: n = 3, noise from 1 to 0.1,
    clipped at 0.3, batch 256, Adam 1e-4, target critics updated at a rate of 0.01, an
    update every 2 steps.
    """
    actor = jax.lax.stop_gradient(params.actor)
    target_params = target_params._replace(actor=actor)
    return td3_critic(params, target_params, apply, batch, key, stddev, clip)


def drqv2_actor(params, apply, batch, key, stddev, clip=0.3):
    """DrQ-v2, actor: the smaller value of a noisy action.

    Yarats et al., 2021, https://arxiv.org/abs/2107.09645. Source:
    github.com/facebookresearch/drqv2@c0c650b, drqv2.py, the same loss. Usual: Adam
    1e-4.
    """
    a_tm1 = apply.actor(params.actor, batch.s_tm1)
    noise = jnp.clip(stddev * jax.random.normal(key, a_tm1.shape), -clip, clip)
    # Where a bound cuts, the gradient passes as if it did not.
    noise = jnp.clip(a_tm1 + noise, -1, 1) - a_tm1
    a_tm1 = a_tm1 + jax.lax.stop_gradient(noise)
    q = apply.critic(jax.lax.stop_gradient(params.critic), batch.s_tm1, a_tm1)
    return -jnp.mean(jnp.min(q, axis=-1))


def reppo_targets(batch, temperature, lambda_=0.95):
    """REPPO: λ-returns of soft rewards, once for each rollout.

    Streams have values `v_t` and log-densities `log_prob_t` of a sampled next action,
    [B, T]. Voelcker et al., 2025, https://arxiv.org/abs/2507.11019. Source:
    github.com/cvoelcker/reppo@a7ab85b, src/jaxrl/reppo.py, the same returns, without
    the weights of its noisier environments; there an entropy follows the end of an
    episode, too, and a cut acts a step early, since the loss leaves the cut step out.
    Usual: streams of 128 steps, 1024 environments, discount 0.99, λ 0.95.
    """
    soft_r_t = batch.r_t - batch.discount_t * temperature * batch.log_prob_t
    returns = jax.vmap(rlaxlib.lambda_returns, (0, 0, 0, None))
    return returns(
        *(soft_r_t, batch.discount_t, batch.v_t, lambda_),
        **{"truncated_t": batch.truncated_t, "sample_mask": batch.sample_mask},
    )


def reppo_critic(params, apply, batch, target, pair):
    """REPPO, critic: the cross-entropy with λ-returns, without a target network.

    `apply.critic` returns logits, [B, K], of `pair`. Targets are clipped to the centres
    of its outer bins. Cut steps are left out. Transitions, without padding, may be
    shuffled, with their `target` of `reppo_targets`, [B]. Voelcker et al., 2025,
    https://arxiv.org/abs/2507.11019. Source: github.com/cvoelcker/reppo@a7ab85b,
    src/jaxrl/reppo.py, the same loss; an auxiliary loss there is a mean of squares, of
    the errors of predicted features and rewards. Usual: 151 bins of width w, and a
    standard deviation of 0.75 w: `hl_gauss_pair(low - w / 2, high + w / 2, 151)`; Adam
    3e-4, gradients clipped to a norm of 0.5. Brax: centres from 0 to 150, rewards times
    0.1, 4 epochs of 128 minibatches. DeepMind Control: from 0 to 150, 8 of 64.
    Humanoids of Playground: from -10 to 10, discount 0.97, 8 of 16.
    """
    logits = apply.critic(params.critic, batch.s_tm1, batch.a_tm1)
    outer = jnp.eye(logits.shape[-1])[jnp.array([0, -1])]
    target = jnp.clip(target, *jax.vmap(pair.apply_inv)(outer))
    loss = jax.vmap(rlaxlib.categorical_regression_loss, (0, 0, None))
    cut = False if batch.truncated_t is None else batch.truncated_t
    return jnp.mean(jnp.where(cut, 0.0, loss(logits, target, pair)))


def reppo_actor(
    params, old_params, apply, batch, key, target_entropy, max_kl=0.1, num_samples=16
):
    """REPPO, actor: SAC's loss where the policy is close to the old one, else the KL.

    `apply.critic` returns q, [B]; `params.duals` are the logarithms of the temperature
    and of the coefficient of the KL. Voelcker et al., 2025,
    https://arxiv.org/abs/2507.11019. Source: github.com/cvoelcker/reppo@a7ab85b,
    src/jaxrl/reppo.py, the same loss. Usual: KL at most 0.1, target entropy -D/2, both
    first coefficients 0.01, Adam 3e-4.
    """
    sample_key, key = jax.random.split(key)
    mu, sigma = apply.actor(params.actor, batch.s_tm1)
    old = jax.lax.stop_gradient(apply.actor(old_params.actor, batch.s_tm1))
    noise = jax.random.normal(sample_key, (num_samples, *mu.shape))
    log_density = jax.vmap(jax.vmap(rlaxlib.tanh_normal_log_prob), (0, None, None))
    u = old[0] + old[1] * noise
    kl = jnp.mean(log_density(u, *old) - log_density(u, mu, sigma), axis=0)
    temperature, coefficient = jnp.exp(params.duals)
    a, log_prob = sample_tanh_normal(key, mu, sigma)
    q = apply.critic(jax.lax.stop_gradient(params.critic), batch.s_tm1, a)
    loss = rlaxlib.sac_policy_loss(log_prob, q, temperature)
    loss = jnp.where(kl < max_kl, loss, jax.lax.stop_gradient(coefficient) * kl)
    excess = jax.lax.stop_gradient((-log_prob - target_entropy, kl - max_kl))
    return jnp.mean(loss + temperature * excess[0] - coefficient * excess[1])
