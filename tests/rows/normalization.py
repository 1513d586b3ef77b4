"""Normalisation: definitions in NumPy, and the rows that compare with them."""

import numpy as np
from contract import ACTIONS, Row, actions, fields

import rlaxlib

DECAY = 0.75
SETTINGS = {"step_size": 0.25, "scale_lb": 1e-3, "scale_ub": 1e3}


# --- Moving averages. ---


def create_ema(first, second):
    """Average two updates, then their squared distances from the mean."""
    weights = np.array([DECAY * (1 - DECAY), 1 - DECAY]) / (1 - DECAY**2)
    mean = weights @ [np.mean(first), np.mean(second)]
    squares = [np.mean((first - mean) ** 2), np.mean((second - mean) ** 2)]
    return np.asarray(mean), np.asarray(weights @ squares)


def two_updates(library):
    """Return a function that returns the moments after two updates."""

    def moments(first, second):
        init_state, update_moments = library.create_ema(decay=DECAY)
        _, state = update_moments(first, init_state(first))
        moved, _ = update_moments(second, state)
        return moved.mean, moved.variance

    return moments


# --- Running moments. ---


def running_moments(first, second, sample_mask):
    """Compute the moments of all entries at once."""
    entries = np.concatenate([first[sample_mask], second])
    mean = np.mean(entries, axis=0)
    return mean, np.mean((entries - mean) ** 2, axis=0)


def two_batches(library):
    """Return a function that returns the moments of two batches of entries."""

    def moments(first, second, sample_mask):
        init_state, update_moments = library.running_moments()
        _, state = update_moments(first, init_state(first[0]), sample_mask=sample_mask)
        moved, _ = update_moments(second, state)
        return moved

    return moments


# --- Scales. ---


def percentile_scale(returns, sample_mask):
    """Average the ranges of two updates."""
    weights = np.array([DECAY * (1 - DECAY), 1 - DECAY]) / (1 - DECAY**2)
    updates = returns[sample_mask], 2 * returns
    ranges = [np.subtract(*np.percentile(x, [90, 20])) for x in updates]
    return np.asarray(max(0.25, weights @ ranges))


def two_ranges(library):
    """Return a function that returns the scale after two updates."""

    def scale(returns, sample_mask):
        init_state, update_scale = library.percentile_scale(DECAY, 20.0, 90.0, 0.25)
        _, state = update_scale(returns, init_state(returns), sample_mask=sample_mask)
        return update_scale(2 * returns, state)[0]

    return scale


def reward_scale(r_t, discount_t, truncated_t, sample_mask):
    """Sum the rewards of each episode so far, step by step, in two chunks."""
    sums, so_far = [], 0.0
    for t in [*range(len(r_t))] * 2:
        if sample_mask[t]:
            so_far += r_t[t]
            sums.append(so_far)
            so_far *= discount_t[t]
        so_far *= not truncated_t[t]
    return np.sqrt(np.var(sums) + 1e-8)


def two_chunks(library):
    """Return a function that returns the scale after two chunks."""

    def scale(r_t, discount_t, **masks):
        init_state, update_scale = library.reward_scale()
        _, state = update_scale(r_t, discount_t, init_state(r_t), **masks)
        return update_scale(r_t, discount_t, state, **masks)[0]

    return scale


def return_based_scale(r_t, discount_t, returns, sample_mask, returns_mask):
    """Schaul et al. 2021, on numbers with masks and then on all of them."""
    r_t, discount_t = (np.append(x, x[sample_mask]) for x in (r_t, discount_t))
    returns = np.append(returns, returns[returns_mask])
    return np.sqrt(np.var(r_t) + np.var(discount_t) * np.mean(returns**2))


def two_updates_of_scale(library):
    """Return a function that returns the scale after updates with and without masks."""

    def scale(r_t, discount_t, returns, **masks):
        init_state, update_scale = library.return_based_scale()
        _, state = update_scale(r_t, discount_t, returns, init_state(r_t), **masks)
        return update_scale(r_t, discount_t, returns, state)[0]

    return scale


# --- PopArt. ---


def normalize(shift, scale, unnormalized, indices):
    return (unnormalized - shift[indices]) / scale[indices]


def unnormalize(shift, scale, normalized, indices):
    return scale[indices] * normalized + shift[indices]


def unnormalize_linear(shift, scale, inputs, indices):
    normalized = inputs[np.arange(len(indices)), indices]
    return normalized, unnormalize(shift, scale, normalized, indices)


