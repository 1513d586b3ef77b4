"""Run the tables of `docs/from/`: each row beside the formula of the other library.

A row of three cells has a name of the other library, code of ours, and a note. For each
page, a module here has:

- `INPUTS`: random inputs by name; the code of the rows is an expression of them;
- `TRAINED`: names of inputs that are outputs of trained networks: gradients by them
  are compared too;
- `ROWS`: for each row, by its first cell, the formula of the other library, transcribed
  from the commit that the page names, whose arguments are names of inputs; or a pair
  of a formula that several libraries share, and of the names of inputs to pass.
"""

import contextlib
import importlib
import inspect
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

import rlaxlib

FOLDER = Path(__file__).parents[2] / "docs/from"
_RANDOM = np.random.default_rng(0)
_SEED = _RANDOM.bit_generator.state


@contextlib.contextmanager
def default_settings():
    """Use the default settings of JAX, not the strict ones of the tests."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def normal(*shape, scale=1.0):
    return jnp.asarray(scale * _RANDOM.normal(size=shape), jnp.float32)


def uniform(*shape, low=0.0, high=1.0):
    return jnp.asarray(_RANDOM.uniform(low, high, shape), jnp.float32)


def integers(high, *shape):
    return jnp.asarray(_RANDOM.integers(high, size=shape), jnp.int32)


def flags(*places, length):
    return jnp.zeros(length, bool).at[jnp.array(places)].set(True)


def of_answers(steps=6, words=7, first=None):
    """Return inputs of an answer, or of four with a mask, and rewards of five."""
    log_prob = jnp.log(uniform(steps, low=0.05, high=0.4))
    log_prob = log_prob if first is None else log_prob.at[0].set(first)
    return {
        "rewards": normal(5),
        "lengths": jnp.array([5, 12, 15, 19, 25]),
        "adv": normal(steps),
        "log_prob": log_prob,
        "data_log_prob": log_prob,
        "old_log_prob": log_prob + normal(steps, scale=0.3),
        "sampler_log_prob": jnp.log(uniform(steps, low=0.05)),
        "ref_log_prob": jnp.log(uniform(steps, low=0.05)),
        "losses": normal(4, steps),
        "mask": jnp.arange(steps) < jnp.array([3, 0, 6, 5])[:, None],
        "logits": normal(steps, words),
        "teacher_logits": normal(steps, words),
        "tokens": integers(words, steps),
        "v": normal(steps),
        "old_v": normal(steps),
        "target": normal(steps),
    }


def with_a_gap(steps=6):
    """Return inputs of a stream with a token to ignore, whose reward is 0."""
    kept, values = ~flags(2, length=steps), normal(steps)
    return {
        "values": values,
        # The value at the next valid token.
        "v_t": jnp.array([values[1], values[3], values[3], *values[4:], 0.0]),
        "r_t": normal(steps) * kept,
        "discount_t": jnp.full(steps, 0.99),
        "sample_mask": kept,
    }


def rows(page):
    """Return the code of each row of the tables of a page, by the first cell."""
    text = (FOLDER / f"{page}.md").read_text(encoding="utf-8")
    tables = re.findall(r"((?:^\|.*\n)+)", text, re.M)
    heads = [table.splitlines()[:2] for table in tables]
    # A row that cannot be run belongs into a sentence.
    assert all(re.fullmatch(r"\|.*\|.*\| \|", head) for head, _ in heads)
    lines = [x[1:-1].split("|") for table in tables for x in table.splitlines()[2:]]
    found = {cells[0].strip().replace("`", ""): cells[1].strip() for cells in lines}
    assert len(found) == len(lines), "Two rows have the same first cell."
    assert all(ours[:1] == ours[-1:] == "`" for ours in found.values())
    return {each: re.findall("`(.+?)`", ours) for each, ours in found.items()}


def load(page):
    """Return the module of a page, and the names in the code of its rows."""
    with default_settings():
        # The inputs of a page do not depend on the pages before it.
        _RANDOM.bit_generator.state = _SEED
        module = importlib.import_module(f"from_pages.{page}")
    names = vars(rlaxlib) | {"jax": jax, "jnp": jnp, "optax": optax, "rlaxlib": rlaxlib}
    text = (FOLDER / f"{page}.md").read_text(encoding="utf-8")
    codes = re.findall(r"```python\n((?!>>>).*?)```", text, re.S)
    # Rows also use functions of the pages of the guide that the page links to.
    for path in {*re.findall(r"\.\./(guide/\w+\.md)", text)}:
        guide = (FOLDER.parent / path).read_text(encoding="utf-8")
        codes += re.findall(r"```python\n(def .*?)```", guide, re.S)
    for code in codes:
        exec(code, names)
    return module, names


def formula_of(row):
    """Return a formula, and the names of the inputs that it takes."""
    if isinstance(row, tuple):
        return row[0], row[1].split()
    parameters = inspect.signature(row).parameters.values()
    return row, [each.name for each in parameters if each.default is each.empty]


def outputs_and_gradients(function, inputs):
    """Return the outputs of a function, and the gradients of a fixed sum of them."""

    def total(inputs):
        outputs = jax.tree.leaves(function(**inputs))
        sums = [jnp.sum(jnp.cos(jnp.arange(x.size)) * x.ravel()) for x in outputs]
        return sum(sums), outputs

    # One program compiles faster than its operations.
    gradients, outputs = jax.jit(jax.grad(total, has_aux=True))(inputs)
    return outputs, gradients


def check(page, row):
    """Compare the code of a row with the formula of the other library."""
    module, names = load(page)
    codes = rows(page)[row]
    formula, used = formula_of(module.ROWS[row])

    def ours(**inputs):
        return [eval(code, names | module.INPUTS | inputs) for code in codes]

    def theirs(**inputs):
        return formula(*((module.INPUTS | inputs)[name] for name in used))

    trained = module.TRAINED & {*used} & {*re.findall(r"\w+", " ".join(codes))}
    inputs = {name: module.INPUTS[name] for name in trained}
    with default_settings():
        found = outputs_and_gradients(ours, inputs)
        expected = outputs_and_gradients(theirs, inputs)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)
