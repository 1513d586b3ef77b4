"""Test that no loss of ratios is NaN, however far two policies are apart."""

import math
import operator

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlaxlib

TOPICS = ("imitation", "llm", "offline", "policies")
NAMES = {name for topic in TOPICS for name in getattr(rlaxlib, topic).__all__}
LOG_PROBS = np.float32([-np.inf, -1e4, -1e3, -89.0, -30.0, -1.0, -0.5, 0.0])
LOG_RATIOS = np.float32([-np.inf, np.inf, -1e4, 1e4, -89.0, 89.0, 1.0, 0.0])
ADVANTAGES = np.float32([0.0, 1.0, -1.0, 1e3, -1e3])
EXAMPLES = 500
# Cases whose gradient is infinite: a log-probability, or twice the error of a square.
INFINITE = ("free weights", "ipo")


def ratio_names(row):
    """Return the names of log-probabilities and log-ratios of taken actions."""
    return [n for n in row.float_names if "log_prob" in n or n == "log_ratio"]


ROWS = [
    row
    for row in contract.collect()
    if row.name in NAMES
    and "ratios" not in row.excused
    and ratio_names(row)
    and row.case not in INFINITE
]


def examples(row):
    """Sample arguments: log-probabilities far apart, advantages with many zeros."""
    rng = np.random.default_rng(0)
    batch = {n: np.stack([x] * EXAMPLES) for n, x in row.inputs().items() if n != "key"}
    for name in ratio_names(row):
        values = LOG_RATIOS if name == "log_ratio" else LOG_PROBS
        batch[name] = rng.choice(values, batch[name].shape)
    for name, values in list(batch.items()):
        if name.startswith("adv"):
            batch[name] = rng.choice(ADVANTAGES, values.shape)
    return batch


def values_and_gradients(row):
    """Return a function of arguments that evaluates and differentiates a function."""
    key = {} if row.key is None else {row.key: jax.random.key(0)}
    moved = [n for n in row.variables if n in ratio_names(row) or n.startswith("adv")]
    call = row.call()

    def evaluate(given):
        def total(free):
            outputs = jax.tree.leaves(call(**key | given | free))
            floats = [x for x in outputs if contract.is_float(x)]
            # A loss may be infinite, and infinities of both signs have no sum.
            finite = [jnp.where(jnp.isfinite(x), x, 0) for x in floats]
            return contract.weigh(finite, 0), floats

        free = {n: given[n] for n in moved if row.gradients.exist}
        gradient, floats = jax.grad(total, has_aux=True)(free)
        return floats, gradient

    return evaluate


@pytest.mark.parametrize("topic", TOPICS)
def test_distant_policies_give_no_nan(topic):
    # One program of many functions compiles in half the time.
    rows = [row for row in ROWS if row.name in getattr(rlaxlib, topic).__all__]
    each = [jax.vmap(values_and_gradients(row)) for row in rows]
    program = jax.jit(lambda batches: [*map(operator.call, each, batches)])
    for row, found in zip(rows, program([*map(examples, rows)]), strict=True):
        for x in jax.tree.leaves(found):
            assert not np.any(np.isnan(x)), row.id


@pytest.mark.trust
@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.key is None], ids=lambda row: row.id
)
def test_close_policies_keep_their_precision(row):
    """`e^l - 1 - l` cancels at log-ratios such as those of a sampler and a learner."""
    inputs = row.inputs()
    names = ratio_names(row)
    rng = np.random.default_rng(0)
    for name in names:
        base = 0.0 if name == "log_ratio" else -1.0
        noise = 10 ** rng.uniform(-5, -3, inputs[name].shape)
        inputs[name] = np.float32(base + noise * rng.choice([-1, 1], noise.shape))
    moved = [n for n in row.variables if n in names and row.gradients.exist]

    def evaluate(inputs):
        def total(free):
            outputs = jax.tree.leaves(row.call()(**inputs | free))
            floats = [x for x in outputs if contract.is_float(x)]
            return contract.weigh(floats, 0), floats

        free = {n: inputs[n] for n in moved}
        return jax.value_and_grad(total, has_aux=True)(free)

    (_, single), slopes = evaluate(contract.to_jax(inputs, np.float32))
    with contract.x64(True):
        (_, double), steep = evaluate(contract.to_jax(inputs, np.float64))
    for found, right in zip(
        jax.tree.leaves((single, slopes)), jax.tree.leaves((double, steep)), strict=True
    ):
        np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-12)


