"""Addresses of rows are found in the list of fragments, whose ids have gaps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.errors import NotFoundError


@pytest.fixture
def dataset(tmp_path: Path) -> glaive.LanceDataset:
    """A dataset with the fragments 1, 2, 4 and 5."""
    table = pa.table({"id": np.arange(50)})
    made = glaive.write_dataset(table, tmp_path / "t", max_rows_per_file=10)
    made.delete("id < 5 or (id >= 30 and id < 40)")
    made.optimize.compact_files(target_rows_per_fragment=10, materialize_deletions_threshold=0.0)
    return made


def test_rows_are_found_by_address_in_any_order(dataset: glaive.LanceDataset) -> None:
    ids = dataset.manifest.fragment_ids.tolist()
    assert ids == [1, 2, 4, 5]
    wanted = [(4, 7), (5, 2), (1, 0), (4, 0), (5, 0)]
    addresses = np.array([fragment << 32 | row for fragment, row in wanted], np.uint64)
    positions, rows = dataset.snapshot.places_of(addresses)
    assert [(ids[position], row) for position, row in zip(positions, rows, strict=True)] == wanted


@pytest.mark.parametrize("absent", [3, 99])
def test_an_address_in_no_fragment_is_refused(dataset: glaive.LanceDataset, absent: int) -> None:
    addresses = np.array([4 << 32, absent << 32, 1 << 32], np.uint64)
    with pytest.raises(NotFoundError, match=f"no fragment {absent}"):
        dataset.snapshot.places_of(addresses)


def test_no_addresses_are_at_no_places(dataset: glaive.LanceDataset) -> None:
    positions, rows = dataset.snapshot.places_of(np.empty(0, np.uint64))
    assert (len(positions), len(rows)) == (0, 0)
