"""Test what holds for all recipes: arguments, masks, truncation, ends of streams."""

import functools
import inspect
import sys
from importlib import import_module
from unittest import mock

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plain_losses import MODULES, all_cases
from plain_losses import common as plain
from plain_losses import exploration as explored
from plain_losses import imitation as imitated
from plain_losses.common import Batch, Call, T
from recipes import exploration, imitation, policy_gradient, streaming

import rlaxlib

LOSSES = {
    name: (case.loss, case.params)
    for name, case in all_cases().items()
    if isinstance(case.loss, Call)
}
STEP = Batch(
    s_tm1=plain.normal(plain.F),
    s_t=plain.normal(plain.F),
    a_tm1=np.array(2),
    r_t=np.float32(4.0),
    discount_t=np.float32(0.5),
)
GREEDY = np.outer(STEP.s_tm1, np.arange(3.0))  # The last action has most value.
# A TD error of -0.3: of one above 1, an update of ObGD has the sign alone.
STREAMED = STEP._replace(
    s_t=STEP.s_tm1 / 2, r_t=1.5 * np.sum(np.square(STEP.s_tm1)) - 0.3
)
MEMORY = rlaxlib.IntrinsicRewardState(
    plain.normal(12, 3), 3, np.float32(2.0), 4, np.float32(0.1)
)
NOVEL = plain.normal(T, 3), np.arange(1.0, T + 1), MEMORY, (np.array(1.0), 0.5)


MEAN_KL = float(
    np.mean(
        rlaxlib.categorical_kl_divergence(
            plain.STREAM.logits_tm1,
            plain.policy_and_value(plain.PAIR_PARAMS[0], plain.STREAM.s_tm1)[0],
        )
    )
)


def linear(w, s):
    return s @ w


def first(w, s):
    return jnp.sum(w * s)


def call(recipe, *params, **arguments):
    """Return a recipe that is not a loss, and its parameters."""
    named = Call.__new__(Call)
    names = list(inspect.signature(recipe).parameters)
    named.recipe, named.first = recipe, tuple(names[: len(params)])
    named.arguments = arguments
    return named, params


OTHERS = {
    "kl_coefficient": call(
        policy_gradient.kl_coefficient,
        *(np.float32(1.0), plain.PAIR_PARAMS[0]),
        apply=plain.policy_and_value,
        batch=plain.STREAM,
        target=MEAN_KL / 1.501,
    ),
    "lagrange_multiplier": call(
        policy_gradient.lagrange_multiplier,
        np.float32(35.0),
        state=rlaxlib.PidLagrangianState(np.float32(5.0), np.float32(1.0)),
        limit=25.0,
    ),
    "rnd_rewards": call(
        exploration.rnd_rewards,
        *explored.params("features"),
        apply=explored.features,
        batch=plain.STREAM,
        state=jax.tree.map(
            lambda x: np.full_like(x, 0.3),
            jax.vmap(rlaxlib.reward_scale().init)(np.zeros(plain.B)),
        ),
        discount=0.5,
    ),
    "ngu_rewards": call(
        exploration.ngu_rewards,
        NOVEL[0],
        **dict(zip(("errors", "memory", "moments"), NOVEL[1:], strict=True)),
        sample_mask=None,
    ),
    "gail_reward": call(
        imitation.gail_reward,
        imitated.CASES["gail"].params[0],
        apply=imitated.judge,
        batch=imitated.ACTION,
    ),
    "airl_reward": call(
        imitation.airl_reward,
        imitated.AIRL_PARAMS,
        apply=imitated.AIRL,
        batch=imitated.JUDGED,
    ),
    "stream_q": call(
        streaming.stream_q,
        streaming.Learner(GREEDY, plain.normal(4, 3), np.float32(0.9)),
        apply=linear,
        step=STREAMED,
        lambda_=0.8,
        kappa=2.0,
    ),
    "emphatic_td": call(
        streaming.emphatic_td,
        plain.normal(4),
        state=rlaxlib.EmphaticTraceState(
            plain.normal(4), *map(np.float32, (1.0, 2.0, 0.9))
        ),
        apply=first,
        step=STEP,
        rho=2.0,
        lambda_=0.5,
        step_size=0.01,
    ),
    "differential_td": call(
        streaming.differential_td,
        plain.normal(4),
        reward_rate=0.5,
        apply=first,
        step=STEP,
        step_size=0.01,
        eta=0.1,
    ),
}
ALL = {**LOSSES, **OTHERS}

