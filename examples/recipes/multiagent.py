"""Losses of several agents: VDN, QMIX, MAPPO, HAPPO, MADDPG, MASAC.

A batch of B transitions of N agents has the fields

    s_tm1, s_t        observations of the agents, [B, N, ...],
    a_tm1             their actions: integers in [0, A), [B, N], or vectors, [B, N, D],
    r_t, discount_t   reward and discount of the team, [B], or of each agent, [B, N].

MADDPG and MASAC take the latter, all others the former. For MAPPO and HAPPO, B are the
time steps of all streams. IPPO is `ppo` of the streams of all agents. VDN and QMIX read
two masks more, each of which may be None:

    legal_t           True for actions that are available at `s_t`, [B, N, A],
    sample_mask       False for transitions to ignore, as padded ones, [B].

Needs `value_based.py` in the same package.
"""

import jax
import jax.numpy as jnp

import rlaxlib

from .value_based import valid  # noqa: TID252 - Any package.


def greedy_values(selector, q_t, batch):
    """Return the values `q_t` of the available actions that `selector` prefers."""
    legal = True if batch.legal_t is None else batch.legal_t
    a_t = jnp.argmax(jnp.where(legal, selector, -jnp.inf), axis=-1)
    return rlaxlib.batched_index(q_t, a_t)


def team_loss(team_tm1, team_t, batch):
    """Return the mean squared TD error of the team's values, with ½."""
    r_t, discount_t = valid(batch, (batch.r_t, batch.discount_t))
    td_error = jax.vmap(rlaxlib.td_learning)(team_tm1, r_t, discount_t, team_t)
    return rlaxlib.masked_mean(rlaxlib.l2_loss(td_error), mask=batch.sample_mask)


def vdn(params, target_params, apply, batch):
    """VDN: double Q-learning of the sum of the agents' values. `apply` returns q.

    q is [B, N, A], of available actions and others. SHAQ is left out: it weighs the
    values of actions that are not greedy by a network of coalitions of agents. Sunehag
    et al., 2017, https://arxiv.org/abs/1706.05296, without double Q-learning. Source:
    github.com/oxwhirl/pymarl@c971afd, src/learners/q_learner.py, without ½: twice this
    loss. Usual: those of `qmix`.
    """
    s_tm1, s_t = valid(batch, (batch.s_tm1, batch.s_t))
    q_tm1 = rlaxlib.batched_index(apply(params, s_tm1), batch.a_tm1)
    q_t = greedy_values(apply(params, s_t), apply(target_params, s_t), batch)
    return team_loss(jnp.sum(q_tm1, axis=1), jnp.sum(q_t, axis=1), batch)


def qmix(params, target_params, apply, batch):
    """QMIX: double Q-learning of a monotonic mix of the agents' values.

    `apply(params, s)` returns q, [B, N, A], and the weights of the mix, the outputs of
    hypernetworks: [B, N, H], [B, H], [B, H] and [B]. Recurrent agents unroll whole
    episodes in `apply`, and B are the steps of all episodes. Rashid et al., 2018,
    https://arxiv.org/abs/1803.11485. Source: github.com/oxwhirl/pymarl@c971afd,
    src/learners/q_learner.py and src/modules/mixers/qmix.py, without ½: twice this
    loss. Usual: recurrent agents, 32 hidden units of the mix, discount 0.99, batch of
    32 episodes, RMSProp 5e-4 with decay 0.99 and epsilon 1e-5, gradients clipped to a
    norm of 10, target networks copied every 200 episodes.
    """
    s_tm1, s_t = valid(batch, (batch.s_tm1, batch.s_t))
    q_tm1, *weights_tm1 = apply(params, s_tm1)
    q_t, *weights_t = apply(target_params, s_t)
    q_t = greedy_values(apply(params, s_t)[0], q_t, batch)
    mix = jax.vmap(rlaxlib.qmix)
    team_tm1 = mix(rlaxlib.batched_index(q_tm1, batch.a_tm1), *weights_tm1)
    return team_loss(team_tm1, mix(q_t, *weights_t), batch)


