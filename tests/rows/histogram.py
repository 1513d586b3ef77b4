"""Values as classes: definitions in NumPy, and the rows that hold to them."""

import functools

import numpy as np
from contract import Row

from rows import transforms
from rows.distributions import categorical_cross_entropy

BINS = 5


def two_hot(logits, target):
    """Schrittwieser et al. 2019, appendix F: squashed, and then two-hot."""
    probs = transforms.to_bins(
        transforms.signed_hyperbolic(target), np.linspace(-3, 3, BINS)
    )
    return categorical_cross_entropy(probs, logits)


def hl_gauss(logits, target):
    """Farebrother et al. 2024, equation 3.1, of what is squashed as in DreamerV3."""
    probs = transforms.transform_to_hl_gauss(transforms.symlog(target), -3.0, 3.0, BINS)
    return categorical_cross_entropy(probs, logits)


def with_two_hot(library):
    tx = library.SIGNED_HYPERBOLIC_PAIR
    return _with(library, library.muzero_pair(-3.0, 3.0, BINS, tx))


def with_hl_gauss(library):
    bins = library.hl_gauss_pair(-3.0, 3.0, BINS)
    return _with(library, library.compose_tx(library.SYMLOG_PAIR, bins))


def _with(library, tx_pair):
    return functools.partial(library.categorical_regression_loss, tx_pair=tx_pair)


def make(rng):
    target = rng.uniform(0.3, 1.2) * rng.choice([-1.0, 1.0])
    return {"logits": rng.normal(size=BINS), "target": np.asarray(target)}


ROWS = [
    Row(
        name="categorical_regression_loss",
        case=case,
        definition=definition,
        make=make,
        of=of,
        targets=("target",),
        peer="rlax has none",
    )
    for case, definition, of in (
        ("two-hot", two_hot, with_two_hot),
        ("HL-Gauss", hl_gauss, with_hl_gauss),
    )
]
