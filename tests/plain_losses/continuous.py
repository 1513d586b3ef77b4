"""Losses of `recipes/continuous.py` in plain `jax.numpy`."""

import formulas as f
import jax
import jax.numpy as jnp
import numpy as np
from formulas import pick
from recipes import continuous as recipes

import rlaxlib
from plain_losses.common import (
    ACTION,
    D4PG,
    D4PG_PARAMS,
    DPG,
    DPG_PARAMS,
    GAMMA,
    KEY,
    LOGITS,
    LOGITS_PARAMS,
    MPO,
    MPO_PARAMS,
    ONE,
    SAC,
    SAC_PARAMS,
    SURE,
    SURE_PARAMS,
    TD3,
    TD3_PARAMS,
    TQC,
    TQC_PARAMS,
    TWIN,
    TWIN_PARAMS,
    A,
    B,
    D,
    M,
    actor_critic,
    cases,
    cross_entropy,
    given,
    mean_and_stddev,
    normal,
    one_step,
    seed,
    squares,
    stop,
)
from plain_losses.value_based import quantile

seed(__name__)


NOT_DONE = (ACTION.discount_t > 0).astype(np.float32)


def mse(x, y):
    """Return the mean of squares, as `mse_loss` of PyTorch."""
    return jnp.mean((x - y) ** 2)


def plain_ddpg_critic(p, t):
    """openai/baselines@ea25b9e, baselines/ddpg/ddpg_learner.py."""
    obs0, obs1, terminals1 = ACTION.s_tm1, ACTION.s_t, 1.0 - NOT_DONE
    q_obs1 = DPG.critic(t.critic, obs1, DPG.actor(t.actor, obs1))
    target_q = ACTION.r_t + (1.0 - terminals1) * GAMMA * q_obs1
    critic_tf = DPG.critic(p.critic, obs0, ACTION.a_tm1)
    return jnp.mean(jnp.square(critic_tf - stop(target_q)))


def plain_ddpg_actor(p, t):
    """openai/baselines@ea25b9e, baselines/ddpg/ddpg_learner.py."""
    actor_tf = DPG.actor(p.actor, ACTION.s_tm1)
    return -jnp.mean(DPG.critic(stop(p.critic), ACTION.s_tm1, actor_tf))


HYBRID = ACTION._replace(x_tm1=ACTION.a_tm1, a_tm1=ONE.a_tm1)
P_DQN, P_DQN_PARAMS = actor_critic(A, gaussian=False)
P_DQN = P_DQN._replace(actor=lambda w, s: s @ w)  # Beyond the bounds, too.


def plain_p_dqn_critic(p, t):
    """cycraig/MP-DQN@eec13eb, agents/pdqn.py."""
    pred_next_action_parameters = P_DQN.actor(t.actor, HYBRID.s_t)
    pred_q_a = P_DQN.critic(t.critic, HYBRID.s_t, pred_next_action_parameters)
    target = HYBRID.r_t + NOT_DONE * GAMMA * jnp.max(pred_q_a, axis=1)
    q_values = P_DQN.critic(p.critic, HYBRID.s_tm1, HYBRID.x_tm1)
    return mse(pick(q_values, HYBRID.a_tm1), stop(target))


def plain_p_dqn_actor(p, t):
    """cycraig/MP-DQN@eec13eb, agents/pdqn.py: with inverting_gradients."""
    vals = P_DQN.actor(p.actor, HYBRID.s_tm1)

    def q_loss(action_params):
        q = P_DQN.critic(stop(p.critic), HYBRID.s_tm1, action_params)
        return jnp.mean(jnp.sum(q, axis=1))

    delta_a, max_p, min_p, rnge = jax.grad(q_loss)(stop(vals)), 1.0, -1.0, 2.0
    above, below = (max_p - vals) / rnge, (vals - min_p) / rnge
    delta_a = delta_a * jnp.where(delta_a > 0, above, below)
    return jnp.sum(-stop(delta_a) * vals)


def smoothed(actor_target, next_state):
    """Return target actions with clipped noise, as TD3.py."""
    noise = [jax.random.normal(key, (D,)) for key in jax.random.split(KEY, B)]
    noise = jnp.clip(jnp.stack(noise) * 0.2, -0.5, 0.5)
    return jnp.clip(TD3.actor(actor_target, next_state) + noise, -1.0, 1.0)


