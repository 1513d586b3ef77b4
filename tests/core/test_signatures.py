"""Test checked signatures: what fits, what does not, and what the error says."""

import gc
import traceback
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlaxlib
from rlaxlib._core import specs
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import ArrayLike, Bool, Float, Int, Key, Real, Shaped, Static

ArgumentError = rlaxlib.ArgumentError


def one(annotation, **options):
    """Make a checked function of one argument."""

    @checked(**options)
    def learn(x: annotation):
        return x

    return learn


def two(of_x, of_y, default=0.0):
    """Make a checked function of two arguments."""

    @checked
    def learn(x: of_x, y: of_y = default):
        return x, y

    return learn


VECTOR, SCALAR = Float[ArrayLike, "T"], Float[ArrayLike, ""]

# --- Shapes and kinds. ---


@pytest.mark.parametrize(
    ("value", "spec"),
    [
        (1.0, Float[ArrayLike, ""]),
        (1, Float[ArrayLike, ""]),
        (1, Int[ArrayLike, ""]),
        (True, Bool[ArrayLike, ""]),
        (np.ones(3), Float[ArrayLike, "T"]),
        (np.ones(4), Float[ArrayLike, "T+1"]),
        (np.ones((3, 2)), Float[ArrayLike, "T, A"]),
        (np.ones((3, 2)), Float[ArrayLike, "3, A"]),
        (np.ones(3), Float[ArrayLike, "[] or [T]"]),
        (1.0, Float[ArrayLike, "[] or [T]"]),
        (np.ones((5, 4, 3)), Float[ArrayLike, "..., A"]),
        (np.ones(3), Float[ArrayLike, "..., A"]),
        (np.ones((5, 4)), Float[ArrayLike, "..."]),
        (np.ones((5, 4)), Float[ArrayLike, "*B"]),
        (np.ones((5, 4, 3)), Float[ArrayLike, "T, ..."]),
        (np.ones(5), Float[ArrayLike, "T, ..."]),
        (np.ones((5, 4, 3)), Float[ArrayLike, "T, ..., 3"]),
        (np.ones(3, np.uint8), Int[ArrayLike, "T"]),
        (np.ones(3, bool), Bool[ArrayLike, "T"]),
        (np.ones(3, np.uint8), Shaped[ArrayLike, "T"]),
        (jnp.ones(3, jnp.bfloat16), Float[ArrayLike, "T"]),
    ],
)
def test_accepts_what_fits(value, spec):
    array = one(spec)(value)
    assert isinstance(array, jax.Array)
    np.testing.assert_array_equal(array, value)


def test_accepts_keys_of_both_kinds_and_no_other_words():
    sample = one(Key[ArrayLike, ""])
    for key in (jax.random.key(0), jax.random.PRNGKey(0)):
        assert sample(key).dtype == key.dtype
    for wrong in (np.uint32(0), np.zeros((2, 2), np.uint32)):
        with pytest.raises(ArgumentError, match=r"`x` (is|has) "):
            sample(wrong)


@pytest.mark.parametrize(
    ("value", "spec"),
    [
        (np.ones(3), Float[ArrayLike, ""]),
        (1.0, Float[ArrayLike, "T"]),
        (np.ones((3, 2)), Float[ArrayLike, "T"]),
        (np.ones(0), Float[ArrayLike, "T"]),
        (np.ones(1), Float[ArrayLike, "T+1"]),
        (np.ones((4, 2)), Float[ArrayLike, "3, A"]),
        (1.0, Float[ArrayLike, "..., A"]),
        (np.ones(5), Float[ArrayLike, "T, B, ..."]),
        (np.ones((5, 4)), Float[ArrayLike, "T, ..., 3"]),
        (np.ones(3, int), Float[ArrayLike, "T"]),
        (np.ones(3), Int[ArrayLike, "T"]),
        (np.ones(3, int), Bool[ArrayLike, "T"]),
        (1.0, Int[ArrayLike, ""]),
        (True, Float[ArrayLike, ""]),
        ("text", Shaped[ArrayLike, ""]),
        ([1.0, 2.0], Shaped[ArrayLike, "T"]),
        (None, Shaped[ArrayLike, ""]),
    ],
)
def test_refuses_what_does_not_fit(value, spec):
    with pytest.raises(ArgumentError, match=r"`x` (is|has) .*, must be "):
        one(spec)(value)


