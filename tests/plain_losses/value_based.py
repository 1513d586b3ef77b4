"""Losses of `recipes/value_based.py` in plain `jax.numpy`."""

from functools import partial

import formulas as f
import jax
import jax.numpy as jnp
import numpy as np
from formulas import huber, pick
from recipes import value_based as recipes

from plain_losses.common import (
    ATOMS,
    ATOMS_PARAMS,
    FQF,
    FQF_PARAMS,
    GAMMA,
    IS_CUT,
    IS_END,
    IS_VALID,
    KEY,
    ONE,
    PAIR_PARAMS,
    Q_PARAMS,
    QUANTILES,
    QUANTILES_PARAMS,
    ROLLOUTS,
    SEQUENCE,
    STREAM,
    A,
    B,
    M,
    Q,
    T,
    cases,
    fractions,
    given,
    implicit,
    integers,
    linear,
    one_step,
    policy_and_value,
    pool,
    recurrent,
    rescale,
    seed,
    stop,
    undo,
)

seed(__name__)


STEP = ONE.a_tm1, ONE.r_t, ONE.discount_t


def plain_dqn(p, t):
    """google-deepmind/dqn_zoo@45061f4, dqn_zoo/dqn/agent.py.

    The bound of gradients, 1/32, is that of the mean over the batch.
    """
    q_target_t = Q(t, ONE.s_t)
    learning = jax.vmap(partial(f.clipped_q, bound=1.0))
    return jnp.mean(learning(Q(p, ONE.s_tm1), *STEP, q_target_t, q_target_t))


def plain_double_dqn(p, t):
    """google-deepmind/dqn_zoo@45061f4, dqn_zoo/double_q/agent.py.

    The bound of gradients, 1/32, is that of the mean over the batch.
    """
    learning = jax.vmap(partial(f.clipped_q, bound=1.0))
    return jnp.mean(learning(Q(p, ONE.s_tm1), *STEP, Q(t, ONE.s_t), Q(p, ONE.s_t)))


def plain_dueling_dqn(p, t):
    """openai/baselines@ea25b9e.

    baselines/deepq/build_graph.py: build_train, baselines/deepq/models.py, without
    prioritised replay.
    """

    def q_func(w, s):
        action_scores, state_score = policy_and_value(w, s)
        centered = action_scores - jnp.mean(action_scores, axis=1)[:, None]
        return state_score[:, None] + centered

    one_hot = jax.nn.one_hot
    q_t_selected = jnp.sum(q_func(p, ONE.s_tm1) * one_hot(ONE.a_tm1, A), axis=1)
    q_tp1_best_using_online_net = jnp.argmax(q_func(p, ONE.s_t), axis=1)
    q_tp1 = q_func(t, ONE.s_t)
    q_tp1_best = jnp.sum(q_tp1 * one_hot(q_tp1_best_using_online_net, A), axis=1)
    td_error = q_t_selected - stop(ONE.r_t + ONE.discount_t * q_tp1_best)
    return jnp.mean(huber(td_error))


def plain_c51(p, t):
    """google-deepmind/dqn_zoo@45061f4, dqn_zoo/c51/agent.py."""
    learning = jax.vmap(partial(f.c51, jnp.linspace(-10, 10, M)))
    return jnp.mean(learning(ATOMS(p, ONE.s_tm1), *STEP, ATOMS(t, ONE.s_t)))


def window(i):
    """Return the transition of up to 3 steps that begins a stream."""
    r_t, discount_t, last = 0.0, 1.0, 0
    for k in np.flatnonzero(IS_VALID[i, :3]):
        r_t = r_t + discount_t * WINDOWS.r_t[i, k]
        discount_t, last = discount_t * WINDOWS.discount_t[i, k], k
        if IS_CUT[i, k] or IS_END[i, k]:
            break
    return (
        WINDOWS.s_tm1[i, 0],
        WINDOWS.a_tm1[i, 0],
        r_t,
        discount_t,
        WINDOWS.s_t[i, last],
    )


def plain_rainbow(p, t):
    """google-deepmind/dqn_zoo@45061f4, dqn_zoo/rainbow/agent.py."""
    support, losses = jnp.linspace(-10, 10, M), []
    for i in range(B):
        s_tm1, a_tm1, r_t, discount_t, s_t = window(i)
        q_t = jax.nn.softmax(ATOMS(p, s_t)) @ support
        step = a_tm1, r_t, discount_t, ATOMS(t, s_t), q_t
        losses.append(f.c51(support, ATOMS(p, s_tm1), *step))
    return jnp.mean(jnp.stack(losses) * weights(0.4))


