"""Learning from sampled actions with and without `stop_gradient`."""

import jax
import jax.numpy as jnp
import numpy as np
import style
from matplotlib.figure import Figure

import rlaxlib

UPDATES, STEP_SIZE = 40, 0.05
LARGEST = 4.0  # Standard deviation at which curves end.
NOISE = jax.scipy.stats.norm.ppf((jnp.arange(200) + 0.5) / 200)  # Quantiles.


def loss(params: jax.Array, stop: bool) -> jax.Array:
    """Return the score-function loss of a Gaussian policy; the best action is 1."""
    mean, std = params[0], jnp.exp(params[1])
    actions = mean + std * NOISE
    rewards = -((actions - 1) ** 2)
    if stop:
        actions = jax.lax.stop_gradient(actions)
    log_probs = jax.scipy.stats.norm.logpdf(actions, mean, std)
    return jnp.mean(rlaxlib.reinforce_loss(log_probs, rewards))


def learn(stop: bool) -> np.ndarray:
    """Return mean and std of a policy before each update, shape `[2, UPDATES]`."""

    def update(params: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        return params - STEP_SIZE * jax.grad(loss)(params, stop), params

    _, params = jax.lax.scan(update, jnp.zeros(2), length=UPDATES)
    return np.stack([params[:, 0], np.exp(np.minimum(params[:, 1], np.log(LARGEST)))])


def draw() -> Figure:
    """Draw mean and standard deviation of two policies during training."""
    figure = style.figure(height=2.6)
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    cases = [
        ("with stop_gradient", True, style.GREEN),
        ("without stop_gradient", False, style.RED),
    ]
    for axes, (title, stop, color) in zip(panels, cases, strict=True):
        mean, std = learn(stop)
        shown = std < LARGEST - 1e-3
        x = np.arange(UPDATES)[shown]
        axes.fill_between(
            x,
            (mean - std)[shown],
            (mean + std)[shown],
            color=color,
            alpha=0.25,
            lw=0,
        )
        axes.plot(x, mean[shown], color=color)
        axes.axhline(1, color=style.INK, lw=1, ls=":")
        axes.set(xlabel="update", title=title, ylim=(-3, 3))
        axes.title.set_color(color)
    panels[0].set_ylabel("action: mean ± std")
    return figure
