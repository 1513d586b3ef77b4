"""Log-probabilities of tokens, and entropies, from logits or from hidden states.

Position `t` of `tokens` is the token that the logits of position `t` predict: shift one
of them by one before the call. Use the temperature that the tokens were sampled with.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax import Array

from rlaxlib._core import indexing, legality
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import ArrayLike, Float, Int, Static

__all__ = ["linear_token_log_probs", "token_log_probs"]

_MASKED = -1e30  # A logit of probability 0. `0 * -inf` would be NaN.
_BLOCKS = 64  # Maximum number of blocks of a vocabulary, and of devices that share it.
_Static = tuple[int, bool]


@checked(wide=True)
def token_log_probs(
    logits: Float[ArrayLike, "..., V"],
    tokens: Int[ArrayLike, "... in [0, V)"],
    *,
    temperature: Float[ArrayLike, "in (0, inf)"] = 1.0,
    with_entropy: Static[bool, ""] = False,
) -> Float[Array, "..."] | tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Compute the log-probabilities of tokens from logits (selective log-softmax).

    Takes the logits of tokens of any shape, returns one log-probability for each.

    .. math:: log π(a_t) = z_{t,a_t} - logsumexp(z_t),   z_t = x_t / τ

    With `with_entropy`, also return the entropy of each distribution,

    .. math:: H_t = -∑_v π_t(v) log π_t(v)

    Args:
        logits: Logits :math:`x_t`, minus infinity or the lowest float for impossible
            tokens, shape `[..., V]`. If all are minus infinity, :math:`π` is uniform.
        tokens: Tokens :math:`a_t`, each in [0, V), shape `[...]`. A traced token
            outside gives NaN: replace an index such as -100 that marks padding.
        temperature: Temperature :math:`τ` of the sampler, in (0, inf), shape `[]`.
        with_entropy: Whether to return entropies too, a Python bool.

    Returns:
        Log-probabilities, shape `[...]`; or a tuple of log-probabilities and entropies,
        shape `[...]` each. They are float32 for half precision.

    Raises:
        ArgumentError: If a shape, dtype, scalar or NumPy value is wrong.

    Example:
        >>> logits, tokens = jnp.log(jnp.array([[0.25, 0.75]])), jnp.array([1])
        >>> print(jnp.exp(rlaxlib.token_log_probs(logits, tokens)))
        [0.75]

    References:
        Leandro von Werra and others, *TRL: Transformer Reinforcement Learning*, 2020.
        https://github.com/huggingface/trl
    """
    # With half the memory of `softmax`, since a vocabulary is large.
    z, legal = legality.gaps(logits, temperature=temperature)
    none = ~jnp.any(legal, axis=-1, keepdims=True)  # Their softmax would be NaN.
    log_probs = jax.nn.log_softmax(jnp.where(legal | none, z, -jnp.inf))
    log_prob = indexing.pick(log_probs, tokens)
    if not with_entropy:
        return log_prob
    finite = jnp.where(legal, log_probs, 0)  # `0 * -inf` is NaN.
    return log_prob, -jnp.sum(jnp.exp(log_probs) * finite, axis=-1)