def weights(exponent, b=STREAM):
    """Return weights of importance sampling, as a replay returns them."""
    weights = (1 / b.probability) ** exponent
    return weights / jnp.max(weights)


def plain_qr_dqn(p, t):
    """google-deepmind/dqn_zoo@45061f4, dqn_zoo/qrdqn/agent.py."""
    tau, dist_q_target_t = jnp.broadcast_to(f.middles(M), (B, M)), QUANTILES(t, ONE.s_t)
    learning = jax.vmap(f.quantile_q)
    of_targets = dist_q_target_t, dist_q_target_t
    return jnp.mean(learning(QUANTILES(p, ONE.s_tm1), tau, *STEP, *of_targets))


def plain_iqn(p, t):
    """google-deepmind/dqn_zoo@45061f4, dqn_zoo/iqn/agent.py."""
    tau_tm1, tau_t, tau_t_selector = (
        jax.random.uniform(key, (B, n))
        for key, n in zip(jax.random.split(KEY, 3), (6, 6, 4), strict=True)
    )
    of_targets = (implicit(t, ONE.s_t, tau) for tau in (tau_t_selector, tau_t))
    dist_q_tm1 = implicit(p, ONE.s_tm1, tau_tm1)
    return jnp.mean(jax.vmap(f.quantile_q)(dist_q_tm1, tau_tm1, *STEP, *of_targets))


def plain_fqf(p, t):
    """microsoft/FQF@0980bde, dopamine/agents/fqf/fqf_agent.py, "ws".

    The network is that of dopamine/discrete_domains/atari_lib.py.
    """

    def outputs(w, s):
        quantiles_all = fractions(w, s)
        quantiles_left, quantiles_right = quantiles_all[:, :-1], quantiles_all[:, 1:]
        quantiles_mid = (quantiles_right + quantiles_left) / 2
        v_diff = quantiles_right - quantiles_left
        return FQF.quantiles(w, s, quantiles_mid), quantiles_mid, v_diff

    values, quantiles, _ = outputs(p | {"fractions": stop(p["fractions"])}, ONE.s_tm1)
    target_values, _, v_diff = outputs(t, ONE.s_t)
    q_values = jnp.sum(target_values * v_diff[:, :, None], axis=1)
    argmax, rows = jnp.argmax(q_values, axis=1), jnp.arange(B)
    target = ONE.r_t[:, None] + ONE.discount_t[:, None] * target_values[rows, :, argmax]
    return quantile(values[rows, :, ONE.a_tm1], stop(quantiles), target)


def plain_fqf_fractions(p, t):
    """microsoft/FQF@0980bde, dopamine/agents/fqf/fqf_agent.py, "directbp".

    Without the bonus of the entropy.
    """
    quantiles_all = fractions(p, ONE.s_tm1)
    quantile_tau = quantiles_all[:, 1:-1]
    quantiles_mid = (quantiles_all[:, 1:] + quantiles_all[:, :-1]) / 2
    values, mid = (
        FQF.quantiles(p, ONE.s_tm1, x) for x in (quantile_tau, quantiles_mid)
    )
    gradient_tau = 2 * values - (mid[:, 1:] + mid[:, :-1])
    grad_ys = stop(gradient_tau[jnp.arange(B), :, ONE.a_tm1])
    return jnp.sum(quantile_tau * grad_ys)


def plain_munchausen_dqn(p, t):
    """google-research/google-research@0c1bbe5, munchausen_rl/agents/m_dqn.py."""
    tau, q, q_t = 0.03, Q(t, ONE.s_tm1), Q(t, ONE.s_t)

    def scaled_log_softmax(x):
        y = x - jnp.max(x, axis=1, keepdims=True)
        return y - tau * jax.nn.logsumexp(y / tau, axis=1, keepdims=True)

    next_log_policy, log_policy = scaled_log_softmax(q_t), scaled_log_softmax(q)
    next_policy = jax.nn.softmax(q_t / tau, axis=1)
    next_qt_softmax = jnp.sum((q_t - next_log_policy) * next_policy, axis=1)
    tau_log_pi_a = jnp.sum(log_policy * jax.nn.one_hot(ONE.a_tm1, A), axis=1)
    munchausen_term = 0.9 * jnp.clip(tau_log_pi_a, -1, 1)
    target = ONE.r_t + munchausen_term + ONE.discount_t * next_qt_softmax
    return jnp.mean(huber(stop(target) - pick(Q(p, ONE.s_tm1), ONE.a_tm1)))


