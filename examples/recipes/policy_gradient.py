"""Losses of policy-gradient algorithms: REINFORCE to PPO, V-MPO, Muesli, DreamerV3.

`apply(params, s)` returns the logits of the policy and, from A2C on, state values. A
batch of B streams of T steps has the fields

    s_tm1, s_t        observations before and after each action, [B, T, ...],
    a_tm1             actions, integers in [0, A), [B, T],
    r_t, discount_t   rewards and discounts, [B, T],
    truncated_t       True where an episode is cut, as by a time limit, [B, T],
    sample_mask       False for steps to ignore: padding, reset steps, [B, T],
    logits_tm1        logits of the policy that acted, [B, T, A],
    v_tm1, v_t        values of both observations when the policy acted, [B, T].

Either mask may be None. `s_t` is the true next observation: where an episode is cut,
not the first one of the next episode. Needs `value_based.py` in the same package.
"""

import jax
import jax.numpy as jnp

import rlaxlib

from .value_based import masks, valid  # noqa: TID252 - Any package.

# --- What the recipes share. ---


def log_probs(logits, a):
    """Return the log-probabilities of actions."""
    return rlaxlib.batched_index(jax.nn.log_softmax(logits), a)


def entropy(logits, batch):
    """Return the mean entropy of the policies of a batch of streams."""
    entropies = rlaxlib.softmax().entropy(logits)
    return rlaxlib.masked_mean(entropies, mask=batch.sample_mask)


def advantages(batch, lambda_):
    """Return generalised advantage estimates, and the targets of the values."""
    gae = jax.vmap(rlaxlib.generalized_advantage_estimation, (0, 0, 0, 0, None))
    inputs = batch.v_tm1, batch.r_t, batch.discount_t, batch.v_t
    adv_t = gae(*inputs, lambda_, **masks(batch))
    return adv_t, adv_t + batch.v_tm1


def following(x, mask):
    """Return the entry of one stream at the next valid step; at the last, its own."""
    ones = jnp.ones(len(x))
    return x[rlaxlib.n_step_transitions(ones, ones, 2, sample_mask=mask).indices]


def retrace_errors(
    q_tm1, q_t, pi_t, mu_tm1, batch, lambda_, tx_pair=rlaxlib.IDENTITY_PAIR
):
    """Return the Retrace(λ) errors of q: `mu_tm1` are probabilities of the actions."""
    a_t, mu_t = (
        jax.vmap(following)(x, batch.sample_mask) for x in (batch.a_tm1, mu_tm1)
    )

    def errors(*args, **masks):
        return rlaxlib.transformed_retrace(*args, lambda_, tx_pair=tx_pair, **masks)

    args = q_tm1, q_t, batch.a_tm1, a_t, batch.r_t, batch.discount_t, pi_t, mu_t
    return jax.vmap(errors)(*args, **masks(batch))


def surrogate_inputs(logits, batch, adv_t, ddof=0):
    """Return log-probabilities, those of the policy that acted, and advantages.

    Standard deviations of code in PyTorch divide by the number minus 1: `ddof`.
    """
    log_prob, old_log_prob = (
        log_probs(x, batch.a_tm1) for x in (logits, batch.logits_tm1)
    )
    adv_t = rlaxlib.standardize(adv_t, mask=batch.sample_mask, ddof=ddof)
    return log_prob, old_log_prob, adv_t


# --- Policy gradients. ---


def reinforce(params, apply, batch):
    """REINFORCE: the discounted return of each step weights its log-probability.

    A stream holds whole episodes: what follows a cut counts 0. A baseline, subtracted
    from the returns, is left out: see `a2c`. Williams, 1992,
    https://doi.org/10.1007/BF00992696. Usual (none in the paper): discount 0.99,
    returns minus a baseline.
    """
    logits = apply(params, valid(batch, batch.s_tm1))
    returns = jax.vmap(rlaxlib.discounted_returns)
    nothing = jnp.zeros(batch.r_t.shape)
    adv_t = returns(batch.r_t, batch.discount_t, nothing, **masks(batch))
    log_prob = log_probs(logits, batch.a_tm1)
    loss = jax.vmap(rlaxlib.reinforce_loss)(log_prob, adv_t)
    return rlaxlib.masked_mean(loss, mask=batch.sample_mask)


def a2c(params, apply, batch, value_cost=1.0, entropy_cost=0.01):
    """A2C: returns bootstrapped after T steps, with a learned baseline.

    Mnih et al., 2016, https://arxiv.org/abs/1602.01783. Source:
    github.com/openai/baselines@ea25b9e, baselines/a2c/a2c.py, the same loss. Usual:
    streams of 5 steps, 16 environments, discount 0.99, RMSProp 7e-4 with decay 0.99 and
    epsilon 1e-5, annealed to 0, gradients clipped to a norm of 0.5. There 0.5 weighs
    squares without ½, which is 1 here.
    """
    s_tm1, s_t = valid(batch, (batch.s_tm1, batch.s_t))
    (logits, v_tm1), (_, v_t) = apply(params, s_tm1), apply(params, s_t)
    returns = jax.vmap(rlaxlib.lambda_returns)(
        batch.r_t, batch.discount_t, v_t, **masks(batch)
    )
    td_error = jax.lax.stop_gradient(returns) - v_tm1
    log_prob = log_probs(logits, batch.a_tm1)
    policy_loss = jax.vmap(rlaxlib.reinforce_loss)(log_prob, td_error)
    loss = policy_loss + value_cost * rlaxlib.l2_loss(td_error)
    loss = rlaxlib.masked_mean(loss, mask=batch.sample_mask)
    return loss - entropy_cost * entropy(logits, batch)


