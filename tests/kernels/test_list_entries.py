"""Lists become entries, and entries levels; both tiers agree with a walk over Python lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.tiers import Tier, force_tier

from glaive.kernels.list_levels import end_slots, number_ends, spread_lists

TIERS: list[Tier] = ["numpy", "numba"]
NULL, EMPTY = 7, 8

Outside = tuple[Any, Any, Any, int]
"""``rep``, ``ended``, ``outer`` and the number of slots."""


@st.composite
def outsides(draw: st.DrawFn) -> Outside:
    """Entries as outer layers leave them: what has ended at a list has ended for good."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    entries = draw(st.integers(0, 200))
    rep = rng.integers(0, 3, entries).astype(np.uint16) if draw(st.booleans()) else None
    outer = rng.choice([0, 0, 1, 2], entries).astype(np.uint8) if draw(st.booleans()) else None
    ended = outer
    if draw(st.booleans()):
        fresh = rng.choice([0, 0, 3], entries).astype(np.uint8)
        ended = fresh if outer is None else np.where(outer == 0, fresh, outer)
    slots = entries if outer is None else int((outer == 0).sum())
    return rep, ended, outer, slots


def _walk(outside: Outside, lengths: list[int], valid: list[bool]) -> dict[str, Any]:
    """What :func:`spread_lists` is to answer, entry by entry."""
    rep, ended, outer, _ = outside
    entries = next((len(part) for part in (rep, ended, outer) if part is not None), len(lengths))
    seen: dict[str, Any] = {
        "rep": [], "ended": [], "nulls": 0, "empties": 0, "ended_outside": 0, "dropped": 0
    }  # fmt: skip
    slot = 0
    for entry in range(entries):
        level = 0 if rep is None else int(rep[entry])
        end = 0 if ended is None else int(ended[entry])
        if outer is not None and outer[entry]:
            seen["rep"].append(level)
            seen["ended"].append(end)
            continue
        length, is_valid = lengths[slot], valid[slot]
        slot += 1
        if end:
            seen["ended_outside"] += 1
        elif not is_valid:
            seen["nulls"] += 1
            end = NULL
        elif not length:
            seen["empties"] += 1
            end = EMPTY
        seen["dropped"] += bool(end and length)
        repeated = 0 if end else length - 1
        seen["rep"] += [level] + [5] * repeated
        seen["ended"] += [end] + [0] * repeated
    return seen


@given(outsides(), st.booleans(), st.integers(0, 2**32))
def test_every_item_and_every_list_without_items_becomes_an_entry(
    outside: Outside, has_nulls: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    rep, ended, outer, slots = outside
    lengths = rng.choice([0, 1, 1, 2, 30], slots).astype(np.int64)
    valid = rng.random(slots) < 0.8 if has_nulls else None
    flags = [True] * slots if valid is None else valid.tolist()
    expected = _walk(outside, lengths.tolist(), flags)
    entries = len(ended) if ended is not None else len(rep) if rep is not None else slots
    for tier in TIERS:
        with force_tier(tier):
            lists = spread_lists(
                rep, ended, outer, lengths, valid,
                entries=entries, repeated=5, null_code=NULL, empty_code=EMPTY,
            )  # fmt: skip
        found = lists._asdict()
        found["rep"] = lists.rep.tolist()
        found["ended"] = [0] * len(lists.rep) if lists.ended is None else lists.ended.tolist()
        assert found == expected


@given(outsides(), st.integers(0, 2**32))
def test_null_slots_end_the_entries_that_have_not_ended(outside: Outside, seed: int) -> None:
    rep, ended, outer, slots = outside
    valid = np.random.default_rng(seed).random(slots) < 0.5
    entries = len(ended) if ended is not None else len(rep) if rep is not None else slots
    before = np.zeros(entries, np.uint8) if ended is None else ended
    expected = before.copy()
    has_slot = np.ones(entries, np.bool_) if outer is None else outer == 0
    expected[np.flatnonzero(has_slot)[~valid]] = 9
    expected[before != 0] = before[before != 0]
    for tier in TIERS:
        with force_tier(tier):
            np.testing.assert_array_equal(end_slots(entries, ended, outer, valid, 9), expected)


@given(st.integers(0, 300), st.sampled_from([0.0, 0.02, 0.7]), st.integers(0, 2**32))
def test_codes_become_levels(entries: int, share: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    levels = rng.integers(0, 65536, 256).astype(np.uint16)
    levels[0] = 0
    ended = np.where(rng.random(entries) < share, rng.integers(0, 256, entries), 0).astype(np.uint8)
    for tier in TIERS:
        with force_tier(tier):
            np.testing.assert_array_equal(number_ends(ended, levels), levels[ended])


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("lengths", [[1], [1, 2, 3], [1, -1], [1, 2**63 - 1], [2**62, 2**62]])
def test_lengths_that_do_not_match_are_refused(tier: Tier, lengths: list[int]) -> None:
    with force_tier(tier), pytest.raises(ValueError, match="do not match 2 entries"):
        spread_lists(
            None, None, None, np.array(lengths), None,
            entries=2, repeated=1, null_code=1, empty_code=2,
        )  # fmt: skip


@pytest.mark.parametrize("tier", TIERS)
def test_arrays_of_other_sizes_are_refused(tier: Tier) -> None:
    one, two = np.zeros(1, np.uint8), np.zeros(2, np.uint8)
    lengths = np.ones(2, np.int64)
    options: Any = {"entries": 2, "repeated": 1, "null_code": 1, "empty_code": 2}
    with force_tier(tier):
        with pytest.raises(ValueError, match="'ended' has shape"):
            spread_lists(None, one, two, lengths, None, **options)
        with pytest.raises(ValueError, match="'valid' has shape"):
            spread_lists(None, None, None, lengths, np.ones(1, np.bool_), **options)
        with pytest.raises(ValueError, match="validity of 1 slots"):
            end_slots(2, None, two, np.ones(1, np.bool_), 1)
        with pytest.raises(ValueError, match="levels for codes up to 3"):
            number_ends(two + 3, np.zeros(3, np.uint16))
