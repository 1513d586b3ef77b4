"""Losses of `recipes/preferences.py` in plain `jax.numpy`."""

import jax
import jax.numpy as jnp
from recipes import preferences as recipes

from plain_losses.common import Case, of
from plain_losses.language import PREFERENCES, TABLE, bigrams, sequence_logps

sigmoid = jax.nn.sigmoid


def ratios(p, beta=1.0):
    """Return beta times the log-ratios of chosen and of rejected answers."""
    pairs = (sequence_logps(p, x) for x in (PREFERENCES.chosen, PREFERENCES.rejected))
    return (beta * (policy - ref) for policy, ref in pairs)


def plain_sppo(p, t):
    """uclaml/SPPO@5e61c4e, sppo/trainer.py: "sppo"."""
    good, bad = ratios(p)
    return jnp.mean((good - 5) ** 2 + (bad + 5) ** 2) / 2


def plain_bco(p, t):
    """huggingface/trl@f2cd577, trl/experimental/bco/bco_trainer.py: bco_loss."""
    good, bad = ratios(p, 0.1)
    losses = jnp.log(sigmoid(good - 0.05)), jnp.log(sigmoid(0.05 - bad))
    return -jnp.mean(jnp.concatenate(losses))


def plain_apo_zero(p, t):
    """huggingface/trl@f2cd577, trl/trainer/dpo_trainer.py: "apo_zero"."""
    good, bad = ratios(p, 0.1)
    return jnp.mean(1 - sigmoid(good) + sigmoid(bad))


def plain_nca(p, t):
    """thu-ml/Noise-Contrastive-Alignment@cbb9248, preference_trainer.py."""
    good, bad = ratios(p, 0.1)
    noise = jnp.log(sigmoid(-good)) + jnp.log(sigmoid(-bad))
    return -jnp.mean(jnp.log(sigmoid(good)) + noise / 2)


def plain_exo(p, t):
    """huggingface/trl@f2cd577, trl/trainer/dpo_trainer.py: "exo_pair"."""
    good, bad = ratios(p, 0.1)
    p = sigmoid(good - bad)
    kl = p * jnp.log(p / 0.9) + (1 - p) * jnp.log((1 - p) / 0.1)
    return jnp.mean(kl)


def plain_f_dpo(p, t):
    """huggingface/trl@f2cd577, trl/trainer/dpo_trainer.py: "js_divergence"."""
    u, v = map(jnp.exp, ratios(p))
    slopes = jnp.log(2 * u / (1 + u)) - jnp.log(2 * v / (1 + v))
    return -jnp.mean(jnp.log(sigmoid(0.1 * slopes)))


def case(name, **settings):
    plain = globals()[f"plain_{name}"]
    loss = of(getattr(recipes, name), bigrams, PREFERENCES, **settings)
    return Case(loss, plain, TABLE)


CASES = {
    "sppo": case("sppo", beta=0.1),
    "bco": case("bco", shift=0.05),
    "apo_zero": case("apo_zero"),
    "nca": case("nca", beta=0.1),
    "exo": case("exo", label_smoothing=0.1),
    "f_dpo": case("f_dpo"),
}