def impala(params, apply, batch, value_cost=0.5, entropy_cost=0.01):
    """IMPALA: V-trace corrects for the lag of the policy that acted.

    Espeholt et al., 2018, https://arxiv.org/abs/1802.01561. Source:
    github.com/google-deepmind/scalable_agent@6c0c8a7, experiment.py and vtrace.py, a
    sum over batch and time where this is a mean. Usual: streams of 100 steps on DMLab,
    discount 0.99, thresholds 1, RMSProp 4.8e-4 with epsilon 0.1, entropy cost 2.5e-4.
    On Atari (paper, appendix): 20 steps, RMSProp 6e-4 with epsilon 0.01, gradients
    clipped to a norm of 40, entropy cost 0.01; Acme has Adam 1e-3. The code sums losses
    over the batch, which makes its epsilon relatively smaller.
    """
    s_tm1, s_t, mu = valid(batch, (batch.s_tm1, batch.s_t, batch.logits_tm1))
    (logits, v_tm1), (_, v_t) = apply(params, s_tm1), apply(params, s_t)
    rho_tm1 = rlaxlib.categorical_importance_sampling_ratios(logits, mu, batch.a_tm1)
    vtrace = jax.vmap(rlaxlib.vtrace_td_error_and_advantage)(
        v_tm1, v_t, batch.r_t, batch.discount_t, rho_tm1, **masks(batch)
    )
    log_prob = log_probs(logits, batch.a_tm1)
    policy_loss = jax.vmap(rlaxlib.reinforce_loss)(log_prob, vtrace.pg_advantage)
    loss = policy_loss + value_cost * rlaxlib.l2_loss(vtrace.errors)
    loss = rlaxlib.masked_mean(loss, mask=batch.sample_mask)
    return loss - entropy_cost * entropy(logits, batch)


def within_region(objective, pi, average, max_change):
    """Return losses with the gradient of an objective, projected (ACER).

    The objective is one of probabilities. So is the divergence from the average policy,
    with the gradient -average/pi, which rises by at most `max_change`.
    """
    fixed = jax.lax.stop_gradient(pi)
    k = -jax.lax.stop_gradient(average) / (fixed + 1e-6)
    z = rlaxlib.acer_trust_region(jax.grad(objective)(fixed), k, max_change)
    return -jnp.sum(jax.lax.stop_gradient(z) * pi, axis=-1)


def acer_weights(pi, mu, q, returns, batch, max_weight):
    """Return the weights of the actions' log-probabilities in ACER's objective."""
    v = jnp.sum(pi * q, axis=-1)
    taken = jax.nn.one_hot(batch.a_tm1, q.shape[-1])
    weight = taken * jnp.minimum(max_weight, pi / mu) * (returns - v)[..., None]
    return weight + jnp.maximum(pi - max_weight * mu, 0.0) * (q - v[..., None])


def acer(
    params,
    average_params,
    apply,
    batch,
    max_weight=10.0,
    max_change=1.0,
    entropy_cost=0.01,
):
    """ACER: truncated importance weights, Retrace, and a trust region.

    It lies around the average policy. `apply` returns logits and q, [B, T, A]. Wang et
    al., 2016, https://arxiv.org/abs/1611.01224. Source:
    github.com/openai/baselines@ea25b9e, baselines/acer/acer.py, the same gradient; its
    loss is not this one's value. Usual: streams of 20 steps, replay ratio 4, discount
    0.99, λ 1, weights truncated at 10, max change (delta) 1, averages by steps of 0.01
    (alpha 0.99), RMSProp 7e-4 with decay 0.99 and epsilon 1e-5, gradients clipped to a
    norm of 10, entropy cost 0.01; the paper has 0.001.
    """
    s_tm1, s_t, mu = valid(batch, (batch.s_tm1, batch.s_t, batch.logits_tm1))
    (logits, q_tm1), (logits_t, q_t) = apply(params, s_tm1), apply(params, s_t)
    pi, pi_t, mu = (jax.nn.softmax(x) for x in (logits, logits_t, mu))
    mu_tm1 = rlaxlib.batched_index(mu, batch.a_tm1)
    errors = retrace_errors(q_tm1, q_t, pi_t, mu_tm1, batch, lambda_=1.0)
    returns = errors + rlaxlib.batched_index(q_tm1, batch.a_tm1)
    weights = acer_weights(pi, mu, q_tm1, returns, batch, max_weight)
    weights = valid(batch, jax.lax.stop_gradient(weights))

    def objective(pi):
        return jnp.sum((weights - entropy_cost * pi) * jnp.log(pi + 1e-6))

    average = jax.nn.softmax(apply(average_params, s_tm1)[0])
    loss = within_region(objective, pi, average, max_change)
    loss = loss + rlaxlib.l2_loss(errors) / 2
    return rlaxlib.masked_mean(loss, mask=batch.sample_mask)


