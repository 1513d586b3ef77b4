"""Losses of algorithms that learn action values: DQN, its successors and PQN.

A batch of B transitions has the fields

    s_tm1, s_t        observations before and after the action, [B, ...],
    a_tm1             actions, integers in [0, A), [B],
    r_t, discount_t   rewards and discounts, [B].

A batch of B streams of T steps has the same fields with one more axis, [B, T, ...], and

    truncated_t       True where an episode is cut, as by a time limit, [B, T],
    sample_mask       False for steps to ignore: padding, reset steps, [B, T].

Either may be None. `s_t` is the true next observation: where an episode is cut, not the
first one of the next episode. With prioritised replay, `probability` is that with which
each entry was sampled, [B].
"""

import jax
import jax.numpy as jnp

import rlaxlib

# --- What the recipes share. ---


def masks(batch):
    """Return the masks of streams, as keyword arguments."""
    return {"truncated_t": batch.truncated_t, "sample_mask": batch.sample_mask}


def valid(batch, tree):
    """Return arrays of streams, 0 at steps to ignore, where padding may be NaN."""
    mask = batch.sample_mask
    return tree if mask is None else rlaxlib.tree_replace_masked(tree, None, ~mask)


def n_step_batch(batch):
    """Return n-step transitions: of each stream of n steps, that of the first step.

    Any loss of transitions takes it, such as `qr_dqn` and `d4pg_critic`.
    """
    windows = jax.vmap(rlaxlib.n_step_transitions, (0, 0, None))
    steps = batch.r_t.shape[1]
    r_t, discount_t, last = (
        x[:, 0] for x in windows(batch.r_t, batch.discount_t, steps, **masks(batch))
    )
    s_tm1, s_t = valid(batch, (batch.s_tm1, batch.s_t))
    s_t = jax.vmap(lambda s, i: s[i])(s_t, last)
    batch = batch._replace(s_tm1=s_tm1[:, 0], a_tm1=batch.a_tm1[:, 0], s_t=s_t)
    return batch._replace(r_t=r_t, discount_t=discount_t)


# --- One-step and distributional Q-learning. ---


def dqn(params, target_params, apply, batch):
    """DQN: one-step Q-learning with a target network. `apply` returns q, [B, A].

    Mnih et al., 2015, https://doi.org/10.1038/nature14236. Source:
    github.com/google-deepmind/dqn_zoo@45061f4, dqn_zoo/dqn/agent.py, the same gradient:
    it is clipped at 1/32 there. Usual: discount 0.99, centred RMSProp 2.5e-4 with
    epsilon 0.01/32², within the root, batch 32, target network copied every 40,000
    frames, which are 2,500 updates; the paper's table says 10,000 updates. Huber's
    bound of 1 supposes rewards clipped to [-1, 1].
    """
    q_tm1 = apply(params, batch.s_tm1)
    q_t = apply(target_params, batch.s_t)
    td_error = jax.vmap(rlaxlib.q_learning)(
        q_tm1, batch.a_tm1, batch.r_t, batch.discount_t, q_t
    )
    return jnp.mean(rlaxlib.huber_loss(td_error))


def double_dqn(params, target_params, apply, batch):
    """Double DQN: the online network selects the next action, the target values it.

    Van Hasselt et al., 2016, https://arxiv.org/abs/1509.06461. Source:
    github.com/google-deepmind/dqn_zoo@45061f4, dqn_zoo/double_q/agent.py, the same
    gradient. Usual: those of DQN, but the target network copied every 120,000 frames,
    which are 7,500 updates; the paper says 30,000.
    """
    q_tm1 = apply(params, batch.s_tm1)
    q_t_value = apply(target_params, batch.s_t)
    q_t_selector = apply(params, batch.s_t)
    td_error = jax.vmap(rlaxlib.double_q_learning)(
        q_tm1, batch.a_tm1, batch.r_t, batch.discount_t, q_t_value, q_t_selector
    )
    return jnp.mean(rlaxlib.huber_loss(td_error))


