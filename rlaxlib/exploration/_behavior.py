"""Exploratory behaviour: Ape-X's ε, εz-greedy, noisy networks, bootstrapped DQN."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from rlaxlib._core import checks, indexing, meshes, streams
from rlaxlib._core.gradients import td_error
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Bool, Float, Int, Key, Static

__all__ = [
    "EzGreedyState",
    "FactorizedNoise",
    "apex_epsilons",
    "bootstrapped_q_learning",
    "ez_greedy",
    "ez_greedy_init",
    "factorized_noise",
]


class EzGreedyState(NamedTuple):
    """The action that εz-greedy repeats.

    `ez_greedy_init` returns the first.

    Attributes:
        a: The action, in [0, A), shape `[]`.
        remaining: Number of further steps to repeat it, in [0, inf), shape `[]`.
    """

    a: Int[ArrayLike, "in [0, A)"]
    remaining: Int[ArrayLike, "in [0, inf)"]


class FactorizedNoise(NamedTuple):
    """Noise of a layer of a noisy network.

    Attributes:
        weight: Noise :math:`ε^w` of the weights, shape `[num_inputs, num_outputs]`.
        bias: Noise :math:`ε^b` of the biases, shape `[num_outputs]`.
    """

    weight: Float[Array, "num_inputs, num_outputs"]
    bias: Float[Array, "num_outputs"]


@checked
def apex_epsilons(
    num_actors: Static[int, "in [1, inf)"],
    base: Float[ArrayLike, "in [0, 1]"] = 0.4,
    exponent: Float[ArrayLike, "in [0, inf)"] = 7.0,
) -> Float[Array, "num_actors"]:
    """Compute the exploration rate of each actor of a distributed agent (Ape-X).

    Takes a number of actors, returns one exploration rate for each.

    ::

        ε_i = ε^{1 + α i/(n - 1)},   i = 0, …, n - 1

    Each actor acts by ε-greedy with a constant rate, a single actor with :math:`ε`.

    Args:
        num_actors: Number :math:`n` of actors, a Python integer in [1, inf).
        base: Largest rate :math:`ε`, in [0, 1], shape `[]`.
        exponent: Exponent :math:`α`, in [0, inf), shape `[]`.

    Returns:
        Rates :math:`ε_i`, in decreasing order, shape `[num_actors]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> print(rlaxlib.apex_epsilons(3, base=0.5, exponent=2.0))
        [0.5   0.25  0.125]

    References:
        Dan Horgan and others, *Distributed Prioritized Experience Replay*, section 4.1,
        2018. https://arxiv.org/abs/1803.00933
    """
    i = jnp.arange(num_actors, dtype=exponent.dtype)
    return base ** (1 + exponent * i / max(num_actors - 1, 1))


@checked
def ez_greedy_init() -> EzGreedyState:
    """Return the state of εz-greedy at the start of an episode.

    Takes nothing, returns a state.

    ::

        n = 0

    Returns:
        An `EzGreedyState` without steps that remain.

    Raises:
        ArgumentError: If there is an argument.

    Example:
        >>> print(rlaxlib.ez_greedy_init().remaining)
        0

    References:
        Will Dabney, Georg Ostrovski and André Barreto, *Temporally-Extended ε-Greedy
        Exploration*, section 4, 2020. https://arxiv.org/abs/2006.01782
    """
    return EzGreedyState(jnp.array(0), jnp.array(0))


@checked
def ez_greedy(
    key: Key[ArrayLike, ""],
    state: EzGreedyState,
    preferences: Float[ArrayLike, "A"],
    epsilon: Float[ArrayLike, "in [0, 1]"],
    duration_exponent: Float[ArrayLike, "in (0, inf)"] = 2.0,
    max_duration: Static[int, "in [1, inf)"] = 10_000,
    *,
    action_mask: Bool[ArrayLike, "A"] | None = None,
) -> tuple[Int[Array, ""], EzGreedyState]:
    """Sample an action by temporally extended ε-greedy exploration (εz-greedy).

    Takes one state, returns one action, and the action to repeat.

    ::

        a_t = { ω                     for n steps, with probability ε
              { argmax_a q(s_t, a)    otherwise

        ω ~ uniform,   p(n) ∝ n^{-μ},   n = 1, 2, …

    A random action is repeated for a duration from a truncated zeta distribution, whose
    long tail takes the agent far from where greedy actions lead. More than :math:`ε` of
    all actions are random. With a longest duration of 1 this is ε-greedy.

    Args:
        key: Random key, shape `[]`.
        state: The action to repeat, an `EzGreedyState`; `ez_greedy_init()` in each new
            episode.
        preferences: Action values :math:`q`, shape `[A]`.
        epsilon: Probability :math:`ε` to start a random action, in [0, 1], shape `[]`.
        duration_exponent: Exponent :math:`μ` of the durations, in (0, inf), shape `[]`.
        max_duration: Longest duration, a Python integer in [1, inf).
        action_mask: True for legal actions, shape `[A]`; or None. Others are not
            repeated.

    Returns:
        A tuple of two: the action, shape `[]`, and the next `EzGreedyState`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> state = rlaxlib.EzGreedyState(a=2, remaining=1)
        >>> q = jnp.array([0.0, 2.0, 1.0])
        >>> print(rlaxlib.ez_greedy(jax.random.key(0), state, q, epsilon=0.0)[0])
        2

    References:
        Will Dabney, Georg Ostrovski and André Barreto, *Temporally-Extended ε-Greedy
        Exploration*, section 4, 2020. https://arxiv.org/abs/2006.01782
    """
    held, remaining = state
    if preferences.size - 1 > jnp.iinfo(held.dtype).max:
        checks.fail(f"`state.a` is {held.dtype}, must hold {preferences.size} actions")
    legal = streams.filled(action_mask, preferences)
    of_start, of_duration, of_action = jax.random.split(key, 3)
    greedy = jnp.argmax(jnp.where(legal, preferences, -jnp.inf))
    drawn = jax.random.categorical(of_action, jnp.where(legal, 0.0, -jnp.inf))
    longest = min(max_duration, jnp.iinfo(remaining.dtype).max)
    duration = _sample_zeta(of_duration, duration_exponent, longest)
    duration = duration.astype(remaining.dtype)
    starts = jax.random.uniform(of_start, dtype=epsilon.dtype) < epsilon
    duration = jnp.where(starts, duration, 0)
    index = indexing.widened(held)
    is_held = jnp.arange(legal.size, dtype=index.dtype) == index
    anew = (remaining == 0) | ~jnp.any(legal & is_held)
    held = jnp.where(anew, drawn.astype(held.dtype), held)
    remaining = jnp.where(anew, duration, remaining)
    action = jnp.where(remaining > 0, held.astype(greedy.dtype), greedy)
    # An unsigned 0 minus 1 is the largest integer.
    remaining = jnp.where(remaining > 0, remaining - 1, 0)
    return action, EzGreedyState(held, remaining)


@checked
def factorized_noise(
    key: Key[ArrayLike, ""],
    num_inputs: Static[int, "in [1, inf)"],
    num_outputs: Static[int, "in [1, inf)"],
) -> FactorizedNoise:
    """Sample factorised Gaussian noise for a layer of a noisy network (NoisyNet).

    Takes the sizes of one layer, returns the noise of its weights and of its biases.

    ::

        ε^w_{ij} = f(ε_i) f(ε_j),   ε^b_j = f(ε_j),   f(x) = sign(x) √|x|

    with standard normal :math:`ε_i` for each input and :math:`ε_j` for each output. A
    layer computes :math:`(W + σ^w ε^w)ᵀ x + b + σ^b ε^b`, where products with :math:`ε`
    are elementwise. The paper initialises :math:`W` and :math:`b` uniformly in
    :math:`[-1/√n, 1/√n]` and :math:`σ` as :math:`0.5/√n`, for :math:`n` inputs. Sample
    new noise for each optimisation step, and for each action.

    Args:
        key: Random key, shape `[]`.
        num_inputs: Number of inputs, a Python integer in [1, inf).
        num_outputs: Number of outputs, a Python integer in [1, inf).

    Returns:
        A `FactorizedNoise`: `weight` :math:`ε^w` and `bias` :math:`ε^b`.

    Raises:
        ArgumentError: If `key` is not a single key, or a size is less than 1.

    Example:
        >>> noise = rlaxlib.factorized_noise(jax.random.key(0), 3, 2)
        >>> print(noise.weight.shape, noise.bias.shape)
        (3, 2) (2,)

    References:
        Meire Fortunato and others, *Noisy Networks for Exploration*, section 3, 2017.
        https://arxiv.org/abs/1706.10295
    """
    of_inputs, of_outputs = jax.random.split(key)
    inputs, outputs = (
        jnp.sign(x) * jnp.sqrt(jnp.abs(x))
        for x in (
            jax.random.normal(of_inputs, (num_inputs,)),
            jax.random.normal(of_outputs, (num_outputs,)),
        )
    )
    return FactorizedNoise(jnp.outer(inputs, outputs), outputs)


@checked
def bootstrapped_q_learning(
    q_tm1: Float[ArrayLike, "K, A"],
    a_tm1: Int[ArrayLike, "in [0, A)"],
    r_t: Float[ArrayLike, ""],
    discount_t: Float[ArrayLike, "in [-1, 1]"],
    q_t: Float[ArrayLike, "K, A"],
    head_mask: Bool[ArrayLike, "K"],
    *,
    stop_target_gradients: bool = True,
) -> Float[Array, "K"]:
    """Compute the masked Q-learning TD errors of all heads (bootstrapped DQN).

    Takes one transition, returns one TD error for each head.

    ::

        δ_k = m_k (r_t + γ_t max_a q_{k,t}(a) - q_{k,t-1}(a_{t-1}))

    Each head bootstraps from its own values. Store a mask with each transition, such as
    `jax.random.bernoulli(key, p, (K,))`: the disagreement of heads that learn from
    different data measures uncertainty. With :math:`p = 1`, often sufficient, heads
    differ only by their initial parameters. The agent follows one random head for a
    whole episode. The paper divides the gradient of the heads with respect to a
    shared network by :math:`K`: use `optax.scale_gradient`.

    Args:
        q_tm1: Action values of each head in the state, shape `[K, A]`.
        a_tm1: Action taken, in [0, A), shape `[]`.
        r_t: Reward, shape `[]`.
        discount_t: Discount in [-1, 1], 0 where the episode ended, shape `[]`.
        q_t: Action values of each head in the next state, shape `[K, A]`.
        head_mask: True for the heads that learn, shape `[K]`.
        stop_target_gradients: Whether to stop the gradient of the target.

    Returns:
        TD errors :math:`δ_k`, 0 for heads that do not learn, shape `[K]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> q_tm1, q_t = jnp.array([[1.0], [2.0]]), jnp.array([[4.0], [6.0]])
        >>> mask = jnp.array([True, False])
        >>> print(rlaxlib.bootstrapped_q_learning(q_tm1, 0, 1.0, 0.5, q_t, mask))
        [2. 0.]

    References:
        Ian Osband and others, *Deep Exploration via Bootstrapped DQN*, 2016.
        https://arxiv.org/abs/1602.04621
    """
    prediction = indexing.pick_slice(q_tm1, a_tm1, axis=1)
    v_t = jnp.max(q_t, axis=-1)
    errors = td_error(prediction, r_t, discount_t, v_t, stop_target_gradients)
    return jnp.where(head_mask, errors, 0)


def _sample_zeta(key: Array, mu: Array, largest: int) -> Array:
    """Sample from 1 to `largest` with probabilities in proportion to n^-μ."""
    cumulative = jnp.cumsum(jnp.arange(1, largest + 1, dtype=mu.dtype) ** -mu)
    point = jax.random.uniform(key, dtype=mu.dtype) * cumulative[-1]
    return jnp.minimum(meshes.search(cumulative, point) + 1, largest)
