"""Losses of actor-critics for continuous actions: DDPG, TD3, D4PG, SAC, REDQ, TQC, MPO.

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
    noisy = jax.vmap(rlaxlib.td3_target_action, (0, 0, None, None, None, None))
    a_t = noisy(jax.random.split(key, len(a_t)), a_t, stddev, clip, -1.0, 1.0)
    q_t = apply.critic(target_params.critic, batch.s_t, a_t)
    target = jax.vmap(rlaxlib.td3_critic_target)(batch.r_t, batch.discount_t, q_t)
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


def d4pg_actor(params, apply, batch, low=-150.0, high=150.0):
    """D4PG, actor: the deterministic policy gradient of the mean of the critic.

    Barth-Maron et al., 2018, https://arxiv.org/abs/1804.08617. Source:
    github.com/google-deepmind/acme@770bc75, acme/agents/jax/d4pg/learning.py, the same
    gradient. Usual: Adam 1e-4, Gaussian noise of scale 0.3.
    """

    def mean(params, s, a):
        logits = apply.critic(params, s, a)
        return jax.nn.softmax(logits) @ jnp.linspace(low, high, logits.shape[-1])

    return ddpg_actor(params, ActorCritic(apply.actor, mean), batch)


def sample_tanh_normal(key, mu, sigma):
    """Sample actions of a tanh-Gaussian, and return them and their log-densities."""
    u = mu + sigma * jax.random.normal(key, mu.shape)
    return jnp.tanh(u), jax.vmap(rlaxlib.tanh_normal_log_prob)(u, mu, sigma)


def sac_critic(params, target_params, apply, batch, key, temperature):
    """SAC, critics: `apply.critic` returns q, [B, 2], `apply.actor` mean and stddev.

    `temperature` is the exponential of `log_temperature`, which is a parameter beside
    those of the networks: see `sac_temperature`. For several agents (MASAC), the actor
    returns the means of all their actions side by side, each from the observation of
    its agent, and the critics see all. Haarnoja et al., 2018,
    https://arxiv.org/abs/1812.05905. Source:
    github.com/rail-berkeley/softlearning@13cf187, softlearning/algorithms/sac.py, the
    same losses. Usual (paper, table 1):
    discount 0.99, Adam 3e-4, batch 256, target critics updated at a rate of 0.005.
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


def sac_temperature(log_temperature, params, apply, batch, key, target_entropy):
    """SAC, temperature: raised while the entropy is below its target.

    Haarnoja et al., 2018, https://arxiv.org/abs/1812.05905. Source:
    github.com/rail-berkeley/softlearning@13cf187, softlearning/algorithms/sac.py, the
    same loss. Usual (paper, table 1): Adam 3e-4, target entropy -D.
    """
    _, log_prob = sample_tanh_normal(key, *apply.actor(params.actor, batch.s_tm1))
    loss = jax.vmap(rlaxlib.sac_temperature_loss, (None, 0, None))(
        log_temperature, log_prob, target_entropy
    )
    return jnp.mean(loss)


def redq_critic(params, target_params, apply, batch, key, temperature, size=2):
    """REDQ: SAC with the minimum of a random subset of N critics. Its actor is SAC's.

    `apply.critic` returns q, [B, N]; the actor maximises their mean. Chen et al., 2021,
    https://arxiv.org/abs/2101.05982. Source: github.com/watchernyu/REDQ@7b5d1bf,
    redq/algos/redq_sac.py, a mean over the N critics times N, without ½: twice this
    loss. Usual: N = 10, subsets of 2, 20 updates a step, otherwise those of SAC, but
    target entropies from -1 to -4, those of MBPO.
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
    temperature has the loss of `sac_temperature`, with log α in place of α. Usual: Adam
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
