"""Losses of `recipes/offline.py` in plain `jax.numpy`."""

from types import SimpleNamespace
from typing import NamedTuple

import formulas as f
import jax
import jax.numpy as jnp
import numpy as np
from formulas import huber, pick
from recipes import offline as recipes

from plain_losses.common import (
    ACTION,
    GAMMA,
    KEY,
    ONE,
    Q_PARAMS,
    ROLLOUTS,
    TWO_Q_PARAMS,
    A,
    B,
    D,
    F,
    Q,
    T,
    actor_critic,
    cases,
    given,
    mean_and_stddev,
    normal,
    policy_and_q,
    pool,
    seed,
    stop,
)
from plain_losses.continuous import actions_and_log_probs as sample

seed(__name__)


DATA = ACTION._replace(returns=normal(B), a_t=np.tanh(normal(B, D)))
DATA_STREAM = ROLLOUTS._replace(a_tm1=np.tanh(normal(B, T, D)))
S, A_TM1 = DATA.s_tm1, DATA.a_tm1
SAC, SAC_PARAMS = actor_critic(3)
NET = SAC._replace(value=lambda w, s: (s @ w)[..., 0])
NET_PARAMS = tuple(p._replace(value=normal(F, 1)) for p in SAC_PARAMS)
TD3, TD3_PARAMS = actor_critic(2, gaussian=False)


MASKS = (DATA.discount_t > 0).astype(np.float32)  # 1 where the episode goes on.


def log_probs(w, s, a):
    """Return log-probabilities of actions of a Gaussian through a tanh."""
    mu, sigma = mean_and_stddev(w, s)
    x = 0.5 * (jnp.log1p(a) - jnp.log1p(-a))
    normal = (
        -((x - mu) ** 2) / (2 * sigma**2) - jnp.log(sigma) - jnp.log(2 * jnp.pi) / 2
    )
    return jnp.sum(normal - jnp.log(1 - a**2), axis=-1)


def critics(w, s, a):
    """Return the values of each critic, [N, B]."""
    return jnp.moveaxis(NET.critic(w, s, a), -1, 0)


def lowest(w, s, a):
    """Return the minimum of the critics."""
    return jnp.min(critics(w, s, a), axis=0)


def plain_iql_value(p, t):
    """ikostrikov/implicit_q_learning@09d7002, critic.py: update_v."""
    return jnp.mean(f.expectile(lowest(t.critic, S, A_TM1) - NET.value(p.value, S)))


def plain_iql_critic(p, t):
    """ikostrikov/implicit_q_learning@09d7002, critic.py: update_q."""
    next_v = stop(NET.value(p.value, DATA.s_t))
    target_q = DATA.r_t + GAMMA * MASKS * next_v
    return sum(jnp.mean((q - target_q) ** 2) for q in critics(p.critic, S, A_TM1))


def plain_iql_actor(p, t):
    """ikostrikov/implicit_q_learning@09d7002, actor.py: update."""
    v, q = NET.value(stop(p.value), S), lowest(t.critic, S, A_TM1)
    exp_a = jnp.minimum(jnp.exp((q - v) * 3.0), 100.0)
    return -jnp.mean(exp_a * log_probs(p.actor, S, A_TM1))


def plain_xql_value(p, t):
    """Div99/XQL@dff09af, offline/critic.py: gumbel_rescale_loss, with max_clip 7."""
    z = jnp.minimum((lowest(t.critic, S, A_TM1) - NET.value(p.value, S)) / 2, 7)
    max_z = jnp.max(z, axis=0)
    max_z = stop(jnp.where(max_z < -1.0, -1.0, max_z))
    return jnp.mean(jnp.exp(z - max_z) - z * jnp.exp(-max_z) - jnp.exp(-max_z))


