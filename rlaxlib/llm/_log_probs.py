"""Log-probabilities of tokens, and entropies, from logits or from hidden states.

Position `t` of `tokens` is the token that the logits of position `t` predict: shift one
of them by one before the call. Use the temperature that the tokens were sampled with.

`linear_token_log_probs` never holds the logits `[T, V]`:

1. `_split` cuts the vocabulary into N equal blocks, and into chunks of C tokens of each
   block. Devices that share the vocabulary have whole blocks.
2. `_logits` computes the logits of a chunk, `[T, N, C]`, from its columns of the head.
3. `_forward` goes over the chunks, and carries for each block the largest logit, the
   sum of exponentials, their sum times the exponents, and the logits of the tokens.
   Blocks are merged at the end, where devices communicate.
4. `_backward` goes over the chunks again. From the logits of a chunk and the sums, it
   computes the gradient by these logits. Its product with the columns is added to the
   gradient of the hidden states, that with the hidden states is a part of the head's.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient

from rlaxlib._core import dtypes, indexing, legality, programs, safe
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Float, Int, Static

__all__ = ["TokenLogProbs", "linear_token_log_probs", "token_log_probs"]

_BLOCKS = 64  # Maximum number of blocks of a vocabulary, and of devices that share it.


class TokenLogProbs(NamedTuple):
    """Log-probabilities of tokens, and entropies.

    Attributes:
        log_prob: Log-probabilities of the tokens, of their shape.
        entropy: Entropy of the distribution at each position; or None, unless
            `with_entropy`.
    """

    log_prob: Float[Array, "..."]
    entropy: Float[Array, "..."] | None


@checked(wide=True)
def token_log_probs(
    logits: Float[ArrayLike, "..., V"],
    tokens: Int[ArrayLike, "... in [0, V)"],
    temperature: Float[ArrayLike, "[] or [...] in (0, inf)"] = 1.0,
    *,
    with_entropy: Static[bool, ""] = False,
) -> TokenLogProbs:
    """Compute the log-probabilities of tokens from logits (selective log-softmax).

    Takes the logits of tokens of any shape, returns one log-probability for each.

    ::

        log π(a_t) = z_{t,a_t} - logsumexp(z_t),   z_t = x_t / τ

    With `with_entropy`, the result includes the entropy of each distribution,

    ::

        H_t = -∑_v π_t(v) log π_t(v)

    Position `t` of `logits` predicts token `t + 1` of a sequence: pass `logits[:-1]`
    with `tokens[1:]`. Log-probabilities of T tokens come in three layouts, each with
    its mask:

    - at the predicting position, as here: `log_prob` and `mask[1:]`, `[T - 1]`;
    - at the predicted token, `jnp.pad(log_prob, (1, 0))` and `mask`, `[T]`;
    - of the R tokens of an answer alone, `log_prob[-R:]` and `mask[-R:]`, `[R]`.

    The mask includes the token that ends an answer, also where padding is the same
    token: build it from lengths, not by `tokens != pad`.

    To normalise over the tokens that top-k or top-p sampling kept, pass
    `jnp.where(kept, logits, -jnp.inf)`.

    Args:
        logits: Logits :math:`x_t`, minus infinity or the lowest float for impossible
            tokens, shape `[..., V]`.
        tokens: Tokens :math:`a_t`, each in [0, V), shape `[...]`. A traced token
            outside gives NaN: replace an index such as -100 that marks padding.
        temperature: Temperature :math:`τ` of the sampler, in (0, inf), shape `[]` or
            `[...]`.
        with_entropy: Whether to return entropies too, a Python bool.

    Returns:
        :class:`TokenLogProbs`: `log_prob` and `entropy` (or None), shape `[...]` each.
        They are float32 for half precision. The log-probability of an impossible token
        is minus infinity; if all tokens are, it is 0, as the entropy.

    Raises:
        ArgumentError: If a shape, dtype, scalar or NumPy value is wrong.

    Example:
        >>> logits, tokens = jnp.log(jnp.array([[0.25, 0.75]])), jnp.array([1])
        >>> print(jnp.exp(rlaxlib.token_log_probs(logits, tokens).log_prob))
        [0.75]

    References:
        Leandro von Werra and others, *TRL: Transformer Reinforcement Learning*, 2020.
        https://github.com/huggingface/trl
    """
    x = _floored(logits)
    largest = stop_gradient(jnp.max(x, axis=-1))
    temperature = temperature + jnp.zeros_like(largest)
    gaps = (x - largest[..., None]) / temperature[..., None]
    log_total = jnp.log(jnp.sum(jnp.exp(gaps), axis=-1))
    log_prob = indexing.pick(gaps, tokens) - log_total
    picked = indexing.pick(logits, tokens)
    log_prob = _of_legal(log_prob, picked, largest)
    if not with_entropy:
        return TokenLogProbs(log_prob, None)
    expected = jnp.sum(jnp.exp(gaps) * gaps, axis=-1) / jnp.exp(log_total)
    return TokenLogProbs(log_prob, _of_any_legal(log_total - expected, largest))


@jax.custom_jvp
def _floored(logits: Array) -> Array:
    """Return logits with minus infinity made finite, and a derivative of 1.

    The derivative of `safe.floored` is an array of the size of the logits, which the
    backward pass would hold; that of such a logit, a probability of 0, is 0 anyway.
    """
    return jnp.maximum(logits, safe.FLOOR)


@_floored.defjvp
def _floored_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return _floored(*primals), *tangents


def _of_legal(log_prob: Array, picked: Array, largest: Array) -> Array:
    """Return log-probabilities: -inf of impossible tokens, and 0 if all tokens are.

    Args:
        log_prob: Log-probabilities.
        picked: Logits of the same tokens.
        largest: The largest logit.
    """
    log_prob = jnp.where(legality.legal(picked), log_prob, -jnp.inf)
    return _of_any_legal(log_prob, largest)


def _of_any_legal(x: Array, largest: Array) -> Array:
    """Return `x`, and 0 where all tokens are impossible."""
    return jnp.where(legality.legal(largest), x, 0)


@checked(compiled=False)  # Half precision stays: it is meant for matrix products.
def linear_token_log_probs(
    hidden: Float[ArrayLike, "T, D"],
    head: Float[ArrayLike, "D, V"],
    tokens: Int[ArrayLike, "[T] or [T, K] in [0, V)"],
    temperature: Float[ArrayLike, "[] or [T] in (0, inf)"] = 1.0,
    soft_cap: Float[ArrayLike, "in (0, inf)"] | None = None,
    chunk_size: Static[int, "in [1, inf)"] = 2048,
    *,
    bias: Float[ArrayLike, "V"] | None = None,
    kept: Int[ArrayLike, "T, M in [-1, V)"] | None = None,
    with_entropy: Static[bool, ""] = False,
) -> TokenLogProbs:
    r"""Compute the log-probabilities of tokens from hidden states, without logits.

    Takes the hidden states of one sequence, returns one log-probability for each token.

    ::

        log π_t(v) = z_{t,v} - logsumexp_{u ∈ S_t}(z_{t,u}),
        z_t = c tanh((h_t W + b) / c) / τ

    Without a soft cap, :math:`z_t = (h_t W + b) / τ`. The set :math:`S_t` is the
    vocabulary, or the tokens that the sampler kept. The result is that of
    `token_log_probs` on such logits. Both passes go over the vocabulary in chunks, so
    that memory grows with `T * chunk_size`, not with `T * V`; and with `T * K` beyond
    K = 16. Matrix products of half precision accumulate in float32. Forward-mode and
    second derivatives raise an error.

    Position `t` of `hidden` predicts token `t + 1` of a sequence: pass `hidden[:-1]`
    with `tokens[1:]`. Log-probabilities of T tokens come in three layouts, each with
    its mask:

    - at the predicting position, as here: `log_prob` and `mask[1:]`, `[T - 1]`;
    - at the predicted token, `jnp.pad(log_prob, (1, 0))` and `mask`, `[T]`;
    - of the R tokens of an answer alone, `log_prob[-R:]` and `mask[-R:]`, `[R]`.

    The mask includes the token that ends an answer, also where padding is the same
    token: build it from lengths, not by `tokens != pad`.

    For a batch, reshape `hidden` to `[B * T, D]` rather than use `jax.vmap`, so that
    the gradient of `head` is accumulated at once. `head` may be sharded over devices by
    vocabulary, if their number divides 64, by features, or by both; chunks alone are
    gathered.

    Args:
        hidden: Hidden states :math:`h_t` after the last layer, shape `[T, D]`.
        head: Weights :math:`W` of the output layer, or transposed embeddings,
            shape `[D, V]`.
        tokens: Tokens :math:`v`, each in [0, V), shape `[T]`; or several of each
            position, such as the most likely of a teacher, shape `[T, K]`. A traced
            token outside gives NaN: replace an index such as -100 that marks padding.
        temperature: Temperature :math:`τ` of the sampler, in (0, inf), shape `[]` or
            `[T]`.
        soft_cap: Bound :math:`c` of the logits, in (0, inf), shape `[]`, such as 30 of
            Gemma 2; or None. It has no gradient.
        chunk_size: Approximate size of a chunk, a Python integer in [1, inf). It
            changes memory and speed, not the result.
        bias: Bias :math:`b` of the output layer, shape `[V]`, or None.
        kept: Tokens :math:`S_t` that top-k or top-p sampling kept, each in [-1, V), -1
            for none, shape `[T, M]`; or None for all. The others have probability 0.
        with_entropy: Whether to return entropies too, a Python bool.

    Returns:
        :class:`TokenLogProbs`: `log_prob`, of the shape of `tokens`, and `entropy`,
        shape `[T]`, or None. They are float32 for half precision. The log-probability
        of an impossible token is minus infinity; if all tokens are, it is 0, as the
        entropy.

    Raises:
        ArgumentError: If a shape, dtype, scalar or NumPy value is wrong.

    Example:
        >>> hidden, head = jnp.array([[2.0]]), jnp.log(jnp.array([[0.5, 1.0]]))
        >>> found = rlaxlib.linear_token_log_probs(hidden, head, jnp.array([1]))
        >>> print(jnp.exp(found.log_prob))
        [0.8]

    References:
        Erik Wijmans and others, *Cut Your Losses in Large-Vocabulary Language Models*,
        2024. https://arxiv.org/abs/2411.09009
    """
    several = tokens if tokens.ndim == 2 else tokens[:, None]
    inputs = _Inputs(hidden, head, bias, temperature, soft_cap, several, kept)
    with programs.mesh_of(inputs):  # JAX 0.12 could not slice a shared head otherwise.
        log_prob, entropy = _program(chunk_size, inputs)
    log_prob = log_prob if tokens.ndim == 2 else log_prob[:, 0]
    return TokenLogProbs(log_prob, entropy if with_entropy else None)


class _Inputs(NamedTuple):
    """What the logits of tokens are computed from.

    Attributes:
        hidden: Hidden states, `[T, D]`.
        head: Weights, `[D, V]`.
        bias: Bias of each token, `[V]`, or None.
        temperature: Temperatures, `[T]`.
        soft_cap: Bound of the logits, `[]`, or None.
        tokens: Tokens, `[T, K]`.
        kept: Tokens that may be sampled, `[T, M]`, or None.
    """

    hidden: Array
    head: Array
    bias: Array | None
    temperature: Array
    soft_cap: Array | None
    tokens: Array
    kept: Array | None


@functools.partial(jax.jit, static_argnums=0, inline=True)
def _program(chunk_size: int, inputs: _Inputs) -> tuple[Array, Array]:
    """Return log-probabilities, `[T, K]`, and entropies, `[T]`."""
    is_token = indexing.is_inside(inputs.tokens, inputs.head.shape[1])
    linear: Any = _linear  # Its type forgets the first argument.
    outputs = linear(chunk_size, _vary_alike(_converted(inputs)))
    log_prob, entropy, picked, largest = outputs
    picked, largest = stop_gradient((picked, largest))
    log_prob = _of_legal(log_prob, picked, largest[:, None])
    return jnp.where(is_token, log_prob, jnp.nan), _of_any_legal(entropy, largest)


def _converted(inputs: _Inputs) -> _Inputs:
    """Return arrays of common dtypes, of which each device has what it needs."""
    hidden = inputs.hidden.astype(jnp.result_type(inputs.hidden, inputs.head))
    hidden = _replicated(hidden, but=0)
    dtype = jnp.float32 if dtypes.is_half(hidden) else hidden.dtype
    temperature = inputs.temperature.astype(dtype) + jnp.zeros_like(hidden[:, 0], dtype)
    bias, soft_cap, kept = inputs.bias, inputs.soft_cap, inputs.kept
    if bias is not None:  # Shared by devices as the head is.
        zeros = jnp.sum(jnp.zeros_like(inputs.head, dtype), axis=0)
        bias = bias.astype(dtype) + zeros
    return inputs._replace(
        hidden=hidden,
        bias=bias,
        temperature=temperature,
        soft_cap=None if soft_cap is None else soft_cap.astype(dtype),
        tokens=inputs.tokens.astype(jnp.int32),
        kept=None if kept is None else kept.astype(jnp.int32),
    )


# Without a custom derivative, the backward pass of the scan would add an array of the
# size of `head` to the gradient for each chunk.
@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _linear(chunk_size: int, inputs: _Inputs) -> tuple[Array, Array, Array, Array]:
    """Return log-probabilities, entropies, logits of the tokens, and the largest.

    Only the first two have a gradient.
    """
    return _forward(chunk_size, inputs)[0]


def _forward(chunk_size: int, inputs: _Inputs) -> Any:
    """Return the outputs of `_linear`, and what its gradient needs."""
    chunks = _split(inputs, chunk_size)
    temperature = inputs.temperature[:, None]

    def step(carry: tuple[Array, ...], index: Array) -> tuple[tuple[Array, ...], None]:
        largest, total, weighted, picked = carry
        chunk = _logits(chunks, index, inputs)
        maximum = jnp.maximum(largest, jnp.max(chunk.logits, axis=2))
        shift = (largest - maximum) / temperature
        total, weighted = _shifted(total, weighted, shift)
        gaps = (chunk.logits - maximum[..., None]) / temperature[..., None]
        total += jnp.sum(jnp.exp(gaps), axis=2)
        weighted += jnp.sum(jnp.exp(gaps) * gaps, axis=2)
        return (maximum, total, weighted, picked + chunk.picked()), None

    # Zeros like the logits are sharded as they are; XLA removes the logits themselves.
    first = _logits(chunks, chunks.indices[0], inputs)
    zeros = jnp.zeros_like(first.logits[..., 0])
    start = (zeros + safe.FLOOR, zeros, zeros, jnp.zeros_like(first.picked()))
    (each, total, weighted, picked), _ = jax.lax.scan(step, start, chunks.indices)
    largest = jnp.max(each, axis=1)
    shift = (each - largest[:, None]) / temperature
    sums = _shifted(total, weighted, shift)
    total, weighted = (jnp.sum(x, axis=1) for x in sums)
    picked = jnp.sum(picked, axis=1)
    log_total = jnp.log(total)
    log_prob = (picked - largest[:, None]) / temperature - log_total[:, None]
    entropy = log_total - weighted / total
    outputs = log_prob, entropy, picked, largest
    return outputs, (inputs, largest, log_total, entropy)


def _shifted(total: Array, weighted: Array, shift: Array) -> tuple[Array, Array]:
    """Return the sums of `exp(x)` and `x exp(x)` if `x` grows by a shift."""
    scale = jnp.exp(shift)
    return scale * total, scale * (weighted + shift * total)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _backward(chunk_size: int, residuals: Any, cotangents: Any) -> tuple[_Inputs]:
    """Return the gradient of the inputs of `_linear`."""
    inputs, largest, log_total, entropy = residuals
    by_log_prob, by_entropy, *_ = cotangents
    chunks = _split(inputs, chunk_size)
    temperature = _column(inputs.temperature)
    hidden = inputs.hidden.astype(temperature.dtype)
    by_total = jnp.sum(by_log_prob, axis=1)

    def step(carry: Any, index: Array) -> Any:
        d_hidden, d_head, d_bias, d_scale = carry
        chunk = _logits(chunks, index, inputs)
        gaps = (chunk.logits - _column(largest)) / temperature
        log_probs = gaps - _column(log_total)
        by_entropies = _column(by_entropy) * (log_probs + _column(entropy))
        d_gaps = -(_column(by_total) + by_entropies) * jnp.exp(log_probs)
        d_gaps = chunk.add(d_gaps, by_log_prob)
        d_scale += jnp.sum(d_gaps * gaps, axis=2)
        d_logits = d_gaps / temperature * chunk.derivative
        columns = chunk.columns.astype(hidden.dtype)
        d_hidden += _product("tnc,dnc->td", d_logits, columns, like=inputs.hidden)
        d_columns = _product("td,tnc->dnc", hidden, d_logits, like=chunks.head)
        d_head = chunks.add(d_head, d_columns, index)
        if d_bias is not None:
            d_bias = chunks.add(d_bias, jnp.sum(d_logits, 0, keepdims=True), index)
        return (d_hidden, d_head, d_bias, d_scale), None

    first = _logits(chunks, chunks.indices[0], inputs)
    d_bias = None if chunks.bias is None else jnp.zeros_like(chunks.bias)
    start: Any = (jnp.zeros_like(hidden), jnp.zeros_like(chunks.head), d_bias)
    start = (*start, jnp.zeros_like(first.logits[..., 0]))
    end, _ = jax.lax.scan(step, start, chunks.indices)
    d_hidden, d_head, d_bias, d_scale = end
    # The gradient by logits sums to 0, so their maximum may be subtracted.
    d_temperature = -jnp.sum(d_scale, axis=1) / inputs.temperature
    d_head = _as_floats(d_head, chunks.dtype).reshape(inputs.head.shape)
    d_bias = None if d_bias is None else jnp.squeeze(d_bias, 0).reshape(-1)
    d_hidden = d_hidden.astype(inputs.hidden.dtype)
    none: Any = None  # Of the soft cap, the tokens and those that were kept.
    return (_Inputs(d_hidden, d_head, d_bias, d_temperature, none, none, none),)


def _second_derivative(*_: Any) -> NoReturn:
    """Raise an error: the derivative of integers, as which weights are cut, is 0."""
    raise NotImplementedError(
        "`linear_token_log_probs` has no second derivative; `token_log_probs` of "
        "`hidden @ head` has"
    )


_backward.defjvp(_second_derivative)
_linear.defvjp(_forward, _backward)


class _Chunks(NamedTuple):
    """A partition of the vocabulary into chunks, of C tokens of each of N blocks.

    If `head` is sharded over devices by vocabulary, a chunk is too.

    Attributes:
        head: Weights, `[D, N, V / N]`, as `_as_integers`.
        bias: Bias, `[1, N, V / N]`, or None.
        dtype: Dtype of the weights.
        width: Number C of tokens of each block in a chunk.
        indices: Indices of the chunks. The last overlaps the one before it if C does
            not divide the size of a block.
    """

    head: Array
    bias: Array | None
    dtype: Any
    width: int
    indices: Array

    def first(self, index: Array) -> Array:
        """Return the first token of a chunk in each block."""
        return jnp.minimum(index * self.width, self.head.shape[2] - self.width)

    def cut(self, x: Array, index: Array) -> Array:
        """Return the part of an array like `head` or `bias` that belongs to a chunk."""
        part = jax.lax.dynamic_slice_in_dim(x, self.first(index), self.width, 2)
        return _as_floats(part, self.dtype)

    def add(self, x: Array, part: Array, index: Array) -> Array:
        """Return an array with the part of a chunk added, rounded to its dtype."""
        old = self.cut(x, index)
        new = part.astype(old.dtype) + old
        new = _as_integers(new) if x.dtype != new.dtype else new
        return jax.lax.dynamic_update_slice_in_dim(x, new, self.first(index), 2)


class _Chunk(NamedTuple):
    """A part of the vocabulary.

    Attributes:
        logits: Logits, `[T, N, C]`: the floor for tokens that are impossible, not kept,
            or in the chunk before, too.
        derivative: Derivative of the logits by what the soft cap bounds, `[T, N, C]`.
        places: Where the tokens stand among the logits, as `_places`, `[T, K]`.
        columns: Weights of the head, `[D, N, C]`.
    """

    logits: Array
    derivative: Array
    places: Array
    columns: Array

    def picked(self) -> Array:
        """Return the logit of each token in its block, 0 in others, `[T, N, K]`."""

        def get(logits: Array, place: Array) -> Array:
            return logits.at[place].get(mode="fill", fill_value=0)

        return jax.vmap(jax.vmap(get))(self.logits, self.places_in_blocks())

    def add(self, x: Array, values: Array) -> Array:
        """Return `x`, like the logits, with values `[T, K]` added at their tokens."""

        def add(x: Array, place: Array, values: Array) -> Array:
            return x.at[place].add(values, mode="drop")

        each_block = jax.vmap(add, (0, 0, None))
        return jax.vmap(each_block)(x, self.places_in_blocks(), values)

    def places_in_blocks(self) -> Array:
        """Return where the tokens stand in each block, C if they do not, `[T, N, K]`.

        It is sharded as the logits are. A comparison of all logits with all tokens
        would take K times the memory.
        """
        _, blocks, width = self.logits.shape
        block, place = jnp.divmod(self.places[:, None], width)
        is_here = block == jnp.arange(blocks, dtype=block.dtype).reshape(1, -1, 1)
        zeros = jnp.zeros_like(self.logits[..., :1], block.dtype)
        return jnp.where(is_here, place, width) + zeros


def _split(inputs: _Inputs, chunk_size: int) -> _Chunks:
    """Return chunks of about `chunk_size` tokens."""
    rows, columns = inputs.head.shape
    shared = math.gcd(columns, _BLOCKS)
    # More than one block of each device: XLA for CPUs would copy the head.
    blocks = max(n for n in range(shared, _BLOCKS + 1, shared) if columns % n == 0)
    size = columns // blocks
    width = -(-size // -(-columns // chunk_size))
    indices = jnp.arange(-(-size // width), dtype=jnp.int32)
    head = _as_integers(inputs.head.reshape(rows, blocks, size))
    bias = None if inputs.bias is None else inputs.bias.reshape(blocks, size)[None]
    return _Chunks(head, bias, inputs.head.dtype, width, indices)


def _logits(chunks: _Chunks, index: Array, inputs: _Inputs) -> _Chunk:
    """Return the logits of a chunk, before the temperature."""
    dtype = inputs.temperature.dtype
    columns = chunks.cut(chunks.head, index).astype(inputs.hidden.dtype)
    columns = _replicated(columns, but=1)
    x = jnp.einsum("td,dnc->tnc", inputs.hidden, columns, preferred_element_type=dtype)
    if chunks.bias is not None:
        x += chunks.cut(chunks.bias, index)
    derivative = jnp.ones_like(x)
    if inputs.soft_cap is not None:
        bounded = jnp.tanh(x / inputs.soft_cap)
        x, derivative = inputs.soft_cap * bounded, 1 - bounded * bounded
    place = jnp.arange(chunks.width, dtype=jnp.int32) + chunks.first(index)
    x = jnp.where(place >= index * chunks.width, safe.floored(x), safe.FLOOR)
    if inputs.kept is not None:
        is_kept = _is_kept(_places(inputs.kept, chunks, index), x)
        x = jnp.where(is_kept, x, safe.FLOOR)
    return _Chunk(x, derivative, _places(inputs.tokens, chunks, index), columns)


def _places(tokens: Array, chunks: _Chunks, index: Array) -> Array:
    """Return where tokens stand in a chunk as a vector, its size if they do not."""
    _, blocks, size = chunks.head.shape
    first, width = chunks.first(index), chunks.width
    block, place = jnp.divmod(tokens, size)
    is_new = (place >= index * width) & (place < first + width)
    is_inside = indexing.is_inside(tokens, blocks * size)
    return jnp.where(is_inside & is_new, block * width + place - first, blocks * width)


def _is_kept(places: Array, like: Array) -> Array:
    """Return which tokens of a chunk are kept, of the shape of `like`."""

    def mark(places: Array) -> Array:
        zeros = jnp.zeros(math.prod(like.shape[1:]), bool)
        return zeros.at[places].set(True, mode="drop")

    return jax.vmap(mark)(places).reshape(like.shape)


def _as_integers(x: Array) -> Array:
    """Return the bits of half precision as integers.

    To slice it, some platforms would convert the whole array to float32.
    """
    is_half = x.dtype.itemsize == 2
    return jax.lax.bitcast_convert_type(x, jnp.uint16) if is_half else x


def _as_floats(x: Array, dtype: Any) -> Array:
    """Undo `_as_integers`, of which floats need nothing."""
    is_float = jnp.issubdtype(x.dtype, jnp.floating)
    return x if is_float else jax.lax.bitcast_convert_type(x, dtype)


def _replicated(x: Array, but: int) -> Array:
    """Replicate an array over the devices of an explicit mesh, but along one axis."""
    sharding = jax.typeof(x).sharding
    spec = [each if i == but else None for i, each in enumerate(sharding.spec)]
    is_whole = tuple(spec) == tuple(sharding.spec)
    return x if is_whole else jax.reshard(x, sharding.update(spec=jax.P(*spec)))


def _product(subscripts: str, x: Array, y: Array, like: Array) -> Array:
    """Return a product spread over devices as an array of the same axes is."""
    return jnp.einsum(subscripts, x, y, out_sharding=jax.typeof(like).sharding)


def _column(x: Array) -> Array:
    """Return an array `[T]` as `[T, 1, 1]`."""
    return x.reshape(-1, 1, 1)


def _vary_alike(inputs: _Inputs) -> _Inputs:
    """Return arrays that vary over the same mesh axes, as the carry of a scan must."""
    zeros = [jnp.zeros_like(each, shape=()) for each in jax.tree.leaves(inputs)]
    zero = sum(each.astype(jnp.int32) for each in zeros)

    def vary(x: Array) -> Array:
        return x + jnp.asarray(zero, x.dtype)

    return jax.tree.map(vary, inputs)
