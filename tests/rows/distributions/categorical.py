"""Rows of `distributions/_categorical.py`, and their definitions in NumPy."""

import numpy as np
from contract import ACTIONS, actions, probabilities
from row import Gradients, Peer, Precision, Row
from rows.distributions._shared import BATCH, RANDOM, made
from rows.policies import gradients

NO_MASKS = "rlax has no masks of legal actions"


# --- Categorical distributions. ---


def legal(x, action_mask):
    return np.ones(x.shape, bool) if action_mask is None else action_mask


def softmax(logits, action_mask=None, temperature=1.0):
    weights = np.where(legal(logits, action_mask), logits / temperature, -np.inf)
    return gradients.softmax(weights)


def log(x):
    """Return the logarithm, and 0 for 0, since 0 log 0 = 0."""
    return np.log(np.where(x > 0, x, 1.0))


def entropy(probs):
    return -np.sum(probs * log(probs), axis=-1)


def divergence(p, q):
    return np.sum(p * (log(p) - log(q)), axis=-1)


def kl(temperature):
    def define(p_logits, q_logits, action_mask=None, **_):
        p = softmax(p_logits, action_mask, temperature)
        return divergence(p, softmax(q_logits, action_mask, temperature))

    return define


def chosen(probs, sample):
    return np.take_along_axis(probs, sample[..., None], axis=-1)[..., 0]


def discrete(name, argument, probs, find, **exceptions):
    """Make the rows of a distribution with one parameter."""

    def define_probs(action_mask=None, **logits):
        return probs(logits[argument], action_mask)

    def define_logprob(sample, action_mask=None, **logits):
        return np.log(chosen(probs(logits[argument], action_mask), sample))

    def define_entropy(action_mask=None, **logits):
        return entropy(probs(logits[argument], action_mask))

    def make(rng):
        return {argument: rng.normal(size=(BATCH, ACTIONS))}

    def make_sampled(rng):
        drawn = make(rng)
        best = np.argmax(drawn[argument], axis=-1)
        others = actions(rng, BATCH) if name != "greedy" else best
        return {"sample": others, **drawn}

    functions = {
        "sample": (RANDOM, make, {"gradients": Gradients(exist=False)}),
        "probs": (define_probs, make, {}),
        "logprob": (define_logprob, make_sampled, {}),
        "entropy": (define_entropy, make, {}),
    }
    for function, (definition, draw, extra) in functions.items():
        shared = {
            "name": f"{name}.{function}",
            "definition": definition,
            "find": find(function),
            **extra,
            **exceptions.get(function, {}),
        }
        yield Row(make=draw, **shared)
        yield Row(
            case="mask",
            make=masked(draw, argument),
            peer=Peer(why_not=NO_MASKS),
            **shared,
        )


def masked(make, argument):
    """Draw a mask as well, under which sampled actions are legal."""

    def make_masked(rng):
        drawn = make(rng)
        action_mask = rng.random(drawn[argument].shape) < 0.5
        kept = drawn.get("sample", np.argmax(drawn[argument], axis=-1))
        np.put_along_axis(action_mask, kept[..., None], True, axis=-1)
        action_mask[0] = True
        return drawn | {"action_mask": action_mask}

    return make_masked


def make_two(rng):
    shape = (BATCH, ACTIONS)
    return {"p_logits": rng.normal(size=shape), "q_logits": rng.normal(size=shape)}


def kl_rows(name, **extra):
    shared = {"name": name, "definition": kl(0.5), **extra}
    yield Row(make=make_two, **shared)
    yield Row(
        case="mask",
        make=masked(make_two, "p_logits"),
        peer=Peer(why_not=NO_MASKS),
        **shared,
    )


def clipped_entropy(logits, action_mask=None):
    count = np.sum(legal(logits, action_mask), axis=-1)
    largest = np.log(count)
    return np.minimum(entropy(softmax(logits, action_mask, 0.5)), 0.75 * largest)


def categorical_cross_entropy(labels, logits, action_mask=None):
    return -np.sum(labels * log(softmax(logits, action_mask)), axis=-1)


def categorical_importance_sampling_ratios(pi_logits_t, mu_logits_t, a_t):
    return chosen(softmax(pi_logits_t), a_t) / chosen(softmax(mu_logits_t), a_t)


def make_labels(rng):
    return {
        "labels": probabilities(rng, BATCH, ACTIONS),
        "logits": rng.normal(size=(BATCH, ACTIONS)),
    }


def make_ratios(rng):
    return {
        "pi_logits_t": rng.normal(size=(BATCH, ACTIONS)),
        "mu_logits_t": rng.normal(size=(BATCH, ACTIONS)),
        "a_t": actions(rng, BATCH),
    }


ROWS = [
    *discrete(
        "softmax",
        "logits",
        lambda logits, action_mask: softmax(logits, action_mask, 0.5),
        made("softmax", 0.5),
    ),
    *kl_rows("softmax.kl", find=made("softmax", 0.5)("kl")),
    *discrete(
        "clipped_entropy_softmax",
        "logits",
        lambda logits, action_mask: softmax(logits, action_mask, 0.5),
        made("clipped_entropy_softmax", 0.5, 0.75),
        entropy={
            "definition": clipped_entropy,
        },
    ),
    *kl_rows(
        "clipped_entropy_softmax.kl", find=made("clipped_entropy_softmax", 0.5)("kl")
    ),
    Row(
        RANDOM,
        lambda rng: {"probs": probabilities(rng, BATCH, ACTIONS)},
        name="categorical_sample",
        gradients=Gradients(exist=False),
    ),
    Row(
        categorical_cross_entropy,
        make_labels,
        peer=Peer(no_gradients={None: "rlax divides labels by their sum"}),
    ),
    Row(
        categorical_cross_entropy,
        make_labels,
        "constant labels",
        gradients=Gradients(constants=("labels",)),
    ),
    *kl_rows("categorical_kl_divergence", settings={"temperature": 0.5}),
    Row(
        categorical_importance_sampling_ratios,
        make_ratios,
        precision=Precision(condition=16.0),
    ),
]
