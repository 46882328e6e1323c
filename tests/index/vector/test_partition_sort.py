"""Records come back by partition, in the order in which they came, from memory or a file."""

from __future__ import annotations

import numpy as np
import pytest

from glaive.index.vector.graph import PartitionSort

RECORD = np.dtype([("_rowid", np.uint64), ("codes", np.uint8, (100,))])


@pytest.mark.parametrize("memory_limit", [1 << 30, 0, 3_000_000])
def test_records_come_back_by_partition(memory_limit: int) -> None:
    random = np.random.default_rng(0)
    rows = np.arange(60_000, dtype=np.uint64)
    partitions = random.integers(0, 7, len(rows)).astype(np.int32)
    partitions[partitions == 3] = 5
    records = np.zeros(len(rows), RECORD)
    records["_rowid"], records["codes"] = rows, (rows % 251)[:, None]
    with PartitionSort(7, RECORD, memory_limit) as sort:
        for start in range(0, len(rows), 1000):
            sort.add(partitions[start : start + 1000], records[start : start + 1000])
        seen = []
        for group in sort.groups():
            for at in range(len(group.bounds) - 1):
                part = group.records[group.bounds[at] : group.bounds[at + 1]]
                assert part["_rowid"].tolist() == rows[partitions == group.first + at].tolist()
                assert (part["codes"] == (part["_rowid"] % 251)[:, None]).all()
                seen.append(group.first + at)
        assert seen == list(range(7))
        assert sort.sizes.tolist() == np.bincount(partitions, minlength=7).tolist()


def test_no_records_are_empty_partitions() -> None:
    with PartitionSort(3, RECORD, 0) as sort:
        (group,) = sort.groups()
    assert group.bounds.tolist() == [0, 0, 0, 0]
    assert len(group.records) == 0
