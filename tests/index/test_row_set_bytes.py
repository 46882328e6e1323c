"""Many sets of rows encoded at a time have the bytes that the roaring library writes for each."""

from __future__ import annotations

import numpy as np
import pytest

from glaive.index.row_sets import ROWSETS


@pytest.mark.parametrize("count", [1, 4095, 4096, 4097, 20_000])
@pytest.mark.parametrize("step", [1, 3])
def test_a_set_has_the_bytes_of_the_roaring_library(count: int, step: int) -> None:
    """Containers of up to 4,096 numbers are lists, of more bits; neighbours are runs."""
    fragment = np.uint64(7 << 32)
    rows = fragment + np.arange(count, dtype=np.uint64) * np.uint64(step)
    sets = ROWSETS.encode(np.concatenate([rows, rows[:1]]), np.array([0, count, count + 1]))
    assert sets[0].as_py() == ROWSETS.of(rows)
    assert sets[1].as_py() == ROWSETS.of(rows[:1])