def plain_sql_value(p, t):
    """ryanxhr/IVR@58edd26, critic.py: update_v, "SQL", with alpha 1."""
    q, v, alpha = lowest(t.critic, S, A_TM1), NET.value(p.value, S), 1.0
    sp_term = (q - v) / (2 * alpha) + 1.0
    sp_weight = jnp.where(sp_term > 0, 1.0, 0.0)
    return jnp.mean(sp_weight * sp_term**2 + v / alpha)


def plain_sql_actor(p, t):
    """ryanxhr/IVR@58edd26, actor.py: update_actor, "SQL"."""
    weight = lowest(t.critic, S, A_TM1) - NET.value(stop(p.value), S)
    weight = jnp.clip(jnp.maximum(weight, 0), 0, 100.0)
    return -jnp.mean(weight * log_probs(p.actor, S, A_TM1))


def plain_awr(p, t):
    """xbpeng/awr@831442f, learning/awr_agent.py, and util/rl_util.py of its returns.

    Without the penalty of means beyond the bounds, and with values that are not scaled.
    """

    def returns(b):
        vals, discounts = NET.value(p.value, b.obs), GAMMA * (1 - b.dones)
        path = f.lambda_returns(b.r_t, discounts, vals[1:], 0.95)
        return vals[:-1], stop(path), log_probs(p.actor, b.s_tm1, b.a_tm1)

    vals, new_vals, a_logp = pool(returns, DATA_STREAM)
    adv = stop(new_vals - vals)
    norm_adv = f.standardized(adv, epsilon=1e-5)
    adv_weights = jnp.minimum(jnp.exp(norm_adv / 1.0), 20)
    critic_loss = 0.5 * jnp.mean((new_vals - vals) ** 2)
    return critic_loss - jnp.mean(adv_weights * a_logp)


def backup(p, t, key=KEY, alpha=0.0):
    """Return the target of soft Q-learning, as rlkit's trainers."""
    new_next_actions, new_log_pi = sample(p.actor, DATA.s_t, key)
    target_q_values = lowest(t.critic, DATA.s_t, new_next_actions) - alpha * new_log_pi
    return stop(DATA.r_t + MASKS * GAMMA * target_q_values)


def plain_awac_critic(p, t):
    """rail-berkeley/rlkit@ac45a9d, rlkit/torch/sac/awac_trainer.py, with alpha 0."""
    qs_pred = critics(p.critic, S, A_TM1)
    return sum(jnp.mean((q_pred - backup(p, t)) ** 2) for q_pred in qs_pred)


def plain_awac_actor(p, t):
    """rail-berkeley/rlkit@ac45a9d, rlkit/torch/sac/awac_trainer.py.

    With alpha 0, beta 1 and awr_min_q, and a softmax over the batch.
    """
    new_obs_actions, _ = sample(p.actor, S)
    v_pi, q_adv = (lowest(p.critic, S, a) for a in (new_obs_actions, A_TM1))
    weights = stop(jax.nn.softmax((q_adv - v_pi) / 1.0, axis=0))
    return jnp.mean(-log_probs(p.actor, S, A_TM1) * len(weights) * weights)


def plain_crr_actor(p, t):
    """google-deepmind/acme@770bc75.

    acme/agents/jax/crr/losses.py: policy_loss_coeff_advantage_exp, and
    acme/agents/jax/crr/learning.py: policy_loss.
    """
    actions = [sample(p.actor, S, key)[0] for key in jax.random.split(KEY, 4)]
    q_actions = jnp.stack([lowest(p.critic, S, a) for a in actions])
    advantage = lowest(p.critic, S, A_TM1) - jnp.mean(q_actions, axis=0)
    coeff = stop(jnp.minimum(jnp.exp(advantage / 1.0), 20.0))
    return -jnp.mean(log_probs(p.actor, S, A_TM1) * coeff)


