"""Test log-probabilities of tokens: precision, memory, sharding and extreme logits."""

import contextlib
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import rlaxlib

STEPS, HIDDEN, VOCABULARY = 16, 8, 384
RNG = np.random.default_rng(0)
STATES = RNG.normal(size=(STEPS, HIDDEN)).astype(np.float32)
HEAD = RNG.normal(size=(HIDDEN, VOCABULARY)).astype(np.float32)
TOKENS = RNG.integers(VOCABULARY, size=STEPS).astype(np.int32)
WEIGHTS = RNG.normal(size=(2, STEPS)).astype(np.float32)
BIAS = RNG.normal(size=VOCABULARY).astype(np.float32)
# Tokens of a teacher, two at each position, and those that a sampler kept.
SEVERAL = np.stack([TOKENS, (TOKENS + 1) % VOCABULARY], axis=1)
KEPT = RNG.integers(-1, VOCABULARY, size=(STEPS, 20)).astype(np.int32)
KEPT[:, :2] = SEVERAL
LARGE = {"hidden": (4096, 512), "head": (512, 151_936), "tokens": (4096,)}


@pytest.fixture(autouse=True)
def exact_products():
    """Compute products at full precision, which GPUs and TPUs round by default."""
    with jax.default_matmul_precision("highest"):
        yield


def plain(hidden, head, tokens, **settings):
    logits = jnp.dot(hidden, head, preferred_element_type=jnp.float32)
    return rlaxlib.token_log_probs(logits, tokens, **settings)


def definition(hidden, head, tokens, bias=0, temperature=1, kept=None, soft_cap=None):
    """Return what `weighted_sum` does, from whole logits in float64."""
    hidden, head, bias, tau = map(np.float64, (hidden, head, bias, temperature))
    tau, vocabulary = np.reshape(tau, (-1, 1)), np.arange(head.shape[1])
    x, derivative = hidden @ head + bias, 1.0
    if soft_cap:
        x = soft_cap * np.tanh(x / soft_cap)
        derivative = 1 - (x / soft_cap) ** 2
    p = np.exp(x / tau)
    if kept is not None:
        p *= np.any(kept[..., None] == vocabulary, axis=1)
    log_probs = x / tau - np.log(np.sum(p, axis=1, keepdims=True))
    p /= np.sum(p, axis=1, keepdims=True)
    entropy = -np.sum(p * log_probs, axis=1, keepdims=True)
    counts = np.sum(tokens.reshape(STEPS, -1, 1) == vocabulary, axis=1)
    number = np.sum(counts, axis=1, keepdims=True)
    w, v = np.float64(WEIGHTS)[..., None]
    value = np.sum(w * counts * log_probs) + np.sum(v * entropy)
    d_z = w * (counts - number * p) - v * p * (log_probs + entropy)
    d_x = d_z / tau * derivative
    d_tau = -np.sum(d_z * x / tau**2, axis=1)
    return value, (d_x @ head.T, hidden.T @ d_x, np.sum(d_x, axis=0), d_tau)


def assert_close(found, expected, **tolerances):
    """Compare a value and its first gradients with those of the definition."""
    (value, gradients), (right, slopes) = jax.device_get(found), expected
    close(value, right, **tolerances)
    for one, other in zip(gradients, slopes, strict=False):
        close(one, other, **tolerances)


def total(function, **settings):
    """Return a weighted sum of log-probabilities and entropies as a function."""

    def loss(hidden, head, tokens, weights=WEIGHTS):
        outputs = function(hidden, head, tokens, with_entropy=True, **settings)
        return jnp.sum(jnp.asarray(weights, outputs[0].dtype) * jnp.stack(outputs))

    return loss


# --- From logits. ---


token_log_probs = jax.jit(rlaxlib.token_log_probs, static_argnames="with_entropy")


def test_each_token_may_have_a_temperature():
    logits = np.random.default_rng(0).normal(size=(2, 3, 5)).astype(np.float32)
    tokens, temperature = np.array([[0, 4, 2], [1, 1, 3]]), np.float32([1.0, 0.5, 2.0])
    temperatures = np.broadcast_to(temperature, tokens.shape)
    found = token_log_probs(logits, tokens, temperature=temperatures, with_entropy=True)
    for i, each in enumerate(temperature):
        settings = {"temperature": each, "with_entropy": True}
        expected = token_log_probs(logits[:, i], tokens[:, i], **settings)
        close([x[:, i] for x in found], expected)


