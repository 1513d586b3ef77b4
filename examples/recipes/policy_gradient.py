"""Losses of policy-gradient algorithms: REINFORCE to PPO, V-MPO, Muesli, DreamerV3.

`apply(params, s)` returns the logits of the policy and, from A2C on, state values. A
batch of B streams of T steps has the fields

    s                 observations before each action and after the last, [B, T+1, ...],
    a_tm1             actions, integers in [0, A), [B, T],
    r_t, discount_t   rewards and discounts, [B, T],
    logits_tm1        logits of the policy that acted, [B, T, A],
    values            state values when the policy acted, [B, T+1].
"""

import jax
import jax.numpy as jnp

import rlaxlib


def log_probs(logits, a):
    """Return the log-probabilities of actions."""
    return rlaxlib.batched_index(jax.nn.log_softmax(logits), a)


def entropy(logits):
    """Return the mean entropy of the policies of a batch of streams."""
    return -jnp.mean(jax.vmap(rlaxlib.entropy_loss)(logits, jnp.ones(logits.shape[:2])))


def advantages(batch, lambda_):
    """Return generalised advantage estimates, and the targets of the values."""
    gae = jax.vmap(rlaxlib.truncated_generalized_advantage_estimation, (0, 0, None, 0))
    adv_t = gae(batch.r_t, batch.discount_t, lambda_, batch.values)
    return adv_t, adv_t + batch.values[:, :-1]


def retrace_errors(q, target_q, pi, batch, lambda_, tx_pair=rlaxlib.IDENTITY_PAIR):
    """Return the Retrace(λ) errors of q, with targets from the target network."""
    # The last of `a_t` and `mu_t` are not used.
    a_t = jnp.roll(batch.a_tm1, -1, axis=1)
    mu_t = jnp.roll(jnp.exp(log_probs(batch.logits_tm1, batch.a_tm1)), -1, axis=1)

    def errors(*args):
        return rlaxlib.transformed_retrace(*args, lambda_, tx_pair=tx_pair)

    return jax.vmap(errors)(
        *(q[:, :-1], target_q[:, 1:], batch.a_tm1, a_t, batch.r_t, batch.discount_t),
        *(pi[:, 1:], mu_t),
    )


def surrogate_inputs(logits, batch, adv_t):
    """Return log-probabilities, those of the policy that acted, and advantages."""
    log_prob, old_log_prob = (
        log_probs(x, batch.a_tm1) for x in (logits, batch.logits_tm1)
    )
    return log_prob, old_log_prob, rlaxlib.standardize(adv_t)


def reinforce(params, apply, batch):
    """REINFORCE: the discounted return of each step weights its log-probability.

    Williams, 1992, https://doi.org/10.1007/BF00992696. Usual: whole episodes, discount
    0.99, returns minus a baseline.
    """
    logits = apply(params, batch.s)[:, :-1]
    returns = jax.vmap(rlaxlib.discounted_returns, (0, 0, None))
    adv_t = returns(batch.r_t, batch.discount_t, 0.0)
    log_prob = log_probs(logits, batch.a_tm1)
    return jnp.mean(jax.vmap(rlaxlib.reinforce_loss)(log_prob, adv_t))


def a2c(params, apply, batch, value_cost=0.5, entropy_cost=0.01):
    """A2C: returns bootstrapped after T steps, with a learned baseline.

    Mnih et al., 2016, https://arxiv.org/abs/1602.01783. Usual: streams of 5 steps, 16
    environments, RMSProp 7e-4.
    """
    logits, v = apply(params, batch.s)
    logits, v_t = logits[:, :-1], v[:, 1:]
    returns = jax.vmap(rlaxlib.lambda_returns)(batch.r_t, batch.discount_t, v_t)
    td_error = jax.lax.stop_gradient(returns) - v[:, :-1]
    log_prob = log_probs(logits, batch.a_tm1)
    policy_loss = jnp.mean(jax.vmap(rlaxlib.reinforce_loss)(log_prob, td_error))
    value_loss = jnp.mean(rlaxlib.l2_loss(td_error))
    return policy_loss + value_cost * value_loss - entropy_cost * entropy(logits)