def plain_td3_critic(p, t):
    """sfujim/TD3@34770cc, TD3.py."""
    next_action = smoothed(t.actor, ACTION.s_t)
    target_q1, target_q2 = TD3.critic(t.critic, ACTION.s_t, next_action).T
    target_q = ACTION.r_t + NOT_DONE * GAMMA * jnp.minimum(target_q1, target_q2)
    current_q1, current_q2 = TD3.critic(p.critic, ACTION.s_tm1, ACTION.a_tm1).T
    return mse(current_q1, stop(target_q)) + mse(current_q2, stop(target_q))


def plain_td3_actor(p, t):
    """sfujim/TD3@34770cc, TD3.py."""
    action = TD3.actor(p.actor, ACTION.s_tm1)
    q1, _ = TD3.critic(stop(p.critic), ACTION.s_tm1, action).T
    return -jnp.mean(q1)


def plain_d4pg_critic(p, t):
    """google-deepmind/acme@770bc75, acme/agents/jax/d4pg/learning.py."""
    atoms = jnp.linspace(-150, 150, M)
    q_tm1 = D4PG.critic(p.critic, ACTION.s_tm1, ACTION.a_tm1)
    a = D4PG.actor(t.actor, ACTION.s_t)
    q_t = jax.nn.softmax(D4PG.critic(t.critic, ACTION.s_t, a))
    target = project(ACTION.r_t, GAMMA * NOT_DONE, q_t, atoms)
    return jnp.mean(cross_entropy(stop(target), q_tm1))


def plain_d4pg_actor(p, t):
    """google-deepmind/acme@770bc75, acme/agents/jax/d4pg/learning.py: policy_loss.

    At next observations, with dqda_clipping=1 and the mean over all of rlax.dpg_loss.
    """
    o_t, atoms = ACTION.s_t, jnp.linspace(-150, 150, M)
    dpg_a_t = D4PG.actor(p.actor, o_t)

    def critic_mean(a):
        q_dist = D4PG.critic(stop(p.critic), o_t, a)
        return jnp.sum(jax.nn.softmax(q_dist) * atoms, axis=-1)

    dq_da = jax.grad(lambda a: jnp.sum(critic_mean(a)))(stop(dpg_a_t))
    norm = jnp.sqrt(jnp.sum(dq_da**2, axis=-1, keepdims=True))
    dq_da = dq_da * jnp.minimum(1.0, 1.0 / norm)
    return jnp.mean(0.5 * (stop(dq_da + dpg_a_t) - dpg_a_t) ** 2)


def actions_and_log_probs(w, s, key=KEY):
    """Return actions of a Gaussian through a tanh, and their log-probabilities."""
    shift, scale = mean_and_stddev(w, s)
    x = shift + scale * jax.random.normal(key, shift.shape)
    log_det = 2.0 * (jnp.log(2.0) - x - jax.nn.softplus(-2.0 * x))
    return jnp.tanh(x), f.log_normal(x, shift, scale) - jnp.sum(log_det, axis=-1)


def plain_sac_critic(p, t):
    """rail-berkeley/softlearning@13cf187, softlearning/algorithms/sac.py."""
    next_actions, next_log_pis = actions_and_log_probs(stop(p.actor), ACTION.s_t)
    next_qs_values = SAC.critic(t.critic, ACTION.s_t, next_actions).T
    next_values = jnp.min(next_qs_values, axis=0) - 0.2 * next_log_pis
    q_targets = stop(ACTION.r_t + GAMMA * NOT_DONE * next_values)
    qs_values = SAC.critic(p.critic, ACTION.s_tm1, ACTION.a_tm1).T
    return sum(0.5 * mse(q_targets, q_values) for q_values in qs_values)


