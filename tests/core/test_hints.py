"""Test what errors say of mistakes: each names the argument, and misleads nobody."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from foreign import Tensor, TorchTensor, Variable
from mistakes import (
    ANY_HINT,
    KEY,
    LAYOUTS,
    VMAP,
    A,
    B,
    T,
    assert_error,
    gae,
    gaussian,
    ints,
    mapped,
    mask,
    r,
    softmax,
    truncated_gae,
    x,
)

from rlaxlib._core import hints

# Mistakes: the call, the words that the error has, and those that it has not.
MISTAKES = {
    # --- Axes of size 1. ---
    "a value head within vmap": (
        lambda: mapped(r.td_learning)(x(B, 1), x(B), x(B), x(B, 1)),
        ["Squeeze `v_tm1[..., 0]`, `v_t[..., 0]`"],
        ["vmap"],
    ),
    "values of [T, 1]": (
        lambda: r.lambda_returns(x(T), x(T), x(T, 1)),
        ["Squeeze `v_t[..., 0]`"],
        ["vmap"],
    ),
    "a replay buffer of [B, 1]": (
        lambda: r.q_learning(x(B, A), ints(B, 1), x(B, 1), x(B, 1), x(B, A)),
        ["`a_tm1[..., 0]`, `r_t[..., 0]`, `discount_t[..., 0]`", VMAP],
        ["`q_tm1[..., 0]`"],
    ),
    "a value head without vmap": (
        lambda: r.td_learning(x(B, 1), x(B), x(B), x(B, 1)),
        ["`v_tm1[..., 0]`, `v_t[..., 0]`", VMAP],
        ["`r_t[..., 0]`"],
    ),
    "predictions of [B, 1]": (
        lambda: r.l2_loss(x(B, 1), x(B)),
        ["Squeeze `predictions[..., 0]`"],
        ["vmap"],
    ),
    "targets of [B, 1]": (
        lambda: r.l2_loss(x(B), x(B, 1)),
        ["Squeeze `targets[..., 0]`"],
        ["vmap"],
    ),
    "a temperature that is a parameter": (
        lambda: r.soft_value(x(A), x(1)),
        ["Squeeze `temperature[..., 0]`"],
        ["vmap"],
    ),
    "actions of [B, 1] and logits": (
        lambda: softmax.logprob(ints(B, 1), x(B, A)),
        ["Squeeze `sample[..., 0]`"],
        ["vmap"],
    ),
    "a temperature of [1] and two critics": (
        lambda: r.sac_policy_loss(x(B), x(2, B), x(1)),
        ["Squeeze `temperature[..., 0]`"],
        ["vmap"],
    ),
    "the logarithm of a temperature of [1]": (
        lambda: r.sac_temperature_loss(x(1), x(B), -2.0),
        ["Squeeze `log_temperature[..., 0]`"],
        ["vmap"],
    ),
    "a value head and a setting that is a parameter": (
        lambda: r.iql_value_loss(x(B, 1), x(B), x(1)),
        ["Squeeze `v[..., 0]`, `expectile[..., 0]`"],
        ["vmap"],
    ),
    "values and a reward of [1] each": (
        lambda: r.td_learning(x(1), x(1), x(1), x(1)),
        [VMAP],
        ["Squeeze"],
    ),
    "samples without their axis": (
        lambda: gaussian.logprob(x(B), x(B, 1), 1.0),
        ["must be"],
        ["Squeeze", "vmap"],
    ),
    # --- T+1 values, and lengths. ---
    "T+1 values": (
        lambda: gae(r_t=x(T), discount_t=x(T), v_tm1=x(T + 1), v_t=x(T + 1), lambda_=1),
        ["`v_tm1` is `values[:-1]`, `v_t` is `values[1:]`"],
        ["vmap"],
    ),
    "T+1 next values": (
        lambda: r.lambda_returns(x(T), x(T), x(T + 1)),
        ["`v_t` is `values[1:]`"],
        ["vmap"],
    ),
    "T+1 values of a batch": (
        lambda: r.td_lambda(x(B, T + 1), x(B, T), x(B, T), x(B, T + 1), 0.9),
        ["`values[:, :-1]`", "# [B, T]"],
        ["[T, B]"],
    ),
    "T+1 values, time-major": (
        lambda: r.td_lambda(x(T + 1, B), x(T, B), x(T, B), x(T + 1, B), 0.9),
        ["`values[:-1]`", "in_axes=(1, 1, 1, 1, None)"],
        ["[B, T]"],
    ),
    "T values in place of T+1, in a batch": (
        lambda: truncated_gae(x(B, T), x(B, T), 0.9, x(B, T)),
        ["append that of the last next observation", LAYOUTS],
        ["Squeeze"],
    ),
    "T values in place of T+1": (
        lambda: truncated_gae(x(T), x(T), 0.9, x(T)),
        ["`values` has T+1 entries: append that of the last next observation"],
        ["vmap"],
    ),
    "discounts of a step less": (
        lambda: r.upgo_returns(r_t=x(T), discount_t=x(4), v_tm1=x(T), v_t=x(T)),
        ["must be (5,)"],
        ANY_HINT,
    ),
    "rewards of a step more": (
        lambda: r.lambda_returns(x(T + 1), x(T), x(T)),
        ["`discount_t` has shape (5,), must be (6,)"],
        ANY_HINT,
    ),
    "λ of another length": (
        lambda: r.lambda_returns(x(T), x(T), x(T), x(3)),
        ["`lambda_` has shape (3,), must be () or (5,)"],
        ANY_HINT,
    ),
    "λ of a step less": (
        lambda: r.vtrace(x(T), x(T), x(T), x(T), x(T), x(T - 1)),
        ["`lambda_` has shape (4,), must be () or (5,)"],
        ANY_HINT,
    ),
    "no steps": (
        lambda: r.lambda_returns(x(0), x(0), x(0)),
        ["`r_t` has shape (0,), must be [T] and not empty"],
        ANY_HINT,
    ),
    # --- Scalars. ---
    "γ as a number": (
        lambda: r.lambda_returns(x(T), 0.99, x(T)),
        ["`discount_t` is γ times `1 - terminated`, for each step"],
        ["vmap", "Convert"],
    ),
    "γ as a NumPy number": (
        lambda: gae(x(T), x(T), v_t=x(T), discount_t=np.float32(0.99), lambda_=0.9),
        ["`discount_t` is γ times `1 - terminated`, for each step"],
        ["vmap", "Convert"],
    ),
    "γ as a number, in a batch": (
        lambda: r.lambda_returns(x(B, T), 0.99, x(B, T)),
        [
            "γ times `1 - terminated`",
            "(r_t, discount_t * (1 - terminated), v_t)",
            LAYOUTS,
        ],
        [],
    ),
    "γ as a number, and λ of each step": (
        lambda: r.td_lambda(x(T), x(T), 0.99, x(T), x(T)),
        ["`discount_t` is γ times `1 - terminated`, for each step"],
        ["exchanged"],
    ),
    "one reward for all steps, and λ of each step": (
        lambda: r.td_lambda(x(T), 1.0, x(T), x(T), x(T)),
        ["`r_t` has shape (), must be (5,)"],
        ANY_HINT,
    ),
    "one step of a stream": (
        lambda: r.lambda_returns(1.0, 0.9, 0.5),
        ["`r_t` has shape (), must be [T]"],
        ANY_HINT,
    ),
    # --- Kinds. ---
    "done as the discount": (
        lambda: r.lambda_returns(x(T), mask(T), x(T)),
        ["`discount_t` is the discount γ times `1 - terminated`"],
        ["Convert"],
    ),
    "done as the discount of a step": (
        lambda: r.q_learning(x(A), 0, 1.0, True, x(A)),
        ["`discount_t` is the discount γ times `1 - terminated`"],
        ["Convert"],
    ),
    "done as integers": (
        lambda: r.lambda_returns(x(T), ints(T), x(T)),
        [
            "`discount_t` is the discount γ times `1 - terminated`. If so, convert it: "
            "`discount_t.astype(float)`"
        ],
        ["Convert"],
    ),
    "rewards of integers": (
        lambda: r.lambda_returns(ints(T), x(T), x(T)),
        ["Convert it: `r_t.astype(float)`"],
        ["vmap"],
    ),
    "traced rewards of integers": (
        lambda: jax.jit(lambda y: r.lambda_returns(y, x(T), x(T)))(ints(T)),
        ["Convert it: `r_t.astype(float)`"],
        ["vmap"],
    ),
    "traced actions of floats": (
        lambda: jax.jit(lambda y: r.q_learning(x(A), y, 1.0, 0.9, x(A)))(1.0),
        ["Convert it: `a_tm1.astype(int)`"],
        ["argmax"],
    ),
    "a reward that is an integer, and an action": (
        lambda: r.q_learning(x(A), 1, np.int32(1), 0.9, x(A)),
        ["Convert it: `r_t.astype(float)`"],
        ["exchanged"],
    ),
    "a list": (
        lambda: r.lambda_returns([0.5, 0.5], x(2), x(2)),
        ["`jnp.asarray(r_t)`"],
        ["vmap"],
    ),
    "a list of integers": (
        lambda: r.lambda_returns([1, 2], x(2), x(2)),
        ["`jnp.asarray(r_t, float)`"],
        ["vmap"],
    ),
    "a list of traced values": (
        lambda: jax.jit(lambda y: r.lambda_returns([y, y], x(2), x(2)))(0.5),
        ["`jnp.asarray(r_t)`"],
        ["vmap"],
    ),
    "a ragged list": (
        lambda: r.lambda_returns([[1.0], [1.0, 2.0]], x(2), x(2)),
        ["`r_t` is [[1.0], [1.0, 2.0]]"],
        ["vmap", "Convert"],
    ),
    "one-hot actions": (
        lambda: r.q_learning(x(A), np.eye(A, dtype=np.float32)[0], 1.0, 0.9, x(A)),
        ["`jnp.argmax(a_tm1, -1)`"],
        ["astype"],
    ),
    "one-hot actions of a batch": (
        lambda: r.q_learning(x(B, A), np.eye(B, A), x(B), x(B), x(B, A)),
        ["`jnp.argmax(a_tm1, -1)`"],
        ["astype"],
    ),
    "actions of floats": (
        lambda: r.q_learning(x(B, A), np.zeros(B), x(B), x(B), x(B, A)),
        ["Convert it: `a_tm1.astype(int)`"],
        ["argmax"],
    ),
    "continuous actions": (
        lambda: r.q_learning(x(A), np.float32(0.3), 1.0, 0.9, x(A)),
        ["`a_tm1` is float32[], must be an integer array"],
        ANY_HINT,
    ),
    "continuous actions on a device": (
        lambda: r.q_learning(x(A), jnp.float32(0.3), 1.0, 0.9, x(A)),
        ["`a_tm1` is float32[], must be an integer array"],
        ANY_HINT,
    ),
    "a mask of floats": (
        lambda: r.masked_mean(x(T), mask=np.ones(T, np.float32)),
        ["`mask.astype(bool)`"],
        ["vmap"],
    ),
    "weights as a mask": (
        lambda: r.masked_mean(x(T), mask=x(T)),
        ["`mask` is float32[5], must be a bool array"],
        ANY_HINT,
    ),
    "None for what is needed": (
        lambda: r.lambda_returns(x(T), x(T), None),
        ["`v_t` is None, must be a floating-point array"],
        ANY_HINT,
    ),
    "a string": (
        lambda: r.lambda_returns(x(T), x(T), x(T), "0.9"),
        ["`lambda_` is '0.9', must be a floating-point array"],
        ANY_HINT,
    ),
    "complex values": (
        lambda: r.lambda_returns(x(T), x(T), x(T) * 1j),
        ["`v_t` is complex64[5]"],
        ANY_HINT,
    ),
    "a number, which sets no size, and defaults": (
        lambda: r.lambda_returns(x(T), x(T), x(T - 2), 0.9),
        ["must be (5,) to match `r_t`, `discount_t`.", "lambda_ is 0.9, must be"],
        ["truncated_t is", *ANY_HINT],
    ),
    "a result for one of its fields": (
        lambda: r.reinforce_loss(r.token_log_probs(x(T, A), ints(T)), x(T)),
        ["`log_prob` is a `TokenLogProbs`", "Its fields are log_prob, entropy."],
        ["Convert", "vmap"],
    ),
    "a distribution for logits": (
        lambda: r.categorical_cross_entropy(x(A), softmax),
        ["`logits` is Softmax(temperature=1.0)", "must be a floating-point array"],
        ANY_HINT,
    ),
    "parameters of integers": (
        lambda: r.l2_init_loss({"w": ints(2)}, {"w": ints(2)}),
        ["`params['w']` is int32[2], must be a floating-point array"],
        ["vmap"],
    ),
    # --- The order of arguments. ---
    "an index before its values": (
        lambda: r.batched_index(ints(B), x(B, A)),
        ["`values` and `indices` fit if they are exchanged"],
        ["Convert"],
    ),
    "logits before a Python action": (
        lambda: softmax.log_prob(x(A), 1),
        ["`sample` and `logits` fit if they are exchanged"],
        ["Convert"],
    ),
    "fields of a state": (
        lambda: r.linucb_scores(r.LinearBanditState(x(A, A), x(A)), x(B, A), 1.0),
        ["exchanged: the order is (weights, root)."],
        ["contexts)"],
    ),
    "two bounds for one": (
        lambda: r.clipped_surrogate_pg_loss(x(T), x(T), (0.8, 1.2)),
        ["`epsilon` is (0.8, 1.2)"],
        ANY_HINT,
    ),
    "reward and action exchanged": (
        lambda: r.q_learning(x(A), 1.5, 1, 0.9, x(A)),
        ["`a_tm1` and `r_t` fit if they are exchanged", "(q_tm1, a_tm1, r_t, "],
        ["Convert"],
    ),
    "reward and action exchanged, in a batch": (
        lambda: r.q_learning(x(B, A), x(B), ints(B), x(B), x(B, A)),
        ["`a_tm1` and `r_t` fit if they are exchanged"],
        ["Convert"],
    ),
    "λ and values exchanged": (
        lambda: truncated_gae(x(T), x(T), x(T + 1), 0.9),
        ["`lambda_` and `values` fit if they are exchanged"],
        ["vmap"],
    ),
    "logits before the key": (
        lambda: softmax.sample(x(A), KEY),
        ["`key` and `logits` fit if they are exchanged"],
        ["Convert"],
    ),
    "a mask in the place of a flag": (
        lambda: r.lambda_returns(x(T), x(T), x(T), 0.9, mask(T)),
        ["pass `truncated_t` or `sample_mask` by keyword"],
        ["vmap"],
    ),
    # --- Keys. ---
    "no key": (
        lambda: softmax.sample(x(A)),
        ["`key` is a key: `jax.random.key(0)`. The order is (key, logits"],
        ["astype"],
    ),
    "a seed": (
        lambda: r.categorical_sample(0, x(A)),
        ["`key` is 0, must be a PRNG key", "`jax.random.key(0)`"],
        ["astype"],
    ),
    # --- Options. ---
    "an option that is none": (
        lambda: r.kl_loss(x(T), x(T), kind="k4"),
        ["`kind` is 'k4', must be", '"k3"'],
        ["vmap"],
    ),
    "a float for n": (
        lambda: r.n_step_bootstrapped_returns(x(T), x(T), x(T), 3.0),
        ["`n` is 3.0, must be a Python integer"],
        ["vmap"],
    ),
    "an array for n": (
        lambda: r.n_step_bootstrapped_returns(x(T), x(T), 3, x(T)),
        ["`n` is float32[5], must be a Python integer"],
        ["vmap"],
    ),
    "a traced n": (
        lambda: jax.jit(r.one_hot)(ints(T), 3),
        ["`num_classes` is traced", "static_argnames"],
        ["vmap"],
    ),
    "a percentage for ε": (
        lambda: r.epsilon_greedy(10).probs(x(A)),
        ["`epsilon` is 10, must be in [0, 1]"],
        ["vmap"],
    ),
    "targets in the place of δ": (
        lambda: r.huber_loss(x(B), x(B)),
        ["`delta` has shape (3,), must be ()"],
        ANY_HINT,
    ),
    # --- Arrays of others. ---
    "a tensor of torch": (
        lambda: r.lambda_returns(x(T), x(T), TorchTensor(x(T))),
        ["`v_t` is a `", "TorchTensor`", "`v_t.detach().cpu().numpy()`"],
        ["vmap"],
    ),
    "a series": (
        lambda: r.lambda_returns(Tensor(x(T)), x(T), x(T)),
        ["`r_t` is a `", "`np.asarray(r_t)`"],
        ["detach"],
    ),
    "a variable": (
        lambda: r.l2_loss(Variable(x(T))),
        ["`predictions` is a `", "`jnp.asarray(predictions)`"],
        ["detach"],
    ),
    "big-endian rewards": (
        lambda: r.lambda_returns(x(T).astype(">f4"), x(T), x(T)),
        ['`r_t.astype(r_t.dtype.newbyteorder("="))`'],
        ["vmap"],
    ),
    "big-endian actions": (
        lambda: r.q_learning(x(A), np.array(0, ">i4"), 1.0, 0.9, x(A)),
        ['`a_tm1.astype(a_tm1.dtype.newbyteorder("="))`'],
        ["astype(int)"],
    ),
    "a masked array": (
        lambda: r.lambda_returns(np.ma.masked_array(x(T)), x(T), x(T)),
        ["`r_t` is a `numpy.MaskedArray`", "Use `sample_mask`"],
        ["Convert"],
    ),
    "a masked array, where there is no mask": (
        lambda: r.soft_value(np.ma.masked_array(x(A)), 0.5),
        ["`q.filled(...)`"],
        ["sample_mask"],
    ),
    "a masked array as the mask": (
        lambda: r.masked_mean(x(T), mask=np.ma.masked_array(np.ones(T, bool))),
        ["`mask.filled(...)`"],
        ["getmaskarray"],
    ),
    "a masked array beside a mask": (
        lambda: r.lambda_returns(
            np.ma.masked_array(x(T)), x(T), x(T), sample_mask=np.ones(T, bool)
        ),
        ["`sample_mask=sample_mask & ~np.ma.getmaskarray(r_t)`"],
        ["Convert"],
    ),
    "a key for a float": (
        lambda: r.td_learning(jax.random.key(0), 1.0, 0.9, 1.0),
        ["`v_tm1` is key<fry>[], must be a floating-point"],
        ["Convert", "vmap"],
    ),
    "an array of records": (
        lambda: r.huber_loss(np.zeros(2, [("a", "f4"), ("b", "f4")])),
        ["`x` is"],
        ["Convert"],
    ),
    "long double": (
        lambda: r.lambda_returns(x(T).astype(np.longdouble), x(T), x(T)),
        ["Convert it: `r_t.astype(float)`"],
        ["vmap"],
    ),
    "an array of strings": (
        lambda: r.one_hot(np.array(["a"]), 2),
        ["`indices` is <U1[1], must be an array"],
        ANY_HINT,
    ),
}
# Keywords: the call, and what the error says.
KEYWORDS = {
    "gamma": (lambda: r.lambda_returns(x(T), gamma=0.9, v_t=x(T)), "see `discount_t`"),
    "discount": (
        lambda: r.lambda_returns(x(T), 5 + x(T), discount=0.9),
        "see `discount_t`",
    ),
    "dones": (
        lambda: gae(x(T), x(T), v_t=x(T), dones=mask(T)),
        "see `discount_t`, γ tim",
    ),
    "lam": (lambda: r.lambda_returns(x(T), x(T), x(T), lam=0.9), "see `lambda_`"),
    "gae_lambda": (lambda: gae(x(T), x(T), x(T), x(T), gae_lambda=1), "see `lambda_`"),
    "mask": (
        lambda: r.lambda_returns(x(T), x(T), x(T), mask=mask(T)),
        "see `sample_mask`",
    ),
    "truncation_t": (
        lambda: r.lambda_returns(x(T), x(T), x(T), truncation_t=mask(T)),
        "see `truncated_t`",
    ),
    "rewards": (lambda: r.lambda_returns(rewards=x(T), v_t=x(T)), "see `r_t`"),
    "actions": (lambda: r.q_learning(x(A), actions=0, r_t=1.0), "see `a_tm1`"),
    "values": (
        lambda: gae(values=x(T), r_t=x(T), discount_t=x(T)),
        "see `v_tm1` and `v_t`",
    ),
    "next_values": (lambda: r.lambda_returns(x(T), x(T), next_values=1), "see `v_t`"),
    "clip_eps": (
        lambda: r.ppo_clip_loss(x(T), x(T), x(T), clip_eps=1),
        "see `epsilon`",
    ),
    "advantages": (lambda: r.ppo_clip_loss(x(T), x(T), advantages=x(T)), "see `adv`"),
    "rng": (lambda: softmax.sample(rng=KEY, logits=x(A)), "see `key`"),
    "lamda_": (lambda: r.lambda_returns(x(T), x(T), x(T), lamda_=1), "see `lambda_`"),
    "reduction": (
        lambda: r.l2_loss(x(T), x(T), reduction="mean"),
        "its arguments are predictions, targets",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_error_has_the_right_hint_and_no_other(mistake):
    assert_error(*MISTAKES[mistake])


@pytest.mark.parametrize("word", KEYWORDS)
def test_an_unknown_keyword_is_explained(word):
    call, see = KEYWORDS[word]
    with pytest.raises(TypeError, match=rf"got an unexpected `{word}`: ") as error:
        call()
    assert see in str(error.value)


def test_a_hint_reads_no_more_than_the_call():
    assert not any(
        map(hints.is_foreign, (x(T), jnp.ones(T), KEY, 1.0, None, "x", jnp.float32))
    )
