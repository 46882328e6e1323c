"""Compaction comes to an end: what it made is not put together again."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import glaive
from glaive.optimize import Compaction


def rows(count: int, width: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table({"id": range(count), "raw": [rng.bytes(width) for _ in range(count)]})


fragments = st.lists(
    st.tuples(st.integers(1, 300), st.sampled_from([0, 10, 100, 1000])), min_size=1, max_size=8
)


@given(
    fragments,
    st.sampled_from([50, 100, 500, 10**6]),
    st.sampled_from([2_000, 20_000, 100_000, 10**9]),
    st.sampled_from([0, 3, 2]),
)
def test_a_few_passes_leave_nothing_to_plan(
    parts: list[tuple[int, int]], target_rows: int, max_bytes: int, deleted: int
) -> None:
    path = Path(tempfile.mkdtemp())
    try:
        for seed, (count, width) in enumerate(parts):
            made = glaive.write_dataset(rows(count, width, seed), path / "t", mode="append")
        if deleted:
            made.delete(f"id % {deleted} = 1")
        options = {
            "target_rows_per_fragment": target_rows,
            "max_bytes_per_file": max_bytes,
        }
        order = [("id", "ascending"), ("raw", "ascending")]
        before = made.to_table().sort_by(order)
        # What a pass makes stands behind the other fragments, where it may meet new neighbours.
        for _ in range(3):
            glaive.dataset(path / "t").optimize.compact_files(**options)
        assert glaive.dataset(path / "t").to_table().sort_by(order).equals(before)
        assert not Compaction.plan(glaive.dataset(path / "t"), options).tasks
    finally:
        shutil.rmtree(path)


def test_fragments_that_are_full_by_their_bytes_are_left_alone(tmp_path: Path) -> None:
    for seed in range(4):
        made = glaive.write_dataset(rows(100, 1000, seed), tmp_path / "t", mode="append")
    ids = [fragment.fragment_id for fragment in made.get_fragments()]
    made.optimize.compact_files(max_bytes_per_file=90_000)
    assert [fragment.fragment_id for fragment in made.get_fragments()] == ids
    made.optimize.compact_files(max_bytes_per_file=250_000)
    assert len(made.get_fragments()) < 4