def coma(params, target_params, apply, batch, lambda_=0.8):
    """COMA: the advantage of an agent's action over its other actions.

    The B streams are those of all agents. An observation holds the actions that the
    others take; after the last step, they are sampled from their policies. `apply`
    returns the agent's logits, which must not depend on them, and q of its actions, [B,
    T, A]. Foerster et al., 2018, https://arxiv.org/abs/1705.08926. Source:
    github.com/oxwhirl/pymarl@c971afd, src/learners/coma_learner.py, the same loss of
    the actor; its critic bootstraps from the action taken, here from the mean of q over
    the agent's actions, and has squares without ½ (a cosine of 0.97 at random inputs).
    Usual (paper; the code): discount 0.99, λ 0.8, RMSProp 5e-4, target critic copied
    every 150 updates, in the code 200.
    """
    s_tm1, s_t = valid(batch, (batch.s_tm1, batch.s_t))
    (logits, q_tm1), (logits_t, _) = apply(params, s_tm1), apply(params, s_t)
    _, q_t = apply(target_params, s_t)
    counterfactual = jax.vmap(rlaxlib.counterfactual_advantage)
    adv_t = counterfactual(q_tm1, jax.nn.softmax(logits), batch.a_tm1)
    v_t = jnp.sum(jax.nn.softmax(logits_t) * q_t, axis=-1)
    returns = jax.vmap(rlaxlib.lambda_returns, (0, 0, 0, None))(
        batch.r_t, batch.discount_t, v_t, lambda_, **masks(batch)
    )
    returns = jax.lax.stop_gradient(returns)
    td_error = returns - rlaxlib.batched_index(q_tm1, batch.a_tm1)
    log_prob = log_probs(logits, batch.a_tm1)
    loss = jax.vmap(rlaxlib.reinforce_loss)(log_prob, adv_t)
    return rlaxlib.masked_mean(loss + rlaxlib.l2_loss(td_error), mask=batch.sample_mask)


# --- PPO and its variants. ---


def ppo(params, apply, batch, epsilon=0.2, value_cost=0.5, entropy_cost=0.01, ddof=0):
    """PPO: the clipped surrogate, for several epochs of minibatches of streams.

    Advantages are computed here, so that a stream stays whole; the code computes them
    first, and shuffles transitions: `gaussian_ppo` takes them so. IPPO is this loss of
    the streams of all agents, [B N, T], each with values of its own observation (de
    Witt et al., 2020, https://arxiv.org/abs/2011.09533). Schulman et al., 2017,
    https://arxiv.org/abs/1707.06347. Source: github.com/openai/baselines@ea25b9e,
    baselines/ppo2/model.py and baselines/ppo2/runner.py, the same loss, and, for IPPO,
    github.com/FLAIROx/JaxMARL@c793d09, baselines/IPPO/ippo_ff_mpe.py, by others. Usual
    (paper, tables 3 and 5; the code): discount 0.99, λ 0.95, Adam with epsilon 1e-5,
    gradients clipped to a norm of 0.5. Atari: streams of 128 steps, Adam 2.5e-4,
    epsilon 0.1, both annealed to 0, 3 epochs in the paper and 4 in the code. MuJoCo:
    2,048 steps, Adam 3e-4, 10 epochs, epsilon 0.2, no entropy. IPPO: 128 steps, Adam
    2.5e-4 annealed to 0, 4 epochs of 4 minibatches, epsilon 0.2.
    """
    adv_t, target = advantages(batch, lambda_=0.95)
    logits, v = apply(params, valid(batch, batch.s_tm1))
    surrogate = jax.vmap(rlaxlib.ppo_clip_loss, (0, 0, 0, None))
    inputs, mask = surrogate_inputs(logits, batch, adv_t, ddof), batch.sample_mask
    policy_loss, _ = surrogate(*inputs, epsilon, sample_mask=mask)
    value_loss, _ = jax.vmap(rlaxlib.ppo_value_loss, (0, 0, 0, None))(
        v, batch.v_tm1, target, epsilon, sample_mask=mask
    )
    loss = rlaxlib.masked_mean(policy_loss + value_cost * value_loss, mask=mask)
    return loss - entropy_cost * entropy(logits, batch)