def impala(params, apply, batch, value_cost=0.5, entropy_cost=0.01):
    """IMPALA: V-trace corrects for the lag of the policy that acted.

    Espeholt et al., 2018, https://arxiv.org/abs/1802.01561. Usual: streams of 20 to 100
    steps, discount 0.99, thresholds 1, RMSProp 6e-4.
    """
    logits, v = apply(params, batch.s)
    logits = logits[:, :-1]
    rho_tm1 = rlaxlib.categorical_importance_sampling_ratios(
        logits, batch.logits_tm1, batch.a_tm1
    )
    vtrace = jax.vmap(rlaxlib.vtrace_td_error_and_advantage)(
        v[:, :-1], v[:, 1:], batch.r_t, batch.discount_t, rho_tm1
    )
    log_prob = log_probs(logits, batch.a_tm1)
    policy_loss = jax.vmap(rlaxlib.reinforce_loss)(log_prob, vtrace.pg_advantage)
    loss = policy_loss + value_cost * rlaxlib.l2_loss(vtrace.errors)
    return jnp.mean(loss) - entropy_cost * entropy(logits)


def acer(params, apply, batch, max_weight=10.0, value_cost=0.5, entropy_cost=1e-3):
    """ACER: truncated importance weights with bias correction, and Retrace.

    `apply` returns logits and q, [B, T+1, A]. The paper also projects gradients onto a
    trust region around an average policy. Wang et al., 2017,
    https://arxiv.org/abs/1611.01224. Usual: streams of 20 steps, replay ratio 4,
    discount 0.99, λ 1, weights truncated at 10, RMSProp.
    """
    logits, q = apply(params, batch.s)
    pi = jax.nn.softmax(logits)
    errors = retrace_errors(q, q, pi, batch, lambda_=1.0)
    logits, q_tm1 = logits[:, :-1], q[:, :-1]
    returns = errors + rlaxlib.batched_index(q_tm1, batch.a_tm1)
    policy_loss = jax.vmap(rlaxlib.acer_policy_loss, (0, 0, 0, 0, 0, None))(
        logits, batch.logits_tm1, batch.a_tm1, q_tm1, returns, max_weight
    )
    loss = jnp.mean(policy_loss + value_cost * rlaxlib.l2_loss(errors))
    return loss - entropy_cost * entropy(logits)


def coma(params, target_params, apply, batch, lambda_=0.8):
    """COMA: the advantage of an agent's action over its other actions.

    The B streams are those of all agents. `apply` returns an agent's logits, and q of
    its actions given the actions that the others took, [B, T+1, A]. The last step is
    left out, since the next action is not known. Foerster et al., 2018,
    https://arxiv.org/abs/1705.08926. Usual: discount 0.99, λ 0.8, RMSProp 5e-4, target
    critic copied every 150 updates.
    """
    (logits, q), (_, target_q) = (apply(p, batch.s) for p in (params, target_params))
    logits, q_tm1, a_tm1 = logits[:, :-2], q[:, :-2], batch.a_tm1[:, :-1]
    adv_t = jax.vmap(rlaxlib.counterfactual_advantage)(
        q_tm1, jax.nn.softmax(logits), a_tm1
    )
    r_t, discount_t, a_t = (
        batch.r_t[:, :-1],
        batch.discount_t[:, :-1],
        batch.a_tm1[:, 1:],
    )
    errors = jax.vmap(rlaxlib.sarsa_lambda, (0,) * 6 + (None,))(
        q_tm1, a_tm1, r_t, discount_t, target_q[:, 1:-1], a_t, lambda_
    )
    policy_loss = jax.vmap(rlaxlib.reinforce_loss)(log_probs(logits, a_tm1), adv_t)
    return jnp.mean(policy_loss + rlaxlib.l2_loss(errors))