def plain_redq_critic(p, t):
    """watchernyu/REDQ@7b5d1bf, redq/algos/redq_sac.py.

    The subset is of all critics, so that it is not random.
    """
    key = jax.random.split(KEY)[1]
    a_tilda_next, log_prob = actions_and_log_probs(stop(p.actor), ACTION.s_t, key)
    q_prediction_next_list = SAC.critic(t.critic, ACTION.s_t, a_tilda_next)
    next_q_with_log_prob = jnp.min(q_prediction_next_list, axis=1) - 0.2 * log_prob
    y_q = ACTION.r_t + GAMMA * NOT_DONE * next_q_with_log_prob
    q_prediction_cat = SAC.critic(p.critic, ACTION.s_tm1, ACTION.a_tm1)
    return mse(q_prediction_cat, stop(y_q)[:, None]) * q_prediction_cat.shape[1]


def plain_sac_actor(p, t):
    """rail-berkeley/softlearning@13cf187, softlearning/algorithms/sac.py."""
    actions, log_pis = actions_and_log_probs(p.actor, ACTION.s_tm1)
    qs_log_targets = SAC.critic(stop(p.critic), ACTION.s_tm1, actions).T
    return jnp.mean(0.2 * log_pis - jnp.mean(qs_log_targets, axis=0))


def plain_redq_actor(p, t):
    """watchernyu/REDQ@7b5d1bf, redq/algos/redq_sac.py."""
    a_tilda, log_prob_a_tilda = actions_and_log_probs(p.actor, ACTION.s_tm1)
    q_a_tilda_cat = SAC.critic(stop(p.critic), ACTION.s_tm1, a_tilda)
    return jnp.mean(0.2 * log_prob_a_tilda - jnp.mean(q_a_tilda_cat, axis=1))


def plain_tqc_actor(p, t):
    """SamsungLabs/tqc_pytorch@65114eb, tqc/trainer.py."""
    new_action, log_pi = actions_and_log_probs(p.actor, ACTION.s_tm1)
    z = TQC.critic(stop(p.critic), ACTION.s_tm1, new_action)
    return jnp.mean(0.2 * log_pi - jnp.mean(jnp.mean(z, axis=2), axis=1))


def plain_sac_temperature(p, t):
    """rail-berkeley/softlearning@13cf187, softlearning/algorithms/sac.py."""
    alpha = jnp.exp(p)
    _, log_pis = actions_and_log_probs(t.actor, ACTION.s_tm1)
    return jnp.mean(-1.0 * (alpha * stop(log_pis + -2.0)))


def plain_tqc_critic(p, t):
    """SamsungLabs/tqc_pytorch@65114eb, tqc/functions.py and tqc/trainer.py."""
    new_next_action, next_log_pi = actions_and_log_probs(stop(p.actor), ACTION.s_t)
    next_z = TQC.critic(t.critic, ACTION.s_t, new_next_action)
    sorted_z_part = jnp.sort(next_z.reshape(B, -1))[:, : 3 * M - 3 * 2]
    soft = sorted_z_part - 0.2 * next_log_pi[:, None]
    samples = stop(ACTION.r_t[:, None] + NOT_DONE[:, None] * GAMMA * soft)
    quantiles = TQC.critic(p.critic, ACTION.s_tm1, ACTION.a_tm1)
    losses = jax.vmap(jax.vmap(f.quantile_huber, (0, None, None)), (0, None, 0))
    return jnp.mean(losses(quantiles, f.middles(M), samples)) / M


