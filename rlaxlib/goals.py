"""Goal-conditioned reinforcement learning: hindsight goals, values and distances.

- `geometric_hindsight_indices`: goals at geometric distances in the future.
- `hiql_value_loss`: the value loss of HIQL and GCIVL.
- `quasimetric_distance`: interval quasimetric embeddings (IQE), as QRL uses them.
- `mrn_distance`: the distance of metric residual networks (MRN).

Uniform goals are those of `hindsight_indices`. Contrastive RL is
`categorical_cross_entropy` of the similarities of all pairs of a batch.
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp

from rlaxlib._core import safe, streams
from rlaxlib._core.gradients import stop_if
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Bool, Float, Int, Key

__all__ = [
    "geometric_hindsight_indices",
    "hiql_value_loss",
    "mrn_distance",
    "quasimetric_distance",
]


@checked
def geometric_hindsight_indices(
    key: Key[ArrayLike, ""],
    discount_t: Float[ArrayLike, "T in [-1, 1]"],
    discount: Float[ArrayLike, "in [0, 1]"],
    kind: Literal["final", "renormalize"] = "final",
    *,
    truncated_t: Bool[ArrayLike, "T"] | None = None,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
) -> Int[Array, "T"]:
    """Sample hindsight goals at geometric distances for each time step.

    Takes one stream, returns one index for each time step.

    ::

        g_t = achieved_{i_t},   i_t = t + k,   P(k) ∝ γ^k
        i_t ≤ e_t

    Here :math:`e_t` is the last step of the episode of step :math:`t`, which ends by
    termination, by truncation or with the stream. Distances beyond it become those of
    the final goal, as in OGBench, or are not sampled, as in contrastive RL. Such goals
    follow the discounted distribution of future states, which contrastive RL estimates.

    An index refers to the goals achieved after a step, which have the index of `r_t`,
    as that of `hindsight_indices`.

    Args:
        discount: Factor :math:`γ` in [0, 1], such as the discount of the agent,
            shape `[]`.
        kind: What becomes of distances beyond the episode: `"final"` or
            `"renormalize"`.
        Other arguments: as `hindsight_indices`.

    Returns:
        Index :math:`i_t` of the goal of each step, shape `[T]`; its own where masked.

    Raises:
        ArgumentError: If a shape, dtype, option or concrete `discount` is wrong.

    Example:
        >>> discount_t = jnp.array([0.9, 0.9, 0.0, 0.9, 0.0])
        >>> key = jax.random.key(0)
        >>> print(rlaxlib.geometric_hindsight_indices(key, discount_t, discount=0.0))
        [0 1 2 3 4]

    References:
        Benjamin Eysenbach and others, *Contrastive Learning as Goal-Conditioned
        Reinforcement Learning*, 2022. https://arxiv.org/abs/2206.07568

        Seohong Park and others, *OGBench: Benchmarking Offline Goal-Conditioned RL*,
        2024. https://arxiv.org/abs/2410.20092
    """
    number, last, _ = streams.segments(discount_t, truncated_t, sample_mask)
    left = last - number
    u = jax.random.uniform(key, left.shape, discount_t.dtype)
    # The logarithm of 1 is 0, and distances divided by it would be NaN.
    largest = 1 - float(jnp.finfo(discount.dtype).epsneg)
    log_gamma = jnp.log(jnp.minimum(discount, largest))
    if kind == "renormalize":
        u = u * -jnp.expm1((left + 1).astype(u.dtype) * log_gamma)
    # The inverse of the distribution function, 1 - γ^(k+1).
    distance = jnp.floor(jnp.log1p(-u) / log_gamma)
    distance = jnp.minimum(distance, left.astype(u.dtype)).astype(number.dtype)
    return streams.step_of(number + distance, sample_mask)


@checked
def hiql_value_loss(
    v: Float[ArrayLike, "..."],
    targets: Float[ArrayLike, "..."],
    adv: Float[ArrayLike, "..."],
    expectile: Float[ArrayLike, "in [0, 1]"] = 0.9,
    *,
    stop_target_gradients: bool = True,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "..."]:
    """Compute an expectile loss weighted by the sign of an advantage (HIQL, GCIVL).

    Takes values of any shape, returns one loss for each.

    ::

        L = |τ - 1[A < 0]| (y - v)²

    It is an implicit Q-learning without actions. Each of two critics has the target of
    its own target network, :math:`y = r + γ v'`, and both the same advantage,
    :math:`A = r + γ min_i v'_i - (v'_1(s) + v'_2(s))/2`, of the target networks alone:
    then the critics do not disagree about which transitions are good. With
    :math:`A = y - v` this is `expectile_loss`, as in IQL.

    Args:
        v: Values :math:`v`, shape `[...]`.
        targets: Targets :math:`y`, shape `[...]`.
        adv: Advantages :math:`A`, shape `[...]`.
        expectile: Expectile :math:`τ` in [0, 1], 0.7 to 0.9, shape `[]`.
        stop_target_gradients: Whether to stop the gradient of `targets`. That of `adv`
            is always stopped.
        sample_mask: False for entries to ignore, shape `[...]`; or None.

    Returns:
        Losses, shape `[...]`, 0 where masked.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> v, targets, adv = jnp.array([[0.0, 0.0], [2.0, 2.0], [1.0, -1.0]])
        >>> print(rlaxlib.hiql_value_loss(v, targets, adv, expectile=0.75))
        [3. 1.]

    References:
        Seohong Park and others, *HIQL: Offline Goal-Conditioned RL with Latent States
        as Actions*, 2023. https://arxiv.org/abs/2307.11949

        Seohong Park and others, *OGBench: Benchmarking Offline Goal-Conditioned RL*,
        2024. https://arxiv.org/abs/2410.20092
    """
    weight = jnp.where(adv < 0, 1 - expectile, expectile)
    error = stop_if(stop_target_gradients, targets) - v
    return weight * jnp.square(error)


@checked
def quasimetric_distance(
    embedding: Float[ArrayLike, "K, D"],
    goal_embedding: Float[ArrayLike, "K, D"],
    mix: Float[ArrayLike, "in [0, 1]"] = 0.5,
) -> Float[Array, ""]:
    """Compute the distance of interval quasimetric embeddings (IQE, QRL).

    Takes the embeddings of a state and of a goal, returns one distance.

    ::

        d = α max_k d_k + (1 - α) (1/K) ∑_k d_k
        d_k = |⋃_i [x_{k,i}, max(x_{k,i}, y_{k,i})]|

    The distance obeys the triangle inequality, and need not be symmetric: it can be the
    number of steps from a state to a goal. Its negation is a value function. Each
    component :math:`d_k` is the length of a union of :math:`D` intervals, 8 or more.

    Args:
        embedding: Embedding :math:`x` of the state, shape `[K, D]`.
        goal_embedding: Embedding :math:`y` of the goal, shape `[K, D]`.
        mix: Weight :math:`α` of the largest component, in [0, 1], usually the sigmoid
            of a parameter, shape `[]`.

    Returns:
        Distance, shape `[]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete `mix` out of range.

    Example:
        >>> x, y = jnp.array([[[0.0, 1.0, 5.0]], [[2.0, 3.0, 4.0]]])
        >>> distance = rlaxlib.quasimetric_distance
        >>> print(distance(x, y), distance(y, x))
        3.0 1.0

    References:
        Tongzhou Wang and Phillip Isola, *Improved Representation of Asymmetrical
        Distances with Interval Quasimetric Embeddings*, 2022.
        https://arxiv.org/abs/2211.15120

        Tongzhou Wang and others, *Optimal Goal-Reaching Reinforcement Learning via
        Quasimetric Learning*, 2023. https://arxiv.org/abs/2304.01203
    """
    order = jnp.argsort(embedding, axis=-1)
    starts = jnp.take_along_axis(embedding, order, axis=-1)
    ends = jnp.take_along_axis(goal_embedding, order, axis=-1)
    # The part of each interval that is beyond all intervals that start before it.
    reach = jax.lax.cummax(jnp.maximum(starts, ends), axis=1)
    before = jnp.concatenate([starts[:, :1], reach[:, :-1]], axis=1)
    lengths = jax.nn.relu(ends - jnp.maximum(starts, before))
    components = jnp.sum(lengths, axis=1)
    mean, largest = jnp.mean(components), jnp.max(components)
    return mix * largest + (1 - mix) * mean


@checked
def mrn_distance(
    embedding: Float[ArrayLike, "D"],
    goal_embedding: Float[ArrayLike, "D"],
    residual: Float[ArrayLike, "K"],
    goal_residual: Float[ArrayLike, "K"],
) -> Float[Array, ""]:
    """Compute the distance of metric residual networks (MRN).

    Takes two embeddings of a state and two of a goal, returns one distance.

    ::

        d = ‖x - y‖ + max_k max(0, u_k - w_k)

    It is a quasimetric, as `quasimetric_distance` is: a symmetric distance, and an
    asymmetric residual. The halves of one output of a network are its embeddings
    :math:`x` and :math:`u`. The paper has the mean square in place of the norm, which
    violates the triangle inequality.

    Args:
        embedding: Embedding :math:`x` of the state, shape `[D]`.
        goal_embedding: Embedding :math:`y` of the goal, shape `[D]`.
        residual: Embedding :math:`u` of the state for the residual, shape `[K]`.
        goal_residual: Embedding :math:`w` of the goal for the residual, shape `[K]`.

    Returns:
        Distance, shape `[]`. The norm has no gradient where it is 0.

    Raises:
        ArgumentError: If a shape or dtype is wrong.

    Example:
        >>> x, y = jnp.array([[3.0, 4.0], [0.0, 0.0]])
        >>> u, w = jnp.array([[2.0, 0.0], [1.0, 7.0]])
        >>> distance = rlaxlib.mrn_distance
        >>> print(distance(x, y, u, w), distance(y, x, w, u))
        6.0 12.0

    References:
        Bo Liu and others, *Metric Residual Networks for Sample Efficient
        Goal-Conditioned Reinforcement Learning*, 2022.
        https://arxiv.org/abs/2208.08133

        Tongzhou Wang and Phillip Isola, *Improved Representation of Asymmetrical
        Distances with Interval Quasimetric Embeddings*, appendix C.2, 2022.
        https://arxiv.org/abs/2211.15120
    """
    distance = safe.norm(embedding - goal_embedding)
    far = jnp.max(residual - goal_residual)
    return distance + jax.nn.relu(far)