def mappo(params, apply, batch, adv_t, target, epsilon=0.2, entropy_cost=0.01):
    """MAPPO: PPO of each agent, with a value of the team.

    `apply` returns logits, [B, N, A], and v, [B], from the state of the team. The batch
    has `old_log_prob` and `sample_mask`, [B, N], which is False for dead agents, or
    None, and the values `old_v`, [B], when the actions were taken: the value loss is
    clipped, by `epsilon` too. Advantages and targets of the team, [B], come from GAE,
    and B are all steps, or give standardised advantages. Yu et al., 2021,
    https://arxiv.org/abs/2103.01955. Source:
    github.com/marlbenchmark/on-policy@de66d7a, onpolicy/algorithms/r_mappo/r_mappo.py,
    the same losses, each with an optimizer of its own. Usual: clip 0.2, 15 epochs of
    one minibatch, discount 0.99, λ 0.95, Huber loss of 10, normalised values, Adam 5e-4
    with epsilon 1e-5, gradients clipped to a norm of 10.
    """
    logits, v = apply(params, batch.s_tm1)
    log_prob = rlaxlib.batched_index(jax.nn.log_softmax(logits), batch.a_tm1)
    mask, old_log_prob = batch.sample_mask, valid(batch, batch.old_log_prob)
    adv_t = jnp.broadcast_to(adv_t[:, None], log_prob.shape)
    adv_t = rlaxlib.standardize(adv_t, mask=mask)
    loss, _ = rlaxlib.ppo_clip_loss(log_prob, old_log_prob, adv_t, epsilon)
    value_loss, _ = rlaxlib.ppo_value_loss(v, batch.old_v, target, epsilon, 10.0)
    entropy = rlaxlib.softmax().entropy(logits)
    loss = loss + value_loss[:, None] - entropy_cost * entropy
    return rlaxlib.masked_mean(loss, mask=mask)


def happo(params, apply, batch, adv_t, ratio, agent, epsilon=0.2, entropy_cost=0.01):
    """HAPPO: agents in turn, each with the ratios of those before it in its advantage.

    `apply` returns the logits of one agent, [B, A], and `ratio`, [B], is the product of
    the ratios of all agents that were updated before. `sample_mask`, [B, N], is False
    for dead agents, or None. HATRPO is `trpo` of the agent with the same advantages.
    Kuba et al., 2021, https://arxiv.org/abs/2109.11251. Source:
    github.com/PKU-MARL/HARL@d539bad, harl/algorithms/actors/happo.py, the same loss.
    Usual: clip 0.2, 5 epochs of one minibatch, a random order of agents, Adam 5e-4 with
    epsilon 1e-5, gradients clipped to a norm of 10; values as those of `mappo`.
    """
    s_tm1, old_log_prob = valid(batch, (batch.s_tm1, batch.old_log_prob))
    own = s_tm1, batch.a_tm1, old_log_prob, batch.sample_mask
    s_tm1, a_tm1, old_log_prob, mask = jax.tree.map(lambda x: x[:, agent], own)
    logits = apply(params, s_tm1)
    log_prob = rlaxlib.batched_index(jax.nn.log_softmax(logits), a_tm1)
    adv_t = ratio * rlaxlib.standardize(adv_t, mask=mask)
    loss, _ = rlaxlib.ppo_clip_loss(log_prob, old_log_prob, adv_t, epsilon)
    loss = loss - entropy_cost * rlaxlib.softmax().entropy(logits)
    return rlaxlib.masked_mean(loss, mask=mask)


# --- Critics of all observations and actions: MADDPG, MASAC. ---


def own_values(critic, apply, s, a, a_tm1):
    """Return the values of each agent's action in `a`, others' in `a_tm1`, [B, N, ...].

    No gradient reaches the parameters of the critics.
    """
    critic = jax.lax.stop_gradient(critic)

    def value(agent):
        own = (jnp.arange(a.shape[1]) == agent)[:, None]
        return apply(critic, s, jnp.where(own, a, a_tm1))[:, agent]

    return jax.vmap(value, out_axes=1)(jnp.arange(a.shape[1]))


def relaxed(key, logits):
    """Sample relaxed discrete actions (Gumbel-softmax)."""
    return jax.nn.softmax(logits + jax.random.gumbel(key, logits.shape))


def maddpg_critic(params, target_params, apply, batch, key):
    """MADDPG, critics: one for each agent, of all observations and actions.

    `apply.actor` returns logits of discrete actions, [B, N, D], each from the
    observation of its agent; continuous actions are used as they are, without
    `relaxed`. `apply.critic(params.critic, s, a)` returns q, [B, N]. Lowe et al., 2017,
    https://arxiv.org/abs/1706.02275. Source: github.com/openai/maddpg@3ceefa0,
    maddpg/trainer/maddpg.py, squares without ½: twice this loss. Usual: discount 0.95,
    batch 1,024, Adam 1e-2, an update every 100 steps, target networks updated at a rate
    of 0.01, gradients of each layer clipped to a norm of 0.5.
    """
    q_tm1 = apply.critic(params.critic, batch.s_tm1, batch.a_tm1)
    a_t = relaxed(key, apply.actor(target_params.actor, batch.s_t))
    q_t = apply.critic(target_params.critic, batch.s_t, a_t)
    td_learning = jax.vmap(jax.vmap(rlaxlib.td_learning))
    td_error = td_learning(q_tm1, batch.r_t, batch.discount_t, q_t)
    return jnp.mean(jnp.sum(rlaxlib.l2_loss(td_error), axis=-1))


