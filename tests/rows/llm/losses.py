"""Rows of `llm/_losses.py`, and their definitions in NumPy."""

import numpy as np
from contract import STEPS, away_from
from row import Gradients, Loose
from rows.llm.aggregation import MASKED, over_devices, row


def kept(sample_mask, x):
    return x if sample_mask is None else np.where(sample_mask, x, 0.0)


def mean(sample_mask, x):
    return np.mean(x if sample_mask is None else x[sample_mask])


# --- Losses. ---


def ratio_outputs(log_prob, old_log_prob, clipped, sample_mask):
    """Return log-ratios, ratios and clips."""
    log_ratio = kept(sample_mask, log_prob - old_log_prob)
    clipped = np.broadcast_to(kept(sample_mask, clipped), log_ratio.shape)
    ratio = np.exp(log_ratio)
    return log_ratio, kept(sample_mask, ratio), clipped != 0


def cispo_weight(log_prob, old_log_prob, epsilon=1.0, epsilon_high=4.0):
    return np.clip(np.exp(log_prob - old_log_prob), 1 - epsilon, 1 + epsilon_high)


def cispo_loss(log_prob, old_log_prob, adv, sample_mask=None, **bounds):
    """MiniMax 2025, equations 4 and 5."""
    weight = cispo_weight(log_prob, old_log_prob, **bounds)
    clipped = weight != np.exp(log_prob - old_log_prob)
    statistics = ratio_outputs(log_prob, old_log_prob, clipped, sample_mask)
    return kept(sample_mask, -weight * adv * log_prob), *statistics


def sapo_loss(
    log_prob,
    old_log_prob,
    adv,
    temperature_positive=1.0,
    temperature_negative=1.05,
    sample_mask=None,
):
    """Gao et al. 2025, equations 5 to 7."""
    tau = np.where(adv > 0, temperature_positive, temperature_negative)
    ratio = np.exp(log_prob - old_log_prob)
    sigmoid = 1 / (1 + np.exp(-tau * (ratio - 1)))
    statistics = ratio_outputs(log_prob, old_log_prob, False, sample_mask)
    return kept(sample_mask, -4 / tau * sigmoid * adv), *statistics


def gspo_ratio(log_prob, old_log_prob, kind="gspo", sample_mask=None):
    """Zheng et al. 2025, equations 7 and 14."""
    ratio = np.exp(mean(sample_mask, log_prob - old_log_prob))
    return kept(sample_mask, np.full(len(log_prob), ratio))


def gmpo_loss(
    log_prob, old_log_prob, adv, epsilon=0.4, epsilon_high=None, sample_mask=None
):
    """Zhao et al. 2025, algorithm 1."""
    sign = np.sign(adv)
    log_ratio = log_prob - old_log_prob
    high = epsilon if epsilon_high is None else epsilon_high
    clipped = np.clip(log_ratio, -epsilon, high)
    smaller = sign * np.minimum(sign * log_ratio, sign * clipped)
    loss = -adv * np.exp(mean(sample_mask, smaller))
    clipped = smaller != log_ratio
    statistics = ratio_outputs(log_prob, old_log_prob, clipped, sample_mask)
    return kept(sample_mask, np.full(len(log_prob), loss)), *statistics


def kl_loss(log_prob, ref_log_prob, kind="k3", sample_mask=None):
    """Schulman 2020."""
    ratio = np.exp(ref_log_prob - log_prob)
    estimate = {
        "k1": -np.log(ratio),
        "k2": np.log(ratio) ** 2 / 2,
        "k3": (ratio - 1) - np.log(ratio),
        "abs": np.abs(np.log(ratio)),
    }
    return kept(sample_mask, estimate[kind])


# --- Masks, penalties and aggregation. ---


def high_entropy_mask(entropy, fraction=0.2, sample_mask=None):
    """Wang et al. 2025, section 5.1."""
    mask = np.ones(entropy.shape, bool) if sample_mask is None else sample_mask
    return mask & (entropy >= np.quantile(entropy[mask], 1 - fraction))


def overlong_penalty(lengths, max_length, cache_length):
    """Yu et al. 2025, equation 13."""

    def penalty(length):
        if length <= max_length - cache_length:
            return 0.0
        if length <= max_length:
            return ((max_length - cache_length) - length) / cache_length
        return -1.0

    return np.vectorize(penalty)(lengths)


# --- Arguments. ---


def make_tokens(*names):
    def make(rng):
        log_ratio = rng.permutation(np.linspace(-0.9, 1.9, STEPS))
        for bound in (-0.4, 0.4, 0.6, np.log(0.8), np.log(1.5), 0.0):
            log_ratio = away_from(log_ratio, bound)
        old = -rng.uniform(0.5, 2.0, STEPS)
        drawn = {
            "log_prob": old + log_ratio,
            "old_log_prob": old,
            "ref_log_prob": old,
            "adv": away_from(rng.normal(size=STEPS), 0.0, 0.1),
            "entropy": rng.permutation(STEPS + rng.uniform(size=STEPS)),
            "fraction": np.asarray(0.3),
            "sample_mask": rng.permutation(np.arange(STEPS) > 1),
        }
        return {name: drawn[name] for name in names}

    return make


