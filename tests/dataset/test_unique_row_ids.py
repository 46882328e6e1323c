"""Stable row ids that several runs contain are found when a version is validated."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from glaive.dataset.validate import IdRuns

RUN = st.tuples(st.integers(0, 20), st.integers(0, 3))


@given(st.lists(st.lists(RUN, max_size=4), max_size=3))
def test_an_id_of_several_runs_is_found(parts: list[list[tuple[int, int]]]) -> None:
    runs = [
        IdRuns(
            np.array([low for low, _ in part], np.uint64),
            np.array([low + more for low, more in part], np.uint64),
        )
        for part in parts
    ]
    ids = [one for part in parts for low, more in part for one in range(low, low + more + 1)]
    repeated = {one for one in ids if ids.count(one) > 1}
    found = IdRuns.joined(runs).repeated()
    assert (found in repeated) if repeated else (found is None)
