"""Losses of `recipes/continuous.py` in plain `jax.numpy`."""

import jax
import jax.numpy as jnp
from recipes import continuous as recipes

import rlaxlib
from plain_losses.common import (
    ACTION,
    D4PG,
    D4PG_PARAMS,
    DPG,
    DPG_PARAMS,
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
    Case,
    D,
    M,
    actor_critic,
    critics_loss,
    cross_entropy,
    draw,
    kl_terms,
    mean_and_stddev,
    normal,
    of,
    one_step,
    pick,
    project,
    quantile,
    squares,
    stop,
)


def plain_ddpg_critic(p, t):
    """openai/baselines@ea25b9e, baselines/ddpg/ddpg_learner.py."""
    target = one_step(
        DPG.critic(t.critic, ACTION.s_t, DPG.actor(t.actor, ACTION.s_t)), ACTION
    )
    q = DPG.critic(p.critic, ACTION.s_tm1, ACTION.a_tm1)
    return jnp.mean((stop(target) - q) ** 2)


def plain_ddpg_actor(p, t):
    """openai/baselines@ea25b9e, baselines/ddpg/ddpg_learner.py."""
    a = DPG.actor(p.actor, ACTION.s_tm1)
    return -jnp.mean(DPG.critic(stop(p.critic), ACTION.s_tm1, a))


HYBRID = ACTION._replace(x_tm1=ACTION.a_tm1, a_tm1=ONE.a_tm1)
P_DQN, P_DQN_PARAMS = actor_critic(A, gaussian=False)
P_DQN = P_DQN._replace(actor=lambda w, s: s @ w)  # Beyond the bounds, too.


def plain_p_dqn_critic(p, t):
    """cycraig/MP-DQN@eec13eb, agents/pdqn.py."""
    b = HYBRID
    x_t = P_DQN.actor(t.actor, b.s_t)
    target = one_step(jnp.max(P_DQN.critic(t.critic, b.s_t, x_t), -1), b)
    q = pick(P_DQN.critic(p.critic, b.s_tm1, b.x_tm1), b.a_tm1)
    return jnp.mean((stop(target) - q) ** 2)


def plain_p_dqn_actor(p, t):
    x = P_DQN.actor(p.actor, HYBRID.s_tm1)
    gradient = jax.jacfwd(
        lambda x: P_DQN.critic(stop(p.critic), HYBRID.s_tm1, x).sum((0, 1))
    )
    gradient = stop(gradient(x))
    room = stop(jnp.where(gradient > 0, 1 - x, x + 1)) / 2
    return -jnp.mean(jnp.sum(gradient * room * x, axis=-1))


def plain_td3_critic(p, t):
    """sfujim/TD3@34770cc, TD3.py."""
    keys = jax.random.split(KEY, B)
    noise = jnp.stack([jax.random.normal(key, (D,)) for key in keys])
    noise = jnp.clip(0.2 * noise, -0.5, 0.5)
    a_t = jnp.clip(TD3.actor(t.actor, ACTION.s_t) + noise, -1, 1)
    target = one_step(jnp.min(TD3.critic(t.critic, ACTION.s_t, a_t), -1), ACTION)
    return squares(TD3.critic(p.critic, ACTION.s_tm1, ACTION.a_tm1), target)


def plain_td3_actor(p, t):
    """sfujim/TD3@34770cc, TD3.py."""
    a = TD3.actor(p.actor, ACTION.s_tm1)
    return -jnp.mean(TD3.critic(stop(p.critic), ACTION.s_tm1, a)[:, 0])


def plain_d4pg_critic(p, t):
    """google-deepmind/acme@770bc75, acme/agents/jax/d4pg/learning.py."""
    b, atoms = ACTION, jnp.linspace(-150, 150, M)
    probs = jax.nn.softmax(D4PG.critic(t.critic, b.s_t, D4PG.actor(t.actor, b.s_t)))
    target = project(b.r_t, b.discount_t, probs, atoms)
    logits = D4PG.critic(p.critic, b.s_tm1, b.a_tm1)
    return jnp.mean(cross_entropy(stop(target), logits))


def plain_d4pg_actor(p, t):
    """google-deepmind/acme@770bc75, acme/agents/jax/d4pg/learning.py."""
    a = D4PG.actor(p.actor, ACTION.s_tm1)
    probs = jax.nn.softmax(D4PG.critic(stop(p.critic), ACTION.s_tm1, a))
    return -jnp.mean(probs @ jnp.linspace(-150, 150, M))


def plain_sac_critic(p, t, key=KEY, reduce=lambda q: jnp.min(q, -1)):
    """rail-berkeley/softlearning@13cf187, softlearning/algorithms/sac.py."""
    a_t, log_pi = draw(p.actor, ACTION.s_t, key)
    v_t = reduce(SAC.critic(t.critic, ACTION.s_t, a_t)) - 0.2 * log_pi
    q = SAC.critic(p.critic, ACTION.s_tm1, ACTION.a_tm1)
    return critics_loss(q, one_step(v_t, ACTION))