def masked_ppo(params, apply, batch, epsilon=0.2, value_cost=0.5, entropy_cost=0.01):
    """Maskable PPO: PPO with a mask of the legal actions.

    `logits_tm1` are masked, too: the policy that acted samples by
    `rlaxlib.softmax().sample(key, logits, action_mask=action_mask)`, and stores
    `jnp.where(action_mask, logits, -jnp.inf)`. Huang and Ontañón, 2020,
    https://arxiv.org/abs/2006.14171. Source:
    github.com/vwxyzjn/invalid-action-masking@6daedd2,
    gym_vec_api/ppo_multidiscrete_mask.py, by an author, the same loss, with -1e8 as
    logits of illegal actions. Usual: epsilon 0.1, entropy cost 0.01, otherwise those of
    PPO. github.com/Stable-Baselines-Team/stable-baselines3-contrib has no clip of the
    values and no entropy cost, and 0.5 weighs squares without ½.
    """

    def masked(params, s):
        logits, v = apply(params, s)
        return jnp.where(batch.action_mask, logits, -jnp.inf), v

    return ppo(params, masked, batch, epsilon, value_cost, entropy_cost, ddof=1)


def recurrent_ppo(params, apply, batch, epsilon=0.2, value_cost=0.5, entropy_cost=0.01):
    """Recurrent PPO: PPO of a network with a state, unrolled again in each epoch.

    `apply(params, state, s, first)` unrolls the network from `batch.state`, which it
    had before the first step of the stream, resets its state at steps where `first`,
    [B, T], is True, those after an end, and returns logits and values. Minibatches are
    of whole streams. Source: github.com/vwxyzjn/cleanrl@fe8d8a0,
    cleanrl/ppo_atari_lstm.py, the same loss. Usual (Hausknecht and Stone, 2015,
    https://arxiv.org/abs/1507.06527, for a recurrent DQN; the code): an LSTM of 128
    units, otherwise those of PPO.
    """

    def unrolled(params, s):
        return apply(params, batch.state, s, batch.first)

    return ppo(params, unrolled, batch, epsilon, value_cost, entropy_cost, ddof=1)


def value_loss(v, target, batch):
    """Return the mean squared error of state values."""
    target = valid(batch, target)
    return rlaxlib.masked_mean(rlaxlib.l2_loss(v, target), mask=batch.sample_mask)


def ppo_penalty(params, apply, batch, coefficient, value_cost=0.5):
    """PPO-penalty: a KL penalty in place of the clip.

    Schulman et al., 2017, https://arxiv.org/abs/1707.06347. Source:
    github.com/joschu/modular_rl@6970cde, modular_rl/ppo.py, by an author, the same loss
    of the policy up to a KL of twice the target; beyond, the code adds 1,000 times the
    square of the excess. Its values learn apart, discounted sums of rewards by L-BFGS.
    Usual: `coefficient` from `kl_coefficient`, 10 epochs of minibatches of 128, Adam
    1e-3.
    """
    adv_t, target = advantages(batch, lambda_=0.95)
    logits, v = apply(params, valid(batch, batch.s_tm1))
    mu, mask = valid(batch, batch.logits_tm1), batch.sample_mask
    policy_loss, _ = jax.vmap(rlaxlib.ppo_penalty_loss, (0, 0, 0, None))(
        *surrogate_inputs(logits, batch, adv_t),
        coefficient,
        kl=rlaxlib.categorical_kl_divergence(mu, logits),
        sample_mask=mask,
    )
    policy_loss = rlaxlib.masked_mean(policy_loss, mask=mask)
    return policy_loss + value_cost * value_loss(v, target, batch)


def kl_coefficient(coefficient, params, apply, batch, target=0.01):
    """PPO-penalty: the coefficient for the next batch, after all epochs of this one.

    Schulman et al., 2017, section 4, https://arxiv.org/abs/1707.06347: by a factor of
    2, where the KL is beyond 1.5 times the target, or below its 1.5th part. Source:
    github.com/joschu/modular_rl@6970cde, modular_rl/ppo.py, by an author: by a factor
    of 1.5, where the KL is 30 % off, a mean over the minibatches of the last epoch; and
    KLs above twice the target have a further penalty. Usual: target 0.01, at first 1.
    """
    logits, _ = apply(params, valid(batch, batch.s_tm1))
    kl = rlaxlib.categorical_kl_divergence(batch.logits_tm1, logits)
    kl = rlaxlib.masked_mean(kl, mask=batch.sample_mask)
    return rlaxlib.adaptive_kl_coefficient(coefficient, kl, target)


def decoupled_ppo(
    params,
    target_params,
    apply,
    batch,
    epsilon=0.2,
    value_cost=1.0,
    entropy_cost=0.01,
    max_ratio=100.0,
):
    """Decoupled PPO (PPO-EWMA): clips relative to an average of the parameters.

    `max_ratio` bounds the ratio to the policy that acted. Hilton et al., 2022,
    https://arxiv.org/abs/2110.00641. Source: github.com/openai/ppo-ewma@625dac7,
    ppo_ewma/ppo.py, the same loss. Usual: discount 0.999, λ 0.95, Adam 5e-4, 1 epoch of
    8 minibatches, 64 environments of 256 steps on Procgen; in the paper, an exponential
    moving average of decay 0.889 as `target_params`. There 0.5 weighs squares without
    ½, which is 1 here.
    """
    adv_t, target = advantages(batch, lambda_=0.95)
    s_tm1, mask = valid(batch, batch.s_tm1), batch.sample_mask
    (logits, v), (proximal, _) = (apply(p, s_tm1) for p in (params, target_params))
    log_prob, old_log_prob, adv_t = surrogate_inputs(logits, batch, adv_t)
    nearest = jax.lax.stop_gradient(log_prob) - jnp.log(max_ratio)
    inputs = jnp.maximum(old_log_prob, nearest), log_probs(proximal, batch.a_tm1), adv_t
    policy_loss, _ = jax.vmap(rlaxlib.decoupled_ppo_loss, (0, 0, 0, 0, None))(
        log_prob, *inputs, epsilon, sample_mask=mask
    )
    loss = rlaxlib.masked_mean(policy_loss, mask=mask)
    loss = loss + value_cost * value_loss(v, target, batch)
    return loss - entropy_cost * entropy(logits, batch)


