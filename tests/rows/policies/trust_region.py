"""Rows of `policies/_trust_region.py`, and their definitions in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
from row import Gradients, Precision, Row

PARAMETERS, ACTIONS = 4, 3


def fisher_vector_product(params, vector, damping=0.0):
    """The Fisher matrix of a softmax is diag(p) - p pᵀ."""
    p = np.exp(params) / np.sum(np.exp(params))
    return (np.diag(p) - np.outer(p, p)) @ vector + damping * vector


def kl_from_uniform(logits):
    p = jnp.full_like(logits, 1 / PARAMETERS)
    return jnp.sum(p * (jnp.log(p) - jax.nn.log_softmax(logits)))


def trust_region_step_size(direction, product, max_kl=0.01):
    """Schulman et al. 2015, appendix C."""
    return np.sqrt(2 * max_kl / np.dot(direction, product))


def loss_and_kl(params):
    return ((params - 1.0) ** 2).sum(), (params**2).sum() / 2


def backtracking_line_search(params, step, max_kl=0.01, shrink=0.8, num_tries=10):
    """Schulman et al. 2015, appendix C: shrink the step until it is good."""
    start = loss_and_kl(params)
    for j in range(num_tries):
        moved = params + shrink**j * step
        loss, kl = loss_and_kl(moved)
        if loss < start[0] and kl <= max_kl:
            return moved, np.asarray(shrink**j), loss, kl
    return params, np.asarray(0.0), *start


def cpo_step(gradient_square, gradient_product, cost_square, cost, max_kl=0.01):
    """Achiam et al. 2017, theorem 2: the dual, maximised over a fine grid."""
    q, r, s = gradient_square, gradient_product, cost_square
    square = 2 * max_kl
    if cost > 0 and cost**2 > square * s:
        return np.asarray(0.0), np.asarray(-np.sqrt(square / s)), np.asarray(False)
    a, b = q - r**2 / s, square - cost**2 / s

    def dual(lam):
        active = -(a / lam + b * lam) / 2 - r * cost / s
        return active if lam * cost > r else -(q / lam + square * lam) / 2

    edge = r / cost
    roots = [np.sqrt(q / square), *([np.sqrt(a / b)] if b > 0 else [])]
    candidates = [lam for lam in [*roots, edge] if lam > 0]
    lam = max(candidates, key=dual)
    nu = max(0.0, (lam * cost - r) / s)
    return np.asarray(-1 / lam), np.asarray(-nu / lam), np.asarray(True)


def acer_trust_region(gradient, kl_gradient, max_change=1.0):
    """Wang et al. 2016, section 3.3."""
    projected = []
    for g, k in zip(gradient, kl_gradient, strict=True):
        factor = max(0.0, (k @ g - max_change) / np.linalg.norm(k) ** 2)
        projected.append(g - factor * k)
    return np.stack(projected)


# --- Arguments. ---


def with_function(name, function):
    """Find a function of the library, with its first argument."""

    def find(library):
        return lambda **arguments: getattr(library, name)(function, **arguments)

    return find


def vectors(*names, **scalars):
    def make(rng):
        drawn = {name: rng.normal(size=PARAMETERS) for name in names}
        return drawn | {
            name: np.asarray(rng.uniform(*ends)) for name, ends in scalars.items()
        }

    return make


def make_product(rng):
    direction = rng.normal(size=PARAMETERS)
    root = rng.normal(size=(PARAMETERS, PARAMETERS))
    matrix = root @ root.T
    return {
        "direction": direction,
        "product": matrix @ direction,
        "max_kl": np.asarray(rng.uniform(0.1, 1.0)),
    }


def make_problem(sign, scale):
    """Sample a problem with a cost of a sign, in units of its reach."""

    def make(rng):
        g, b = rng.normal(size=(2, PARAMETERS))
        root = rng.normal(size=(PARAMETERS, PARAMETERS)) + 2 * np.eye(PARAMETERS)
        inverse = np.linalg.inv(root @ root.T)
        s, max_kl = b @ inverse @ b, rng.uniform(0.1, 1.0)
        return {
            "gradient_square": np.asarray(g @ inverse @ g),
            "gradient_product": np.asarray(g @ inverse @ b),
            "cost_square": np.asarray(s),
            "cost": np.asarray(sign * scale * np.sqrt(2 * max_kl * s)),
            "max_kl": np.asarray(max_kl),
        }

    return make


def make_gradients(rng):
    gradient = rng.normal(size=(5, ACTIONS))
    kl_gradient = gradient + 0.5 * rng.normal(size=(5, ACTIONS))
    return {
        "gradient": gradient,
        "kl_gradient": kl_gradient,
        "max_change": np.asarray(rng.uniform(0.1, 0.5)),
    }


FISHER = with_function("fisher_vector_product", kl_from_uniform)


SEARCH = with_function("backtracking_line_search", loss_and_kl)


ROWS = [
    Row(
        fisher_vector_product,
        vectors("params", "vector", damping=(0.1, 1.0)),
        find=FISHER,
        precision=Precision(decisive=("params", "vector"), carried={"vector": 0}),
    ),
    Row(
        trust_region_step_size,
        make_product,
        precision=Precision(condition=16.0, single_outputs=(0,)),
    ),
    *(
        Row(
            backtracking_line_search,
            vectors("params", "step", max_kl=ends, shrink=(0.4, 0.6)),
            case,
            find=SEARCH,
            settings={"num_tries": tries},
            gradients=Gradients(exist=False),
            precision=Precision(
                single_outputs=(1,),
                carried={"params": 0},
                decisive=("params", "step"),
            ),
        )
        for case, ends, tries in (("", (1.0, 5.0), 8), ("none", (0.0, 1e-3), 3))
    ),
    *(
        Row(
            cpo_step,
            make_problem(sign, scale),
            case,
            precision=Precision(condition=64.0),
            gradients=Gradients(exist=False),
        )
        for case, sign, scale in (
            ("below the limit", -1, 0.5),
            ("far below", -1, 2.0),
            ("above the limit", 1, 0.5),
            ("infeasible", 1, 2.0),
        )
    ),
    Row(acer_trust_region, make_gradients, precision=Precision(condition=4.0)),
]
