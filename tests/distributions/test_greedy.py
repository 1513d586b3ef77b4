"""Test greedy and epsilon-greedy policies: ties, epsilon and errors.

`test_categorical.py` tests what they share with other categorical distributions.
"""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

Q = np.float32([1.0, 3.0, 3.0, -np.inf])
# Without the flags of `compiler.py`.
AS_USERS = {
    "xla_backend_optimization_level": 3,
    "xla_llvm_disable_expensive_passes": False,
    "xla_cpu_use_fusion_emitters": True,
}


def test_probability_is_shared_among_ties():
    np.testing.assert_array_equal(rlaxlib.greedy().probs(Q), [0, 0.5, 0.5, 0])
    close(rlaxlib.epsilon_greedy(0.4).probs(Q), [0.1, 0.4, 0.4, 0.1])


def scores(x, y):
    return x + 0.3 * jnp.sqrt(jnp.abs(y))


def plain_greedy(preferences):
    best = preferences == jnp.max(preferences, axis=-1, keepdims=True)
    return jnp.where(best, 1 / jnp.sum(best, axis=-1, keepdims=True), 0.0)


def totals(greedy, options):
    """Return the sums of greedy probabilities of scores in a loop, which XLA fuses."""

    @functools.partial(jax.jit, compiler_options=options)
    def run(inputs):
        return jax.lax.map(lambda each: greedy(scores(*each)), inputs)

    inputs = np.random.default_rng(0).normal(size=(2, 200, 1, 12)).astype(np.float32)
    return np.sum(run(tuple(inputs)), axis=-1)


@pytest.mark.parametrize("options", [{}, AS_USERS])
def test_some_action_is_the_best_where_scores_are_computed_twice(options):
    np.testing.assert_array_equal(totals(rlaxlib.greedy().probs, options), 1)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="the fault is of CPUs")
def test_no_action_may_equal_the_maximum_as_xla_computes_it():
    message = "this jaxlib is right: `_greedy._policy` needs no `argmax`"
    assert any(np.any(totals(plain_greedy, x) < 1) for x in ({}, AS_USERS)), message


def test_epsilon_may_change_over_time():
    policy = rlaxlib.epsilon_greedy(0.4)
    epsilons = 0.0, 0.2, 1.0

    @jax.jit
    def both(changing):
        fixed = [rlaxlib.epsilon_greedy(each).probs(Q) for each in epsilons]
        return jax.vmap(policy.probs, (None, 0))(Q, changing), fixed

    close(*both(np.array(epsilons)))


def test_log_probability_has_a_finite_gradient_by_epsilon():
    policy, mask = rlaxlib.epsilon_greedy(), np.array([True, True, False, True])

    def log_prob(epsilon):
        return policy.logprob(np.arange(4), Q, epsilon, action_mask=mask)

    close(jax.jit(jax.jacobian(log_prob))(0.3), [1 / 0.3, -2 / 2.4, 0.0, 1 / 0.3])


def test_greedy_takes_no_epsilon():
    for function in [*rlaxlib.greedy()][:4]:
        assert "epsilon" not in inspect.signature(function).parameters


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: rlaxlib.epsilon_greedy().probs(Q),
            r"^EpsilonGreedy\.probs: `epsilon` is None, must be float\[\]",
        ),
    ],
)
def test_rejects_bad_arguments_in_traced_programs_too(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        jax.eval_shape(call)