def dueling_dqn(params, target_params, apply, batch):
    """Duelling DQN: `apply` returns a state value, [B], and advantages, [B, A].

    Wang et al., 2016, https://arxiv.org/abs/1511.06581. Source:
    github.com/openai/baselines@ea25b9e, baselines/deepq/build_graph.py, the same loss.
    Usual: double DQN with prioritised replay, Adam 1e-4, gradients clipped to a norm of
    10, target network copied every 1,000 actions; github.com/mila-iqia/spr divides the
    gradients into the torso by √2, as the paper.
    """

    def q(params, s):
        return jax.vmap(rlaxlib.dueling_q_values)(*apply(params, s))

    return double_dqn(params, target_params, q, batch)


def c51(params, target_params, apply, batch, low=-10.0, high=10.0):
    """C51: categorical Q-learning. `apply` returns logits of the atoms, [B, A, K].

    Bellemare et al., 2017, https://arxiv.org/abs/1707.06887. Source:
    github.com/google-deepmind/dqn_zoo@45061f4, dqn_zoo/c51/agent.py, the same loss.
    Usual (paper; the code): K = 51 atoms in [-10, 10], rewards clipped to [-1, 1], Adam
    2.5e-4 with epsilon 0.01/32, gradients clipped to a norm of 10.
    """
    logits_tm1 = apply(params, batch.s_tm1)
    logits_t = apply(target_params, batch.s_t)
    atoms = jnp.linspace(low, high, logits_t.shape[-1])
    loss = jax.vmap(rlaxlib.categorical_q_learning, (None, 0, 0, 0, 0, None, 0))(
        atoms, logits_tm1, batch.a_tm1, batch.r_t, batch.discount_t, atoms, logits_t
    )
    return jnp.mean(loss)


def qr_dqn(params, target_params, apply, batch, huber_param=1.0):
    """QR-DQN: quantile Q-learning. `apply` returns N quantiles, [B, N, A].

    Dabney et al., 2018, https://arxiv.org/abs/1710.10044. Source:
    github.com/google-deepmind/dqn_zoo@45061f4, dqn_zoo/qrdqn/agent.py, the same loss.
    Usual (paper; the code): N = 200, in the code 201, Huber parameter 1, Adam 5e-5 with
    epsilon 0.01/32, gradients clipped to a norm of 10.
    """
    q_tm1 = apply(params, batch.s_tm1)
    q_t = apply(target_params, batch.s_t)
    tau = rlaxlib.quantile_midpoints(q_tm1.shape[1])
    loss = jax.vmap(rlaxlib.quantile_q_learning, (0, None, 0, 0, 0, 0, 0, None))(
        q_tm1, tau, batch.a_tm1, batch.r_t, batch.discount_t, q_t, q_t, huber_param
    )
    return jnp.mean(loss)


def iqn(params, target_params, apply, batch, key, num_samples=64, num_policy=32):
    """IQN: `apply` maps states and fractions, [B, N], to quantiles, [B, N, A].

    Dabney et al., 2018, https://arxiv.org/abs/1806.06923. Source:
    github.com/google-deepmind/dqn_zoo@45061f4, dqn_zoo/iqn/agent.py, the same loss.
    Usual (paper; github.com/google/dopamine): 64 samples of both networks, 32 for the
    policy, where DQN Zoo has 64; 64 `cosine_embedding` features, Adam 5e-5 with epsilon
    0.01/32.
    """
    keys = jax.random.split(key, 3)
    sizes = num_samples, num_samples, num_policy
    b = len(batch.r_t)
    tau_tm1, tau_t, tau_policy = (
        jax.random.uniform(k, (b, n)) for k, n in zip(keys, sizes, strict=True)
    )
    q_tm1 = apply(params, batch.s_tm1, tau_tm1)
    q_t = apply(target_params, batch.s_t, tau_t)
    selector = apply(target_params, batch.s_t, tau_policy)
    loss = jax.vmap(rlaxlib.quantile_q_learning, (0, 0, 0, 0, 0, 0, 0, None))(
        q_tm1, tau_tm1, batch.a_tm1, batch.r_t, batch.discount_t, selector, q_t, 1.0
    )
    return jnp.mean(loss)