# All tests run on the same twentieth, so that a recipe is compiled for all of them.
SHARE = set(contract.share(list(ALL), "all recipes", parts=20))


# --- Running a recipe, and what it reads. ---


class Reads(Batch):
    """A batch that notes the names of the fields that are read."""

    def __getattribute__(self, name):
        found = super().__getattribute__(name)
        if name[0] != "_":
            super().__getattribute__("_names").add(name)
        return found

    def _replace(self, **fields):
        own = {k: v for k, v in vars(self).items() if k != "_names"}
        return Reads(**{**own, **fields}, _names=vars(self)["_names"])


@functools.cache
def fields(called, name="batch"):
    """Return the fields of a batch that the recipe of a call reads."""
    recipe, params = ALL[called]
    names = set()
    batch = Reads(**vars(recipe.arguments[name]), _names=names)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        jax.eval_shape(lambda *p: recipe.outputs(*p, **{name: batch}), *params)
    return sorted(names)


@functools.cache
def program(name, settings):
    """Return a recipe with its settings, as a program: outputs and gradient."""
    recipe, _ = ALL[name]

    @jax.jit
    def results(params, arrays):
        arguments = {**dict(settings), **arrays}
        if name in OTHERS:
            return recipe.outputs(*params, **arguments), None

        def loss(first):
            outputs = recipe.outputs(first, *params[1:], **arguments)
            return outputs[0] if isinstance(outputs, tuple) else outputs, outputs

        return jax.grad(loss, has_aux=True)(params[0])[::-1]

    return results


def run(name, **changed):
    """Return the outputs of a recipe, and the gradient of a loss."""
    recipe, params = ALL[name]
    arguments = {k: v for k, v in (recipe.arguments | changed).items() if k != "apply"}
    settings = {
        name: x
        for name, x in arguments.items()
        if x is None or isinstance(x, str | bool | int) or callable(x)
    }
    arrays = {name: x for name, x in arguments.items() if name not in settings}
    return program(name, tuple(settings.items()))(params, arrays)


def same(one, other, rtol=2e-5):
    leaves = zip(*map(jax.tree.leaves, (one, other)), strict=True)
    return all(np.allclose(x, y, rtol, 1e-6, equal_nan=False) for x, y in leaves)


def differ(one, other):
    leaves = zip(*map(jax.tree.leaves, (one, other)), strict=True)
    return not all(np.array_equal(x, y, equal_nan=True) for x, y in leaves)


# --- Every argument has an effect. ---


OPTIONS = {
    **{"exp": "binary", "sigmoid": "ipo", "alpha": "log_alpha"},
    **{True: False, False: True},
}


def variants(value, mask_shape=()):
    """Yield other values of an argument."""
    if isinstance(value, str | bool):
        yield OPTIONS[value]
    elif value is None:  # Masks.
        mask = np.arange(np.prod(mask_shape)).reshape(mask_shape) % 3 > 0
        yield from (mask, ~mask)
    elif isinstance(value, int):
        yield from (value + 1, value - 1, 1)
    elif isinstance(value, float):
        yield from (1.5 * value + 0.1, 0.5 * value, 0.001 * value)
    elif isinstance(value, rlaxlib.TxPair):
        yield rlaxlib.twohot_pair(-3.0, 4.0, value.apply(0.0).size)
    elif jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        yield jax.random.split(value)[0]
    else:
        yield from variants_of_array(np.asarray(value))


def variants_of_array(value):
    """Yield other values of an array, in NumPy: JAX would compile each change."""
    if value.dtype.kind == "f":
        yield from (np.float32(0.7) * value, np.sign(value), np.flip(value), 3 * value)
    else:
        other = np.roll(value, 1, axis=0) if value.ndim else (value + 1) % plain.A
        yield other.astype(value.dtype)


def is_function(value):
    return callable(value) or isinstance(value, rlaxlib.TxPair)