def test_log_probs_of_equal_logits_are_uniform():
    logits, tokens = np.zeros((2, 4), np.float32), np.array([0, 3])
    log_prob, entropy = token_log_probs(logits, tokens, with_entropy=True)
    close(log_prob, -np.log(4.0))
    close(entropy, np.log(4.0))


def test_log_probs_are_finite_and_not_positive_for_extreme_logits():
    logits = np.float32([[1e30, 0, -1e30], [-np.inf, 0, 5]])

    def loss(logits):
        outputs = rlaxlib.token_log_probs(logits, np.array([0, 2]), with_entropy=True)
        return jnp.sum(jnp.stack(outputs)), outputs

    gradient, (log_prob, entropy) = jax.jit(jax.grad(loss, has_aux=True))(logits)
    assert np.max(log_prob) <= 0
    close(np.asarray(entropy)[0], 0.0)
    assert np.isfinite(entropy).all()
    assert np.isfinite(gradient).all()


def test_log_probs_of_half_precision_logits_are_float32():
    logits = jnp.asarray(RNG.normal(size=(STEPS, VOCABULARY)), jnp.bfloat16)
    log_prob = token_log_probs(logits, TOKENS).log_prob
    assert log_prob.dtype == jnp.float32
    wide = np.float64(logits)
    expected = wide[np.arange(STEPS), TOKENS] - np.log(np.sum(np.exp(wide), axis=1))
    close(log_prob, expected)


def test_temperature_divides_logits():
    logits = STATES @ HEAD
    warm = token_log_probs(logits, TOKENS, temperature=2.0).log_prob
    close(warm, token_log_probs(logits / np.float32(2), TOKENS).log_prob)


def test_gradient_by_temperature_of_a_masked_vocabulary_equals_the_definition():
    logits, tokens = np.float32([[1, 2, -np.inf]]), np.array([0])

    @jax.jit
    @jax.grad
    def found(temperature):
        return token_log_probs(logits, tokens, temperature).log_prob[0]

    close(found(1.0), (np.e + 2 * np.e**2) / (np.e + np.e**2) - 1)


def of_valid_tokens(function):
    """Return the gradients of the sum over valid tokens, and all log-probabilities."""

    def loss(hidden, head, tokens):
        log_prob = function(hidden, head, tokens).log_prob
        valid = (tokens >= 0) & (tokens < VOCABULARY)
        return jnp.sum(jnp.where(valid, log_prob, 0)), log_prob

    return jax.jit(jax.grad(loss, (0, 1), has_aux=True))


GRADIENTS_OF_VALID_TOKENS = [
    of_valid_tokens(function) for function in (plain, rlaxlib.linear_token_log_probs)
]


@pytest.mark.parametrize("token", [-1, -100, VOCABULARY])
def test_a_traced_token_out_of_range_gives_nan_and_no_gradient(token):
    is_bad = np.arange(STEPS) == 3
    tokens = np.where(is_bad, np.int32(token), TOKENS)
    for gradients in GRADIENTS_OF_VALID_TOKENS:
        (by_hidden, by_head), log_prob = gradients(STATES, HEAD, tokens)
        np.testing.assert_array_equal(np.isnan(log_prob), is_bad)
        assert not np.any(np.asarray(by_hidden)[3])
        assert np.isfinite(by_head).all()


# --- From logits and from hidden states. ---


def on_rows(function):
    """Return a function of the logits of one token."""

    def on_row(logits, tokens, **settings):
        is_linear = function is rlaxlib.linear_token_log_probs
        state = [np.ones((1, 1), np.float32)] * is_linear
        return function(*state, logits[None], tokens[None], **settings)

    return on_row


BOTH = [on_rows(rlaxlib.token_log_probs), on_rows(rlaxlib.linear_token_log_probs)]
each_function = pytest.mark.parametrize("function", BOTH, ids=["logits", "hidden"])


