"""Rows of `policies/_gradients.py`, and their definitions in NumPy."""

import numpy as np
from contract import ACTIONS, STEPS, actions, away_from, probabilities
from row import Gradients, Peer, Precision, Row


def softmax(logits, action_mask=None):
    weights = np.exp(logits - np.max(logits, axis=-1, keepdims=True))
    weights = weights if action_mask is None else np.where(action_mask, weights, 0.0)
    return weights / np.sum(weights, axis=-1, keepdims=True)


def policy_gradient_loss(logits_t, a_t, adv_t, w_t=1.0, sample_mask=None):
    log_prob_t = np.log(softmax(logits_t))[np.arange(len(a_t)), a_t]
    return -np.mean((w_t * adv_t * log_prob_t)[sample_mask])


def reinforce_loss(log_prob, adv, sample_mask=None):
    """Williams 1992."""
    losses = -adv * log_prob
    return losses if sample_mask is None else np.where(sample_mask, losses, 0.0)


def counterfactual_advantage(q, probs, a, action_mask=None):
    """Foerster et al. 2017, equation 4."""
    q = q if action_mask is None else np.where(action_mask, q, 0.0)
    return q[np.arange(len(a)), a] - np.sum(probs * q, axis=-1)


def acer_policy_loss(
    logits,
    mu_logits,
    a,
    q,
    returns,
    max_weight=10.0,
    action_mask=None,
    sample_mask=None,
    held=None,
):
    """Wang et al. 2016, equation 9. `held` has the logits of the weights."""
    steps, legal = np.arange(len(a)), True if action_mask is None else action_mask
    pi = softmax(logits if held is None else held["logits"], action_mask)
    mu = softmax(mu_logits, action_mask)
    ratio = np.where(legal, pi, 1.0) / np.where(legal, mu, 1.0)
    log_pi = np.where(legal, np.log(softmax(logits)), 0.0)
    if action_mask is not None:
        total = np.sum(np.where(legal, np.exp(log_pi), 0.0), axis=-1, keepdims=True)
        log_pi = log_pi - np.log(total)
    q = np.where(legal, q, 0.0)
    adv = q - np.sum(pi * q, axis=-1, keepdims=True)
    error = returns - np.sum(pi * q, axis=-1)
    truncated = np.minimum(max_weight, ratio[steps, a])
    excess = np.maximum(0.0, (ratio - max_weight) / ratio)
    losses = -truncated * error * log_pi[steps, a]
    losses -= np.sum(pi * excess * adv * log_pi, axis=-1)
    return losses if sample_mask is None else np.where(sample_mask, losses, 0.0)


def entropy_loss(logits_t, w_t=1.0, sample_mask=None):
    probs_t = softmax(logits_t)
    entropy_t = -np.sum(probs_t * np.log(probs_t), axis=-1)
    return -np.mean((w_t * entropy_t)[sample_mask])


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


def invert_gradients(a_t, dqda_t, minimum, maximum):
    """Hausknecht and Stone 2016, equation 11."""
    up, down = maximum - a_t, a_t - minimum
    return dqda_t * np.where(dqda_t > 0, up, down) / (maximum - minimum)


# --- Losses whose stopped terms are not arguments. ---


def acer_with_constant_weights(*targets, **settings):
    def loss(x, constants):
        x = x | {name: constants[name] for name in targets}
        return acer_policy_loss(**x, **settings, held=constants)

    return loss


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


def at_valid_steps(make):
    """Return a maker without weights, and with a mask of time steps."""

    def make_masked(rng):
        drawn = make(rng)
        del drawn["w_t"]
        return drawn | {"sample_mask": rng.permutation(np.arange(STEPS) > 1)}

    return make_masked


def make_reinforce(*names):
    def make(rng):
        drawn = {
            "log_prob": rng.normal(size=STEPS),
            "adv": rng.normal(size=STEPS),
            "sample_mask": rng.permutation(np.arange(STEPS) > 1),
        }
        return {name: drawn[name] for name in names}

    return make


def make_critic(rng):
    return {
        "q": rng.normal(size=(STEPS, ACTIONS)),
        "probs": probabilities(rng, STEPS, ACTIONS),
        "a": actions(rng, STEPS),
    }


def make_acer(rng):
    return {
        "logits": rng.normal(size=(STEPS, ACTIONS)),
        "mu_logits": rng.normal(size=(STEPS, ACTIONS)),
        "a": actions(rng, STEPS),
        "q": rng.normal(size=(STEPS, ACTIONS)),
        "returns": rng.normal(size=STEPS),
    }