def changes(called):
    """Yield the name of each argument, and its changes as keyword arguments."""
    for name, value in ALL[called][0].arguments.items():
        if isinstance(value, Batch):
            for field in fields(called, name):
                inner = getattr(value, field)
                if isinstance(inner, Batch):
                    continue
                shape = None if inner is not None else value.r_t.shape
                others = [value._replace(**{field: x}) for x in variants(inner, shape)]
                yield f"{name}.{field}", [{name: x} for x in others]
        elif isinstance(value, tuple) and name != "apply":
            for i, leaf in enumerate(jax.tree.leaves(value)):
                leaves, tree = jax.tree.flatten(value)
                others = [[*leaves[:i], x, *leaves[i + 1 :]] for x in variants(leaf)]
                yield (
                    f"{name}[{i}]",
                    [{name: jax.tree.unflatten(tree, x)} for x in others],
                )
        elif name != "apply" and not is_function(value):
            yield name, [{name: x} for x in variants(value, (T,))]


# The position of the next embedding has an effect on later calls only.
WITHOUT_EFFECT = {
    "clip_cov": {"key"},  # All tokens within bounds are chosen, in any order.
    "ngu_rewards": {"memory[1]"},
    "rnd_rewards": {"state[7]"},  # The largest sum bounds no scale here.
    # Its shape is that of the noise.
    "fql_actor": {"batch.a_tm1"},
    "bcq_actor": {"batch.a_tm1"},
    "bear_actor": {"batch.a_tm1"},
}


# Each option of a recipe is another program to compile.
@pytest.mark.parametrize("name", sorted(SHARE))
def test_every_argument_changes_the_result(name):
    before = run(name)

    def has_effect(change):
        try:
            return differ(run(name, **change), before)
        except rlaxlib.ArgumentError:  # Out of range.
            return False

    for argument, others in changes(name):
        if argument not in WITHOUT_EFFECT.get(name, ()):
            assert any(map(has_effect, others)), argument


# --- Masks, truncation and the ends of streams. ---


def with_field(field):
    """Yield the names of the recipes of streams whose batch has a field."""
    for name, (recipe, _) in ALL.items():
        batch = recipe.arguments.get("batch")
        batch = getattr(batch, "chosen", batch)
        if hasattr(batch, field) and name not in OF_TRANSITIONS:
            yield name


def reads(name, field):
    """Return whether a recipe reads a field of its batch."""
    return not {field, "chosen"}.isdisjoint(fields(name))


OF_TRANSITIONS = (
    "gumbel_muzero",
    "happo",
    *("maddpg_actor", "maddpg_critic"),
    "mappo",
    *("masac_actor", "masac_critic", "masac_temperature"),
    "muzero",
    "qc_critic",
    "qc_flow",
    "qmix",
    "reppo_critic",
    "vdn",
)
STREAMS = ("s_tm1", "s_t", "logits_tm1", "v_tm1", "v_t", "a_tm1", "r_t", "discount_t")
STEPS = {
    *(*STREAMS, "s", "truncated_t", "sample_mask", "is_valid", "intrinsic_r_t"),
    *("c_t", "cost_v_tm1", "cost_v_t", "inputs", "tokens", "old_log_prob"),
    *("first", "action_mask", "intrinsic_v_tm1", "intrinsic_v_t"),
    *("a_samples", "weights", "advs", "b_t"),
    *(
        "ref_log_prob",
        "values",
        "teacher_logits",
        "teacher_log_prob",
        "sampler_log_prob",
        "returns",
    ),
}
# Not by what they read, which tracing alone tells: each worker would trace them all.
MASKED = sorted(with_field("sample_mask"))
MAY_BE_CUT = sorted(set(MASKED) & set(with_field("truncated_t")))


def edit(batch, change):
    """Apply a function of name and array to the fields with a time axis, in NumPy."""

    def one(name, x):
        if isinstance(x, Batch):
            return edit(x, change)
        return change(name, np.asarray(x)) if name in STEPS and x is not None else x

    if getattr(batch, "sample_mask", 0) is None:
        batch = batch._replace(sample_mask=np.ones(batch.r_t.shape, bool))
    if getattr(batch, "truncated_t", 0) is None:
        batch = batch._replace(truncated_t=np.zeros(batch.r_t.shape, bool))
    return Batch(**{name: one(name, x) for name, x in vars(batch).items()})


