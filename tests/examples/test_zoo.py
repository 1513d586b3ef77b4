"""Test the zoo: all recipes are in it, reach their bar, and do not with a fault."""

import functools
import inspect
import json
import os
from importlib import import_module

import chex
import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import define_prng_impl
from zoo import results
from zoo.__main__ import SEEDS, families, train
from zoo.evaluation import averaged
from zoo.training import FAULTS, POINTS, Fault, Run

# The default settings of JAX, as in the fixture of the tests of examples.
with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
    FAMILIES = families()
ENTRIES = {name: each for zoo in FAMILIES.values() for name, each in zoo.items()}

KEY = jax.random.key(0)
SEED = int(os.environ.get("RLAXLIB_SEED", "1"))  # That of the page is 0.


def functions(recipe):
    """Return file and name of each function, of "file.name, name, file.name"."""
    file, found = "", set()
    for each in recipe.split(", "):
        *before, name = each.split(".")
        file = before[0] if before else file
        found.add((file, name))
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_each_recipe_of_a_file_is_trained(family):
    trained = set().union(*(functions(each.recipe) for each in ENTRIES.values()))
    module = import_module(f"recipes.{family}")
    own = {
        (family, name)
        for name, each in inspect.getmembers(module, inspect.isfunction)
        if each.__module__ == module.__name__ and "Usual" in (each.__doc__ or "")
    }
    assert own - trained == set()


def test_curve_has_the_scores_before_all_updates_and_after_each_part():
    inputs = jnp.arange(2 * POINTS)
    run = Run(jnp.array(0), lambda state, x: state + x, inputs, lambda state: 3 * state)
    np.testing.assert_array_equal(run.curve()[0], 0)
    np.testing.assert_array_equal(run.curve()[1:], 3 * jnp.cumsum(inputs)[1::2])


def test_score_of_data_sets_is_their_mean():
    run = averaged(lambda key, fault: jax.random.uniform(key), 0.5)(KEY, Fault())
    curve = run.curve()
    scores = jax.vmap(jax.random.uniform)(run.inputs.reshape(-1))
    assert curve[0] == 0.5
    np.testing.assert_allclose(curve[1], scores[: len(scores) // POINTS].mean(), 1e-5)
    np.testing.assert_allclose(curve[-1], scores.mean(), 1e-5)


def scrambled(x):
    return (x ^ (x >> np.uint32(15))) * np.uint32(2_654_435_769)


def random_bits(key, width, shape):
    """Return random bits of little quality, by few operations."""
    index = jnp.arange(np.prod(shape, dtype=int), dtype=np.uint32).reshape(shape)
    bits = scrambled(scrambled(key[0] + np.uint32(40_503) * index))
    return bits.astype(f"uint{width}")


# JAX's own random numbers take half of the compilation of an update.
RANDOM = define_prng_impl(
    key_shape=(1,),
    seed=lambda seed: jnp.asarray(seed, np.uint32)[None],
    split=lambda key, shape: random_bits(key, 32, (*shape, 1)),
    random_bits=random_bits,
    fold_in=lambda key, data: scrambled(key + data),
    name="random_bits",
    tag="bits",
)


def updated(name, part, key, *factors):
    """Return the state of a run without a part, and the one after an update."""
    run = ENTRIES[name].without[part](key, Fault(*factors))
    assert len(run.inputs) % POINTS == 0
    assert jax.eval_shape(run.score, run.state).shape == ()
    return run.state, run.update(run.state, run.inputs[0])


PARTS = [(name, part) for name, each in ENTRIES.items() for part in each.without]


# Whole entries reach their bar below; without a part, a run could fail by NaN.
@pytest.mark.parametrize(("name", "part"), contract.share(PARTS, "zoo", parts=15))
def test_one_update_returns_what_it_takes_and_is_finite(name, part):
    program = jax.jit(functools.partial(updated, name, part))
    before, after = program(jax.random.key(0, impl=RANDOM), 1.0, 1.0)
    chex.assert_trees_all_equal_shapes_and_dtypes(before, after)
    chex.assert_tree_all_finite(after)


@pytest.mark.trust
@pytest.mark.parametrize("name", ENTRIES)
def test_five_seeds_reach_the_bar_and_the_median_with_a_fault_does_not(name):
    entry = ENTRIES[name]
    assert entry.fails
    # One program trains without a fault and with those that are factors.
    factors = [fault for fault in entry.fails if not FAULTS[fault].gradient]
    made = np.float32([Fault(), *map(FAULTS.get, factors)])
    keys = jax.random.split(jax.random.key(SEED), SEEDS)

    def score(reward, bootstrap, key):
        return entry.run(key, Fault(reward, bootstrap)).curve()[-1]

    each_seed = jax.vmap(score, (None, None, 0))
    program = jax.jit(jax.vmap(each_seed, (0, 0, None)))
    whole, *faulty = program(made[:, 0], made[:, 1], keys)
    assert np.min(whole) >= entry.states
    if "gradient" in entry.fails:
        factors.append("gradient")
        faulty.append(train(entry, "gradient", SEED)[:, -1])
    for part, run in entry.without.items():
        factors.append(part)
        faulty.append(train(entry._replace(run=run), seed=SEED)[:, -1])
    for fault, reached in zip(factors, faulty, strict=True):
        assert not np.median(reached) >= entry.states, fault


def test_pages_count_the_entries_that_name_no_part():
    count = sum(not entry.without for entry in ENTRIES.values())
    zoo, trust = (
        (results.CURVES.parent / page).read_text("utf-8")
        for page in ("zoo.md", "trust.md")
    )
    assert f"{count} entries name no part" in zoo
    assert f"what {count} of {len(ENTRIES)} algorithms add" in trust


def test_results_are_those_of_the_entries_and_have_curves():
    known = json.loads(results.RESULTS.read_text("utf-8"))
    assert list(known) == list(ENTRIES)
    for family, entries in FAMILIES.items():
        for name, entry in entries.items():
            assert set(entry.fails) <= set(FAULTS), name
            assert results.about(family, entry).items() <= known[name].items(), name
            assert known[name]["worst"] >= entry.states - 0.005, name
            assert (results.CURVES / f"{name}.svg").exists()