def masked(make):
    """Add a mask without one action, which is not taken."""

    def make_masked(rng):
        drawn = make(rng)
        taken = drawn["a" if "a" in drawn else "a_t"]
        illegal = (taken + rng.integers(1, ACTIONS, STEPS)) % ACTIONS
        return {**drawn, "action_mask": np.arange(ACTIONS) != illegal[:, None]}

    return make_masked


def make_masked_acer(rng):
    sample_mask = rng.permutation(np.arange(STEPS) > 1)
    return {**masked(make_acer)(rng), "sample_mask": sample_mask}


def make_bounded(rng):
    """Draw actions, some of them outside their bounds."""
    return {
        "a_t": rng.normal(size=ACTIONS),
        "dqda_t": away_from(rng.normal(size=ACTIONS), 0.0),
        "minimum": rng.uniform(-1.5, -0.5, ACTIONS),
        "maximum": np.asarray(rng.uniform(0.5, 1.5)),
    }


def make_entropy(rng):
    return {
        "logits_t": rng.normal(size=(STEPS, ACTIONS)),
        "w_t": rng.uniform(0.5, 1.5, STEPS),
    }


def make_deterministic(rng):
    dqda_t = np.array([1.0, -1.0, 1.0]) * (2.0 + rng.uniform(size=3))
    return {"a_t": rng.normal(size=3), "dqda_t": dqda_t}


ROWS = [
    Row(
        policy_gradient_loss,
        make_policy_gradient,
        gradients=Gradients(targets=("adv_t",)),
    ),
    Row(
        policy_gradient_loss,
        at_valid_steps(make_policy_gradient),
        "masked",
        peer=Peer(why_not="rlax takes no mask"),
        gradients=Gradients(targets=("adv_t",)),
    ),
    Row(
        reinforce_loss,
        make_reinforce("log_prob", "adv"),
        gradients=Gradients(targets=("adv",)),
    ),
    Row(
        reinforce_loss,
        make_reinforce("log_prob", "adv", "sample_mask"),
        "masked",
        gradients=Gradients(targets=("adv",)),
    ),
    Row(counterfactual_advantage, make_critic),
    Row(counterfactual_advantage, masked(make_critic), "masked"),
    *(
        Row(
            acer_policy_loss,
            make,
            case,
            settings=settings,
            gradients=Gradients(
                targets=("q", "returns"),
                stopped_definition=acer_with_constant_weights(
                    "q", "returns", **settings
                ),
                free_definition=acer_with_constant_weights(**settings),
                first_order_only="the gradients of the importance weights are stopped",
                constants=("mu_logits",),
            ),
            precision=Precision(condition=8.0),
        )
        for case, make, settings in [
            ("", make_acer, {}),
            ("truncated", make_acer, {"max_weight": 0.5}),
            ("masked", make_masked_acer, {"max_weight": 0.75}),
        ]
    ),
    Row(entropy_loss, make_entropy),
    Row(
        entropy_loss,
        at_valid_steps(make_entropy),
        "masked",
        peer=Peer(why_not="rlax takes no mask"),
    ),
    Row(
        qpg_loss,
        make_logits_and_values,
        peer=Peer(no_gradients={False: "rlax always stops the gradient of q"}),
        gradients=Gradients(
            targets=("q_t",),
            stopped_definition=qpg_with_constant_advantages,
            free_definition=qpg_with_constant_baseline,
            first_order_only="the gradient of the baseline is stopped, the value is 0",
        ),
        precision=Precision(condition=4.0),
    ),
    Row(
        rm_loss,
        make_logits_and_values,
        peer=Peer(no_gradients={False: "rlax always stops the gradient of q"}),
        gradients=Gradients(
            targets=("q_t",), stopped_definition=rm_with_constant_regret
        ),
    ),
    Row(rpg_loss, make_logits_and_values, gradients=Gradients(targets=("q_t",))),
    Row(
        dpg_loss,
        make_deterministic,
        gradients=Gradients(
            targets=("dqda_t",), stopped_definition=dpg_with_constant_target()
        ),
    ),
    Row(
        dpg_loss,
        make_deterministic,
        "clipped",
        settings={"dqda_clipping": 0.5},
        gradients=Gradients(
            targets=("dqda_t",), stopped_definition=dpg_with_constant_target(0.5)
        ),
    ),
    Row(
        invert_gradients,
        make_bounded,
        precision=Precision(condition=4.0),
        invalid=({"maximum": -1.0, "minimum": 1.0},),
    ),
]