def fill(name, x):
    """Return what stands in a step to ignore."""
    if jnp.issubdtype(x.dtype, jnp.floating):
        return np.full_like(x, np.nan)
    # The usual mark of tokens to ignore. Networks read `inputs`.
    is_read = x.dtype == bool or name == "inputs"
    return np.full_like(x, 0 if is_read else -100)


# An ignored step begins a new episode of the recurrent state.
BEGINS_ANEW = (
    *("dreamer_model", "dreamer_replay_critic", "r2d2", "recurrent_ppo"),
    *("bbf", "mrq_encoder"),  # Their model makes a step there, too.
)


# Their noise depends on the number of steps.
NOISY = {"rpo"}


@pytest.mark.parametrize("name", sorted(SHARE & set(MASKED) - NOISY))
def test_padding_and_gaps_with_nan_change_nothing(name):
    assert reads(name, "sample_mask")
    batch = edit(ALL[name][0].arguments["batch"], lambda name, x: x)
    expected = run(name, batch=batch)

    def pad(name, x):
        return np.concatenate([x, fill(name, x[:, -2:])], axis=1)

    def widen(name, x):
        gap = x[:, 2:3] if name == "s" else fill(name, x[:, :1])
        return np.concatenate([x[:, :2], gap, x[:, 2:], fill(name, x[:, -1:])], axis=1)

    arrays = {  # Arguments beside the batch, such as advantages.
        argument: x
        for argument, x in ALL[name][0].arguments.items()
        if getattr(x, "shape", ())[:2] == (plain.B, T)
    }
    for change, added in ((pad, (T, T + 1)), (widen, (2, T + 1))):
        others = {name: change(name, np.asarray(x)) for name, x in arrays.items()}
        found = run(name, batch=edit(batch, change), **others)
        if name == "rnd_rewards":
            (rewards, state), _ = found
            assert not np.any(rewards[:, added])
            found = (jnp.delete(rewards, np.array(added), axis=1), state), None
        if change is pad or name not in BEGINS_ANEW:
            assert same(found, expected)


@pytest.mark.parametrize("name", sorted(SHARE & set(MAY_BE_CUT)))
def test_masks_may_be_none(name):
    batch = edit(ALL[name][0].arguments["batch"], lambda name, x: x)
    masks = {"sample_mask": True, "truncated_t": False}
    full = {field: np.full_like(getattr(batch, field), x) for field, x in masks.items()}
    expected = run(name, batch=batch._replace(**full))
    assert same(run(name, batch=batch._replace(**dict.fromkeys(masks))), expected)


# Each stream, not each step, has a weight; or its loss is that of the first step.
OF_FIRST_EPISODE = {"bbf", "mrq_encoder"}  # Of its steps alone.
OF_STREAMS = OF_FIRST_EPISODE | {
    *("ape_x", "rainbow", "r2d2", "dreamer_model", "dreamer_replay_critic"),
    "recurrent_ppo",  # Its state passes through a cut.
    "rnd_ppo",  # Its intrinsic returns go on over a cut.
}


@pytest.mark.parametrize("name", sorted(SHARE & set(MAY_BE_CUT) - OF_STREAMS))
def test_a_cut_stream_gives_what_two_streams_give(name):
    if not reads(name, "truncated_t"):
        pytest.skip("it reads no cuts")
    batch = edit(ALL[name][0].arguments["batch"], lambda name, x: x)
    one = batch._replace(truncated_t=batch.truncated_t | (np.arange(T) == 1))

    def split(name, x):
        first = np.concatenate([x[:, :2], fill(name, x[:, 2:])], axis=1)
        second = np.concatenate([x[:, 2:], fill(name, x[:, :2])], axis=1)
        return np.concatenate([first, second])

    two = edit(batch, split)
    if hasattr(batch, "is_expert"):
        two = two._replace(is_expert=np.tile(batch.is_expert, 2))
    assert same(*(run(name, batch=x) for x in (one, two)))


def without_ends(name, x):
    return np.maximum(x, 0.5) if name == "discount_t" else x


# Their loss is that of the first step, or their result one of three numbers.
OF_ONE_STEP = {"ape_x", "bbf", "rainbow", "kl_coefficient"}
# A trust region leaves steps out, or a baseline of few answers is their return.
# The last state of a replayed stream has a return only.
# A model predicts from the first observation.
LEFT_OUT = {"dreamer_replay_critic", "focops", "mrq_encoder", "otb"}


