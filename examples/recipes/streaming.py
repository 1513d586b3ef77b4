"""Updates and losses of agents that learn from one transition at a time.

The functions take one transition with the fields of `value_based.py`, without a batch.
Discounts are 0 where the episode ended.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import rlaxlib


class Learner(NamedTuple):
    """Parameters, an eligibility trace like them, and its discount."""

    params: Any
    trace: Any
    discount: Any = 0.0


def stream_q(learner, apply, step, lambda_=0.8, kappa=2.0):
    """Stream Q(λ): an update of all parameters at each step, without replay.

    `apply` returns q, [A]. The trace is cut after actions that are not greedy, as in
    the code; Watkins's Q(λ) cuts it before them. After a time limit, set
    `learner.discount` to 0: the trace does not go on. Elsayed et al., 2024,
    https://arxiv.org/abs/2410.14606. Source:
    github.com/mohmdelsayed/streaming-drl@407dca7, stream_q.py and optim.py, the same
    update. Usual: λ 0.8, κ 2, step size 1, discount 0.99, LayerNorm, sparse
    initialisation (90%), standardised observations and scaled rewards.
    """
    params, trace, discount_tm1 = learner
    q_tm1, a = apply(params, step.s_tm1), step.a_tm1
    q_t = apply(params, step.s_t)
    td_error = rlaxlib.q_learning(q_tm1, a, step.r_t, step.discount_t, q_t)
    greedy = rlaxlib.watkins_trace(q_tm1[None], a[None])[0]
    gradient = jax.grad(lambda params: apply(params, step.s_tm1)[a])(params)
    trace = rlaxlib.eligibility_trace(trace, gradient, discount_tm1 * lambda_)
    change = td_error * rlaxlib.obgd_step_size(trace, td_error, kappa=kappa)
    params = jax.tree.map(lambda w, z: w + change * z, params, trace)
    return Learner(params, trace, step.discount_t * greedy)


def emphatic_td(params, state, apply, step, rho, lambda_=0.0, step_size=0.01):
    """Emphatic TD(λ): an off-policy update of state values, stable where TD is not.

    `apply` returns v, `state` is an `EmphaticTraceState`, and `rho` the importance
    ratio of the action. Sutton et al., 2016, https://arxiv.org/abs/1503.04269. Usual
    (none in the paper): a small step size, since the followon trace has a high
    variance.
    """
    v_tm1, gradient = jax.value_and_grad(apply)(params, step.s_tm1)
    td_error = rlaxlib.td_learning(
        v_tm1, step.r_t, step.discount_t, apply(params, step.s_t)
    )
    state = rlaxlib.emphatic_trace(state, gradient, rho, step.discount_t, lambda_)
    change = step_size * td_error
    return jax.tree.map(lambda w, z: w + change * z, params, state.trace), state


def tdc(params, apply, batch, method=rlaxlib.tdc_loss):
    """TDC: gradient TD of state values, off-policy, on a batch.

    `apply.value` and `apply.correction` return one number for each state; `rho`, [B],
    are importance ratios. Sutton et al., 2009, https://doi.org/10.1145/1553374.1553501.
    Usual (none in the paper): a larger step size for the correction.
    """
    v_tm1, v_t = (apply.value(params, s) for s in (batch.s_tm1, batch.s_t))
    h_tm1 = apply.correction(params, batch.s_tm1)
    inputs = v_tm1, h_tm1, batch.r_t, batch.discount_t, v_t
    return jnp.mean(jax.vmap(method)(*inputs, rho_tm1=batch.rho)[0])


def gtd2(params, apply, batch):
    """GTD2: as TDC, another stochastic gradient of the same objective.

    Sutton et al., 2009, https://doi.org/10.1145/1553374.1553501. Usual (none in the
    paper): those of `tdc`.
    """
    return tdc(params, apply, batch, rlaxlib.gtd2_loss)


def differential_td(params, reward_rate, apply, step, step_size=0.01, eta=0.1):
    """Differential TD: an update of state values and the average reward.

    Continuing tasks have no discount. `apply` returns v. Wan et al., 2021,
    https://arxiv.org/abs/2006.16318. Source:
    github.com/abhisheknaik96/average-reward-methods@ecfef0a,
    agents/prediction_agents.py. Usual: `eta` 0.125 to 2, step size 0.025 to 0.8 in
    tables.
    """
    v_tm1, gradient = jax.value_and_grad(apply)(params, step.s_tm1)
    v_t = apply(params, step.s_t)
    td_error = rlaxlib.td_learning(v_tm1, step.r_t - reward_rate, 1.0, v_t)
    change = step_size * td_error
    params = jax.tree.map(lambda w, x: w + change * x, params, gradient)
    return params, reward_rate + eta * change
