"""Rows of `diagnostics.py`, and their definitions in NumPy."""

import numpy as np
from contract import away_from, discounts
from jax.experimental import checkify
from row import Gradients, Peer, Precision, Row

SAMPLES, NEURONS = 8, 5


def unmasked(x, sample_mask):
    return x.reshape(-1) if sample_mask is None else x[sample_mask]


def explained_variance(predictions, targets, sample_mask=None, count_bias=False):
    errors = unmasked(targets - predictions, sample_mask)
    left = np.mean(errors**2) if count_bias else np.var(errors)
    return 1 - left / np.var(unmasked(targets, sample_mask))


def value_bias(values, returns, sample_mask=None, normalize=False):
    """Chen et al. 2021, section 2.1."""
    bias = np.mean(unmasked(values - returns, sample_mask))
    return bias / np.abs(np.mean(unmasked(returns, sample_mask))) if normalize else bias


def approximate_kl(log_ratio, kind="k3", sample_mask=None):
    """Schulman 2020."""
    ratios = np.exp(unmasked(log_ratio, sample_mask))
    estimates = {
        "k1": -np.log(ratios),
        "k2": np.log(ratios) ** 2 / 2,
        "k3": (ratios - 1) - np.log(ratios),
    }
    return np.mean(estimates[kind])


def effective_sample_size(log_weights, sample_mask=None):
    """Kong 1992."""
    weights = np.exp(unmasked(log_weights, sample_mask))
    return np.sum(weights) ** 2 / np.sum(weights**2)


def importance_statistics(log_ratio, sample_mask=None):
    logs = unmasked(log_ratio, sample_mask)
    size = effective_sample_size(logs)
    statistics = (
        np.mean(np.exp(logs)),
        np.max(logs),
        np.min(logs),
        np.mean(logs),
        np.std(logs),
        approximate_kl(logs),
        np.mean(np.exp(logs) ** 2) - 1,
        size,
        size / logs.size,
    )
    return [np.asarray(each) for each in statistics]


def dormant_fraction(activations, threshold=0.025, sample_mask=None):
    """Sokar et al. 2023, definition 3.1."""
    inputs = activations.reshape(-1, NEURONS)
    inputs = inputs if sample_mask is None else inputs[sample_mask.reshape(-1)]
    sizes = np.mean(np.abs(inputs), axis=0)
    return np.mean(sizes / np.mean(sizes) <= threshold)


def effective_rank(features, threshold=0.01, sample_mask=None):
    """Kumar et al. 2020, section 3."""
    features = features if sample_mask is None else features[sample_mask]
    sizes = np.linalg.svd(features, compute_uv=False)
    ranks = range(1, sizes.size + 1)
    return min(k for k in ranks if np.sum(sizes[:k]) / np.sum(sizes) >= 1 - threshold)


def check_trajectory(r_t, discount_t, truncated_t=None, sample_mask=None, v_t=None):
    """Return True for all steps, as `make_trajectory` makes consistent streams."""
    return np.ones(r_t.shape, bool)


# --- Arguments. ---


def make_samples(*names):
    def make(rng):
        sample_mask = rng.permutation([True] * 6 + [False] * 2)
        log_ratio = rng.normal(scale=0.5, size=SAMPLES)
        for bound in np.log([0.8, 1.2, 1.5]):
            log_ratio = away_from(log_ratio, bound)
        drawn = {
            "predictions": rng.normal(size=SAMPLES),
            "targets": rng.normal(size=SAMPLES),
            "values": rng.normal(size=SAMPLES),
            "returns": rng.normal(size=SAMPLES) - 1,
            "log_ratio": log_ratio,
            "log_weights": rng.normal(size=SAMPLES),
            "adv": away_from(rng.normal(size=SAMPLES), 0.0),
            "epsilon": np.asarray(0.2),
            "epsilon_high": np.asarray(0.5),
            "sample_mask": sample_mask,
        }
        return {name: drawn[name] for name in names}

    return make


def make_activations(rng):
    scales = rng.permutation([0.001, 0.02, 1.0, 1.0, 2.0])
    sample_mask = rng.permutation([True] * 6 + [False] * 2)
    return {
        "activations": rng.normal(size=(SAMPLES, NEURONS)) * scales,
        "sample_mask": sample_mask,
    }