def plain_r2d2(p, t):
    """google-deepmind/acme@770bc75, acme/agents/jax/r2d2/learning.py: loss."""
    b, burn_in, n = SEQUENCE, 2, 2
    online_q, target_q = (Q(w, b.s + b.state[:, None])[:, burn_in:] for w in (p, t))
    action, r, d = (x[:, burn_in:] for x in (b.a_tm1, b.r_t, b.discount_t))
    selector = jnp.argmax(online_q, axis=-1)
    v_t, steps, losses = undo(pick(target_q, selector))[:, 1:], r.shape[1], []
    # Beyond the end, rewards are 0, discounts 1, and values the last.
    r, d = (
        jnp.pad(x, ((0, 0), (0, n - 1)), constant_values=c) for x, c in ((r, 0), (d, 1))
    )
    v_t = jnp.pad(v_t, ((0, 0), (0, n - 1)), mode="edge")
    for k in range(steps):
        target = v_t[:, k + n - 1]
        for i in reversed(range(n)):
            target = r[:, k + i] + d[:, k + i] * target
        td_error = stop(rescale(target)) - pick(online_q[:, k], action[:, k])
        losses.append(0.5 * td_error**2)
    return jnp.mean(weights(0.6, b) * sum(losses))


def plain_ape_x(p, t):
    """kakaoenterprise/JORLDY@15a7536, jorldy/core/agent/ape_x.py: learn."""
    errors = []
    for i in range(B):
        state, action, reward, gamma_n, next_state = window(i)
        max_a = jnp.argmax(Q(p, next_state))
        target_q = stop(reward + gamma_n * Q(t, next_state)[max_a])
        errors.append(target_q - Q(p, state)[action])
    return jnp.mean(weights(0.4) * jnp.stack(errors) ** 2)


def pqn_targets(w):
    """mttga/purejaxql@47af6d7, purejaxql/pqn_atari.py: _compute_targets."""

    def compute_targets(b):
        v_t = jnp.max(Q(w, b.obs[1:]), axis=-1)
        return (f.pqn(b.r_t, b.dones, v_t, GAMMA),)

    return pool(compute_targets)[0]


PQN_TARGETS = np.zeros((B, T), np.float32)
PQN_TARGETS[IS_VALID] = jax.jit(pqn_targets)(Q_PARAMS[1])


def plain_pqn(p, t):
    """mttga/purejaxql@47af6d7, purejaxql/pqn_atari.py: _loss_fn."""
    q_vals = Q(p, ROLLOUTS.s_tm1[IS_VALID])
    chosen_action_qvals = pick(q_vals, ROLLOUTS.a_tm1[IS_VALID])
    return 0.5 * jnp.mean((chosen_action_qvals - pqn_targets(Q_PARAMS[1])) ** 2)


def plain_mmd_dqn(p, t):
    """thanhnguyentang/mmdrl@892dcbc, mmd_agent.py: "mixture", with kappa 0."""
    particles, target_particles = QUANTILES(p, ONE.s_tm1), QUANTILES(t, ONE.s_t)
    argmax = jnp.argmax(jnp.mean(target_particles, axis=1), axis=1)
    next_particles = target_particles[jnp.arange(B), :, argmax]
    target = stop(ONE.r_t[:, None] + ONE.discount_t[:, None] * next_particles)
    chosen = particles[jnp.arange(B), :, ONE.a_tm1]

    def gaussian_rbf_kernel(x, y):
        d = jnp.square(x[:, :, None] - y[:, None, :])
        kernels = sum(jnp.exp(-d / sigma) for sigma in range(1, 11))
        return jnp.mean(jnp.mean(kernels, axis=-1), axis=-1)

    xixj, yiyj = (
        gaussian_rbf_kernel(chosen, chosen),
        gaussian_rbf_kernel(target, target),
    )
    mmd_squared = xixj + yiyj - 2 * gaussian_rbf_kernel(chosen, target)
    return jnp.mean(jnp.where(mmd_squared > 0, mmd_squared, 0.0))


def plain_advantage_learning(p, t):
    """chainer/chainerrl@7eed375, chainerrl/agents/al.py."""
    target_qout, target_next_qout = Q(t, ONE.s_tm1), Q(t, ONE.s_t)
    next_q_max = jnp.max(target_next_qout, axis=1)
    t_q = ONE.r_t + ONE.discount_t * next_q_max
    cur_advantage = pick(target_qout, ONE.a_tm1) - jnp.max(target_qout, axis=1)
    tal_q = t_q + 0.9 * cur_advantage
    return jnp.mean(huber(pick(Q(p, ONE.s_tm1), ONE.a_tm1) - stop(tal_q)))