def out_of_distribution(p, key, lower_bounds=None):
    """Return the gaps of the critics, [N], as sac/cql.py with min_q_version 3."""
    keys, actor = jax.random.split(key, (3, 2)), stop(p.actor)
    shape = (2, B, D)
    random_actions = jax.random.uniform(keys[2, 0], shape, minval=-1.0, maxval=1.0)
    q_rand = [critics(p.critic, S, a) for a in random_actions]
    q_policy, log_pis = [], []
    for row, obs in zip(keys[:2], (S, DATA.s_t), strict=True):
        for k in row:
            actions, log_pi = sample(actor, obs, k)
            q_policy.append(critics(p.critic, S, actions))
            log_pis.append(log_pi)
    if lower_bounds is not None:
        q_policy = [jnp.maximum(q, lower_bounds) for q in q_policy]
    random_density = np.log(0.5**D)
    cat_q = [q - random_density for q in q_rand]
    cat_q += [q - log_pi for q, log_pi in zip(q_policy, log_pis, strict=True)]
    ood = jnp.log(sum(jnp.exp(q) for q in cat_q))
    return jnp.mean(ood - critics(p.critic, S, A_TM1), axis=1)


def plain_cql_critic(p, t, lower_bounds=None):
    """aviralkumar2907/CQL@d67dbe9, d4rl/rlkit/torch/sac/cql.py.

    With min_q_weight 5, min_q_version 3, num_random 2 and a deterministic backup.
    """
    td_key, key = jax.random.split(KEY)
    q_target, qs_pred = backup(p, t, td_key), critics(p.critic, S, A_TM1)
    qf_loss = sum(jnp.mean((q_pred - q_target) ** 2) for q_pred in qs_pred)
    return qf_loss + 5.0 * jnp.sum(out_of_distribution(p, key, lower_bounds))


def plain_cal_ql_critic(p, t):
    """nakamotoo/Cal-QL@ac6eafe, JaxCQL/conservative_sac.py.

    Without cql_max_target_backup and backup_entropy.
    """
    return plain_cql_critic(p, t, DATA.returns)


def plain_cql_temperature(p, t):
    """aviralkumar2907/CQL@d67dbe9: alpha_prime_loss, with min_q_weight 1.

    d4rl/rlkit/torch/sac/cql.py; of any number of critics.
    """
    alpha_prime = jnp.clip(jnp.exp(p), 0.0, 1000000.0)
    min_qf_losses = alpha_prime * (stop(out_of_distribution(t, KEY)) - 5.0)
    return jnp.mean(-min_qf_losses)


def plain_discrete_cql(p, t):
    """takuseno/d3rlpy@38c34b6.

    d3rlpy/algos/qlearning/torch/cql_impl.py: DiscreteCQLImpl, and dqn_impl.py.
    """
    q_tpn = pick(Q(t, ONE.s_t), jnp.argmax(Q(p, ONE.s_t), axis=1))
    values = Q(p, ONE.s_tm1)
    chosen = pick(values, ONE.a_tm1)
    td_loss = huber(chosen - stop(ONE.r_t + ONE.discount_t * q_tpn))
    conservative_loss = jax.nn.logsumexp(values, axis=1) - chosen
    return jnp.mean(td_loss + 0.01 * conservative_loss)


def plain_edac_critic(p, t):
    """snu-mllab/EDAC@198d570, lifelong_rl/trainers/q_learning/sac.py, with eta 2."""
    q_target, qs_pred = backup(p, t, alpha=0.2), critics(p.critic, S, A_TM1)
    qfs_loss = jnp.sum(jnp.mean((qs_pred - q_target[None]) ** 2, axis=1))
    grads = jnp.stack(
        [
            jax.grad(lambda a, i=i: jnp.sum(critics(p.critic, S, a)[i]))(A_TM1)
            for i in range(3)
        ]
    )
    norms = jnp.sqrt(jnp.sum(grads**2, axis=2, keepdims=True)) + 1e-10
    grads = jnp.swapaxes(grads / norms, 0, 1)
    products = jnp.einsum("bik,bjk->bij", grads, grads)
    products = (1 - jnp.eye(3)) * products
    return qfs_loss + 2.0 * jnp.mean(jnp.sum(products, axis=(1, 2))) / (3 - 1)