def spo(params, apply, batch, epsilon=0.2, value_cost=0.5, entropy_cost=0.01):
    """SPO: a quadratic penalty on the ratio in place of PPO's clip.

    Xie et al., 2024, https://arxiv.org/abs/2401.16025. Source:
    github.com/MyRepositories-hub/Simple-Policy-Optimization@9fdeda3, mujoco/trainer.py,
    the same loss. Usual: epsilon 0.2, 8 environments, Adam annealed to 0. MuJoCo: 256
    steps, 10 epochs, Adam 3e-4, no entropy, gradients clipped to a norm of 0.5. Atari:
    128 steps, 4 epochs, Adam 2.5e-4.
    """
    adv_t, target = advantages(batch, lambda_=0.95)
    logits, v = apply(params, valid(batch, batch.s_tm1))
    surrogate = jax.vmap(rlaxlib.simple_policy_loss, (0, 0, 0, None))
    inputs, mask = surrogate_inputs(logits, batch, adv_t, ddof=1), batch.sample_mask
    policy_loss, _ = surrogate(*inputs, epsilon, sample_mask=mask)
    value_loss, _ = jax.vmap(rlaxlib.ppo_value_loss, (0, 0, 0, None))(
        v, batch.v_tm1, target, epsilon, sample_mask=mask
    )
    loss = rlaxlib.masked_mean(policy_loss + value_cost * value_loss, mask=mask)
    return loss - entropy_cost * entropy(logits, batch)


def discovered_policy_optimization(params, apply, batch, epsilon=0.2, value_cost=0.5):
    """DPO, discovered policy optimisation: a drift that was meta-learned, not a clip.

    `epsilon` clips the values. Lu et al., 2022, https://arxiv.org/abs/2210.05639.
    Source: github.com/luchris429/purejaxrl@31756b1, purejaxrl/dpo_continuous_action.py,
    the same loss of the policy; its value loss is clipped by 0.2, as that of `ppo`.
    Usual: drift thresholds 2 and 0.6, discount 0.99, λ 0.95, 2,048 environments of 10
    steps, 4 epochs of 32 minibatches, Adam 3e-4, no entropy, gradients clipped to a
    norm of 0.5.
    """
    adv_t, target = advantages(batch, lambda_=0.95)
    logits, v = apply(params, valid(batch, batch.s_tm1))
    inputs, mask = surrogate_inputs(logits, batch, adv_t), batch.sample_mask
    policy_loss = jax.vmap(rlaxlib.discovered_policy_loss)
    policy_loss, _ = policy_loss(*inputs, sample_mask=mask)
    value_loss, _ = jax.vmap(rlaxlib.ppo_value_loss, (0, 0, 0, None))(
        v, batch.v_tm1, target, epsilon, sample_mask=mask
    )
    return rlaxlib.masked_mean(policy_loss + value_cost * value_loss, mask=mask)


def ppo_lagrangian(params, apply, batch, multiplier, epsilon=0.2, value_cost=0.5):
    """PPO-Lagrangian: reward and cost, weighed by a Lagrange multiplier.

    `apply` returns logits, v, and the values of the cost. The batch has the cost `c_t`
    and its values, `cost_v_tm1` and `cost_v_t`, [B, T]. Stooke et al., 2020,
    https://arxiv.org/abs/2007.03964. Source: github.com/PKU-Alignment/omnisafe@15603dd,
    omnisafe/algorithms/on_policy/naive_lagrange/ppo_lag.py, the same loss of the
    policy: advantages of rewards are standardised, those of costs keep their scale. Its
    values have networks and optimizers of their own, squares without ½, 4 times these,
    and 0.001 times the squares of their parameters. Usual: `multiplier` from
    `lagrange_multiplier`, discount 0.99 and λ 0.95 for both, 20,000 steps, 40 epochs of
    minibatches of 64 or until a KL divergence of 0.02, Adam 3e-4, no entropy.
    """
    costs = {"r_t": batch.c_t, "v_tm1": batch.cost_v_tm1, "v_t": batch.cost_v_t}
    (adv_t, target), (cost_adv_t, cost_target) = (
        advantages(x, lambda_=0.95) for x in (batch, batch._replace(**costs))
    )
    logits, v, cost_v = apply(params, valid(batch, batch.s_tm1))
    *log_probs, adv_t = surrogate_inputs(logits, batch, adv_t)
    mask = batch.sample_mask
    cost_adv_t = cost_adv_t - rlaxlib.masked_mean(cost_adv_t, mask=mask)
    adv_t = (adv_t - multiplier * cost_adv_t) / (1 + multiplier)
    surrogate = jax.vmap(rlaxlib.ppo_clip_loss, (0, 0, 0, None))
    policy_loss, _ = surrogate(*log_probs, adv_t, epsilon, sample_mask=mask)
    loss = value_loss(v, target, batch) + value_loss(cost_v, cost_target, batch)
    return rlaxlib.masked_mean(policy_loss, mask=mask) + value_cost * loss