@checked(compiled=False)  # Half precision stays: it is meant for matrix products.
def linear_token_log_probs(
    hidden: Float[ArrayLike, "T, D"],
    head: Float[ArrayLike, "D, V"],
    tokens: Int[ArrayLike, "T in [0, V)"],
    *,
    temperature: Float[ArrayLike, "in (0, inf)"] = 1.0,
    chunk_size: Static[int, "in [1, inf)"] = 2048,
    with_entropy: Static[bool, ""] = False,
) -> Float[Array, "T"] | tuple[Float[Array, "T"], Float[Array, "T"]]:
    """Compute the log-probabilities of tokens from hidden states, without logits.

    Takes the hidden states of one sequence, returns one log-probability for each token.

    .. math:: log π(a_t) = z_{t,a_t} - logsumexp(z_t),   z_t = h_t W / τ

    The result is that of `token_log_probs` on the logits :math:`h_t W`. Both passes go
    over the vocabulary in chunks, so that memory grows with `T * chunk_size`, not with
    `T * V`. Matrix products of half precision accumulate in float32. Forward-mode and
    second derivatives are not supported.

    For a batch, reshape `hidden` to `[B * T, D]` rather than use `jax.vmap`, so that
    the gradient of `head` is accumulated at once. `head` may be sharded over devices by
    vocabulary, if their number divides 64.

    Args:
        hidden: Hidden states :math:`h_t` after the last layer, shape `[T, D]`.
        head: Weights :math:`W` of the output layer, or transposed embeddings,
            shape `[D, V]`.
        tokens: Tokens :math:`a_t`, each in [0, V), shape `[T]`. A traced token outside
            gives NaN: replace an index such as -100 that marks padding.
        temperature: Temperature :math:`τ` of the sampler, in (0, inf), shape `[]`.
        chunk_size: Approximate size of a chunk, a Python integer in [1, inf). It
            changes memory and speed, not the result.
        with_entropy: Whether to return entropies too, a Python bool.

    Returns:
        Log-probabilities, shape `[T]`; or a tuple of log-probabilities and entropies,
        shape `[T]` each. They are float32 for half precision.

    Raises:
        ArgumentError: If a shape, dtype, scalar or NumPy value is wrong.

    Example:
        >>> hidden, head = jnp.array([[2.0]]), jnp.log(jnp.array([[0.5, 1.0]]))
        >>> log_prob = rlaxlib.linear_token_log_probs(hidden, head, jnp.array([1]))
        >>> print(jnp.exp(log_prob))
        [0.8]

    References:
        Erik Wijmans and others, *Cut Your Losses in Large-Vocabulary Language Models*,
        2024. https://arxiv.org/abs/2411.09009
    """
    static = (chunk_size, bool(with_entropy))
    return _program(static, hidden, head, tokens, temperature)


@functools.partial(cast(Any, jax.jit), static_argnums=0, inline=True)
def _program(
    static: _Static, hidden: Array, head: Array, tokens: Array, temperature: Array
) -> Array | tuple[Array, Array]:
    """Return log-probabilities, and entropies if they are wanted."""
    hidden = hidden.astype(jnp.result_type(hidden, head))
    half = cast(Any, jnp.finfo(hidden.dtype)).bits < 32
    temperature = temperature.astype(jnp.float32 if half else hidden.dtype)
    tokens = tokens.astype(int)  # The size of the vocabulary may not fit a uint8.
    arrays = _alike(hidden, head, tokens.astype(jnp.int32), temperature)
    log_prob, entropy = cast(Any, _linear)(static, *arrays)
    is_token = (tokens >= 0) & (tokens < head.shape[1])
    log_prob = jnp.where(is_token, log_prob, jnp.nan)
    return log_prob if entropy is None else (log_prob, entropy)


# Without a custom derivative, the backward pass of the scan would add an array of the
# size of `head` to the gradient for each chunk.
@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _linear(static: _Static, *arrays: Array) -> tuple[Array, Array | None]:
    """Return log-probabilities, and entropies or None."""
    return _linear_fwd(static, *arrays)[0]