def plain_mpo(p, t):
    """google-deepmind/acme@770bc75, acme/jax/losses/mpo.py: MPO.__call__.

    With action_penalization, and per_dim_constraining=False.
    """
    s = ACTION.s_tm1
    online_mean, online_scale = mean_and_stddev(p.actor, s)
    target_mean, target_scale = stop(mean_and_stddev(t.actor, s))
    actions = target_mean + target_scale * jax.random.normal(KEY, (6, B, D))
    q_values = jnp.stack([MPO.critic(t.critic, s, each) for each in actions])
    temperature, alpha_mean, alpha_stddev, penalty = jax.nn.softplus(p.duals) + 1e-8

    def weights_and_temperature_loss(q_values, epsilon, temperature):
        tempered = stop(q_values) / temperature
        mean = jnp.mean(jax.nn.logsumexp(tempered, axis=0)) - jnp.log(6)
        return stop(jax.nn.softmax(tempered, axis=0)), temperature * (epsilon + mean)

    def kl_divergence(mean, scale):
        moved = (target_scale**2 + (target_mean - mean) ** 2) / (2 * scale**2)
        return jnp.sum(jnp.log(scale / target_scale) + moved - 0.5, axis=-1)

    def penalty_and_dual_loss(kl, alpha, epsilon):
        mean_kl = jnp.mean(kl, axis=0)
        return stop(alpha) * mean_kl + alpha * (epsilon - stop(mean_kl))

    weights, loss = weights_and_temperature_loss(q_values, 0.1, temperature)
    cost_out_of_bound = -jnp.linalg.norm(actions - jnp.clip(actions, -1, 1), axis=-1)
    outside, penalty_loss = weights_and_temperature_loss(
        cost_out_of_bound, 0.001, penalty
    )
    loss += penalty_loss
    fixed_stddev, fixed_mean = (online_mean, target_scale), (target_mean, online_scale)
    for each in (fixed_stddev, fixed_mean):
        loss += jnp.mean(
            -jnp.sum(f.log_normal(actions, *each) * (weights + outside), axis=0)
        )
    loss += penalty_and_dual_loss(kl_divergence(*fixed_stddev), alpha_mean, 0.01)
    return loss + penalty_and_dual_loss(
        kl_divergence(*fixed_mean), alpha_stddev, 0.0001
    )


def draw(w, s, key=KEY):
    mu, sigma = mean_and_stddev(w, s)
    noise = jax.random.normal(key, mu.shape)
    u = mu + sigma * noise
    log_cosh = jnp.logaddexp(u, -u) - jnp.log(2)
    density = -(noise**2) / 2 - jnp.log(sigma) - jnp.log(2 * jnp.pi) / 2
    return jnp.tanh(u), jnp.sum(density + 2 * log_cosh, axis=-1)


def critics_loss(q, target):
    return jnp.mean(jnp.sum((q - stop(target)[:, None]) ** 2, axis=-1)) / 2


def project(r, discount, probs, atoms):
    """Return the projection of shifted atoms onto the same atoms (C51)."""
    return jax.vmap(f.project, (0, 0, 0, None))(r, discount, probs, atoms)


def soft_value(p, net, reduce):
    a, log_pi = draw(p.actor, ACTION.s_tm1)
    return jnp.mean(0.2 * log_pi - reduce(net.critic(stop(p.critic), ACTION.s_tm1, a)))


def plain_crossq_critic(p, t):
    """adityab/CrossQ@a318a26, sbx/sac/sac.py, of a critic normalised over the batch."""
    b = ACTION
    a_t, log_pi = draw(stop(p.actor), b.s_t)
    s, a = jnp.concatenate([b.s_tm1, b.s_t]), jnp.concatenate([b.a_tm1, a_t])
    both = normalized(p.critic, s, a)
    v_t = jnp.min(both[B:], axis=1) - 0.2 * log_pi
    return critics_loss(both[:B], one_step(v_t, b))


def normalized(w, s, a):
    q = SAC.critic(w, s, a)
    return (q - jnp.mean(q, axis=0)) / jnp.std(q, axis=0)


CROSSQ = SAC._replace(critic=normalized)


def mixed(q, pessimism):
    return (q[:, 0] + q[:, 1]) / 2 - pessimism * jnp.abs(q[:, 0] - q[:, 1]) / 2


def plain_bro_critic(p, t):
    """naumix/BiggerRegularizedOptimistic@5870a13, jaxrl/bro/critic.py."""
    b = ACTION
    a_t, log_pi = draw(p.actor, b.s_t)
    z = mixed(TWIN.critic(t.critic, b.s_t, a_t), 0.4) - 0.2 * log_pi[:, None]
    y = stop(b.r_t[:, None] + b.discount_t[:, None] * z)
    x = TWIN.critic(p.critic, b.s_tm1, b.a_tm1)
    tau = jnp.broadcast_to(f.middles(M), (B, M))
    return quantile(x[:, 0], tau, y) + quantile(x[:, 1], tau, y)