def art(
    shift,
    scale,
    second_moment,
    targets,
    indices,
    step_size,
    scale_lb,
    scale_ub,
    sample_mask=None,
):
    """Van Hasselt et al. 2016: one step towards the mean for each of the targets."""
    shift, scale, second_moment = map(np.array, (shift, scale, second_moment))
    mask = np.ones(targets.shape, bool) if sample_mask is None else sample_mask
    for k in range(len(shift)):
        own = targets[mask & (indices == k)]
        for _ in own:
            shift[k] += step_size * (np.mean(own) - shift[k])
            second_moment[k] += step_size * (np.mean(own**2) - second_moment[k])
    scale = np.sqrt(second_moment - shift**2)
    return shift, np.clip(scale, scale_lb, scale_ub), second_moment


def pop(w, b=None, **states):
    shift, new_shift = states["old.shift"], states["new.shift"]
    scale, new_scale = states["old.scale"], states["new.scale"]
    rescaled = {"w": w * scale / new_scale}
    if b is not None:
        rescaled["b"] = (scale * b + shift - new_shift) / new_scale
    return rescaled


def popart(w, b, shift, scale, second_moment, targets, indices, **settings):
    state = art(shift, scale, second_moment, targets, indices, **settings)
    names = ("old.shift", "old.scale", "new.shift", "new.scale")
    states = dict(zip(names, (shift, scale, *state[:2]), strict=True))
    return pop(w, b, **states), state


# --- Functions of arrays only. ---


def with_statistics(name):
    """Return a function that takes the fields of a state as separate arguments."""

    def find(library):
        def function(**given):
            state = pop_state(library, given)
            return getattr(library, name)(state=state, **given)

        return function

    return find


def of_fields(definition):
    def define(**arguments):
        return definition(
            **{name.removeprefix("state."): x for name, x in arguments.items()}
        )

    return define


def pop_state(library, given, name="state"):
    """Take the fields of a state out of arguments; a second moment is optional."""
    shift, scale = given.pop(f"{name}.shift"), given.pop(f"{name}.scale")
    moment = given.pop(f"{name}.second_moment", scale)
    return library.PopArtState(shift, scale, moment)


def pop_of(library):
    def function(**given):
        old, new = (pop_state(library, given, name) for name in ("old", "new"))
        return library.pop(given, old, new)

    return function


def popart_of(library):
    def function(w, b, targets, indices, step_size, scale_lb, scale_ub, **fields):
        _, update = library.popart(ACTIONS, step_size, scale_lb, scale_ub)
        state = pop_state(library, fields)
        return update({"w": w, "b": b}, state, targets, indices)

    return function


# --- Arguments. ---


def make_statistics(rng, name="state"):
    return {
        f"{name}.shift": rng.normal(scale=0.5, size=ACTIONS),
        f"{name}.scale": rng.uniform(1.0, 2.0, size=ACTIONS),
    }


def with_numbers(name, *axes):
    """Return a function that draws statistics, numbers and their outputs."""

    def make(rng):
        return {
            **make_statistics(rng),
            name: rng.normal(size=(5, *axes)),
            "indices": actions(rng, 5),
        }

    return make


def make_targets(rng, indices=None):
    """Draw a state, and targets of all outputs but one."""
    statistics = make_statistics(rng)
    squares = statistics["state.shift"] ** 2 + statistics["state.scale"] ** 2
    indices = np.array([0, 1, 0, 2, 0, 1]) if indices is None else indices
    return {
        **statistics,
        "state.second_moment": squares,
        "targets": rng.normal(size=indices.shape),
        "indices": indices,
    }


def make_one_target_each(rng):
    return make_targets(rng, rng.permutation(ACTIONS))


def make_masked(rng):
    return {
        **make_targets(rng),
        "sample_mask": np.array([True] * 3 + [False] * 2 + [True]),
    }


def make_layer(rng):
    return {"w": rng.normal(size=(3, ACTIONS)), "b": rng.normal(size=ACTIONS)}


def make_rescaled(rng):
    return {
        **make_layer(rng),
        **make_statistics(rng, "old"),
        **make_statistics(rng, "new"),
    }


def make_without_bias(rng):
    drawn = make_rescaled(rng)
    del drawn["b"]
    return drawn