@each_function
@pytest.mark.parametrize(
    ("dtype", "size"), [(np.int8, 128), (np.uint8, 300), (np.uint16, 65536)]
)
def test_tokens_may_have_a_dtype_that_does_not_hold_the_size(function, dtype, size):
    logits = np.linspace(-1, 1, size, dtype=np.float32)
    found = jax.jit(function)(logits, np.array(100, dtype)).log_prob
    close(found, [logits[100] - np.log(np.sum(np.exp(np.float64(logits))))])


@each_function
def test_impossible_tokens_have_probability_0_and_no_gradient(function):
    """Minus infinity, the lowest floats, and what networks put in their place."""

    @jax.jit
    def outputs(logits, token):
        def log_prob(logits, temperature):
            settings = {"temperature": temperature, "with_entropy": True}
            found = function(logits, token, **settings)
            return found.log_prob[0], found.entropy[0]

        return jax.value_and_grad(log_prob, (0, 1), has_aux=True)(logits, 0.5)

    p = np.exp(2.0) / (np.exp(2.0) + 1)
    for mark in np.float32([-np.inf, -3.4e38, -65504.0, -1e9]):
        logits = np.float32([1.0, mark, 0.0])
        (log_prob, entropy), (gradient, _) = outputs(logits, np.array(0))
        close(log_prob, np.log(p))
        close(entropy, -p * np.log(p) - (1 - p) * np.log(1 - p))
        close(gradient, [2 * (1 - p), 0, -2 * (1 - p)])
        (log_prob, _), (gradient, _) = outputs(logits, np.array(1))
        assert log_prob == -np.inf
        np.testing.assert_array_equal(gradient, 0)
        logits = np.full_like(logits, mark)
        (log_prob, entropy), gradients = outputs(logits, np.array(0))
        assert log_prob == entropy == 0
        assert not np.any(np.hstack(gradients))


@each_function
def test_large_close_logits_are_precise_at_a_low_temperature(function):
    logits, tau = np.float32([10000.0, 10000.0312, 9999.98, 10000.01]), 0.03
    token = np.array(1)

    def outputs(logits, temperature):
        return function(logits, token, temperature=temperature, with_entropy=True)

    def exact(logits, temperature):
        z = (logits - logits.max()) / temperature
        log_probs = z - np.log(np.sum(np.exp(z)))
        return log_probs[1], -np.sum(np.exp(log_probs) * log_probs)

    @jax.jit
    def values_and_gradients(*inputs):
        return outputs(*inputs), jax.jacrev(outputs, (0, 1))(*inputs)

    values, gradients = jax.tree.map(np.ravel, values_and_gradients(logits, tau))
    close(np.ravel(values), exact(np.float64(logits), tau), rtol=1e-6)
    step = 1e-6
    for i, (by_logits, by_tau) in enumerate(gradients):
        ends = [exact(np.float64(logits), tau + sign * step)[i] for sign in (1, -1)]
        close(by_tau[0], (ends[0] - ends[1]) / (2 * step), rtol=1e-5)
        for j in range(4):
            shift = step * (np.arange(4) == j)
            ends = [exact(logits + sign * shift, tau)[i] for sign in (1, -1)]
            close(by_logits[j], (ends[0] - ends[1]) / (2 * step), rtol=1e-4)


# --- From hidden states, in chunks. ---


EXPECTED = definition(STATES, HEAD, TOKENS)


@pytest.mark.parametrize(
    ("chunk_size", "columns"),
    [(1, VOCABULARY), (100, 383), (128, 352), (1000, 383)],
)
def test_value_and_gradients_equal_those_from_logits(chunk_size, columns):
    head, tokens = HEAD[:, :columns], TOKENS % columns
    function = total(rlaxlib.linear_token_log_probs, chunk_size=chunk_size)
    found = jax.jit(jax.value_and_grad(function, (0, 1)))(STATES, head, tokens)
    assert_close(found, definition(STATES, head, tokens), rtol=1e-6, atol=1e-5)