def ppo(params, apply, batch, epsilon=0.2, value_cost=0.5, entropy_cost=0.01):
    """PPO: the clipped surrogate, for several epochs of minibatches of streams.

    Schulman et al., 2017, https://arxiv.org/abs/1707.06347. Usual: discount 0.99, λ
    0.95, Adam 2.5e-4 and 3 epochs for Atari, 3e-4 and 10 for MuJoCo; the clip of values
    is optional.
    """
    adv_t, target = advantages(batch, lambda_=0.95)
    logits, v = apply(params, batch.s)
    logits = logits[:, :-1]
    surrogate = jax.vmap(rlaxlib.ppo_clip_loss, (0, 0, 0, None))
    policy_loss, _ = surrogate(*surrogate_inputs(logits, batch, adv_t), epsilon)
    value_loss, _ = jax.vmap(rlaxlib.ppo_value_loss, (0, 0, 0, None))(
        v[:, :-1], batch.values[:, :-1], target, epsilon
    )
    loss = jnp.mean(policy_loss + value_cost * value_loss)
    return loss - entropy_cost * entropy(logits)


def ppo_penalty(params, apply, batch, coefficient, value_cost=0.5):
    """PPO-penalty: a KL penalty in place of the clip.

    Schulman et al., 2017, https://arxiv.org/abs/1707.06347. Usual: `coefficient` from
    `kl_coefficient`, 10 epochs, Adam 3e-4.
    """
    adv_t, target = advantages(batch, lambda_=0.95)
    logits, v = apply(params, batch.s)
    logits = logits[:, :-1]
    policy_loss, _ = jax.vmap(rlaxlib.ppo_penalty_loss, (0, 0, 0, 0, None))(
        *surrogate_inputs(logits, batch, adv_t),
        rlaxlib.categorical_kl_divergence(batch.logits_tm1, logits),
        coefficient,
    )
    return jnp.mean(policy_loss + value_cost * rlaxlib.l2_loss(v[:, :-1], target))


def kl_coefficient(coefficient, params, apply, batch, target=0.01):
    """PPO-penalty: the coefficient for the next batch, after all epochs of this one.

    Schulman et al., 2017, https://arxiv.org/abs/1707.06347. Usual: target 0.01, at
    first 1.
    """
    logits, _ = apply(params, batch.s)
    kl = rlaxlib.categorical_kl_divergence(batch.logits_tm1, logits[:, :-1])
    return rlaxlib.adaptive_kl_coefficient(coefficient, jnp.mean(kl), target)


def decoupled_ppo(params, target_params, apply, batch, value_cost=0.5):
    """Decoupled PPO (PPO-EWMA): clips relative to an average of the parameters.

    Hilton et al., 2022, https://arxiv.org/abs/2110.00641. Usual: those of PPO, with an
    exponential moving average of decay 0.889 as `target_params`.
    """
    adv_t, target = advantages(batch, lambda_=0.95)
    logits, v = apply(params, batch.s)
    proximal_logits, _ = apply(target_params, batch.s)
    policy_loss, _ = jax.vmap(rlaxlib.decoupled_ppo_loss)(
        log_probs(logits[:, :-1], batch.a_tm1),
        log_probs(batch.logits_tm1, batch.a_tm1),
        log_probs(proximal_logits[:, :-1], batch.a_tm1),
        rlaxlib.standardize(adv_t),
    )
    return jnp.mean(policy_loss + value_cost * rlaxlib.l2_loss(v[:, :-1], target))


def spo(params, apply, batch, epsilon=0.2, value_cost=0.5, entropy_cost=0.01):
    """SPO: a quadratic penalty on the ratio in place of PPO's clip.

    Xie et al., 2024, https://arxiv.org/abs/2401.16025. Usual: those of PPO.
    """
    adv_t, target = advantages(batch, lambda_=0.95)
    logits, v = apply(params, batch.s)
    logits = logits[:, :-1]
    surrogate = jax.vmap(rlaxlib.spo_loss, (0, 0, 0, None))
    policy_loss, _ = surrogate(*surrogate_inputs(logits, batch, adv_t), epsilon)
    loss = jnp.mean(policy_loss + value_cost * rlaxlib.l2_loss(v[:, :-1], target))
    return loss - entropy_cost * entropy(logits)