K3 = {
    "importance_statistics": lambda x: rlaxlib.importance_statistics(x).kl,
    "kl_loss": lambda x: jnp.sum(rlaxlib.kl_loss(-x, 0 * x)),
    "ppo_penalty_loss": lambda x: rlaxlib.ppo_penalty_loss(x, 0 * x, 0 * x, 1.0)[0][0],
    "xql_value_loss": lambda x: jnp.sum(rlaxlib.xql_value_loss(0 * x, x, 1.0)),
}


@pytest.mark.parametrize("x", [0.03, 0.01, 1e-3, -1e-4, 1e-6])
@pytest.mark.parametrize("name", K3)
def test_k3_of_close_policies_keeps_its_precision(name, x):
    log_ratio = np.float32([x])
    exact = np.sum(
        [np.float64(log_ratio[0]) ** n / math.factorial(n) for n in range(2, 9)]
    )
    np.testing.assert_allclose(K3[name](log_ratio), exact, rtol=1e-4)
    if name == "ppo_penalty_loss":
        slope = jax.grad(K3[name])(log_ratio)[0]
        np.testing.assert_allclose(slope, np.expm1(np.float64(log_ratio[0])), rtol=1e-4)


@pytest.mark.parametrize("loss", ["cispo_loss", "sapo_loss", "ppo_clip_loss"])
def test_a_masked_token_has_no_gradient_however_large_its_ratio(loss):
    old, adv = np.float32([-1e3, -1.0]), np.float32([1.0, 1.0])
    options = {"epsilon_high": jnp.inf} if loss == "cispo_loss" else {}

    def total(log_prob, mask):
        found = getattr(rlaxlib, loss)(log_prob, old, adv, sample_mask=mask, **options)
        return jnp.sum(jax.tree.leaves(found)[0])

    inputs = np.float32([-1.0, -1.0]), np.array([False, True])
    gradient = jax.jit(jax.grad(total))(*inputs)
    np.testing.assert_allclose(gradient, [0.0, -1.0], rtol=1e-6)


@pytest.mark.parametrize(
    ("log_prob", "old_log_prob", "k", "expected"),
    [
        (-1.0, -np.inf, 2.0, 0.0),
        (-np.inf, -1.0, 2.0, 0.0),
        (-np.inf, -1.0, 0.0, np.exp(3.0)),
        (-np.inf, -np.inf, 2.0, 1.0),
        (-1.0, -1e4, 0.0, 0.0),
    ],
)
def test_the_weight_of_vespo_at_its_limits(log_prob, old_log_prob, k, expected):
    """w^k exp(λ (1 - w)) for w of 0, infinity and 1, with λ = 3."""
    pair = np.float32([log_prob, -0.5]), np.float32([old_log_prob, -0.5])
    weight = rlaxlib.vespo_weight(*pair, 1.0, k_positive=k)
    np.testing.assert_allclose(weight, expected, rtol=1e-6)


@pytest.mark.parametrize("mode", ["truncate", "mask"])
@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
def test_importance_weights_are_finite_without_a_bound(mode, level):
    log_ratio = np.float32([1e4, 1.0, 0.0])
    weigh = rlaxlib.importance_weights
    weights = weigh(log_ratio, level, mode, 0.0, np.inf, sample_mask=None)
    assert np.all(np.isfinite(weights))
    assert np.all(weights > 0)