def plain_bro_actor(p, t):
    """naumix/BiggerRegularizedOptimistic@5870a13, jaxrl/bro/actor.py."""
    return soft_value(p, TWIN, lambda q: jnp.mean(mixed(q, 0.4), axis=-1))


def of_both(p, logits_t, b, atoms, atoms_t):
    """Return the cross-entropies of both critics with one distribution."""
    z = jnp.clip(b.r_t[:, None] + b.discount_t[:, None] * atoms_t, atoms[0], atoms[-1])
    share = 1 - jnp.abs(z[:, :, None] - atoms) / (atoms[1] - atoms[0])
    probs = jax.nn.softmax(logits_t)[:, :, None] * jnp.clip(share, 0, 1)
    logits = TWIN.critic(p.critic, b.s_tm1, b.a_tm1)
    target = stop(jnp.sum(probs, axis=1))[:, None]
    return jnp.mean(jnp.sum(cross_entropy(target, logits), axis=1))


def plain_categorical_sac_critic(p, t):
    """dojeon-ai/SimbaV2@14fafb2, scale_rl/agents/simbaV2/simbaV2_update.py."""
    b, atoms = ACTION, jnp.linspace(-5, 5, M)
    a_t, log_pi = draw(stop(p.actor), b.s_t)
    logits = TWIN.critic(t.critic, b.s_t, a_t)
    q = jax.nn.softmax(logits) @ atoms
    first = (q[:, 0] <= q[:, 1])[:, None]
    logits = jnp.where(first, logits[:, 0], logits[:, 1])
    return of_both(p, logits, b, atoms, atoms - 0.2 * log_pi[:, None])


def normalized_twins(w, s, a):
    """Return the logits of both critics, normalised over the batch."""
    x = TWIN.critic(w, s, a)
    return (x - jnp.mean(x, axis=0)) / jnp.std(x, axis=0)


XQC = TWIN._replace(critic=normalized_twins)


def plain_xqc_critic(p, t):
    """danielpalenicek/xqc@9a6832b, xqc/agents/xqc/critic.py."""
    b, bin_values = ACTION, jnp.linspace(-5, 5, M)
    next_actions, next_actions_log_probs = draw(stop(p.actor), b.s_t)
    concat_obs = jnp.concatenate([b.s_tm1, b.s_t])
    concat_actions = jnp.concatenate([b.a_tm1, next_actions])
    probs = jax.nn.softmax(XQC.critic(t.critic, concat_obs, concat_actions)[B:])
    logits, loss = XQC.critic(p.critic, concat_obs, concat_actions)[:B], 0.0
    worst = jnp.argmin(probs @ bin_values, axis=1)
    target_probs = jnp.stack([x[i] for x, i in zip(probs, worst, strict=True)])
    rewards = b.r_t - b.discount_t * 0.2 * next_actions_log_probs
    target_probs = project(rewards, b.discount_t, target_probs, bin_values)
    for i in range(2):
        loss += jnp.mean(cross_entropy(stop(target_probs), logits[:, i]))
    return loss


def plain_fast_sac_critic(p, t):
    """amazon-far/holosoma@fc600e7, src/holosoma/holosoma/agents/fast_sac.

    fast_sac_agent.py: _update_main, with projection of fast_sac.py, for each critic.
    """
    b, q_support = ACTION, jnp.linspace(-20, 20, M)
    actions, log_probs = draw(stop(p.actor), b.s_t)
    rewards = b.r_t - b.discount_t * 0.2 * log_probs
    outputs, qf_loss = TWIN.critic(p.critic, b.s_tm1, b.a_tm1), 0.0
    for i in range(2):
        next_dist = jax.nn.softmax(TWIN.critic(t.critic, b.s_t, actions)[:, i])
        target = project(rewards, b.discount_t, next_dist, q_support)
        qf_loss += jnp.mean(cross_entropy(stop(target), outputs[:, i]))
    return qf_loss


