"""Levels are cut where chunks of values end, and the rows in each are counted; both tiers agree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.kernels.levels import count_starts, cut_visible


@given(
    st.lists(st.integers(1, 200), min_size=1, max_size=6),
    st.sampled_from([0.0, 0.02, 0.5, 0.98]),
    st.integers(0, 2),
    st.integers(0, 2**32),
)
def test_a_chunk_ends_after_its_last_visible_entry(
    counts: list[int], hidden: float, visible_max: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    values = sum(counts) + int(rng.integers(0, 3))
    definition: list[int] = []
    while values:
        visible = rng.random() >= hidden
        values -= visible
        definition.append(int(rng.integers(0, visible_max + 1)) if visible else visible_max + 1)
    expected, seen, places = [], 0, np.cumsum(counts).tolist()
    for entry, level in enumerate(definition):
        seen += level <= visible_max
        if level <= visible_max and seen in places:
            expected.append(entry + 1)
    ends = cut_visible(np.array(definition, np.uint16), visible_max, np.array(counts))
    assert ends.tolist() == expected


@given(
    st.lists(st.integers(0, 200), min_size=1, max_size=6),
    st.sampled_from([0.0, 0.02, 0.5, 1.0]),
    st.integers(1, 3),
    st.integers(0, 2**32),
)
def test_rows_are_counted_in_the_chunk_in_which_they_start(
    sizes: list[int], share: float, max_rep: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    entries = sum(sizes)
    starts_row = rng.random(entries) < share
    rep = np.where(starts_row, max_rep, rng.integers(0, max_rep, entries)).astype(np.uint16)
    cuts = np.append(0, np.cumsum(sizes))
    starts, behind = [], []
    for begin, end in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        rows = [at for at in range(begin, end) if rep[at] == max_rep]
        starts.append(len(rows))
        behind.append(end - (rows[-1] if rows else begin))
    found = count_starts(rep, cuts, max_rep)
    assert [part.tolist() for part in found] == [starts, behind]


@pytest.mark.parametrize("counts", [[3], [1, 2], [2**62, 2**62, 1], [0, 1], [-1]])
def test_chunks_of_more_values_than_there_are_have_no_cuts(counts: list[int]) -> None:
    levels = np.array([0, 1, 0, 1], np.uint16)
    with pytest.raises(ValueError, match="values"):
        cut_visible(levels, 0, np.array(counts))


@pytest.mark.parametrize("cuts", [[], [-1, 2], [0, 5], [0, 3, 2, 4]])
def test_cuts_that_do_not_ascend_within_the_levels_are_refused(cuts: list[int]) -> None:
    with pytest.raises(ValueError, match="cuts"):
        count_starts(np.zeros(4, np.uint16), np.array(cuts, np.int64), 1)
