"""Goal-conditioned reinforcement learning: values and distances of goals.

- `hiql_value_loss`: the value loss of HIQL and GCIVL.
- `quasimetric_distance`: interval quasimetric embeddings (IQE), as QRL uses them.
- `mrn_distance`: the distance of metric residual networks (MRN).

Goals are those of `hindsight_indices`. Contrastive RL is `categorical_cross_entropy` of
the similarities of all pairs of a batch.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rlaxlib._core import safe
from rlaxlib._core.gradients import stop_if
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Bool, Float

__all__ = [
    "hiql_value_loss",
    "mrn_distance",
    "quasimetric_distance",
]


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