def plain_td3_bc_actor(p, t):
    """sfujim/TD3_BC@8791ad7, TD3_BC.py."""
    pi = TD3.actor(p.actor, S)
    return f.td3_bc(TD3.critic(stop(p.critic), S, pi)[:, 0], pi, A_TM1)


def plain_rebrac_critic(p, t):
    """tinkoff-ai/ReBRAC@694385b, src/algorithms/rebrac.py: update_critic."""
    noise = [jax.random.normal(key, (D,)) for key in jax.random.split(KEY, B)]
    noise = jnp.clip(jnp.stack(noise) * 0.2, -0.5, 0.5)
    next_actions = jnp.clip(TD3.actor(t.actor, DATA.s_t) + noise, -1, 1)
    bc_penalty = jnp.sum((next_actions - DATA.a_t) ** 2, axis=-1)
    next_q = jnp.min(TD3.critic(t.critic, DATA.s_t, next_actions), axis=1)
    target_q = stop(DATA.r_t + MASKS * GAMMA * (next_q - 0.01 * bc_penalty))
    q = TD3.critic(p.critic, S, A_TM1).T
    return jnp.sum(jnp.mean((q - target_q[None]) ** 2, axis=1))


def plain_rebrac_actor(p, t):
    """tinkoff-ai/ReBRAC@694385b, src/algorithms/rebrac.py: update_actor."""
    actions = TD3.actor(p.actor, S)
    bc_penalty = jnp.sum((actions - A_TM1) ** 2, axis=-1)
    q_values = jnp.min(TD3.critic(stop(p.critic), S, actions), axis=1)
    lmbda = stop(1 / jnp.mean(jnp.abs(q_values)))
    return jnp.mean(0.01 * bc_penalty - lmbda * q_values)


def plain_discrete_bcq(p, t):
    """sfujim/BCQ@4876f7e, discrete_BCQ/discrete_BCQ.py."""
    q, i = policy_and_q(p, ONE.s_t)
    imt = jnp.exp(jax.nn.log_softmax(i, axis=1))
    imt = (imt / jnp.max(imt, axis=1, keepdims=True) > 0.3).astype(jnp.float32)
    next_action = jnp.argmax(imt * q + (1 - imt) * -1e8, axis=1)
    q, _ = policy_and_q(t, ONE.s_t)
    target_q = stop(ONE.r_t + ONE.discount_t * pick(q, next_action))
    q, i = policy_and_q(p, ONE.s_tm1)
    q_loss = jnp.mean(huber(pick(q, ONE.a_tm1) - target_q))
    i_loss = jnp.mean(-pick(jax.nn.log_softmax(i, axis=1), ONE.a_tm1))
    return q_loss + i_loss + 1e-2 * jnp.mean(i**2)


def mlp(w, *inputs):
    return jnp.concatenate(inputs, axis=-1) @ w


def encode(w, s, a):
    return mean_and_stddev(w["encoder"], jnp.concatenate([s, a], axis=-1))


def bounded(w, s, a):
    return jnp.tanh(mlp(w, s, a))


BEAR = SimpleNamespace(
    actor=mean_and_stddev,
    critic=TD3.critic,
    encode=encode,
    decode=lambda w, s, z: mlp(w["decoder"], s, z),
)
BCQ = SimpleNamespace(**vars(BEAR) | {"actor": bounded})


class Generative(NamedTuple):
    actor: jax.Array
    critic: jax.Array
    vae: dict
    duals: jax.Array


def generative(inputs, outputs):
    vae = {"encoder": normal(F + D, 4 * D), "decoder": normal(F + 2 * D, D)}
    return Generative(normal(inputs, outputs), normal(F + D, 2), vae, jnp.float32(0.3))


