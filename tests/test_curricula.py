"""Test scores and probabilities of levels beside hand-made episodes."""

import jax.numpy as jnp
import numpy as np
from experience import close

import rlaxlib

ENDS = np.array([1, 0, 1, 1, 0, 1], np.float32)  # Episodes of 2 and 3 steps, one open.
ADV = np.array([1.0, -2.0, 3.0, 4.0, -5.0, 9.0], np.float32)


def test_scores_average_over_episodes_that_ended():
    found = rlaxlib.positive_value_loss(ADV, ENDS)
    close(found, (1 / 2 + 7 / 3) / 2, rtol=1e-6)
    regret = rlaxlib.max_mc(ADV, ENDS, 10.0)
    close(regret, ((9 + 12) / 2 + (7 + 6 + 15) / 3) / 2, rtol=1e-6)


def test_an_episode_that_is_cut_counts_as_ended():
    cut = np.array([False] * 5 + [True])
    found = rlaxlib.positive_value_loss(ADV, ENDS, truncated_t=cut)
    close(found, (1 / 2 + 7 / 3 + 9) / 3, rtol=1e-6)


def test_learnability_is_largest_for_a_level_solved_half_of_the_time():
    ends = np.zeros(4, np.float32)
    scores = [rlaxlib.learnability(np.arange(4) < k, ends) for k in range(5)]
    close(scores, [0.0, 3 / 16, 1 / 4, 3 / 16, 0.0], rtol=1e-6)


def test_probabilities_mix_ranks_and_ages():
    scores, ages = jnp.array([0.1, 0.9, 0.5]), jnp.array([3.0, 1.0, 0.0])
    ranks = np.array([1 / 3, 1.0, 1 / 2]) / (11 / 6)
    found = rlaxlib.level_probabilities(scores, ages, 0.4, temperature=1.0)
    close(found, 0.6 * ranks + 0.4 * np.array([0.75, 0.25, 0.0]), rtol=1e-5)
