"""Test that functions of the user are called at each call, and never compiled by us.

What such a function reads may change between two calls: a global, the field of an
object, the cell of a closure. Each function of the library that takes one is called
twice, with a change in between.
"""

import dataclasses

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlaxlib
from rlaxlib import LagrangePenalty, TxPair

FACTOR = 1.0


def scaled(x):
    return FACTOR * x


class Plain:
    def __init__(self):
        self.factor = 1.0

    def scaled(self, x):
        return self.factor * x


class CallableObject(Plain):
    def __call__(self, x):
        return self.scaled(x)


@dataclasses.dataclass
class Data:  # It cannot be hashed.
    factor: float = 1.0

    def scaled(self, x):
        return self.factor * x

    def __call__(self, x):
        return self.factor * x


@dataclasses.dataclass(frozen=True)
class Frozen:
    factors: jax.Array

    def __call__(self, x):
        return self.factors[0] * x


def of_global():
    """Return a function of one number, and a function that changes what it reads."""

    def change(factor):
        globals()["FACTOR"] = factor

    change(1.0)
    return scaled, change


def of_object(make, get):
    def kind():
        owner = make()
        return get(owner), lambda factor: setattr(owner, "factor", factor)

    return kind


def of_closure():
    factor = 1.0

    def change(new):
        nonlocal factor
        factor = new

    return lambda x: factor * x, change


KINDS = {
    "global": of_global,
    "closure": of_closure,
    "method": of_object(Plain, lambda x: x.scaled),
    "callable object": of_object(CallableObject, lambda x: x),
    "method of a dataclass": of_object(Data, lambda x: x.scaled),
    "dataclass": of_object(Data, lambda x: x),
}

ONE, TWO = jnp.ones(()), jnp.full(2, 2.0)
STREAM, KEY = jnp.full(3, 2.0), jax.random.key(0)
Q = jnp.ones((3, 2))
PENALTY = LagrangePenalty(0.5, 0.1)
GAUSSIAN = jnp.zeros(1), jnp.ones(1)


class Targets:
    """A distribution, of the methods that distillation uses."""

    batch_shape = (1,)

    def __init__(self, f):
        self.f = f

    def sample(self, *, seed, sample_shape):
        return self.f(jnp.ones((*sample_shape, 1)))

    def log_prob(self, value):
        return self.f(value)


class Bounds:
    def __init__(self, f):
        self.f = f

    minimum = property(lambda self: -self.f(np.float32(1.0)))
    maximum = property(lambda self: self.f(np.float32(1.0)))


def tx(f):
    return TxPair(f, f)


