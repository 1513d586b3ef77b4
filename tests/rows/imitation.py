"""Rows of `imitation.py`, and their definitions in NumPy."""

import functools

import numpy as np
from contract import ACTIONS, actions, discounts
from row import Gradients, Precision, Row

BATCH, DIMENSIONS = 6, 5


MASK = np.array([True, False, True, True, False, True])


def sigmoid(logit):
    return 1 / (1 + np.exp(-logit))


def dqfd_margin_loss(q, a, margin=0.8, action_mask=None):
    """Hester et al. 2017."""
    others = [
        q[b] + margin
        for b in range(len(q))
        if b != a and (action_mask is None or action_mask[b])
    ]
    return max(q[a], *others) - q[a]


def discriminator_loss(expert_logit, policy_logit):
    """Ho and Ermon 2016."""
    expert, policy = sigmoid(expert_logit), sigmoid(policy_logit)
    return -np.log(expert) - np.log(1 - policy)


def gradient_penalty(gradient):
    """Gulrajani et al. 2017."""
    return (np.linalg.norm(gradient) - 1) ** 2


def adversarial_reward(logit, kind="gail"):
    """Ho and Ermon 2016; Fu et al. 2017; Ghasemipour et al. 2019."""
    expert = sigmoid(logit)
    if kind == "gail":
        return -np.log(1 - expert)
    if kind == "airl":
        return np.log(expert) - np.log(1 - expert)
    ratio = expert / (1 - expert)
    return -ratio * np.log(ratio)


def airl_logit(r_t, discount_t, potential_tm1, potential_t, log_prob_tm1):
    """Fu et al. 2017: the logit of D = exp(f) / (exp(f) + pi)."""
    f = r_t + discount_t * potential_t - potential_tm1
    expert = np.exp(f) / (np.exp(f) + np.exp(log_prob_tm1))
    return np.log(expert / (1 - expert))


# --- Arguments. ---


def draw(*names):
    """Return a function that draws arrays of a batch."""

    def make(rng):
        return {name: rng.normal(size=BATCH) for name in names}

    return make


def draw_masked(rng):
    return draw("log_prob")(rng) | {"sample_mask": MASK}


def draw_transitions(rng):
    drawn = draw("r_t", "potential_tm1", "potential_t", "log_prob_tm1")(rng)
    return drawn | {"discount_t": discounts(rng, BATCH)}


def draw_action(*names):
    def make(rng):
        drawn = {
            "q": 0.5 * rng.normal(size=ACTIONS),
            "a": actions(rng),
            "margin": np.asarray(0.8),
            "action_mask": np.array([True, False, True, True]),
        }
        return {name: drawn[name] for name in names}

    return make


row = functools.partial(Row)


ROWS = [
    row(
        name="dqfd_margin_loss",
        definition=dqfd_margin_loss,
        make=draw_action("q", "a", "margin"),
    ),
    row(
        name="dqfd_margin_loss",
        case="masked",
        definition=dqfd_margin_loss,
        make=draw_action("q", "a", "margin", "action_mask"),
    ),
    row(
        name="discriminator_loss",
        definition=discriminator_loss,
        make=draw("expert_logit", "policy_logit"),
    ),
    row(
        name="gradient_penalty",
        definition=gradient_penalty,
        make=lambda rng: {"gradient": rng.normal(size=DIMENSIONS)},
        precision=Precision(condition=4.0),
    ),
    *[
        row(
            name="adversarial_reward",
            case=kind,
            definition=adversarial_reward,
            make=draw("logit"),
            settings={"kind": kind},
            gradients=Gradients(exist=False),
            precision=Precision(condition=4.0),
        )
        for kind in ("gail", "airl", "fairl")
    ],
    row(
        name="airl_logit",
        definition=airl_logit,
        make=draw_transitions,
        gradients=Gradients(constants=("log_prob_tm1",)),
        precision=Precision(condition=4.0),
    ),
]
