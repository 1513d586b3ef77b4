"""Test GFlowNets: exact flows have no loss, and limits of sub-trajectories."""

import jax
import jax.numpy as jnp
import numpy as np
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


def test_the_mean_error_as_log_partition_gives_the_variance():
    forward, backward = -RANDOM.uniform(0.1, 2, (2, 8, 5)).astype(np.float32)
    log_reward = RANDOM.normal(size=8).astype(np.float32)
    scores = log_reward + np.sum(backward - forward, axis=1)
    losses = jax.vmap(rlaxlib.trajectory_balance_loss, (None, 0, 0, 0))(
        jnp.mean(scores), forward, backward, log_reward
    )
    close(np.mean(losses), np.var(scores))