def discovered_policy_optimisation(params, apply, batch, value_cost=0.5):
    """DPO, discovered policy optimisation: a drift that was meta-learned, not a clip.

    Lu et al., 2022, https://arxiv.org/abs/2210.05639. Usual: drift thresholds 2 and
    0.6, otherwise those of PPO.
    """
    adv_t, target = advantages(batch, lambda_=0.95)
    logits, v = apply(params, batch.s)
    policy_loss, _ = jax.vmap(rlaxlib.discovered_policy_loss)(
        *surrogate_inputs(logits[:, :-1], batch, adv_t)
    )
    return jnp.mean(policy_loss + value_cost * rlaxlib.l2_loss(v[:, :-1], target))


def ppo_lagrangian(params, apply, batch, multiplier, epsilon=0.2, value_cost=0.5):
    """PPO-Lagrangian: reward and cost, weighed by a Lagrange multiplier.

    `apply` returns logits, v, and the values of the cost. The batch has the cost `c_t`,
    [B, T], and the values `cost_values`, [B, T+1], too. Stooke et al., 2020,
    https://arxiv.org/abs/2007.03964. Usual: `multiplier` from `lagrange_multiplier`,
    otherwise those of PPO.
    """
    costs = batch._replace(r_t=batch.c_t, values=batch.cost_values)
    (adv_t, target), (cost_adv_t, cost_target) = (
        advantages(x, lambda_=0.95) for x in (batch, costs)
    )
    logits, v, cost_v = apply(params, batch.s)
    adv_t = (adv_t - multiplier * cost_adv_t) / (1 + multiplier)
    surrogate = jax.vmap(rlaxlib.ppo_clip_loss, (0, 0, 0, None))
    inputs = surrogate_inputs(logits[:, :-1], batch, adv_t)
    policy_loss, _ = surrogate(*inputs, epsilon)
    value_loss = rlaxlib.l2_loss(v[:, :-1], target)
    cost_loss = rlaxlib.l2_loss(cost_v[:, :-1], cost_target)
    return jnp.mean(policy_loss + value_cost * (value_loss + cost_loss))


def lagrange_multiplier(cost, state, limit=25.0):
    """PPO-Lagrangian: the multiplier and the next state, from the cost of an episode.

    `state` is at first `rlaxlib.pid_lagrangian(...).init()`. Stooke et al., 2020,
    https://arxiv.org/abs/2007.03964. Usual: limit 25 in Safety Gym.
    """
    controller = rlaxlib.pid_lagrangian(limit, k_p=0.1, k_i=0.01, k_d=0.01)
    return controller.update(cost, state)


def categorical_mpo(params, target_params, apply, batch):
    """MPO for discrete actions: all actions count, none is sampled.

    `apply.actor` returns logits, `apply.critic` returns q, [B, T+1, A], and
    `params.duals` are the parameters of temperature and KL constraint. Abdolmaleki et
    al., 2018, https://arxiv.org/abs/1806.06920. Usual: KL bounds 0.1 and 0.01, Retrace
    for the critic, target copied every 100 updates, Adam 1e-4.
    """
    logits = apply.actor(params.actor, batch.s)
    target_logits = apply.actor(target_params.actor, batch.s)
    q = apply.critic(target_params.critic, batch.s)
    penalties = map(rlaxlib.LagrangePenalty, params.duals, (0.1, 0.01))
    mpo_loss = jax.vmap(rlaxlib.categorical_mpo_loss, (0, 0, 0, None, None))
    mpo_loss = jax.vmap(mpo_loss, (0, 0, 0, None, None))
    return jnp.mean(mpo_loss(logits, target_logits, q, *penalties)[0])


