"""Levels into offsets and validity; both tiers agree, and agree with the definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.tiers import Tier, force_tier

from glaive.kernels.levels import resolve_lists, validity_from_levels

TIERS: list[Tier] = ["numpy", "numba"]

SEEDS = st.integers(0, 2**32)
SIZES = st.one_of(st.integers(0, 70), st.integers(100, 1500))


def _bits(bitmap: object, count: int) -> list[bool]:
    raw = np.frombuffer(memoryview(bitmap), np.uint8)  # type: ignore[arg-type]  # a buffer
    return np.unpackbits(raw, bitorder="little")[:count].astype(bool).tolist()


@given(SEEDS, SIZES, st.booleans(), st.booleans(), st.sampled_from([32, 64]))
def test_lists_are_resolved_alike_by_both_tiers(
    seed: int, entries: int, with_def: bool, outer: bool, bits: int
) -> None:
    # Layers: nullable item (1), list that is null (2) or empty (3), something outside (4).
    rng = np.random.default_rng(seed)
    rep = rng.choice([0, 0, 0, 1, 2], entries).astype(np.uint16)
    definition = rng.choice([0, 0, 0, 1, 2, 3, 4], entries).astype(np.uint16) if with_def else None
    if definition is not None:
        # What is null outside begins a list, and so does the entry after it.
        outside = definition > 3
        rep[outside | np.append(False, outside[:-1])] = 2
    seen = []
    for tier in TIERS:
        with force_tier(tier):
            layer = resolve_lists(
                rep,
                definition,
                visible_max=1,
                resolved_max=3,
                slot_max=3,
                null_level=2,
                offset_bits=bits,
                outer=outer,
            )
        assert layer is not None
        offsets = np.frombuffer(memoryview(layer.offsets), f"<i{bits // 8}")
        validity = None if layer.validity is None else _bits(layer.validity, layer.slots)
        rest = [None if part is None else part.tolist() for part in (layer.rep, layer.definition)]
        seen.append((offsets.tolist(), validity, layer.null_count, layer.slots, rest))
    assert seen[0] == seen[1]
    levels = [0] * entries if definition is None else definition.tolist()
    begins = [at for at in range(entries) if rep[at] and levels[at] <= 3]
    before = np.cumsum([0, *(level <= 1 for level in levels)]).tolist()
    assert seen[0][0] == [*(before[at] for at in begins), before[-1]]
    valid = [levels[at] != 2 for at in begins]
    assert seen[0][1] == (None if all(valid) else valid)
    if outer:
        kept = [at for at in range(entries) if rep[at]]
        assert seen[0][4] == [
            [int(rep[at]) - 1 for at in kept],
            [levels[at] if levels[at] > 3 else 0 for at in kept],
        ]


@pytest.mark.spec("rel-23")
@pytest.mark.parametrize("tier", TIERS)
def test_validity_ends_with_its_slots(tier: Tier) -> None:
    # Of 4,000 entries, 2,500 begin a list, and 500 of these have a slot.
    rep = np.tile(np.array([1, 0, 0, 0, 1, 1, 1, 1], np.uint16), 500)
    levels = np.tile(np.array([2, 0, 0, 0, 5, 5, 5, 5], np.uint16), 500)
    with force_tier(tier):
        layer = resolve_lists(
            rep,
            levels,
            visible_max=0,
            resolved_max=2,
            slot_max=2,
            null_level=2,
            offset_bits=32,
            outer=False,
        )
        items, _, slots = validity_from_levels(levels, slot_max=2, null_level=2)
    assert layer is not None
    assert layer.validity is not None
    assert items is not None
    assert (layer.slots, layer.validity.size) == (500, 63)
    assert (slots, items.size) == (2000, 250)


@pytest.mark.parametrize("tier", TIERS)
def test_more_lists_than_there_is_room_for_are_not_written(tier: Tier) -> None:
    rep = np.ones(200, np.uint16)
    for capacity, slots in ((199, None), (200, 200)):
        with force_tier(tier):
            layer = resolve_lists(
                rep,
                None,
                visible_max=0,
                resolved_max=0,
                slot_max=0,
                null_level=0,
                offset_bits=32,
                outer=False,
                capacity=capacity,
            )
        assert (None if layer is None else layer.slots) == slots


@pytest.mark.spec("rel-42")
@pytest.mark.parametrize("tier", TIERS)
def test_items_of_what_is_null_outside_are_not_given_to_the_list_before(tier: Tier) -> None:
    # Rows of lists of lists; level 1 is a null row. Item 300 would be in the row before.
    for null, item in ((299, 300), (300, 300), (63, 64), (127, 127)):
        rep = np.full(400, 2, np.uint16)
        levels = np.zeros(400, np.uint16)
        levels[null] = 1
        for continues, expected in ((False, 399), (True, None)):
            rep[item] = 0 if continues else 2
            with force_tier(tier):
                layer = resolve_lists(
                    rep,
                    levels,
                    visible_max=0,
                    resolved_max=0,
                    slot_max=0,
                    null_level=0,
                    offset_bits=32,
                    outer=True,
                )
            assert (None if layer is None else layer.slots) == expected


@given(SEEDS, SIZES, st.sampled_from([1, 2, 65535]), st.integers(1, 2))
def test_validity_is_found_alike_by_both_tiers(
    seed: int, entries: int, slot_max: int, null_level: int
) -> None:
    rng = np.random.default_rng(seed)
    definition = rng.choice([0, 0, 0, 0, 1, 2, 3], entries).astype(np.uint16)
    slotted = [level for level in definition.tolist() if level <= slot_max]
    for tier in TIERS:
        with force_tier(tier):
            bitmap, nulls, slots = validity_from_levels(
                definition, slot_max=slot_max, null_level=null_level
            )
        assert slots == len(slotted)
        assert nulls == slotted.count(null_level)
        assert (bitmap is None) == (nulls == 0)
        if bitmap is not None:
            assert _bits(bitmap, slots) == [level != null_level for level in slotted]