def test_rounded_products_are_as_exact_as_those_of_logits():
    linear = rlaxlib.linear_token_log_probs
    both = [jax.value_and_grad(total(each), (0, 1)) for each in (linear, plain)]
    with jax.default_matmul_precision("bfloat16"):
        results = jax.jit(lambda *x: [each(*x) for each in both])(STATES, HEAD, TOKENS)
    right = EXPECTED[0], *EXPECTED[1][:2]
    found, dense = (
        [np.sqrt(np.mean((x - y) ** 2)) for x, y in zip(each, right, strict=True)]
        for each in [(value, *gradients) for value, gradients in results]
    )
    assert (found <= 2 * np.array(dense) + 1e-5).all()


@functools.partial(jax.jit, static_argnums=3)
def weighted_sum(inputs, tokens, kept, soft_cap):
    """Return a weighted sum of log-probabilities and entropies, and its gradients."""

    def loss(hidden, head, bias, temperature):
        options = {"bias": bias, "temperature": temperature, "kept": kept}
        options |= {"soft_cap": soft_cap, "chunk_size": 100, "with_entropy": True}
        found = rlaxlib.linear_token_log_probs(hidden, head, tokens, **options)
        log_prob, entropy = found
        weights = WEIGHTS[0].reshape((STEPS,) + (1,) * (tokens.ndim - 1))
        return jnp.sum(weights * log_prob) + WEIGHTS[1] @ entropy

    return jax.value_and_grad(loss, (0, 1, 2, 3))(*inputs)


TEMPERATURE = np.linspace(0.5, 2.0, STEPS, dtype=np.float32)
EXPECTED_OF_ALL = definition(STATES, HEAD, SEVERAL, BIAS, TEMPERATURE, KEPT, 2.0)


