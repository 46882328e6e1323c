"""Partitions that a search of an index goes on with, until there are enough rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive

ROWS, DIMENSION, PARTITIONS = 4000, 16, 20


@pytest.mark.spec("vector-33")
@pytest.mark.parametrize(
    ("kind", "dtype", "parameters"),
    [
        ("IVF_FLAT", np.float32, {}),
        ("IVF_FLAT", np.float16, {}),
        ("IVF_FLAT", np.float64, {}),
        ("IVF_RQ", np.float32, {"num_bits": 9}),
    ],
)
def test_codes_that_are_compared_partition_by_partition_are_counted_once(
    tmp_path: Path, kind: str, dtype: Any, parameters: dict[str, Any]
) -> None:
    vectors = np.random.default_rng(0).standard_normal((ROWS, DIMENSION)).astype(dtype)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), DIMENSION)
    rows = pa.table({"far": vectors[:, 0] > 0, "v": column})
    dataset = glaive.write_dataset(rows, tmp_path / "d.lance")
    dataset.create_index("v", kind, num_partitions=PARTITIONS, **parameters)
    query = np.zeros(DIMENSION, np.float32)
    query[0] = -2
    nearest = {"column": "v", "q": query, "search_effort": 0.0}
    for k in (300, 1200):
        for options in ({}, {"filter": "far", "prefilter": True}):
            found = dataset.to_table(columns=["far"], nearest={**nearest, "k": k}, **options)
            assert len(found) == k
