"""What is learned from actions that are constants, and from ones that are not."""

import jax
import jax.numpy as jnp
import numpy as np
import style
from matplotlib.figure import Figure

import rlaxlib

UPDATES, STEP_SIZE = 40, 0.05
LARGEST = 4.0  # Deviation beyond which there is nothing left to see.
NOISE = jax.scipy.stats.norm.ppf((jnp.arange(200) + 0.5) / 200)  # Evenly spread.


def loss(params: jax.Array, carry: bool) -> jax.Array:
    """Return the score function's loss of actions around `params`; 1 is the best."""
    mean, deviation = params[0], jnp.exp(params[1])
    actions = mean + deviation * NOISE
    rewards = -((actions - 1) ** 2)
    if not carry:
        actions = jax.lax.stop_gradient(actions)
    log_probs = jax.scipy.stats.norm.logpdf(actions, mean, deviation)
    return jnp.mean(rlaxlib.reinforce_loss(log_probs, rewards))


def learn(carry: bool) -> np.ndarray:
    """Return mean and deviation of a policy before each update, [2, UPDATES]."""

    def update(params: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        return params - STEP_SIZE * jax.grad(loss)(params, carry), params

    _, params = jax.lax.scan(update, jnp.zeros(2), length=UPDATES)
    return np.stack([params[:, 0], np.exp(np.minimum(params[:, 1], np.log(LARGEST)))])


def draw() -> Figure:
    """Draw mean and deviation of two policies as they learn."""
    figure = style.figure(height=2.6)
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    cases = [
        ("action: a constant", False, style.GREEN),
        ("action: carries a gradient", True, style.RED),
    ]
    for axes, (title, carry, color) in zip(panels, cases, strict=True):
        mean, deviation = learn(carry)
        shown = deviation < LARGEST - 1e-3
        x = np.arange(UPDATES)[shown]
        axes.fill_between(
            x,
            (mean - deviation)[shown],
            (mean + deviation)[shown],
            color=color,
            alpha=0.25,
            lw=0,
        )
        axes.plot(x, mean[shown], color=color)
        axes.axhline(1, color=style.INK, lw=1, ls=":")
        axes.set(xlabel="update", title=title, ylim=(-3, 3))
        axes.title.set_color(color)
    panels[0].set_ylabel("action: mean ± deviation")
    return figure