def fqf(params, target_params, apply, batch):
    """FQF: the quantile loss, at the midpoints of learned fractions.

    `apply.fractions` returns ascending fractions from 0 to 1, [B, N+1], and
    `apply.quantiles` is the `apply` of `iqn`. As in the paper, the target's quantiles
    have equal weights, though the fractions are not equal: a bias that grows with their
    learning rate. Yang et al., 2019, https://arxiv.org/abs/1911.02140. Source:
    github.com/microsoft/FQF@0980bde, dopamine/agents/fqf/fqf_agent.py, the same loss.
    Usual: N = 32, Huber parameter 1, Adam 5e-5 with epsilon 0.01/32, target network
    copied every 10,000 actions, which are 2,500 updates.
    """
    tau = jax.lax.stop_gradient(apply.fractions(params, batch.s_tm1))
    tau_t = jax.lax.stop_gradient(apply.fractions(target_params, batch.s_t))
    midpoints, midpoints_t = ((x[:, 1:] + x[:, :-1]) / 2 for x in (tau, tau_t))
    q_tm1 = apply.quantiles(params, batch.s_tm1, midpoints)
    q_t = apply.quantiles(target_params, batch.s_t, midpoints_t)
    mean_t = jnp.sum(jnp.diff(tau_t)[..., None] * q_t, axis=1, keepdims=True)
    loss = jax.vmap(rlaxlib.quantile_q_learning, (0, 0, 0, 0, 0, 0, 0, None))(
        q_tm1, midpoints, batch.a_tm1, batch.r_t, batch.discount_t, mean_t, q_t, 1.0
    )
    return jnp.mean(loss)


def fqf_fractions(params, apply, batch):
    """FQF: the loss of the fractions, with its own optimizer.

    `apply` is that of `fqf`. Yang et al., 2019, https://arxiv.org/abs/1911.02140.
    Source: github.com/microsoft/FQF@0980bde, dopamine/agents/fqf/fqf_agent.py, the same
    gradient, but a sum over the batch, B times this one, and an entropy bonus. Usual
    (paper; the code): centred RMSProp 2.5e-9, in the code 5e-10, for the layer of the
    fractions only.
    """
    tau = apply.fractions(params, batch.s_tm1)
    midpoints = (tau[:, 1:] + tau[:, :-1]) / 2
    inner, outer = (
        jax.vmap(lambda q, a: q[:, a])(
            apply.quantiles(params, batch.s_tm1, jax.lax.stop_gradient(x)), batch.a_tm1
        )
        for x in (tau[:, 1:-1], midpoints)
    )
    return jnp.mean(jax.vmap(rlaxlib.fqf_fraction_loss)(tau, inner, outer))


def mmd_dqn(params, target_params, apply, batch):
    """MMD-DQN: samples of returns, and a sum of Gaussian kernels of their distances.

    `apply` returns N samples, [B, N, A]. The kernels are exp(-d²/h) with h from 1 to
    10; `energy_distance_loss` has none to choose. Nguyen-Tang et al., 2021,
    https://arxiv.org/abs/2007.12354. Source: github.com/thanhnguyentang/mmdrl@892dcbc,
    mmd_agent.py, the same loss. Usual: N = 200, Adam 5e-5 with epsilon 0.01/32, target
    network copied every 10,000 actions.
    """
    z_tm1, z_t = apply(params, batch.s_tm1), apply(target_params, batch.s_t)
    select = jax.vmap(lambda z, a: z[:, a])
    z_t = select(z_t, jnp.argmax(jnp.mean(z_t, axis=1), axis=-1))
    target = batch.r_t[:, None] + batch.discount_t[:, None] * z_t
    mmd = jax.vmap(rlaxlib.maximum_mean_discrepancy, (0, 0, None, None))
    x, y = select(z_tm1, batch.a_tm1)[..., None], target[..., None]
    return sum(jnp.mean(mmd(x, y, "gaussian", (h / 2) ** 0.5)) for h in range(1, 11))


def rainbow(params, target_params, apply, batch, exponent=0.4, low=-10.0, high=10.0):
    """Rainbow: n-step categorical double Q-learning with prioritised replay.

    The batch holds the n steps that begin with each sampled one. Returns the loss and
    the new priorities, before the exponent: use `has_aux=True`. Hessel et al., 2018,
    https://arxiv.org/abs/1710.02298. Source:
    github.com/google-deepmind/dqn_zoo@45061f4, dqn_zoo/rainbow/agent.py, the same loss;
    priorities are at most 100 there, and each of the three evaluations has noise of its
    own. Usual: n = 3, 51 atoms, a noisy duelling network, Adam 6.25e-5 with epsilon
    0.005/32, where the paper has 1.5e-4; gradients clipped to a norm of 10, priority
    exponent 0.5, `exponent` from 0.4 to 1, target network copied every 2,000 updates.
    """
    batch = n_step_batch(batch)
    logits_tm1, logits_t = apply(params, batch.s_tm1), apply(target_params, batch.s_t)
    atoms = jnp.linspace(low, high, logits_t.shape[-1])
    selector = jax.nn.softmax(apply(params, batch.s_t)) @ atoms
    axes = (None, 0, 0, 0, 0, None, 0, 0)
    loss = jax.vmap(rlaxlib.categorical_double_q_learning, axes)(
        *(atoms, logits_tm1, batch.a_tm1, batch.r_t, batch.discount_t),
        *(atoms, logits_t, selector),
    )
    weights = rlaxlib.importance_sampling_weights(batch.probability, exponent)
    return jnp.mean(weights * loss), loss