def plain_fast_td3_critic(p, t):
    """younggyoseo/FastTD3@229ed59, fast_td3/train.py."""
    b, atoms = ACTION, jnp.linspace(-2, 2, M)
    keys = jax.random.split(KEY, B)
    noise = jnp.stack([jax.random.normal(key, (D,)) for key in keys])
    a_t = SURE.actor(stop(p.actor), b.s_t) + jnp.clip(0.4 * noise, -0.5, 0.5)
    logits = SURE.critic(t.critic, b.s_t, jnp.clip(a_t, -1, 1))
    q = [
        project(b.r_t, b.discount_t, jax.nn.softmax(x), atoms) @ atoms
        for x in (logits[:, 0], logits[:, 1])
    ]
    logits = jnp.where((q[0] <= q[1])[:, None], logits[:, 0], logits[:, 1])
    return of_both(p, logits, b, atoms, jnp.tile(atoms, (B, 1)))


def plain_fast_td3_actor(p, t):
    """younggyoseo/FastTD3@229ed59, fast_td3/train.py: update_pol, with use_cdq."""
    s, q_support = ACTION.s_tm1, jnp.linspace(-2, 2, M)
    qf1, qf2 = jnp.moveaxis(
        SURE.critic(stop(p.critic), s, SURE.actor(p.actor, s)), 1, 0
    )
    qf1_value = jnp.sum(jax.nn.softmax(qf1) * q_support, axis=1)
    qf2_value = jnp.sum(jax.nn.softmax(qf2) * q_support, axis=1)
    return -jnp.mean(jnp.minimum(qf1_value, qf2_value))


def plain_drqv2_critic(p, t):
    """facebookresearch/drqv2@c0c650b, drqv2.py."""
    keys = jax.random.split(KEY, B)
    noise = jnp.stack([jax.random.normal(key, (D,)) for key in keys])
    a_t = TD3.actor(stop(p.actor), ACTION.s_t) + jnp.clip(0.4 * noise, -0.3, 0.3)
    q_t = TD3.critic(t.critic, ACTION.s_t, jnp.clip(a_t, -1, 1))
    target = one_step(jnp.min(q_t, -1), ACTION)
    return squares(TD3.critic(p.critic, ACTION.s_tm1, ACTION.a_tm1), target)


def plain_drqv2_actor(p, t):
    """facebookresearch/drqv2@c0c650b, drqv2.py: the clamp has a gradient of 1."""
    a = TD3.actor(p.actor, ACTION.s_tm1)
    x = a + jnp.clip(0.4 * jax.random.normal(KEY, a.shape), -0.3, 0.3)
    x = x - stop(x) + stop(jnp.clip(x, -1, 1))
    return -jnp.mean(jnp.min(TD3.critic(stop(p.critic), ACTION.s_tm1, x), axis=1))


# Their range ends in the middle of the outermost bins, ours at their ends.
TARGET = np.append(np.float32([-2.25, 3.0]), normal(B)[2:])
PAIR = rlaxlib.hl_gauss_pair(-2 - 1 / 3, 2 + 1 / 3, M)


def plain_reppo_critic(p, t):
    """cvoelcker/reppo@a7ab85b, src/jaxrl/reppo.py and utils.py: hl_gauss."""
    b, width = ACTION, 2 / 3
    edges = jnp.linspace(-2 - width / 2, 2 + width / 2, M + 1)
    x = jnp.clip(TARGET, -2, 2)[:, None]
    cdf = jax.scipy.special.erf((edges - x) / (2**0.5 * 0.75 * width))
    probs = (cdf[:, 1:] - cdf[:, :-1]) / (cdf[:, -1:] - cdf[:, :1])
    loss = cross_entropy(probs, LOGITS.critic(p.critic, b.s_tm1, b.a_tm1))
    return jnp.mean((1 - b.truncated_t) * loss)


def plain_reppo_actor(p, t):
    """cvoelcker/reppo@a7ab85b, src/jaxrl/reppo.py: actor_kl_clip_mode "clipped"."""
    s = ACTION.s_tm1
    sample_key, key = jax.random.split(KEY)
    old_mu, old_sigma = stop(mean_and_stddev(t.actor, s))
    mu, sigma = mean_and_stddev(p.actor, s)
    u = old_mu + old_sigma * jax.random.normal(sample_key, (8, B, D))
    # The Jacobians of the hyperbolic tangent cancel.
    kl = f.log_normal(u, old_mu, old_sigma) - f.log_normal(u, mu, sigma)
    kl = jnp.mean(kl, axis=0)
    a, log_pi = draw(p.actor, s, key)
    soft = stop(jnp.exp(p.duals[0])) * log_pi - MPO.critic(stop(p.critic), s, a)
    loss = jnp.where(kl < 0.5, soft, stop(jnp.exp(p.duals[1])) * kl)
    loss = loss + jnp.exp(p.duals[0]) * stop(-log_pi + 1.0)
    return jnp.mean(loss - jnp.exp(p.duals[1]) * stop(kl - 0.5))


