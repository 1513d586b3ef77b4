"""Rows of `llm/_preferences.py`, and their definitions in NumPy."""

import numpy as np
from contract import away_from
from row import Gradients, Precision, Row

PAIRS, VOCABULARY = (3, 2), 6


def log_sigmoid(x):
    return -np.log1p(np.exp(-x))


# --- Preferences. ---


def dpo_loss(
    log_prob_chosen,
    log_prob_rejected,
    ref_log_prob_chosen,
    ref_log_prob_rejected,
    beta=0.1,
    kind="sigmoid",
    label_smoothing=0.0,
):
    """Rafailov et al. 2023, equation 7; Azar et al. 2023, equation 17."""
    delta = (log_prob_chosen - ref_log_prob_chosen) - (
        log_prob_rejected - ref_log_prob_rejected
    )

    def loss(delta):
        return {
            "sigmoid": -log_sigmoid(beta * delta),
            "robust": -log_sigmoid(beta * delta),
            "ipo": (delta - 1 / (2 * beta)) ** 2,
            "hinge": np.maximum(0, 1 - beta * delta),
        }[kind]

    keep, flip = 1 - label_smoothing, label_smoothing
    if kind == "robust":  # Chowdhury et al. 2024, equation 9.
        return (keep * loss(delta) - flip * loss(-delta)) / (1 - 2 * flip)
    return keep * loss(delta) + flip * loss(-delta)


def simpo_loss(mean_log_prob_chosen, mean_log_prob_rejected, beta=2.0, margin=1.0):
    """Meng et al. 2024, equation 6."""
    difference = beta * mean_log_prob_chosen - beta * mean_log_prob_rejected
    return -log_sigmoid(difference - margin)


def orpo_loss(mean_log_prob_chosen, mean_log_prob_rejected, coefficient=0.1):
    """Hong et al. 2024, equations 6 and 7."""
    chosen, rejected = (
        np.exp(x) / (1 - np.exp(x))
        for x in (mean_log_prob_chosen, mean_log_prob_rejected)
    )
    odds = log_sigmoid(np.log(chosen / rejected))
    return -mean_log_prob_chosen - coefficient * odds


def kto_loss(
    log_prob,
    ref_log_prob,
    desirable,
    kl,
    beta=0.1,
    desirable_weight=1.0,
    undesirable_weight=1.0,
):
    """Ethayarajh et al. 2024, equation 8."""
    reward, z = log_prob - ref_log_prob, np.maximum(kl, 0)
    good = desirable_weight * np.exp(log_sigmoid(beta * (reward - z)))
    bad = undesirable_weight * np.exp(log_sigmoid(beta * (z - reward)))
    weight = np.where(desirable, desirable_weight, undesirable_weight)
    return weight - np.where(desirable, good, bad)


def bradley_terry_loss(reward_chosen, reward_rejected, margin=0.0, centering=0.0):
    """Touvron et al. 2023, equation 2; Eisenstein et al. 2023, equation 4."""
    loss = -log_sigmoid(reward_chosen - reward_rejected - margin)
    return loss + centering * (reward_chosen + reward_rejected) ** 2


# --- Distillation. ---


def kl(p, q):
    return np.sum(p * np.log(p / q))


def generalized_jsd(student_logits, teacher_logits, mix=0.5, top_k=None):
    """Agarwal et al. 2023, equation 1 and section 2."""
    q, p = (np.exp(x) / np.sum(np.exp(x)) for x in (student_logits, teacher_logits))
    if top_k is not None:
        order = np.argsort(-p)
        p, q = (np.append(x[order[:top_k]], np.sum(x[order[top_k:]])) for x in (p, q))
    if mix == 0:
        return kl(p, q)
    if mix == 1:
        return kl(q, p)
    mixture = mix * p + (1 - mix) * q
    return mix * kl(p, mixture) + (1 - mix) * kl(q, mixture)


# --- Arguments. ---


ANSWERS = ("log_prob_chosen", "log_prob_rejected")


REFERENCES = ("ref_log_prob_chosen", "ref_log_prob_rejected")


MEANS = ("mean_log_prob_chosen", "mean_log_prob_rejected")


ONE = ("log_prob", "ref_log_prob")


REWARDS = ("reward_chosen", "reward_rejected")


LOGITS = ("student_logits", "teacher_logits")


def make_pairs(*names):
    def make(rng):
        drawn = {name: -rng.uniform(1.0, 5.0, PAIRS) for name in ANSWERS + REFERENCES}
        drawn |= {name: -rng.uniform(0.1, 3.0, PAIRS) for name in MEANS + ONE}
        drawn |= {name: rng.normal(size=PAIRS) for name in (*REWARDS, "margin")}
        drawn |= {
            "desirable": rng.uniform(size=PAIRS) < 0.5,
            "kl": away_from(rng.normal(size=()), 0.0),
            "beta": np.asarray(0.5),
        }
        return {name: drawn[name] for name in names}

    return make


def make_logits(*names):
    def make(rng):
        ordered = np.arange(VOCABULARY) / 2 + rng.uniform(0, 0.4, VOCABULARY)
        drawn = {
            "student_logits": rng.normal(size=VOCABULARY),
            "teacher_logits": rng.permutation(ordered),
            "mix": np.asarray(0.3),
        }
        return {name: drawn[name] for name in names}

    return make


def row(name, definition, make, case="", settings=None, condition=1.0, **attributes):
    return Row(
        definition,
        make,
        case,
        name=name,
        settings=settings or {},
        precision=Precision(single_outputs=(0,), condition=condition),
        **attributes,
    )


ROWS = [
    *(
        row(
            "dpo_loss",
            dpo_loss,
            make_pairs(*ANSWERS, *REFERENCES, *names),
            case,
            settings,
            gradients=Gradients(constants=REFERENCES),
            condition=8.0,
        )
        for case, names, settings in [
            ("", ("beta",), {}),
            ("smooth", (), {"label_smoothing": 0.2, "beta": 0.3}),
            ("ipo", (), {"kind": "ipo"}),
            ("hinge", (), {"kind": "hinge"}),
            ("robust", (), {"kind": "robust", "label_smoothing": 0.2, "beta": 0.3}),
        ]
    ),
    row("simpo_loss", simpo_loss, make_pairs(*MEANS), condition=4.0),
    row("orpo_loss", orpo_loss, make_pairs(*MEANS), condition=4.0),
    *(
        row(
            "kto_loss",
            kto_loss,
            make_pairs(*ONE, "desirable", "kl"),
            case,
            settings,
            gradients=Gradients(constants=("ref_log_prob", "kl")),
            condition=4.0,
        )
        for case, settings in [
            ("", {}),
            ("weighted", {"desirable_weight": 1.5, "undesirable_weight": 0.5}),
        ]
    ),
    *(
        row(
            "bradley_terry_loss",
            bradley_terry_loss,
            make_pairs(*REWARDS, *names),
            case,
            settings,
            condition=8.0,
        )
        for case, names, settings in [
            ("", (), {}),
            ("centred", ("margin",), {"centering": 0.1}),
        ]
    ),
    *(
        row(
            "generalized_jsd",
            generalized_jsd,
            make_logits(*LOGITS, *names),
            case,
            settings,
            gradients=Gradients(constants=("teacher_logits", "mix")),
            condition=4.0,
        )
        for case, names, settings in [
            ("", ("mix",), {}),
            ("forward", (), {"mix": 0.0}),
            ("reverse", (), {"mix": 1.0}),
            ("top k", ("mix",), {"top_k": 2}),
            ("reverse, top k", (), {"mix": 1.0, "top_k": 3}),
        ]
    ),
]