def munchausen_dqn(params, target_params, apply, batch, temperature=0.03):
    """Munchausen-DQN (M-DQN): soft Q-learning with the log-policy added to the reward.

    The temperature supposes rewards clipped to [-1, 1]. Vieillard et al., 2020,
    https://arxiv.org/abs/2007.14430. Source:
    github.com/google-research/google-research@0c1bbe5, munchausen_rl/agents/m_dqn.py,
    the same loss. Usual: temperature 0.03, coefficient 0.9, log-policy clipped at -1,
    Adam 5e-5 with epsilon 0.01/32, target network copied every 8,000 actions, which are
    2,000 updates.
    """
    q_tm1 = apply(params, batch.s_tm1)
    target_q_tm1 = apply(target_params, batch.s_tm1)
    target_q_t = apply(target_params, batch.s_t)
    td_error = jax.vmap(rlaxlib.munchausen_q_learning, (0,) * 6 + (None,))(
        q_tm1,
        target_q_tm1,
        batch.a_tm1,
        batch.r_t,
        batch.discount_t,
        target_q_t,
        temperature,
    )
    return jnp.mean(rlaxlib.huber_loss(td_error))


def munchausen_iqn(
    params, target_params, apply, batch, key, temperature=0.03, alpha=0.9, num=32
):
    """Munchausen-IQN (M-IQN): soft values of quantiles, and the log-policy as a reward.

    `apply` is that of `iqn`. Vieillard et al., 2020, https://arxiv.org/abs/2007.14430.
    Source: github.com/google-research/google-research@0c1bbe5,
    munchausen_rl/agents/m_iqn.py, the same loss. Usual: 32 samples of each, temperature
    0.03, log-policy clipped at -1, Adam 5e-5 with epsilon 0.01/32.
    """
    shape = len(batch.r_t), num
    tau = [jax.random.uniform(k, shape) for k in jax.random.split(key, 4)]
    q_tm1 = apply(params, batch.s_tm1, tau[0])
    z_t = apply(target_params, batch.s_t, tau[1])
    pairs = (batch.s_tm1, tau[2]), (batch.s_t, tau[3])
    q, q_t = (jnp.mean(apply(target_params, *x), axis=1) for x in pairs)
    log_pi, log_pi_t = (jax.nn.log_softmax(x / temperature) for x in (q, q_t))
    log_pi_a = temperature * rlaxlib.batched_index(log_pi, batch.a_tm1)
    reward = batch.r_t + alpha * jnp.clip(log_pi_a, -1, 0)
    soft = jnp.exp(log_pi_t)[:, None] * (z_t - temperature * log_pi_t[:, None])
    target = reward[:, None] + batch.discount_t[:, None] * jnp.sum(soft, axis=-1)
    q_a = jax.vmap(lambda q, a: q[:, a])(q_tm1, batch.a_tm1)
    loss = jax.vmap(rlaxlib.quantile_regression_loss, (0, 0, 0, None))
    return jnp.mean(loss(q_a, tau[0], target, 1.0))


def dqn_reg(params, target_params, apply, batch, weight=0.1):
    """DQN-Reg: Q-learning that keeps values small, found by a search of loss functions.

    Co-Reyes et al., 2021, https://arxiv.org/abs/2101.03958. Source:
    github.com/EdanToledo/Stoix@8fff19c, stoix/systems/q_learning/ff_dqn_reg.py, by
    others, the same loss. Usual: weight 0.1; the paper has a square without ½ in place
    of Huber's loss.
    """
    q_tm1, q_t = apply(params, batch.s_tm1), apply(target_params, batch.s_t)
    td_error = jax.vmap(rlaxlib.q_learning)(
        q_tm1, batch.a_tm1, batch.r_t, batch.discount_t, q_t
    )
    q_a = rlaxlib.batched_index(q_tm1, batch.a_tm1)
    return jnp.mean(rlaxlib.huber_loss(td_error) + weight * q_a)


