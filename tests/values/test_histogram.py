"""Test values that are learnt as classes: what does best, ends, what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

PAIRS = {
    "two-hot": rlaxlib.twohot_pair(-10.0, 10.0, 21),
    "HL-Gauss": rlaxlib.hl_gauss_pair(-10.0, 10.0, 21),
    "squashed HL-Gauss": rlaxlib.compose_tx(
        rlaxlib.SYMLOG_PAIR, rlaxlib.hl_gauss_pair(-3.0, 3.0, 21)
    ),
    "unbiased": rlaxlib.unbiased_transform_pair(-3.0, 3.0, 21, rlaxlib.SYMLOG_PAIR),
}
each_pair = pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
loss = rlaxlib.categorical_regression_loss
loss_and_gradient = jax.jit(jax.value_and_grad(loss), static_argnums=2)


@each_pair
def test_what_does_best_is_the_distribution_of_the_target_which_gives_it_back(pair):
    probs = pair.apply(2.3)
    logits = jnp.log(jnp.maximum(probs, 1e-30))
    close(loss_and_gradient(logits, 2.3, pair)[1], jnp.zeros(21), atol=1e-6)
    close(pair.apply_inv(jax.nn.softmax(logits)), 2.3, rtol=1e-4)


@each_pair
def test_the_gradient_is_how_far_the_probabilities_are_off(pair):
    logits = jax.random.normal(jax.random.key(0), (21,))
    _, gradient = loss_and_gradient(logits, -1.7, pair)
    close(gradient, jax.nn.softmax(logits) - pair.apply(-1.7))


@each_pair
def test_a_target_beyond_the_bins_is_told_and_learnt_as_their_end(pair):
    logits = jax.random.normal(jax.random.key(0), (21,))
    for sign in (1.0, -1.0):
        far = jnp.array([100.0, 1e30, jnp.inf]) * sign
        np.testing.assert_array_equal(rlaxlib.out_of_range(far, pair), [True] * 3)
        found = [loss_and_gradient(logits, y, pair) for y in far]
        assert np.isfinite(found[0][0])
        for other in found[1:]:
            jax.tree.map(np.testing.assert_array_equal, other, found[0])


def test_the_slope_by_the_target_is_that_of_its_probabilities():
    pair = PAIRS["squashed HL-Gauss"]
    logits = jax.random.normal(jax.random.key(0), (21,))

    def free(y):
        return loss(logits, y, pair, stop_target_gradients=False)

    slope = (free(2.31) - free(2.29)) / 0.02
    close(jax.grad(free)(2.3), slope, rtol=1e-3)


@pytest.mark.parametrize("pair", [PAIRS["two-hot"], rlaxlib.IDENTITY_PAIR])
def test_another_number_of_bins_is_refused(pair):
    with pytest.raises(rlaxlib.ArgumentError, match=r"loss: `tx_pair` must give one"):
        loss(jnp.zeros(7), 0.5, pair)