def test_a_named_axis_has_one_size_in_all_arguments():
    longer = Float[ArrayLike, "T+1"]
    two(VECTOR, longer)(np.ones(3), np.ones(4))
    two(longer, VECTOR)(np.ones(4), np.ones(3))
    wrong = r"`y` is float64\[3\], must be float\[T\+1\], where T = 3 by `x`"
    with pytest.raises(ArgumentError, match=wrong):
        two(VECTOR, longer)(np.ones(3), np.ones(3))


def test_further_axes_are_the_same_in_all_arguments():
    learn = two(Float[ArrayLike, "T, ..."], Float[ArrayLike, "..., A"])
    learn(np.ones((3, 2)), np.ones((2, 4)))
    wrong = r"`y` is .*, must be float\[\.\.\., A\], where \.\.\. = \(2,\) by `x`"
    with pytest.raises(ArgumentError, match=wrong):
        learn(np.ones((3, 2)), np.ones((5, 4)))
    starred = two(Float[ArrayLike, "T, ..."], Float[ArrayLike, "*B, A"])
    starred(np.ones((3, 2)), np.ones((5, 4)))


def test_an_argument_of_several_shapes_takes_the_sizes_of_the_others():
    learn = two(Float[ArrayLike, "[...] or [N, ...]"], Float[ArrayLike, "..., A"])
    learn(np.ones((5, 3)), np.ones((3, 2)))
    with pytest.raises(ArgumentError, match=r"`x` is float64\[5, 4\], must be"):
        learn(np.ones((5, 4)), np.ones((3, 2)))


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        (bool, "Flag"),
        (Literal["k1", "k2"] | None, "Literal"),
        (tuple[VECTOR, SCALAR], "Tuple"),
        (Sequence[tuple[VECTOR, SCALAR]], "Sequence"),
        (Sequence[VECTOR] | None, "Sequence"),
        (str | Sequence[str] | None, "Setting"),
        (jax.typing.DTypeLike, "Setting"),
        (Callable[[Any], Any] | None, "Other"),
        (rlaxlib.BanditState, "Record"),
        (rlaxlib.TxPair, "Other"),
        (tuple[int, str], "Other"),
    ],
)
def test_an_annotation_is_read_as_what_it_is(annotation, kind):
    assert specs.read(annotation).kind == kind


# --- Rules for values. ---

RULES = [
    (Float[ArrayLike, "in [0, 1)"], 0.0, 1.0),
    (Float[ArrayLike, "in (0, inf)"], 1e9, 0.0),
    (Float[ArrayLike, "[] or [T] in [0, inf]"], np.inf, -1),
    (Float[ArrayLike, "in (-inf, inf)"], -1e30, np.nan),
    (Int[ArrayLike, "in [0, T)"], 2, 3),
    (Int[ArrayLike, "in [0, T)"], 0, -1),
    (Int[ArrayLike, "T in [0, T)"], np.array([0, 1, 2]), np.array([0, 1, 3])),
    (Float[ArrayLike, "T in {0, 1}"], np.array([0.0, 1, 1]), np.array([0.0, 0.5, 1])),
    (Float[ArrayLike, "T ascending"], np.array([1.0, 1, 2]), np.array([1.0, 2, 1])),
    (Float[ArrayLike, "T increasing"], np.array([1.0, 1.5, 2]), np.array([1.0, 2, 2])),
    (Float[ArrayLike, "T ascending in [0, 1]"], np.zeros(3), np.full(3, 2.0)),
    (Float[ArrayLike, "in [0, 1]"] | None, None, 1.5),
    (Static[int, "in [1, inf)"], 1, 0),
    (Static[int, "in [1, T]"], np.int64(3), 4),
    (Static[float, "in (0, inf)"], 1, 0.0),
]