def plain_persistent_advantage_learning(p, t):
    """chainer/chainerrl@7eed375, chainerrl/agents/pal.py."""
    cur_advantage, next_advantage = (
        pick(q, ONE.a_tm1) - jnp.max(q, axis=1)
        for q in (Q(t, ONE.s_tm1), Q(t, ONE.s_t))
    )
    t_q = ONE.r_t + ONE.discount_t * jnp.max(Q(t, ONE.s_t), axis=1)
    tpal_q = t_q + 0.9 * jnp.maximum(cur_advantage, next_advantage)
    return jnp.mean(huber(pick(Q(p, ONE.s_tm1), ONE.a_tm1) - stop(tpal_q)))


def plain_deep_mellow(p, t):
    """seungchan-kim/DeepMellow@4185a5d, Atari/deepmellow/agents/deep_q.py.

    The target network is copied before each update.
    """
    q, w = Q(p, ONE.s_t), 5.0
    c = jnp.max(w * q, axis=1)
    y = jnp.log(jnp.sum(jnp.exp(w * q - c[:, None]), axis=1)) + c
    mellowmax = (jnp.log(1 / A) + y) / w
    delta = stop(ONE.discount_t * mellowmax + ONE.r_t) - pick(
        Q(p, ONE.s_tm1), ONE.a_tm1
    )
    return jnp.mean(huber(delta))


def plain_pcl(p, t):
    """tensorflow/models@2fd7d3a, research/pcl_rl/objective.py: PCL, of whole episodes.

    With `rollout` the length of each, and values and policy of q, which are unified.
    """
    tau = 0.1

    def episode(values, log_probs, rewards, final_value):
        """Return the losses of all paths from the first or to the last step."""
        n, losses = len(rewards), 0.0
        values = jnp.append(values, final_value)
        for k in range(1 - n, n):
            first, end = max(k, 0), min(k + n, n)
            powers = GAMMA ** np.arange(first - k, end - k)
            sum_log_probs = jnp.sum(powers * log_probs[first:end])
            last_value = GAMMA ** (end - k) * values[end]
            future_value = jnp.sum(powers * rewards[first:end]) + last_value
            future_value -= tau * sum_log_probs
            baseline = GAMMA ** (first - k) * values[first]
            adv = stop(-baseline + future_value)
            policy_loss = -adv * sum_log_probs
            critic_loss = -adv * (baseline - last_value)
            losses += policy_loss + 0.1 * critic_loss
        return losses

    def losses(b):
        q, total = Q(p, b.obs), 0.0
        values = tau * jax.nn.logsumexp(q / tau, axis=-1)
        log_probs = pick(jax.nn.log_softmax(q[:-1] / tau), b.a_tm1)
        ends = np.append(np.flatnonzero(b.dones) + 1, len(b.dones))
        for first, end in zip([0, *ends[:-1]], ends, strict=True):
            if end > first:
                final = values[end] * (1 - b.dones[end - 1])
                parts = (x[first:end] for x in (values[:-1], log_probs, b.r_t))
                total += episode(*parts, final)
        return (total[None],)

    return jnp.mean(*pool(losses))


def plain_n_step_dqn(p, t):
    """chainer/chainerrl@7eed375, chainerrl/agents/dqn.py and replay_buffer.py."""

    def windows(b):
        rewards, factors = f.n_step(b.r_t, GAMMA * (1 - b.dones))
        ends = np.minimum(np.arange(len(b.r_t)) + 3, len(b.r_t))
        target_next_qout = jnp.max(Q(t, b.obs), axis=-1)
        targets = rewards + factors * target_next_qout[ends]
        return pick(Q(p, b.s_tm1), b.a_tm1), stop(targets)

    y, target = pool(windows)
    return jnp.mean(huber(y - target))


FIRST = {k: x[:, :3] for k, x in vars(ROLLOUTS).items() if x is not None and x.ndim > 1}
WINDOWS = ROLLOUTS._replace(**FIRST)


def quantile(x, tau, y):
    """Return the quantile Huber loss of `[B, N]` and targets `[B, K]`."""
    return jnp.mean(jax.vmap(f.quantile_huber)(x, tau, stop(y)))