def lagrange_multiplier(cost, state, limit=25.0):
    """PPO-Lagrangian: the multiplier and the next state, from the cost of an episode.

    `state` is at first `rlaxlib.pid_lagrangian(...).init()`. Stooke et al., 2020,
    https://arxiv.org/abs/2007.03964. Source: github.com/PKU-Alignment/omnisafe@15603dd,
    omnisafe/common/pid_lagrange.py, the same rule without its moving averages and its
    delay. Usual: gains 0.1, 0.01 and 0.01, as below, limit 25 in Safety Gym. Smaller
    costs need larger gains.
    """
    controller = rlaxlib.pid_lagrangian(limit, k_p=0.1, k_i=0.01, k_d=0.01)
    return controller.update(state, cost)


# --- MPO, V-MPO, Muesli. ---


def categorical_mpo(params, target_params, apply, batch, bounds=(0.1, 0.0025)):
    """MPO for discrete actions: all actions count, none is sampled.

    `apply.actor` returns logits, `apply.critic` returns q, [B, T, A], and
    `params.duals` are the parameters of temperature and KL constraint. Abdolmaleki et
    al., 2018, https://arxiv.org/abs/1806.06920. Source:
    github.com/google-deepmind/acme@770bc75, acme/agents/jax/mpo/categorical_mpo.py, the
    same loss, whose policy term has a gradient of the temperature there, which the loss
    for Gaussian policies and this one stop. Usual: KL bounds 0.1 and 0.0025, duals at
    first 3, Adam 1e-4 and 1e-2 for the duals, gradients clipped to a norm of 40, target
    networks copied every 100 updates; critic by 5-step returns, in the paper by
    Retrace.
    """
    s_tm1 = valid(batch, batch.s_tm1)
    logits = apply.actor(params.actor, s_tm1)
    target_logits = apply.actor(target_params.actor, s_tm1)
    q = apply.critic(target_params.critic, s_tm1)
    penalties = map(rlaxlib.LagrangePenalty, params.duals, bounds)
    mpo_loss = jax.vmap(rlaxlib.categorical_mpo_loss, (0, 0, 0, None, None))
    mpo_loss = jax.vmap(mpo_loss, (0, 0, 0, None, None))
    loss, _ = mpo_loss(logits, target_logits, q, *penalties)
    return rlaxlib.masked_mean(loss, mask=batch.sample_mask)


def vmpo(
    params,
    target_params,
    apply,
    batch,
    lambda_=0.95,
    value_cost=0.5,
    bounds=(0.01, 0.01),
):
    """V-MPO: learns from the better half of the advantages, under a bound on the KL.

    `params.policy` are those of `apply`, `params.duals` the parameters of temperature
    and KL constraint. The target policy acts. Song et al., 2020,
    https://arxiv.org/abs/1909.12238. Source: github.com/kakaoenterprise/JORLDY@15a7536,
    jorldy/core/agent/vmpo.py, by others, the same loss for a `value_cost` of 2, but for
    duals without a softplus. Usual (there): bounds 0.02 and 0.1, duals at first 1,
    streams of 128 steps, λ 0.95, one epoch, Adam 2.5e-4 on Atari. Bounds differ between
    codes and tasks; 0.01 is a start.
    """
    s_tm1, s_t = valid(batch, (batch.s_tm1, batch.s_t))
    (logits, v_tm1), (_, v_t) = (apply(params.policy, s) for s in (s_tm1, s_t))
    old_logits, _ = jax.lax.stop_gradient(apply(target_params.policy, s_tm1))
    returns = jax.vmap(rlaxlib.lambda_returns, (0, 0, 0, None))
    returns = returns(batch.r_t, batch.discount_t, v_t, lambda_, **masks(batch))
    td_error, mask = jax.lax.stop_gradient(returns) - v_tm1, batch.sample_mask
    eta, alpha = map(rlaxlib.LagrangePenalty, params.duals, bounds)
    kl = rlaxlib.categorical_kl_divergence(old_logits, logits)
    kl = jnp.full_like(kl, rlaxlib.masked_mean(kl, mask=mask))  # Of valid steps only.
    log_prob, adv_t = log_probs(logits, batch.a_tm1), jax.lax.stop_gradient(td_error)
    weights = None if mask is None else mask.astype(adv_t.dtype)
    dual = [(kl, alpha)], jax.nn.softplus, weights
    loss, _ = rlaxlib.vmpo_loss(log_prob, adv_t, eta, *dual)
    value_loss = rlaxlib.masked_mean(rlaxlib.l2_loss(td_error), mask=mask)
    return jnp.mean(loss) + value_cost * value_loss


