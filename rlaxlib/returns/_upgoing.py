"""Estimate returns that follow a trajectory as long as it does well (UPGO)."""

from __future__ import annotations

from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import checks, streams
from rlaxlib.returns._multistep import lambda_returns

__all__ = ["upgo_returns"]


def upgo_returns(
    v_tm1: ArrayLike,
    v_t: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    *,
    truncated_t: ArrayLike | None = None,
    sample_mask: ArrayLike | None = None,
    stop_target_gradients: bool = False,
) -> Array:
    """Follow a trajectory as long as it does no worse than expected (UPGO).

    .. math::

        G_t = r_{t+1} + γ_{t+1} { G_{t+1}    if r_{t+2} + γ_{t+2} v'_{t+2} ≥ v_{t+1}
                                { v'_{t+1}   otherwise
        G_{T-1} = r_T + γ_T v'_T,

    where :math:`v_t` is the value of a state as it was acted in, and :math:`v'_t` as it
    was arrived at: the two are one unless the environment was reset in between.

    Where the next action did worse than the value of its state, the value stands for
    all that follows. So an action is credited with what good play makes of it, and is
    not blamed for a blunder later on: a form of imitating oneself. These are
    `lambda_returns` with a λ of 1 where the next error is not negative, and of 0 where
    it is.

    In AlphaStar the advantage is :math:`ρ_t (G_t - v_t)`, with :math:`ρ_t` the
    importance ratio of the action, clipped at 1, and there is no discount. Some
    implementations have none at all; here each step has its own.

    Args:
        v_tm1: Values of the states acted in, :math:`v_0, …, v_{T-1}`, shape `[T]`.
        v_t: Values of the true next observations, before any reset,
            :math:`v'_1, …, v'_T`, shape `[T]`.
        r_t: Rewards :math:`r_1, …, r_T`, shape `[T]`.
        discount_t: Discounts :math:`γ_1, …, γ_T`, each in [0, 1], and 0 where the
            episode terminated, shape `[T]`.
        truncated_t: True where the stream was cut after this step although the episode
            had not ended, shape `[T]`; or None if it was cut nowhere. The return then
            bootstraps from `v_t` of this row, the value of the true next observation.
        sample_mask: False where a row is no decision of the agent, such as padding,
            shape `[T]`; or None if all are. The return there is 0, and that of the
            others is as if the row were not there.
        stop_target_gradients: Whether to hold the returns constant under
            differentiation.

    Returns:
        Returns :math:`G_0, …, G_{T-1}`, shape `[T]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype.

    Example:
        The second step is worse than expected, and does not count against the first;
        the third is better:

        >>> v_tm1, v_t = jnp.array([0.0, 4.0, 2.0]), jnp.array([4.0, 2.0, 8.0])
        >>> r_t, discount_t = jnp.array([1.0, 1.0, 1.0]), jnp.array([0.5, 0.5, 0.5])
        >>> print(rlaxlib.upgo_returns(v_tm1, v_t, r_t, discount_t))
        [3.  3.5 5. ]

    References:
        Oriol Vinyals and others, *Grandmaster Level in StarCraft II Using Multi-Agent
        Reinforcement Learning*, Nature 575, 2019.
        https://doi.org/10.1038/s41586-019-1724-z
    """
    v_tm1, v_t, r_t, discount_t, truncated_t, sample_mask, narrow = checks.widened(
        v_tm1=(v_tm1, "float[T]"),
        v_t=(v_t, "float[T]"),
        r_t=(r_t, "float[T]"),
        discount_t=(discount_t, "float[T]"),
        truncated_t=(truncated_t, "bool[T] or None"),
        sample_mask=(sample_mask, "bool[T] or None"),
    )
    does_well = (r_t + (discount_t * v_t - v_tm1) >= 0).astype(r_t.dtype)
    returns = lambda_returns(
        r_t,
        discount_t,
        v_t,
        streams.at_next_valid(does_well, truncated_t, sample_mask),
        stop_target_gradients,
        truncated_t=truncated_t,
        sample_mask=sample_mask,
    )
    return narrow(returns)
