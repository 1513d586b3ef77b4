"""A small transformer in flax: log-probabilities of tokens, samples and imitation.

Sequences have a fixed length T, and position t predicts token t + 1. So log-
probabilities and masks have the shape `[B, T - 1]`, and belong to `tokens[:, 1:]`.
Logits are computed only to sample: `log_probs` goes over the vocabulary in chunks.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

import rlaxlib
from common.train_state import TrainState

PAD, END = 0, 1  # The first two tokens of every vocabulary.


class Samples(NamedTuple):
    """Sequences of prompt, answer and padding."""

    tokens: jax.Array  # [B, T]
    log_prob: jax.Array  # [B, T - 1], under the policy that sampled them.
    sample_mask: jax.Array  # [B, T - 1], true for tokens of the answer, END included.


class Packing(NamedTuple):
    """Where the sequences of packed rows are."""

    positions: jax.Array  # [B, T], of each token in its sequence.
    segment_ids: jax.Array  # [B, T], the sequence of each token.


class Block(nn.Module):
    """Causal self-attention and a feed-forward layer."""

    heads: int
    decode: bool

    @nn.compact
    def __call__(self, x, segment_ids=None):
        mask = None if self.decode else nn.make_causal_mask(x[..., 0])
        if segment_ids is not None:
            alike = nn.make_attention_mask(segment_ids, segment_ids, jnp.equal)
            mask = nn.combine_masks(mask, alike)
        attention = nn.MultiHeadDotProductAttention(self.heads, decode=self.decode)
        x = x + attention(nn.LayerNorm()(x), mask=mask)
        hidden = nn.gelu(nn.Dense(4 * x.shape[-1])(nn.LayerNorm()(x)))
        return x + nn.Dense(x.shape[-1])(hidden)


class Transformer(nn.Module):
    """A decoder-only transformer.

    With `decode`, it takes one token at a time, and keeps the keys and values of those
    before it in the collection `cache`.
    """

    vocabulary: int
    length: int  # Maximum length T.
    features: int = 64
    layers: int = 2
    heads: int = 4
    decode: bool = False

    @nn.compact
    def __call__(self, tokens, positions=None, segment_ids=None, with_head=True):
        """Return the logits of the next tokens, [B, T, V], or hidden states."""
        if positions is None:
            positions = jnp.arange(tokens.shape[1])
        x = nn.Embed(self.vocabulary, self.features)(tokens)
        x = x + nn.Embed(self.length, self.features)(positions)
        for _ in range(self.layers):
            x = Block(self.heads, self.decode)(x, segment_ids)
        x = nn.LayerNorm()(x)
        head = nn.Dense(self.vocabulary, use_bias=False, name="head")
        return head(x) if with_head else x


def log_probs(
    policy: TrainState, tokens: jax.Array, params=None, packing: Packing | None = None
) -> jax.Array:
    """Return the log-probabilities of `tokens[:, 1:]`, [B, T - 1]."""
    params = policy.params if params is None else params
    where = () if packing is None else [x[:, :-1] for x in packing]
    hidden = policy(tokens[:, :-1], *where, with_head=False, params=params)
    found = rlaxlib.linear_token_log_probs(
        hidden.reshape(-1, hidden.shape[-1]),
        params["head"]["kernel"],
        tokens[:, 1:].reshape(-1),
    )
    return found.log_prob.reshape(hidden.shape[:-1])


def pack(x: jax.Array, lengths: jax.Array, number: int) -> jax.Array:
    """Join the first entries of `number` rows at a time, followed by zeros.

    Args:
        x: Rows, `[B, T]`.
        lengths: Number of entries of each row, `[B]`.
        number: How many rows are joined.

    Returns:
        Packed rows, `[B / number, number * T]`.
    """

    def join(x, lengths):
        start = jnp.cumsum(lengths) - lengths
        place = jnp.arange(x.shape[1])
        target = jnp.where(place < lengths[:, None], start[:, None] + place, x.size)
        return jnp.zeros(x.size, x.dtype).at[target].set(x, mode="drop")

    groups = (each.reshape(-1, number, *each.shape[1:]) for each in (x, lengths))
    return jax.vmap(join)(*groups)


def sample(policy: TrainState, prompts: jax.Array, keys: jax.Array) -> Samples:
    """Sample answers to prompts.

    Args:
        policy: Train state of a `Transformer`.
        prompts: Prompts, padded at the end, `[B, T]`.
        keys: A key for each prompt, `[B]`, so that devices do not matter.

    Returns:
        The prompts with answers that end with END, or at the length T.
    """
    model = policy.model_def.clone(decode=True)
    shapes = jax.eval_shape(model.init, jax.random.key(0), prompts)["cache"]
    cache = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

    def step(carry, t):
        cache, token = carry
        variables = {"params": policy.params, "cache": cache}
        logits, cache = model.apply(variables, token[:, None], t[None], mutable="cache")
        logits = logits[:, 0]
        sampled = jax.vmap(jax.random.categorical)(
            jax.vmap(jax.random.fold_in, (0, None))(keys, t), logits
        )
        is_answer = (prompts[:, t + 1] == PAD) & (token != END) & (token != PAD)
        after = jnp.where(is_answer, sampled, prompts[:, t + 1])
        log_prob = rlaxlib.token_log_probs(logits, after).log_prob
        return (cache["cache"], after), (after, log_prob, is_answer)

    steps = jnp.arange(prompts.shape[1] - 1)
    _, outputs = jax.lax.scan(step, (cache, prompts[:, 0]), steps)
    tokens, log_prob, sample_mask = (jnp.swapaxes(x, 0, 1) for x in outputs)
    tokens = jnp.concatenate([prompts[:, :1], tokens], axis=1)
    return Samples(tokens, log_prob, sample_mask)