@pytest.mark.parametrize(("spec", "valid", "invalid"), RULES)
def test_rules_hold_for_literals_in_traced_programs_too(spec, valid, invalid):
    def call(y):
        return jax.eval_shape(lambda x: two(VECTOR, spec)(x, y)[0], jnp.ones(3))

    call(valid)
    with pytest.raises(ArgumentError, match=r"^learn: `y` is .*, must "):
        call(invalid)


def test_an_error_shows_the_interval_with_sizes():
    learn = two(VECTOR, Int[ArrayLike, "in [0, T)"])
    with pytest.raises(ArgumentError, match=r"`y` is 3, must be in \[0, 3\)"):
        learn(np.ones(3), np.int32(3))


def test_a_bound_may_be_another_argument():
    learn = two(SCALAR, Float[ArrayLike, "[] or [T] in [x, inf)"])
    learn(1.0, np.array([1.0, 2.0]))
    with pytest.raises(ArgumentError, match=r"`y` is 0\.5, must be in \[1, inf\)"):
        learn(1.0, np.array([1.0, 0.5]))
    jax.jit(lambda x: learn(x, 0.5))(1.0)  # A bound that is traced is not known.


def test_ranges_are_checked_of_values_on_the_host_and_no_others():
    learn = two(VECTOR, Float[ArrayLike, "[] or [T] in [0, 1]"])
    for wrong in (2.0, np.float32(2.0), np.array(2.0), np.full(3, 2.0), np.nan):
        with pytest.raises(ArgumentError, match=r"must be in \[0, 1\]"):
            learn(np.ones(3), wrong)
    x, scalar, array = jnp.ones(3), jnp.float32(2.0), jnp.full(3, 2.0)
    with jax.transfer_guard("disallow"):  # Reading a scalar would wait for the device.
        learn(x, scalar)
        learn(x, array)
    jax.jit(lambda y: learn(np.ones(3), y))(2.0)


def test_ranges_are_checked_at_valid_steps_on_the_host():
    @checked
    def learn(
        low: Float[ArrayLike, "T"],
        x: Float[ArrayLike, "T in [low, 1]"],
        sample_mask: Bool[ArrayLike, "T"] | None = None,
    ):
        return x

    low, mask = np.array([-9.0, 0.0, 0.0]), np.array([False, True, True])
    wrong = np.array([0.5, 0.5, -1.0])
    for masks in [(mask,), ()]:
        with pytest.raises(ArgumentError, match=r"`x` is -1\.0, must be in \[0, 1\]"):
            learn(low, wrong, *masks)
    learn(low, wrong, ~mask)
    learn(low, wrong, jnp.asarray(mask))  # Which steps are valid is not known here.
    learn(low, np.array([np.nan, 0.5, 1.0]), mask)


# --- Flags, options and Python values. ---


def test_a_flag_is_a_bool_or_a_traced_scalar():
    stop = one(bool)
    for value in (True, np.bool_(False), jnp.asarray(True)):
        assert bool(stop(value)) == bool(value)
    assert jax.jit(stop)(True)
    for wrong in ("false", 1, None, jnp.ones(3, bool), np.ones(3, bool)):
        with pytest.raises(ArgumentError, match=r"`x` is .*, must be bool\[\]"):
            stop(wrong)


def test_a_mask_in_the_place_of_a_flag_is_told_to_be_passed_by_keyword():
    r_t, cut = jnp.ones(3), jnp.array([False, True, False])
    with pytest.raises(ArgumentError, match=r"pass `truncated_t` .* by keyword"):
        rlaxlib.lambda_returns(r_t, r_t, r_t, 1.0, cut)


def test_an_option_is_one_of_its_strings():
    choose = one(Literal["k1", "k2", "k3"], compiled=False)
    assert choose("k2") == "k2"
    wrong = r"`x` is 'k4', must be \"k1\" or \"k2\" or \"k3\""
    with pytest.raises(ArgumentError, match=wrong):
        choose("k4")


@pytest.mark.parametrize("value", [1.0, True, "1", None, jnp.ones(())])
def test_a_static_integer_is_a_python_integer(value):
    with pytest.raises(ArgumentError, match=r"`x` is .*, must be a Python integer"):
        one(Static[int, ""], compiled=False)(value)


