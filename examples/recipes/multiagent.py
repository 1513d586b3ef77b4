"""Losses of several agents: VDN, QMIX, MAPPO, HAPPO.

The N agents share networks. A batch of B transitions has the fields

    s_tm1, s_t        observations of the agents, [B, N, ...],
    a_tm1             their actions, integers in [0, A), [B, N],
    r_t, discount_t   reward and discount of the team, [B].

For MAPPO and HAPPO, B are the time steps of all streams.
"""

import jax
import jax.numpy as jnp

import rlaxlib


def vdn(params, target_params, apply, batch):
    """VDN: Q-learning of the sum of the agents' values. `apply` returns q, [B, N, A].

    Sunehag et al., 2017, https://arxiv.org/abs/1706.05296. Usual
    (github.com/FLAIROx/JaxMARL): discount 0.99, Adam 5e-4 to 5e-3, recurrent networks.
    """
    q_tm1 = rlaxlib.batched_index(apply(params, batch.s_tm1), batch.a_tm1)
    q_t = jnp.max(apply(target_params, batch.s_t), axis=-1)
    team_tm1, team_t = (jnp.sum(x, axis=1) for x in (q_tm1, q_t))
    td_learning = jax.vmap(rlaxlib.td_learning)
    td_error = td_learning(team_tm1, batch.r_t, batch.discount_t, team_t)
    return jnp.mean(rlaxlib.l2_loss(td_error))


def qmix(params, target_params, apply, batch):
    """QMIX: double Q-learning of a monotonic mix of the agents' values.

    `apply(params, s)` returns q, [B, N, A], and the weights of the mix, the outputs of
    hypernetworks: [B, N, H], [B, H], [B, H] and [B]. Recurrent agents unroll whole
    episodes in `apply`, and B are the steps of all episodes. Rashid et al., 2018,
    https://arxiv.org/abs/1803.11485. Usual (github.com/oxwhirl/pymarl): recurrent
    agents, 32 hidden units, discount 0.99, RMSProp 5e-4, target networks updated every
    200 episodes.
    """
    (q_tm1, *weights_tm1), (q_t, *weights_t) = (
        apply(p, s) for p, s in ((params, batch.s_tm1), (target_params, batch.s_t))
    )
    a_t = jnp.argmax(apply(params, batch.s_t)[0], axis=-1)
    q_tm1, q_t = (
        rlaxlib.batched_index(q, a) for q, a in ((q_tm1, batch.a_tm1), (q_t, a_t))
    )
    mix = jax.vmap(rlaxlib.qmix)
    team_tm1, team_t = mix(q_tm1, *weights_tm1), mix(q_t, *weights_t)
    td_learning = jax.vmap(rlaxlib.td_learning)
    td_error = td_learning(team_tm1, batch.r_t, batch.discount_t, team_t)
    return jnp.mean(rlaxlib.l2_loss(td_error))


def mappo(params, apply, batch, adv_t, target, epsilon=0.2, entropy_cost=0.01):
    """MAPPO: PPO of each agent, with a value of the team.

    `apply` returns logits, [B, N, A], and v, [B], from the state of the team. The batch
    has `old_log_prob`, [B, N]; advantages and targets of the team, [B], come from GAE.
    Yu et al., 2021, https://arxiv.org/abs/2103.01955. Usual
    (github.com/marlbenchmark/on-policy): clip 0.2, 15 epochs, discount 0.99, λ 0.95,
    Huber loss of 10, normalised values, Adam 5e-4.
    """
    logits, v = apply(params, batch.s_tm1)
    log_prob = rlaxlib.batched_index(jax.nn.log_softmax(logits), batch.a_tm1)
    adv_t = jnp.broadcast_to(rlaxlib.standardize(adv_t)[:, None], log_prob.shape)
    loss, _ = rlaxlib.ppo_clip_loss(log_prob, batch.old_log_prob, adv_t, epsilon)
    value_loss = rlaxlib.huber_loss(v - jax.lax.stop_gradient(target), 10.0)
    entropy = rlaxlib.softmax().entropy(logits)
    return jnp.mean(loss) + jnp.mean(value_loss) - entropy_cost * jnp.mean(entropy)


def happo(params, apply, batch, adv_t, ratio, agent, epsilon=0.2):
    """HAPPO: agents in turn, each with the ratios of those before it in its advantage.

    `apply` returns the logits of one agent, [B, A], and `ratio`, [B], is the product of
    the ratios of all agents that were updated before. HATRPO is `trpo` of the agent
    with the same advantages. Kuba et al., 2021, https://arxiv.org/abs/2109.11251. Usual
    (github.com/PKU-MARL/HARL): clip 0.2, 5 epochs, a random order of agents, Adam 5e-4.
    """
    logits = apply(params, batch.s_tm1[:, agent])
    log_prob = rlaxlib.batched_index(jax.nn.log_softmax(logits), batch.a_tm1[:, agent])
    adv_t = ratio * rlaxlib.standardize(adv_t)
    old_log_prob = batch.old_log_prob[:, agent]
    loss, _ = rlaxlib.ppo_clip_loss(log_prob, old_log_prob, adv_t, epsilon)
    return jnp.mean(loss)