# A call of each function of the library, given a function of the user.
CALLS = {
    "backtracking_line_search": lambda f: rlaxlib.backtracking_line_search(
        lambda p: (f(p) - 1.5 * p, jnp.zeros(())), ONE, -ONE
    ),
    "bootstrap_interval": lambda f: rlaxlib.bootstrap_interval(
        KEY, STREAM, lambda x: f(jnp.mean(x)), num_samples=3
    ),
    "categorical_mpo_loss": lambda f: rlaxlib.categorical_mpo_loss(
        STREAM, STREAM, STREAM, PENALTY, PENALTY, projection_operator=f
    ),
    "categorical_regression_loss": lambda f: rlaxlib.categorical_regression_loss(
        jnp.zeros(2), ONE, TxPair(lambda x: f(jnp.stack([x, x])), f)
    ),
    "compute_parametric_kl_penalty_and_dual_loss": lambda f: (
        rlaxlib.compute_parametric_kl_penalty_and_dual_loss([(STREAM, PENALTY)], f)
    ),
    "constant_policy_targets": lambda f: rlaxlib.constant_policy_targets(
        Targets(f), KEY, 2, 1.0
    ),
    "fisher_vector_product": lambda f: rlaxlib.fisher_vector_product(
        lambda p: f(jnp.sum(p**2)), TWO, TWO
    ),
    "gaussian_mpo_loss": lambda f: rlaxlib.gaussian_mpo_loss(
        *2 * GAUSSIAN,
        jnp.ones((4, 1)),
        jnp.ones(4),
        *3 * [PENALTY],
        projection_operator=f,
    ),
    "kl_constraint_loss": lambda f: rlaxlib.kl_constraint_loss(STREAM, PENALTY, f),
    "knn_query": lambda f: rlaxlib.knn_query(
        Q, Q, 1, metric=lambda x, y: f(jnp.sum(x + y))
    ),
    "mpo_compute_weights_and_temperature_loss": lambda f: (
        rlaxlib.mpo_compute_weights_and_temperature_loss(Q, PENALTY, f)
    ),
    "mpo_loss": lambda f: rlaxlib.mpo_loss(Q, Q, PENALTY, [], f),
    "muzero_pair": lambda f: rlaxlib.muzero_pair(-9.0, 9.0, 9, tx(f)).apply(ONE),
    "outside_support": lambda f: rlaxlib.outside_support(
        jnp.array(1.5), rlaxlib.muzero_pair(-2.0, 2.0, 5, tx(f))
    ),
    "sampled_policy_distillation_loss": lambda f: (
        rlaxlib.sampled_policy_distillation_loss(
            Targets(f), rlaxlib.PolicyTarget(jnp.ones((2, 1)), jnp.ones((2, 1)))
        )
    ),
    "squashed_gaussian.logprob": lambda f: rlaxlib.squashed_gaussian().logprob(
        jnp.zeros(1), jnp.zeros(1), jnp.zeros(1), Bounds(f)
    ),
    "squashed_gaussian.prob": lambda f: rlaxlib.squashed_gaussian().prob(
        jnp.zeros(1), jnp.zeros(1), jnp.zeros(1), Bounds(f)
    ),
    "squashed_gaussian.sample": lambda f: rlaxlib.squashed_gaussian().sample(
        KEY, jnp.zeros(1), jnp.zeros(1), Bounds(f)
    ),
    "transformed_general_off_policy_returns_from_action_values": lambda f: (
        rlaxlib.transformed_general_off_policy_returns_from_action_values(
            tx(f), Q, jnp.zeros(3, int), STREAM, STREAM / 4, STREAM / 4, Q / 2
        )
    ),
    "transformed_lambda_returns": lambda f: rlaxlib.transformed_lambda_returns(
        tx(f), STREAM, STREAM / 4, STREAM
    ),
    "transformed_n_step_q_learning": lambda f: rlaxlib.transformed_n_step_q_learning(
        Q, jnp.zeros(3, int), Q, jnp.zeros(3, int), STREAM, STREAM / 4, 2, tx_pair=tx(f)
    ),
    "transformed_n_step_returns": lambda f: rlaxlib.transformed_n_step_returns(
        tx(f), STREAM, STREAM / 4, STREAM, 2
    ),
    "transformed_q_lambda": lambda f: rlaxlib.transformed_q_lambda(
        Q, jnp.zeros(3, int), STREAM, STREAM / 4, Q, 0.5, tx_pair=tx(f)
    ),
    "transformed_retrace": lambda f: rlaxlib.transformed_retrace(
        Q,
        Q,
        jnp.zeros(3, int),
        jnp.zeros(3, int),
        STREAM,
        STREAM / 4,
        Q / 2,
        STREAM / 4,
        0.5,
        tx_pair=tx(f),
    ),
    "tree_map_zipped": lambda f: rlaxlib.tree_map_zipped(
        lambda x, y: f(x + y), [TWO, TWO]
    ),
    "unbiased_transform_pair": lambda f: rlaxlib.unbiased_transform_pair(
        -9.0, 9.0, 9, tx(f)
    ).apply(ONE),
    "vmpo_compute_weights_and_temperature_loss": lambda f: (
        rlaxlib.vmpo_compute_weights_and_temperature_loss(
            STREAM, jnp.ones(3), jnp.ones(3), PENALTY, f, 0.5
        )
    ),
    "vmpo_loss": lambda f: rlaxlib.vmpo_loss(
        STREAM, STREAM, PENALTY, [], projection_operator=f
    ),
    "zero_policy_targets": lambda f: rlaxlib.zero_policy_targets(Targets(f), KEY, 2),
    # Functions that are not checked, and objects that have a function.
    "compose_tx": lambda f: rlaxlib.compose_tx(tx(f), rlaxlib.SIGNED_LOGP1_PAIR).apply(
        TWO
    ),
}


def test_each_function_that_takes_a_function_is_called():
    takes = set()
    for name in contract.public_functions():
        if "softmax" in name:  # It takes an `action_spec`, and does not read it.
            continue
        factory, _, method = name.partition(".")
        function = getattr(rlaxlib, factory)
        function = getattr(function(), method) if method else function
        if hasattr(function, "signature") and function.signature().functions:
            takes.add(name)
    assert takes <= CALLS.keys()


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, kind) for name in CALLS for kind in contract.share(list(KINDS), name, 6)],
)
def test_a_function_of_the_user_does_not_go_stale(name, kind):
    function, change = KINDS[kind]()

    def results():
        for factor in (1.0, 2.0, 1.0):
            change(factor)
            yield jax.tree.leaves(CALLS[name](function))

    # One program traces all calls: eager calls would compile each operation.
    first, changed, again = (
        np.concatenate([np.ravel(x).astype(float) for x in leaves])
        for leaves in jax.jit(lambda: [*results()])()
    )
    assert not np.array_equal(first, changed)
    np.testing.assert_array_equal(again, first)


@pytest.mark.parametrize("name", CALLS)
def test_a_function_of_the_user_need_not_be_hashable(name):
    function = Frozen(jnp.ones(1))
    jax.eval_shape(lambda: CALLS[name](function))


def test_a_tracer_in_an_object_of_the_user_does_not_leak():
    owner = Data()

    def kl(p):
        return jnp.sum(owner.scaled(p) ** 2)

    @jax.jit
    def product(factor):
        owner.factor = factor
        return rlaxlib.fisher_vector_product(kl, TWO, TWO, damping=0.0)

    for factor in (1.0, 2.0):
        np.testing.assert_allclose(product(factor), 2 * factor**2 * TWO)
    product.clear_cache()
    np.testing.assert_allclose(product(3.0), 18 * TWO)