def branching_dqn(params, target_params, apply, batch, exponent=0.4):
    """Branching DQN (BDQ): an action of D parts, each with a branch of values.

    `apply` returns a state value, [B], and advantages of each part, [B, D, A]; actions
    are [B, D]. The target of all branches is the mean of their values. Returns the loss
    and the new priorities, before the exponent: use `has_aux=True`. Tavakoli et al.,
    2018, https://arxiv.org/abs/1711.08946. Source:
    github.com/atavakol/action-branching-agents@1e02601,
    agents/bdq/deepq/build_graph.py, squares without ½: twice this loss. Usual: 33
    actions a part, from -1 to 1, and Gaussian noise of 0.2 to explore; Adam 1e-4, batch
    64, priority exponent 0.6, `exponent` from 0.4 to 1, gradients of each layer clipped
    to a norm of 10, those of shared layers divided by D + 1, target network copied
    every 1,000 updates.
    """
    dueling = jax.vmap(jax.vmap(rlaxlib.dueling_q_values, (None, 0)))
    q_tm1, selector = (dueling(*apply(params, s)) for s in (batch.s_tm1, batch.s_t))
    q_t = dueling(*apply(target_params, batch.s_t))
    q_a = rlaxlib.batched_index(q_tm1, batch.a_tm1)
    v_t = jnp.mean(rlaxlib.batched_index(q_t, jnp.argmax(selector, axis=-1)), axis=-1)
    td_learning = jax.vmap(jax.vmap(rlaxlib.td_learning, (0, None, None, None)))
    td_error = td_learning(q_a, batch.r_t, batch.discount_t, v_t)
    weights = rlaxlib.importance_sampling_weights(batch.probability, exponent)
    loss = jnp.mean(weights * jnp.mean(rlaxlib.l2_loss(td_error), axis=-1))
    return loss, jnp.sum(jnp.abs(td_error), axis=-1)


def advantage_learning(
    params, target_params, apply, batch, scale=0.9, method=rlaxlib.advantage_learning
):
    """AL, advantage learning: a larger gap between the best action and others.

    Bellemare et al., 2016, https://arxiv.org/abs/1512.04860. Source:
    github.com/chainer/chainerrl@7eed375, chainerrl/agents/al.py, by others, the same
    loss. Usual: scale 0.9, otherwise those of DQN; Munchausen-DQN's code has Adam 5e-5.
    """
    q_tm1 = apply(params, batch.s_tm1)
    target_q_tm1, target_q_t = (
        apply(target_params, s) for s in (batch.s_tm1, batch.s_t)
    )
    td_error = jax.vmap(method, (0,) * 6 + (None,))(
        *(q_tm1, target_q_tm1, batch.a_tm1, batch.r_t, batch.discount_t, target_q_t),
        scale,
    )
    return jnp.mean(rlaxlib.huber_loss(td_error))


def persistent_advantage_learning(params, target_params, apply, batch, scale=0.9):
    """PAL, persistent advantage learning: the gap only where repeating costs more.

    Bellemare et al., 2016, https://arxiv.org/abs/1512.04860. Source:
    github.com/chainer/chainerrl@7eed375, chainerrl/agents/pal.py, by others, the same
    gradient but at ends, where the next gap is that of the last observation there, and
    0 here (a cosine of 0.998 at random inputs). Usual: those of AL.
    """
    method = rlaxlib.persistent_advantage_learning
    return advantage_learning(params, target_params, apply, batch, scale, method)


def deep_mellow(params, apply, batch, omega):
    """DeepMellow: mellowmax in place of the maximum, without a target network.

    Kim et al., 2019, https://doi.org/10.24963/ijcai.2019/379. Source:
    github.com/seungchan-kim/DeepMellow@4185a5d, Atari/deepmellow/agents/deep_q.py, the
    same loss; on Acrobot it is a square there. Usual: `omega` 1 to 10 on Acrobot with
    Adam 1e-3, 30 on Seaquest with RMSProp 2.5e-4, discount 0.99, batch 32.
    """
    q_tm1, q_t = apply(params, batch.s_tm1), apply(params, batch.s_t)
    v_t = jax.vmap(rlaxlib.mellowmax, (0, None))(q_t, omega)
    td_error = jax.vmap(rlaxlib.qv_learning)(
        q_tm1, batch.a_tm1, batch.r_t, batch.discount_t, v_t
    )
    return jnp.mean(rlaxlib.huber_loss(td_error))