TWO_DUALS = tuple(x._replace(duals=np.array([-1.0, 0.5])) for x in MPO_PARAMS)


CASES = cases(
    recipes,
    globals(),
    {
        "crossq_critic": given(SAC_PARAMS, CROSSQ, ACTION, KEY, 0.2, stopped="actor"),
        "bro_critic": given(TWIN_PARAMS, TWIN, ACTION, KEY, 0.2, 0.4, stopped="actor"),
        "bro_actor": given(TWIN_PARAMS, TWIN, ACTION, KEY, 0.2, 0.4, stopped="critic"),
        "categorical_sac_critic": given(
            TWIN_PARAMS, TWIN, ACTION, KEY, 0.2, stopped="actor"
        ),
        "xqc_critic": given(TWIN_PARAMS, XQC, ACTION, KEY, 0.2, stopped="actor"),
        "fast_sac_critic": given(TWIN_PARAMS, TWIN, ACTION, KEY, 0.2, stopped="actor"),
        "fast_td3_critic": given(
            SURE_PARAMS, SURE, ACTION, KEY, 0.4, bounds=(-2.0, 2.0), stopped="actor"
        ),
        "fast_td3_actor": given(
            SURE_PARAMS, SURE, ACTION, (-2.0, 2.0), stopped="critic"
        ),
        "drqv2_critic": given(TD3_PARAMS, TD3, ACTION, KEY, 0.4, stopped="actor"),
        "drqv2_actor": given(TD3_PARAMS, TD3, ACTION, KEY, 0.4, stopped="critic"),
        "reppo_critic": given(
            LOGITS_PARAMS, LOGITS, ACTION, TARGET, PAIR, stopped="actor"
        ),
        "reppo_actor": given(
            TWO_DUALS, MPO, ACTION, KEY, -1.0, 0.5, 8, stopped="critic"
        ),
        "ddpg_critic": given(DPG_PARAMS, DPG, ACTION, stopped="actor"),
        "ddpg_actor": given(DPG_PARAMS, DPG, ACTION, stopped="critic"),
        "p_dqn_critic": given(P_DQN_PARAMS, P_DQN, HYBRID, stopped="actor"),
        "p_dqn_actor": given(P_DQN_PARAMS, P_DQN, HYBRID, stopped="critic"),
        "td3_critic": given(TD3_PARAMS, TD3, ACTION, KEY, stopped="actor"),
        "td3_actor": given(TD3_PARAMS, TD3, ACTION, stopped="critic"),
        "d4pg_critic": given(D4PG_PARAMS, D4PG, ACTION, stopped="actor"),
        "d4pg_actor": given(D4PG_PARAMS, D4PG, ACTION, stopped="critic"),
        "sac_critic": given(SAC_PARAMS, SAC, ACTION, KEY, 0.2, stopped="actor"),
        "sac_actor": given(SAC_PARAMS, SAC, ACTION, KEY, 0.2, stopped="critic"),
        "sac_temperature": given(
            (np.float32(0.3), SAC_PARAMS[0]), SAC, ACTION, KEY, -2.0
        ),
        "redq_critic": given(SAC_PARAMS, SAC, ACTION, KEY, 0.2, 3, stopped="actor"),
        "redq_actor": given(SAC_PARAMS, SAC, ACTION, KEY, 0.2, stopped="critic"),
        "tqc_critic": given(TQC_PARAMS, TQC, ACTION, KEY, 0.2, stopped="actor"),
        "tqc_actor": given(TQC_PARAMS, TQC, ACTION, KEY, 0.2, stopped="critic"),
        "mpo": given(MPO_PARAMS, MPO, ACTION, KEY, 6),
    },
)
