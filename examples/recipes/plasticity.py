"""What keeps networks able to learn: ReDo, shrink-and-perturb, L2 Init."""

import jax.numpy as jnp

import rlaxlib


def redo(activations, w_in, w_out, fresh_w_in, threshold=0.025):
    """ReDo: new incoming weights of dormant neurons, and outgoing weights of 0.

    `activations` are those of the layer for a batch, [B, H]; weights are [..., H] and
    [H, ...]. Biases of dormant neurons become 0 as well. Then the output of the network
    changes little, and not at all if the neurons were silent.
    """
    mask = rlaxlib.redo_mask(activations, threshold)
    w_in = jnp.where(rlaxlib.lhs_broadcast(mask, w_in.T).T, fresh_w_in, w_in)
    return w_in, jnp.where(rlaxlib.lhs_broadcast(mask, w_out), 0.0, w_out)


def partial_reset(params, fresh_params, keep=0.8):
    """Return parameters after a partial reset (shrink-and-perturb, SR-SAC)."""
    return rlaxlib.shrink_and_perturb(params, fresh_params, keep, 1 - keep)


def l2_init(params, initial_params, loss, weight=1e-3):
    """L2 Init: a loss, and the squared distance from the initial parameters.

    Kumar et al., 2023, https://arxiv.org/abs/2308.11958. Source:
    github.com/skumar9876/L2_Init@3f86d26, agents/agents.py, where the penalty has a ½:
    a weight there is half of it here. Usual: weights 1e-2 to 1e-5 there, Adam 1e-3 or
    1e-4.
    """
    return loss(params) + weight * rlaxlib.l2_init_loss(params, initial_params)
