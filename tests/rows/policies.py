"""Policy-gradient losses: definitions in NumPy, and their rows."""

import numpy as np
from contract import ACTIONS, STEPS, Row, actions, away_from

NEW = "rlax has none"


def softmax(logits):
    weights = np.exp(logits - np.max(logits, axis=-1, keepdims=True))
    return weights / np.sum(weights, axis=-1, keepdims=True)


def policy_gradient_loss(logits_t, a_t, adv_t, w_t):
    log_prob_t = np.log(softmax(logits_t))[np.arange(len(a_t)), a_t]
    return -np.mean(w_t * adv_t * log_prob_t)


def reinforce_loss(log_prob_t, adv_t, sample_mask=None):
    """Williams 1992."""
    losses = -adv_t * log_prob_t
    return losses if sample_mask is None else np.where(sample_mask, losses, 0.0)


def entropy_loss(logits_t, w_t):
    probs_t = softmax(logits_t)
    entropy_t = -np.sum(probs_t * np.log(probs_t), axis=-1)
    return -np.mean(w_t * entropy_t)


def clipped_surrogate_pg_loss(prob_ratios_t, adv_t, epsilon):
    """Schulman et al. 2017, equation 7."""
    clipped_t = np.clip(prob_ratios_t, 1 - epsilon, 1 + epsilon)
    return -np.mean(np.minimum(prob_ratios_t * adv_t, clipped_t * adv_t))


def advantages(logits_t, q_t):
    return q_t - np.sum(softmax(logits_t) * q_t, axis=-1, keepdims=True)


def expected(logits_t, values_t):
    return np.mean(np.sum(softmax(logits_t) * values_t, axis=-1))


def qpg_loss(logits_t, q_t):
    """Srinivasan et al. 2018, section 3.1."""
    return -expected(logits_t, advantages(logits_t, q_t))


def rm_loss(logits_t, q_t):
    return -expected(logits_t, np.maximum(0.0, advantages(logits_t, q_t)))


def rpg_loss(logits_t, q_t):
    return np.mean(np.sum(np.maximum(0.0, advantages(logits_t, q_t)), axis=-1))


def dpg_loss(a_t, dqda_t, dqda_clipping=None):
    """Silver et al. 2014, as half the squared norm of the gradient of q."""
    if dqda_clipping is not None:
        dqda_t = dqda_t * min(1.0, dqda_clipping / np.sqrt(np.sum(dqda_t**2)))
    return dqda_t**2 / 2


# --- Losses whose stopped terms are not arguments. ---


def qpg_with_constant_advantages(x, constants):
    return -expected(x["logits_t"], advantages(**constants))


def qpg_with_constant_baseline(x, constants):
    baseline_t = constants["q_t"] - advantages(**constants)
    return -expected(x["logits_t"], x["q_t"] - baseline_t)


def rm_with_constant_regret(x, constants):
    return -expected(x["logits_t"], np.maximum(0.0, advantages(**constants)))


def dpg_with_constant_target(dqda_clipping=None):
    def loss(x, constants):
        move = np.sqrt(2 * dpg_loss(**constants, dqda_clipping=dqda_clipping))
        target = constants["a_t"] + np.sign(constants["dqda_t"]) * move
        return (target - x["a_t"]) ** 2 / 2

    return loss


# --- Arguments. ---


def make_logits_and_values(rng):
    """Draw values away from their mean, where the regret has a kink."""
    while True:
        drawn = {
            "logits_t": rng.normal(size=(STEPS, ACTIONS)),
            "q_t": rng.normal(size=(STEPS, ACTIONS)),
        }
        if np.abs(advantages(**drawn)).min() > 0.01:
            return drawn


def make_policy_gradient(rng):
    return {
        "logits_t": rng.normal(size=(STEPS, ACTIONS)),
        "a_t": actions(rng, STEPS),
        "adv_t": rng.normal(size=STEPS),
        "w_t": rng.uniform(0.5, 1.5, STEPS),
    }


def make_reinforce(*names):
    def make(rng):
        drawn = {
            "log_prob_t": rng.normal(size=STEPS),
            "adv_t": rng.normal(size=STEPS),
            "sample_mask": rng.permutation(np.arange(STEPS) > 1),
        }
        return {name: drawn[name] for name in names}

    return make


def make_entropy(rng):
    return {
        "logits_t": rng.normal(size=(STEPS, ACTIONS)),
        "w_t": rng.uniform(0.5, 1.5, STEPS),
    }


def make_surrogate(rng):
    ratios = rng.uniform(0.25, 2.0, STEPS)
    for kink in (0.75, 1.25):
        ratios = away_from(ratios, kink)
    return {"prob_ratios_t": ratios, "adv_t": away_from(rng.normal(size=STEPS), 0.0)}


def make_deterministic(rng):
    dqda_t = np.array([1.0, -1.0, 1.0]) * (2.0 + rng.uniform(size=3))
    return {"a_t": rng.normal(size=3), "dqda_t": dqda_t}


ROWS = [
    Row(
        name="policy_gradient_loss",
        definition=policy_gradient_loss,
        make=make_policy_gradient,
        targets=("adv_t",),
    ),
    Row(
        name="reinforce_loss",
        definition=reinforce_loss,
        make=make_reinforce("log_prob_t", "adv_t"),
        peer=NEW,
        targets=("adv_t",),
    ),
    Row(
        name="reinforce_loss",
        case="masked",
        definition=reinforce_loss,
        make=make_reinforce("log_prob_t", "adv_t", "sample_mask"),
        peer=NEW,
        targets=("adv_t",),
        optional=("sample_mask",),
    ),
    Row(name="entropy_loss", definition=entropy_loss, make=make_entropy),
    Row(
        name="clipped_surrogate_pg_loss",
        definition=clipped_surrogate_pg_loss,
        make=make_surrogate,
        settings={"epsilon": 0.25},
        targets=("adv_t",),
        invalid=({"epsilon": -0.1},),
    ),
    Row(
        name="qpg_loss",
        definition=qpg_loss,
        make=make_logits_and_values,
        peer_gradient={False: "rlax always stops the gradient of q (audit, 3.1)"},
        targets=("q_t",),
        flagged=qpg_with_constant_advantages,
        unflagged=qpg_with_constant_baseline,
        differences="the gradient of the baseline is stopped, the value is always 0",
        condition=4.0,
    ),
    Row(
        name="rm_loss",
        definition=rm_loss,
        make=make_logits_and_values,
        peer_gradient={False: "rlax always stops the gradient of q (audit, 3.1)"},
        targets=("q_t",),
        flagged=rm_with_constant_regret,
    ),
    Row(
        name="rpg_loss",
        definition=rpg_loss,
        make=make_logits_and_values,
        targets=("q_t",),
    ),
    Row(
        name="dpg_loss",
        definition=dpg_loss,
        make=make_deterministic,
        targets=("dqda_t",),
        flagged=dpg_with_constant_target(),
    ),
    Row(
        name="dpg_loss",
        case="clipped",
        definition=dpg_loss,
        make=make_deterministic,
        settings={"dqda_clipping": 0.5},
        targets=("dqda_t",),
        flagged=dpg_with_constant_target(0.5),
        invalid=({"dqda_clipping": -1.0},),
    ),
]
