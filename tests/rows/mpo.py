"""MPO and V-MPO: definitions in NumPy, and rows.

The parts of a penalty are separate arguments, named as in errors:
`temperature_constraint.alpha`, `kl_constraints[0][1].epsilon`.
"""

import functools
import operator
import re

import jax
import numpy as np
from contract import Row

STATES, SAMPLES, DIMENSIONS = 5, 4, 3
STOPPED = "the gradients of some inputs are stopped"


def softplus(x):
    return np.log1p(np.exp(x))


# --- The E-step. ---


def mpo_compute_weights_and_temperature_loss(
    sample_q_values, projection_operator=None, sample_axis=0, **penalties
):
    """Abdolmaleki et al. 2018, section 4.1."""
    temperature = softplus(penalties["temperature_constraint.alpha"])
    bound = penalties["temperature_constraint.epsilon"]
    raised = np.exp(sample_q_values / temperature)
    log_mean = np.log(np.mean(raised, axis=sample_axis))
    weights = raised / np.sum(raised, axis=sample_axis, keepdims=True)
    samples = np.asarray(raised.shape[sample_axis])
    return temperature * (bound + log_mean), weights, samples


def get_top_k_weights(top_k_fraction, restarting_weights, scaled_advantages):
    """Song et al. 2020, section 4.1: the top half of the valid steps."""
    valid = np.flatnonzero(restarting_weights)
    best = np.argsort(-scaled_advantages.ravel()[valid], kind="stable")
    marks = np.zeros(scaled_advantages.size)
    marks[valid[best[: max(1, int(top_k_fraction * len(valid)))]]] = 1.0
    return marks.reshape(scaled_advantages.shape)


def vmpo_compute_weights_and_temperature_loss(
    advantages,
    restarting_weights,
    importance_weights,
    top_k_fraction,
    projection_operator=None,
    **penalties,
):
    """Song et al. 2020, section 4.1."""
    temperature = softplus(penalties["temperature_constraint.alpha"])
    bound = penalties["temperature_constraint.epsilon"]
    chosen = get_top_k_weights(top_k_fraction, restarting_weights, advantages)
    raised = chosen * importance_weights * np.exp(advantages / temperature)
    log_mean = np.log(np.sum(raised) / np.sum(chosen))
    loss = temperature * (bound + log_mean)
    return np.asarray(loss), raised / np.sum(raised), np.sum(chosen)


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


def mpo_loss(sample_log_probs, sample_q_values, sample_axis=0, held=None, **others):
    """Return loss and outputs; `held` are the arguments with stopped gradients.

    With `use_stop_gradient=False` the weights have a gradient.
    """
    settings = {"sample_axis": sample_axis}
    temperature_loss, weights, count = mpo_compute_weights_and_temperature_loss(
        sample_q_values, **settings, **others
    )
    if held and others.get("use_stop_gradient", True):
        given = {name: x for name, x in held.items() if name != "sample_log_probs"}
        _, weights, _ = mpo_compute_weights_and_temperature_loss(**given, **settings)
    policy_loss = -np.sum(weights * sample_log_probs, axis=sample_axis)
    duals = compute_parametric_kl_penalty_and_dual_loss(
        **constraints_of(others), held=constraints_of(held) if held else None
    )
    scales = [others.get(name, 1.0) for name in SCALES]
    return losses(temperature_loss, policy_loss, duals, weights, count, scales)


def vmpo_loss(sample_log_probs, top_k_fraction=0.5, held=None, **others):
    keep = others.pop("use_stop_gradient", True)
    temperature_loss, weights, count = vmpo_compute_weights_and_temperature_loss(
        **others, top_k_fraction=top_k_fraction
    )
    if held:
        constant = {name: x for name, x in held.items() if name != "sample_log_probs"}
        importance = (
            {"importance_weights": constant["importance_weights"]} if keep else {}
        )
        temperature_loss, *_ = vmpo_compute_weights_and_temperature_loss(
            **others | importance, top_k_fraction=top_k_fraction
        )
        if keep:
            _, weights, _ = vmpo_compute_weights_and_temperature_loss(
                **constant, top_k_fraction=top_k_fraction
            )
    policy_loss = -weights.size * weights * sample_log_probs
    duals = compute_parametric_kl_penalty_and_dual_loss(
        **constraints_of(others), held=constraints_of(held) if held else None
    )
    return losses(temperature_loss, policy_loss, duals, weights, count)


def vmpo_e_step_with_constant_weights(x, constants):
    importance = {"importance_weights": constants["importance_weights"]}
    loss, _, count = vmpo_compute_weights_and_temperature_loss(
        **x | importance, top_k_fraction=0.5
    )
    _, weights, _ = vmpo_compute_weights_and_temperature_loss(
        **constants, top_k_fraction=0.5
    )
    return loss, weights, count


SCALES = (
    "policy_loss_weight",
    "temperature_loss_weight",
    "kl_loss_weight",
    "alpha_loss_weight",
)


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


def make_mpo(rng):
    return {
        "sample_log_probs": rng.normal(size=(SAMPLES, STATES)),
        "sample_q_values": rng.normal(size=(SAMPLES, STATES)),
        **make_temperature(rng),
        **make_constraints(rng, (), (DIMENSIONS,)),
    }


def make_vmpo(rng, restarts=2):
    restarting = rng.permutation(np.arange(STATES) >= restarts).astype(float)
    return {
        "advantages": rng.normal(size=STATES),
        "restarting_weights": restarting,
        "importance_weights": rng.uniform(0.5, 1.5, STATES),
        **make_temperature(rng),
    }