def pcl(params, apply, batch, temperature=0.1):
    """PCL, path consistency learning: soft values agree along paths. On streams.

    The path of each step goes to the end of the stream, and no gradient is stopped. The
    temperature is in units of the reward. Nachum et al., 2017,
    https://arxiv.org/abs/1702.08892. Source: github.com/tensorflow/models@2fd7d3a,
    research/pcl_rl/objective.py, where paths from the first step to all others are
    learned too, and the gradients of log-probabilities and values weigh 1 and 0.1, here
    the temperature and 1 (a cosine of 0.76 at random inputs). Usual: paths of 10 steps,
    replay, temperature 0.025 to 0.1, where the paper has 0.005 to 0.15; Adam 0.01 with
    epsilon 2e-4, gradients clipped to a norm of 5 to 10.
    """
    s_tm1, s_t = valid(batch, (batch.s_tm1, batch.s_t))
    q_tm1, q_t = apply(params, s_tm1), apply(params, s_t)
    soft_value = jax.vmap(jax.vmap(rlaxlib.soft_value, (0, None)), (0, None))
    v_tm1, v_t = soft_value(q_tm1, temperature), soft_value(q_t, temperature)
    log_pi = rlaxlib.batched_index(q_tm1, batch.a_tm1) - v_tm1  # Times the temperature.
    returns = jax.vmap(rlaxlib.discounted_returns)(
        batch.r_t - log_pi, batch.discount_t, v_t, **masks(batch)
    )
    return rlaxlib.masked_mean(rlaxlib.l2_loss(returns - v_tm1), mask=batch.sample_mask)


def n_step_dqn(params, target_params, apply, batch, n=3):
    """n-step DQN: n rewards, then the target network. On streams.

    Mnih et al., 2016, https://arxiv.org/abs/1602.01783. Source:
    github.com/chainer/chainerrl@7eed375, chainerrl/agents/dqn.py, by others, the same
    loss. Usual (there; github.com/google/dopamine): n = 5 without replay, with RMSProp
    7e-4 and epsilon 0.1, and 3 with it, otherwise those of DQN.
    """
    s_tm1, s_t = valid(batch, (batch.s_tm1, batch.s_t))
    q_tm1, q_t = apply(params, s_tm1), apply(target_params, s_t)
    td_error = jax.vmap(rlaxlib.n_step_q_learning, (0, 0, 0, 0, 0, None))(
        q_tm1, batch.a_tm1, batch.r_t, batch.discount_t, q_t, n, **masks(batch)
    )
    return rlaxlib.masked_mean(rlaxlib.huber_loss(td_error), mask=batch.sample_mask)


def sequences(batch):
    """Return the observations of sequences, which are the first, and valid steps.

    An observation is the first after a step to ignore. It is 0 between two such steps.
    """
    mask = batch.sample_mask
    mask = jnp.ones(batch.r_t.shape, bool) if mask is None else mask
    after, before = (jnp.pad(mask, ((0, 0), pad)) for pad in ((1, 0), (0, 1)))
    s = rlaxlib.tree_replace_masked(batch.s, None, ~(after | before))
    return s, ~after, mask