ROWS = [
    Row(
        name="create_ema",
        definition=create_ema,
        make=lambda rng: {
            "first": rng.normal(size=(4, 3)),
            "second": rng.normal(loc=1.0, size=7),
        },
        of=two_updates,
        elementwise=True,
        single_precision=(0, 1),
        any_length=("first", "second"),
        any_dtype=("first", "second"),
        trees=("first", "second"),
    ),
    Row(
        name="running_moments",
        definition=running_moments,
        make=lambda rng: {
            "first": rng.normal(size=(4, 3)),
            "second": rng.normal(loc=1.0, size=(7, 3)),
            "sample_mask": np.array([True, False, True, True]),
        },
        of=two_batches,
        differentiable=False,
        elementwise=True,
        peer="rlax has no such function",
        single_precision=(0, 1),
        any_length=("first", "second"),
        any_dtype=("first", "second"),
        optional=("sample_mask",),
        trees=("first", "second"),
    ),
    Row(
        name="percentile_scale",
        definition=percentile_scale,
        make=lambda rng: {
            "returns": rng.normal(size=6),
            "sample_mask": np.array([True, False, True, True, True, False]),
        },
        of=two_ranges,
        differentiable=False,
        elementwise=True,
        peer="rlax has no such function",
        single_precision=(0,),
        any_dtype=("returns",),
        optional=("sample_mask",),
    ),
    Row(
        name="return_based_scale",
        definition=return_based_scale,
        make=lambda rng: {
            "r_t": rng.normal(size=6),
            "discount_t": rng.uniform(size=6),
            "returns": rng.normal(loc=2.0, size=4),
            "sample_mask": np.array([True, True, False, True, True, False]),
            "returns_mask": np.array([True, False, True, True]),
        },
        of=two_updates_of_scale,
        differentiable=False,
        elementwise=True,
        peer="rlax has no such function",
        single_precision=(0,),
        any_dtype=("r_t", "returns"),
        optional=("sample_mask", "returns_mask"),
    ),
    Row(
        name="reward_scale",
        definition=reward_scale,
        make=lambda rng: {
            "r_t": rng.normal(size=6),
            "discount_t": rng.uniform(0.5, 1.0, size=6),
            "truncated_t": np.array([False, True, False, False, False, False]),
            "sample_mask": np.array([True, True, True, False, True, True]),
        },
        of=two_chunks,
        differentiable=False,
        peer="rlax has no such function",
        single_precision=(0,),
        any_dtype=("r_t",),
        optional=("truncated_t", "sample_mask"),
    ),
    Row(
        name="normalize",
        definition=of_fields(normalize),
        make=with_numbers("unnormalized"),
        of=with_statistics("normalize"),
        any_dtype=("unnormalized",),
    ),
    Row(
        name="unnormalize",
        definition=of_fields(unnormalize),
        make=with_numbers("normalized"),
        of=with_statistics("unnormalize"),
        any_dtype=("normalized",),
    ),
    Row(
        name="unnormalize_linear",
        definition=of_fields(unnormalize_linear),
        make=with_numbers("inputs", ACTIONS),
        of=with_statistics("unnormalize_linear"),
    ),
    Row(
        name="art",
        definition=of_fields(art),
        make=make_targets,
        settings=SETTINGS,
        invalid=(
            {"step_size": 1.5},
            {"scale_lb": 0.0},
            {"scale_ub": 1e-4},
            {"indices": np.array([0, 1, 0, 2, 0, ACTIONS])},
        ),
        of=with_statistics("art"),
        single_precision=(0, 1, 2),
        carried=fields(rlaxlib.PopArtState),
        peer_make=make_one_target_each,
        differentiable=False,
        any_dtype=("targets",),
    ),
    Row(
        name="art",
        case="mask",
        definition=of_fields(art),
        make=make_masked,
        settings=SETTINGS,
        of=with_statistics("art"),
        single_precision=(0, 1, 2),
        carried=fields(rlaxlib.PopArtState),
        peer="rlax takes no mask",
        differentiable=False,
        any_dtype=("targets",),
    ),
    Row(
        name="pop",
        definition=pop,
        make=make_rescaled,
        of=pop_of,
        carried={"b": 0, "w": 1},
        follows=("w",),
        any_length=("w",),
        trees=("b",),
    ),
    Row(
        name="pop",
        case="no bias",
        definition=pop,
        make=make_without_bias,
        of=pop_of,
        peer="rlax wants a bias",
        carried={"w": 0},
        follows=("w",),
        any_length=("w",),
    ),
    Row(
        name="popart",
        definition=of_fields(popart),
        make=lambda rng: make_layer(rng) | make_targets(rng),
        settings=SETTINGS,
        invalid=(
            {"step_size": 1.5},
            {"scale_lb": 0.0},
            {"scale_ub": 1e-4},
            {"indices": np.array([0, 1, 0, 2, 0, ACTIONS])},
        ),
        of=popart_of,
        peer_make=lambda rng: make_layer(rng) | make_one_target_each(rng),
        differentiable=False,
        follows=("w",),
        single_precision=(2, 3, 4),
        carried={"b": 0, "w": 1} | fields(rlaxlib.PopArtState, 2),
        any_length=("w",),
        any_dtype=("targets",),
        trees=("b",),
    ),
]