def muesli(params, target_params, apply, batch, scale=1.0, value_cost=0.25):
    """Muesli: the policy gradient, distillation of clipped MPO targets, and Retrace.

    `apply` returns logits and the model's one-step q, [B, T, A]; the further losses of
    the model are those of `gumbel_muzero`. Returns the loss and the mean of squared
    advantages: use `has_aux=True`. `scale` is the root of their moving average. Hessel
    et al., 2021, https://arxiv.org/abs/2104.06159. Usual (paper): clip 1, λ 0.95, 75 %
    of the data replayed, target network updated at a rate of 0.1, variance averaged
    with a decay of 0.99, 5 steps of the model.
    """
    s_tm1, s_t, mu = valid(batch, (batch.s_tm1, batch.s_t, batch.logits_tm1))
    logits, q_tm1 = apply(params, s_tm1)
    (prior, target_q), (prior_t, q_t) = (apply(target_params, s) for s in (s_tm1, s_t))
    pi, pi_t = jax.nn.softmax(prior), jax.nn.softmax(prior_t)
    log_prob, log_mu = (log_probs(x, batch.a_tm1) for x in (logits, mu))
    errors = retrace_errors(q_tm1, q_t, pi_t, jnp.exp(log_mu), batch, 0.95)
    v = jnp.sum(pi * target_q, axis=-1)
    adv_t = errors + rlaxlib.batched_index(q_tm1, batch.a_tm1) - v
    rho = jnp.minimum(1.0, jnp.exp(log_prob - log_mu))
    loss = jax.vmap(rlaxlib.reinforce_loss)(log_prob, rho * adv_t / scale)
    targets = jax.vmap(jax.vmap(rlaxlib.cmpo_policy_targets))
    target = targets(prior, target_q / scale, v / scale)
    loss = loss + rlaxlib.categorical_cross_entropy(target, logits)
    loss, mask = loss + value_cost * rlaxlib.l2_loss(errors), batch.sample_mask
    return tuple(rlaxlib.masked_mean(x, mask=mask) for x in (loss, adv_t**2))


# --- SPO: a search by particles, with the losses of MPO. ---


def smc_step(key, policy, step, particles):
    """Return particles after a step of the model, and their TD errors."""
    s, a, v, first_a, alive = particles
    s, r_t, discount_t = step(s, a)
    a, v_t = policy(key, s)
    td_error = jnp.where(alive, r_t + discount_t * v_t - v, 0.0)
    return (s, a, v_t, first_a, alive & (discount_t > 0)), td_error


def smc_search(
    key, policy, step, state, temperature, num_particles=16, depth=4, period=4
):
    """SPO, search: particles in a model, weighed by their advantages.

    `state` is a state of the model. Of states of N particles, `policy(key, s)` returns
    actions and values, and `step(s, a)` the next states, rewards and discounts, 0 after
    an end. Returns their first actions and weights, `a_samples` and `weights`, [N], and
    the advantages of the actions first sampled, `advs`, [N]. Act by an action sampled
    with its weight. Macfarlane et al., 2024, https://arxiv.org/abs/2402.07963. Source:
    github.com/EdanToledo/Stoix@8fff19c, stoix/systems/spo/ff_spo.py, by an author, the
    same weights; there particles are sampled independently, and advantages lack the
    last TD error of an episode that ends. Usual: 16 particles, 4
    steps, resampled every 4 steps, discount 1 in the search, `temperature` the softplus
    of the first dual variable.
    """
    act_key, key = jax.random.split(key)
    num, zeros = (num_particles,), jnp.zeros(num_particles)
    s = jax.tree.map(lambda x: jnp.broadcast_to(x, num + jnp.shape(x)), state)
    a, v = policy(act_key, s)
    particles, logits, advs = (s, a, v, a, jnp.ones(num, bool)), zeros, zeros
    for t, step_key in enumerate(jax.random.split(key, depth)):
        act_key, resample_key = jax.random.split(step_key)
        particles, td_error = smc_step(act_key, policy, step, particles)
        logits, advs = logits + td_error / temperature, advs + td_error
        if (t + 1) % period == 0:
            i = rlaxlib.systematic_resample(resample_key, jax.nn.softmax(logits))
            particles, logits = jax.tree.map(lambda x, i=i: x[i], particles), zeros
    return particles[3], jax.nn.softmax(logits), advs