def make_sequence(*names, sign=1.0):
    def make(rng):
        drawn = make_tokens("log_prob", "old_log_prob", *names)(rng)
        return drawn | {"adv": np.asarray(sign * rng.uniform(0.2, 0.9))}

    return make


def make_covariances(rng):
    return {"log_prob": rng.normal(size=(2, 8)), "adv": rng.normal(size=(2, 8))}


def make_lengths(rng):
    return {"lengths": rng.integers(0, 30, size=(2, 4))}


def weighted(weight, *names):
    """Return the gradient of a loss: that of log-probabilities, with fixed weights."""

    def surrogate(x, fixed, settings):
        weights = weight(*(fixed[name] for name in names), **settings)
        return kept(fixed.get("sample_mask"), weights * x["log_prob"])

    return surrogate


OLD = ("log_prob", "old_log_prob")


STEP = (*OLD, "adv")


def cispo_moved(x, fixed, settings):
    """Differentiate the loss with fixed weights, and all statistics."""
    weight = cispo_weight(*(fixed[name] for name in OLD), **settings)
    loss = -x.get("adv", fixed["adv"]) * weight * x["log_prob"]
    statistics = cispo_loss(**fixed | x, **settings)[1:]
    return [kept(fixed.get("sample_mask"), loss), *statistics]


KL = weighted(lambda x, y, **_: x - y, "log_prob", "ref_log_prob")


GSPO = weighted(
    lambda x, y, m, **_: np.exp(mean(m, x - y)), "log_prob", "old_log_prob", *MASKED
)


FIXED = ("old_log_prob", "adv")


SCALAR = {"adv": 0.7}


ROWS = [
    *(
        row(
            "cispo_loss",
            cispo_loss,
            make_tokens(*names),
            case,
            settings,
            cispo_moved,
            condition=8.0,
            constants=FIXED[:1],
            targets=FIXED[1:],
        )
        for case, names, settings in [
            ("", STEP, {}),
            ("clipped", STEP, {"epsilon": 0.2, "epsilon_high": 0.5}),
            ("masked", STEP + MASKED, {}),
        ]
    ),
    *(
        row(
            "sapo_loss",
            sapo_loss,
            make_tokens(*names),
            case,
            settings,
            condition=8.0,
            targets=tuple(name for name in FIXED if name in names),
        )
        for case, names, settings in [
            ("", STEP, {}),
            ("sharp", STEP, {"temperature_positive": 2.0, "temperature_negative": 3.0}),
            ("masked", STEP + MASKED, {}),
            ("one advantage", OLD, SCALAR),
        ]
    ),
    row(
        "gspo_ratio",
        gspo_ratio,
        make_tokens(*OLD),
        constants=("old_log_prob",),
        over_devices=over_devices("gspo_ratio"),
    ),
    row(
        "gspo_ratio",
        gspo_ratio,
        make_tokens(*OLD, *MASKED),
        "token",
        {"kind": "gspo_token"},
        GSPO,
        constants=("old_log_prob",),
        over_devices=over_devices("gspo_ratio"),
    ),
    *(
        row(
            "gmpo_loss",
            gmpo_loss,
            make_sequence(*names, sign=sign),
            case,
            settings,
            condition=8.0,
            targets=FIXED,
        )
        for case, names, sign, settings in [
            ("", (), 1.0, {}),
            ("negative", MASKED, -1.0, {}),
            ("higher", MASKED, 1.0, {"epsilon_high": 0.6}),
        ]
    ),
    *(
        row(
            "kl_loss",
            kl_loss,
            make_tokens("log_prob", "ref_log_prob", *names),
            kind,
            {"kind": kind},
            KL,
            constants=("ref_log_prob",),
            condition=8.0,
        )
        for kind, names in [("k1", ()), ("k2", MASKED), ("k3", MASKED), ("abs", ())]
    ),
    row(
        "clip_cov_mask",
        "It is random: see test_losses.py.",
        make_covariances,
        gradients=Gradients(exist=False),
        loose=Loose(batches=False),
    ),
    *(
        row(
            "high_entropy_mask",
            high_entropy_mask,
            make_tokens("entropy", *names),
            case,
            settings,
            gradients=Gradients(exist=False),
            over_devices=None if "fraction" in names else over_devices(name),
        )
        for name, case, names, settings in [
            ("high_entropy_mask", "", ("fraction",), {}),
            ("high_entropy_mask", "masked", MASKED, {"fraction": 0.5}),
        ]
    ),
    row(
        "overlong_penalty",
        overlong_penalty,
        make_lengths,
        settings={"max_length": 20, "cache_length": 8},
        gradients=Gradients(exist=False),
    ),
]
