"""Rows of `policies/_constraints.py`, and their definitions in NumPy.

The parts of a penalty are separate arguments, named as in errors:
`temperature_constraint.alpha`, `kl_constraints[0][1].epsilon`.
"""

import functools
import operator
import re

import jax
import jax.numpy as jnp
import numpy as np
from row import Gradients, Loose, Peer, Precision, Row

STATES, SAMPLES, DIMENSIONS = 5, 4, 3


STOPPED = "the gradients of some inputs are stopped"


def softplus(x):
    return np.log1p(np.exp(x))


# --- The M-step. ---


def kl_constraint_loss(kl, projection_operator=None, held=None, **penalty):
    """Abdolmaleki et al. 2018, section 4.2: the Lagrangian, one player at a time."""
    alpha, bound = softplus(penalty["penalty.alpha"]), penalty["penalty.epsilon"]
    constant_alpha = softplus(held["penalty.alpha"]) if held else alpha
    constant_kl = held["kl"] if held else kl
    kl_loss, alpha_loss = constant_alpha * kl, alpha * (bound - constant_kl)
    if kl.ndim > alpha.ndim > 0:
        kl_loss, alpha_loss = kl_loss.sum(axis=-1), alpha_loss.sum(axis=-1)
    return kl_loss, alpha_loss, alpha


def compute_parametric_kl_penalty_and_dual_loss(
    projection_operator=None, held=None, **constraints
):
    def one(arguments, i):
        names = {"kl": "[0]", "penalty.alpha": "[1].alpha"}
        names["penalty.epsilon"] = "[1].epsilon"
        return {name: arguments[f"kl_constraints[{i}]{names[name]}"] for name in names}

    count = sum(name.endswith("[0]") for name in constraints)
    losses = [
        kl_constraint_loss(**one(constraints, i), held=one(held, i) if held else None)
        for i in range(count)
    ]
    return sum(loss[0] for loss in losses), sum(loss[1] for loss in losses)


def constraints_of(arguments):
    return {name: x for name, x in arguments.items() if name.startswith("kl_constr")}


def losses(temperature_loss, policy_loss, duals, weights, count, scales=(1, 1, 1, 1)):
    """Return the weighted sum of the four losses, and the fields of `MpoOutputs`."""
    parts = policy_loss, temperature_loss, *duals
    total = sum(scale * part for scale, part in zip(scales, parts, strict=True))
    return total, temperature_loss, policy_loss, *duals, weights, count


# --- Arguments. ---


def make_temperature(rng):
    return {
        "temperature_constraint.alpha": np.asarray(rng.uniform(0.2, 1.0)),
        "temperature_constraint.epsilon": np.asarray(rng.uniform(0.1, 0.5)),
    }


def make_constraint(rng, name, kl_name, *axes, duals=()):
    return {
        kl_name: rng.uniform(0.1, 1.0, (STATES, *axes)),
        f"{name}.alpha": rng.normal(size=duals),
        f"{name}.epsilon": np.asarray(rng.uniform(0.1, 0.5)),
    }


def make_constraints(rng, *duals):
    drawn = {}
    for i, dual in enumerate(duals):
        name = f"kl_constraints[{i}]"
        axes = dual[-1:] if dual[-1:] == (DIMENSIONS,) else ()
        drawn |= make_constraint(rng, f"{name}[1]", f"{name}[0]", *axes, duals=dual)
    return drawn


def assembled(name):
    """Find a function, and let it take the parts of a penalty as arguments."""

    def find(library):
        function = operator.attrgetter(name)(library)

        @functools.wraps(function)
        def call(**arguments):
            return function(**assemble(library.LagrangePenalty, arguments))

        return call

    return find