def plain_redq_critic(p, t):
    # With a subset of all critics, which is no random choice.
    """watchernyu/REDQ@7b5d1bf, redq/algos/redq_sac.py."""
    return 2 * plain_sac_critic(p, t, jax.random.split(KEY)[1])


def soft_value(p, net, reduce):
    a, log_pi = draw(p.actor, ACTION.s_tm1)
    return jnp.mean(0.2 * log_pi - reduce(net.critic(stop(p.critic), ACTION.s_tm1, a)))


def plain_sac_actor(p, t):
    """rail-berkeley/softlearning@13cf187, softlearning/algorithms/sac.py."""
    return soft_value(p, SAC, lambda q: jnp.mean(q, axis=-1))


def plain_redq_actor(p, t):
    """watchernyu/REDQ@7b5d1bf, redq/algos/redq_sac.py."""
    return soft_value(p, SAC, lambda q: jnp.mean(q, axis=-1))


def plain_tqc_actor(p, t):
    """SamsungLabs/tqc_pytorch@65114eb, tqc/trainer.py."""
    return soft_value(p, TQC, lambda q: jnp.mean(q, axis=(1, 2)))


def plain_sac_temperature(p, t):
    """rail-berkeley/softlearning@13cf187, softlearning/algorithms/sac.py."""
    _, log_pi = draw(t.actor, ACTION.s_tm1)
    return jnp.mean(-jnp.exp(p) * stop(log_pi + -2.0))


def plain_tqc_critic(p, t):
    """SamsungLabs/tqc_pytorch@65114eb, tqc/functions.py and tqc/trainer.py."""
    a_t, log_pi = draw(p.actor, ACTION.s_t)
    z = jnp.sort(TQC.critic(t.critic, ACTION.s_t, a_t).reshape(B, -1))[:, : 3 * (M - 2)]
    z = z - 0.2 * log_pi[:, None]
    y = ACTION.r_t[:, None] + ACTION.discount_t[:, None] * z
    x = TQC.critic(p.critic, ACTION.s_tm1, ACTION.a_tm1)
    tau = (jnp.arange(M) + 0.5) / M
    # `quantile` is a sum over the quantiles.
    return sum(quantile(x[:, i], tau, y) / M for i in range(3)) / 3


def log_normal(a, mean, stddev):
    z = (a - mean) / stddev
    return jnp.sum(-(z**2) / 2 - jnp.log(stddev) - jnp.log(2 * jnp.pi) / 2, axis=-1)


def plain_mpo(p, t):
    """google-deepmind/acme@770bc75, acme/jax/losses/mpo.py: MPO.__call__.

    With action_penalization, and per_dim_constraining=False.
    """
    s = ACTION.s_tm1
    (mu, sigma), old = mean_and_stddev(p.actor, s), stop(mean_and_stddev(t.actor, s))
    old_mu, old_sigma = old
    a = old_mu + old_sigma * jax.random.normal(KEY, (6, B, D))
    q = jnp.stack([MPO.critic(stop(t.critic), s, each) for each in a])
    eta, alpha, beta, penalty = jax.nn.softplus(p.duals)
    cost = -jnp.linalg.norm(a - jnp.clip(a, -1, 1), axis=-1)
    weights = jax.nn.softmax(q / eta, axis=0) + jax.nn.softmax(cost / penalty, axis=0)
    weights = stop(weights)
    log_pi = log_normal(a, mu, old_sigma) + log_normal(a, old_mu, sigma)
    mean_exp = jax.nn.logsumexp(q / eta, axis=0) - jnp.log(6)
    kl_mean = jnp.sum((mu - old_mu) ** 2 / (2 * old_sigma**2), axis=-1)
    ratio = old_sigma / sigma
    kl_stddev = jnp.sum(ratio**2 / 2 - 0.5 - jnp.log(ratio), axis=-1)
    loss = -jnp.sum(weights * log_pi, axis=0) + eta * (0.1 + mean_exp)
    mean_cost = jax.nn.logsumexp(cost / penalty, axis=0) - jnp.log(6)
    loss = loss + penalty * (0.001 + mean_cost) + kl_terms(kl_mean, alpha, 0.01)
    return jnp.mean(loss + kl_terms(kl_stddev, beta, 0.0001))


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
    tau = (jnp.arange(M) + 0.5) / M
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
TARGET = jnp.clip(normal(B), -2, 2)
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
    kl = log_normal(u, old_mu, old_sigma) - log_normal(u, mu, sigma)
    kl = jnp.mean(kl, axis=0)
    a, log_pi = draw(p.actor, s, key)
    soft = stop(jnp.exp(p.duals[0])) * log_pi - MPO.critic(stop(p.critic), s, a)
    loss = jnp.where(kl < 0.5, soft, stop(jnp.exp(p.duals[1])) * kl)
    loss = loss + jnp.exp(p.duals[0]) * stop(-log_pi + 1.0)
    return jnp.mean(loss - jnp.exp(p.duals[1]) * stop(kl - 0.5))


TWO_DUALS = tuple(x._replace(duals=jnp.array([-1.0, 0.5])) for x in MPO_PARAMS)