BCQ_PARAMS = tuple(generative(F + D, D) for _ in range(2))
BEAR_PARAMS = tuple(generative(F, 2 * D) for _ in range(2))


def plain_vae_loss(p, t):
    """sfujim/BCQ@4876f7e, continuous_BCQ/BCQ.py: the VAE, without its clip."""
    mean, std = encode(p.vae, S, A_TM1)
    z = mean + std * jax.random.normal(KEY, mean.shape)
    recon = jnp.tanh(mlp(p.vae["decoder"], S, z))
    kl_loss = -0.5 * jnp.mean(1 + jnp.log(std**2) - mean**2 - std**2)
    return jnp.mean((recon - A_TM1) ** 2) + 0.5 * kl_loss


def decoded(p, s, key, num):
    """Return actions of the VAE before the tanh, [num, B, D]."""
    z = jnp.clip(jax.random.normal(key, (num, B, 2 * D)), -0.5, 0.5)
    return [mlp(p.vae["decoder"], s, each) for each in z]


def move(w, s, a):
    return jnp.clip(0.05 * bounded(w, s, a) + a, -1, 1)


def soft_clipped(t, actions):
    """Return the target: 0.75 of the minimum, 0.25 of the maximum, the best action."""
    qs = [TD3.critic(t.critic, DATA.s_t, a).T for a in actions]
    qs = [0.75 * jnp.minimum(*q) + (1 - 0.75) * jnp.maximum(*q) for q in qs]
    return stop(DATA.r_t + MASKS * GAMMA * jnp.max(jnp.stack(qs), axis=0))


def mse_of_both(p, target_q):
    return sum(jnp.mean((q - target_q) ** 2) for q in TD3.critic(p.critic, S, A_TM1).T)


def plain_bcq_critic(p, t):
    """sfujim/BCQ@4876f7e, continuous_BCQ/BCQ.py: critic_loss, with lmbda 0.75."""
    actions = decoded(p, DATA.s_t, KEY, 10)
    actions = [move(t.actor, DATA.s_t, jnp.tanh(a)) for a in actions]
    return mse_of_both(p, soft_clipped(t, actions))


def plain_bcq_actor(p, t):
    """sfujim/BCQ@4876f7e, continuous_BCQ/BCQ.py: actor_loss."""
    (a,) = decoded(stop(p), S, KEY, 1)
    a = move(p.actor, S, jnp.tanh(a))
    return -jnp.mean(TD3.critic(stop(p.critic), S, a)[:, 0])


def plain_bear_critic(p, t):
    """aviralkumar2907/BEAR@f2e31c1, algos.py: critic_loss, without bootstrap masks."""
    actions = [sample(t.actor, DATA.s_t, key)[0] for key in jax.random.split(KEY, 10)]
    return mse_of_both(p, soft_clipped(t, actions))


def mmd_loss_laplacian(x, y, sigma):
    """Return the discrepancy of two samples, [B, N, D]."""

    def mean(x, y):
        diff = jnp.sum(jnp.abs(x[:, :, None] - y[:, None]), axis=-1)
        return jnp.mean(jnp.exp(-diff / (2 * sigma)), axis=(1, 2))

    return jnp.sqrt(mean(x, x) + mean(y, y) - 2 * mean(x, y) + 1e-6)


def plain_bear_actor(p, t):
    """aviralkumar2907/BEAR@f2e31c1, algos.py: actor_loss and lagrange_loss.

    With version "0", mode "auto", sigma 20 and without the standard deviation of Q.
    """
    data_key, key = jax.random.split(KEY)
    data = jnp.stack(decoded(stop(p), S, data_key, 10), axis=1)
    noise = jnp.clip(jax.random.normal(key, (10, B, D)), -0.5, 0.5)
    mu, sigma = mean_and_stddev(p.actor, S)
    raw = jnp.stack([mu + sigma * each for each in noise], axis=1)
    mmd = mmd_loss_laplacian(data, raw, 20.0)
    qs = sum(TD3.critic(stop(p.critic), S, jnp.tanh(raw[:, i])) for i in range(10)) / 10
    lagrange = jnp.exp(p.duals)
    actor_loss = jnp.mean(-jnp.minimum(*qs.T) + stop(lagrange) * mmd)
    return actor_loss - lagrange * jnp.mean(stop(mmd) - 0.05)


