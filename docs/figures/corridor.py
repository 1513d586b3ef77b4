"""Action values that Q-learning learns in a corridor, as the front page does."""

import jax
import jax.numpy as jnp
import numpy as np
import style
from matplotlib.figure import Figure

import rlaxlib

STEPS = (150, 200, 250, 2000)


def step(carry: tuple, key: jax.Array) -> tuple[tuple, jax.Array]:
    """Act once in a corridor of eight rooms, and update the table of values."""
    q, s_tm1 = carry
    a_tm1 = rlaxlib.epsilon_greedy(0.2).sample(key, q[s_tm1])
    s_t = jnp.clip(s_tm1 + 2 * a_tm1 - 1, 0, 7)
    r_t, discount_t = 1.0 * (s_t == 7), 0.9 * (s_t < 7)
    error = rlaxlib.q_learning(q[s_tm1], a_tm1, r_t, discount_t, q[s_t])
    q = q.at[s_tm1, a_tm1].add(0.5 * error)
    return (q, s_t % 7), q


def draw() -> Figure:
    """Draw the largest value of each room after some steps, beside the true one."""
    keys = jax.random.split(jax.random.key(0), STEPS[-1])
    _, tables = jax.lax.scan(step, (jnp.zeros((8, 2)), jnp.array(0)), keys)
    rooms = np.arange(7)
    axes = style.figure(height=2.4).subplots()
    true = 0.9 ** (6 - rooms)
    axes.plot(rooms, true, color=style.INK, ls=":", zorder=3, label="true")
    for count, color in zip(STEPS, style.COLORS, strict=False):
        values = np.max(tables[count - 1, :7], axis=-1)
        axes.plot(rooms, values, "o-", color=color, ms=5, label=f"{count} steps")
    axes.set(xlabel="room", ylabel="value", ylim=(-0.05, 1.1))
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return axes.figure
