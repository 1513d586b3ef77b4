"""A hundred mistakes, and what the error of each says."""

import jax
import numpy as np
from foreign import Tensor, TorchTensor, Variable

import rlaxlib as r

B, T, A = 3, 5, 2
KEY, LEGACY = jax.random.key(0), jax.random.PRNGKey(0)
LEVELS = np.linspace(0, 1, 7, dtype=np.float32)
DISCOUNT = "γ * (1 - terminated)"

PENALTY = r.LagrangePenalty(1.0, 0.1)
WITH_MASK = (
    "lambda r_t, discount_t, v_t, sample_mask: rlaxlib.lambda_returns(r_t=r_t, "
    "discount_t=discount_t, v_t=v_t, sample_mask=sample_mask)"
)

gae, vtrace = r.generalized_advantage_estimation, r.vtrace_td_error_and_advantage
truncated_gae = r.truncated_generalized_advantage_estimation
softmax, gaussian = r.softmax(), r.gaussian_diagonal()


def x(*shape):
    return np.full(shape, 0.5, np.float32)


def ints(*shape):
    return np.zeros(shape, np.int32)


def mask(*shape):
    return np.ones(shape, bool)


def mapped(function):
    """Return a function that is mapped, with arguments by position."""
    return jax.vmap(function)


def fits(way):
    return f"`{way}` fits."


def tries(way):
    return f"Try `{way}`."


def batch(function, *axes):
    """Return the line about a batch, of which arguments have these axes."""
    first, *others = (f"in_axes={each}" for each in axes)
    other = "".join(f", or `{each}`" for each in others)
    return f"A batch fits `jax.vmap({function}, {first})`{other}."


def streams(function, *axes):
    """Return the line about a batch of streams, in both layouts."""
    swapped = tuple(None if each is None else 1 for each in axes)
    return batch(f"rlaxlib.{function}", axes, swapped)


