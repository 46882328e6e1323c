"""Values find their chunks; both tiers agree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.tiers import Tier, force_tier

from glaive.errors import RowIndexError
from glaive.kernels.row_takes import locate_values

TIERS: list[Tier] = ["numpy", "numba"]


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[int], list[int], int]:
    """Values of each chunk, chunks of each page, and the shift: all chunks but the last are full.

    The last chunk of a page may have more values than the others.
    """
    shift = draw(st.integers(0, 5))
    pages = draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    counts: list[int] = []
    for chunks in pages:
        counts += [1 << shift] * (chunks - 1) + [draw(st.integers(1, 3 << shift))]
    return counts, pages, shift


@given(tables(), st.data(), st.booleans(), st.sampled_from(TIERS))
def test_values_lie_in_the_chunks_they_are_found_in(
    table: tuple[list[int], list[int], int], data: st.DataObject, is_even: bool, tier: Tier
) -> None:
    counts, pages, shift = table
    firsts = np.cumsum([0, *counts])
    values = data.draw(st.lists(st.integers(0, int(firsts[-1]) - 1), max_size=200))
    first_chunks = None if len(pages) == 1 else np.cumsum([0, *pages])
    with force_tier(tier):
        found = locate_values(
            np.array(values, np.int64), firsts, first_chunks, shift if is_even else -1
        )
    chunk = [int(np.searchsorted(firsts, value, "right")) - 1 for value in values]
    assert found.ids.tolist() == sorted(set(chunk))
    assert found.ids[found.slots].tolist() == chunk
    assert (firsts[chunk] + found.places).tolist() == values


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("value", [-1, 2000, 2**62])
def test_values_beyond_the_chunks_are_refused(tier: Tier, value: int) -> None:
    with force_tier(tier), pytest.raises(RowIndexError, match="of 2000 in all"):
        locate_values(np.array([3, value]), np.array([0, 1024, 2000]), None, 10)
