"""Scans of thousands of fragments take time by their number, not by its square."""

from __future__ import annotations

from pathlib import Path
from time import process_time

import pyarrow as pa
import pytest

import glaive
from glaive import FragmentMetadata, LanceOperation

FRAGMENTS, COLUMNS = 12_000, 4


@pytest.mark.nightly(reason="plans for many thousand fragments")
@pytest.mark.spec("rel-25")
def test_rows_of_all_fragments_are_not_added_up_for_each_list_of_each_fragment(
    tmp_path: Path,
) -> None:
    """70 KB of a manifest took half a minute, and 700 KB an hour."""
    schema = pa.schema([(f"c{at}", pa.list_(pa.int64())) for at in range(COLUMNS)])
    dataset = glaive.write_dataset(schema.empty_table(), tmp_path)
    fragments = [FragmentMetadata(0, files=[], physical_rows=1) for _ in range(FRAGMENTS)]
    dataset = glaive.LanceDataset.commit(dataset, LanceOperation.Append(fragments), read_version=1)
    started = process_time()
    assert dataset.to_table().num_rows == FRAGMENTS
    assert process_time() - started < 12