def test_a_traced_value_where_a_python_value_is_needed_is_to_be_static():
    with pytest.raises(ArgumentError, match=r"traced, must be .* static_argnames"):
        jax.jit(one(Static[int, ""]))(1)


# --- States. ---


class Counter(NamedTuple):
    mean: Float[ArrayLike, "D"]
    count: Int[ArrayLike, "in [0, inf)"] = 0


@checked
def update(x: VECTOR, state: Counter):
    return Counter(state.mean + jnp.sum(x), state.count + 1)


def test_the_fields_of_a_state_are_checked():
    state = update(jnp.ones(2), Counter(jnp.zeros(3)))
    assert state.count == 1
    with pytest.raises(ArgumentError, match=r"^update: `state.mean` is 0\.0, must be"):
        update(jnp.ones(2), Counter(0.0))
    with pytest.raises(ArgumentError, match=r"^update: `state.count` is -1, must be"):
        update(jnp.ones(2), Counter(jnp.zeros(3), -1))


def test_data_in_the_place_of_a_state_are_named():
    with pytest.raises(ArgumentError, match=r"`state` is .*, must be a `Counter`\.$"):
        update(Counter(jnp.zeros(3)), jnp.ones(2))


# --- What an error says. ---


@pytest.mark.parametrize(
    ("x", "spec", "problem"),
    [
        (np.ones((2, 3)), VECTOR, r"`x` is float64\[2, 3\], must be float\[T\]"),
        (np.ones(0), VECTOR, r"`x` is float64\[0\], must be float\[T\] and not empty"),
        (np.ones(3, int), VECTOR, r"`x` is int64\[3\], must be float\[T\]"),
        (0, Key[ArrayLike, ""], r"`x` is 0, must be key\[\]\.\nTry `jax.random"),
        ("text", Int[ArrayLike, ""], r"`x` is 'text', must be int\[\]"),
    ],
)
def test_an_error_names_function_argument_found_and_expected(x, spec, problem):
    with pytest.raises(ArgumentError, match=f"^learn: {problem}"):
        two(spec, SCALAR)(x)


def test_a_method_is_named_by_its_public_function():
    pi, logits = rlaxlib.softmax(), jnp.zeros(3)
    with pytest.raises(ArgumentError, match=r"^Softmax\.log_prob: `sample` is 3, must"):
        pi.logprob(3, logits)
    with pytest.raises(TypeError, match=r"^Softmax\.probs\(\) missing .*'logits'"):
        pi.probs()
    with pytest.raises(ArgumentError, match=r"^Softmax\.sample: `key` is float32\[3\]"):
        pi.sample(logits, logits)


def test_a_call_with_unknown_or_repeated_arguments_is_a_type_error():
    learn = two(VECTOR, SCALAR)
    x = jnp.ones(3)
    with pytest.raises(TypeError, match=r"^learn\(\) got .*'z': .* \(x, y=0.0\)"):
        learn(x, z=1.0)
    with pytest.raises(TypeError, match=r"^learn\(\) .*'x'"):
        learn(x, x=x)
    with pytest.raises(TypeError, match=r"^learn\(\) too many positional"):
        learn(x, 1.0, 2.0)


def test_the_traceback_has_at_most_two_frames_of_the_library():
    x = jnp.ones(3)
    for call in (
        lambda: rlaxlib.lambda_returns(x, x, x[1:]),
        lambda: jax.jit(rlaxlib.lambda_returns)(x, x, x[1:]),
        lambda: rlaxlib.quantile_q_learning(
            x[:, None], x, 0, 1.0, 1.0, None, x[:, None]
        ),
    ):
        with pytest.raises(ArgumentError) as error:
            call()
        frames = traceback.extract_tb(error.value.__traceback__)
        assert sum("/rlaxlib/_core/" in frame.filename for frame in frames) <= 2
        assert not any("/rlaxlib/values/" in frame.filename for frame in frames)


# --- Conversions. ---