def transformer(w, returns, s, a):
    return jnp.concatenate([returns[..., None], s], axis=-1) @ w


def plain_decision_transformer(p, t):
    """kzl/decision-transformer@e2d82e6, atari/mingpt/model_atari.py.

    Its returns-to-go are those of atari/create_dataset.py.
    """

    def losses(b):
        rtg = f.backwards(b.r_t, 1 - b.dones)
        return transformer(p, rtg, b.s_tm1, None), b.a_tm1

    logits, targets = pool(losses)
    return -jnp.mean(pick(jax.nn.log_softmax(logits), targets))


# A value far below those of the critics in the first state, so that it has a weight.
OPTIMISTIC = tuple(x._replace(value=-10 * S[:1].T) for x in NET_PARAMS)
VALUE, ACTOR, CRITIC = "actor critic", "critic value", "actor value"
CASES = cases(
    recipes,
    globals(),
    {
        "decision_transformer": given((normal(F + 1, A), None), transformer, ROLLOUTS),
        "iql_value": given(NET_PARAMS, NET, DATA, stopped=VALUE),
        "iql_critic": given(NET_PARAMS, NET, DATA, stopped=CRITIC),
        "iql_actor": given(NET_PARAMS, NET, DATA, stopped=ACTOR),
        "xql_value": given(NET_PARAMS, NET, DATA, stopped=VALUE),
        "sql_value": given(NET_PARAMS, NET, DATA, stopped=VALUE),
        "sql_actor": given(OPTIMISTIC, NET, DATA, stopped=ACTOR),
        "awr": given(NET_PARAMS, NET, DATA_STREAM, stopped="critic"),
        "awac_critic": given(NET_PARAMS, NET, DATA, KEY, stopped=CRITIC),
        "awac_actor": given(NET_PARAMS, NET, DATA, KEY, stopped=ACTOR),
        "crr_actor": given(NET_PARAMS, NET, DATA, KEY, stopped=ACTOR),
        "cql_critic": given(NET_PARAMS, NET, DATA, KEY, num_samples=2, stopped=CRITIC),
        "cql_temperature": given(
            (np.float32(0.3), NET_PARAMS[0]), NET, DATA, KEY, 5.0, num_samples=2
        ),
        "cal_ql_critic": given(
            NET_PARAMS, NET, DATA, KEY, num_samples=2, stopped=CRITIC
        ),
        "discrete_cql": given(Q_PARAMS, Q, ONE),
        "edac_critic": given(NET_PARAMS, NET, DATA, KEY, 0.2, stopped=CRITIC),
        "td3_bc_actor": given(TD3_PARAMS, TD3, DATA, stopped="critic"),
        "rebrac_critic": given(TD3_PARAMS, TD3, DATA, KEY, stopped="actor"),
        "rebrac_actor": given(TD3_PARAMS, TD3, DATA, stopped="critic"),
        "vae_loss": given(BCQ_PARAMS, BCQ, DATA, KEY, stopped="actor critic duals"),
        "bcq_critic": given(BCQ_PARAMS, BCQ, DATA, KEY, stopped="actor vae duals"),
        "bcq_actor": given(BCQ_PARAMS, BCQ, DATA, KEY, stopped="critic vae duals"),
        "bear_critic": given(BEAR_PARAMS, BEAR, DATA, KEY, stopped="actor vae duals"),
        "bear_actor": given(BEAR_PARAMS, BEAR, DATA, KEY, stopped="critic vae"),
        "discrete_bcq": given(TWO_Q_PARAMS, policy_and_q, ONE),
    },
)
