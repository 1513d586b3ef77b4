"""What tests of hints share: arguments of mistakes, and how an error is read."""

import jax
import numpy as np
import pytest

import rlaxlib
from rlaxlib import ArgumentError

B, T, A = 3, 5, 2
KEY, LEGACY = jax.random.key(0), jax.random.PRNGKey(0)
LEVELS = np.linspace(0, 1, 7, dtype=np.float32)
VMAP, LAYOUTS = "jax.vmap(", "in_axes 0 if the arrays are [B, T], 1 if they are [T, B]"
ANY_HINT = ("vmap", "Squeeze", "Convert", "T+1", "exchanged", "1 - terminated")

r = rlaxlib
gae, vtrace = r.generalized_advantage_estimation, r.vtrace_td_error_and_advantage
truncated_gae = r.truncated_generalized_advantage_estimation
softmax, gaussian = r.softmax(), r.gaussian_diagonal()


def x(*shape):
    return np.full(shape, 0.5, np.float32)


def ints(*shape):
    return np.zeros(shape, np.int32)


def mask(*shape):
    return np.ones(shape, bool)


def mapped(function, in_axes=0):
    """Return a function that is mapped, with arguments by position."""
    return jax.vmap(function, in_axes)


def assert_error(call, words, wrong):
    """Assert that the error of a call has some words, and its hint lacks others."""
    with pytest.raises(ArgumentError) as error:
        call()
    text = str(error.value)
    assert [word for word in words if word not in text] == [], text
    hint = "\n".join(line for line in text.split("\n") if ", must be" not in line)
    assert [word for word in wrong if word in hint] == [], text