def vmpo(params, target_params, apply, batch, value_cost=0.5):
    """V-MPO: learns from the better half of the advantages, under a bound on the KL.

    `params.policy` are those of `apply`, `params.duals` the parameters of temperature
    and KL constraint. Song et al., 2020, https://arxiv.org/abs/1909.12238. Usual: half
    of the batch, KL bounds 0.01, target copied every 100 updates, Adam 1e-4.
    """
    logits, v = apply(params.policy, batch.s)
    old_logits, _ = jax.lax.stop_gradient(apply(target_params.policy, batch.s))
    returns = jax.vmap(rlaxlib.lambda_returns)
    v_t = jax.lax.stop_gradient(v[:, 1:])
    td_error = returns(batch.r_t, batch.discount_t, v_t) - v[:, :-1]
    eta, alpha = map(rlaxlib.LagrangePenalty, params.duals, (0.01, 0.01))
    kl = rlaxlib.categorical_kl_divergence(old_logits[:, :-1], logits[:, :-1])
    log_prob = log_probs(logits[:, :-1], batch.a_tm1)
    loss, _ = rlaxlib.vmpo_loss(
        log_prob, jax.lax.stop_gradient(td_error), eta, [(kl, alpha)], jax.nn.softplus
    )
    return jnp.mean(loss + value_cost * rlaxlib.l2_loss(td_error))


def muesli(params, target_params, apply, batch, scale=1.0, value_cost=0.25):
    """Muesli: the policy gradient, distillation of clipped MPO targets, and Retrace.

    `apply` returns logits and the model's one-step q, [B, T+1, A]; the further losses
    of the model are those of `gumbel_muzero`. `scale` is the root of a moving average
    of squared advantages. Hessel et al., 2021, https://arxiv.org/abs/2104.06159. Usual:
    clip 1, λ 0.95, discount 0.995, Adam 3e-4, target network updated at a rate of 0.1.
    """
    (logits, q), (prior, target_q) = (
        apply(p, batch.s) for p in (params, target_params)
    )
    pi, a = jax.nn.softmax(prior), batch.a_tm1
    errors = retrace_errors(q, target_q, pi, batch, lambda_=0.95)
    v = jnp.sum(pi * target_q, axis=-1)
    adv_t = (errors + rlaxlib.batched_index(q[:, :-1], a) - v[:, :-1]) / scale
    log_prob, log_mu = log_probs(logits[:, :-1], a), log_probs(batch.logits_tm1, a)
    rho = jnp.minimum(1.0, jnp.exp(log_prob - log_mu))
    policy_loss = jax.vmap(rlaxlib.reinforce_loss)(log_prob, rho * adv_t)
    cmpo = jax.vmap(jax.vmap(rlaxlib.cmpo_policy_targets))
    target = cmpo(prior, target_q / scale, v / scale)
    distillation_loss = jnp.mean(rlaxlib.categorical_cross_entropy(target, logits))
    loss = jnp.mean(policy_loss + value_cost * rlaxlib.l2_loss(errors))
    return loss + distillation_loss


def gumbel_muzero(params, apply, batch, value_cost=0.25, max_value=300.0):
    """Gumbel MuZero: policy, value and reward of a model, unrolled over K steps.

    `apply(params, s, a)` returns logits, [B, K+1, A], and logits of values, [B, K+1,
    M], and rewards, [B, K, M]. The batch has `s`, [B, ...], `a_tm1` and `r_t`, [B, K];
    of the searches the prior logits, `logits`, `q` and `visits`, [B, K+1, A], and the
    root values, `v`; and the n-step returns, `returns`, [B, K+1]. Danihelka et al.,
    2022, https://openreview.net/forum?id=bERaNdoegnO. Usual: K = 5, M = 601 bins in
    [-300, 300], c_visit 50, c_scale 0.1 in Atari.
    """
    logits, v_logits, r_logits = apply(params, batch.s, batch.a_tm1)
    tx, num_bins = rlaxlib.SIGNED_HYPERBOLIC_PAIR, v_logits.shape[-1]
    pair = rlaxlib.muzero_pair(-max_value, max_value, num_bins, tx)
    targets = jax.vmap(jax.vmap(rlaxlib.gumbel_policy_targets))(
        batch.logits, batch.q, batch.visits, batch.v
    )
    cross_entropy = rlaxlib.categorical_cross_entropy
    policy_loss = cross_entropy(targets, logits)
    value_loss = cross_entropy(pair.apply(batch.returns), v_logits)
    reward_loss = cross_entropy(pair.apply(batch.r_t), r_logits)
    loss = jnp.mean(policy_loss + value_cost * value_loss)
    return loss + jnp.mean(reward_loss)