def make_vmpo_loss(rng, restarts=2):
    return {
        "sample_log_probs": rng.normal(size=STATES),
        **make_vmpo(rng, restarts),
        **make_constraints(rng, (), (STATES,)),
    }


def without_restarts(make):
    return functools.partial(make, restarts=0)


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
    return Row(
        name=name,
        definition=definition,
        make=make,
        of=assembled(name),
        elementwise=True,
        **exceptions,
    )


SOFTPLUS = {"projection_operator": jax.nn.softplus}
FRACTIONS = {"top_k_fraction": 0.0}, {"top_k_fraction": 1.5}
HALF = np.full(STATES, 0.5, np.float32)
WEIGHTS = {"restarting_weights": HALF}, {"importance_weights": -HALF}

ROWS = [
    row(
        "mpo_compute_weights_and_temperature_loss",
        mpo_compute_weights_and_temperature_loss,
        lambda rng: {
            "sample_q_values": rng.normal(size=(SAMPLES, STATES)),
            **make_temperature(rng),
        },
        settings=SOFTPLUS,
        any_length=("sample_q_values",),
    ),
    row(
        "mpo_compute_weights_and_temperature_loss",
        mpo_compute_weights_and_temperature_loss,
        lambda rng: {
            "sample_q_values": rng.normal(size=(STATES, 2, SAMPLES)),
            **make_temperature(rng),
        },
        case="last axis",
        settings=SOFTPLUS | {"sample_axis": -1},
        any_length=("sample_q_values",),
    ),
    row(
        "mpo_loss",
        mpo_loss,
        make_mpo,
        settings=SOFTPLUS,
        unflagged=lambda x, constants: mpo_loss(**x, held=constants),
        differences=STOPPED,
    ),
    row(
        "mpo_loss",
        mpo_loss,
        make_mpo,
        case="free weights",
        settings=SOFTPLUS
        | {"use_stop_gradient": False}
        | dict(zip(SCALES, (0.5, 2.0, 3.0, 0.25), strict=True)),
        unflagged=lambda x, constants: mpo_loss(
            **x,
            use_stop_gradient=False,
            **dict(zip(SCALES, (0.5, 2.0, 3.0, 0.25), strict=True)),
            held=constants,
        ),
        peer_gradient={None: "rlax's penalty cancels its dual (audit, 1.8)"},
        differences=STOPPED,
    ),
    row(
        "kl_constraint_loss",
        kl_constraint_loss,
        lambda rng: make_constraint(rng, "penalty", "kl", duals=(STATES,)),
        settings=SOFTPLUS,
        peer_of=hidden("kl_constraint_loss"),
        unflagged=lambda x, constants: kl_constraint_loss(**x, held=constants),
        differences=STOPPED,
    ),
    row(
        "kl_constraint_loss",
        kl_constraint_loss,
        lambda rng: make_constraint(
            rng, "penalty", "kl", DIMENSIONS, duals=(DIMENSIONS,)
        ),
        case="per dimension",
        settings=SOFTPLUS | {"use_stop_gradient": False},
        peer_of=hidden("kl_constraint_loss"),
        any_length=("kl",),
    ),
    row(
        "compute_parametric_kl_penalty_and_dual_loss",
        compute_parametric_kl_penalty_and_dual_loss,
        lambda rng: make_constraints(rng, (STATES,), (), (DIMENSIONS,)),
        settings=SOFTPLUS,
        unflagged=lambda x, constants: compute_parametric_kl_penalty_and_dual_loss(
            **x, held=constants
        ),
        differences=STOPPED,
    ),
    row(
        "get_top_k_weights",
        get_top_k_weights,
        lambda rng: {
            "restarting_weights": np.repeat([1.0, 0.0, 1.0], [5, 2, 5])[:, None],
            "scaled_advantages": rng.normal(size=(12, 1)),
        },
        settings={"top_k_fraction": 0.5},
        peer_of=hidden("get_top_k_weights"),
        peer_make=lambda rng: {
            "restarting_weights": np.ones((3, 4)),
            "scaled_advantages": rng.normal(size=(3, 4)),
        },
        differentiable=False,
        invalid=(*FRACTIONS, {"restarting_weights": np.full((12, 1), 0.5, "f")}),
        over_devices=lambda library, axis_name: functools.partial(
            library.get_top_k_weights, axis_name=axis_name
        ),
    ),
    row(
        "vmpo_compute_weights_and_temperature_loss",
        vmpo_compute_weights_and_temperature_loss,
        make_vmpo,
        settings=SOFTPLUS | {"top_k_fraction": 0.5},
        peer_make=without_restarts(make_vmpo),
        constant=("restarting_weights",),
        targets=("importance_weights",),
        flagged=vmpo_e_step_with_constant_weights,
        invalid=FRACTIONS + WEIGHTS,
    ),
    row(
        "vmpo_loss",
        vmpo_loss,
        make_vmpo_loss,
        settings=SOFTPLUS,
        peer_make=without_restarts(make_vmpo_loss),
        constant=("restarting_weights",),
        unflagged=lambda x, constants: vmpo_loss(**x, held=constants),
        differences=STOPPED,
        invalid=FRACTIONS + WEIGHTS,
    ),
    row(
        "vmpo_loss",
        vmpo_loss,
        make_vmpo_loss,
        case="free weights",
        settings=SOFTPLUS | {"use_stop_gradient": False, "top_k_fraction": 1.0},
        peer_make=without_restarts(make_vmpo_loss),
        peer_gradient={None: "rlax's penalty cancels its dual (audit, 1.8)"},
        constant=("restarting_weights",),
        unflagged=lambda x, constants: vmpo_loss(
            **x, use_stop_gradient=False, top_k_fraction=1.0, held=constants
        ),
        differences=STOPPED,
    ),
]