def make_image(rng):
    scales = rng.permutation([0.001, 0.02, 1.0, 1.0, 2.0])
    return {"activations": rng.normal(size=(4, 3, 3, NEURONS)) * scales}


def make_features(rng):
    parts = rng.normal(size=(SAMPLES, 3)), rng.normal(size=(3, NEURONS))
    noise = 1e-4 * rng.normal(size=(SAMPLES, NEURONS))
    sample_mask = rng.permutation([True] * 6 + [False] * 2)
    return {"features": parts[0] @ parts[1] + noise, "sample_mask": sample_mask}


def without_mask(make):
    return lambda rng: {
        name: x for name, x in make(rng).items() if name != "sample_mask"
    }


def make_trajectory(rng):
    discount_t = discounts(rng, SAMPLES)
    truncated_t = (discount_t > 0) & (rng.uniform(size=SAMPLES) < 0.3)
    after_an_end = np.append(False, ((discount_t == 0) | truncated_t)[:-1])
    ignored = after_an_end & (discount_t > 0) & (rng.uniform(size=SAMPLES) < 0.7)
    return {
        "r_t": rng.normal(size=SAMPLES),
        "discount_t": discount_t,
        "truncated_t": truncated_t,
        "sample_mask": ~ignored,
        "v_t": rng.normal(size=SAMPLES),
    }


def checked(library):
    """Find the check, transformed by checkify."""
    function = checkify.checkify(library.check_trajectory)
    return lambda **arguments: function(**arguments)[1]


def over_devices(name):
    """Find a function that takes the name of a mapped axis."""

    def find(library, axis_name):
        function = getattr(library, name)
        return lambda **arguments: function(**arguments, axis_name=axis_name)

    return find


def rows(name, definition, *names, cases=None, **fields):
    """Return a row with a mask, and one without for each case."""
    cases = {"no mask": {}} if cases is None else cases
    shared = {
        "name": name,
        "definition": definition,
        "peer": Peer(why_not="rlax has no such function"),
        **fields,
    }
    with_mask = Row(**{"make": make_samples(*names, "sample_mask"), **shared})
    return [
        with_mask,
        *(
            Row(
                make=make_samples(*names),
                case=case,
                settings=settings,
                over_devices=over_devices(name),
                **shared,
            )
            for case, settings in cases.items()
        ),
    ]


ROWS = [
    *rows(
        "explained_variance",
        explained_variance,
        "predictions",
        "targets",
        cases={"no mask": {}, "with bias": {"count_bias": True}},
        precision=Precision(condition=4.0),
    ),
    *rows(
        "value_bias",
        value_bias,
        "values",
        "returns",
        cases={"no mask": {}, "normalized": {"normalize": True}},
    ),
    *rows(
        "approximate_kl",
        approximate_kl,
        "log_ratio",
        cases={"k1": {"kind": "k1"}, "k2": {"kind": "k2"}, "k3": {"kind": "k3"}},
    ),
    *rows(
        "effective_sample_size",
        effective_sample_size,
        "log_weights",
        precision=Precision(condition=4.0),
    ),
    Row(
        importance_statistics,
        make_samples("log_ratio", "sample_mask"),
        gradients=Gradients(exist=False),
        precision=Precision(condition=8.0),
    ),
    Row(dormant_fraction, make_activations, gradients=Gradients(exist=False)),
    Row(
        dormant_fraction,
        make_image,
        "channels",
        settings={"threshold": 0.001},
        gradients=Gradients(exist=False),
        over_devices=over_devices("dormant_fraction"),
    ),
    Row(effective_rank, make_features, gradients=Gradients(exist=False)),
    Row(
        effective_rank,
        without_mask(make_features),
        "no mask",
        settings={"threshold": 0.1},
        gradients=Gradients(exist=False),
        over_devices=over_devices("effective_rank"),
    ),
    Row(
        check_trajectory,
        make_trajectory,
        find=checked,
        gradients=Gradients(exist=False),
    ),
]
