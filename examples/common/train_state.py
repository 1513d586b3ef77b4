"""Train state: a flax module with its parameters and optimizer.

An agent made of train states is a pytree without hidden state: it can be jitted,
vmapped, replicated over devices and saved, and its update returns a new agent.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax import struct


class TrainState(struct.PyTreeNode):
    """A module, its parameters and, if they are trained, an optimizer.

    Call it to apply the module::

        q_values = critic(observations)
        q_values = critic(observations, params=other)
        features = critic(observations, method="encode")

    Attributes:
        step: Number of gradient steps taken, shape `[]`.
        params: Parameters of the module, `model_def.init(...)["params"]`.
        opt_state: State of the optimizer; or None without an optimizer.
        model_def: The module.
        tx: The optimizer; or None for a module that is not trained, such as a target
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
        """Return the initial state."""
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
            *args: Arguments of the module.
            params: Parameters; or None for those of the state. A loss passes the
                parameters that it is differentiated with respect to.
            method: Method of the module, or its name; or None for `__call__`.
            **kwargs: Keyword arguments of the module.

        Returns:
            The output of the module.
        """
        variables = {"params": self.params if params is None else params}
        return self.model_def.apply(variables, *args, method=method, **kwargs)

    def apply_gradients(self, *, grads: Any) -> "TrainState":
        """Return the state after one optimizer step."""
        if self.tx is None:
            raise ValueError("`tx` is None, must be an optimizer to apply gradients.")
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
        """Take one gradient step on a loss.

        Args:
            loss_fn: Function from parameters to a loss; or, if `has_aux`, to a loss and
                a tree of metrics.
            has_aux: Whether `loss_fn` returns metrics.
            pmap_axis: Mapped axis name of `jax.pmap`, `jax.shard_map` or `jax.vmap`, if
                each device has a part of the batch. Gradients and metrics are averaged
                over it.

        Returns:
            The next state; if `has_aux`, the next state and the metrics.
        """
        grads = jax.grad(loss_fn, has_aux=has_aux)(
            _make_varying(self.params, pmap_axis)
        )
        if pmap_axis is not None:
            grads = jax.lax.pmean(grads, pmap_axis)
        if not has_aux:
            return self.apply_gradients(grads=grads)
        grads, info = grads
        return self.apply_gradients(grads=grads), info


def target_update(model: TrainState, target: TrainState, tau: float) -> TrainState:
    """Return the target with parameters `(1 - tau) * target + tau * model`."""
    params = optax.incremental_update(model.params, target.params, tau)
    return target.replace(params=params)


def _make_varying(params: Any, axis: str | None) -> Any:
    """Mark replicated parameters as varying over devices.

    `jax.shard_map` sums gradients with respect to replicated values over devices.
    Subtracting 0 times the device index makes the values varying, so that each device
    gets the gradient of its own loss.
    """
    if axis is None:
        return params
    zero = 0 * jax.lax.axis_index(axis)
    return jax.tree.map(lambda x: x - zero.astype(x.dtype), params)
