"""Test n-step Q-learning: limits and identities."""

import jax
import jax.numpy as jnp
from experience import close, make_stream, pick

import rlaxlib

REWARDS = ("r_t", "discount_t")


def test_n_step_q_learning_is_q_learning_at_one_and_q_lambda_at_the_end():
    stream = make_stream()
    inputs = pick(stream, "q_tm1", "a_tm1", *REWARDS, "q_t")
    one_step = jax.vmap(rlaxlib.q_learning)(*inputs.values())
    close(rlaxlib.n_step_q_learning(**inputs, n=1), one_step)
    every = rlaxlib.q_lambda(**inputs, lambda_=1.0)
    close(rlaxlib.n_step_q_learning(**inputs, n=8), every)


def test_n_step_double_q_learning_selects_and_evaluates_with_different_networks():
    stream = make_stream()
    inputs = pick(stream, "q_tm1", "a_tm1", *REWARDS)
    value, selector = stream["q_t"], stream["pi_t"]
    double = rlaxlib.n_step_double_q_learning
    one_step = jax.vmap(rlaxlib.double_q_learning)(*inputs.values(), value, selector)
    close(double(**inputs, q_t_value=value, q_t_selector=selector, n=1), one_step)
    same = double(**inputs, q_t_value=value, q_t_selector=value, n=3)
    close(same, rlaxlib.n_step_q_learning(**inputs, q_t=value, n=3))
    r2d2 = rlaxlib.transformed_n_step_q_learning(
        **inputs, target_q_t=value, a_t=jnp.argmax(selector, axis=-1), n=3
    )
    close(double(**inputs, q_t_value=value, q_t_selector=selector, n=3), r2d2)
