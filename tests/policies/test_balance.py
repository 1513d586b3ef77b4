"""Test GFlowNets: exact flows have no loss, and limits of sub-trajectories."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

RANDOM = np.random.default_rng(0)
FLOW = RANDOM.normal(size=6).astype(np.float32)
FORWARD, BACKWARD = -RANDOM.uniform(0.1, 2, (2, 5)).astype(np.float32)
balance = jax.jit(rlaxlib.sub_trajectory_balance_loss)


def test_flows_of_a_tree_have_no_loss():
    # Two bits, one a step: a tree, whose backward policy is certain.
    rewards = np.float32([[1, 2], [3, 6]])
    total, first = np.sum(rewards), np.sum(rewards, axis=1)
    certain = np.zeros(2, np.float32)
    for i in range(2):
        for j in range(2):
            log_prob = np.log([first[i] / total, rewards[i, j] / first[i]])
            log_prob = log_prob.astype(np.float32)
            flow = np.log(np.float32([total, first[i], rewards[i, j]]))
            loss = rlaxlib.trajectory_balance_loss(flow[0], log_prob, certain, flow[2])
            close(loss, 0.0)
            close(balance(flow, log_prob, certain), 0.0)


def test_small_weights_give_detailed_balance_and_large_ones_trajectory_balance():
    errors = FLOW[:-1] + FORWARD - BACKWARD - FLOW[1:]
    close(balance(FLOW, FORWARD, BACKWARD, 1e-6), np.mean(errors**2))
    whole = rlaxlib.trajectory_balance_loss(FLOW[0], FORWARD, BACKWARD, FLOW[-1])
    close(balance(FLOW, FORWARD, BACKWARD, 1e6), whole, rtol=1e-4)


@pytest.mark.parametrize("length", [20, 300])
@pytest.mark.parametrize("weight", [1e-3, 0.5, 1.0, 10.0, 100.0, 1000.0])
def test_weights_of_any_size_do_not_overflow(length, weight):
    # All balances are (j - i)², and ∑ (n - d) λ^d f(d) = λ^n ∑ (n - d) λ^(d - n) f(d).
    args = np.zeros(length + 1), -np.ones(length), np.full(length, -2.0)
    args = [x.astype(np.float32) for x in args]
    d = np.arange(1, length + 1)
    power = d - (length if weight > 1 else 1)
    number = length + 1 - d

    def define(x):
        shares = number * np.float64(x) ** power
        return np.sum(shares * d**2.0) / np.sum(shares)

    loss, gradient = jax.value_and_grad(balance, argnums=3)(*args, weight)
    close(loss, define(weight), rtol=1e-5)
    slope = (define(weight * (1 + 1e-6)) - define(weight * (1 - 1e-6))) / 2e-6
    close(gradient * weight, slope, rtol=1e-3, atol=1e-4 * define(weight))


@pytest.mark.parametrize("valid", [[0, 1, 2, 3, 4], [2, 3, 4, 5, 6], [0, 2, 3, 6, 7]])
def test_ignored_steps_change_neither_loss_nor_gradient(valid):
    steps, states = np.array(valid), np.append(valid, valid[-1] + 1)
    mask = np.isin(np.arange(8), steps)

    def loss(flow, forward, backward, weight):
        flow = jnp.full(9, jnp.nan).at[states].set(flow)
        ignored = jnp.full(8, jnp.nan)
        args = flow, ignored.at[steps].set(forward), ignored.at[steps].set(backward)
        return balance(*args, weight, sample_mask=mask)

    @jax.jit
    def both(*args):
        return [jax.value_and_grad(f, (0, 1, 2, 3))(*args) for f in (loss, balance)]

    for weight in (0.5, 1.0, 30.0):
        args = FLOW, FORWARD, BACKWARD, weight
        (found, gradients), (right, rights) = both(*args)
        close(found, right)
        for one, other in zip(gradients, rights, strict=True):
            close(one, other, rtol=1e-4, atol=1e-5)


def test_an_object_without_steps_has_no_loss():
    no_step = np.zeros(5, bool)
    loss, gradient = jax.value_and_grad(balance)(
        FLOW, FORWARD, BACKWARD, sample_mask=no_step
    )
    assert loss == 0
    np.testing.assert_array_equal(gradient, np.zeros(6))


def test_the_mean_error_as_log_partition_gives_the_variance():
    forward, backward = -RANDOM.uniform(0.1, 2, (2, 8, 5)).astype(np.float32)
    log_reward = RANDOM.normal(size=8).astype(np.float32)
    scores = log_reward + np.sum(backward - forward, axis=1)
    losses = jax.vmap(rlaxlib.trajectory_balance_loss, (None, 0, 0, 0))(
        jnp.mean(scores), forward, backward, log_reward
    )
    close(np.mean(losses), np.var(scores))