CASES = {
    "crossq_critic": Case(
        of(recipes.crossq_critic, CROSSQ, ACTION, KEY, 0.2),
        plain_crossq_critic,
        SAC_PARAMS,
        "actor",
    ),
    "bro_critic": Case(
        of(recipes.bro_critic, TWIN, ACTION, KEY, 0.2, 0.4),
        plain_bro_critic,
        TWIN_PARAMS,
        "actor",
    ),
    "bro_actor": Case(
        of(recipes.bro_actor, TWIN, ACTION, KEY, 0.2, 0.4),
        plain_bro_actor,
        TWIN_PARAMS,
        "critic",
    ),
    "categorical_sac_critic": Case(
        of(recipes.categorical_sac_critic, TWIN, ACTION, KEY, 0.2),
        plain_categorical_sac_critic,
        TWIN_PARAMS,
        "actor",
    ),
    "fast_td3_critic": Case(
        of(recipes.fast_td3_critic, SURE, ACTION, KEY, 0.4, bounds=(-2.0, 2.0)),
        plain_fast_td3_critic,
        SURE_PARAMS,
        "actor",
    ),
    "drqv2_critic": Case(
        of(recipes.drqv2_critic, TD3, ACTION, KEY, 0.4),
        plain_drqv2_critic,
        TD3_PARAMS,
        "actor",
        factor=0.5,
    ),
    "drqv2_actor": Case(
        of(recipes.drqv2_actor, TD3, ACTION, KEY, 0.4),
        plain_drqv2_actor,
        TD3_PARAMS,
        "critic",
    ),
    "reppo_critic": Case(
        of(recipes.reppo_critic, LOGITS, ACTION, TARGET, PAIR),
        plain_reppo_critic,
        LOGITS_PARAMS,
        "actor",
    ),
    "reppo_actor": Case(
        of(recipes.reppo_actor, MPO, ACTION, KEY, -1.0, 0.5, 8),
        plain_reppo_actor,
        TWO_DUALS,
        "critic",
    ),
    "ddpg_critic": Case(
        of(recipes.ddpg_critic, DPG, ACTION),
        plain_ddpg_critic,
        DPG_PARAMS,
        "actor",
        factor=0.5,
    ),
    "ddpg_actor": Case(
        of(recipes.ddpg_actor, DPG, ACTION),
        plain_ddpg_actor,
        DPG_PARAMS,
        "critic",
        True,
    ),
    "p_dqn_critic": Case(
        of(recipes.p_dqn_critic, P_DQN, HYBRID),
        plain_p_dqn_critic,
        P_DQN_PARAMS,
        "actor",
        factor=0.5,
    ),
    "p_dqn_actor": Case(
        of(recipes.p_dqn_actor, P_DQN, HYBRID),
        plain_p_dqn_actor,
        P_DQN_PARAMS,
        "critic",
        meaningless=True,
    ),
    "td3_critic": Case(
        of(recipes.td3_critic, TD3, ACTION, KEY),
        plain_td3_critic,
        TD3_PARAMS,
        "actor",
        factor=0.5,
    ),
    "td3_actor": Case(
        of(recipes.td3_actor, TD3, ACTION), plain_td3_actor, TD3_PARAMS, "critic"
    ),
    "d4pg_critic": Case(
        of(recipes.d4pg_critic, D4PG, ACTION), plain_d4pg_critic, D4PG_PARAMS, "actor"
    ),
    "d4pg_actor": Case(
        of(recipes.d4pg_actor, D4PG, ACTION),
        plain_d4pg_actor,
        D4PG_PARAMS,
        "critic",
        True,
    ),
    "sac_critic": Case(
        of(recipes.sac_critic, SAC, ACTION, KEY, 0.2),
        plain_sac_critic,
        SAC_PARAMS,
        "actor",
    ),
    "sac_actor": Case(
        of(recipes.sac_actor, SAC, ACTION, KEY, 0.2),
        plain_sac_actor,
        SAC_PARAMS,
        "critic",
        cosine=0.99,
    ),
    "sac_temperature": Case(
        of(recipes.sac_temperature, SAC, ACTION, KEY, -2.0),
        plain_sac_temperature,
        (jnp.float32(0.3), SAC_PARAMS[0]),
    ),
    "redq_critic": Case(
        of(recipes.redq_critic, SAC, ACTION, KEY, 0.2, 3),
        plain_redq_critic,
        SAC_PARAMS,
        "actor",
        factor=0.5,
    ),
    "redq_actor": Case(
        of(recipes.redq_actor, SAC, ACTION, KEY, 0.2),
        plain_redq_actor,
        SAC_PARAMS,
        "critic",
    ),
    "tqc_critic": Case(
        of(recipes.tqc_critic, TQC, ACTION, KEY, 0.2),
        plain_tqc_critic,
        TQC_PARAMS,
        "actor",
        factor=M,
    ),
    "tqc_actor": Case(
        of(recipes.tqc_actor, TQC, ACTION, KEY, 0.2),
        plain_tqc_actor,
        TQC_PARAMS,
        "critic",
    ),
    "mpo": Case(of(recipes.mpo, MPO, ACTION, KEY, 6), plain_mpo, MPO_PARAMS),
}
