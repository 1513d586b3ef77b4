"""Test greedy and epsilon-greedy policies: ties, epsilon and errors.

`test_categorical.py` tests what they share with other categorical distributions.
"""

import inspect

import jax
import numpy as np
import pytest
from experience import close

import rlaxlib

Q = np.float32([1.0, 3.0, 3.0, -np.inf])


def test_probability_is_shared_among_ties():
    np.testing.assert_array_equal(rlaxlib.greedy().probs(Q), [0, 0.5, 0.5, 0])
    close(rlaxlib.epsilon_greedy(0.4).probs(Q), [0.1, 0.4, 0.4, 0.1])


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
