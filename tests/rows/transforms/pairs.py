"""Rows of `transforms/_pairs.py`, and their definitions in NumPy."""

import functools

from row import Gradients, Peer, Row
from rows.transforms.squashing import (
    draw,
    signed_hyperbolic,
    signed_logp1,
    signed_parabolic,
)
from rows.transforms.two_hot import EQUAL, RANGE, between, to_bins

# --- Pairs, each with its `apply`. ---


def outside_support(x):
    y = signed_logp1(x)
    return (y < -2.0) | (y > 2.0)


def compose_tx(x):
    return signed_logp1(signed_hyperbolic(x))


def twohot_pair(scalar):
    return to_bins(scalar, EQUAL)


def muzero_pair(x):
    return to_bins(signed_hyperbolic(x), EQUAL)


def unbiased_transform_pair(x):
    return to_bins(x, signed_parabolic(EQUAL))


def composed(library):
    return library.compose_tx(
        library.SIGNED_HYPERBOLIC_PAIR, library.SIGNED_LOGP1_PAIR
    ).apply


def two_hot(library):
    return library.twohot_pair(**RANGE).apply


def beyond(library):
    bins = library.hl_gauss_pair(-2.0, 2.0, 5)
    pair = library.compose_tx(library.SIGNED_LOGP1_PAIR, bins)
    return functools.partial(library.outside_support, tx_pair=pair)


def two_hot_of_rlax(library):
    """Return a function whose signature has the one argument that is not set."""
    apply = two_hot(library)
    return lambda scalar: apply(scalar=scalar)


def muzero(library):
    return library.muzero_pair(**RANGE, tx=library.SIGNED_HYPERBOLIC_PAIR).apply


def unbiased(library):
    return library.unbiased_transform_pair(
        **RANGE, tx=library.SIGNED_HYPERBOLIC_PAIR
    ).apply


# --- Arguments. ---


ROWS = [
    Row(
        outside_support, draw(scale=8.0), find=beyond, gradients=Gradients(exist=False)
    ),
    Row(compose_tx, draw(), find=composed),
    Row(
        twohot_pair,
        between(EQUAL, "scalar"),
        find=two_hot,
        peer=Peer(find=two_hot_of_rlax),
    ),
    Row(muzero_pair, draw(scale=100.0), find=muzero),
    Row(unbiased_transform_pair, between(signed_parabolic(EQUAL), "x"), find=unbiased),
]