def plain_munchausen_iqn(p, t):
    """google-research/google-research@0c1bbe5, munchausen_rl/agents/m_iqn.py."""
    tau = [jax.random.uniform(k, (B, 5)) for k in jax.random.split(KEY, 4)]
    x = pick(implicit(p, ONE.s_tm1, tau[0]), jnp.tile(ONE.a_tm1[:, None], 5))
    q = jnp.mean(implicit(t, ONE.s_tm1, tau[2]), axis=1)
    q_t = jnp.mean(implicit(t, ONE.s_t, tau[3]), axis=1)
    log_pi, log_pi_t = (0.1 * jax.nn.log_softmax(y / 0.1) for y in (q, q_t))
    reward = ONE.r_t + 0.9 * jnp.clip(pick(log_pi, ONE.a_tm1), -1, 0)
    z_t = implicit(t, ONE.s_t, tau[1])
    soft = jax.nn.softmax(q_t / 0.1)[:, None] * (z_t - log_pi_t[:, None])
    y = reward[:, None] + ONE.discount_t[:, None] * jnp.sum(soft, axis=2)
    return quantile(x, tau[0], y)


def plain_dqn_reg(p, t):
    """EdanToledo/Stoix@8fff19c, stoix/systems/q_learning/ff_dqn_reg.py."""
    q = pick(Q(p, ONE.s_tm1), ONE.a_tm1)
    target = one_step(jnp.max(Q(t, ONE.s_t), axis=-1))
    return jnp.mean(huber(stop(target) - q)) + 0.1 * jnp.mean(q)


PARTS = 2
BRANCHED = ONE._replace(a_tm1=integers(A, B, PARTS))
BRANCHES, BRANCHES_PARAMS = linear(1 + PARTS * A)


def branches(w, s):
    """Return a state value and the advantages of each part of an action."""
    x = BRANCHES(w, s)
    return x[:, 0], x[:, 1:].reshape(-1, PARTS, A)


def plain_branching_dqn(p, t):
    """atavakol/action-branching-agents@1e02601, agents/bdq/deepq/build_graph.py.

    With models.py: "reduceLocalMean", target_version "mean", losses_version 2.
    """

    def q_func(w, s):
        state_score, action_scores = branches(w, s)
        return [
            state_score[:, None] + x - jnp.mean(x, axis=1)[:, None]
            for x in jnp.unstack(action_scores, axis=1)
        ]

    b, mean_next_q_values, stream_losses = BRANCHED, 0.0, []
    q_t, q_tp1, selection_q_tp1 = q_func(p, b.s_tm1), q_func(t, b.s_t), q_func(p, b.s_t)
    for dim in range(PARTS):
        selected_a = jnp.argmax(selection_q_tp1[dim], axis=1)
        mean_next_q_values += pick(q_tp1[dim], selected_a)
    target_q_values = one_step(mean_next_q_values / PARTS, b)
    for dim in range(PARTS):
        dim_td_error = pick(q_t[dim], b.a_tm1[:, dim]) - stop(target_q_values)
        stream_losses.append(jnp.mean(dim_td_error**2 * weights(0.4, b)))
    return sum(stream_losses) / PARTS


CASES = cases(
    recipes,
    globals(),
    {
        "branching_dqn": given(BRANCHES_PARAMS, branches, BRANCHED),
        "munchausen_iqn": given(Q_PARAMS, implicit, ONE, KEY, 0.1, 0.9, 5),
        "dqn_reg": given(Q_PARAMS, Q, ONE),
        "mmd_dqn": given(QUANTILES_PARAMS, QUANTILES, ONE),
        "advantage_learning": given(Q_PARAMS, Q, ONE),
        "persistent_advantage_learning": given(Q_PARAMS, Q, ONE),
        "deep_mellow": given(Q_PARAMS, Q, ONE, 5.0),
        "pcl": given(Q_PARAMS, Q, ROLLOUTS),
        "n_step_dqn": given(Q_PARAMS, Q, ROLLOUTS),
        "dqn": given(Q_PARAMS, Q, ONE),
        "double_dqn": given(Q_PARAMS, Q, ONE),
        "dueling_dqn": given(
            PAIR_PARAMS, lambda w, s: policy_and_value(w, s)[::-1], ONE
        ),
        "c51": given(ATOMS_PARAMS, ATOMS, ONE),
        "qr_dqn": given(QUANTILES_PARAMS, QUANTILES, ONE),
        "iqn": given(Q_PARAMS, implicit, ONE, KEY, 6, 4),
        "fqf": given(FQF_PARAMS, FQF, ONE, stopped="fractions"),
        "fqf_fractions": given(FQF_PARAMS, FQF, ONE, stopped="quantiles"),
        "rainbow": given(ATOMS_PARAMS, ATOMS, WINDOWS),
        "munchausen_dqn": given(Q_PARAMS, Q, ONE),
        # Two of five steps are the burn-in.
        "r2d2": given(Q_PARAMS, recurrent, SEQUENCE, 2, 2),
        "ape_x": given(Q_PARAMS, Q, WINDOWS),
        "pqn": given(Q_PARAMS, Q, ROLLOUTS, PQN_TARGETS),
    },
)
