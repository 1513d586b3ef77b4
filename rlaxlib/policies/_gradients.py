"""Turn advantages and action values into losses whose gradient improves a policy.

The value of such a loss means little; its gradient is what counts. All of them are to
be minimised, and average over the steps they are given.

Functions here take one trajectory. Use `jax.vmap` for a batch.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib import distributions
from rlaxlib._core import checks, derivatives, dtypes, gradients, sums
from rlaxlib.policies import _lengths, _ratios, _reweighting

__all__ = [
    "clipped_surrogate_pg_loss",
    "dpg_loss",
    "entropy_loss",
    "policy_gradient_loss",
    "qpg_loss",
    "rm_loss",
    "rpg_loss",
    "score_function_loss",
]


def policy_gradient_loss(
    logits_t: ArrayLike,
    a_t: ArrayLike,
    adv_t: ArrayLike,
    w_t: ArrayLike,
    use_stop_gradient: bool = True,
    *,
    mask: ArrayLike | None = None,
) -> Array:
    """Make actions more likely, the better they turned out (REINFORCE).

    .. math::

        L = -(1/T) ∑_t w_t Â_t log π(a_t),   π = softmax(logits_t).

    The actions are integers, and carry no gradient. For other distributions than the
    softmax, whose actions may, see `score_function_loss`.

    Args:
        logits_t: Logits of the policy, shape `[T, A]`.
        a_t: Actions taken, each in [0, A), shape `[T]`.
        adv_t: Advantages :math:`Â_t` of those actions, shape `[T]`.
        w_t: Weight of each step; 0 leaves it out of the sum, though not out of the
            count :math:`T`, shape `[T]`.
        use_stop_gradient: Whether to hold the advantages constant under
            differentiation.
        mask: True where an action is legal, shape `[T, A]`; or None if all are.

    Returns:
        Loss, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if an action
            whose value is known is none of the A.

    Example:
        >>> logits_t, a_t = jnp.zeros((2, 4)), jnp.array([0, 3])
        >>> adv_t, w_t = jnp.array([1.0, -1.0]), jnp.array([1.0, 1.0])
        >>> gradient = jax.grad(rlaxlib.policy_gradient_loss)(logits_t, a_t, adv_t, w_t)
        >>> print(gradient)
        [[-0.375  0.125  0.125  0.125]
         [-0.125 -0.125 -0.125  0.375]]

    References:
        Ronald J. Williams, *Simple Statistical Gradient-Following Algorithms for
        Connectionist Reinforcement Learning*, 1992. https://doi.org/10.1007/BF00992696
    """
    logits_t, a_t, adv_t, w_t, mask = checks.arrays(
        logits_t=(logits_t, "float[T, A]"),
        a_t=(a_t, "int[T]"),
        adv_t=(adv_t, "float[T]"),
        w_t=(w_t, "float[T]"),
        mask=(mask, "bool[T, A] or None"),
    )
    checks.indices(a_t=(a_t, logits_t.shape[-1]))
    (logits_t, adv_t, w_t), narrow = dtypes.widen(logits_t, adv_t, w_t)
    log_prob_t = distributions.softmax().logprob(a_t, logits_t, mask=mask)
    return narrow(_score(log_prob_t, adv_t, w_t, use_stop_gradient))


def score_function_loss(
    log_prob_t: ArrayLike,
    adv_t: ArrayLike,
    w_t: ArrayLike,
    use_stop_gradient: bool = True,
) -> Array:
    """Make actions more likely, the better they turned out, for any distribution.

    .. math::

        L = -(1/T) ∑_t w_t Â_t log π(a_t)

    Its gradient is an estimate of that of the expected return only if the actions are
    constants. An action sampled inside the function that is differentiated, say
    :math:`a = μ + σ ε`, carries a gradient of its own: then :math:`∇log π(a)` has a
    second part, through :math:`a`, which is no part of the score and does not vanish on
    average; for a Gaussian it cancels the gradient of the mean altogether. Give
    :math:`log π` of `jax.lax.stop_gradient(a)`.

    Args:
        log_prob_t: Log-probabilities, or log-densities, of the actions taken,
            :math:`log π(a_t)`, shape `[T]`.
        adv_t: Advantages :math:`Â_t` of those actions, shape `[T]`.
        w_t: Weight of each step; 0 leaves it out of the sum, though not out of the
            count :math:`T`, shape `[T]`.
        use_stop_gradient: Whether to hold the advantages constant under
            differentiation.

    Returns:
        Loss, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype.

    Example:
        >>> log_prob_t, adv_t = jnp.array([-1.0, -2.0]), jnp.array([1.0, 2.0])
        >>> print(rlaxlib.score_function_loss(log_prob_t, adv_t, jnp.ones(2)))
        2.5

    References:
        Ronald J. Williams, *Simple Statistical Gradient-Following Algorithms for
        Connectionist Reinforcement Learning*, 1992. https://doi.org/10.1007/BF00992696

        John Schulman, Nicolas Heess, Theophane Weber and Pieter Abbeel, *Gradient
        Estimation Using Stochastic Computation Graphs*, 2015.
        https://arxiv.org/abs/1506.05254
    """
    log_prob_t, adv_t, w_t = checks.arrays(
        log_prob_t=(log_prob_t, "float[T]"),
        adv_t=(adv_t, "float[T]"),
        w_t=(w_t, "float[T]"),
    )
    (log_prob_t, adv_t, w_t), narrow = dtypes.widen(log_prob_t, adv_t, w_t)
    return narrow(_score(log_prob_t, adv_t, w_t, use_stop_gradient))


def entropy_loss(
    logits_t: ArrayLike, w_t: ArrayLike, *, mask: ArrayLike | None = None
) -> Array:
    """Reward a policy for being undecided.

    .. math::

        L = (1/T) ∑_t w_t ∑_a π_t(a) log π_t(a),   π_t = softmax(logits_t).

    That is the entropy with a minus sign: minimised, with a small coefficient, beside
    a policy gradient, it keeps the policy from settling too soon.

    Args:
        logits_t: Logits of the policy, shape `[T, A]`.
        w_t: Weight of each step; 0 leaves it out of the sum, though not out of the
            count :math:`T`, shape `[T]`.
        mask: True where an action is legal, shape `[T, A]`; or None if all are.

    Returns:
        Loss, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype.

    Example:
        >>> loss = rlaxlib.entropy_loss(jnp.zeros((1, 4)), jnp.ones(1))
        >>> print(loss.round(4), -jnp.log(4.0).round(4))
        -1.3863 -1.3863

    References:
        Ronald J. Williams and Jing Peng, *Function Optimization Using Connectionist
        Reinforcement Learning Algorithms*, 1991.
        https://doi.org/10.1080/09540099108946587
    """
    logits_t, w_t, mask = checks.arrays(
        logits_t=(logits_t, "float[T, A]"),
        w_t=(w_t, "float[T]"),
        mask=(mask, "bool[T, A] or None"),
    )
    (logits_t, w_t), narrow = dtypes.widen(logits_t, w_t)
    entropy_t = distributions.softmax().entropy(logits_t, mask=mask)
    return narrow(-jnp.mean(w_t * entropy_t))


def clipped_surrogate_pg_loss(
    prob_ratios_t: ArrayLike,
    adv_t: ArrayLike,
    epsilon: ArrayLike,
    use_stop_gradient: bool = True,
) -> Array:
    """Improve a policy on old experience, but not far from the old policy (PPO).

    .. math::

        L = -(1/T) ∑_t min(ρ_t Â_t, clip(ρ_t, 1 - ε, 1 + ε) Â_t)

    The minimum takes away what could be gained by moving a ratio further than
    :math:`ε`, and nothing else: where a step made things worse, the gradient to undo it
    remains. Nothing is said of a step without advantage, even where its ratio has
    overflowed: its loss is 0, and so is its gradient.

    Args:
        prob_ratios_t: Ratios :math:`ρ_t` of the probability of each action taken under
            the policy to that under the one that took it, shape `[T]`.
        adv_t: Advantages :math:`Â_t` of those actions, shape `[T]`.
        epsilon: How far a ratio may gain, at least 0, shape `[]`.
        use_stop_gradient: Whether to hold the advantages constant under
            differentiation.

    Returns:
        Loss, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if `epsilon` is
            negative.

    Example:
        >>> ratios_t, adv_t = jnp.array([2.0, 0.5]), jnp.array([1.0, 1.0])
        >>> print(rlaxlib.clipped_surrogate_pg_loss(ratios_t, adv_t, epsilon=0.5))
        -1.0

    References:
        John Schulman, Filip Wolski, Prafulla Dhariwal, Alec Radford and Oleg Klimov,
        *Proximal Policy Optimization Algorithms*, 2017.
        https://arxiv.org/abs/1707.06347
    """
    prob_ratios_t, adv_t, epsilon = checks.arrays(
        prob_ratios_t=(prob_ratios_t, "float[T]"),
        adv_t=(adv_t, "float[T]"),
        epsilon=(epsilon, "float[]"),
    )
    checks.within("[0, inf)", epsilon=epsilon)
    (ratio, adv_t, epsilon), narrow = dtypes.widen(prob_ratios_t, adv_t, epsilon)
    adv_t = gradients.stop_if(use_stop_gradient, adv_t)
    objective = _ratios.clipped_objective(ratio, adv_t, 1 - epsilon, 1 + epsilon)
    return narrow(-sums.mean_over_last(objective))


def qpg_loss(
    logits_t: ArrayLike,
    q_t: ArrayLike,
    use_stop_gradient: bool = True,
    *,
    mask: ArrayLike | None = None,
) -> Array:
    """Follow the policy gradient of all actions at once (QPG).

    .. math::

        L = -(1/T) ∑_t ∑_a π_t(a) (q_t(a) - ∑_b π_t(b) q_t(b))

    The sum over actions has no variance from the choice of one. The baseline, the inner
    sum, is always constant under differentiation: were it not, it would cancel the
    rest. So the value of the loss is 0, and only its gradient has a meaning.

    Args:
        logits_t: Logits of the policy, shape `[T, A]`.
        q_t: Action values, shape `[T, A]`.
        use_stop_gradient: Whether to hold the action values constant under
            differentiation. If not, they get the gradient :math:`-π_t/T`.
        mask: True where an action is legal, shape `[T, A]`; or None if all are.

    Returns:
        Loss, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype.

    Example:
        >>> logits_t, q_t = jnp.zeros((1, 2)), jnp.array([[1.0, 3.0]])
        >>> print(jax.grad(rlaxlib.qpg_loss)(logits_t, q_t))
        [[ 0.5 -0.5]]

    References:
        Sriram Srinivasan, Marc Lanctot, Vinicius Zambaldi, Julien Pérolat, Karl Tuyls,
        Rémi Munos and Michael Bowling, *Actor-Critic Policy Optimization in Partially
        Observable Multiagent Environments*, 2018. https://arxiv.org/abs/1810.09026
    """
    logits_t, q_t, mask = checks.arrays(
        logits_t=(logits_t, "float[T, A]"),
        q_t=(q_t, "float[T, A]"),
        mask=(mask, "bool[T, A] or None"),
    )
    (logits_t, q_t), narrow = dtypes.widen(logits_t, q_t)
    q_t = gradients.stop_if(use_stop_gradient, q_t)
    pi_t, q_t = _policy(logits_t, q_t, mask)
    baseline_t = jax.lax.stop_gradient(_expected(pi_t, q_t))
    return narrow(-jnp.mean(jnp.sum(pi_t * (q_t - baseline_t), axis=-1)))


def rm_loss(
    logits_t: ArrayLike,
    q_t: ArrayLike,
    use_stop_gradient: bool = True,
    *,
    mask: ArrayLike | None = None,
) -> Array:
    """Follow the policy gradient of the actions better than average (RMPG).

    .. math::

        L = -(1/T) ∑_t ∑_a π_t(a) [q_t(a) - ∑_b π_t(b) q_t(b)]⁺

    As regret matching does, it plays what one regrets not having played, and lets what
    was worse than average alone.

    Args:
        logits_t: Logits of the policy, shape `[T, A]`.
        q_t: Action values, shape `[T, A]`.
        use_stop_gradient: Whether to hold the regrets, the terms in brackets, constant
            under differentiation.
        mask: True where an action is legal, shape `[T, A]`; or None if all are.

    Returns:
        Loss, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype.

    Example:
        >>> logits_t, q_t = jnp.zeros((1, 2)), jnp.array([[1.0, 3.0]])
        >>> print(rlaxlib.rm_loss(logits_t, q_t))
        -0.5

    References:
        Sriram Srinivasan, Marc Lanctot, Vinicius Zambaldi, Julien Pérolat, Karl Tuyls,
        Rémi Munos and Michael Bowling, *Actor-Critic Policy Optimization in Partially
        Observable Multiagent Environments*, 2018. https://arxiv.org/abs/1810.09026
    """
    logits_t, q_t, mask = checks.arrays(
        logits_t=(logits_t, "float[T, A]"),
        q_t=(q_t, "float[T, A]"),
        mask=(mask, "bool[T, A] or None"),
    )
    (logits_t, q_t), narrow = dtypes.widen(logits_t, q_t)
    pi_t, q_t = _policy(logits_t, q_t, mask)
    regret_t = gradients.stop_if(use_stop_gradient, _regrets(pi_t, q_t))
    return narrow(-jnp.mean(jnp.sum(pi_t * regret_t, axis=-1)))


def rpg_loss(
    logits_t: ArrayLike,
    q_t: ArrayLike,
    use_stop_gradient: bool = True,
    *,
    mask: ArrayLike | None = None,
) -> Array:
    """Lower the sum of all regrets (RPG).

    .. math::

        L = (1/T) ∑_t ∑_a [q_t(a) - ∑_b π_t(b) q_t(b)]⁺

    The policy is in the baseline: raising it lowers every regret.

    Args:
        logits_t: Logits of the policy, shape `[T, A]`.
        q_t: Action values, shape `[T, A]`.
        use_stop_gradient: Whether to hold the action values constant under
            differentiation.
        mask: True where an action is legal, shape `[T, A]`; or None if all are.

    Returns:
        Loss, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype.

    Example:
        >>> logits_t, q_t = jnp.zeros((1, 2)), jnp.array([[1.0, 3.0]])
        >>> print(rlaxlib.rpg_loss(logits_t, q_t))
        1.0

    References:
        Sriram Srinivasan, Marc Lanctot, Vinicius Zambaldi, Julien Pérolat, Karl Tuyls,
        Rémi Munos and Michael Bowling, *Actor-Critic Policy Optimization in Partially
        Observable Multiagent Environments*, 2018. https://arxiv.org/abs/1810.09026
    """
    logits_t, q_t, mask = checks.arrays(
        logits_t=(logits_t, "float[T, A]"),
        q_t=(q_t, "float[T, A]"),
        mask=(mask, "bool[T, A] or None"),
    )
    (logits_t, q_t), narrow = dtypes.widen(logits_t, q_t)
    q_t = gradients.stop_if(use_stop_gradient, q_t)
    pi_t, legal_q_t = _policy(logits_t, q_t, mask)
    regret_t = _regrets(pi_t, legal_q_t)
    if mask is not None:
        regret_t = jnp.where(mask, regret_t, jnp.zeros_like(regret_t))
    return narrow(jnp.mean(jnp.sum(regret_t, axis=-1)))


def dpg_loss(
    a_t: ArrayLike,
    dqda_t: ArrayLike,
    dqda_clipping: ArrayLike | None = None,
    use_stop_gradient: bool = True,
) -> Array:
    """Move an action up the slope of its value (deterministic policy gradient).

    .. math::

        L_i = ½ ((a_i + g_i) - a_i)²,   g = ∇_a q(a),

    with the target in the inner brackets constant under differentiation, so that the
    gradient with respect to the action is :math:`-g`, exactly.

    Args:
        a_t: Action that the policy chose, of D dimensions, shape `[D]`.
        dqda_t: Gradient :math:`g` of the value at this action, shape `[D]`.
        dqda_clipping: Largest Euclidean norm of :math:`g`, at least 0: a longer one is
            shortened, shape `[]`; or None to leave it as it is.
        use_stop_gradient: Whether to hold the target constant under differentiation.

    Returns:
        Loss of each dimension, to be summed, shape `[D]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if
            `dqda_clipping` is negative.

    Example:
        >>> a_t, dqda_t = jnp.array([1.0, 1.0]), jnp.array([3.0, 4.0])
        >>> print(rlaxlib.dpg_loss(a_t, dqda_t))
        [4.5 8. ]

    References:
        David Silver, Guy Lever, Nicolas Heess, Thomas Degris, Daan Wierstra and Martin
        Riedmiller, *Deterministic Policy Gradient Algorithms*, 2014.
        https://proceedings.mlr.press/v32/silver14.html

        Timothy P. Lillicrap and others, *Continuous Control with Deep Reinforcement
        Learning*, 2015. https://arxiv.org/abs/1509.02971
    """
    a_t, dqda_t, dqda_clipping = checks.arrays(
        a_t=(a_t, "float[D]"),
        dqda_t=(dqda_t, "float[D]"),
        dqda_clipping=(dqda_clipping, "float[] or None"),
    )
    checks.within("[0, inf]", dqda_clipping=dqda_clipping)
    (a_t, dqda_t, dqda_clipping), narrow = dtypes.widen(a_t, dqda_t, dqda_clipping)
    if dqda_clipping is not None:
        dqda_t = _lengths.shorten(dqda_t, dqda_clipping)
    error = gradients.correction(dqda_t, a_t, use_stop_gradient)
    if dqda_clipping is None:
        return narrow(_half_square(error))
    return narrow(0.5 * jnp.square(error))  # There is enough to do for each as it is.


def _half_square_change(change: Array, y: Array, x: Array) -> Array:
    del y
    return jnp.where(x < 0, -change, change) * jnp.where(x < 0, -x, x)


@derivatives.derived_by(_half_square_change)
def _half_square(x: Array) -> Array:
    """Return half the square, the sign apart, which changes no number.

    With less to do for each, LLVM unrolls a loop over 25 to 40 into single numbers,
    which takes up to one and a half times as long.
    """
    size = jnp.where(x < 0, -x, x)
    return 0.5 * size * size


def _score(log_prob: Array, advantage: Array, weight: Array, stop: ArrayLike) -> Array:
    """Average the weighted log-probabilities, with a minus sign."""
    advantage = gradients.stop_if(stop, advantage)
    return -jnp.mean(_reweighting.weighted(log_prob, weight * advantage))


def _policy(logits: Array, q: Array, mask: Array | None) -> tuple[Array, Array]:
    """Return the probabilities of actions, and their values, 0 where illegal."""
    pi = distributions.softmax().probs(logits, mask=mask)
    return pi, q if mask is None else jnp.where(mask, q, jnp.zeros_like(q))


def _expected(pi: Array, q: Array) -> Array:
    """Return the value expected of each step's policy, `[T, 1]`."""
    return jnp.sum(pi * q, axis=-1, keepdims=True)


def _regrets(pi: Array, q: Array) -> Array:
    """Return how much better than the policy each action is, if it is better."""
    return jax.nn.relu(q - _expected(pi, q))
