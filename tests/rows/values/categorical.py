"""Rows of `values/_categorical.py`, and their definitions in NumPy."""

import functools

import numpy as np
from contract import ACTIONS, actions, probabilities
from row import Gradients, Peer, Row
from rows.distributions.categorical import categorical_cross_entropy, softmax
from rows.transforms import hl_gauss, squashing, two_hot
from rows.values.quantile import ATOMS, BINS, OTHER_ATOMS

# --- Categorical. ---


def categorical_l2_project(z_p, probs, z_q):
    """Bellemare et al. 2017: a hat function over each new atom, 0 at all others."""
    hats = [np.interp(z_p, z_q, indicator) for indicator in np.eye(len(z_q))]
    return np.array([np.sum(probs * hat) for hat in hats])


def categorical_td_learning(
    v_atoms_tm1, v_logits_tm1, r_t, discount_t, v_atoms_t, v_logits_t
):
    z_t, probs_t = r_t + discount_t * v_atoms_t, softmax(v_logits_t)
    target = categorical_l2_project(z_t, probs_t, v_atoms_tm1)
    return categorical_cross_entropy(target, v_logits_tm1)


def categorical_q_learning(
    q_atoms_tm1, q_logits_tm1, a_tm1, r_t, discount_t, q_atoms_t, q_logits_t
):
    means = np.sum(softmax(q_logits_t) * q_atoms_t, axis=-1)
    return categorical_double_q_learning(
        q_atoms_tm1, q_logits_tm1, a_tm1, r_t, discount_t, q_atoms_t, q_logits_t, means
    )


def categorical_double_q_learning(
    q_atoms_tm1,
    q_logits_tm1,
    a_tm1,
    r_t,
    discount_t,
    q_atoms_t,
    q_logits_t,
    q_t_selector,
):
    logits_t = q_logits_t[np.argmax(q_t_selector)]
    return categorical_td_learning(
        q_atoms_tm1, q_logits_tm1[a_tm1], r_t, discount_t, q_atoms_t, logits_t
    )


def two_hot_loss(logits, targets):
    """Schrittwieser et al. 2019, appendix F: a transform, then two-hot."""
    probs = two_hot.to_bins(
        squashing.signed_hyperbolic(targets), np.linspace(-3, 3, BINS)
    )
    return categorical_cross_entropy(probs, logits)


def hl_gauss_loss(logits, targets):
    """Farebrother et al. 2024, equation 3.1, after the symlog of DreamerV3."""
    probs = hl_gauss.hl_gauss(squashing.signed_logp1(targets), -3.0, 3.0, BINS)
    return categorical_cross_entropy(probs, logits)


def with_two_hot(library):
    tx = library.SIGNED_HYPERBOLIC_PAIR
    return _with_pair(library, library.muzero_pair(-3.0, 3.0, BINS, tx))


def with_hl_gauss(library):
    bins = library.hl_gauss_pair(-3.0, 3.0, BINS)
    return _with_pair(library, library.compose_tx(library.SIGNED_LOGP1_PAIR, bins))


def _with_pair(library, tx_pair):
    return functools.partial(library.categorical_regression_loss, tx_pair=tx_pair)


# --- Arguments. ---


def make_project(rng):
    return {
        "z_p": rng.normal(scale=2.0, size=OTHER_ATOMS),
        "probs": probabilities(rng, OTHER_ATOMS),
        "z_q": np.sort(rng.normal(size=ATOMS)),
    }


def categorical(of, *names):
    """Draw the arguments of categorical TD or Q-learning."""
    axes = (ACTIONS,) if of == "q" else ()

    def make(rng):
        drawn = {
            f"{of}_atoms_tm1": np.linspace(-2, 2, ATOMS) + rng.uniform(0, 0.5, ATOMS),
            f"{of}_logits_tm1": rng.normal(size=(*axes, ATOMS)),
            "a_tm1": actions(rng),
            "r_t": rng.normal(),
            "discount_t": rng.uniform(0.5, 1.0),
            f"{of}_atoms_t": np.sort(rng.normal(size=OTHER_ATOMS)),
            f"{of}_logits_t": rng.normal(size=(*axes, OTHER_ATOMS)),
            "q_t_selector": rng.normal(size=ACTIONS),
        }
        return {name: np.asarray(drawn[name]) for name in names}

    return make


def make_bins(rng):
    target = rng.uniform(0.3, 1.2) * rng.choice([-1.0, 1.0])
    return {"logits": rng.normal(size=BINS), "targets": np.asarray(target)}


V = ("v_atoms_tm1", "v_logits_tm1", "r_t", "discount_t", "v_atoms_t", "v_logits_t")


Q = (
    "q_atoms_tm1",
    "q_logits_tm1",
    "a_tm1",
    "r_t",
    "discount_t",
    "q_atoms_t",
    "q_logits_t",
)


LOG_OF_ZERO = {False: "NaN: the logarithm of a label that is 0."}


ROWS = [
    Row(categorical_l2_project, make_project),
    Row(
        categorical_td_learning,
        categorical("v", *V),
        gradients=Gradients(
            targets=("v_atoms_tm1", "r_t", "discount_t", "v_atoms_t", "v_logits_t")
        ),
        peer=Peer(no_gradients=LOG_OF_ZERO),
    ),
    Row(
        categorical_q_learning,
        categorical("q", *Q),
        gradients=Gradients(
            targets=("q_atoms_tm1", "r_t", "discount_t", "q_atoms_t", "q_logits_t")
        ),
        peer=Peer(no_gradients=LOG_OF_ZERO),
    ),
    Row(
        categorical_double_q_learning,
        categorical("q", *Q, "q_t_selector"),
        gradients=Gradients(
            targets=("q_atoms_tm1", "r_t", "discount_t", "q_atoms_t", "q_logits_t")
        ),
        peer=Peer(no_gradients=LOG_OF_ZERO),
    ),
    *(
        Row(
            definition,
            make_bins,
            case,
            name="categorical_regression_loss",
            find=of,
            gradients=Gradients(targets=("targets",)),
        )
        for case, definition, of in (
            ("two-hot", two_hot_loss, with_two_hot),
            ("HL-Gauss", hl_gauss_loss, with_hl_gauss),
        )
    ),
]
