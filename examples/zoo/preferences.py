"""The zoo's losses of preferences beyond DPO, on pairs of answers of the token task.

Most have a known optimum of the form π_ref exp(u/β). In it, w are the win rates of
answers against those of the reference, and r the rewards of the labels.
"""

from functools import partial

import jax
import jax.numpy as jnp
from recipes import language
from recipes import preferences as recipes

from zoo.language import SCALE, win_rate
from zoo.tokens import (
    REWARDS,
    UPDATES,
    closeness,
    entry,
    least,
    logits,
    preferences,
    regularized,
    tuned,
)


def learner(
    name, scale=SCALE, settings=None, has_reference=True, without=None, **options
):
    """Return the entry of a recipe, on pairs of answers of the reference.

    `without` has the arguments that leave a part out, by the name of the part.
    """
    own = {"scale": scale, "settings": settings, **options}
    parts = {x: learner(name, **own | y).run for x, y in (without or {}).items()}
    settings = settings or {}

    def loss(params, batch):
        return getattr(recipes, name)(params, logits, batch, **settings)

    loss = options.pop("loss", loss)
    data = preferences(scale=scale, has_reference=has_reference)
    options = {"start": tuned, "without": parts, **options}
    return entry(f"preferences.{name}", loss, data, **options)


def dpo(beta):
    return lambda params, batch: language.dpo(params, logits, batch, beta)


def bco(params, batch, beta=0.5, weight=1.0):
    """Return the loss of BCO, where the shift is the mean reward of this batch."""
    rewards = beta * jnp.stack([*recipes.log_ratios(params, logits, batch)])
    shift = jax.lax.stop_gradient(jnp.mean(rewards))
    return recipes.bco(params, logits, batch, weight * shift, beta)


def logit_of_win_rate(log_ref):
    w = win_rate(log_ref)
    return jnp.log(w) - jnp.log1p(-w)


def contrastive(log_ref, beta=0.5):
    """Return the optimum of NCA: without the multiplier, σ(β f) = w / (w + ½)."""
    w = win_rate(log_ref)
    return least(log_ref, lambda f: beta * ((w + 0.5) * jax.nn.sigmoid(beta * f) - w))


def jensen_shannon(log_ref):
    """Return the policy whose ratio u to the reference has 2 log(u/(1+u)) = r - λ.

    λ, for which the probabilities sum to 1, is found by bisection.
    """

    def policy(lambda_):
        return log_ref - jnp.log(jnp.expm1(lambda_ - SCALE * REWARDS / 2))

    def halve(_, bounds):
        low, high = bounds
        middle = (low + high) / 2
        total = jnp.sum(jnp.exp(policy(middle)), axis=1, keepdims=True)
        return jnp.where(total > 1, middle, low), jnp.where(total > 1, high, middle)

    low = jnp.full((len(log_ref), 1), SCALE / 2)
    return policy(jax.lax.fori_loop(0, 40, halve, (low, low + 5.0))[1])


ENTRIES = {
    # In rounds, after which the policy becomes the reference.
    "sppo": learner(
        *("sppo", 20.0),
        period=UPDATES // 20,
        settings={"beta": 0.2},
        without={"the reference": {"has_reference": False}},
    ),
    "bco": learner(
        "bco",
        loss=bco,
        measure=regularized(0.5, logit_of_win_rate),
        without={"the shift": {"loss": partial(bco, weight=0.0)}},
    ),
    # As for KTO, the loss is nearly linear, and its minimum has 0.68 or more.
    "apo_zero": learner("apo_zero", scale=20.0, states=0.68),
    # Without the terms of single answers, the loss depends on differences, as DPO's.
    "nca": learner(
        "nca",
        measure=closeness(contrastive),
        settings={"beta": 0.5},
        without={"the terms of single answers": {"loss": dpo(0.5)}},
    ),
    # Nearly all answers lose against a good one, whose win rate is hardly below 1.
    "exo": learner("exo", scale=20.0, states=0.9),
    # The table cannot represent the optimum: its least expected loss is at 0.91. The
    # optimum of DPO would have 0.65.
    "f_dpo": learner(
        "f_dpo",
        measure=closeness(jensen_shannon),
        settings={"beta": 2.0},
        states=0.75,
        without={"the Jensen-Shannon divergence": {"loss": dpo(2.0)}},
    ),
}
