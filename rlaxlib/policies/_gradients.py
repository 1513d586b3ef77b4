"""Policy gradients: REINFORCE, COMA, ACER, QPG, RMPG, RPG, DPG and entropy.

Each loss is minimised. Only its gradient is meaningful; its value does not measure how
good the policy is. `reinforce_loss` and `acer_policy_loss` take time steps on any axes
and return the loss of each, the others the mean over one trajectory.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rlaxlib import arrays, distributions
from rlaxlib._core import gradients, safe, streams
from rlaxlib._core.gradients import stop_if
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Bool, Float, Int

__all__ = [
    "acer_policy_loss",
    "counterfactual_advantage",
    "dpg_loss",
    "entropy_loss",
    "invert_gradients",
    "policy_gradient_loss",
    "qpg_loss",
    "reinforce_loss",
    "rm_loss",
    "rpg_loss",
]


@checked
def policy_gradient_loss(
    logits_t: Float[ArrayLike, "T, A"],
    a_t: Int[ArrayLike, "T in [0, A)"],
    adv_t: Float[ArrayLike, "T"],
    w_t: Float[ArrayLike, "[] or [T]"] = 1.0,
    use_stop_gradient: bool = True,
    *,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
    action_mask: Bool[ArrayLike, "[A] or [T, A]"] | None = None,
) -> Float[Array, ""]:
    """Compute the REINFORCE policy-gradient loss.

    Takes one trajectory, returns its mean loss.

    ::

        L = -(1/T) ∑_t w_t Â_t log π(a_t),   π = softmax(logits_t)

    The mean divides by the number of valid steps, not by their weights: :math:`T`
    without a `sample_mask`. `reinforce_loss` takes other distributions.

    Args:
        logits_t: Logits of the policy, shape `[T, A]`.
        a_t: Actions taken, in [0, A), shape `[T]`.
        adv_t: Advantages :math:`Â_t` of those actions, shape `[T]`.
        w_t: Weight of all time steps, or of each, shape `[]` or `[T]`.
        use_stop_gradient: Whether to stop the gradient of the advantages.
        sample_mask: False for time steps to ignore, shape `[T]`; or None.
        action_mask: True for legal actions, shape `[A]` or `[T, A]`; or None.

    Returns:
        Loss, shape `[]`. An illegal action of weight or advantage 0 adds nothing.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> a_t, adv_t = jnp.array([0, 3]), jnp.array([1.0, -1.0])
        >>> gradient = jax.grad(rlaxlib.policy_gradient_loss)
        >>> print(gradient(jnp.zeros((2, 4)), a_t, adv_t))
        [[-0.375  0.125  0.125  0.125]
         [-0.125 -0.125 -0.125  0.375]]

    References:
        Ronald J. Williams, *Simple Statistical Gradient-Following Algorithms for
        Connectionist Reinforcement Learning*, 1992. https://doi.org/10.1007/BF00992696
    """
    adv_t = stop_if(use_stop_gradient, adv_t)
    log_prob_t = distributions.softmax().logprob(a_t, logits_t, action_mask=action_mask)
    return -_mean(w_t, adv_t * safe.floored(log_prob_t), sample_mask)


@checked
def reinforce_loss(
    log_prob: Float[ArrayLike, "..."],
    adv: Float[ArrayLike, "[] or [...]"],
    *,
    stop_target_gradients: bool = True,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "..."]:
    """Compute the REINFORCE (score-function) loss of any distribution.

    Takes time steps, returns the loss of each.

    ::

        L_t = -Â_t log π(a_t)

    No gradient may flow through the actions. If they are sampled inside the
    differentiated function, pass :math:`log π` of `jax.lax.stop_gradient(a)`, or the
    gradient is biased: for the mean of a Gaussian it is 0.

    Args:
        log_prob: Log-probabilities or -densities :math:`log π(a_t)`, shape `[...]`.
        adv: Advantage :math:`Â_t` of all actions, or of each, shape `[]` or `[...]`.
        stop_target_gradients: Whether to stop the gradient of the advantages.
        sample_mask: False for time steps to ignore, shape `[...]`; or None.

    Returns:
        Losses, shape `[...]`. An impossible action of advantage 0 has a loss of 0.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype.

    Example:
        >>> log_prob, adv = jnp.array([-1.0, -2.0]), jnp.array([1.0, 2.0])
        >>> print(rlaxlib.reinforce_loss(log_prob, adv))
        [1. 4.]

    References:
        Ronald J. Williams, *Simple Statistical Gradient-Following Algorithms for
        Connectionist Reinforcement Learning*, 1992. https://doi.org/10.1007/BF00992696
    """
    adv = stop_if(stop_target_gradients, adv)
    return -adv * safe.floored(log_prob)


@checked
def counterfactual_advantage(
    q: Float[ArrayLike, "..., A"],
    probs: Float[ArrayLike, "..., A in [0, 1]"],
    a: Int[ArrayLike, "... in [0, A)"],
    *,
    action_mask: Bool[ArrayLike, "[A] or [..., A]"] | None = None,
) -> Float[Array, "..."]:
    """Compute the counterfactual advantages of COMA.

    Takes time steps, returns the advantage of each.

    ::

        Â = q(a) - ∑_b π(b) q(b)

    COMA has one critic for several agents. For each agent, :math:`q` are the values
    of its actions, given those that the other agents took.

    Args:
        q: Action values, shape `[..., A]`.
        probs: Action probabilities :math:`π` of the policy, in [0, 1],
            shape `[..., A]`.
        a: Actions taken, in [0, A), shape `[...]`.
        action_mask: True for legal actions, shape `[A]` or `[..., A]`; or None.

    Returns:
        Advantages :math:`Â`, shape `[...]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> q, probs = jnp.array([[1.0, 3.0]]), jnp.array([[0.25, 0.75]])
        >>> print(rlaxlib.counterfactual_advantage(q, probs, jnp.array([0])))
        [-1.5]

    References:
        Jakob Foerster and others, *Counterfactual Multi-Agent Policy Gradients*, 2017.
        https://arxiv.org/abs/1705.08926
    """
    if action_mask is not None:
        legal = streams.filled(action_mask, q)
        q, probs = (jnp.where(legal, x, 0) for x in (q, probs))
    return arrays.batched_index(q, a) - safe.expectation(probs, q)


@checked
def acer_policy_loss(
    logits: Float[ArrayLike, "..., A"],
    mu_logits: Float[ArrayLike, "..., A"],
    a: Int[ArrayLike, "... in [0, A)"],
    q: Float[ArrayLike, "..., A"],
    returns: Float[ArrayLike, "..."],
    max_weight: Float[ArrayLike, "in [0, inf]"] = 10.0,
    *,
    stop_target_gradients: bool = True,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
    action_mask: Bool[ArrayLike, "[A] or [..., A]"] | None = None,
) -> Float[Array, "..."]:
    """Compute the policy loss of ACER: truncated, with bias correction.

    Takes time steps, returns the loss of each.

    ::

        L = -min(c, ρ(a)) (G - v) log π(a)
          - ∑_b π(b) [1 - c/ρ(b)]⁺ (q(b) - v) log π(b),
        ρ(b) = π(b) / μ(b),   v = ∑_b π(b) q(b)

    The first term has truncated importance weights. The second corrects their bias with
    the critic: :math:`c = ∞` is importance sampling alone, :math:`c = 0` the critic
    alone. The policy's gradient flows through :math:`log π` alone. The trust region
    of the paper is not included. As the correction is over all actions, there are no
    `RatioOutputs`; `importance_statistics` describes the weights of those taken.

    Args:
        logits: Logits of the policy :math:`π`, shape `[..., A]`.
        mu_logits: Logits of the behaviour policy :math:`μ`, shape `[..., A]`.
        a: Actions taken, in [0, A), shape `[...]`.
        q: Action values, shape `[..., A]`.
        returns: Returns :math:`G`, in ACER those of Retrace, shape `[...]`.
        max_weight: Maximum importance weight :math:`c`, in [0, inf], shape `[]`.
        stop_target_gradients: Whether to stop the gradients of `q` and `returns`.
        sample_mask: False for time steps to ignore, shape `[...]`; or None.
        action_mask: True for legal actions, shape `[A]` or `[..., A]`; or None.

    Returns:
        Losses, shape `[...]`, 0 at ignored steps.

    Raises:
        ArgumentError: If a shape, dtype or concrete value is wrong.

    Example:
        >>> logits, mu_logits = jnp.log(jnp.array([[[0.5, 0.5]], [[0.75, 0.25]]]))
        >>> inputs = jnp.array([1]), jnp.array([[0.0, 8.0]]), jnp.array([6.0])
        >>> loss = rlaxlib.acer_policy_loss(logits, mu_logits, *inputs, 1.0)
        >>> print(loss / jnp.log(2.0))  # (6 - 4) + 0.5 * 0.5 * (8 - 4).
        [3.]

    References:
        Ziyu Wang and others, *Sample Efficient Actor-Critic with Experience Replay*,
        sections 3.2 and 3.3, 2016. https://arxiv.org/abs/1611.01224
    """
    policy = distributions.softmax()
    log_prob = policy.logprob(a, logits, action_mask=action_mask)
    ratio = distributions.categorical_importance_sampling_ratios(
        logits, mu_logits, a, action_mask=action_mask
    )
    pi, q = _policy_and_values(logits, q, action_mask)
    mu = policy.probs(mu_logits, action_mask=action_mask)
    rho = jnp.minimum(ratio, max_weight)
    # π [1 - c/ρ]⁺; `inf * 0` would be NaN for c = ∞ and an action never taken.
    excess = jnp.where(mu > 0, jax.nn.relu(pi - max_weight * mu), pi)
    pi, rho, excess = jax.lax.stop_gradient((pi, rho, excess))
    v = safe.expectation(pi, q)
    adv = rho * (returns - v), excess * safe.floored(q - v[..., None])
    taken, every = stop_if(stop_target_gradients, adv)
    correction = distributions.categorical_cross_entropy(
        every, logits, action_mask=action_mask
    )
    return correction - taken * safe.floored(log_prob)


@checked
def entropy_loss(
    logits_t: Float[ArrayLike, "T, A"],
    w_t: Float[ArrayLike, "[] or [T]"] = 1.0,
    *,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
    action_mask: Bool[ArrayLike, "[A] or [T, A]"] | None = None,
) -> Float[Array, ""]:
    """Compute the entropy regularisation loss.

    Takes one trajectory, returns its mean loss.

    ::

        L = -(1/T) ∑_t w_t H_t,   H_t = -∑_a π_t(a) log π_t(a),
        π_t = softmax(logits_t)

    The mean divides by the number of valid steps, not by their weights: :math:`T`
    without a `sample_mask`.

    Args:
        logits_t: Logits of the policy, shape `[T, A]`.
        w_t: Weight of all time steps, or of each, shape `[]` or `[T]`.
        sample_mask: False for time steps to ignore, shape `[T]`; or None.
        action_mask: True for legal actions, shape `[A]` or `[T, A]`; or None.

    Returns:
        Loss, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype.

    Example:
        >>> print(f"{rlaxlib.entropy_loss(jnp.zeros((1, 4))):.4f}")
        -1.3863

    References:
        Ronald J. Williams and Jing Peng, *Function Optimization Using Connectionist
        Reinforcement Learning Algorithms*, 1991.
        https://doi.org/10.1080/09540099108946587
    """
    entropy_t = distributions.softmax().entropy(logits_t, action_mask=action_mask)
    return -_mean(w_t, entropy_t, sample_mask)


@checked
def qpg_loss(
    logits_t: Float[ArrayLike, "T, A"],
    q_t: Float[ArrayLike, "T, A"],
    use_stop_gradient: bool = True,
    *,
    action_mask: Bool[ArrayLike, "[A] or [T, A]"] | None = None,
) -> Float[Array, ""]:
    """Compute the Q-based policy-gradient (QPG) loss.

    Takes one trajectory, returns its mean loss.

    ::

        L = -(1/T) ∑_t ∑_a π_t(a) (q_t(a) - ∑_b π_t(b) q_t(b)),
        π_t = softmax(logits_t)

    The gradient of the inner sum is always stopped. The value of the loss is 0.

    Args:
        logits_t: Logits of the policy, shape `[T, A]`.
        q_t: Action values, shape `[T, A]`.
        use_stop_gradient: Whether to stop the gradient of the action values.
        action_mask: True for legal actions, shape `[A]` or `[T, A]`; or None.

    Returns:
        Loss, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype.

    Example:
        >>> logits_t, q_t = jnp.zeros((1, 2)), jnp.array([[1.0, 3.0]])
        >>> print(jax.grad(rlaxlib.qpg_loss)(logits_t, q_t))
        [[ 0.5 -0.5]]

    References:
        Sriram Srinivasan and others, *Actor-Critic Policy Optimization in Partially
        Observable Multiagent Environments*, 2018. https://arxiv.org/abs/1810.09026
    """
    q_t = stop_if(use_stop_gradient, q_t)
    pi_t, q_t = _policy_and_values(logits_t, q_t, action_mask)
    baseline_t = jax.lax.stop_gradient(safe.expectation(pi_t, q_t))
    return -jnp.mean(safe.expectation(pi_t, q_t - baseline_t[:, None]))


@checked
def rm_loss(
    logits_t: Float[ArrayLike, "T, A"],
    q_t: Float[ArrayLike, "T, A"],
    use_stop_gradient: bool = True,
    *,
    action_mask: Bool[ArrayLike, "[A] or [T, A]"] | None = None,
) -> Float[Array, ""]:
    """Compute the regret-matching policy-gradient (RMPG) loss.

    Takes one trajectory, returns its mean loss.

    ::

        L = -(1/T) ∑_t ∑_a π_t(a) [q_t(a) - ∑_b π_t(b) q_t(b)]⁺,
        π_t = softmax(logits_t)

    Only actions that are better than the policy's mean contribute.

    Args:
        logits_t: Logits of the policy, shape `[T, A]`.
        q_t: Action values, shape `[T, A]`.
        use_stop_gradient: Whether to stop the gradient of the terms in brackets.
        action_mask: True for legal actions, shape `[A]` or `[T, A]`; or None.

    Returns:
        Loss, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype.

    Example:
        >>> logits_t, q_t = jnp.zeros((1, 2)), jnp.array([[1.0, 3.0]])
        >>> print(rlaxlib.rm_loss(logits_t, q_t))
        -0.5

    References:
        Sriram Srinivasan and others, *Actor-Critic Policy Optimization in Partially
        Observable Multiagent Environments*, 2018. https://arxiv.org/abs/1810.09026
    """
    pi_t, q_t = _policy_and_values(logits_t, q_t, action_mask)
    baseline_t = safe.expectation(pi_t, q_t)[:, None]
    regret_t = stop_if(use_stop_gradient, jax.nn.relu(q_t - baseline_t))
    return -jnp.mean(safe.expectation(pi_t, regret_t))


@checked
def rpg_loss(
    logits_t: Float[ArrayLike, "T, A"],
    q_t: Float[ArrayLike, "T, A"],
    use_stop_gradient: bool = True,
    *,
    action_mask: Bool[ArrayLike, "[A] or [T, A]"] | None = None,
) -> Float[Array, ""]:
    """Compute the regret policy-gradient (RPG) loss.

    Takes one trajectory, returns its mean loss.

    ::

        L = (1/T) ∑_t ∑_a [q_t(a) - ∑_b π_t(b) q_t(b)]⁺,   π_t = softmax(logits_t)

    The gradient reaches the policy through the baseline :math:`∑_b π_t(b) q_t(b)`.

    Args:
        Other arguments: as `qpg_loss`.

    Returns:
        Loss, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype.

    Example:
        >>> logits_t, q_t = jnp.zeros((1, 2)), jnp.array([[1.0, 3.0]])
        >>> print(rlaxlib.rpg_loss(logits_t, q_t))
        1.0

    References:
        Sriram Srinivasan and others, *Actor-Critic Policy Optimization in Partially
        Observable Multiagent Environments*, 2018. https://arxiv.org/abs/1810.09026
    """
    q_t = stop_if(use_stop_gradient, q_t)
    pi_t, q_t = _policy_and_values(logits_t, q_t, action_mask)
    regret_t = jax.nn.relu(q_t - safe.expectation(pi_t, q_t)[:, None])
    if action_mask is not None:
        regret_t = jnp.where(streams.filled(action_mask, regret_t), regret_t, 0)
    return jnp.mean(jnp.sum(regret_t, axis=-1))


@checked
def dpg_loss(
    a_t: Float[ArrayLike, "D"],
    dqda_t: Float[ArrayLike, "D"],
    dqda_clipping: Float[ArrayLike, "in [0, inf]"] | None = None,
    use_stop_gradient: bool = True,
) -> Float[Array, "D"]:
    """Compute the deterministic policy-gradient (DPG) loss.

    Takes one action, returns the loss of each of its dimensions.

    ::

        L_i = ½ ((a_i + g_i) - a_i)²,   g = ∇_a q(a)

    With the gradient of :math:`a + g` stopped, that by the action is :math:`-g`.

    Args:
        a_t: Action of the policy, of D dimensions, shape `[D]`.
        dqda_t: Gradient :math:`g` of the action value by this action, shape `[D]`.
        dqda_clipping: Maximum norm :math:`‖g‖_2`, in [0, inf], shape `[]`; or None.
        use_stop_gradient: Whether to stop the gradient of the target.

    Returns:
        Loss of each dimension, to be summed, shape `[D]`.

    Raises:
        ArgumentError: If a shape, dtype or concrete `dqda_clipping` is wrong.

    Example:
        >>> a_t, dqda_t = jnp.array([1.0, 1.0]), jnp.array([3.0, 4.0])
        >>> print(rlaxlib.dpg_loss(a_t, dqda_t))
        [4.5 8. ]

    References:
        David Silver and others, *Deterministic Policy Gradient Algorithms*, 2014.
        https://proceedings.mlr.press/v32/silver14.html
    """
    if dqda_clipping is not None:
        ratio = safe.divide(dqda_clipping, safe.norm(dqda_t), otherwise=1)
        dqda_t = dqda_t * jnp.minimum(ratio, 1)
    error = gradients.correction(dqda_t, a_t, use_stop_gradient)
    return 0.5 * jnp.square(error)


@checked
def invert_gradients(
    a_t: Float[ArrayLike, "D"],
    dqda_t: Float[ArrayLike, "D"],
    minimum: Float[ArrayLike, "[] or [D] in (-inf, inf)"],
    maximum: Float[ArrayLike, "[] or [D] in (minimum, inf)"],
) -> Float[Array, "D"]:
    """Invert gradients that lead a deterministic policy out of its bounds.

    Takes one action, returns the gradient of each of its dimensions.

    ::

        g'_i = { g_i (h_i - a_i) / (h_i - l_i)   if g_i > 0
               { g_i (a_i - l_i) / (h_i - l_i)   otherwise

    The gradient shrinks towards the bound that it points to, and changes its sign
    beyond. Pass it as `dqda_t` to `dpg_loss`.

    Args:
        a_t: Action of the policy, of D dimensions, shape `[D]`.
        dqda_t: Gradient :math:`g` of the action value by this action, shape `[D]`.
        minimum: Lower bound :math:`l`, finite, shape `[]` or `[D]`.
        maximum: Upper bound :math:`h`, in (`minimum`, inf), shape `[]` or `[D]`.

    Returns:
        Gradient :math:`g'`, shape `[D]`.

    Raises:
        ArgumentError: If a shape, dtype or concrete bound is wrong.

    Example:
        >>> a_t, dqda_t = jnp.array([0.5, 0.5, 1.5]), jnp.array([8.0, -8.0, 8.0])
        >>> print(rlaxlib.invert_gradients(a_t, dqda_t, -1.0, 1.0))
        [ 2. -6. -2.]

    References:
        Matthew Hausknecht and Peter Stone, *Deep Reinforcement Learning in
        Parameterized Action Space*, section 5.3, 2016. https://arxiv.org/abs/1511.04143
    """
    room = jnp.where(dqda_t > 0, maximum - a_t, a_t - minimum)
    return dqda_t * (room / (maximum - minimum))


def _policy_and_values(
    logits: Array, q: Array, action_mask: Array | None
) -> tuple[Array, Array]:
    """Return the policy, and action values, 0 where a mask is false."""
    pi = distributions.softmax().probs(logits, action_mask=action_mask)
    return pi, jnp.where(streams.filled(action_mask, q), q, 0)


def _mean(w_t: Array, x_t: Array, sample_mask: Array | None) -> Array:
    """Return the mean of weighted terms over valid steps, 0 if there are none."""
    if sample_mask is None:
        return safe.dot(w_t, x_t) / x_t.size
    count = jnp.maximum(jnp.sum(sample_mask, dtype=x_t.dtype), 1)
    return safe.dot(w_t, jnp.where(sample_mask, x_t, 0)) / count