def dreamer_pair(num_bins):
    """Return the encoding of values of DreamerV3: two-hot, symexp bins."""
    return rlaxlib.unbiased_transform_pair(-20.0, 20.0, num_bins, rlaxlib.SYMLOG_PAIR)


def dreamer_returns(values, batch, lambda_=0.95):
    """Return the λ-returns of imagined streams, and the weights of their steps."""
    returns = jax.vmap(rlaxlib.lambda_returns, (0, 0, 0, None))(
        batch.r_t, batch.discount_t, values[:, 1:], lambda_
    )
    survival = jnp.cumprod(batch.discount_t, axis=1)
    first = jnp.ones_like(survival[:, :1])
    return returns, jnp.concatenate([first, survival[:, :-1]], axis=1)


def dreamer_unroll(params, apply, s_t, a_tm1, key):
    """Return states, samples, and logits of posteriors and priors, of one stream."""

    def step(carry, inputs):
        (state, z), (s, a, key) = carry, inputs
        state, prior = apply.dynamics(params, state, z, a)
        posterior = rlaxlib.unimix_logits(apply.encoder(params, state, s))
        z = rlaxlib.straight_through_sample(key, posterior)
        return (state, z), (state, z, posterior, rlaxlib.unimix_logits(prior))

    keys = jax.random.split(key, len(a_tm1))
    return jax.lax.scan(step, apply.start(params), (s_t, a_tm1, keys))[1]


def dreamer_model(params, apply, batch, key):
    """DreamerV3, world model: reconstruction, rewards, ends, and a balanced KL.

    `apply.start`, `apply.dynamics` and `apply.encoder` are those of `dreamer_unroll`.
    `apply.decoder` takes states and samples, and returns observations by symlog, logits
    of rewards, and a logit of continuing. Hafner et al., 2023,
    https://arxiv.org/abs/2301.04104. Usual: 32 samples of 32 classes, KL weights 1 and
    0.1, 1 free nat, streams of 64 steps, Adam 4e-5.
    """
    keys, s_t = jax.random.split(key, len(batch.s)), batch.s[:, 1:]
    unroll = jax.vmap(dreamer_unroll, (None, None, 0, 0, 0))
    state, z, *logits = unroll(params, apply, s_t, batch.a_tm1, keys)
    kl_loss, _ = jax.vmap(jax.vmap(rlaxlib.balanced_kl))(*logits)
    decoded, r_logits, logit = apply.decoder(params, state, z)
    s_loss = jnp.sum(rlaxlib.l2_loss(decoded, rlaxlib.symlog(s_t)), axis=-1)
    pair = dreamer_pair(r_logits.shape[-1])
    r_loss = rlaxlib.categorical_cross_entropy(pair.apply(batch.r_t), r_logits)
    end_loss = jax.nn.softplus(jnp.where(batch.discount_t > 0, -logit, logit))
    return jnp.mean(kl_loss + s_loss + r_loss + end_loss)