def r2d2(params, target_params, apply, batch, n=5, burn_in=40, exponent=0.6):
    """R2D2: n-step double Q-learning of rescaled values, from replayed sequences.

    The batch has `s`, [B, T+1, ...], in place of `s_tm1` and `s_t`: after the last
    observation of an episode comes a step to ignore, to the first one of the next.
    `apply(params, state, s, first)` unrolls a recurrent network from `batch.state`,
    which was stored before `s[:, 0]`, resets its state before first observations of
    later episodes, and returns q, [B, T+1, A]. Returns the loss and the new priorities:
    use `has_aux=True`. Kapturowski et al., 2019,
    https://openreview.net/forum?id=r1lyTjAqYX. Source:
    github.com/google-deepmind/acme@770bc75, acme/agents/jax/r2d2/learning.py, where the
    loss is a sum over the 80 steps after the burn-in: 80 times this one, which Adam's
    epsilon feels. Usual (paper, table 2): n = 5, burn-in 40 of 120 steps, discount
    0.997, batch 64, priority exponent 0.9, `exponent` 0.6, target network copied every
    2,500 updates, Adam 1e-4 with epsilon 1e-3; Acme has 1e-3 with epsilon 1e-8.
    """
    s, first, mask = sequences(batch)
    first = first.at[:, 0].set(False)  # A sequence begins with the stored state.
    q, target_q = (apply(p, batch.state, s, first) for p in (params, target_params))
    mask = mask & (jnp.arange(mask.shape[1]) >= burn_in)
    a_t, tx = jnp.argmax(q[:, 1:], axis=-1), rlaxlib.SIGNED_HYPERBOLIC_PAIR

    def learn(*args, **masks):
        learning = rlaxlib.transformed_n_step_q_learning
        error = learning(*args, n, tx_pair=tx, **masks)
        return error, rlaxlib.sequence_priority(error, sample_mask=masks["sample_mask"])

    args = q[:, :-1], batch.a_tm1, target_q[:, 1:], a_t, batch.r_t, batch.discount_t
    ends = {"truncated_t": batch.truncated_t, "sample_mask": mask}
    td_error, priorities = jax.vmap(learn)(*args, **ends)
    weights = rlaxlib.importance_sampling_weights(batch.probability, exponent)
    loss = weights[:, None] * rlaxlib.l2_loss(td_error)
    return rlaxlib.masked_mean(loss, mask=mask), priorities


def ape_x(params, target_params, apply, batch, exponent=0.4):
    """Ape-X DQN: n-step double Q-learning with prioritised replay.

    The batch holds the n steps that begin with each sampled one. Returns the loss and
    the new priorities, before the exponent: use `has_aux=True`. Horgan et al., 2018,
    https://arxiv.org/abs/1803.00933. Source: github.com/kakaoenterprise/JORLDY@15a7536,
    jorldy/core/agent/ape_x.py, by others, squares without ½: twice this loss, which is
    the paper's. Usual (paper): n = 3, a duelling network, batch 512, priority exponent
    0.6, `exponent` 0.4, centred RMSProp 6.25e-5 with epsilon 1.5e-7, gradients clipped
    to a norm of 40, target network copied every 2,500 updates.
    """
    batch = n_step_batch(batch)
    q_tm1, q_t_selector = apply(params, batch.s_tm1), apply(params, batch.s_t)
    q_t_value = apply(target_params, batch.s_t)
    td_error = jax.vmap(rlaxlib.double_q_learning)(
        q_tm1, batch.a_tm1, batch.r_t, batch.discount_t, q_t_value, q_t_selector
    )
    weights = rlaxlib.importance_sampling_weights(batch.probability, exponent)
    return jnp.mean(weights * rlaxlib.l2_loss(td_error)), jnp.abs(td_error)


def pqn_targets(params, apply, batch, lambda_=0.65):
    """Return the targets of PQN, [B, T], once for each rollout."""
    v_t = jnp.max(apply(params, valid(batch, batch.s_t)), axis=-1)
    returns = jax.vmap(rlaxlib.lambda_returns, (0, 0, 0, None))
    return returns(batch.r_t, batch.discount_t, v_t, lambda_, **masks(batch))


def pqn(params, apply, batch, target):
    """PQN: Q(λ) on fresh streams, without replay and target network.

    The targets are those of `pqn_targets`, of the parameters that acted. Minibatches
    are of streams, or of transitions in any order, with the targets in the same order.
    Gallici et al., 2024, https://arxiv.org/abs/2407.04811. Source:
    github.com/mttga/purejaxql@47af6d7, purejaxql/pqn_atari.py, the same loss. Usual:
    LayerNorm in the network, λ 0.65, 128 environments of 32 steps, 2 epochs of 32
    minibatches of shuffled transitions, RAdam 2.5e-4, gradients clipped to a norm of
    10.
    """
    q = apply(params, valid(batch, batch.s_tm1))
    target = jax.lax.stop_gradient(valid(batch, target))
    loss = rlaxlib.l2_loss(rlaxlib.batched_index(q, batch.a_tm1), target)
    return rlaxlib.masked_mean(loss, mask=batch.sample_mask)