def _linear_fwd(
    static: _Static, hidden: Array, head: Array, tokens: Array, temperature: Array
) -> tuple[tuple[Array, Array | None], Any]:
    chunk_size, with_entropy = static
    chunks = _split(hidden, head, chunk_size)

    def step(carry: tuple[Array, ...], index: Array) -> tuple[tuple[Array, ...], None]:
        largest, total, weighted, picked = carry
        logits, is_token, _ = _chunk(chunks, index, hidden, tokens, temperature.dtype)
        maximum = jnp.maximum(largest, jnp.max(logits, axis=2))
        excess = _gap(largest, maximum, temperature)
        shifted = _gap(logits, maximum[..., None], temperature)
        if with_entropy:
            weighted = jnp.exp(excess) * (weighted + excess * total)
            weighted = weighted + jnp.sum(jnp.exp(shifted) * shifted, axis=2)
        total = jnp.exp(excess) * total + jnp.sum(jnp.exp(shifted), axis=2)
        picked = picked + jnp.sum(jnp.where(is_token, logits, 0), axis=2)
        return (maximum, total, weighted, picked), None

    # Statistics of each block, which devices exchange once, at the end.
    # Zeros are made of arrays, [T, 1] and [1, N], to vary over the same devices.
    zeros = [
        jnp.zeros_like(each, temperature.dtype)
        for each in (hidden[:, :1], chunks.head[:1, :, 0])
    ]
    zeros = zeros[0] + zeros[1]
    start = (zeros + _MASKED, zeros, zeros, zeros)
    end, _ = jax.lax.scan(step, start, chunks.indices)
    largest, total, weighted, picked = end
    maximum = jnp.max(largest, axis=1)
    excess = _gap(largest, maximum[:, None], temperature)
    weighted = jnp.sum(jnp.exp(excess) * (weighted + excess * total), axis=1)
    total = jnp.sum(jnp.exp(excess) * total, axis=1)
    log_prob = (jnp.sum(picked, axis=1) - maximum) / temperature - jnp.log(total)
    entropy = jnp.log(total) - weighted / total if with_entropy else None
    residuals = (hidden, head, tokens, temperature, maximum, total, entropy)
    return (log_prob, entropy), residuals


def _linear_bwd(static: _Static, residuals: Any, cotangents: Any) -> Any:
    hidden, head, tokens, temperature, maximum, total, entropy = residuals
    by_log_prob, by_entropy = cotangents
    chunks = _split(hidden, head, static[0])
    wide = hidden.astype(temperature.dtype)

    def step(carry: tuple[Array, ...], index: Array) -> Any:
        d_hidden, d_head, d_scale = carry
        logits, is_token, part = _chunk(
            chunks, index, hidden, tokens, temperature.dtype
        )
        gaps = _gap(logits, _column(maximum), temperature)
        log_probs = gaps - _column(jnp.log(total))
        probs = jnp.exp(log_probs)
        d_logits = _column(by_log_prob) * (is_token.astype(probs.dtype) - probs)
        if by_entropy is not None:
            d_logits -= _column(by_entropy) * probs * (log_probs + _column(entropy))
        d_scale += jnp.sum(d_logits * gaps, axis=(0, 2))
        d_logits = d_logits / temperature
        part = part.astype(wide.dtype)
        d_hidden += _sums("tnc,dnc->td", d_logits, part, like=hidden)
        d_part = _sums("td,tnc->dnc", wide, d_logits, like=chunks.head)
        d_part = _bits(d_part.astype(head.dtype) + chunks.cut(d_head, index))
        first = chunks.first(index)
        d_head = jax.lax.dynamic_update_slice_in_dim(d_head, d_part, first, 2)
        return (d_hidden, d_head, d_scale), None

    d_scale = jnp.zeros_like(chunks.head[0, :, 0], temperature.dtype)
    start = (jnp.zeros_like(wide), jnp.zeros_like(chunks.head), d_scale)
    (d_hidden, d_head, d_scale), _ = jax.lax.scan(step, start, chunks.indices)
    # The gradient by logits sums to 0, so their maximum may be subtracted.
    d_temperature = -jnp.sum(d_scale) / temperature
    d_head = _floats(d_head, head.dtype).reshape(head.shape)
    return d_hidden.astype(hidden.dtype), d_head, None, d_temperature


_linear.defvjp(_linear_fwd, _linear_bwd)