def dreamer_actor(params, apply, batch, scale, entropy_cost=3e-4):
    """DreamerV3, actor: REINFORCE on imagined streams, with normalised returns.

    `apply` returns logits. `scale` is the output of `percentile_scale` for the returns
    of `dreamer_returns`. Hafner et al., 2023, https://arxiv.org/abs/2301.04104. Usual:
    15 steps, λ 0.95, discount 0.997, entropy 3e-4, `unimix_logits` 0.01, Adam 4e-5.
    """
    returns, weights = dreamer_returns(batch.values, batch)
    logits = apply(params, batch.s)[:, :-1]
    adv_t = weights * (returns - batch.values[:, :-1]) / scale
    log_prob = log_probs(logits, batch.a_tm1)
    loss = jnp.mean(jax.vmap(rlaxlib.reinforce_loss)(log_prob, adv_t))
    return loss + entropy_cost * jnp.mean(
        jax.vmap(rlaxlib.entropy_loss)(logits, weights)
    )


def dreamer_critic(params, target_params, apply, batch, slow_cost=1.0):
    """DreamerV3, critic: two-hot regression on λ-returns, and on its slow average.

    `apply` returns logits of the values, [B, T+1, M]. Hafner et al., 2023,
    https://arxiv.org/abs/2301.04104. Usual: M = 255 bins, target network averaged with
    a decay of 0.98, Adam 4e-5.
    """
    logits = apply(params, batch.s)
    pair = dreamer_pair(logits.shape[-1])
    values = pair.apply_inv(jax.nn.softmax(jax.lax.stop_gradient(logits)))
    returns, weights = dreamer_returns(values, batch)
    slow = pair.apply_inv(jax.nn.softmax(apply(target_params, batch.s)))
    target = pair.apply(returns) + slow_cost * pair.apply(slow[:, :-1])
    target = jax.lax.stop_gradient(target)
    log_p = jax.nn.log_softmax(logits[:, :-1])
    return -jnp.mean(weights * jnp.sum(target * log_p, axis=-1))


def discrete_sac_critic(params, target_params, apply, batch, temperature):
    """Discrete SAC, critics: one-step TD learning of soft values.

    A batch of transitions has `s_tm1`, `s_t`, `a_tm1`, `r_t` and `discount_t`.
    `apply.actor` returns logits, [B, A], `apply.critic` q, [B, 2, A]. Christodoulou,
    2019, https://arxiv.org/abs/1910.07207. Usual: discount 0.99, Adam 3e-4, batch 64,
    target critics updated at a rate of 0.005.
    """
    q_tm1 = apply.critic(params.critic, batch.s_tm1)
    q_t = apply.critic(target_params.critic, batch.s_t)
    logits_t = jax.lax.stop_gradient(apply.actor(params.actor, batch.s_t))
    soft_value = jax.vmap(rlaxlib.discrete_sac_value, (0, 0, None))
    v_t = soft_value(logits_t, q_t, temperature)
    qv_learning = jax.vmap(rlaxlib.qv_learning, (0, None, None, None, None))
    td_errors = jax.vmap(qv_learning)(
        q_tm1, batch.a_tm1, batch.r_t, batch.discount_t, v_t
    )
    return jnp.mean(jnp.sum(rlaxlib.l2_loss(td_errors), axis=-1))


def discrete_sac_actor(params, apply, batch, temperature):
    """Discrete SAC, actor: the soft value, summed over all actions.

    Christodoulou, 2019, https://arxiv.org/abs/1910.07207. Usual: Adam 3e-4.
    """
    logits = apply.actor(params.actor, batch.s_tm1)
    q = apply.critic(jax.lax.stop_gradient(params.critic), batch.s_tm1)
    policy_loss = jax.vmap(rlaxlib.discrete_sac_policy_loss, (0, 0, None))
    return jnp.mean(policy_loss(logits, q, temperature))


def discrete_sac_temperature(log_temperature, params, apply, batch, target_entropy):
    """Discrete SAC, temperature: raised while the entropy is below its target.

    Christodoulou, 2019, https://arxiv.org/abs/1910.07207. Usual: Adam 3e-4, target
    entropy 0.98 log A.
    """
    logits = apply.actor(params.actor, batch.s_tm1)
    loss = jax.vmap(rlaxlib.discrete_sac_temperature_loss, (None, 0, None))
    return jnp.mean(loss(log_temperature, logits, target_entropy))
