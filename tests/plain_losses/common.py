"""Batches, networks, and what the losses in plain `jax.numpy` share."""

import inspect
from types import SimpleNamespace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from formulas import pick
from recipes.continuous import ActorCritic

B, T, A, D, F, M = 4, 5, 3, 2, 4, 7
KEY = jax.random.key(7)
stop = jax.lax.stop_gradient
RANDOM = np.random.default_rng(0)


def seed(name):
    """Make the inputs of a module independent of those before."""
    state = np.random.default_rng(list(name.encode())).bit_generator.state
    RANDOM.bit_generator.state = state


# Inputs are made by NumPy, since JAX would compile a program for each shape.
def normal(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


def integers(below, *shape):
    return RANDOM.integers(below, size=shape).astype(np.int32)


def on_device(tree):
    """Return a tree whose NumPy arrays are those of JAX."""
    kinds = np.ndarray, np.generic
    return jax.tree.map(
        lambda x: jax.device_put(x) if isinstance(x, kinds) else x, tree
    )


class Case(NamedTuple):
    """A recipe, its source's loss in plain `jax.numpy`, and what gets no gradient."""

    loss: object
    plain: object
    params: tuple
    stopped: str = ""


APPLY = "apply", "log_prob"  # Names of the function after the parameters.


class Call:
    """A recipe with its arguments, as a function of both parameters."""

    def __init__(self, recipe, apply, batch, *args, **kwargs):
        self.recipe = recipe
        second = list(inspect.signature(recipe).parameters)[1]
        self.first = ("params",) if second in APPLY else ("params", "target_params")
        bound = inspect.signature(recipe).bind(
            *[None] * len(self.first), apply, *on_device((batch, *args)), **kwargs
        )
        bound.apply_defaults()
        names = list(bound.arguments)[len(self.first) :]
        self.arguments = {name: bound.arguments[name] for name in names}

    def outputs(self, *params, **changed):
        """Return all outputs, with some arguments changed."""
        arguments = self.arguments | changed
        return self.recipe(*params[: len(self.first)], *arguments.values())

    def __call__(self, *params, **changed):
        """Return the loss."""
        outputs = self.outputs(*params, **changed)
        return outputs[0] if isinstance(outputs, tuple) else outputs


of = Call


def given(params, *arguments, stopped="", **settings):
    """Return what a recipe is called with."""
    return params, arguments, stopped, settings


def cases(recipes, plain, table):
    """Return the cases of recipes, each with the `plain_NAME` of a module."""
    found = {}
    for name, (params, arguments, stopped, settings) in table.items():
        loss = of(getattr(recipes, name), *arguments, **settings)
        found[name] = Case(loss, plain[f"plain_{name}"], on_device(params), stopped)
    return found


# --- Batches, and linear networks. ---


class Batch(SimpleNamespace):
    """A batch whose fields can be replaced, as those of a NamedTuple."""

    def _replace(self, **fields):
        return Batch(**{**vars(self), **fields})


jax.tree_util.register_pytree_node(
    Batch,
    lambda batch: (tuple(vars(batch).values()), tuple(vars(batch))),
    lambda names, values: Batch(**dict(zip(names, values, strict=True))),
)


def make_batch(shape, **others):
    return Batch(
        a_tm1=integers(A, *shape),
        r_t=normal(*shape),
        discount_t=RANDOM.choice([0.9, 0.0, 0.9], shape).astype(np.float32),
        probability=RANDOM.uniform(0.1, 1, B).astype(np.float32),
        **others,
    )


ONE = make_batch((B,), s_tm1=normal(B, F), s_t=normal(B, F))
STREAM = make_batch(
    (B, T),
    s_tm1=normal(B, T, F),
    s_t=normal(B, T, F),  # Never the next of `s_tm1`: each may be the last.
    truncated_t=None,
    sample_mask=None,
    logits_tm1=normal(B, T, A),
    v_tm1=normal(B, T),
    v_t=normal(B, T),
)
SEQUENCE = make_batch(
    (B, T),
    s=normal(B, T + 1, F),
    truncated_t=None,
    sample_mask=None,
    state=normal(B, F),
)
# Where streams end, are cut, or have steps to ignore: a gap and padding.
IS_END, IS_CUT, IS_VALID = (
    np.zeros((B, T), bool),
    np.zeros((B, T), bool),
    np.ones((B, T), bool),
)
IS_END[[0, 1, 2], [3, 2, 0]] = IS_CUT[[0, 3], [1, 3]] = True
IS_VALID[[1, 2], [4, 2]] = False
GAMMA = 0.9


def chained(x, x_t):
    """Return `x_t`, but where a stream goes on, the entry of `x` at its next step."""
    x_t = np.array(x_t)
    for i, t in zip(*np.nonzero(IS_VALID & ~IS_CUT & ~IS_END), strict=True):
        later = t + 1 + np.flatnonzero(IS_VALID[i, t + 1 :])
        if len(later):
            x_t[i, t] = x[i, later[0]]
    return x_t


ROLLOUTS = STREAM._replace(
    discount_t=np.where(IS_END, 0.0, GAMMA).astype(np.float32),
    s_t=chained(STREAM.s_tm1, STREAM.s_t),
    v_t=chained(STREAM.v_tm1, STREAM.v_t),
    truncated_t=IS_CUT,
    sample_mask=IS_VALID,
)


def rollouts(b=ROLLOUTS):
    """Yield pieces of streams as the authors' codes have them, one after the other.

    A piece ends where its stream is cut, and has no steps to ignore. Beside the fields
    of its steps it has `obs` and `values` of all observations, one more, and `dones`.
    """
    for i in range(B):
        valid = np.flatnonzero(IS_VALID[i])
        for t in np.split(valid, 1 + np.flatnonzero(IS_CUT[i, valid])):
            if len(t):
                fields = {name: x for name, x in vars(b).items() if np.ndim(x) > 1}
                # In NumPy, since JAX would compile a program for each length.
                piece = Batch(
                    **{name: np.asarray(x)[i, t] for name, x in fields.items()}
                )
                piece.obs = np.concatenate([piece.s_tm1, piece.s_t[-1:]])
                piece.values = np.concatenate([piece.v_tm1, piece.v_t[-1:]])
                piece.dones = IS_END[i, t].astype(np.float32)
                yield piece


def pool(function, b=ROLLOUTS):
    """Return what a function returns for each piece, one after the other."""
    outputs = zip(*map(function, rollouts(b)), strict=True)
    return tuple(map(jnp.concatenate, outputs))


IMAGINED = make_batch(
    (B, T),
    s=normal(B, T + 1, F),
    values=normal(B, T + 1),
    first_discount=np.array([0.9, 0.8, 0.1, 0.0]),
)
ACTION = make_batch((B,), s_tm1=normal(B, F), s_t=normal(B, F))
ACTION.a_tm1 = np.tanh(normal(B, D))
ACTION.truncated_t = np.arange(B) == 1
SEARCH = Batch(
    s=normal(B, F),
    a_tm1=integers(A, B, T),
    r_t=normal(B, T),
    logits=normal(B, T + 1, A),
    q=jax.nn.sigmoid(normal(B, T + 1, A)),
    visits=integers(4, B, T + 1, A),
    v=jax.nn.sigmoid(normal(B, T + 1)),
    returns=normal(B, T + 1),
    sample_mask=np.arange(T + 1)[None] < np.array([[T + 1], [T], [3], [1]]),
)


def linear(*shape):
    """Return a network with outputs of a shape, and its parameters twice."""

    def apply(w, s):
        return (s @ w).reshape(*s.shape[:-1], *shape)

    size = int(np.prod(shape))
    return apply, (0.5 * normal(F, size), 0.5 * normal(F, size))


Q, Q_PARAMS = linear(A)
ATOMS, ATOMS_PARAMS = linear(A, M)
QUANTILES, QUANTILES_PARAMS = linear(M, A)
PAIR, PAIR_PARAMS = linear(A + 1)
TWO_Q, TWO_Q_PARAMS = linear(2 * A)


def policy_and_value(w, s):
    x = PAIR(w, s)
    return x[..., :A], x[..., A]


def policy_and_q(w, s):
    x = TWO_Q(w, s)
    return x[..., :A], x[..., A:]


def implicit(w, s, tau):
    return jnp.cos(3 * tau)[..., None] * Q(w, s)[:, None] + tau[..., None]


def fractions(params, s):
    widths = jax.nn.softmax(s @ params["fractions"])
    first = jnp.zeros_like(widths[:, :1])
    return jnp.concatenate([first, jnp.cumsum(widths, axis=-1)], axis=-1)


FQF = SimpleNamespace(
    fractions=fractions,
    quantiles=lambda params, s, tau: implicit(params["quantiles"], s, tau),
)
FQF_PARAMS = tuple({"fractions": normal(F, M), "quantiles": q} for q in Q_PARAMS)


def recurrent(w, state, s, first):
    kept = jnp.cumsum(first, axis=1) == 0
    return Q(w, s + kept[..., None] * state[:, None])


def mean_and_stddev(w, s):
    mean, stddev = jnp.split(s @ w, 2, axis=-1)
    return mean, jax.nn.softplus(stddev)


def actor_critic(*shape, gaussian=True):
    """Return networks for continuous actions, and their parameters twice."""

    def critic(w, s, a):
        return jnp.tanh(jnp.concatenate([s, a], -1) @ w).reshape(*a.shape[:-1], *shape)

    size = 2 * D if gaussian else D
    actor = mean_and_stddev if gaussian else lambda w, s: jnp.tanh(s @ w)
    return ActorCritic(actor, critic), tuple(
        ActorCritic(normal(F, size), normal(F + D, int(np.prod(shape))), duals)
        for duals in (np.array([1.0, 2.0, 3.0, 0.5]),) * 2
    )


DPG, DPG_PARAMS = actor_critic(gaussian=False)
TD3, TD3_PARAMS = actor_critic(2, gaussian=False)
D4PG, D4PG_PARAMS = actor_critic(M, gaussian=False)
MPO, MPO_PARAMS = actor_critic()
SAC, SAC_PARAMS = actor_critic(3)
TQC, TQC_PARAMS = actor_critic(3, M)
TWIN, TWIN_PARAMS = actor_critic(2, M)  # Two critics, each of a distribution.
SURE, SURE_PARAMS = actor_critic(2, M, gaussian=False)
LOGITS, LOGITS_PARAMS = actor_critic(M)
MPO_A = ActorCritic(Q, Q)
MPO_A_PARAMS = tuple(
    ActorCritic(normal(F, A), normal(F, A), np.array([1.0, 2.0])) for _ in range(2)
)


class Policy(NamedTuple):
    policy: jax.Array
    duals: jax.Array


VMPO_PARAMS = tuple(Policy(w, np.array([1.0, 2.0])) for w in PAIR_PARAMS)


# --- What the losses share. ---


def log_prob(logits, a):
    return pick(jax.nn.log_softmax(logits), a)


def mean_entropy(logits):
    log_pi = jax.nn.log_softmax(logits)
    return -jnp.mean(jnp.sum(jnp.exp(log_pi) * log_pi, axis=-1))


def cross_entropy(probs, logits):
    return -jnp.sum(probs * jax.nn.log_softmax(logits), axis=-1)


def one_step(value, b=ONE):
    return b.r_t + b.discount_t * value


def rescale(x):
    return jnp.sign(x) * (jnp.sqrt(jnp.abs(x) + 1) - 1) + 1e-3 * x


def squares(q, target):
    """Return the sum of the mean squared errors of all critics, without ½."""
    return jnp.mean(jnp.sum((q - stop(target)[:, None]) ** 2, axis=-1))


def undo(y):
    root = jnp.sqrt(1 + 4e-3 * (jnp.abs(y) + 1 + 1e-3))
    return jnp.sign(y) * (((root - 1) / 2e-3) ** 2 - 1)
