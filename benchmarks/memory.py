"""Memory of losses over many actions or tokens, beside plain JAX without guards.

The memory is that of temporaries of the compiled program, by XLA's own analysis.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import rlaxlib
from benchmarks.timing import Program

ROWS, ACTIONS = 256, 8192


def temporaries(function: Callable[..., Any], *arguments: Any) -> int:
    """Return the bytes of temporaries of a function, compiled and not run."""
    compiled = jax.jit(function).lower(*arguments).compile()
    return compiled.memory_analysis().temp_size_in_bytes


class Softmax(NamedTuple):
    """A function of logits, and the plain expression of the same.

    Attributes:
        name: The function.
        ours: The function of the library.
        plain: The definition by `jax.nn.log_softmax`.
        arguments: Kind of each argument: logits or probabilities of all actions,
            actions, or numbers.
        variables: Positions of those that have a gradient.
    """

    name: str
    ours: Callable[..., Any]
    plain: Callable[..., Any]
    arguments: tuple[str, ...]
    variables: tuple[int, ...] = (0,)

    def values(self) -> list[jax.Array]:
        """Return random arguments."""
        return [_argument(kind, seed) for seed, kind in enumerate(self.arguments)]

    def arrays(self, gradient: bool) -> tuple[float, float]:
        """Return the temporaries of both, in arrays of the size of the logits."""

        def program(function: Callable[..., Any]) -> Callable[..., Any]:
            def total(*arguments: Any) -> Any:
                return jnp.sum(function(*arguments))

            return jax.value_and_grad(total, self.variables) if gradient else function

        size = 4 * ROWS * ACTIONS
        ours, plain = (
            temporaries(program(each), *self.values()) / size
            for each in (self.ours, self.plain)
        )
        return ours, plain


def _argument(kind: str, seed: int) -> jax.Array:
    rng = np.random.default_rng(seed)
    if kind == "actions":
        return jnp.asarray(rng.integers(ACTIONS, size=ROWS), jnp.int32)
    shape = (ROWS,) if kind == "numbers" else (ROWS, ACTIONS)
    x = jnp.asarray(rng.normal(size=shape), jnp.float32)
    return jax.nn.softmax(x) if kind == "probabilities" else x


def _log_prob(logits: Any, actions: Any) -> Any:
    log_probs = jax.nn.log_softmax(logits)
    return jnp.take_along_axis(log_probs, actions[:, None], axis=1)[:, 0]


def _entropy(logits: Any) -> Any:
    log_probs = jax.nn.log_softmax(logits)
    return -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)


def _cross_entropy(labels: Any, logits: Any) -> Any:
    return -jnp.sum(labels * jax.nn.log_softmax(logits), axis=-1)


def _policy_gradient(logits: Any, actions: Any, adv: Any) -> Any:
    return -jnp.mean(adv * _log_prob(logits, actions))


def _kl(p_logits: Any, q_logits: Any) -> Any:
    log_p, log_q = jax.nn.log_softmax(p_logits), jax.nn.log_softmax(q_logits)
    return jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=-1)


def _ours_log_prob(logits: Any, actions: Any) -> Any:
    return rlaxlib.softmax().log_prob(actions, logits)


def _token_log_probs(logits: Any, tokens: Any) -> Any:
    return rlaxlib.token_log_probs(logits, tokens).log_prob


def _token_log_probs_and_entropies(logits: Any, tokens: Any) -> Any:
    found = rlaxlib.token_log_probs(logits, tokens, with_entropy=True)
    return found.log_prob + found.entropy


def _log_prob_and_entropy(logits: Any, actions: Any) -> Any:
    return _log_prob(logits, actions) + _entropy(logits)


SOFTMAX = (
    Softmax(
        "`categorical_cross_entropy`",
        rlaxlib.categorical_cross_entropy,
        _cross_entropy,
        ("probabilities", "logits"),
        variables=(1,),
    ),
    Softmax(
        "`policy_gradient_loss`",
        rlaxlib.policy_gradient_loss,
        _policy_gradient,
        ("logits", "actions", "numbers"),
    ),
    Softmax("`softmax().entropy`", rlaxlib.softmax().entropy, _entropy, ("logits",)),
    Softmax("`softmax().log_prob`", _ours_log_prob, _log_prob, ("logits", "actions")),
    Softmax(
        "`softmax().kl`",
        rlaxlib.softmax().kl,
        _kl,
        ("logits", "logits"),
        variables=(0, 1),
    ),
    Softmax("`token_log_probs`", _token_log_probs, _log_prob, ("logits", "actions")),
    Softmax(
        "`token_log_probs`, with entropies",
        _token_log_probs_and_entropies,
        _log_prob_and_entropy,
        ("logits", "actions"),
    ),
)


# --- The output head of a language model. ---


def _by_head(hidden: Any, head: Any, tokens: Any) -> Any:
    return rlaxlib.linear_token_log_probs(hidden, head, tokens).log_prob


def _by_logits(hidden: Any, head: Any, tokens: Any) -> Any:
    logits = jnp.matmul(hidden, head, preferred_element_type=jnp.float32)
    return _log_prob(logits, tokens)


def _by_chunks(hidden: Any, head: Any, tokens: Any) -> Any:
    @jax.checkpoint
    def chunk(inputs: Any) -> Any:
        hidden, tokens = inputs
        return _by_logits(hidden, head, tokens)

    parts = hidden.reshape(16, -1, hidden.shape[1]), tokens.reshape(16, -1)
    return jax.lax.map(chunk, parts).reshape(-1)


HEADS = {
    "`linear_token_log_probs`": _by_head,
    "logits": _by_logits,
    "16 chunks of tokens, rematerialised": _by_chunks,
}


def head(name: str, steps: int, features: int, words: int, dtype: Any) -> Program:
    """Return the gradient of log-probabilities by hidden states and head.

    Args:
        name: One of `HEADS`.
        steps: Number T of tokens.
        features: Size D of the hidden states.
        words: Size V of the vocabulary.
        dtype: Dtype of the hidden states and the head.

    Returns:
        The program, and its arguments.
    """

    def total(hidden: Any, head: Any, tokens: Any) -> Any:
        return jnp.sum(HEADS[name](hidden, head, tokens))

    rng = np.random.default_rng(0)
    hidden = jnp.asarray(rng.normal(size=(steps, features)), dtype)
    weights = jnp.full((features, words), 0.01, dtype)
    tokens = jnp.asarray(rng.integers(words, size=steps), jnp.int32)
    return jax.value_and_grad(total, (0, 1)), (hidden, weights, tokens)