def test_half_precision_is_raised_and_the_result_cast_back():
    seen = []

    def function(x: VECTOR, y: SCALAR = 2.0):
        seen.append(x.dtype)
        return x * y, x > 0

    x = jnp.ones(3, jnp.bfloat16)
    product, positive = checked(function)(x)
    assert product.dtype == jnp.bfloat16
    assert positive.dtype == bool
    assert checked(wide=True)(function)(x)[0].dtype == jnp.float32
    with jax.numpy_dtype_promotion("standard"):
        assert checked(function)(x, jnp.float32(2.0))[0].dtype == jnp.float32
    assert set(seen) == {jnp.dtype(jnp.float32)}


def test_arguments_are_zero_at_ignored_steps():
    @checked
    def learn(
        x: Float[ArrayLike, "T"],
        table: Float[ArrayLike, "T, A"],
        scale: Float[ArrayLike, "[] or [T]"],
        other: Float[ArrayLike, "N"],
        sample_mask: Bool[ArrayLike, "T"] | None = None,
    ):
        del sample_mask
        return x, table, scale, other

    mask = jnp.array([True, False])
    bad = jnp.array([1.0, jnp.nan])
    x, table, scale, other = learn(bad, jnp.stack([bad, bad], 1), bad, bad, mask)
    for array in (x, scale, table[:, 0]):
        np.testing.assert_array_equal(array, [1.0, 0.0])
    assert jnp.isnan(other[1])
    assert jnp.isnan(learn(bad, jnp.ones((2, 1)), 1.0, bad)[0][1])


def test_states_between_ignored_steps_are_zero_and_not_checked():
    @checked
    def learn(
        states: Float[ArrayLike, "T+1 in [0, 9]"],
        between: Float[ArrayLike, "[T-1] or [T] in [0, 9]"],
        sample_mask: Bool[ArrayLike, "T"] | None = None,
    ):
        del sample_mask
        return states, between

    mask, nan = np.array([False, False, True, False]), np.nan
    for between in (np.array([nan, nan, 3.0]), np.array([nan, nan, 3.0, nan])):
        found = learn(np.array([nan, nan, 2.0, 3.0, nan]), between, mask)
        np.testing.assert_array_equal(found[0], [0.0, 0.0, 2.0, 3.0, 0.0])
        np.testing.assert_array_equal(found[1], [0.0, 0.0, 3.0, 0.0][: len(between)])
    with pytest.raises(ArgumentError, match="`states` is nan"):
        learn(np.array([1.0, 1.0, 2.0, nan, 1.0]), between[:3], mask)


def test_results_are_zero_at_ignored_steps():
    class Outputs(NamedTuple):
        ratio: Float[jax.Array, "T"]
        index: Int[jax.Array, "T"]
        total: Float[jax.Array, ""]

    @checked
    def learn(
        x: Float[ArrayLike, "T"],
        sample_mask: Bool[ArrayLike, "T"] | None = None,
    ) -> tuple[Bool[jax.Array, "T"], Outputs]:
        return x == 0, Outputs(jnp.exp(x), jnp.arange(x.size), jnp.sum(jnp.exp(x)))

    mask = jnp.array([True, False])
    is_zero, outputs = learn(jnp.zeros(2), mask)
    np.testing.assert_array_equal(is_zero, mask)
    np.testing.assert_array_equal(outputs.ratio, [1.0, 0.0])
    np.testing.assert_array_equal(outputs.index, [0, 1])  # An index is not set to 0.
    assert outputs.total == 2


def test_padding_is_not_checked_against_rules():
    @checked
    def learn(
        a: Int[ArrayLike, "T in [0, 4)"],
        sample_mask: Bool[ArrayLike, "T"] | None = None,
    ):
        del sample_mask
        return a

    padded = np.array([1, -1])
    np.testing.assert_array_equal(learn(padded, np.array([True, False])), [1, 0])
    with pytest.raises(ArgumentError, match="`a` is -1"):
        learn(padded)


# --- Compiled bodies. ---


def test_a_body_is_compiled_once_for_each_set_of_types_and_options():
    traces = []

    @checked
    def learn(x: VECTOR, n: Static[int, ""] = 1, flag: bool = True):
        traces.append((n, flag))
        return x * n

    for _ in range(3):
        learn(jnp.ones(3))
        learn(np.full(3, 2.0))
        learn(jnp.ones(3), n=2)
        learn(jnp.ones(3), flag=False)
    assert sorted(traces) == [(1, False), (1, True), (2, True)]


