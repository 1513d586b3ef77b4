"""Rows of `returns/_n_step.py`, and their definitions in NumPy."""

import jax.numpy as jnp
import numpy as np
from contract import STEPS
from row import Row
from rows.returns._shared import maker

# --- Definitions. ---


def n_step_transitions(r_t, discount_t, n):
    """Add up rewards and multiply discounts over each window, to its last step."""
    rewards, discounts, index = [], [], []
    for t in range(len(r_t)):
        window = range(t, min(t + n, len(r_t)))
        rewards.append(sum(np.prod(discount_t[t:k]) * r_t[k] for k in window))
        discounts.append(np.prod(discount_t[window]))
        ends = [k for k in window if discount_t[k] == 0]
        index.append(min([window[-1], *ends]))
    return np.array(rewards), np.array(discounts), np.array(index)


def n_step_transitions_and_last_rewards(r_t, discount_t, n):
    rewards, discounts, index = n_step_transitions(r_t, discount_t, n)
    return rewards, discounts, r_t[index]


# --- Arguments. ---


def last_rewards_of(library):
    """Return the function with the reward at each index in place of the index."""

    def last_rewards(r_t, discount_t, n, truncated_t=None, sample_mask=None):
        masks = {"truncated_t": truncated_t, "sample_mask": sample_mask}
        rewards, discounts, index = library.n_step_transitions(
            r_t, discount_t, n, **masks
        )
        last = jnp.asarray(r_t, rewards.dtype)[index]
        if sample_mask is not None:
            last = jnp.where(sample_mask, last, 0)
        return rewards, discounts, last

    return last_rewards


ROWS = [
    Row(n_step_transitions, maker("r_t", "discount_t"), settings={"n": 3}, stream=None),
    Row(
        n_step_transitions_and_last_rewards,
        maker(
            *("r_t", "discount_t"), discount_t=lambda rng: rng.uniform(0.5, 1.0, STEPS)
        ),
        "streams",
        name="n_step_transitions",
        find=last_rewards_of,
        settings={"n": 3},
    ),
]