class _Chunks(NamedTuple):
    """A partition of the vocabulary into chunks.

    The vocabulary is cut into N equal blocks, and a chunk has C tokens of each. So if
    `head` is sharded over devices by vocabulary, a chunk is too.

    Attributes:
        head: Weights, `[D, N, V / N]`, as `_bits`.
        dtype: Dtype of the weights.
        width: Number C of tokens of each block in a chunk.
        indices: Indices of the chunks. The last overlaps the one before it if C does
            not divide the size of a block.
    """

    head: Array
    dtype: Any
    width: int
    indices: Array

    def first(self, index: Array) -> Array:
        """Return the first token of a chunk in each block."""
        return jnp.minimum(index * self.width, self.head.shape[2] - self.width)

    def cut(self, bits: Array, index: Array) -> Array:
        """Return the part of an array like `head` that belongs to a chunk."""
        first = self.first(index)
        part = jax.lax.dynamic_slice_in_dim(bits, first, self.width, 2)
        return _floats(part, self.dtype)


def _split(hidden: Array, head: Array, chunk_size: int) -> _Chunks:
    """Return chunks of about `chunk_size` tokens."""
    rows, columns = head.shape
    blocks = math.gcd(columns, _BLOCKS)
    size = columns // blocks
    width = -(-size // -(-columns // chunk_size))
    indices = jnp.arange(-(-size // width), dtype=jnp.int32)
    bits = _bits(head.reshape(rows, blocks, size))
    return _Chunks(bits, head.dtype, width, indices)


def _gap(logits: Array, maximum: Array, temperature: Array) -> Array:
    """Return the logits of a softmax relative to the largest, at least `_MASKED`."""
    gap = (logits - maximum) / temperature
    return jnp.where(gap < _MASKED, _MASKED, gap)  # Not a maximum: see `safe.largest`.


def _chunk(
    chunks: _Chunks, index: Array, hidden: Array, tokens: Array, dtype: Any
) -> tuple[Array, Array, Array]:
    """Return the logits of a chunk, which of them are of the tokens, and the weights.

    All have the axes `[N, C]` last. Logits that the chunk before has too are masked.
    """
    part = chunks.cut(chunks.head, index).astype(hidden.dtype)
    logits = jnp.einsum("td,dnc->tnc", hidden, part, preferred_element_type=dtype)
    _, blocks, size = chunks.head.shape
    place = jnp.arange(chunks.width, dtype=jnp.int32) + chunks.first(index)
    is_new = (place >= index * chunks.width).reshape(1, 1, -1)
    start = size * jnp.arange(blocks, dtype=jnp.int32)
    token = start.reshape(1, -1, 1) + place.reshape(1, 1, -1)
    is_token = is_new & (token == _column(tokens))
    return jnp.where(is_new, logits, _MASKED), is_token, part


def _bits(x: Array) -> Array:
    """Return half precision as integers.

    To slice it, some platforms would convert the whole array to float32.
    """
    is_half = x.dtype.itemsize == 2
    return jax.lax.bitcast_convert_type(x, jnp.uint16) if is_half else x


def _floats(x: Array, dtype: Any) -> Array:
    """Undo `_bits`."""
    return x if x.dtype == dtype else jax.lax.bitcast_convert_type(x, dtype)


def _sums(subscripts: str, x: Array, y: Array, like: Array) -> Array:
    """Return sums of products, spread over devices as an array of the same axes is."""
    return jnp.einsum(subscripts, x, y, out_sharding=jax.typeof(like).sharding)


def _column(x: Array) -> Array:
    """Return an array `[T]` as `[T, 1, 1]`."""
    return x.reshape(-1, 1, 1)


def _alike(*arrays: Array) -> tuple[Array, ...]:
    """Return arrays that vary over the same mesh axes, as the carry of a scan must."""
    zeros = [jnp.sum(jnp.zeros_like(each)) for each in arrays]
    zero = sum(each.astype(jnp.int32) for each in zeros)
    return tuple(each + jnp.asarray(zero, each.dtype) for each in arrays)