# Mistakes: the call, the first line of the error, and the last line if there is one.
# Between them an error of a shape has a table.
SHAPES = {
    "a value head within vmap": (
        lambda: mapped(r.td_learning)(x(B, 1), x(B), x(B), x(B, 1)),
        "td_learning: `v_tm1` is float32[1], must be float[].",
        fits("v_tm1[..., 0]"),
    ),
    "values of [T, 1]": (
        lambda: r.lambda_returns(x(T), x(T), x(T, 1)),
        "lambda_returns: `v_t` is float32[5, 1], must be float[T], where T = 5 by "
        "`r_t`.",
        fits("v_t[..., 0]"),
    ),
    "a replay buffer of [B, 1]": (
        lambda: r.q_learning(x(B, A), ints(B, 1), x(B, 1), x(B, 1), x(B, A)),
        "q_learning: `q_tm1` is float32[3, 2], must be float[A].",
    ),
    "a value head without vmap": (
        lambda: r.td_learning(x(B, 1), x(B), x(B), x(B, 1)),
        "td_learning: `v_tm1` is float32[3, 1], must be float[].",
    ),
    "predictions of [B, 1]": (
        lambda: r.l2_loss(x(B, 1), x(B)),
        "l2_loss: `targets` is float32[3], must be float[...] or None, where ... = "
        "(3, 1) by `predictions`.",
    ),
    "targets of [B, 1]": (
        lambda: r.l2_loss(x(B), x(B, 1)),
        "l2_loss: `targets` is float32[3, 1], must be float[...] or None, where ..."
        " = (3,) by `predictions`.",
        fits("targets[..., 0]"),
    ),
    "a temperature that is a parameter": (
        lambda: r.soft_value(x(A), x(1)),
        "soft_value: `temperature` is float32[1], must be float[] in (0, inf).",
        fits("temperature[..., 0]"),
    ),
    "actions of [B, 1] and logits": (
        lambda: softmax.logprob(ints(B, 1), x(B, A)),
        "Softmax.log_prob: `sample` is int32[3, 1], must be int[...] or [N, ...] in"
        " [0, A), where ... = (3,) by `logits`.",
    ),
    "values and a reward of [1] each": (
        lambda: r.td_learning(x(1), x(1), x(1), x(1)),
        "td_learning: `v_tm1` is float32[1], must be float[].",
        batch("rlaxlib.td_learning", (0, 0, 0, 0)),
    ),
    "samples without their axis": (
        lambda: gaussian.logprob(x(B), x(B, 1), 1.0),
        "GaussianDiagonal.log_prob: `sample` is float32[3], must be float[..., D] "
        "or [N, ..., D], where ... = (3,) by `mu`, D = 1 by `mu`.",
    ),
    "T+1 values": (
        lambda: gae(r_t=x(T), discount_t=x(T), v_tm1=x(T + 1), v_t=x(T + 1), lambda_=1),
        "generalized_advantage_estimation: `r_t` is float32[5], must be float[T], "
        "where T = 6 by `v_tm1`.",
    ),
    "T+1 next values": (
        lambda: r.lambda_returns(x(T), x(T), x(T + 1)),
        "lambda_returns: `v_t` is float32[6], must be float[T], where T = 5 by `r_t`.",
        fits("v_t[1:]"),
    ),
    "T+1 values of a batch": (
        lambda: r.td_lambda(x(B, T + 1), x(B, T), x(B, T), x(B, T + 1), 0.9),
        "td_lambda: `v_tm1` is float32[3, 6], must be float[T].",
    ),
    "T values in place of T+1": (
        lambda: truncated_gae(x(T), x(T), 0.9, x(T)),
        "truncated_generalized_advantage_estimation: `values` is float32[5], must "
        "be float[T+1], where T = 5 by `r_t`.",
    ),
    "discounts of a step less": (
        lambda: r.upgo_returns(r_t=x(T), discount_t=x(4), v_tm1=x(T), v_t=x(T)),
        "upgo_returns: `discount_t` is float32[4], must be float[T] in [-1, 1], "
        "where T = 5 by `v_tm1`.",
    ),
    "rewards of a step more": (
        lambda: r.lambda_returns(x(T + 1), x(T), x(T)),
        "lambda_returns: `discount_t` is float32[5], must be float[T] in [-1, 1], "
        "where T = 6 by `r_t`.",
    ),
    "λ of another length": (
        lambda: r.lambda_returns(x(T), x(T), x(T), x(3)),
        "lambda_returns: `lambda_` is float32[3], must be float[] or [T] in [0, 1],"
        " where T = 5 by `r_t`.",
    ),
    "no steps": (
        lambda: r.lambda_returns(x(0), x(0), x(0)),
        "lambda_returns: `r_t` is float32[0], must be float[T] and not empty.",
    ),
    "γ as a number": (
        lambda: r.lambda_returns(x(T), 0.99, x(T)),
        "lambda_returns: `discount_t` is 0.99, must be float[T] in [-1, 1], where T "
        "= 5 by `r_t`.",
        fits(DISCOUNT),
    ),
    "γ as a number, in a batch": (
        lambda: r.lambda_returns(x(B, T), 0.99, x(B, T)),
        "lambda_returns: `r_t` is float32[3, 5], must be float[T].",
    ),
    "one reward for all steps, and λ of each step": (
        lambda: r.td_lambda(x(T), 1.0, x(T), x(T), x(T)),
        "td_lambda: `r_t` is 1.0, must be float[T], where T = 5 by `v_tm1`.",
    ),
    "fields of a state": (
        lambda: r.linucb_scores(
            r.linear_bandit_init(A)._replace(weights=x(A, A)), x(B, A), 1.0
        ),
        "linucb_scores: `state.weights` is float32[2, 2], must be float[D], where D"
        " = 2 by `contexts`.",
    ),
    "λ and values exchanged": (
        lambda: truncated_gae(x(T), x(T), x(T + 1), 0.9),
        "truncated_generalized_advantage_estimation: `values` is 0.9, must be "
        "float[T+1], where T = 5 by `r_t`.",
    ),
    "targets in the place of δ": (
        lambda: r.huber_loss(x(B), x(B)),
        "huber_loss: `delta` is float32[3], must be float[] in (0, inf).",
    ),
    "GAE of a batch": (
        lambda: gae(x(B, T), x(B, T), x(B, T), x(B, T), 0.9),
        "generalized_advantage_estimation: `v_tm1` is float32[3, 5], must be float[T].",
        streams("generalized_advantage_estimation", 0, 0, 0, 0, None),
    ),
    "λ-returns of one-step streams": (
        lambda: r.lambda_returns(x(B, 1), x(B, 1), x(B, 1)),
        "lambda_returns: `r_t` is float32[3, 1], must be float[T].",
        streams("lambda_returns", 0, 0, 0),
    ),
    "vectors of size 1, a batch of them": (
        lambda: r.tanh_normal_log_prob(x(B, 1), x(B, 1), x(B, 1)),
        "tanh_normal_log_prob: `pre_tanh` is float32[3, 1], must be float[D].",
        batch("rlaxlib.tanh_normal_log_prob", (0, 0, 0)),
    ),
    "V-trace of [T, B], by keyword": (
        lambda: vtrace(
            v_tm1=x(T, B), v_t=x(T, B), r_t=x(T, B), discount_t=x(T, B), rho_tm1=x(T, B)
        ),
        "vtrace_td_error_and_advantage: `v_tm1` is float32[5, 3], must be float[T].",
        streams("vtrace_td_error_and_advantage", 0, 0, 0, 0, 0),
    ),
    "a mask by keyword": (
        lambda: r.lambda_returns(x(B, T), x(B, T), x(B, T), sample_mask=mask(B, T)),
        "lambda_returns: `r_t` is float32[3, 5], must be float[T].",
        batch(WITH_MASK, (0, 0, 0, 0), (1, 1, 1, 1)),
    ),
    "DQN without vmap": (
        lambda: r.q_learning(x(B, A), ints(B), x(B), x(B), x(B, A)),
        "q_learning: `q_tm1` is float32[3, 2], must be float[A].",
        batch("rlaxlib.q_learning", (0, 0, 0, 0, 0)),
    ),
    "DQN of [B, T, A]": (
        lambda: r.q_learning(x(B, T, A), ints(B, T), x(B, T), x(B, T), x(B, T, A)),
        "q_learning: `q_tm1` is float32[3, 5, 2], must be float[A].",
    ),
    "DQN with one action for all": (
        lambda: r.q_learning(x(B, A), 0, 1.0, 0.9, x(B, A)),
        "q_learning: `q_tm1` is float32[3, 2], must be float[A].",
        batch("rlaxlib.q_learning", (0, None, None, None, 0)),
    ),
    "C51 shares its atoms": (
        lambda: r.categorical_q_learning(
            x(7), x(B, A, 7), ints(B), x(B), x(B), x(7), x(B, A, 7)
        ),
        "categorical_q_learning: `q_logits_tm1` is float32[3, 2, 7], must be "
        "float[A, K], where K = 7 by `q_atoms_tm1`.",
        batch("rlaxlib.categorical_q_learning", (None, 0, 0, 0, 0, None, 0)),
    ),
    "a batch shares the levels of its quantiles": (
        lambda: r.quantile_regression_loss(x(B, 7), LEVELS, x(B, 7)),
        "quantile_regression_loss: `dist_src` is float32[3, 7], must be float[N].",
        batch("rlaxlib.quantile_regression_loss", (0, None, 0)),
    ),
    "a batch shares a state that is read": (
        lambda: r.linucb_scores(r.linear_bandit_init(2), x(B, 4, 2), 1.0),
        "linucb_scores: `contexts` is float32[3, 4, 2], must be float[A, D].",
        batch("rlaxlib.linucb_scores", (None, 0, None)),
    ),
    "a batch of keys shares a state that is read": (
        lambda: r.linear_thompson_sample(
            jax.random.split(KEY, B), r.linear_bandit_init(2)
        ),
        "linear_thompson_sample: `key` is key<fry>[3], must be key[].",
        batch("rlaxlib.linear_thompson_sample", (0, None)),
    ),
    "a batch beside one state with counts": (
        lambda: r.ez_greedy(KEY, r.ez_greedy_init(), x(B, A), 0.1),
        "ez_greedy: `preferences` is float32[3, 2], must be float[A].",
    ),
    "values of critics": (
        lambda: r.ensemble_value(x(2, 4)),
        "ensemble_value: `q` is float32[2, 4], must be float[N].",
        streams("ensemble_value", 0),
    ),
    "quantiles of critics": (
        lambda: r.tqc_targets(x(2, 3, 5), 1),
        "tqc_targets: `dist_q_t` is float32[2, 3, 5], must be float[C, N].",
        streams("tqc_targets", 0, None),
    ),
    "quantiles and targets, both of as many": (
        lambda: r.quantile_regression_loss(x(7, 7), LEVELS, x(7, 7)),
        "quantile_regression_loss: `dist_src` is float32[7, 7], must be float[N].",
        batch("rlaxlib.quantile_regression_loss", (0, None, 0)),
    ),
    "one discount for a batch of transitions": (
        lambda: r.q_learning(x(B, A), ints(B), x(B), 0.9, x(B, A)),
        "q_learning: `q_tm1` is float32[3, 2], must be float[A].",
        batch("rlaxlib.q_learning", (0, 0, 0, None, 0)),
    ),
    "a column of priorities": (
        lambda: r.prioritized_probabilities(x(4, 1), 1.0),
        "prioritized_probabilities: `priorities` is float32[4, 1], must be float[N]"
        " in [0, inf).",
        streams("prioritized_probabilities", 0, None),
    ),
    "a batch of sequences with statistics": (
        lambda: r.gmpo_loss(x(T, B), x(T, B), x(B)),
        "gmpo_loss: `log_prob` is float32[5, 3], must be float[T].",
        batch("rlaxlib.gmpo_loss", (0, 0, None), (1, 1, 0)),
    ),
    "what may be a mean of a batch": (
        lambda: r.adaptive_kl_coefficient(1.0, x(B), 0.1),
        "adaptive_kl_coefficient: `kl` is float32[3], must be float[].",
    ),
    "a one-hot arm": (
        lambda: r.bandit_update(r.bandit_init(3), ints(3), 1.0),
        "bandit_update: `arm` is int32[3], must be int[] in [0, A).",
    ),
    "a batch shares its temperature": (
        lambda: r.soft_value(x(B, A), 0.5),
        "soft_value: `q` is float32[3, 2], must be float[A].",
        batch("rlaxlib.soft_value", (0, None)),
    ),
    "a batch with one key": (
        lambda: r.thompson_beta(KEY, x(B, A), x(B, A)),
        "thompson_beta: `counts` is float32[3, 2], must be real[A] in [0, inf).",
        batch("rlaxlib.thompson_beta", (0, 0, 0)),
    ),
    "a λ for each stream": (
        lambda: r.lambda_returns(x(B, T), x(B, T), x(B, T), x(B)),
        "lambda_returns: `r_t` is float32[3, 5], must be float[T].",
        batch("rlaxlib.lambda_returns", (0, 0, 0, 0), (1, 1, 1, None)),
    ),
    "a λ for each stream or step, as many": (
        lambda: r.lambda_returns(x(T, T), x(T, T), x(T, T), x(T)),
        "lambda_returns: `r_t` is float32[5, 5], must be float[T].",
        streams("lambda_returns", 0, 0, 0, None),
    ),
    "a discount for each stream or step, as many, beside T+1 features": (
        lambda: r.feature_control_rewards(x(T, T + 1, A), "potential", x(T)),
        "feature_control_rewards: `features` is float32[5, 6, 2], must be "
        "float[T+1, D].",
        batch("rlaxlib.feature_control_rewards", (0, None, None)),
    ),
    "some arguments of a batch": (
        lambda: r.lambda_returns(x(B, T), x(B, T), x(T)),
        "lambda_returns: `r_t` is float32[3, 5], must be float[T].",
        batch("rlaxlib.lambda_returns", (0, 0, None)),
    ),
    "a batch within vmap": (
        lambda: mapped(r.td_learning)(x(2, B), x(2, B), x(2, B), x(2, B)),
        "td_learning: `v_tm1` is float32[3], must be float[].",
        batch("rlaxlib.td_learning", (0, 0, 0, 0)),
    ),
    "logits for the temperature of a policy": (
        lambda: r.softmax(x(A)),
        "softmax: `temperature` is float32[2], must be float[] in (0, inf).",
    ),
    "twin critics of [B, 2]": (
        lambda: r.sac_critic_target(x(8), x(8), x(8, 2), x(8), 0.1),
        "sac_critic_target: `q_t` is float32[8, 2], must be float[...] or [N, ...],"
        " where ... = (8,) by `r_t`.",
    ),
    "trees of other shapes": (
        lambda: r.l2_init_loss({"w": x(2)}, {"w": x(3)}),
        "l2_init_loss: `initial_params['w']` is float32[3], must be float[...], "
        "where ... = (2,) by `params['w']`.",
    ),
    "next values of one step more, after an action": (
        lambda: r.sarsa_lambda(x(T, A), ints(T), x(T), x(T), x(T, A), ints(T + 1), 0.9),
        "sarsa_lambda: `a_t` is int32[6], must be int[T] in [0, A), where T = 5 by "
        "`q_tm1`.",
        fits("a_t[1:]"),
    ),
    "values of one step more": (
        lambda: r.vtrace(x(T + 1), x(T + 1), x(T), x(T), x(T)),
        "vtrace: `r_t` is float32[5], must be float[T], where T = 6 by `v_tm1`.",
    ),
}
# These have no table.
KINDS = {
    "done as the discount": (
        lambda: r.lambda_returns(x(T), mask(T), x(T)),
        "lambda_returns: `discount_t` is bool[5], must be float[T] in [-1, 1].",
        tries(DISCOUNT),
    ),
    "done as the discount of a step": (
        lambda: r.q_learning(x(A), 0, 1.0, True, x(A)),
        "q_learning: `discount_t` is True, must be float[] in [-1, 1].",
        tries(DISCOUNT),
    ),
    "done as integers": (
        lambda: r.lambda_returns(x(T), ints(T), x(T)),
        "lambda_returns: `discount_t` is int32[5], must be float[T] in [-1, 1].",
        tries(DISCOUNT),
    ),
    "rewards of integers": (
        lambda: r.lambda_returns(ints(T), x(T), x(T)),
        "lambda_returns: `r_t` is int32[5], must be float[T].",
        tries("r_t.astype(float)"),
    ),
    "traced rewards of integers": (
        lambda: jax.jit(lambda y: r.lambda_returns(y, x(T), x(T)))(ints(T)),
        "lambda_returns: `r_t` is int32[5], must be float[T].",
        tries("r_t.astype(float)"),
    ),
    "a reward that is an integer, and an action": (
        lambda: r.q_learning(x(A), 1, np.int32(1), 0.9, x(A)),
        "q_learning: `r_t` is int32[], must be float[].",
        tries("r_t.astype(float)"),
    ),
    "a list": (
        lambda: r.lambda_returns([0.5, 0.5], x(2), x(2)),
        "lambda_returns: `r_t` is [0.5, 0.5], must be float[T].",
        tries("jnp.asarray(r_t, float)"),
    ),
    "a list of integers": (
        lambda: r.lambda_returns([1, 2], x(2), x(2)),
        "lambda_returns: `r_t` is [1, 2], must be float[T].",
        tries("jnp.asarray(r_t, float)"),
    ),
    "a list of traced values": (
        lambda: jax.jit(lambda y: r.lambda_returns([y, y], x(2), x(2)))(0.5),
        "lambda_returns: `r_t` is [JitTracer(~float32[]), JitTracer(~float32[])], "
        "must be float[T].",
        tries("jnp.asarray(r_t, float)"),
    ),
    "a ragged list": (
        lambda: r.lambda_returns([[1.0], [1.0, 2.0]], x(2), x(2)),
        "lambda_returns: `r_t` is [[1.0], [1.0, 2.0]], must be float[T].",
    ),
    "one-hot actions": (
        lambda: r.q_learning(x(A), np.eye(A, dtype=np.float32)[0], 1.0, 0.9, x(A)),
        "q_learning: `a_tm1` is float32[2], must be int[] in [0, A).",
    ),
    "continuous actions": (
        lambda: r.q_learning(x(A), np.float32(0.3), 1.0, 0.9, x(A)),
        "q_learning: `a_tm1` is float32[], must be int[] in [0, A).",
    ),
    "None for what is needed": (
        lambda: r.lambda_returns(x(T), x(T), None),
        "lambda_returns: `v_t` is None, must be float[T].",
    ),
    "a string": (
        lambda: r.lambda_returns(x(T), x(T), x(T), "0.9"),
        "lambda_returns: `lambda_` is '0.9', must be float[] or [T] in [0, 1].",
    ),
    "complex values": (
        lambda: r.lambda_returns(x(T), x(T), x(T) * 1j),
        "lambda_returns: `v_t` is complex64[5], must be float[T].",
    ),
    "a result for one of its fields": (
        lambda: r.reinforce_loss(r.token_log_probs(x(T, A), ints(T)), x(T)),
        "reinforce_loss: `log_prob` is a `rlaxlib.TokenLogProbs`, must be float[...].",
    ),
    "a distribution for logits": (
        lambda: r.categorical_cross_entropy(x(A), softmax),
        "categorical_cross_entropy: `logits` is Softmax(temperature=1.0), must be "
        "float[..., A].",
    ),
    "parameters of integers": (
        lambda: r.l2_init_loss({"w": ints(2)}, {"w": ints(2)}),
        "l2_init_loss: `params['w']` is int32[2], must be float[...].",
    ),
    "an index before its values": (
        lambda: r.batched_index(ints(B), x(B, A)),
        "batched_index: `indices` is float32[3, 2], must be int[...] in [0, A).",
    ),
    "logits before a Python action": (
        lambda: softmax.log_prob(x(A), 1),
        "Softmax.log_prob: `sample` is float32[2], must be int[...] or [N, ...] in "
        "[0, A).",
    ),
    "two bounds for one": (
        lambda: r.clipped_surrogate_pg_loss(x(T), x(T), (0.8, 1.2)),
        "clipped_surrogate_pg_loss: `epsilon` is (0.8, 1.2), must be float[] in [0,"
        " inf].",
    ),
    "reward and action exchanged": (
        lambda: r.q_learning(x(A), 1.5, 1, 0.9, x(A)),
        "q_learning: `a_tm1` is 1.5, must be int[] in [0, A).",
    ),
    "logits before the key": (
        lambda: softmax.sample(x(A), KEY),
        "Softmax.sample: `key` is float32[2], must be key[].",
        tries("jax.random.key(0)"),
    ),
    "a mask in the place of a flag": (
        lambda: r.lambda_returns(x(T), x(T), x(T), 0.9, mask(T)),
        "lambda_returns: `stop_target_gradients` is bool[5], must be bool[]: pass "
        "`truncated_t` or `sample_mask` by keyword.",
    ),
    "floats in the place of a flag": (
        lambda: r.lambda_returns(x(T), x(T), x(T), 0.9, x(T)),
        "lambda_returns: `stop_target_gradients` is float32[5], must be bool[].",
    ),
    "a seed": (
        lambda: r.categorical_sample(0, x(A)),
        "categorical_sample: `key` is 0, must be key[].",
        tries("jax.random.key(0)"),
    ),
    "an array for n": (
        lambda: r.n_step_bootstrapped_returns(x(T), x(T), 3, x(T)),
        "n_step_bootstrapped_returns: `n` is float32[5], must be a Python integer.",
    ),
    "a percentage for ε": (
        lambda: r.epsilon_greedy(10).probs(x(A)),
        "epsilon_greedy: `epsilon` is 10, must be in [0, 1].",
    ),
    "a tensor of torch": (
        lambda: r.lambda_returns(x(T), x(T), TorchTensor(x(T))),
        "lambda_returns: `v_t` is a `foreign.TorchTensor`, must be float[T].",
        tries("v_t.detach().cpu().numpy()"),
    ),
    "a series": (
        lambda: r.lambda_returns(Tensor(x(T)), x(T), x(T)),
        "lambda_returns: `r_t` is a `foreign.Tensor`, must be float[T].",
        tries("jnp.asarray(r_t)"),
    ),
    "a variable": (
        lambda: r.l2_loss(Variable(x(T))),
        "l2_loss: `predictions` is a `foreign.Variable`, must be float[...].",
        tries("jnp.asarray(predictions)"),
    ),
    "big-endian rewards": (
        lambda: r.lambda_returns(x(T).astype(">f4"), x(T), x(T)),
        "lambda_returns: `r_t` is >f4[5], must be float[T].",
        tries("r_t.astype(float)"),
    ),
    "big-endian actions": (
        lambda: r.q_learning(x(A), np.array(0, ">i4"), 1.0, 0.9, x(A)),
        "q_learning: `a_tm1` is >i4[], must be int[] in [0, A).",
        tries("a_tm1.astype(int)"),
    ),
    "a masked array": (
        lambda: r.lambda_returns(np.ma.masked_array(x(T)), x(T), x(T)),
        "lambda_returns: `r_t` is a `numpy.MaskedArray`, must be float[T].",
        tries("r_t.filled(...)"),
    ),
    "a masked array, where there is no mask": (
        lambda: r.soft_value(np.ma.masked_array(x(A)), 0.5),
        "soft_value: `q` is a `numpy.MaskedArray`, must be float[A].",
        tries("q.filled(...)"),
    ),
    "a key for a float": (
        lambda: r.td_learning(jax.random.key(0), 1.0, 0.9, 1.0),
        "td_learning: `v_tm1` is key<fry>[], must be float[].",
    ),
    "an array of records": (
        lambda: r.huber_loss(np.zeros(2, [("a", "f4"), ("b", "f4")])),
        "huber_loss: `x` is [('a', '<f4'), ('b', '<f4')][2], must be float[...].",
    ),
    "long double": (
        lambda: r.lambda_returns(x(T).astype(np.longdouble), x(T), x(T)),
        "lambda_returns: `r_t` is float128[5], must be float[T].",
        tries("r_t.astype(float)"),
    ),
    "an array of strings": (
        lambda: r.one_hot(np.array(["a"]), 2),
        "one_hot: `indices` is <U1[1], must be int[...].",
    ),
    "counts and means, exchanged": (
        lambda: r.ucb_scores(x(A), ints(A)),
        "ucb_scores: `means` is int32[2], must be float[A].",
        tries("means.astype(float)"),
    ),
    "classes in place of labels": (
        lambda: r.categorical_cross_entropy(ints(B), x(B, A)),
        "categorical_cross_entropy: `labels` is int32[3], must be float[..., A] in "
        "[0, inf).",
    ),
    "logits without their sample": (
        lambda: r.softmax().log_prob(x(A)),
        "Softmax.log_prob() missing a required argument: 'logits': its arguments "
        "are (sample, logits, action_spec=None, *, action_mask=None)",
    ),
    "ε by place": (
        lambda: r.epsilon_greedy(x(A), 0.1),
        "epsilon_greedy() too many positional arguments: its arguments are "
        "(epsilon=None)",
    ),
    "targets and δ by place": (
        lambda: r.huber_loss(x(B), x(B), 1.0),
        "huber_loss() too many positional arguments: its arguments are (x, delta=1.0)",
    ),
    "a scale by place": (
        lambda: r.l2_loss(x(B), x(B), 0.5),
        "l2_loss() too many positional arguments: its arguments are (predictions, "
        "targets=None)",
    ),
    "too many arguments": (
        lambda: r.q_learning(x(A), 0, 1.0, 0.9, x(A), True, 0.5),
        "q_learning() too many positional arguments: its arguments are (q_tm1, "
        "a_tm1, r_t, discount_t, q_t, stop_target_gradients=True)",
    ),
    "a mask of integers": (
        lambda: r.masked_mean(x(T), mask=ints(T)),
        "masked_mean: `mask` is int32[5], must be bool[*M] or None.",
        tries("mask.astype(bool)"),
    ),
    "streams of lists": (
        lambda: r.lambda_returns([0.5, 0.5], [1.0, 1.0], [0.5, 0.5]),
        "lambda_returns: `r_t` is [0.5, 0.5], must be float[T].",
        tries("jnp.asarray(r_t, float)"),
    ),
    "a missing argument and a wrong dtype": (
        lambda: r.lambda_returns(ints(T), x(T)),
        "lambda_returns() missing a required argument: 'v_t': its arguments are "
        "(r_t, discount_t, v_t, lambda_=1.0, stop_target_gradients=False, *, "
        "truncated_t=None, sample_mask=None)",
    ),
    "a batch and a missing argument": (
        lambda: r.q_learning(x(B, A), ints(B), x(B)),
        "q_learning() missing a required argument: 'discount_t': its arguments are "
        "(q_tm1, a_tm1, r_t, discount_t, q_t, stop_target_gradients=True)",
    ),
    "an argument given twice": (
        lambda: r.lambda_returns(x(T), x(T), x(T), r_t=x(T)),
        "lambda_returns() multiple values for argument 'r_t': its arguments are "
        "(r_t, discount_t, v_t, lambda_=1.0, stop_target_gradients=False, *, "
        "truncated_t=None, sample_mask=None)",
    ),
    "γ by keyword": (
        lambda: r.lambda_returns(x(T), gamma=0.9, v_t=x(T)),
        "lambda_returns() got an unexpected keyword argument 'gamma': its arguments"
        " are (r_t, discount_t, v_t, lambda_=1.0, stop_target_gradients=False, *, "
        "truncated_t=None, sample_mask=None)",
    ),
    "a mask under another name": (
        lambda: r.lambda_returns(x(T), x(T), x(T), mask=mask(T)),
        "lambda_returns() got an unexpected keyword argument 'mask': its arguments "
        "are (r_t, discount_t, v_t, lambda_=1.0, stop_target_gradients=False, *, "
        "truncated_t=None, sample_mask=None)",
    ),
    "an integer that would wrap": (
        lambda: r.periodic_update(x(1), x(1), 2**32, 10),
        "periodic_update: `steps` is 4294967296, must fit into 32 bits: set "
        "`jax_enable_x64`.",
    ),
    "an action beyond the last": (
        lambda: r.q_learning(x(A), 2, 1.0, 0.9, x(A)),
        "q_learning: `a_tm1` is 2, must be in [0, 2).",
    ),
    "a negative bound": (
        lambda: r.huber_loss(x(B), -1.0),
        "huber_loss: `delta` is -1.0, must be in (0, inf).",
    ),
    "a rate above 1 at one step": (
        lambda: r.lambda_returns(x(2), np.float32([0.9, 1.1]), x(2)),
        "lambda_returns: `discount_t` is 1.100000023841858, must be in [-1, 1].",
    ),
    "a pair for a list of pairs": (
        lambda: r.mpo_loss(x(T), x(T), PENALTY, (1.0, PENALTY)),
        "mpo_loss: `kl_constraints[0]` is 1.0, must be a `tuple`.",
    ),
    "a tuple for a state": (
        lambda: r.bandit_update((x(A), x(A)), 0, 1.0),
        "bandit_update: `state` is (array([0.5, 0...dtype=float32), array([0.5, "
        "0...dtype=float32)), must be a `BanditState`.",
    ),
    "trees of other structures": (
        lambda: r.l2_init_loss({"w": x(2)}, {"v": x(2)}),
        "l2_init_loss: `params` and `initial_params` must have the same tree "
        "structure, but have PyTreeDef({'w': *}) and PyTreeDef({'v': *}).",
    ),
    "bins that do not increase": (
        lambda: r.twohot_pair(bins=np.float32([0.0, 2.0, 1.0])),
        "twohot_pair() got an unexpected keyword argument 'bins': its arguments are"
        " (min_value, max_value, num_bins)",
    ),
    "a seed of a batch": (
        lambda: r.softmax().sample(7, x(B, A)),
        "Softmax.sample: `key` is 7, must be key[].",
        tries("jax.random.key(0)"),
    ),
    "an option that is a number": (
        lambda: r.kl_loss(x(T), x(T), kind=3),
        'kl_loss: `kind` is 3, must be "k1" or "k2" or "k3" or "abs".',
    ),
    "a string for a flag": (
        lambda: r.q_learning(x(A), 0, 1.0, 0.9, x(A), "false"),
        "q_learning: `stop_target_gradients` is 'false', must be bool[].",
    ),
}
