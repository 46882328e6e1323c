"""Indices of vectors among which some are near the largest number, whose distances overflow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.index.vector.coder import ScalarCoder
from glaive.index.vector.storage import ColumnVectors

KINDS = ["FLAT", "SQ", "PQ", "RQ", "HNSW_FLAT", "HNSW_SQ", "HNSW_PQ"]
LARGE = 3.4e38
DIMENSION = 16


def vectors(large: slice) -> np.ndarray[Any, np.dtype[np.float32]]:
    rng = np.random.default_rng(0)
    made = rng.normal(size=(560, DIMENSION)).astype(np.float32)
    made[large] = LARGE * rng.choice([-1, 1], size=made[large].shape)
    return made


def indexed(place: Path, rows: np.ndarray[Any, Any], kind: str, metric: str) -> glaive.LanceDataset:
    column = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), DIMENSION)
    dataset = glaive.write_dataset(pa.table({"v": column}), place)
    parameters = {"num_sub_vectors": DIMENSION} if kind.endswith("PQ") else {}
    dataset.create_index("v", f"IVF_{kind}", metric=metric, num_partitions=4, **parameters)
    return dataset


def nearest(dataset: glaive.LanceDataset, query: Any, **options: Any) -> list[int]:
    wanted = {"column": "v", "q": query, "k": 5, "nprobes": 4, **options}
    found = dataset.to_table(nearest=wanted, columns=["_distance"], with_row_id=True)
    ids: Any = found["_rowid"].to_pylist()
    return list(ids)


CASES = {
    "some of l2": ("l2", 7),
    "some of cosine": ("cosine", 7),
    "some of dot": ("dot", 7),
    "all": ("l2", 1),
}


@pytest.mark.sampled(every=10)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", KINDS)
def test_indices_are_built_and_searched_without_a_warning(
    tmp_path: Path, kind: str, case: str
) -> None:
    metric, step = CASES[case]
    rows = vectors(slice(0, None, step))
    dataset = indexed(tmp_path, rows, kind, metric)
    for query in (rows[0], rows[1], np.zeros(DIMENSION, np.float32)):
        nearest(dataset, query)
        nearest(dataset, query, refine_factor=3)
    dataset.insert(dataset.to_table().slice(0, 20))
    dataset.optimize.optimize_indices()
    nearest(dataset, rows[1])


@pytest.mark.parametrize("size", [1e19, LARGE])
@pytest.mark.parametrize("kind", ["RQ", "HNSW_FLAT"])
def test_a_small_index_is_built_without_a_warning(tmp_path: Path, kind: str, size: float) -> None:
    rows = np.random.default_rng(0).uniform(-size, size, (40, DIMENSION)).astype(np.float32)
    dataset = indexed(tmp_path, rows, kind, "l2")
    nearest(dataset, rows[1])


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("kind", ["FLAT", "PQ", "RQ", "HNSW_FLAT", "HNSW_PQ"])
def test_a_few_such_rows_do_not_keep_others_from_being_found(tmp_path: Path, kind: str) -> None:
    """Trained with them, every centroid would be infinitely far from every row."""
    rows = vectors(slice(0, None, 7))
    dataset = indexed(tmp_path, rows, kind, "l2")
    for row in (1, 100, 500):
        exact = nearest(dataset, rows[row], use_index=False)
        found = nearest(dataset, rows[row], refine_factor=10)
        assert found[0] == exact[0] == row
        assert len(set(found) & set(exact)) >= 4


def test_codes_of_bounds_that_are_further_apart_than_the_largest_number() -> None:
    numbers = np.linspace(-LARGE, LARGE, 256, dtype=np.float32)[None]
    coder = ScalarCoder(256, -LARGE, LARGE, dot=True)
    block = ColumnVectors(numbers, numbers, np.zeros(1, np.uint64))
    codes = coder.encode(block, numbers, np.zeros(1, np.int32))["__sq_code"]
    assert np.abs(codes[0].astype(int) - np.arange(256)).max() <= 1
    points = coder.points(np.array([(codes[0],)], [("__sq_code", np.uint8, 256)]))
    assert np.allclose(points.vectors[0], numbers[0], rtol=0, atol=LARGE / 100)