def assemble(penalty, arguments):
    """Make penalties, and the list of constraints, of their parts."""
    plain = {name: x for name, x in arguments.items() if not re.search(r"[.\[]", name)}
    constraints = []
    for name in [each for each in arguments if each.endswith(".alpha")]:
        where = name.removesuffix(".alpha")
        kl = arguments.get("kl", arguments.get(f"{where.removesuffix('[1]')}[0]"))
        alpha, bound = arguments[name], arguments[f"{where}.epsilon"]
        dimensions = getattr(kl, "ndim", 0) > 1
        made = penalty(alpha=alpha, epsilon=bound, per_dimension=dimensions)
        if where.startswith("kl_constraints"):
            constraints.append((kl, made))
        else:
            plain[where] = made
    return plain | ({"kl_constraints": constraints} if constraints else {})


def hidden(name):
    """Find a private function of rlax."""
    return lambda rlax: assembled(f"_src.mpo_ops.{name}")(
        _Namespace(_src=rlax._src, LagrangePenalty=rlax.LagrangePenalty)
    )


class _Namespace:
    def __init__(self, **names):
        self.__dict__.update(names)


def row(name, definition, make, **exceptions):
    return Row(definition, make, name=name, find=assembled(name), **exceptions)


SOFTPLUS = {"projection_operator": jax.nn.softplus}


# --- Constraints. ---


def pid_lagrangian(cost, limit=1.0, k_p=0.5, k_i=0.25, k_d=2.0, **state):
    """Stooke et al. 2020, algorithm 2."""
    integral = max(0.0, state["state.integral"] + cost - limit)
    derivative = max(0.0, cost - state["state.cost"])
    control = k_p * (cost - limit) + k_i * integral + k_d * derivative
    return [np.asarray(x) for x in (max(0.0, control), integral, cost, 0.0)]


def one_update(library):
    """Return a function that updates a state given in parts."""

    def update(cost, limit=1.0, k_p=0.5, k_i=0.25, k_d=2.0, **state):
        controller = library.pid_lagrangian(limit, k_p, k_i, k_d)
        integral, past = state["state.integral"], state["state.cost"]
        rest = jnp.zeros((), getattr(past, "dtype", None))
        before = library.PidLagrangianState(integral, past, rest)
        return controller.update(before, cost)

    return update


# --- Arguments. ---


def make_costs(cost):
    def make(rng):
        return {
            "cost": np.asarray(cost),
            "state.integral": np.asarray(rng.uniform(1.0, 2.0)),
            "state.cost": np.asarray(rng.uniform(1.0, 2.0)),
        }

    return make


ROWS = [
    row(
        "kl_constraint_loss",
        kl_constraint_loss,
        lambda rng: make_constraint(rng, "penalty", "kl", duals=(STATES,)),
        settings=SOFTPLUS,
        peer=Peer(find=hidden("kl_constraint_loss")),
        gradients=Gradients(
            free_definition=lambda x, constants: kl_constraint_loss(
                **x, held=constants
            ),
            first_order_only=STOPPED,
        ),
    ),
    row(
        "kl_constraint_loss",
        kl_constraint_loss,
        lambda rng: make_constraint(
            rng, "penalty", "kl", DIMENSIONS, duals=(DIMENSIONS,)
        ),
        case="per dimension",
        settings=SOFTPLUS | {"use_stop_gradient": False},
        peer=Peer(find=hidden("kl_constraint_loss")),
        loose=Loose(lengths=("kl",)),
    ),
    row(
        "compute_parametric_kl_penalty_and_dual_loss",
        compute_parametric_kl_penalty_and_dual_loss,
        lambda rng: make_constraints(rng, (STATES,), (), (DIMENSIONS,)),
        settings=SOFTPLUS,
        gradients=Gradients(
            free_definition=lambda x, constants: (
                compute_parametric_kl_penalty_and_dual_loss(**x, held=constants)
            ),
            first_order_only=STOPPED,
        ),
    ),
    *(
        Row(
            pid_lagrangian,
            make_costs(cost),
            case,
            find=one_update,
            gradients=Gradients(exist=False),
            precision=Precision(
                condition=4.0,
                decisive=("cost",),
                single_outputs=(0,),
                carried={"state.integral": 1, "state.cost": 2},
            ),
        )
        for case, cost in {"": 3.0, "within the limit": 0.75, "far below": -3.0}.items()
    ),
]
