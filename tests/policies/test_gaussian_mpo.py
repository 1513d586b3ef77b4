"""Test MPO for Gaussian policies: decoupled updates, constraints, bounds on actions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close
from scipy.special import softmax

import rlaxlib
from rlaxlib import LagrangePenalty
from rlaxlib.policies._shared import softplus

RNG = np.random.default_rng(0)
STATES, SAMPLES, DIMENSIONS = 4, 6, 3


def draw(make, *shape):
    return make(size=shape).astype(np.float32)


POSITIVE = functools.partial(RNG.uniform, 0.5, 1.5)
BATCH = {
    "mean": draw(RNG.normal, STATES, DIMENSIONS),
    "stddev": draw(POSITIVE, STATES, DIMENSIONS),
    "target_mean": draw(RNG.normal, STATES, DIMENSIONS),
    "target_stddev": draw(POSITIVE, STATES, DIMENSIONS),
    "sample_actions": draw(RNG.normal, STATES, SAMPLES, DIMENSIONS),
    "sample_q_values": draw(RNG.normal, STATES, SAMPLES),
}
STATE = {name: x[0] for name, x in BATCH.items()}
CONSTRAINTS = {
    "temperature_constraint": LagrangePenalty(np.float32(0.3), 0.1),
    "mean_constraint": LagrangePenalty(np.float32(0.5), 0.01),
    "stddev_constraint": LagrangePenalty(np.float32(-0.5), 0.001),
}
BOUNDS = LagrangePenalty(np.float32(0.1), 0.02)


def gaussian(state=STATE, **changes):
    return rlaxlib.gaussian_mpo_loss(**{**state, **CONSTRAINTS, **changes})


compiled = jax.jit(rlaxlib.gaussian_mpo_loss, static_argnames="projection_operator")


def outputs_of(state=STATE, **changes):
    """Return the outputs, compiled once for all states of one shape."""
    return compiled(**{**state, **CONSTRAINTS, **changes})[1]


def per_dimension(name):
    alphas = np.float32([0.5, -1.0, 2.0])
    return {name: CONSTRAINTS[name]._replace(alpha=alphas, per_dimension=True)}


def losses(outputs):
    """Return the losses in an output, under their names."""
    leaves = jax.tree_util.tree_leaves_with_path(outputs)
    named = {"".join(str(key) for key in path)[1:]: leaf for path, leaf in leaves}
    return {name: leaf for name, leaf in named.items() if name.endswith("loss")}


def finite(tree):
    return all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(tree))


# --- Values and gradients. ---


def test_each_term_trains_its_own_parameters():
    arguments = {**STATE, **CONSTRAINTS, "bounds_constraint": BOUNDS}

    def terms(arguments):
        loss, outputs = rlaxlib.gaussian_mpo_loss(**arguments)
        return losses(outputs), (loss, losses(outputs))

    jacobians, (loss, each) = jax.jit(jax.jacrev(terms, has_aux=True))(arguments)
    trained = {
        term: {
            name
            for name, jacobian in by.items()
            if any(np.any(np.asarray(leaf)) for leaf in jax.tree.leaves(jacobian))
        }
        for term, by in jacobians.items()
    }
    assert trained == {
        "mean_policy_loss": {"mean"},
        "stddev_policy_loss": {"stddev"},
        "temperature.loss": {"temperature_constraint"},
        "bounds_temperature.loss": {"bounds_constraint"},
        "mean_constraint.kl_loss": {"mean"},
        "mean_constraint.alpha_loss": {"mean_constraint"},
        "stddev_constraint.kl_loss": {"stddev"},
        "stddev_constraint.alpha_loss": {"stddev_constraint"},
    }
    close(loss, sum(map(float, each.values())))


def test_gradients_are_decoupled_by_the_target_policy():
    gradients, outputs = jax.jit(
        jax.grad(lambda x: gaussian({**STATE, **x}), has_aux=True)
    )({name: STATE[name] for name in ("mean", "stddev")})
    w = np.asarray(outputs.temperature.weights)[:, None]
    state = {name: np.asarray(x) for name, x in STATE.items()}
    actions, old_mu = state["sample_actions"], state["target_mean"]
    mu, sigma, old_sigma = (state[x] for x in ("mean", "stddev", "target_stddev"))
    likelihood = -np.sum(w * (actions - mu), axis=0) / old_sigma**2
    kl = (mu - old_mu) / old_sigma**2
    alpha = float(outputs.mean_constraint.alpha)
    close(gradients["mean"], likelihood + alpha * kl)
    likelihood = 1 / sigma - np.sum(w * (actions - old_mu) ** 2, axis=0) / sigma**3
    kl = 1 / sigma - old_sigma**2 / sigma**3
    alpha = float(outputs.stddev_constraint.alpha)
    close(gradients["stddev"], likelihood + alpha * kl)


def test_loss_equals_mpo_loss_with_both_parts_of_the_divergence():
    constraints = CONSTRAINTS | per_dimension("stddev_constraint")
    mu, sigma, actions = (STATE[x] for x in ("mean", "stddev", "sample_actions"))
    old_mu, old_sigma = STATE["target_mean"], STATE["target_stddev"]

    def log_prob(mu, sigma):
        return rlaxlib.gaussian_diagonal().logprob(actions, mu, sigma)

    def divergences(mu, sigma):
        ratio = old_sigma / sigma
        return (
            0.5 * ((mu - old_mu) / old_sigma) ** 2,
            0.5 * (ratio**2 - 1) - jnp.log(ratio),
        )

    def whole(mu, sigma, constraints):
        return gaussian({**STATE, "mean": mu, "stddev": sigma}, **constraints)[0]

    def parts(mu, sigma, constraints):
        pairs = []
        names = "mean_constraint", "stddev_constraint"
        for kl, each in zip(divergences(mu, sigma), names, strict=True):
            penalty = constraints[each]
            pairs.append((kl if penalty.per_dimension else jnp.sum(kl), penalty))
        return rlaxlib.mpo_loss(
            log_prob(mu, old_sigma) + log_prob(old_mu, sigma),
            STATE["sample_q_values"],
            constraints["temperature_constraint"],
            pairs,
            softplus,
        )[0]

    @jax.jit
    def both(*inputs):
        return [jax.value_and_grad(f, (0, 1, 2))(*inputs) for f in (whole, parts)]

    jax.tree.map(close, *both(mu, sigma, constraints))


def test_mean_over_states_trains_dual_variables_on_mean_divergences():
    constraints = CONSTRAINTS | per_dimension("mean_constraint")

    def mean(constraints):
        loss = jax.vmap(lambda state: gaussian(state, **constraints)[0])
        return jnp.mean(loss(BATCH))

    def duals(constraints):
        eta = softplus(constraints["temperature_constraint"].alpha)
        q = BATCH["sample_q_values"]
        log_means = jax.nn.logsumexp(q / eta, axis=-1) - np.log(SAMPLES)
        total = eta * (0.1 + jnp.mean(log_means))
        z = (BATCH["mean"] - BATCH["target_mean"]) / BATCH["target_stddev"]
        kl = np.mean(0.5 * z**2, axis=0)
        total += jnp.sum(softplus(constraints["mean_constraint"].alpha) * (0.01 - kl))
        ratio = BATCH["target_stddev"] / BATCH["stddev"]
        kl = np.mean(np.sum(0.5 * (ratio**2 - 1) - np.log(ratio), axis=-1))
        return total + softplus(constraints["stddev_constraint"].alpha) * (0.001 - kl)

    both = jax.jit(lambda x: [jax.grad(f)(x) for f in (mean, duals)])
    found, expected = both(constraints)
    for name in constraints:
        close(found[name].alpha, expected[name].alpha)


def test_constraints_per_dimension_split_the_divergence():
    whole, parts = outputs_of(), outputs_of(**per_dimension("mean_constraint"))
    assert (
        parts.mean_constraint.kl.shape
        == parts.mean_constraint.alpha.shape
        == (DIMENSIONS,)
    )
    kl = np.asarray(parts.mean_constraint.kl)
    close(np.sum(kl), whole.mean_constraint.kl)
    close(parts.mean_constraint.relative_kl, kl / 0.01)
    assert parts.stddev_constraint.kl.shape == ()


def test_actions_are_weighed_by_their_distance_from_the_bounds():
    actions = np.float32([[0.5, 0.0], [2.0, -2.0], [0.0, 3.0], [-1.0, 1.0]])
    state = {**{name: x[:2] for name, x in STATE.items()}, "sample_actions": actions}
    state["sample_q_values"] = STATE["sample_q_values"][:4]
    settings = {"bounds_constraint": LagrangePenalty(np.float32(2.0), 0.02)}

    @jax.jit
    def both(state):
        relu = {"projection_operator": jax.nn.relu} | settings
        bounds = {"minimum": np.float32([-1.0, -2.0]), "maximum": 3.0}
        outputs = [gaussian(state, **relu)[1], gaussian(state, **relu, **bounds)[1]]
        log_prob = rlaxlib.gaussian_diagonal().logprob
        return outputs, log_prob(actions, state["mean"], state["target_stddev"])

    (narrow, wide), log_probs = both(state)
    distances = np.array([0.0, np.sqrt(2), 2.0, 0.0])
    close(narrow.bounds_temperature.weights, softmax(-distances / 2))
    close(wide.bounds_temperature.weights, np.full(4, 0.25))
    weights = wide.temperature.weights, wide.bounds_temperature.weights
    weights = np.sum(weights, axis=0)
    close(wide.mean_policy_loss, -np.sum(weights * np.asarray(log_probs)))


# --- Limits. ---


def test_one_sample_has_all_the_weight():
    state = {**STATE, "sample_q_values": np.float32([7.0])}
    state["sample_actions"] = STATE["sample_actions"][:1]
    temperature = outputs_of(state).temperature
    close(temperature.weights, [1.0])
    close(temperature.loss, 7.0 + 0.1 * float(temperature.temperature))
    assert temperature.kl == 0
    assert temperature.effective_sample_size == 1


@pytest.mark.parametrize("q", [0.0, -1e6, 1e6])
def test_equal_values_have_uniform_weights(q):
    values = np.full(SAMPLES, q, np.float32)
    temperature = outputs_of({**STATE, "sample_q_values": values}).temperature
    close(temperature.weights, np.full(SAMPLES, 1 / SAMPLES))
    assert temperature.kl == temperature.relative_kl == 0
    close(temperature.effective_sample_size, SAMPLES)


def test_divergence_and_its_gradient_are_zero_directly_after_a_copy():
    copy = {**STATE, "mean": STATE["target_mean"], "stddev": STATE["target_stddev"]}

    def penalty(mu, sigma):
        _, outputs = gaussian({**copy, "mean": mu, "stddev": sigma})
        return outputs.mean_constraint.kl_loss + outputs.stddev_constraint.kl_loss

    gradient = jax.jit(jax.value_and_grad(penalty, (0, 1)))
    value, gradients = gradient(copy["mean"], copy["stddev"])
    assert value == 0
    assert not np.any(gradients)


def test_divergence_of_the_weights_is_at_most_the_log_of_the_samples():
    settings = {"temperature_constraint": LagrangePenalty(np.float32(-18.0), 1e6)}
    temperature = outputs_of(**settings).temperature
    close(temperature.kl, np.log(SAMPLES))
    assert temperature.relative_kl < 1e-5
    close(temperature.effective_sample_size, 1.0)


# --- Extremes. ---


def test_loss_is_finite_for_any_value_and_dual_variable():
    constraints = {**CONSTRAINTS, "bounds_constraint": BOUNDS}

    def loss(state, alpha):
        duals = {name: x._replace(alpha=alpha) for name, x in constraints.items()}
        return gaussian(state, **duals)

    gradient = jax.value_and_grad(loss, (0, 1), has_aux=True)
    gradient = jax.jit(jax.vmap(gradient, (None, 0)))
    for scale in (1e-6, 1e6):
        q = np.float32(scale * STATE["sample_q_values"])
        state = {**STATE, "sample_q_values": q}
        assert finite(gradient(state, np.float32([-100.0, 0.0, 100.0])))


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_dual_variables_are_positive_in_half_precision(dtype):
    low = LagrangePenalty(np.asarray(-50.0, dtype), np.asarray(0.125, dtype))
    half = {name: x.astype(dtype) for name, x in STATE.items()}
    # Compiled programs may compute half precision in float32 otherwise.
    exact = {"xla_allow_excess_precision": False}
    learn = jax.jit(rlaxlib.gaussian_mpo_loss, compiler_options=exact)
    loss, outputs = learn(**half, **dict.fromkeys(CONSTRAINTS, low))
    assert loss.dtype == dtype
    assert finite((loss, outputs))
    best = np.argmax(half["sample_q_values"])
    np.testing.assert_array_equal(outputs.temperature.weights, np.eye(SAMPLES)[best])


# --- Errors. ---

PER_DIMENSION = LagrangePenalty(1.0, 0.1, per_dimension=True)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: gaussian(stddev_constraint=LagrangePenalty(np.ones(3), 0.1)),
            r"`stddev_constraint.alpha` has shape \(3,\), must be \(\) or \(1,\)\.",
        ),
        (
            lambda: gaussian(mean_constraint=PER_DIMENSION._replace(alpha=np.ones(2))),
            r"`mean_constraint.alpha` has shape \(2,\), must be .* or \(3,\)",
        ),
        (
            lambda: gaussian(temperature_constraint=PER_DIMENSION),
            r"`temperature_constraint.per_dimension` is True, must be False",
        ),
        (
            lambda: gaussian(bounds_constraint=PER_DIMENSION),
            r"`bounds_constraint.per_dimension` is True, must be False",
        ),
    ],
)
def test_names_the_wrong_argument(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        jax.eval_shape(call)