@pytest.mark.parametrize(
    ("tokens", "kept", "soft_cap"),
    [
        (TOKENS, None, 2.0),
        (TOKENS, KEPT, None),
        (SEVERAL, None, None),
        (SEVERAL, KEPT, 2.0),
    ],
)
def test_options_of_a_head_equal_those_of_its_logits(tokens, kept, soft_cap):
    found = weighted_sum((STATES, HEAD, BIAS, TEMPERATURE), tokens, kept, soft_cap)
    options = tokens, BIAS, TEMPERATURE, kept, soft_cap
    assert_close(found, definition(STATES, HEAD, *options), rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_options_of_a_head_in_half_precision_have_gradients(dtype):
    halves = [x.astype(dtype) for x in (STATES, HEAD, BIAS)]
    _, gradients = weighted_sum((*halves, TEMPERATURE), SEVERAL, KEPT, 2.0)
    hidden, head, bias = map(np.float64, halves)
    _, expected = definition(hidden, head, SEVERAL, bias, TEMPERATURE, KEPT, 2.0)
    for one, other in zip(gradients, expected, strict=True):
        rtol = 4 * float(jnp.finfo(dtype).eps)
        close(np.float64(one), other, rtol=rtol, atol=rtol)


def test_a_token_that_was_not_kept_has_probability_0_and_no_gradient():
    kept = np.array([[0, 1, -1]], np.int32)

    def last(hidden):
        tokens = np.array([[0, 1, 2]])
        found = rlaxlib.linear_token_log_probs(hidden, HEAD, tokens, kept=kept)
        return found.log_prob[0, 2], found.log_prob

    gradient, log_prob = jax.jit(jax.grad(last, has_aux=True))(STATES[:1])
    probs = np.exp(log_prob)
    close(np.sum(probs), 1.0, rtol=1e-6)
    assert probs[0, 2] == 0
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("kept", [None, np.full((2, 3), -1, np.int32)])
def test_positions_without_a_possible_token_have_log_probability_and_entropy_0(kept):
    """With a vocabulary of 320 in chunks of 128, tokens belong to two chunks."""
    rng = np.random.default_rng(0)
    hidden, head = (
        rng.normal(size=size).astype(np.float32) for size in [(2, 4), (4, 320)]
    )
    tokens = np.array([0, 319])
    bias = np.full(320, -np.inf if kept is None else 1.0, np.float32)

    @jax.jit
    @functools.partial(jax.value_and_grad, argnums=(0, 1, 2), has_aux=True)
    def outputs(temperature, hidden, head):
        log_prob, entropy = rlaxlib.linear_token_log_probs(
            *(hidden, head, tokens, temperature, None, 128),
            bias=bias,
            kept=kept,
            with_entropy=True,
        )
        return jnp.sum(log_prob + 2 * entropy), (log_prob, entropy)

    for temperature in np.float32([0.5, 10.0]):
        for x in jax.tree.leaves(outputs(temperature, hidden, head)):
            np.testing.assert_array_equal(x, 0)


def test_extreme_hidden_states_give_finite_values_and_gradients():
    def loss(hidden):
        outputs = rlaxlib.linear_token_log_probs(
            hidden, HEAD, TOKENS, chunk_size=64, with_entropy=True
        )
        return jnp.sum(jnp.stack(outputs)), outputs

    found = jax.jit(jax.grad(loss, has_aux=True))
    gradient, (log_prob, entropy) = found(np.float32(1e4) * STATES)
    assert np.max(log_prob) <= 0
    assert np.isfinite(log_prob).all()
    close(entropy, 0.0, atol=1e-3)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_half_precision_weights_accumulate_in_float32(dtype):
    hidden, head = jnp.asarray(STATES, dtype), jnp.asarray(HEAD, dtype)
    function = total(rlaxlib.linear_token_log_probs, chunk_size=100)
    found = jax.jit(jax.value_and_grad(function, (0, 1)))
    value, gradients = found(hidden, head, TOKENS)
    right, slopes = definition(hidden, head, TOKENS)
    assert value.dtype == jnp.float32
    close(value, right, rtol=1e-5)
    for one, other in zip(gradients, slopes[:2], strict=True):
        assert one.dtype == dtype
        half = 0.51 * float(jnp.finfo(dtype).eps)  # Rounded once, at the end.
        close(np.float32(one), other, rtol=half, atol=1e-5)


def test_a_batch_can_be_mapped():
    def mapped(hidden, head, tokens, **settings):
        each = functools.partial(rlaxlib.linear_token_log_probs, **settings)
        batch = hidden.reshape(4, 4, HIDDEN), head, tokens.reshape(4, 4)
        return jax.tree.map(jnp.ravel, jax.vmap(each, (0, None, 0))(*batch))

    found = jax.jit(jax.value_and_grad(total(mapped), (0, 1)))(STATES, HEAD, TOKENS)
    assert_close(found, EXPECTED, rtol=1e-5, atol=1e-5)


def abstract(function, dtype):
    """Compile the value and gradient of a sum at the size of a language model."""
    arrays = {
        name: jax.ShapeDtypeStruct(shape, jnp.int32 if name == "tokens" else dtype)
        for name, shape in LARGE.items()
    }
    gradient = jax.value_and_grad(lambda *x: jnp.sum(function(*x).log_prob), (0, 1))
    return jax.jit(gradient).lower(*arrays.values()).compile().memory_analysis()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_memory_is_at_most_a_tenth_of_that_with_logits(dtype):
    dense = abstract(plain, dtype).temp_size_in_bytes
    linear = abstract(rlaxlib.linear_token_log_probs, dtype).temp_size_in_bytes
    assert dense > 4 * 4096 * 151_936
    assert linear < dense / 15


def test_a_head_with_all_options_takes_at_most_700_mib():
    shapes = {
        "hidden": ((4096, 1024), jnp.bfloat16),
        "head": ((1024, 256_000), jnp.bfloat16),
        "tokens": ((4096, 8), jnp.int32),
        "bias": ((256_000,), jnp.bfloat16),
        "temperature": ((4096,), jnp.float32),
        "kept": ((4096, 64), jnp.int32),
    }

    def loss(hidden, head, tokens, bias, temperature, kept):
        options = {"bias": bias, "temperature": temperature, "kept": kept}
        options |= {"soft_cap": 30.0, "with_entropy": True}
        found = rlaxlib.linear_token_log_probs(hidden, head, tokens, **options)
        return jnp.sum(found.log_prob) + jnp.sum(found.entropy)

    arrays = [jax.ShapeDtypeStruct(*each) for each in shapes.values()]
    gradient = jax.jit(jax.value_and_grad(loss, (0, 1)))
    memory = gradient.lower(*arrays).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 700 * 2**20


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("with_entropy", [False, True])
def test_log_probs_of_logits_hold_no_array_beyond_that_of_log_softmax(
    dtype, with_entropy
):
    def log_softmax(logits, tokens):
        log_probs = jax.nn.log_softmax(logits.astype(jnp.float32))
        log_prob = jnp.take_along_axis(log_probs, tokens[:, None], axis=1)[:, 0]
        return log_prob, -jnp.sum(jnp.exp(log_probs) * log_probs, axis=1)

    def ours(logits, tokens):
        found = rlaxlib.token_log_probs(logits, tokens, with_entropy=with_entropy)
        return found if with_entropy else (found.log_prob, 0.0)

    def memory(function):
        def loss(hidden, head, tokens, old):
            log_prob, entropy = function(hidden @ head, tokens)
            clipped = rlaxlib.ppo_clip_loss(log_prob, old, jnp.ones_like(old))[0]
            return jnp.sum(clipped) - 0.01 * with_entropy * jnp.sum(entropy)

        shapes = LARGE.values()
        hidden, head = (jax.ShapeDtypeStruct(x, dtype) for x in list(shapes)[:2])
        tokens, old = (jax.ShapeDtypeStruct((4096,), x) for x in (int, jnp.float32))
        gradient = jax.jit(jax.grad(loss, (0, 1)))
        compiled = gradient.lower(hidden, head, tokens, old).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert memory(ours) <= memory(log_softmax) + 2**20


@pytest.mark.parametrize("clipped", [False, True])
def test_log_probs_of_given_logits_hold_none_of_their_size_beyond_the_gradient(clipped):
    def loss(logits, tokens, old, adv):
        log_prob = rlaxlib.token_log_probs(logits, tokens).log_prob
        if clipped:
            return jnp.sum(rlaxlib.ppo_clip_loss(log_prob, old, adv)[0])
        return -jnp.sum(adv * log_prob)

    number = jax.ShapeDtypeStruct((512,), jnp.float32)
    logits = jax.ShapeDtypeStruct((512, 32_768), jnp.float32)
    tokens = jax.ShapeDtypeStruct((512,), jnp.int32)
    gradient = jax.jit(jax.value_and_grad(loss))
    compiled = gradient.lower(logits, tokens, number, number).compile()
    # A bool for each logit would be 16 MiB.
    assert compiled.memory_analysis().temp_size_in_bytes < 2**20


def test_a_second_derivative_in_chunks_is_an_error():
    def log_prob(function, head):
        return function(STATES.astype(head.dtype), head, TOKENS).log_prob

    def norm(head, function):
        gradient = jax.grad(lambda x: jnp.sum(log_prob(function, x)))
        return jnp.sum(jnp.square(gradient(head)))

    second = jax.jit(jax.grad(norm), static_argnums=1)
    assert np.any(second(HEAD, plain))
    for dtype in (jnp.float32, jnp.bfloat16):
        with pytest.raises(NotImplementedError, match="no second derivative"):
            second(HEAD.astype(dtype), rlaxlib.linear_token_log_probs)


# --- Over devices. ---


def test_head_sharded_by_vocabulary_stays_sharded():
    mesh = jax.make_mesh((4,), ("vocabulary",), axis_types=(AxisType.Auto,))
    columns = NamedSharding(mesh, PartitionSpec(None, "vocabulary"))
    everywhere = NamedSharding(mesh, PartitionSpec())
    shardings = (everywhere, columns, everywhere)
    inputs = jax.device_put((STATES, HEAD, TOKENS), shardings)
    function = total(rlaxlib.linear_token_log_probs, chunk_size=100)
    compiled = jax.jit(jax.value_and_grad(function, (0, 1))).lower(*inputs).compile()
    found = compiled(*inputs)
    assert_close(found, EXPECTED, rtol=1e-5, atol=1e-5)
    assert found[1][1].sharding.is_equivalent_to(columns, 2)
    assert "all-gather" not in compiled.as_text()


def test_a_mesh_of_explicit_axes_needs_no_copy_of_the_head():
    shapes = ((1024, 64), jnp.float32), ((64, 65_540), jnp.float32), ((1024,), int)
    specs = PartitionSpec(), PartitionSpec(None, "vocabulary"), PartitionSpec()
    memory = []

    def loss(*inputs):
        return jnp.sum(rlaxlib.linear_token_log_probs(*inputs).log_prob)

    for axis_type in (AxisType.Auto, AxisType.Explicit):
        mesh = jax.make_mesh((4,), ("vocabulary",), axis_types=(axis_type,))
        arrays = [
            jax.ShapeDtypeStruct(*each, sharding=NamedSharding(mesh, spec))
            for each, spec in zip(shapes, specs, strict=True)
        ]
        with jax.set_mesh(mesh):
            compiled = (
                jax.jit(jax.value_and_grad(loss, (0, 1))).lower(*arrays).compile()
            )
        memory.append(compiled.memory_analysis().temp_size_in_bytes)
    assert memory[1] < memory[0] + 2**20  # A shard of the head has 4 MiB.


@pytest.mark.parametrize(
    ("axis_type", "rows", "columns", "is_set"),
    [
        (AxisType.Explicit, None, (None, "vocabulary"), False),
        (AxisType.Explicit, "batch", ("batch", None), False),
        (AxisType.Explicit, None, ("batch", None), True),
        (AxisType.Explicit, "batch", ("batch", "vocabulary"), True),
        (AxisType.Auto, "batch", ("batch", "vocabulary"), True),
    ],
)
def test_options_of_a_sharded_head_equal_those_on_one_device(
    axis_type, rows, columns, is_set
):
    mesh = jax.make_mesh((2, 2), ("batch", "vocabulary"), axis_types=(axis_type,) * 2)
    specs = ((rows, None), columns, columns[1:], (rows,), (rows, None))
    put = [NamedSharding(mesh, PartitionSpec(*each)) for each in specs]
    with jax.set_mesh(mesh) if is_set else contextlib.nullcontext():
        several, kept = jax.device_put((SEVERAL, KEPT), put[-1])
        inputs = jax.device_put((STATES, HEAD, BIAS, TEMPERATURE), tuple(put[:4]))
        found = weighted_sum(inputs, several, kept, 2.0)
    assert_close(found, EXPECTED_OF_ALL, rtol=1e-5, atol=2e-5)
    if axis_type == AxisType.Explicit:
        for each, sharding in zip(found[1], put, strict=False):
            assert each.sharding.is_equivalent_to(sharding, each.ndim)


@pytest.mark.parametrize("is_set", [False, True])
def test_hidden_states_sharded_by_features_are_gathered(is_set):
    mesh = jax.make_mesh((2, 2), ("batch", "features"), (AxisType.Explicit,) * 2)
    specs = PartitionSpec("batch", "features"), PartitionSpec(), PartitionSpec("batch")
    put = [NamedSharding(mesh, spec) for spec in specs]
    function = total(rlaxlib.linear_token_log_probs, chunk_size=100)
    with jax.set_mesh(mesh) if is_set else contextlib.nullcontext():
        inputs = jax.device_put((STATES, HEAD, TOKENS), tuple(put))
        found = jax.jit(jax.value_and_grad(function, (0, 1)))(*inputs)
    assert_close(found, EXPECTED, rtol=1e-5, atol=1e-5)
    for gradient, sharding in zip(found[1], put, strict=False):
        assert gradient.sharding.is_equivalent_to(sharding, 2)


def test_gradients_of_a_replicated_head_add_up_over_devices():
    mesh = jax.make_mesh((4,), ("batch",))
    specs = [PartitionSpec(*each) for each in (["batch"], [], ["batch"])]
    weights = PartitionSpec(None, "batch")
    mapped = jax.shard_map(
        jax.grad(total(rlaxlib.linear_token_log_probs), (0, 1)),
        mesh=mesh,
        in_specs=(*specs, weights),
        out_specs=tuple(specs[:2]),
    )
    shardings = tuple(NamedSharding(mesh, spec) for spec in (*specs, weights))
    found = jax.jit(mapped)(*jax.device_put((STATES, HEAD, TOKENS, WEIGHTS), shardings))
    for one, other in zip(found, EXPECTED[1], strict=False):
        close(one, other, rtol=1e-5, atol=1e-5)
