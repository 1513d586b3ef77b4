"""Test n-step Q-learning: limits and identities."""

import functools

import jax
import numpy as np
from experience import close, make_stream, pick

import rlaxlib

REWARDS = ("r_t", "discount_t")


def test_n_step_q_learning_is_q_learning_at_one_and_q_lambda_at_the_end():
    inputs = pick(make_stream(), "q_tm1", "a_tm1", *REWARDS, "q_t")

    @jax.jit
    def evaluate():
        one_step = jax.vmap(rlaxlib.q_learning)(*inputs.values())
        every = rlaxlib.q_lambda(**inputs, lambda_=1.0)
        found = [rlaxlib.n_step_q_learning(**inputs, n=n) for n in (1, 8)]
        return found, [one_step, every]

    jax.tree.map(close, *evaluate())


def test_n_step_double_q_learning_selects_and_evaluates_with_different_networks():
    stream = make_stream()
    inputs = pick(stream, "q_tm1", "a_tm1", *REWARDS)
    value, selector = stream["q_t"], stream["pi_t"]

    @jax.jit
    def evaluate():
        double = functools.partial(
            rlaxlib.n_step_double_q_learning, **inputs, q_t_value=value
        )
        one_step = jax.vmap(rlaxlib.double_q_learning)
        r2d2 = rlaxlib.transformed_n_step_q_learning(
            **inputs, target_q_t=value, a_t=np.argmax(selector, axis=-1), n=3
        )
        return [
            (
                double(q_t_selector=selector, n=1),
                one_step(*inputs.values(), value, selector),
            ),
            (
                double(q_t_selector=value, n=3),
                rlaxlib.n_step_q_learning(**inputs, q_t=value, n=3),
            ),
            (double(q_t_selector=selector, n=3), r2d2),
        ]

    for found, expected in evaluate():
        close(found, expected)
