"""Test the check of a batch of answers: what it reports, and what it lets pass."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close
from jax.experimental import checkify

import rlaxlib

RNG = np.random.default_rng(0)
END, PAD = 1, 0
# Two tokens of a prompt, an answer, the token that ends it, and padding.
LENGTHS = np.array([3, 5, 4, 6])
PLACE = np.arange(10) - 2
MASK = (PLACE >= 0) & (LENGTHS[:, None] > PLACE)
TOKENS = np.where(MASK | (PLACE < 0), RNG.integers(2, 9, (4, 10)), PAD)
TOKENS = np.where(LENGTHS[:, None] - 1 == PLACE, END, TOKENS)
LOG_PROB = np.float32(-RNG.uniform(0.1, 3.0, (4, 10)))
GOOD = {
    "tokens": TOKENS,
    "log_prob": LOG_PROB,
    "old_log_prob": LOG_PROB + np.float32(RNG.normal(scale=0.01, size=(4, 10))),
    "rewards": np.float32([1, 0, 0, 1]),
    "end_token": END,
    "sample_mask": MASK,
    "group_ids": np.array([0, 0, 1, 1]),
}


def moved(x, by):
    return np.roll(x, by, axis=1)


def packed():
    """Return the batch as two rows of two answers each."""
    rows = {
        name: x.reshape(2, 20) for name, x in GOOD.items() if np.shape(x) == (4, 10)
    }
    ids = np.repeat([[0, 1]], 10, axis=1).repeat(2, axis=0)
    return GOOD | rows | {"segment_ids": ids}


# Two answers of a prompt, two tokens and the end.
DENSE = np.array([[5, 6, 7, 1, 5, 6, 7, 1]])
DENSE_MASK = np.array([[False, True, True, True] * 2])


def with_impossible(x):
    return np.where(PLACE == 0, -np.inf, x).astype(np.float32)


BAD = {
    "shifted by 1": ({"sample_mask": moved(MASK, 1)}, "is True after 4 `end_token`"),
    "shifted by -1": (
        {"sample_mask": moved(MASK, -1)},
        "`sample_mask` ends before the `end_token` of 4 answers",
    ),
    "inverted": (
        {"sample_mask": ~MASK},
        "`sample_mask` ends with `end_token` in none of 4 answers",
    ),
    "padding is the end": (
        {"tokens": np.where(TOKENS == PAD, END, TOKENS), "sample_mask": TOKENS > END},
        "`sample_mask` ends with `end_token` in none of 4 answers",
    ),
    "empty": ({"sample_mask": MASK & False}, "`sample_mask` is False everywhere"),
    "negative": ({"log_prob": -LOG_PROB}, "`log_prob` is 2.6"),
    "probabilities": ({"log_prob": np.exp(LOG_PROB)}, "at a valid token, above 0"),
    "zeros": (
        {"old_log_prob": 0 * LOG_PROB},
        "`old_log_prob` is 0 at all valid tokens",
    ),
    "impossible": (
        {"log_prob": with_impossible(LOG_PROB)},
        "`log_prob` is infinite or NaN at 4 valid tokens",
    ),
    "other tokens": (
        {"old_log_prob": moved(LOG_PROB, 1)},
        "the effective fraction is 0.",
    ),
    "temperature": ({"old_log_prob": 0.7 * LOG_PROB}, "the mean log-ratio is -0.4"),
    "equal rewards": (
        {"rewards": np.float32([0.2] * 4)},
        "all 2 groups have equal rewards",
    ),
    "groups of one": ({"group_ids": np.arange(4)}, "all 4 groups have one answer"),
    "group ids": ({"group_ids": np.array([0, 0, 4, 4])}, "`group_ids` has 2 out of"),
    "NaN reward": (
        {"rewards": np.float32([1, 0, 0, np.nan])},
        "`rewards` has 1 that are infinite or NaN",
    ),
    "segments out of range": (
        packed() | {"segment_ids": np.repeat([[0, 20]], 10, axis=1).repeat(2, axis=0)},
        "`segment_ids` is out of range at 11 valid tokens",
    ),
    "positions": (
        packed() | {"segment_ids": np.tile(np.arange(10), (2, 2))},
        "`segment_ids` has an answer that goes on after another in 2 rows",
    ),
    "shifted in packed rows": (
        {
            "tokens": DENSE,
            "log_prob": -np.ones((1, 8), np.float32),
            "old_log_prob": None,
            "sample_mask": moved(DENSE_MASK, 1),
            "segment_ids": np.repeat([[0, 1]], 4, axis=1),
        },
        "`sample_mask` goes on from one answer to the next at 1 tokens",
    ),
    "negative tokens": (
        {"tokens": np.where(PLACE == 0, -100, TOKENS)},
        "`tokens` is negative at 4 valid tokens",
    ),
    "positions of a row": (
        packed() | {"segment_ids": np.tile(np.arange(20), (2, 1))},
        "`segment_ids` has another answer at each of 18 valid tokens",
    ),
}
WRONG = {
    "one row too many": (
        {"rewards": np.ones(5, np.float32), "group_ids": None},
        "`rewards` has 5 entries, must have 4",
    ),
    "groups without rewards": ({"rewards": None}, "`rewards` is None, must be given"),
}
CHECK = jax.jit(checkify.checkify(lambda x: rlaxlib.check_answers(**x)))


def test_statistics_of_a_consistent_batch():
    for batch in (GOOD, packed()):
        error, found = CHECK(jax.tree.map(jnp.asarray, batch))
        assert error.get() is None
        log_ratio = (GOOD["log_prob"] - GOOD["old_log_prob"])[MASK]
        close(found.mean_log_ratio, np.mean(log_ratio), atol=1e-7)
        ratio = np.exp(log_ratio)
        close(found.effective_fraction, np.mean(ratio) ** 2 / np.mean(ratio**2))
        assert (found.ended, found.single, found.equal) == (1, 0, 0)


def test_an_infinite_bound_of_the_log_ratio_is_none():
    bounds = {"max_log_ratio": np.inf, "min_effective_fraction": 0.0}
    far = {"old_log_prob": LOG_PROB - np.float32(1)}
    close(rlaxlib.check_answers(**GOOD | far, **bounds).mean_log_ratio, 1.0)


def test_statistics_count_answers_and_groups():
    ids, rewards = np.array([3, 0, 3, 1, 1]), np.float32([1, 1, 1, 0, 1])
    cut = np.where(np.arange(4)[:, None] < 1, 5, TOKENS)
    found = rlaxlib.check_answers(**GOOD | {"tokens": cut})
    close(found.ended, 0.75)
    five = {"tokens": TOKENS, "log_prob": LOG_PROB, "sample_mask": MASK}
    five = {name: x[[0, 1, 2, 3, 3]] for name, x in five.items()}
    found = rlaxlib.check_answers(**five, rewards=rewards, group_ids=ids)
    close([found.single, found.equal], [1 / 3, 2 / 3])
    assert found.ended is None
    assert rlaxlib.check_answers(TOKENS, LOG_PROB) == (None,) * 5


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_is_reported_directly_and_through_checkify(case):
    changed, message = BAD[case]
    batch = GOOD | changed
    with pytest.raises(rlaxlib.ArgumentError) as raised:
        rlaxlib.check_answers(**batch)
    assert message in str(raised.value)
    error, _ = CHECK(jax.tree.map(jnp.asarray, batch))
    assert error.get().startswith("check_answers: ")


@pytest.mark.parametrize("case", WRONG)
def test_numbers_of_rewards_are_those_of_answers(case):
    changed, message = WRONG[case]
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        rlaxlib.check_answers(**GOOD | changed)


def test_most_answers_may_be_cut_where_padding_is_the_end_token():
    tokens = np.array([[5, 6, 1, 1, 1], [5, 7, 7, 1, 1], [5, 7, 1, 1, 1]])
    mask = np.array([[0, 1, 1, 0, 0], [0, 1, 1, 0, 0], [0, 1, 0, 0, 0]], bool)
    log_prob = np.full((3, 5), -1.0, np.float32)
    found = rlaxlib.check_answers(tokens, log_prob, end_token=1, sample_mask=mask)
    close(found.ended, 1 / 3)


def test_all_mistakes_are_reported_at_once():
    with pytest.raises(rlaxlib.ArgumentError) as raised:
        rlaxlib.check_answers(**GOOD | BAD["negative"][0] | BAD["inverted"][0])
    for case in ("negative", "inverted"):
        assert BAD[case][1][:12] in str(raised.value)


def test_ignored_tokens_may_hold_anything():
    batch = {
        name: np.where(MASK, GOOD[name], np.float32(np.nan))
        for name in ("log_prob", "old_log_prob")
    }
    assert rlaxlib.check_answers(**GOOD | batch).ended == 1
    ids = np.where(packed()["sample_mask"], packed()["segment_ids"], -1)
    assert rlaxlib.check_answers(**packed() | {"segment_ids": ids}).ended == 1


def test_an_answer_may_have_turns_and_be_cut():
    """A tool wrote between two turns, each of which ends; another answer is cut."""
    tokens = np.array([[5, 1, 7, 7, 5, 1], [5, 6, 7, 5, 6, 7]])
    mask = np.array([[True, True, False, False, True, True], [True] * 6])
    log_prob = np.full((2, 6), -1.0, np.float32)
    found = rlaxlib.check_answers(tokens, log_prob, end_token=1, sample_mask=mask)
    close(found.ended, 0.5)
