"""Codes of product quantisation as scans and graphs keep them in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.kernels.graph_search import CodeRows, code_blocks
from glaive.scan.indices import SnapshotIndices


@pytest.mark.parametrize("kind", ["IVF_PQ", "IVF_HNSW_PQ"])
def test_codes_are_kept_in_a_second_order_only_where_they_are_scanned(
    tmp_path: Path, kind: str
) -> None:
    numbers = np.random.default_rng(1).normal(size=2_100 * 8).astype(np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(numbers), 8)
    dataset = glaive.write_dataset(pa.table({"v": vectors}), tmp_path / "v")
    dataset = dataset.create_index("v", kind, num_partitions=1, num_sub_vectors=2)
    (index,) = SnapshotIndices.of(dataset.opened.snapshot).on(0)
    opened: Any = SnapshotIndices.of(dataset.opened.snapshot).open(index.segments[0])
    scanned: CodeRows = opened.load(0).scanned
    expected = None if "HNSW" in kind else code_blocks(scanned.codes)
    assert (scanned.blocks is None) == (expected is None)
