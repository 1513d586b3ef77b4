"""Distributions: definitions in NumPy, and the rows of the contract."""

import operator
from typing import NamedTuple

import numpy as np
from contract import ACTIONS, Row, actions, probabilities

from rows import policies

BATCH, DIMENSIONS = 5, 3
RANDOM = "what is drawn depends on the key"
NO_MASKS = "rlax has no masks of legal actions"


# --- Categorical distributions. ---


def legal(x, action_mask):
    return np.ones(x.shape, bool) if action_mask is None else action_mask


def softmax(logits, action_mask=None, temperature=1.0):
    weights = np.where(legal(logits, action_mask), logits / temperature, -np.inf)
    return policies.softmax(weights)


def greedy(preferences, action_mask=None):
    """Uniform over the best legal actions."""
    preferences = np.where(legal(preferences, action_mask), preferences, -np.inf)
    best = preferences == np.max(preferences, axis=-1, keepdims=True)
    return best / np.sum(best, axis=-1, keepdims=True)


def epsilon_greedy(preferences, action_mask=None, epsilon=0.25):
    """Mix the greedy policy with the uniform one over legal actions."""
    allowed = legal(preferences, action_mask)
    uniform = allowed / np.sum(allowed, axis=-1, keepdims=True)
    return epsilon * uniform + (1 - epsilon) * greedy(preferences, action_mask)


def log(x):
    """Return the logarithm, and 0 for 0, since 0 log 0 = 0."""
    return np.log(np.where(x > 0, x, 1.0))


def entropy(probs):
    return -np.sum(probs * log(probs), axis=-1)


def divergence(p, q):
    return np.sum(p * (log(p) - log(q)), axis=-1)


def chosen(probs, sample):
    return np.take_along_axis(probs, sample[..., None], axis=-1)[..., 0]