def smc_actor(params, target_params, apply, batch, bounds=(0.5, 1e-3)):
    """SPO, actor: the weighted actions of a search are the targets, as in MPO.

    Sequential Monte Carlo policy optimisation: `spo` is simple policy optimisation.
    `apply.actor` returns logits, [B, T, A], and `params.duals` are the parameters of
    temperature and KL constraint. The batch has the results of `smc_search` too,
    `a_samples`, `weights` and `advs`, [B, T, N].
    Macfarlane et al., 2024, https://arxiv.org/abs/2402.07963. Source:
    github.com/EdanToledo/Stoix@8fff19c, stoix/systems/spo/ff_spo.py, by an author, the
    same loss. Usual: KL bounds 0.5 and 1e-3, duals at first 3, Adam 3e-4, 1e-3 for the
    duals, batch 32 streams of 32 steps, 128 updates for each 32 steps of all
    environments, target networks updated at a rate of 0.005.
    """
    s_tm1, a, weights, advs = valid(
        batch, (batch.s_tm1, batch.a_samples, batch.weights, batch.advs)
    )
    logits, old_logits = (apply.actor(p.actor, s_tm1) for p in (params, target_params))
    eta, alpha = map(rlaxlib.LagrangePenalty, params.duals, bounds)
    e_step = rlaxlib.mpo_compute_weights_and_temperature_loss
    temperature_loss, _, _ = e_step(advs, eta, jax.nn.softplus, sample_axis=-1)
    log_prob = jax.vmap(log_probs, (None, -1), -1)(logits, a)
    kl = rlaxlib.categorical_kl_divergence(jax.lax.stop_gradient(old_logits), logits)
    kl_loss, alpha_loss, _ = rlaxlib.kl_constraint_loss(kl, alpha, jax.nn.softplus)
    loss = temperature_loss - jnp.sum(weights * log_prob, axis=-1)
    loss = loss + kl_loss + alpha_loss
    return rlaxlib.masked_mean(loss, mask=batch.sample_mask)


def smc_critic(params, target_params, apply, batch, lambda_=0.95):
    """SPO, critic: λ-returns of the rewards received, with target values.

    `apply.critic` returns values, [B, T]. Macfarlane et al., 2024,
    https://arxiv.org/abs/2402.07963. Source: github.com/EdanToledo/Stoix@8fff19c,
    stoix/systems/spo/ff_spo.py, by an author, the same loss. Usual: discount 0.99, λ
    0.95, Adam 3e-4, gradients clipped to a norm of 0.5.
    """
    s_tm1, s_t = valid(batch, (batch.s_tm1, batch.s_t))
    v, v_t = apply.critic(params.critic, s_tm1), apply.critic(target_params.critic, s_t)
    returns = jax.vmap(rlaxlib.lambda_returns, (0, 0, 0, None))
    returns = returns(batch.r_t, batch.discount_t, v_t, lambda_, **masks(batch))
    return value_loss(v, jax.lax.stop_gradient(returns), batch)


# --- Discrete SAC. ---


def discrete_sac_critic(params, target_params, apply, batch, temperature):
    """Discrete SAC, critics: one-step TD learning of soft values.

    `temperature` is the exponential of the `log_temperature` that is learned. A batch
    of transitions has `s_tm1`, `s_t`, `a_tm1`, `r_t` and `discount_t`. `apply.actor`
    returns logits, [B, A], `apply.critic` q, [B, 2, A]. Christodoulou, 2019,
    https://arxiv.org/abs/1910.07207. Source:
    github.com/p-christ/Deep-Reinforcement-Learning-Algorithms-with-PyTorch@4835bac,
    agents/actor_critic_agents/SAC_Discrete.py, by others, squares without ½: twice this
    loss. Usual (paper, appendix; the code): discount 0.99, Adam 3e-4, in the code with
    epsilon 1e-4, on Atari batch 64 and target critics copied every 8,000 steps; in the
    code, on other tasks, batch 256 and target critics updated at a rate of 0.005.
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

    Christodoulou, 2019, https://arxiv.org/abs/1910.07207. Source:
    github.com/p-christ/Deep-Reinforcement-Learning-Algorithms-with-PyTorch@4835bac,
    agents/actor_critic_agents/SAC_Discrete.py, by others, the same loss. Usual (paper,
    appendix): Adam 3e-4.
    """
    logits = apply.actor(params.actor, batch.s_tm1)
    q = apply.critic(jax.lax.stop_gradient(params.critic), batch.s_tm1)
    policy_loss = jax.vmap(rlaxlib.discrete_sac_policy_loss, (0, 0, None))
    return jnp.mean(policy_loss(logits, q, temperature))


def discrete_sac_temperature(log_temperature, params, apply, batch, target_entropy):
    """Discrete SAC, temperature: raised while the entropy is below its target.

    Christodoulou, 2019, https://arxiv.org/abs/1910.07207. Source:
    github.com/p-christ/Deep-Reinforcement-Learning-Algorithms-with-PyTorch@4835bac,
    agents/actor_critic_agents/SAC_Discrete.py, by others, the same loss. Usual (paper,
    appendix; the code): Adam 3e-4, target entropy 0.98 log A. Where one action ends the
    episode, that is out of reach, and the temperature grows without bound: begin at 0.2
    log A.
    """
    logits = apply.actor(params.actor, batch.s_tm1)
    mean_log_prob = -rlaxlib.softmax().entropy(logits)
    loss = rlaxlib.sac_temperature_loss
    return jnp.mean(loss(log_temperature, mean_log_prob, target_entropy, "log_alpha"))
