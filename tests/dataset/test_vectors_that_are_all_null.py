"""New rows of which none has a vector, under an index of vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive

VECTORS = pa.list_(pa.float32(), 8)
CODES: dict[str, dict[str, Any]] = {
    **{f"rq-{bits}-bits": {"index_type": "IVF_RQ", "num_bits": bits} for bits in range(1, 10)},
    "rq-matrix": {"index_type": "IVF_RQ", "num_bits": 5, "rotation_type": "matrix"},
    "pq-4-bits": {"index_type": "IVF_PQ", "num_sub_vectors": 2, "num_bits": 4},
    "sq": {"index_type": "IVF_SQ"},
    "flat": {"index_type": "IVF_FLAT"},
    "hnsw": {"index_type": "IVF_HNSW_SQ"},
}


@pytest.mark.sampled(every=4)
@pytest.mark.spec("vector-19")
@pytest.mark.parametrize("merged", [0, 5], ids=["segment of their own", "merged"])
@pytest.mark.parametrize("kind", CODES)
def test_rows_without_vectors_are_added_to_an_index(tmp_path: Path, kind: str, merged: int) -> None:
    numbers = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
    vectors = pa.array(list(numbers), VECTORS)
    dataset = glaive.write_dataset(pa.table({"id": np.arange(40), "v": vectors}), tmp_path)
    dataset.create_index("v", num_partitions=2, **CODES[kind])
    absent = pa.table({"id": np.arange(40, 45), "v": pa.nulls(5, VECTORS)})
    dataset = glaive.write_dataset(absent, tmp_path, mode="append")
    dataset.optimize.optimize_indices(num_indices_to_merge=merged)
    assert dataset.stats.index_stats("v_idx")["num_unindexed_rows"] == 0
    nearest = {"column": "v", "q": numbers[7], "k": 100, "nprobes": 2}
    found = dataset.to_table(["id"], nearest=nearest)
    assert sorted(found["id"].to_pylist()) == list(range(40))