def discrete(name, argument, probs, of, invalid=(), **exceptions):
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
        "sample": (RANDOM, make, {"key": "key", "differentiable": False}),
        "probs": (define_probs, make, {}),
        "logprob": (define_logprob, make_sampled, {}),
        "entropy": (define_entropy, make, {}),
    }
    for function, (definition, draw, extra) in functions.items():
        shared = {
            "name": f"{name}.{function}",
            "definition": definition,
            "of": of(function),
            "elementwise": True,
            "invalid": invalid,
            **extra,
            **exceptions.get(function, {}),
        }
        yield Row(make=draw, **shared)
        yield Row(
            case="mask",
            make=masked(draw, argument),
            peer=NO_MASKS,
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


def kl(temperature):
    def define(p_logits, q_logits, action_mask=None, **_):
        p = softmax(p_logits, action_mask, temperature)
        return divergence(p, softmax(q_logits, action_mask, temperature))

    return define


def kl_rows(name, **extra):
    shared = {"name": name, "definition": kl(0.5), "elementwise": True, **extra}
    yield Row(make=make_two, **shared)
    yield Row(
        case="mask",
        make=masked(make_two, "p_logits"),
        peer=NO_MASKS,
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


def made(factory, *arguments, **settings):
    """Return how to find a function of a distribution with these settings."""

    def of(function):
        return lambda library: operator.attrgetter(function)(
            getattr(library, factory)(*arguments, **settings)
        )

    return of


# --- Continuous distributions. ---


class Spec(NamedTuple):
    """Bounds of an action, as environments give them."""

    minimum: float
    maximum: float


BOUNDS = Spec(-2.0, 3.0)


def normal_logprob(sample, mu, sigma):
    z = (sample - mu) / sigma
    return np.sum(-(z**2) / 2 - np.log(sigma) - np.log(2 * np.pi) / 2, axis=-1)


def normal_entropy(mu, sigma):
    each = np.log(np.broadcast_to(sigma, mu.shape)) + np.log(2 * np.pi * np.e) / 2
    return np.sum(each, axis=-1)


def normal_kl(mu_0, sigma_0, mu_1, sigma_1):
    ratio = sigma_0 / sigma_1
    distance = (mu_0 - mu_1) / sigma_1
    return np.sum((ratio**2 + distance**2 - 1) / 2 - np.log(ratio), axis=-1)


def activate(mu, sigma):
    """Return mean and standard deviation, with log-bounds of -4 and 0."""
    return np.tanh(mu), np.exp(-4 + 4 * (np.tanh(sigma) + 1) / 2)


def squashed_logprob(sample, mu, sigma, action_spec):
    """Return the log-density before squashing, minus that of the Jacobian."""
    low, high = (-1.0, 1.0) if action_spec is None else action_spec
    y = 2 * (sample - low) / (high - low) - 1
    jacobian = (high - low) / 2 * (1 - y**2)
    before = normal_logprob(np.arctanh(y), *activate(mu, sigma))
    return before - np.sum(np.log(jacobian), axis=-1)


def make_normal(*names, bounds=None):
    def make(rng):
        shape = (BATCH, DIMENSIONS)
        sample = rng.normal(size=shape)
        if bounds is not None:
            sample = bounds[0] + (bounds[1] - bounds[0]) * rng.uniform(0.1, 0.9, shape)
        drawn = {
            "sample": sample,
            "mu": rng.normal(size=shape),
            "mu_0": rng.normal(size=shape),
            "mu_1": rng.normal(size=shape),
            "sigma": rng.uniform(0.5, 2.0, shape),
            "sigma_0": rng.uniform(0.5, 2.0, shape),
            "sigma_1": rng.uniform(0.5, 2.0, shape),
        }
        return {name: drawn[name] for name in names}

    return make


def exponential(function):
    return lambda **arguments: np.exp(function(**arguments))


def continuous(name, make_sampled, logprob, before, settings, invalid):
    """Make the rows of a Gaussian, whose parameters `before` computes."""

    def entropy(mu, sigma):
        return normal_entropy(*before(mu, sigma))

    def kl_to_standard_normal(mu, sigma):
        mu, sigma = before(mu, sigma)
        return normal_kl(mu, sigma, 0.0, 1.0)

    def kl(mu_0, sigma_0, mu_1, sigma_1):
        return normal_kl(*before(mu_0, sigma_0), *before(mu_1, sigma_1))

    make_one = make_normal("mu", "sigma")
    make_both = make_normal("mu_0", "sigma_0", "mu_1", "sigma_1")
    functions = {
        "sample": (RANDOM, make_one, settings),
        "prob": (exponential(logprob), make_sampled, settings),
        "logprob": (logprob, make_sampled, settings),
        "entropy": (entropy, make_one, {}),
        "kl_to_standard_normal": (kl_to_standard_normal, make_one, {}),
        "kl": (kl, make_both, {}),
    }
    for function, (definition, make, used) in functions.items():
        yield Row(
            name=f"{name}.{function}",
            definition=definition,
            make=make,
            settings=used,
            of=made(name)(function),
            invalid=invalid(function),
            key="key" if function == "sample" else None,
            condition=16.0,
            elementwise=True,
        )


def invalid_sigma(function):
    names = ("sigma_0", "sigma_1") if function == "kl" else ("sigma",)
    return tuple({name: sigma} for name in names for sigma in (0.0, -1.0))


def invalid_spec(function):
    specs = (Spec(0.0, np.inf), Spec(1.0, 1.0))
    sampled = function in ("sample", "prob", "logprob")
    return tuple({"action_spec": each} for each in specs) if sampled else ()


SAMPLED = ("sample", "mu", "sigma")

ROWS = [
    *discrete(
        "softmax",
        "logits",
        lambda logits, action_mask: softmax(logits, action_mask, 0.5),
        made("softmax", 0.5),
    ),
    *kl_rows("softmax.kl", of=made("softmax", 0.5)("kl")),
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
        "clipped_entropy_softmax.kl", of=made("clipped_entropy_softmax", 0.5)("kl")
    ),
    *discrete("greedy", "preferences", greedy, made("greedy")),
    *discrete(
        "epsilon_greedy",
        "preferences",
        epsilon_greedy,
        made("epsilon_greedy", 0.25),
        invalid=({"epsilon": 1.5}, {"epsilon": -0.5}),
    ),
    Row(
        name="greedy.probs",
        case="ties",
        definition=greedy,
        make=lambda rng: {"preferences": actions(rng, BATCH, ACTIONS) / 2},
        of=made("greedy")("probs"),
        differentiable=False,
        elementwise=True,
    ),
    Row(
        name="epsilon_greedy.probs",
        case="another epsilon",
        definition=epsilon_greedy,
        make=lambda rng: {"preferences": rng.normal(size=(BATCH, ACTIONS))},
        settings={"epsilon": 0.5},
        of=made("epsilon_greedy", 0.25)("probs"),
        elementwise=True,
    ),
    *continuous(
        "gaussian_diagonal",
        make_normal(*SAMPLED),
        normal_logprob,
        lambda mu, sigma: (mu, sigma),
        {},
        invalid_sigma,
    ),
    Row(
        name="gaussian_diagonal.logprob",
        case="its own sigma",
        definition=lambda sample, mu: normal_logprob(sample, mu, 0.5),
        make=make_normal("sample", "mu"),
        of=made("gaussian_diagonal", 0.5)("logprob"),
        condition=16.0,
        elementwise=True,
    ),
    *continuous(
        "squashed_gaussian",
        make_normal(*SAMPLED, bounds=BOUNDS),
        squashed_logprob,
        activate,
        {"action_spec": BOUNDS},
        invalid_spec,
    ),
    Row(
        name="squashed_gaussian.logprob",
        case="no bounds",
        definition=squashed_logprob,
        make=make_normal(*SAMPLED, bounds=(-1.0, 1.0)),
        settings={"action_spec": None},
        of=made("squashed_gaussian")("logprob"),
        condition=16.0,
        elementwise=True,
    ),
    Row(
        name="categorical_sample",
        definition=RANDOM,
        make=lambda rng: {"probs": probabilities(rng, BATCH, ACTIONS)},
        key="key",
        differentiable=False,
        elementwise=True,
        invalid=({"probs": np.full((BATCH, ACTIONS), -0.1)},),
    ),
    Row(
        name="categorical_cross_entropy",
        definition=categorical_cross_entropy,
        make=make_labels,
        peer_gradient={None: "rlax divides labels by their sum (audit, 1.3)"},
        elementwise=True,
    ),
    Row(
        name="categorical_cross_entropy",
        case="constant labels",
        definition=categorical_cross_entropy,
        make=make_labels,
        constant=("labels",),
        elementwise=True,
    ),
    *kl_rows(
        "categorical_kl_divergence",
        settings={"temperature": 0.5},
        invalid=({"temperature": 0.0}, {"temperature": -1.0}),
    ),
    Row(
        name="categorical_importance_sampling_ratios",
        definition=categorical_importance_sampling_ratios,
        make=make_ratios,
        condition=16.0,
        elementwise=True,
    ),
    Row(
        name="multivariate_normal_kl_divergence",
        definition=normal_kl,
        make=make_normal("mu_0", "sigma_0", "mu_1", "sigma_1"),
        condition=16.0,
        elementwise=True,
        invalid=invalid_sigma("kl"),
    ),
]
