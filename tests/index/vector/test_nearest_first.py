"""The nearest of many distances come as sorting all of them has them."""

from __future__ import annotations

import numpy as np
import pytest

from glaive.index.vector.opened import nearest_first


@pytest.mark.parametrize("size", [1, 255, 256, 3000])
@pytest.mark.parametrize("absent", [0.0, 0.5, 0.999])
def test_equal_distances_stay_in_their_order_and_absent_ones_come_last(
    size: int, absent: float
) -> None:
    random = np.random.default_rng(size)
    distances = random.integers(0, 50, size).astype(np.float32)
    distances[random.random(size) < absent] = np.nan
    sorted_all = distances.argsort(kind="stable")
    for count in (1, 8, 200, size - 1, size, size + 5):
        assert nearest_first(distances, count).tolist() == sorted_all[:count].tolist()