def test_a_number_is_no_reason_to_compile_again():
    traces = []

    @checked
    def learn(x: VECTOR, y: SCALAR = 1.0):
        traces.append(0)
        return x * y

    for y in (0.5, 1, 2.0):
        np.testing.assert_array_equal(learn(jnp.ones(2), y), [y, y])
    assert len(traces) == 1


def test_a_function_of_the_user_is_called_at_each_call_and_not_compiled():
    @checked
    def learn(x: VECTOR, function: Callable[[Any], Any]):
        return function(x)

    scale = 1.0

    def scaled(x):
        assert not isinstance(x, jax.core.Tracer)
        return scale * x

    for scale in (1.0, 2.0):
        np.testing.assert_array_equal(learn(jnp.ones(2), scaled), [scale, scale])


def test_a_function_of_the_user_is_not_kept():
    @checked
    def learn(x: VECTOR, function: Callable[[Any], Any]):
        return function(x)

    class Scaled:
        def __call__(self, x):
            return 2 * x

    functions = [Scaled() for _ in range(3)]
    for each in functions:
        learn(jnp.ones(2), each)
    kept = [weakref.ref(each) for each in functions]
    del functions, each
    gc.collect()
    assert not any(ref() for ref in kept)


def test_an_error_of_a_function_of_the_user_keeps_text_and_traceback():
    @checked
    def learn(x: VECTOR, function: Callable[[Any], Any]):
        return function(x)

    def misuses(x):
        return rlaxlib.huber_loss(x, delta=-1.0)

    def raises(x):
        raise ArgumentError("my own words")

    for function, text in ((misuses, "huber_loss: `delta`"), (raises, "my own words")):
        with pytest.raises(ArgumentError, match=f"^{text}") as error:
            learn(jnp.ones(2), function)
        frames = traceback.extract_tb(error.value.__traceback__)
        assert function.__name__ in [frame.name for frame in frames]


def test_arrays_of_integers_given_as_real_numbers_become_floats():
    @checked
    def learn(x: Real[ArrayLike, "..."]):
        return x

    for x in (np.int8(3), jnp.asarray(3), jnp.arange(3), 3):
        assert jnp.issubdtype(learn(x).dtype, jnp.floating)


def test_dtypes_do_not_depend_on_the_settings_of_earlier_calls():
    @checked
    def learn(x: Real[ArrayLike, "T"]):
        return x

    x = np.arange(3, dtype=np.int32)
    assert learn(x).dtype == np.float32
    with contract.x64(True):
        assert learn(x).dtype == np.float64
    assert learn(x).dtype == np.float32


def test_a_body_leaves_no_trace_in_another_program():
    program = jax.make_jaxpr(lambda x: two(VECTOR, SCALAR)(x)[0])(jnp.ones(3))
    assert not program.eqns


def test_a_body_can_be_stepped_through():
    seen = []

    @checked
    def learn(x: SCALAR):
        seen.append(x)
        return x

    with jax.disable_jit():
        learn(2.0)
    assert float(seen[0]) == 2.0


def test_a_program_may_be_traced_under_a_transfer_guard():
    x = jnp.ones(3)
    with jax.transfer_guard("disallow"):
        jax.jit(two(VECTOR, SCALAR)).trace(x)
        jax.jit(lambda x: rlaxlib.lambda_returns(x, x, x, 0.9)).trace(x)
        jax.jit(lambda x: two(VECTOR, SCALAR)(x, 1)).trace(x)


# --- Errors of parts. ---


def test_an_entry_of_the_wrong_type_is_shown_and_not_the_whole():
    penalty = rlaxlib.LagrangePenalty(1.0, 0.1)
    with pytest.raises(ArgumentError) as error:  # A pair in place of a list of pairs.
        rlaxlib.mpo_loss(np.ones(5, "f4"), np.ones(5, "f4"), penalty, (1.0, penalty))
    assert (
        str(error.value) == "mpo_loss: `kl_constraints[0]` is 1.0, must be a `tuple`."
    )