@pytest.mark.parametrize("name", sorted(SHARE & set(MASKED) - OF_ONE_STEP - LEFT_OUT))
def test_each_step_of_a_stream_is_learned_from(name):
    arguments = {"burn_in": 0} if name == "r2d2" else {}
    batch = edit(ALL[name][0].arguments["batch"], without_ends)
    before = run(name, batch=batch, **arguments)
    read = {"r_t", "a_tm1", "s_tm1", "s", "tokens"} & set(fields(name))
    for field in read if name != "dreamer_model" else {"s", "r_t"}:
        x = getattr(batch, field)
        for k in range(x.shape[1]):

            def has_effect(shift, x=x, k=k, field=field):
                other = x[:, k] + shift
                if not jnp.issubdtype(x.dtype, jnp.floating):
                    other = other % (plain.M if field == "tokens" else plain.A)
                moved = np.array(x)
                moved[:, k] = other
                changed = batch._replace(**{field: moved})
                return differ(run(name, batch=changed, **arguments), before)

            # A clip may hide a change.
            assert any(map(has_effect, (1, 2, 3))), (field, k)


def test_the_last_true_next_observation_is_bootstrapped_from():
    names = sorted(set(MAY_BE_CUT) & set(with_field("s_t")) - OF_FIRST_EPISODE)
    values = [x for x in names if reads(x, "truncated_t") and reads(x, "s_t")]
    assert len(values) >= 12
    for name in sorted(SHARE & set(values)):
        batch = edit(ALL[name][0].arguments["batch"], without_ends)
        moved = np.array(batch.s_t)
        moved[:, -1] += 1.0
        changed = batch._replace(s_t=moved)
        assert differ(*(run(name, batch=x) for x in (batch, changed))), name


# The value of MAPPO's team is that of the observations of all agents.
@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("happo", ("s_tm1", "old_log_prob")),
        ("mappo", ("old_log_prob",)),
        ("qmix", ("s_tm1", "s_t", "r_t", "discount_t")),
        ("vdn", ("s_tm1", "s_t", "r_t", "discount_t")),
    ],
)
def test_transitions_to_ignore_may_hold_nan(name, fields):
    batch = LOSSES[name][0].arguments["batch"]
    mask = np.asarray(batch.sample_mask)
    assert not mask.all()

    def spoil(x):
        ignored = np.array(x)
        ignored[~mask] = np.nan
        return ignored

    spoiled = {field: spoil(getattr(batch, field)) for field in fields}
    assert same(run(name, batch=batch), run(name, batch=batch._replace(**spoiled)))


@pytest.mark.parametrize("name", ["muzero", "gumbel_muzero"])
def test_states_after_an_end_of_a_search_may_hold_nan(name):
    batch = LOSSES[name][0].arguments["batch"]
    mask = batch.sample_mask

    def poison(x, mask):
        mask = mask.reshape(*mask.shape, *[1] * (x.ndim - 2))
        return jnp.where(mask, x, jnp.nan)

    read = {"action_weights", "a_samples", "logits", "q", "v", "returns"}
    spoiled = {
        field: poison(getattr(batch, field), mask) for field in read & set(fields(name))
    }
    spoiled["r_t"] = poison(batch.r_t, mask[:, :-1])
    found = run(name, batch=batch._replace(**spoiled))
    assert same(found, run(name))


def test_scale_of_a_search_is_relative_to_its_values_unless_these_are_rescaled():
    batch = LOSSES["gumbel_muzero"][0].arguments["batch"]
    doubled = {"batch": batch._replace(q=2 * batch.q, v=2 * batch.v)}
    assert same(run("gumbel_muzero", **doubled), run("gumbel_muzero"))
    raw = {"rescale_values": False}
    halved = run("gumbel_muzero", **doubled, **raw, c_scale=0.05)
    assert same(halved, run("gumbel_muzero", **raw))
    assert differ(run("gumbel_muzero", **doubled, **raw), run("gumbel_muzero", **raw))


# --- Files. ---


def test_recipes_run_in_any_package():
    with mock.patch.dict(sys.modules):
        for name in [x for x in sys.modules if x.partition(".")[0] == "recipes"]:
            del sys.modules[name]
        sys.modules["recipes"] = None  # Not to be found under this name.
        for module in MODULES:
            import_module(f"examples.recipes.{module}")
