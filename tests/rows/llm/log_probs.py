"""Rows of `llm/_log_probs.py`, and their definitions in NumPy."""

import numpy as np
from row import Gradients, Precision, Row

STEPS, HIDDEN, VOCABULARY = 5, 3, 12


def token_log_probs(logits, tokens, temperature=1.0, with_entropy=False):
    z = logits / temperature
    probs = np.exp(z) / np.sum(np.exp(z), axis=1, keepdims=True)
    log_prob = np.log(probs[np.arange(len(tokens)), tokens])
    if not with_entropy:
        return [log_prob]
    return [log_prob, -np.sum(probs * np.log(probs), axis=1)]


def linear_token_log_probs(
    hidden,
    head,
    tokens,
    temperature=1.0,
    soft_cap=None,
    chunk_size=None,
    with_entropy=False,
):
    logits = hidden @ head
    logits = soft_cap * np.tanh(logits / soft_cap) if soft_cap else logits
    return token_log_probs(logits, tokens, temperature, with_entropy)


def make_logits(rng):
    return {
        "logits": rng.normal(size=(STEPS, VOCABULARY)),
        "tokens": rng.integers(VOCABULARY, size=STEPS),
        "temperature": np.asarray(rng.uniform(0.5, 2.0)),
    }


def make_hidden(rng):
    logits = make_logits(rng)
    del logits["logits"]
    return {
        "hidden": rng.normal(size=(STEPS, HIDDEN)),
        "head": rng.normal(size=(HIDDEN, VOCABULARY)),
        **logits,
    }


ROWS = [
    Row(
        token_log_probs,
        make_logits,
        case,
        settings=settings,
        precision=Precision(single_outputs=(0, 1), condition=4.0),
    )
    for case, settings in {"": {}, "entropy": {"with_entropy": True}}.items()
] + [
    Row(
        linear_token_log_probs,
        make_hidden,
        case,
        settings=settings,
        gradients=Gradients(
            first_order_only="its backward pass has first derivatives only"
        ),
        precision=Precision(single_outputs=(0, 1), condition=16.0),
    )
    for case, settings in {
        "": {},
        "entropy": {"chunk_size": 5, "with_entropy": True},
        "soft cap": {"soft_cap": 2.0},
    }.items()
]
