"""Test MPO for policies of a known form: who learns from what, and what is told."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib
from rlaxlib import LagrangePenalty
from rlaxlib.policies._constraints import softplus

RNG = np.random.default_rng(0)
STATES, SAMPLES, DIMENSIONS = 4, 6, 3


def draw(make, *shape):
    return jnp.asarray(make(size=shape), jnp.float32)


POSITIVE = functools.partial(RNG.uniform, 0.5, 1.5)
BATCH = {
    "mu": draw(RNG.normal, STATES, DIMENSIONS),
    "sigma": draw(POSITIVE, STATES, DIMENSIONS),
    "target_mu": draw(RNG.normal, STATES, DIMENSIONS),
    "target_sigma": draw(POSITIVE, STATES, DIMENSIONS),
    "sample_actions": draw(RNG.normal, STATES, SAMPLES, DIMENSIONS),
    "sample_q_values": draw(RNG.normal, STATES, SAMPLES),
}
STATE = {name: x[0] for name, x in BATCH.items()}
LOGITS, TARGET_LOGITS, Q = draw(RNG.normal, 3, 4)
CONSTRAINTS = {
    "temperature_constraint": LagrangePenalty(jnp.float32(0.3), 0.1),
    "mean_constraint": LagrangePenalty(jnp.float32(0.5), 0.01),
    "stddev_constraint": LagrangePenalty(jnp.float32(-0.5), 0.001),
}
BOUNDS = LagrangePenalty(jnp.float32(0.1), 0.02)
DISCRETE = {
    "temperature_constraint": LagrangePenalty(jnp.float32(0.3), 0.1),
    "policy_constraint": LagrangePenalty(jnp.float32(0.5), 0.01),
}


def gaussian(state=STATE, **changes):
    return rlaxlib.gaussian_mpo_loss(**{**state, **CONSTRAINTS, **changes})


def categorical(logits=LOGITS, target_logits=TARGET_LOGITS, q_values=Q, **changes):
    return rlaxlib.categorical_mpo_loss(
        logits, target_logits, q_values, **{**DISCRETE, **changes}
    )


def per_dimension(name):
    alphas = jnp.array([0.5, -1.0, 2.0])
    return {name: CONSTRAINTS[name]._replace(alpha=alphas, per_dimension=True)}


def learns_from(function, arguments):
    """Return the arguments that each loss has a gradient in."""
    names = {id(x): name for name, x in arguments.items()}
    assert len(names) == len(arguments)
    slopes = jax.jit(jax.jacrev(lambda x: losses(function(**x)[1])))(arguments)
    return {
        part: {
            name
            for name, slope in by.items()
            if any(np.any(leaf) for leaf in jax.tree.leaves(slope))
        }
        for part, by in slopes.items()
    }


def losses(outputs):
    """Return all numbers of an output, under the names of where they stand."""
    leaves = jax.tree_util.tree_leaves_with_path(outputs)
    return {"".join(str(key) for key in path)[1:]: leaf for path, leaf in leaves}


# --- What the functions compute. ---


def test_each_part_of_a_gaussian_learns_from_its_own_losses_only():
    arguments = {**STATE, **CONSTRAINTS, "bounds_constraint": BOUNDS}
    found = learns_from(rlaxlib.gaussian_mpo_loss, arguments)
    expected = {
        "mean_policy_loss": {"mu"},
        "stddev_policy_loss": {"sigma"},
        "by_value.loss": {"temperature_constraint"},
        "by_bounds.loss": {"bounds_constraint"},
        "mean.kl_loss": {"mu"},
        "mean.alpha_loss": {"mean_constraint"},
        "stddev.kl_loss": {"sigma"},
        "stddev.alpha_loss": {"stddev_constraint"},
    }
    assert {part: by for part, by in found.items() if by} == expected


def test_each_part_of_a_categorical_learns_from_its_own_losses_only():
    arguments = {
        "logits": LOGITS,
        "target_logits": TARGET_LOGITS,
        "q_values": Q,
        **DISCRETE,
    }
    found = learns_from(rlaxlib.categorical_mpo_loss, arguments)
    expected = {
        "policy_loss": {"logits"},
        "by_value.loss": {"temperature_constraint"},
        "policy.kl_loss": {"logits"},
        "policy.alpha_loss": {"policy_constraint"},
    }
    assert {part: by for part, by in found.items() if by} == expected


def test_a_gaussian_moves_as_under_the_other_half_of_its_target():
    _, outputs = gaussian()
    slopes = jax.grad(lambda x: gaussian({**STATE, **x})[0])(
        {name: STATE[name] for name in ("mu", "sigma")}
    )
    w = np.asarray(outputs.by_value.weights)[:, None]
    state = {name: np.asarray(x) for name, x in STATE.items()}
    actions, old_mu = state["sample_actions"], state["target_mu"]
    mu, sigma, old_sigma = (state[x] for x in ("mu", "sigma", "target_sigma"))
    pull = -np.sum(w * (actions - mu), axis=0) / old_sigma**2
    close(slopes["mu"], pull + outputs.mean.alpha * (mu - old_mu) / old_sigma**2)
    spread = np.sum(w * (actions - old_mu) ** 2, axis=0) / sigma**3
    kl_slope = 1 / sigma - old_sigma**2 / sigma**3
    close(slopes["sigma"], 1 / sigma - spread + outputs.stddev.alpha * kl_slope)


def test_logits_move_towards_the_weights_and_the_target():
    _, outputs = categorical()
    slope = jax.grad(lambda logits: categorical(logits)[0])(LOGITS)
    policy, target = jax.nn.softmax(LOGITS), jax.nn.softmax(TARGET_LOGITS)
    pull = policy - outputs.by_value.weights
    close(slope, pull + outputs.policy.alpha * (policy - target))


@pytest.mark.parametrize("function", [gaussian, categorical])
def test_the_temperature_rests_where_weights_are_at_their_bound(function):
    def loss(temperature):
        constraint = LagrangePenalty(temperature, 0.1)
        settings = {"temperature_constraint": constraint}
        _, outputs = function(projection_operator=jnp.exp, **settings)
        return outputs.by_value.loss, outputs.by_value

    for log_temperature in (-1.0, 0.0, 2.0):
        slope, by_value = jax.grad(loss, has_aux=True)(log_temperature)
        close(slope, by_value.temperature * (0.1 - by_value.kl))
        close(by_value.relative_kl, by_value.kl / 0.1)


def test_actions_out_of_bounds_weigh_less_and_others_the_same():
    actions = jnp.array([[0.5, 0.0], [2.0, -2.0], [0.0, 3.0], [-1.0, 1.0]])
    state = {**{name: x[:2] for name, x in STATE.items()}, "sample_actions": actions}
    state["sample_q_values"] = STATE["sample_q_values"][:4]
    temperature = LagrangePenalty(jnp.float32(2.0), 0.02)
    settings = {"bounds_constraint": temperature, "projection_operator": jax.nn.relu}
    _, outputs = gaussian(state, **settings)
    distances = jnp.array([0.0, np.sqrt(2), 2.0, 0.0])
    close(outputs.by_bounds.weights, jax.nn.softmax(-distances / 2))
    _, outputs = gaussian(
        state, minimum=jnp.array([-1.0, -2.0]), maximum=3.0, **settings
    )
    close(outputs.by_bounds.weights, 0.25 * np.ones(4))
    weights = outputs.by_value.weights + outputs.by_bounds.weights
    log_prob = rlaxlib.gaussian_diagonal().logprob
    log_probs = log_prob(actions, state["mu"], state["target_sigma"])
    close(outputs.mean_policy_loss, -jnp.sum(weights * log_probs))


# --- How the functions relate. ---


@pytest.mark.parametrize("name", ["mean_constraint", "stddev_constraint"])
def test_a_gaussian_is_mpo_with_both_halves_of_the_divergence(name):
    changes = per_dimension(name)
    constraints = CONSTRAINTS | changes
    mu, sigma, actions = (STATE[x] for x in ("mu", "sigma", "sample_actions"))
    old_mu, old_sigma = STATE["target_mu"], STATE["target_sigma"]

    def log_prob(mu, sigma):
        return rlaxlib.gaussian_diagonal().logprob(actions, mu, sigma)

    def divergences(mu, sigma):
        ratio = old_sigma / sigma
        return (
            0.5 * ((mu - old_mu) / old_sigma) ** 2,
            0.5 * (ratio**2 - 1) - jnp.log(ratio),
        )

    def whole(mu, sigma, constraints):
        return gaussian({**STATE, "mu": mu, "sigma": sigma}, **constraints)[0]

    def pieces(mu, sigma, constraints):
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

    for one, other in zip(
        jax.tree.leaves(jax.value_and_grad(whole, (0, 1, 2))(mu, sigma, constraints)),
        jax.tree.leaves(jax.value_and_grad(pieces, (0, 1, 2))(mu, sigma, constraints)),
        strict=True,
    ):
        close(one, other)


def test_a_categorical_is_mpo_whose_samples_are_as_many_as_expected():
    samples = jnp.array([0, 1, 1, 2, 2, 2, 2, 2])
    target = jnp.log(jnp.array([1.0, 2.0, 5.0]))
    logits, q = LOGITS[:3], Q[:3]

    def whole(logits, temperature, penalty):
        settings = {"temperature_constraint": temperature, "policy_constraint": penalty}
        return categorical(logits, target, q, **settings)[0]

    def sampled(logits, temperature, penalty):
        log_probs = jax.nn.log_softmax(logits)[samples]
        kl = rlaxlib.categorical_kl_divergence(target, logits)
        pairs = [(kl, penalty)]
        return rlaxlib.mpo_loss(log_probs, q[samples], temperature, pairs, softplus)[0]

    arguments = logits, *DISCRETE.values()
    for one, other in zip(
        jax.tree.leaves(jax.value_and_grad(whole, (0, 1, 2))(*arguments)),
        jax.tree.leaves(jax.value_and_grad(sampled, (0, 1, 2))(*arguments)),
        strict=True,
    ):
        close(one, other)


def test_the_mean_over_states_is_the_loss_of_the_batch():
    constraints = CONSTRAINTS | per_dimension("mean_constraint")

    def mean(constraints):
        loss = jax.vmap(lambda state: gaussian(state, **constraints)[0])
        return jnp.mean(loss(BATCH))

    def duals(constraints):  # Each dual variable meets the batch's mean divergence.
        eta = softplus(constraints["temperature_constraint"].alpha)
        q = BATCH["sample_q_values"]
        log_means = jax.nn.logsumexp(q / eta, axis=-1) - jnp.log(float(SAMPLES))
        total = eta * (0.1 + jnp.mean(log_means))
        z = (BATCH["mu"] - BATCH["target_mu"]) / BATCH["target_sigma"]
        kl = jnp.mean(0.5 * z**2, axis=0)
        total += jnp.sum(softplus(constraints["mean_constraint"].alpha) * (0.01 - kl))
        ratio = BATCH["target_sigma"] / BATCH["sigma"]
        kl = jnp.mean(jnp.sum(0.5 * (ratio**2 - 1) - jnp.log(ratio), axis=-1))
        return total + softplus(constraints["stddev_constraint"].alpha) * (0.001 - kl)

    found, expected = (jax.jit(jax.grad(f))(constraints) for f in (mean, duals))
    for name in constraints:
        close(found[name].alpha, expected[name].alpha)


def test_all_losses_add_up():
    for loss, outputs in (gaussian(), gaussian(bounds_constraint=BOUNDS)):
        named = losses(outputs).items()
        close(loss, sum(each for name, each in named if name.endswith("loss")))
    loss, outputs = categorical()
    named = losses(outputs).items()
    close(loss, sum(each for name, each in named if name.endswith("loss")))


def test_a_bound_per_dimension_holds_each_dimension_by_itself():
    whole, parts = gaussian()[1], gaussian(**per_dimension("mean_constraint"))[1]
    assert parts.mean.kl.shape == parts.mean.alpha.shape == (DIMENSIONS,)
    close(jnp.sum(parts.mean.kl), whole.mean.kl)
    close(parts.mean.relative_kl, parts.mean.kl / 0.01)
    assert parts.stddev.kl.shape == ()


# --- Limits. ---


def test_one_sample_has_all_the_weight():
    state = {**STATE, "sample_q_values": jnp.array([7.0])}
    state["sample_actions"] = STATE["sample_actions"][:1]
    by_value = gaussian(state)[1].by_value
    close(by_value.weights, [1.0])
    close(by_value.loss, 7.0 + 0.1 * by_value.temperature)
    assert by_value.kl == 0
    assert by_value.effective_sample_size == 1


@pytest.mark.parametrize("q", [0.0, -1e6, 1e6])
def test_equal_values_leave_things_as_they_are(q):
    by_value = gaussian({**STATE, "sample_q_values": jnp.full(SAMPLES, q)})[1].by_value
    close(by_value.weights, np.full(SAMPLES, 1 / SAMPLES))
    assert by_value.kl == by_value.relative_kl == 0
    close(by_value.effective_sample_size, SAMPLES)
    _, outputs = categorical(q_values=jnp.full(4, q))
    close(outputs.by_value.weights, jax.nn.softmax(TARGET_LOGITS))
    np.testing.assert_allclose(outputs.by_value.kl, 0, atol=1e-12)


def test_a_copy_of_the_target_has_no_divergence_and_no_slope_of_it():
    copy = {**STATE, "mu": STATE["target_mu"], "sigma": STATE["target_sigma"]}

    def penalty(mu, sigma):
        _, outputs = gaussian({**copy, "mu": mu, "sigma": sigma})
        return outputs.mean.kl_loss + outputs.stddev.kl_loss

    value, slopes = jax.value_and_grad(penalty, (0, 1))(copy["mu"], copy["sigma"])
    assert value == 0
    assert not np.any(slopes)
    assert categorical(TARGET_LOGITS)[1].policy.kl == 0


def test_nothing_is_as_far_as_a_bound_beyond_reach():
    settings = {"temperature_constraint": LagrangePenalty(jnp.float32(-18.0), 1e6)}
    by_value = gaussian(**settings)[1].by_value
    close(by_value.kl, np.log(SAMPLES))
    assert by_value.relative_kl < 1e-5
    close(by_value.effective_sample_size, 1.0)


def test_a_bound_of_zero_is_kept_or_broken():
    none = {"policy_constraint": LagrangePenalty(jnp.float32(0.5), 0.0)}
    with jax.debug_nans(True):
        assert categorical(**none)[1].policy.relative_kl == np.inf
        assert categorical(TARGET_LOGITS, **none)[1].policy.relative_kl == 0


# --- Extremes. ---


def finite(tree):
    return all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(tree))


@pytest.mark.parametrize("alpha", [-100.0, 0.0, 100.0])
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_values_and_dual_variables_of_any_size_are_no_trouble(scale, alpha):
    def loss(state, constraints):
        return gaussian(state, **constraints)

    state = {**STATE, "sample_q_values": scale * STATE["sample_q_values"]}
    constraints = {
        name: each._replace(alpha=jnp.float32(alpha))
        for name, each in CONSTRAINTS.items()
    }
    assert finite(
        jax.value_and_grad(loss, (0, 1), has_aux=True)(
            state, {**constraints, "bounds_constraint": constraints["mean_constraint"]}
        )
    )
    constraints = {
        name: each._replace(alpha=jnp.float32(alpha)) for name, each in DISCRETE.items()
    }
    assert finite(
        jax.value_and_grad(
            lambda x, c: categorical(x, q_values=scale * Q, **c), (0, 1), has_aux=True
        )(LOGITS, constraints)
    )


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_half_precision_has_a_floor_below_the_dual_variables_too(dtype):
    low = LagrangePenalty(jnp.asarray(-50.0, dtype), jnp.asarray(0.125, dtype))
    half = {name: x.astype(dtype) for name, x in STATE.items()}
    constraints = dict.fromkeys(CONSTRAINTS, low)
    loss, outputs = gaussian(half, **constraints)
    assert loss.dtype == dtype
    assert finite((loss, outputs))
    best = jnp.argmax(half["sample_q_values"])
    np.testing.assert_array_equal(outputs.by_value.weights, jnp.eye(SAMPLES)[best])


def test_a_prior_is_not_lost_beside_large_values():
    _, outputs = categorical(q_values=1e7 + jnp.array([0.0, 0.0, -1e7, 0.0]))
    target = jax.nn.softmax(TARGET_LOGITS.at[2].set(-jnp.inf))
    close(outputs.by_value.weights, target)


def test_an_unlikely_action_is_found_if_it_is_worth_it():
    target, q = jnp.array([0.0, -200.0]), jnp.array([0.0, 300.0])
    temperature = LagrangePenalty(jnp.float32(1.0), 0.1)
    settings = {"temperature_constraint": temperature}
    _, outputs = categorical(
        jnp.zeros(2), target, q, projection_operator=jax.nn.relu, **settings
    )
    close(outputs.by_value.weights, [0.0, 1.0])
    close(outputs.by_value.loss, 100.1)
    close(outputs.by_value.kl, 200.0)


@pytest.mark.parametrize("never", [-1e9, -np.inf])
def test_an_action_that_is_not_legal_is_as_if_it_were_not_there(never):
    def loss(logits, target, q, **settings):
        return categorical(logits, target, q, **settings)

    mask = jnp.array([True, True, True, False])
    grown = jax.value_and_grad(loss, has_aux=True)
    (expected, outputs), slope = grown(LOGITS[:3], TARGET_LOGITS[:3], Q[:3])
    by_mask = Q.at[3].set(jnp.nan), {"mask": mask}
    by_logit = Q.at[3].set(1e6), {}
    for q, settings in (by_mask, by_logit):
        logits = LOGITS.at[3].set(never)
        target = TARGET_LOGITS.at[3].set(never)
        (found, others), slopes = grown(logits, target, q, **settings)
        close(found, expected)
        close(slopes, jnp.append(slope, 0.0))
        close(others.by_value.weights, jnp.append(outputs.by_value.weights, 0.0))
        close(others.policy, outputs.policy)
        close(others.by_value.kl, outputs.by_value.kl)


def test_without_a_legal_action_there_is_no_loss():
    def loss(logits, constraints, q):
        return categorical(logits, q_values=q, mask=jnp.zeros(4, bool), **constraints)

    with jax.debug_nans(True):
        found = jax.value_and_grad(loss, (0, 1), has_aux=True)(LOGITS, DISCRETE, Q)
    (value, outputs), slopes = found
    assert value == 0
    assert finite(outputs)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(slopes))


def test_no_step_is_nan_where_both_policies_rule_an_action_out():
    never = jnp.array([0.0, 1.0, -jnp.inf, 2.0])
    with jax.debug_nans(True):
        assert finite(jax.grad(lambda x: categorical(x, never)[0])(never))


# --- What the functions refuse. ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: gaussian(sigma=jnp.zeros(DIMENSIONS)),
            r"^gaussian_mpo_loss: `sigma` must lie in \(0, inf\), but is 0",
        ),
        (
            lambda: gaussian(bounds_constraint=BOUNDS, minimum=2.0),
            r"^gaussian_mpo_loss: `maximum` must be at least `minimum`, but is 1",
        ),
        (
            lambda: gaussian(stddev_constraint=LagrangePenalty(jnp.ones(3), 0.1)),
            r"`stddev_constraint.alpha` is float32\[3\], .* float\[\] or \[1\], where",
        ),
        (
            lambda: gaussian(mean_constraint=LagrangePenalty(jnp.ones(2), 0.1, True)),
            r"`mean_constraint.alpha` is float32\[2\], .* or \[D\], where D = 3",
        ),
        (
            lambda: gaussian(mean_constraint=LagrangePenalty(1.0, -0.1)),
            r"`mean_constraint.epsilon` must lie in \[0, inf\), but is -0.1",
        ),
        (
            lambda: gaussian(bounds_constraint=(1.0, 0.1)),
            r"`bounds_constraint.alpha` is None, but must be float\[\] or \[1\]",
        ),
        (
            lambda: gaussian(
                bounds_constraint=LagrangePenalty(-1.0, 0.1),
                projection_operator=lambda x: x,
            ),
            r"`projection_operator\(bounds_constraint.alpha\)` must lie in \(0, inf\)",
        ),
        (
            lambda: categorical(policy_constraint=LagrangePenalty(1.0, 0.1, True)),
            r"^categorical_mpo_loss: `policy_constraint.per_dimension` must be False",
        ),
        (
            lambda: categorical(
                policy_constraint=LagrangePenalty(-1.0, 0.1),
                projection_operator=lambda x: x,
            ),
            r"`projection_operator\(policy_constraint.alpha\)` must lie in \[0, inf\)",
        ),
    ],
)
def test_says_what_is_wrong(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        call()
