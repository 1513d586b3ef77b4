"""Tie a flax module to its parameters and its optimizer: what agents are made of.

An agent that is a pytree of such states has no state hidden anywhere. It can be jitted,
vmapped, replicated over devices and saved as a whole, and its update returns another.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax import struct


class TrainState(struct.PyTreeNode):
    """A module, its parameters and, if these are to be learnt, an optimizer.

    Call it to apply the module::

        q_values = critic(observations)
        q_values = critic(observations, params=other)
        features = critic(observations, method="encode")

    Attributes:
        step: Number of gradient steps taken, shape `[]`.
        params: Parameters of the module, `model_def.init(...)["params"]`.
        opt_state: State of the optimizer; or None if there is none.
        model_def: The module.
        tx: The optimizer; or None for a module that does not learn, such as a target
            network.
    """

    step: jax.Array
    params: Any
    opt_state: Any
    model_def: nn.Module = struct.field(pytree_node=False)
    tx: optax.GradientTransformation | None = struct.field(pytree_node=False)

    @classmethod
    def create(
        cls,
        model_def: nn.Module,
        params: Any,
        tx: optax.GradientTransformation | None = None,
    ) -> "TrainState":
        """Return the state to start from."""
        return cls(
            step=jnp.zeros((), jnp.int32),
            params=params,
            opt_state=None if tx is None else tx.init(params),
            model_def=model_def,
            tx=tx,
        )

    def __call__(
        self,
        *args: Any,
        params: Any = None,
        method: str | Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Apply the module.

        Args:
            *args: What the module takes.
            params: Parameters to apply it with; or None for those of the state. A loss
                passes those that it is a function of.
            method: Method of the module to call, or its name; or None for `__call__`.
            **kwargs: What the module takes by name.

        Returns:
            What the module returns.
        """
        variables = {"params": self.params if params is None else params}
        return self.model_def.apply(variables, *args, method=method, **kwargs)

    def apply_gradients(self, *, grads: Any) -> "TrainState":
        """Return the state after a step of the optimizer."""
        if self.tx is None:
            raise ValueError("A state made without `tx` does not learn.")
        updates, opt_state = self.tx.update(grads, self.opt_state, self.params)
        return self.replace(
            step=self.step + 1,
            params=optax.apply_updates(self.params, updates),
            opt_state=opt_state,
        )

    def apply_loss_fn(
        self,
        *,
        loss_fn: Callable[[Any], Any],
        has_aux: bool = False,
        pmap_axis: str | None = None,
    ) -> Any:
        """Take a gradient step down a loss.

        Args:
            loss_fn: Function of the parameters that returns a loss, or, if `has_aux`,
                a loss and a tree of numbers to know of.
            has_aux: Whether it returns such a tree.
            pmap_axis: Name of the axis that devices form, if each has a part of the
                batch, to average gradients and numbers over; of `jax.pmap`,
                `jax.shard_map` or `jax.vmap`.

        Returns:
            The next state; if `has_aux`, and the tree of numbers.
        """
        grads = jax.grad(loss_fn, has_aux=has_aux)(_vary(self.params, pmap_axis))
        if pmap_axis is not None:
            grads = jax.lax.pmean(grads, pmap_axis)
        if not has_aux:
            return self.apply_gradients(grads=grads)
        grads, info = grads
        return self.apply_gradients(grads=grads), info


def target_update(model: TrainState, target: TrainState, tau: float) -> TrainState:
    """Move the parameters of a target network a part `tau` of the way to a model's."""
    params = optax.incremental_update(model.params, target.params, tau)
    return target.replace(params=params)


def _vary(params: Any, axis: str | None) -> Any:
    """Let each device take the gradient of its own loss alone.

    The gradient by what `jax.shard_map` knows to be the same on all devices is summed
    over them before one sees it. What the index of a device has a part in, be it none,
    may differ.
    """
    if axis is None:
        return params
    nothing = 0 * jax.lax.axis_index(axis)
    return jax.tree.map(lambda x: x - nothing.astype(x.dtype), params)
