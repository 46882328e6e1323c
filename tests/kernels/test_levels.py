"""List layers out of levels: both tiers agree with each other and with the plain rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from glaive.kernels._tier import as_array, force_tier
from glaive.kernels.levels import ListLayer, resolve_lists, validity_from_levels

TIERS = ("numpy", "numba")

ENTRIES = st.one_of(st.integers(0, 40), st.sampled_from([63, 64, 65, 1000, 4097]))


def levels(entries: int, seed: int, highest: int) -> tuple[NDArray[np.uint16], ...]:
    rng = np.random.default_rng(seed)
    rep = rng.integers(0, 3, entries).astype(np.uint16)
    rep[:1] = 2
    return rep, rng.integers(0, highest + 1, entries).astype(np.uint16)


def by_the_rules(
    rep: NDArray[np.uint16], definition: NDArray[np.uint16], limits: dict[str, int]
) -> dict[str, Any]:
    """Walk entry by entry, as ``docs/format/levels.md`` says."""
    offsets, valid, left_rep, left_def, items = [], [], [], [], 0
    for r, d in zip(rep.tolist(), definition.tolist(), strict=True):
        if r > 0:
            if d <= limits["slot_max"]:
                offsets.append(items)
                valid.append(limits["null_level"] == 0 or d != limits["null_level"])
            left_rep.append(r - 1)
            left_def.append(d if d > limits["resolved_max"] else 0)
        items += d <= limits["visible_max"]
    return {
        "offsets": [*offsets, items],
        "valid": valid,
        "rep": left_rep,
        "definition": left_def,
        "visible": items,
    }


def facts(layer: ListLayer, bits: int) -> dict[str, Any]:
    valid = [True] * layer.slots
    if layer.validity is not None:
        bitmap = np.unpackbits(as_array(layer.validity), bitorder="little")
        valid = bitmap[: layer.slots].astype(bool).tolist()
    assert layer.null_count == valid.count(False)
    assert layer.rep is not None
    assert layer.definition is not None
    return {
        "offsets": as_array(layer.offsets, f"<i{bits // 8}").tolist(),
        "valid": valid,
        "rep": layer.rep.tolist(),
        "definition": layer.definition.tolist(),
        "visible": layer.visible,
    }


@pytest.mark.spec("unshred-1", "visible-1", "visible-2", "rep-1", "def-3")
@pytest.mark.parametrize("bits", [32, 64])
@given(entries=ENTRIES, inner=st.integers(0, 2), nulls=st.booleans(), empties=st.booleans())
def test_a_list_layer_follows_the_rules(
    bits: int, entries: int, inner: int, nulls: bool, empties: bool
) -> None:
    resolved = inner + nulls + empties
    limits = {
        "visible_max": inner,
        "resolved_max": resolved,
        "slot_max": resolved,
        "null_level": inner + 1 if nulls else 0,
    }
    rep, definition = levels(entries, seed=entries, highest=resolved + 1)
    expected = by_the_rules(rep, definition, limits)
    for tier in TIERS:
        with force_tier(tier):
            layer = resolve_lists(rep, definition, offset_bits=bits, outer=True, **limits)
            assert layer is not None
            assert facts(layer, bits) == expected


@given(entries=ENTRIES)
def test_without_definition_levels_every_list_is_valid(entries: int) -> None:
    rep, _ = levels(entries, seed=entries, highest=0)
    limits = dict.fromkeys(("visible_max", "resolved_max", "slot_max", "null_level"), 0)
    expected = by_the_rules(rep, np.zeros(entries, np.uint16), limits)
    for tier in TIERS:
        with force_tier(tier):
            layer = resolve_lists(rep, None, offset_bits=32, outer=True, **limits)
            assert layer is not None
            assert layer.validity is None
            assert facts(layer, 32) == expected


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(("room", "fits"), [(2, False), (3, True), (4, True)])
def test_more_lists_than_there_is_room_for_are_refused(tier: Any, room: int, fits: bool) -> None:
    rep = np.array([1, 0, 1, 1, 0], np.uint16)
    limits = dict.fromkeys(("visible_max", "resolved_max", "slot_max", "null_level"), 0)
    with force_tier(tier):
        layer = resolve_lists(rep, None, offset_bits=32, outer=False, room=room, **limits)
    assert (layer is not None) == fits


@given(entries=ENTRIES, null_level=st.integers(1, 3), above=st.integers(0, 2))
def test_validity_of_items_follows_the_rules(entries: int, null_level: int, above: int) -> None:
    slot_max = null_level + above
    _, definition = levels(entries, seed=entries, highest=slot_max + 1)
    expected = [d != null_level for d in definition.tolist() if d <= slot_max]
    for tier in TIERS:
        with force_tier(tier):
            bitmap, nulls, slots = validity_from_levels(
                definition, slot_max=slot_max, null_level=null_level
            )
        assert slots == len(expected)
        assert nulls == expected.count(False)
        assert (bitmap is None) == (nulls == 0)
        if bitmap is not None:
            bits = np.unpackbits(as_array(bitmap), bitorder="little")
            assert bits[:slots].astype(bool).tolist() == expected