def maddpg_actor(params, apply, batch, key, logit_cost=1e-3):
    """MADDPG, actors: the value of each agent's action, with the others' from data.

    Lowe et al., 2017, https://arxiv.org/abs/1706.02275. Source:
    github.com/openai/maddpg@3ceefa0, maddpg/trainer/maddpg.py, the same loss. Usual:
    Adam 1e-2, and a cost of 1e-3 of the mean squared logits.
    """
    logits = apply.actor(params.actor, batch.s_tm1)
    a_tm1 = relaxed(key, logits)
    q = own_values(params.critic, apply.critic, batch.s_tm1, a_tm1, batch.a_tm1)
    loss = logit_cost * jnp.mean(jnp.square(logits), axis=-1) - q
    return jnp.mean(jnp.sum(loss, axis=-1))


def sample_team(key, mu, sigma):
    """Sample actions of tanh-Gaussians, and return them and their log-densities."""
    u = mu + sigma * jax.random.normal(key, mu.shape)
    log_density = jax.vmap(jax.vmap(rlaxlib.tanh_normal_log_prob))
    return jnp.tanh(u), log_density(u, mu, sigma)


def masac_critic(params, target_params, apply, batch, key, temperature):
    """MASAC, critics: those of SAC, of all observations and actions.

    `apply.actor` returns mean and stddev, [B, N, D], each from the observation of its
    agent, `apply.critic(params.critic, s, a)` returns q, [B, N, 2], and `temperature`
    is that of each agent, [N]. Haarnoja et al., 2018,
    https://arxiv.org/abs/1812.05905, with the critics of Lowe et al., 2017,
    https://arxiv.org/abs/1706.02275; no paper introduces both. Source:
    github.com/instadeepai/Mava@57c8e64, mava/systems/sac/anakin/ff_masac.py, by others,
    squares without ½: twice this loss. Usual: discount 0.99, batch 32, Adam 1e-3,
    gradients clipped to a norm of 10, target critics updated at a rate of 0.005.
    """
    q_tm1 = apply.critic(params.critic, batch.s_tm1, batch.a_tm1)
    actor = jax.lax.stop_gradient(params.actor)
    a_t, log_prob_t = sample_team(key, *apply.actor(actor, batch.s_t))
    q_t = apply.critic(target_params.critic, batch.s_t, a_t)
    each_agent = jax.vmap(rlaxlib.sac_critic_target)
    target = jax.vmap(each_agent, (0, 0, 0, 0, None))(
        batch.r_t, batch.discount_t, q_t, log_prob_t, temperature
    )
    return jnp.mean(jnp.sum(rlaxlib.l2_loss(q_tm1 - target[..., None]), axis=-1))


def masac_actor(params, apply, batch, key, temperature):
    """MASAC, actors: the soft value of each agent's action, with the others' from data.

    Haarnoja et al., 2018, https://arxiv.org/abs/1812.05905. Source:
    github.com/instadeepai/Mava@57c8e64, mava/systems/sac/anakin/ff_masac.py, by others,
    the same loss. Usual: Adam 3e-4, 4 updates after every 4 of the critics.
    """
    a_tm1, log_prob = sample_team(key, *apply.actor(params.actor, batch.s_tm1))
    q = own_values(params.critic, apply.critic, batch.s_tm1, a_tm1, batch.a_tm1)
    loss = jax.vmap(jax.vmap(rlaxlib.sac_policy_loss), (0, 0, None))
    return jnp.mean(loss(log_prob, q, temperature))


def masac_temperature(log_temperature, params, apply, batch, key, target_entropy):
    """MASAC, temperatures: one for each agent, [N].

    Haarnoja et al., 2018, https://arxiv.org/abs/1812.05905. Source:
    github.com/instadeepai/Mava@57c8e64, mava/systems/sac/anakin/ff_masac.py, by others,
    the same loss. Usual: Adam 3e-4, at first 1, target entropy -5 D.
    """
    _, log_prob = sample_team(key, *apply.actor(params.actor, batch.s_tm1))
    loss = jax.vmap(rlaxlib.sac_temperature_loss, (0, 1, None))
    return jnp.mean(loss(log_temperature, log_prob, target_entropy))
